//! Reading durable data: records that left memory, and whole segments one group after the other.
//!
//! Never here: changes.

pub(crate) mod extents;
pub mod group;
pub mod near;
pub mod read;
pub mod scan;
pub(crate) mod sorted;
pub mod walk;
