//! Addresses: names that messages are sent to, the queues and subscriptions bound to each, and who
//! makes and ends them.
//!
//! Never here: messages on their way.

pub mod address;
pub mod binding;
pub mod destination;
pub mod ending;
pub mod listed;
pub mod moving;
pub mod offline;
pub mod subscription;
pub mod whereabouts;
