//! HTTP bodies as messages that clients of every protocol read: text, or bytes where they are no text.

use bytes::Bytes;
use data_encoding::BASE64;
use postroad_amqp::portable::write_portable;
use postroad_model::portable::{Body, Headers, Portable, Text};
use postroad_model::{Encoding, Message, NORMAL_PRIORITY, Protocol};
use postroad_node::read_portable;

/// The message of a body, which ends and begins to be visible at these times; zero for never and at once.
pub fn stored(body: Bytes, now_ms: u64, expires_at_ms: u64, visible_at_ms: u64) -> Message {
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
    let bytes = write_portable(&Portable { headers, body, ..Portable::default() });
    let encoding = Encoding { protocol: Protocol::Amqp, version: 0 };
    let message =
        Message { encoding, persistent: true, priority: NORMAL_PRIORITY, expires_at_ms, rare: None, bytes };
    message.with_visible_at_ms(visible_at_ms)
}

/// The body of a message: text as it is, bytes in base64 where they are no text. Others have none.
pub fn body_of(message: &Message) -> String {
    match read_portable(message).map(|portable| portable.body) {
        Ok(Body::Text(Some(text))) => text.as_str().to_owned(),
        Ok(Body::Bytes(bytes) | Body::Object(Some(bytes))) => match std::str::from_utf8(&bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => BASE64.encode(&bytes),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_out_as_it_went_in() {
        for body in [&b""[..], b"text", "größe".as_bytes()] {
            let message = stored(Bytes::copy_from_slice(body), 1000, 0, 0);
            assert_eq!(body_of(&message).as_bytes(), body);
        }
        assert_eq!(body_of(&stored(Bytes::from_static(b"\xff\x00"), 1000, 0, 0)), "/wA=");
        assert_eq!(stored(Bytes::new(), 1000, 0, 1500).visible_at_ms(), 1500);
    }
}
