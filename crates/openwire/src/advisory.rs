//! Advisories: notices in the form that ActiveMQ's clients and tools listen for (`AdvisorySupport`,
//! `AdvisoryBroker`).
//!
//! | notice | topic, after `ActiveMQ.Advisory.` | carries |
//! |---|---|---|
//! | connection | `Connection` | `ConnectionInfo`, or `RemoveInfo` |
//! | consumer | `Consumer.Queue.NAME`, `Consumer.Topic.NAME` | `ConsumerInfo`, or `RemoveInfo`; `consumerCount` |
//! | durable subscription ended | `Consumer.Topic.NAME` | `RemoveSubscriptionInfo` |
//! | link to another broker | `NetworkBridge` | `BrokerInfo`; `started`, `createdByDuplex`, `remoteIp` |
//! | producer | `Producer.Queue.NAME`, `Producer.Topic.NAME` | `ProducerInfo`, or `RemoveInfo`; `producerCount` |
//! | destination | `Queue`, `Topic`, `TempQueue`, `TempTopic` | `DestinationInfo` |
//! | message expired | `Expired.Queue.NAME`, `Expired.Topic.NAME` | the message, without its body |
//! | message among the dead letters | `MessageDLQd.Queue.NAME` and the like | the message, without its body |
//! | message beyond the limit | `MessageDiscarded.Queue.NAME` and the like | the message, without its body |
//! | message taken in | `MessageDelivered.Queue.NAME` and the like | the message, without its body |
//! | message acknowledged | `MessageConsumed.Queue.NAME` and the like | the message, without its body |
//! | message without a consumer | `NoConsumer.Queue.NAME`, `NoConsumer.Topic.NAME` | is the message itself |
//! | fast producer | `FastProducer.Queue.NAME` and the like | `ProducerInfo`; `producerId` |
//! | slow consumer | `SlowConsumer.Queue.NAME` and the like | `ConsumerInfo`; `consumerId` |
//! | sends wait | `FULL.Queue.NAME` and the like | nothing; `usageName` |
//!
//! The topic retains one message for each existing object, for later subscribers.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::portable::Translate;
use postroad_model::{
    self as model, BridgeNotice, ClientNotice, ConsumerMode, ConsumerNotice, DestinationKind, EntryTag,
    MessageEvent, Notice, ProducerNotice, Protocol, Retain,
};

use crate::client::message_id_text;
use crate::codec::{
    BrokerId, BrokerInfo, Command, ConnectionId, ConnectionInfo, ConsumerId, ConsumerInfo, DataStructure,
    Destination, DestinationInfo, Message, MessageId, Primitive, PrimitiveMap, ProducerId, ProducerInfo,
    RemoveInfo, RemoveSubscriptionInfo, RemovedId, VERSION_MAX, find_property, from_stored, peek_headers,
    to_stored,
};
use crate::network::{DURABLE_PROPERTY, SINCE_PROPERTY};
use crate::portable::{TranslatedId, to_wire_destination, write_portable};
use crate::session::to_model_message;

/// The prefix of all advisory topics.
const PREFIX: &str = "ActiveMQ.Advisory.";

/// `JMSType` of every advisory.
const MESSAGE_TYPE: &str = "Advisory";

const CONSUMER_COUNT: &str = "consumerCount";
const PRODUCER_COUNT: &str = "producerCount";
const CONSUMER_ID: &str = "consumerId";
const STARTED: &str = "started";
const CREATED_BY_DUPLEX: &str = "createdByDuplex";
const REMOTE_IP: &str = "remoteIp";
const USAGE_NAME: &str = "usageName";
const PRODUCER_ID: &str = "producerId";
/// Misspelt since ActiveMQ 5.0.
const MESSAGE_ID: &str = "orignalMessageId";
/// As that.
const DESTINATION: &str = "orignalDestination";

