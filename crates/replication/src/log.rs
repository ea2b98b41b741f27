//! The seam between the broker and whatever makes its commands durable.

use bytes::Bytes;
use postroad_journal::KeyId;
use postroad_model::{Command, Durability, PartitionId, Position, Snapshot, Urgency};

/// A command on its way into the log.
#[derive(Debug)]
pub struct Proposal {
    /// The command, to apply once it is durable.
    pub command: Command,
    /// Its record, in pieces to be written one after the other.
    pub record: Vec<Bytes>,
    /// How soon.
    pub urgency: Urgency,
    /// How safe it must be when it comes back.
    pub durability: Durability,
    /// The key of its own that its record has; see [`postroad_journal::Record::key`].
    pub key: Option<KeyId>,
}

/// When the group of a record was written, by a clock of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenTimes {
    /// Its first byte, in microseconds.
    pub began_us: u64,
    /// The end of its sync here, or of its write if it needs no sync.
    pub ended_us: u64,
}

/// Events of the log for a partition's thread.
#[derive(Debug)]
pub enum LogEvent {
    /// As durable as was asked for: to be applied now. Positions of a partition come in order and
    /// without gaps.
    Committed {
        /// Whose log.
        partition: PartitionId,
        /// Its place there.
        position: Position,
        /// The proposal.
        command: Command,
        /// See [`WrittenTimes`]; `None` if the caller has not said.
        written: Option<WrittenTimes>,
    },
    /// Every proposal of the partition that was not committed yet is void.
    Failed {
        /// Whose.
        partition: PartitionId,
        /// The operating system's error.
        reason: String,
    },
    /// Whether there is room for additions; settlements may be tried either way.
    Space {
        /// `false`: refuse additions.
        ample: bool,
    },
    /// The log wants the partition's state, to start from it after a crash.
    SnapshotWanted {
        /// Whose.
        partition: PartitionId,
    },
    /// The answer to [`ReplLog::read`].
    Read {
        /// Whose log.
        partition: PartitionId,
        /// The place asked for.
        position: Position,
        /// The record, or why it cannot be had.
        record: Result<Bytes, String>,
    },
}

/// A log of commands for the partitions of one thread.
pub trait ReplLog {
    /// Puts a command after all earlier ones of its partition. Durable only when it is polled as
    /// committed.
    fn propose(&mut self, partition: PartitionId, proposal: Proposal);

    /// Sends the proposals. Call once after each batch of work. Lazy records are kept
    /// back for the next waiting one, unless their time has come (`lazy_due`).
    ///
    /// Returns `true` if something was sent and the other side should be woken.
    fn flush(&mut self, lazy_due: bool) -> bool;

    /// Whether records were kept back.
    fn has_lazy(&self) -> bool;

    /// The next thing that happened; `None` if nothing more has.
    fn poll(&mut self) -> Option<LogEvent>;

    /// Asks for a durable record.
    fn read(&mut self, partition: PartitionId, position: Position);

    /// `count` messages of the record, of `bytes` together, must outlive the next snapshot.
    fn retain(&mut self, partition: PartitionId, position: Position, count: u32, bytes: u64);

    /// This message of the record, of `bytes`, is needed no more.
    fn release(&mut self, partition: PartitionId, position: Position, ordinal: u32, bytes: u64);

    /// The answer to [`LogEvent::SnapshotWanted`]: the state after the record at `position`. All
    /// retains and releases up to that record have been made, and none after it.
    fn snapshot(&mut self, partition: PartitionId, position: Position, state: Snapshot);
}
