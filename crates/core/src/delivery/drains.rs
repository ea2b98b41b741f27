//! Drains: consumers whose credit ends as soon as the bodies that are being read have been sent.
//!
//! They are found by their queue, and not among its other consumers.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{ConsumerKey, QueueId};

/// Drains of one queue that end in one step; the others with the next ticks.
pub const ENDED_MAX: usize = 1024;

/// See the head of this file.
#[derive(Default)]
pub struct Drains {
    by_queue: BTreeMap<QueueId, BTreeSet<ConsumerKey>>,
}

impl Drains {
    /// The consumer of this queue drains.
    pub fn begin(&mut self, queue: QueueId, consumer: ConsumerKey) {
        self.by_queue.entry(queue).or_default().insert(consumer);
    }

    /// It drains no more, if it did.
    pub fn end(&mut self, queue: QueueId, consumer: ConsumerKey) {
        if self.by_queue.is_empty() {
            return;
        }
        let Some(consumers) = self.by_queue.get_mut(&queue) else { return };
        consumers.remove(&consumer);
        if consumers.is_empty() {
            self.by_queue.remove(&queue);
        }
    }

    /// Those of this queue.
    pub fn of(&self, queue: QueueId) -> impl Iterator<Item = ConsumerKey> {
        self.by_queue.get(&queue).into_iter().flatten().copied()
    }
}
