//! Consumers: attach, credit, pull, and leave.

use std::sync::Arc;

use postroad_model::{
    Attach, ConsumerKey, ConsumerMode, ConsumerNotice, Delivered, DestinationKind, DetachCause, Event,
    LookupMap, PartitionId, Share, Subscription, Ticket,
};
use rustc_hash::FxHashMap;

use super::delivery::{Held, Window};
use super::exception::Exception;
use super::names;
use super::replies::{self, Then};
use super::{Done, OpenWireSession, Turn};
use crate::advisory::is_advisory;
use crate::codec::{
    ConsumerControl, ConsumerId, ConsumerInfo, Destination, MessageDispatch, MessagePull, ProducerId,
    RemoveInfo, RemoveSubscriptionInfo, RemovedId, SessionId, WireString,
};

/// Sources that one connection may read from: pools have hundreds of consumers on a connection.
const CONSUMERS_MAX: usize = 16_384;

/// The core's name for one attached consumer of this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerNumber(pub u32);

/// One consumer of the client. It reads from several queues if its destination is a list.
pub struct Consumer {
    /// The client's name for it.
    pub id: ConsumerId,
    /// The parts that the core attached for it.
    pub parts: Vec<Part>,
    /// Sees, and takes nothing.
    pub browses: bool,
    /// How many messages the client wants ahead.
    pub prefetch: u32,
    /// Its unsettled deliveries.
    pub window: Window,
    /// A client without prefetch waits for one message.
    pull: Option<Pull>,
    /// How often its parts were asked to say that nothing more is there.
    drains: u64,
}

/// One source of a consumer.
pub struct Part {
    /// The core's name for it.
    pub number: ConsumerNumber,
    /// Where it reads from.
    pub destination: Destination,
    /// It reads from every destination that matches: each message says itself from which.
    pub is_pattern: bool,
    /// For a pattern: in which partition.
    at: Option<PartitionId>,
    /// How often it has said that nothing more is there.
    drained: u64,
}

struct Pull {
    /// When the client gives up.
    ends_ms: Option<u64>,
    /// The drain that ends it.
    drain: Option<u64>,
    /// An earlier pull is still being ended, which takes all credit back: this one gets its credit
    /// after that.
    waits: bool,
    /// It takes a message that is ready now, or none.
    at_once: bool,
}

impl Pull {
    /// When the drain that ends it is due.
    fn due_ms(&self) -> Option<u64> {
        self.ends_ms.filter(|_| self.drain.is_none() && !self.waits)
    }
}

/// The consumers of a connection. Deliveries name them by the core's numbers, which are found
/// without a secret hash; a client's own ids are its choice, and long.
#[derive(Default)]
pub struct Consumers {
    last: u32,
    /// By the number that their first part had.
    all: FxHashMap<ConsumerNumber, Consumer>,
    by_id: LookupMap<ConsumerId, ConsumerNumber>,
    /// Of each part, where its consumer is in `all`.
    places: FxHashMap<ConsumerNumber, ConsumerNumber>,
    /// Consumers with a pull that ends by itself; keeps the common case free of a search.
    pulls: u32,
    /// The last removal of consumers, answered or not.
    removal: Option<Ticket>,
}

impl Consumers {
    /// By the client's name.
    pub fn get_mut(&mut self, id: &ConsumerId) -> Option<&mut Consumer> {
        self.all.get_mut(self.by_id.get(id)?)
    }

    /// By the core's name.
    pub fn by_number(&mut self, number: u32) -> Option<&mut Consumer> {
        self.all.get_mut(self.places.get(&ConsumerNumber(number))?)
    }

    /// Whether one has this number of the core's.
    pub fn has_number(&self, number: u32) -> bool {
        self.places.contains_key(&ConsumerNumber(number))
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        self.all.values_mut()
    }

    /// Whether one holds a delivery that is not settled for good.
    pub fn any_holds(&self) -> bool {
        self.all.values().any(|consumer| consumer.window.held().next().is_some())
    }

    /// When the next pull ends.
    pub fn next_pull_end(&self) -> Option<u64> {
        if self.pulls == 0 {
            return None;
        }
        self.all.values().filter_map(|consumer| consumer.pull.as_ref()?.due_ms()).min()
    }

