//! Scheduled messages: the memory of many of them, and whether others are on time meanwhile.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use postroad_openwire::client::{ClientEvent, Incoming, Verdict};
use postroad_openwire::codec::Destination;
use serde::Serialize;

use crate::backlog::{self, Look, delayed};
use crate::link::now_ms;
use crate::load::{durable_message, subscription};
use crate::{Link, LinkError, ServerTime, Waited};

/// Milliseconds; the latest message that is resolved.
const LATE_MS_MAX: u64 = 3_600_000;

/// Delay of the first probe: all are sent by then.
const LEAD: Duration = Duration::from_secs(5);

/// Probes that are sent ahead of their confirmations: their delays are counted from when they
/// arrive, so they must not wait.
const SENT_AT_ONCE: usize = 100;

/// How long after the last one was due a message may still come.
const PATIENCE: Duration = Duration::from_secs(30);

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The messages that wait.
    pub waiting: backlog::Plan,
    /// Messages that are due meanwhile.
    pub probe: u32,
    /// How many of these are due in a second.
    pub probe_per_second: u32,
}

/// How late messages came, by the clock of the machine that sent and received them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// How many came.
    pub came: u64,
    /// How many of these ahead of their time.
    pub early: u64,
    /// Median.
    pub p50_ms: u64,
    /// 99 of 100 came no later.
    pub p99_ms: u64,
    /// None came later.
    pub max_ms: u64,
}

/// All of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measurement {
    /// Messages that wait.
    pub messages: u64,
    /// Confirmed sends of these per second.
    pub published_per_second: f64,
    /// The server's memory before them.
    pub resident_before_mib: Option<f64>,
    /// With them.
    pub resident_mib: Option<f64>,
    /// With nothing else scheduled.
    pub alone: Lateness,
    /// While all these waited.
    pub beside: Lateness,
}

impl Measurement {
    /// Memory of the server for one waiting message.
    pub fn bytes_per_message(&self) -> Option<f64> {
        let grown = self.resident_mib? - self.resident_before_mib?;
        Some(grown * 1024.0 * 1024.0 / self.messages as f64)
    }
}

/// Measures how late messages are with nothing else scheduled, schedules the others, and measures
/// again. These stay.
///
/// # Errors
/// The broker cannot be reached, refuses something, or goes away; the measurement was stopped.
pub fn run(plan: &Plan, stop: &Arc<AtomicBool>, each: impl FnMut(&Look)) -> Result<Measurement, LinkError> {
    let memory = || plan.waiting.server.and_then(ServerTime::resident_mib);
    let alone = probe(plan, "alone", stop)?;
    let resident_before_mib = memory();
    let filled = backlog::run(&plan.waiting, stop, each)?;
    let resident_mib = memory();
    let beside = probe(plan, "beside", stop)?;
    Ok(Measurement {
        messages: filled.published,
        published_per_second: filled.published_per_second,
        resident_before_mib,
        resident_mib,
        alone,
        beside,
    })
}

/// Sends messages that are due one after the other, and takes them as they come. Each says in its
/// body when it is due.
fn probe(plan: &Plan, name: &str, stop: &Arc<AtomicBool>) -> Result<Lateness, LinkError> {
    let queue = Destination::Queue(format!("postroad.bench.{}.{name}", plan.waiting.run).into());
    let mut reader = Link::open(&plan.waiting.url, None, None, stop.clone())?;
    let (attached, _) = reader.client().subscribe(&subscription(queue.clone()))?;
    reader.wait_for(attached, |_| ())?;
    let mut sender = Link::open(&plan.waiting.url, None, None, stop.clone())?;
    let first_ms = now_ms().saturating_add(u64::try_from(LEAD.as_millis()).unwrap_or(u64::MAX));
    let rate = u64::from(plan.probe_per_second.max(1));
    let numbers: Vec<u64> = (0..u64::from(plan.probe)).collect();
    for numbers in numbers.chunks(SENT_AT_ONCE) {
        let mut last = None;
        for number in numbers {
            let due_ms = first_ms.saturating_add(number * 1000 / rate);
            let body = Bytes::copy_from_slice(&due_ms.to_be_bytes());
            let message = durable_message(&queue, body, delayed(due_ms.saturating_sub(now_ms())))?;
            last = Some(sender.client().send(message, true)?.0);
        }
        if let Some(last) = last {
            sender.wait_for(last, |_| ())?;
        }
    }
    let length = Duration::from_secs(u64::from(plan.probe / plan.probe_per_second.max(1)));
    let came = take(&mut reader, u64::from(plan.probe), Instant::now() + LEAD + length + PATIENCE)?;
    reader.close()?;
    sender.close()?;
    Ok(came)
}

/// Takes this number of messages, or those that come until then.
fn take(reader: &mut Link, want: u64, until: Instant) -> Result<Lateness, LinkError> {
    let mut late =
        Histogram::<u64>::new_with_max(LATE_MS_MAX, 3).expect("the bounds are constants, and legal");
    let mut early = 0;
    while late.len() < want {
        match reader.wait(Some(until))? {
            Waited::Event(ClientEvent::Delivered(incoming)) => {
                let (now_ms, due_ms) = (now_ms(), due_of(&incoming));
                early += u64::from(now_ms < due_ms);
                late.saturating_record(now_ms.saturating_sub(due_ms));
                let is_last = late.len() == want;
                reader.client().acknowledge(&incoming, &incoming, 1, Verdict::Consumed, is_last)?;
            }
            Waited::Event(_) => {}
            Waited::Timeout => break,
            Waited::Stopped => return Err(LinkError::Stopped),
        }
    }
    Ok(Lateness {
        came: late.len(),
        early,
        p50_ms: late.value_at_quantile(0.5),
        p99_ms: late.value_at_quantile(0.99),
        max_ms: late.max(),
    })
}

fn due_of(incoming: &Incoming) -> u64 {
    let content = incoming.message.content.as_deref().unwrap_or_default();
    content.first_chunk().map_or(0, |due_ms| u64::from_be_bytes(*due_ms))
}
