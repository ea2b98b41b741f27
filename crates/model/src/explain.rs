//! Explanations: why a message is not delivered, and the smallest change that would deliver it.
//!
//! The core states facts as verdicts on the message, its queue and each consumer. Which of them
//! decides, and what would change it, follows from the verdicts alone: the admin API puts it into
//! words, and the simulator carries it out and checks that the message is delivered.
//!
//! Never here: words for people.

use std::sync::Arc;

use crate::{ConnectionId, ConsumerKey, Destination, EntryTag, TransactionId};

/// What an explanation is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explained {
    /// The queue, and its next message.
    Next,
    /// This message of the queue.
    Entry(EntryTag),
    /// A message that is in no queue yet, or about to leave its queue, by its JMSMessageID: it is
    /// looked for in transactions and among sends that wait.
    Id(Arc<str>),
    /// A transaction: the partition that coordinates it answers with its branch.
    Transaction(TransactionId),
    /// A connection: the partition that the client introduced itself to answers with its name.
    Connection(ConnectionId),
    /// The queue: how its messages came and left within the last minute.
    Flow,
}

/// A reason for or against a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictRow {
    /// The consumer; without it the verdict is about the queue, or about the message.
    pub consumer: Option<ConsumerKey>,
    /// The consumer's name, as in [`ConsumerRow`](crate::ConsumerRow).
    pub name: Arc<str>,
    /// The consumer is the subscription of a link to another broker.
    pub is_link: bool,
    /// The verdict.
    pub verdict: Verdict,
}

impl VerdictRow {
    /// Without a name, and about no link.
    pub fn new(consumer: Option<ConsumerKey>, verdict: Verdict) -> VerdictRow {
        VerdictRow { consumer, name: "".into(), is_link: false, verdict }
    }
}

