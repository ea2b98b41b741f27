//! Backlogs: a consumer with much credit comes to a queue with many messages.
//!
//! One step sends a bounded number of messages of a queue, and asks a bounded number of consumers
//! that want none of them. The rest is due with the next tick,
//! where all queues share a bound, queue by queue; an event that concerns the queue goes on before
//! that.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{Effect, QueueId};

use crate::Partition;
use crate::delivery::dispatch::serve;
use crate::queue::Turn;

/// One tick sends this many times the messages that a step sends.
const TICK_FACTOR: u64 = 2;

/// Queues whose consumers go on with the next tick.
#[derive(Default)]
pub struct Backlogs {
    due: BTreeSet<QueueId>,
    /// Where queues go on of whose consumers one step could not ask all.
    passed: BTreeMap<QueueId, Passed>,
    /// How often a step has asked as many consumers as it may.
    full_steps: u64,
    /// The one that went on last.
    last: Option<QueueId>,
}

/// Consumers of a queue that found nothing, in this and earlier steps.
#[derive(Clone, Copy)]
struct Passed {
    /// Those up to this turn.
    turn: Turn,
    /// The queue has changed since: they are to look again.
    is_changed: bool,
}

impl Backlogs {
    /// The queue has changed: consumers that found nothing look again, after the others.
    pub fn has_changed(&mut self, id: QueueId) {
        if !self.passed.is_empty()
            && let Some(passed) = self.passed.get_mut(&id)
        {
            passed.is_changed = true;
        }
    }

    /// The turn up to which consumers of the queue found nothing.
    pub fn passed(&self, id: QueueId) -> Option<Turn> {
        if self.passed.is_empty() { None } else { self.passed.get(&id).map(|passed| passed.turn) }
    }

    /// The queue goes on with the next tick, after this turn.
    pub fn put_after(&mut self, id: QueueId, turn: Option<Turn>) {
        self.due.insert(id);
        self.full_steps += 1;
        match turn {
            Some(turn) => {
                let is_changed = self.passed.get(&id).is_some_and(|passed| passed.is_changed);
                self.passed.insert(id, Passed { turn, is_changed });
            }
            None => drop(self.passed.remove(&id)),
        }
    }

    /// All consumers of the queue have looked: those that did before the last change look again
    /// with the next tick.
    pub fn begin_again(&mut self, id: QueueId) {
        if !self.passed.is_empty()
            && let Some(passed) = self.passed.remove(&id)
            && passed.is_changed
        {
            self.due.insert(id);
        }
    }

    /// The queue has nothing for any consumer, or has ended.
    pub fn forget(&mut self, id: QueueId) {
        self.passed.remove(&id);
    }

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
    let full_steps = partition.leader.delivery.backlogs.full_steps;
    let most = TICK_FACTOR.saturating_mul(partition.settings.slice_changes as u64);
    // A queue that has nothing to send any more costs a look.
    for _ in 0..partition.settings.slice_changes.max(1) {
        let has_asked = full_steps < partition.leader.delivery.backlogs.full_steps;
        if most <= partition.counters.delivered - before || has_asked {
            return;
        }
        let Some(id) = partition.leader.delivery.backlogs.next() else { return };
        serve(partition, id, effects);
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
