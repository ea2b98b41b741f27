//! Questions about a running broker: lists, page by page.
//!
//! Each partition answers with its own rows behind a cursor, in the order of their keys. Pages of
//! several partitions are merged by [`Page::merge`]: rows of the same key are one, as a queue that
//! moves and a connection are in several.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    ConnectionId, ConsumerKey, ConsumerMode, Destination, Due, Event, Explained, JobsWanted, Message,
    QueueFlow, QueueId, Recurrence, ScheduleId, Ticket, VerdictRow,
};

/// One page of one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which list.
    pub question: Question,
    /// Rows behind this one; the first ones without it.
    pub after: Option<RowKey>,
    /// How many rows; more than [`Ask::ROWS_MAX`] counts as that.
    pub rows: u32,
    /// The order of the rows.
    pub order: Order,
}

/// An order of rows. Rows of the same value are in the order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Which figure; names alone without it, and where a row has no such figure.
    pub by: Option<SortBy>,
    /// The highest first.
    pub descending: bool,
}

/// A figure of a queue, connection or consumer that rows can be ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// Messages in a queue.
    Messages,
    /// Bytes of their bodies; of a connection those that wait in its outbox.
    Bytes,
    /// Messages that consumers have.
    InFlight,
    /// Consumers of a queue or connection.
    Consumers,
    /// Messages that came.
    Enqueued,
    /// Messages that consumers accepted.
    Consumed,
    /// Messages that expired.
    Expired,
    /// Messages that went to the dead letters.
    DeadLettered,
    /// Open transactions of a connection.
    Transactions,
    /// Messages that a consumer may be sent now.
    Credit,
    /// Messages that a consumer has not settled.
    Held,
}

impl Ask {
    /// A page has no more rows: a partition makes it in one step.
    pub const ROWS_MAX: u32 = 500;

    /// A page of scheduled messages has no more rows: the record of each is read.
    pub const SCHEDULES_MAX: u32 = 100;

    /// The place of this row in the order.
    fn key(&self, row: &Row) -> RowKey {
        let value = self.order.by.and_then(|figure| row.figure(figure)).unwrap_or_default();
        RowKey { rank: if self.order.descending { u64::MAX - value } else { value }, ..row.key() }
    }

