//! Effects: the work that the runtime must do now, in order.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Announcement, BranchId, BranchStanding, CarriedPiece, Command, Compression, ConnectionId, ConsumerKey,
    Destination, Durability, EntryTag, LeaseAnswer, Message, MessageKey, Page, PartitionId, Peer, Position,
    QueueId, RedriveCounts, Refusal, Ticket, TraceKey, TracedStep, TransactionKey, Urgency,
};

/// One thing for the runtime to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Put the command into the log; it comes back through `apply`, or fails with all later ones.
    Propose {
        /// The command.
        command: Command,
        /// How soon.
        urgency: Urgency,
        /// How safe it must be when it comes back.
        durability: Durability,
        /// How bodies in its record are written.
        compression: Compression,
        /// Where the message of a [`Command::Chunk`] is sent: who owns that owns the piece. Other
        /// commands say themselves.
        addresses: Option<Arc<[Destination]>>,
    },
    /// Answer a session.
    Reply {
        /// Whose session.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
        /// The answer.
        result: Result<(), Refusal>,
    },
    /// Send a message to a consumer.
    Deliver(Delivery),
    /// The consumer's credit is zero now, and nothing more is ready for it (or its browse is over).
    Drained {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// A policy gives the consumer, which is being attached, another credit than its client asked
    /// for.
    Prefetch {
        /// The consumer.
        consumer: ConsumerKey,
        /// Messages that it is sent ahead.
        messages: u32,
    },
    /// The consumer is no more, and did not ask for that.
    Detached {
        /// The consumer.
        consumer: ConsumerKey,
        /// Why.
        cause: DetachCause,
    },
    /// Another connection of the same client has taken this one's place: close it.
    Evict {
        /// The connection.
        connection: ConnectionId,
    },
    /// A session's share of a branch has ended, perhaps by another session's word.
    Ended {
        /// The share.
        transaction: TransactionKey,
        /// Whether its changes are durable; otherwise its consumers hold the messages again that
        /// they settled in it.
        committed: bool,
    },
    /// Branches that wait for a word of their managers; the reply to the same ticket follows.
    Branches {
        /// Whose session asked.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
        /// The branches.
        branches: Vec<(BranchId, BranchStanding)>,
    },
    /// The state of a link that was attached again; the reply to the same ticket follows.
    Unsettled {
        /// Whose session asked.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
        /// The deliveries by their tags, in the order in which they came; with the reason if they
        /// were refused.
        deliveries: Vec<(Bytes, Option<Refusal>)>,
    },
    /// The answer to a [`crate::LeaseEvent`]; the reply to the same ticket follows.
    Lease {
        /// Whose session asked.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
        /// The answer.
        answer: LeaseAnswer,
    },
    /// Dead letters have gone back, durably; the reply to the same ticket follows.
    Redriven {
        /// Whose session asked.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
        /// How many, and where to.
        counts: Box<RedriveCounts>,
    },
    /// Queues that are leaving; the reply to the same ticket follows.
    Moves {
        /// Whose session asked.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
        /// The queues.
        moves: Vec<Moving>,
    },
    /// A page of a list; the reply to the same ticket follows.
    Answer {
        /// Whose session asked.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
        /// The rows of this partition.
        page: Box<Page>,
    },
    /// The queue has moved: tell all senders, each of which answers by [`crate::Event::Placed`]
    /// after its last send here.
    Place {
        /// The queue.
        queue: Destination,
        /// Where it lives.
        to: PartitionId,
    },
    /// The queue that this consumer reads has left, and nothing that it was sent here is open: it
    /// is to follow, and then to leave.
    Moved {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// The consumer is gone here; its remaining credit.
    Left {
        /// The consumer.
        consumer: ConsumerKey,
        /// Messages that it may be sent.
        credit: u32,
    },
    /// Read these bodies back from the log, in this order.
    Fetch {
        /// Durable keys only.
        keys: Vec<MessageKey>,
    },
    /// Read the jobs in a record back from the log: answered by [`crate::Event::ShelfRead`].
    ReadShelf {
        /// The record.
        position: Position,
    },
    /// Read a piece of a large body, and send it to the connection.
    ReadChunk {
        /// Which connection.
        connection: ConnectionId,
        /// The record.
        position: Position,
    },
    /// Read a piece of a large body, and hand it to another partition as [`Peer::Piece`]; if it
    /// cannot be read, answer with [`crate::Event::PieceUnread`].
    CarryChunk {
        /// The record.
        position: Position,
        /// To whom.
        to: PartitionId,
        /// Which it is.
        piece: CarriedPiece,
    },
    /// The first `count` messages of the record at `position` must outlive the next checkpoint.
    Retain {
        /// The record.
        position: Position,
        /// How many.
        count: u32,
        /// Bytes of their bodies together.
        bytes: u64,
    },
    /// One message of the record at `position` is needed no more.
    Release {
        /// The record.
        position: Position,
        /// Which of its messages.
        ordinal: u32,
        /// Bytes of its body, as they were counted when it was retained.
        bytes: u64,
    },
    /// Publish to subscribers of advisories. A waiting request is answered afterwards.
    Announce(Box<Announcement>),
    /// Tell another partition.
    Tell {
        /// Whom.
        to: PartitionId,
        /// The other broker.
        peer: Peer,
    },
    /// A traced message has gone a step.
    Trace(Box<TracedStep>),
    /// A durable subscription has ended, durably, as it was without a reader for too long: tell
    /// operators.
    OfflineEnded(Box<OfflineEnd>),
}

/// A durable subscription that was without a reader for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineEnd {
    /// Its name.
    pub name: Arc<str>,
    /// The name of its topic.
    pub topic: Arc<str>,
    /// The messages that ended with it.
    pub messages: u64,
    /// How long nothing had read it.
    pub offline_ms: u64,
}

/// A queue that is leaving its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// The queue.
    pub queue: Destination,
    /// Where it lives now.
    pub to: PartitionId,
    /// Messages that have moved in this run.
    pub moved: u64,
    /// Messages that are still where it was.
    pub left: u64,
    /// How many of them are in the hands of consumers, or leave.
    pub held: u64,
    /// Open or prepared transactions that may still send to it.
    pub transactions: u64,
    /// Large messages that are on their way in, and began to come before it moved.
    pub uploads: u64,
    /// Why the last step was refused, if it was.
    pub refused: Option<Refusal>,
}

/// One message on its way to one consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The consumer; of one that reads a pattern of queues, the member that settles it.
    pub consumer: ConsumerKey,
    /// The queue, where the consumer reads from several.
    pub source: Option<Destination>,
    /// The tag by which it is settled.
    pub tag: EntryTag,
    /// The queue that the tag is of: no two of one store share both numbers.
    pub queue: (PartitionId, QueueId),
    /// How often it was delivered before without success.
    pub failed_deliveries: u32,
    /// A consumer gave up on it, and the broker delivers it again by its policy, whatever the
    /// consumers' own say.
    pub by_policy: bool,
    /// It is the first message of its group that this consumer gets (`JMSXGroupFirstForConsumer`).
    pub first_of_group: bool,
    /// The trace of the message, if it has one.
    pub trace: Option<TraceKey>,
    /// The message.
    pub message: Message,
}

/// Why a consumer ends that did not ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachCause {
    /// Its destination was deleted.
    Deleted,
    /// It said nothing about its messages for too long.
    Slow,
    /// It reads a pattern, and there is no room to read one more queue by it.
    PatternTooWide,
    /// Its client reads the subscription by another connection now: see [`crate::Attach::steals`].
    Stolen,
}
