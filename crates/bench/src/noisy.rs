//! A noisy neighbour: how much longer do the sends of one tenant take while another tenant sends
//! ten times its share?
//!
//! The noisy tenant's capacity is measured first, alone. Its share is half of that, as the two
//! tenants have equal shares. Then the quiet tenant's sends are measured at a steady low rate,
//! beside a neighbour at its share and beside one at ten times its share, in turn, so that a drift
//! of the machine hits both. Both windows have the same connections on the same machine: the time
//! that the quiet tenant would need alone is a third window, which no ratio refers to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use postroad_openwire::client::{ClientEvent, Verdict, message_id_text};
use postroad_openwire::codec::{Destination, Primitive};
use serde::Serialize;

use crate::load::{Worker, durable_message, histogram, join, pause, subscription};
use crate::{BrokerUrl, Link, LinkError, Waited, median};

/// How much more than its share the noisy tenant offers.
pub const NOISE_FACTOR: f64 = 10.0;

/// Sends of the noisy tenant that are due are looked at this often.
const TICK: Duration = Duration::from_millis(1);

/// How far the quiet tenant's client takes precedence over others on its processor, as `nice`
/// counts: it is to measure the broker, and not how long it waits for a processor.
const QUIET_NICE: i32 = -15;

/// Queues of the noisy tenant, each with a consumer.
const QUEUES: u32 = 2;

/// Deliveries that a consumer acknowledges together.
const ACKNOWLEDGED_TOGETHER: i32 = 100;

/// How often a thread that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Trace context of the quiet tenant's sends, which asks the broker to trace each of them.
const TRACE_CONTEXT: &str = "00-706f7374726f61646e6f69737962656e-6368000000000001-01";

/// Of this number of sends in the order of their times, one is named: the slowest ones.
const SLOWEST_OF: usize = 100;

/// A window begins this long after its load.
const SETTLE: Duration = Duration::from_millis(500);

/// How it is measured.
#[derive(Clone, Debug)]
pub struct NoisyPlan {
    /// The broker.
    pub url: BrokerUrl,
    /// Prefix of the queues of the noisy tenant, and of the quiet one.
    pub tenants: [String; 2],
    /// Connections of the noisy tenant that send, each to a queue of its own.
    pub connections: u32,
    /// Unconfirmed sends of each of them.
    pub window: u32,
    /// Sends of the quiet tenant, in a second.
    pub quiet_rate: f64,
    /// Connections that these are spread over, so that one does not wait for the one before.
    pub quiet_connections: u32,
    /// Bytes of each body.
    pub body_bytes: usize,
    /// Whether the broker is asked to trace the sends of the quiet tenant.
    pub traces: bool,
    /// Duration of each window.
    pub duration: Duration,
    /// Pairs of windows.
    pub rounds: u32,
}

/// What the noisy tenant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    /// Nothing.
    Silent,
    /// It sends at its share.
    AtShare,
    /// It offers [`NOISE_FACTOR`] times its share.
    Noisy,
}

/// One window.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// The noisy tenant.
    pub neighbour: Neighbour,
    /// Its sends in a second that were due.
    pub offered_per_second: f64,
    /// Its confirmed sends in a second.
    pub noisy_per_second: f64,
    /// Confirmed sends of the quiet tenant.
    pub quiet_sends: u64,
    /// Median time of these, from when it was due to its confirmation.
    pub p50_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
    /// 999 of 1,000 took no longer.
    pub p999_us: u64,
    /// Ids of the slowest sends, one of 100, if they are traced.
    pub slowest: Vec<String>,
}

/// Times of the quiet tenant's sends.
struct Quiet {
    latency: Histogram<u64>,
    /// Each with its time in microseconds.
    traced: Vec<(u64, String)>,
}

/// The result of all windows.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Confirmed sends of the noisy tenant in a second, without the quiet one.
    pub capacity_per_second: f64,
    /// All windows, in their order.
    pub windows: Vec<Window>,
    /// For each pair, p99 beside the noisy neighbour over p99 beside one at its share.
    pub ratios: Vec<f64>,
    /// The median of these.
    pub ratio: f64,
}