    /// The client's name of the consumer that the part is of.
    fn id_of(&self, number: ConsumerNumber) -> Option<ConsumerId> {
        Some(self.all.get(self.places.get(&number)?)?.id.clone())
    }

    fn ids_where(&self, wanted: impl Fn(&ConsumerId) -> bool) -> Vec<ConsumerId> {
        self.by_id.sorted_where(wanted).into_iter().map(|(id, _)| id.clone()).collect()
    }

    fn insert(&mut self, consumer: Consumer) {
        let Some(place) = consumer.parts.first().map(|part| part.number) else { return };
        for part in &consumer.parts {
            self.places.insert(part.number, place);
        }
        self.by_id.insert(consumer.id.clone(), place);
        self.all.insert(place, consumer);
    }

    fn remove(&mut self, id: &ConsumerId) -> Option<Consumer> {
        let consumer = self.all.remove(&self.by_id.remove(id)?)?;
        for part in &consumer.parts {
            self.places.remove(&part.number);
        }
        self.pulls -= u32::from(consumer.pull.is_some());
        Some(consumer)
    }
}

impl Consumer {
    /// How often all of its parts have said that nothing more is there.
    fn drained(&self) -> u64 {
        self.parts.iter().map(|part| part.drained).min().unwrap_or(0)
    }

    /// Whether the client waits for another message in place of one that it cannot be sent.
    pub fn wants_another(&self) -> bool {
        self.prefetch > 0 || self.pull.as_ref().is_some_and(|pull| pull.drain.is_none() && !pull.waits)
    }

    fn satisfied(&mut self) -> bool {
        self.pull.take().is_some()
    }
}

impl OpenWireSession {
    pub(super) fn key(&self, number: ConsumerNumber) -> ConsumerKey {
        ConsumerKey::new(self.id, number.0)
    }

    pub(super) fn add_consumer(
        &mut self,
        info: ConsumerInfo,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        let (Some(id), Some(destination)) = (&info.consumer_id, &info.destination) else {
            return Err(Exception::jms("ConsumerInfo without a consumer id or a destination"));
        };
        let id = own_consumer(id);
        if self.consumers.get_mut(&id).is_some() {
            return Err(Exception::jms("the consumer id is in use already"));
        }
        let prefetch = u32::try_from(info.prefetch_size).unwrap_or(0);
        replies::check_bound("consumers", self.consumers.places.len(), CONSUMERS_MAX)?;
        let mode = match (info.browser, info.exclusive) {
            (true, _) => ConsumerMode::Browse,
            (false, true) => ConsumerMode::Exclusive,
            (false, false) => ConsumerMode::Shared,
        };
        let parts = self.parts_of(destination)?;
        let numbers = parts.iter().map(|part| part.number).collect();
        let selector: Arc<str> =
            info.selector.as_ref().map_or("".into(), |selector| selector.to_str().into());
        let subscription = info.subscription_name.as_ref().map(|name| self.subscription(&name.to_str()));
        let steals =
            subscription.as_ref().and_then(|_| self.introduction.client().map(|client| client.heir()));
        let ticket = self.wait(parts.len() as u32, None, Then::Attached(numbers));
        for part in &parts {
            turn.events.push(Event::Attach(Attach {
                consumer: self.key(part.number),
                source: names::to_model(&part.destination),
                mode,
                credit: prefetch,
                credit_by_default: is_default_prefetch(&info),
                priority: info.priority as i8,
                no_local: info.no_local,
                client: self.introduction.client().map(|client| client.client_id.clone()),
                selector: selector.clone(),
                subscription: subscription.clone(),
                share: Share::No,
                steals: steals.clone(),
                retroactive: info.retroactive,
                at: part.at,
                notice: self.notice(&info, mode, (part, &subscription)).map(Arc::new),
                ticket,
            }));
        }
        let browses = info.browser;
        self.consumers.insert(Consumer {
            id,
            parts,
            browses,
            prefetch,
            window: Window::default(),
            pull: None,
            drains: 0,
        });
        Ok(Done::Later(ticket))
    }

