//! Ids of messages and correlations: text in JMS, one of four types elsewhere.

use std::fmt::Write as _;

use bytes::Bytes;

use super::Text;

/// A message id or a correlation id (AMQP 1.0, sections 3.2.11 to 3.2.14).
///
/// JMS knows text only. The others have a written form there, with which AMQP's JMS clients work
/// too: `ID:`, then a word for the type, then the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    /// Text.
    Text(Text),
    /// Raw bytes.
    Binary(Bytes),
    /// A UUID.
    Uuid([u8; 16]),
    /// A number.
    Number(u64),
}

const JMS: &str = "ID:";
const BINARY: &str = "AMQP_BINARY:";
const UUID: &str = "AMQP_UUID:";
const NUMBER: &str = "AMQP_ULONG:";
/// Escapes text that would be taken for one of the others.
const STRING: &str = "AMQP_STRING:";
/// Marks a message id that has no `ID:` of its own, as JMS wants it.
const NO_PREFIX: &str = "AMQP_NO_PREFIX:";

impl Id {
    /// As `JMSMessageID`, which begins with `ID:` always.
    pub fn to_jms_message_id(&self) -> Text {
        match self {
            Id::Text(text) if !text.as_str().starts_with(JMS) => format!("{JMS}{NO_PREFIX}{text}").into(),
            _ => self.to_jms_correlation_id(),
        }
    }

    /// As `JMSCorrelationID`, which may be any text.
    pub fn to_jms_correlation_id(&self) -> Text {
        match self {
            Id::Text(text) => match text.as_str().strip_prefix(JMS).is_some_and(is_encoded) {
                true => format!("{JMS}{STRING}{text}").into(),
                false => text.clone(),
            },
            Id::Binary(bytes) => format!("{JMS}{BINARY}{}", hex(bytes)).into(),
            Id::Uuid(uuid) => format!("{JMS}{UUID}{}", uuid_text(uuid)).into(),
            Id::Number(number) => format!("{JMS}{NUMBER}{number}").into(),
        }
    }

    /// The meaning of `JMSMessageID` or `JMSCorrelationID`. Text that claims another type wrongly
    /// is text.
    pub fn from_jms(text: &Text) -> Id {
        decoded(text.as_str()).unwrap_or_else(|| Id::Text(text.clone()))
    }
}

fn is_encoded(rest: &str) -> bool {
    [BINARY, UUID, NUMBER, STRING, NO_PREFIX].iter().any(|prefix| rest.starts_with(prefix))
}

fn decoded(text: &str) -> Option<Id> {
    let rest = text.strip_prefix(JMS)?;
    if let Some(text) = rest.strip_prefix(STRING).or_else(|| rest.strip_prefix(NO_PREFIX)) {
        return Some(Id::Text(text.into()));
    }
    if let Some(number) = rest.strip_prefix(NUMBER) {
        return number.parse().ok().map(Id::Number);
    }
    if let Some(uuid) = rest.strip_prefix(UUID) {
        return uuid_of(uuid).map(Id::Uuid);
    }
    bytes_of(rest.strip_prefix(BINARY)?).map(|bytes| Id::Binary(bytes.into()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// A UUID as it is written: lower case, in groups of 4, 2, 2, 2 and 6 bytes.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits = hex(uuid).to_ascii_lowercase();
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    if lengths != [8, 4, 4, 4, 12] {
        return None;
    }
    bytes_of(&groups.concat())?.try_into().ok()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [u8; 16] = [0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff];

    #[test]
    fn ids_have_a_written_form_in_jms_and_come_back_from_it() {
        let text = |text: &'static str| Id::Text(Text::from_static(text));
        for (case, id, message, correlation) in [
            ("as JMS wants it", text("ID:a-1"), "ID:a-1", "ID:a-1"),
            ("without ID:", text("a-1"), "ID:AMQP_NO_PREFIX:a-1", "a-1"),
            ("empty", text(""), "ID:AMQP_NO_PREFIX:", ""),
            (
                "looks like another type",
                text("ID:AMQP_UUID:x"),
                "ID:AMQP_STRING:ID:AMQP_UUID:x",
                "ID:AMQP_STRING:ID:AMQP_UUID:x",
            ),
            (
                "bytes",
                Id::Binary(Bytes::from_static(&[0, 0xAB])),
                "ID:AMQP_BINARY:00AB",
                "ID:AMQP_BINARY:00AB",
            ),
            (
                "UUID",
                Id::Uuid(TWO),
                "ID:AMQP_UUID:0a000000-0000-0000-0000-0000000000ff",
                "ID:AMQP_UUID:0a000000-0000-0000-0000-0000000000ff",
            ),
            (
                "number",
                Id::Number(u64::MAX),
                "ID:AMQP_ULONG:18446744073709551615",
                "ID:AMQP_ULONG:18446744073709551615",
            ),
        ] {
            assert_eq!(id.to_jms_message_id(), message, "message id: {case}");
            assert_eq!(id.to_jms_correlation_id(), correlation, "correlation id: {case}");
            assert_eq!(Id::from_jms(&message.into()), id, "from message id: {case}");
            assert_eq!(Id::from_jms(&correlation.into()), id, "from correlation id: {case}");
        }
    }

    #[test]
    fn text_that_claims_another_type_wrongly_is_text() {
        for claim in [
            "ID:AMQP_ULONG:-1",
            "ID:AMQP_ULONG:18446744073709551616",
            "ID:AMQP_UUID:0a00",
            "ID:AMQP_UUID:0a000000-0000-0000-0000-0000000000fg",
            "ID:AMQP_BINARY:0",
            "ID:AMQP_BINARY:\u{661}\u{661}",
        ] {
            assert_eq!(Id::from_jms(&claim.into()), Id::Text(claim.into()));
        }
    }
}
