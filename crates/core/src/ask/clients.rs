//! Rows about clients, connection by connection: connections, consumers, sessions and producers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use postroad_model::{
    Ask, ConnectionId, ConnectionRow, ConsumerKey, Destination, ProducerNotice, ProducerRow, Row, SessionRow,
};

use super::queues::row_of_consumer;
use super::{Step, Walk};
use crate::Partition;
use crate::connection::Connection;
use crate::delivery::spread::{next_consumer, next_reader};

const FIRST: ConnectionId = ConnectionId::new(0, 0);

/// The connection with which a list by connections goes on behind its cursor.
fn first_of(ask: &Ask) -> ConnectionId {
    let after = ask.after.as_ref().filter(|_| ask.order.by.is_none());
    after.and_then(|after| ConnectionId::of_list_key(&after.name)).unwrap_or(FIRST)
}

/// Whether rows of this connection and later ones do not belong to the page.
fn ends_before(step: &Step<'_>, id: ConnectionId) -> bool {
    step.is_by_name() && step.page.has_more() && step.page.ends_before(&id.list_key())
}

/// All connections of clients.
pub struct Connections {
    next: ConnectionId,
}

impl Default for Connections {
    fn default() -> Connections {
        Connections { next: FIRST }
    }
}

impl Walk for Connections {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        for (id, connection) in partition.leader.connections.from(self.next) {
            if !step.look() {
                self.next = id;
                return false;
            }
            if !id.is_internal() {
                step.add(row_of_connection(id, connection));
            }
        }
        true
    }
}

fn row_of_connection(id: ConnectionId, connection: &Connection) -> Row {
    let client = connection.client.as_deref();
    let text = |text: Option<&Arc<str>>| text.cloned().unwrap_or_default();
    Row::Connection(ConnectionRow {
        connection: id,
        name: text(client.map(|client| &client.name)),
        client_id: text(client.map(|client| &client.client_id)),
        user: client.and_then(|client| client.user.clone()),
        consumers: connection.consumers.len() as u64,
        transactions: connection.transactions.len() as u64,
        unwritten_bytes: connection.unwritten_bytes,
    })
}

/// Consumers, and each member of consumers of patterns.
pub struct Consumers {
    connection: ConnectionId,
    after: Option<ConsumerKey>,
}

impl Default for Consumers {
    fn default() -> Consumers {
        Consumers { connection: FIRST, after: None }
    }
}

impl Walk for Consumers {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        for (id, connection) in partition.leader.connections.from(self.connection) {
            if id != self.connection {
                (self.connection, self.after) = (id, None);
            }
            if !step.look() {
                return false;
            }
            while let Some(key) = next_reader(&partition.leader, connection, self.after) {
                if !step.look() {
                    return false;
                }
                let consumer = partition.leader.delivery.consumers.get(&key);
                let row = consumer
                    .and_then(|consumer| row_of_consumer(&partition.state, &partition.leader, key, consumer));
                row.into_iter().for_each(|row| step.add(row));
                self.after = Some(key);
            }
        }
        true
    }
}

/// Sessions, whose consumers and producers are added up connection by connection.
pub struct Sessions {
    name_part: Arc<str>,
    connection: ConnectionId,
    at: At,
    sums: BTreeMap<Arc<str>, SessionRow>,
}

/// The next part of a connection.
enum At {
    Consumer { after: Option<ConsumerKey> },
    Producer { after: Option<(Arc<str>, Destination)> },
    Sum,
}

impl Sessions {
    pub fn new(name_part: &Arc<str>, ask: &Ask) -> Sessions {
        let at = At::Consumer { after: None };
        Sessions { name_part: name_part.clone(), connection: first_of(ask), at, sums: BTreeMap::new() }
    }

    /// The session of a consumer or producer of this name.
    fn session_of(&mut self, name: &str) -> Option<&mut SessionRow> {
        let (session, _) = name.rsplit_once(':')?;
        let name: Arc<str> = session.into();
        let connection = self.connection;
        let new =
            || SessionRow { connection, name: name.clone(), consumers: 0, producers: 0, credit: 0, held: 0 };
        Some(self.sums.entry(name.clone()).or_insert_with(new))
    }

