//! What a selector may ask of a message: headers by their JMS names, then the producer's properties.

use std::borrow::Cow;
use std::cell::OnceCell;

use bytes::Bytes;
use postroad_selector::{Properties, Value};

use crate::client::{Body, message_id_text};
use crate::codec::{
    Destination, Primitive, PrimitiveMap, RoutingHeaders, WireString, from_stored, peek_headers,
};
use crate::portable::inflate;

/// A stored message, as a selector sees it. Read on demand, and each part once.
pub struct StoredProperties {
    stored: Bytes,
    version: u8,
    headers: Option<RoutingHeaders>,
    properties: OnceCell<PrimitiveMap>,
}

impl StoredProperties {
    /// The properties of a message in its stored form. What cannot be read has none.
    pub fn of(stored: &Bytes, version: u8) -> StoredProperties {
        let headers = peek_headers(stored, version).ok();
        StoredProperties { stored: stored.clone(), version, headers, properties: OnceCell::new() }
    }

    fn map(&self) -> Option<&PrimitiveMap> {
        let marshalled = self.headers.as_ref()?.marshalled_properties.as_ref()?;
        Some(self.properties.get_or_init(|| PrimitiveMap::decode(marshalled).unwrap_or_default()))
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        let headers = self.headers.as_ref()?;
        match name {
            "JMSDeliveryMode" => {
                Some(Value::from(if headers.persistent { "PERSISTENT" } else { "NON_PERSISTENT" }))
            }
            "JMSPriority" => Some(Value::Long(headers.priority.into())),
            "JMSTimestamp" => Some(Value::Long(headers.timestamp_ms)),
            "JMSExpiration" => Some(Value::Long(headers.expiration_ms)),
            "JMSRedelivered" => Some(Value::Boolean(headers.redelivery_counter > 0)),
            "JMSXDeliveryCount" => Some(Value::Long(i64::from(headers.redelivery_counter) + 1)),
            "JMSXGroupSeq" => Some(Value::Long(headers.group_sequence.into())),
            "JMSMessageID" => Some(Value::String(headers.message_id.as_ref().map(message_id_text)?.into())),
            "JMSCorrelationID" => text(&headers.correlation_id),
            "JMSType" => text(&headers.message_type),
            "JMSXGroupID" => text(&headers.group_id),
            "JMSXUserID" => text(&headers.user_id),
            "JMSDestination" => destination(&headers.destination),
            "JMSReplyTo" => destination(&headers.reply_to),
            _ => None,
        }
    }
}

impl Properties for StoredProperties {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        if name.starts_with("JMS")
            && let Some(value) = self.header(name)
        {
            return Some(value);
        }
        match self.map()?.get(name)? {
            Primitive::Null => None,
            Primitive::Boolean(value) => Some(Value::Boolean(*value)),
            Primitive::Byte(value) => Some(Value::Long((*value).into())),
            Primitive::Short(value) => Some(Value::Long((*value).into())),
            Primitive::Int(value) => Some(Value::Long((*value).into())),
            Primitive::Long(value) => Some(Value::Long(*value)),
            Primitive::Float(value) => Some(Value::Double((*value).into())),
            Primitive::Double(value) => Some(Value::Double(*value)),
            Primitive::String(value) => Some(Value::String(value.to_str())),
            _ => Some(Value::Other),
        }
    }

    fn body(&self) -> Option<Cow<'_, str>> {
        let mut message = from_stored(&self.stored, self.version).ok()?;
        if message.compressed {
            message.content = Some(inflate(message.kind, message.content.as_ref()?).ok()?);
            message.compressed = false;
        }
        match Body::of(&message).ok()? {
            Body::Text(text) => Some(Cow::Owned(text?.to_str().into_owned())),
            Body::Bytes(bytes) => Some(Cow::Owned(str::from_utf8(&bytes).ok()?.to_owned())),
            _ => None,
        }
    }
}

fn text(text: &Option<WireString>) -> Option<Value<'_>> {
    text.as_ref().map(|text| Value::String(text.to_str()))
}

/// As the client's `ActiveMQDestination.getQualifiedName`.
fn destination(destination: &Option<Destination>) -> Option<Value<'_>> {
    let destination = destination.as_ref()?;
    let scheme = match destination {
        Destination::Queue(_) => "queue",
        Destination::Topic(_) => "topic",
        Destination::TempQueue(_) => "temp-queue",
        Destination::TempTopic(_) => "temp-topic",
    };
    Some(Value::String(format!("{scheme}://{}", destination.name().to_str()).into()))
}
