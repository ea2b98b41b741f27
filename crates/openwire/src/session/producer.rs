//! Producers: messages in, and the windows of those who have one.

use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    Aim, DestinationKind, Encoding, Event, Group, LookupMap, Message, Parting, ProducerNotice, Protocol,
    Publish, RareHeaders, Refusal, Sent,
};

use super::exception::Exception;
use super::replies::{self, Then};
use super::schedule::{is_management, schedule_of};
use super::{Done, OpenWireSession, Turn, names, origin};
use crate::advisory::is_advisory;
use crate::codec::{self, ProducerId, ProducerInfo, stored_form, to_stored};
use crate::network::only_in;

/// The number that `org.apache.activemq.command.Message.getSize` adds to properties and body; a
/// producer counts its window by that.
const MESSAGE_SIZE_MIN: usize = 1024;

/// Producers on one connection: pools have hundreds.
const PRODUCERS_MAX: usize = 16_384;

/// The producers of a connection.
#[derive(Default)]
pub struct Producers {
    by_id: LookupMap<ProducerId, Producer>,
    /// How many of them have a window.
    windows: usize,
}

struct Producer {
    /// It wants to hear of each message that makes room in its window.
    has_window: bool,
    /// Its notices, for each address that it sends to.
    notices: Vec<Arc<ProducerNotice>>,
}

impl OpenWireSession {
    pub(super) fn add_producer(
        &mut self,
        info: ProducerInfo,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        let Some(id) = info.producer_id.as_ref().map(own_producer) else { return Ok(Done::Now) };
        self.remove_producer(&id, turn);
        replies::check_bound("producers", self.producers.by_id.len(), PRODUCERS_MAX)?;
        let name = names::of_client(&id.connection_id, id.session_id, id.value);
        let window_bytes = u32::try_from(info.window_size).unwrap_or(0);
        let targets = info.destination.as_ref().map(names::parts).unwrap_or_default();
        let targets = targets.iter().map(names::to_model).filter(|to| !is_advisory(&to.name));
        let notices: Vec<_> = targets
            .take(names::LIST_MAX)
            .map(|to| Arc::new(ProducerNotice { name: name.clone(), to, window_bytes }))
            .collect();
        for producer in notices.iter().cloned() {
            turn.events.push(Event::AddProducer { connection: self.id, producer });
        }
        let has_window = window_bytes > 0;
        self.producers.windows += usize::from(has_window);
        self.producers.by_id.insert(id, Producer { has_window, notices });
        Ok(Done::Now)
    }

    pub(super) fn remove_producer(&mut self, id: &ProducerId, turn: &mut Turn<'_>) {
        let Some(Producer { has_window, notices }) = self.producers.by_id.remove(id) else { return };
        self.producers.windows -= usize::from(has_window);
        for producer in notices {
            turn.events.push(Event::RemoveProducer { connection: self.id, producer });
        }
    }

