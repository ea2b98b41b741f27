//! The sentences of an explanation.

use postroad_model::{Decisive, Destination, Verdict, VerdictRow, decisive, rfc3339};

/// The context of the sentences.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    pub queue: &'a Destination,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Words<'_> {
    /// The answer in a sentence, and the smallest change.
    pub fn summary(self, rows: &[VerdictRow], consumers: usize) -> (String, Option<String>) {
        let row = match decisive(rows) {
            Decisive::Cause(row) => row,
            Decisive::Taken(takers) => {
                return (
                    format!("Nothing is in the way: consumers that can take the message now: {takers}."),
                    None,
                );
            }
            Decisive::OnlyBrowsers => return ("The message waits for its turn.".to_owned(), None),
        };
        let ((_, text), remedy) = (self.of(row), self.remedy(&row.verdict));
        let behind = rows.iter().find(|row| matches!(row.verdict, Verdict::Behind { .. }));
        let behind = behind.map_or_else(String::new, |row| format!(" {}", self.of(row).1));
        let text = match (row.consumer.is_some(), consumers) {
            (false, _) => text,
            (true, 1) => format!("The only consumer does not take the message: {}{behind}", lower(&text)),
            (true, all) => {
                let nearest = lower(&text);
                format!("None of the {all} consumers takes the message. The nearest: {nearest}{behind}")
            }
        };
        (text, remedy)
    }

    /// Code and sentence.
    pub fn of(self, row: &VerdictRow) -> (&'static str, String) {
        let verdict = &row.verdict;
        match verdict {
            Verdict::Takes | Verdict::Browses | Verdict::NotJudged => of_judgement(verdict),
            Verdict::Selector { facts, .. } if row.is_link && is_path(facts) => ("link_path", of_path(facts)),
            Verdict::Selector { selector, facts, .. } => ("selector", of_selector(selector, facts)),
            Verdict::NoCredit { .. }
            | Verdict::TooSlow { .. }
            | Verdict::OutboxFull { .. }
            | Verdict::NotExclusive { .. }
            | Verdict::Group { .. } => of_consumer(row),
            Verdict::Moving { .. }
            | Verdict::Paused
            | Verdict::Reading
            | Verdict::Returning
            | Verdict::NoConsumer
            | Verdict::Gathering { .. }
            | Verdict::LeaseLimit { .. }
            | Verdict::Full => self.of_queue(verdict),
            _ => self.of_message(verdict),
        }
    }

    fn of_message(self, verdict: &Verdict) -> (&'static str, String) {
        match verdict {
            Verdict::Ready => ("ready", "The message is ready for a consumer.".to_owned()),
            Verdict::Behind { messages, of_higher_priority } => {
                let first = match of_higher_priority {
                    0 => String::new(),
                    higher => format!(", {higher} of a higher priority"),
                };
                ("behind", format!("Messages that are delivered before it: {messages}{first}."))
            }
            Verdict::Held { by, in_transaction, for_ms } => held(by, *in_transaction, *for_ms),
            Verdict::Settled { by, for_ms, .. } => {
                let who = if by.is_empty() { String::new() } else { format!(" of the connection {by}") };
                let age = seconds(*for_ms);
                let text = format!(
                    "A consumer that has left acknowledged the message in an open transaction{who}, begun \
                     {age} ago."
                );
                ("in_transaction", text)
            }
            Verdict::InDoubt { for_ms } => {
                let until = self.until(*for_ms);
                let text = format!(
                    "A link had the message when its connection was cut; it is kept for the link until {until}."
                );
                ("in_doubt", text)
            }
            Verdict::Resting { for_ms } => {
                ("resting", format!("It failed and is delayed until {}.", self.until(*for_ms)))
            }
            Verdict::Reserved { lease, for_ms } => {
                let until = self.until(*for_ms);
                (
                    "reserved",
                    format!("An HTTP client has reserved the message (lease {lease}) until {until}."),
                )
            }
            Verdict::Delayed { for_ms } => {
                ("delayed", format!("The message is delayed until {}.", self.until(*for_ms)))
            }
            Verdict::Prepared { branch, is_sent, messages, .. } => {
                ("prepared", of_prepared(branch.as_deref(), *is_sent, *messages))
            }
            Verdict::Uncommitted { by, messages, for_ms, .. } => {
                let who = if by.is_empty() { String::new() } else { format!(" of the connection {by}") };
                let (noun, are) = if *messages == 1 { ("message", "is") } else { ("messages", "are") };
                let age = seconds(*for_ms);
                let text = format!("{messages} {noun} {are} in an open transaction{who}, begun {age} ago.");
                ("uncommitted", text)
            }
            Verdict::Blocked { reason, sends, at } => {
                let (noun, are) = if *sends == 1 { ("send", "is") } else { ("sends", "are") };
                let at = at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
                let text =
                    format!("Producers wait before the queue: {sends} {noun} {are} blocked ({reason}{at}).");
                ("blocked_sends", text)
            }
            Verdict::Expired { for_ms } => {
                let text =
                    format!("The message expired {} ago, and is about to be removed.", seconds(*for_ms));
                ("expired", text)
            }
            Verdict::Leaving => {
                ("leaving", "It was settled and is about to leave, or cannot be read.".to_owned())
            }
            _ => ("no_message", "The queue holds no message.".to_owned()),
        }
    }

    fn of_queue(self, verdict: &Verdict) -> (&'static str, String) {
        let (code, text) = match verdict {
            Verdict::Moving { held, transactions } => {
                let mut text = "The queue moves to another store, and delivers nothing meanwhile.".to_owned();
                for (count, what) in
                    [(held, "messages that consumers have"), (transactions, "transactions that send to it")]
                {
                    if 0 < *count {
                        text.push_str(&format!(" It waits for {count} {what}."));
                    }
                }
                return ("moving", text);
            }
            Verdict::Paused => ("paused", "An operator has paused the queue: its consumers get nothing."),
            Verdict::Reading => ("reading", "Messages are read from the disk now."),
            Verdict::Returning => (
                "returning",
                "Messages of a client that rolled back or left are coming back to the queue now.",
            ),
            Verdict::NoConsumer => ("no_consumer", "No consumer is attached."),
            Verdict::Gathering { for_ms } => {
                let until = self.until(*for_ms);
                let text = format!("The queue waits for more consumers, until {until} at most.");
                return ("gathering", text);
            }
            Verdict::LeaseLimit { max } => {
                let text =
                    format!("The limit of {max} reservations is reached: HTTP clients get no message.");
                return ("lease_limit", text);
            }
            _ => ("full", "The queue or its tenant is at its limit: producers wait or are refused."),
        };
        (code, text.to_owned())
    }

    /// The smallest change that removes the cause.
    pub fn remedy(self, verdict: &Verdict) -> Option<String> {
        let text = match verdict {
            Verdict::NoMessage | Verdict::Ready | Verdict::Takes | Verdict::Browses => return None,
            Verdict::Behind { .. } => "Wait, attach more consumers, or send it with a higher priority.",
            Verdict::Paused => {
                return Some(format!("Resume the queue: `postroad ctl resume {}`.", self.queue.name));
            }
            Verdict::Held { in_transaction: true, .. }
            | Verdict::Settled { .. }
            | Verdict::Uncommitted { .. }
            | Verdict::NoCredit { in_transaction: true, .. } => "Commit or roll back the transaction.",
            Verdict::Held { .. } => "Have the consumer acknowledge, or end it: the message comes back.",
            Verdict::InDoubt { .. } => "Wait, or reconnect the link.",
            Verdict::Resting { .. } => "Wait, or lower the redelivery delay of its queue.",
            Verdict::Reserved { .. } => "Wait for the end of the reservation, or release it.",
            Verdict::Delayed { .. } => "Wait until it is due.",
            Verdict::Prepared { branch: Some(branch), .. } => {
                return Some(format!(
                    "Have the transaction manager decide, or `postroad ctl transactions commit {branch}` or \
                     `rollback {branch}`."
                ));
            }
            Verdict::Prepared { .. } => {
                "Have the transaction manager decide: see `postroad ctl transactions`."
            }
            Verdict::Blocked { .. } => "Remove the cause: docs/features/blocked-sends.md lists them.",
            Verdict::Expired { .. } | Verdict::Returning | Verdict::Reading => "Wait a moment.",
            Verdict::Leaving => "Wait for the disk; if it lasts, see `postroad ctl broker` and the log.",
            Verdict::Moving { held: 1.., .. } => {
                "Have the consumers acknowledge, or end them: the rest goes then."
            }
            Verdict::Moving { transactions: 1.., .. } => "Commit or roll back the transactions.",
            Verdict::Moving { .. } => "Wait for the move: see `postroad queue moves`.",
            Verdict::NoConsumer if self.queue.temporary => {
                "Attach a consumer by the connection that made the queue: it is temporary."
            }
            Verdict::NoConsumer => "Attach a consumer to the queue.",
            Verdict::Gathering { .. } => "Attach more consumers, or lower consumers_before_dispatch.",
            Verdict::Full => "Consume, purge, or raise the limit.",
            Verdict::LeaseLimit { .. } => {
                "Delete or release reserved messages, or raise the limit of leases."
            }
            Verdict::NoCredit { held: 0, .. } => "Have the client receive messages.",
            Verdict::NoCredit { .. } => "Have the consumer acknowledge, or raise its prefetch.",
            Verdict::TooSlow { .. } => "Have the consumer acknowledge, or end it.",
            Verdict::OutboxFull { .. } => "Find out why the client does not read, or end it.",
            Verdict::Selector { is_exclusive: true, .. } => {
                "End the exclusive consumer: no other gets the message while it is attached."
            }
            Verdict::Selector { .. } => "Attach a consumer whose selector matches, or without one.",
            Verdict::NotJudged => "Ask about the message by its id, which reads it.",
            Verdict::Group { owner: None, .. } => {
                "Wait for the reservations of the group to end, or delete them."
            }
            Verdict::NotExclusive { owner } | Verdict::Group { owner: Some(owner), .. } => {
                let who = if owner.is_empty() { "that has it" } else { owner };
                return Some(format!("End the consumer {who}, or wait until it takes the message."));
            }
        };
        Some(text.to_owned())
    }

    /// A time of day, and how long it is until then.
    fn until(self, for_ms: u64) -> String {
        let at = rfc3339(self.now_ms.saturating_add(for_ms).div_ceil(1000));
        format!("{at} (in {})", seconds(for_ms))
    }
}