    fn add_consumer(&mut self, partition: &Partition, key: ConsumerKey) {
        let Some(consumer) = partition.leader.delivery.consumers.get(&key) else { return };
        let Some(session) = consumer.notice.as_ref().and_then(|notice| self.session_of(&notice.name)) else {
            return;
        };
        session.consumers += 1;
        session.credit += u64::from(consumer.credit);
        session.held += consumer.held.len() as u64;
    }

    /// Whether that was all of this connection.
    fn add_up(&mut self, partition: &Partition, connection: &Connection, step: &mut Step<'_>) -> bool {
        while step.look() {
            match &self.at {
                At::Consumer { after } => match next_consumer(connection, *after) {
                    Some(key) => {
                        self.add_consumer(partition, key);
                        self.at = At::Consumer { after: Some(key) };
                    }
                    None => self.at = At::Producer { after: None },
                },
                At::Producer { after } => match next_producer(connection, after.as_ref()) {
                    Some((key, producer)) => {
                        self.session_of(&producer.name)
                            .into_iter()
                            .for_each(|session| session.producers += 1);
                        self.at = At::Producer { after: Some(key.clone()) };
                    }
                    None => self.at = At::Sum,
                },
                At::Sum => match self.sums.pop_first() {
                    Some((name, session)) if name.contains(&*self.name_part) => {
                        step.add(Row::Session(session))
                    }
                    Some(_) => {}
                    None => {
                        self.at = At::Consumer { after: None };
                        return true;
                    }
                },
            }
        }
        false
    }
}

impl Walk for Sessions {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        for (id, connection) in partition.leader.connections.from(self.connection) {
            if id != self.connection {
                // The one before may have ended before its sessions were added up.
                (self.connection, self.at, self.sums) = (id, At::Consumer { after: None }, BTreeMap::new());
            }
            if ends_before(step, id) {
                return true;
            }
            if !step.look() || !id.is_internal() && !self.add_up(partition, connection, step) {
                return false;
            }
        }
        true
    }
}

type ProducerKey = (Arc<str>, Destination);

fn next_producer<'c>(
    connection: &'c Connection,
    after: Option<&ProducerKey>,
) -> Option<(&'c ProducerKey, &'c Arc<ProducerNotice>)> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    connection.producers.range::<ProducerKey, _>((from, Bound::Unbounded)).next()
}

/// Producers, at each of their addresses.
pub struct Producers {
    name_part: Arc<str>,
    of: Option<Destination>,
    /// Connections before this one are only counted.
    first: ConnectionId,
    connection: ConnectionId,
    after: Option<ProducerKey>,
    /// Producers of the connections that were passed, if all are wanted.
    passed: Option<u64>,
}

impl Producers {
    pub fn new(name_part: &Arc<str>, of: Option<&Destination>, ask: &Ask) -> Producers {
        let (of, first) = (of.cloned(), first_of(ask));
        let passed = (of.is_none() && name_part.is_empty()).then_some(0);
        let connection = passed.map_or(first, |_| FIRST);
        Producers { name_part: name_part.clone(), of, first, connection, after: None, passed }
    }

    fn is_wanted(&self, producer: &ProducerNotice) -> bool {
        self.of.as_ref().is_none_or(|of| *of == producer.to)
            && (producer.name.contains(&*self.name_part) || producer.to.name.contains(&*self.name_part))
    }
}

impl Walk for Producers {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        for (id, connection) in partition.leader.connections.from(self.connection) {
            if id != self.connection {
                (self.connection, self.after) = (id, None);
            }
            let is_past = ends_before(step, id);
            if is_past && self.passed.is_none() {
                return true;
            }
            if !step.look() {
                return false;
            }
            let is_counted_only = is_past || id < self.first;
            while !is_counted_only
                && let Some((key, producer)) = next_producer(connection, self.after.as_ref())
            {
                if !step.look() {
                    return false;
                }
                if self.is_wanted(producer) {
                    step.add(Row::Producer(ProducerRow {
                        connection: id,
                        name: producer.name.clone(),
                        destination: producer.to.clone(),
                        window_bytes: producer.window_bytes,
                    }));
                }
                self.after = Some(key.clone());
            }
            if let Some(passed) = &mut self.passed {
                *passed += connection.producers.len() as u64;
            }
        }
        step.page.total = self.passed.unwrap_or(step.page.total);
        true
    }
}
