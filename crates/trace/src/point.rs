//! Points: the steps of traced messages, each with its time.

use postroad_model::{Destination, EntryTag, PartitionId, QueueId, TraceKey, TraceStep};

/// Microseconds of the monotone clock of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceTime(pub u64);

impl TraceTime {
    /// Microseconds from an earlier time to this one. Clocks of two threads may be read in another
    /// order than their steps: less than nothing is nothing.
    pub fn since(self, earlier: TraceTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// An entry of a queue, among all partitions of the process.
pub type EntryOf = (PartitionId, QueueId, EntryTag);

/// One step of one message.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which message.
    pub trace: TraceKey,
    /// When.
    pub at: TraceTime,
    /// Which step.
    pub what: What,
}

/// See [`Point`].
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// It was read, and is on its way to its partition.
    Begun(Box<Begun>),
    /// Its partition has taken it from its inbox.
    Taken,
    /// Its record is on its way to the log.
    Proposed,
    /// Its record is durable; when its group was written first, and synced here, if that is known.
    Committed {
        /// From the first byte to the end of the sync.
        written: Option<(TraceTime, TraceTime)>,
    },
    /// A step in its partition.
    Step(PartitionId, TraceStep),
    /// It was written to the socket of its consumer, or a client inside the process has it.
    Written(EntryOf),
}

/// How a message came.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// When the read from the socket ended that completed it.
    pub read_at: TraceTime,
    /// The same on the wall clock, in microseconds since 1970.
    pub read_wall_us: u64,
    /// Its trace.
    pub trace_id: u128,
    /// The sender's span, if it has sent a context.
    pub parent_id: Option<u64>,
    /// The sender's `tracestate`.
    pub state: Option<Box<str>>,
    /// The span of its way into the broker.
    pub span_id: u64,
    /// Its `JMSMessageID`; empty if it has none.
    pub message_id: Box<str>,
    /// Where it was sent.
    pub destination: Destination,
    /// Its bytes.
    pub bytes: u64,
    /// It was sent in a transaction.
    pub in_transaction: bool,
}