    /// How many rows a page has at most.
    pub fn rows_max(&self) -> usize {
        let max = match self.question {
            Question::Schedules(_) => Ask::SCHEDULES_MAX,
            _ => Ask::ROWS_MAX,
        };
        self.rows.clamp(1, max) as usize
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
    /// Durable subscriptions, in the order of their topics.
    Subscriptions {
        /// Only those whose name begins with this; empty for all.
        prefix: Arc<str>,
    },
    /// Connections of clients.
    Connections,
    /// Consumers of a queue or topic, or all.
    Consumers {
        /// Of which destination.
        of: Option<Destination>,
    },
    /// Sessions of clients: each with consumers or producers.
    Sessions {
        /// Only those whose name has this in it; empty for all.
        name_part: Arc<str>,
    },
    /// Producers of clients that announce them.
    Producers {
        /// Only those whose name or destination has this in it; empty for all.
        name_part: Arc<str>,
        /// Only those of this destination.
        of: Option<Destination>,
    },
    /// Topics that were sent to, or have a binding.
    Topics {
        /// Only those whose name has this in it; empty for all.
        name_part: Arc<str>,
        /// Only this one.
        only: Option<Destination>,
    },
    /// Bindings of topics, and of patterns of topics.
    Bindings {
        /// Only those of topics whose name has this in it; empty for all.
        name_part: Arc<str>,
        /// Only those of this topic.
        of: Option<Destination>,
    },
    /// Messages that are due later. Their order is always that in which they are due, and pages
    /// have at most [`Ask::SCHEDULES_MAX`] rows.
    Schedules(JobsWanted),
    /// Why a message of a queue is not delivered, consumer by consumer.
    Explain {
        /// The queue.
        queue: Destination,
        /// Which message of it.
        of: Explained,
    },
}

/// The place of a row in the order, and a cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The value of the figure that rows are ordered by, subtracted from the highest if high ones
    /// come first.
    pub rank: u64,
    /// A name.
    pub name: Arc<str>,
    /// Distinguishes rows of one name.
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
    /// See [`Question::Sessions`].
    Session(SessionRow),
    /// See [`Question::Producers`].
    Producer(ProducerRow),
    /// See [`Question::Topics`].
    Topic(TopicRow),
    /// See [`Question::Bindings`].
    Binding(BindingRow),
    /// See [`Question::Schedules`].
    Schedule(Box<ScheduleRow>),
    /// See [`Question::Explain`].
    Verdict(VerdictRow),
    /// See [`Explained::Flow`].
    Flow(Box<QueueFlow>),
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
    /// How many of the messages a consumer has, or rest until their redelivery, or are being
    /// removed.
    pub in_flight: u64,
    /// Consumers attached.
    pub consumers: u64,
    /// Messages that came, ever; of those only in memory since the start.
    pub enqueued: u64,
    /// Messages that consumers accepted.
    pub consumed: u64,
    /// Messages that expired.
    pub expired: u64,
    /// Messages that went to the dead letters.
    pub dead_lettered: u64,
    /// Messages dropped by the queue's limit, or replaced by a newer one of the same value.
    pub dropped: u64,
    /// Messages that moved to another store with the queue.
    pub moved: u64,
    /// Messages that came and did not leave, less those that are there: 0 unless the broker lost or
    /// miscounted one.
    pub difference: i64,
    /// It is on the move between stores, and delivers nothing until it is there.
    pub is_moving: bool,
    /// An operator has paused it: it delivers nothing until it is resumed.
    pub is_paused: bool,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRow {
    /// Which.
    pub connection: ConnectionId,
    /// The client's name for the connection; empty before it has introduced itself.
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
    /// Its connection, session and own number, as its client has them; empty if it has given none.
    pub name: Arc<str>,
    /// Its source: the queue, or the topic of its subscription.
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

/// A session of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its connection.
    pub connection: ConnectionId,
    /// Its connection and its own number, as the client has them.
    pub name: Arc<str>,
    /// Its consumers.
    pub consumers: u64,
    /// Its producers that were announced, once for each destination.
    pub producers: u64,
    /// Messages that its consumers may be sent now.
    pub credit: u64,
    /// Messages that its consumers have not settled.
    pub held: u64,
}

/// A producer, at one of its destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerRow {
    /// Its connection.
    pub connection: ConnectionId,
    /// Its connection, session and own number, as its client has them.
    pub name: Arc<str>,
    /// Where it sends to.
    pub destination: Destination,
    /// How many bytes it sends ahead of confirmations; zero for no such limit.
    pub window_bytes: u32,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRow {
    /// The topic.
    pub destination: Destination,
    /// Queues and subscriptions that it feeds, those of patterns too.
    pub bindings: u64,
    /// Selectors of these.
    pub selectors: u64,
}

/// A topic, or pattern of topics, that feeds a queue or subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingRow {
    /// The topic or pattern.
    pub topic: Destination,
    /// The queue that it feeds.
    pub id: QueueId,
    /// The queue, if it has a name of its own (virtual topics).
    pub queue: Option<Destination>,
    /// The durable subscription, if it is one.
    pub subscription: Option<Arc<str>>,
    /// The consumer, if the subscription is a volatile one.
    pub consumer: Option<Arc<str>>,
    /// Only messages that match one of these; without any, all.
    pub selectors: Vec<Arc<str>>,
    /// Messages in the queue.
    pub messages: u64,
}

/// A message that is due later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRow {
    /// Which.
    pub id: ScheduleId,
    /// How it goes on after it was due.
    pub again: Option<Recurrence>,
    /// Bytes of its message.
    pub bytes: u64,
    /// What its record says; `None` if that cannot be read.
    pub record: Option<ScheduleRecord>,
}

/// See [`ScheduleRow::record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// Its name for its client.
    pub job: Arc<str>,
    /// Where the message goes.
    pub to: Vec<Destination>,
    /// The route that sends the message again, if it is a copy that its target refused.
    pub route: Option<Arc<str>>,
    /// The message, if it was asked for by its id.
    pub message: Option<Message>,
}

impl BindingRow {
    /// The queue, subscription or consumer, whatever it is.
    pub fn target(&self) -> String {
        let queue = self.queue.as_ref().map(ToString::to_string);
        queue
            .or_else(|| Some(self.subscription.as_ref().or(self.consumer.as_ref())?.to_string()))
            .unwrap_or_default()
    }
}

