//! Everything that can go wrong, with the file, the offset and the numbers.

use crate::keys::KeyId;
use crate::layout::format::{FORMAT_VERSION, SegmentNumber};
use postroad_model::{PartitionId, Position};
use std::io;
use std::path::PathBuf;

/// Why a journal could not be opened. Nothing on the disk was changed that recovery would miss.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process owns the directory.
    #[error("{}: in use by another process{}", file.display(), pid.map(|pid| format!(", id {pid}")).unwrap_or_default())]
    Locked {
        /// The lock file.
        file: PathBuf,
        /// Process id of the owner, if it could be read.
        pid: Option<u32>,
    },
    /// A newer Postroad wrote this file.
    #[error("{}: format version {found}, this build reads version {FORMAT_VERSION}", file.display())]
    UnknownVersion {
        /// The file.
        file: PathBuf,
        /// The version in it.
        found: u32,
    },
    /// Something in this file is encrypted with a key that was not given. Nothing on the disk was
    /// changed.
    #[error("{}: encrypted with key {key}, and {}", file.display(), told(given))]
    KeyUnknown {
        /// The file.
        file: PathBuf,
        /// The key that is needed.
        key: KeyId,
        /// Those that were given.
        given: Vec<KeyId>,
    },
    /// Something in this file is not encrypted, and had to be. Nothing on the disk was changed.
    #[error("{}: it contains unencrypted data, and encryption is required", file.display())]
    InTheClear {
        /// The file.
        file: PathBuf,
    },
    /// Damage before the tail, and the partitions that it hits are unknown.
    #[error(transparent)]
    Damaged(Damage),
}

fn told(given: &[KeyId]) -> String {
    match given {
        [] => "no key is given".to_owned(),
        given => {
            let given: Vec<String> = given.iter().map(KeyId::to_string).collect();
            format!("the keys given are {}", given.join(", "))
        }
    }
}

/// A place in the journal where promised bytes are gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: damaged at byte {offset}: {kind}{}", file.display(),
    partition.map(|partition| format!(" (partition {})", partition.0)).unwrap_or_default())]
pub struct Damage {
    /// The partition that is stopped; `None` if it is unknown.
    pub partition: Option<PartitionId>,
    /// The damaged file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The fault.
    pub kind: DamageKind,
}

/// The fault of a damaged place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageKind {
    /// The file is not there.
    #[error("the file is missing")]
    SegmentMissing,
    /// The header of a segment that holds records is no header of it.
    #[error("no valid segment header")]
    SegmentHeader,
    /// A group's header or record table fails its checksum, or does not continue the group before
    /// it.
    #[error("no valid group, though later ones exist")]
    Group,
    /// A record's payload fails its checksum.
    #[error("checksum of the record at position {} fails", position.get())]
    Payload {
        /// Which record.
        position: Position,
    },
    /// A record's checksum holds, but its tag does not fit its place and the key that it names: it
    /// was altered.
    #[error("the record at position {} was altered after its encryption", position.get())]
    Forged {
        /// Which record.
        position: Position,
    },
    /// A record is encrypted with a key that was not given. It need not be damaged.
    #[error("the record at position {} is encrypted with key {key}, which is not given", position.get())]
    KeyUnknown {
        /// Which record.
        position: Position,
        /// The key.
        key: KeyId,
    },
    /// Positions are not dense.
    #[error("expected position {}, found {found}", expected.get())]
    Gap {
        /// The position that should follow.
        expected: Position,
        /// The one that does; 0 if the partition's records end here.
        found: u64,
    },
    /// No checkpoint is readable and the records before them are gone already.
    #[error("no checkpoint is readable")]
    Checkpoint,
}

impl DamageKind {
    /// Whether nothing is known to be wrong but that a key is missing.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self, DamageKind::KeyUnknown { .. })
    }
}

/// Why a group is not durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The write failed. The group's fate is open until [`crate::Journal::reopen`] succeeds: then
    /// it is void.
    #[error("{}: write at byte {offset} failed: {source}", file.display())]
    WriteFailed {
        /// The segment.
        file: PathBuf,
        /// Where the group was to start.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The sync failed. The group's fate is open until [`crate::Journal::reopen`] succeeds: then it
    /// is void.
    #[error("{}: sync of the group at byte {offset} failed: {source}", file.display())]
    SyncFailed {
        /// The segment.
        file: PathBuf,
        /// Where the group starts.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier group failed and [`crate::Journal::reopen`] has not succeeded since. Nothing was
    /// written.
    #[error("the journal must be reopened after a failed write or sync")]
    NeedsReopen,
    /// The disk is full: no further segment can be made. Nothing was written; try again once there
    /// is space.
    #[error(
        "no space for a group of {group_bytes} bytes, on the disk or within the disk_bytes_max of the store"
    )]
    NoSpace {
        /// Size of the group on the disk.
        group_bytes: u64,
    },
    /// A further segment could not be made, for another reason than space. Nothing was written.
    #[error("no further segment: {0}")]
    NoSegment(PrepareError),
    /// The caller skipped or repeated a position. Nothing was written.
    #[error("partition {}: position {} instead of {}", partition.0, found.get(), expected.get())]
    NotDense {
        /// Whose position.
        partition: PartitionId,
        /// The next position.
        expected: Position,
        /// The position given.
        found: Position,
    },
    /// The partition is stopped since recovery found damage in it. Nothing was written.
    #[error(
        "partition {} is stopped, because the start found damage in its records: run `postroad store verify` and `repair`",
        .0.0
    )]
    PartitionStopped(PartitionId),
    /// One payload or the whole group exceeds the limits of the format. Nothing was written.
    #[error("{found_bytes} bytes exceed the limit of {max_bytes}")]
    TooLarge {
        /// Size of the payload or group.
        found_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
}