/// See [`VerdictRow`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The queue holds no message, or not this one.
    NoMessage,
    /// The message is ready, and waits for a consumer.
    Ready,
    /// Others are delivered before it.
    Behind {
        /// Messages before it, those in flight included; one too many or few per page of entries
        /// that share their priority.
        messages: u64,
        /// How many of them have a higher priority.
        of_higher_priority: u64,
    },
    /// A consumer has it.
    Held {
        /// The consumer.
        by: Arc<str>,
        /// An open transaction will settle it.
        in_transaction: bool,
        /// For how long.
        for_ms: u64,
    },
    /// A consumer that is gone settled it in a transaction that is still open: it leaves with the
    /// commit, and is ready again after a rollback.
    Settled {
        /// The connection of the transaction.
        connection: ConnectionId,
        /// Its client's name for it; empty where that is not known.
        by: Arc<str>,
        /// Age of the transaction.
        for_ms: u64,
    },
    /// A link had it when its connection was cut: the peer may have stored it.
    InDoubt {
        /// It is ready again after this time, if the link does not come back.
        for_ms: u64,
    },
    /// It failed, and waits until it is delivered again.
    Resting {
        /// For this long.
        for_ms: u64,
    },
    /// A client without a connection has reserved it.
    Reserved {
        /// The number of the lease.
        lease: u64,
        /// Until the lease ends.
        for_ms: u64,
    },
    /// It waits for its time.
    Delayed {
        /// For this long.
        for_ms: u64,
    },
    /// A prepared transaction has sent or settled it, and waits for the decision.
    Prepared {
        /// The transaction.
        transaction: TransactionId,
        /// The branch of a distributed transaction that it is, where that is known.
        branch: Option<Arc<str>>,
        /// The message arrives with the commit; otherwise it leaves with it.
        is_sent: bool,
        /// Messages of this queue in it.
        messages: u64,
    },
    /// Open transactions send to the queue: these messages arrive with the commit.
    Uncommitted {
        /// The connection of the oldest one.
        connection: ConnectionId,
        /// Its client's name for it; empty where that is not known.
        by: Arc<str>,
        /// Messages to this queue.
        messages: u64,
        /// Age of the oldest of these transactions.
        for_ms: u64,
    },
    /// Sends to the queue wait.
    Blocked {
        /// The reason, as docs/features/blocked-sends.md names it.
        reason: &'static str,
        /// How many.
        sends: u64,
        /// The queue that is full, or the address at which an earlier send waits, if it is another.
        at: Option<Destination>,
    },
    /// Its time to live is over: it is removed when it is looked at next.
    Expired {
        /// For this long.
        for_ms: u64,
    },
    /// It was settled, and leaves as soon as that is durable; or its body cannot be read.
    Leaving,
    /// The queue moves to another store, and delivers nothing until it is there.
    Moving {
        /// Messages that consumers have: they go once they are settled or returned, and later ones
        /// wait behind them.
        held: u64,
        /// Open and prepared transactions that send to it: it waits for their ends.
        transactions: u64,
    },
    /// An operator has paused the queue.
    Paused,
    /// The body is read from the disk.
    Reading,
    /// Messages of a transaction that was rolled back, or of a client that has left, are coming
    /// back: their order is kept.
    Returning,
    /// The queue waits for more consumers before it begins (`consumers_before_dispatch`).
    Gathering {
        /// It begins after this time in any case.
        for_ms: u64,
    },
    /// No consumer is attached, browsers not counted.
    NoConsumer,
    /// The queue holds as much as it may: producers wait, or are refused.
    Full,
    /// There are as many leases as there may be.
    LeaseLimit {
        /// How many.
        max: u64,
    },
    /// The consumer gets the message next, or soon: nothing is in its way.
    Takes,
    /// It only looks.
    Browses,
    /// It has as many messages as it may have unsettled.
    NoCredit {
        /// As many it has.
        held: u64,
        /// It has settled all of them, in transactions that are still open.
        in_transaction: bool,
        /// Age of the oldest of them.
        for_ms: u64,
    },
    /// It was slow, and its messages were taken back: it gets nothing before it settles.
    TooSlow {
        /// Messages that were taken back.
        taken_back: u64,
    },
    /// Its connection does not take the bytes that were sent to it.
    OutboxFull {
        /// Bytes that wait.
        bytes: u64,
    },
    /// An exclusive consumer is attached.
    NotExclusive {
        /// That consumer.
        owner: Arc<str>,
    },
    /// Its selector does not match.
    Selector {
        /// The selector.
        selector: Arc<str>,
        /// Properties of the conditions that fail, with their values; `None` where the message has
        /// none.
        facts: Vec<(String, Option<String>)>,
        /// It is exclusive: no other consumer gets the message while it is there.
        is_exclusive: bool,
    },
    /// Its selector, or the group of the message, is not judged: the message is on the disk.
    NotJudged,
    /// The message's group belongs to another consumer.
    Group {
        /// The group.
        group: Arc<str>,
        /// The consumer that has it; `None` if a lease has a message of it.
        owner: Option<Arc<str>>,
    },
}

/// The smallest change that removes a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// None: the broker goes on by itself.
    Wait,
    /// Time passes: the message is due then.
    WaitUntilDue,
    /// Resume the queue.
    Resume,
    /// Attach a consumer, or more of them.
    Attach,
    /// Attach a consumer whose selector matches, or without one.
    AttachMatching,
    /// The consumer that has messages settles them, or ends.
    Settle,
    /// The consumer asks for messages.
    GiveCredit,
    /// The client reads what was sent to it.
    Read,
    /// The client ends its transaction.
    EndTransaction,
    /// The manager of the transaction, or an operator, decides about the branch.
    Decide,
    /// The client gives its reservation back, or deletes the message.
    Release,
    /// The consumer that has the queue or the group ends.
    EndOwner,
    /// Messages leave, or the limit is raised.
    MakeRoom,
}

