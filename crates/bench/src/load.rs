//! Common parts of all loads: publishers on threads of their own, counters, time windows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use postroad_openwire::client::{ClientEvent, Outgoing, OutgoingBody, Subscription, Verdict};
use postroad_openwire::codec::{Destination, Message, Primitive};

use crate::link::now_ms;
use crate::{BrokerUrl, Link, LinkError, ServerTime, Waited};

/// How often a publisher that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// How long a queue may keep a message to itself that is being counted.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Messages that the broker may send a consumer ahead.
const PREFETCH: u16 = 1000;

/// Microseconds; the longest send that is resolved.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Of microseconds: three digits of every value, up to a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_US_MAX, 3).expect("the bounds are constants, and legal")
}

/// The counters of the threads of one load, and their stop signal.
#[derive(Default)]
pub(crate) struct Counters {
    /// Confirmed sends.
    pub published: AtomicU64,
    /// This number of sends, and no more.
    pub limit: Option<u64>,
    /// Sends that were begun.
    pub begun: AtomicU64,
    /// Messages that reached a consumer.
    pub delivered: AtomicU64,
    /// No further sends.
    pub publishers_stop: Arc<AtomicBool>,
    /// Consumers take leave.
    pub subscribers_stop: Arc<AtomicBool>,
}

pub(crate) type Worker = JoinHandle<Result<(), LinkError>>;

/// One look at a load.
pub(crate) struct Sample {
    pub at: Instant,
    pub published: u64,
    pub delivered: u64,
    pub cpu: Option<Duration>,
    /// Processor time of this process, the load itself.
    pub own_cpu: Option<Duration>,
}

pub(crate) fn sample(server: Option<ServerTime>, counters: &Counters) -> Sample {
    Sample {
        published: counters.published.load(Ordering::Acquire),
        delivered: counters.delivered.load(Ordering::Acquire),
        cpu: server.and_then(ServerTime::spent),
        own_cpu: ServerTime::of(std::process::id()).spent(),
        at: Instant::now(),
    }
}

impl Sample {
    /// Processor time of the server for each message published since `before`, in microseconds.
    pub fn cpu_us_per_message(&self, before: &Sample) -> Option<f64> {
        self.us_per_message(before, |sample| sample.cpu)
    }

    /// Processor time of the load itself for each of them.
    pub fn own_cpu_us_per_message(&self, before: &Sample) -> Option<f64> {
        self.us_per_message(before, |sample| sample.own_cpu)
    }

    fn us_per_message(&self, before: &Sample, time: impl Fn(&Sample) -> Option<Duration>) -> Option<f64> {
        let published = self.published - before.published;
        let cpu = time(self)?.saturating_sub(time(before)?);
        (published > 0).then(|| cpu.as_secs_f64() * 1e6 / published as f64)
    }
}

