//! Memory: bodies and entries of waiting messages, in few bytes.
//!
//! Never here: who waits for them.

pub mod ahead;
pub mod bodies;
pub mod packed_counts;
pub mod packing;
pub mod shelf;