/// Whether a destination of this name is for advisories: these have no advisories of their own.
pub fn is_advisory(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// A notice as a message for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advisory {
    /// Where it is published.
    pub topic: model::Destination,
    /// The message.
    pub message: model::Message,
    /// How the topic retains it.
    pub retain: Option<Retain>,
}

/// Writes advisories, and numbers them.
#[derive(Clone, Debug)]
pub struct Advisories {
    broker_name: String,
    broker_id: String,
    broker_url: String,
    producer: ProducerId,
    written: i64,
    translate: Translate,
}

/// The contents of one kind of advisory.
struct Content {
    topic: String,
    carries: Option<Command>,
    properties: Vec<(&'static str, Primitive)>,
    retain: Option<Retain>,
}

impl Advisories {
    /// Advisories of the broker of this name. No two that are at work at the same time may have the
    /// same `number`. Messages of other protocols are read by `translate`.
    pub fn new(
        (broker_name, broker_id): (&str, &str),
        broker_url: &str,
        number: u16,
        translate: Translate,
    ) -> Advisories {
        let connection_id = Some(format!("ID:{broker_name}-advisories-{number}").as_str().into());
        Advisories {
            broker_name: broker_name.to_owned(),
            broker_id: broker_id.to_owned(),
            broker_url: broker_url.to_owned(),
            producer: ProducerId { connection_id, session_id: 0, value: 0 },
            written: 0,
            translate,
        }
    }

    /// The topic of this notice; `None` if it is about advisories themselves, which have none.
    pub fn topic_of(notice: &Notice) -> Option<model::Destination> {
        let topic = topic_of(notice)?;
        Some(model::Destination::topic(&format!("{PREFIX}{topic}")))
    }

    /// The advisory of this notice; `None` if there is none, or if its message cannot be read.
    pub fn write(&mut self, notice: &Notice) -> Option<Advisory> {
        if let Notice::Message { event: MessageEvent::NoConsumer, at, message, .. } = notice {
            return self.forward(message, at, notice);
        }
        let content = self.content(notice)?;
        let topic = format!("{PREFIX}{}", content.topic);
        self.written += 1;
        let mut properties =
            PrimitiveMap(content.properties.into_iter().map(|(name, value)| (name.into(), value)).collect());
        for (name, value) in [
            ("originBrokerName", &self.broker_name),
            ("originBrokerId", &self.broker_id),
            ("originBrokerURL", &self.broker_url),
        ] {
            properties.0.push((name.into(), Primitive::String(value.as_str().into())));
        }
        let message = Message {
            producer_id: Some(self.producer.clone()),
            destination: Some(Destination::Topic(topic.as_str().into())),
            message_id: Some(MessageId {
                producer_id: Some(self.producer.clone()),
                producer_sequence_id: self.written,
                ..MessageId::default()
            }),
            message_type: Some(MESSAGE_TYPE.into()),
            marshalled_properties: marshalled(&properties),
            data_structure: content
                .carries
                .map(|command| Box::new(DataStructure::Command(Box::new(command)))),
            ..Message::default()
        };
        let stored = to_stored(&message, VERSION_MAX).ok()?;
        Some(Advisory {
            topic: model::Destination::topic(&topic),
            message: to_model_message(&message, stored, VERSION_MAX),
            retain: content.retain,
        })
    }

    /// The message itself, sent to the advisory topic.
    fn forward(
        &self,
        message: &model::Message,
        at: &model::Destination,
        notice: &Notice,
    ) -> Option<Advisory> {
        let topic = Advisories::topic_of(notice)?;
        let destination = Some(to_wire_destination(&topic));
        let message = Message { destination, transaction_id: None, ..self.read(message, at)? };
        let stored = to_stored(&message, VERSION_MAX).ok()?;
        Some(Advisory { topic, message: to_model_message(&message, stored, VERSION_MAX), retain: None })
    }