    /// The notice of the consumer; a consumer of many partitions has one.
    fn notice(
        &self,
        info: &ConsumerInfo,
        mode: ConsumerMode,
        (part, durable): (&Part, &Option<Arc<str>>),
    ) -> Option<ConsumerNotice> {
        let id = info.consumer_id.as_ref()?;
        let source = names::to_model(&part.destination);
        let told = !is_advisory(&source.name) && part.at.is_none_or(|at| at == PartitionId(0));
        let text = |text: &Option<WireString>| text.as_ref().map(|text| Arc::<str>::from(text.to_str()));
        told.then(|| ConsumerNotice {
            name: names::of_client(&id.connection_id, id.session_id, id.value),
            source,
            mode,
            prefetch: u32::try_from(info.prefetch_size).unwrap_or(0),
            priority: info.priority as i8,
            no_local: info.no_local,
            retroactive: info.retroactive,
            selector: text(&info.selector).unwrap_or_default(),
            subscription: text(&info.subscription_name),
            durable: durable.clone(),
            since_ms: 0,
            client_id: self.introduction.client().map(|client| client.client_id.clone()).unwrap_or_default(),
            network: None,
        })
    }

    /// The attachments for a consumer of this destination.
    fn parts_of(&mut self, destination: &Destination) -> Result<Vec<Part>, Exception> {
        let sources = names::parts(destination);
        if sources.is_empty() {
            return Err(Exception::of("InvalidDestinationException", "the destination has no name"));
        }
        replies::check_bound("destinations of one consumer", sources.len() - 1, names::LIST_MAX)?;
        sources.iter().try_for_each(|source| names::check(&names::to_model(source)))?;
        let mut parts = Vec::with_capacity(sources.len());
        for source in sources {
            let is_pattern = names::is_wildcard(&source);
            let everywhere = (0..self.options.partitions).map(|partition| Some(PartitionId(partition)));
            let places = if is_pattern { everywhere.collect() } else { vec![None] };
            for at in places {
                self.consumers.last += 1;
                let number = ConsumerNumber(self.consumers.last);
                parts.push(Part { number, destination: names::own(&source), is_pattern, at, drained: 0 });
            }
        }
        Ok(parts)
    }

    /// The broker's name of a durable subscription.
    fn subscription(&self, name: &str) -> Arc<str> {
        let client = self.introduction.client().map_or("", |client| &client.client_id);
        Subscription::name_of(self.owner(), client, name)
    }

    /// The client ends a durable subscription.
    pub(super) fn unsubscribe(
        &mut self,
        info: &RemoveSubscriptionInfo,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        let Some(name) = &info.subscription_name else {
            return Err(Exception::jms("RemoveSubscriptionInfo names no subscription"));
        };
        let ticket = self.wait(1, None, Then::Respond);
        let name = self.subscription(&name.to_str());
        turn.events.push(Event::Unsubscribe { name, connection: self.id, ticket });
        Ok(Done::Later(ticket))
    }

    /// One source of a consumer was refused: deliveries of the others go back.
    pub(super) fn undo_attach(&mut self, numbers: &[ConsumerNumber], turn: &mut Turn<'_>) {
        self.forget_consumers(numbers);
        for number in numbers {
            let (consumer, delivered) = (self.key(*number), Delivered::None);
            turn.events.push(Event::Detach { consumer, delivered, ticket: None });
        }
    }

    pub(super) fn forget_consumers(&mut self, numbers: &[ConsumerNumber]) {
        for number in numbers {
            if let Some(id) = self.consumers.id_of(*number) {
                self.consumers.remove(&id);
            }
        }
    }

    /// The client changes its mind about how much it wants ahead.
    pub(super) fn control_consumer(
        &mut self,
        control: &ConsumerControl,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        let Some(consumer) = control.consumer_id.as_ref().and_then(|id| self.consumers.get_mut(id)) else {
            return Ok(Done::Now);
        };
        let prefetch = u32::try_from(control.prefetch).unwrap_or(0);
        let add = prefetch.saturating_sub(consumer.prefetch);
        consumer.prefetch = consumer.prefetch.max(prefetch);
        let numbers: Vec<_> = consumer.parts.iter().map(|part| part.number).collect();
        for number in numbers.into_iter().filter(|_| add > 0) {
            turn.events.push(Event::Credit { consumer: self.key(number), add });
        }
        Ok(Done::Now)
    }

