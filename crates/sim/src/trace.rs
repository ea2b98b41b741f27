//! Events and effects in a trace, and the lines of it about one message.

use postroad_model::{Effect, Event};

use crate::oracle::MessageNumber;

/// Lines about no message that are kept with those of each one: they decide what becomes of it.
const FOR_ALL: [&str; 6] =
    ["crash, power cut", "the disk dies", "does not start", "the end begins", "ProposalsFailed", "Closed {"];

/// Which lines of a trace are about one message: those that name it, or an entry by which it was
/// delivered.
pub struct About {
    /// All lines are wanted without it.
    message: Option<MessageNumber>,
    names: Vec<String>,
}

impl About {
    /// All lines, or those about this message.
    pub fn new(message: Option<MessageNumber>) -> About {
        let names = message.map(|number| {
            // A send has the number of its message as its ticket.
            [format!("publish {number} to "), format!("deliver Some({number}) "), format!("Ticket({number})")]
        });
        About { message, names: names.into_iter().flatten().collect() }
    }

    /// Whether this line is one of them.
    pub fn has(&mut self, line: &str) -> bool {
        let Some(message) = self.message else { return true };
        if line.contains(&format!("deliver Some({message}) ")) {
            let tag = line.split_once(", tag ").and_then(|(_, rest)| rest.split(',').next());
            let tag = tag.and_then(|tag| u64::from_str_radix(tag, 16).ok());
            let name = tag.map(|tag| format!("EntryTag({tag})"));
            self.names.extend(name.filter(|name| !self.names.contains(name)));
        }
        self.names.iter().any(|name| line.contains(name)) || FOR_ALL.iter().any(|part| line.contains(part))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_a_message_name_it_or_its_entry() {
        let deliver = "  PartitionId(0) > deliver Some(7) to ConsumerKey, tag 400000000000001, failed 0";
        let settle = "  PartitionId(0) < Settle(Settle { tags: [EntryTag(288230376151711745)] })";
        for (name, lines, want) in [
            ("all without a message", &["anything"][..], None),
            (
                "its send and the answer",
                &["publish 7 to queue://a", "Reply { ticket: Ticket(7) }"],
                Some(true),
            ),
            ("another's", &["publish 77 to queue://a", "Reply { ticket: Ticket(77) }"], Some(false)),
            ("its delivery and the verdict", &[deliver, settle], Some(true)),
            ("a verdict before the delivery", &[settle], Some(false)),
            ("the end of the machine", &["crash, power cut: true"], Some(true)),
        ] {
            let mut about = About::new(want.map(|_| 7));
            let has: Vec<bool> = lines.iter().map(|line| about.has(line)).collect();
            assert_eq!(has, vec![want.unwrap_or(true); lines.len()], "case: {name}");
        }
    }
}
