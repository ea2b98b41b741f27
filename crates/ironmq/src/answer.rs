//! Answers of the broker, as JSON.

use std::io::Write as _;

use postroad_model::{LeaseId, QueueDescription, Reserved};
use serde_json::{Value, json};

use crate::{MessageId, Settings};

/// A word that something was done.
pub fn msg(text: &str) -> Value {
    json!({ "msg": text })
}

/// Messages were posted.
pub fn ids_posted(ids: impl Iterator<Item = MessageId>) -> Value {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    json!({ "ids": ids, "msg": "Messages put on queue." })
}

/// A reservation lasts longer.
pub fn touched(reservation: &LeaseId) -> Value {
    json!({ "reservation_id": reservation.0.to_string(), "msg": "Touched" })
}

/// One message with its body.
pub fn message(reserved: &Reserved, body: &str) -> Value {
    let id = MessageId { queue: reserved.queue, tag: reserved.tag };
    let mut message = json!({
        "id": id.to_string(),
        "body": body,
        "reserved_count": reserved.deliveries,
    });
    if let Some(lease) = reserved.lease {
        message["reservation_id"] = json!(lease.0.to_string());
    }
    message
}

/// The JSON of several messages, written message by message: a batch makes no tree of values.
#[derive(Debug)]
pub struct Messages {
    text: Vec<u8>,
    shows_leases: bool,
}

impl Messages {
    /// None yet; whether clients are to see the leases.
    pub fn new(shows_leases: bool) -> Messages {
        Messages { text: br#"{"messages":["#.to_vec(), shows_leases }
    }

    /// There is memory for this number of messages with these bytes together.
    pub fn with_room(mut self, messages: usize, bytes: usize) -> Messages {
        self.text.reserve(messages * OWN_BYTES + bytes);
        self
    }

    /// One message more, with its body.
    pub fn push(&mut self, reserved: &Reserved, body: &str) {
        if self.text.last() == Some(&b'}') {
            self.text.push(b',');
        }
        self.text.extend_from_slice(br#"{"body":"#);
        quote(&mut self.text, body);
        let id = MessageId { queue: reserved.queue, tag: reserved.tag };
        let lease = reserved.lease.filter(|_| self.shows_leases).map(|lease| lease.0);
        self.text.extend_from_slice(br#","id":""#);
        // A vector takes all that is written.
        let _ = write!(self.text, "{id}");
        self.text.extend_from_slice(br#"","#);
        let mut digits = itoa::Buffer::new();
        if let Some(lease) = lease {
            self.text.extend_from_slice(br#""reservation_id":""#);
            self.text.extend_from_slice(digits.format(lease).as_bytes());
            self.text.extend_from_slice(br#"","#);
        }
        self.text.extend_from_slice(br#""reserved_count":"#);
        self.text.extend_from_slice(digits.format(reserved.deliveries).as_bytes());
        self.text.push(b'}');
    }

    /// The whole answer.
    pub fn into_json(mut self) -> Vec<u8> {
        self.text.extend_from_slice(b"]}");
        self.text
    }
}

/// Bytes of a message beside its body: names, and the longest numbers.
const OWN_BYTES: usize = 120;

fn quote(out: &mut Vec<u8>, text: &str) {
    // Text is always JSON, and a vector takes all that is written.
    let _ = serde_json::to_writer(out, text);
}

/// How far each subscriber is with a message.
pub fn push_statuses(subscribers: Vec<Value>) -> Value {
    json!({ "subscribers": subscribers })
}

/// Names of queues.
pub fn names<'n>(names: impl Iterator<Item = &'n str>) -> Value {
    let queues: Vec<Value> = names.map(|name| json!({ "name": name })).collect();
    json!({ "queues": queues })
}

/// A queue as it was set.
pub fn queue_settings(project: &str, name: &str, settings: &Settings) -> Value {
    let mut queue = json!({
        "project_id": project,
        "name": name,
        "message_timeout": settings.message_timeout_s,
        "message_expiration": settings.message_expiration_s,
        "type": settings.kind(),
    });
    if let Some(push) = &settings.push {
        queue["push"] = push.shown();
    }
    if !settings.alerts.is_empty() {
        queue["alerts"] = settings.alerts.shown();
    }
    if let Some((dead, max)) = &settings.dead_letter {
        queue["dead_letter"] = json!({ "queue_name": dead, "max_reservations": max });
    }
    json!({ "queue": queue })
}

/// A queue with the number of its messages.
pub fn queue_info(project: &str, name: &str, about: &QueueDescription) -> Value {
    let mut answer = queue_settings(project, name, &Settings::of(about.options.as_ref()));
    answer["queue"]["size"] = json!(about.length);
    answer["queue"]["total_messages"] = json!(about.total);
    answer
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postroad_model::{Encoding, EntryTag, Message, NORMAL_PRIORITY, PartitionId, Protocol, QueueId};

    use super::*;

    fn reserved(tag: u64, lease: Option<u64>) -> Reserved {
        let encoding = Encoding { protocol: Protocol::Amqp, version: 0 };
        let (priority, bytes) = (NORMAL_PRIORITY, Bytes::new());
        let message = Message { encoding, persistent: true, priority, expires_at_ms: 0, rare: None, bytes };
        let (queue, tag, from) = (QueueId(1), EntryTag(tag), PartitionId(0));
        Reserved { queue, tag, lease: lease.map(LeaseId), deliveries: 2, from, message }
    }

    #[test]
    fn messages_are_written_as_single_ones_are() {
        let taken = [
            (reserved(1, Some(7)), "a \"b\" \u{1} größe\n"),
            (reserved(2, None), "}"),
            (reserved(3, Some(8)), ""),
        ];
        for count in 0..=taken.len() {
            for shows_leases in [true, false] {
                let mut written = Messages::new(shows_leases);
                taken[..count].iter().for_each(|(reserved, body)| written.push(reserved, body));
                let single = |(one, body): &(Reserved, &str)| {
                    let one = Reserved { lease: one.lease.filter(|_| shows_leases), ..one.clone() };
                    message(&one, body)
                };
                let want = json!({ "messages": taken[..count].iter().map(single).collect::<Vec<_>>() });
                assert_eq!(String::from_utf8(written.into_json()).unwrap(), want.to_string());
            }
        }
    }
}
