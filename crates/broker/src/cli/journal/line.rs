//! Lines of an export; docs/formats/export.md tells the same in prose.

use serde::{Deserialize, Serialize};

/// The format that this build writes, and the newest that it reads.
pub const VERSION: u32 = 2;

/// The oldest that it reads: it had no pieces of large messages.
pub const VERSION_MIN: u32 = 1;

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub postroad_export: u32,
}

/// A line for each entry of a queue.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `queue://NAME` or `topic://NAME`.
    pub destination: String,
    /// The durable subscription that holds it, if it is not a plain queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    /// Where its record is: partition, position, and the message's number in the record.
    pub partition: u16,
    pub position: u64,
    pub ordinal: u32,
    pub failed_deliveries: u32,
    pub priority: u8,
    pub expires_at_ms: u64,
    pub body_bytes: u64,
    /// A record that enqueues the message, in base64; see docs/formats/records.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// How many of the lines ahead hold its body, if it is a large message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<u64>,
    /// Why there is no record: it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A line for each piece of a large message, ahead of the message's own.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// A part of the body, in base64.
    pub piece: String,
}

/// The last line: without it the file is not whole.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Lines with a message.
    pub messages: u64,
    /// Lines that say why there is none.
    pub unreadable: u64,
}
