//! Why a queue grows, in words, with its rates and those of its consumers.
//!
//! [`postroad_model::judge`] finds the cause; here it gets its sentence.

use postroad_model::{ConsumerFlow, Growth, GrowthCause, QueueFlow, VerdictRow, judge};
use serde::Serialize;

use super::words::{Words, lower, seconds};
use crate::api::lists::connection_text;

/// The growth of a queue within the last minute.
#[derive(Clone, Debug, Serialize)]
pub struct Growing {
    /// `unknown`, `steady`, `shrinks`, the code of the verdict in the way, or `redeliveries`,
    /// `prefetch`, `slow_consumers`, `free_credit`.
    code: &'static str,
    /// More messages come than leave.
    grows: bool,
    text: String,
    /// The smallest change that ends the growth.
    remedy: Option<String>,
    /// Messages in the queue.
    messages: u64,
    /// The rates are of this time.
    window_ms: u64,
    came_per_second: f64,
    left_per_second: f64,
    consumed_per_second: f64,
    dead_lettered_per_second: f64,
    expired_per_second: f64,
    redelivered_per_second: f64,
    /// The queue is empty after this time at these rates; `null` if it does not shrink.
    drain_seconds: Option<u64>,
    /// The first ones, in the order in which they came.
    consumers: Vec<Worker>,
    /// Further consumers.
    consumers_left_out: u64,
}

/// A consumer within the last minute.
#[derive(Clone, Debug, Serialize)]
struct Worker {
    consumer: String,
    connection: String,
    /// `null` before its first message, and for a consumer of several queues.
    settled_per_second: Option<f64>,
    /// From a delivery to its acknowledgement, on average.
    held_ms: Option<u64>,
    /// Share of its time without credit, in which it waits for acknowledgements.
    waiting_percent: Option<u64>,
    /// Messages that it may have at the same time.
    prefetch: u64,
}

impl Growing {
    /// Of a queue whose next message has these verdicts.
    pub fn of(flow: &QueueFlow, rows: &[VerdictRow], words: Words<'_>) -> Growing {
        let growth = judge(flow, rows);
        let (code, text, remedy) = said(&growth, flow, words);
        let rate = |count: u64| per_second(count, flow.window_ms);
        Growing {
            code,
            grows: matches!(growth, Growth::Grows(_)),
            text,
            remedy,
            messages: flow.messages,
            window_ms: flow.window_ms,
            came_per_second: rate(flow.came),
            left_per_second: rate(flow.left()),
            consumed_per_second: rate(flow.consumed),
            dead_lettered_per_second: rate(flow.dead_lettered),
            expired_per_second: rate(flow.expired),
            redelivered_per_second: rate(flow.redelivered),
            drain_seconds: flow.drain_ms().map(|ms| ms.div_ceil(1000)),
            consumers: flow.consumers.iter().map(Worker::of).collect(),
            consumers_left_out: flow.consumers_left_out,
        }
    }
}

impl Worker {
    fn of(flow: &ConsumerFlow) -> Worker {
        let is_measured = 0 < flow.window_ms;
        Worker {
            consumer: match flow.name.is_empty() {
                true => flow.consumer.number.to_string(),
                false => flow.name.to_string(),
            },
            connection: connection_text(flow.consumer.connection),
            settled_per_second: is_measured.then(|| per_second(flow.settled, flow.window_ms)),
            held_ms: flow.held_ms_each(),
            waiting_percent: is_measured.then(|| flow.waiting_percent()),
            prefetch: flow.prefetch,
        }
    }
}