impl ConnectionId {
    /// Its number in lists, by which they are ordered: its core, and its number there.
    pub fn list_key(self) -> Arc<str> {
        text_of(self).into()
    }

    /// The connection of a row with this key.
    pub fn of_list_key(text: &str) -> Option<ConnectionId> {
        let (core, number) = text.split_once('-')?;
        let core = u16::from_str_radix(core, 16).ok()?;
        Some(ConnectionId::new(core, u64::from_str_radix(number, 16).ok()?))
    }
}

impl ScheduleId {
    /// The place of its row in the order.
    pub fn key(&self) -> RowKey {
        let Due { at_ms, position, ordinal } = self.due;
        let detail = format!("{:05}-{:020}-{ordinal:010}", self.partition.0, position.get());
        RowKey { rank: 0, name: format!("{at_ms:020}").into(), detail: detail.into() }
    }

    /// The id of a row with this key.
    pub fn of_key(key: &RowKey) -> Option<ScheduleId> {
        format!("{}-{}", key.name, key.detail).parse().ok()
    }
}

impl Row {
    /// Its place in the order of names.
    pub fn key(&self) -> RowKey {
        match self {
            Row::Queue(QueueRow { destination, subscription, .. }) => {
                let detail = subscription.clone().unwrap_or_default();
                RowKey { rank: 0, name: destination.name.clone(), detail }
            }
            Row::Connection(row) => {
                RowKey { rank: 0, name: text_of(row.connection).into(), detail: "".into() }
            }
            Row::Consumer(row) => {
                let ConsumerKey { connection, number, member } = row.consumer;
                let detail = format!("{}-{number:08x}-{member:08x}", text_of(connection));
                RowKey { rank: 0, name: row.destination.name.clone(), detail: detail.into() }
            }
            Row::Session(row) => {
                RowKey { rank: 0, name: text_of(row.connection).into(), detail: row.name.clone() }
            }
            Row::Producer(row) => {
                let detail = format!("{} {}", row.name, row.destination).into();
                RowKey { rank: 0, name: text_of(row.connection).into(), detail }
            }
            Row::Topic(row) => RowKey { rank: 0, name: row.destination.name.clone(), detail: "".into() },
            // A consumer of a pattern is bound in every partition.
            Row::Binding(row) if row.topic.is_pattern() => {
                RowKey { rank: 0, name: row.topic.name.clone(), detail: row.target().into() }
            }
            Row::Binding(row) => {
                RowKey { rank: 0, name: row.topic.name.clone(), detail: format!("{:016x}", row.id.0).into() }
            }
            Row::Schedule(row) => row.id.key(),
            Row::Flow(_) => RowKey::default(),
            Row::Verdict(row) => {
                let consumer = row.consumer.map_or_else(String::new, |key| {
                    format!("{}-{:08x}-{:08x}", text_of(key.connection), key.number, key.member)
                });
                RowKey { rank: 0, name: consumer.into(), detail: format!("{:?}", row.verdict).into() }
            }
        }
    }

    /// A figure of it, if it has that.
    fn figure(&self, figure: SortBy) -> Option<u64> {
        match (self, figure) {
            (Row::Queue(row), SortBy::Messages) => Some(row.messages),
            (Row::Queue(row), SortBy::Bytes) => Some(row.bytes),
            (Row::Queue(row), SortBy::InFlight) => Some(row.in_flight),
            (Row::Queue(row), SortBy::Consumers) => Some(row.consumers),
            (Row::Queue(row), SortBy::Enqueued) => Some(row.enqueued),
            (Row::Queue(row), SortBy::Consumed) => Some(row.consumed),
            (Row::Queue(row), SortBy::Expired) => Some(row.expired),
            (Row::Queue(row), SortBy::DeadLettered) => Some(row.dead_lettered),
            (Row::Connection(row), SortBy::Consumers) => Some(row.consumers),
            (Row::Connection(row), SortBy::Bytes) => Some(row.unwritten_bytes),
            (Row::Connection(row), SortBy::Transactions) => Some(row.transactions),
            (Row::Consumer(row), SortBy::Credit) => Some(u64::from(row.credit)),
            (Row::Consumer(row), SortBy::Held) => Some(row.held),
            (Row::Session(row), SortBy::Consumers) => Some(row.consumers),
            (Row::Session(row), SortBy::Credit) => Some(row.credit),
            (Row::Session(row), SortBy::Held) => Some(row.held),
            _ => None,
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
            (Row::Session(all), Row::Session(more)) => {
                all.consumers += more.consumers;
                all.producers += more.producers;
                all.credit += more.credit;
                all.held += more.held;
            }
            (Row::Binding(all), Row::Binding(more)) => all.messages += more.messages,
            (Row::Topic(all), Row::Topic(more)) => {
                all.bindings += more.bindings;
                all.selectors += more.selectors;
            }
            _ => {}
        }
    }
}

