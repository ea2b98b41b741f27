//! Message ids as text: what a JMS client shows of an id of any type.
//!
//! As in the client `qpid-jms` (`AmqpMessageIdHelper`): text stays as it is, other types have their type ahead.

use std::borrow::Cow;
use std::fmt::Write;

use crate::codec::Value;

/// Ahead of every id that is no text.
const PREFIX: &str = "ID:AMQP_";

/// The id as text; `None` if it is of a type that ids may not have (3.2.11 to 3.2.14).
pub fn id_text(id: &Value) -> Option<Cow<'_, str>> {
    match id {
        Value::String(text) => Some(text.as_str().into()),
        Value::Ulong(number) => Some(format!("{PREFIX}ULONG:{number}").into()),
        Value::Uuid(bytes) => Some(uuid(bytes).into()),
        Value::Binary(bytes) => {
            let mut text = format!("{PREFIX}BINARY:");
            for byte in bytes {
                let _ = write!(text, "{byte:02X}");
            }
            Some(text.into())
        }
        _ => None,
    }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = format!("{PREFIX}UUID:");
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_type_have_a_text() {
        let uuid = "ID:AMQP_UUID:00010203-0405-0607-0809-0a0b0c0d0e0f";
        for (id, want) in [
            (Value::from("ID:1"), Some("ID:1")),
            (Value::Ulong(7), Some("ID:AMQP_ULONG:7")),
            (Value::Binary(vec![0, 255].into()), Some("ID:AMQP_BINARY:00FF")),
            (Value::Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]), Some(uuid)),
            (Value::Int(1), None),
        ] {
            assert_eq!(id_text(&id).as_deref(), want, "{id:?}");
        }
    }
}