impl Verdict {
    /// The smallest change that removes this cause; `None` if it is no obstacle.
    pub fn change(&self) -> Option<Change> {
        Some(match self {
            Verdict::NoMessage | Verdict::Ready | Verdict::Takes | Verdict::Browses => return None,
            Verdict::Behind { .. }
            | Verdict::Leaving
            | Verdict::Expired { .. }
            | Verdict::Moving { held: 0, transactions: 0 }
            | Verdict::Reading
            | Verdict::Returning
            | Verdict::NotJudged => Change::Wait,
            Verdict::InDoubt { .. } | Verdict::Resting { .. } | Verdict::Delayed { .. } => {
                Change::WaitUntilDue
            }
            Verdict::Paused => Change::Resume,
            Verdict::NoConsumer | Verdict::Gathering { .. } => Change::Attach,
            Verdict::Selector { is_exclusive: false, .. } => Change::AttachMatching,
            Verdict::Held { in_transaction: true, .. }
            | Verdict::Settled { .. }
            | Verdict::Uncommitted { .. }
            | Verdict::NoCredit { in_transaction: true, .. } => Change::EndTransaction,
            Verdict::Prepared { .. } => Change::Decide,
            Verdict::NoCredit { held: 0, .. } => Change::GiveCredit,
            Verdict::Moving { held: 0, .. } => Change::EndTransaction,
            Verdict::Held { .. }
            | Verdict::Moving { .. }
            | Verdict::NoCredit { .. }
            | Verdict::TooSlow { .. } => Change::Settle,
            Verdict::OutboxFull { .. } => Change::Read,
            Verdict::Reserved { .. } | Verdict::LeaseLimit { .. } | Verdict::Group { owner: None, .. } => {
                Change::Release
            }
            Verdict::NotExclusive { .. } | Verdict::Selector { .. } | Verdict::Group { .. } => {
                Change::EndOwner
            }
            Verdict::Full | Verdict::Blocked { .. } => Change::MakeRoom,
        })
    }

    /// The order in which verdicts on a message and its queue decide, the first one first; `None`
    /// for those that are no obstacle. A consumer's credit matters to no message that another has,
    /// and a pause to none that has not arrived.
    fn rank(&self, is_ready: bool) -> Option<u8> {
        Some(match self {
            Verdict::Expired { .. } => 0,
            Verdict::Held { .. }
            | Verdict::Settled { .. }
            | Verdict::InDoubt { .. }
            | Verdict::Resting { .. }
            | Verdict::Reserved { .. }
            | Verdict::Delayed { .. } => 1,
            // Other messages of the queue, if one is ready.
            Verdict::Prepared { is_sent: false, .. } if !is_ready => 1,
            Verdict::Leaving => 2,
            Verdict::Prepared { is_sent: true, .. } if !is_ready => 3,
            Verdict::Uncommitted { .. } if !is_ready => 4,
            Verdict::Blocked { .. } if !is_ready => 5,
            Verdict::NoMessage => 6,
            Verdict::Moving { .. } => 7,
            Verdict::Paused => 8,
            Verdict::Returning => 9,
            Verdict::LeaseLimit { .. } => 10,
            Verdict::NoConsumer => 11,
            Verdict::Gathering { .. } => 12,
            Verdict::Reading => 13,
            _ => return None,
        })
    }

    /// How near the consumer is to taking the message: credit comes by itself, a selector never
    /// changes.
    fn distance(&self) -> u8 {
        match self {
            Verdict::Takes => 0,
            Verdict::NoCredit { .. } => 1,
            Verdict::OutboxFull { .. } => 2,
            Verdict::TooSlow { .. } => 3,
            Verdict::LeaseLimit { .. } => 4,
            Verdict::Group { .. } => 5,
            Verdict::NotJudged => 6,
            Verdict::Selector { .. } => 7,
            Verdict::NotExclusive { .. } => 8,
            _ => 9,
        }
    }
}

/// The answer of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decisive<'r> {
    /// This verdict keeps the message from being delivered; if it is a consumer's, that is the one
    /// nearest to taking it.
    Cause(&'r VerdictRow),
    /// Nothing is in the way: this number of consumers can take it.
    Taken(usize),
    /// All consumers are browsers.
    OnlyBrowsers,
}

