//! The vocabulary of a replicated log.

use std::num::NonZeroU64;

use bytes::Bytes;

/// A node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub NonZeroU64);

impl NodeId {
    /// `None` for zero, which the consensus algorithm uses for "no node".
    pub const fn new(number: u64) -> Option<NodeId> {
        match NonZeroU64::new(number) {
            Some(number) => Some(NodeId(number)),
            None => None,
        }
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// The time of one leader: there is at most one leader in a term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Place of an entry in the log of a group. Entries count from 1; 0 is the place before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u64);

impl Index {
    /// The place that follows.
    pub fn next(self) -> Index {
        Index(self.0.saturating_add(1))
    }

    /// The place before; 0 stays 0.
    pub fn previous(self) -> Index {
        Index(self.0.saturating_sub(1))
    }
}

/// Index and term together identify an entry and, by Raft's log matching, everything before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryId {
    /// Its place.
    pub index: Index,
    /// The term of the leader that proposed it.
    pub term: Term,
}

/// The purpose of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// The first entry of each leader, without payload. When it is committed, the leader knows all
    /// committed entries of earlier terms.
    Opening,
    /// A batch that was proposed: one journal group.
    Batch,
    /// The members from now on: see [`crate::Members`].
    Members,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its identity.
    pub id: EntryId,
    /// Its purpose.
    pub kind: EntryKind,
    /// The batch, or the members; empty for [`EntryKind::Opening`] only.
    pub payload: Bytes,
}
