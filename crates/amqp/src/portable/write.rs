//! From the portable message to the sections that a client expects.

use bytes::{BufMut, Bytes, BytesMut};
use postroad_model::portable::{
    BYTES_TYPE, Body, Headers, Portable, SERIALISED_NULL, SERIALISED_OBJECT_TYPE, Text, Value,
};
use postroad_model::{Destination, DestinationKind};

use super::value::{write, write_id, write_map, write_symbol};
use super::{annotations, kinds};
use crate::codec::{self, Field, Header, Properties, Symbol, Timestamp, ValueMap};
use crate::message::{ORIGIN, REASON, Section};
use crate::session::address::plain_address;

/// A portable message as complete sections: with a header, and annotations for JMS clients.
pub fn write_portable(portable: &Portable) -> Bytes {
    let (section, values, kind) = body(portable);
    let mut out = BytesMut::with_capacity(body_bytes(&portable.body) + HEADERS_BYTES);
    ahead(portable, kind, &mut out);
    put(section, &values, &mut out);
    out.freeze()
}

/// As [`write_portable`], up to the body.
pub(super) fn write_ahead(portable: &Portable) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADERS_BYTES);
    ahead(portable, body(portable).2, &mut out);
    out.freeze()
}

/// The section that text, bytes or an object is in; `None` for other bodies.
pub(super) fn section_of(portable: &Portable) -> Option<Section> {
    let is_plain = matches!(portable.body, Body::Text(Some(_)) | Body::Bytes(_) | Body::Object(_));
    is_plain.then(|| body(portable).0)
}

fn ahead(portable: &Portable, kind: i8, out: &mut BytesMut) {
    let headers = &portable.headers;
    header(headers).write(out);
    put(Section::MessageAnnotations, &notes(portable, kind).into(), out);
    properties(headers, &portable.body).write(out);
    let simple: Vec<_> = portable.properties.iter().filter(|(_, value)| value.is_simple()).cloned().collect();
    if !simple.is_empty() {
        put(Section::ApplicationProperties, &write_map(&simple).into(), out);
    }
}

/// Typical bytes of a message beside its body, to reserve once.
const HEADERS_BYTES: usize = 512;

fn body_bytes(body: &Body) -> usize {
    match body {
        Body::Text(Some(text)) => text.as_bytes().len(),
        Body::Bytes(bytes) | Body::Object(Some(bytes)) => bytes.len(),
        _ => 0,
    }
}

fn put(section: Section, value: &codec::Value, out: &mut BytesMut) {
    out.put_slice(&[0x00, 0x53, section.code()]);
    value.encode(out);
}

fn header(headers: &Headers) -> Header {
    Header {
        durable: headers.persistent,
        priority: headers.priority.min(9),
        // Each delivery says here how much is left.
        ttl: headers.expires_at_ms.map(|_| 1),
        delivery_count: headers.failed_deliveries,
        ..Header::default()
    }
}

fn properties(headers: &Headers, body: &Body) -> Properties {
    let address = |destination: &Option<Destination>| destination.as_ref().map(|at| plain_address(at).into());
    let name = |name: &Option<Text>| name.as_ref().and_then(write_symbol);
    let implied = match body {
        Body::Object(_) => Some(Symbol::from_static(SERIALISED_OBJECT_TYPE)),
        Body::Bytes(_) => Some(Symbol::from_static(BYTES_TYPE)),
        _ => None,
    };
    Properties {
        message_id: headers.message_id.as_ref().map(write_id),
        user_id: headers.user_id.clone(),
        to: address(&headers.destination),
        subject: headers.message_type.clone(),
        reply_to: address(&headers.reply_to),
        correlation_id: headers.correlation_id.as_ref().map(write_id),
        content_type: match body {
            Body::Object(_) => implied,
            _ => name(&headers.content_type).or(implied),
        },
        content_encoding: name(&headers.content_encoding),
        absolute_expiry_time: headers.expires_at_ms.map(Timestamp),
        creation_time: headers.timestamp_ms.map(Timestamp),
        group_id: headers.group_id.clone(),
        group_sequence: headers.group_sequence.map(|sequence| sequence as u32),
        reply_to_group_id: headers.reply_to_group_id.clone(),
    }
}

fn notes(portable: &Portable, kind: i8) -> ValueMap {
    let headers = &portable.headers;
    let mut notes = ValueMap::default();
    notes.push(annotations::MESSAGE_TYPE, codec::Value::Byte(kind));
    for (name, destination) in
        [(annotations::TO_KIND, &headers.destination), (annotations::REPLY_TO_KIND, &headers.reply_to)]
    {
        if let Some(destination) = destination {
            notes.push(name, codec::Value::Byte(kind_number(destination)));
        }
    }
    if let Some(origin) = &headers.original_destination {
        notes.push(ORIGIN, origin.to_string().as_str());
    }
    if let Some(cause) = &headers.dead_letter_cause {
        notes.push(REASON, cause.clone());
    }
    let nested: Vec<_> =
        portable.properties.iter().filter(|(_, value)| !value.is_simple()).cloned().collect();
    if !nested.is_empty() {
        notes.push(annotations::NESTED_PROPERTIES, write_map(&nested));
    }
    for (name, value) in &portable.annotations {
        // A name that is not ASCII cannot be an annotation's (3.2.10).
        notes.0.extend(write_symbol(name).map(|name| (name.into(), write(value))));
    }
    notes
}

fn kind_number(destination: &Destination) -> i8 {
    match (destination.kind, destination.temporary) {
        (DestinationKind::Queue, false) => 0,
        (DestinationKind::Topic, false) => 1,
        (DestinationKind::Queue, true) => 2,
        (DestinationKind::Topic, true) => 3,
    }
}

/// The section of the body, its value, and the kind of message that JMS sees in it.
fn body(portable: &Portable) -> (Section, codec::Value, i8) {
    match &portable.body {
        Body::None => (Section::Value, codec::Value::Null, kinds::PLAIN),
        // A MIME type is for bytes alone (3.2.4).
        Body::Text(Some(text)) if portable.headers.content_type.is_some() => {
            (Section::Data, text.as_bytes().clone().into(), kinds::TEXT)
        }
        Body::Text(Some(text)) => (Section::Value, text.clone().into(), kinds::TEXT),
        Body::Text(None) => (Section::Value, codec::Value::Null, kinds::TEXT),
        Body::Bytes(bytes) => (Section::Data, bytes.clone().into(), kinds::BYTES),
        Body::Map(map) => (Section::Value, write_map(map).into(), kinds::MAP),
        Body::Stream(values) => {
            (Section::Value, values.iter().map(write).collect::<Vec<_>>().into(), kinds::STREAM)
        }
        Body::Object(serialised) => {
            let serialised = serialised.clone().unwrap_or(Bytes::from_static(SERIALISED_NULL));
            (Section::Data, serialised.into(), kinds::OBJECT)
        }
        Body::Value(Value::Null) => (Section::Value, codec::Value::Null, kinds::TEXT),
        Body::Value(value) => (Section::Value, write(value), kinds::OBJECT),
    }
}