/// Code, sentence and remedy.
fn said(growth: &Growth<'_>, flow: &QueueFlow, words: Words<'_>) -> (&'static str, String, Option<String>) {
    let rates = rates(flow);
    let (cause, begin) = match growth {
        Growth::Unknown { window_ms: 0 } => {
            let text = "Not measured: nothing came or left since the start, or too many queues are busy.";
            return ("unknown", text.to_owned(), None);
        }
        Growth::Unknown { window_ms } => {
            let text = format!("Measured for {} only: ask again in a moment.", seconds(*window_ms));
            return ("unknown", text, None);
        }
        Growth::Steady => {
            return ("steady", format!("The queue does not grow: {rates}.{}", losses(flow)), None);
        }
        Growth::Shrinks { drain_ms } => {
            let text = format!(
                "The queue becomes shorter: {rates}. It is empty in {} at these rates.{}",
                duration(*drain_ms),
                losses(flow)
            );
            return ("shrinks", text, None);
        }
        Growth::Stands(cause) => (cause, format!("The queue stands still: {rates}.")),
        Growth::Grows(cause) => (cause, format!("The queue grows: {rates}.")),
    };
    let (code, why, remedy) = of_cause(cause, flow, words);
    (code, format!("{begin} {why}{}", losses(flow)), remedy)
}

fn of_cause(
    cause: &GrowthCause<'_>,
    flow: &QueueFlow,
    words: Words<'_>,
) -> (&'static str, String, Option<String>) {
    let each = |consumers: u64| match consumers {
        1 => "the consumer takes".to_owned(),
        all => format!("{all} consumers take"),
    };
    match cause {
        GrowthCause::Obstacle(row) => {
            let ((code, text), remedy) = (words.of(row), words.remedy(&row.verdict));
            match row.consumer {
                Some(_) => {
                    (code, format!("The consumer nearest to its next message: {}", lower(&text)), remedy)
                }
                None => (code, text, remedy),
            }
        }
        GrowthCause::Redeliveries { redelivered, consumed } => {
            let text = format!(
                "Consumers give messages back: {redelivered} of the deliveries were repeated, and {consumed} \
                 messages were acknowledged."
            );
            let remedy = "See the log of the consumers for the reason, or set a redelivery delay.";
            ("redeliveries", text, Some(remedy.to_owned()))
        }
        GrowthCause::Prefetch { prefetch, held_ms, consumers } => {
            let limit = per_second(*prefetch, *held_ms);
            let text = format!(
                "Consumers wait for credit: a prefetch of {prefetch} at {held_ms} ms from a delivery to its \
                 acknowledgement limits each to {limit} messages/s ({consumers} waiting)."
            );
            let remedy =
                "Raise the prefetch, as far as that time is the network's, or attach more consumers.";
            ("prefetch", text, Some(remedy.to_owned()))
        }
        GrowthCause::SlowConsumers { consumers, needed } => {
            let took = per_second(flow.consumed, flow.window_ms.saturating_mul(*consumers));
            let keeps_up = needed.map_or_else(String::new, |needed| format!(": {needed} would keep up"));
            let came = per_second(flow.came, flow.window_ms);
            let text = format!(
                "Consumers are slower than producers: {} {took} messages/s{}, {came} messages/s come in{keeps_up}.",
                each(*consumers),
                if *consumers == 1 { "" } else { " each" },
            );
            ("slow_consumers", text, Some("Attach more consumers, or make each faster.".to_owned()))
        }
        GrowthCause::FreeCredit { consumers } => {
            let text = format!(
                "Consumers have free credit most of the time ({consumers} attached): deliveries are the limit, by the \
                 disk, by selectors, or by the connections."
            );
            ("free_credit", text, Some("See the consumers below, and the disk in `postroad top`.".to_owned()))
        }
    }
}

/// In and out.
fn rates(flow: &QueueFlow) -> String {
    let rate = |count| per_second(count, flow.window_ms);
    format!("{} messages/s come in, {} leave", rate(flow.came), rate(flow.left()))
}

/// Messages that left without a consumer's acknowledgement.
fn losses(flow: &QueueFlow) -> String {
    let mut text = String::new();
    for (count, what) in [(flow.dead_lettered, "became dead letters"), (flow.expired, "expired")] {
        if 0 < count {
            let noun = if count == 1 { "message" } else { "messages" };
            text.push_str(&format!(" In that time {count} {noun} {what}."));
        }
    }
    text
}

/// With two places at most.
fn per_second(count: u64, in_ms: u64) -> f64 {
    let hundredths = (u128::from(count) * 100_000).checked_div(u128::from(in_ms)).unwrap_or(0);
    hundredths as f64 / 100.0
}

