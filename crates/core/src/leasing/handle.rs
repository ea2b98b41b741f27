//! Handles: who holds a lease deletes, extends or releases its entry, from any connection.

use std::collections::BTreeSet;

use postroad_model::{
    Changes, Command, ConnectionId, Effect, EntryTag, Handle, HandleAction, HandleEntries, LeaseAnswer,
    LeaseEnd, LeaseId, MessageKey, Outcome, PartitionId, Peer, QueueId, SettleCause, Settlement, Stale,
    Ticket, Urgency,
};

use crate::delivery::dispatch::dispatch;
use crate::entries::{entry_at, sought_at};
use crate::intake::limit::set_state;
use crate::leader::Leader;
use crate::leasing::end::{begin_lease, bury_if_spent, end_lease};
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::lives_here_now;
use crate::partition::reply;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::lending;
use crate::settling::rest::give_back_or_rest;
use crate::settling::settle::{begin_leaving, give_back_all};
use crate::state::State;
use crate::transaction::tell;
use crate::{Partition, traces};

/// Where the entries are if their queue is on its way here: what is leased leaves last.
fn origin_of_handles(
    leader: &Leader,
    settings: &Settings,
    asked: &HandleEntries,
    own: Option<QueueId>,
) -> Option<PartitionId> {
    let origins = leader.moves.origins_of(&asked.queue)?;
    let partitions = settings.placement.partitions;
    let leases = || asked.handles.iter().filter_map(|handle| handle.lease);
    let gave = |origin: &&PartitionId| leases().any(|lease| lease.is_of(**origin, partitions));
    // Entries without a holder are named by their queue alone: those sent here are here.
    let is_elsewhere = |handle: &Handle| handle.lease.is_none() && Some(handle.queue) != own;
    let first = origins.first().filter(|_| asked.handles.iter().all(is_elsewhere));
    origins.iter().find(gave).or(first).copied()
}

/// Whether a record on its way to the log decides what becomes of the entry: what a handle gets
/// for an answer follows from it. A prepared transaction may take days, and is not waited for.
fn is_undecided(partition: &mut Partition, handle: &Handle) -> bool {
    let state = entry_at(partition, handle.queue, handle.tag).map(|entry| entry.state);
    state == Some(EntryState::Leaving) && prepared_cause(&partition.state, handle).is_none()
}

/// Why the entry leaves once a transaction that is prepared here is committed.
fn prepared_cause(state: &State, handle: &Handle) -> Option<SettleCause> {
    let settlements = state.prepared.values().flat_map(|prepared| &prepared.settlements);
    let of = |settlement: &&Settlement| (settlement.queue, settlement.tag) == (handle.queue, handle.tag);
    settlements.into_iter().find(of).map(|settlement| settlement.cause)
}

/// Whether the handle is of an entry where its queue lived before: an entry here may have the same
/// number. A lease that holds its entry may be of a run with another number of partitions.
fn names_entry_elsewhere(state: &State, settings: &Settings, handle: &Handle) -> bool {
    let holder = || state.leases.get(handle.queue, handle.tag).and_then(|lease| lease.id);
    is_of_elsewhere(settings, handle) && holder() != handle.lease
}

/// Whether the lease was given where its queue lived before. No entry that is leased goes with
/// its queue: that lease has ended.
fn is_of_elsewhere(settings: &Settings, handle: &Handle) -> bool {
    handle.lease.is_some_and(|lease| !lease.is_of(settings.id, settings.placement.partitions))
}

/// A ready or leased entry waits for a record on its way to the log. Others rest, and go on.
fn lock(partition: &mut Partition, id: QueueId, tag: EntryTag) -> bool {
    let state = entry_at(partition, id, tag).map(|entry| entry.state);
    let may_wait = matches!(state, Some(EntryState::Ready | EntryState::Leased));
    if may_wait {
        set_state(partition, id, tag, EntryState::Leaving);
        partition.leader.leasing.locked.insert((id, tag));
    }
    may_wait
}

/// The record is here, or never will be: the entry is as it was before.
fn unlock(partition: &mut Partition, id: QueueId, tag: EntryTag) {
    if !partition.leader.leasing.locked.remove(&(id, tag)) {
        return;
    }
    if let Some(key) = entry_at(partition, id, tag).map(|entry| entry.key) {
        give_back_or_rest(partition, id, tag);
        partition.state.bodies.unpin(key);
    }
}

