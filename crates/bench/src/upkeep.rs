//! The latency of sends while the broker writes checkpoints and compacts its journal, beside the
//! latency while it does neither.
//!
//! One publisher sends and waits. Beside it others pass messages through a queue that is read at
//! once: that makes the broker write checkpoints; and leave one in each stretch of the journal:
//! that makes it compact. How often it did is asked of the broker itself, so that nothing is
//! claimed which did not happen. Other brokers do their own upkeep when they like, and are not
//! asked: their windows go by time alone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use postroad_openwire::client::{ClientEvent, Verdict};
use postroad_openwire::codec::Destination;
use serde::Serialize;

use crate::load::{
    Counters, Worker, drain, durable_message, histogram, join, pause, send_one_by_one, subscription,
};
use crate::{BrokerUrl, Link, LinkError, Waited};

/// One message of this many bytes stays: less than a segment, so that there is one in each.
const KEPT_EVERY_BYTES: u64 = 48 << 20;

/// Bytes of each message that passes: large enough that the pace is the disk's and not the
/// protocol's.
const PASSING_BODY_BYTES: usize = 16 << 10;

/// Messages that pass and are not confirmed yet.
const PASSING_WINDOW: u64 = 64;

/// How long it may take until the broker compacts for the first time.
const LEAD_MAX: Duration = Duration::from_secs(120);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(100);

/// A queue that is silent for this long is empty, once there are no more sends to it.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the broker's metrics may take.
const METRICS_MAX: Duration = Duration::from_secs(10);

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub url: BrokerUrl,
    /// Where the broker serves its metrics: host and port. Without metrics of a Postroad nothing is
    /// counted.
    pub metrics: Option<(String, u16)>,
    /// Each window.
    pub window: Duration,
    /// Bytes of each body whose send is measured.
    pub body_bytes: usize,
    /// Bytes in a second that pass through the journal beside it.
    pub passing_bytes_per_second: u64,
    /// Distinguishes queues of different runs.
    pub run: String,
}

/// The load beside the measured sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundLoad {
    /// Nothing.
    Nothing,
    /// Messages pass, and all are consumed: checkpoints.
    Passing,
    /// One in each stretch of the journal stays: checkpoints and compaction.
    Keeping,
}

/// The result of one window.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The load.
    pub beside: BackgroundLoad,
    /// Confirmed sends of the publisher that waits for each.
    pub published: u64,
    /// Median time from a send to its confirmation.
    pub p50_us: u64,
    /// 99 of 100 sends took no longer.
    pub p99_us: u64,
    /// 999 of 1,000 sends took no longer.
    pub p999_us: u64,
    /// The longest.
    pub max_us: u64,
    /// Messages that passed.
    pub passed: u64,
    /// Checkpoints that the broker wrote meanwhile, if its metrics have them.
    pub checkpoints: Option<u64>,
    /// Runs of segments that it compacted, if its metrics have them.
    pub compactions: Option<u64>,
}

