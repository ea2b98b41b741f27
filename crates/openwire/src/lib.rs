//! OpenWire room: the protocol of ActiveMQ clients and of ActiveMQ's networks
//! of brokers, sans-IO.
//!
//! [`codec`] turns bytes into commands and back; [`OpenWireSession`] is the broker's side of one conversation.
//! Never here: sockets, threads, clocks, the state of queues, other protocols.

pub mod client;
pub mod codec;
mod session;

pub use session::{OpenWireOptions, OpenWireSession, StoredProperties, mark_dead_letter};
