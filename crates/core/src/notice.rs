//! Notices of connections, consumers, producers and destinations, and of messages that end.

use std::sync::Arc;

use postroad_model::{
    Announcement, ClientNotice, ConnectionId, ConsumerKey, ConsumerNotice, Destination, DestinationKind,
    Effect, EntryTag, Message, MessageEvent, Notice, ProducerNotice, QueueId, Subscription, Ticket,
};

use crate::Partition;

impl Partition {
    pub(crate) fn announce(&self, notice: Notice, effects: &mut Vec<Effect>) {
        effects.push(Effect::Announce(Box::new(Announcement { notice, answer: None })));
    }

    /// A client has introduced itself.
    pub(crate) fn introduce(
        &mut self,
        id: ConnectionId,
        client: Arc<ClientNotice>,
        effects: &mut Vec<Effect>,
    ) {
        let connection = self.leader.connections.get_or_make(id);
        let before = connection.client.replace(client.clone());
        if before.as_ref() == Some(&client) {
            return;
        }
        if let Some(client) = before {
            self.announce(Notice::Connection { client, present: false }, effects);
        }
        self.announce(Notice::Connection { client, present: true }, effects);
    }

    /// A client will send to an address: a topic comes into being by that.
    pub(crate) fn add_producer(
        &mut self,
        id: ConnectionId,
        producer: Arc<ProducerNotice>,
        effects: &mut Vec<Effect>,
    ) {
        let is_topic = producer.to.kind == DestinationKind::Topic && !producer.to.temporary;
        if is_topic && !postroad_routing::is_wildcard(&producer.to.name) {
            self.state.addresses.get_or_make(&producer.to);
        }
        let connection = self.leader.connections.get_or_make(id);
        connection.producers.insert((producer.name.clone(), producer.to.clone()), producer.clone());
        self.announce(Notice::Producer { producer, present: true }, effects);
    }

    pub(crate) fn remove_producer(
        &mut self,
        id: ConnectionId,
        producer: &ProducerNotice,
        effects: &mut Vec<Effect>,
    ) {
        let Some(connection) = self.leader.connections.get_mut(&id) else { return };
        if let Some(producer) = connection.producers.remove(&(producer.name.clone(), producer.to.clone())) {
            self.announce(Notice::Producer { producer, present: false }, effects);
        }
    }

    pub(crate) fn announce_consumer(
        &self,
        consumer: Option<&Arc<ConsumerNotice>>,
        present: bool,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(consumer) = consumer.cloned() {
            self.announce(Notice::Consumer { consumer, present }, effects);
        }
    }

    /// Publishes an event of an entry, as long as its body is in memory.
    pub(crate) fn announce_message(
        &mut self,
        queue: QueueId,
        tag: EntryTag,
        event: MessageEvent,
        consumer: Option<ConsumerKey>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(key) = self.entry(queue, tag).map(|entry| entry.key) else { return };
        let at = self.state.queues.get(&queue).map(|queue| queue.source.clone());
        let (Some(at), Some(message)) = (at, self.state.bodies.resident(key).cloned()) else { return };
        let consumer = consumer.and_then(|key| self.leader.delivery.consumers.get(&key)?.notice.clone());
        self.announce(Notice::Message { event, at, message, consumer }, effects);
    }

    /// Announces that a message was taken in for an address, if its policy asks for it; `is_read`
    /// says whether the address has a reader.
    pub(crate) fn announce_arrival(
        &self,
        message: &Message,
        at: &Destination,
        is_read: bool,
        effects: &mut Vec<Effect>,
    ) {
        let advised = self.settings.policies.advised(at);
        let lonely = advised.no_consumer && !message.persistent && !is_read;
        for (wanted, event) in
            [(advised.delivered, MessageEvent::Delivered), (lonely, MessageEvent::NoConsumer)]
        {
            if wanted {
                let (at, message) = (at.clone(), message.clone());
                self.announce(Notice::Message { event, at, message, consumer: None }, effects);
            }
        }
    }

    /// Announces that a producer has to wait, if the policy of the address asks for it.
    pub(crate) fn announce_fast_producer(
        &self,
        id: ConnectionId,
        at: &Destination,
        effects: &mut Vec<Effect>,
    ) {
        if !self.settings.policies.advised(at).fast_producer {
            return;
        }
        let connection = self.leader.connections.get(&id);
        let producer =
            connection.and_then(|known| known.producers.values().find(|producer| producer.to == *at));
        if let Some(producer) = producer.cloned() {
            self.announce(Notice::FastProducer { producer, at: at.clone() }, effects);
        }
    }

    /// Announces addresses that were created or deleted since the last call.
    pub(crate) fn announce_addresses(&mut self, effects: &mut Vec<Effect>) {
        for (destination, present) in self.state.addresses.take_changes() {
            self.announce(Notice::Destination { destination, present }, effects);
        }
    }

    /// The creation of a temporary destination is answered after its notice: a client that is asked
    /// to reply there may refuse to without it.
    pub(crate) fn announce_first(
        &mut self,
        destination: &Destination,
        answer: (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        self.state.addresses.forget_change(destination);
        let notice = Notice::Destination { destination: destination.clone(), present: true };
        effects.push(Effect::Announce(Box::new(Announcement { notice, answer: Some(answer) })));
    }

    /// After a start: announces each address that outlived the last run.
    pub(crate) fn announce_all(&mut self, effects: &mut Vec<Effect>) {
        self.state.addresses.take_changes();
        for destination in self.state.addresses.names() {
            self.announce(Notice::Destination { destination, present: true }, effects);
        }
    }
}

/// Announces that a durable subscription has ended: links of other brokers have subscribed for it.
pub fn announce_unsubscribed(partition: &Partition, ended: &Subscription, effects: &mut Vec<Effect>) {
    let Some((_, client_id, name)) = Subscription::parts_of(ended.own_name()) else { return };
    let (client_id, name) = (client_id.into(), name.into());
    partition.announce(Notice::Unsubscribed { topic: ended.topic.clone(), client_id, name }, effects);
}
