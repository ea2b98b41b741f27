//! Messages as people and machines read them: a line of text, or a line of JSON.

use std::io::{self, Write};

use bytes::Bytes;
use postroad_openwire::client::{Body, Incoming, message_id_text};
use postroad_openwire::codec::{Message, MessageKind, Primitive, PrimitiveMap, WireString};
use serde::Serialize;
use serde_json::Value;

use crate::cli::base64;
use crate::cli::names::destination_text;

/// How messages are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The body and a line's end: text as it is, anything else described.
    Plain,
    /// The body's bytes and nothing else.
    Raw,
    /// One object in a line, with headers and properties.
    Json,
}

/// Writes one message. One whose producer wrote nonsense is shown as bytes, with the reason.
///
/// # Errors
/// `out` takes no more.
pub fn show(incoming: &Incoming, form: Form, out: &mut impl Write) -> io::Result<()> {
    let message = &*incoming.message;
    let (body, unreadable) = match Body::of(message) {
        Ok(body) => (body, None),
        Err(error) => (Body::Bytes(message.content.clone().unwrap_or_default()), Some(error.to_string())),
    };
    match (form, unreadable) {
        (Form::Plain, Some(reason)) => {
            write!(out, "[unreadable: {reason}] ")?;
            write_line(&body, out)
        }
        (Form::Plain, None) => write_line(&body, out),
        (Form::Raw, _) => write_raw(&body, out),
        (Form::Json, unreadable) => {
            serde_json::to_writer(&mut *out, &Shown::of(incoming, body, unreadable))?;
            out.write_all(b"\n")
        }
    }
}

fn write_line(body: &Body, out: &mut impl Write) -> io::Result<()> {
    let bytes = |what: &str, bytes: &Bytes, out: &mut dyn Write| {
        writeln!(out, "[{what}, {} bytes, base64] {}", bytes.len(), base64::encode(bytes))
    };
    match body {
        Body::Empty => writeln!(out, "[no body]"),
        Body::Text(Some(text)) => writeln!(out, "{text}"),
        Body::Text(None) => writeln!(out, "[null text]"),
        Body::Bytes(content) => bytes("bytes", content, out),
        Body::Object(content) => bytes("Java object", content, out),
        Body::Compressed(content) => bytes("compressed", content, out),
        Body::Map(map) => writeln!(out, "[map] {}", map_json(map)),
        Body::Stream(values) => writeln!(out, "[stream] {}", list_json(values)),
        Body::Blob(url) => writeln!(out, "[blob] {}", text_or_empty(url.as_ref())),
    }
}

fn write_raw(body: &Body, out: &mut impl Write) -> io::Result<()> {
    match body {
        Body::Empty | Body::Text(None) => Ok(()),
        Body::Text(Some(text)) => out.write_all(text.to_str().as_bytes()),
        Body::Bytes(content) | Body::Object(content) | Body::Compressed(content) => out.write_all(content),
        Body::Map(map) => write!(out, "{}", map_json(map)),
        Body::Stream(values) => write!(out, "{}", list_json(values)),
        Body::Blob(url) => out.write_all(text_or_empty(url.as_ref()).as_bytes()),
    }
}