    fn content(&self, notice: &Notice) -> Option<Content> {
        let topic = topic_of(notice)?;
        let keep = |key: &str, keep| Some(Retain { key: key.into(), keep });
        Some(match notice {
            Notice::Connection { client, present } => Content {
                topic,
                carries: Some(match present {
                    true => connection_info(client).into(),
                    false => gone(connection_id(client)),
                }),
                properties: Vec::new(),
                retain: keep(&client.name, *present),
            },
            Notice::Consumer { consumer, present } => Content {
                topic,
                carries: Some(if *present {
                    consumer_info(consumer).into()
                } else {
                    gone(consumer_id(consumer))
                }),
                properties: consumer_properties(consumer),
                retain: keep(&consumer.name, *present),
            },
            Notice::Unsubscribed { client_id, name, .. } => {
                let carries = Some(unsubscribed(client_id, name));
                Content { topic, carries, properties: Vec::new(), retain: None }
            }
            Notice::Bridge { bridge, present } => bridge_content(topic, bridge, *present),
            Notice::Producer { producer, present } => Content {
                topic,
                carries: Some(if *present {
                    producer_info(producer).into()
                } else {
                    gone(producer_id(producer))
                }),
                properties: vec![(PRODUCER_COUNT, Primitive::Int(0))],
                retain: keep(&producer.name, *present),
            },
            Notice::Destination { destination, present } => Content {
                topic,
                carries: Some(destination_info(destination, *present).into()),
                properties: Vec::new(),
                retain: keep(&destination.name, *present),
            },
            Notice::SlowConsumer { consumer, .. } => Content {
                topic,
                carries: Some(consumer_info(consumer).into()),
                properties: vec![(CONSUMER_ID, Primitive::String(consumer.name.as_ref().into()))],
                retain: None,
            },
            Notice::Full { .. } => {
                let properties = vec![(USAGE_NAME, Primitive::String("queue".into()))];
                Content { topic, carries: None, properties, retain: None }
            }
            Notice::FastProducer { producer, .. } => Content {
                topic,
                carries: Some(producer_info(producer).into()),
                properties: vec![(PRODUCER_ID, Primitive::String(producer.name.as_ref().into()))],
                retain: None,
            },
            Notice::Message { event, message, consumer, at } => {
                let shown = Message { content: None, ..self.read(message, at)? };
                let properties = message_properties(*event, &shown, at, consumer.as_deref());
                Content { topic, carries: Some(Command::Message(Box::new(shown))), properties, retain: None }
            }
        })
    }

