//! Retaining: the needed part of the past, in less space: checkpoints, compaction, backups.
//!
//! Start at [`retention`].
//! Never here: new groups.

pub mod backup;
pub mod block;
pub mod checkpoint;
pub mod compacted;
pub mod compaction;
pub mod compactor;
pub mod index;
pub mod index_file;
pub mod live;
pub mod rekeying;
pub mod retention;
pub mod sorter;
pub mod sorting;
