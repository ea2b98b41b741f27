//! Messages: opaque bytes in the encoding they arrived in, and the few headers that routing needs.

use std::sync::Arc;

use bytes::Bytes;

use crate::Destination;

/// Who can read a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// The protocol.
    pub protocol: Protocol,
    /// The protocol's own version of its message layout.
    pub version: u8,
}

/// The protocols whose encodings a stored message may have. The numbers are on disk: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// The loose, uncached form of an OpenWire message command.
    OpenWire = 1,
}

impl Protocol {
    /// The protocol of this number; `None` if this build knows none.
    pub fn from_number(number: u8) -> Option<Protocol> {
        (number == Protocol::OpenWire as u8).then_some(Protocol::OpenWire)
    }
}

/// One message. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who can read `bytes`.
    pub encoding: Encoding,
    /// Whether it must survive the broker.
    pub persistent: bool,
    /// JMS priority, 0 to 9.
    pub priority: u8,
    /// When it expires, in milliseconds since 1970; zero for never.
    pub expires_at_ms: u64,
    /// The protocol's own encoding, headers and body.
    pub bytes: Bytes,
}

/// What a dead letter keeps of its past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue that it goes to.
    pub queue: Destination,
    /// Where it could not be processed.
    pub origin: Destination,
    /// Why, if the consumer said so.
    pub reason: Option<Arc<str>>,
}
