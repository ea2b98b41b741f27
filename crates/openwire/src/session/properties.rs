//! The values of a message for selectors: headers by their JMS names, then the producer's
//! properties.

use std::borrow::Cow;
use std::cell::OnceCell;

use bytes::Bytes;
use postroad_selector::{Properties, Value};

use crate::client::{Body, message_id_text};
use crate::codec::{
    Destination, FoundProperty, Primitive, RoutingHeaders, WireString, find_property, from_stored,
    peek_headers, peek_properties,
};
use crate::portable::inflate;

/// A stored message, as a selector sees it. Read on demand: headers all at once, of the properties
/// only those that are asked for.
pub struct StoredProperties<'m> {
    stored: &'m Bytes,
    version: u8,
    headers: OnceCell<Option<Box<RoutingHeaders>>>,
    marshalled: OnceCell<Option<Bytes>>,
}

impl<'m> StoredProperties<'m> {
    /// The properties of a message in its stored form. An unreadable one has none.
    pub fn of(stored: &'m Bytes, version: u8) -> StoredProperties<'m> {
        StoredProperties { stored, version, headers: OnceCell::new(), marshalled: OnceCell::new() }
    }

    fn headers(&self) -> Option<&RoutingHeaders> {
        let peeked = || peek_headers(self.stored, self.version).ok().map(Box::new);
        self.headers.get_or_init(peeked).as_deref()
    }

    fn producers_own(&self, name: &str) -> Option<FoundProperty<'_>> {
        let marshalled = self.marshalled.get_or_init(|| peek_properties(self.stored, self.version).ok()?);
        find_property(marshalled.as_ref()?, name).ok()?
    }

    /// As the client shows it: `[first, second]`; `None` if the message has passed no other broker.
    fn broker_path(&self) -> Option<Value<'_>> {
        let path =
            from_stored(self.stored, self.version).ok()?.broker_path.filter(|path| !path.is_empty())?;
        let ids = path.iter().filter_map(|id| Some(id.value.as_ref()?.to_str().into_owned()));
        Some(Value::String(format!("[{}]", ids.collect::<Vec<_>>().join(", ")).into()))
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        let headers = self.headers()?;
        match name {
            "JMSDeliveryMode" => {
                Some(Value::from(if headers.persistent { "PERSISTENT" } else { "NON_PERSISTENT" }))
            }
            "JMSPriority" => Some(Value::Long(headers.priority.into())),
            "JMSTimestamp" => Some(Value::Long(headers.timestamp_ms)),
            "JMSExpiration" => Some(Value::Long(headers.expiration_ms)),
            // Consumers get the broker's own count, whatever the producer's message says: the core
            // adds it.
            "JMSRedelivered" => Some(Value::Boolean(false)),
            "JMSXDeliveryCount" => Some(Value::Long(1)),
            "JMSActiveMQBrokerInTime" => Some(Value::Long(headers.broker_in_time_ms)),
            "JMSXGroupSeq" => Some(Value::Long(headers.group_sequence.into())),
            "JMSMessageID" => Some(Value::String(headers.message_id.as_ref().map(message_id_text)?.into())),
            "JMSCorrelationID" => text(&headers.correlation_id),
            "JMSType" => text(&headers.message_type),
            "JMSXGroupID" => text(&headers.group_id),
            "JMSXUserID" => text(&headers.user_id),
            "JMSDestination" => destination(&headers.destination),
            "JMSReplyTo" => destination(&headers.reply_to),
            "JMSActiveMQBrokerPath" => self.broker_path(),
            // When the broker that forwarded it took it in.
            "JMSPostroadInTime" => {
                let message = from_stored(self.stored, self.version).ok()?;
                (message.arrival_ms != 0).then_some(Value::Long(message.arrival_ms))
            }
            _ => None,
        }
    }
}

impl Properties for StoredProperties<'_> {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        if name.starts_with("JMS")
            && let Some(value) = self.header(name)
        {
            return Some(value);
        }
        let found = self.producers_own(name)?;
        if let Some(text) = found.plain_text() {
            return Some(Value::String(text.into()));
        }
        match found.value().ok()? {
            Primitive::Null => None,
            Primitive::Boolean(value) => Some(Value::Boolean(value)),
            Primitive::Byte(value) => Some(Value::Long(value.into())),
            Primitive::Short(value) => Some(Value::Long(value.into())),
            Primitive::Int(value) => Some(Value::Long(value.into())),
            Primitive::Long(value) => Some(Value::Long(value)),
            Primitive::Float(value) => Some(Value::Double(value.into())),
            Primitive::Double(value) => Some(Value::Double(value)),
            Primitive::String(value) => Some(Value::String(Cow::Owned(value.to_str().into_owned()))),
            _ => Some(Value::Other),
        }
    }

    fn body(&self) -> Option<Cow<'_, str>> {
        let mut message = from_stored(self.stored, self.version).ok()?;
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::codec::{Message, PrimitiveMap, to_stored};

    fn stored(properties: &[(&str, Primitive)]) -> Bytes {
        let mut marshalled = BytesMut::new();
        let map: PrimitiveMap = properties.iter().cloned().collect();
        map.encode(&mut marshalled).unwrap();
        let message = Message {
            priority: 7,
            message_type: Some("order".into()),
            marshalled_properties: Some(marshalled.freeze()),
            ..Message::default()
        };
        to_stored(&message, 12).unwrap()
    }

    #[test]
    fn a_header_or_property_is_read_by_its_name() {
        let stored = stored(&[
            ("text", Primitive::String("é".into())),
            ("plain", Primitive::String("red".into())),
            ("long", Primitive::String("x".repeat(10_000).into())),
            ("short", Primitive::Short(-2)),
            ("float", Primitive::Float(0.5)),
            ("none", Primitive::Null),
            ("list", Primitive::List(Vec::new())),
            ("JMSXMine", Primitive::Boolean(true)),
            ("JMSType", Primitive::String("not the header".into())),
        ]);
        let properties = StoredProperties::of(&stored, 12);
        for (name, want) in [
            ("text", Some(Value::from("é"))),
            ("plain", Some(Value::from("red"))),
            ("long", Some(Value::from("x".repeat(10_000).as_str()))),
            ("short", Some(Value::Long(-2))),
            ("float", Some(Value::Double(0.5))),
            ("none", None),
            ("list", Some(Value::Other)),
            ("unknown", None),
            ("JMSPriority", Some(Value::Long(7))),
            ("JMSType", Some(Value::from("order"))),
            ("JMSXMine", Some(Value::Boolean(true))),
            ("JMSCorrelationID", None),
        ] {
            assert_eq!(properties.property(name), want, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_read_has_no_properties() {
        let whole = stored(&[("a", Primitive::Int(1))]);
        for length in 0..whole.len() {
            let cut = whole.slice(..length);
            let properties = StoredProperties::of(&cut, 12);
            assert_eq!(properties.property("JMSPriority"), None, "{length} bytes");
        }
        assert_eq!(StoredProperties::of(&whole.slice(..20), 12).property("a"), None);
    }
}
