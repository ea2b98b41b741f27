//! Senders that wait for each confirmation, beside the disk under the broker: what of its own rate of syncs arrives at clients?
//!
//! One such sender cannot exceed the disk's rate: its share is what is left of it after the network and the broker. Many share
//! each sync, and their share tells how well.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

use crate::disk::measure_sync;
use crate::load::drain;
use crate::{BrokerUrl, LinkError, ServerTime, backlog};

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
    /// For each sync that the disk alone would have done.
    pub share: f64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Writes of 4 KiB, each with a sync, in a second: the mean of those before and behind.
    pub disk_per_second: f64,
    /// How far the two differ: from 1 on; much more, and the disk had other work.
    pub disk_ratio: f64,
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
    let mut paces = Vec::new();
    for &senders in &plan.senders {
        let load = load(plan, senders);
        // The first messages pay for what is made on first use.
        let warm = backlog::Plan { messages: u64::from(senders), ..load.clone() };
        backlog::run(&warm, stop, |_| ())?;
        let pace = backlog::run(&load, stop, |_| ())?.published_per_second;
        let want = warm.messages + load.messages;
        let found = drain(&plan.url, backlog::destination(&load, 0), want, stop)?;
        if found < want {
            return Err(SyncError::Missing { want, found });
        }
        paces.push((senders, pace));
    }
    Ok(compare([before, disk_per_second(plan)?], &paces))
}

fn load(plan: &Plan, senders: u32) -> backlog::Plan {
    backlog::Plan {
        url: plan.url.clone(),
        server: plan.server,
        targets: 1,
        turns: 1,
        publishers: senders,
        window: 1,
        messages: plan.messages * u64::from(senders),
        body_bytes: plan.body_bytes,
        time_max: None,
        due: None,
        interval: Duration::from_secs(5),
        run: format!("{}.{senders}", plan.run),
    }
}

/// Of the journal's own way to sync: by the mean, as that is what a sender that waits feels.
fn disk_per_second(plan: &Plan) -> Result<f64, SyncError> {
    let failed = |source| SyncError::Disk { directory: plan.directory.clone(), source };
    let row = measure_sync(&plan.directory, plan.disk).map_err(failed)?;
    Ok(row.bytes_per_second / row.block_bytes as f64)
}

fn compare(disk: [f64; 2], paces: &[(u32, f64)]) -> Measurement {
    let [before, behind] = disk;
    let disk_per_second = (before + behind) / 2.0;
    let row = |&(senders, published_per_second): &(u32, f64)| Row {
        senders,
        published_per_second,
        share: published_per_second / disk_per_second,
    };
    let disk_ratio = before.max(behind) / before.min(behind);
    Measurement { disk_per_second, disk_ratio, rows: paces.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_told_by_what_the_disk_does_alone() {
        let rows = vec![
            Row { senders: 1, published_per_second: 300.0, share: 0.75 },
            Row { senders: 100, published_per_second: 12_000.0, share: 30.0 },
        ];
        let want = Measurement { disk_per_second: 400.0, disk_ratio: 1.5, rows };
        assert_eq!(compare([480.0, 320.0], &[(1, 300.0), (100, 12_000.0)]), want);
    }
}
