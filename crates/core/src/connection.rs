//! Connections: the room in their outboxes, and their end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use postroad_model::{
    ClientNotice, ConnectionId, ConsumerKey, Delivered, Destination, Effect, LinkName, Notice,
    ProducerNotice, TransactionId, TransactionKey,
};

use crate::Partition;
use crate::transaction::{Coordinated, end_leaving, give_up};

/// State that this partition keeps for one connection.
#[derive(Default)]
pub struct Connection {
    /// Its consumers.
    pub consumers: BTreeSet<ConsumerKey>,
    /// Its open transactions.
    pub transactions: BTreeSet<TransactionKey>,
    /// Links of its that are remembered.
    pub links: BTreeSet<Arc<LinkName>>,
    /// Its temporary destinations, each with the key by which a reconnected client may take it
    /// over.
    pub temporary: BTreeMap<Destination, Option<Arc<str>>>,
    /// Its exclusive names, and those that it waits for.
    pub claims: BTreeSet<Arc<str>>,
    /// Its transactions over several partitions that this one coordinates.
    pub coordinated: BTreeSet<TransactionId>,
    /// The client that advisories report for this connection.
    pub client: Option<Arc<ClientNotice>>,
    /// Its producers that advisories report, by name and address.
    pub producers: BTreeMap<(Arc<str>, Destination), Arc<ProducerNotice>>,
    /// Consumers that the broker has force-detached, the latest of them: later acknowledgements by
    /// their client are refused.
    pub force_detached: BTreeSet<ConsumerKey>,
    /// Possible resends of its client that wait until the proposals ahead of them have completed.
    pub resends: u32,
    /// One such resend has waited: all proposals made before the connection came have completed.
    pub resent: bool,
    /// Number of proposals made when it last sent a message through the log because of one of
    /// several addresses: see `follows_the_log`.
    pub barrier_proposal: u64,
    /// Number of proposals made when it last sent a message through the log.
    pub sends: u64,
    /// Consumers whose queues have left for another partition, and that do not know yet; each with
    /// its credit.
    pub departed: BTreeMap<ConsumerKey, u32>,
    /// Bytes of deliveries that wait in its outbox.
    pub unwritten_bytes: u64,
}

/// Far more consumers than end while a word of their client is on its way.
const FORCE_DETACHED_MAX: usize = 1024;

impl Connection {
    /// The broker has ended this consumer.
    pub fn note_force_detached(&mut self, consumer: ConsumerKey) {
        if self.force_detached.len() == FORCE_DETACHED_MAX {
            // Their numbers rise.
            self.force_detached.pop_first();
        }
        self.force_detached.insert(consumer);
    }
}

/// The latest connections that have ended here. A coordinator's request about any other connection
/// may arrive before the client's own events.
#[derive(Default)]
pub struct Ended {
    latest: VecDeque<ConnectionId>,
    /// Echoes of connections that have ended, behind transactions that this partition still
    /// coordinates for them.
    pub coordinated: Coordinated,
}

/// Far more than end while a word is on its way from one partition to another.
const ENDED_MAX: usize = 1024;

impl Ended {
    fn push(&mut self, connection: ConnectionId) {
        if self.latest.len() == ENDED_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(connection);
    }
}

impl Partition {
    /// Whether nothing more will come of the connection.
    pub(crate) fn has_ended(&self, connection: ConnectionId) -> bool {
        connection.is_internal() || self.leader.ended.latest.contains(&connection)
    }

    /// The outbox has room again: consumers that waited for it get back into their lines.
    pub(crate) fn written(&mut self, id: ConnectionId, bytes: u64, effects: &mut Vec<Effect>) {
        let was_full = self.outbox_is_full(id);
        let Some(connection) = self.leader.connections.get_mut(&id) else { return };
        connection.unwritten_bytes = connection.unwritten_bytes.saturating_sub(bytes);
        if was_full {
            for key in connection.consumers.clone() {
                self.serve_again(key, effects);
            }
        }
    }

    fn serve_again(&mut self, key: ConsumerKey, effects: &mut Vec<Effect>) {
        for reader in self.readers_of(key) {
            self.line_up(reader);
            if let Some(id) = self.leader.delivery.consumers.get(&reader).map(|consumer| consumer.queue) {
                self.dispatch(id, effects);
            }
        }
    }

    pub(crate) fn outbox_is_full(&self, id: ConnectionId) -> bool {
        let unwritten = self.leader.connections.get(&id).map_or(0, |connection| connection.unwritten_bytes);
        unwritten >= self.settings.outbox_bytes_max
    }

    pub(crate) fn closed(&mut self, id: ConnectionId, effects: &mut Vec<Effect>) {
        self.leader.ended.push(id);
        self.abandon_all(id, effects);
        let staying = self.parked_for_queues(id);
        self.forget_parked(id, |parked| !staying.contains(&parked.number()), effects);
        self.leader.settling.redrives.forget_those_of(id);
        self.leader.leasing.watches.forget_those_of(id);
        self.leader.moves.forget_those_of(id);
        self.undo_branches_of(id, effects);
        self.leader.intake.waiting.forget_consumers_of(id);
        let Some(connection) = self.leader.connections.get(&id) else { return self.unpark(effects) };
        let (transactions, consumers) = (connection.transactions.clone(), connection.consumers.clone());
        // Messages that one of them gives back must not go to another of them.
        for key in &consumers {
            self.stop_serving(*key);
        }
        // Nothing is dispatched before all messages are back, not even waiting sends that have room
        // now: otherwise a later message could overtake an earlier one.
        let parked = std::mem::take(&mut self.leader.intake.parked);
        let mut touched = Vec::new();
        for transaction in transactions {
            if let Some(open) = self.take_open(transaction) {
                touched.extend(give_up(self, open, effects));
            }
        }
        for key in consumers {
            touched.extend(self.remove_consumer(key, Delivered::All, effects));
        }
        self.leader.intake.parked = parked;
        touched.extend(end_leaving(self, id));
        self.dispatch_all(touched, effects);
        let Some(connection) = self.leader.connections.remove(&id) else { return };
        self.leader.ended.coordinated.close(id, connection.coordinated);
        for link in &connection.links {
            self.leave_link(link, id, true, effects);
        }
        for producer in connection.producers.into_values() {
            self.announce(Notice::Producer { producer, present: false }, effects);
        }
        for destination in connection.temporary.into_keys() {
            self.delete_address(&destination, effects);
        }
        for name in connection.claims {
            self.close_claim(&name, id);
        }
        if let Some(client) = connection.client {
            self.announce(Notice::Connection { client, present: false }, effects);
        }
        // Whatever waited behind its sends need not any more.
        self.unpark(effects);
    }

    pub(crate) fn stop_serving(&mut self, key: ConsumerKey) {
        if let Some(spread) = self.leader.delivery.spreads.get_mut(&key) {
            spread.credit = 0;
        }
        for reader in self.readers_of(key) {
            self.leave_line(reader);
            if let Some(consumer) = self.leader.delivery.consumers.get_mut(&reader) {
                consumer.credit = 0;
            }
        }
    }
}
