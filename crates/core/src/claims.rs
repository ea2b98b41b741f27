//! Claims: exclusive names (client ids), each held by one connection.
//!
//! A client that reconnects claims its name again with the same holder. The new claim is granted
//! only when the broker has finished with the former connection: when all its input is applied in
//! every partition, so that a message sent again over the new connection is found in the audit, and
//! no later send overtakes an earlier one.
//!
//! ```text
//!   held ──closed──▶ ending ──concluded, or time is up──▶ free, or held by the waiting connection
//!     └──claimed again by its holder: evicted, and the new connection waits──▶ ending
//! ```
//!
//! Never here: who may connect, the meaning of a name.

use std::collections::VecDeque;
use std::sync::Arc;

use postroad_model::{ConnectionId, Effect, Event, LookupMap, Refusal, Ticket};

use crate::connection::Connections;

/// A name is free this time after its connection was evicted or ended, whatever has become of that:
/// somewhat longer than a connection waits for the partitions to finish with it.
pub const CLAIM_WAIT_MS: u64 = 15_000;

/// See the head of this file.
#[derive(Default)]
pub struct Claims {
    by_name: LookupMap<Arc<str>, Claim>,
    /// Names whose connections are ending, by the time at which they are free.
    ending: VecDeque<(u64, Arc<str>, ConnectionId)>,
}

struct Claim {
    holder: Holder,
    connection: ConnectionId,
    /// It has closed, or given the name up; the partitions may not have finished with it.
    is_ending: bool,
    waiting: Option<WaitingClaim>,
}

/// Who claims a name. Another user is another holder, whatever it calls itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    /// Empty for the anonymous user.
    pub user: Arc<str>,
    /// The client's own name.
    pub name: Arc<str>,
}

struct WaitingClaim {
    holder: Holder,
    connection: ConnectionId,
    ticket: Ticket,
}

/// The result of a claim.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Granted,
    /// It waits for the end of the name's connection; this connection is evicted.
    Waits {
        evicted: Option<ConnectionId>,
    },
    Taken {
        holder: Arc<str>,
    },
}

impl Claims {
    /// Takes a request about names, or the end of a connection's input.
    pub fn handle(
        &mut self,
        event: Event,
        (connections, now_ms): (&mut Connections, u64),
        effects: &mut Vec<Effect>,
    ) {
        match event {
            Event::Claim { name, user, holder, connection, ticket } => {
                let until_ms = now_ms.saturating_add(CLAIM_WAIT_MS);
                let holder = Holder { user, name: holder };
                let outcome = self.claim(&name, holder, connection, ticket, until_ms);
                answer_claim(outcome, name, (connections, connection, ticket), effects);
            }
            Event::Disclaim { name, connection, ticket } => {
                self.disclaim(&name, connection);
                if let Some(connection) = connections.get_mut(&connection) {
                    connection.claims.remove(&name);
                }
                effects.push(Effect::Reply { connection, ticket, result: Ok(()) });
            }
            Event::Concluded { name, connection } => {
                self.grant_next(&name, connection, effects);
                self.forget_freed();
            }
            _ => {}
        }
    }

    /// The connection has closed: its name stays taken until the broker has finished with its
    /// input.
    pub fn close(&mut self, name: &Arc<str>, connection: ConnectionId, now_ms: u64) {
        let Some(claim) = self.by_name.get_mut(name) else { return };
        if claim.connection == connection {
            claim.is_ending = true;
            self.ending.push_back((now_ms.saturating_add(CLAIM_WAIT_MS), name.clone(), connection));
        } else if claim.is_awaited_by(connection) {
            claim.waiting = None;
        }
    }

    /// Names whose connections have not been concluded in time are free all the same.
    pub fn free_overdue(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        while let Some((name, connection)) = self.take_overdue(now_ms) {
            self.grant_next(&name, connection, effects);
        }
    }

    fn grant_next(&mut self, name: &Arc<str>, connection: ConnectionId, effects: &mut Vec<Effect>) {
        if let Some((connection, ticket)) = self.free(name, connection) {
            effects.push(Effect::Reply { connection, ticket, result: Ok(()) });
        }
    }

