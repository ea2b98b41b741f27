//! Rows about clients: producers and sessions, connection by connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{
    Ask, ConnectionId, Destination, Page, ProducerNotice, ProducerRow, Row, RowKey, SessionRow,
};

use super::SCANNED_MAX;
use crate::Partition;
use crate::connection::Connection;

/// See the head of this file.
pub struct ClientRows<'p>(pub &'p Partition);

impl ClientRows<'_> {
    pub fn producers(&self, name_part: &str, of: Option<&Destination>, ask: &Ask) -> Page {
        let is_wanted = |producer: &ProducerNotice| {
            of.is_none_or(|of| *of == producer.to)
                && (producer.name.contains(name_part) || producer.to.name.contains(name_part))
        };
        let rows_of = |id: ConnectionId, connection: &Connection| {
            let wanted = connection.producers.values().filter(|producer| is_wanted(producer));
            let rows = wanted.map(|producer| {
                Row::Producer(ProducerRow {
                    connection: id,
                    name: producer.name.clone(),
                    destination: producer.to.clone(),
                    window_bytes: producer.window_bytes,
                })
            });
            (rows.collect(), connection.producers.len())
        };
        let total = match of.is_none() && name_part.is_empty() {
            true => self.0.leader.connections.values().map(|connection| connection.producers.len()).sum(),
            false => 0,
        };
        self.page_by_connection(ask, total, rows_of)
    }

    pub fn sessions(&self, name_part: &str, ask: &Ask) -> Page {
        let rows_of = |id: ConnectionId, connection: &Connection| self.sessions_of(id, connection, name_part);
        if ask.order.by.is_some() {
            let all = self.0.leader.connections.iter().filter(|(id, _)| !id.is_internal());
            return Page::first(all.flat_map(|(id, connection)| rows_of(*id, connection).0), ask);
        }
        self.page_by_connection(ask, 0, rows_of)
    }

    /// The sessions of a connection, and how many consumers and producers were looked at.
    fn sessions_of(&self, id: ConnectionId, connection: &Connection, name_part: &str) -> (Vec<Row>, usize) {
        let mut sessions: BTreeMap<Arc<str>, SessionRow> = BTreeMap::new();
        let mut of = |name: &str, add: &dyn Fn(&mut SessionRow)| {
            let Some((session, _)) = name.rsplit_once(':') else { return };
            let name: Arc<str> = session.into();
            let new = SessionRow {
                connection: id,
                name: name.clone(),
                consumers: 0,
                producers: 0,
                credit: 0,
                held: 0,
            };
            add(sessions.entry(name).or_insert(new));
        };
        for key in connection.consumers.iter().filter(|key| key.member == 0) {
            let consumer = self.0.leader.delivery.consumers.get(key);
            if let Some((consumer, notice)) =
                consumer.and_then(|consumer| Some((consumer, consumer.notice.as_ref()?)))
            {
                of(&notice.name, &|session| {
                    session.consumers += 1;
                    session.credit += u64::from(consumer.credit);
                    session.held += consumer.held.len() as u64;
                });
            }
        }
        for producer in connection.producers.values() {
            of(&producer.name, &|session| session.producers += 1);
        }
        let seen = connection.consumers.len() + connection.producers.len();
        let named = sessions.into_values().filter(|session| session.name.contains(name_part));
        (named.map(Row::Session).collect(), seen)
    }

    /// Rows in the order of their connections. A page ends early, with a cursor, once
    /// [`SCANNED_MAX`] consumers and producers were looked at, as others must have their turn.
    fn page_by_connection(
        &self,
        ask: &Ask,
        total: usize,
        rows_of: impl Fn(ConnectionId, &Connection) -> (Vec<Row>, usize),
    ) -> Page {
        let first = ask.after.as_ref().and_then(|after| ConnectionId::of_list_key(&after.name));
        let ids = self.0.leader.connections.keys().copied();
        let mut ids: Vec<ConnectionId> =
            ids.filter(|id| !id.is_internal() && first.is_none_or(|first| first <= *id)).collect();
        ids.sort_unstable();
        let (mut rows, mut seen, mut end) = (Vec::new(), 0, None);
        for id in ids {
            let Some(connection) = self.0.leader.connections.get(&id) else { continue };
            let (more, looked_at) = rows_of(id, connection);
            let is_behind = |row: &Row| ask.after.as_ref().is_none_or(|after| *after < row.key());
            rows.extend(more.into_iter().filter(is_behind));
            seen += looked_at;
            if ask.rows_max() < rows.len() {
                break;
            }
            if SCANNED_MAX <= seen {
                end = Some(RowKey { rank: 0, name: id.list_key(), detail: char::MAX.to_string().into() });
                break;
            }
        }
        let page = Page::first(rows.into_iter(), ask);
        Page { total: page.total.max(total as u64), next: page.next.or(end), rows: page.rows }
    }
}
