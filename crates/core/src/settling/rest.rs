//! Rests: a message that a consumer gave up on stays in its place, invisible, until the broker
//! delivers it again.
//!
//! Known to this run alone: after a restart everything is delivered at once. How often it failed is
//! in the log.

use std::collections::BTreeSet;

use postroad_model::{Effect, EntryTag, QueueId};

use crate::Partition;
use crate::delivery::dispatch::is_over;
use crate::leasing::is_spent;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::state::State;

/// Entries that become ready in one tick at most: many that are due at once do not delay other
/// clients for long.
const WOKEN_MAX: usize = 256;

/// How long a dead letter rests that a consumer of its queue gave up on.
const GRAVE_REST_MS: u64 = 10_000;

/// How long an entry rests that could not be moved to the dead letters.
const UNMOVED_REST_MS: u64 = 1000;

/// When resting entries become ready.
#[derive(Default)]
pub struct RedeliveryDelays {
    due: BTreeSet<(u64, QueueId, EntryTag)>,
}

impl RedeliveryDelays {
    /// When the next one becomes ready.
    pub fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(at_ms, ..)| *at_ms)
    }

    /// When this entry becomes ready, if it rests.
    pub fn due_of(&self, id: QueueId, tag: EntryTag) -> Option<u64> {
        self.due.iter().find(|(_, of, entry)| (*of, *entry) == (id, tag)).map(|(at_ms, ..)| *at_ms)
    }
}

impl Partition {
    /// Puts those to rest that the policy of their queue allows another delivery; the others are
    /// returned. None of them is in its consumer's hands any more.
    pub(crate) fn rest(
        &mut self,
        id: QueueId,
        tags: Vec<EntryTag>,
        effects: &mut Vec<Effect>,
    ) -> Vec<EntryTag> {
        let Some(source) = self.state.queues.get(&id).map(|queue| &queue.source) else { return tags };
        let policy = self.settings.policies.of(source).redelivery;
        if policy.count_max == 0 {
            return tags;
        }
        let (mut resting, mut given_up) = (Vec::new(), Vec::new());
        for tag in tags {
            let Some(entry) = self.entry(id, tag) else { continue };
            match policy.rest_ms(entry.failed_deliveries + entry.uncounted_deliveries) {
                Some(rest_ms) => resting.push((tag, rest_ms)),
                None => given_up.push(tag),
            }
        }
        self.lay_to_rest(id, &resting, effects);
        given_up
    }

    /// Puts these to rest, each for its time.
    fn lay_to_rest(&mut self, id: QueueId, resting: &[(EntryTag, u64)], effects: &mut Vec<Effect>) {
        let now_ms = self.now_ms;
        for (tag, rest_ms) in resting {
            let Some(entry) = self.entry(id, *tag) else { continue };
            entry.state = EntryState::Resting;
            let key = entry.key;
            self.state.bodies.unpin(key);
            self.leader.settling.rests.due.insert((now_ms.saturating_add(*rest_ms), id, *tag));
        }
        let tags: Vec<EntryTag> = resting.iter().map(|(tag, _)| *tag).collect();
        self.count_failed(id, &tags, effects);
        if let Some(last_values) = self.state.queues.get_mut(&id).and_then(|queue| queue.last_values.as_mut())
        {
            tags.iter().for_each(|tag| last_values.given_back(*tag));
            self.drop_superseded(id, effects);
        }
    }

    /// Dead letters that a consumer of theirs gave up on have nowhere else to go: they are
    /// delivered again, and not at once.
    pub(crate) fn rest_in_grave(&mut self, id: QueueId, tags: &[EntryTag], effects: &mut Vec<Effect>) {
        let resting: Vec<_> = tags.iter().map(|tag| (*tag, GRAVE_REST_MS)).collect();
        self.lay_to_rest(id, &resting, effects);
    }

    /// An entry that was leaving stays in its queue. It is ready again, unless the next dispatch
    /// would move it to the dead letters once more: then it rests first, as the cause of the
    /// refusal (a full disk of the other partition) may last.
    pub(crate) fn give_back_or_rest(&mut self, id: QueueId, tag: EntryTag) {
        if !self.leaves_when_dispatched(id, tag) {
            return self.give_back(id, tag);
        }
        self.set_state(id, tag, EntryState::Resting);
        self.leader.settling.rests.due.insert((self.now_ms.saturating_add(UNMOVED_REST_MS), id, tag));
    }

    /// Whether the entry would go to the dead letters instead of to a consumer. One that is leased
    /// waits for the end of its lease.
    fn leaves_when_dispatched(&mut self, id: QueueId, tag: EntryTag) -> bool {
        let Some(entry) = self.entry(id, tag) else { return false };
        let was_leaving = match entry.state {
            EntryState::Leaving => true,
            EntryState::Held { by, .. } => by.connection.is_internal(),
            _ => false,
        };
        let (key, deliveries) = (entry.key, entry.failed_deliveries + entry.uncounted_deliveries);
        if !was_leaving || self.state.leases.get(id, tag).is_some() {
            return false;
        }
        let is_over =
            self.state.bodies.headers(key).is_some_and(|(headers, _)| is_over(&self.clock, headers));
        is_over && self.grave_of(id, key).is_some() || is_spent(&self.state, &self.settings, id, deliveries)
    }

    /// All resting entries of this queue are ready again: a reader wants all of it.
    pub(crate) fn wake_all(&mut self, id: QueueId) {
        let resting: Vec<_> =
            self.leader.settling.rests.due.iter().filter(|(_, of, _)| *of == id).copied().collect();
        for due in resting {
            self.leader.settling.rests.due.remove(&due);
            self.rested(id, due.2);
        }
    }

    /// The entry's rest is over; whether it was still resting, and is ready now.
    fn rested(&mut self, id: QueueId, tag: EntryTag) -> bool {
        let rested = self.entry(id, tag).is_some_and(|entry| entry.state == EntryState::Resting);
        if rested {
            self.give_back(id, tag);
        }
        rested
    }

    /// Entries that have rested long enough are ready again, in their old places.
    pub(crate) fn wake(&mut self, effects: &mut Vec<Effect>) {
        let mut touched = Vec::new();
        for _ in 0..WOKEN_MAX {
            let due =
                self.leader.settling.rests.due.first().copied().filter(|(at_ms, ..)| *at_ms <= self.now_ms);
            let Some((_, id, tag)) = due else { break };
            self.leader.settling.rests.due.pop_first();
            if self.rested(id, tag) {
                touched.push(id);
            }
        }
        self.dispatch_all(touched, effects);
    }
}

/// Whether the policy of the queue adds deliveries to those of its consumers.
pub fn redelivers(state: &State, settings: &Settings, id: QueueId) -> bool {
    let source = state.queues.get(&id).map(|queue| &queue.source);
    source.is_some_and(|source| settings.policies.of(source).redelivery.count_max > 0)
}
