//! Destinations that clients make and delete.

use std::sync::Arc;

use postroad_model::{
    Binding, Command, ConnectionId, Destination, DestinationKind, Effect, Event, QueueId, Refusal, Ticket,
    Urgency,
};

use crate::Partition;
use crate::addresses::binding::{TopicFeed, apply_bind, propose_queue};
use crate::addresses::ending::let_go;
use crate::connection::Connections;
use crate::delivery::spread::forget_reader;
use crate::intake::queue_quota;
use crate::intake::waiting::end_address;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::{end_move, is_moving};
use crate::notice::announce_unsubscribed;
use crate::partition::{bind_volatile, reply};
use crate::settings::Settings;
use crate::state::State;

impl Connections {
    /// A connection gives a temporary destination up, if the destination was left behind by the
    /// client that takes it.
    fn gives_up(&mut self, owner: ConnectionId, destination: &Destination, heir: Option<&Arc<str>>) -> bool {
        let Some(connection) = self.get_mut(&owner) else { return false };
        let made_for = connection.temporary.get(destination).and_then(Option::as_ref);
        let is_its = heir.is_some() && heir == made_for;
        if is_its {
            connection.temporary.remove(destination);
        }
        is_its
    }
}

/// Only the connection that made a temporary destination may do more with it than send to it.
/// Lasting destinations have no owner.
pub fn check_owner(
    state: &State,
    destination: &Destination,
    connection: ConnectionId,
) -> Result<(), Refusal> {
    if !destination.temporary {
        return Ok(());
    }
    match state.addresses.get(destination).map(|address| address.owner) {
        Some(owner) if owner == Some(connection) => Ok(()),
        Some(_) => Err(Refusal::NotOwner(destination.clone())),
        None => Err(Refusal::NoSuchDestination(destination.clone())),
    }
}

/// Whether it is new.
fn declare_temporary(
    state: &mut State,
    leader: &mut Leader,
    settings: &Settings,
    destination: &Destination,
    connection: ConnectionId,
    steals: Option<Arc<str>>,
) -> Result<bool, Refusal> {
    let is_new = match state.addresses.get(destination).map(|address| address.owner) {
        Some(Some(owner)) if owner == connection => return Ok(false),
        Some(Some(owner)) if leader.connections.gives_up(owner, destination, steals.as_ref()) => false,
        Some(_) => return Err(Refusal::NotOwner(destination.clone())),
        None => true,
    };
    state.addresses.get_or_make(destination).owner = Some(connection);
    if is_new && destination.kind == DestinationKind::Queue {
        bind_volatile(state, leader, settings, destination, None);
    }
    leader.connections.get_or_make(connection).temporary.insert(destination.clone(), steals);
    Ok(is_new)
}

pub fn begin_declaring(
    partition: &mut Partition,
    destination: Destination,
    (connection, ticket): (ConnectionId, Ticket),
    steals: Option<Arc<str>>,
    effects: &mut Vec<Effect>,
) {
    if destination.temporary {
        return match declare_temporary(
            &mut partition.state,
            &mut partition.leader,
            &partition.settings,
            &destination,
            connection,
            steals,
        ) {
            Ok(true) => partition.state.addresses.announce_first(&destination, (connection, ticket), effects),
            result => reply(connection, ticket, result.map(drop), effects),
        };
    }
    let is_for_it = partition.leader.intake.waiting.is_for_queue(&destination);
    if destination.kind == DestinationKind::Queue
        && (is_for_it || partition.state.addresses.get(&destination).is_none())
    {
        if let Err(refusal) = queue_quota::check_queue(partition, &destination) {
            return reply(connection, ticket, Err(refusal), effects);
        }
        let completion = Completion::Reply { connection, ticket };
        if is_for_it {
            // A reader has stated the topics that are to feed it; or the queue is being
            // deleted, and is made again after that.
            let command = Command::Declare { queue: destination };
            return propose(partition, command, Urgency::Waiting, completion, effects);
        }
        return propose_queue(partition, destination, None, completion, effects);
    }
    reply(connection, ticket, Ok(()), effects);
}

pub fn begin_deleting(
    partition: &mut Partition,
    destination: Destination,
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    let event = Event::Delete { destination: destination.clone(), connection, ticket };
    if partition.leader.intake.waiting.wait_for_address(&destination, &event) {
        return;
    }
    let Some(address) = partition.state.addresses.get(&destination) else {
        return reply(connection, ticket, Ok(()), effects);
    };
    if destination.temporary && address.owner != Some(connection) {
        return reply(connection, ticket, Err(Refusal::NotOwner(destination)), effects);
    }
    if is_moving(&partition.state, &partition.leader, &destination) {
        return reply(connection, ticket, Err(Refusal::QueueMoving(destination)), effects);
    }
    // Queues that a topic feeds are destinations of their own.
    let bound = address.bound.iter().filter_map(|id| partition.state.queues.get(&id));
    let bound = bound.filter(|queue| queue.source == destination);
    let consumers: u64 = bound.map(|queue| (queue.consumers.len() - queue.requests.reserves) as u64).sum();
    if consumers > 0 {
        let refusal = Refusal::InUse { destination, consumers };
        return reply(connection, ticket, Err(refusal), effects);
    }
    let is_in_log =
        !destination.temporary && (destination.kind == DestinationKind::Queue || address.bound.has_durable());
    if !is_in_log {
        delete_address(partition, &destination, effects);
        return reply(connection, ticket, Ok(()), effects);
    }
    end_address(partition, destination, (connection, ticket), effects);
}

