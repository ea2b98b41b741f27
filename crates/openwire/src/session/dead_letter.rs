//! Dead letters: an OpenWire message that keeps where it came from and why it ended there.

use bytes::{Bytes, BytesMut};
use postroad_model::{DeadLetter, Message};

use crate::codec::{Destination, Primitive, PrimitiveMap, from_stored, to_stored};

/// The property in which clients look for the cause (`ActiveMQMessage.DLQ_DELIVERY_FAILURE_CAUSE_PROPERTY`).
pub const CAUSE: &str = "dlqDeliveryFailureCause";

/// The message with its past in it: the original destination, and the cause as a property. One that cannot be read or
/// written anew stays as it was sent.
pub fn mark_dead_letter(message: &Message, past: &DeadLetter) -> Message {
    let rewritten = rewrite(message, past);
    rewritten.map_or_else(|| message.clone(), |bytes| Message { bytes, ..message.clone() })
}

/// The property by which clients know that the broker delivers a message again after somebody gave up on it
/// (`RedeliveryPolicy` of the client's, `RedeliveryPlugin` of ActiveMQ's broker).
const REDELIVERY_DELAY: &str = "redeliveryDelay";

/// A stored message that the broker delivers again by its own policy: without the mark, a client whose own policy allows fewer
/// deliveries would refuse it unseen. One that cannot be read stays as it is.
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
    put_property(&mut dead, CAUSE, Primitive::String(format!("{cause} (at {origin})").as_str().into()))?;
    to_stored(&dead, version).ok()
}
