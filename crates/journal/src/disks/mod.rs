//! Disks: what the journal asks of one, the real one, and a false one that loses and tears what was not synced.
//!
//! Start at [`disk`]. Never here: what the bytes mean.

pub mod direct;
pub mod disk;
pub mod read_only;
pub mod real_disk;
pub mod simulated_disk;
pub mod simulated_state;
pub mod spill_file;
pub mod tolerant;
pub mod ways;
