//! From the sections of a stored message to the portable one.

use bytes::{Bytes, BytesMut};
use postroad_model::portable::{
    BYTES_TYPE, Body, Headers, Map, Portable, SERIALISED_NULL, SERIALISED_OBJECT_TYPE, Text,
    TranslationError, Value,
};
use postroad_model::{DestinationKind, Message, Protocol};

use super::value::{ValueReader, read_id};
use super::{annotations, kinds};
use crate::codec::{self, Properties, Symbol, Timestamp, ValueMap, WireError};
use crate::message::{BodyKind, ORIGIN, REASON, Sections};
use crate::session::address::{Kind, destination, kind_of_annotation};

/// A stored AMQP message as every protocol understands it. Its parts are slices of the stored
/// bytes, but for a body of several sections.
///
/// # Errors
/// [`TranslationError::Unreadable`]: it breaks the standard, or has more than 65,536 values in one
/// section.
pub fn read_portable(message: &Message) -> Result<Portable, TranslationError> {
    sections(message)
        .map_err(|error| TranslationError::Unreadable { protocol: Protocol::Amqp, reason: error.to_string() })
}

fn sections(message: &Message) -> Result<Portable, WireError> {
    let bytes = &message.bytes;
    let sections = Sections::scan(bytes)?;
    let (notes, properties) = (sections.message_annotations(bytes)?, sections.properties(bytes)?);
    let mut reader = ValueReader::new();
    let mut portable = Portable {
        headers: headers(message, &properties, &notes),
        properties: reader.map(sections.application_properties(bytes)?)?,
        ..Portable::default()
    };
    portable.headers.failed_deliveries = sections.header(bytes)?.delivery_count;
    let kind = sections.body.as_ref().map(|body| body.kind);
    let kind_wanted = notes.get(annotations::MESSAGE_TYPE).and_then(number);
    let values = sections.body_values(bytes)?;
    portable.body = body(kind, values, kind_wanted, &mut portable.headers, &mut reader)?;
    annotate(&mut portable, reader.map(notes)?);
    Ok(portable)
}