impl QueueRow {
    /// Of a queue that nothing has happened to yet.
    pub fn idle(destination: Destination, subscription: Option<Arc<str>>) -> QueueRow {
        QueueRow {
            destination,
            subscription,
            messages: 0,
            bytes: 0,
            in_flight: 0,
            consumers: 0,
            enqueued: 0,
            consumed: 0,
            expired: 0,
            dead_lettered: 0,
            dropped: 0,
            moved: 0,
            difference: 0,
            is_moving: false,
            is_paused: false,
        }
    }

    fn add(&mut self, more: &QueueRow) {
        self.messages += more.messages;
        self.bytes += more.bytes;
        self.in_flight += more.in_flight;
        // Those of a queue whose name is a pattern are attached in every partition, those of
        // another in one.
        self.consumers = match self.destination.is_pattern() {
            true => self.consumers.max(more.consumers),
            false => self.consumers + more.consumers,
        };
        self.enqueued += more.enqueued;
        self.consumed += more.consumed;
        self.expired += more.expired;
        self.dead_lettered += more.dead_lettered;
        self.dropped += more.dropped;
        self.moved += more.moved;
        self.difference += more.difference;
        self.is_moving |= more.is_moving;
        self.is_paused |= more.is_paused;
    }
}

/// A connection's number in lists: its core, and its number there.
fn text_of(connection: ConnectionId) -> String {
    format!("{:04x}-{:012x}", connection.core(), connection.number())
}

/// Some rows of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order that was asked for.
    pub rows: Vec<Row>,
    /// Where the next page begins, if there is one.
    pub next: Option<RowKey>,
    /// Rows of the whole list; about, if it has several pages and something is in several
    /// partitions.
    pub total: u64,
}

/// A page that a session asks all partitions for.
#[derive(Debug)]
pub struct Inquiry {
    ask: Arc<Ask>,
    ticket: Ticket,
    pages: Vec<Page>,
}

impl Inquiry {
    /// Asks for as many rows as a page has, behind this one.
    pub fn new(
        question: Question,
        after: Option<RowKey>,
        (connection, ticket): (ConnectionId, Ticket),
        events: &mut Vec<Event>,
    ) -> Inquiry {
        let ask = Arc::new(Ask { question, after, rows: Ask::ROWS_MAX, order: Order::default() });
        events.push(Event::Ask { ask: ask.clone(), connection, ticket });
        Inquiry { ask, ticket, pages: Vec::new() }
    }

    /// Whether this is its ticket.
    pub fn has_asked(&self, ticket: Ticket) -> bool {
        self.ticket == ticket
    }

    /// A partition has answered.
    pub fn add(&mut self, page: Page) {
        self.pages.push(page);
    }

    /// All have.
    pub fn page(self) -> Page {
        Page::merge(self.pages, &self.ask)
    }
}

/// Makes a page of rows that come in any order.
#[derive(Debug, Default)]
pub struct PageMaker {
    first: BTreeMap<RowKey, Row>,
    has_more: bool,
    /// Rows that came, those before the cursor too.
    pub total: u64,
}

impl PageMaker {
    /// A row of the list has come. Rows of the same key are one.
    pub fn add(&mut self, row: Row, ask: &Ask) {
        self.total += 1;
        let (key, max) = (ask.key(&row), ask.rows_max());
        if ask.after.as_ref().is_some_and(|after| key <= *after) {
            return;
        }
        if self.first.len() == max && self.last().is_some_and(|last| *last < key) {
            self.has_more = true;
            return;
        }
        match self.first.get_mut(&key) {
            Some(there) => there.add(row),
            None => drop(self.first.insert(key, row)),
        }
        if max < self.first.len() {
            self.first.pop_last();
            self.has_more = true;
        }
    }

