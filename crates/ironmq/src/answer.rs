//! Answers of the broker, as JSON.

use postroad_model::{LeaseId, QueueDescription, Reserved};
use serde_json::{Value, json};

use crate::{MessageId, Settings};

/// A word that something was done.
pub fn msg(text: &str) -> Value {
    json!({ "msg": text })
}

/// Messages were posted.
pub fn ids_posted(ids: impl Iterator<Item = MessageId>) -> Value {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    json!({ "ids": ids, "msg": "Messages put on queue." })
}

/// A reservation lasts longer.
pub fn touched(reservation: &LeaseId) -> Value {
    json!({ "reservation_id": reservation.0.to_string(), "msg": "Touched" })
}

/// One message with its body.
pub fn message(reserved: &Reserved, body: &str) -> Value {
    let id = MessageId { queue: reserved.queue, tag: reserved.tag };
    let mut message = json!({
        "id": id.to_string(),
        "body": body,
        "reserved_count": reserved.deliveries,
    });
    if let Some(lease) = reserved.lease {
        message["reservation_id"] = json!(lease.0.to_string());
    }
    message
}

/// Several messages.
pub fn messages(messages: Vec<Value>) -> Value {
    json!({ "messages": messages })
}

/// How far each subscriber is with a message.
pub fn push_statuses(subscribers: Vec<Value>) -> Value {
    json!({ "subscribers": subscribers })
}

/// Names of queues.
pub fn names<'n>(names: impl Iterator<Item = &'n str>) -> Value {
    let queues: Vec<Value> = names.map(|name| json!({ "name": name })).collect();
    json!({ "queues": queues })
}

/// A queue as it was set.
pub fn queue_settings(project: &str, name: &str, settings: &Settings) -> Value {
    let mut queue = json!({
        "project_id": project,
        "name": name,
        "message_timeout": settings.message_timeout_s,
        "message_expiration": settings.message_expiration_s,
        "type": settings.kind(),
    });
    if let Some(push) = &settings.push {
        queue["push"] = push.shown();
    }
    if !settings.alerts.is_empty() {
        queue["alerts"] = settings.alerts.shown();
    }
    if let Some((dead, max)) = &settings.dead_letter {
        queue["dead_letter"] = json!({ "queue_name": dead, "max_reservations": max });
    }
    json!({ "queue": queue })
}

/// A queue with the number of its messages.
pub fn queue_info(project: &str, name: &str, about: &QueueDescription) -> Value {
    let mut answer = queue_settings(project, name, &Settings::of(about.options.as_ref()));
    answer["queue"]["size"] = json!(about.length);
    answer["queue"]["total_messages"] = json!(about.total);
    answer
}