fn headers(message: &Message, properties: &Properties, notes: &ValueMap) -> Headers {
    let time = |time: &Option<Timestamp>| time.map(|Timestamp(ms)| ms);
    let noted = |name| notes.get(name);
    let to_kind = kind(noted(annotations::TO_KIND), noted(annotations::TO_WORDS));
    let reply_to_kind = kind(noted(annotations::REPLY_TO_KIND), noted(annotations::REPLY_TO_WORDS));
    let address = |address: &Option<codec::Text>, kind| destination(address.as_ref()?.as_str(), kind).ok();
    let noted_text = |name| match noted(name) {
        Some(codec::Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let origin = noted_text(ORIGIN).and_then(|origin| destination(origin.as_str(), QUEUE).ok());
    Headers {
        message_id: properties.message_id.as_ref().and_then(read_id),
        correlation_id: properties.correlation_id.as_ref().and_then(read_id),
        destination: address(&properties.to, to_kind),
        reply_to: address(&properties.reply_to, reply_to_kind),
        message_type: properties.subject.clone(),
        group_id: properties.group_id.clone(),
        group_sequence: properties.group_sequence.map(|sequence| sequence as i32),
        reply_to_group_id: properties.reply_to_group_id.clone(),
        user_id: properties.user_id.clone(),
        timestamp_ms: time(&properties.creation_time),
        // JMS clients show the sender's own time, if it set one, unless a policy expires the
        // message earlier; a time to live counts from its arrival here.
        expires_at_ms: (time(&properties.absolute_expiry_time).into_iter())
            .chain(Some(message.expires_at_ms as i64))
            .filter(|ms| 0 < *ms)
            .min(),
        priority: message.priority.min(9),
        persistent: message.persistent,
        failed_deliveries: 0,
        content_type: properties.content_type.as_ref().map(Symbol::to_text),
        content_encoding: properties.content_encoding.as_ref().map(Symbol::to_text),
        original_destination: origin,
        dead_letter_cause: noted_text(REASON),
    }
}

const QUEUE: Kind = (DestinationKind::Queue, false);

/// The kind that annotations give an address: a number, or words in clients of old.
fn kind(annotated: Option<&codec::Value>, worded: Option<&codec::Value>) -> Kind {
    if let Some(kind) = annotated.and_then(number).and_then(|number| kind_of_annotation(number.into())) {
        return kind;
    }
    let words = match worded {
        Some(codec::Value::String(words)) => words.as_str(),
        _ => return QUEUE,
    };
    let says = |word| words.split(',').any(|said| said.trim() == word);
    let kind = if says("topic") { DestinationKind::Topic } else { DestinationKind::Queue };
    (kind, says("temporary"))
}

fn number(value: &codec::Value) -> Option<i8> {
    match value {
        codec::Value::Byte(number) => Some(*number),
        _ => None,
    }
}

/// Annotations that headers or properties stand for are those; the others are kept as they are.
fn annotate(portable: &mut Portable, notes: Map) {
    for (name, value) in notes {
        match (name.as_str(), value) {
            (annotations::NESTED_PROPERTIES, Value::Map(nested)) => portable.properties.extend(nested),
            (
                annotations::MESSAGE_TYPE
                | annotations::TO_KIND
                | annotations::TO_WORDS
                | annotations::REPLY_TO_KIND
                | annotations::REPLY_TO_WORDS
                | ORIGIN
                | REASON,
                _,
            ) => {}
            (_, value) => portable.annotations.push((name, value)),
        }
    }
}

/// The body. Properties that its kind implies are not headers any more.
fn body(
    kind: Option<BodyKind>,
    values: Vec<codec::Value>,
    wanted: Option<i8>,
    headers: &mut Headers,
    reader: &mut ValueReader,
) -> Result<Body, WireError> {
    Ok(match kind {
        None => nothing(wanted, headers),
        Some(BodyKind::Data) => data(joined(values), wanted, headers),
        Some(BodyKind::Sequence) => {
            let lists = values.into_iter().map(|list| match list {
                codec::Value::List(values) => reader.list(values),
                other => reader.list(vec![other]),
            });
            Body::Stream(lists.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Some(BodyKind::Value) => match reader.value(values.into_iter().next().unwrap_or_default())? {
            Value::Null if wanted == Some(kinds::TEXT) || wanted.is_none() => Body::Text(None),
            Value::Null => nothing(wanted, headers),
            Value::String(text) => Body::Text(Some(text)),
            Value::Binary(bytes) => data(bytes, wanted, headers),
            Value::Map(map) => Body::Map(map),
            Value::List(values) => Body::Stream(values),
            value => Body::Value(value),
        },
    })
}

/// A message without a body, as `qpid-jms` understands it (`AmqpCodec.createWithoutAnnotation`).
fn nothing(wanted: Option<i8>, headers: &mut Headers) -> Body {
    let is_bytes = headers.content_type.as_ref().is_none_or(|known| *known == BYTES_TYPE);
    match wanted {
        Some(kinds::OBJECT) => object(Bytes::new(), headers),
        None if is_of(headers, SERIALISED_OBJECT_TYPE) => object(Bytes::new(), headers),
        Some(kinds::MAP) => Body::Map(Vec::new()),
        Some(kinds::STREAM) => Body::Stream(Vec::new()),
        Some(kinds::TEXT) => Body::Text(None),
        Some(kinds::BYTES) => raw(Bytes::new(), headers),
        None if is_bytes => raw(Bytes::new(), headers),
        None if is_text(headers) => Body::Text(None),
        _ => Body::None,
    }
}

/// Raw bytes, unless they are said to be something that every protocol knows
/// (`AmqpCodec.createWithoutAnnotation`).
fn data(bytes: Bytes, wanted: Option<i8>, headers: &mut Headers) -> Body {
    if is_of(headers, SERIALISED_OBJECT_TYPE) && wanted.is_none_or(|wanted| wanted == kinds::OBJECT) {
        return object(bytes, headers);
    }
    match (wanted, Text::from_utf8(bytes.clone())) {
        (Some(kinds::TEXT), Some(text)) => Body::Text(Some(text)),
        (None, Some(text)) if is_text(headers) => Body::Text(Some(text)),
        _ => raw(bytes, headers),
    }
}

fn raw(bytes: Bytes, headers: &mut Headers) -> Body {
    headers.content_type.take_if(|known| *known == BYTES_TYPE);
    Body::Bytes(bytes)
}

fn object(serialised: Bytes, headers: &mut Headers) -> Body {
    headers.content_type.take_if(|known| *known == SERIALISED_OBJECT_TYPE);
    let is_null = serialised.is_empty() || serialised == SERIALISED_NULL;
    Body::Object(Some(serialised).filter(|_| !is_null))
}

fn is_of(headers: &Headers, mime: &str) -> bool {
    headers.content_type.as_ref().is_some_and(|known| *known == *mime)
}

/// Whether the MIME type is one of text, in an encoding that is UTF-8 or part of it (as `qpid-jms`,
/// `ContentTypeSupport`).
fn is_text(headers: &Headers) -> bool {
    let Some(content_type) = &headers.content_type else { return false };
    let lower = content_type.as_str().to_ascii_lowercase();
    let mut parts = lower.split(';').map(str::trim);
    let mime = parts.next().unwrap_or_default();
    let (family, kind) = mime.split_once('/').unwrap_or((mime, ""));
    let is_text = family == "text"
        || family == "application"
            && (["json", "xml", "xml-dtd", "javascript", "ecmascript"].contains(&kind)
                || kind.ends_with("+json")
                || kind.ends_with("+xml"));
    let charset = parts.find_map(|part| part.strip_prefix("charset=")).map(|name| name.trim_matches('"'));
    is_text && charset.is_none_or(|charset| ["utf-8", "utf8", "us-ascii"].contains(&charset))
}

fn joined(values: Vec<codec::Value>) -> Bytes {
    let mut parts = values.into_iter().filter_map(|value| match value {
        codec::Value::Binary(bytes) => Some(bytes),
        _ => None,
    });
    let first = parts.next().unwrap_or_default();
    let mut rest = parts.peekable();
    if rest.peek().is_none() {
        return first;
    }
    let mut whole = BytesMut::from(&first[..]);
    rest.for_each(|part| whole.extend_from_slice(&part));
    whole.freeze()
}
