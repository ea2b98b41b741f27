//! AMQP room: version 1.0 of the protocol (OASIS standard, ISO/IEC 19464), sans-IO.
//!
//! [`codec`] turns bytes into values, frames and performatives, and back; [`message`] finds the
//! sections of a message in its bytes without decoding them; [`portable`] is for messages that go
//! to or come from other protocols; [`AmqpSession`] is the broker's side of one conversation.
//! Never here: sockets, threads, clocks, the state of queues, other protocols.

pub mod codec;
pub mod message;
pub mod portable;
mod session;

pub use session::{AmqpOptions, AmqpSession};
