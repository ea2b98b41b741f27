//! Portable room: OpenWire messages as every protocol understands them, and messages of other
//! protocols as OpenWire.
//!
//! [`read_portable`] takes a stored message apart; [`write_portable`] builds the message command
//! that an ActiveMQ client
//! expects. [`read_large`] and [`write_large`] do the same to bodies that come in pieces. Kept,
//! changed and dropped fields are in
//! the table of docs/protocols/fidelity.md.
//! Never here: sessions, other protocols' encodings.

mod inflate;
mod large;
mod read;
mod value;
mod write;

pub(crate) use inflate::inflate;
pub use large::{read_large, write_large};
pub use read::read_portable;
pub use write::{TranslatedId, write_portable};
pub(crate) use write::{id_by_every_way, is_made_up, to_wire_destination};

/// Properties in which ActiveMQ's clients keep fields without an OpenWire header
/// (`AmqpMessageSupport`).
mod names {
    /// All of them begin so.
    pub const PREFIX: &str = "JMS_AMQP_";
    /// The MIME type of the body.
    pub const CONTENT_TYPE: &str = "ContentType";
    /// Encodings of the body.
    pub const CONTENT_ENCODING: &str = "ContentEncoding";
    /// The group that an answer should join.
    pub const REPLY_TO_GROUP_ID: &str = "ReplyToGroupID";
    /// Prefix of annotations by the carriers of the message.
    pub const ANNOTATION: &str = "MA_";
    /// Marks of a broker that translated the message before; they say nothing about it.
    pub const MARKS: [&str; 7] =
        ["NATIVE", "ORIGINAL_ENCODING", "MESSAGE_FORMAT", "HEADER", "PROPERTIES", "FirstAcquirer", "DA_"];
}
