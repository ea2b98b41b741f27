//! Rests: a message that a consumer gave up on stays in its place, invisible, until the broker
//! delivers it again.
//!
//! Known to this run alone: after a restart everything is delivered at once. How often it failed is
//! in the log.

use std::collections::BTreeSet;

use postroad_model::{Effect, EntryTag, QueueId};

use crate::Partition;
use crate::delivery::dispatch::is_over;
use crate::entries::entry_at;
use crate::intake::limit::{give_back, set_state};
use crate::intake::publish::dispatch_all;
use crate::leasing::is_spent;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::expiry::grave_of;
use crate::settling::last_value::drop_superseded;
use crate::settling::release::count_failed;
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

/// Whether the policy of the queue adds deliveries to those of its consumers.
pub fn redelivers(state: &State, settings: &Settings, id: QueueId) -> bool {
    let source = state.queues.get(&id).map(|queue| &queue.source);
    source.is_some_and(|source| settings.policies.of(source).redelivery.count_max > 0)
}

/// Puts those to rest that the policy of their queue allows another delivery; the others are
/// returned. None of them is in its consumer's hands any more.
pub fn let_rest(
    partition: &mut Partition,
    id: QueueId,
    tags: Vec<EntryTag>,
    effects: &mut Vec<Effect>,
) -> Vec<EntryTag> {
    let Some(source) = partition.state.queues.get(&id).map(|queue| &queue.source) else { return tags };
    let policy = partition.settings.policies.of(source).redelivery;
    if policy.count_max == 0 {
        return tags;
    }
    let (mut resting, mut given_up) = (Vec::new(), Vec::new());
    for tag in tags {
        let Some(entry) = entry_at(partition, id, tag) else { continue };
        match policy.rest_ms(entry.failed_deliveries + entry.uncounted_deliveries) {
            Some(rest_ms) => resting.push((tag, rest_ms)),
            None => given_up.push(tag),
        }
    }
    lay_to_rest(partition, id, &resting, effects);
    given_up
}

/// Puts these to rest, each for its time.
fn lay_to_rest(
    partition: &mut Partition,
    id: QueueId,
    resting: &[(EntryTag, u64)],
    effects: &mut Vec<Effect>,
) {
    let now_ms = partition.now_ms;
    for (tag, rest_ms) in resting {
        let Some(entry) = entry_at(partition, id, *tag) else { continue };
        entry.state = EntryState::Resting;
        let key = entry.key;
        partition.state.bodies.unpin(key);
        partition.leader.settling.rests.due.insert((now_ms.saturating_add(*rest_ms), id, *tag));
    }
    let tags: Vec<EntryTag> = resting.iter().map(|(tag, _)| *tag).collect();
    count_failed(partition, id, &tags, effects);
    if let Some(last_values) =
        partition.state.queues.get_mut(&id).and_then(|queue| queue.last_values.as_mut())
    {
        tags.iter().for_each(|tag| last_values.given_back(*tag));
        drop_superseded(partition, id, effects);
    }
}

/// Dead letters that a consumer of theirs gave up on have nowhere else to go: they are
/// delivered again, and not at once.
pub fn rest_in_grave(partition: &mut Partition, id: QueueId, tags: &[EntryTag], effects: &mut Vec<Effect>) {
    let resting: Vec<_> = tags.iter().map(|tag| (*tag, GRAVE_REST_MS)).collect();
    lay_to_rest(partition, id, &resting, effects);
}

/// An entry that was leaving stays in its queue. It is ready again, unless the next dispatch
/// would move it to the dead letters once more: then it rests first, as the cause of the
/// refusal (a full disk of the other partition) may last.
pub fn give_back_or_rest(partition: &mut Partition, id: QueueId, tag: EntryTag) {
    if !leaves_when_dispatched(partition, id, tag) {
        return give_back(partition, id, tag);
    }
    set_state(partition, id, tag, EntryState::Resting);
    partition.leader.settling.rests.due.insert((partition.now_ms.saturating_add(UNMOVED_REST_MS), id, tag));
}

/// Whether the entry would go to the dead letters instead of to a consumer. One that is leased
/// waits for the end of its lease.
fn leaves_when_dispatched(partition: &mut Partition, id: QueueId, tag: EntryTag) -> bool {
    let Some(entry) = entry_at(partition, id, tag) else { return false };
    let was_leaving = match entry.state {
        EntryState::Leaving => true,
        EntryState::Held { by, .. } => by.connection.is_internal(),
        _ => false,
    };
    let (key, deliveries) = (entry.key, entry.failed_deliveries + entry.uncounted_deliveries);
    if !was_leaving || partition.state.leases.get(id, tag).is_some() {
        return false;
    }
    let is_over =
        partition.state.bodies.headers(key).is_some_and(|(headers, _)| is_over(&partition.clock, headers));
    is_over && grave_of(&partition.state, &partition.settings, &partition.protocols, id, key).is_some()
        || is_spent(&partition.state, &partition.settings, id, deliveries)
}

/// All resting entries of this queue are ready again: a reader wants all of it.
pub fn wake_all(partition: &mut Partition, id: QueueId) {
    let resting: Vec<_> =
        partition.leader.settling.rests.due.iter().filter(|(_, of, _)| *of == id).copied().collect();
    for due in resting {
        partition.leader.settling.rests.due.remove(&due);
        rested(partition, id, due.2);
    }
}

/// The entry's rest is over; whether it was still resting, and is ready now.
fn rested(partition: &mut Partition, id: QueueId, tag: EntryTag) -> bool {
    let rested = entry_at(partition, id, tag).is_some_and(|entry| entry.state == EntryState::Resting);
    if rested {
        give_back(partition, id, tag);
    }
    rested
}

/// Entries that have rested long enough are ready again, in their old places.
pub fn wake_rested(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut touched = Vec::new();
    for _ in 0..WOKEN_MAX {
        let due = partition
            .leader
            .settling
            .rests
            .due
            .first()
            .copied()
            .filter(|(at_ms, ..)| *at_ms <= partition.now_ms);
        let Some((_, id, tag)) = due else { break };
        partition.leader.settling.rests.due.pop_first();
        if rested(partition, id, tag) {
            touched.push(id);
        }
    }
    dispatch_all(partition, touched, effects);
}
