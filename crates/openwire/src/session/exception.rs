//! Exceptions: the broker's refusals, in classes that JMS clients map.
//!
//! A client builds the exception by its class name; one that it does not have becomes a plain
//! `JMSException` (ActiveMQ's `BaseDataStreamMarshaller.createThrowable`).

use postroad_model::Refusal;

use super::{OpenWireSession, Turn};
use crate::codec::{ConnectionError, ExceptionResponse, Throwable};

/// Where clients up to 5.x look for JMS exceptions.
pub const JAVAX: &str = "javax.jms.";

/// Where clients from 6.0 on look for them.
pub const JAKARTA: &str = "jakarta.jms.";

/// Longest text of an exception: a text on the wire has at most 65535 bytes, and up to 6 for each
/// of its characters. Names and selectors of the client's own in it may be longer, and the client
/// would wait for the answer for ever.
const TEXT_CHARACTERS_MAX: usize = 10_000;

/// An exception before it is known where its class lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    class: Class,
    message: String,
}

/// Why a step of a branch failed (`XAException`'s codes; XA specification, chapter 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum XaCode {
    /// Ask again later; the branch is as it was.
    Retry = 4,
    /// An operator has rolled it back.
    HeuristicRollback = 6,
    /// An operator has committed it.
    HeuristicCommit = 7,
    /// It was rolled back.
    RolledBack = 100,
    /// It was rolled back, for it did not hold together.
    RolledBackIntegrity = 103,
    /// It was rolled back, for it was open for too long.
    RolledBackTimeout = 106,
    /// Something failed, and the branch may be as it was.
    Failed = -3,
    /// There is no such branch.
    NotKnown = -4,
    /// The id or the step is no good.
    Invalid = -5,
    /// Not now.
    Protocol = -6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// In the client's JMS package.
    Jms(&'static str),
    /// In the Java library.
    Java(&'static str),
}

impl Exception {
    /// A `JMSException`.
    pub fn jms(message: &str) -> Exception {
        Exception::of("JMSException", message)
    }

    /// Another exception of the JMS package.
    pub fn of(class: &'static str, message: &str) -> Exception {
        Exception { class: Class::Jms(class), message: beginning(message).to_owned() }
    }

    /// An `IOException`.
    pub fn io(message: &str) -> Exception {
        Exception { class: Class::Java("java.io.IOException"), message: beginning(message).to_owned() }
    }

    /// An `XAException`. Its code travels in the text, where clients look for it
    /// (`TransactionContext.xaErrorCodeMarker`).
    pub fn xa(code: XaCode, message: &str) -> Exception {
        let message = format!("{} xaErrorCode:{}", beginning(message), code as i32);
        Exception { class: Class::Java("javax.transaction.xa.XAException"), message }
    }

    fn throwable(&self, package: &str) -> Throwable {
        match self.class {
            Class::Jms(class) => Throwable::new(&format!("{package}{class}"), &self.message),
            Class::Java(class) => Throwable::new(class, &self.message),
        }
    }
}

/// As much of a text as can be sent.
fn beginning(text: &str) -> &str {
    let end = text.char_indices().nth(TEXT_CHARACTERS_MAX);
    end.map_or(text, |(end, _)| &text[..end])
}

impl From<&Refusal> for Exception {
    fn from(refusal: &Refusal) -> Exception {
        let class = match refusal {
            Refusal::NoSuchDestination(_) | Refusal::NotOwner(_) | Refusal::NoSuchSubscription { .. } => {
                "InvalidDestinationException"
            }
            Refusal::NotPermitted { .. } | Refusal::OtherStore { .. } => "JMSSecurityException",
            Refusal::BadSelector { .. } => "InvalidSelectorException",
            Refusal::BadSchedule { .. } => "MessageFormatException",
            Refusal::NameTaken { .. } => "InvalidClientIDException",
            Refusal::StoreFull { .. }
            | Refusal::StoreFailed { .. }
            | Refusal::Draining
            | Refusal::QueueFull { .. }
            | Refusal::QuotaFull { .. }
            | Refusal::TooManyQueues { .. } => "ResourceAllocationException",
            Refusal::TransactionTooLarge { .. }
            | Refusal::TransactionsFull { .. }
            | Refusal::PreparedFull { .. }
            | Refusal::TransactionTimedOut { .. } => "TransactionRolledBackException",
            _ => "JMSException",
        };
        Exception::of(class, &refusal.to_string())
    }
}

impl OpenWireSession {
    /// Says no to a command: in its response, or, if the client waits for none, as an error of the
    /// connection that its exception listener hears of. The connection lives on.
    pub(super) fn refuse(&mut self, respond: Option<i32>, exception: &Exception, turn: &mut Turn<'_>) {
        let Some(correlation_id) = respond else { return self.send_connection_error(exception, turn) };
        let exception = Some(exception.throwable(self.jms_package).into());
        let response = ExceptionResponse { correlation_id, exception, ..ExceptionResponse::default() };
        self.send(response.into(), turn);
    }

    pub(super) fn send_connection_error(&mut self, exception: &Exception, turn: &mut Turn<'_>) {
        let exception = Some(exception.throwable(self.jms_package).into());
        let error = ConnectionError { exception, ..ConnectionError::default() };
        self.send(error.into(), turn);
    }
}