fn of_judgement(verdict: &Verdict) -> (&'static str, String) {
    let (code, text) = match verdict {
        Verdict::Takes => ("takes", "It can take the message now."),
        Verdict::Browses => ("browser", "It is a browser, which takes no messages."),
        _ => ("not_judged", "Its selector has not been judged: the message is on the disk."),
    };
    (code, text.to_owned())
}

fn of_consumer(row: &VerdictRow) -> (&'static str, String) {
    match &row.verdict {
        Verdict::NoCredit { .. } if row.is_link => {
            ("no_credit", "It is a link to another broker: the consumers there have no credit.".to_owned())
        }
        Verdict::NoCredit { held: 0, .. } => ("no_credit", "Its client asks for no message now.".to_owned()),
        Verdict::NoCredit { held, in_transaction, for_ms } => {
            let (noun, are) = if *held == 1 { ("message", "is") } else { ("messages", "are") };
            let why = match in_transaction {
                true => "in open transactions, the oldest",
                false => "not acknowledged, the oldest",
            };
            let age = seconds(*for_ms);
            ("no_credit", format!("Its prefetch is full: {held} {noun} {are} {why} for {age}."))
        }
        Verdict::TooSlow { taken_back } => {
            let text = format!(
                "It was slow, and {taken_back} messages were taken back: it gets none before it acknowledges."
            );
            ("too_slow", text)
        }
        Verdict::OutboxFull { bytes } => {
            ("slow_connection", format!("Its connection is slow: {bytes} bytes wait to be sent to it."))
        }
        Verdict::NotExclusive { owner } => {
            ("not_exclusive", format!("The exclusive consumer {owner} has the queue."))
        }
        Verdict::Group { group, owner: Some(owner) } => {
            ("group", format!("The message's group {group} belongs to the consumer {owner}."))
        }
        Verdict::Group { group, .. } => {
            ("group", format!("An HTTP client has reserved another message of the group {group}."))
        }
        _ => ("unknown", String::new()),
    }
}

