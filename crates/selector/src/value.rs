use std::borrow::Cow;

/// The value of one header or property in a selector.
///
/// A message's `byte`, `short` and `int` come as [`Value::Long`], its `float` as [`Value::Double`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Compared by `=` and `<>` alone.
    Boolean(bool),
    /// An exact number.
    Long(i64),
    /// An approximate number.
    Double(f64),
    /// Compared by `=`, `<>`, LIKE and IN.
    String(Cow<'a, str>),
    /// Present, but nothing a selector can compare: bytes, maps, lists.
    Other,
}

impl Value<'_> {
    pub(crate) fn reborrow(&self) -> Value<'_> {
        match self {
            Value::Boolean(value) => Value::Boolean(*value),
            Value::Long(value) => Value::Long(*value),
            Value::Double(value) => Value::Double(*value),
            Value::String(value) => Value::String(Cow::Borrowed(value)),
            Value::Other => Value::Other,
        }
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Boolean(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Long(value)
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Value::Double(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Value::String(Cow::Borrowed(value))
    }
}

/// The headers and properties of one message, by name.
pub trait Properties {
    /// The value under this name, which is compared with case; `None` where the message has none.
    ///
    /// Header names are asked for like any other: `JMSDeliveryMode` (a string, `PERSISTENT` or
    /// `NON_PERSISTENT`: JMS 3.8.1.3), `JMSPriority`, `JMSMessageID`, `JMSTimestamp`,
    /// `JMSCorrelationID`, `JMSType`, and those that ActiveMQ adds: `JMSDestination`, `JMSReplyTo`,
    /// `JMSExpiration`, `JMSRedelivered`, `JMSXDeliveryCount`, `JMSXGroupID`, `JMSXGroupSeq`,
    /// `JMSXUserID`, `JMSXProducerTXID`, `JMSActiveMQBrokerInTime`, `JMSActiveMQBrokerOutTime`.
    fn property(&self, name: &str) -> Option<Value<'_>>;

    /// The text of a text message, or of a bytes message whose bytes are UTF-8; `None` for any
    /// other. Asked for by XPATH alone.
    fn body(&self) -> Option<Cow<'_, str>> {
        None
    }
}

/// A message as one delivery shows it: with the broker's counters and delivery headers.
pub struct AtDelivery<'m> {
    message: Box<dyn Properties + 'm>,
    failed_deliveries: u32,
    now_ms: u64,
}

impl<'m> AtDelivery<'m> {
    /// The message after this number of failed deliveries, added to those that its producer's side
    /// has counted.
    pub fn new(message: Box<dyn Properties + 'm>, failed_deliveries: u32, now_ms: u64) -> AtDelivery<'m> {
        AtDelivery { message, failed_deliveries, now_ms }
    }
}

impl Properties for AtDelivery<'_> {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "JMSRedelivered" if 0 < self.failed_deliveries => Some(Value::Boolean(true)),
            "JMSXDeliveryCount" => match self.message.property(name) {
                Some(Value::Long(count)) => Some(Value::Long(count + i64::from(self.failed_deliveries))),
                other => other,
            },
            "JMSActiveMQBrokerOutTime" => Some(Value::Long(i64::try_from(self.now_ms).unwrap_or(i64::MAX))),
            _ => self.message.property(name),
        }
    }

    fn body(&self) -> Option<Cow<'_, str>> {
        self.message.body()
    }
}
