//! Lines of an export; docs/formats/export.md describes the same in prose.

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
    /// `queue://NAME` or `topic://NAME`; of a scheduled message where it will go, empty if its
    /// record cannot be read.
    pub destination: String,
    /// The durable subscription that holds it, if it is not a plain queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    /// When it is due, if that is later: then no queue has it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Scheduled>,
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

/// When a message is due; the record says the same.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduled {
    /// The name of the job.
    pub job: String,
    /// When it is due next, in ms since 1970.
    pub due_ms: u64,
    /// Repetition: the period in ms, and the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Each time that these cron fields match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
}

/// A line for each piece of a large message, before the message's own.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// A part of the body, in base64.
    pub piece: String,
}

/// The last line: without it the file is not whole.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Lines with a message.
    pub messages: u64,
    /// Lines that say why there is none.
    pub unreadable: u64,
    /// Messages of prepared transactions, which have no lines: they go nowhere before those end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prepared: u64,
    /// The CRC-32C of all lines ahead, each with its end; exports of earlier builds have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc32c: Option<u32>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