/// Why [`crate::Journal::reopen`] did not bring the journal back; it may be called again later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReopenError {
    /// No segment to go on in.
    #[error("no segment to continue in: {0}")]
    NoSegment(#[from] PrepareError),
    /// The new segment could not be written or synced either, or the old one is not where it was.
    #[error("{}: {source}", file.display())]
    Io {
        /// The segment, or the directory.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Why [`crate::Journal::cut_behind`] did not cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// A checkpoint knows of groups that would go, or one is being written.
    #[error("partition {}: a checkpoint covers groups behind position {}", partition.0, position.get())]
    Checkpointed {
        /// Whose record.
        partition: PartitionId,
        /// The record after whose group was to be cut.
        position: Position,
    },
    /// The group after which is to be cut cannot be found.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The end could not be synced, or the group that pins it could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// There is no segment for the group that pins the end.
    #[error(transparent)]
    NoSegment(#[from] PrepareError),
}

/// Why a segment could not be made ready.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", file.display())]
pub struct PrepareError {
    /// The segment that was to be made.
    pub file: PathBuf,
    /// The system's error.
    pub source: io::Error,
    pub(crate) number: SegmentNumber,
}

impl PrepareError {
    /// Whether the disk is full, as opposed to broken.
    pub fn is_full(&self) -> bool {
        crate::disks::disk::is_full(&self.source)
    }
}

/// Why the index of a segment could not be written beside it: it stays in memory.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", file.display())]
pub struct IndexError {
    /// The file that was to be made.
    pub file: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Why a checkpoint was not written. The ones before stay valid; try again later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The operating system refused; a full disk too.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A partition that has records or an earlier checkpoint is left out.
    #[error("partition {} is missing from the checkpoint", .0.0)]
    PartitionMissing(PartitionId),
    /// A partition is given twice, or is stopped, or its position is not durable, or older than its
    /// last checkpoint.
    #[error("partition {}: no checkpoint possible at position {}", partition.0, position.map_or(0, Position::get))]
    BadPosition {
        /// Whose position.
        partition: PartitionId,
        /// The position given.
        position: Option<Position>,
    },
    /// Groups were written and not synced: a checkpoint must not know more than the log.
    #[error("groups are not synced yet")]
    Unsynced,
    /// One checkpoint is being written already.
    #[error("a checkpoint is being written already")]
    Busy,
}

/// Why segments were not compacted. They stay as they are; recovery finds nothing of the attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactionError {
    /// The operating system refused; a full disk too.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A record to be kept differs from the committed one.
    #[error(transparent)]
    Damaged(Damage),
}

impl CompactionError {
    /// Whether the disk is full, as opposed to broken.
    pub fn is_full(&self) -> bool {
        matches!(self, CompactionError::Io { source, .. } if crate::disks::disk::is_full(source))
    }
}

/// Why a backup was not begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// It is unknown which data is durable: the journal has to be reopened first.
    #[error(transparent)]
    NotSynced(#[from] CommitError),
    /// The directory is on another file system than the journal, so nothing there can be a further
    /// name of its files.
    #[error("{} must be on the same file system as {}", to.display(), file.display())]
    OtherDevice {
        /// The first file that should have had a name there.
        file: PathBuf,
        /// Which name.
        to: PathBuf,
    },
    /// The operating system refuses the file its further name.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a directory was not repaired. Its contents are still there; the repair can be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The operating system refused; a full disk too.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The readable part of a damaged segment could not be written to a new one.
    #[error(transparent)]
    Rescue(#[from] CompactionError),
    /// There is no segment to go on in.
    #[error(transparent)]
    NoSegment(#[from] PrepareError),
}

/// Why a record could not be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    #[error("{}: {source}", file.display())]
    Io {
        /// The segment.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No such record: never committed, or its segment is recycled.
    #[error("partition {} has no record at position {}", partition.0, position.get())]
    NotFound {
        /// Whose record.
        partition: PartitionId,
        /// Which one.
        position: Position,
    },
    /// The bytes on the disk are not those that were committed.
    #[error(transparent)]
    Damaged(Damage),
}
