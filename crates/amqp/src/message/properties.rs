//! The values of a message for selectors: headers by their JMS names, then the application's
//! properties.
//!
//! Names map as in the client `qpid-jms` (`AmqpJmsMessageFacade`): `JMSType` is the subject,
//! `JMSXGroupID` the group id.

use std::borrow::Cow;
use std::cell::OnceCell;

use bytes::Bytes;
use postroad_model::DeadLetter;
use postroad_selector::{Properties as SelectorProperties, Value as SelectorValue};

use super::Sections;
use super::dead_letter::REASON;
use crate::codec::{Header, Properties, Text, Timestamp, Value, ValueMap};
use crate::portable::{annotations, read_id};
use crate::session::address::{destination, kind_of, kind_of_annotation};

/// A stored message, as a selector sees it. Read on demand, and each section once.
pub struct StoredProperties<'a> {
    message: &'a Bytes,
    expires_at_ms: u64,
    sections: Option<Sections>,
    header: OnceCell<Header>,
    properties: OnceCell<Properties>,
    application: OnceCell<ValueMap>,
}

impl<'a> StoredProperties<'a> {
    /// The properties of a stored message. An unreadable one has none. `expires_at_ms` is the
    /// broker's result of its time to live.
    pub fn of(message: &'a Bytes, expires_at_ms: u64) -> StoredProperties<'a> {
        StoredProperties {
            message,
            expires_at_ms,
            sections: Sections::scan(message).ok(),
            header: OnceCell::new(),
            properties: OnceCell::new(),
            application: OnceCell::new(),
        }
    }

    fn header(&self) -> Option<&Header> {
        let sections = self.sections.as_ref()?;
        Some(self.header.get_or_init(|| sections.header(self.message).unwrap_or_default()))
    }

    fn properties(&self) -> Option<&Properties> {
        let sections = self.sections.as_ref()?;
        Some(self.properties.get_or_init(|| sections.properties(self.message).unwrap_or_default()))
    }

    fn application(&self) -> Option<&ValueMap> {
        let sections = self.sections.as_ref()?;
        sections.application_properties.as_ref()?;
        let read = || sections.application_properties(self.message).unwrap_or_default();
        Some(self.application.get_or_init(read))
    }

    /// Why it is a dead letter: a JMS client sees it as a property (docs/protocols/fidelity.md).
    fn cause(&self) -> Option<SelectorValue<'_>> {
        match self.sections.as_ref()?.message_annotations(self.message).ok()?.get(REASON)? {
            Value::String(reason) => Some(SelectorValue::String(reason.as_str().to_owned().into())),
            _ => None,
        }
    }

    /// A message annotation that is text.
    pub fn annotation(&self, name: &str) -> Option<String> {
        let sections = self.sections.as_ref()?;
        sections.message_annotations.as_ref()?;
        match sections.message_annotations(self.message).ok()?.get(name)? {
            Value::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        }
    }

