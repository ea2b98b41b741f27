//! Dead letters: an AMQP message whose annotations say where it came from and why it ended there.

use bytes::{Bytes, BytesMut};
use postroad_model::{DeadLetter, Message};

use super::Sections;
use crate::codec::{Value, ValueMap, WireError};

/// Annotation with the address where the message could not be processed.
pub const ORIGIN: &str = "x-opt-original-address";

/// Annotation with the cause.
pub const REASON: &str = "x-opt-dead-letter-reason";

/// The message with its past in its annotations; the bare message stays as it was sent. One that cannot be read stays
/// whole as it was sent.
pub fn mark_dead_letter(message: &Message, past: &DeadLetter) -> Message {
    let reason = past.reason.as_deref().unwrap_or("rejected by the consumer");
    let annotations = [(ORIGIN, past.origin.to_string()), (REASON, reason.to_owned())];
    match annotate(&message.bytes, annotations) {
        Ok(bytes) => Message { bytes, ..message.clone() },
        Err(_) => message.clone(),
    }
}

/// The message with more annotations, in place of those of the same names.
fn annotate<const COUNT: usize>(
    message: &Bytes,
    more: [(&'static str, String); COUNT],
) -> Result<Bytes, WireError> {
    let sections = Sections::scan(message)?;
    let mut annotations = sections.message_annotations(message)?;
    let is_new = |key: &Value| match key {
        Value::Symbol(key) => more.iter().any(|(name, _)| *key == **name),
        _ => false,
    };
    annotations.0.retain(|(key, _)| !is_new(key));
    for (name, text) in more {
        annotations.push(name, text.as_str());
    }
    let mut bytes = BytesMut::with_capacity(message.len() + ANNOTATIONS_BYTES);
    bytes.extend_from_slice(&message[..sections.annotations_start()]);
    put_annotations(annotations, &mut bytes);
    bytes.extend_from_slice(&message[sections.bare..]);
    Ok(bytes.freeze())
}

/// Typical bytes of the annotations, to reserve once.
const ANNOTATIONS_BYTES: usize = 256;

fn put_annotations(annotations: ValueMap, out: &mut BytesMut) {
    out.extend_from_slice(b"\x00\x53\x72");
    Value::Map(annotations).encode(out);
}

#[cfg(test)]
mod tests {
    use postroad_model::{Destination, Encoding, Protocol};

    use super::*;

    fn dead(bytes: &'static [u8]) -> Bytes {
        let message = Message {
            encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(bytes),
        };
        let (queue, origin) = (Destination::queue("dead"), Destination::queue("orders"));
        let past = DeadLetter { queue, origin, reason: Some("too old".into()) };
        mark_dead_letter(&message, &past).bytes
    }

    #[test]
    fn a_dead_letter_says_whence_and_why_and_is_otherwise_unchanged() {
        let annotations = |bytes: &Bytes| Sections::scan(bytes).unwrap().message_annotations(bytes).unwrap();
        let past = [(ORIGIN, "queue://orders"), (REASON, "too old")];
        for (case, ahead, kept, bare) in [
            ("bare message alone", &b""[..], &b""[..], &b"\0\x53\x77\xa1\x01a"[..]),
            ("header is kept", b"\0\x53\x70\x45", b"", b"\0\x53\x77\x40"),
            ("annotations are kept", b"", b"\0\x53\x72\xc1\x05\x02\xa3\x01m\x41", b"\0\x53\x75\xa0\0"),
        ] {
            let message: &'static [u8] = [ahead, kept, bare].concat().leak();
            let got = dead(message);
            assert!(got.starts_with(ahead) && got.ends_with(bare), "case: {case}");
            let mut want = ValueMap::default();
            if !kept.is_empty() {
                want.push("m", true);
            }
            past.iter().for_each(|(name, text)| want.push(name, *text));
            assert_eq!(annotations(&got), want, "case: {case}");
            // Dead once more: its past is replaced, not doubled.
            assert_eq!(annotations(&dead(got.to_vec().leak())), want, "case: {case}");
        }
        assert_eq!(dead(b"noise"), Bytes::from_static(b"noise"));
    }
}