    fn last(&self) -> Option<&RowKey> {
        self.first.last_key_value().map(|(last, _)| last)
    }

    /// Whether the page is full and a row has come that it does not have.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether rows with this name or a later one do not belong to the page, in the order of names.
    pub fn ends_before(&self, name: &str) -> bool {
        self.has_more && self.last().is_some_and(|last| *last.name < *name)
    }

    /// The page.
    pub fn page(self) -> Page {
        let next = self.last().filter(|_| self.has_more).cloned();
        Page { rows: self.first.into_values().collect(), next, total: self.total }
    }
}

impl Page {
    /// The first `rows_max` of these rows after the cursor.
    pub fn first(rows: impl Iterator<Item = Row>, ask: &Ask) -> Page {
        let mut maker = PageMaker::default();
        rows.for_each(|row| maker.add(row, ask));
        maker.page()
    }

    /// One page of those of all partitions, which were asked the same. In an order by a figure each
    /// part of a queue in several partitions has its own place, so that the queue may be on a later
    /// page again.
    pub fn merge(pages: Vec<Page>, ask: &Ask) -> Page {
        // A connection is known in many partitions, all else in one, but for queues on the move.
        let totals = pages.iter().map(|page| page.total);
        let total = match ask.question {
            Question::Connections | Question::Sessions { .. } => totals.max().unwrap_or_default(),
            _ => totals.sum(),
        };
        // Behind the end of a page that has more its partition may have rows that belong here.
        let end = pages.iter().filter_map(|page| page.next.clone()).min();
        let rows = pages.into_iter().flat_map(|page| page.rows);
        let rows = rows.filter(|row| end.as_ref().is_none_or(|end| ask.key(row) <= *end));
        let merged = Page::first(rows, ask);
        let mut rows: BTreeMap<RowKey, Row> = BTreeMap::new();
        for row in merged.rows {
            match rows.get_mut(&row.key()) {
                Some(there) => there.add(row),
                None => drop(rows.insert(row.key(), row)),
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.sort_by_key(|row| ask.key(row));
        let next = merged.next.or(end);
        let is_all = next.is_none() && ask.after.is_none();
        Page { total: if is_all { rows.len() as u64 } else { total }, rows, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, messages: u64) -> Row {
        Row::Queue(QueueRow { messages, ..QueueRow::idle(Destination::queue(name), None) })
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
            let mut ask = Ask { question, after: None, rows, order: Order::default() };
            let mut seen = Vec::new();
            for _ in 0..10 {
                let pages = partitions.iter().map(|own| Page::first(own.iter().cloned(), &ask)).collect();
                let page = Page::merge(pages, &ask);
                assert!(page.rows.len() <= rows as usize);
                seen.extend(names(&page));
                assert_eq!(
                    page.total,
                    if rows < 6 { 7 } else { 6 },
                    "on the first of several pages it is a guess"
                );
                ask.after = page.next;
                if ask.after.is_none() {
                    break;
                }
            }
            let want = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("moving", 11)];
            assert_eq!(seen, want.map(|(name, count)| (name.to_owned(), count)), "{rows} rows");
        }
    }

    #[test]
    fn rows_are_ordered_by_a_figure_across_partitions() {
        let partitions = [
            vec![queue("a", 5), queue("d", 7), queue("moving", 4)],
            vec![queue("b", 5), queue("c", 9), queue("moving", 1)],
        ];
        let question = Question::Queues { name_part: "".into(), only: None };
        for (descending, rows, want) in [
            (true, 2, "c d a b moving"),
            (true, 100, "c d a b moving"),
            (false, 100, "a b moving d c"),
            (false, 2, "moving a b d c"),
        ] {
            let order = Order { by: Some(SortBy::Messages), descending };
            let mut ask = Ask { question: question.clone(), after: None, rows, order };
            let mut seen: Vec<String> = Vec::new();
            for _ in 0..10 {
                let pages = partitions.iter().map(|own| Page::first(own.iter().cloned(), &ask)).collect();
                let page = Page::merge(pages, &ask);
                seen.extend(names(&page).into_iter().map(|(name, _)| name));
                ask.after = page.next;
                if ask.after.is_none() {
                    break;
                }
            }
            assert_eq!(seen.join(" "), want, "descending {descending}, {rows} rows");
        }
    }
}