    /// An address with its kind ahead, as ActiveMQ names destinations, whatever the sender wrote of
    /// it.
    fn qualified(&self, address: &Option<Text>, kind: &str) -> Option<SelectorValue<'_>> {
        let notes = self.sections.as_ref()?.message_annotations(self.message).ok()?;
        let kind = match notes.get(kind) {
            Some(Value::Byte(number)) => kind_of_annotation((*number).into()),
            _ => None,
        };
        let named = destination(address.as_ref()?.as_str(), kind.unwrap_or(kind_of(&[]))).ok()?;
        Some(SelectorValue::String(named.to_string().into()))
    }

    fn jms_header(&self, name: &str) -> Option<SelectorValue<'_>> {
        match name {
            "JMSDeliveryMode" => {
                let mode = if self.header()?.durable { "PERSISTENT" } else { "NON_PERSISTENT" };
                Some(SelectorValue::from(mode))
            }
            "JMSPriority" => Some(SelectorValue::Long(self.header()?.priority.into())),
            "JMSRedelivered" => Some(SelectorValue::Boolean(self.header()?.delivery_count > 0)),
            "JMSXDeliveryCount" => Some(SelectorValue::Long(i64::from(self.header()?.delivery_count) + 1)),
            "JMSExpiration" => Some(SelectorValue::Long(self.expires_at_ms as i64)),
            "JMSTimestamp" => {
                let Timestamp(created_ms) = self.properties()?.creation_time.unwrap_or_default();
                Some(SelectorValue::Long(created_ms))
            }
            "JMSXGroupSeq" => {
                // A JMS property is an int; the field is unsigned, and `qpid-jms` writes the same
                // bits.
                Some(SelectorValue::Long((self.properties()?.group_sequence? as i32).into()))
            }
            "JMSMessageID" => {
                Some(shown(&read_id(self.properties()?.message_id.as_ref()?)?.to_jms_message_id()))
            }
            "JMSCorrelationID" => {
                let id = read_id(self.properties()?.correlation_id.as_ref()?)?;
                Some(shown(&id.to_jms_correlation_id()))
            }
            "JMSType" => text(&self.properties()?.subject),
            "JMSXGroupID" => text(&self.properties()?.group_id),
            "JMSDestination" => self.qualified(&self.properties()?.to, annotations::TO_KIND),
            "JMSReplyTo" => self.qualified(&self.properties()?.reply_to, annotations::REPLY_TO_KIND),
            "JMSXUserID" => {
                let user = self.properties()?.user_id.as_ref()?;
                Some(SelectorValue::String(String::from_utf8_lossy(user)))
            }
            _ => None,
        }
    }
}

impl SelectorProperties for StoredProperties<'_> {
    fn property(&self, name: &str) -> Option<SelectorValue<'_>> {
        if name.starts_with("JMS")
            && let Some(value) = self.jms_header(name)
        {
            return Some(value);
        }
        let Some(value) = self.application().and_then(|application| application.get(name)) else {
            return (name == DeadLetter::CAUSE).then(|| self.cause()).flatten();
        };
        match value {
            Value::Null => None,
            Value::Boolean(value) => Some(SelectorValue::Boolean(*value)),
            Value::Byte(value) => Some(SelectorValue::Long((*value).into())),
            Value::Short(value) => Some(SelectorValue::Long((*value).into())),
            Value::Int(value) => Some(SelectorValue::Long((*value).into())),
            Value::Long(value) => Some(SelectorValue::Long(*value)),
            Value::Ubyte(value) => Some(SelectorValue::Long((*value).into())),
            Value::Ushort(value) => Some(SelectorValue::Long((*value).into())),
            Value::Uint(value) => Some(SelectorValue::Long((*value).into())),
            // Beyond the largest long there is no exact number: the nearest approximate one.
            Value::Ulong(value) => Some(match i64::try_from(*value) {
                Ok(value) => SelectorValue::Long(value),
                Err(_) => SelectorValue::Double(*value as f64),
            }),
            Value::Float(value) => Some(SelectorValue::Double((*value).into())),
            Value::Double(value) => Some(SelectorValue::Double(*value)),
            Value::String(value) => Some(SelectorValue::String(value.as_str().into())),
            Value::Symbol(value) => Some(SelectorValue::String(value.as_str().into())),
            Value::Char(value) => Some(SelectorValue::String(value.to_string().into())),
            _ => Some(SelectorValue::Other),
        }
    }

    fn body(&self) -> Option<Cow<'_, str>> {
        let sections = self.sections.as_ref()?;
        match sections.body_values(self.message).ok()?.as_slice() {
            [Value::String(text)] => Some(text.as_str().to_owned().into()),
            [Value::Binary(bytes)] => Some(std::str::from_utf8(bytes).ok()?.to_owned().into()),
            _ => None,
        }
    }
}

fn text(text: &Option<Text>) -> Option<SelectorValue<'_>> {
    text.as_ref().map(|text| SelectorValue::String(text.as_str().into()))
}

/// As JMS clients show it.
fn shown(id: &postroad_model::portable::Text) -> SelectorValue<'static> {
    SelectorValue::String(id.as_str().to_owned().into())
}
