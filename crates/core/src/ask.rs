//! Answers to questions about a running broker: this partition's page of a list.
//!
//! A page is made in one step, and so has a bound ([`Ask::ROWS_MAX`]). Counters are read, never
//! counted.

mod clients;
mod topics;

use std::sync::Arc;

use postroad_model::{
    Ask, ConnectionId, ConnectionRow, ConsumerKey, ConsumerRow, Destination, Effect, Event, Page, Question,
    QueueRow, Row, Ticket,
};

use crate::Partition;
use crate::delivery::consumer::Consumer;
use crate::queue::Queue;
use crate::schedule::list_jobs;
use clients::ClientRows;
use topics::TopicRows;

/// Things that one page looks at, where a filter may leave few of them: some milliseconds.
const SCANNED_MAX: usize = 10_000;

impl Partition {
    /// Takes a question, or where a browser begins.
    pub(crate) fn about_queues(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Ask { ask, connection, ticket } => self.ask(&ask, (connection, ticket), effects),
            Event::Lease(event) => self.about_lease(*event, effects),
            Event::Seek { consumer, after } => self.seek(consumer, &after),
            _ => {}
        }
    }

    fn ask(
        &mut self,
        ask: &Arc<Ask>,
        (connection, ticket): (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        let page = match &ask.question {
            Question::Sessions { name_part } => ClientRows(self).sessions(name_part, ask),
            Question::Producers { name_part, of } => ClientRows(self).producers(name_part, of.as_ref(), ask),
            Question::Topics { name_part, only } => TopicRows(self).topics(name_part, only.as_ref(), ask),
            Question::Bindings { name_part, of } => TopicRows(self).bindings(name_part, of.as_ref(), ask),
            Question::Schedules(wanted) => {
                return list_jobs(self, wanted, ask.clone(), (connection, ticket), effects);
            }
            Question::Queues { name_part, only } => self.page_of_queues(name_part, only.as_ref(), ask),
            Question::Connections => self.page_of_connections(ask),
            Question::Consumers { of } => self.page_of_consumers(of.as_ref(), ask),
            Question::Explain { queue, entry } => self.explain(queue, *entry, ask),
        };
        answer_page(self, page, (connection, ticket), effects);
    }

    fn page_of_queues(&self, name_part: &str, only: Option<&Destination>, ask: &Ask) -> Page {
        let is_listed = |queue: &&Queue| {
            let is_temporary = queue.id.is_volatile() && queue.source.temporary;
            (!queue.id.is_volatile() || is_temporary)
                && only.is_none_or(|only| *only == queue.source)
                && (name_part.is_empty() || queue.source.name.contains(name_part))
        };
        let row = |queue: &Queue| row_of_queue(queue, self.state.paused.contains(queue.id));
        if let Some(only) = only {
            let bound = self.state.addresses.get(only).map(|address| address.bound.iter());
            let queues = bound.into_iter().flatten().filter_map(|id| self.state.queues.get(&id));
            return Page::first(queues.filter(is_listed).map(row), ask);
        }
        let listed = &self.state.addresses.listed;
        if name_part.is_empty() && ask.order.by.is_none() {
            // In the order of names a page costs no more than its rows, however many queues there
            // are.
            let from = ask.after.as_ref().map_or("", |after| &after.name);
            let queues = listed.page(from, ask.rows_max() + 1);
            let rows = queues.iter().filter_map(|id| self.state.queues.get(id)).map(row);
            return Page { total: listed.len() as u64, ..Page::first(rows, ask) };
        }
        Page::first(self.state.queues.values().filter(is_listed).map(row), ask)
    }

    fn page_of_connections(&self, ask: &Ask) -> Page {
        let connections = self.leader.connections.iter().filter(|(id, _)| !id.is_internal());
        let row = |(id, connection): (&ConnectionId, &crate::connection::Connection)| {
            let client = connection.client.as_deref();
            let text = |text: Option<&Arc<str>>| text.cloned().unwrap_or_default();
            Row::Connection(ConnectionRow {
                connection: *id,
                name: text(client.map(|client| &client.name)),
                client_id: text(client.map(|client| &client.client_id)),
                user: client.and_then(|client| client.user.clone()),
                consumers: connection.consumers.iter().filter(|key| key.member == 0).count() as u64,
                transactions: connection.transactions.len() as u64,
                unwritten_bytes: connection.unwritten_bytes,
            })
        };
        Page::first(connections.map(row), ask)
    }

    fn page_of_consumers(&self, of: Option<&Destination>, ask: &Ask) -> Page {
        let Some(of) = of else {
            let rows = self
                .leader
                .delivery
                .consumers
                .iter()
                .filter_map(|(key, consumer)| self.row_of_consumer(*key, consumer));
            return Page::first(rows, ask);
        };
        let queues = self.state.addresses.get(of).into_iter().flat_map(|address| address.bound.iter());
        let keys =
            queues.filter_map(|id| self.state.queues.get(&id)).flat_map(|queue| queue.consumers.iter());
        let rows =
            keys.filter_map(|key| self.row_of_consumer(*key, self.leader.delivery.consumers.get(key)?));
        Page::first(rows, ask)
    }

    fn row_of_consumer(&self, key: ConsumerKey, consumer: &Consumer) -> Option<Row> {
        let queue = self.state.queues.get(&consumer.queue)?;
        // Members of a pattern consumer are reported as the whole consumer.
        let whole = self.leader.delivery.consumers.get(&key.whole()).unwrap_or(consumer);
        let notice = consumer.notice.as_deref().or(whole.notice.as_deref());
        Some(Row::Consumer(ConsumerRow {
            consumer: key,
            name: notice.map(|notice| notice.name.clone()).unwrap_or_default(),
            destination: queue.source.clone(),
            subscription: queue.subscription.as_ref().map(|subscription| subscription.name.clone()),
            mode: consumer.mode,
            selector: notice.map(|notice| notice.selector.clone()).unwrap_or_default(),
            priority: consumer.priority,
            credit: consumer.credit,
            held: consumer.held.len() as u64,
        }))
    }

    /// A browser that has not been sent anything begins after these entries, one of each lane that
    /// it has seen before.
    fn seek(&mut self, key: ConsumerKey, after: &[postroad_model::EntryTag]) {
        let Some(browse) =
            self.leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.browse.as_mut())
        else {
            return;
        };
        after.iter().for_each(|tag| browse.pass(*tag));
    }
}

/// The page, and the end of the request.
pub(crate) fn answer_page(
    partition: &Partition,
    page: Page,
    (connection, ticket): (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    effects.push(Effect::Answer { connection, ticket, page: Box::new(page) });
    partition.reply(connection, ticket, Ok(()), effects);
}

fn row_of_queue(queue: &Queue, is_paused: bool) -> Row {
    let counts = queue.counts.all();
    Row::Queue(QueueRow {
        destination: queue.source.clone(),
        subscription: queue.subscription.as_ref().map(|subscription| subscription.name.clone()),
        messages: queue.len(),
        bytes: queue.load.bytes,
        in_flight: queue.away.messages,
        consumers: queue.consumers.len() as u64,
        enqueued: counts.enqueued,
        consumed: counts.consumed,
        expired: counts.expired,
        dead_lettered: counts.dead_lettered,
        dropped: counts.dropped + counts.replaced,
        moved: counts.moved,
        difference: counts.difference(queue.len()),
        is_moving: queue.on_the_move,
        is_paused,
    })
}