pub fn delete_address(partition: &mut Partition, destination: &Destination, effects: &mut Vec<Effect>) {
    end_move(&mut partition.state, &mut partition.leader, destination);
    let Some(address) = partition.state.addresses.remove(destination) else { return };
    if let Some(connection) = address.owner.and_then(|owner| partition.leader.connections.get_mut(&owner)) {
        connection.temporary.remove(destination);
    }
    for id in address.bound.iter() {
        match partition.state.queues.get(&id).is_some_and(|queue| queue.source == *destination) {
            true => delete_queue(partition, id, effects),
            // The topic fed it; it has a name and a life of its own.
            false => feed_again(partition, id, destination),
        }
    }
}

fn feed_again(partition: &mut Partition, id: QueueId, topic: &Destination) {
    let Some(queue) = partition.state.queues.get(&id) else { return };
    let fed = queue.fed_by.iter().find(|fed| fed.topic == *topic).cloned();
    if let Some(TopicFeed { topic, selectors }) = fed {
        apply_bind(partition, Binding { topic, queue: queue.source.clone(), selectors });
    }
}

/// The queue ends, with its entries and its consumers.
pub fn delete_queue(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    let Some(queue) = partition.state.queues.remove(&id) else { return };
    partition.state.addresses.lasting.remove(&id);
    partition.state.addresses.passing.remove(&id);
    partition.state.addresses.listed.remove(&queue);
    partition.state.paused.forget(id);
    partition.leader.offline.forget(id);
    partition.leader.delivery.backlogs.forget(id);
    partition.leader.intake.accounts.close(&queue);
    let leased = partition.state.leases.counts(id).leased;
    partition.leader.intake.accounts.leased(queue.owners, leased, 0);
    let skips = queue.subscription.as_ref().is_some_and(|subscription| subscription.skips.is_some());
    partition.state.skipping_subscriptions -= u64::from(skips);
    partition.state.addresses.unbind(&queue.source, id);
    for fed in &queue.fed_by {
        partition.state.addresses.unbind(&fed.topic, id);
    }
    if let Some(name) = queue.subscription.as_ref().map(|subscription| &subscription.name) {
        let names = if id.is_volatile() {
            &mut partition.leader.volatile.subscriptions
        } else {
            &mut partition.state.subscriptions
        };
        names.remove(name);
    }
    for key in queue.consumers.iter().copied() {
        forget_reader(partition, key, &queue.source, effects);
    }
    if let Some(subscription) = queue.subscription.filter(|_| !id.is_volatile()) {
        announce_unsubscribed(&subscription, effects);
    }
    partition.state.leases.forget_queue(id);
    partition.state.lent.forget_queue(id);
    partition.leader.leasing.watches.end(id, &queue.source, effects);
    let_go(partition, id, queue.lanes, effects);
    partition.leader.intake.has_ended_queues = true;
}

#[cfg(test)]
mod tests {
    use postroad_model::{Encoding, Message, PartitionId, Placement, Protocol, Publish, Sent};

    use super::*;
    use crate::Settings;

    #[test]
    fn sends_that_wait_are_looked_at_once_however_many_queues_end() {
        const CLIENT: ConnectionId = ConnectionId::new(0, 1);
        let mut partition = Partition::new(Settings::at_rest(PartitionId(0), Placement::over(1), 0));
        let effects = &mut Vec::new();
        partition.start(effects);
        for number in 0..3 {
            let destination = Destination { temporary: true, ..Destination::queue(&format!("t{number}")) };
            let declare = Event::Declare { destination, connection: CLIENT, steals: None, ticket: Ticket(0) };
            partition.soft(declare, effects);
        }
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: false,
            priority: postroad_model::NORMAL_PRIORITY,
            expires_at_ms: 0,
            rare: None,
            bytes: bytes::Bytes::new(),
        };
        let to = Destination { temporary: true, ..Destination::queue("t0") };
        let publish = Publish::plain(CLIENT, Ticket(1), Sent::new(to, message));
        partition.leader.intake.parked.push(publish, None);
        let ids: Vec<QueueId> = partition.state.queues.values().map(|queue| queue.id).collect();
        assert_eq!(ids.len(), 3);
        for id in ids {
            delete_queue(&mut partition, id, effects);
            assert!(!partition.leader.intake.parked.is_empty());
        }
        partition.soft(Event::Closed { connection: ConnectionId::new(0, 2) }, effects);
        assert!(partition.leader.intake.parked.is_empty());
        assert!(!partition.leader.intake.has_ended_queues);
    }
}
