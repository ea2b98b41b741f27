//! What operators are told of each queue.

use std::ops::Bound;
use std::sync::Arc;

use postroad_model::{Destination, QueueId};

use crate::Partition;
use crate::queue::Queue;

/// What happened to the messages of one queue since the start; it only rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Entries that were in it when the broker started.
    pub found: u64,
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

    /// Entries that came and did not leave, less those that are there: 0 unless the broker miscounts or loses one.
    pub fn difference(&self, held: u64) -> i64 {
        let kept = i128::from(self.found) + i128::from(self.enqueued) - i128::from(self.left());
        i64::try_from(kept - i128::from(held)).unwrap_or(i64::MAX)
    }
}

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
    /// What happened to the others.
    pub counts: QueueCounts,
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
    /// Consumers attached.
    pub consumers: u64,
    /// Entries that became dead letters, since the start.
    pub dead_lettered: u64,
    /// The number in order of arrival of the oldest entry in it, and of the next one to come.
    pub oldest: Option<u64>,
    /// See `oldest`.
    pub next: u64,
    /// See [`QueueCounts::difference`].
    pub difference: i64,
}

impl WatchedQueue {
    fn of(queue: &Queue) -> WatchedQueue {
        let messages = queue.len();
        let stamps = queue.lanes.iter().filter_map(|(_, lane)| lane.next_entry(0));
        WatchedQueue {
            id: queue.id,
            destination: queue.source.clone(),
            subscription: queue.subscription.as_ref().map(|subscription| subscription.name.clone()),
            messages,
            consumers: queue.consumers.len() as u64,
            dead_lettered: queue.counts.dead_lettered,
            oldest: stamps.map(|(stamp, _)| stamp).min(),
            next: queue.next_stamp,
            difference: queue.counts.difference(messages),
        }
    }
}

/// Of the next `looked_max` lasting queues of a partition behind this one those that hold messages or have dead letters,
/// or whose counts differ; and the queue behind which to go on, if there are more.
pub fn watch(
    partition: &Partition,
    after: Option<QueueId>,
    looked_max: usize,
) -> (Vec<WatchedQueue>, Option<QueueId>) {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut ids = partition.state.addresses.lasting.range((from, Bound::Unbounded));
    let (mut found, mut last) = (Vec::new(), None);
    for id in ids.by_ref().take(looked_max) {
        last = Some(*id);
        let Some(queue) = partition.state.queues.get(id) else { continue };
        let held = queue.len();
        if 0 < held || 0 < queue.counts.dead_lettered || queue.counts.difference(held) != 0 {
            found.push(WatchedQueue::of(queue));
        }
    }
    (found, last.filter(|_| ids.next().is_some()))
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
            counts: queue.counts,
        })
    }
}
