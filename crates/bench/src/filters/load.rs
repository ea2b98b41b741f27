//! One load: publishers as fast as confirmations come, subscribers that keep up, filters that get
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postroad_openwire::client::{ClientEvent, ConsumerNumber, Incoming, Subscription, Verdict};
use postroad_openwire::codec::{Destination, Message, Primitive};
use serde::Serialize;

use super::{Filter, Plan, Point};
use crate::load::{Counters, Worker, durable_message, join, pause, publish, sample};
use crate::{BrokerUrl, Link, LinkError, Waited};

/// Sends that may wait for their confirmation, all publishers together.
const OUTSTANDING: u32 = 256;

/// Messages that the broker may send a subscriber ahead.
const PREFETCH: u16 = 1000;

/// Connections that the subscribers share: each is a thread here.
const SUBSCRIBER_LINKS_MAX: u32 = 16;

/// Filters that share a connection: brokers bound the consumers of one.
const FILTERS_PER_LINK: usize = 10_000;

/// Requests that are written ahead of reading the answers.
const SUBSCRIBES_AT_ONCE: u32 = 256;

/// How long messages may take to reach their subscribers, after the last confirmation.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// The result of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The load.
    pub point: Point,
    /// Which round.
    pub round: u32,
    /// Confirmed sends, per second of the window.
    pub received_per_second: f64,
    /// Deliveries, per second of the window.
    pub dispatched_per_second: f64,
    /// Processor time of the server for each message received, if its process is known.
    pub server_cpu_us: Option<f64>,
    /// Processor time of the load itself for each: where both share processors, it is missing for
    /// the server.
    pub load_cpu_us: Option<f64>,
    /// Messages that a subscriber should have got over the whole run, and did not.
    pub lost: u64,
}

/// Puts one load on the broker and measures it.
pub(super) fn measure(
    plan: &Plan,
    round: u32,
    point: Point,
    stop: &Arc<AtomicBool>,
) -> Result<Measurement, LinkError> {
    let topic = Destination::Topic(
        format!("postroad.bench.{}.{}.{}.{round}", point.experiment.name(), point.x, point.subscribers)
            .into(),
    );
    let counters = Arc::new(Counters::default());
    let subscribers = subscribe_all(plan, &point, &topic, &counters)?;
    let publishers = publish_all(plan, &point, &topic, &counters)?;
    pause(plan.warmup, stop)?;
    let before = sample(plan.server, &counters);
    pause(plan.window, stop)?;
    let after = sample(plan.server, &counters);
    counters.publishers_stop.store(true, Ordering::Release);
    join(publishers)?;
    let lost = await_deliveries(&point, &counters);
    counters.subscribers_stop.store(true, Ordering::Release);
    join(subscribers)?;
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let received = after.published - before.published;
    Ok(Measurement {
        point,
        round,
        received_per_second: received as f64 / seconds,
        dispatched_per_second: (after.delivered - before.delivered) as f64 / seconds,
        server_cpu_us: after.cpu_us_per_message(&before),
        load_cpu_us: after.own_cpu_us_per_message(&before),
        lost,
    })
}

