//! Settling: what becomes of a message that was delivered, or whose time is over.
//!
//! Start at [`settle`]. Never here: who gets it next.

pub mod carrying;
pub mod expiry;
pub mod last_value;
pub mod redrive;
pub mod release;
pub mod rest;
pub mod settle;
