//! Leaving: the end of a connection, or of one of its consumers. Its transactions are undone, its
//! deliveries return to their queues, and its temporary destinations end.
//!
//! One with much of that goes in slices, one with each tick: see `transaction::closing`, which has
//! later events of its connection wait. The queues to which entries return serve no consumer before
//! all are back, or a later message could overtake an earlier one. A connection is marked as ended
//! as soon as that is heard: nothing more is delivered to it.

use std::collections::{BTreeSet, VecDeque};

use postroad_model::{
    Changes, Command, ConnectionId, ConsumerKey, Delivered, Destination, DestinationKind, Effect, Notice,
    Ticket, TransactionKey, Urgency,
};

use crate::Partition;
use crate::addresses::destination::delete_address;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::delivery::consumer::{last_seen, remove_consumer, remove_reader};
use crate::delivery::line::leave_line;
use crate::delivery::spread::readers_of;
use crate::intake::link::{forget_parked, leave_link};
use crate::intake::publish::dispatch_all;
use crate::intake::unparking::unpark_at;
use crate::intake::waiting::{parked_for_queues, proposals_ended};
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::forget_resends;
use crate::notice::announce;
use crate::partition::reply;
use crate::settings::Settings;
use crate::settling::release::release_entries;
use crate::state::State;
use crate::transaction::{Returning, close_leaving, undo_all, undo_branches_of};

/// A temporary destination that ends costs as much as this number of entries that return.
const DESTINATION_COST: usize = 8;

/// Consumers of one queue that are looked at in the time of an entry that returns.
const CONSUMERS_PER_ENTRY: usize = 64;

/// See the head of this file.
pub struct Leaving {
    ends: Ends,
    /// Whose deliveries return, one after another.
    readers: VecDeque<ConsumerKey>,
    /// When the last delivery was sent that the application saw, as [`last_seen`] says.
    last_seen: u64,
    returning: Returning,
}

enum Ends {
    /// A connection.
    Connection(ConnectionId),
    /// A consumer whose client waits for an answer.
    Consumer(ConsumerKey, Option<Ticket>),
}

/// Nothing more comes of the connection, whose transactions may still be being closed.
pub fn note_ended(partition: &mut Partition, id: ConnectionId, effects: &mut Vec<Effect>) {
    forget_resends(partition, id, effects);
    if let Some(connection) = partition.leader.connections.get_mut(&id) {
        let mut returning = connection.ended.take().unwrap_or_default();
        let consumers: Vec<ConsumerKey> = connection.consumers.iter().copied().collect();
        let transactions: Vec<TransactionKey> = connection.transactions.iter().copied().collect();
        hold_queues_of(partition, consumers.iter().copied(), &mut returning);
        hold_settled(partition, &transactions, &mut returning);
        if let Some(connection) = partition.leader.connections.get_mut(&id) {
            connection.ended = Some(returning);
        }
        // Messages that one of them gives back must not go to another of them.
        consumers.into_iter().for_each(|key| stop_serving(&mut partition.state, &mut partition.leader, key));
    }
    // No later send of it is taken in: its client may send again over another connection.
    let freed = forget_sends(
        &partition.state,
        &mut partition.leader,
        &partition.settings,
        &partition.clock,
        id,
        effects,
    );
    partition.leader.intake.waiting.forget_consumers_of(id);
    unpark_at(partition, freed, id, effects);
}

/// Whether the connection has ended, and has not left yet.
pub fn is_leaving(leader: &Leader, id: ConnectionId) -> bool {
    leader.connections.get(&id).is_some_and(|connection| connection.ended.is_some())
}

/// The connection has ended, and nothing of it is being closed.
pub fn closed(partition: &mut Partition, id: ConnectionId, effects: &mut Vec<Effect>) {
    partition.leader.ended.push(id);
    // Events that were heard before its end may have begun something since.
    note_ended(partition, id, effects);
    partition.leader.intake.uploads.abandon_all(id, effects);
    partition.leader.settling.redrives.forget_those_of(id);
    partition.leader.lists.forget_those_of(id);
    partition.leader.leasing.watches.forget_those_of(id);
    let Some(connection) = partition.leader.connections.get_mut(&id) else {
        return undo_branches_of(partition, id, effects);
    };
    let returning = connection.ended.replace(Returning::default()).unwrap_or_default();
    let transactions: Vec<TransactionKey> = connection.transactions.iter().copied().collect();
    let others = connection.temporary.len() * DESTINATION_COST;
    let consumers: Vec<ConsumerKey> = connection.consumers.iter().copied().collect();
    let readers: VecDeque<ConsumerKey> =
        consumers.into_iter().flat_map(|key| readers_of(&partition.leader, key)).collect();
    let open = transactions.iter().filter_map(|key| partition.leader.transactions.open.get(key));
    let changes =
        open.map(|open| open.len()).sum::<usize>() + others + weight_of(&partition.leader, &readers);
    undo_all(partition, &transactions, effects);
    undo_branches_of(partition, id, effects);
    let leaving = Leaving { ends: Ends::Connection(id), readers, last_seen: u64::MAX, returning };
    close_leaving(partition, (id, Box::new(leaving)), changes, effects);
}

