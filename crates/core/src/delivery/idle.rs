//! Idle consumers: those of a queue that select, and have no matching message in it.
//!
//! They stand in no line. An index over their selectors finds the consumers of each entry that
//! comes, or comes back, and those look again: a queue with thousands of them costs as much for
//! each message as the matching ones.
//!
//! | event | who looks again |
//! |---|---|
//! | an entry comes, or comes back | idle consumers that want it; the one that was served longest ago has the first turn |
//! | one comes back that cannot be judged without the disk; groups begin | all, in slices |
//!
//! Never idle, but in line as ever: members of consumers of patterns, browsers, and all while a
//! queue has message groups or an exclusive consumer.

use std::collections::BTreeMap;

use postroad_model::{ConsumerKey, ConsumerMode, EntryTag, MessageKey, QueueId};
use postroad_selector::{Selector, SelectorIndex};

use crate::Partition;
use crate::delivery::selection::{at_delivery, failed_deliveries};
use crate::leader::Leader;
use crate::queue::{Queue, Turn};
use crate::state::State;

/// Idle consumers that look again in one step, where all have to: the others follow with the next
/// ticks.
const WOKEN_MAX: usize = 1024;

/// The consumers of a queue that select.
#[derive(Default)]
pub struct Selecting {
    index: SelectorIndex<ConsumerKey>,
    /// Those that are idle, each with a number that rises from one that fell idle to the next.
    idle: BTreeMap<ConsumerKey, u64>,
    /// The same by that number.
    by_since: BTreeMap<u64, ConsumerKey>,
    last: u64,
    /// Those up to this number have to look again.
    waking: u64,
}

impl Selecting {
    fn fall_idle(&mut self, key: ConsumerKey) {
        self.last += 1;
        self.idle.insert(key, self.last);
        self.by_since.insert(self.last, key);
    }

    /// The consumer is idle no more; whether it had to look again at all entries. `None`: it was
    /// not idle.
    fn leave_idle(&mut self, key: ConsumerKey) -> Option<bool> {
        let since = self.idle.remove(&key)?;
        self.by_since.remove(&since);
        Some(since <= self.waking)
    }

    /// The next one that has to look again: the one that has been idle for longest.
    fn next_to_wake(&self) -> Option<ConsumerKey> {
        let (since, key) = self.by_since.first_key_value()?;
        (*since <= self.waking).then_some(*key)
    }
}

impl Queue {
    /// A consumer that selects is attached.
    pub(crate) fn add_selecting(&mut self, key: ConsumerKey, selector: Selector) {
        self.selecting.get_or_insert_default().index.insert(key, selector);
    }

    /// A consumer is attached no more.
    pub(crate) fn remove_selecting(&mut self, key: ConsumerKey) {
        let Some(selecting) = &mut self.selecting else { return };
        selecting.index.remove(&key);
        selecting.leave_idle(key);
        if selecting.index.is_empty() {
            self.selecting = None;
        }
    }

    /// Whether the consumer is idle.
    pub(crate) fn is_idle(&self, key: ConsumerKey) -> bool {
        self.selecting.as_ref().is_some_and(|selecting| selecting.idle.contains_key(&key))
    }

    /// The consumer is idle no more; `false` if it was not.
    pub(crate) fn leave_idle(&mut self, key: ConsumerKey) -> bool {
        self.selecting.as_mut().is_some_and(|selecting| selecting.leave_idle(key).is_some())
    }
}

/// With the matching entry it need not look at earlier ones: it matched none of those, unless
/// it had to look again in any case.
fn wake_idle(
    state: &mut State,
    leader: &mut Leader,
    id: QueueId,
    key: ConsumerKey,
    wanted: Option<EntryTag>,
) {
    let Some(queue) = state.queues.get_mut(&id) else { return };
    let Some(looks_again) = queue.selecting.as_mut().and_then(|selecting| selecting.leave_idle(key)) else {
        return;
    };
    let Some(consumer) = leader.delivery.consumers.get_mut(&key) else { return };
    if let (Some(selection), Some(tag)) = (&mut consumer.selection, wanted.filter(|_| !looks_again)) {
        selection.go_to(&queue.lanes, tag);
    }
    consumer.turn = queue.waiting.push(consumer.waiting(key));
}

/// The next of those that look again; whether more follow.
pub fn wake_some_idle(state: &mut State, leader: &mut Leader, id: QueueId) -> bool {
    for _ in 0..=WOKEN_MAX {
        let selecting = state.queues.get(&id).and_then(|queue| queue.selecting.as_ref());
        let Some(key) = selecting.and_then(|selecting| selecting.next_to_wake()) else { return false };
        leader.delivery.backlogs.has_changed(id);
        wake_idle(state, leader, id, key, None);
    }
    true
}

/// All idle consumers of the queue look again.
pub fn wake_all_idle(state: &mut State, leader: &mut Leader, id: QueueId) {
    let selecting = state.queues.get_mut(&id).and_then(|queue| queue.selecting.as_mut());
    let Some(selecting) = selecting else { return };
    selecting.waking = selecting.last;
    if wake_some_idle(state, leader, id) {
        leader.delivery.backlogs.put(id);
    }
}

/// The consumer that has this turn matches none of the entries; `false` if it has to stay in
/// line.
pub fn fall_idle(partition: &mut Partition, id: QueueId, turn: Turn, key: ConsumerKey) -> bool {
    let shares = partition
        .leader
        .delivery
        .consumers
        .get(&key)
        .is_some_and(|consumer| consumer.mode == ConsumerMode::Shared);
    let Some(queue) = partition.state.queues.get_mut(&id) else { return false };
    let Some(selecting) = &mut queue.selecting else { return false };
    let may = shares && queue.groups.is_none() && queue.consumers.chosen().is_none();
    if !may || selecting.index.get(&key).is_none() {
        return false;
    }
    selecting.fall_idle(key);
    queue.waiting.take(turn);
    true
}

/// An entry has come, or has come back: idle consumers that want it look again.
pub fn wake_who_wants(partition: &mut Partition, id: QueueId, key: MessageKey, tag: EntryTag) {
    let selecting = partition.state.queues.get(&id).and_then(|queue| queue.selecting.as_ref());
    let Some(selecting) = selecting.filter(|selecting| !selecting.idle.is_empty()) else { return };
    let Some(message) = partition.state.bodies.resident(key) else {
        return wake_all_idle(&mut partition.state, &mut partition.leader, id);
    };
    let mut woken = Vec::new();
    {
        let properties = at_delivery(
            &partition.clock,
            &partition.protocols,
            message,
            failed_deliveries(&partition.state, id, tag),
        );
        selecting.index.matching(&properties, |consumer| {
            woken.extend(selecting.idle.get(consumer).map(|since| (*since, *consumer)));
        });
    }
    woken.sort_unstable();
    for (_, consumer) in woken {
        wake_idle(&mut partition.state, &mut partition.leader, id, consumer, Some(tag));
    }
}
