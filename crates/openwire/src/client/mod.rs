//! Client room: the other side of an OpenWire conversation. Requests and bytes in, bytes and events
//! out.
//!
//! As much of a client as the command line needs: one session, one producer, consumers and
//! browsers, local transactions.
//! Start at [`OpenWireClient`].
//! Never here: sockets, clocks, threads, a broker's reaction to commands.

mod connection;
mod past;

mod body;
mod outgoing;

pub use body::{Body, message_id_text};
pub use connection::{ClientOptions, OpenWireClient};
pub use outgoing::{Outgoing, OutgoingBody};
pub use past::{origin_of_dead_letter, revived};

use postroad_model::Silence;

use crate::codec::{Destination, Message, Throwable, WireError};

/// The client's number of a command that the broker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(i32);

/// The client's number of one of its consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerNumber(i64);

/// The source of a consumer, and how it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Where it reads from.
    pub destination: Destination,
    /// How many messages the broker may send ahead of acknowledgements.
    pub prefetch: u16,
    /// Browses without taking messages; the end is reported by [`ClientEvent::NothingMore`].
    pub browses: bool,
    /// Only messages that match this selector.
    pub selector: Option<String>,
}

/// A message for one of the client's consumers.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// Which consumer.
    pub consumer: ConsumerNumber,
    /// Where it was taken from.
    pub destination: Destination,
    /// The message.
    pub message: Box<Message>,
    /// Deliveries before this one.
    pub redeliveries: i32,
}

impl Incoming {
    /// The broker's number of this delivery, by which acknowledgements know it.
    pub fn sequence(&self) -> i64 {
        self.message.message_id.as_ref().map_or(0, |id| id.broker_sequence_id)
    }
}

/// The verdict of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done with: they do not come again.
    Consumed,
    /// Seen, and not taken: they come again, but make room for more now.
    Seen,
}

/// The broker's refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct BrokerException {
    /// Java class, such as `javax.jms.InvalidDestinationException`.
    pub class: String,
    /// Its text.
    pub message: String,
}

impl From<Option<Box<Throwable>>> for BrokerException {
    fn from(throwable: Option<Box<Throwable>>) -> BrokerException {
        let throwable = throwable.unwrap_or_default();
        let text = |text: Option<&crate::codec::WireString>, or: &str| {
            text.map_or_else(|| or.to_owned(), |text| text.to_str().into_owned())
        };
        BrokerException {
            class: text(throwable.class_name.as_ref(), "java.lang.Throwable"),
            message: text(throwable.message.as_ref(), "no message"),
        }
    }
}

/// Events, in the order in which the broker sent them.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// The broker has accepted the connection.
    Connected,
    /// A request was carried out.
    Done(RequestId),
    /// A request was refused.
    Refused {
        /// Which.
        request: RequestId,
        /// Why.
        exception: BrokerException,
    },
    /// A message came.
    Delivered(Incoming),
    /// A browser has seen all there was.
    NothingMore(ConsumerNumber),
    /// Something failed that no request waits for, such as a send without confirmation.
    Failed(BrokerException),
    /// The broker is about to close.
    Leaving,
}

/// Why a conversation cannot go on. The broker's fault, or the network's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A frame is no OpenWire command.
    #[error("not an OpenWire command: {0}")]
    Wire(#[from] WireError),
    /// The other side speaks something else.
    #[error("the server does not speak OpenWire")]
    NotOpenWire,
    /// No sign of life for longer than was agreed.
    #[error(transparent)]
    Silent(#[from] Silence),
    /// A command that only clients send.
    #[error("{name} is not for clients")]
    Unexpected {
        /// The command.
        name: &'static str,
    },
}
