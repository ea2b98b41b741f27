//! Ids: entries and leases as decimal strings, and queues of projects as queues of the broker.

use postroad_model::{EntryTag, LeaseId, QueueId};

use crate::ApiError;

/// A message of a queue: unique in the broker, across restarts.
///
/// Written as one decimal number, the queue above and the entry in the lower 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The queue.
    pub queue: QueueId,
    /// The entry.
    pub tag: EntryTag,
}

impl MessageId {
    /// A message that routes have passed on to other queues: in no queue is it an entry.
    pub fn passed_on(number: u64) -> MessageId {
        MessageId { queue: QueueId(u64::MAX - 1), tag: EntryTag(number) }
    }

    /// Reads what `Display` writes; `None` if it is no id.
    pub fn parse(text: &str) -> Option<MessageId> {
        let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_decimal {
            return None;
        }
        // Most digits are read by arithmetic of 64 bits, which is faster.
        let (above, below) = text.split_at(text.len().saturating_sub(LOW_DIGITS));
        let above: u128 = if above.is_empty() { 0 } else { above.parse().ok()? };
        let below: u64 = below.parse().ok()?;
        let number = above.checked_mul(LOW_VALUES.into())?.checked_add(below.into())?;
        let queue = u64::try_from(number >> 64).ok()?.checked_sub(1)?;
        Some(MessageId { queue: QueueId(queue), tag: EntryTag(number as u64) })
    }
}

impl std::fmt::Display for MessageId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The first queue has number 0, and an id is to have the same form for all.
        let queue = u128::from(self.queue.0.wrapping_add(1));
        out.write_str(itoa::Buffer::new().format(queue << 64 | u128::from(self.tag.0)))
    }
}

/// Digits of an id of which a number of 64 bits has any value.
const LOW_DIGITS: usize = 19;

/// As many values have these digits.
const LOW_VALUES: u64 = 10u64.pow(LOW_DIGITS as u32);

/// A reservation as clients name it.
pub(crate) fn lease(text: &str) -> Result<LeaseId, ApiError> {
    let lease = text.parse().map(LeaseId);
    lease.map_err(|_| ApiError { status: 403, msg: "reservation_id is none of this broker's".to_owned() })
}

/// Characters of a queue's name, at most.
pub(crate) const NAME_CHARS_MAX: usize = 512;

/// The broker's name of a project's queue: `PROJECT.QUEUE`, and `QUEUE` alone in the project
/// `default`.
///
/// # Errors
/// The name is too long, or would be a pattern.
pub fn queue_name(project: &str, queue: &str) -> Result<String, ApiError> {
    for (what, name) in [("project", project), ("queue", queue)] {
        if name.is_empty() || NAME_CHARS_MAX < name.chars().count() {
            let msg = format!("a {what} name has 1 to {NAME_CHARS_MAX} characters");
            return Err(ApiError::bad(msg));
        }
        if name.chars().any(|c| c.is_control()) || name.split('.').any(|word| matches!(word, "*" | ">")) {
            let msg = format!("a {what} name has no control characters, and none of its words is * or >");
            return Err(ApiError::bad(msg));
        }
    }
    Ok(if project == "default" { queue.to_owned() } else { format!("{project}.{queue}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for (queue, tag) in [(0, 0), (3, 12), (u64::MAX - 1, u64::MAX)] {
            let id = MessageId { queue: QueueId(queue), tag: EntryTag(tag) };
            assert_eq!(MessageId::parse(&id.to_string()), Some(id));
        }
        for text in [
            "",
            "x",
            "-1",
            "+5",
            "12",
            "340282366920938463463374607431768211456",
            "99999999999999999999999999999999999999999999",
            "1+46744073709551617",
        ] {
            assert_eq!(MessageId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_queue_of_a_project_has_one_name_in_the_broker() {
        for (project, queue, want) in [
            ("default", "orders", Some("orders")),
            ("p1", "orders", Some("p1.orders")),
            ("p1", "a b", Some("p1.a b")),
            ("p1", ">", None),
            ("p1", "a.*", None),
            ("p1", "", None),
        ] {
            assert_eq!(queue_name(project, queue).ok().as_deref(), want, "{project} {queue}");
        }
    }
}
