//! Connections: the room in their outboxes. Their end is in `leaving`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use postroad_model::{
    ClientNotice, ConnectionId, ConsumerKey, Destination, Effect, LinkName, ProducerNotice, TransactionId,
    TransactionKey,
};
use rustc_hash::FxBuildHasher;

use crate::Partition;
use crate::delivery::dispatch::dispatch;
use crate::delivery::line::line_up;
use crate::delivery::spread::readers_of;
use crate::leader::Leader;
use crate::settings::Settings;
use crate::transaction::{Coordinated, Returning};

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
    /// Number of proposals made when it last accepted a delivery without asking for a response.
    pub accepts: u64,
    /// Consumers whose queues have left for another partition, and that do not know yet; each with
    /// its credit.
    pub departed: BTreeMap<ConsumerKey, u32>,
    /// Bytes of deliveries that wait in its outbox.
    pub unwritten_bytes: u64,
    /// Nothing more comes of it, and nothing more goes to it: the queues that have its entries back
    /// when it has left. See `leaving`.
    pub ended: Option<Returning>,
}

/// Connections that have sent something.
#[derive(Default)]
pub struct Connections {
    /// Each is a box, as a table that grows moves all of its entries at once.
    by_id: HashMap<ConnectionId, Box<Connection>, FxBuildHasher>,
    /// The same, in order.
    ids: BTreeSet<ConnectionId>,
}

impl Connections {
    /// The connection.
    pub fn get(&self, id: &ConnectionId) -> Option<&Connection> {
        self.by_id.get(id).map(AsRef::as_ref)
    }

    /// The connection, to change it.
    pub fn get_mut(&mut self, id: &ConnectionId) -> Option<&mut Connection> {
        self.by_id.get_mut(id).map(AsMut::as_mut)
    }

    /// The connection, which is new if it has sent nothing yet.
    pub fn get_or_make(&mut self, id: ConnectionId) -> &mut Connection {
        let Connections { by_id, ids } = self;
        by_id.entry(id).or_insert_with(|| {
            ids.insert(id);
            Box::default()
        })
    }

    /// Nothing more comes of it.
    pub fn remove(&mut self, id: &ConnectionId) -> Option<Connection> {
        self.ids.remove(id);
        self.by_id.remove(id).map(|connection| *connection)
    }

    /// From this one on, in order.
    pub fn from(&self, first: ConnectionId) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.ids.range(first..).filter_map(|id| Some((*id, self.get(id)?)))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.ids.iter().filter_map(|id| Some((*id, self.get(id)?)))
    }
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
    /// Nothing more will come of the connection.
    pub fn push(&mut self, connection: ConnectionId) {
        if self.latest.len() == ENDED_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(connection);
    }

    /// Whether nothing more will come of the connection.
    pub fn has_ended(&self, connection: ConnectionId) -> bool {
        connection.is_internal() || self.latest.contains(&connection)
    }
}

/// Whether the connection can be sent nothing now: its outbox is full, or it has ended.
pub fn outbox_is_full(leader: &Leader, settings: &Settings, id: ConnectionId) -> bool {
    let bytes_max = settings.outbox_bytes_max;
    let is_full =
        |connection: &Connection| connection.ended.is_some() || bytes_max <= connection.unwritten_bytes;
    leader.connections.get(&id).map_or(bytes_max == 0, is_full)
}

/// The outbox has room again: consumers that waited for it get back into their lines.
pub fn note_written(partition: &mut Partition, id: ConnectionId, bytes: u64, effects: &mut Vec<Effect>) {
    let was_full = outbox_is_full(&partition.leader, &partition.settings, id);
    let Some(connection) = partition.leader.connections.get_mut(&id) else { return };
    connection.unwritten_bytes = connection.unwritten_bytes.saturating_sub(bytes);
    if was_full && connection.ended.is_none() {
        for key in connection.consumers.clone() {
            serve_again(partition, key, effects);
        }
    }
}

fn serve_again(partition: &mut Partition, key: ConsumerKey, effects: &mut Vec<Effect>) {
    for reader in readers_of(&partition.leader, key) {
        line_up(&mut partition.state, &mut partition.leader, &partition.settings, reader);
        if let Some(id) = partition.leader.delivery.consumers.get(&reader).map(|consumer| consumer.queue) {
            dispatch(partition, id, effects);
        }
    }
}
