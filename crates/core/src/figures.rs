//! Statistics of each queue, for operators.

use std::ops::Bound;
use std::sync::Arc;

use postroad_model::{Destination, QueueId};

use crate::Partition;
use crate::queue::{LaneNumber, Queue};

/// Counters of the messages of one queue; they only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Entries put into it.
    pub enqueued: u64,
    /// Entries that consumers accepted.
    pub consumed: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries that moved to the dead letters, or ended for want of any.
    pub dead_lettered: u64,
    /// Entries that left because it held more than its policy allows.
    pub dropped: u64,
    /// Entries that a newer one with the same value took the place of.
    pub replaced: u64,
    /// Entries that have gone with it to another partition.
    pub moved: u64,
}

impl QueueCounts {
    /// All that left it.
    pub fn left(&self) -> u64 {
        self.consumed + self.expired + self.dead_lettered + self.dropped + self.replaced + self.moved
    }

    /// Adds those of another queue.
    fn add(&mut self, more: &QueueCounts) {
        self.enqueued += more.enqueued;
        self.consumed += more.consumed;
        self.expired += more.expired;
        self.dead_lettered += more.dead_lettered;
        self.dropped += more.dropped;
        self.replaced += more.replaced;
        self.moved += more.moved;
    }

    /// Entries that came and did not leave, less those that are there: 0 unless the broker
    /// miscounts or loses one.
    pub fn difference(&self, held: u64) -> i64 {
        let kept = i128::from(self.enqueued) - i128::from(self.left());
        i64::try_from(kept - i128::from(held)).unwrap_or(i64::MAX)
    }
}

/// The counts of one queue, in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of the entries in the log: changed as records are applied, and in every snapshot. They are
    /// equal on each replica and go on after a restart.
    lasting: QueueCounts,
    /// Of the entries that are only in memory, which the leader alone knows; `None` before the
    /// first. They end as these entries do.
    volatile: Option<Box<QueueCounts>>,
}

impl Counts {
    /// Those of a snapshot.
    pub fn of_snapshot(lasting: QueueCounts) -> Counts {
        Counts { lasting, volatile: None }
    }

    /// Those that last, as a snapshot has them.
    pub fn lasting(&self) -> &QueueCounts {
        &self.lasting
    }

    /// Both parts together.
    pub fn all(&self) -> QueueCounts {
        let mut all = self.lasting;
        self.volatile.iter().for_each(|volatile| all.add(volatile));
        all
    }

    /// The part that counts the entries of this lane.
    pub fn of_lane(&mut self, lane: LaneNumber) -> &mut QueueCounts {
        match lane.is_volatile() {
            true => self.volatile.get_or_insert_default(),
            false => &mut self.lasting,
        }
    }
}

/// HTTP clients that have asked for messages within this time read the queue.
const POLLED_MS: u64 = 60_000;

/// One lasting queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFigures<'p> {
    /// The queue; of a durable subscription, its topic.
    pub queue: &'p Destination,
    /// The name of the durable subscription that it is, if it is one.
    pub subscription: Option<&'p str>,
    /// Entries in it, in whatever state.
    pub depth: u64,
    /// Consumers attached.
    pub consumers: u64,
    /// Counters of the other queues.
    pub counts: QueueCounts,
}

/// The counts of several queues together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSums {
    /// Queues.
    pub queues: u64,
    /// Their counts.
    pub counts: QueueCounts,
    /// Entries in them that wait for a consumer.
    pub held: u64,
    /// Entries in them that a consumer has, that rest, or that leave.
    pub in_flight: u64,
    /// Queues whose counts differ from their content.
    pub differing: u64,
    /// By how many entries, each way.
    pub difference: u64,
}