/// Which of the verdicts decides.
pub fn decisive(rows: &[VerdictRow]) -> Decisive<'_> {
    let (of_consumers, of_queue): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.consumer.is_some());
    let is_ready = of_queue.iter().any(|row| row.verdict == Verdict::Ready);
    let ranked = of_queue.iter().filter_map(|row| Some((row.verdict.rank(is_ready)?, *row)));
    let takers = of_consumers.iter().filter(|row| row.verdict == Verdict::Takes).count();
    match ranked.min_by_key(|(rank, _)| *rank) {
        // A body that is being read is no obstacle for long.
        Some((_, row)) if row.verdict != Verdict::Reading || takers == 0 => return Decisive::Cause(row),
        _ => {}
    }
    if 0 < takers {
        return Decisive::Taken(takers);
    }
    let nearest = of_consumers.iter().filter(|row| row.verdict != Verdict::Browses);
    let nearest = nearest.min_by_key(|row| row.verdict.distance());
    nearest.map_or(Decisive::OnlyBrowsers, |row| Decisive::Cause(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartitionId;

    fn row(consumer: Option<u32>, verdict: Verdict) -> VerdictRow {
        let consumer = consumer.map(|number| ConsumerKey::new(ConnectionId::new(0, 1), number));
        VerdictRow::new(consumer, verdict)
    }

    #[test]
    fn the_message_decides_before_its_queue_and_that_before_consumers() {
        let held = || Verdict::Held { by: "c".into(), in_transaction: false, for_ms: 1 };
        let no_credit = || Verdict::NoCredit { held: 3, in_transaction: false, for_ms: 9 };
        let selector =
            || Verdict::Selector { selector: "a = 1".into(), facts: Vec::new(), is_exclusive: false };
        let uncommitted = || Verdict::Uncommitted {
            connection: ConnectionId::new(0, 1),
            by: "c".into(),
            messages: 2,
            for_ms: 5,
        };
        let transaction = TransactionId { coordinator: PartitionId(0), incarnation: 1, number: 7 };
        let prepared =
            || Verdict::Prepared { transaction, branch: Some("1:aa:bb".into()), is_sent: false, messages: 2 };
        for (name, rows, want) in [
            (
                "held before paused",
                vec![row(None, Verdict::Paused), row(None, held())],
                Some((held(), Change::Settle)),
            ),
            (
                "paused before no consumer",
                vec![row(None, Verdict::NoConsumer), row(None, Verdict::Paused), row(None, Verdict::Ready)],
                Some((Verdict::Paused, Change::Resume)),
            ),
            (
                "a message on its way, if there is no other",
                vec![row(None, Verdict::NoMessage), row(None, uncommitted()), row(None, Verdict::NoConsumer)],
                Some((uncommitted(), Change::EndTransaction)),
            ),
            (
                "a message on its way beside one that is there",
                vec![row(None, Verdict::Ready), row(None, uncommitted()), row(None, Verdict::NoConsumer)],
                Some((Verdict::NoConsumer, Change::Attach)),
            ),
            (
                "messages that a prepared transaction settles, beside one that is ready",
                vec![row(None, Verdict::Ready), row(None, prepared()), row(None, Verdict::NoConsumer)],
                Some((Verdict::NoConsumer, Change::Attach)),
            ),
            (
                "the message that a prepared transaction settles",
                vec![row(None, prepared()), row(None, Verdict::NoConsumer)],
                Some((prepared(), Change::Decide)),
            ),
            (
                "the nearest consumer",
                vec![row(None, Verdict::Ready), row(Some(1), selector()), row(Some(2), no_credit())],
                Some((no_credit(), Change::Settle)),
            ),
            (
                "browsers are no consumers",
                vec![row(None, Verdict::Ready), row(Some(1), Verdict::Browses), row(Some(2), selector())],
                Some((selector(), Change::AttachMatching)),
            ),
            (
                "one that can take it",
                vec![row(None, Verdict::Ready), row(Some(1), selector()), row(Some(2), Verdict::Takes)],
                None,
            ),
        ] {
            let got = match decisive(&rows) {
                Decisive::Cause(row) => row.verdict.change().map(|change| (row.verdict.clone(), change)),
                _ => None,
            };
            assert_eq!(got, want, "case: {name}");
        }
        assert_eq!(
            decisive(&[row(None, Verdict::Ready), row(Some(1), Verdict::Browses)]),
            Decisive::OnlyBrowsers
        );
    }
}
