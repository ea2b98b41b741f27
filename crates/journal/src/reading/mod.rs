//! Reading what is durable: records that left memory, and whole segments one group after the other.
//!
//! Never here: changes.

pub mod near;
pub mod read;
pub mod scan;
pub mod walk;