/// The log did not take the requested changes. Returns the queues that are to be dispatched.
pub(crate) fn take_back_handled(partition: &mut Partition, handling: &Handling) -> Vec<QueueId> {
    let (id, locked) = &handling.locked;
    locked.iter().for_each(|tag| unlock(partition, *id, *tag));
    let mut queues = give_back_all(partition, &handling.settlements);
    queues.extend((!locked.is_empty()).then_some(*id));
    queues
}

/// Entries may be ready: they go to the dead letters, or to who waits for them.
fn offer(partition: &mut Partition, queue: QueueId, tags: &[EntryTag], effects: &mut Vec<Effect>) {
    bury(partition, queue, tags, effects);
    if !tags.is_empty() {
        dispatch(partition, queue, effects);
    }
}

/// Those that were delivered often enough are dead letters; returns whether there are any.
fn bury(partition: &mut Partition, queue: QueueId, tags: &[EntryTag], effects: &mut Vec<Effect>) -> bool {
    let buried = tags.iter().filter(|tag| bury_if_spent(partition, queue, **tag, effects)).count();
    0 < buried
}

/// The broker moves an entry to another partition, as a dead letter or with its queue: no lease and
/// no consumer holds it.
fn moved_by_broker(lease: Option<LeaseId>) -> Stale {
    if lease.is_some() { Stale::Expired } else { Stale::Gone }
}

/// The requested changes of entries, on their way to the log.
#[derive(Debug)]
pub struct Handling {
    /// Who waits.
    pub(crate) connection: ConnectionId,
    /// The change.
    pub(crate) ticket: Ticket,
    results: Vec<Result<(), Stale>>,
    /// The new leases of entries.
    renewed: Vec<LeaseId>,
    /// Entries that are leaving.
    settlements: Vec<Settlement>,
    /// Entries of a queue that are touched, and wait for it.
    locked: (QueueId, Vec<EntryTag>),
    /// Their leases end.
    releases: bool,
}

impl Handling {
    fn new((connection, ticket): (ConnectionId, Ticket), results: Vec<Result<(), Stale>>) -> Handling {
        let (renewed, settlements, locked) = (Vec::new(), Vec::new(), (QueueId(0), Vec::new()));
        Handling { connection, ticket, results, renewed, settlements, locked, releases: false }
    }
}

fn answer_handled(
    connection: ConnectionId,
    ticket: Ticket,
    results: Vec<Result<(), Stale>>,
    effects: &mut Vec<Effect>,
) {
    effects.push(Effect::Lease { connection, ticket, answer: LeaseAnswer::Handled(results) });
    reply(connection, ticket, Ok(()), effects);
}

pub fn handle_entries(partition: &mut Partition, asked: HandleEntries, effects: &mut Vec<Effect>) {
    let own = partition.state.addresses.own_queue(&asked.queue);
    if let Some(origin) = origin_of_handles(&partition.leader, &partition.settings, &asked, own) {
        return tell(origin, Peer::Handle(Box::new(asked)), effects);
    }
    let goes = partition.state.leaving.contains_key(&asked.queue)
        || !lives_here_now(&partition.settings, &asked.queue);
    let mut results: Vec<Result<(), Stale>> = Vec::with_capacity(asked.handles.len());
    for handle in &asked.handles {
        let result = match own == Some(handle.queue) {
            true if names_entry_elsewhere(&partition.state, &partition.settings, handle) => {
                Err(Stale::Expired)
            }
            true => check_handle(partition, handle, asked.action),
            false => Err(Stale::Gone),
        };
        // One that holds its entry is decided.
        if result.is_err() && is_undecided(partition, handle) {
            let nothing = Command::Transact(Changes::default());
            let behind = Completion::Asked(Box::new(asked));
            return propose(partition, nothing, Urgency::Waiting, behind, effects);
        }
        // It may have gone with its queue.
        let has_gone = goes && result == Err(Stale::Gone) && handle.lease.is_some();
        let is_elsewhere = result.is_err() && (has_gone || is_of_elsewhere(&partition.settings, handle));
        results.push(if is_elsewhere { Err(Stale::Expired) } else { result });
    }
    let HandleEntries { connection, ticket, mut handles, action, all_or_none, .. } = asked;
    if all_or_none && results.iter().any(Result::is_err) {
        return answer_handled(connection, ticket, results, effects);
    }
    let mut good = results.iter().map(Result::is_ok);
    handles.retain(|_| good.next() == Some(true));
    // Most name their entries in order: then none is named twice.
    if !handles.is_sorted_by(|one, next| one.tag < next.tag) {
        let mut named = BTreeSet::new();
        handles.retain(|handle| named.insert(handle.tag));
    }
    let Some(id) = own.filter(|_| !handles.is_empty()) else {
        return answer_handled(connection, ticket, results, effects);
    };
    match action {
        HandleAction::Delete { .. } => {
            delete_entries(partition, id, &handles, (connection, ticket), results, effects)
        }
        HandleAction::Extend { lasts_ms } => {
            let end = LeaseEnd { wall_ms: partition.clock.wall_ms().saturating_add(lasts_ms), lasts_ms };
            let entries = handles.iter().map(|handle| (handle.tag, handle.lease)).collect();
            let handling = Handling::new((connection, ticket), results);
            touch_entries(partition, id, Some(end), entries, handling, effects);
        }
        HandleAction::Renew { lasts_ms } => {
            let end = LeaseEnd { wall_ms: partition.clock.wall_ms().saturating_add(lasts_ms), lasts_ms };
            let renewed: Vec<LeaseId> =
                handles.iter().map(|_| partition.leader.leasing.next_lease(&partition.settings)).collect();
            let entries =
                handles.iter().zip(&renewed).map(|(handle, lease)| (handle.tag, Some(*lease))).collect();
            let handling = Handling { renewed, ..Handling::new((connection, ticket), results) };
            touch_entries(partition, id, Some(end), entries, handling, effects);
        }
        HandleAction::Release { delay_ms } => {
            let end =
                LeaseEnd { wall_ms: partition.clock.wall_ms().saturating_add(delay_ms), lasts_ms: delay_ms };
            let entries = handles.iter().map(|handle| (handle.tag, None)).collect();
            let until = Some(end).filter(|_| 0 < delay_ms);
            let handling = Handling::new((connection, ticket), results);
            touch_entries(partition, id, until, entries, handling, effects);
        }
    }
}

