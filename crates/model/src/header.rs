//! Header changes: headers and properties that a message gets, or loses, on its way.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::HIGHEST_PRIORITY;

/// The value of a header or property that is set.
#[derive(Clone, Debug)]
pub enum HeaderValue {
    /// True or false.
    Boolean(bool),
    /// 32 bits, signed: readable as `int` and as `long`.
    Int(i32),
    /// 64 bits, signed.
    Long(i64),
    /// IEEE 754 binary64.
    Double(f64),
    /// Text.
    String(Arc<str>),
}

impl HeaderValue {
    /// The narrowest of `int` and `long` that holds the number: JMS widens an `int`, and never
    /// narrows a `long`.
    pub fn integer(value: i64) -> HeaderValue {
        i32::try_from(value).map_or(HeaderValue::Long(value), HeaderValue::Int)
    }

    /// The value as text, as `String.valueOf` of Java would have it for all but doubles.
    pub fn text(&self) -> String {
        match self {
            HeaderValue::Boolean(value) => value.to_string(),
            HeaderValue::Int(value) => value.to_string(),
            HeaderValue::Long(value) => value.to_string(),
            HeaderValue::Double(value) => format!("{value:?}"),
            HeaderValue::String(value) => value.as_ref().to_owned(),
        }
    }
}

impl PartialEq for HeaderValue {
    /// Doubles are compared by their bits, so that equality is total.
    fn eq(&self, other: &HeaderValue) -> bool {
        match (self, other) {
            (HeaderValue::Boolean(one), HeaderValue::Boolean(other)) => one == other,
            (HeaderValue::Int(one), HeaderValue::Int(other)) => one == other,
            (HeaderValue::Long(one), HeaderValue::Long(other)) => one == other,
            (HeaderValue::Double(one), HeaderValue::Double(other)) => one.to_bits() == other.to_bits(),
            (HeaderValue::String(one), HeaderValue::String(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for HeaderValue {}

impl Hash for HeaderValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            HeaderValue::Boolean(value) => value.hash(state),
            HeaderValue::Int(value) => value.hash(state),
            HeaderValue::Long(value) => value.hash(state),
            HeaderValue::Double(value) => value.to_bits().hash(state),
            HeaderValue::String(value) => value.hash(state),
        }
    }
}

/// Changes of the headers and properties of one message.
///
/// Invariant: sorted by name, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderChanges(Vec<(Arc<str>, Option<HeaderValue>)>);

impl HeaderChanges {
    /// The header has this value from now on; without one the message has no such header.
    pub fn put(&mut self, name: Arc<str>, value: Option<HeaderValue>) {
        match self.0.binary_search_by(|(known, _)| known.as_ref().cmp(&name)) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (name, value)),
        }
    }

    /// The change of this header: `None` if it stays, `Some(None)` if it is removed.
    pub fn get(&self, name: &str) -> Option<Option<&HeaderValue>> {
        let place = self.0.binary_search_by(|(known, _)| known.as_ref().cmp(name)).ok()?;
        Some(self.0[place].1.as_ref())
    }

    /// The priority that the message gets, if it is one (JMS 3.1, section 3.4.10).
    pub fn priority(&self) -> Option<u8> {
        let wanted = match self.get("JMSPriority")?? {
            HeaderValue::Int(value) => u8::try_from(*value).ok(),
            HeaderValue::String(text) => text.parse().ok(),
            _ => None,
        };
        wanted.filter(|priority| *priority <= HIGHEST_PRIORITY)
    }

    /// The properties that change, without the headers of JMS.
    pub fn properties(&self) -> impl Iterator<Item = (&str, Option<&HeaderValue>)> {
        self.iter().filter(|(name, _)| !SETTABLE_HEADERS.contains(name))
    }

    /// Each header that changes, by name, with its new value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&HeaderValue>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The headers of JMS that may be set; every other name that changes is a property.
pub const SETTABLE_HEADERS: [&str; 3] = ["JMSCorrelationID", "JMSPriority", "JMSType"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_a_header_counts() {
        let mut changes = HeaderChanges::default();
        for (name, value) in [("b", Some(1)), ("a", Some(2)), ("b", None), ("c", Some(3)), ("c", Some(4))] {
            changes.put(name.into(), value.map(HeaderValue::Int));
        }
        let all: Vec<_> = changes.iter().collect();
        let want = [("a", Some(&HeaderValue::Int(2))), ("b", None), ("c", Some(&HeaderValue::Int(4)))];
        assert_eq!(all, want);
        assert_eq!((changes.get("b"), changes.get("x")), (Some(None), None));
    }

    #[test]
    fn integers_are_as_narrow_as_jms_can_widen() {
        assert_eq!(HeaderValue::integer(7), HeaderValue::Int(7));
        assert_eq!(HeaderValue::integer(1 << 40), HeaderValue::Long(1 << 40));
    }
}
