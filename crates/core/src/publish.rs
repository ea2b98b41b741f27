//! A message comes in: what becomes durable, what stays in memory, and which queues get it.

use postroad_model::{
    Command, ConnectionId, Destination, DestinationKind, Effect, Event, Message, MessageKey, Position,
    Publish, QueueId, Refusal, Retain, Sent, Ticket, Urgency,
};

use crate::Partition;
use crate::completion::Completion;

impl Partition {
    pub(crate) fn publish(&mut self, publish: Publish, effects: &mut Vec<Effect>) {
        if publish.transaction.is_some() {
            return self.publish_in_transaction(publish, effects);
        }
        let (connection, ticket) = (publish.connection, publish.ticket);
        if self.declaring.contains_key(&publish.sent.to) && !publish.sent.message.persistent {
            let queue = publish.sent.to.clone();
            return self.declare_first(queue, Event::Publish(publish), effects);
        }
        match self.admit(&publish.sent) {
            Ok(Admitted::Durable) => {
                let command = Command::Enqueue(publish.sent);
                self.propose(command, Urgency::Waiting, Completion::Reply { connection, ticket }, effects);
            }
            Ok(Admitted::Volatile) if self.must_park(&publish.sent.message) => self.parked.push_back(publish),
            Ok(Admitted::Volatile) => {
                let Publish { sent, retain, .. } = publish;
                self.publish_volatile(sent, Some(connection), retain, effects);
                self.reply(connection, ticket, Ok(()), effects);
            }
            Ok(Admitted::NeedsQueue) => {
                let queue = publish.sent.to.clone();
                self.declare_first(queue, Event::Publish(publish), effects);
            }
            Err(refusal) => self.reply(connection, ticket, Err(refusal), effects),
        }
    }

    /// Decides how safe a message will be, and refuses what cannot be taken.
    pub(crate) fn admit(&self, sent: &Sent) -> Result<Admitted, Refusal> {
        let to = &sent.to;
        let address = self.addresses.get(to);
        if to.temporary {
            return address.map(|_| Admitted::Volatile).ok_or_else(|| Refusal::NoSuchDestination(to.clone()));
        }
        match to.kind {
            DestinationKind::Topic => Ok(Admitted::Volatile),
            DestinationKind::Queue if !sent.message.persistent => {
                Ok(if address.is_some() { Admitted::Volatile } else { Admitted::NeedsQueue })
            }
            DestinationKind::Queue if !self.space_ample => Err(Refusal::StoreFull { to: to.clone() }),
            DestinationKind::Queue => Ok(Admitted::Durable),
        }
    }

    fn must_park(&self, message: &Message) -> bool {
        let bytes = self.bodies.volatile_bytes;
        !self.parked.is_empty()
            || bytes > 0 && bytes + message.bytes.len() as u64 > self.settings.volatile_bytes_max
    }

    /// Lets parked sends in, as far as memory allows.
    pub(crate) fn unpark(&mut self, effects: &mut Vec<Effect>) {
        while let Some(publish) = self.parked.front() {
            let bytes = self.bodies.volatile_bytes;
            let wanted = publish.sent.message.bytes.len() as u64;
            if bytes > 0 && bytes + wanted > self.settings.volatile_bytes_max {
                return;
            }
            let Some(Publish { connection, ticket, sent, retain, .. }) = self.parked.pop_front() else {
                return;
            };
            if sent.to.temporary && self.addresses.get(&sent.to).is_none() {
                self.reply(connection, ticket, Err(Refusal::NoSuchDestination(sent.to)), effects);
                continue;
            }
            self.publish_volatile(sent, Some(connection), retain, effects);
            self.reply(connection, ticket, Ok(()), effects);
        }
    }

    /// Hands a message to every queue bound to its address, in memory alone.
    pub(crate) fn publish_volatile(
        &mut self,
        sent: Sent,
        from: Option<ConnectionId>,
        retain: Option<Retain>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(retain) = retain {
            let address = self.addresses.get_or_make(&sent.to);
            match retain.keep {
                true => address.retained.insert(retain.key, sent.message.clone()),
                false => address.retained.remove(&retain.key),
            };
        }
        let bound = self.addresses.get(&sent.to).map(|address| address.bound.clone()).unwrap_or_default();
        let key = self.insert_volatile(sent.message);
        // Every queue has it before any is served: serving one may expire it there, and let a parked send in behind it.
        self.bodies.refer(key);
        let bound: Vec<QueueId> = bound.into_iter().filter(|queue| !self.shuts_out(*queue, from)).collect();
        for queue in &bound {
            self.push_entry(*queue, key);
        }
        for queue in bound {
            self.dispatch(queue, effects);
        }
        self.drop_reference(key, effects);
    }

    /// Whether the queue belongs to a `noLocal` subscription of the connection that publishes.
    fn shuts_out(&self, queue: QueueId, from: Option<ConnectionId>) -> bool {
        let subscriber = self.queues.get(&queue).and_then(|queue| queue.consumers.first());
        let subscriber = subscriber.filter(|key| Some(key.connection) == from);
        queue.is_volatile()
            && subscriber.and_then(|key| self.consumers.get(key)).is_some_and(|consumer| consumer.no_local)
    }

    /// Carries out durable sends: one body each in the store, one entry in each durable queue.
    pub(crate) fn enqueue_durable(
        &mut self,
        position: Position,
        sends: Vec<Sent>,
        effects: &mut Vec<Effect>,
    ) {
        let mut touched: Vec<QueueId> = Vec::with_capacity(sends.len());
        if !sends.is_empty() {
            effects.push(Effect::Retain { position, count: sends.len() as u32 });
        }
        for (ordinal, sent) in sends.into_iter().enumerate() {
            let key = MessageKey::Durable { position, ordinal: ordinal as u32 };
            self.bodies.insert(key, sent.message);
            touched.push(self.bind_entry(key, &sent.to));
        }
        self.dispatch_all(touched, effects);
        self.evict_over_budget(position);
    }

    pub(crate) fn bind_entry(&mut self, key: MessageKey, to: &Destination) -> QueueId {
        let queue = self.declare_queue(to);
        self.push_entry(queue, key);
        queue
    }

    pub(crate) fn dispatch_all(&mut self, mut queues: Vec<QueueId>, effects: &mut Vec<Effect>) {
        queues.sort_unstable();
        queues.dedup();
        for queue in queues {
            self.dispatch(queue, effects);
        }
    }

    /// Leaves the newest bodies to the disk once the budget is spent: the oldest are due first.
    fn evict_over_budget(&mut self, position: Position) {
        let mut ordinal = 0;
        while self.bodies.resident_bytes > self.settings.resident_bytes_max {
            let key = MessageKey::Durable { position, ordinal };
            if self.bodies.headers(key).is_none() {
                return;
            }
            self.bodies.evict(key);
            ordinal += 1;
        }
    }

    pub(crate) fn answer(
        &self,
        to: Option<(ConnectionId, Ticket)>,
        result: Result<(), Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some((connection, ticket)) = to {
            self.reply(connection, ticket, result, effects);
        }
    }
}

/// How a message is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Through the log.
    Durable,
    /// In memory.
    Volatile,
    /// In memory, once its queue exists.
    NeedsQueue,
}
