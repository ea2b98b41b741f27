//! Events: input of a partition that is not itself durable.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Ask, BranchId, ClientNotice, ConnectionId, ConsumerKey, ConsumerNotice, Destination, DocumentRequest,
    EntryTag, JobsWanted, LeaseEvent, LinkDelivery, LinkEvent, Message, MessageKey, Now, PartitionId,
    Position, ProducerNotice, Redrive, Refusal, Sent, Subscription, Ticket, TransactionId, TransactionKey,
};

/// An event of a session, the log, the clock or another partition, for a partition.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message to send.
    Publish(Publish),
    /// The next piece of a large message that is still on its way in. The reply leaves once it is
    /// in the log.
    Chunk {
        /// Who sends.
        connection: ConnectionId,
        /// Which of its large messages, by a number of the session's own.
        upload: u64,
        /// Where the message is sent, the same for each of its pieces.
        to: Arc<[Destination]>,
        /// As many bytes of the body as the first piece had, or fewer if it ends with them;
        /// [`crate::CHUNK_BYTES`] as a rule.
        bytes: Bytes,
        /// Who waits.
        ticket: Ticket,
    },
    /// The rest of a large message will not come.
    Abandon {
        /// Who sent it.
        connection: ConnectionId,
        /// Which.
        upload: u64,
    },
    /// Read a piece of a large message that was delivered: answered by
    /// [`crate::Effect::ReadChunk`].
    WantChunk {
        /// Who was sent it.
        consumer: ConsumerKey,
        /// The partition that delivered it: its consumer may have followed the queue to another one
        /// meanwhile.
        from: PartitionId,
        /// The record.
        position: Position,
    },
    /// A piece that was to go to another partition cannot be read: see
    /// [`crate::Effect::CarryChunk`].
    PieceUnread {
        /// Which body.
        upload: u64,
        /// Why.
        reason: String,
    },
    /// A consumer to attach.
    Attach(Attach),
    /// A consumer leaves; its messages return to the queue.
    Detach {
        /// The consumer.
        consumer: ConsumerKey,
        /// Which of the entries it holds count as delivered without success.
        delivered: Delivered,
        /// Who waits for the end of it.
        ticket: Option<Ticket>,
    },
    /// The consumer may be sent `add` more messages.
    Credit {
        /// The consumer.
        consumer: ConsumerKey,
        /// How many more.
        add: u32,
    },
    /// Withdraw the consumer's remaining credit after the delivery of the messages that are ready:
    /// answered by [`crate::Effect::Drained`].
    Drain {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// The consumer's verdict on entries that it holds.
    Settle(Settle),
    /// Nothing more comes for this transaction: it is about to be committed over several
    /// partitions, and their word to each other may be faster than the client's to them.
    Seal {
        /// The transaction.
        transaction: TransactionKey,
    },
    /// Make the transaction's changes durable and visible.
    Commit {
        /// The transaction.
        transaction: TransactionKey,
        /// Every partition it touched; the first one coordinates.
        participants: Vec<PartitionId>,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Drop the transaction's changes; its consumers still hold the messages settled in it.
    Rollback {
        /// The transaction.
        transaction: TransactionKey,
        /// Who waits for it.
        ticket: Option<Ticket>,
    },
    /// A session has done its share of a branch; this session or others may do more shares.
    EndBranch {
        /// The branch.
        branch: BranchId,
        /// The share.
        transaction: TransactionKey,
        /// Every partition that the share touched.
        participants: Vec<PartitionId>,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Make the branch durable; any session may decide it, in this run or another.
    PrepareBranch {
        /// The branch.
        branch: BranchId,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// End the branch.
    DecideBranch {
        /// The branch.
        branch: BranchId,
        /// How.
        decision: Decision,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// The manager no longer needs to learn that an operator has ended the branch.
    ForgetBranch {
        /// The branch.
        branch: BranchId,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Which branches of this partition are prepared, or were ended by an operator? Answered by
    /// [`crate::Effect::Branches`] and a reply.
    ListBranches {
        /// Who asks.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
    },
    /// Send dead letters back to where they were. Answered by [`crate::Effect::Redriven`] and a
    /// reply, once all of it is durable; a refusal ends it early, and messages returned by then
    /// stay returned.
    Redrive {
        /// Which, and where to.
        wanted: Box<Redrive>,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Stop or resume the deliveries of a queue, durably. Consumers stay attached, and sends go on.
    Pause {
        /// A lasting queue.
        queue: Destination,
        /// `false`: it is resumed.
        paused: bool,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Let a queue leave for another partition while it is in use. The reply says that it has
    /// begun, durably: the rest is done whatever happens, in later runs too.
    Move {
        /// A lasting queue.
        queue: Destination,
        /// Where it is to live.
        to: PartitionId,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Which queues are leaving this partition? Answered by [`crate::Effect::Moves`] and a reply.
    ListMoves {
        /// Who asks.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
    },
    /// A page of a list of this partition. Answered by [`crate::Effect::Answer`] and a reply.
    Ask {
        /// Which.
        ask: Arc<Ask>,
        /// Who asks.
        connection: ConnectionId,
        /// Which question.
        ticket: Ticket,
    },
    /// A browser that has no credit yet begins after these entries, the last ones of each lane
    /// that it has seen before.
    Seek {
        /// The browser.
        consumer: ConsumerKey,
        /// The entries.
        after: Vec<EntryTag>,
    },
    /// One of the parts that this process has, each of which sends in an order of its own, has
    /// heard of [`crate::Effect::Place`]: all that it sent to the queue before has come.
    Placed {
        /// The queue.
        queue: Destination,
        /// How many such parts there are.
        of: u16,
    },
    /// A consumer whose queue has left reads it in its new place: as [`Event::Attach`], but without
    /// a notice, and without credit yet.
    Follow(Attach),
    /// Nothing more comes here for this consumer, which reads its queue elsewhere now: answered by
    /// [`crate::Effect::Left`].
    Leave {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// Make a destination: at once if temporary, durably if it is a lasting queue.
    Declare {
        /// The destination.
        destination: Destination,
        /// Who asks.
        connection: ConnectionId,
        /// Temporary ones: taken, with their messages, from another connection that made them with
        /// the same value here. As with [`Attach::steals`] this is the rest of a connection that
        /// the client has lost.
        steals: Option<Arc<str>>,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// End a durable subscription without readers.
    Unsubscribe {
        /// Its name.
        name: Arc<str>,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Remove a destination and all that it holds.
    Delete {
        /// The destination.
        destination: Destination,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Take an exclusive name (a client id) until the connection ends. A former connection of the
    /// same holder is evicted, and the answer waits until the broker has finished with all that it
    /// sent.
    Claim {
        /// The name.
        name: Arc<str>,
        /// The user who asks; empty for the anonymous user.
        user: Arc<str>,
        /// Who it is for: a claim by the same holder and user takes the name over, as after a
        /// reconnect.
        holder: Arc<str>,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Give an exclusive name up, before the connection's end.
    Disclaim {
        /// The name.
        name: Arc<str>,
        /// Who has it.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// The broker has finished with all that a connection sent, in every partition: its claim on
    /// this name ends, and a claim that waits for that is granted. Comes after [`Event::Closed`].
    Concluded {
        /// The name.
        name: Arc<str>,
        /// Who had it.
        connection: ConnectionId,
    },
    /// Deliveries of this many bytes have left the connection's outbox: there is room for as many
    /// again.
    Written {
        /// The connection.
        connection: ConnectionId,
        /// Bytes of messages, as delivered.
        bytes: u64,
    },
    /// A client has introduced itself: advisories report it, until its connection is gone.
    Introduce {
        /// Its connection.
        connection: ConnectionId,
        /// Who it is.
        client: Arc<ClientNotice>,
    },
    /// A client may send to an address from now on: advisories report it, until it ends that or is
    /// gone.
    AddProducer {
        /// Its connection.
        connection: ConnectionId,
        /// The producer.
        producer: Arc<ProducerNotice>,
    },
    /// A client sends to an address no more.
    RemoveProducer {
        /// Its connection.
        connection: ConnectionId,
        /// The producer.
        producer: Arc<ProducerNotice>,
    },
    /// The connection is gone, with its consumers, transactions and temporary destinations.
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
    /// Bodies that were asked for by [`crate::Effect::Fetch`]: those that come together are
    /// reported together.
    Fetched {
        /// Which, and the message, or why it cannot be had.
        bodies: Vec<(MessageKey, Result<Message, String>)>,
    },
    /// End these jobs of this partition.
    EndJobs {
        /// Which.
        wanted: JobsWanted,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Send a copy of the message of each of these jobs of this partition.
    BrowseJobs {
        /// Which.
        wanted: JobsWanted,
        /// Where to.
        reply_to: Destination,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits: the reply says that the copies will come.
        ticket: Ticket,
    },
    /// A scheduled message that was asked for by [`crate::Effect::Fetch`].
    Recalled {
        /// Which.
        key: MessageKey,
        /// The message, its addresses and its schedule.
        sent: Box<Sent>,
    },
    /// The jobs in a record that was asked for by [`crate::Effect::ReadShelf`].
    ShelfRead {
        /// The record.
        position: Position,
        /// The jobs as the record has them, or why they cannot be had.
        jobs: Result<Bytes, String>,
    },
    /// A front end without consumers asks something of a queue.
    Lease(Box<LeaseEvent>),
    /// An operator replaces a document.
    Document(Box<DocumentRequest>),
    /// Something about a link that is remembered.
    Link(LinkEvent),
    /// Answered once all earlier events are finished: their records are in the log, or have failed.
    Echo {
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Every proposal that was not applied yet has failed, and is not on disk.
    ProposalsFailed {
        /// The operating system's error.
        reason: String,
    },
    /// Whether the disk has room for more messages.
    Space {
        /// `false`: persistent messages are refused.
        ample: bool,
    },
    /// The time.
    Tick {
        /// Now: ticks never go back; the wall clock may be set at any time, in both directions.
        now: Now,
    },
    /// Another partition speaks.
    Peer {
        /// Who.
        from: PartitionId,
        /// The other broker.
        peer: Peer,
    },
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Who sends.
    pub connection: ConnectionId,
    /// Who waits: the reply leaves once the message is as safe as its delivery mode promises.
    pub ticket: Ticket,
    /// The message and its address.
    pub sent: Sent,
    /// Invisible until this transaction commits.
    pub transaction: Option<TransactionKey>,
    /// For topics: retained for later subscribers.
    pub retain: Option<Retain>,
    /// Its client had lost a connection, and may have sent it before: see [`crate::Origin`].
    pub resent: bool,
    /// Names a message that may come by several links: it is taken in once.
    pub once: Option<Box<u128>>,
    /// It is an advisory, and waits for no room: a subscription without room misses it.
    pub is_notice: bool,
    /// Its body has come in pieces, all of them in the log by now: see [`Event::Chunk`].
    pub upload: Option<u64>,
    /// Which delivery it is of a link that is remembered.
    pub delivery: Option<Box<LinkDelivery>>,
    /// Delay and further versions, by routes.
    pub routed: Option<Box<Routing>>,
}

impl Publish {
    /// A message in no transaction, sent for the first time, that leaves nothing for later
    /// subscribers.
    pub fn plain(connection: ConnectionId, ticket: Ticket, sent: Sent) -> Publish {
        Publish {
            connection,
            ticket,
            sent,
            transaction: None,
            retain: None,
            resent: false,
            once: None,
            is_notice: false,
            upload: None,
            delivery: None,
            routed: None,
        }
    }
}

/// Delay and further versions of a message, by routes.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// How long the message itself waits.
    pub hold: Hold,
    /// Further versions of it. With any, all belong to a transaction, and have the body of the
    /// message itself.
    pub further: Vec<RoutedSend>,
}

/// One version of a message.
#[derive(Clone, Debug)]
pub struct RoutedSend {
    /// With the addresses that get it.
    pub sent: Sent,
    /// How long it waits there.
    pub hold: Hold,
}

/// How long a message that a route sends on waits in its queues before it is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hold {
    /// At least so long.
    pub delay_ms: u64,
    /// And until it is its turn.
    pub pace: Option<Pace>,
    /// The route that redelivers the copy if its target refuses it; `None`: the send is refused.
    pub retry: Option<Arc<str>>,
}

impl Hold {
    /// Whether it does not wait, and is not redelivered.
    pub fn is_none(&self) -> bool {
        self.delay_ms == 0 && self.pace.is_none() && self.retry.is_none()
    }
}

/// A throttle: a number of messages of a route in a period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// The name of the route.
    pub route: Arc<str>,
    /// How many; at least one.
    pub messages: u32,
    /// In how many milliseconds; at least one.
    pub period_ms: u64,
}

/// Retention of a topic for later subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retain {
    /// The topic keeps one message for each key.
    pub key: Box<str>,
    /// Keep this message, or forget the one that is kept.
    pub keep: bool,
}

/// A consumer to attach.
#[derive(Clone, Debug)]
pub struct Attach {
    /// Its name from now on.
    pub consumer: ConsumerKey,
    /// Its source; a pattern is every destination that matches, now or later.
    pub source: Destination,
    /// For a pattern: which partition's share of the destinations. Anything else lives in one
    /// partition; a queue whose name looks like a pattern is one queue without it.
    pub at: Option<PartitionId>,
    /// How it reads.
    pub mode: ConsumerMode,
    /// How many messages it may be sent at first.
    pub credit: u32,
    /// Its client has left that at the client's own default: a policy may decide it (see
    /// [`crate::Effect::Prefetch`]).
    pub credit_by_default: bool,
    /// Consumers of higher priority are served first.
    pub priority: i8,
    /// Topics: skip messages of its own connection, or for a durable subscription of its own
    /// client.
    pub no_local: bool,
    /// Who it is, as its messages say; see [`crate::RareHeaders::client`].
    pub client: Option<Arc<str>>,
    /// Only messages that match this selector (JMS 3.1, section 3.8); empty for all.
    pub selector: Arc<str>,
    /// Topics: read a subscription of this name, made on first use; a durable one unless `share`
    /// says otherwise.
    pub subscription: Option<Arc<str>>,
    /// Whether others may read the subscription at the same time.
    pub share: Share,
    /// Topics: a durable subscription with one reader at a time is taken from its reader of this
    /// user, empty without login; that reader ends. For protocols in which only its own client can
    /// name it, so that the reader is the rest of a connection that the client has lost. It is not
    /// taken from readers with `None` here, nor from those of the same connection. Queues:
    /// deliveries of an earlier reader of this name that are [`Delivered::InDoubt`] go to it first,
    /// whatever its credit.
    pub steals: Option<Arc<str>>,
    /// Topics: begin with the messages that the topic keeps for retroactive consumers, if its
    /// policy keeps any.
    pub retroactive: bool,
    /// Its advisory, if there is one.
    pub notice: Option<Arc<ConsumerNotice>>,
    /// Who waits for it.
    pub ticket: Ticket,
}

/// Whether several consumers may read one named subscription, in competition (JMS 3.1, section
/// 8.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// One reader at a time. With a name the subscription is durable, without one it ends with its
    /// reader.
    #[default]
    No,
    /// A durable subscription that stays until it is unsubscribed.
    Durable,
    /// A subscription that ends with its last reader.
    Volatile,
}

/// How a consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerMode {
    /// In competition with others.
    Shared,
    /// Alone among the exclusive ones: the first of the highest priority gets everything.
    Exclusive,
    /// Sees the queue's present messages, takes none, and is notified at the end.
    Browse,
    /// In competition with others, and of a paused queue too: for the actions of operators.
    Operator,
}

/// Which of a leaving consumer's entries count as delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// All of them: the application may have seen any.
    All,
    /// Those up to and with this one, in the order in which they were sent to the consumer.
    Through {
        /// Which member of the consumer it was sent to; see [`ConsumerKey::member`].
        member: u32,
        /// The last one.
        tag: EntryTag,
    },
    /// None: the application never saw them.
    None,
    /// Unknown: the peer of a link may have stored them. For so long only a consumer of the same
    /// [`Attach::steals`] gets them.
    InDoubt {
        /// In milliseconds.
        kept_ms: u32,
    },
}

/// A consumer's verdict.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The consumer.
    pub consumer: ConsumerKey,
    /// Entries that it holds; others are passed over.
    pub tags: Vec<EntryTag>,
    /// Their outcome.
    pub outcome: Outcome,
    /// Only if this transaction commits.
    pub transaction: Option<TransactionKey>,
    /// Why, in the consumer's words; kept with a message that is rejected.
    pub reason: Option<Arc<str>>,
    /// Who waits: the reply leaves once the verdict is durable.
    pub ticket: Option<Ticket>,
}

impl Settle {
    /// The message can never be sent to this consumer, and no request waits for that.
    pub fn rejected(consumer: ConsumerKey, tag: EntryTag, reason: &str) -> Settle {
        let (tags, outcome, reason) = (vec![tag], Outcome::Rejected, Some(reason.into()));
        Settle { consumer, tags, outcome, transaction: None, reason, ticket: None }
    }
}

/// A consumer's verdict on a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done with it.
    Accepted,
    /// Its time is over.
    Expired,
    /// It can never be processed: to the dead-letter queue.
    Rejected,
    /// Back to its place in the queue, counted as delivered if `failed`.
    Released {
        /// Whether the delivery count rises.
        failed: bool,
    },
    /// The consumer keeps it, but has failed on it once more: the delivery count rises.
    Retried,
}

/// How a branch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is prepared, and is to be carried out.
    Commit,
    /// It is not prepared, and is to be carried out at once.
    CommitOnePhase,
    /// It is to be undone, prepared or not.
    Rollback,
    /// An operator decides a prepared branch, in place of the transaction's manager.
    Overrule {
        /// Whether it is carried out.
        commit: bool,
    },
}

/// A piece of a large body on its way to another partition, with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedPiece {
    /// Which body, by a number of the sender's own.
    pub upload: u64,
    /// Its place in the body, from 0: pieces are read in any order.
    pub index: u64,
    /// Where the message will go.
    pub address: Destination,
}

/// Messages between partitions. All of them may be repeated after a restart.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// Take these sends into an open transaction.
    Enlist {
        /// The transaction.
        transaction: TransactionKey,
        /// Its sends.
        sends: Vec<Sent>,
        /// Bodies that have come in pieces, each with the place of its message among the sends.
        uploads: Vec<(usize, u64)>,
    },
    /// A piece of a large body whose message will move to you.
    Piece {
        /// Which it is.
        piece: CarriedPiece,
        /// As in [`Event::Chunk`].
        bytes: Bytes,
    },
    /// The answer to `Piece`: in the log, or why it is not.
    PieceTaken {
        /// Which body.
        upload: u64,
        /// Whether the next one may come.
        result: Result<(), Refusal>,
    },
    /// Nothing follows the pieces of this body.
    Forsake {
        /// Which.
        upload: u64,
    },
    /// This queue will live with you, and its messages here come before those sent to it there:
    /// take messages in, and deliver none before `Arrived`.
    Expect {
        /// The queue.
        queue: Destination,
    },
    /// The queue is there, and waits; durably.
    Expecting {
        /// The queue.
        queue: Destination,
    },
    /// Messages of producers that came here while the queue lived here.
    Remember {
        /// The queue.
        queue: Destination,
        /// Windows of the duplicate detection, in parts for one record each.
        parts: Vec<Bytes>,
    },
    /// The answer to `Remember`: they are in the log.
    Remembers {
        /// The queue.
        queue: Destination,
    },
    /// Handles of a queue that is on its way to me: entries that are leased are with you still.
    Handle(Box<crate::HandleEntries>),
    /// Nothing is left of the queue here.
    Arrived {
        /// The queue.
        queue: Destination,
    },
    /// This durable subscription was made: one of its name that reads another topic is over.
    Subscribed(Box<Subscription>),
    /// A message for an address that lives here, in memory alone.
    Offer {
        /// The message.
        sent: Box<Sent>,
    },
    /// Drop the changes of these open transactions here, and confirm it.
    Discard {
        /// The transactions while they were open.
        transactions: Vec<TransactionKey>,
        /// The coordinator's id of them.
        id: TransactionId,
        /// They were open for too long: consumers lose the messages that they had settled in them.
        timed_out: bool,
    },
    /// Prepare the open transaction's changes here.
    Prepare {
        /// The transaction while it was open; several if it is a branch of several sessions.
        transactions: Vec<TransactionKey>,
        /// Its id from now on.
        id: TransactionId,
    },
    /// The answer to `Prepare`: durable, or why it could not be.
    Prepared {
        /// The transaction.
        id: TransactionId,
        /// Whether the coordinator may count on it.
        result: Result<(), Refusal>,
    },
    /// The decision.
    Decided {
        /// The transaction.
        id: TransactionId,
        /// Commit or abort.
        commit: bool,
    },
    /// The participant has carried out the decision, durably.
    Done {
        /// The transaction.
        id: TransactionId,
    },
    /// A participant that found itself prepared after a restart asks for the decision.
    InDoubt {
        /// The transaction.
        id: TransactionId,
    },
}