/// The JSON form: names are stable, absent headers are left out.
#[derive(Serialize)]
struct Shown {
    message_id: String,
    destination: String,
    kind: &'static str,
    persistent: bool,
    priority: u8,
    timestamp_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<i64>,
    redelivered: bool,
    delivery_count: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    message_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_sequence: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    properties: Value,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    compressed: bool,
    /// Text, map and stream bodies; null for none.
    body: Value,
    /// Anything else, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// Why body or properties cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

impl Shown {
    fn of(incoming: &Incoming, body: Body, mut unreadable: Option<String>) -> Shown {
        let message = &*incoming.message;
        let properties = message.marshalled_properties.as_ref().map(PrimitiveMap::decode);
        let properties = properties.unwrap_or_else(|| Ok(PrimitiveMap::default())).unwrap_or_else(|error| {
            unreadable.get_or_insert_with(|| format!("properties: {error}"));
            PrimitiveMap::default()
        });
        let text = |text: &Option<WireString>| text.as_ref().map(|text| text.to_str().into_owned());
        let compressed = matches!(body, Body::Compressed(_));
        let (body, body_base64) = body_json(body);
        Shown {
            message_id: id_text(message),
            destination: destination_text(&incoming.destination),
            kind: kind_text(message.kind),
            persistent: message.persistent,
            priority: message.priority,
            timestamp_ms: message.timestamp_ms,
            expires_at_ms: Some(message.expiration_ms).filter(|ms| *ms != 0),
            redelivered: incoming.redeliveries > 0,
            delivery_count: incoming.redeliveries.saturating_add(1),
            correlation_id: text(&message.correlation_id),
            reply_to: message.reply_to.as_ref().map(destination_text),
            message_type: text(&message.message_type),
            group_id: text(&message.group_id),
            group_sequence: message.group_id.as_ref().map(|_| message.group_sequence),
            user_id: text(&message.user_id),
            properties: map_json(&properties),
            compressed,
            body,
            body_base64,
            unreadable,
        }
    }
}

fn body_json(body: Body) -> (Value, Option<String>) {
    match body {
        Body::Empty | Body::Text(None) => (Value::Null, None),
        Body::Text(Some(text)) => (text.to_str().into(), None),
        Body::Bytes(content) | Body::Object(content) | Body::Compressed(content) => {
            (Value::Null, Some(base64::encode(&content)))
        }
        Body::Map(map) => (map_json(&map), None),
        Body::Stream(values) => (list_json(&values), None),
        Body::Blob(url) => (url.map_or(Value::Null, |url| url.to_str().into()), None),
    }
}

fn id_text(message: &Message) -> String {
    message.message_id.as_ref().map(message_id_text).unwrap_or_default()
}

fn text_or_empty(text: Option<&WireString>) -> String {
    text.map(|text| text.to_str().into_owned()).unwrap_or_default()
}

fn kind_text(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Plain => "plain",
        MessageKind::Bytes => "bytes",
        MessageKind::Map => "map",
        MessageKind::Object => "object",
        MessageKind::Stream => "stream",
        MessageKind::Text => "text",
        MessageKind::Blob => "blob",
    }
}

fn map_json(map: &PrimitiveMap) -> Value {
    map.0.iter().map(|(name, value)| (name.to_str().into_owned(), primitive_json(value))).collect()
}

fn list_json(values: &[Primitive]) -> Value {
    values.iter().map(primitive_json).collect()
}

/// JSON has no bytes: they become `{"base64": …}`. It has no NaN and no infinity: they become their
/// names.
fn primitive_json(value: &Primitive) -> Value {
    let float = |value: f64| {
        serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
    };
    match value {
        Primitive::Null => Value::Null,
        Primitive::Boolean(value) => (*value).into(),
        Primitive::Byte(value) => (*value).into(),
        Primitive::Char(unit) => String::from_utf16_lossy(&[*unit]).into(),
        Primitive::Short(value) => (*value).into(),
        Primitive::Int(value) => (*value).into(),
        Primitive::Long(value) => (*value).into(),
        Primitive::Float(value) => float((*value).into()),
        Primitive::Double(value) => float(*value),
        Primitive::String(text) => text.to_str().into(),
        Primitive::Bytes(bytes) => serde_json::json!({ "base64": base64::encode(bytes) }),
        Primitive::Map(map) => map_json(map),
        Primitive::List(values) => list_json(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_shown_in_each_form() {
        let bytes = Bytes::from_static(b"\x01\xFF");
        let map: PrimitiveMap =
            [("n", Primitive::Long(7)), ("b", Primitive::Bytes(bytes.clone()))].into_iter().collect();
        let list = vec![Primitive::Double(f64::NAN), Primitive::Char(0x41), Primitive::Null];
        for (case, body, plain, raw) in [
            ("text", Body::Text(Some("é".into())), "é\n", "é".as_bytes()),
            ("null text", Body::Text(None), "[null text]\n", b""),
            ("none", Body::Empty, "[no body]\n", b""),
            ("bytes", Body::Bytes(bytes.clone()), "[bytes, 2 bytes, base64] Af8=\n", &bytes),
            ("object", Body::Object(bytes.clone()), "[Java object, 2 bytes, base64] Af8=\n", &bytes),
            ("deflated", Body::Compressed(bytes.clone()), "[compressed, 2 bytes, base64] Af8=\n", &bytes),
            (
                "map",
                Body::Map(map),
                "[map] {\"b\":{\"base64\":\"Af8=\"},\"n\":7}\n",
                b"{\"b\":{\"base64\":\"Af8=\"},\"n\":7}",
            ),
            ("stream", Body::Stream(list), "[stream] [\"NaN\",\"A\",null]\n", b"[\"NaN\",\"A\",null]"),
            ("blob", Body::Blob(Some("http://a".into())), "[blob] http://a\n", b"http://a"),
        ] {
            let (mut line, mut bytes) = (Vec::new(), Vec::new());
            write_line(&body, &mut line).unwrap();
            write_raw(&body, &mut bytes).unwrap();
            assert_eq!(String::from_utf8_lossy(&line), plain, "plain: {case}");
            assert_eq!(bytes, raw, "raw: {case}");
        }
    }
}
