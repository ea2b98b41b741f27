//! Questions about a running broker: lists, page by page.
//!
//! Each partition answers with its own rows behind a cursor, in the order of their keys. Pages of several partitions are
//! merged by [`Page::merge`]: rows of the same key are one, as a queue that moves and a connection are in several.

use std::sync::Arc;

use crate::{ConnectionId, ConsumerKey, ConsumerMode, Destination};

/// One page of one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which list.
    pub question: Question,
    /// Rows behind this one; the first ones without it.
    pub after: Option<RowKey>,
    /// How many rows; more than [`Ask::ROWS_MAX`] counts as that.
    pub rows: u32,
}

impl Ask {
    /// A page has no more rows: a partition makes it in one step.
    pub const ROWS_MAX: u32 = 500;

    /// How many rows a page has at most.
    pub fn rows_max(&self) -> usize {
        self.rows.clamp(1, Ask::ROWS_MAX) as usize
    }
}

/// Which list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Queues and durable subscriptions; temporary queues too.
    Queues {
        /// Only those whose name has this in it; empty for all.
        name_part: Arc<str>,
        /// Only that of this destination.
        only: Option<Destination>,
    },
    /// Connections of clients.
    Connections,
    /// Consumers of a queue or topic, or all.
    Consumers {
        /// Of which destination.
        of: Option<Destination>,
    },
}

/// What rows are ordered by, and a cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// A name.
    pub name: Arc<str>,
    /// What tells rows of one name apart.
    pub detail: Arc<str>,
}

/// A row of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// See [`Question::Queues`].
    Queue(QueueRow),
    /// See [`Question::Connections`].
    Connection(ConnectionRow),
    /// See [`Question::Consumers`].
    Consumer(ConsumerRow),
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// The queue; of a durable subscription, its topic.
    pub destination: Destination,
    /// The name of the durable subscription.
    pub subscription: Option<Arc<str>>,
    /// Messages in it.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// How many of the messages a consumer has, or rest until their redelivery, or are being removed.
    pub in_flight: u64,
    /// Consumers attached.
    pub consumers: u64,
    /// Messages that came, since the start.
    pub enqueued: u64,
    /// Messages that consumers accepted.
    pub consumed: u64,
    /// Messages that expired.
    pub expired: u64,
    /// Messages that went to the dead letters.
    pub dead_lettered: u64,
    /// Messages dropped by the queue's limit, or replaced by a newer one of the same value.
    pub dropped: u64,
    /// It is on the move between stores, and delivers nothing until it is there.
    pub is_moving: bool,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRow {
    /// Which.
    pub connection: ConnectionId,
    /// What the client calls it; empty for one that has not introduced itself.
    pub name: Arc<str>,
    /// The client's id.
    pub client_id: Arc<str>,
    /// Who it is.
    pub user: Option<Arc<str>>,
    /// Its consumers.
    pub consumers: u64,
    /// Its open transactions.
    pub transactions: u64,
    /// Bytes of deliveries that wait in its outbox.
    pub unwritten_bytes: u64,
}

/// A consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRow {
    /// Which.
    pub consumer: ConsumerKey,
    /// Its connection, session and own number, as its client has them; empty if it has told none.
    pub name: Arc<str>,
    /// What it reads: the queue, or the topic of its subscription.
    pub destination: Destination,
    /// The durable subscription that it reads.
    pub subscription: Option<Arc<str>>,
    /// How it reads.
    pub mode: ConsumerMode,
    /// Its selector; empty for everything.
    pub selector: Arc<str>,
    /// Consumers of higher priority are served first.
    pub priority: i8,
    /// Messages that it may be sent now.
    pub credit: u32,
    /// Messages that it has and has not settled.
    pub held: u64,
}

impl Row {
    /// What it is ordered by.
    pub fn key(&self) -> RowKey {
        match self {
            Row::Queue(QueueRow { destination, subscription, .. }) => {
                RowKey { name: destination.name.clone(), detail: subscription.clone().unwrap_or_default() }
            }
            Row::Connection(row) => RowKey { name: text_of(row.connection).into(), detail: "".into() },
            Row::Consumer(row) => {
                let ConsumerKey { connection, number, member } = row.consumer;
                let detail = format!("{}-{number:08x}-{member:08x}", text_of(connection));
                RowKey { name: row.destination.name.clone(), detail: detail.into() }
            }
        }
    }

