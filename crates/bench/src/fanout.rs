//! Publishing to a topic whose messages go into many durable queues: does a send cost more with
//! each of them?

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hdrhistogram::Histogram;
use postroad_openwire::codec::Destination;
use serde::Serialize;

use crate::load::{Counters, drain, durable_message, histogram, sample, send_one_by_one, subscription};
use crate::{BrokerUrl, Link, LinkError, ServerTime};

/// Queues whose messages are counted afterwards; of more, every n-th is.
const CHECKED_QUEUES_MAX: u32 = 100;

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub url: BrokerUrl,
    /// Its process, if it is on this machine.
    pub server: Option<ServerTime>,
    /// Numbers of queues, each measured with a topic of its own.
    pub queues: Vec<u32>,
    /// How often the series of numbers is gone through: in turn, so that a drift of the machine
    /// hits all of them.
    pub rounds: u32,
    /// One round of one number of queues.
    pub window: Duration,
    /// Bytes of each body.
    pub body_bytes: usize,
    /// Distinguishes topics of different runs.
    pub run: String,
}

/// The result for one number of queues, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// Virtual-topic queues bound to the topic.
    pub queues: u32,
    /// Confirmed sends.
    pub published: u64,
    /// Per second of the windows; one publisher that waits for each confirmation.
    pub published_per_second: f64,
    /// Median time from a send to its confirmation.
    pub p50_us: u64,
    /// 99 of 100 sends took no longer.
    pub p99_us: u64,
    /// 999 of 1,000 sends took no longer.
    pub p999_us: u64,
    /// Processor time of the server for each send, if its process is known.
    pub server_cpu_us: Option<f64>,
    /// Messages that are missing in the queues that were counted.
    pub lost: u64,
}

struct Series {
    queues: u32,
    topic: String,
    latency: Histogram<u64>,
    published: u64,
    seconds: f64,
    cpu: Option<Duration>,
}

/// Measures all numbers of queues, counts the arrived messages, and gives one measurement for each.
///
/// # Errors
/// The broker cannot be reached, refuses something, or goes away; the measurement was stopped.
pub fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Vec<Measurement>, LinkError> {
    let mut all = Vec::new();
    for queues in &plan.queues {
        let topic = format!("VirtualTopic.postroad.bench.{}.{queues}", plan.run);
        make_queues(plan, &topic, *queues, stop)?;
        let latency = histogram();
        all.push(Series { queues: *queues, topic, latency, published: 0, seconds: 0.0, cpu: None });
    }
    for _ in 0..plan.rounds {
        for series in &mut all {
            round(plan, series, stop)?;
        }
    }
    all.into_iter().map(|series| finish(plan, series, stop)).collect()
}

fn queue(topic: &str, number: u32) -> Destination {
    Destination::Queue(format!("Consumer.C{number}.{topic}").into())
}

/// A virtual topic's queue is bound by its first consumer, and stays.
fn make_queues(plan: &Plan, topic: &str, queues: u32, stop: &Arc<AtomicBool>) -> Result<(), LinkError> {
    let mut link = Link::open(&plan.url, None, None, stop.clone())?;
    for number in 0..queues {
        let (attached, consumer) = link.client().subscribe(&subscription(queue(topic, number)))?;
        link.wait_for(attached, |_| ())?;
        let gone = link.client().unsubscribe(consumer, None)?;
        link.wait_for(gone, |_| ())?;
    }
    link.close()
}

fn round(plan: &Plan, series: &mut Series, stop: &Arc<AtomicBool>) -> Result<(), LinkError> {
    let counters = Counters::default();
    let destination = Destination::Topic(series.topic.as_str().into());
    let message = durable_message(&destination, vec![b'x'; plan.body_bytes].into(), Vec::new())?;
    let link = Link::open(&plan.url, None, None, Arc::default())?;
    let before = sample(plan.server, &counters);
    send_one_by_one(link, &message, plan.window, (&counters, &mut series.latency), stop)?;
    let after = sample(plan.server, &counters);
    series.published += after.published;
    series.seconds += after.at.duration_since(before.at).as_secs_f64();
    let spent = after.cpu.zip(before.cpu).map(|(after, before)| after.saturating_sub(before));
    series.cpu = spent.map(|spent| series.cpu.unwrap_or_default() + spent);
    Ok(())
}

fn finish(plan: &Plan, series: Series, stop: &Arc<AtomicBool>) -> Result<Measurement, LinkError> {
    let step = series.queues.div_ceil(CHECKED_QUEUES_MAX).max(1);
    let mut lost = 0;
    for number in (0..series.queues).step_by(step as usize) {
        let there = drain(&plan.url, queue(&series.topic, number), series.published, stop)?;
        lost += series.published.saturating_sub(there);
    }
    let published = series.published;
    let cpu = series.cpu.filter(|_| published > 0);
    Ok(Measurement {
        queues: series.queues,
        published,
        published_per_second: published as f64 / series.seconds,
        p50_us: series.latency.value_at_quantile(0.5),
        p99_us: series.latency.value_at_quantile(0.99),
        p999_us: series.latency.value_at_quantile(0.999),
        server_cpu_us: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / published as f64),
        lost,
    })
}
