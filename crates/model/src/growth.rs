//! Why a queue grows, and when it would be empty: judged by its flow and its explanation.
//!
//! In: the flow of the last minute, as the core counts it, and the verdicts on the next message.
//! Out: facts with their numbers. The admin API puts them into words.
//! Never here: clocks, and words for people.

use std::sync::Arc;

use crate::{ConsumerKey, Decisive, Verdict, VerdictRow, decisive};

/// The messages of a queue within the last minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFlow {
    /// Messages in it now, those in flight included.
    pub messages: u64,
    /// Those that wait for no consumer: one has them, or they rest or leave.
    pub in_flight: u64,
    /// The counts are of this time up to now: at most a minute.
    pub window_ms: u64,
    /// Messages that came.
    pub came: u64,
    /// Messages that consumers accepted.
    pub consumed: u64,
    /// Messages that became dead letters.
    pub dead_lettered: u64,
    /// Messages that expired.
    pub expired: u64,
    /// Messages that left otherwise: dropped by the limit, replaced, or moved.
    pub removed: u64,
    /// Deliveries of messages that were delivered before without success.
    pub redelivered: u64,
    /// Consumers, browsers left out; [`QueueFlow::CONSUMERS_MAX`] at most.
    pub consumers: Vec<ConsumerFlow>,
    /// Further consumers.
    pub consumers_left_out: u64,
}

/// The work of a consumer within the last minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerFlow {
    /// Which.
    pub consumer: ConsumerKey,
    /// Its name, as in [`ConsumerRow`](crate::ConsumerRow).
    pub name: Arc<str>,
    /// It is the subscription of a link to another broker.
    pub is_link: bool,
    /// The figures are of this time up to now; 0 if the consumer reads several queues, and is not
    /// measured.
    pub window_ms: u64,
    /// Messages that it settled.
    pub settled: u64,
    /// The time from their deliveries to that, of all of them together.
    pub held_ms: u64,
    /// For so long it had messages and no credit: it waited for its client's acknowledgements.
    pub waiting_ms: u64,
    /// Messages that it may have at the same time.
    pub prefetch: u64,
}

impl QueueFlow {
    /// Consumers in one answer.
    pub const CONSUMERS_MAX: usize = 100;

    /// All that left.
    pub fn left(&self) -> u64 {
        self.consumed + self.dead_lettered + self.expired + self.removed
    }

