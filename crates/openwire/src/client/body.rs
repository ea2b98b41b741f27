//! Bodies of messages that came, and the text of their ids.

use bytes::Bytes;

use crate::codec::{
    Message, MessageId, MessageKind, Primitive, PrimitiveMap, WireError, WireString, decode_text_body,
};

/// The contents of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A message without body.
    Empty,
    /// Text, which may be null.
    Text(Option<WireString>),
    /// Raw bytes.
    Bytes(Bytes),
    /// Names and values.
    Map(PrimitiveMap),
    /// Values, one after the other.
    Stream(Vec<Primitive>),
    /// A serialised Java object.
    Object(Bytes),
    /// Where the data lies.
    Blob(Option<WireString>),
    /// A body of any of these kinds, deflated by its producer; not inflated here.
    Compressed(Bytes),
}

impl Body {
    /// Decodes the body.
    ///
    /// # Errors
    /// Its producer wrote something else than the message's kind says.
    pub fn of(message: &Message) -> Result<Body, WireError> {
        let content = || message.content.clone().unwrap_or_default();
        if message.compressed && message.content.is_some() {
            return Ok(Body::Compressed(content()));
        }
        Ok(match message.kind {
            MessageKind::Plain => Body::Empty,
            MessageKind::Text => match &message.content {
                Some(content) => Body::Text(decode_text_body(content)?),
                None => Body::Text(None),
            },
            MessageKind::Bytes => Body::Bytes(content()),
            MessageKind::Map => match &message.content {
                Some(content) => Body::Map(PrimitiveMap::decode(content)?),
                None => Body::Map(PrimitiveMap::default()),
            },
            MessageKind::Stream => Body::Stream(Primitive::decode_all(&content())?),
            MessageKind::Object => Body::Object(content()),
            MessageKind::Blob => {
                Body::Blob(message.blob.as_ref().and_then(|blob| blob.remote_blob_url.clone()))
            }
        })
    }
}

/// The id as JMS clients show it (`JMSMessageID`).
pub fn message_id_text(id: &MessageId) -> String {
    if let Some(text) = &id.text_view {
        return text.to_str().into_owned();
    }
    let sequence = id.producer_sequence_id;
    match &id.producer_id {
        None => sequence.to_string(),
        Some(producer) => {
            let connection = producer.connection_id.as_ref().map(WireString::to_str).unwrap_or_default();
            format!("{connection}:{}:{}:{sequence}", producer.session_id, producer.value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::ProducerId;

    #[test]
    fn ids_look_as_jms_clients_show_them() {
        let producer = ProducerId { connection_id: Some("ID:host-1".into()), session_id: 2, value: 3 };
        let plain =
            MessageId { producer_id: Some(producer), producer_sequence_id: 4, ..MessageId::default() };
        for (case, id, want) in [
            ("of a producer", plain.clone(), "ID:host-1:2:3:4"),
            ("foreign", MessageId { text_view: Some("ID:x".into()), ..plain }, "ID:x"),
            ("without producer", MessageId { producer_sequence_id: 7, ..MessageId::default() }, "7"),
        ] {
            assert_eq!(message_id_text(&id), want, "case: {case}");
        }
    }

    #[test]
    fn bodies_are_read_by_kind() {
        let text = Bytes::from_static(b"\0\0\0\x02ok");
        let map: PrimitiveMap = [("a", Primitive::Int(1))].into_iter().collect();
        let mut map_bytes = bytes::BytesMut::new();
        map.encode(&mut map_bytes).unwrap();
        let message = |kind, content: Option<Bytes>| Message { kind, content, ..Message::default() };
        for (case, message, want) in [
            ("none", message(MessageKind::Plain, None), Ok(Body::Empty)),
            ("text", message(MessageKind::Text, Some(text.clone())), Ok(Body::Text(Some("ok".into())))),
            ("null text", message(MessageKind::Text, None), Ok(Body::Text(None))),
            ("bytes", message(MessageKind::Bytes, Some(text.clone())), Ok(Body::Bytes(text.clone()))),
            ("map", message(MessageKind::Map, Some(map_bytes.freeze())), Ok(Body::Map(map))),
            ("empty map", message(MessageKind::Map, None), Ok(Body::Map(PrimitiveMap::default()))),
            (
                "stream",
                message(MessageKind::Stream, Some(Bytes::from_static(&[1, 1]))),
                Ok(Body::Stream(vec![Primitive::Boolean(true)])),
            ),
            (
                "deflated",
                Message { compressed: true, ..message(MessageKind::Text, Some(text.clone())) },
                Ok(Body::Compressed(text)),
            ),
            (
                "cut off",
                message(MessageKind::Text, Some(Bytes::from_static(b"\0"))),
                Err(WireError::Truncated { offset: 0, wanted_bytes: 4, left_bytes: 1 }),
            ),
        ] {
            assert_eq!(Body::of(&message), want, "case: {case}");
        }
    }
}
