//! Dead letters: an OpenWire message that keeps where it came from and why it ended there, and the
//! way back.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::{DeadLetter, Message, Revived};

use super::names::to_model;
use crate::codec::{Destination, Primitive, PrimitiveMap, WireError, from_stored, to_stored};

/// The message with its past in it: the original destination, and the cause as a property. One that
/// cannot be read or encoded again stays as it was sent.
pub fn mark_dead_letter(message: &Message, past: &DeadLetter) -> Message {
    let rewritten = rewrite(message, past);
    rewritten.map_or_else(|| message.clone(), |bytes| Message { bytes, ..message.clone() })
}

/// The property by which clients know that the broker redelivers a message after a consumer gave up
/// on it (`RedeliveryPolicy` of the client's, `RedeliveryPlugin` of ActiveMQ's broker).
const REDELIVERY_DELAY: &str = "redeliveryDelay";

/// A stored message that the broker delivers again by its own policy: without the mark, a client
/// whose own policy allows fewer deliveries would refuse it unseen. One that cannot be read stays
/// as it is.
pub fn redelivered_by_policy(stored: &Bytes, version: u8) -> Bytes {
    let marked = || {
        let mut message = from_stored(stored, version).ok()?;
        put_property(&mut message, REDELIVERY_DELAY, Primitive::Long(0))?;
        to_stored(&message, version).ok()
    };
    marked().unwrap_or_else(|| stored.clone())
}

/// Sets a property, in place of one of this name; `None` if the others cannot be read.
fn put_property(message: &mut crate::codec::Message, name: &str, value: Primitive) -> Option<()> {
    let mut properties = match &message.marshalled_properties {
        Some(marshalled) => PrimitiveMap::decode(marshalled).ok()?,
        None => PrimitiveMap::default(),
    };
    properties.0.retain(|(known, _)| known.to_str() != name);
    properties.0.push((name.into(), value));
    let mut marshalled = BytesMut::new();
    properties.encode(&mut marshalled).ok()?;
    message.marshalled_properties = Some(marshalled.freeze());
    Some(())
}

fn rewrite(message: &Message, past: &DeadLetter) -> Option<bytes::Bytes> {
    let version = message.encoding.version;
    let mut dead = from_stored(&message.bytes, version).ok()?;
    let origin = dead.destination.replace(Destination::Queue(past.queue.name.as_ref().into()));
    dead.original_destination = dead.original_destination.or(origin);
    // Its time may be over; here it stays.
    dead.expiration_ms = 0;
    let origin = past.origin.to_string();
    let cause = past.reason.as_deref().unwrap_or("rejected by the consumer");
    put_property(
        &mut dead,
        DeadLetter::CAUSE,
        Primitive::String(format!("{cause} (at {origin})").as_str().into()),
    )?;
    to_stored(&dead, version).ok()
}

/// A stored dead letter as it was before, for the queue where it was: without its cause, and
/// without an end. One that cannot be read was nowhere.
pub fn revive_dead_letter(message: &Message) -> Revived {
    let version = message.encoding.version;
    let revived = || {
        let dead = from_stored(&message.bytes, version).ok()?;
        let origin = origin_of_dead_letter(&dead)?;
        let revived = without_past(&dead, origin.clone()).ok()?;
        let bytes = to_stored(&revived, version).ok()?;
        let (origin, reason) = (Some(to_model(&origin)), reason_of_dead_letter(&dead));
        Some(Revived { origin, reason, message: Message { bytes, ..message.clone() } })
    };
    revived().unwrap_or_else(|| Revived { origin: None, reason: None, message: message.clone() })
}

/// Where a dead letter was: its cause ends with it, as this broker writes it; other brokers leave
/// where it was sent at first.
pub fn origin_of_dead_letter(message: &crate::codec::Message) -> Option<Destination> {
    let cause = cause_of_dead_letter(message)?;
    let place = cause.as_deref().and_then(split_cause).and_then(|(_, place)| place.split_once("://"));
    match place {
        Some(("queue", name)) => Some(Destination::Queue(name.into())),
        Some(("topic", name)) => Some(Destination::Topic(name.into())),
        _ => message.original_destination.clone(),
    }
}

