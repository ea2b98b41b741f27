//! Delivery: consumers come, say what they can take, and get it.
//!
//! Start at [`consumer`], then [`dispatch`]. Never here: what becomes of a message behind it.

pub mod browse;
pub mod consumer;
pub mod dispatch;
pub mod fetches;
pub mod gathering;
pub mod group;
pub mod held;
pub mod idle;
pub mod line;
pub mod selection;
pub mod slow;
pub mod spread;
