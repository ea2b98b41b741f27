//! Senders that wait for each confirmation, compared with the disk under the broker: how much of
//! its rate of syncs reaches clients?
//!
//! One such sender cannot exceed the disk's rate: its share is the rest after the network and the
//! broker. The round trip is measured by messages that need no disk, so that it can be subtracted.
//! Many senders share each sync, and their share shows how well.
//! For comparison: a server that only receives, writes, syncs and answers, as the limit of the
//! machine.
//!
//! All of it is measured in turn, several times over, as the rate of a disk changes by the minute:
//! the results are medians.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postroad_openwire::codec::Message;
use serde::Serialize;

use crate::disk::measure_sync;
use crate::load::{Counters, drain, durable_message, publish};
use crate::{BrokerUrl, Link, LinkError, ServerTime, backlog, lower_bound, median};

/// Bodies of the messages that need no disk, together: they lie in the broker's memory until all
/// are sent, and a small one blocks a sender of more.
const ROUND_TRIPS_BYTES: u64 = 1 << 20;

/// Bytes that OpenWire adds to a body, about.
const HEADERS_BYTES: usize = 280;

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub url: BrokerUrl,
    /// Its process, if it is on this machine.
    pub server: Option<ServerTime>,
    /// A directory on the broker's disk.
    pub directory: PathBuf,
    /// How often all of it is measured.
    pub rounds: u32,
    /// How long the disk is measured in each, before and after the senders, and the server that
    /// does nothing else.
    pub disk: Duration,
    /// Senders at a time, in turn: each has a connection of its own, and one message under way.
    pub senders: Vec<u32>,
    /// Messages of each sender and round.
    pub messages: u64,
    /// Bytes of each body.
    pub body_bytes: usize,
    /// Distinguishes queues of different runs.
    pub run: String,
}

/// One number of senders.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// How many.
    pub senders: u32,
    /// Confirmed sends per second, together.
    pub published_per_second: f64,
    /// Bytes of bodies in a second, in millions.
    pub megabytes_per_second: f64,
    /// For each sync that the disk alone would have done.
    pub share: f64,
    /// The same of one sender, as if the round trip took no time: the disk's time for a sync,
    /// relative to the time that the sender waits longer than it does without a disk, if it does in
    /// most rounds. Of several it would say nothing, as they share both.
    pub share_less_round_trip: Option<f64>,
    /// Likewise, relative to the disk's time for a sync with a pause as long as the round trip of
    /// such a sender before it.
    pub share_of_paused: Option<f64>,
    /// For each message that a server that does nothing else would have taken in from as many.
    pub share_of_lower_bound: f64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Writes of 4 KiB, each with a sync, in a second: in each round the mean of those before and
    /// behind.
    pub disk_per_second: f64,
    /// How far the fastest look at the disk and the slowest differ: from 1 on; much more, and the
    /// disk had other work.
    pub disk_ratio: f64,
    /// From the send of a non-persistent message to its confirmation: the mean, one at a time, with
    /// as much time between them as the disk takes, since a machine that has slept wakes later.
    pub round_trip_us: f64,
    /// The time of the disk alone for such a write with its sync, with as long a pause after each.
    pub paused_us: f64,
    /// In the order of the plan.
    pub rows: Vec<Row>,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The broker did not do as it should.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The disk cannot be measured.
    #[error("cannot measure the disk under {}: {source}", directory.display())]
    Disk {
        /// Where.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Messages that were confirmed did not come.
    #[error("{want} messages were to be consumed, and {found} came")]
    Missing {
        /// How many.
        want: u64,
        /// How many came.
        found: u64,
    },
}

/// The result of one round.
struct Round {
    /// Seconds that the disk takes for a sync, before and behind.
    disk: [f64; 2],
    /// Seconds to the broker and back.
    trip: f64,
    /// Seconds that the disk takes for a sync with that pause after it.
    paused: f64,
    /// In the order of the plan.
    paces: Vec<Pace>,
}

/// Of one number of senders.
struct Pace {
    published_per_second: f64,
    /// Seconds that each message took, if they were sent one by one.
    waits: Option<f64>,
    lower_bound_per_second: f64,
}

/// Measures the disk, the broker with each number of senders, and the disk again, in rounds; the
/// messages are consumed.
///
/// # Errors
/// The broker cannot be reached, refuses or loses something; the disk cannot be written; the
/// measurement was stopped.
pub fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Measurement, SyncError> {
    let rounds = (0..plan.rounds.max(1)).map(|number| round(plan, number, stop));
    Ok(compare(plan, &rounds.collect::<Result<Vec<_>, _>>()?))
}