/// The text of the cause; `None` if the properties cannot be read.
fn cause_of_dead_letter(message: &crate::codec::Message) -> Option<Option<String>> {
    let properties = properties_of(message).ok()?;
    Some(properties.0.iter().find_map(|(name, value)| match value {
        Primitive::String(text) if name.to_str() == DeadLetter::CAUSE => Some(text.to_str().into_owned()),
        _ => None,
    }))
}

/// The reason and the place in a cause of this broker.
fn split_cause(cause: &str) -> Option<(&str, &str)> {
    cause.strip_suffix(')')?.rsplit_once(" (at ")
}

/// Why it was given up, without the place.
fn reason_of_dead_letter(message: &crate::codec::Message) -> Option<Arc<str>> {
    let cause = cause_of_dead_letter(message)??;
    Some(split_cause(&cause).map_or(&*cause, |(reason, _)| reason).into())
}

/// The message as it was before it became a dead letter, for this destination.
///
/// # Errors
/// [`WireError`]: its properties cannot be read.
pub fn without_past(
    message: &crate::codec::Message,
    destination: Destination,
) -> Result<crate::codec::Message, WireError> {
    let mut properties = properties_of(message)?;
    properties.0.retain(|(name, _)| name.to_str() != DeadLetter::CAUSE);
    let mut marshalled = BytesMut::new();
    properties.encode(&mut marshalled)?;
    Ok(crate::codec::Message {
        destination: Some(destination),
        original_destination: None,
        redelivery_counter: 0,
        marshalled_properties: (!properties.0.is_empty()).then(|| marshalled.freeze()),
        ..message.clone()
    })
}

fn properties_of(message: &crate::codec::Message) -> Result<PrimitiveMap, WireError> {
    message.marshalled_properties.as_ref().map_or_else(|| Ok(PrimitiveMap::default()), PrimitiveMap::decode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::WireString;
    use postroad_model::{Encoding, Protocol};

    #[test]
    fn a_revived_letter_is_to_the_byte_what_was_sent() {
        let queue = |name: &str| Destination::Queue(WireString::from(name));
        let mut properties = BytesMut::new();
        PrimitiveMap(vec![("k".into(), Primitive::Int(5))]).encode(&mut properties).unwrap();
        for (case, properties, sent_to, at, want) in [
            ("with properties", Some(properties.freeze()), "a", "a", true),
            ("without", None, "a", "a", true),
            // The queue of a virtual topic: the message goes there, and not to the topic once more.
            ("sent elsewhere", None, "elsewhere", "a", false),
        ] {
            let sent = crate::codec::Message {
                destination: Some(queue(sent_to)),
                marshalled_properties: properties,
                content: Some(Bytes::from_static(b"body")),
                ..Default::default()
            };
            let stored = Message {
                encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
                persistent: true,
                priority: 4,
                expires_at_ms: 0,
                rare: None,
                bytes: to_stored(&sent, 12).unwrap(),
            };
            let origin = postroad_model::Destination::queue(at);
            let dead_queue = postroad_model::Destination::queue("dead");
            let past = DeadLetter { queue: dead_queue, origin: origin.clone(), reason: Some("f(x)".into()) };
            let dead = mark_dead_letter(&stored, &past);
            assert_ne!(dead, stored, "case: {case}");
            let Revived { origin: found, reason, message } = revive_dead_letter(&dead);
            assert_eq!((found, message.bytes == stored.bytes), (Some(origin), want), "case: {case}");
            assert_eq!(reason.as_deref(), Some("f(x)"), "case: {case}");
            let revived = from_stored(&message.bytes, 12).unwrap();
            assert_eq!(revived.destination, Some(queue(at)), "case: {case}");
        }
        let noise = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"noise"),
        };
        assert_eq!(
            revive_dead_letter(&noise),
            Revived { origin: None, reason: None, message: noise.clone() }
        );
    }
}