    /// A policy has decided how much one part of a consumer gets ahead. A client that gets nothing
    /// ahead must know it, to ask for each message.
    pub(super) fn prefetch_decided(&mut self, number: u32, messages: u32, turn: &mut Turn<'_>) {
        let Some(consumer) =
            self.consumers.by_number(number).filter(|consumer| consumer.prefetch != messages)
        else {
            return;
        };
        consumer.prefetch = messages;
        let (consumer_id, prefetch) =
            (Some(consumer.id.clone()), i32::try_from(messages).unwrap_or(i32::MAX));
        self.send(ConsumerControl { consumer_id, prefetch, ..ConsumerControl::default() }.into(), turn);
    }

    /// A client without prefetch wants one message (timeout in ms: 0 waits for ever, negative not
    /// at all).
    pub(super) fn pull(&mut self, pull: &MessagePull, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        let id = pull.consumer_id.as_ref();
        let Some(consumer) = id.and_then(|id| self.consumers.get_mut(id)) else {
            return Err(Exception::jms("MessagePull for a consumer that does not exist"));
        };
        if consumer.browses && 0 < consumer.drained() {
            let consumer_id = Some(consumer.id.clone());
            self.send(MessageDispatch { consumer_id, ..MessageDispatch::default() }.into(), turn);
            return Ok(Done::Now);
        }
        let numbers: Vec<_> = consumer.parts.iter().map(|part| part.number).collect();
        let fresh = consumer.pull.is_none();
        let waits = consumer.drained() < consumer.drains;
        // A browser gets a message or its end, and never waits for more.
        let at_once = pull.timeout < 0 && !consumer.browses;
        let ends_ms = u64::try_from(pull.timeout).ok().filter(|ms| *ms > 0 && !consumer.browses);
        let ends_ms = ends_ms.map(|ms| turn.now.ticks_ms + ms);
        consumer.pull = Some(Pull { ends_ms, drain: None, waits, at_once });
        let id = consumer.id.clone();
        self.consumers.pulls += u32::from(fresh);
        for number in numbers.into_iter().filter(|_| fresh && !waits) {
            turn.events.push(Event::Credit { consumer: self.key(number), add: 1 });
        }
        if at_once && !waits {
            self.drain(&id, turn);
        }
        Ok(Done::Now)
    }

    fn drain(&mut self, id: &ConsumerId, turn: &mut Turn<'_>) {
        let Some(consumer) = self.consumers.get_mut(id) else { return };
        // With several sources the answer of the last one ends the pull.
        consumer.drains += 1;
        let sent = consumer.drains;
        if let Some(pull) = &mut consumer.pull {
            pull.drain = Some(sent);
        }
        let numbers: Vec<_> = consumer.parts.iter().map(|part| part.number).collect();
        for number in numbers {
            turn.events.push(Event::Drain { consumer: self.key(number) });
        }
    }

    pub(super) fn end_pulls(&mut self, turn: &mut Turn<'_>) {
        if self.consumers.next_pull_end().is_none_or(|ends| turn.now.ticks_ms < ends) {
            return;
        }
        let over = |consumer: &&Consumer| {
            consumer.pull.as_ref().and_then(Pull::due_ms).is_some_and(|due| due <= turn.now.ticks_ms)
        };
        let ids: Vec<ConsumerId> =
            self.consumers.all.values().filter(over).map(|consumer| consumer.id.clone()).collect();
        for id in ids {
            self.drain(&id, turn);
        }
    }

    /// Nothing more comes for now: a pull or a browse has ended, which a dispatch without a message
    /// says.
    pub(super) fn drained(&mut self, number: u32, turn: &mut Turn<'_>) {
        let Some(consumer) = self.consumers.by_number(number) else { return };
        let (id, before) = (consumer.id.clone(), consumer.drained());
        let answering = consumer.parts.iter_mut().find(|part| part.number.0 == number);
        answering.into_iter().for_each(|part| part.drained += 1);
        if before < consumer.drained() {
            self.all_drained(id, turn);
        }
    }