    fn claim(
        &mut self,
        name: &Arc<str>,
        holder: Holder,
        connection: ConnectionId,
        ticket: Ticket,
        until_ms: u64,
    ) -> Outcome {
        let Some(claim) = self.by_name.get_mut(name) else {
            self.by_name.insert(name.clone(), Claim::of(holder, connection));
            return Outcome::Granted;
        };
        let waiting = WaitingClaim { holder: holder.clone(), connection, ticket };
        match &claim.waiting {
            Some(ahead) if ahead.holder != holder => Outcome::Taken { holder: ahead.holder.name.clone() },
            Some(ahead) => {
                let evicted = Some(ahead.connection).filter(|ahead| *ahead != connection);
                claim.waiting = Some(waiting);
                Outcome::Waits { evicted }
            }
            None if claim.is_ending => {
                claim.waiting = Some(waiting);
                Outcome::Waits { evicted: None }
            }
            None if claim.holder != holder => Outcome::Taken { holder: claim.holder.name.clone() },
            None if claim.connection == connection => Outcome::Granted,
            None => {
                let evicted = claim.connection;
                claim.waiting = Some(waiting);
                self.ending.push_back((until_ms, name.clone(), evicted));
                Outcome::Waits { evicted: Some(evicted) }
            }
        }
    }

    /// The connection gives the name up, and goes on. A waiting claim waits for the connection's
    /// end.
    fn disclaim(&mut self, name: &Arc<str>, connection: ConnectionId) {
        let Some(claim) = self.by_name.get_mut(name) else { return };
        if claim.connection == connection {
            match claim.waiting {
                Some(_) => claim.is_ending = true,
                None => drop(self.by_name.remove(name)),
            }
        } else if claim.is_awaited_by(connection) {
            claim.waiting = None;
        }
    }

    /// The broker has finished with the connection: the name is free. Returns who waited for it,
    /// and has it now.
    fn free(&mut self, name: &Arc<str>, connection: ConnectionId) -> Option<(ConnectionId, Ticket)> {
        let claim = self.by_name.get_mut(name).filter(|claim| claim.connection == connection)?;
        match claim.waiting.take() {
            Some(WaitingClaim { holder, connection, ticket }) => {
                *claim = Claim::of(holder, connection);
                Some((connection, ticket))
            }
            None => {
                self.by_name.remove(name);
                None
            }
        }
    }

    /// The next name that has waited for long enough.
    fn take_overdue(&mut self, now_ms: u64) -> Option<(Arc<str>, ConnectionId)> {
        let (_, name, connection) = self.ending.pop_front_if(|(until_ms, ..)| *until_ms <= now_ms)?;
        Some((name, connection))
    }

    /// The request of this connection that waits for the name.
    pub fn waiter(&self, name: &Arc<str>, connection: ConnectionId) -> Option<(ConnectionId, Ticket)> {
        let waiting = self.by_name.get(name)?.waiting.as_ref()?;
        (waiting.connection == connection).then_some((connection, waiting.ticket))
    }

    /// The time at which a name is freed at the latest.
    pub fn next_ms(&self) -> Option<u64> {
        self.ending.front().map(|(until_ms, ..)| *until_ms)
    }

    /// Forgets the deadlines of names that are free, as far as nothing is before them.
    fn forget_freed(&mut self) {
        while let Some((_, name, connection)) = self.ending.front()
            && self.by_name.get(name).is_none_or(|claim| claim.connection != *connection)
        {
            self.ending.pop_front();
        }
    }
}

impl Claim {
    fn of(holder: Holder, connection: ConnectionId) -> Claim {
        Claim { holder, connection, is_ending: false, waiting: None }
    }

    fn is_awaited_by(&self, connection: ConnectionId) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.connection == connection)
    }
}

/// Gives an exclusive name to a connection; another connection of the same holder is evicted first.
fn answer_claim(
    outcome: Outcome,
    name: Arc<str>,
    (connections, connection, ticket): (&mut Connections, ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    if let Outcome::Taken { holder } = outcome {
        let result = Err(Refusal::NameTaken { name, holder });
        return effects.push(Effect::Reply { connection, ticket, result });
    }
    connections.get_or_make(connection).claims.insert(name);
    match outcome {
        Outcome::Waits { evicted } => {
            effects.extend(evicted.map(|connection| Effect::Evict { connection }));
        }
        _ => effects.push(Effect::Reply { connection, ticket, result: Ok(()) }),
    }
}