/// A consumer ends, at once unless it has much.
pub fn detach(
    partition: &mut Partition,
    key: ConsumerKey,
    (delivered, ticket): (Delivered, Option<Ticket>),
    effects: &mut Vec<Effect>,
) {
    let readers: VecDeque<ConsumerKey> = readers_of(&partition.leader, key).into();
    let weight = weight_of(&partition.leader, &readers);
    // Those of a link that stays in doubt are bounded.
    let is_kept = matches!(delivered, Delivered::InDoubt { .. });
    if is_kept || weight <= partition.settings.slice_changes {
        let queues = remove_consumer(partition, key, delivered, effects);
        dispatch_all(partition, queues, effects);
        return answer_end(partition, (key.connection, ticket), effects);
    }
    stop_serving(&mut partition.state, &mut partition.leader, key);
    for reader in &readers {
        if let Some(consumer) = partition.leader.delivery.consumers.get_mut(reader) {
            consumer.pace.ends = true;
        }
    }
    let last_seen = last_seen(&partition.leader, key, delivered);
    let mut returning = Returning::default();
    hold_queues_of(partition, [key], &mut returning);
    let leaving = Leaving { ends: Ends::Consumer(key, ticket), readers, last_seen, returning };
    close_leaving(partition, (key.connection, Box::new(leaving)), weight, effects);
}

/// Sends of the connection that wait for room never come in; returns the addresses where they
/// waited.
fn forget_sends(
    state: &State,
    leader: &mut Leader,
    settings: &Settings,
    clock: &Clock,
    id: ConnectionId,
    effects: &mut Vec<Effect>,
) -> BTreeSet<Destination> {
    let staying = parked_for_queues(state, leader, settings, clock, id);
    forget_parked(leader, id, |parked| !staying.contains(&parked.number()), effects)
}

/// Entries that they hold, and they themselves.
fn weight_of(leader: &Leader, readers: &VecDeque<ConsumerKey>) -> usize {
    let consumers = &leader.delivery.consumers;
    readers.iter().map(|reader| 1 + consumers.get(reader).map_or(0, |consumer| consumer.held.len())).sum()
}

/// Holds the queues of these consumers.
fn hold_queues_of(
    partition: &mut Partition,
    consumers: impl IntoIterator<Item = ConsumerKey>,
    returning: &mut Returning,
) {
    for reader in consumers.into_iter().flat_map(|key| readers_of(&partition.leader, key)).collect::<Vec<_>>()
    {
        if let Some(id) = partition.leader.delivery.consumers.get(&reader).map(|consumer| consumer.queue) {
            returning.hold(partition, id);
        }
    }
}

/// Holds the queues of entries that these transactions settle.
fn hold_settled(partition: &mut Partition, transactions: &[TransactionKey], returning: &mut Returning) {
    let mut queues = BTreeSet::new();
    for open in transactions.iter().filter_map(|key| partition.leader.transactions.open.get(key)) {
        let mut last = None;
        queues.extend(open.settled_queues().filter(|queue| last.replace(*queue) != Some(*queue)));
    }
    queues.into_iter().for_each(|queue| returning.hold(partition, queue));
}

fn stop_serving(state: &mut State, leader: &mut Leader, key: ConsumerKey) {
    if let Some(spread) = leader.delivery.spreads.get_mut(&key) {
        spread.credit = 0;
    }
    for reader in readers_of(leader, key) {
        leave_line(state, leader, reader);
        if let Some(consumer) = leader.delivery.consumers.get_mut(&reader) {
            consumer.credit = 0;
        }
    }
}

impl Leaving {
    /// The client that waits for its end.
    pub fn answer(&self) -> Option<(ConnectionId, Ticket)> {
        match &self.ends {
            Ends::Consumer(key, ticket) => ticket.map(|ticket| (key.connection, ticket)),
            Ends::Connection(_) => None,
        }
    }

