//! Publishing to a composite destination without consumers: does the broker keep its rate and its
//! memory?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postroad_openwire::codec::{Destination, Message, Primitive};
use serde::Serialize;

use crate::bodies::Bodies;
use crate::load::{Counters, Worker, durable_message, join, publish, sample};
use crate::{BrokerUrl, Link, LinkError, ServerTime};

/// How the load is made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub url: BrokerUrl,
    /// Its process, if it is on this machine.
    pub server: Option<ServerTime>,
    /// Where every message goes: each is a queue of its own.
    pub targets: u32,
    /// Sets of such queues that have their turns, message by message.
    pub turns: u32,
    /// Publishers, each with a connection of its own.
    pub publishers: u32,
    /// Sends that each publisher keeps unconfirmed.
    pub window: u32,
    /// Messages in all.
    pub messages: u64,
    /// No longer than this, however many they are by then.
    pub time_max: Option<Duration>,
    /// Bytes of each body.
    pub body_bytes: usize,
    /// Whether they are confirmed when they are on the disk.
    pub persistent: bool,
    /// When the messages are due, if not at once.
    pub due: Option<ScheduledMessages>,
    /// How often it is looked.
    pub interval: Duration,
    /// Distinguishes queues of different runs.
    pub run: String,
}

/// Messages that the broker keeps for later.
#[derive(Clone, Copy, Debug)]
pub struct ScheduledMessages {
    /// When the first one is due, from when it was sent.
    pub first: Duration,
    /// The others are due within this time after that, in no order.
    pub spread: Duration,
}

impl ScheduledMessages {
    /// How long after its send the message of this number is due, in ms (a multiplicative hash by
    /// the golden ratio).
    fn delay_ms(self, number: u64) -> u64 {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let place = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * u128::from(ms(self.spread));
        ms(self.first).saturating_add((place >> 64) as u64)
    }
}

/// The properties by which a message is delivered this number of milliseconds after the broker took
/// it.
pub(crate) fn delayed(ms: u64) -> Vec<(String, Primitive)> {
    vec![("AMQ_SCHEDULED_DELAY".to_owned(), Primitive::Long(i64::try_from(ms).unwrap_or(i64::MAX)))]
}

/// One interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Look {
    /// Since the start.
    pub seconds: f64,
    /// Confirmed so far.
    pub published: u64,
    /// Confirmed in this interval, per second.
    pub published_per_second: f64,
    /// The server's resident memory, if its process is known.
    pub resident_mib: Option<f64>,
}

/// The whole load.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// Each interval.
    pub looks: Vec<Look>,
    /// Confirmed sends.
    pub published: u64,
    /// Confirmed sends per second, over all.
    pub published_per_second: f64,
    /// Processor time of the server for each send, if its process is known.
    pub server_cpu_us: Option<f64>,
}

impl Measurement {
    /// Messages for each second of processor time that the server spent.
    pub fn per_core_second(&self) -> Option<f64> {
        self.server_cpu_us.map(|cpu| 1e6 / cpu)
    }
}

/// The composite destination of a turn: `a,b,c` in a client's words.
pub fn destination(plan: &Plan, turn: u32) -> Destination {
    let targets = turn * plan.targets..(turn + 1) * plan.targets;
    let names = targets.map(|target| format!("postroad.bench.{}.{target}", plan.run));
    Destination::Queue(names.collect::<Vec<_>>().join(",").as_str().into())
}

/// Publishes all messages, and reports the progress to `each`.
///
/// # Errors
/// The broker cannot be reached, refuses something, or goes away; the measurement was stopped.
pub fn run(
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    mut each: impl FnMut(&Look),
) -> Result<Measurement, LinkError> {
    let counters = Arc::new(Counters { limit: Some(plan.messages), ..Counters::default() });
    let bodies = Bodies::new(plan.body_bytes);
    let (turns, due) = (0..plan.turns.max(1), plan.due);
    let plain = turns.map(|turn| {
        let destination = destination(plan, turn);
        let plain = durable_message(&destination, Bytes::new(), Vec::new())?;
        Ok((destination, Message { persistent: plan.persistent, ..plain }))
    });
    let plain = plain.collect::<Result<Arc<[_]>, LinkError>>()?;
    let message = move |number: u64| {
        let (destination, plain) = &plain[number as usize % plain.len()];
        match due {
            Some(due) => durable_message(destination, bodies.of(number), delayed(due.delay_ms(number))),
            None => Ok(Message { content: Some(bodies.of(number)), ..plain.clone() }),
        }
    };
    let mut workers: Vec<Worker> = Vec::new();
    let before = sample(plan.server, &counters);
    for _ in 0..plan.publishers {
        let link = Link::open(&plan.url, None, None, Arc::default())?;
        let (counters, message, window) = (counters.clone(), message.clone(), plan.window);
        workers.push(thread::spawn(move || publish(link, message, window, &counters, |_| ())));
    }
    let mut looks = Vec::new();
    let (mut last_at, mut last_published) = (before.at, 0);
    while workers.iter().any(|worker| !worker.is_finished()) {
        let end = Instant::now() + plan.interval;
        while Instant::now() < end && workers.iter().any(|worker| !worker.is_finished()) {
            let is_over = plan.time_max.is_some_and(|max| max <= before.at.elapsed());
            if is_over || stop.load(Ordering::Acquire) {
                counters.publishers_stop.store(true, Ordering::Release);
            }
            thread::sleep(Duration::from_millis(20));
        }
        let now = sample(plan.server, &counters);
        let interval = now.at.duration_since(last_at).as_secs_f64();
        let look = Look {
            seconds: now.at.duration_since(before.at).as_secs_f64(),
            published: now.published,
            published_per_second: (now.published - last_published) as f64 / interval,
            resident_mib: plan.server.and_then(ServerTime::resident_mib),
        };
        each(&look);
        looks.push(look);
        (last_at, last_published) = (now.at, now.published);
    }
    join(workers)?;
    if stop.load(Ordering::Acquire) {
        return Err(LinkError::Stopped);
    }
    let after = sample(plan.server, &counters);
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    Ok(Measurement {
        looks,
        published: after.published,
        published_per_second: after.published as f64 / seconds,
        server_cpu_us: after.cpu_us_per_message(&before),
    })
}
