//! Settling: the end of a message that was delivered, or has expired.
//!
//! Start at [`settle`]. Never here: who gets it next.

pub mod carrying;
pub mod doubt;
pub mod expiry;
pub mod last_value;
pub mod lending;
pub mod redrive;
mod redriven;
pub mod release;
pub mod rest;
pub mod settle;
