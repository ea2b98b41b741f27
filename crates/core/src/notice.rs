//! Notices of connections, consumers, producers and destinations, and of messages that end.

use std::sync::Arc;

use postroad_model::{
    Announcement, ClientNotice, ConnectionId, ConsumerKey, ConsumerNotice, Destination, DestinationKind,
    Effect, EntryTag, Event, Message, MessageEvent, Notice, ProducerNotice, QueueId, Subscription, Ticket,
};

use crate::Partition;
use crate::addresses::address::Addresses;
use crate::connection::Connections;
use crate::entries::entry_at;
use crate::leader::Leader;
use crate::settings::Settings;
use crate::state::State;

/// Announces that a durable subscription has ended: links of other brokers have subscribed for it.
pub fn announce_unsubscribed(ended: &Subscription, effects: &mut Vec<Effect>) {
    let Some((_, client_id, name)) = Subscription::parts_of(ended.own_name()) else { return };
    let (client_id, name) = (client_id.into(), name.into());
    announce(Notice::Unsubscribed { topic: ended.topic.clone(), client_id, name }, effects);
}

pub fn announce(notice: Notice, effects: &mut Vec<Effect>) {
    effects.push(Effect::Announce(Box::new(Announcement { notice, answer: None })));
}

impl Connections {
    /// A client has introduced itself.
    pub fn introduce(&mut self, id: ConnectionId, client: Arc<ClientNotice>, effects: &mut Vec<Effect>) {
        let connection = self.get_or_make(id);
        let before = connection.client.replace(client.clone());
        if before.as_ref() == Some(&client) {
            return;
        }
        if let Some(client) = before {
            announce(Notice::Connection { client, present: false }, effects);
        }
        announce(Notice::Connection { client, present: true }, effects);
    }

    pub fn remove_producer(
        &mut self,
        id: ConnectionId,
        producer: &ProducerNotice,
        effects: &mut Vec<Effect>,
    ) {
        let Some(connection) = self.get_mut(&id) else { return };
        if let Some(producer) = connection.producers.remove(&(producer.name.clone(), producer.to.clone())) {
            announce(Notice::Producer { producer, present: false }, effects);
        }
    }
}

/// A client will send to an address: a topic comes into being by that.
pub fn add_producer(
    state: &mut State,
    leader: &mut Leader,
    id: ConnectionId,
    producer: Arc<ProducerNotice>,
    effects: &mut Vec<Effect>,
) {
    let is_topic = producer.to.kind == DestinationKind::Topic && !producer.to.temporary;
    if is_topic && !postroad_routing::is_wildcard(&producer.to.name) {
        state.addresses.get_or_make(&producer.to);
    }
    let connection = leader.connections.get_or_make(id);
    connection.producers.insert((producer.name.clone(), producer.to.clone()), producer.clone());
    announce(Notice::Producer { producer, present: true }, effects);
}

pub fn announce_consumer(consumer: Option<&Arc<ConsumerNotice>>, present: bool, effects: &mut Vec<Effect>) {
    if let Some(consumer) = consumer.cloned() {
        announce(Notice::Consumer { consumer, present }, effects);
    }
}

/// Announces that a message was taken in for an address, if its policy asks for it; `is_read`
/// says whether the address has a reader.
pub fn announce_arrival(
    settings: &Settings,
    message: &Message,
    at: &Destination,
    is_read: bool,
    effects: &mut Vec<Effect>,
) {
    let advised = settings.policies.advised(at);
    let lonely = advised.no_consumer && !message.persistent && !is_read;
    for (wanted, event) in [(advised.delivered, MessageEvent::Delivered), (lonely, MessageEvent::NoConsumer)]
    {
        if wanted {
            let (at, message) = (at.clone(), message.clone());
            announce(Notice::Message { event, at, message, consumer: None }, effects);
        }
    }
}

/// Announces that a producer has to wait, if the policy of the address asks for it.
pub fn announce_fast_producer(
    leader: &Leader,
    settings: &Settings,
    id: ConnectionId,
    at: &Destination,
    effects: &mut Vec<Effect>,
) {
    if !settings.policies.advised(at).fast_producer {
        return;
    }
    let connection = leader.connections.get(&id);
    let producer = connection.and_then(|known| known.producers.values().find(|producer| producer.to == *at));
    if let Some(producer) = producer.cloned() {
        announce(Notice::FastProducer { producer, at: at.clone() }, effects);
    }
}

impl Addresses {
    /// Announces addresses that were created or deleted since the last call.
    pub fn announce_addresses(&mut self, effects: &mut Vec<Effect>) {
        for (destination, present) in self.take_changes() {
            announce(Notice::Destination { destination, present }, effects);
        }
    }

    /// The creation of a temporary destination is answered after its notice: a client that is asked
    /// to reply there may refuse to without it.
    pub fn announce_first(
        &mut self,
        destination: &Destination,
        answer: (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        self.forget_change(destination);
        let notice = Notice::Destination { destination: destination.clone(), present: true };
        effects.push(Effect::Announce(Box::new(Announcement { notice, answer: Some(answer) })));
    }

    /// After a start: announces each address that outlived the last run.
    pub fn announce_all(&mut self, effects: &mut Vec<Effect>) {
        self.take_changes();
        for destination in self.names() {
            announce(Notice::Destination { destination, present: true }, effects);
        }
    }
}

/// A client introduces itself, or one of its producers comes or goes.
pub fn about_client(state: &mut State, leader: &mut Leader, event: Event, effects: &mut Vec<Effect>) {
    match event {
        Event::Introduce { connection, client } => leader.connections.introduce(connection, client, effects),
        Event::AddProducer { connection, producer } => {
            add_producer(state, leader, connection, producer, effects);
        }
        Event::RemoveProducer { connection, producer } => {
            leader.connections.remove_producer(connection, &producer, effects);
        }
        _ => {}
    }
}

/// Publishes an event of an entry, as long as its body is in memory.
pub fn announce_message(
    partition: &mut Partition,
    queue: QueueId,
    tag: EntryTag,
    event: MessageEvent,
    consumer: Option<ConsumerKey>,
    effects: &mut Vec<Effect>,
) {
    let Some(key) = entry_at(partition, queue, tag).map(|entry| entry.key) else { return };
    let at = partition.state.queues.get(&queue).map(|queue| queue.source.clone());
    let (Some(at), Some(message)) = (at, partition.state.bodies.resident(key).cloned()) else { return };
    let consumer = consumer.and_then(|key| partition.leader.delivery.consumers.get(&key)?.notice.clone());
    announce(Notice::Message { event, at, message, consumer }, effects);
}