    /// The message as OpenWire has it.
    fn read(&self, message: &model::Message, at: &model::Destination) -> Option<Message> {
        Some(match message.encoding.protocol {
            Protocol::OpenWire => from_stored(&message.bytes, message.encoding.version).ok()?,
            _ => {
                let id = TranslatedId { tag: EntryTag(0), stored: &message.bytes };
                let portable = (self.translate)(message).ok()?;
                let stored = write_portable(&portable, id, &to_wire_destination(at), VERSION_MAX).ok()?;
                from_stored(&stored, VERSION_MAX).ok()?
            }
        })
    }
}

/// The properties of an advisory about a consumer.
fn consumer_properties(consumer: &ConsumerNotice) -> Vec<(&'static str, Primitive)> {
    let durable = consumer.durable.as_deref();
    let since_ms = i64::try_from(consumer.since_ms).unwrap_or(i64::MAX);
    let durable = durable.map(|name| {
        [(DURABLE_PROPERTY, Primitive::String(name.into())), (SINCE_PROPERTY, Primitive::Long(since_ms))]
    });
    [(CONSUMER_COUNT, Primitive::Int(0))].into_iter().chain(durable.into_iter().flatten()).collect()
}

/// The properties of an advisory that shows a message.
fn message_properties(
    event: MessageEvent,
    shown: &Message,
    at: &model::Destination,
    consumer: Option<&ConsumerNotice>,
) -> Vec<(&'static str, Primitive)> {
    let mut properties = Vec::new();
    if event != MessageEvent::DeadLettered {
        let id = shown.message_id.as_ref().map(message_id_text).unwrap_or_default();
        properties.push((MESSAGE_ID, Primitive::String(id.as_str().into())));
    }
    if matches!(event, MessageEvent::Delivered | MessageEvent::Consumed) {
        properties.push((DESTINATION, Primitive::String(at.to_string().as_str().into())));
    }
    if let Some(consumer) = consumer {
        properties.push((CONSUMER_ID, Primitive::String(consumer.name.as_ref().into())));
    }
    properties
}

/// An advisory that a topic keeps, with how many it keeps now: that many consumers or producers
/// there are.
pub fn count_retained(message: &model::Message, count: u64) -> model::Message {
    let counted = with_count(message, count);
    counted.map_or_else(|| message.clone(), |bytes| model::Message { bytes, ..message.clone() })
}

fn with_count(message: &model::Message, count: u64) -> Option<Bytes> {
    let version = message.encoding.version;
    if message.encoding.protocol != Protocol::OpenWire {
        return None;
    }
    let properties = peek_headers(&message.bytes, version).ok()?.marshalled_properties?;
    let has = |name: &str| matches!(find_property(&properties, name), Ok(Some(_)));
    if !has(CONSUMER_COUNT) && !has(PRODUCER_COUNT) {
        return None;
    }
    let mut advisory = from_stored(&message.bytes, version).ok()?;
    let mut properties = PrimitiveMap::decode(&properties).ok()?;
    for (name, value) in &mut properties.0 {
        if name.to_str() == CONSUMER_COUNT || name.to_str() == PRODUCER_COUNT {
            *value = Primitive::Int(i32::try_from(count).unwrap_or(i32::MAX));
        }
    }
    advisory.marshalled_properties = marshalled(&properties);
    to_stored(&advisory, version).ok()
}

fn marshalled(properties: &PrimitiveMap) -> Option<Bytes> {
    let mut marshalled = BytesMut::new();
    properties.encode(&mut marshalled).ok()?;
    Some(marshalled.freeze())
}

/// The name of the topic after [`PREFIX`].
fn topic_of(notice: &Notice) -> Option<String> {
    let told = |destination: &model::Destination| !is_advisory(&destination.name);
    Some(match notice {
        Notice::Connection { .. } => "Connection".to_owned(),
        Notice::Bridge { .. } => "NetworkBridge".to_owned(),
        Notice::Consumer { consumer, .. } if told(&consumer.source) => {
            topic_for("Consumer", &consumer.source)
        }
        Notice::Unsubscribed { topic, .. } if told(topic) => topic_for("Consumer", topic),
        Notice::Producer { producer, .. } if told(&producer.to) => topic_for("Producer", &producer.to),
        Notice::Destination { destination, .. } if told(destination) => kind(destination).to_owned(),
        Notice::SlowConsumer { at, .. } if told(at) => format!("SlowConsumer.{}.{}", kind(at), at.name),
        Notice::Full { destination } if told(destination) => {
            format!("FULL.{}.{}", kind(destination), destination.name)
        }
        Notice::FastProducer { at, .. } if told(at) => format!("FastProducer.{}.{}", kind(at), at.name),
        Notice::Message { event, at, .. } if told(at) => match event {
            MessageEvent::Delivered => format!("MessageDelivered.{}.{}", kind(at), at.name),
            MessageEvent::Consumed => format!("MessageConsumed.{}.{}", kind(at), at.name),
            MessageEvent::NoConsumer => topic_for("NoConsumer", at),
            MessageEvent::Expired => topic_for("Expired", at),
            MessageEvent::DeadLettered => format!("MessageDLQd.{}.{}", kind(at), at.name),
            MessageEvent::Discarded => format!("MessageDiscarded.{}.{}", kind(at), at.name),
        },
        _ => return None,
    })
}

/// Topics that distinguish queues from topics, but not temporary destinations from others.
fn topic_for(of: &str, destination: &model::Destination) -> String {
    let kind = match destination.kind {
        DestinationKind::Queue => "Queue",
        DestinationKind::Topic => "Topic",
    };
    format!("{of}.{kind}.{}", destination.name)
}

/// As `ActiveMQDestination.getDestinationTypeAsString`.
fn kind(destination: &model::Destination) -> &'static str {
    match (destination.kind, destination.temporary) {
        (DestinationKind::Queue, false) => "Queue",
        (DestinationKind::Topic, false) => "Topic",
        (DestinationKind::Queue, true) => "TempQueue",
        (DestinationKind::Topic, true) => "TempTopic",
    }
}

