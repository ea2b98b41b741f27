//! Options: settings that clients give a queue, and requests that they make about it.

use std::sync::Arc;

use postroad_model::{
    Command, ConnectionId, Destination, DestinationKind, Effect, LeaseAnswer, LeaseEvent, QueueDescription,
    QueueOptions, Refusal, Ticket, Urgency,
};

use super::LeaseCounts;
use crate::Partition;
use crate::addresses::binding::propose_queue;
use crate::addresses::destination::check_owner;
use crate::intake::queue_quota;
use crate::leasing::clear::clear_queue;
use crate::leasing::handle::handle_entries;
use crate::leasing::post::begin_post;
use crate::leasing::reserve::{cancel_reserve, take_reserve};
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::{declare_queue, reply};
use crate::queue::Queue;
use crate::state::State;

/// The queue as its clients see it.
pub(super) fn description(queue: &Queue, counts: LeaseCounts) -> QueueDescription {
    QueueDescription {
        queue: queue.id,
        options: queue.options.as_deref().cloned(),
        length: queue.len(),
        leased: counts.leased,
        delayed: counts.delayed,
        held: queue.away.messages.saturating_sub(counts.leased + counts.delayed),
        total: queue.counts.all().enqueued,
    }
}

fn answer_lease(
    connection: ConnectionId,
    ticket: Ticket,
    answer: Result<LeaseAnswer, Refusal>,
    effects: &mut Vec<Effect>,
) {
    let result = answer.map(|answer| effects.push(Effect::Lease { connection, ticket, answer }));
    reply(connection, ticket, result, effects);
}

/// Names of lasting queues, in order.
fn names(state: &State, prefix: &str, after: &str, count_max: usize) -> Vec<Arc<str>> {
    let listed = state.addresses.listed.with_prefix(prefix, after);
    let queues = listed.filter_map(|(_, id)| state.queues.get(&id));
    let is_lasting = |queue: &&Queue| {
        queue.source.kind == DestinationKind::Queue && !queue.source.temporary && !queue.id.is_volatile()
    };
    queues.filter(is_lasting).map(|queue| queue.source.name.clone()).take(count_max).collect()
}

/// Lasting queues with options, in the order of their names.
fn configured(state: &State, after: &str, count_max: usize) -> Vec<(Arc<str>, QueueOptions)> {
    let with_options = state.queues.values().filter_map(|queue| {
        let options = queue.options.as_deref().filter(|_| !queue.id.is_volatile())?;
        (after < &*queue.source.name).then_some((&queue.source.name, options))
    });
    let mut found: Vec<_> = with_options.collect();
    found.sort_unstable_by_key(|(name, _)| *name);
    found.truncate(count_max);
    found.into_iter().map(|(name, options)| (name.clone(), options.clone())).collect()
}

fn describe(state: &State, name: &Destination) -> Result<QueueDescription, Refusal> {
    let found = state.addresses.own_queue(name).and_then(|id| state.queues.get(&id));
    let queue = found.ok_or_else(|| Refusal::NoSuchQueue(name.clone()))?;
    Ok(description(queue, state.leases.counts(queue.id)))
}

/// Whose request this is, if it does more with its queue than send to it.
fn user_of_queue(event: &LeaseEvent) -> Option<(&Destination, ConnectionId)> {
    let connection = match event {
        LeaseEvent::Reserve(reserve) => reserve.connection,
        LeaseEvent::Handle(handle) => handle.connection,
        LeaseEvent::Watch(watch) => watch.connection,
        LeaseEvent::Configure { connection, .. }
        | LeaseEvent::Describe { connection, .. }
        | LeaseEvent::Clear { connection, .. } => *connection,
        LeaseEvent::Post(_)
        | LeaseEvent::Cancel { .. }
        | LeaseEvent::List { .. }
        | LeaseEvent::Configured { .. } => return None,
    };
    event.queue().map(|queue| (queue, connection))
}

pub fn about_lease(partition: &mut Partition, event: LeaseEvent, effects: &mut Vec<Effect>) {
    if let Some((queue, connection)) = user_of_queue(&event)
        && let Err(refusal) = check_owner(&partition.state, queue, connection)
    {
        return reply(connection, event.ticket(), Err(refusal), effects);
    }
    match event {
        LeaseEvent::Post(post) => begin_post(partition, post, effects),
        LeaseEvent::Reserve(reserve) => take_reserve(partition, reserve, effects),
        LeaseEvent::Handle(handle) => handle_entries(partition, handle, effects),
        LeaseEvent::Watch(watch) => {
            let id = partition.state.addresses.own_queue(&watch.queue);
            partition.leader.leasing.watches.begin(watch, id, &mut partition.state, effects);
        }
        LeaseEvent::Cancel { queue, connection, ticket } => {
            let id = partition.state.addresses.own_queue(&queue);
            partition.leader.leasing.watches.cancel(id, connection, ticket);
            cancel_reserve(partition, &queue, connection, ticket, effects);
        }
        LeaseEvent::Configure { queue, options, connection, ticket } => {
            configure_queue(partition, queue, options, (connection, ticket), effects);
        }
        LeaseEvent::Describe { queue, connection, ticket } => {
            let result = describe(&partition.state, &queue);
            let answer = result.map(|description| LeaseAnswer::Described(Box::new(description)));
            answer_lease(connection, ticket, answer, effects);
        }
        LeaseEvent::List { prefix, after, count_max, connection, ticket } => {
            let names = LeaseAnswer::Listed(names(&partition.state, &prefix, &after, count_max as usize));
            answer_lease(connection, ticket, Ok(names), effects);
        }
        LeaseEvent::Configured { after, count_max, connection, ticket } => {
            let found = LeaseAnswer::Configured(configured(&partition.state, &after, count_max as usize));
            answer_lease(connection, ticket, Ok(found), effects);
        }
        LeaseEvent::Clear { queue, connection, ticket } => {
            clear_queue(partition, &queue, (connection, ticket), effects);
        }
    }
}

fn configure_queue(
    partition: &mut Partition,
    queue: Destination,
    options: QueueOptions,
    (connection, ticket): (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    if partition.state.addresses.own_queue(&queue).is_none() {
        if let Err(refusal) = queue_quota::check_queue(partition, &queue) {
            return reply(connection, ticket, Err(refusal), effects);
        }
        // The topics that feed it go into the log with it.
        propose_queue(partition, queue.clone(), None, Completion::Nothing, effects);
    }
    let command = Command::Configure { queue, options };
    let completion = Completion::Reply { connection, ticket };
    propose(partition, command, Urgency::Waiting, completion, effects);
}

pub fn apply_configure(partition: &mut Partition, queue: &Destination, options: QueueOptions) {
    let id = declare_queue(partition, queue);
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.options = Some(Box::new(options));
    }
}