/// Whether the handle still holds its entry, and if not, why.
fn check_handle(partition: &mut Partition, handle: &Handle, action: HandleAction) -> Result<(), Stale> {
    let current = partition.state.leases.get(handle.queue, handle.tag).map(|lease| lease.id);
    let state = entry_at(partition, handle.queue, handle.tag).map(|entry| entry.state).ok_or(Stale::Gone)?;
    let even_expired = matches!(action, HandleAction::Delete { even_expired: true });
    match (state, handle.lease, current) {
        (EntryState::Leaving, lease, _) => Err(match (prepared_cause(&partition.state, handle), lease) {
            (Some(SettleCause::Consumed), Some(_)) => Stale::Taken,
            (Some(SettleCause::Consumed), None) => Stale::Held,
            (_, lease) => moved_by_broker(lease),
        }),
        (EntryState::Leased, Some(lease), Some(Some(held))) if lease == held => Ok(()),
        // A delay: the entry has no holder.
        (EntryState::Leased, None, Some(None)) => Ok(()),
        (EntryState::Leased, Some(_), Some(None)) if even_expired => Ok(()),
        (EntryState::Leased, Some(_), Some(None)) => Err(Stale::Expired),
        (EntryState::Leased, Some(_), _) => Err(Stale::Taken),
        (EntryState::Ready | EntryState::Resting, None, _) => Ok(()),
        (EntryState::Ready | EntryState::Resting, Some(_), _) if even_expired => Ok(()),
        (EntryState::Ready | EntryState::Resting, Some(_), _) => Err(Stale::Expired),
        (EntryState::Held { by, .. }, lease, _) if by.connection.is_internal() => Err(moved_by_broker(lease)),
        (EntryState::Held { .. }, Some(_), _) => Err(Stale::Taken),
        (EntryState::Held { .. } | EntryState::Leased, None, _) => Err(Stale::Held),
    }
}

fn delete_entries(
    partition: &mut Partition,
    id: QueueId,
    handles: &[Handle],
    (connection, ticket): (ConnectionId, Ticket),
    results: Vec<Result<(), Stale>>,
    effects: &mut Vec<Effect>,
) {
    let tags: Vec<EntryTag> = handles.iter().map(|handle| handle.tag).collect();
    traces::settled(partition, id, &tags, Outcome::Accepted);
    let settlements = begin_leaving(partition, id, &tags, SettleCause::Consumed, effects);
    if settlements.is_empty() {
        return answer_handled(connection, ticket, results, effects);
    }
    let command = Command::Settle(settlements.clone());
    let handling = Handling { settlements, ..Handling::new((connection, ticket), results) };
    propose(partition, command, Urgency::Waiting, Completion::Handled(handling), effects);
}