    /// Goes on as far as the budget allows; returns the rest.
    pub fn step(
        mut self: Box<Self>,
        partition: &mut Partition,
        budget: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> Option<Box<Leaving>> {
        while let Some(reader) = self.readers.front().copied() {
            if *budget == 0 {
                return Some(self);
            }
            if return_some(partition, reader, self.last_seen, budget, effects) {
                self.readers.pop_front();
            }
        }
        if let Ends::Connection(id) = self.ends
            && !end_temporary(partition, id, budget, effects)
        {
            return Some(self);
        }
        let touched = self.returning.end(partition);
        match self.ends {
            Ends::Connection(id) => {
                remove_consumers(partition, id, effects);
                dispatch_all(partition, touched, effects);
                leave(partition, id, effects);
            }
            Ends::Consumer(key, ticket) => {
                remove_consumer(partition, key, Delivered::All, effects);
                dispatch_all(partition, touched, effects);
                answer_end(partition, (key.connection, ticket), effects);
            }
        }
        None
    }
}

/// A consumer has ended: its client may take for confirmed all that it has accepted before, so the
/// answer waits until the log has that.
fn answer_end(
    partition: &mut Partition,
    (connection, ticket): (ConnectionId, Option<Ticket>),
    effects: &mut Vec<Effect>,
) {
    let Some(ticket) = ticket else { return };
    let accepts = partition.leader.connections.get(&connection).map_or(0, |connection| connection.accepts);
    if accepts <= proposals_ended(&partition.leader) {
        return reply(connection, ticket, Ok(()), effects);
    }
    let (nothing, completion) = (Changes::default(), Completion::Reply { connection, ticket });
    propose(partition, Command::Transact(nothing), Urgency::Waiting, completion, effects);
}

/// Deliveries of this consumer return, as many as the budget allows; `true` if it has left.
fn return_some(
    partition: &mut Partition,
    reader: ConsumerKey,
    last_seen: u64,
    budget: &mut usize,
    effects: &mut Vec<Effect>,
) -> bool {
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&reader) else { return true };
    let id = consumer.queue;
    let queue = partition.state.queues.get(&id);
    let others = queue.map_or(0, |queue| queue.consumers.len());
    // A subscription ends with its last consumer, and lets its entries go in slices of its own.
    let ends =
        id.is_volatile() && others == 1 && queue.is_some_and(|q| q.source.kind == DestinationKind::Topic);
    if !ends {
        let (seen, unseen) = consumer.held.take_first(*budget, last_seen);
        *budget -= seen.len() + unseen.len();
        let holds_more = !consumer.held.is_empty();
        for (tags, failed) in [(seen, true), (unseen, false)] {
            // One record counts the failed deliveries of a slice.
            for tags in tags.chunks(partition.settings.slice_changes.clamp(1, crate::SLICE_CHANGES)) {
                release_entries(partition, id, reader, tags, failed, effects);
            }
        }
        if holds_more || *budget == 0 {
            return false;
        }
    }
    *budget = budget.saturating_sub(1 + others / CONSUMERS_PER_ENTRY);
    // The whole of a member leaves when all of them have.
    if reader.member != 0 {
        remove_reader(partition, reader, (last_seen, None), effects);
    } else {
        remove_consumer(partition, reader, Delivered::All, effects);
    }
    true
}

/// Ends temporary destinations of the connection, as many as the budget allows; `true` if that was
/// all.
fn end_temporary(
    partition: &mut Partition,
    id: ConnectionId,
    budget: &mut usize,
    effects: &mut Vec<Effect>,
) -> bool {
    let mut temporary = match partition.leader.connections.get_mut(&id) {
        Some(connection) => std::mem::take(&mut connection.temporary),
        None => return true,
    };
    while *budget > 0
        && let Some((destination, _)) = temporary.pop_first()
    {
        *budget = budget.saturating_sub(DESTINATION_COST);
        delete_address(partition, &destination, effects);
    }
    let is_all = temporary.is_empty();
    if let Some(connection) = partition.leader.connections.get_mut(&id) {
        connection.temporary = temporary;
    }
    is_all
}

/// The consumers of patterns, whose members have left.
fn remove_consumers(partition: &mut Partition, id: ConnectionId, effects: &mut Vec<Effect>) {
    let consumers = partition.leader.connections.get(&id).map(|connection| connection.consumers.clone());
    for key in consumers.unwrap_or_default() {
        remove_consumer(partition, key, Delivered::All, effects);
    }
}

/// The connection is gone.
fn leave(partition: &mut Partition, id: ConnectionId, effects: &mut Vec<Effect>) {
    let Some(connection) = partition.leader.connections.remove(&id) else { return };
    let Connection { coordinated, links, producers, claims, client, ended, .. } = connection;
    // Its end may have been heard once more meanwhile.
    let touched = ended.map_or_else(Vec::new, |returning| returning.end(partition));
    dispatch_all(partition, touched, effects);
    partition.leader.ended.coordinated.close(id, coordinated);
    for link in &links {
        leave_link(&mut partition.leader, partition.now_ms, link, id, true, effects);
    }
    for producer in producers.into_values() {
        announce(Notice::Producer { producer, present: false }, effects);
    }
    for name in claims {
        partition.leader.claims.close(&name, id, partition.now_ms);
    }
    if let Some(client) = client {
        announce(Notice::Connection { client, present: false }, effects);
    }
}
