//! Writing: groups go to the disk, into segments that were made ready ahead.
//!
//! Start at [`journal`].
//! Never here: the later life of records.

pub mod admission;
pub mod cut;
pub mod journal;
pub mod log2_histogram;
pub mod pace;
pub mod prepare;
pub mod room;
pub mod segment;
