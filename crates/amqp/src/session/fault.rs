//! Faults of the peer, and refusals of the core, with the part of the connection that they end
//! (2.8.15 to 2.8.18).

use postroad_model::{Parting, Refusal};

use super::layers::Layer;
use super::link::LinkAt;
use super::{AmqpSession, Turn};
use crate::codec::{Close, End, Error, Symbol, Text, ValueMap, WireError};

/// A transaction was open for too long, and is rolled back (4.5.9).
pub const TIMED_OUT: &str = "amqp:transaction:timeout";

/// An error, and how far it reaches.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The part that ends with it.
    pub reach: Reach,
    /// The error for the peer.
    pub error: Error,
}

/// How far a fault reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The connection ends.
    Connection,
    /// One channel ends.
    Channel(u16),
    /// One link ends.
    Link(LinkAt),
}

/// An error condition with words.
pub fn error(condition: &'static str, description: impl Into<Text>) -> Error {
    Error { condition: Symbol::from_static(condition), description: Some(description.into()), info: None }
}

impl Fault {
    /// The connection ends.
    pub fn connection(condition: &'static str, description: String) -> Fault {
        Fault { reach: Reach::Connection, error: error(condition, description) }
    }

    /// The bytes are no value that belongs there.
    pub fn decode(wire: &WireError) -> Fault {
        Fault::connection("amqp:decode-error", wire.to_string())
    }

    /// The frame cannot be.
    pub fn framing(description: String) -> Fault {
        Fault::connection("amqp:connection:framing-error", description)
    }

    /// A channel ends.
    pub fn channel(channel: u16, condition: &'static str, description: String) -> Fault {
        Fault { reach: Reach::Channel(channel), error: error(condition, description) }
    }

    /// A link ends.
    pub fn link(at: LinkAt, condition: &'static str, description: String) -> Fault {
        Fault { reach: Reach::Link(at), error: error(condition, description) }
    }
}

/// A refusal of the core, in the standard's words.
impl From<&Refusal> for Error {
    fn from(refusal: &Refusal) -> Error {
        let condition = match refusal {
            Refusal::NoSuchDestination(_)
            | Refusal::NoSuchSubscription { .. }
            | Refusal::NoSuchSchedule { .. } => "amqp:not-found",
            Refusal::NotOwner(_) | Refusal::NotPermitted { .. } | Refusal::OtherStore { .. } => {
                "amqp:unauthorized-access"
            }
            Refusal::InUse { .. } | Refusal::SubscriptionInUse { .. } => "amqp:resource-locked",
            Refusal::BadSelector { .. } | Refusal::NameTaken { .. } => "amqp:invalid-field",
            Refusal::StoreFull { .. }
            | Refusal::Draining
            | Refusal::QueueFull { .. }
            | Refusal::QuotaFull { .. }
            | Refusal::TooManyQueues { .. }
            | Refusal::TooManyLinks { .. }
            | Refusal::TransactionTooLarge { .. }
            | Refusal::TransactionsFull { .. }
            | Refusal::PreparedFull { .. }
            | Refusal::PatternTooWide { .. }
            | Refusal::TooManyBranches { .. } => "amqp:resource-limit-exceeded",
            Refusal::LinkLost { .. } => "amqp:link:stolen",
            Refusal::NoSuchTransaction => "amqp:transaction:unknown-id",
            Refusal::TransactionTimedOut { .. } => TIMED_OUT,
            Refusal::ConsumerExists { .. } => "amqp:not-allowed",
            _ => "amqp:internal-error",
        };
        error(condition, refusal.to_string())
    }
}

impl AmqpSession {
    /// Ends the connection with an error.
    pub(super) fn fail(&mut self, fault: Fault, turn: &mut Turn<'_>) -> Parting {
        let text = fault.error.description.as_ref().map_or_else(String::new, |text| text.to_string());
        let text = format!("{}: {text}", fault.error.condition);
        if !matches!(self.layer, Layer::Frames) {
            // Nothing of AMQP can be said before its header.
            return Parting::Fault(text);
        }
        if !self.peer.has_opened() {
            // No frame may come before the sender's open (2.4.1).
            self.send_open(ValueMap::default(), turn);
        }
        self.send(0, Close { error: Some(fault.error) }, turn);
        Parting::Fault(text)
    }

    /// Ends as much as the fault reaches.
    pub(super) fn answer_fault(&mut self, fault: Fault, turn: &mut Turn<'_>) -> Result<(), Parting> {
        match fault.reach {
            Reach::Connection => return Err(self.fail(fault, turn)),
            Reach::Channel(channel) => self.end_by(channel, End { error: Some(fault.error) }, turn),
            Reach::Link(at) => self.detach_by(at, fault.error, turn),
        }
        Ok(())
    }
}
