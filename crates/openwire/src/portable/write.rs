//! From the portable message to the command that an ActiveMQ client expects.

use std::hash::Hasher;

use bytes::{Bytes, BytesMut};
use postroad_model::portable::{Body, Headers, Map, Portable, Text, TranslationError, Value};
use postroad_model::{DeadLetter, DestinationKind, EntryTag, Protocol};

use super::names;
use super::value::{write, write_map, write_text};
use crate::codec::{
    Destination, Message, MessageId, MessageKind, ProducerId, WireError, WireString, encode_text_body,
    to_stored,
};

/// The source of a message's OpenWire id, which has no room for ids of other protocols.
///
/// ActiveMQ's clients tell duplicates by it and drop them: it must be the same each time that the
/// same message is sent to them, and never be another message's. The entry's tag is unique among
/// the entries of its queue in one run of the broker; the bytes tell messages of different runs
/// apart.
#[derive(Clone, Copy, Debug)]
pub struct TranslatedId<'a> {
    /// The message's place in its queue.
    pub tag: EntryTag,
    /// The message as it is stored.
    pub stored: &'a [u8],
}

/// Producers that no client can have: their connection is called so.
const CONNECTION: &str = "ID:postroad-translated";

/// Whether the producer of an id is none of a client: see [`TranslatedId`].
pub fn is_made_up(producer: &ProducerId) -> bool {
    producer.connection_id.as_ref().is_some_and(|connection| connection.as_bytes() == CONNECTION.as_bytes())
}

/// Prefix of the connections of producers that a message of another protocol has on its way through
/// a network, where its own id follows.
const NAMED_CONNECTION: &str = "ID:postroad-named:";

/// The id of a message that brokers forward by several ways: the same by each of them, as the id is
/// that its client gave it. `None` if the client gave it none.
///
/// A broker may drop a message whose id matches that of an earlier one (AMQP 1.0, 3.2.4); here the
/// bytes must match too.
pub fn id_by_every_way(id: &MessageId, stored: &[u8]) -> Option<MessageId> {
    let shown = id.text_view.as_ref()?;
    let connection = format!("{NAMED_CONNECTION}{}", shown.to_str());
    let producer = ProducerId {
        connection_id: Some(connection.as_str().into()),
        session_id: hash(stored) as i64,
        value: 0,
    };
    Some(MessageId { producer_id: Some(producer), ..id.clone() })
}

fn hash(stored: &[u8]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(stored);
    hasher.finish()
}

impl TranslatedId<'_> {
    fn message_id(self, shown: Option<WireString>) -> MessageId {
        let (session_id, value) = (hash(self.stored) as i64, self.tag.0 as i64);
        let producer = ProducerId { connection_id: Some(CONNECTION.into()), session_id, value };
        MessageId {
            text_view: shown,
            producer_id: Some(producer),
            producer_sequence_id: 1,
            ..MessageId::default()
        }
    }
}

/// The stored form of a portable message in this version of OpenWire. `at` is the destination for
/// one that names none.
///
/// # Errors
/// [`TranslationError::Unwritable`]: a text or the body is too long for OpenWire.
pub fn write_portable(
    portable: &Portable,
    id: TranslatedId<'_>,
    at: &Destination,
    version: u8,
) -> Result<Bytes, TranslationError> {
    let unwritable = |error: WireError| TranslationError::Unwritable {
        protocol: Protocol::OpenWire,
        reason: error.to_string(),
    };
    let mut message = message(&portable.headers, id, at);
    let (kind, content) = body(&portable.body).map_err(unwritable)?;
    (message.kind, message.content) = (kind, content);
    message.marshalled_properties = properties(portable).map_err(unwritable)?;
    to_stored(&message, version).map_err(unwritable)
}

