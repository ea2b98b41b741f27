//! How leases begin and end.

use std::sync::Arc;

use postroad_model::{
    ConsumerKey, DeadLetter, Destination, DestinationKind, Effect, EntryTag, LeaseEnd, LeaseId, MessageEvent,
    QueueId, Sent, SettleCause,
};

use super::{Lease, Leases};
use crate::Partition;
use crate::delivery::group::offer_to_all_again;
use crate::entries::entry_at;
use crate::intake::limit::{give_back, set_state};
use crate::intake::publish::dispatch_all;
use crate::leader::Leader;
use crate::leasing::reserve::is_reserving;
use crate::notice::announce_message;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::carrying::move_entries;
use crate::state::State;

/// Leases that end in one tick at most: many that are due at once do not delay other clients for
/// long.
const ENDED_MAX: usize = 256;

/// Why a message that was delivered too often lies among the dead letters.
const DELIVERED_TOO_OFTEN: &str = "delivered too often without being deleted";

/// Changes the leases of a queue, and counts them for its tenant.
fn change_leases(state: &mut State, leader: &mut Leader, id: QueueId, change: impl FnOnce(&mut Leases)) {
    let (accounts, leases) = (&mut leader.intake.accounts, &mut state.leases);
    if !accounts.limits_leases() {
        return change(leases);
    }
    let before = leases.counts(id).leased;
    change(leases);
    if let Some(queue) = state.queues.get(&id) {
        accounts.leased(queue.owners, before, leases.counts(id).leased);
    }
}

/// The entry's lease keeps no group from others any more; returns whether one became free.
fn free_leased_group(state: &mut State, id: QueueId, tag: EntryTag) -> bool {
    let groups = state.queues.get_mut(&id).and_then(|queue| queue.groups.as_mut());
    let Some(groups) = groups else { return false };
    let group = state.leases.get(id, tag).and_then(|lease| lease.group.as_ref());
    group.is_some_and(|group| groups.end_lease(group))
}

/// The number of deliveries without success after which a message of the queue is dead, if they
/// were leases; 0 for never.
fn deliveries_max(state: &State, settings: &Settings, id: QueueId) -> u32 {
    let Some(queue) = state.queues.get(&id) else { return 0 };
    let own = queue.options.as_ref().map_or(0, |options| options.deliveries_max);
    match (own, settings.policies.of(&queue.source).redelivery.count_max) {
        (0, 0) => 0,
        (0, again) => again.saturating_add(1),
        (own, _) => own,
    }
}

/// Where messages of the queue go that were delivered too often.
fn grave_of_spent(state: &State, settings: &Settings, id: QueueId) -> Option<Destination> {
    let queue = state.queues.get(&id)?;
    let own = queue.options.as_ref().and_then(|options| options.dead_letters.as_ref());
    let to = match own {
        Some(name) => Some(Destination::queue(name)),
        None => settings.policies.of(&queue.source).dead_letters.queue_of(&queue.source),
    };
    to.filter(|to| *to != queue.source)
}

/// Whether this delivery is to be checked for being one too many: to a reserve, or of a queue
/// whose clients have set a maximum.
pub fn may_bury_spent(state: &State, leader: &Leader, id: QueueId, to: ConsumerKey) -> bool {
    let options = || state.queues.get(&id).and_then(|queue| queue.options.as_ref());
    is_reserving(leader, to) || options().is_some_and(|options| 0 < options.deliveries_max)
}

/// Whether a message of the queue with this number of deliveries is dead, and goes to the dead
/// letters.
pub fn is_spent(state: &State, settings: &Settings, id: QueueId, deliveries: u32) -> bool {
    let max = deliveries_max(state, settings, id);
    0 < max && max <= deliveries && grave_of_spent(state, settings, id).is_some()
}