    /// Milliseconds until it is empty at the present rates; `None` if it does not shrink.
    pub fn drain_ms(&self) -> Option<u64> {
        let shrinks = self.left().checked_sub(self.came).filter(|less| 0 < *less)?;
        let all = u128::from(self.messages) * u128::from(self.window_ms) / u128::from(shrinks);
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

impl ConsumerFlow {
    /// The share of its time in which it waited for acknowledgements, in percent.
    pub fn waiting_percent(&self) -> u64 {
        (100 * self.waiting_ms).checked_div(self.window_ms).unwrap_or(0).min(100)
    }

    /// From a delivery to its acknowledgement, on average.
    pub fn held_ms_each(&self) -> Option<u64> {
        self.held_ms.checked_div(self.settled)
    }
}

/// See [`judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth<'r> {
    /// Too little was seen to tell: it has been measured for this time.
    Unknown {
        /// Milliseconds.
        window_ms: u64,
    },
    /// It holds nothing that waits, or as much as before.
    Steady,
    /// It becomes shorter.
    Shrinks {
        /// Milliseconds until it is empty.
        drain_ms: u64,
    },
    /// It holds messages, and nothing comes or leaves.
    Stands(GrowthCause<'r>),
    /// More comes than leaves.
    Grows(GrowthCause<'r>),
}

/// Why messages stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthCause<'r> {
    /// This keeps the next message from being delivered.
    Obstacle(&'r VerdictRow),
    /// Consumers give messages back: of the deliveries of a minute most are repeated.
    Redeliveries {
        /// Repeated deliveries.
        redelivered: u64,
        /// Messages that were accepted.
        consumed: u64,
    },
    /// Consumers wait most of the time for acknowledgements of a few messages.
    Prefetch {
        /// Messages that a consumer may have.
        prefetch: u64,
        /// From a delivery to its acknowledgement.
        held_ms: u64,
        /// Consumers that wait.
        consumers: u64,
    },
    /// Consumers wait most of the time for acknowledgements of many messages: they cannot do more.
    SlowConsumers {
        /// How many there are.
        consumers: u64,
        /// The number that would keep up, if each were as fast; `None` if they settle nothing.
        needed: Option<u64>,
    },
    /// Consumers have free credit most of the time.
    FreeCredit {
        /// How many there are.
        consumers: u64,
    },
}

/// Less than this says nothing about rates.
const WINDOW_MS_MIN: u64 = 3_000;

/// The difference of rates that counts: one message in twenty.
const SHARE_MIN: u64 = 20;

/// Consumers that wait for longer than this share of their time are the limit.
const WAITING_PERCENT_MIN: u64 = 50;

/// A prefetch up to this may be the limit; with a larger one the consumer is busy all the time.
const SMALL_PREFETCH_MAX: u64 = 10;

/// Whether the queue grows, and why. `rows` explain its next message.
pub fn judge<'r>(flow: &QueueFlow, rows: &'r [VerdictRow]) -> Growth<'r> {
    if flow.window_ms < WINDOW_MS_MIN {
        return Growth::Unknown { window_ms: flow.window_ms };
    }
    let (came, left) = (flow.came, flow.left());
    let tolerance = (came.max(left) / SHARE_MIN).max(1);
    if came + tolerance < left {
        return flow.drain_ms().map_or(Growth::Steady, |drain_ms| Growth::Shrinks { drain_ms });
    }
    if flow.messages == 0 || (0 < left && came <= left + tolerance) {
        return Growth::Steady;
    }
    let cause = cause_of(flow, rows);
    if came == 0 { Growth::Stands(cause) } else { Growth::Grows(cause) }
}

fn cause_of<'r>(flow: &QueueFlow, rows: &'r [VerdictRow]) -> GrowthCause<'r> {
    let nearest = match decisive(rows) {
        Decisive::Cause(row) if !is_of_the_moment(&row.verdict) => return GrowthCause::Obstacle(row),
        Decisive::Cause(row) => Some(row),
        Decisive::Taken(_) | Decisive::OnlyBrowsers => None,
    };
    if flow.consumed < flow.redelivered {
        let (redelivered, consumed) = (flow.redelivered, flow.consumed);
        return GrowthCause::Redeliveries { redelivered, consumed };
    }
    let consumers = flow.consumers.len() as u64 + flow.consumers_left_out;
    let measured: Vec<_> = flow.consumers.iter().filter(|consumer| 0 < consumer.window_ms).collect();
    let is_waiting = |consumer: &&&ConsumerFlow| WAITING_PERCENT_MIN <= consumer.waiting_percent();
    let waiting: Vec<_> = measured.iter().filter(is_waiting).copied().collect();
    // Consumers may have credit for all that is there.
    let all_in_hands = flow.messages.saturating_sub(flow.in_flight) <= flow.messages / SHARE_MIN;
    let most_wait = !waiting.is_empty() && measured.len() <= 2 * waiting.len();
    let waits_now = nearest.is_some_and(|row| is_busy(&row.verdict));
    if !all_in_hands && !most_wait && !waits_now {
        return nearest.map_or(GrowthCause::FreeCredit { consumers }, GrowthCause::Obstacle);
    }
    let waiting = if waiting.is_empty() { measured } else { waiting };
    let prefetch = waiting.iter().map(|consumer| consumer.prefetch).max().unwrap_or(0);
    let settled: u64 = waiting.iter().map(|consumer| consumer.settled).sum();
    let held_ms: u64 = waiting.iter().map(|consumer| consumer.held_ms).sum();
    if let (0, Some(row)) = (settled, nearest) {
        return GrowthCause::Obstacle(row);
    }
    match held_ms.checked_div(settled) {
        Some(held_ms) if prefetch <= SMALL_PREFETCH_MAX => {
            GrowthCause::Prefetch { prefetch, held_ms, consumers: waiting.len() as u64 }
        }
        _ => {
            let all = u128::from(flow.came) * u128::from(consumers);
            let needed = (0 < flow.consumed).then(|| all.div_ceil(u128::from(flow.consumed)));
            let needed = needed.map(|needed| u64::try_from(needed).unwrap_or(u64::MAX));
            GrowthCause::SlowConsumers { consumers, needed }
        }
    }
}

