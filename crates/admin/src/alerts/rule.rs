//! Rules: which condition is watched, on which queues, and who is notified.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postroad_model::Destination;
use postroad_routing::DestinationPattern;
use serde::Serialize;

/// One `[[alert]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRule {
    /// Its name, by which it is listed.
    pub name: Arc<str>,
    /// How urgent it is.
    pub severity: Severity,
    /// Which value is watched.
    pub on: Measure,
    /// Queues and topics that it covers; none for every queue.
    pub destinations: Vec<DestinationPattern>,
    /// The condition holds while the value is higher than this.
    pub above: u64,
    /// A firing alert resolves once the value is not higher than this; not more than `above`.
    pub clear_at: u64,
    /// How long the condition must hold before the alert fires, and how long it must be over before
    /// it resolves.
    pub lasts: Duration,
    /// Who is notified.
    pub to: Vec<Recipient>,
}

impl AlertRule {
    /// Whether this queue, or durable subscription of this topic, is watched.
    pub fn covers(&self, destination: &Destination) -> bool {
        let is_covered = |pattern: &DestinationPattern| {
            pattern.kind == destination.kind
                && pattern.temporary == destination.temporary
                && pattern.name.matches(&destination.name)
        };
        self.destinations.is_empty() || self.destinations.iter().any(is_covered)
    }
}

/// A value that a rule watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Messages in a queue.
    Depth,
    /// Seconds that the oldest message of a queue is in it.
    Age,
    /// Messages in a queue without a consumer.
    NoConsumer,
    /// Messages of a queue that became dead letters in the last five minutes.
    DeadLetters,
    /// Seconds that the same message is the oldest of a queue with consumers.
    Stuck,
    /// Messages by which the counts of a queue differ from its content.
    Ledger,
    /// Percent of a store's disk, or of its `disk_bytes_max`, in use.
    Disk,
    /// Percent of the memory budget that the process uses.
    Memory,
}

impl Measure {
    /// Each of them.
    pub const ALL: [Measure; 8] = [
        Measure::Depth,
        Measure::Age,
        Measure::NoConsumer,
        Measure::DeadLetters,
        Measure::Stuck,
        Measure::Ledger,
        Measure::Disk,
        Measure::Memory,
    ];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Depth => "depth",
            Measure::Age => "age",
            Measure::NoConsumer => "no_consumer",
            Measure::DeadLetters => "dead_letters",
            Measure::Stuck => "stuck",
            Measure::Ledger => "ledger",
            Measure::Disk => "disk",
            Measure::Memory => "memory",
        }
    }

    /// It has a value for each queue, and not one for the broker.
    pub fn is_of_queue(self) -> bool {
        !matches!(self, Measure::Disk | Measure::Memory)
    }

    /// A value of it in words.
    pub fn text(self, value: u64) -> String {
        match self {
            Measure::Depth => format!("{value} messages are in it"),
            Measure::Age => format!("its oldest message is in it for {value} s or longer"),
            Measure::NoConsumer => format!("{value} messages wait, and no consumer is attached"),
            Measure::DeadLetters => format!("{value} messages became dead letters in the last 5 minutes"),
            Measure::Stuck => {
                format!("its oldest message has not left for {value} s, although it has consumers")
            }
            Measure::Ledger => format!("its counts differ from its content by {value} messages"),
            Measure::Disk => format!("{value} % of the disk space is used"),
            Measure::Memory => format!("the process uses {value} % of the memory budget"),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// To be looked at.
    Warning,
    /// Clients are harmed.
    Critical,
}

impl Severity {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// Who is notified.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recipient {
    /// A line in the log.
    Log,
    /// A URL, to which the notification is posted as JSON.
    Webhook(String),
    /// A queue or topic, to which it is sent as a text message with the same JSON.
    Destination(Destination),
}