fn round(plan: &Plan, number: u32, stop: &Arc<AtomicBool>) -> Result<Round, SyncError> {
    let plan = &Plan { run: format!("{}.{number}", plan.run), ..plan.clone() };
    let before = disk_seconds(plan, Duration::ZERO)?;
    let trips = (ROUND_TRIPS_BYTES / plan.body_bytes.max(1) as u64).clamp(1, plan.messages.max(1));
    let (_, trip) = one_by_one(plan, false, trips, Duration::from_secs_f64(before), stop)?;
    let paused = disk_seconds(plan, Duration::from_secs_f64(trip))?;
    let mut paces = Vec::new();
    for &senders in &plan.senders {
        let lower_bound_per_second = lower_bound_per_second(plan, senders)?;
        let (published_per_second, waits) = match senders {
            1 => one_by_one(plan, true, plan.messages, Duration::ZERO, stop)
                .map(|(per_second, waits)| (per_second, Some(waits)))?,
            _ => (together(plan, senders, stop)?, None),
        };
        paces.push(Pace { published_per_second, waits, lower_bound_per_second });
    }
    Ok(Round { disk: [before, disk_seconds(plan, Duration::ZERO)?], trip, paused, paces })
}

/// One sender that waits for each confirmation, and then for `pause`: messages in a second, and
/// seconds that each took.
fn one_by_one(
    plan: &Plan,
    persistent: bool,
    messages: u64,
    pause: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<(f64, f64), SyncError> {
    let load = load(plan, 1, persistent);
    let destination = backlog::destination(&load, 0);
    let plain = durable_message(&destination, Bytes::from(vec![0; plan.body_bytes]), Vec::new())?;
    let message = Message { persistent, ..plain };
    // The first one pays for initialisation.
    backlog::run(&backlog::Plan { messages: 1, ..load.clone() }, stop, |_| ())?;
    let link = Link::open(&plan.url, None, None, stop.clone())?;
    let counters = Counters { limit: Some(messages), publishers_stop: stop.clone(), ..Counters::default() };
    let (mut waited, began) = (Duration::ZERO, Instant::now());
    let next = |_| {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        Ok(message.clone())
    };
    publish(link, next, 1, &counters, |wait| waited += wait)?;
    let seconds = began.elapsed().as_secs_f64();
    consume(plan, &load, messages + 1, stop)?;
    let messages = messages as f64;
    Ok((messages / seconds, waited.as_secs_f64() / messages))
}

/// This number of senders, each of which waits for its confirmations: messages in a second.
fn together(plan: &Plan, senders: u32, stop: &Arc<AtomicBool>) -> Result<f64, SyncError> {
    let load = load(plan, senders, true);
    // The first messages pay for initialisation.
    let warm = backlog::Plan { messages: u64::from(senders), ..load.clone() };
    backlog::run(&warm, stop, |_| ())?;
    let published_per_second = backlog::run(&load, stop, |_| ())?.published_per_second;
    consume(plan, &load, warm.messages + load.messages, stop)?;
    Ok(published_per_second)
}

fn consume(plan: &Plan, load: &backlog::Plan, want: u64, stop: &Arc<AtomicBool>) -> Result<(), SyncError> {
    let found = drain(&plan.url, backlog::destination(load, 0), want, stop)?;
    if found < want { Err(SyncError::Missing { want, found }) } else { Ok(()) }
}

fn load(plan: &Plan, senders: u32, persistent: bool) -> backlog::Plan {
    backlog::Plan {
        url: plan.url.clone(),
        server: plan.server,
        targets: 1,
        turns: 1,
        publishers: senders,
        window: 1,
        messages: plan.messages * u64::from(senders),
        body_bytes: plan.body_bytes,
        persistent,
        time_max: None,
        due: None,
        interval: Duration::from_secs(5),
        run: format!("{}.{senders}{}", plan.run, if persistent { "" } else { ".volatile" }),
    }
}

/// Of the journal's own way to sync: the mean, as a waiting sender experiences that.
fn disk_seconds(plan: &Plan, pause: Duration) -> Result<f64, SyncError> {
    let row = measure_sync(&plan.directory, plan.disk, pause).map_err(|source| no_disk(plan, source))?;
    Ok(row.block_bytes as f64 / row.bytes_per_second)
}

fn lower_bound_per_second(plan: &Plan, senders: u32) -> Result<f64, SyncError> {
    let lower_bound = lower_bound::Plan {
        directory: plan.directory.clone(),
        producers: senders as usize,
        consumers: 0,
        message_bytes: plan.body_bytes + HEADERS_BYTES,
        time: plan.disk,
    };
    Ok(lower_bound::run_synced(&lower_bound).map_err(|source| no_disk(plan, source))?.per_second)
}

fn no_disk(plan: &Plan, source: io::Error) -> SyncError {
    SyncError::Disk { directory: plan.directory.clone(), source }
}

fn compare(plan: &Plan, rounds: &[Round]) -> Measurement {
    let looks = || rounds.iter().flat_map(|round| round.disk);
    let rows = plan.senders.iter().enumerate().map(|(place, &senders)| {
        let told = |tell: fn(&Round, &Pace) -> f64| {
            median(rounds.iter().map(|round| tell(round, &round.paces[place])))
        };
        let published_per_second = told(|_, pace| pace.published_per_second);
        let less_round_trip = |disk: fn(&Round) -> f64| {
            let shares = rounds.iter().map(|round| Some(disk(round) / round.on_disk(&round.paces[place])?));
            let shares: Vec<f64> = shares.collect::<Option<_>>()?;
            Some(median(shares)).filter(|share| share.is_finite())
        };
        Row {
            senders,
            published_per_second,
            megabytes_per_second: published_per_second * plan.body_bytes as f64 / 1e6,
            share: told(|round, pace| pace.published_per_second * round.disk_seconds()),
            share_less_round_trip: less_round_trip(Round::disk_seconds),
            share_of_paused: less_round_trip(|round| round.paused),
            share_of_lower_bound: told(|_, pace| pace.published_per_second / pace.lower_bound_per_second),
        }
    });
    Measurement {
        disk_per_second: median(rounds.iter().map(|round| 1.0 / round.disk_seconds())),
        disk_ratio: looks().fold(0.0, f64::max) / looks().fold(f64::INFINITY, f64::min),
        round_trip_us: median(rounds.iter().map(|round| round.trip * 1e6)),
        paused_us: median(rounds.iter().map(|round| round.paused * 1e6)),
        rows: rows.collect(),
    }
}

impl Round {
    fn disk_seconds(&self) -> f64 {
        (self.disk[0] + self.disk[1]) / 2.0
    }

    /// Seconds that one sender waited longer than without a disk; `None` of several.
    fn on_disk(&self, pace: &Pace) -> Option<f64> {
        Some((pace.waits? - self.trip).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_told_by_what_the_disk_does_alone_and_by_the_lower_bound_in_medians() {
        let plan = Plan {
            url: BrokerUrl { host: "localhost".to_owned(), port: 61616 },
            server: None,
            directory: PathBuf::new(),
            rounds: 3,
            disk: Duration::ZERO,
            senders: vec![1, 100],
            messages: 1,
            body_bytes: 1000,
            run: String::new(),
        };
        // The disk takes 2 ms, with pauses 2.25, and the way 1.5 ms: a message takes 4 ms, or no
        // longer than the way, or 6.5 ms.
        let round = |wait: f64, disk: [f64; 2]| Round {
            disk,
            trip: 0.0015,
            paused: 0.00225,
            paces: vec![
                Pace { published_per_second: 1.0 / wait, waits: Some(wait), lower_bound_per_second: 500.0 },
                Pace { published_per_second: 12_000.0, waits: None, lower_bound_per_second: 48_000.0 },
            ],
        };
        let rounds = [round(0.004, [0.001, 0.003]), round(0.001, [0.002; 2]), round(0.0065, [0.002; 2])];
        let measured = compare(&plan, &rounds);
        assert_eq!((measured.disk_per_second.round(), measured.disk_ratio.round()), (500.0, 3.0));
        assert_eq!((measured.round_trip_us.round(), measured.paused_us.round()), (1500.0, 2250.0));
        let told = measured.rows.iter().map(|row| {
            let hundredths = |share: f64| (share * 100.0).round();
            let less = row.share_less_round_trip.map(hundredths);
            let paused = row.share_of_paused.map(hundredths);
            let shares = (hundredths(row.share), less, paused, hundredths(row.share_of_lower_bound));
            (row.senders, row.published_per_second.round(), row.megabytes_per_second, shares)
        });
        let want = [
            (1, 250.0, 0.25, (50.0, Some(80.0), Some(90.0), 50.0)),
            (100, 12_000.0, 12.0, (2400.0, None, None, 25.0)),
        ];
        assert_eq!(told.collect::<Vec<_>>(), want);
    }
}