fn gone(id: RemovedId) -> Command {
    RemoveInfo { object_id: Some(id), ..RemoveInfo::default() }.into()
}

fn unsubscribed(client_id: &str, name: &str) -> Command {
    RemoveSubscriptionInfo {
        client_id: Some(client_id.into()),
        subscription_name: Some(name.into()),
        ..RemoveSubscriptionInfo::default()
    }
    .into()
}

fn broker_info(bridge: &BridgeNotice) -> BrokerInfo {
    BrokerInfo {
        broker_id: Some(broker_id(&bridge.peer_id)),
        broker_name: Some(bridge.peer_name.as_ref().into()),
        broker_url: Some(bridge.peer_url.as_ref().into()),
        network_connection: true,
        ..BrokerInfo::default()
    }
}

/// As `AdvisoryBroker.networkBridgeStarted` and `networkBridgeStopped` write it.
fn bridge_content(topic: String, bridge: &BridgeNotice, present: bool) -> Content {
    let mut properties = vec![(STARTED, Primitive::Boolean(present))];
    if present {
        properties.push((CREATED_BY_DUPLEX, Primitive::Boolean(bridge.is_accepted)));
        properties.push((REMOTE_IP, Primitive::String(bridge.remote_ip.as_ref().into())));
    }
    let retain = Some(Retain { key: bridge.name.as_ref().into(), keep: present });
    Content { topic, carries: Some(broker_info(bridge).into()), properties, retain }
}

fn connection_id(client: &ClientNotice) -> RemovedId {
    RemovedId::Connection(ConnectionId { value: Some(client.name.as_ref().into()) })
}

fn consumer_id(consumer: &ConsumerNotice) -> RemovedId {
    RemovedId::Consumer(id_of(&consumer.name))
}

fn id_of(name: &Arc<str>) -> ConsumerId {
    let (connection, session_id, value) = split(name);
    ConsumerId { connection_id: Some(connection.into()), session_id, value }
}

fn broker_id(id: &Arc<str>) -> BrokerId {
    BrokerId { value: Some(id.as_ref().into()) }
}

fn producer_id(producer: &ProducerNotice) -> RemovedId {
    let (connection, session_id, value) = split(&producer.name);
    RemovedId::Producer(ProducerId { connection_id: Some(connection.into()), session_id, value })
}

/// Connection, session and number; see [`ConsumerNotice::name`].
fn split(name: &str) -> (&str, i64, i64) {
    let number = |text: &str| text.parse().unwrap_or(0);
    let mut parts = name.rsplitn(3, ':');
    let (value, session) = (parts.next().map_or(0, number), parts.next().map_or(0, number));
    (parts.next().unwrap_or(name), session, value)
}

fn connection_info(client: &ClientNotice) -> ConnectionInfo {
    ConnectionInfo {
        connection_id: Some(ConnectionId { value: Some(client.name.as_ref().into()) }),
        client_id: Some(client.client_id.as_ref().into()),
        // The password is never published.
        password: Some("".into()),
        user_name: client.user.as_deref().map(Into::into),
        ..ConnectionInfo::default()
    }
}