/// Measures.
///
/// # Errors
/// The broker cannot be reached, refuses something, or goes away; the measurement was stopped.
pub fn run(plan: &NoisyPlan, stop: &Arc<AtomicBool>) -> Result<Outcome, LinkError> {
    let capacity = capacity(plan, stop)?;
    let share = capacity / 2.0;
    let mut windows = vec![window(plan, Neighbour::Silent, share, stop)?];
    let mut ratios = Vec::new();
    for round in 0..plan.rounds {
        let is_even = round % 2 == 0;
        let first = if is_even { Neighbour::AtShare } else { Neighbour::Noisy };
        let second = if is_even { Neighbour::Noisy } else { Neighbour::AtShare };
        let pair = [window(plan, first, share, stop)?, window(plan, second, share, stop)?];
        let [calm, noisy] = if is_even { [0, 1] } else { [1, 0] }.map(|place: usize| pair[place].p99_us);
        ratios.push(noisy as f64 / calm.max(1) as f64);
        windows.extend(pair);
    }
    let ratio = median(ratios.iter().copied());
    Ok(Outcome { capacity_per_second: capacity, windows, ratios, ratio })
}

/// Confirmed sends in a second without the quiet tenant.
fn capacity(plan: &NoisyPlan, stop: &Arc<AtomicBool>) -> Result<f64, LinkError> {
    let noise = Noise::begin(plan, None);
    let confirmed = pause(SETTLE, stop).and_then(|()| {
        let (before, begin) = (noise.confirmed(), Instant::now());
        pause(plan.duration, stop)?;
        Ok((noise.confirmed() - before) as f64 / begin.elapsed().as_secs_f64())
    });
    noise.end()?;
    confirmed
}

fn window(
    plan: &NoisyPlan,
    neighbour: Neighbour,
    share: f64,
    stop: &Arc<AtomicBool>,
) -> Result<Window, LinkError> {
    let rate = match neighbour {
        Neighbour::Silent => 0.0,
        Neighbour::AtShare => share,
        Neighbour::Noisy => share * NOISE_FACTOR,
    };
    let noise = Noise::begin(plan, Some(rate));
    let measured = pause(SETTLE, stop).and_then(|()| {
        let (before, begin) = (noise.confirmed(), Instant::now());
        let quiet = measure_quiet(plan, stop)?;
        Ok((quiet, (noise.confirmed() - before) as f64 / begin.elapsed().as_secs_f64()))
    });
    noise.end()?;
    let (Quiet { latency, mut traced }, noisy_per_second) = measured?;
    traced.sort_unstable_by(|one, other| other.cmp(one));
    traced.truncate(traced.len().div_ceil(SLOWEST_OF));
    Ok(Window {
        neighbour,
        offered_per_second: rate,
        noisy_per_second,
        quiet_sends: latency.len(),
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        p999_us: latency.value_at_quantile(0.999),
        slowest: traced.into_iter().map(|(_, id)| id).collect(),
    })
}

/// The sends of the quiet tenant, over all of its connections.
fn measure_quiet(plan: &NoisyPlan, stop: &Arc<AtomicBool>) -> Result<Quiet, LinkError> {
    let connections = (0..plan.quiet_connections).map(|number| {
        let (plan, stop) = (plan.clone(), stop.clone());
        thread::spawn(move || send_quietly(&plan, number, &stop))
    });
    let mut all = Quiet { latency: histogram(), traced: Vec::new() };
    for connection in connections.collect::<Vec<_>>() {
        let one = connection.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        // Both have the same bounds.
        let _ = all.latency.add(one.latency);
        all.traced.extend(one.traced);
    }
    Ok(all)
}

/// Sends one by one, each at its time; one that is late does not hide how late those after it are.
fn send_quietly(plan: &NoisyPlan, number: u32, stop: &AtomicBool) -> Result<Quiet, LinkError> {
    // Without the right to it the figures are less steady.
    let _ = rustix::process::setpriority_process(None, QUIET_NICE);
    let to = Destination::Queue(format!("{}.quiet", plan.tenants[1]).into());
    let context = ("traceparent".to_owned(), Primitive::String(TRACE_CONTEXT.into()));
    let properties = if plan.traces { vec![context] } else { Vec::new() };
    let message = durable_message(&to, vec![b'x'; plan.body_bytes].into(), properties)?;
    let mut link = Link::open(&plan.url, None, None, Arc::default())?;
    let (mut latency, mut traced, begin) = (histogram(), Vec::new(), Instant::now());
    let interval = Duration::from_secs_f64(f64::from(plan.quiet_connections) / plan.quiet_rate);
    // The connections take turns.
    let mut due = begin + interval * number / plan.quiet_connections;
    while due.duration_since(begin) < plan.duration && !stop.load(Ordering::Acquire) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let (request, id) = link.client().send(message.clone(), true)?;
        link.wait_for(request, |_| ())?;
        let micros = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
        latency.saturating_record(micros);
        traced.extend(plan.traces.then(|| (micros, message_id_text(&id))));
        due += interval;
    }
    link.close()?;
    Ok(Quiet { latency, traced })
}

