//! Backlogs: a consumer with much credit comes to a queue with many messages.
//!
//! One step sends a bounded number of messages of a queue. The rest is due with the next tick,
//! where all queues share a bound, queue by queue; an event that concerns the queue goes on before
//! that.

use std::collections::BTreeSet;

use postroad_model::{Effect, QueueId};

use crate::Partition;

/// One tick sends this many times the messages that a step sends.
const TICK_FACTOR: u64 = 2;

/// Queues whose consumers go on with the next tick.
#[derive(Default)]
pub struct Backlogs {
    due: BTreeSet<QueueId>,
    /// The one that went on last.
    last: Option<QueueId>,
}

impl Backlogs {
    /// The queue goes on with the next tick.
    pub fn put(&mut self, id: QueueId) {
        self.due.insert(id);
    }

    /// Whether the queue has not been served to its end.
    pub fn has(&self, id: QueueId) -> bool {
        !self.due.is_empty() && self.due.contains(&id)
    }

    /// When the next step is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.due.is_empty()).then_some(now_ms + 1)
    }

    /// The queue is being served; `true` if it was not served to its end before.
    pub fn take(&mut self, id: QueueId) -> bool {
        !self.due.is_empty() && self.due.remove(&id)
    }

    /// The queue whose turn it is.
    fn next(&mut self) -> Option<QueueId> {
        let after = self.last.and_then(|last| self.due.range(last..).find(|id| **id != last));
        self.last = after.or(self.due.first()).copied();
        self.last
    }
}

/// Goes on where steps ended before all was sent.
pub fn go_on(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let before = partition.counters.delivered;
    let most = TICK_FACTOR.saturating_mul(partition.settings.slice_changes as u64);
    // A queue that has nothing to send any more costs a look.
    for _ in 0..partition.settings.slice_changes.max(1) {
        if most <= partition.counters.delivered - before {
            return;
        }
        let Some(id) = partition.leader.delivery.backlogs.next() else { return };
        partition.dispatch(id, effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_go_on_in_turns() {
        let mut backlogs = Backlogs::default();
        for id in [3, 1, 2] {
            backlogs.put(QueueId(id));
        }
        let next: Vec<u64> = (0..5).filter_map(|_| backlogs.next()).map(|id| id.0).collect();
        assert_eq!(next, [1, 2, 3, 1, 2]);
        backlogs.take(QueueId(3));
        assert_eq!(backlogs.next(), Some(QueueId(1)));
    }
}
