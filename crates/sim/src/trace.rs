//! Events and effects in a trace.

use postroad_model::{Effect, Event};

/// An event in few words.
pub fn short(event: &Event) -> String {
    match event {
        Event::Publish(publish) => format!(
            "publish {} to {} {:?} ({} bytes, persistent {}, {:?}, expires {}, {:?})",
            publish.ticket.0,
            publish.sent.to,
            publish.sent.also.iter().map(ToString::to_string).collect::<Vec<_>>(),
            publish.sent.message.bytes.len(),
            publish.sent.message.persistent,
            publish.transaction,
            publish.sent.message.expires_at_ms,
            publish.sent.message.group()
        ),
        Event::Fetched { bodies } => {
            let keys: Vec<_> = bodies.iter().map(|(key, message)| (key, message.is_ok())).collect();
            format!("fetched {keys:?}")
        }
        other => format!("{other:?}"),
    }
}

/// An effect in few words.
pub fn short_effect(effect: &Effect) -> String {
    match effect {
        Effect::Deliver(delivery) => format!(
            "deliver {:?} to {:?}, tag {:x}, failed {}, {:?}, {:?}",
            crate::oracle::number_of(&delivery.message),
            delivery.consumer,
            delivery.tag.0,
            delivery.failed_deliveries,
            delivery.message.group(),
            delivery.message.last_value()
        ),
        Effect::Propose { command, urgency, durability, .. } => {
            let mut text = format!("{command:?}");
            text.truncate(160);
            format!("propose {urgency:?} {durability:?} {text}")
        }
        other => {
            let mut text = format!("{other:?}");
            text.truncate(200);
            text
        }
    }
}
