//! Redrives: dead letters that go back, and their undo.

use std::sync::Arc;

use crate::{Destination, Principal};

/// Which dead letters go back, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// The queue that they are in.
    pub from: Destination,
    /// Where to, instead of where each was.
    pub to: Option<Destination>,
    /// Only those that were there.
    pub origin: Option<Destination>,
    /// Only those that this matches; empty for all.
    pub selector: Arc<str>,
    /// The maximum number.
    pub messages_max: u64,
    /// Which way they go.
    pub way: RedriveWay,
    /// Who asks: without `to`, messages go back only to queues that this principal may write to.
    /// The router of the requester's connection sets it, whatever the requester says; `None` for
    /// the broker itself.
    pub by: Option<Principal>,
}

/// Number of a redrive that can be undone; unique among those of a broker or cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedriveId(pub u64);

/// Which way messages of a redrive go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedriveWay {
    /// Out of the dead letters. Messages of a redrive with a number can be undone by it.
    Back(Option<RedriveId>),
    /// To the dead letters again: messages that this redrive moved to the queue.
    Undo(RedriveId),
    /// Nowhere: messages that this redrive moved are counted.
    Count(RedriveId),
}

/// The result of a redrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedriveCounts {
    /// Messages that were moved; of [`RedriveWay::Count`] those that an undo would move.
    pub moved: u64,
    /// Messages that were looked at, and left where they are.
    pub stayed: u64,
    /// Of an undo: messages that consumers, leases or transactions have.
    pub held: u64,
    /// Where they went, with their numbers; at most [`REDRIVE_TARGETS_MAX`].
    pub targets: Vec<(Destination, u64)>,
}

/// Queues that a redrive with a number goes to: dead letters of further ones stay.
pub const REDRIVE_TARGETS_MAX: usize = 256;

/// The past of a dead letter that an operator has sent back: by it the redrive is undone. Messages
/// of one redrive share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedriveMark {
    /// Which redrive.
    pub id: RedriveId,
    /// The dead-letter queue that it was in.
    pub from: Destination,
    /// Where it could not be processed, if that was known.
    pub origin: Option<Destination>,
    /// Why, to [`RedriveMark::REASON_BYTES_MAX`].
    pub reason: Option<Arc<str>>,
}

impl RedriveMark {
    /// A longer reason is cut: it stays in memory with the message.
    pub const REASON_BYTES_MAX: usize = 512;
}
