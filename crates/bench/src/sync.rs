//! Senders that wait for each confirmation, beside the disk under the broker: what of its own rate of syncs arrives at clients?
//!
//! One such sender cannot exceed the disk's rate: its share is what is left of it after the network and the broker. The way to the
//! broker and back is measured by messages that need no disk, so that it can be taken off. Many senders share each sync, and their share tells how well.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

use crate::disk::measure_sync;
use crate::load::drain;
use crate::{BrokerUrl, LinkError, ServerTime, backlog};

/// Bodies of the messages that need no disk, together: they lie in the broker's memory until all are sent, and a small one holds up whoever
/// sends more.
const ROUND_TRIPS_BYTES: u64 = 1 << 20;

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub url: BrokerUrl,
    /// Its process, if it is on this machine.
    pub server: Option<ServerTime>,
    /// A directory on the broker's disk.
    pub directory: PathBuf,
    /// How long the disk is measured, before and behind the senders each.
    pub disk: Duration,
    /// Senders at a time, in turn: each has a connection of its own, and one message under way.
    pub senders: Vec<u32>,
    /// Messages of each sender.
    pub messages: u64,
    /// Bytes of each body.
    pub body_bytes: usize,
    /// Tells queues of different runs apart.
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
    /// The same of one sender, as if the way to the broker and back took no time: what the disk takes for a sync, to what the sender waits longer
    /// than it does without a disk. Of several it would say nothing, as they share both.
    pub share_less_round_trip: Option<f64>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Writes of 4 KiB, each with a sync, in a second: the mean of those before and behind.
    pub disk_per_second: f64,
    /// How far the two differ: from 1 on; much more, and the disk had other work.
    pub disk_ratio: f64,
    /// From the send of a non-persistent message to its confirmation, one at a time: the mean.
    pub round_trip_us: f64,
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
        /// What the system said.
        source: std::io::Error,
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

/// Measures the disk, the broker with each number of senders, and the disk again; what was sent is consumed.
///
/// # Errors
/// The broker cannot be reached, refuses or loses something; the disk cannot be written; somebody asked us to stop.
pub fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Measurement, SyncError> {
    let before = disk_per_second(plan)?;
    let trips = ROUND_TRIPS_BYTES / plan.body_bytes.max(1) as u64;
    let trips = Plan { messages: trips.clamp(1, plan.messages.max(1)), ..plan.clone() };
    let trips_per_second = pace(&trips, 1, false, stop)?;
    let mut paces = Vec::new();
    for &senders in &plan.senders {
        paces.push((senders, pace(plan, senders, true, stop)?));
    }
    Ok(compare(plan, [before, disk_per_second(plan)?], trips_per_second, &paces))
}

/// Confirmed sends in a second.
fn pace(plan: &Plan, senders: u32, persistent: bool, stop: &Arc<AtomicBool>) -> Result<f64, SyncError> {
    let load = load(plan, senders, persistent);
    // The first messages pay for what is made on first use.
    let warm = backlog::Plan { messages: u64::from(senders), ..load.clone() };
    backlog::run(&warm, stop, |_| ())?;
    let pace = backlog::run(&load, stop, |_| ())?.published_per_second;
    let want = warm.messages + load.messages;
    let found = drain(&plan.url, backlog::destination(&load, 0), want, stop)?;
    if found < want {
        return Err(SyncError::Missing { want, found });
    }
    Ok(pace)
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

/// Of the journal's own way to sync: by the mean, as that is what a sender that waits feels.
fn disk_per_second(plan: &Plan) -> Result<f64, SyncError> {
    let failed = |source| SyncError::Disk { directory: plan.directory.clone(), source };
    let row = measure_sync(&plan.directory, plan.disk).map_err(failed)?;
    Ok(row.bytes_per_second / row.block_bytes as f64)
}

fn compare(plan: &Plan, disk: [f64; 2], trips_per_second: f64, paces: &[(u32, f64)]) -> Measurement {
    let [before, behind] = disk;
    let disk_per_second = (before + behind) / 2.0;
    let less_round_trip = |per_second: f64| {
        let waits = 1.0 / per_second - 1.0 / trips_per_second;
        (0.0 < waits).then(|| 1.0 / disk_per_second / waits)
    };
    let row = |&(senders, published_per_second): &(u32, f64)| Row {
        senders,
        published_per_second,
        megabytes_per_second: published_per_second * plan.body_bytes as f64 / 1e6,
        share: published_per_second / disk_per_second,
        share_less_round_trip: if senders == 1 { less_round_trip(published_per_second) } else { None },
    };
    let (disk_ratio, round_trip_us) = (before.max(behind) / before.min(behind), 1e6 / trips_per_second);
    Measurement { disk_per_second, disk_ratio, round_trip_us, rows: paces.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_told_by_what_the_disk_does_alone() {
        let plan = Plan {
            url: BrokerUrl { host: "localhost".to_owned(), port: 61616 },
            server: None,
            directory: PathBuf::new(),
            disk: Duration::ZERO,
            senders: vec![1, 100],
            messages: 1,
            body_bytes: 1000,
            run: String::new(),
        };
        // 2 ms for the disk alone; 4 ms for a message on the disk, of which 1.5 ms are on the way.
        let measured =
            compare(&plan, [600.0, 400.0], 1e6 / 1500.0, &[(1, 250.0), (100, 12_000.0), (1, 700.0)]);
        assert_eq!((measured.disk_per_second, measured.disk_ratio), (500.0, 1.5));
        assert_eq!(measured.round_trip_us.round(), 1500.0);
        let told = measured.rows.iter().map(|row| {
            let less = row.share_less_round_trip.map(|share| (share * 100.0).round() / 100.0);
            (row.senders, row.share, row.megabytes_per_second, less)
        });
        // The last one would be as fast as without a disk: there is nothing to tell.
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(1, 0.5, 0.25, Some(0.8)), (100, 24.0, 12.0, None), (1, 1.4, 0.7, None)]
        );
    }
}
