//! What operators are told of each queue.

use postroad_model::Destination;

use crate::Partition;

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
