//! Schedules: messages that are due later, once or again and again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{PartitionId, Position};

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
    /// Only this one, whenever it is due next.
    pub only: Option<ScheduleId>,
}

impl JobsWanted {
    /// All of them.
    pub fn all() -> JobsWanted {
        JobsWanted { job: None, due_ms: 0..=u64::MAX, only: None }
    }
}

/// One job of the broker. A job that repeats keeps its id, which has the time of the firing at
/// which it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId {
    /// The partition that keeps it.
    pub partition: PartitionId,
    /// Its firing there.
    pub due: Due,
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Due { at_ms, position, ordinal } = self.due;
        write!(f, "{at_ms}-{}-{}-{ordinal}", self.partition.0, position.get())
    }
}

/// The text is not the id of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a scheduled message: four numbers with - in between are right, as a list shows them")]
pub struct NotScheduleId;

impl FromStr for ScheduleId {
    type Err = NotScheduleId;

    fn from_str(text: &str) -> Result<ScheduleId, NotScheduleId> {
        let read = || {
            let mut parts = text.split('-');
            let at_ms = number(parts.next()?)?;
            let partition = PartitionId(number(parts.next()?)?);
            let position = Position::new(number(parts.next()?)?)?;
            let ordinal = number(parts.next()?)?;
            let due = Due { at_ms, position, ordinal };
            parts.next().is_none().then_some(ScheduleId { partition, due })
        };
        read().ok_or(NotScheduleId)
    }
}

/// A number as [`ScheduleId`] writes it: digits alone.
fn number<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_job_is_read_back_and_others_are_refused() {
        let position = Position::new(79).expect("from 1");
        let due = Due { at_ms: u64::MAX, position, ordinal: 3 };
        let id = ScheduleId { partition: PartitionId(2), due };
        assert_eq!(id.to_string(), format!("{}-2-79-3", u64::MAX));
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "1-2-3", "1-2-0-3", "1-2-3-4-5", "1-2-+3-4", "1-70000-3-4", "a-1-1-1", "1--1-1"] {
            assert_eq!(text.parse::<ScheduleId>(), Err(NotScheduleId), "{text}");
        }
    }
}