/// Lets the load go on for this time.
///
/// # Errors
/// [`LinkError::Stopped`]: the measurement was stopped.
pub(crate) fn pause(time: Duration, stop: &AtomicBool) -> Result<(), LinkError> {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if stop.load(Ordering::Acquire) {
            return Err(LinkError::Stopped);
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
    Ok(())
}

/// Waits for threads to end; the first failure is the result.
pub(crate) fn join(workers: Vec<Worker>) -> Result<(), LinkError> {
    for worker in workers {
        match worker.join() {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(())
}

/// A persistent message.
pub(crate) fn durable_message(
    destination: &Destination,
    body: Bytes,
    properties: Vec<(String, Primitive)>,
) -> Result<Message, LinkError> {
    let outgoing = Outgoing {
        destination: destination.clone(),
        body: OutgoingBody::Bytes(body),
        properties,
        persistent: true,
        priority: 4,
        timestamp_ms: now_ms(),
        expires_at_ms: 0,
        message_type: None,
        correlation_id: None,
        reply_to: None,
    };
    Ok(outgoing.to_message()?)
}

/// Sends one message again and again during this time, each after the confirmation of the one
/// before, and notes the microseconds that each took.
pub(crate) fn send_one_by_one(
    link: Link,
    message: &Message,
    window: Duration,
    (counters, latency): (&Counters, &mut Histogram<u64>),
    stop: &Arc<AtomicBool>,
) -> Result<(), LinkError> {
    let (ends, stop) = (counters.publishers_stop.clone(), stop.clone());
    let timer = thread::spawn(move || {
        let paused = pause(window, &stop);
        ends.store(true, Ordering::Release);
        paused
    });
    let note = |time: Duration| {
        latency.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    };
    publish(link, |_| Ok(message.clone()), 1, counters, note)?;
    join(vec![timer])
}

/// Sends messages, each by its number among those of this load, `window` of them ahead of their
/// confirmations, until it is stopped. `each` gets the time from the send to its confirmation; with
/// a window above one that includes the wait after the others.
pub(crate) fn publish(
    mut link: Link,
    mut message: impl FnMut(u64) -> Result<Message, LinkError>,
    window: u32,
    counters: &Counters,
    mut each: impl FnMut(Duration),
) -> Result<(), LinkError> {
    let mut begun: VecDeque<Instant> = VecDeque::new();
    loop {
        let mut goes_on = !counters.publishers_stop.load(Ordering::Acquire);
        while goes_on && begun.len() < window as usize {
            let number = counters.begin();
            goes_on = number.is_some();
            if let Some(number) = number {
                let message = message(number)?;
                begun.push_back(Instant::now());
                link.client().send(message, true)?;
            }
        }
        if begun.is_empty() {
            return link.close();
        }
        // A live broker confirms these sends: a wait for them does not end early.
        let Waited::Event(first) = link.wait(Some(Instant::now() + LOOK))? else { continue };
        let mut event = Some(first);
        while let Some(one) = event {
            if let ClientEvent::Done(_) = one {
                counters.published.fetch_add(1, Ordering::AcqRel);
                if let Some(begun) = begun.pop_front() {
                    each(begun.elapsed());
                }
            }
            event = link.at_hand()?;
        }
    }
}

/// Everything that a queue or topic has.
pub(crate) fn subscription(destination: Destination) -> Subscription {
    Subscription { destination, prefetch: PREFETCH, browses: false, selector: None }
}

/// Takes a queue's messages until there are as many as there should be, or none comes any more.
pub(crate) fn drain(
    url: &BrokerUrl,
    queue: Destination,
    want: u64,
    stop: &Arc<AtomicBool>,
) -> Result<u64, LinkError> {
    let mut link = Link::open(url, None, None, stop.clone())?;
    let (_, consumer) = link.client().subscribe(&subscription(queue))?;
    let (mut count, mut first, mut since) = (0, None, 0);
    while count < want {
        match link.wait(Some(Instant::now() + SILENCE_MAX))? {
            Waited::Event(ClientEvent::Delivered(incoming)) => {
                count += 1;
                since += 1;
                let begin = first.get_or_insert_with(|| incoming.clone());
                if since == i32::from(PREFETCH / 2) || count == want {
                    let is_last = count == want;
                    let asked =
                        link.client().acknowledge(begin, &incoming, since, Verdict::Consumed, is_last)?;
                    if is_last {
                        // The reply to the consumer's removal may overtake it: that one waits for
                        // no disk.
                        link.wait_for(asked, |_| ())?;
                    }
                    (first, since) = (None, 0);
                }
            }
            Waited::Event(_) => {}
            Waited::Timeout => break,
            Waited::Stopped => return Err(LinkError::Stopped),
        }
    }
    let gone = link.client().unsubscribe(consumer, None)?;
    link.wait_for(gone, |_| ())?;
    link.close()?;
    Ok(count)
}

impl Counters {
    /// The number of the next send, from 0; `None` if there are enough.
    fn begin(&self) -> Option<u64> {
        let number = self.begun.fetch_add(1, Ordering::AcqRel);
        self.limit.is_none_or(|limit| number < limit).then_some(number)
    }
}
