//! Rests: what a consumer gave up on stays in its place, invisible, until the broker delivers it again.
//!
//! Known to this run alone: after a restart everything is delivered at once. How often it failed is in the log.

use std::collections::BTreeSet;

use postroad_model::{Effect, EntryTag, QueueId};

use crate::Partition;
use crate::queue::State;

/// Entries that become ready in one tick at most: many that are due at once hold up nobody else for long.
const WOKEN_MAX: usize = 256;

/// When resting entries become ready.
#[derive(Default)]
pub struct Rests {
    due: BTreeSet<(u64, QueueId, EntryTag)>,
}

impl Rests {
    /// When the next one becomes ready.
    pub fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(at_ms, ..)| *at_ms)
    }
}

impl Partition {
    /// Puts those to rest that the policy of their queue allows another delivery; the others are returned. None of them is in
    /// its consumer's hands any more.
    pub(crate) fn rest(
        &mut self,
        id: QueueId,
        tags: Vec<EntryTag>,
        effects: &mut Vec<Effect>,
    ) -> Vec<EntryTag> {
        let Some(source) = self.queues.get(&id).map(|queue| &queue.source) else { return tags };
        let policy = self.settings.policies.of(source).redelivery;
        if policy.count_max == 0 {
            return tags;
        }
        let (mut resting, mut given_up) = (Vec::new(), Vec::new());
        for tag in tags {
            let now_ms = self.now_ms;
            let Some(entry) = self.entry(id, tag) else { continue };
            let Some(rest_ms) = policy.rest_ms(entry.failed_deliveries + entry.uncounted_deliveries) else {
                given_up.push(tag);
                continue;
            };
            entry.state = State::Resting;
            let key = entry.key;
            self.bodies.unpin(key);
            self.rests.due.insert((now_ms.saturating_add(rest_ms), id, tag));
            resting.push(tag);
        }
        self.count_failed(id, &resting, effects);
        if let Some(last_values) = self.queues.get_mut(&id).and_then(|queue| queue.last_values.as_mut()) {
            resting.iter().for_each(|tag| last_values.given_back(*tag));
            self.drop_superseded(id, effects);
        }
        given_up
    }

    /// Whether the policy of the queue adds deliveries to those of its consumers.
    pub(crate) fn redelivers(&self, id: QueueId) -> bool {
        let source = self.queues.get(&id).map(|queue| &queue.source);
        source.is_some_and(|source| self.settings.policies.of(source).redelivery.count_max > 0)
    }

    /// Entries that have rested long enough are ready again, in their old places.
    pub(crate) fn wake(&mut self, effects: &mut Vec<Effect>) {
        let mut touched = Vec::new();
        for _ in 0..WOKEN_MAX {
            let due = self.rests.due.first().copied().filter(|(at_ms, ..)| *at_ms <= self.now_ms);
            let Some((_, id, tag)) = due else { break };
            self.rests.due.pop_first();
            let rested = self.entry(id, tag).is_some_and(|entry| entry.state == State::Resting);
            if rested {
                self.give_back(id, tag);
                touched.push(id);
            }
        }
        self.dispatch_all(touched, effects);
    }
}
