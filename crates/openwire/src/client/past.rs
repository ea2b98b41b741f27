//! Dead letters as a client sees them: where they were, and the message as it was before.

use crate::codec::{Destination, Message, TransactionId, WireError};
use crate::session::without_past;

pub use crate::session::origin_of_dead_letter;

/// The message as it was before it became a dead letter, to be sent there in a transaction.
///
/// # Errors
/// [`WireError`]: its properties cannot be read.
pub fn revived(
    message: &Message,
    destination: Destination,
    transaction: TransactionId,
) -> Result<Message, WireError> {
    Ok(Message {
        transaction_id: Some(transaction),
        original_transaction_id: None,
        target_consumer_id: None,
        broker_path: None,
        ..without_past(message, destination)?
    })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use postroad_model::DeadLetter;

    use super::*;
    use crate::codec::{LocalTransactionId, Primitive, PrimitiveMap, WireString};

    fn letter(cause: Option<&str>, original: Option<&str>) -> Message {
        let mut properties = PrimitiveMap::default();
        properties.0.push(("k".into(), Primitive::Int(5)));
        if let Some(cause) = cause {
            properties.0.push((DeadLetter::CAUSE.into(), Primitive::String(cause.into())));
        }
        let mut marshalled = BytesMut::new();
        properties.encode(&mut marshalled).unwrap();
        let queue = |name: &str| Destination::Queue(WireString::from(name));
        Message {
            destination: Some(queue("ActiveMQ.DLQ")),
            original_destination: original.map(queue),
            marshalled_properties: Some(marshalled.freeze()),
            redelivery_counter: 6,
            ..Message::default()
        }
    }

    #[test]
    fn a_dead_letter_says_where_it_was() {
        for (case, cause, original, want) in [
            ("ours", Some("expired (at queue://a)"), None, Some("queue://a")),
            (
                "ours, sent to a virtual topic",
                Some("x (at queue://Consumer.A.t)"),
                Some("t"),
                Some("queue://Consumer.A.t"),
            ),
            ("a cause with brackets", Some("f(x) (at y) (at topic://t)"), None, Some("topic://t")),
            ("another broker's", Some("java.lang.Exception: (at home)"), Some("b"), Some("queue://b")),
            ("without cause", None, Some("b"), Some("queue://b")),
            ("without anything", None, None, None),
        ] {
            let origin = origin_of_dead_letter(&letter(cause, original));
            let text = origin.map(|origin| {
                let kind = if origin.is_queue() { "queue" } else { "topic" };
                format!("{kind}://{}", origin.name().to_str())
            });
            assert_eq!(text.as_deref(), want, "case: {case}");
        }
    }

    #[test]
    fn a_revived_message_keeps_what_its_sender_said_and_nothing_of_its_past() {
        let transaction = TransactionId::Local(LocalTransactionId::default());
        let to = Destination::Queue("a".into());
        let revived =
            revived(&letter(Some("x (at queue://a)"), Some("a")), to.clone(), transaction.clone()).unwrap();
        let plain = letter(None, None);
        let want = Message {
            destination: Some(to),
            transaction_id: Some(transaction),
            redelivery_counter: 0,
            ..plain
        };
        assert_eq!(revived, want);
    }
}