/// The entry, which is ready or leased, is leased or delayed from now on.
pub fn begin_lease(
    partition: &mut Partition,
    id: QueueId,
    tag: EntryTag,
    (lease, end): (Option<LeaseId>, LeaseEnd),
    group: Option<Arc<str>>,
) {
    let until_ms = partition.leader.is_live.then(|| partition.now_ms.saturating_add(end.lasts_ms));
    set_state(partition, id, tag, EntryState::Leased);
    free_leased_group(&mut partition.state, id, tag);
    if let (Some(group), Some(queue)) = (&group, partition.state.queues.get_mut(&id)) {
        queue.groups.get_or_insert_default().lease(group);
    }
    let lease = Lease { id: lease, end, until_ms, group };
    change_leases(&mut partition.state, &mut partition.leader, id, |leases| leases.insert((id, tag), lease));
}

/// The entry has left its queue, or is about to be ready: its lease is over.
pub fn forget_lease(partition: &mut Partition, id: QueueId, tag: EntryTag) {
    partition.state.lent.remove(id, tag);
    if partition.state.leases.is_empty() {
        return;
    }
    let freed = free_leased_group(&mut partition.state, id, tag);
    change_leases(&mut partition.state, &mut partition.leader, id, |leases| drop(leases.remove(id, tag)));
    if freed {
        offer_to_all_again(partition, id);
        partition.leader.leasing.freed.push(id);
    }
}

/// Serves those that waited for message groups which are free now.
pub fn dispatch_freed(partition: &mut Partition, effects: &mut Vec<Effect>) {
    while !partition.leader.leasing.freed.is_empty() {
        let freed = std::mem::take(&mut partition.leader.leasing.freed);
        dispatch_all(partition, freed, effects);
    }
}

/// Ends a lease: an entry that it held is ready.
pub fn end_lease(partition: &mut Partition, id: QueueId, tag: EntryTag) {
    forget_lease(partition, id, tag);
    if entry_at(partition, id, tag).is_some_and(|entry| entry.state == EntryState::Leased) {
        give_back(partition, id, tag);
    }
}

/// Ends the leases and delays that are due.
pub fn end_leases(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let wall_ms = partition.clock.wall_ms();
    partition.state.leases.set_time(partition.now_ms, wall_ms);
    let mut touched = Vec::new();
    for _ in 0..ENDED_MAX {
        let Some((id, tag)) = partition.state.leases.take_due(partition.now_ms) else { break };
        if entry_at(partition, id, tag).is_some_and(|entry| entry.state == EntryState::Leaving) {
            partition.state.leases.suspend(id, tag);
            continue;
        }
        let was_held = partition.state.leases.get(id, tag).is_some_and(|lease| lease.id.is_some());
        end_lease(partition, id, tag);
        touched.push(id);
        if was_held {
            bury_if_spent(partition, id, tag, effects);
        }
    }
    dispatch_all(partition, touched, effects);
}

/// Moves a ready entry to the dead letters if leases have delivered it too often. If its body
/// is on the disk it goes when it is due next.
pub fn bury_if_spent(
    partition: &mut Partition,
    id: QueueId,
    tag: EntryTag,
    effects: &mut Vec<Effect>,
) -> bool {
    let max = deliveries_max(&partition.state, &partition.settings, id);
    let Some(entry) = entry_at(partition, id, tag).filter(|_| 0 < max) else { return false };
    let (key, deliveries) = (entry.key, entry.failed_deliveries + entry.uncounted_deliveries);
    if deliveries < max || entry.state != EntryState::Ready {
        return false;
    }
    let (Some(grave), Some(source)) = (
        grave_of_spent(&partition.state, &partition.settings, id),
        partition.state.queues.get(&id).map(|queue| queue.source.clone()),
    ) else {
        return false;
    };
    if source.kind != DestinationKind::Queue {
        return false;
    }
    let Some(message) = partition.state.bodies.resident(key).cloned() else { return false };
    let reason = Some(DELIVERED_TOO_OFTEN.into());
    let past = DeadLetter { queue: grave.clone(), origin: source, reason };
    let sent = Sent::new(grave, partition.protocols.dead(&message, &past));
    announce_message(partition, id, tag, MessageEvent::DeadLettered, None, effects);
    move_entries(partition, (id, &[tag], SettleCause::DeadLettered), vec![sent], Vec::new(), None, effects);
    true
}