impl Measurement {
    /// Bytes of bodies that passed.
    pub fn passed_bytes(&self) -> u64 {
        self.passed * PASSING_BODY_BYTES as u64
    }
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpkeepError {
    /// The broker did not do as it should.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The metrics cannot be had.
    #[error("http://{host}:{port}/metrics: {source}")]
    Metrics {
        /// Where they should be.
        host: String,
        /// Port.
        port: u16,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no such line on the page of metrics: it is another broker's, or an older one's.
    #[error("the metrics have no {name}")]
    NoMetric {
        /// Which one.
        name: &'static str,
    },
    /// The broker did not do the work to be measured.
    #[error("no {what} in the window of {seconds:.0} s: measure for longer, or let more pass")]
    Idle {
        /// The missing work.
        what: &'static str,
        /// How long the window was.
        seconds: f64,
    },
}

/// How much upkeep the broker has done since its start.
#[derive(Clone, Copy)]
struct Done {
    checkpoints: u64,
    compactions: u64,
}

/// Measures all three windows. Empties its queues afterwards.
///
/// # Errors
/// The broker cannot be reached or refuses something; it reports its upkeep, and does none; the
/// measurement was stopped.
pub fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Vec<Measurement>, UpkeepError> {
    let tells = done(plan).is_ok();
    let plan = Plan { metrics: plan.metrics.clone().filter(|_| tells), ..plan.clone() };
    let each = [BackgroundLoad::Nothing, BackgroundLoad::Passing, BackgroundLoad::Keeping];
    each.into_iter().map(|beside| window(&plan, beside, stop)).collect()
}

fn queue(plan: &Plan, name: &str) -> Destination {
    Destination::Queue(format!("postroad.bench.{}.{name}", plan.run).into())
}

fn window(plan: &Plan, beside: BackgroundLoad, stop: &Arc<AtomicBool>) -> Result<Measurement, UpkeepError> {
    let (ends, passed, kept) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let taker = |name: &'static str, count: &Arc<AtomicU64>| {
        let (plan, count, ends) = (plan.clone(), count.clone(), ends.clone());
        thread::spawn(move || take(&plan, name, &count, &ends))
    };
    // Remaining messages would make the broker compact.
    let mut workers: Vec<Worker> = vec![taker("measured", &Arc::default())];
    if beside != BackgroundLoad::Nothing {
        workers.push(taker("passing", &passed));
        let (plan, ends, kept, keeps) =
            (plan.clone(), ends.clone(), kept.clone(), beside == BackgroundLoad::Keeping);
        workers.push(thread::spawn(move || pass(&plan, keeps, &kept, &ends)));
    }
    let measured = measure(plan, beside, &passed, stop);
    ends.store(true, Ordering::Release);
    join(workers)?;
    let measurement = measured?;
    drain(&plan.url, queue(plan, "kept"), kept.load(Ordering::Acquire), stop)?;
    Ok(measurement)
}

fn measure(
    plan: &Plan,
    beside: BackgroundLoad,
    passed: &AtomicU64,
    stop: &Arc<AtomicBool>,
) -> Result<Measurement, UpkeepError> {
    await_first(plan, beside, stop)?;
    let (before, passed_before) = (done(plan)?, passed.load(Ordering::Acquire));
    let mut latency = histogram();
    let published = send(plan, &mut latency, stop)?;
    let (after, passed) = (done(plan)?, passed.load(Ordering::Acquire) - passed_before);
    let since = |count: fn(Done) -> u64| Some(count(after?) - count(before?));
    let (checkpoints, compactions) = (since(|done| done.checkpoints), since(|done| done.compactions));
    let idle = match beside {
        BackgroundLoad::Nothing => None,
        BackgroundLoad::Passing => (checkpoints == Some(0)).then_some("checkpoint"),
        BackgroundLoad::Keeping => (compactions == Some(0)).then_some("compaction"),
    };
    if let Some(what) = idle {
        return Err(UpkeepError::Idle { what, seconds: plan.window.as_secs_f64() });
    }
    Ok(Measurement {
        beside,
        published,
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        p999_us: latency.value_at_quantile(0.999),
        max_us: latency.max(),
        passed,
        checkpoints,
        compactions,
    })
}

/// Waits until the broker does the work to be measured; one without metrics has as long as the
/// window is to begin with it.
fn await_first(plan: &Plan, beside: BackgroundLoad, stop: &AtomicBool) -> Result<(), UpkeepError> {
    let begin = Instant::now();
    if beside == BackgroundLoad::Nothing {
        return Ok(());
    }
    let Some(before) = done(plan)? else { return Ok(pause(plan.window, stop)?) };
    let has_begun = |now: Done| match beside {
        BackgroundLoad::Nothing => true,
        BackgroundLoad::Passing => before.checkpoints < now.checkpoints,
        BackgroundLoad::Keeping => before.compactions < now.compactions,
    };
    while !done(plan)?.is_some_and(has_begun) && begin.elapsed() < LEAD_MAX {
        pause(LOOK, stop)?;
    }
    Ok(())
}

/// Sends and waits for each confirmation, as long as the window is; returns how many.
fn send(plan: &Plan, latency: &mut Histogram<u64>, stop: &Arc<AtomicBool>) -> Result<u64, LinkError> {
    let counters = Counters::default();
    let message = durable_message(&queue(plan, "measured"), vec![b'x'; plan.body_bytes].into(), Vec::new())?;
    let link = Link::open(&plan.url, None, None, Arc::default())?;
    send_one_by_one(link, &message, plan.window, (&counters, latency), stop)?;
    Ok(counters.published.load(Ordering::Acquire))
}

/// Publishes passing messages at their rate, and those that stay.
fn pass(plan: &Plan, keeps: bool, kept: &AtomicU64, ends: &AtomicBool) -> Result<(), LinkError> {
    let body = bytes::Bytes::from(vec![b'x'; PASSING_BODY_BYTES]);
    let passing = durable_message(&queue(plan, "passing"), body.clone(), Vec::new())?;
    let staying = durable_message(&queue(plan, "kept"), body, Vec::new())?;
    let mut link = Link::open(&plan.url, None, None, Arc::default())?;
    let begin = Instant::now();
    let (mut begun, mut confirmed, mut kept_bytes) = (0_u64, 0_u64, 0_u64);
    loop {
        let goes_on = !ends.load(Ordering::Acquire);
        let due = (begin.elapsed().as_secs_f64() * plan.passing_bytes_per_second as f64) as u64;
        while goes_on && begun - confirmed < PASSING_WINDOW && begun * (PASSING_BODY_BYTES as u64) < due {
            let stays = keeps && kept_bytes + KEPT_EVERY_BYTES <= begun * PASSING_BODY_BYTES as u64;
            if stays {
                kept_bytes = begun * PASSING_BODY_BYTES as u64;
                kept.fetch_add(1, Ordering::AcqRel);
            }
            link.client().send(if stays { staying.clone() } else { passing.clone() }, true)?;
            begun += 1;
        }
        if !goes_on && begun == confirmed {
            return link.close();
        }
        let mut event = match link.wait(Some(Instant::now() + Duration::from_millis(5)))? {
            Waited::Event(event) => Some(event),
            _ => None,
        };
        while let Some(one) = event {
            confirmed += u64::from(matches!(one, ClientEvent::Done(_)));
            event = link.at_hand()?;
        }
    }
}

/// Consumes from a queue, until its senders have ended and it is empty.
fn take(plan: &Plan, name: &str, count: &AtomicU64, ends: &AtomicBool) -> Result<(), LinkError> {
    let mut link = Link::open(&plan.url, None, None, Arc::default())?;
    let (_, consumer) = link.client().subscribe(&subscription(queue(plan, name)))?;
    loop {
        match link.wait(Some(Instant::now() + SILENCE))? {
            Waited::Event(ClientEvent::Delivered(incoming)) => {
                link.client().acknowledge(&incoming, &incoming, 1, Verdict::Consumed, false)?;
                count.fetch_add(1, Ordering::AcqRel);
            }
            Waited::Event(_) => {}
            Waited::Timeout | Waited::Stopped if ends.load(Ordering::Acquire) => break,
            Waited::Timeout | Waited::Stopped => {}
        }
    }
    let gone = link.client().unsubscribe(consumer, None)?;
    link.wait_for(gone, |_| ())?;
    link.close()
}

/// The broker's own metrics; `None` if it is not asked.
fn done(plan: &Plan) -> Result<Option<Done>, UpkeepError> {
    let Some((host, port)) = plan.metrics.clone() else { return Ok(None) };
    let page = page(&host, port).map_err(|source| UpkeepError::Metrics { host, port, source })?;
    let value = |name: &'static str| total(&page, name).ok_or(UpkeepError::NoMetric { name });
    let checkpoints = value("postroad_journal_checkpoints_total")?;
    Ok(Some(Done { checkpoints, compactions: value("postroad_journal_compactions_total")? }))
}

/// The values of this one on a page of metrics, all stores together.
fn total(page: &str, name: &str) -> Option<u64> {
    let of_store = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.split_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<u64>().ok()
    };
    page.lines().filter_map(of_store).reduce(|all, one| all + one)
}

fn page(host: &str, port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((host, port))?;
    stream.set_read_timeout(Some(METRICS_MAX))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_counts_in_all_stores() {
        let page = "# TYPE a counter\na 7\na_total{store=\"main\"} 2\na_totally 9\n";
        for (name, want) in [("a", Some(7)), ("a_total", Some(2)), ("b", None)] {
            assert_eq!(total(page, name), want, "{name}");
        }
        assert_eq!(total("a{store=\"x\"} 1\na{store=\"y\"} 2", "a"), Some(3));
    }
}
