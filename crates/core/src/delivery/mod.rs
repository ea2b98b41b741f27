//! Delivery: consumers attach, give credit, and get messages.
//!
//! Start at [`consumer`], then [`dispatch`]. Never here: the settling of messages.

pub mod backlog;
pub mod browse;
pub mod consumer;
pub mod dispatch;
pub mod drains;
pub mod fetches;
pub mod gathering;
pub mod group;
pub mod held;
pub mod idle;
pub mod line;
pub mod selection;
pub mod slow;
pub mod spread;