fn touch_entries(
    partition: &mut Partition,
    queue: QueueId,
    until: Option<LeaseEnd>,
    entries: Vec<(EntryTag, Option<LeaseId>)>,
    handling: Handling,
    effects: &mut Vec<Effect>,
) {
    let durable = |(tag, _): &(EntryTag, Option<LeaseId>)| {
        let key =
            partition.state.queues.get(&queue).and_then(|queue| queue.entry_ref(*tag)).map(|entry| entry.key);
        matches!(key, Some(MessageKey::Durable { .. })) && !queue.is_volatile()
    };
    let (logged, in_memory): (Vec<_>, Vec<_>) = entries.into_iter().partition(durable);
    touch_lease(partition, queue, until, &in_memory);
    let ready = if until.is_none() { in_memory.iter().map(|(tag, _)| *tag).collect() } else { Vec::new() };
    offer(partition, queue, &ready, effects);
    if logged.is_empty() {
        return handled(partition, handling, effects);
    }
    // Until the log has it no other client gets the entry, and its deadline waits.
    let locked = logged.iter().filter(|(tag, _)| lock(partition, queue, *tag)).map(|(tag, _)| *tag).collect();
    let handling = Handling { locked: (queue, locked), releases: until.is_none(), ..handling };
    let command = Command::Touch { queue, until, entries: logged };
    propose(partition, command, Urgency::Waiting, Completion::Handled(handling), effects);
}

/// Gives entries new deadlines, or makes them ready.
fn touch_lease(
    partition: &mut Partition,
    id: QueueId,
    until: Option<LeaseEnd>,
    entries: &[(EntryTag, Option<LeaseId>)],
) {
    for (tag, lease) in entries {
        let state = entry_at(partition, id, *tag).map(|entry| entry.state);
        if !matches!(state, Some(EntryState::Ready | EntryState::Resting | EntryState::Leased)) {
            continue;
        }
        match until {
            Some(end) => {
                let group = partition.state.leases.get(id, *tag).and_then(|lease| lease.group.clone());
                begin_lease(partition, id, *tag, (*lease, end), group);
            }
            None => end_lease(partition, id, *tag),
        }
    }
}

/// The log says so.
pub fn apply_touch(
    partition: &mut Partition,
    id: QueueId,
    until: Option<LeaseEnd>,
    entries: &[(EntryTag, Option<LeaseId>)],
) {
    if entries.iter().any(|(_, lease)| lease.is_some_and(LeaseId::is_of_link)) {
        return lending::apply(partition, id, until.is_some(), entries);
    }
    entries.iter().for_each(|(tag, _)| unlock(partition, id, *tag));
    touch_lease(partition, id, until, entries);
}

/// The log has leases: known here already, unless it is replayed. The deliveries are counted in
/// any case.
pub fn apply_lease(
    partition: &mut Partition,
    id: QueueId,
    before_first: LeaseId,
    end: LeaseEnd,
    tags: &[EntryTag],
) {
    for (tag, count) in tags.iter().zip(1..) {
        let is_live = partition.leader.is_live;
        let Some(entry) = entry_at(partition, id, *tag) else { continue };
        entry.failed_deliveries += 1;
        if is_live {
            entry.uncounted_deliveries = entry.uncounted_deliveries.saturating_sub(1);
            continue;
        }
        let group = group_of(partition, id, *tag);
        begin_lease(partition, id, *tag, (Some(before_first.plus(count)), end), group);
    }
}

/// The message group of an entry.
pub fn group_of(partition: &mut Partition, id: QueueId, tag: EntryTag) -> Option<std::sync::Arc<str>> {
    let sought = sought_at(partition, id, tag)?;
    let (headers, _) = partition.state.bodies.headers(sought)?;
    headers.group().map(|group| group.id.clone())
}

/// The log has the requested change.
pub fn handled(partition: &mut Partition, handling: Handling, effects: &mut Vec<Effect>) {
    let Handling { connection, ticket, results, renewed, locked: (queue, locked), releases, .. } = handling;
    if releases && bury(partition, queue, &locked, effects) {
        // The client finds the dead letters in their queue.
        let behind = Completion::Handled(Handling::new((connection, ticket), results));
        propose(partition, Command::Transact(Changes::default()), Urgency::Waiting, behind, effects);
        return dispatch(partition, queue, effects);
    }
    if !renewed.is_empty() {
        effects.push(Effect::Lease { connection, ticket, answer: LeaseAnswer::Renewed(renewed) });
    }
    answer_handled(connection, ticket, results, effects);
    if releases && !locked.is_empty() {
        dispatch(partition, queue, effects);
    }
}
