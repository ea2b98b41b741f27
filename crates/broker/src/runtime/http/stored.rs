//! HTTP bodies as messages that clients of every protocol read: text, or bytes where they are no
//! text.

use bytes::Bytes;
use data_encoding::BASE64;
use postroad_amqp::message::plain_text;
use postroad_amqp::portable::write_portable;
use postroad_ironmq::TraceHeaders;
use postroad_model::portable::{Body, Headers, Portable, Text, Value};
use postroad_model::{Encoding, Message, NORMAL_PRIORITY, Protocol};
use postroad_node::read_portable;

/// HTTP clients and endpoints get bodies up to this size: as much as a request may have.
pub const BODY_BYTES_MAX: u64 = 16 << 20;

/// The property in which headers for subscribers are kept, as JSON.
const PUSH_HEADERS: &str = "IronPushHeaders";

/// Properties of a message that an HTTP client posts.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Headers for subscribers, as JSON.
    pub push_headers: Option<String>,
    /// The trace of its sender.
    pub context: Option<TraceHeaders>,
}

impl Extras {
    fn properties(self) -> impl Iterator<Item = (Text, Value)> {
        let (parent, state) = match self.context {
            Some(TraceHeaders { parent, state }) => (Some(parent), state),
            None => (None, None),
        };
        let all = [(PUSH_HEADERS, self.push_headers), ("traceparent", parent), ("tracestate", state)];
        let given = all.into_iter().filter_map(|(name, text)| Some((name, text?)));
        given.map(|(name, text)| (Text::from(name), Value::String(text.as_str().into())))
    }
}

/// The message of a body, which ends and begins to be visible at these times; zero for never and at
/// once.
pub fn stored(
    body: Bytes,
    now_ms: u64,
    (expires_at_ms, visible_at_ms): (u64, u64),
    extras: Extras,
) -> Message {
    let body = match Text::from_utf8(body.clone()) {
        Some(text) => Body::Text(Some(text)),
        None => Body::Bytes(body),
    };
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let headers = Headers {
        persistent: true,
        timestamp_ms: Some(signed(now_ms)),
        expires_at_ms: Some(signed(expires_at_ms)).filter(|ends| *ends != 0),
        ..Headers::default()
    };
    let properties = extras.properties().collect();
    let bytes = write_portable(&Portable { headers, properties, body, ..Portable::default() });
    let encoding = Encoding { protocol: Protocol::Amqp, version: 0 };
    let message =
        Message { encoding, persistent: true, priority: NORMAL_PRIORITY, expires_at_ms, rare: None, bytes };
    message.with_visible_at_ms(visible_at_ms)
}

/// A map, a stream or another value becomes JSON text; other bodies stay as they are.
pub fn as_text(body: Body) -> Body {
    match postroad_admin::structured(&body) {
        Some(json) => Body::Text(Some(json.to_string().as_str().into())),
        None => body,
    }
}

/// The body of a message: text as it is, bytes in base64 where they are no text, maps and streams
/// as JSON.
pub fn body_of(message: &Message) -> String {
    match read_portable(message).map(|portable| as_text(portable.body)) {
        Ok(Body::Text(Some(text))) => text.as_str().to_owned(),
        Ok(Body::Bytes(bytes) | Body::Object(Some(bytes))) => match std::str::from_utf8(&bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => BASE64.encode(&bytes),
        },
        _ => String::new(),
    }
}

/// As [`body_of`], without a copy where the body is text in the message as it is stored.
pub fn with_body<T>(message: &Message, read: impl FnOnce(&str) -> T) -> T {
    match text_of(message) {
        Some(text) => read(text),
        None => read(&body_of(message)),
    }
}

/// The body of a message whose body is one text of AMQP, as those are that HTTP clients post.
fn text_of(message: &Message) -> Option<&str> {
    match message.encoding.protocol {
        Protocol::Amqp => plain_text(&message.bytes),
        _ => None,
    }
}

/// The body of a message as it is sent to endpoints: bytes as they are.
pub fn raw_body_of(message: &Message) -> Bytes {
    match read_portable(message).map(|portable| as_text(portable.body)) {
        Ok(Body::Text(Some(text))) => text.as_bytes().clone(),
        Ok(Body::Bytes(bytes) | Body::Object(Some(bytes))) => bytes,
        _ => Bytes::new(),
    }
}

/// Headers of a message for subscribers.
pub fn push_headers_of(message: &Message) -> Vec<(String, String)> {
    let Ok(portable) = read_portable(message) else { return Vec::new() };
    let found = portable.properties.iter().find(|(name, _)| name.as_str() == PUSH_HEADERS);
    let Some((_, Value::String(text))) = found else { return Vec::new() };
    let headers: std::collections::BTreeMap<String, String> =
        serde_json::from_str(text.as_str()).unwrap_or_default();
    headers.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_out_as_it_went_in() {
        for body in [&b""[..], b"text", "größe".as_bytes()] {
            let message = stored(Bytes::copy_from_slice(body), 1000, (0, 0), Extras::default());
            assert_eq!(body_of(&message).as_bytes(), body);
            assert!(text_of(&message).is_some());
            with_body(&message, |shown| assert_eq!(shown.as_bytes(), body));
        }
        let binary = stored(Bytes::from_static(b"\xff\x00"), 1000, (0, 0), Extras::default());
        with_body(&binary, |shown| assert_eq!(shown, "/wA="));
        let extras = Extras { push_headers: Some(r#"{"X-A":"b"}"#.to_owned()), ..Extras::default() };
        let pushed = stored(Bytes::new(), 1000, (0, 0), extras);
        assert_eq!(push_headers_of(&pushed), [("X-A".to_owned(), "b".to_owned())]);
        assert_eq!(stored(Bytes::new(), 1000, (0, 1500), Extras::default()).visible_at_ms(), 1500);
    }
}
