//! Consumers and connections: attach, credit, drain, detach, and temporary destinations.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::{
    Attach, Command, ConnectionId, ConsumerKey, ConsumerMode, Delivered, Destination, DestinationKind,
    Effect, EntryTag, Event, QueueId, Refusal, Ticket, TransactionKey, Urgency,
};

use postroad_selector::Selector;

use crate::Partition;
use crate::completion::Completion;
use crate::dispatch::Browse;
use crate::held::Held;
use crate::queue::State;
use crate::selection::{self, Selection};

/// An attached reader of one queue.
pub struct Consumer {
    /// What it reads from.
    pub queue: QueueId,
    /// How it reads.
    pub mode: ConsumerMode,
    /// How many more messages it may be sent.
    pub credit: u32,
    /// Among exclusive consumers the highest priority is served.
    pub priority: i8,
    /// Skips what its own connection publishes.
    pub no_local: bool,
    /// What it was sent and has not settled, in the order of sending.
    pub held: Held,
    /// Its view, if it browses.
    pub browse: Option<Browse>,
    /// What it wants of a queue, if not everything.
    pub selection: Option<Selection>,
    /// Its credit ends as soon as the bodies that are being read have been sent.
    pub draining: bool,
    /// It waits in its queue's line.
    pub in_line: bool,
}

/// What a connection has in this partition.
#[derive(Default)]
pub struct Connection {
    /// Its consumers.
    pub consumers: BTreeSet<ConsumerKey>,
    /// Its open transactions.
    pub transactions: BTreeSet<TransactionKey>,
    /// Its temporary destinations.
    pub temporary: BTreeSet<Destination>,
    /// Its exclusive names.
    pub claims: BTreeSet<Arc<str>>,
    /// Bytes of deliveries that wait in its outbox.
    pub unwritten_bytes: u64,
}

impl Partition {
    pub(crate) fn attach(&mut self, attach: Attach, effects: &mut Vec<Effect>) {
        let (connection, ticket) = (attach.consumer.connection, attach.ticket);
        match self.source_of(&attach, effects) {
            Ok(Some(queue)) => {
                self.reply(connection, ticket, Ok(()), effects);
                self.attach_to(queue, attach, effects);
            }
            Ok(None) if let Some(name) = attach.subscription.clone() => {
                self.make_subscription(attach, &name, effects);
            }
            Ok(None) => {
                let queue = attach.source.clone();
                self.declare_first(queue, Event::Attach(attach), effects);
            }
            Err(refusal) => self.reply(connection, ticket, Err(refusal), effects),
        }
    }

    /// The queue to read from; `None` if it must be declared first.
    fn source_of(&mut self, attach: &Attach, effects: &mut Vec<Effect>) -> Result<Option<QueueId>, Refusal> {
        let source = &attach.source;
        if self.consumers.contains_key(&attach.consumer) {
            return Err(Refusal::ConsumerExists { number: attach.consumer.number });
        }
        let address = self.addresses.get(source);
        if source.temporary {
            let address = address.ok_or_else(|| Refusal::NoSuchDestination(source.clone()))?;
            if address.owner != Some(attach.consumer.connection) {
                return Err(Refusal::NotOwner(source.clone()));
            }
        }
        let selector = selection::parse(&attach.selector)?;
        match (source.kind, &attach.subscription) {
            (DestinationKind::Topic, Some(name)) => self.find_subscription(attach, name),
            (DestinationKind::Topic, None) => Ok(Some(self.subscribe(source, selector, effects))),
            (DestinationKind::Queue, _) => Ok(address.and_then(|address| address.bound.first().copied())),
        }
    }

