//! Model room: the words every other room speaks.
//!
//! Holds ids, messages, commands and effects as plain data.
//! Never here: IO, async, clocks, locks, protocol names, decisions.

mod ids;

pub use ids::{PartitionId, Position};
