//! Messages as JSON: as they are shown, and as clients send them.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use postroad_model::portable::{Body, Headers, Id, Map, Portable, Text, Value};
use postroad_model::{Delivery, Destination, HIGHEST_PRIORITY, Message};
use postroad_node::read_portable;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::destination_of;
use super::problem::Problem;

/// A message of a queue.
#[derive(Debug, Serialize)]
pub struct Shown {
    pub id: Option<String>,
    destination: Option<String>,
    persistent: bool,
    priority: u8,
    timestamp_ms: Option<i64>,
    expires_at_ms: Option<u64>,
    correlation_id: Option<String>,
    reply_to: Option<String>,
    #[serde(rename = "type")]
    message_type: Option<String>,
    group_id: Option<String>,
    failed_deliveries: u32,
    bytes: u64,
    dead_letter_cause: Option<String>,
    /// Where a dead letter was.
    origin: Option<String>,
    properties: BTreeMap<String, serde_json::Value>,
    body: Option<ShownBody>,
    /// Why the rest is missing, if the message cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

/// The body of a message.
#[derive(Debug, Serialize)]
pub struct ShownBody {
    kind: &'static str,
    /// Text; bytes in base 64; maps and streams as JSON.
    value: serde_json::Value,
    /// Only the beginning is shown.
    is_cut: bool,
}

impl Shown {
    /// Of a delivery, with at most this number of bytes of the body.
    pub fn of(delivery: &Delivery, body_bytes_max: usize) -> Shown {
        let source = delivery.source.as_ref();
        Shown::of_message(&delivery.message, source, delivery.failed_deliveries, body_bytes_max)
    }

    /// Of a message of this destination.
    pub fn of_message(
        message: &Message,
        source: Option<&Destination>,
        failed_deliveries: u32,
        body_bytes_max: usize,
    ) -> Shown {
        let mut shown = Shown::without_portable(message, source, failed_deliveries);
        match read_portable(message) {
            Ok(portable) => shown.fill(&portable, message, body_bytes_max),
            Err(error) => shown.unreadable = Some(error.to_string()),
        }
        shown
    }

    /// Where a dead letter was.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    fn without_portable(message: &Message, source: Option<&Destination>, failed_deliveries: u32) -> Shown {
        Shown {
            id: None,
            destination: source.map(ToString::to_string),
            persistent: message.persistent,
            priority: message.priority,
            timestamp_ms: None,
            expires_at_ms: (0 < message.expires_at_ms).then_some(message.expires_at_ms),
            correlation_id: None,
            reply_to: None,
            message_type: None,
            group_id: message.group().map(|group| group.id.to_string()),
            failed_deliveries,
            bytes: message.size(),
            dead_letter_cause: None,
            origin: None,
            properties: BTreeMap::new(),
            body: None,
            unreadable: None,
        }
    }

    fn fill(&mut self, portable: &Portable, message: &Message, body_bytes_max: usize) {
        let headers = &portable.headers;
        let text = |text: &Option<Text>| text.as_ref().map(|text| text.as_str().to_owned());
        self.id = headers.message_id.as_ref().map(|id| id.to_jms_message_id().as_str().to_owned());
        if self.destination.is_none() {
            self.destination = headers.destination.as_ref().map(ToString::to_string);
        }
        self.timestamp_ms = headers.timestamp_ms;
        let correlation = headers.correlation_id.as_ref();
        self.correlation_id = correlation.map(|id| id.to_jms_correlation_id().as_str().to_owned());
        self.reply_to = headers.reply_to.as_ref().map(ToString::to_string);
        self.message_type = text(&headers.message_type);
        self.dead_letter_cause = text(&headers.dead_letter_cause);
        self.origin = headers.original_destination.as_ref().map(ToString::to_string);
        self.properties = portable.properties.iter().map(|(name, value)| named(name, value)).collect();
        // The body of a large message stays in the log.
        if message.chunks().is_none() {
            self.body = Some(shown_body(&portable.body, body_bytes_max));
        }
    }
}

/// Bytes of a body that are searched.
const SEARCHED_BYTES_MAX: usize = 1 << 20;

/// Whether the body of a message has this text, which is in lower case, in it. Bytes are searched
/// as text; the body of a large message is not searched.
pub fn body_has(message: &Message, text: &str) -> bool {
    let within = |body: &str| {
        let end = body.floor_char_boundary(SEARCHED_BYTES_MAX);
        body[..end].to_lowercase().contains(text)
    };
    if message.chunks().is_some() {
        return false;
    }
    match read_portable(message).map(|portable| portable.body) {
        Ok(Body::Text(Some(body))) => within(body.as_str()),
        Ok(Body::Bytes(bytes)) => {
            within(&String::from_utf8_lossy(&bytes[..bytes.len().min(SEARCHED_BYTES_MAX)]))
        }
        Ok(body) => structured(&body).is_some_and(|body| within(&body.to_string())),
        Err(_) => false,
    }
}

fn named(name: &Text, value: &Value) -> (String, serde_json::Value) {
    (name.as_str().to_owned(), json_of(value))
}

