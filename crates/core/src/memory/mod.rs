//! Memory: bodies and entries of waiting messages, in few bytes.
//!
//! Never here: who waits for them.

pub mod ahead;
pub mod bodies;
pub mod folding;
pub mod folds;
pub mod shelf;
