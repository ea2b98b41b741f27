//! Queues over HTTP: batches of IronMQ's clients in the shape of the published figures, and batches
//! of SQS's clients.
//!
//! | measurement | clients | requests |
//! |---|---|---|
//! | [`Shape::ManyProducers`] | 12 for each of 7 queues | post 100 |
//! | [`Shape::OneProducer`] | 1 | post 100 |
//! | [`Shape::OneConsumer`] | 1, of the queue that the producer has filled | reserve 100, delete 100 |
//! | [`Shape::SqsProducers`] | 12 of one queue | SendMessageBatch of 10 |
//! | [`Shape::SqsConsumers`] | 12 of that queue | ReceiveMessage of 10, DeleteMessageBatch of 10 |
//!
//! Each client has a connection and a thread, and waits for each answer. Consumers go on until the
//! queue is empty, and count: a message that was confirmed and is not consumed is lost, and the
//! result says so.

mod iron;
mod sqs;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::histogram;
use crate::{ServerTime, median};
use wire::Wire;

pub use wire::{HttpError, HttpUrl};

/// Queues and producers of the published measurement.
const QUEUES: usize = 7;
const PRODUCERS: usize = 12;

/// Clients of the measurement of SQS.
const SQS_CLIENTS: usize = 12;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// See the head of this file.
    ManyProducers,
    /// See the head of this file.
    OneProducer,
    /// See the head of this file.
    OneConsumer,
    /// See the head of this file.
    SqsProducers,
    /// See the head of this file.
    SqsConsumers,
}

/// A measurement to be made.
#[derive(Clone, Debug)]
pub struct HttpLoad {
    /// The broker.
    pub url: HttpUrl,
    /// Another server of SQS, measured in turn with the broker.
    pub sqs_peer: Option<HttpUrl>,
    /// The broker's process, if it is on this machine.
    pub server: Option<ServerTime>,
    /// How often all is measured; the result is the median.
    pub rounds: u32,
    /// How long producers send.
    pub window: Duration,
    /// Sizes of bodies of the measurements of IronMQ.
    pub body_bytes: Vec<usize>,
    /// Size of bodies of the measurements of SQS.
    pub sqs_body_bytes: usize,
    /// Tells the queues of this run from those of others.
    pub run: String,
}

/// A result: the median of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct HttpRate {
    /// What was measured.
    pub shape: Shape,
    /// Whether of the other server.
    pub is_peer: bool,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Messages in a second.
    pub per_second: f64,
    /// Bytes of bodies in a second, in millions.
    pub mb_per_second: f64,
    /// Half of the requests took no longer, in microseconds.
    pub p50_us: u64,
    /// All but one of a hundred requests took no longer.
    pub p99_us: u64,
    /// Processor time of the broker for each message, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// Confirmed messages that did not come out of their queue, of all rounds.
    pub lost: u64,
}

/// One round of one shape.
struct Sample {
    messages: u64,
    seconds: f64,
    latency: Histogram<u64>,
    cpu: Option<Duration>,
    lost: u64,
}

/// Measures all shapes, round by round.
///
/// # Errors
/// [`HttpError`]: a server does not answer, or not as its protocol says; or the measurement was
/// stopped.
pub fn run(plan: &HttpLoad, stop: &AtomicBool) -> Result<Vec<HttpRate>, HttpError> {
    let mut rows: Vec<((Shape, bool, usize), Vec<Sample>)> = Vec::new();
    let mut add = |round: u32, key: (Shape, bool, usize), sample: Sample| match rows
        .iter_mut()
        .find(|row| row.0 == key)
    {
        _ if round == 0 => {}
        Some(row) => row.1.push(sample),
        None => rows.push((key, vec![sample])),
    };
    // The first round is a warm-up: a server in Java compiles its code while it runs.
    for round in 0..=plan.rounds {
        let run = format!("{}-{round}", plan.run);
        for body_bytes in &plan.body_bytes {
            for (shape, sample) in iron::round(plan, &run, *body_bytes, stop)? {
                add(round, (shape, false, *body_bytes), sample);
            }
        }
        let peer = plan.sqs_peer.iter().map(|peer| (peer, None, true));
        for (url, server, is_peer) in std::iter::once((&plan.url, plan.server, false)).chain(peer) {
            for (shape, sample) in sqs::round(plan, url, server, &run, stop)? {
                add(round, (shape, is_peer, plan.sqs_body_bytes), sample);
            }
        }
    }
    Ok(rows.into_iter().map(|(key, samples)| merged(key, &samples)).collect())
}

fn merged((shape, is_peer, body_bytes): (Shape, bool, usize), samples: &[Sample]) -> HttpRate {
    let rates = samples.iter().map(|sample| sample.messages as f64 / sample.seconds.max(f64::EPSILON));
    let per_second = median(rates);
    let mut latency = histogram();
    for sample in samples {
        // All have the same bounds.
        let _ = latency.add(&sample.latency);
    }
    let cpu = samples
        .iter()
        .filter(|sample| 0 < sample.messages)
        .filter_map(|sample| Some(sample.cpu?.as_secs_f64() * 1e6 / sample.messages as f64));
    let cpu: Vec<f64> = cpu.collect();
    HttpRate {
        shape,
        is_peer,
        body_bytes,
        per_second,
        mb_per_second: per_second * body_bytes as f64 / 1e6,
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        server_cpu_us: (!cpu.is_empty()).then(|| median(cpu)),
        lost: samples.iter().map(|sample| sample.lost).sum(),
    }
}

/// The clients of a measurement: each says how many messages its next request has moved; zero ends
/// it.
fn measure<C: FnMut(&mut Wire) -> Result<u64, HttpError> + Send>(
    url: &HttpUrl,
    server: Option<ServerTime>,
    window: Option<Duration>,
    clients: Vec<C>,
    stop: &AtomicBool,
) -> Result<Sample, HttpError> {
    let (spent, began) = (server.and_then(ServerTime::spent), Instant::now());
    let messages = AtomicU64::new(0);
    let client = |mut request: C| -> Result<Histogram<u64>, HttpError> {
        let (mut wire, mut latency) = (Wire::open(url)?, histogram());
        while window.is_none_or(|window| began.elapsed() < window) {
            if stop.load(Ordering::Acquire) {
                return Err(HttpError::Stopped);
            }
            let asked = Instant::now();
            let moved = request(&mut wire)?;
            latency.saturating_record(asked.elapsed().as_micros() as u64);
            if moved == 0 {
                break;
            }
            messages.fetch_add(moved, Ordering::Relaxed);
        }
        Ok(latency)
    };
    let latencies: Result<Vec<Histogram<u64>>, HttpError> = thread::scope(|scope| {
        let threads: Vec<_> = clients.into_iter().map(|request| scope.spawn(|| client(request))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(HttpError::Stopped))).collect()
    });
    let mut latency = histogram();
    for one in latencies? {
        // All have the same bounds.
        let _ = latency.add(&one);
    }
    let cpu =
        server.and_then(ServerTime::spent).zip(spent).map(|(after, before)| after.saturating_sub(before));
    let seconds = began.elapsed().as_secs_f64();
    Ok(Sample { messages: messages.into_inner(), seconds, latency, cpu, lost: 0 })
}
