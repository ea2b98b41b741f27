//! Dead letters: an AMQP message whose annotations say where it came from and why it ended there.

use bytes::{Bytes, BytesMut};
use postroad_model::{DeadLetter, DestinationKind, Message, Revived};

use super::Sections;
use super::annotations::annotate;
use crate::codec::{Field, Properties, Value, WireError};
use crate::session::address::destination;

/// Annotation with the address where the message could not be processed.
pub const ORIGIN: &str = "x-opt-original-address";

/// Annotation with the cause.
pub const REASON: &str = "x-opt-dead-letter-reason";

/// The message with its past in its annotations; the bare message stays as it was sent, but for its
/// absolute end: clients look at that themselves, and would refuse a letter that died of it. One
/// that cannot be read stays whole as it was sent.
pub fn mark_dead_letter(message: &Message, past: &DeadLetter) -> Message {
    let reason = past.reason.as_deref().unwrap_or("rejected by the consumer");
    let changes = [(ORIGIN, Some(past.origin.to_string().as_str().into())), (REASON, Some(reason.into()))];
    match annotate(&message.bytes, changes).and_then(without_end) {
        Ok(bytes) => Message { bytes, ..message.clone() },
        Err(_) => message.clone(),
    }
}

/// A dead letter as it was before, and where: to the byte, but for an absolute end that it lost.
/// One that cannot be read, or does not say where, was nowhere.
pub fn revive_dead_letter(message: &Message) -> Revived {
    let revived = || {
        let sections = Sections::scan(&message.bytes).ok()?;
        let annotations = sections.message_annotations(&message.bytes).ok()?;
        let origin = match annotations.get(ORIGIN)? {
            Value::String(origin) => destination(origin.as_str(), (DestinationKind::Queue, false)).ok()?,
            _ => return None,
        };
        let reason = match annotations.get(REASON) {
            Some(Value::String(reason)) => Some(reason.as_str().into()),
            _ => None,
        };
        let bytes = annotate(&message.bytes, [(ORIGIN, None), (REASON, None)]).ok()?;
        Some(Revived { origin: Some(origin), reason, message: Message { bytes, ..message.clone() } })
    };
    revived().unwrap_or_else(|| Revived { origin: None, reason: None, message: message.clone() })
}

/// The message without `absolute-expiry-time` (3.2.4); to the byte the same if it has none.
pub fn without_end(message: Bytes) -> Result<Bytes, WireError> {
    let sections = Sections::scan(&message)?;
    let Some(span) = &sections.properties else { return Ok(message) };
    let properties = sections.properties(&message)?;
    if properties.absolute_expiry_time.is_none() {
        return Ok(message);
    }
    let mut bytes = BytesMut::with_capacity(message.len());
    bytes.extend_from_slice(&message[..sections.bare]);
    Properties { absolute_expiry_time: None, ..properties }.write(&mut bytes);
    bytes.extend_from_slice(&message[span.end..]);
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use postroad_model::{Destination, Encoding, Protocol};

    use super::*;
    use crate::codec::{Timestamp, ValueMap};

    fn letter(bytes: Bytes) -> Message {
        Message {
            encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes,
        }
    }

    fn dead(bytes: &'static [u8]) -> Bytes {
        let message = letter(Bytes::from_static(bytes));
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
            let revived = revive_dead_letter(&letter(got));
            let origin = Some(Destination::queue("orders"));
            let reason = Some("too old".into());
            let wanted = Revived { origin, reason, message: letter(message.into()) };
            assert_eq!(revived, wanted, "case: {case}");
        }
        assert_eq!(dead(b"noise"), Bytes::from_static(b"noise"));
        for nowhere in [&b"noise"[..], b"\0\x53\x77\xa1\x01a"] {
            let message = letter(Bytes::from_static(nowhere));
            assert_eq!(
                revive_dead_letter(&message),
                Revived { origin: None, reason: None, message: message.clone() }
            );
        }
    }

    #[test]
    fn a_dead_letter_has_no_end() {
        let sent = Properties {
            message_id: Some("7".into()),
            absolute_expiry_time: Some(Timestamp(1_000)),
            group_sequence: Some(3),
            ..Properties::default()
        };
        let mut message = BytesMut::new();
        sent.write(&mut message);
        message.extend_from_slice(b"\0\x53\x77\xa1\x01a");
        let got = dead(message.to_vec().leak());
        let sections = Sections::scan(&got).unwrap();
        let want = Properties { absolute_expiry_time: None, ..sent };
        assert_eq!(sections.properties(&got), Ok(want));
        assert!(got.ends_with(b"\0\x53\x77\xa1\x01a"));
        assert!(sections.message_annotations(&got).unwrap().get(ORIGIN).is_some());
    }
}
