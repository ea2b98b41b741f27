//! Jolokia requests that scripts and autoscalers make of an ActiveMQ broker: the attributes of one
//! queue.
//!
//! `GET
//! /api/jolokia/read/org.apache.activemq:type=Broker,brokerName=B,destinationType=Queue,destinationName=Q/QueueSize`

use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::Destination;
use serde_json::{Value, json};

use super::lists::{Queue, find};
use super::problem::Problem;
use super::{Api, Caller};

pub async fn read(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(path): Path<String>,
) -> Result<Json<Value>, Problem> {
    let (bean, attribute) = match split(&path) {
        Some((bean, attribute)) => (bean, Some(attribute)),
        None => (unescaped(&path), None),
    };
    let mut request = json!({ "mbean": bean, "type": "read" });
    if let Some(attribute) = &attribute {
        request["attribute"] = json!(attribute);
    }
    let timestamp = api.now_ms() / 1000;
    let failed = |status: u16, kind: &str, error: String| {
        Json(json!({
            "request": request, "status": status, "timestamp": timestamp,
            "error_type": kind, "error": format!("{kind} : {error}"),
        }))
    };
    let Some(name) = queue_name(&bean) else {
        let error = format!("{bean}: only queues of {} are supported", api.0.options.broker_name);
        return Ok(failed(404, "javax.management.InstanceNotFoundException", error));
    };
    let client = api.client(&caller).await?;
    let Some(queue) = find(&client, Destination::queue(&name)).await? else {
        return Ok(failed(404, "javax.management.InstanceNotFoundException", bean));
    };
    let attributes = attributes(&name, &queue);
    let value = match &attribute {
        None => attributes,
        Some(attribute) => match attributes.get(attribute) {
            Some(value) => value.clone(),
            None => {
                let error = format!("No such attribute: {attribute}");
                return Ok(failed(404, "javax.management.AttributeNotFoundException", error));
            }
        },
    };
    Ok(Json(json!({ "request": request, "value": value, "timestamp": timestamp, "status": 200 })))
}

fn attributes(name: &str, queue: &Queue) -> Value {
    json!({
        "Name": name,
        "QueueSize": queue.messages,
        "ConsumerCount": queue.consumers,
        "EnqueueCount": queue.enqueued,
        "DequeueCount": queue.consumed,
        "ExpiredCount": queue.expired,
        "InFlightCount": queue.in_flight,
    })
}

/// The bean and the attribute: `/` parts them, and `!/` is one that belongs to a name.
fn split(path: &str) -> Option<(String, String)> {
    let mut ends = path.char_indices().filter(|(at, found)| *found == '/' && !path[..*at].ends_with('!'));
    let (at, _) = ends.next_back()?;
    Some((unescaped(&path[..at]), unescaped(&path[at + 1..])))
}

fn unescaped(text: &str) -> String {
    text.replace("!/", "/").replace("!!", "!")
}

/// The name of the queue that the bean is.
fn queue_name(bean: &str) -> Option<String> {
    let keys = bean.strip_prefix("org.apache.activemq:")?;
    let of = |wanted: &str| {
        let pairs = keys.split(',').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == wanted).map(|(_, value)| value)
    };
    let is_queue = of("type") == Some("Broker") && of("destinationType") == Some("Queue");
    of("destinationName").filter(|_| is_queue).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bean_names_its_queue_in_any_order_of_keys() {
        let keys = "type=Broker,brokerName=b,destinationType=Queue,destinationName=a.b";
        let other = "destinationName=a.b,destinationType=Queue,brokerName=b,type=Broker";
        for (bean, want) in [
            (format!("org.apache.activemq:{keys}"), Some("a.b")),
            (format!("org.apache.activemq:{other}"), Some("a.b")),
            (format!("java.lang:{keys}"), None),
            ("org.apache.activemq:type=Broker,brokerName=b".to_owned(), None),
            (format!("org.apache.activemq:{}", keys.replace("Queue", "Topic")), None),
        ] {
            assert_eq!(queue_name(&bean).as_deref(), want, "{bean}");
        }
        assert_eq!(split("a=b!/c/QueueSize"), Some(("a=b/c".to_owned(), "QueueSize".to_owned())));
        assert_eq!(split("a=b!/c"), None);
    }
}
