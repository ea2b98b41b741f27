//! OpenWire room: the protocol of ActiveMQ clients and of ActiveMQ's networks of brokers, sans-IO.
//!
//! [`codec`] turns bytes into commands and back; [`OpenWireSession`] is the broker's side of one
//! conversation; [`portable`] is for messages that go to or come from other protocols.
//! Never here: sockets, threads, clocks, the state of queues, other protocols.

mod advisory;
pub mod client;
pub mod codec;
pub mod network;
pub mod portable;
mod session;
mod spread;

pub use advisory::{Advisories, Advisory, count_retained};
pub use session::{
    OpenWireOptions, OpenWireSession, StoredProperties, change_headers, mark_dead_letter, name_of, origin_of,
    revive_dead_letter, write_due,
};
pub use spread::ClientSpread;
