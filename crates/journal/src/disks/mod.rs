//! Disks: the interface that the journal needs, the real disk, and a simulated one that loses and
//! tears unsynced data.
//!
//! Start at [`disk`].
//! Never here: the meaning of bytes.

pub mod direct;
pub mod disk;
pub mod read_only;
pub mod real_disk;
pub mod simulated_disk;
pub mod simulated_state;
pub mod spill_file;
pub mod tolerant;
pub mod ways;
