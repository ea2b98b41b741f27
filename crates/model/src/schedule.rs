//! Schedules: messages that are due later, once or again and again.

use std::sync::Arc;

use crate::Position;

/// When a message is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The id of the job, by which it can be removed; its protocol chooses it.
    pub job: Arc<str>,
    /// Not before this time, in ms since 1970. With a cron expression and no repetitions it is the
    /// time from which the expression is looked at.
    pub due_ms: u64,
    /// When again.
    pub again: Option<Recurrence>,
    /// Set for a copy of a route that its target refused: when due, it is sent once more.
    pub retry: Option<RouteRetry>,
}

impl Schedule {
    /// Due once.
    pub fn once(job: Arc<str>, due_ms: u64) -> Schedule {
        Schedule { job, due_ms, again: None, retry: None }
    }
}

/// A copy that the target of a route refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRetry {
    /// The name of the route.
    pub route: Arc<str>,
    /// Redeliveries that failed too.
    pub failed: u32,
}

/// How a job goes on after it was due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// Between two of its messages, in ms.
    pub period_ms: u64,
    /// How many more messages come; `None` for no end.
    pub times: Option<u32>,
    /// Each time that these five cron fields match, in UTC, all of it begins: one message, or as
    /// many as `times` says, the first `delay_ms` later.
    pub cron: Option<Arc<str>>,
    /// See `cron`; 0 without one.
    pub delay_ms: u64,
}

/// Some of the jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsWanted {
    /// Only those of this name.
    pub job: Option<Arc<str>>,
    /// Only those that are due next within these times, in ms since 1970, both included.
    pub due_ms: std::ops::RangeInclusive<u64>,
}

/// One firing of a job: names it for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due {
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// The record that holds its message.
    pub position: Position,
    /// Which message of the record.
    pub ordinal: u32,
}
