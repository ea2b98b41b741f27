//! From a stored OpenWire message to the portable one.

use bytes::Bytes;
use postroad_model::portable::{Body, Headers, Id, Map, Portable, Text, TranslationError, Value};
use postroad_model::{DeadLetter, Message, Protocol};

use super::inflate::inflate;
use super::names;
use super::value::{read, read_map, read_text};
use crate::client::message_id_text;
use crate::codec::{
    self, Destination, MessageKind, Primitive, PrimitiveMap, WireError, decode_text_body, from_stored,
};
use crate::session::{SCHEDULE_PREFIX, to_model_destination};

/// A stored OpenWire message as every protocol understands it. Its parts are slices of the stored
/// bytes, but for a body that was deflated.
///
/// # Errors
/// [`TranslationError::Unreadable`]: its producer wrote something else than the message's kind
/// says.
pub fn read_portable(message: &Message) -> Result<Portable, TranslationError> {
    let unreadable = |reason| TranslationError::Unreadable { protocol: Protocol::OpenWire, reason };
    let stored = from_stored(&message.bytes, message.encoding.version);
    let stored = stored.map_err(|error| unreadable(error.to_string()))?;
    let body = body(&stored).map_err(unreadable)?;
    let properties = properties(&stored).map_err(|error| unreadable(format!("its properties: {error}")))?;
    let mut portable = Portable { headers: headers(&stored), body, ..Portable::default() };
    for (name, value) in properties {
        place(&mut portable, name, value);
    }
    Ok(portable)
}

fn headers(stored: &codec::Message) -> Headers {
    let text = |text: &Option<codec::WireString>| text.as_ref().map(read_text);
    let destination = |wire: &Option<Destination>| wire.as_ref().map(to_model_destination);
    let time = |ms: i64| Some(ms).filter(|ms| *ms != 0);
    Headers {
        message_id: stored.message_id.as_ref().map(|id| Id::from_jms(&message_id_text(id).into())),
        correlation_id: text(&stored.correlation_id).map(|id| Id::from_jms(&id)),
        destination: destination(&stored.destination),
        reply_to: destination(&stored.reply_to),
        message_type: text(&stored.message_type),
        group_id: text(&stored.group_id),
        group_sequence: Some(stored.group_sequence).filter(|sequence| *sequence != 0),
        user_id: text(&stored.user_id).map(|id| id.as_bytes().clone()),
        timestamp_ms: time(stored.timestamp_ms),
        expires_at_ms: time(stored.expiration_ms),
        priority: stored.priority.min(9),
        persistent: stored.persistent,
        failed_deliveries: u32::try_from(stored.redelivery_counter).unwrap_or(0),
        original_destination: destination(&stored.original_destination),
        ..Headers::default()
    }
}

fn properties(stored: &codec::Message) -> Result<Map, WireError> {
    let marshalled = stored.marshalled_properties.as_ref();
    Ok(read_map(marshalled.map(PrimitiveMap::decode).transpose()?.unwrap_or_default()))
}

/// Puts a property where it belongs: some stand for headers that OpenWire does not have.
fn place(portable: &mut Portable, name: Text, value: Value) {
    let headers = &mut portable.headers;
    if name.as_str().starts_with(SCHEDULE_PREFIX) {
        return;
    }
    let header = match name.as_str().strip_prefix(names::PREFIX) {
        Some(names::CONTENT_TYPE) => &mut headers.content_type,
        Some(names::CONTENT_ENCODING) => &mut headers.content_encoding,
        Some(names::REPLY_TO_GROUP_ID) => &mut headers.reply_to_group_id,
        Some(rest) if names::MARKS.iter().any(|mark| rest.starts_with(mark)) => return,
        Some(rest) if let Some(note) = rest.strip_prefix(names::ANNOTATION) => {
            portable.annotations.push((note.into(), value));
            return;
        }
        _ if name == *DeadLetter::CAUSE => &mut headers.dead_letter_cause,
        _ => {
            portable.properties.push((name, value));
            return;
        }
    };
    match value {
        Value::String(text) => *header = Some(text),
        other => portable.properties.push((name, other)),
    }
}

fn body(stored: &codec::Message) -> Result<Body, String> {
    let content = match &stored.content {
        Some(content) if stored.compressed => Some(inflate(stored.kind, content)?),
        content => content.clone(),
    };
    body_of(stored, content).map_err(|error| format!("its body: {error}"))
}

fn body_of(stored: &codec::Message, content: Option<Bytes>) -> Result<Body, WireError> {
    Ok(match stored.kind {
        MessageKind::Plain => Body::None,
        MessageKind::Text => {
            let text = content.as_ref().map(decode_text_body).transpose()?;
            Body::Text(text.flatten().as_ref().map(read_text))
        }
        MessageKind::Bytes => Body::Bytes(content.unwrap_or_default()),
        MessageKind::Map => {
            let map = content.as_ref().map(PrimitiveMap::decode).transpose()?;
            Body::Map(read_map(map.unwrap_or_default()))
        }
        MessageKind::Stream => {
            let values = Primitive::decode_all(&content.unwrap_or_default())?;
            Body::Stream(values.into_iter().map(read).collect())
        }
        MessageKind::Object => Body::Object(content),
        MessageKind::Blob => {
            let url = stored.blob.as_ref().and_then(|blob| blob.remote_blob_url.as_ref());
            Body::Text(url.map(read_text))
        }
    })
}