/// Whether the consumer has as many messages as it may, and works on them.
fn is_busy(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::NoCredit { held: 1.., in_transaction: false, .. })
}

/// Whether it comes and goes with each message of a busy queue: rates say more.
fn is_of_the_moment(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::NoCredit { .. }
            | Verdict::Held { .. }
            | Verdict::Leaving
            | Verdict::Reading
            | Verdict::Returning
            | Verdict::NoMessage
            | Verdict::Expired { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnectionId;

    fn flow((came, consumed): (u64, u64), (messages, in_flight): (u64, u64), waiting: &[u64]) -> QueueFlow {
        let consumer = |(number, waiting_ms): (u32, &u64)| ConsumerFlow {
            consumer: ConsumerKey::new(ConnectionId::new(0, 1), number),
            name: "".into(),
            is_link: false,
            window_ms: 60_000,
            settled: consumed,
            held_ms: 40 * consumed,
            waiting_ms: *waiting_ms,
            prefetch: 100,
        };
        let consumers = (0..).zip(waiting).map(consumer).collect();
        QueueFlow {
            messages,
            in_flight,
            window_ms: 60_000,
            came,
            consumed,
            consumers,
            ..QueueFlow::default()
        }
    }

    #[test]
    fn a_queue_grows_if_more_comes_than_leaves_and_says_why() {
        let ready = [VerdictRow::new(None, Verdict::Ready)];
        let slow = |consumers, needed| GrowthCause::SlowConsumers { consumers, needed: Some(needed) };
        for (name, flow, want) in [
            (
                "too early",
                QueueFlow { window_ms: 2_999, ..flow((9, 0), (9, 0), &[]) },
                Growth::Unknown { window_ms: 2_999 },
            ),
            ("as much as before", flow((1000, 960), (40, 0), &[0]), Growth::Steady),
            ("nothing left in it", flow((1000, 900), (0, 0), &[0]), Growth::Steady),
            ("shorter", flow((0, 100), (50, 0), &[0]), Growth::Shrinks { drain_ms: 30_000 }),
            (
                "consumers wait for acknowledgements",
                flow((200, 100), (100, 9), &[30_000, 30_001]),
                Growth::Grows(slow(2, 4)),
            ),
            (
                "consumers have credit",
                flow((200, 100), (100, 9), &[29_000, 1]),
                Growth::Grows(GrowthCause::FreeCredit { consumers: 2 }),
            ),
            (
                "consumers have credit, and all that is there",
                flow((200, 100), (100, 97), &[0]),
                Growth::Grows(slow(1, 2)),
            ),
            (
                "more is delivered again than acknowledged",
                QueueFlow { redelivered: 101, ..flow((200, 100), (100, 9), &[60_000]) },
                Growth::Grows(GrowthCause::Redeliveries { redelivered: 101, consumed: 100 }),
            ),
        ] {
            assert_eq!(judge(&flow, &ready), want, "case: {name}");
        }
        let rows = [ready[0].clone(), VerdictRow::new(None, Verdict::Paused)];
        let stands = flow((0, 0), (5, 0), &[60_000]);
        assert_eq!(judge(&stands, &rows), Growth::Stands(GrowthCause::Obstacle(&rows[1])));
    }
}
