//! Gathering: a queue whose policy says so serves the first consumers that come only once enough of
//! them are there, or after a while.
//!
//! ```text
//!   none ────first consumer──▶ gathering ──enough, or its time is over──▶ served ──all leave──▶ none
//! ```
//! So message groups, and the backlog, are spread over all consumers of an application that starts,
//! instead of going to the first one. Browsers neither count nor wait. Known to this run alone.

use std::collections::BTreeSet;

use postroad_model::{ConsumerKey, ConsumerMode, DestinationKind, Effect, QueueId};

use crate::Partition;

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
}

impl Partition {
    /// A consumer has come to this queue, and is among its consumers: it may have to wait for more
    /// of them, or the others for it.
    pub(crate) fn gather(&mut self, id: QueueId) {
        if !self.settings.policies.any_gathering() {
            return;
        }
        let Some(queue) = self.state.queues.get_mut(&id) else { return };
        let gathering = self.settings.policies.of(&queue.source).gathering;
        let takes = |key: &&ConsumerKey| {
            self.leader
                .delivery
                .consumers
                .get(*key)
                .is_some_and(|consumer| consumer.mode != ConsumerMode::Browse)
        };
        let present = queue.consumers.iter().filter(takes).count();
        let before = queue.gathers_until_ms;
        let until_ms = match present {
            0 => return,
            1 if queue.source.kind == DestinationKind::Queue => {
                gathering.wait_ms().map(|wait_ms| self.now_ms.saturating_add(wait_ms))
            }
            _ => before,
        };
        queue.gathers_until_ms = until_ms.filter(|_| !gathering.is_complete(present));
        let after = queue.gathers_until_ms;
        if before != after {
            before.map(|at_ms| self.leader.delivery.gatherings.ends.remove(&(at_ms, id)));
            self.leader.delivery.gatherings.ends.extend(after.map(|at_ms| (at_ms, id)));
        }
    }

    /// Who has waited long enough for others is served.
    pub(crate) fn end_gatherings(&mut self, effects: &mut Vec<Effect>) {
        while let Some((at_ms, id)) = self.leader.delivery.gatherings.ends.first().copied()
            && at_ms <= self.now_ms
        {
            self.leader.delivery.gatherings.ends.pop_first();
            if let Some(queue) = self.state.queues.get_mut(&id) {
                queue.gathers_until_ms = None;
                self.dispatch(id, effects);
            }
        }
    }
}
