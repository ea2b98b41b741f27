//! Memory: bodies and entries of what waits, in as few bytes as it takes.
//!
//! Never here: who waits for them.

pub mod ahead;
pub mod bodies;
pub mod folding;
pub mod folds;
pub mod shelf;