    /// The last part has answered.
    fn all_drained(&mut self, id: ConsumerId, turn: &mut Turn<'_>) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        // A browser's parts say once that they were seen whole.
        if !consumer.browses {
            let drained = Some(consumer.drained());
            if consumer.pull.as_ref().is_none_or(|pull| pull.drain != drained) {
                return self.begin_waiting_pull(&id, turn);
            }
        }
        if consumer.browses && consumer.prefetch == 0 && consumer.pull.is_none() {
            // The client asks once more, and is answered then. An end that it has not asked for
            // could pass its question: the answer to that would end its next browse, which has the
            // same id (ActiveMQQueueBrowser).
            return;
        }
        self.consumers.pulls -= u32::from(consumer.satisfied());
        let dispatch = MessageDispatch { consumer_id: Some(id), ..MessageDispatch::default() };
        self.send(dispatch.into(), turn);
    }

    /// The last answer to a drain has come: a pull that waited for it gets its credit.
    fn begin_waiting_pull(&mut self, id: &ConsumerId, turn: &mut Turn<'_>) {
        let Some(consumer) = self.consumers.get_mut(id) else { return };
        let all_seen = consumer.drained() == consumer.drains;
        let Some(pull) = consumer.pull.as_mut().filter(|pull| pull.waits && all_seen) else { return };
        pull.waits = false;
        let at_once = pull.at_once;
        let numbers: Vec<_> = consumer.parts.iter().map(|part| part.number).collect();
        for number in numbers {
            turn.events.push(Event::Credit { consumer: self.key(number), add: 1 });
        }
        if at_once {
            self.drain(id, turn);
        }
    }

    pub(super) fn pull_satisfied(&mut self, number: u32) {
        if self.consumers.pulls > 0
            && let Some(consumer) = self.consumers.by_number(number)
            && consumer.satisfied()
        {
            self.consumers.pulls -= 1;
        }
    }

    /// One part of a consumer of several destinations is no more; `false` if it has no others.
    fn forget_part(&mut self, number: ConsumerNumber, turn: &mut Turn<'_>) -> bool {
        let consumer = self.consumers.by_number(number.0);
        let Some(consumer) = consumer.filter(|consumer| consumer.parts.len() > 1) else { return false };
        let id = consumer.id.clone();
        let before = consumer.drained();
        consumer.parts.retain(|part| part.number != number);
        let answered = before < consumer.drained();
        self.consumers.places.remove(&number);
        if answered {
            // The others had answered before.
            self.all_drained(id, turn);
        }
        true
    }

    /// A part of it has ended. If its destination was deleted, the client knows, and its other
    /// parts live on; any other cause is reported to it, and ends all its parts.
    pub(super) fn detached(&mut self, number: u32, cause: DetachCause, turn: &mut Turn<'_>) {
        // The client itself knows about the deletion.
        if cause != DetachCause::Deleted
            && let Some(consumer) = self.consumers.by_number(number)
        {
            let id = consumer.id.clone();
            let parts = consumer.parts.iter().map(|part| part.number);
            let others: Vec<_> = parts.filter(|part| part.0 != number).collect();
            for part in others {
                let (consumer, delivered) = (self.key(part), Delivered::All);
                turn.events.push(Event::Detach { consumer, delivered, ticket: None });
            }
            let control =
                ConsumerControl { consumer_id: Some(id), close: true, ..ConsumerControl::default() };
            self.send(control.into(), turn);
        }
        if cause != DetachCause::Deleted || !self.forget_part(ConsumerNumber(number), turn) {
            self.forget_consumers(&[ConsumerNumber(number)]);
        }
    }