impl LedgerSums {
    fn add(&mut self, queue: &Queue) {
        let (held, counts) = (queue.len(), queue.counts.all());
        let difference = counts.difference(held);
        self.queues += 1;
        self.counts.add(&counts);
        self.in_flight += queue.away.messages;
        self.held += held.saturating_sub(queue.away.messages);
        self.differing += u64::from(difference != 0);
        self.difference = self.difference.saturating_add(difference.unsigned_abs());
    }
}

/// Some queues of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Those that are of interest.
    pub queues: Vec<WatchedQueue>,
    /// The counts of all that were looked at.
    pub sums: LedgerSums,
    /// The queue behind which to go on, if there are more.
    pub next: Option<QueueId>,
}

/// One lasting queue, as alert rules and the ledger look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedQueue {
    /// Its id in this partition.
    pub id: QueueId,
    /// The queue; of a durable subscription, its topic.
    pub destination: Destination,
    /// The name of the durable subscription that it is, if it is one.
    pub subscription: Option<Arc<str>>,
    /// Entries in it, in whatever state.
    pub messages: u64,
    /// Consumers attached, and one more if HTTP clients have asked for messages within the last
    /// minute.
    pub consumers: u64,
    /// Entries that became dead letters, ever.
    pub dead_lettered: u64,
    /// The number in order of arrival of the oldest entry in it, and of the next one to come.
    pub oldest: Option<u64>,
    /// See `oldest`.
    pub next: u64,
    /// See [`QueueCounts::difference`].
    pub difference: i64,
}

impl WatchedQueue {
    fn of(queue: &Queue, now_ms: u64) -> WatchedQueue {
        let asked = queue.requests.last_reserve_ms;
        let is_polled = asked.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < POLLED_MS);
        let (messages, counts) = (queue.len(), queue.counts.all());
        let stamps = queue.lanes.iter().filter_map(|(_, lane)| lane.next_entry(0));
        WatchedQueue {
            id: queue.id,
            destination: queue.source.clone(),
            subscription: queue.subscription.as_ref().map(|subscription| subscription.name.clone()),
            messages,
            consumers: queue.consumers.len() as u64 + u64::from(is_polled),
            dead_lettered: counts.dead_lettered,
            oldest: stamps.map(|(stamp, _)| stamp).min(),
            next: queue.next_stamp,
            difference: counts.difference(messages),
        }
    }
}

/// Looks at the next `looked_max` lasting queues of a partition behind this one. Of interest are
/// those whose counts differ, and, for alert rules, those that hold messages or have dead letters.
pub fn watch(partition: &Partition, after: Option<QueueId>, looked_max: usize, for_rules: bool) -> Watched {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut ids = partition.state.addresses.lasting.range((from, Bound::Unbounded));
    let (mut watched, mut last) = (Watched::default(), None);
    for id in ids.by_ref().take(looked_max) {
        last = Some(*id);
        let Some(queue) = partition.state.queues.get(id) else { continue };
        watched.sums.add(queue);
        let (held, counts) = (queue.len(), queue.counts.all());
        let is_for_rules = for_rules && (0 < held || 0 < counts.dead_lettered);
        if is_for_rules || counts.difference(held) != 0 {
            watched.queues.push(WatchedQueue::of(queue, partition.now_ms));
        }
    }
    watched.next = last.filter(|_| ids.next().is_some());
    watched
}

impl Partition {
    /// How many lasting queues there are.
    pub fn lasting_queues(&self) -> u64 {
        self.state.addresses.lasting.len() as u64
    }

    /// The lasting queues, oldest first: to take some of them costs nothing for the others.
    pub fn queue_figures(&self) -> impl Iterator<Item = QueueFigures<'_>> {
        let lasting = self.state.addresses.lasting.iter().filter_map(|id| self.state.queues.get(id));
        lasting.map(|queue| QueueFigures {
            queue: &queue.source,
            subscription: queue.subscription.as_ref().map(|subscription| &*subscription.name),
            depth: queue.len(),
            consumers: queue.consumers.len() as u64,
            counts: queue.counts.all(),
        })
    }
}