/// Seconds, minutes or hours.
fn duration(ms: u64) -> String {
    match ms.div_ceil(1000) {
        seconds @ 0..=120 => format!("{seconds} s"),
        seconds @ 121..=7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{ConnectionId, ConsumerKey, Destination, Verdict};

    fn consumer(number: u32, settled: u64, held_ms: u64, waiting_ms: u64, prefetch: u64) -> ConsumerFlow {
        ConsumerFlow {
            consumer: ConsumerKey::new(ConnectionId::new(0, 1), number),
            name: format!("c{number}").into(),
            is_link: false,
            window_ms: 60_000,
            settled,
            held_ms,
            waiting_ms,
            prefetch,
        }
    }

    #[test]
    fn the_growth_is_said_with_its_numbers() {
        let queue = Destination::queue("orders");
        let words = Words { queue: &queue, now_ms: 0 };
        let flow = |came, consumed, consumers: Vec<ConsumerFlow>| QueueFlow {
            messages: 600,
            window_ms: 60_000,
            came,
            consumed,
            consumers,
            ..QueueFlow::default()
        };
        let row = |consumer: Option<u32>, verdict| {
            let key = consumer.map(|number| ConsumerKey::new(ConnectionId::new(0, 1), number));
            VerdictRow::new(key, verdict)
        };
        let full = || vec![row(None, Verdict::Ready), row(Some(1), no_credit())];
        let slow = |number| consumer(number, 2_400, 60_000_000, 59_000, 1_000);
        let one_by_one = || consumer(1, 1_500, 60_000, 60_000, 1);
        for (name, flow, rows, code, says, drain_seconds) in [
            (
                "no consumer",
                flow(600, 0, vec![]),
                vec![row(None, Verdict::Ready), row(None, Verdict::NoConsumer)],
                "no_consumer",
                "The queue grows: 10 messages/s come in, 0 leave. No consumer is attached.",
                None,
            ),
            (
                "slow consumers",
                flow(9_000, 7_200, vec![slow(1), slow(2), slow(3)]),
                full(),
                "slow_consumers",
                "Consumers are slower than producers: 3 consumers take 40 messages/s each, 150 messages/s come \
                 in: 4 would keep up.",
                None,
            ),
            (
                "a small prefetch",
                flow(3_000, 1_500, vec![one_by_one()]),
                full(),
                "prefetch",
                "a prefetch of 1 at 40 ms from a delivery to its acknowledgement limits each to 25 messages/s",
                None,
            ),
            (
                "shorter",
                flow(600, 1_200, vec![slow(1)]),
                full(),
                "shrinks",
                "The queue becomes shorter: 10 messages/s come in, 20 leave. It is empty in 60 s",
                Some(60),
            ),
            (
                "redeliveries",
                QueueFlow { redelivered: 900, dead_lettered: 100, ..flow(600, 60, vec![slow(1)]) },
                full(),
                "redeliveries",
                "900 of the deliveries were repeated, and 60 messages were acknowledged. In that time 100 \
                 messages became dead letters.",
                None,
            ),
            (
                "free credit",
                flow(600, 60, vec![consumer(1, 60, 100, 0, 9)]),
                vec![row(None, Verdict::Ready), row(Some(1), Verdict::Takes)],
                "free_credit",
                "Consumers have free credit most of the time (1 attached)",
                None,
            ),
            (
                "nothing",
                QueueFlow { window_ms: 0, ..flow(0, 0, vec![]) },
                vec![],
                "unknown",
                "nothing came or left since the start",
                None,
            ),
        ] {
            let said = Growing::of(&flow, &rows, words);
            assert_eq!(said.code, code, "case: {name}: {}", said.text);
            assert!(said.text.contains(says), "case: {name}: {}", said.text);
            assert_eq!(said.drain_seconds, drain_seconds, "case: {name}");
            assert_eq!(
                said.remedy.is_some(),
                !matches!(code, "unknown" | "steady" | "shrinks"),
                "case: {name}"
            );
        }
    }

    fn no_credit() -> Verdict {
        Verdict::NoCredit { held: 1, in_transaction: false, for_ms: 9 }
    }
}