    /// A volatile subscription, which begins with what the topic retains.
    fn subscribe(
        &mut self,
        topic: &Destination,
        selector: Option<Selector>,
        effects: &mut Vec<Effect>,
    ) -> QueueId {
        let queue = self.bind_volatile(topic);
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.selector = selector;
        }
        let retained = self.addresses.get(topic).map(|address| address.retained.values().cloned().collect());
        let retained: Vec<_> = retained.unwrap_or_default();
        for message in retained {
            let key = self.insert_volatile(message);
            self.bodies.refer(key);
            if self.takes(queue, key) {
                self.push_entry(queue, key);
            }
            self.drop_reference(key, effects);
        }
        queue
    }

    fn attach_to(&mut self, id: QueueId, attach: Attach, effects: &mut Vec<Effect>) {
        let key = attach.consumer;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        // A subscription takes only what matches; on a queue it is the consumer that selects.
        let selects = queue.source.kind == DestinationKind::Queue;
        let selector = selection::parse(&attach.selector).ok().flatten().filter(|_| selects);
        let browse = (attach.mode == ConsumerMode::Browse).then(|| Browse::of(queue));
        queue.consumers.push(key);
        queue.exclusive_consumers += u32::from(attach.mode == ConsumerMode::Exclusive);
        let consumer = Consumer {
            queue: id,
            mode: attach.mode,
            credit: attach.credit,
            priority: attach.priority,
            no_local: attach.no_local,
            held: Held::default(),
            browse,
            selection: selector.map(Selection::new),
            draining: false,
            in_line: false,
        };
        self.consumers.insert(key, consumer);
        self.connections.entry(key.connection).or_default().consumers.insert(key);
        self.line_up_all_if_exclusive(id);
        self.line_up(key);
        self.dispatch(id, effects);
    }

    pub(crate) fn credit(&mut self, key: ConsumerKey, add: u32, effects: &mut Vec<Effect>) {
        let Some(consumer) = self.consumers.get_mut(&key) else { return };
        consumer.credit = consumer.credit.saturating_add(add);
        let id = consumer.queue;
        self.line_up(key);
        self.dispatch(id, effects);
    }

    pub(crate) fn drain(&mut self, key: ConsumerKey, effects: &mut Vec<Effect>) {
        let Some(consumer) = self.consumers.get_mut(&key) else { return };
        consumer.draining = true;
        let id = consumer.queue;
        self.dispatch(id, effects);
        self.finish_drains(id, effects);
    }

    /// Ends the credit of draining consumers, unless a body that may be theirs is still on its way.
    pub(crate) fn finish_drains(&mut self, id: QueueId, effects: &mut Vec<Effect>) {
        let Some(queue) = self.queues.get(&id).filter(|queue| !queue.fetching) else { return };
        let drains = |key: &ConsumerKey| self.consumers.get(key).is_some_and(|consumer| consumer.draining);
        let draining: Vec<ConsumerKey> = queue.consumers.iter().filter(|key| drains(key)).copied().collect();
        for key in draining {
            self.leave_line(key);
            if let Some(consumer) = self.consumers.get_mut(&key) {
                consumer.draining = false;
                consumer.credit = 0;
                effects.push(Effect::Drained { consumer: key });
            }
        }
    }

    /// Puts a consumer into the line of its queue, if it can take a message and is not there yet.
    fn line_up(&mut self, key: ConsumerKey) {
        let Some(consumer) = self.consumers.get(&key) else { return };
        let has_seen_all = consumer.browse.as_ref().is_some_and(|browse| browse.is_over);
        let may = consumer.credit > 0
            && !has_seen_all
            && !self.outbox_is_full(key.connection)
            && self.is_chosen(key, consumer);
        let Some(consumer) = self.consumers.get_mut(&key).filter(|consumer| may && !consumer.in_line) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&consumer.queue) else { return };
        consumer.in_line = true;
        queue.line(consumer.mode).push_back(key);
    }

    /// Takes a consumer out of its line.
    pub(crate) fn leave_line(&mut self, key: ConsumerKey) {
        let Some(consumer) = self.consumers.get_mut(&key).filter(|consumer| consumer.in_line) else { return };
        consumer.in_line = false;
        if let Some(queue) = self.queues.get_mut(&consumer.queue) {
            queue.line(consumer.mode).retain(|waiting| *waiting != key);
        }
    }

    fn line_up_all_if_exclusive(&mut self, id: QueueId) {
        if self.queues.get(&id).is_some_and(|queue| queue.exclusive_consumers > 0) {
            self.line_up_all(id);
        }
    }

    /// Makes the line anew: after a consumer came or went, the exclusive one may be another.
    fn line_up_all(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let line: Vec<ConsumerKey> = queue.waiting.drain(..).collect();
        let consumers = queue.consumers.clone();
        for key in &line {
            if let Some(consumer) = self.consumers.get_mut(key) {
                consumer.in_line = false;
            }
        }
        for key in line.into_iter().chain(consumers) {
            self.line_up(key);
        }
    }

    /// With exclusive consumers on the queue only the first of the highest priority is served.
    fn is_chosen(&self, key: ConsumerKey, consumer: &Consumer) -> bool {
        if consumer.mode == ConsumerMode::Browse {
            return true;
        }
        let Some(queue) = self.queues.get(&consumer.queue) else { return false };
        if queue.exclusive_consumers == 0 {
            return true;
        }
        let exclusive = queue.consumers.iter().filter_map(|key| Some((*key, self.consumers.get(key)?)));
        let mut exclusive = exclusive.filter(|(_, consumer)| consumer.mode == ConsumerMode::Exclusive);
        let Some(first) = exclusive.next() else { return true };
        let chosen =
            exclusive.fold(first, |best, next| if next.1.priority > best.1.priority { next } else { best });
        chosen.0 == key
    }

    pub(crate) fn detach(
        &mut self,
        key: ConsumerKey,
        delivered: Delivered,
        ticket: Option<Ticket>,
        effects: &mut Vec<Effect>,
    ) {
        self.remove_consumer(key, delivered, effects);
        self.answer(ticket.map(|ticket| (key.connection, ticket)), Ok(()), effects);
    }

    pub(crate) fn remove_consumer(
        &mut self,
        key: ConsumerKey,
        delivered: Delivered,
        effects: &mut Vec<Effect>,
    ) {
        self.leave_line(key);
        let Some(consumer) = self.consumers.remove(&key) else { return };
        if let Some(connection) = self.connections.get_mut(&key.connection) {
            connection.consumers.remove(&key);
        }
        let id = consumer.queue;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.consumers.retain(|other| *other != key);
        queue.exclusive_consumers -= u32::from(consumer.mode == ConsumerMode::Exclusive);
        if id.is_volatile() && queue.source.kind == DestinationKind::Topic {
            return self.delete_queue(id, effects);
        }
        let (seen, unseen) = consumer.held.split(delivered);
        self.release(id, key, &seen, true, effects);
        self.release(id, key, &unseen, false, effects);
        if consumer.mode == ConsumerMode::Exclusive {
            self.line_up_all(id);
        }
        self.dispatch(id, effects);
    }

    /// Gives an exclusive name to a connection; another connection of the same holder gives way.
    pub(crate) fn claim(
        &mut self,
        name: Arc<str>,
        holder: Arc<str>,
        connection: ConnectionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        match self.claims.get(&name) {
            Some((other, _)) if *other != holder => {
                let refusal = Refusal::NameTaken { name, holder: other.clone() };
                return self.reply(connection, ticket, Err(refusal), effects);
            }
            Some((_, before)) if *before != connection => effects.push(Effect::Evict { connection: *before }),
            _ => {}
        }
        self.connections.entry(connection).or_default().claims.insert(name.clone());
        self.claims.insert(name, (holder, connection));
        self.reply(connection, ticket, Ok(()), effects);
    }

    pub(crate) fn disclaim(&mut self, name: &Arc<str>, connection: ConnectionId) {
        if self.claims.get(name).is_some_and(|(_, owner)| *owner == connection) {
            self.claims.remove(name);
        }
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.claims.remove(name);
        }
    }

    /// The outbox has room again: consumers that waited for it get back into their lines.
    pub(crate) fn written(&mut self, id: ConnectionId, bytes: u64, effects: &mut Vec<Effect>) {
        let was_full = self.outbox_is_full(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.unwritten_bytes = connection.unwritten_bytes.saturating_sub(bytes);
        if was_full {
            for key in connection.consumers.clone() {
                self.credit(key, 0, effects);
            }
        }
    }

    pub(crate) fn outbox_is_full(&self, id: ConnectionId) -> bool {
        let unwritten = self.connections.get(&id).map_or(0, |connection| connection.unwritten_bytes);
        unwritten >= self.settings.outbox_bytes_max
    }

    pub(crate) fn closed(&mut self, id: ConnectionId, effects: &mut Vec<Effect>) {
        for line in self.parked.values_mut() {
            line.retain(|publish| publish.connection != id);
        }
        self.parked.retain(|_, line| !line.is_empty());
        for waiting in self.declaring.values_mut() {
            waiting.retain(|event| !concerns_consumer_of(event, id));
        }
        let Some(connection) = self.connections.get(&id) else { return self.unpark(effects) };
        let (transactions, consumers) = (connection.transactions.clone(), connection.consumers.clone());
        // What one of them gives back goes to no other of them.
        for key in &consumers {
            self.stop_serving(*key);
        }
        for transaction in transactions {
            self.rollback(transaction, None, effects);
        }
        for key in consumers {
            self.remove_consumer(key, Delivered::All, effects);
        }
        let Some(connection) = self.connections.remove(&id) else { return };
        for destination in connection.temporary {
            self.delete_address(&destination, effects);
        }
        for name in connection.claims {
            self.disclaim(&name, id);
        }
        // Whatever waited behind its sends need not any more.
        self.unpark(effects);
    }

    fn stop_serving(&mut self, key: ConsumerKey) {
        self.leave_line(key);
        if let Some(consumer) = self.consumers.get_mut(&key) {
            consumer.credit = 0;
        }
    }

    pub(crate) fn declare(
        &mut self,
        destination: Destination,
        connection: ConnectionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        if destination.temporary {
            let result = self.declare_temporary(&destination, connection);
            return self.reply(connection, ticket, result, effects);
        }
        if destination.kind == DestinationKind::Queue && self.addresses.get(&destination).is_none() {
            let completion = Completion::Reply { connection, ticket };
            return self.propose(
                Command::Declare { queue: destination },
                Urgency::Waiting,
                completion,
                effects,
            );
        }
        self.reply(connection, ticket, Ok(()), effects);
    }

    fn declare_temporary(
        &mut self,
        destination: &Destination,
        connection: ConnectionId,
    ) -> Result<(), Refusal> {
        match self.addresses.get(destination) {
            Some(address) if address.owner == Some(connection) => return Ok(()),
            Some(_) => return Err(Refusal::NotOwner(destination.clone())),
            None => {}
        }
        self.addresses.get_or_make(destination).owner = Some(connection);
        if destination.kind == DestinationKind::Queue {
            self.bind_volatile(destination);
        }
        self.connections.entry(connection).or_default().temporary.insert(destination.clone());
        Ok(())
    }

    pub(crate) fn delete(
        &mut self,
        destination: Destination,
        connection: ConnectionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        let Some(address) = self.addresses.get(&destination) else {
            return self.reply(connection, ticket, Ok(()), effects);
        };
        if destination.temporary && address.owner != Some(connection) {
            return self.reply(connection, ticket, Err(Refusal::NotOwner(destination)), effects);
        }
        let bound = address.bound.iter().filter_map(|id| self.queues.get(id));
        let consumers: u64 = bound.map(|queue| queue.consumers.len() as u64).sum();
        if consumers > 0 {
            let refusal = Refusal::InUse { destination, consumers };
            return self.reply(connection, ticket, Err(refusal), effects);
        }
        if destination.temporary || destination.kind == DestinationKind::Topic {
            self.delete_address(&destination, effects);
            return self.reply(connection, ticket, Ok(()), effects);
        }
        let completion = Completion::Reply { connection, ticket };
        self.propose(Command::Delete { queue: destination }, Urgency::Waiting, completion, effects);
    }

    pub(crate) fn delete_address(&mut self, destination: &Destination, effects: &mut Vec<Effect>) {
        let Some(address) = self.addresses.remove(destination) else { return };
        if let Some(connection) = address.owner.and_then(|owner| self.connections.get_mut(&owner)) {
            connection.temporary.remove(destination);
        }
        for id in address.bound {
            self.delete_queue(id, effects);
        }
    }

    /// The queue ends, with its entries and its consumers.
    pub(crate) fn delete_queue(&mut self, id: QueueId, effects: &mut Vec<Effect>) {
        let Some(queue) = self.queues.remove(&id) else { return };
        if let Some(address) = self.addresses.get_mut(&queue.source) {
            address.bound.retain(|bound| *bound != id);
        }
        for key in queue.consumers {
            self.consumers.remove(&key);
            if let Some(connection) = self.connections.get_mut(&key.connection) {
                connection.consumers.remove(&key);
            }
            effects.push(Effect::Detached { consumer: key });
        }
        let keys: Vec<_> =
            queue.lanes.values().flat_map(|lane| lane.iter().map(|(_, entry)| entry.key)).collect();
        self.counters.discarded += keys.len() as u64;
        for key in keys {
            self.drop_reference(key, effects);
        }
    }

    /// Entries that a consumer holds become ready again, in their old places.
    pub(crate) fn release(
        &mut self,
        id: QueueId,
        holder: ConsumerKey,
        tags: &[EntryTag],
        failed: bool,
        effects: &mut Vec<Effect>,
    ) {
        let mut released = Vec::with_capacity(tags.len());
        for tag in tags {
            let Some(entry) = self.entry(id, *tag) else { continue };
            if entry.state == (State::Held { by: holder, in_transaction: false }) {
                let key = entry.key;
                self.bodies.unpin(key);
                released.push(*tag);
            }
        }
        if failed {
            self.count_failed(id, &released, effects);
        }
        if let Some(queue) = self.queues.get_mut(&id) {
            for tag in released {
                queue.give_back(tag);
            }
        }
    }

    /// The delivery count rises: at once here, and in the log when convenient.
    pub(crate) fn count_failed(&mut self, id: QueueId, tags: &[EntryTag], effects: &mut Vec<Effect>) {
        let (mut durable, mut volatile) = (Vec::new(), Vec::new());
        for tag in tags {
            match crate::queue::LaneNumber::DURABLE.0 == crate::queue::untag(*tag).0 {
                true => durable.push(*tag),
                false => volatile.push(*tag),
            }
        }
        self.count_delivery(id, &volatile);
        for tag in &durable {
            if let Some(entry) = self.entry(id, *tag) {
                entry.uncounted_deliveries += 1;
            }
        }
        if !durable.is_empty() {
            let counted = durable.clone();
            let command = Command::CountDelivery { queue: id, tags: durable };
            self.propose(command, Urgency::Lazy, Completion::Counted { queue: id, tags: counted }, effects);
        }
    }

    /// A count that was known here already is in the log now, and replicas know it too.
    pub(crate) fn counted(&mut self, id: QueueId, tags: &[EntryTag]) {
        for tag in tags {
            if let Some(entry) = self.entry(id, *tag) {
                entry.uncounted_deliveries = entry.uncounted_deliveries.saturating_sub(1);
            }
        }
    }

    /// Adds one failed delivery to each entry.
    pub(crate) fn count_delivery(&mut self, id: QueueId, tags: &[EntryTag]) {
        for tag in tags {
            if let Some(entry) = self.entry(id, *tag) {
                entry.failed_deliveries += 1;
            }
        }
    }
}

/// Whether the event is about a consumer of this connection, and void without it.
fn concerns_consumer_of(event: &Event, connection: ConnectionId) -> bool {
    match event {
        Event::Attach(attach) => attach.consumer.connection == connection,
        Event::Detach { consumer, .. } | Event::Credit { consumer, .. } | Event::Drain { consumer } => {
            consumer.connection == connection
        }
        _ => false,
    }
}
