//! Gathering: a queue whose policy says so serves the first consumers that come only once enough of
//! them are there, or after a while.
//!
//! ```text
//!   none ────first consumer──▶ gathering ──enough, or its time is over──▶ served ──all leave──▶ none
//! ```
//! So message groups, and the backlog, are spread over all consumers of an application that starts,
//! instead of going to the first one. Browsers neither count nor wait. Known to this run alone.

use std::collections::BTreeSet;

use postroad_model::{DestinationKind, Effect, QueueId};

use crate::Partition;
use crate::delivery::dispatch::dispatch;
use crate::leader::Delivery;

/// Queues whose consumers gather, by the time at which they are served in any case.
#[derive(Default)]
pub struct Gatherings {
    ends: BTreeSet<(u64, QueueId)>,
}

impl Gatherings {
    /// When the first of them ends.
    pub fn next_ms(&self) -> Option<u64> {
        self.ends.first().map(|(at_ms, _)| *at_ms)
    }

    /// The time at which the queue is served has changed.
    fn note(&mut self, id: QueueId, before: Option<u64>, after: Option<u64>) {
        if before != after {
            before.map(|at_ms| self.ends.remove(&(at_ms, id)));
            self.ends.extend(after.map(|at_ms| (at_ms, id)));
        }
    }

    fn take_overdue(&mut self, now_ms: u64) -> Option<QueueId> {
        let (at_ms, _) = self.ends.first()?;
        if now_ms < *at_ms {
            return None;
        }
        self.ends.pop_first().map(|(_, id)| id)
    }
}

/// A consumer has come to this queue, and is among its consumers: it may have to wait for more of
/// them, or the others for it.
pub fn gather(partition: &mut Partition, id: QueueId) {
    let Partition { settings, state, leader, now_ms, .. } = partition;
    if !settings.policies.any_gathering() {
        return;
    }
    let Some(queue) = state.queues.get_mut(&id) else { return };
    let gathering = settings.policies.of(&queue.source).gathering;
    let Delivery { gatherings, .. } = &mut leader.delivery;
    let present = queue.consumers.takers();
    let before = queue.gathers_until_ms;
    let until_ms = match present {
        0 => return,
        1 if queue.source.kind == DestinationKind::Queue => {
            gathering.wait_ms().map(|wait_ms| now_ms.saturating_add(wait_ms))
        }
        _ => before,
    };
    queue.gathers_until_ms = until_ms.filter(|_| !gathering.is_complete(present));
    gatherings.note(id, before, queue.gathers_until_ms);
}

/// Who has waited long enough for others is served.
pub fn end_overdue(partition: &mut Partition, effects: &mut Vec<Effect>) {
    while let Some(id) = partition.leader.delivery.gatherings.take_overdue(partition.now_ms) {
        if let Some(queue) = partition.state.queues.get_mut(&id) {
            queue.gathers_until_ms = None;
            dispatch(partition, id, effects);
        }
    }
}
