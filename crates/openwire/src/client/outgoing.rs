//! Messages that the client makes.

use bytes::{Bytes, BytesMut};

use crate::codec::{
    Destination, Message, MessageKind, Primitive, PrimitiveMap, WireError, WireString, encode_text_body,
};

/// The contents of a new message.
#[derive(Clone, Debug, PartialEq)]
pub enum OutgoingBody {
    /// A text message.
    Text(String),
    /// A bytes message.
    Bytes(Bytes),
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Where to.
    pub destination: Destination,
    /// Its body.
    pub body: OutgoingBody,
    /// Names and values; `JMSXGroupID` and `JMSXGroupSeq` become the headers they are.
    pub properties: Vec<(String, Primitive)>,
    /// Whether it must survive a restart.
    pub persistent: bool,
    /// 0 to 9; 4 is normal.
    pub priority: u8,
    /// When it was sent, milliseconds since 1970.
    pub timestamp_ms: u64,
    /// When it is of no use any more, milliseconds since 1970; 0 for never.
    pub expires_at_ms: u64,
    /// `JMSType`.
    pub message_type: Option<String>,
    /// `JMSCorrelationID`.
    pub correlation_id: Option<String>,
    /// `JMSReplyTo`.
    pub reply_to: Option<Destination>,
}

impl Outgoing {
    /// The message on the wire, without its id.
    ///
    /// # Errors
    /// [`WireError::TextTooLong`], [`WireError::TooMany`]: something does not fit its length field.
    pub fn to_message(&self) -> Result<Message, WireError> {
        let (kind, content) = match &self.body {
            OutgoingBody::Text(text) => (MessageKind::Text, encode_text_body(&text.as_str().into())?),
            OutgoingBody::Bytes(bytes) => (MessageKind::Bytes, bytes.clone()),
        };
        let mut message = Message {
            kind,
            content: Some(content),
            destination: Some(self.destination.clone()),
            persistent: self.persistent,
            priority: self.priority,
            timestamp_ms: milliseconds(self.timestamp_ms),
            expiration_ms: milliseconds(self.expires_at_ms),
            message_type: text(self.message_type.as_ref()),
            correlation_id: text(self.correlation_id.as_ref()),
            reply_to: self.reply_to.clone(),
            ..Message::default()
        };
        let mut properties = PrimitiveMap::default();
        for (name, value) in &self.properties {
            match (name.as_str(), value) {
                ("JMSXGroupID", Primitive::String(group)) => message.group_id = Some(group.clone()),
                ("JMSXGroupSeq", Primitive::Int(sequence)) => message.group_sequence = *sequence,
                _ => properties.0.push((name.as_str().into(), value.clone())),
            }
        }
        if !properties.0.is_empty() {
            let mut marshalled = BytesMut::new();
            properties.encode(&mut marshalled)?;
            message.marshalled_properties = Some(marshalled.freeze());
        }
        Ok(message)
    }
}

fn milliseconds(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn text(text: Option<&String>) -> Option<WireString> {
    text.map(|text| text.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_carries_what_it_was_given() {
        let outgoing = Outgoing {
            destination: Destination::Queue("a".into()),
            body: OutgoingBody::Text("ok".into()),
            properties: vec![
                ("JMSXGroupID".into(), Primitive::String("g".into())),
                ("JMSXGroupSeq".into(), Primitive::Int(7)),
                ("n".into(), Primitive::Long(1)),
            ],
            persistent: true,
            priority: 9,
            timestamp_ms: 1_000,
            expires_at_ms: u64::MAX,
            message_type: Some("t".into()),
            correlation_id: None,
            reply_to: Some(Destination::Topic("r".into())),
        };
        let want = Message {
            kind: MessageKind::Text,
            content: Some(Bytes::from_static(b"\0\0\0\x02ok")),
            destination: Some(Destination::Queue("a".into())),
            persistent: true,
            priority: 9,
            timestamp_ms: 1_000,
            expiration_ms: i64::MAX,
            message_type: Some("t".into()),
            reply_to: Some(Destination::Topic("r".into())),
            group_id: Some("g".into()),
            group_sequence: 7,
            marshalled_properties: Some(Bytes::from_static(b"\0\0\0\x01\0\x01n\x06\0\0\0\0\0\0\0\x01")),
            ..Message::default()
        };
        assert_eq!(outgoing.to_message(), Ok(want));
    }
}