    pub(super) fn remove(&mut self, info: &RemoveInfo, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        let seen = info.last_delivered_sequence_id;
        let ids = match &info.object_id {
            Some(RemovedId::Consumer(id)) => vec![id.clone()],
            Some(RemovedId::Session(session)) => self.consumers.ids_where(|id| belongs(id, session)),
            Some(RemovedId::Connection(_)) => self.consumers.ids_where(|_| true),
            Some(RemovedId::Producer(id)) => {
                self.remove_producer(id, turn);
                Vec::new()
            }
            None => return Err(Exception::jms("RemoveInfo names nothing")),
        };
        match &info.object_id {
            Some(RemovedId::Session(session)) => self.remove_producers(|id| is_in(id, session), turn),
            Some(RemovedId::Connection(_)) => self.remove_producers(|_| true, turn),
            _ => {}
        }
        let removed: Vec<Consumer> = ids.iter().filter_map(|id| self.consumers.remove(id)).collect();
        let parts: u32 = removed.iter().map(|consumer| consumer.parts.len() as u32).sum();
        let name = match info.object_id {
            Some(RemovedId::Connection(_)) => self.forget_client(),
            // A producer has nothing to wait for.
            Some(RemovedId::Producer(_)) => return Ok(Done::Now),
            _ => None,
        };
        let Some(ticket) = self.wait_for_removal(parts + u32::from(name.is_some())) else {
            return Ok(Done::Now);
        };
        if let Some(name) = name {
            turn.events.push(Event::Disclaim { name, connection: self.id, ticket });
        }
        for consumer in &removed {
            for part in &consumer.parts {
                let delivered = delivered(seen, consumer.window.held(), part.number);
                let consumer = self.key(part.number);
                turn.events.push(Event::Detach { consumer, delivered, ticket: Some(ticket) });
            }
        }
        Ok(Done::Later(ticket))
    }

    /// A ticket for these answers, and for the removals before: clients wait for no response to
    /// the removal of a consumer, and take that of their connection for the end of the matter.
    /// `None` if there is nothing to wait for.
    fn wait_for_removal(&mut self, answers: u32) -> Option<Ticket> {
        let before = self.consumers.removal.filter(|before| self.replies.then(*before).is_some());
        let answers = answers + u32::from(before.is_some());
        if answers == 0 {
            return None;
        }
        let ticket = self.wait(answers, None, Then::Removed { next: None });
        if let Some(before) = before.and_then(|before| self.replies.then(before)) {
            before.then = Then::Removed { next: Some(ticket) };
        }
        self.consumers.removal = Some(ticket);
        Some(ticket)
    }
}

fn belongs(id: &ConsumerId, session: &SessionId) -> bool {
    id.connection_id == session.connection_id && id.session_id == session.value
}

fn is_in(id: &ProducerId, session: &SessionId) -> bool {
    id.connection_id == session.connection_id && id.session_id == session.value
}

/// The last message that the application has seen, by the client's last delivery to it.
///
/// Deliveries are numbered over the connection, and each consumer's come in order, so everything up
/// to that number was seen (`RemoveInfo.lastDeliveredSequenceId`).
fn delivered<'a>(seen: i64, held: impl Iterator<Item = &'a Held>, part: ConsumerNumber) -> Delivered {
    match u64::try_from(seen) {
        Ok(seen) => {
            let last = held.filter(|held| held.part == part && held.sequence <= seen).last();
            last.map_or(Delivered::None, Held::through)
        }
        Err(_) if seen == RemoveInfo::LAST_DELIVERED_UNSET => Delivered::None,
        Err(_) => Delivered::All,
    }
}

/// Whether the application has said nothing about how much it wants ahead, as far as one can see:
/// ActiveMQ's clients send their defaults then (`ActiveMQPrefetchPolicy` of activemq-client, and
/// `PolicyEntry.configurePrefetch` of activemq-broker).
fn is_default_prefetch(info: &ConsumerInfo) -> bool {
    let of_topic =
        info.destination.as_ref().is_some_and(|at| names::to_model(at).kind == DestinationKind::Topic);
    let defaults: &[i32] = match (info.browser, of_topic, &info.subscription_name) {
        (true, ..) => &[500],
        (false, false, _) => &[1000],
        // The second is that of clients that acknowledge in batches.
        (false, true, Some(_)) => &[100, 1000],
        (false, true, None) => &[i16::MAX as i32],
    };
    defaults.contains(&info.prefetch_size)
}

