//! Portable room: AMQP messages as every protocol understands them, and messages of other protocols
//! as AMQP.
//!
//! [`read_portable`] takes the sections of a stored message apart; [`write_portable`] builds those
//! that a client expects;
//! [`read_large`] and [`write_large`] do the same to bodies that come in pieces. All follow the
//! mapping between AMQP and JMS that `qpid-jms` and ActiveMQ keep to. Kept, changed and dropped
//! fields are in
//! the table of docs/protocols/fidelity.md.
//! Never here: links, other protocols' encodings.

mod decimal;
mod large;
mod read;
mod value;
mod write;

use std::borrow::Cow;

use bytes::Bytes;
use postroad_model::portable::{Translate, TranslationError};
use postroad_model::{Message, Protocol};

pub use large::{read_large, write_large};
pub use read::read_portable;
pub use value::read_id;
use write::write_ahead;
pub use write::write_portable;

/// The sections of a message, whatever protocol it came by, without the body if that comes in
/// pieces. `translate` reads those of other protocols.
///
/// # Errors
/// As `translate`: this message cannot be encoded in AMQP.
pub fn in_amqp(message: &Message, translate: Translate) -> Result<Cow<'_, Bytes>, TranslationError> {
    match message.encoding.protocol {
        Protocol::Amqp => Ok(Cow::Borrowed(&message.bytes)),
        _ if message.chunks().is_some() => Ok(Cow::Owned(write_ahead(&translate(message)?))),
        _ => Ok(Cow::Owned(write_portable(&translate(message)?))),
    }
}

/// Message annotations of `qpid-jms` (`AmqpMessageSupport`, `AmqpDestinationHelper`).
pub(crate) mod annotations {
    /// Which of JMS's kinds of message it is.
    pub const MESSAGE_TYPE: &str = "x-opt-jms-msg-type";
    /// Which kind of destination `to` names.
    pub const TO_KIND: &str = "x-opt-jms-dest";
    /// Which kind of destination `reply-to` names.
    pub const REPLY_TO_KIND: &str = "x-opt-jms-reply-to";
    /// The predecessor of `x-opt-jms-dest`: words such as `topic,temporary`.
    pub const TO_WORDS: &str = "x-opt-to-type";
    /// The predecessor of `x-opt-jms-reply-to`.
    pub const REPLY_TO_WORDS: &str = "x-opt-reply-type";
    /// Properties that are lists or maps, which application properties may not be (3.2.5): one map
    /// of them.
    pub const NESTED_PROPERTIES: &str = "x-opt-jms-nested-properties";
}

/// JMS's kinds of message, as the annotation numbers them.
mod kinds {
    pub const PLAIN: i8 = 0;
    pub const OBJECT: i8 = 1;
    pub const MAP: i8 = 2;
    pub const BYTES: i8 = 3;
    pub const STREAM: i8 = 4;
    pub const TEXT: i8 = 5;
}