fn shown_body(body: &Body, bytes_max: usize) -> ShownBody {
    let cut_text = |kind, text: &str| {
        let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        ShownBody { kind, value: text[..end].into(), is_cut: end < text.len() }
    };
    let cut_bytes = |kind, bytes: &[u8]| {
        let end = bytes_max.min(bytes.len());
        ShownBody { kind, value: BASE64.encode(&bytes[..end]).into(), is_cut: end < bytes.len() }
    };
    // A map or stream is shown whole, or not at all.
    let whole = |kind, value: serde_json::Value| match value.to_string().len() <= bytes_max {
        true => ShownBody { kind, value, is_cut: false },
        false => ShownBody { kind, value: serde_json::Value::Null, is_cut: true },
    };
    match body {
        Body::None => ShownBody { kind: "none", value: serde_json::Value::Null, is_cut: false },
        Body::Text(None) => ShownBody { kind: "text", value: serde_json::Value::Null, is_cut: false },
        Body::Text(Some(text)) => cut_text("text", text.as_str()),
        Body::Bytes(bytes) => cut_bytes("bytes", bytes),
        Body::Object(bytes) => cut_bytes("object", bytes.as_deref().unwrap_or_default()),
        Body::Map(map) => whole("map", json_of_map(map)),
        Body::Stream(values) => whole("stream", values.iter().map(json_of).collect()),
        Body::Value(value) => whole("value", json_of(value)),
    }
}

/// A map, stream or other value as JSON; `None` for bodies that are text or bytes, and without a
/// body.
pub fn structured(body: &Body) -> Option<serde_json::Value> {
    match body {
        Body::Map(map) => Some(json_of_map(map)),
        Body::Stream(values) => Some(values.iter().map(json_of).collect()),
        Body::Value(value) => Some(json_of(value)),
        Body::None | Body::Text(_) | Body::Bytes(_) | Body::Object(_) => None,
    }
}

fn json_of_map(map: &Map) -> serde_json::Value {
    map.iter().map(|(name, value)| named(name, value)).collect::<serde_json::Map<_, _>>().into()
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(value) => json!(value),
        Value::Byte(value) => json!(value),
        Value::Short(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Long(value) | Value::Timestamp(value) => json!(value),
        Value::UnsignedByte(value) => json!(value),
        Value::UnsignedShort(value) => json!(value),
        Value::UnsignedInt(value) => json!(value),
        Value::UnsignedLong(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::Decimal(value) => json!(value.to_f64()),
        Value::Char(value) => json!(value),
        Value::Uuid(value) => json!(postroad_model::portable::uuid_text(value)),
        Value::Binary(value) => json!(BASE64.encode(value)),
        Value::String(value) | Value::Symbol(value) => json!(value.as_str()),
        Value::List(values) => values.iter().map(json_of).collect(),
        Value::Map(map) => json_of_map(map),
    }
}

/// A message to send.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToSend {
    /// Text.
    body: Option<String>,
    /// Instead of text: bytes in base 64.
    bytes: Option<String>,
    #[serde(default)]
    properties: serde_json::Map<String, serde_json::Value>,
    persistent: Option<bool>,
    priority: Option<u8>,
    ttl_ms: Option<u64>,
    correlation_id: Option<String>,
    reply_to: Option<String>,
    #[serde(rename = "type")]
    message_type: Option<String>,
    group_id: Option<String>,
}

impl ToSend {
    /// Adds a property, unless the request sets it.
    pub fn add_property(&mut self, name: &str, value: &str) {
        self.properties.entry(name).or_insert_with(|| value.into());
    }

    /// The message, for a queue or topic.
    pub fn portable(
        self,
        to: &Destination,
        id: &str,
        now_ms: u64,
        user: Option<&str>,
    ) -> Result<Portable, Problem> {
        let wrong = |message: String| Problem::new(400, message);
        let priority = self.priority.unwrap_or(postroad_model::NORMAL_PRIORITY);
        if HIGHEST_PRIORITY < priority {
            return Err(wrong(format!("priority is {priority}; 0 to {HIGHEST_PRIORITY} is right")));
        }
        let body = match (self.body, self.bytes) {
            (Some(_), Some(_)) => {
                return Err(wrong("body and bytes are both there; one is right".to_owned()));
            }
            (Some(text), None) => Body::Text(Some(text.as_str().into())),
            (None, Some(bytes)) => {
                let decoded = BASE64.decode(bytes.as_bytes());
                Body::Bytes(decoded.map_err(|error| wrong(format!("bytes is not base 64: {error}")))?.into())
            }
            (None, None) => Body::None,
        };
        let properties = self.properties.iter().map(|(name, value)| property(name, value));
        let text = |text: Option<String>| text.map(|text| Text::from(text.as_str()));
        let expires_at_ms = self.ttl_ms.filter(|ttl| 0 < *ttl).map(|ttl| now_ms.saturating_add(ttl));
        Ok(Portable {
            properties: properties.collect::<Result<_, _>>()?,
            annotations: Vec::new(),
            headers: Headers {
                message_id: Some(Id::from_jms(&id.into())),
                correlation_id: text(self.correlation_id).as_ref().map(Id::from_jms),
                destination: Some(to.clone()),
                reply_to: self.reply_to.as_deref().map(destination_of).transpose()?,
                message_type: text(self.message_type),
                group_id: text(self.group_id),
                user_id: user.map(|user| bytes::Bytes::copy_from_slice(user.as_bytes())),
                timestamp_ms: i64::try_from(now_ms).ok(),
                expires_at_ms: expires_at_ms.and_then(|at| i64::try_from(at).ok()),
                priority,
                persistent: self.persistent.unwrap_or(true),
                ..Headers::default()
            },
            body,
        })
    }
}

fn property(name: &str, value: &serde_json::Value) -> Result<(Text, Value), Problem> {
    use serde_json::Value as Json;
    let value = match value {
        Json::Bool(value) => Value::Boolean(*value),
        Json::String(text) => Value::String(text.as_str().into()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => i32::try_from(whole).map_or(Value::Long(whole), Value::Int),
            (None, Some(real)) => Value::Double(real),
            (None, None) => Value::Null,
        },
        _ => {
            let right = "a string, a number, true or false is right";
            return Err(Problem::new(400, format!("the property {name} is {value}; {right}")));
        }
    };
    Ok((name.into(), value))
}
