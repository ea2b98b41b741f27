//! Traced messages: which they are, and the steps of their lives that a partition reports.

use std::num::NonZeroU64;

use crate::{ConsumerKey, Destination, EntryTag, Outcome, QueueId, SettleCause};

/// A traced message, by a number of this process. It is in no log and no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceKey(pub NonZeroU64);

/// A step of a traced message in the partition that has it. The edge, which has the clock, adds the
/// time.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedStep {
    /// Which message.
    pub trace: TraceKey,
    /// What happened to it.
    pub step: TraceStep,
}

/// See [`TracedStep`]. An entry is named by its queue and its tag.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceStep {
    /// A queue has it.
    Ready {
        /// The entry.
        entry: (QueueId, EntryTag),
        /// The queue, or the topic of a subscription.
        queue: Destination,
        /// Messages that the queue had before.
        ahead: u64,
        /// Consumers of the queue.
        consumers: u64,
    },
    /// It was given to a consumer, or to a request for messages.
    Delivered {
        /// The entry.
        entry: (QueueId, EntryTag),
        /// The consumer.
        consumer: ConsumerKey,
        /// The consumer stands for a request for messages, which they answer.
        is_leased: bool,
    },
    /// A client settled it, or a request of the broker itself.
    Settled {
        /// The entry.
        entry: (QueueId, EntryTag),
        /// How.
        outcome: Outcome,
    },
    /// The entry has left its queue, durably if the message is durable.
    Ended {
        /// The entry.
        entry: (QueueId, EntryTag),
        /// Why.
        cause: SettleCause,
    },
    /// It waits for its time in the schedule, from which it is delivered as another message.
    Scheduled,
    /// No queue has it any more.
    Gone,
    /// This partition follows too many messages: nothing more is known of this one.
    NotFollowed,
}