fn own_consumer(id: &ConsumerId) -> ConsumerId {
    ConsumerId { connection_id: id.connection_id.as_ref().map(super::own), ..id.clone() }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use postroad_model::portable::{Body, Portable, Text, TranslationError};
    use postroad_model::{Delivery, Encoding, EntryTag, Message, Outcome, Protocol, Settle};

    use super::*;
    use crate::codec::{Command, MessageKind, WireFormat, decode_text_body, take_frame};
    use crate::session::{Now, OpenWireOptions};

    const KEY: ConsumerKey = ConsumerKey::new(postroad_model::ConnectionId::new(0, 1), 1);

    /// Text of another protocol; other bytes cannot be converted.
    fn foreign(message: &Message) -> Result<Portable, TranslationError> {
        let text = Text::from_utf8(message.bytes.clone());
        let text = text.ok_or(TranslationError::Unreadable {
            protocol: message.encoding.protocol,
            reason: "no text".to_owned(),
        })?;
        Ok(Portable { body: Body::Text(Some(text)), ..Portable::default() })
    }

    fn delivery(bytes: &'static [u8]) -> Delivery {
        let encoding = Encoding { protocol: Protocol::Amqp, version: 0 };
        let bytes = bytes::Bytes::from_static(bytes);
        let message =
            Message { encoding, persistent: true, priority: 4, expires_at_ms: 0, rare: None, bytes };
        let (tag, source) = (EntryTag(9), None);
        Delivery {
            consumer: KEY,
            source,
            tag,
            queue: (postroad_model::PartitionId(0), postroad_model::QueueId(0)),
            failed_deliveries: 2,
            by_policy: false,
            first_of_group: false,
            trace: None,
            message,
        }
    }

    #[test]
    fn a_message_of_another_protocol_is_translated() {
        let mut session = session();
        session.format = WireFormat::loose(12);
        let (mut events, mut output) = (Vec::new(), BytesMut::new());
        let mut turn = Turn { events: &mut events, output: &mut output, now: Now::default() };
        session.deliver(delivery(b"foreign"), &mut turn).unwrap();
        let frame = take_frame(&mut output, 1 << 20).unwrap().unwrap();
        let Ok(Command::MessageDispatch(dispatch)) = session.format.decode(&frame) else {
            panic!("{frame:?}")
        };
        let message = dispatch.message.unwrap();
        let content = message.content.as_ref().map(decode_text_body);
        assert_eq!(
            (message.kind, content, message.destination, dispatch.redelivery_counter),
            (MessageKind::Text, Some(Ok(Some("foreign".into()))), Some(Destination::Queue("a".into())), 2)
        );
        assert!(events.is_empty());
    }

    #[test]
    fn a_message_that_cannot_be_translated_is_rejected_and_another_asked_for() {
        for (case, prefetch, pulls, want_credit) in [
            ("prefetch", 10, false, true),
            ("waiting for one message", 0, true, true),
            ("not waiting", 0, false, false),
        ] {
            let mut session = session();
            let (mut events, mut output) = (Vec::new(), BytesMut::new());
            let mut turn = Turn { events: &mut events, output: &mut output, now: Now::default() };
            if pulls {
                let consumer_id = Some(ConsumerId::default());
                let pull = MessagePull { consumer_id, timeout: 0, ..MessagePull::default() };
                assert!(session.pull(&pull, &mut turn).is_ok());
            }
            turn.events.clear();
            session.consumers.by_number(KEY.number).unwrap().prefetch = prefetch;
            session.deliver(delivery(b"\xff"), &mut turn).unwrap();
            let settle = Settle {
                consumer: KEY,
                tags: vec![EntryTag(9)],
                outcome: Outcome::Rejected,
                transaction: None,
                reason: Some("a message that came by Amqp cannot be read: no text".into()),
                ticket: None,
            };
            let credit = want_credit.then_some(Event::Credit { consumer: KEY, add: 1 });
            let want: Vec<_> = std::iter::once(Event::Settle(settle)).chain(credit).collect();
            assert_eq!(format!("{events:?}"), format!("{want:?}"), "case: {case}");
            assert!(output.is_empty(), "case: {case}");
        }
    }

    fn session() -> OpenWireSession {
        let options = OpenWireOptions {
            broker_id: "ID:b".to_owned(),
            forwarder: None,
            elsewhere: None,
            spread: None,
            asks_login: false,
            max_frame_bytes: 1 << 20,
            large_message_bytes: u64::MAX,
            tight_encoding: false,
            cache: false,
            max_inactivity_ms: 30_000,
            broker_name: "test".to_owned(),
            broker_url: "tcp://test".to_owned(),
            partitions: 1,
        };
        let mut session = OpenWireSession::new(KEY.connection, options, foreign);
        session.consumers.insert(Consumer {
            id: ConsumerId::default(),
            parts: vec![Part {
                number: ConsumerNumber(KEY.number),
                destination: Destination::Queue("a".into()),
                is_pattern: false,
                at: None,
                drained: 0,
            }],
            browses: false,
            prefetch: 0,
            window: Window::default(),
            pull: None,
            drains: 0,
        });
        session
    }

    #[test]
    fn a_consumer_of_several_destinations_outlives_one_of_them() {
        let mut session = session();
        let id = ConsumerId::default();
        let consumer = session.consumers.remove(&id).unwrap();
        let second = Part {
            number: ConsumerNumber(KEY.number + 1),
            destination: Destination::Queue("b".into()),
            is_pattern: false,
            at: None,
            drained: 0,
        };
        let parts = consumer.parts.into_iter().chain([second]).collect();
        session.consumers.insert(Consumer { parts, ..consumer });
        let (mut events, mut output) = (Vec::new(), BytesMut::new());
        let mut turn = Turn { events: &mut events, output: &mut output, now: Now::default() };
        let ask = MessagePull { consumer_id: Some(id.clone()), timeout: -1, ..MessagePull::default() };
        assert!(session.pull(&ask, &mut turn).is_ok());
        session.drained(KEY.number, &mut turn);
        assert!(turn.output.is_empty(), "the other has not answered");
        session.detached(KEY.number + 1, DetachCause::Deleted, &mut turn);
        assert!(!turn.output.is_empty(), "it need not any more: the pull is over");
        let parts = |session: &mut OpenWireSession| {
            session.consumers.get_mut(&id).map(|consumer| consumer.parts.len())
        };
        assert_eq!(parts(&mut session), Some(1));
        session.detached(KEY.number, DetachCause::Deleted, &mut turn);
        assert_eq!(parts(&mut session), None);
    }

    #[test]
    fn a_browser_that_pulls_gets_each_message_and_then_its_end() {
        let mut session = session();
        session.consumers.by_number(KEY.number).unwrap().browses = true;
        let (mut events, mut output) = (Vec::new(), BytesMut::new());
        let mut turn = Turn { events: &mut events, output: &mut output, now: Now::default() };
        let ask =
            MessagePull { consumer_id: Some(ConsumerId::default()), timeout: -1, ..MessagePull::default() };
        let credit = format!("{:?}", [Event::Credit { consumer: KEY, add: 1 }]);
        for _ in 0..2 {
            assert!(session.pull(&ask, &mut turn).is_ok());
            assert_eq!(format!("{:?}", turn.events), credit, "nothing is taken back");
            turn.events.clear();
            session.deliver(delivery(b"m"), &mut turn).unwrap();
            turn.output.clear();
        }
        assert!(session.pull(&ask, &mut turn).is_ok());
        assert!(turn.output.is_empty());
        session.drained(KEY.number, &mut turn);
        let end = turn.output.len();
        assert!(0 < end, "the end is said");
        assert!(session.pull(&ask, &mut turn).is_ok());
        assert_eq!(turn.output.len(), 2 * end, "and said again to one that asks again");
        assert_eq!((format!("{:?}", turn.events), session.consumers.pulls), (credit, 0));
    }

    #[test]
    fn a_pull_that_comes_while_another_ends_gets_its_credit_after_that() {
        let mut session = session();
        let (mut events, mut output) = (Vec::new(), BytesMut::new());
        let mut turn = Turn { events: &mut events, output: &mut output, now: Now::default() };
        let consumer_id = Some(ConsumerId::default());
        let ask =
            |timeout| MessagePull { consumer_id: consumer_id.clone(), timeout, ..MessagePull::default() };
        assert!(session.pull(&ask(-1), &mut turn).is_ok());
        assert!(session.pull(&ask(0), &mut turn).is_ok());
        let (credit, drain) = (Event::Credit { consumer: KEY, add: 1 }, Event::Drain { consumer: KEY });
        let said = |events: &[Event]| format!("{events:?}");
        assert_eq!(said(turn.events), format!("{:?}", [&credit, &drain]));
        session.drained(KEY.number, &mut turn);
        assert_eq!(said(turn.events), format!("{:?}", [&credit, &drain, &credit]));
        assert!(turn.output.is_empty(), "the later pull waits, so nothing is answered");
    }
}
