//! Portable room: the contents of a message, in terms that every protocol has an equivalent for.
//!
//! A message keeps the encoding that it arrived in. Only a consumer of another protocol makes it
//! portable: the producer's protocol reads it into a [`Portable`], the consumer's writes it out,
//! and neither knows the other. The table of kept, changed and dropped parts is
//! docs/protocols/fidelity.md.
//! Never here: wire encodings, decisions.

mod decimal;
mod id;
mod large;
mod text;
mod value;

pub use decimal::Decimal;
pub use id::{Id, uuid_text};
pub use large::{LargeReader, LargeWriter, PassThrough, Step};
pub use text::Text;
pub use value::{Map, Value};

use bytes::Bytes;

use crate::{Destination, Message, NORMAL_PRIORITY, Protocol};

/// How the assembly reads a message, whatever its protocol.
pub type Translate = fn(&Message) -> Result<Portable, TranslationError>;

/// Why a message of one protocol cannot be shown to a client of another one. It says so about the
/// message alone: the same message cannot be shown to the next client of that protocol either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslationError {
    /// Its bytes are malformed for its protocol.
    #[error("a message that came by {protocol:?} cannot be read: {reason}")]
    Unreadable {
        /// The protocol it came by.
        protocol: Protocol,
        /// The fault, and its position.
        reason: String,
    },
    /// It says something for which the other protocol has no room.
    #[error("a message cannot be written for {protocol:?}: {reason}")]
    Unwritable {
        /// The protocol it was to be written for.
        protocol: Protocol,
        /// The part that does not fit, and the limit.
        reason: String,
    },
}

/// A message as its sender meant it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Portable {
    /// JMS's headers, and similar ones.
    pub headers: Headers,
    /// The application's properties, in the order in which they came.
    pub properties: Vec<(Text, Value)>,
    /// Annotations by the carriers of the message, for receivers that know their names.
    pub annotations: Vec<(Text, Value)>,
    /// The body.
    pub body: Body,
}

/// Headers of a message. `None` means that the sender did not set it.
#[derive(Clone, Debug, PartialEq)]
pub struct Headers {
    /// Its name (`JMSMessageID`).
    pub message_id: Option<Id>,
    /// The message or the matter that it belongs to (`JMSCorrelationID`).
    pub correlation_id: Option<Id>,
    /// Where it was sent (`JMSDestination`).
    pub destination: Option<Destination>,
    /// Where an answer is expected (`JMSReplyTo`).
    pub reply_to: Option<Destination>,
    /// Its subject (`JMSType`).
    pub message_type: Option<Text>,
    /// The group in which order matters (`JMSXGroupID`).
    pub group_id: Option<Text>,
    /// Its place in the group (`JMSXGroupSeq`); below zero it closes the group.
    pub group_sequence: Option<i32>,
    /// The group that an answer should join.
    pub reply_to_group_id: Option<Text>,
    /// Who sent it (`JMSXUserID`): UTF-8 as a rule.
    pub user_id: Option<Bytes>,
    /// When it was sent, in milliseconds since 1970 (`JMSTimestamp`).
    pub timestamp_ms: Option<i64>,
    /// When it expires, in milliseconds since 1970 (`JMSExpiration`).
    pub expires_at_ms: Option<i64>,
    /// 0 to 9; 4 is normal (`JMSPriority`).
    pub priority: u8,
    /// Whether it must survive the broker (`JMSDeliveryMode`).
    pub persistent: bool,
    /// How often it was delivered without success before it came to this broker.
    pub failed_deliveries: u32,
    /// The MIME type of the body, if its kind does not say enough.
    pub content_type: Option<Text>,
    /// Encodings applied to the body (RFC 2616, section 14.11).
    pub content_encoding: Option<Text>,
    /// Where a dead letter was sent at first.
    pub original_destination: Option<Destination>,
    /// Why it became a dead letter.
    pub dead_letter_cause: Option<Text>,
}

impl Default for Headers {
    fn default() -> Headers {
        Headers {
            message_id: None,
            correlation_id: None,
            destination: None,
            reply_to: None,
            message_type: None,
            group_id: None,
            group_sequence: None,
            reply_to_group_id: None,
            user_id: None,
            timestamp_ms: None,
            expires_at_ms: None,
            priority: NORMAL_PRIORITY,
            persistent: false,
            failed_deliveries: 0,
            content_type: None,
            content_encoding: None,
            original_destination: None,
            dead_letter_cause: None,
        }
    }
}

/// The body of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Body {
    /// Nothing: JMS's plain `Message`.
    #[default]
    None,
    /// Text, which may be null.
    Text(Option<Text>),
    /// Raw bytes.
    Bytes(Bytes),
    /// Names and values, in the order in which they came.
    Map(Vec<(Text, Value)>),
    /// Values, one after the other.
    Stream(Vec<Value>),
    /// A serialised Java object, which may be null.
    Object(Option<Bytes>),
    /// One value that is none of these.
    Value(Value),
}

/// The bytes of a serialised Java null (Java Object Serialization Specification, section 6.4.2):
/// magic, version, `TC_NULL`.
pub const SERIALISED_NULL: &[u8] = &[0xac, 0xed, 0x00, 0x05, 0x70];

/// The MIME type of serialised Java objects.
pub const SERIALISED_OBJECT_TYPE: &str = "application/x-java-serialized-object";

/// The MIME type of bytes of which nothing else is known.
pub const BYTES_TYPE: &str = "application/octet-stream";