fn of_prepared(branch: Option<&str>, is_sent: bool, messages: u64) -> String {
    let name = branch.map_or_else(String::new, |branch| format!(" {branch}"));
    match (is_sent, messages) {
        (true, 1) => format!("A message is in the prepared transaction{name}, which is in doubt."),
        (true, _) => format!("{messages} messages are in the prepared transaction{name}, which is in doubt."),
        (false, 0 | 1) => {
            format!("A message was settled in the prepared transaction{name}, which is in doubt.")
        }
        (false, _) => {
            format!("{messages} messages were settled in the prepared transaction{name}, which is in doubt.")
        }
    }
}

fn held(by: &str, in_transaction: bool, for_ms: u64) -> (&'static str, String) {
    let who = if by.is_empty() { "A consumer".to_owned() } else { format!("The consumer {by}") };
    let age = seconds(for_ms);
    match in_transaction {
        true => ("in_transaction", format!("{who} has had the message in an open transaction for {age}.")),
        false => ("held", format!("{who} has had the message for {age} and has not acknowledged it.")),
    }
}

/// The property with the brokers that a message has passed.
const BROKER_PATH: &str = "JMSActiveMQBrokerPath";

/// The verdict of a link comes from the path of the message alone.
fn is_path(facts: &[(String, Option<String>)]) -> bool {
    !facts.is_empty() && facts.iter().all(|(name, _)| name == BROKER_PATH)
}

fn of_path(facts: &[(String, Option<String>)]) -> String {
    let passed = facts.iter().find_map(|(_, value)| value.as_deref()).unwrap_or_default();
    format!(
        "It is a link to another broker. The message has passed the brokers {passed}: it goes neither back \
         to one of them, nor over more of them than message_ttl of the link permits (networkTTL of ActiveMQ)."
    )
}

fn of_selector(selector: &str, facts: &[(String, Option<String>)]) -> String {
    let fact = |(name, value): &(String, Option<String>)| match value {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} is not set"),
    };
    let because = match facts {
        [] => String::new(),
        _ => format!(", as {}", facts.iter().map(fact).collect::<Vec<_>>().join(" and ")),
    };
    format!("Its selector `{selector}` does not match{because}.")
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{} s", ms.div_ceil(1000))
}

pub(super) fn lower(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}