/// The noisy tenant: connections that send, and one that receives.
struct Noise {
    confirmed: Arc<AtomicU64>,
    senders_end: Arc<AtomicBool>,
    receivers_end: Arc<AtomicBool>,
    senders: Vec<Worker>,
    receivers: Vec<Worker>,
}

impl Noise {
    /// At this rate, or as fast as the broker takes it.
    fn begin(plan: &NoisyPlan, rate: Option<f64>) -> Noise {
        let (confirmed, senders_end, receivers_end) = (Arc::default(), Arc::default(), Arc::default());
        let mut noise =
            Noise { confirmed, senders_end, receivers_end, senders: Vec::new(), receivers: Vec::new() };
        if rate == Some(0.0) {
            return noise;
        }
        for number in 0..QUEUES {
            let (plan, ends) = (plan.clone(), noise.receivers_end.clone());
            noise.receivers.push(thread::spawn(move || receive(&plan.url, queue(&plan, number), &ends)));
        }
        for number in 0..plan.connections {
            let (plan, ends, confirmed) = (plan.clone(), noise.senders_end.clone(), noise.confirmed.clone());
            let rate = rate.map(|rate| rate / f64::from(plan.connections));
            let to = queue(&plan, number % QUEUES);
            noise.senders.push(thread::spawn(move || send(&plan, to, rate, (&confirmed, &ends))));
        }
        noise
    }

    fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Acquire)
    }

    fn end(self) -> Result<(), LinkError> {
        self.senders_end.store(true, Ordering::Release);
        let sent = join(self.senders);
        self.receivers_end.store(true, Ordering::Release);
        join(self.receivers).and(sent)
    }
}

fn queue(plan: &NoisyPlan, number: u32) -> Destination {
    Destination::Queue(format!("{}.noisy{number}", plan.tenants[0]).into())
}

/// Sends at the rate, or at once, as far as the window allows.
fn send(
    plan: &NoisyPlan,
    to: Destination,
    rate: Option<f64>,
    (confirmed, ends): (&AtomicU64, &AtomicBool),
) -> Result<(), LinkError> {
    let message = durable_message(&to, vec![b'x'; plan.body_bytes].into(), Vec::new())?;
    let mut link = Link::open(&plan.url, None, None, Arc::default())?;
    let (begin, mut begun, mut done) = (Instant::now(), 0_u64, 0_u64);
    loop {
        let goes_on = !ends.load(Ordering::Acquire);
        let due = rate.map_or(u64::MAX, |rate| (begin.elapsed().as_secs_f64() * rate) as u64);
        while goes_on && begun < due && begun - done < u64::from(plan.window) {
            link.client().send(message.clone(), true)?;
            begun += 1;
        }
        if !goes_on && begun == done {
            return link.close();
        }
        let is_full = begun - done == u64::from(plan.window) || !goes_on;
        let mut event = if is_full {
            match link.wait(Some(Instant::now() + LOOK))? {
                Waited::Event(event) => Some(event),
                _ => None,
            }
        } else {
            link.exchange()?;
            link.at_hand()?
        };
        let before = done;
        while let Some(one) = event {
            done += u64::from(matches!(one, ClientEvent::Done(_)));
            event = link.at_hand()?;
        }
        confirmed.fetch_add(done - before, Ordering::AcqRel);
        if !is_full {
            thread::sleep(TICK);
        }
    }
}

/// Consumes a queue, until its senders have ended and it is empty.
fn receive(url: &BrokerUrl, from: Destination, ends: &AtomicBool) -> Result<(), LinkError> {
    let mut link = Link::open(url, None, None, Arc::default())?;
    let (_, consumer) = link.client().subscribe(&subscription(from))?;
    let mut held = None;
    let mut count = 0;
    loop {
        let waited = link.wait(Some(Instant::now() + LOOK))?;
        let is_idle = !matches!(waited, Waited::Event(_));
        if let Waited::Event(ClientEvent::Delivered(incoming)) = waited {
            count += 1;
            let first = held.take().map_or_else(|| incoming.clone(), |(first, _)| first);
            held = Some((first, incoming));
        }
        if (is_idle || ACKNOWLEDGED_TOGETHER <= count)
            && let Some((first, last)) = held.take()
        {
            link.client().acknowledge(&first, &last, count, Verdict::Consumed, false)?;
            count = 0;
        }
        if is_idle && ends.load(Ordering::Acquire) {
            break;
        }
    }
    let gone = link.client().unsubscribe(consumer, None)?;
    link.wait_for(gone, |_| ())?;
    link.close()
}
