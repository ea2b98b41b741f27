//! Journal room: the append-only log of one storage device, shared by the partitions on it.
//!
//! In: groups of records, written and synced as one. Out: the same records after any crash, in order.
//! All IO goes through [`Disk`]; every call is synchronous and runs on the thread that makes it.
//! Never here: threads, clocks that decide, what a payload means, protocols, async.
//! Start at [`Journal::commit`]; the bytes on the disk are described in docs/formats/journal.md.

mod error;
mod keys;
mod record;

mod journal;

mod group;

mod index;
mod index_file;

mod cipher;

mod room;

mod live;
mod retention;

mod compaction;
mod compactor;
mod rekeying;

mod backup;

mod near;
mod read;
mod walk;

mod checkpoint;
mod checkpoint_bytes;

mod recovery;

mod chain;
mod verify;

mod rebuild;
mod repair;
mod salvage;
mod salvage_scan;

mod assembly;
mod checkpoint_load;
mod compacted;
mod recovered;

mod pace;
mod prepare;
mod scan;
mod segment;

mod format;

mod direct;
mod disk;
mod read_only;
mod real_disk;
mod simulated_disk;
mod simulated_state;
mod tolerant;

pub use backup::Backup;
pub use checkpoint::{Checkpoint, CheckpointRequest, WrittenCheckpoint};
pub use compaction::RemovalRequest;
pub use compactor::{CompactedSegment, CompactionRequest};
pub use disk::{Disk, DiskFile};
pub use error::{
    BackupError, CheckpointError, CommitError, CompactionError, Damage, DamageKind, IndexError, OpenError,
    PrepareError, ReadError, ReopenError, RepairError,
};
pub use format::{FORMAT_VERSION, SegmentNumber};
pub use index_file::{FoundIndex, IndexRequest, WrittenIndex};
pub use journal::{Journal, Options};
pub use keys::{KEY_BYTES, Key, KeyId, KeySet, Keys};
pub use near::{NearRecords, NearRequest};
pub use pace::Pace;
pub use prepare::{PreparedSegment, SegmentRequest};
pub use read_only::{ReadOnly, ReadOnlyFile};
pub use real_disk::RealDisk;
pub use record::{Payload, Record, StoredRecord};
pub use recovered::{Recovered, Replay, TornTail};
pub use repair::Repaired;
pub use retention::SegmentUse;
pub use room::{RESERVE_SHARE, Space};
pub use salvage::{LostRecords, Met, Salvage};
pub use simulated_disk::{Fault, Operation, SimulatedDisk};
pub use walk::{Seen, Walk};

#[cfg(test)]
mod tests;