    /// Another partition's share of the same.
    fn add(&mut self, other: Row) {
        match (self, other) {
            (Row::Queue(all), Row::Queue(more)) => all.add(&more),
            (Row::Connection(all), Row::Connection(more)) => {
                all.consumers += more.consumers;
                all.transactions += more.transactions;
                all.unwritten_bytes += more.unwritten_bytes;
                if all.name.is_empty() {
                    (all.name, all.client_id, all.user) = (more.name, more.client_id, more.user);
                }
            }
            _ => {}
        }
    }
}

impl QueueRow {
    fn add(&mut self, more: &QueueRow) {
        self.messages += more.messages;
        self.bytes += more.bytes;
        self.in_flight += more.in_flight;
        // Those of a queue whose name is a pattern are attached in every partition, those of another in one.
        self.consumers = match self.destination.is_pattern() {
            true => self.consumers.max(more.consumers),
            false => self.consumers + more.consumers,
        };
        self.enqueued += more.enqueued;
        self.consumed += more.consumed;
        self.expired += more.expired;
        self.dead_lettered += more.dead_lettered;
        self.dropped += more.dropped;
        self.is_moving |= more.is_moving;
    }
}

/// A connection's number in lists: its core, and its number there.
fn text_of(connection: ConnectionId) -> String {
    format!("{:04x}-{:012x}", connection.core(), connection.number())
}

/// Some rows of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys.
    pub rows: Vec<Row>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}

impl Page {
    /// The first `rows_max` of these rows behind the cursor.
    pub fn first(rows: impl Iterator<Item = Row>, ask: &Ask) -> Page {
        let max = ask.rows_max();
        let mut first: std::collections::BTreeMap<RowKey, Row> = std::collections::BTreeMap::new();
        let mut has_more = false;
        for row in rows {
            let key = row.key();
            let is_late = first.len() == max && first.last_key_value().is_some_and(|(last, _)| *last < key);
            if ask.after.as_ref().is_some_and(|after| key <= *after) {
                continue;
            }
            if is_late {
                has_more = true;
                continue;
            }
            match first.get_mut(&key) {
                Some(there) => there.add(row),
                None => drop(first.insert(key, row)),
            }
            if max < first.len() {
                first.pop_last();
                has_more = true;
            }
        }
        Page { rows: first.into_values().collect(), has_more }
    }

    /// One page of those of all partitions, which were asked the same.
    pub fn merge(pages: Vec<Page>, ask: &Ask) -> Page {
        let has_more = pages.iter().any(|page| page.has_more);
        // Behind the end of a page that has more its partition may have rows that belong here.
        let ends = pages.iter().filter(|page| page.has_more);
        let end = ends.filter_map(|page| page.rows.last().map(Row::key)).min();
        let rows = pages.into_iter().flat_map(|page| page.rows);
        let rows = rows.filter(|row| end.as_ref().is_none_or(|end| row.key() <= *end));
        let merged = Page::first(rows, ask);
        Page { has_more: has_more || merged.has_more, ..merged }
    }

    /// Where the next page begins, if there is one.
    pub fn next(&self) -> Option<RowKey> {
        self.has_more.then(|| self.rows.last().map(Row::key)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, messages: u64) -> Row {
        Row::Queue(QueueRow {
            destination: Destination::queue(name),
            subscription: None,
            messages,
            bytes: 0,
            in_flight: 0,
            consumers: 0,
            enqueued: 0,
            consumed: 0,
            expired: 0,
            dead_lettered: 0,
            dropped: 0,
            is_moving: false,
        })
    }

    fn names(page: &Page) -> Vec<(String, u64)> {
        let row = |row: &Row| match row {
            Row::Queue(row) => (row.destination.name.to_string(), row.messages),
            _ => panic!("{row:?}"),
        };
        page.rows.iter().map(row).collect()
    }

    #[test]
    fn pages_of_partitions_are_merged_without_a_gap_or_a_row_twice() {
        let partitions = [
            vec![queue("a", 1), queue("d", 1), queue("e", 1), queue("moving", 1)],
            vec![queue("moving", 10), queue("b", 1), queue("c", 1)],
            vec![],
        ];
        for rows in 1..=7 {
            let question = Question::Queues { name_part: "".into(), only: None };
            let mut ask = Ask { question, after: None, rows };
            let mut seen = Vec::new();
            for _ in 0..10 {
                let pages = partitions.iter().map(|own| Page::first(own.iter().cloned(), &ask)).collect();
                let page = Page::merge(pages, &ask);
                assert!(page.rows.len() <= rows as usize);
                seen.extend(names(&page));
                ask.after = page.next();
                if ask.after.is_none() {
                    break;
                }
            }
            let want = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("moving", 11)];
            assert_eq!(seen, want.map(|(name, count)| (name.to_owned(), count)), "{rows} rows");
        }
    }
}