fn message(headers: &Headers, id: TranslatedId<'_>, at: &Destination) -> Message {
    let text = |text: &Option<Text>| text.as_ref().map(write_text);
    let destination = |model: &Option<_>| model.as_ref().map(to_wire_destination);
    let id = id.message_id(headers.message_id.as_ref().map(|id| write_text(&id.to_jms_message_id())));
    let user = headers.user_id.as_ref().map(|id| String::from_utf8_lossy(id).into_owned().into());
    Message {
        producer_id: id.producer_id.clone(),
        message_id: Some(id),
        destination: destination(&headers.destination).or_else(|| Some(at.clone())),
        original_destination: destination(&headers.original_destination),
        reply_to: headers.reply_to.as_ref().map(to_wire_destination),
        correlation_id: headers.correlation_id.as_ref().map(|id| write_text(&id.to_jms_correlation_id())),
        message_type: text(&headers.message_type),
        group_id: text(&headers.group_id),
        group_sequence: headers.group_sequence.unwrap_or(0),
        user_id: user,
        timestamp_ms: headers.timestamp_ms.unwrap_or(0),
        expiration_ms: headers.expires_at_ms.unwrap_or(0),
        priority: headers.priority.min(9),
        persistent: headers.persistent,
        redelivery_counter: i32::try_from(headers.failed_deliveries).unwrap_or(i32::MAX),
        ..Message::default()
    }
}

/// The destination as OpenWire has it.
pub(crate) fn to_wire_destination(model: &postroad_model::Destination) -> Destination {
    let name = model.name.as_ref().into();
    match (model.kind, model.temporary) {
        (DestinationKind::Queue, false) => Destination::Queue(name),
        (DestinationKind::Topic, false) => Destination::Topic(name),
        (DestinationKind::Queue, true) => Destination::TempQueue(name),
        (DestinationKind::Topic, true) => Destination::TempTopic(name),
    }
}

fn properties(portable: &Portable) -> Result<Option<Bytes>, WireError> {
    let headers = &portable.headers;
    let mut all: Map = portable.properties.clone();
    // A name that occurs twice has its last value.
    let mut push = |name: String, value: Option<Value>| all.extend(value.map(|value| (name.into(), value)));
    for (name, header) in [
        (names::CONTENT_TYPE, &headers.content_type),
        (names::CONTENT_ENCODING, &headers.content_encoding),
        (names::REPLY_TO_GROUP_ID, &headers.reply_to_group_id),
    ] {
        push(format!("{}{name}", names::PREFIX), header.clone().map(Value::String));
    }
    push(DeadLetter::CAUSE.to_owned(), headers.dead_letter_cause.clone().map(Value::String));
    for (name, value) in &portable.annotations {
        push(format!("{}{}{name}", names::PREFIX, names::ANNOTATION), Some(value.clone()));
    }
    if all.is_empty() {
        return Ok(None);
    }
    marshalled(&all).map(Some)
}

fn body(body: &Body) -> Result<(MessageKind, Option<Bytes>), WireError> {
    Ok(match body {
        Body::None => (MessageKind::Plain, None),
        Body::Text(text) => {
            let content = text.as_ref().map(|text| encode_text_body(&write_text(text)));
            (MessageKind::Text, content.transpose()?)
        }
        Body::Bytes(bytes) => (MessageKind::Bytes, Some(bytes.clone())),
        Body::Map(map) => (MessageKind::Map, Some(marshalled(map)?)),
        Body::Stream(values) if !values.iter().all(Value::is_simple) => return numbered(values),
        Body::Stream(values) => (MessageKind::Stream, Some(stream(values)?)),
        Body::Object(serialised) => (MessageKind::Object, serialised.clone()),
        Body::Value(Value::Map(map)) => (MessageKind::Map, Some(marshalled(map)?)),
        Body::Value(Value::List(values)) => return self::body(&Body::Stream(values.clone())),
        // A stream of one: `readObject` gives the value as it is.
        Body::Value(value) => (MessageKind::Stream, Some(stream(std::slice::from_ref(value))?)),
    })
}

/// Java's stream messages hold simple values only, its maps hold any: there each value is named by
/// its number.
fn numbered(values: &[Value]) -> Result<(MessageKind, Option<Bytes>), WireError> {
    let named = values.iter().enumerate().map(|(number, value)| (number.to_string().into(), value.clone()));
    Ok((MessageKind::Map, Some(marshalled(&named.collect())?)))
}

fn marshalled(map: &Map) -> Result<Bytes, WireError> {
    let mut content = BytesMut::new();
    write_map(map).encode(&mut content)?;
    Ok(content.freeze())
}

fn stream(values: &[Value]) -> Result<Bytes, WireError> {
    let mut content = BytesMut::new();
    values.iter().try_for_each(|value| write(value).encode(&mut content))?;
    Ok(content.freeze())
}
