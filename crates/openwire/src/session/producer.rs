//! Producers: messages in, and the windows of those who have one.

use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    DestinationKind, Encoding, Event, Group, Message, Parting, Protocol, Publish, RareHeaders, Sent,
};

use super::exception::Exception;
use super::replies::{self, Then};
use super::schedule::{is_management, schedule_of};
use super::{Done, OpenWireSession, Turn, names};
use crate::codec::{self, ProducerId, ProducerInfo, stored_form};

/// What `org.apache.activemq.command.Message.getSize` adds to properties and body; a producer
/// counts its window by that.
const MESSAGE_SIZE_MIN: usize = 1024;

/// Producers with a window on one connection: pools have hundreds.
const WINDOWS_MAX: usize = 16_384;

impl OpenWireSession {
    pub(super) fn add_producer(&mut self, info: ProducerInfo, _: &mut Turn<'_>) -> Result<Done, Exception> {
        if let Some(id) = info.producer_id.filter(|_| info.window_size > 0) {
            let windows = self.windows.len() - usize::from(self.windows.contains_key(&id));
            replies::check_bound("producers with a window", windows, WINDOWS_MAX)?;
            self.windows.insert(own_producer(&id), info.window_size);
        }
        Ok(Done::Now)
    }

    pub(super) fn send_message(
        &mut self,
        message: codec::Message,
        frame: &Bytes,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        let respond = message.response_required.then_some(message.command_id);
        if is_management(&message) {
            let done = self.manage_jobs(&message, turn);
            self.conclude(respond, done, turn);
            return Ok(());
        }
        match self.sent(&message, frame, turn.now.wall_ms) {
            Ok((sent, transaction)) => {
                let ticket = self.wait(1, respond, Then::Sent { window: self.window_of(&message) });
                let transaction = transaction.map(|number| self.transactions.key(self.id, number));
                let publish = Publish {
                    transaction,
                    resent: self.reconnected,
                    ..Publish::plain(self.id, ticket, sent)
                };
                turn.events.push(Event::Publish(publish));
            }
            Err(exception) => self.refuse(respond, &exception, turn),
        }
        Ok(())
    }

    fn sent(
        &mut self,
        message: &codec::Message,
        frame: &Bytes,
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
        let stored = stored_form(&self.format, message, frame);
        let stored =
            stored.map_err(|error| Exception::jms(&format!("the message cannot be stored: {error}")))?;
        let schedule = schedule_of(message, now_ms)?.map(Box::new);
        let model = to_model(message, stored, self.format.version);
        if names::is_composite(destination) {
            let mut sent = Sent { schedule, ..for_several(destination, model)? };
            self.name_client(&mut sent);
            return Ok((sent, transaction));
        }
        let to = self.names.model(destination);
        names::check(&to)?;
        let mut sent = Sent { schedule, ..Sent::new(to, model) };
        self.name_client(&mut sent);
        Ok((sent, transaction))
    }

    /// Subscriptions may skip what their own client sends.
    fn name_client(&self, sent: &mut Sent) {
        if sent.targets().any(|to| to.kind == DestinationKind::Topic) {
            let client = self.introduction.client().map(|client| client.client_id.clone());
            let rare = sent.message.rare.as_deref().cloned().unwrap_or_default();
            sent.message.rare = Some(Arc::new(RareHeaders { client, ..rare }));
        }
    }

    fn window_of(&self, message: &codec::Message) -> Option<(ProducerId, i32)> {
        if self.windows.is_empty() {
            return None;
        }
        let producer = message.producer_id.as_ref().filter(|id| self.windows.contains_key(id))?;
        let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let size = MESSAGE_SIZE_MIN + part(&message.content) + part(&message.marshalled_properties);
        Some((own_producer(producer), i32::try_from(size).unwrap_or(i32::MAX)))
    }
}

/// A message for every destination of a list.
fn for_several(list: &codec::Destination, message: Message) -> Result<Sent, Exception> {
    let parts = names::parts(list);
    replies::check_bound("destinations of one message", parts.len().saturating_sub(1), names::LIST_MAX)?;
    let mut targets = parts.iter().map(names::to_model);
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
    Some(Arc::new(RareHeaders { group: Some(group), client: None }))
}

/// The same id in memory of its own.
pub fn own_producer(id: &ProducerId) -> ProducerId {
    ProducerId { connection_id: id.connection_id.as_ref().map(super::own), ..id.clone() }
}