fn consumer_info(consumer: &ConsumerNotice) -> ConsumerInfo {
    ConsumerInfo {
        consumer_id: Some(id_of(&consumer.name)),
        browser: consumer.mode == ConsumerMode::Browse,
        destination: Some(to_wire_destination(&consumer.source)),
        prefetch_size: i32::try_from(consumer.prefetch).unwrap_or(i32::MAX),
        selector: (!consumer.selector.is_empty()).then(|| consumer.selector.as_ref().into()),
        client_id: Some(consumer.client_id.as_ref().into()),
        subscription_name: consumer.subscription.as_deref().map(Into::into),
        no_local: consumer.no_local,
        exclusive: consumer.mode == ConsumerMode::Exclusive,
        retroactive: consumer.retroactive,
        priority: consumer.priority as u8,
        broker_path: consumer.network.as_ref().map(|path| path.brokers.iter().map(broker_id).collect()),
        network_subscription: consumer.network.is_some(),
        network_consumer_path: consumer
            .network
            .as_ref()
            .map(|path| path.consumers.iter().map(id_of).collect()),
        ..ConsumerInfo::default()
    }
}

fn producer_info(producer: &ProducerNotice) -> ProducerInfo {
    let (connection, session_id, value) = split(&producer.name);
    ProducerInfo {
        producer_id: Some(ProducerId { connection_id: Some(connection.into()), session_id, value }),
        destination: Some(to_wire_destination(&producer.to)),
        window_size: i32::try_from(producer.window_bytes).unwrap_or(i32::MAX),
        ..ProducerInfo::default()
    }
}

