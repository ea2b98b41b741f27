//! Message groups meet consumers: who begins one, who loses them, and who takes some over.
//!
//! As soon as a queue has seen a message of a group, each of its consumers has a view of its own
//! (see `selection`) from its next turn on, and passes over messages of other owners. Skipped
//! messages that become free are found by stepping back.

use std::collections::BTreeMap;

use postroad_model::{ConsumerKey, ConsumerMode, EntryTag, Message, QueueId};
use rustc_hash::FxHashSet;

use crate::Partition;
use crate::delivery::idle::wake_all_idle;
use crate::delivery::selection::Selection;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::state::State;

/// Entries that one step looks at for groups of which something is under way. Consumers with more
/// keep their groups.
const UNDER_WAY_MAX: usize = 4096;

/// The consequence of a delivery for its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTurn {
    /// The consumer has begun the group.
    pub first: bool,
    /// The message ends the group.
    pub ended: bool,
}

/// Messages of each lane from a cursor on are free; returns the number of the offer.
fn offer(partition: &mut Partition, id: QueueId, cursor: impl Fn(u8) -> u64) -> u64 {
    let Some(queue) = partition.state.queues.get_mut(&id) else { return 0 };
    let lanes = queue.lanes.iter().map(|(number, _)| (number.0, cursor(number.0)));
    queue.groups.as_mut().map_or(0, |groups| groups.offers.add(lanes))
}

/// Entries of the queue that transactions on their way to the log have settled: consumers hold
/// them again if those fail.
fn committing(leader: &Leader, id: QueueId) -> impl Iterator<Item = EntryTag> {
    let proposed = leader.log.pending.iter().filter_map(Completion::volatile);
    let holders =
        proposed.chain(leader.transactions.prepared_volatile.values()).flat_map(|changes| &changes.holders);
    holders.filter(move |(_, end)| end.queue == id).map(|(_, end)| end.tag)
}

/// Entries of the queue that are under way, as many as one step looks at, and the consumers
/// that have the others: those of the fewest entries are looked at first. `None`: there are too
/// many besides theirs.
fn under_way(
    leader: &Leader,
    id: QueueId,
    consumers: &[ConsumerKey],
) -> Option<(Vec<EntryTag>, FxHashSet<ConsumerKey>)> {
    let mut entries: Vec<EntryTag> = committing(leader, id).take(UNDER_WAY_MAX + 1).collect();
    let mut left = UNDER_WAY_MAX.checked_sub(entries.len())?;
    let all = &leader.delivery.consumers;
    let held = consumers.iter().filter_map(|key| Some((all.get(key)?.held.len(), *key)));
    let mut holders: Vec<(usize, ConsumerKey)> = held.filter(|(held, _)| 0 < *held).collect();
    holders.sort_unstable();
    let mut keepers = FxHashSet::default();
    for (held, key) in holders {
        match left.checked_sub(held) {
            Some(rest) => {
                left = rest;
                entries.extend(all.get(&key).into_iter().flat_map(|consumer| consumer.held.tags()));
            }
            None => drop(keepers.insert(key)),
        }
    }
    Some((entries, keepers))
}

/// The consumer has joined: it gets its share of the groups of which nothing is under way.
pub fn share_groups(state: &mut State, leader: &mut Leader, id: QueueId, key: ConsumerKey) {
    let Some(queue) = state.queues.get(&id) else { return };
    // With more consumers than groups nothing is to be shared; those without a share count too.
    if queue.groups.as_ref().is_none_or(|groups| groups.len() < queue.consumers.sharing()) {
        return;
    }
    let sharing = |key: &ConsumerKey| {
        leader.delivery.consumers.get(key).is_some_and(|consumer| consumer.mode == ConsumerMode::Shared)
    };
    let consumers: Vec<ConsumerKey> = queue.consumers.iter().copied().filter(sharing).collect();
    // A selector may reject the next message of a group, which no other consumer could have
    // then.
    let selects = leader.delivery.consumers.get(&key).and_then(|consumer| consumer.selection.as_ref());
    if consumers.last() != Some(&key) || selects.is_some_and(Selection::has_selector) {
        return;
    }
    let Some((under_way, keepers)) = under_way(leader, id, &consumers) else { return };
    let Some(queue) = state.queues.get_mut(&id) else { return };
    let keys: Vec<_> = under_way.into_iter().filter_map(|tag| Some(queue.entry(tag)?.key)).collect();
    let Some(groups) = &mut queue.groups else { return };
    let headers = keys.into_iter().filter_map(|key| state.bodies.headers(key));
    let busy: FxHashSet<_> =
        headers.filter_map(|(headers, _)| Some(groups.key_of(&headers.group()?.id))).collect();
    groups.join(&consumers, (&busy, &keepers));
}

/// The queue's first message of a group has come.
pub fn begin_groups(state: &mut State, leader: &mut Leader, id: QueueId) {
    wake_all_idle(state, leader, id);
    if let Some(queue) = state.queues.get_mut(&id) {
        queue.groups.get_or_insert_default();
    }
}

/// The consumer is sent this message: its group is the consumer's from now on, or over.
pub fn take_group(partition: &mut Partition, id: QueueId, key: ConsumerKey, message: &Message) -> GroupTurn {
    let Some(group) = message.group() else { return GroupTurn::default() };
    let exclusive = partition
        .leader
        .delivery
        .consumers
        .get(&key)
        .is_none_or(|consumer| consumer.mode == ConsumerMode::Exclusive);
    let groups =
        partition.state.queues.get_mut(&id).filter(|_| !exclusive).and_then(|queue| queue.groups.as_mut());
    let Some(groups) = groups else { return GroupTurn::default() };
    let first = groups.take(&group.id, key);
    let ended = group.sequence < 0 && groups.end(&group.id);
    if ended {
        offer_again(partition, id, key, None);
    }
    GroupTurn { first, ended }
}

/// The consumer has left: its groups are free.
pub fn free_groups(partition: &mut Partition, id: QueueId, key: ConsumerKey, selection: Option<Selection>) {
    let groups = partition.state.queues.get_mut(&id).and_then(|queue| queue.groups.as_mut());
    if groups.is_some_and(|groups| groups.leave(key)) {
        offer_again(partition, id, key, selection);
    }
}

/// A group blocked by leases is free: all consumers look again.
pub fn offer_to_all_again(partition: &mut Partition, id: QueueId) {
    wake_all_idle(&mut partition.state, &mut partition.leader, id);
    offer(partition, id, |_| 0);
}

/// Messages of `owner` are free: the others look again at those that it has not reached, and at
/// all if it has a selector, which has passed over messages of its groups.
fn offer_again(partition: &mut Partition, id: QueueId, owner: ConsumerKey, gone: Option<Selection>) {
    let Some(groups) = partition.state.queues.get(&id).and_then(|queue| queue.groups.as_ref()) else {
        return;
    };
    let of_owner = partition.leader.delivery.consumers.get_mut(&owner);
    let own = of_owner.and_then(|consumer| consumer.selection.as_mut());
    let (mut views, mut gone) = (BTreeMap::new(), gone);
    if let Some(selection) = gone.as_mut().or(own) {
        selection.take_up(&groups.offers);
        if !selection.has_selector() {
            views = selection.views().iter().map(|(lane, view)| (*lane, view.cursor())).collect();
        }
    }
    let number = offer(partition, id, |lane| views.get(&lane).copied().unwrap_or(0));
    let of_owner = partition.leader.delivery.consumers.get_mut(&owner);
    if let Some(selection) = of_owner.and_then(|consumer| consumer.selection.as_mut()) {
        selection.skip_offer(number);
    }
}
