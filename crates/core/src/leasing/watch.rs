//! Watches: clients that wait until a queue has reached a length.
//!
//! A queue that is watched notes each change of its length. When the event or record that changed
//! it is done with, the watches of these queues are compared with the length, so that a queue
//! without watches costs nothing.

use std::collections::BTreeMap;

use postroad_model::{ConnectionId, Destination, Effect, LeaseAnswer, QueueId, Refusal, Ticket, Watch};

use super::options::description;
use crate::state::State;

/// Watches of one partition: each costs some 100 bytes.
const WATCHES_MAX: usize = 4096;

/// The watches of a partition.
#[derive(Default)]
pub struct Watches {
    watches: BTreeMap<(QueueId, ConnectionId, Ticket), Bounds>,
    /// Queues whose lengths have changed since they were last compared.
    changed: Vec<QueueId>,
}

/// The lengths that a watch waits for.
#[derive(Clone, Copy)]
struct Bounds {
    rises_to: Option<u64>,
    falls_to: Option<u64>,
}

impl Bounds {
    fn are_reached_by(self, length: u64) -> bool {
        self.rises_to.is_some_and(|bound| bound <= length)
            || self.falls_to.is_some_and(|bound| length <= bound)
    }
}

impl Watches {
    /// The length of this queue has changed.
    pub fn note(&mut self, queue: QueueId) {
        if self.changed.last() != Some(&queue) {
            self.changed.push(queue);
        }
    }

    /// The client does not wait any more.
    pub(super) fn cancel(&mut self, queue: Option<QueueId>, connection: ConnectionId, ticket: Ticket) {
        if let Some(queue) = queue {
            self.watches.remove(&(queue, connection, ticket));
        }
    }

    /// The connection has ended.
    pub fn forget_those_of(&mut self, connection: ConnectionId) {
        self.watches.retain(|(_, of, _), _| *of != connection);
    }

    /// The requests that wait.
    pub(super) fn waiters(&self) -> impl Iterator<Item = (ConnectionId, Ticket)> {
        self.watches.keys().map(|(_, connection, ticket)| (*connection, *ticket))
    }

    fn of(&self, queue: QueueId) -> impl Iterator<Item = (ConnectionId, Ticket, Bounds)> {
        let first = (queue, ConnectionId::new(0, 0), Ticket(0));
        let last = (queue, ConnectionId::new(u16::MAX, u64::MAX), Ticket(u64::MAX));
        let range = self.watches.range(first..=last);
        range.map(|((_, connection, ticket), bounds)| (*connection, *ticket, *bounds))
    }

    /// Waits for the length of a queue; `id` if it exists.
    pub(super) fn begin(
        &mut self,
        watch: Watch,
        id: Option<QueueId>,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) {
        let Watch { connection, ticket, queue, rises_to, falls_to } = watch;
        let Some(found) = id.and_then(|id| state.queues.get_mut(&id)) else {
            return reply(connection, ticket, Err(Refusal::NoSuchQueue(queue)), effects);
        };
        if WATCHES_MAX <= self.watches.len() {
            let refusal = Refusal::TooManyWaiting { queue, max: WATCHES_MAX };
            return reply(connection, ticket, Err(refusal), effects);
        }
        self.watches.insert((found.id, connection, ticket), Bounds { rises_to, falls_to });
        found.requests.is_watched = true;
        // It may have been reached already.
        self.note(found.id);
    }

    /// Answers the watches of queues whose lengths have changed, if they have reached a bound.
    pub fn answer(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        if self.changed.is_empty() {
            return;
        }
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        for id in changed {
            let Some(queue) = state.queues.get_mut(&id) else { continue };
            let length = queue.len();
            let (mut waits, mut reached) = (false, Vec::new());
            for (connection, ticket, bounds) in self.of(id) {
                match bounds.are_reached_by(length) {
                    true => reached.push((connection, ticket)),
                    false => waits = true,
                }
            }
            queue.requests.is_watched = waits;
            for (connection, ticket) in reached {
                self.watches.remove(&(id, connection, ticket));
                let about = description(queue, state.leases.counts(id));
                let answer = LeaseAnswer::Described(Box::new(about));
                effects.push(Effect::Lease { connection, ticket, answer });
                reply(connection, ticket, Ok(()), effects);
            }
        }
    }

    /// The queue has ended: its watches are refused.
    pub fn end(&mut self, id: QueueId, queue: &Destination, effects: &mut Vec<Effect>) {
        let waiting: Vec<_> = self.of(id).collect();
        for (connection, ticket, _) in waiting {
            self.watches.remove(&(id, connection, ticket));
            reply(connection, ticket, Err(Refusal::NoSuchQueue(queue.clone())), effects);
        }
    }
}

fn reply(connection: ConnectionId, ticket: Ticket, result: Result<(), Refusal>, effects: &mut Vec<Effect>) {
    effects.push(Effect::Reply { connection, ticket, result });
}
