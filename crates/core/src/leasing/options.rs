//! Options: settings that clients give a queue, and requests that they make about it.

use std::sync::Arc;

use postroad_model::{
    Command, ConnectionId, Destination, DestinationKind, Effect, LeaseAnswer, LeaseEvent, QueueDescription,
    QueueOptions, Refusal, SettleCause, Ticket, Urgency,
};

use super::LeaseCounts;
use crate::Partition;
use crate::intake::queue_quota;
use crate::log::completion::Completion;
use crate::partition::reply;
use crate::queue::{EntryState, Queue};
use crate::state::State;

/// Entries that one clear deletes in one record; more are deleted in further ones.
const CLEARED_MAX: usize = 4096;

impl Partition {
    pub(crate) fn about_lease(&mut self, event: LeaseEvent, effects: &mut Vec<Effect>) {
        match event {
            LeaseEvent::Post(post) => self.post(post, effects),
            LeaseEvent::Reserve(reserve) => self.reserve(reserve, effects),
            LeaseEvent::Handle(handle) => self.handle_entries(handle, effects),
            LeaseEvent::Watch(watch) => {
                let id = self.state.addresses.own_queue(&watch.queue);
                self.leader.leasing.watches.begin(watch, id, &mut self.state, effects);
            }
            LeaseEvent::Cancel { queue, connection, ticket } => {
                let id = self.state.addresses.own_queue(&queue);
                self.leader.leasing.watches.cancel(id, connection, ticket);
                self.cancel_reserve(&queue, connection, ticket, effects);
            }
            LeaseEvent::Configure { queue, options, connection, ticket } => {
                self.configure(queue, options, (connection, ticket), effects);
            }
            LeaseEvent::Describe { queue, connection, ticket } => {
                let result = describe(&self.state, &queue);
                let answer = result.map(|description| LeaseAnswer::Described(Box::new(description)));
                answer_lease(connection, ticket, answer, effects);
            }
            LeaseEvent::List { prefix, after, count_max, connection, ticket } => {
                let names = LeaseAnswer::Listed(names(&self.state, &prefix, &after, count_max as usize));
                answer_lease(connection, ticket, Ok(names), effects);
            }
            LeaseEvent::Configured { after, count_max, connection, ticket } => {
                let found = LeaseAnswer::Configured(configured(&self.state, &after, count_max as usize));
                answer_lease(connection, ticket, Ok(found), effects);
            }
            LeaseEvent::Clear { queue, connection, ticket } => {
                self.clear(&queue, (connection, ticket), effects);
            }
        }
    }

    fn configure(
        &mut self,
        queue: Destination,
        options: QueueOptions,
        (connection, ticket): (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        if self.state.addresses.own_queue(&queue).is_none() {
            if let Err(refusal) = queue_quota::check_queue(self, &queue) {
                return reply(connection, ticket, Err(refusal), effects);
            }
            // The topics that feed it go into the log with it.
            self.propose_queue(queue.clone(), None, Completion::Nothing, effects);
        }
        let command = Command::Configure { queue, options };
        let completion = Completion::Reply { connection, ticket };
        self.propose(command, Urgency::Waiting, completion, effects);
    }

    pub(crate) fn apply_configure(&mut self, queue: &Destination, options: QueueOptions) {
        let id = self.declare_queue(queue);
        if let Some(queue) = self.state.queues.get_mut(&id) {
            queue.options = Some(Box::new(options));
        }
    }

    /// Deletes all entries that are not held; answered once that is durable.
    fn clear(
        &mut self,
        name: &Destination,
        (connection, ticket): (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        let Some(id) = self.state.addresses.own_queue(name) else {
            let refusal = Refusal::NoSuchQueue(name.clone());
            return reply(connection, ticket, Err(refusal), effects);
        };
        let mut settlements = Vec::new();
        let mut cursor = std::collections::BTreeMap::new();
        while let Some(tag) = self.state.queues.get(&id).and_then(|queue| {
            queue.next_visible(|lane| {
                let from: u64 = cursor.get(&lane.0).copied().unwrap_or(0);
                from..u64::MAX
            })
        }) {
            let (lane, sequence) = crate::queue::untag(tag);
            cursor.insert(lane, sequence + 1);
            let state = self.entry(id, tag).map(|entry| entry.state);
            if !matches!(state, Some(EntryState::Ready | EntryState::Resting | EntryState::Leased)) {
                continue;
            }
            settlements.extend(self.leave(id, &[tag], SettleCause::Consumed, effects));
        }
        while CLEARED_MAX < settlements.len() {
            let settlements: Vec<_> = settlements.drain(..CLEARED_MAX).collect();
            let command = Command::Settle(settlements.clone());
            let completion = Completion::Settled { settlements, answer: None };
            self.propose(command, Urgency::Waiting, completion, effects);
        }
        self.settle_leaving(settlements, Some((connection, ticket)), effects);
    }
}

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