    pub(super) fn remove_producers(&mut self, gone: impl Fn(&ProducerId) -> bool, turn: &mut Turn<'_>) {
        let ids: Vec<_> =
            self.producers.by_id.sorted_where(gone).into_iter().map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.remove_producer(&id, turn);
        }
    }

    pub(super) fn send_message(
        &mut self,
        mut message: codec::Message,
        frame: &Bytes,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        message.broker_in_time_ms = i64::try_from(turn.now.wall_ms).unwrap_or(i64::MAX);
        let respond = message.response_required.then_some(message.command_id);
        if is_management(&message) {
            let done = self.manage_jobs(&message, turn);
            self.conclude(respond, done, turn);
            return Ok(());
        }
        let window = self.window_of(&message);
        let only = self.only_for(&mut message);
        match self.sent(&message, (frame, only), turn.now.wall_ms) {
            Ok((_, transaction)) if let Some(refusal) = self.refused_upload() => {
                // Committing the rest of the transaction without this would do half of it.
                self.transactions.doom(transaction);
                self.refuse(respond, &Exception::from(&refusal), turn);
                self.open_window(window, turn);
            }
            Ok((sent, transaction)) => {
                let ticket = self.wait(1, respond, Then::Sent { window });
                let transaction = transaction.map(|number| self.transactions.key(self.id, number));
                let publish = Publish {
                    transaction,
                    resent: self.reconnected && self.network.may_know(&message),
                    once: self.network.is_link().then(|| origin::once(&message)).flatten().map(Box::new),
                    upload: self.uploads.arrived.take().map(|upload| upload.number),
                    ..Publish::plain(self.id, ticket, sent)
                };
                turn.events.push(Event::Publish(publish));
            }
            Err(exception) => {
                // As above.
                let transaction = message.transaction_id.as_ref();
                let transaction = transaction.and_then(|id| self.transactions.find(id).ok());
                self.transactions.doom(transaction);
                self.refuse(respond, &exception, turn);
                self.open_window(window, turn);
            }
        }
        Ok(())
    }

    fn sent(
        &mut self,
        message: &codec::Message,
        (frame, only): (&Bytes, Option<Arc<str>>),
        now_ms: u64,
    ) -> Result<(Sent, Option<u64>), Exception> {
        let destination = message.destination.as_ref();
        let destination = destination.ok_or_else(|| {
            Exception::of("InvalidDestinationException", "the message names no destination")
        })?;
        if message.message_id.is_none() {
            return Err(Exception::jms("the message has no message id: no consumer could acknowledge it"));
        }
        let transaction = match &message.transaction_id {
            Some(id) => Some(self.transactions.find(id)?),
            None => None,
        };
        let stored = match &only {
            // The target has been taken out of it.
            Some(_) => to_stored(message, self.format.version),
            None => stored_form(&self.format, message, frame),
        };
        let stored =
            stored.map_err(|error| Exception::jms(&format!("the message cannot be stored: {error}")))?;
        let schedule = schedule_of(message, now_ms)?.map(Box::new);
        let mut model = to_model(message, stored, self.format.version);
        self.name_user(&mut model);
        if names::is_composite(destination) {
            let mut sent = Sent { schedule, ..for_several(destination, model)? };
            self.name_client(&mut sent);
            return Ok((sent, transaction));
        }
        let to = self.names.model(destination);
        names::check(&to)?;
        let mut sent = Sent { schedule, ..Sent::new(to, model) };
        self.name_client(&mut sent);
        if let Some(only) = only {
            sent.message = sent.message.aimed(Aim::Only(only));
            // It waited at the other broker before what comes here by the topic.
            sent.moved = Some(0);
        }
        Ok((sent, transaction))
    }

    /// The subscription that alone is to get a message of a link; it leaves the message.
    fn only_for(&self, message: &mut codec::Message) -> Option<Arc<str>> {
        let is_of_link = self.network.peer_is_postroad && self.network.is_link();
        let is_of_topic = matches!(message.destination, Some(codec::Destination::Topic(_)));
        let target = message.target_consumer_id.as_ref().filter(|_| is_of_link && is_of_topic)?;
        let only = only_in(target)?;
        message.target_consumer_id = None;
        Some(only)
    }

    /// Why the log has not taken the body of the message that is being taken, if so.
    fn refused_upload(&self) -> Option<Refusal> {
        self.uploads.arrived.as_ref()?.refusal.clone()
    }

    /// The audit knows messages by their users, too.
    fn name_user(&self, message: &mut Message) {
        let Some(headers) = self.user_headers.as_ref().filter(|_| message.persistent) else { return };
        match &mut message.rare {
            Some(rare) => Arc::make_mut(rare).user = headers.user,
            none => *none = Some(headers.clone()),
        }
    }

    /// Subscriptions may skip messages of their own client.
    fn name_client(&self, sent: &mut Sent) {
        if sent.targets().any(|to| to.kind == DestinationKind::Topic) {
            let client = self.introduction.client().map(|client| client.client_id.clone());
            let rare = sent.message.rare.as_deref().cloned().unwrap_or_default();
            sent.message.rare = Some(Arc::new(RareHeaders { client, ..rare }));
        }
    }

    /// The part of its producer's window that a message takes. Clients do not count messages for
    /// whose answers they wait (`ActiveMQSession.send` of activemq-client): to give room back for
    /// them would make the window larger and larger.
    fn window_of(&self, message: &codec::Message) -> Option<(ProducerId, i32)> {
        if self.producers.windows == 0 || message.response_required {
            return None;
        }
        let has_window =
            |id: &&ProducerId| self.producers.by_id.get(id).is_some_and(|known| known.has_window);
        let producer = message.producer_id.as_ref().filter(has_window)?;
        let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let large = self.uploads.arrived.as_ref().map_or(0, |upload| upload.bytes as usize);
        let size = MESSAGE_SIZE_MIN + part(&message.content) + part(&message.marshalled_properties) + large;
        Some((own_producer(producer), i32::try_from(size).unwrap_or(i32::MAX)))
    }
}

/// A message for every destination of a list.
fn for_several(list: &codec::Destination, message: Message) -> Result<Sent, Exception> {
    let targets = names::targets(list);
    replies::check_bound("destinations of one message", targets.len().saturating_sub(1), names::LIST_MAX)?;
    let mut targets = targets.into_iter();
    let to = targets.next();
    let to = to.ok_or_else(|| Exception::of("InvalidDestinationException", "the destination has no name"))?;
    let sent = Sent { also: targets.collect(), ..Sent::new(to, message) };
    sent.targets().try_for_each(names::check)?;
    Ok(sent)
}

/// The message as the core keeps it.
pub fn to_model(message: &codec::Message, stored: Bytes, version: u8) -> Message {
    Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version },
        persistent: message.persistent,
        priority: message.priority.min(9),
        expires_at_ms: u64::try_from(message.expiration_ms).unwrap_or(0),
        rare: rare_headers(message),
        bytes: stored,
    }
}

fn rare_headers(message: &codec::Message) -> Option<Arc<RareHeaders>> {
    let id = message.group_id.as_ref().filter(|id| !id.to_str().is_empty())?;
    let group = Group { id: id.to_str().into(), sequence: message.group_sequence };
    Some(Arc::new(RareHeaders { group: Some(group), ..RareHeaders::default() }))
}

/// The same id in memory of its own.
pub fn own_producer(id: &ProducerId) -> ProducerId {
    ProducerId { connection_id: id.connection_id.as_ref().map(super::own), ..id.clone() }
}