fn await_deliveries(point: &Point, counters: &Counters) -> u64 {
    let want = counters.published.load(Ordering::Acquire) * u64::from(point.subscribers);
    let end = Instant::now() + SETTLE_MAX;
    loop {
        let missing = want.saturating_sub(counters.delivered.load(Ordering::Acquire));
        if missing == 0 || Instant::now() > end {
            return missing;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn open(url: &BrokerUrl, stop: &Arc<AtomicBool>) -> Result<Link, LinkError> {
    Link::open(url, None, None, stop.clone())
}

// --- subscribers
// ------------------------------------------------------------------------------------------------

/// Every subscriber is attached when this returns.
fn subscribe_all(
    plan: &Plan,
    point: &Point,
    topic: &Destination,
    counters: &Arc<Counters>,
) -> Result<Vec<Worker>, LinkError> {
    let mut workers = Vec::new();
    let links = point.subscribers.min(SUBSCRIBER_LINKS_MAX);
    for number in 0..links {
        let share = point.subscribers / links + u32::from(number < point.subscribers % links);
        let mut link = open(&plan.url, &counters.subscribers_stop)?;
        subscribe(&mut link, topic, (0..share).map(|_| None), counters)?;
        let counters = counters.clone();
        workers.push(thread::spawn(move || receive(link, &counters)));
    }
    for first in (0..point.filters).step_by(FILTERS_PER_LINK) {
        let numbers = first..point.filters.min(first + FILTERS_PER_LINK as u32);
        let mut link = open(&plan.url, &counters.subscribers_stop)?;
        let selectors = numbers.map(|number| Some(point.filter.selector(number)));
        subscribe(&mut link, topic, selectors, counters)?;
        let counters = counters.clone();
        workers.push(thread::spawn(move || receive(link, &counters)));
    }
    Ok(workers)
}

fn subscribe(
    link: &mut Link,
    topic: &Destination,
    selectors: impl Iterator<Item = Option<String>>,
    counters: &Counters,
) -> Result<(), LinkError> {
    let mut waiting = 0;
    for selector in selectors {
        let subscription =
            Subscription { destination: topic.clone(), prefetch: PREFETCH, browses: false, selector };
        link.client().subscribe(&subscription)?;
        waiting += 1;
        if waiting == SUBSCRIBES_AT_ONCE {
            answers(link, &mut waiting, counters)?;
        }
    }
    answers(link, &mut waiting, counters)
}

fn answers(link: &mut Link, waiting: &mut u32, counters: &Counters) -> Result<(), LinkError> {
    if *waiting == 0 {
        return Ok(());
    }
    link.listen_until(|event| {
        match event {
            ClientEvent::Done(_) => *waiting -= 1,
            ClientEvent::Delivered(_) => {
                counters.delivered.fetch_add(1, Ordering::AcqRel);
            }
            _ => {}
        }
        *waiting == 0
    })
}

/// Unacknowledged messages of a consumer: the first and the last of a range.
struct Unacknowledged {
    consumer: ConsumerNumber,
    first: Incoming,
    last: Incoming,
    count: i32,
}

/// Takes messages until it is stopped, and acknowledges half a prefetch at a time.
fn receive(mut link: Link, counters: &Counters) -> Result<(), LinkError> {
    let mut unacknowledged: Vec<Unacknowledged> = Vec::new();
    loop {
        let incoming = match link.wait(None)? {
            Waited::Event(ClientEvent::Delivered(incoming)) => incoming,
            Waited::Event(_) | Waited::Timeout => continue,
            Waited::Stopped => return link.close(),
        };
        counters.delivered.fetch_add(1, Ordering::AcqRel);
        let known = unacknowledged.iter().position(|one| one.consumer == incoming.consumer);
        let index = match known {
            Some(index) => {
                unacknowledged[index].count += 1;
                unacknowledged[index].last = incoming;
                index
            }
            None => {
                let (consumer, first) = (incoming.consumer, incoming.clone());
                unacknowledged.push(Unacknowledged { consumer, first, last: incoming, count: 1 });
                unacknowledged.len() - 1
            }
        };
        if unacknowledged[index].count >= i32::from(PREFETCH / 2) {
            let done = unacknowledged.swap_remove(index);
            link.client().acknowledge(&done.first, &done.last, done.count, Verdict::Consumed, false)?;
        }
    }
}

// --- publishers
// -------------------------------------------------------------------------------------------------

fn publish_all(
    plan: &Plan,
    point: &Point,
    topic: &Destination,
    counters: &Arc<Counters>,
) -> Result<Vec<Worker>, LinkError> {
    let message = message(topic, point.filter)?;
    let window = (OUTSTANDING / point.publishers).max(1);
    let mut workers = Vec::new();
    for _ in 0..point.publishers {
        let link = open(&plan.url, &Arc::default())?;
        let (counters, message) = (counters.clone(), message.clone());
        workers
            .push(thread::spawn(move || publish(link, |_| Ok(message.clone()), window, &counters, |_| ())));
    }
    Ok(workers)
}

/// A message without a body: the experiments use its properties only.
fn message(topic: &Destination, filter: Filter) -> Result<Message, LinkError> {
    let properties =
        filter.properties().into_iter().map(|name| (name, Primitive::String("0".into()))).collect();
    durable_message(topic, bytes::Bytes::new(), properties)
}
