//! Journal room: the append-only log of one storage device, shared by the partitions on it.
//!
//! In: groups of records, written and synced as one. Out: the same records after any crash, in
//! order. All IO goes through [`Disk`]; every call is synchronous and runs on the thread that makes
//! it.
//! Never here: threads, clocks that decide, the meaning of a payload, protocols, async. Start
//! at [`Journal::commit`] in `writing`. Records are found again by `opening` and `reading`, kept
//! small by `retaining`, and saved from damage by `repairing`. The bytes on the disk are in
//! `layout`, and described in docs/formats/journal.md.

mod disks;
mod error;
mod keys;
mod layout;
mod opening;
mod reading;
mod record;
mod repairing;
mod retaining;
mod writing;

pub use disks::disk::{Disk, DiskFile};
pub use disks::read_only::{ReadOnly, ReadOnlyFile};
pub use disks::real_disk::RealDisk;
pub use disks::simulated_disk::{Fault, Operation, SimulatedDisk};
pub use disks::spill_file::SpillFile;
pub use disks::ways::Ways;
pub use error::{
    BackupError, CheckpointError, CommitError, CompactionError, CutError, Damage, DamageKind, IndexError,
    OpenError, PrepareError, ReadError, ReopenError, RepairError,
};
pub use keys::{KEY_BYTES, Key, KeyId, KeySet, Keys};
pub use layout::format::{FORMAT_VERSION, JournalFile, SegmentNumber, is_journal_name};
pub use opening::recovered::{LostSegment, Recovered, Replay, TornTail};
pub use opening::states::{StoredCheckpoint, StoredState};
pub use reading::near::{NearRecords, NearRequest};
pub use reading::walk::{Seen, Walk};
pub use record::{Payload, Record, StoredRecord};
pub use repairing::repair::Repaired;
pub use repairing::salvage::{LostRecords, Met, Salvage};
pub use retaining::backup::Backup;
pub use retaining::checkpoint::{Checkpoint, CheckpointRequest, WrittenCheckpoint};
pub use retaining::compaction::{RemovalRequest, Shorten};
pub use retaining::compactor::{CompactedSegment, CompactionRequest};
pub use retaining::index_file::{FoundIndex, IndexRequest, WrittenIndex};
pub use retaining::retention::SegmentUse;
pub use retaining::sorter::{SortKey, SortRequest, Sorting};
pub use writing::admission::{self, GroupSize};
pub use writing::journal::{Journal, Options};
pub use writing::log2_histogram::Log2Histogram;
pub use writing::pace::Pace;
pub use writing::prepare::{PreparedSegment, SegmentRequest};
pub use writing::room::{RESERVE_SHARE, Space};

#[cfg(test)]
mod tests;