/// A client calls its temporary destinations by its connection's name, a colon and a number.
fn destination_info(destination: &model::Destination, present: bool) -> DestinationInfo {
    let owner = destination.name.rsplit_once(':').filter(|_| destination.temporary);
    DestinationInfo {
        connection_id: owner.map(|(owner, _)| ConnectionId { value: Some(owner.into()) }),
        destination: Some(to_wire_destination(destination)),
        operation_type: if present { DestinationInfo::ADD } else { DestinationInfo::REMOVE },
        ..DestinationInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::portable::{Portable, TranslationError};

    use super::*;

    fn nothing(_: &model::Message) -> Result<Portable, TranslationError> {
        Ok(Portable::default())
    }

    fn consumer(source: model::Destination) -> Arc<ConsumerNotice> {
        Arc::new(ConsumerNotice {
            name: "ID:a:1:2:3".into(),
            source,
            mode: ConsumerMode::Exclusive,
            prefetch: 7,
            priority: -3,
            no_local: true,
            retroactive: false,
            selector: "a = 1".into(),
            subscription: Some("news".into()),
            durable: None,
            since_ms: 0,
            client_id: "me".into(),
            network: None,
        })
    }

    fn write(notice: &Notice) -> Option<(String, Message, Option<Retain>)> {
        let mut advisories = Advisories::new(("b", "ID:b"), "tcp://b:1", 3, nothing);
        let advisory = advisories.write(notice)?;
        assert_eq!(Advisories::topic_of(notice).as_ref(), Some(&advisory.topic));
        let message = from_stored(&advisory.message.bytes, VERSION_MAX).unwrap();
        Some((advisory.topic.to_string(), message, advisory.retain))
    }

    fn carried(message: &Message) -> Command {
        match message.data_structure.as_deref() {
            Some(DataStructure::Command(command)) => (**command).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn notices_become_what_clients_of_activemq_listen_for() {
        let temporary = model::Destination { temporary: true, ..model::Destination::queue("ID:a:1:9") };
        let source = model::Destination::queue("orders");
        let id = ConsumerId { connection_id: Some("ID:a:1".into()), session_id: 2, value: 3 };
        let info = ConsumerInfo {
            consumer_id: Some(id.clone()),
            destination: Some(Destination::Queue("orders".into())),
            prefetch_size: 7,
            selector: Some("a = 1".into()),
            client_id: Some("me".into()),
            subscription_name: Some("news".into()),
            no_local: true,
            exclusive: true,
            priority: 253,
            ..ConsumerInfo::default()
        };
        let made = DestinationInfo {
            connection_id: Some(ConnectionId { value: Some("ID:a:1".into()) }),
            destination: Some(Destination::TempQueue("ID:a:1:9".into())),
            operation_type: DestinationInfo::ADD,
            ..DestinationInfo::default()
        };
        let keep = |key: &str, keep| Some(Retain { key: key.into(), keep });
        for (notice, topic, want, retain) in [
            (
                Notice::Consumer { consumer: consumer(source.clone()), present: true },
                "Consumer.Queue.orders",
                Command::from(info),
                keep("ID:a:1:2:3", true),
            ),
            (
                Notice::Consumer { consumer: consumer(source), present: false },
                "Consumer.Queue.orders",
                gone(RemovedId::Consumer(id)),
                keep("ID:a:1:2:3", false),
            ),
            (
                Notice::Unsubscribed {
                    topic: model::Destination::topic("prices"),
                    client_id: "me".into(),
                    name: "news".into(),
                },
                "Consumer.Topic.prices",
                unsubscribed("me", "news"),
                None,
            ),
            (
                Notice::Destination { destination: temporary, present: true },
                "TempQueue",
                Command::from(made),
                keep("ID:a:1:9", true),
            ),
        ] {
            let (got_topic, message, got_retain) = write(&notice).unwrap();
            assert_eq!(
                (got_topic, carried(&message), got_retain),
                (format!("topic://ActiveMQ.Advisory.{topic}"), want, retain)
            );
        }
    }

    #[test]
    fn no_advisory_tells_of_advisories() {
        let topic = model::Destination::topic("ActiveMQ.Advisory.Queue");
        for notice in [
            Notice::Destination { destination: topic.clone(), present: true },
            Notice::Consumer { consumer: consumer(topic), present: true },
        ] {
            assert_eq!(write(&notice).map(|(topic, ..)| topic), None, "{notice:?}");
        }
    }

    #[test]
    fn a_message_that_expired_is_shown_without_its_body() {
        let id = MessageId {
            producer_id: Some(ProducerId { connection_id: Some("ID:a:1".into()), session_id: 2, value: 3 }),
            producer_sequence_id: 4,
            ..MessageId::default()
        };
        let sent =
            Message { message_id: Some(id), content: Some(Bytes::from_static(b"x")), ..Message::default() };
        let stored = to_stored(&sent, VERSION_MAX).unwrap();
        let message = to_model_message(&sent, stored, VERSION_MAX);
        for (event, topic, has_id) in [
            (MessageEvent::Expired, "Expired.Queue.a", true),
            (MessageEvent::DeadLettered, "MessageDLQd.Queue.a", false),
        ] {
            let at = model::Destination::queue("a");
            let (got, advisory, retain) =
                write(&Notice::Message { event, at, message: message.clone(), consumer: None }).unwrap();
            let properties = PrimitiveMap::decode(&advisory.marshalled_properties.clone().unwrap()).unwrap();
            let id = properties.get(MESSAGE_ID).cloned();
            let want_id = has_id.then(|| Primitive::String("ID:a:1:2:3:4".into()));
            assert_eq!((got, id, retain), (format!("topic://ActiveMQ.Advisory.{topic}"), want_id, None));
            let want = Message { content: None, ..sent.clone() };
            assert_eq!(carried(&advisory), Command::Message(Box::new(want)));
        }
    }

    #[test]
    fn counts_are_those_of_what_is_kept() {
        let mut advisories = Advisories::new(("b", "ID:b"), "tcp://b:1", 3, nothing);
        let consumer = Notice::Consumer { consumer: consumer(model::Destination::queue("a")), present: true };
        let kept = advisories.write(&consumer).unwrap().message;
        let counted = from_stored(&count_retained(&kept, 5).bytes, VERSION_MAX).unwrap();
        let properties = PrimitiveMap::decode(&counted.marshalled_properties.unwrap()).unwrap();
        assert_eq!(properties.get(CONSUMER_COUNT), Some(&Primitive::Int(5)));
        let destination = Notice::Destination { destination: model::Destination::queue("a"), present: true };
        let kept = advisories.write(&destination).unwrap().message;
        assert_eq!(count_retained(&kept, 5), kept, "nothing is counted there");
    }
}
