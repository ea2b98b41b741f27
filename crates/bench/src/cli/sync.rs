//! `postroad-bench sync`: senders that wait for each confirmation, beside the disk's own rate of
//! syncs.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use postroad_bench::Stop;
use postroad_bench::sync::{self, Measurement, Plan};

use crate::cli::{Target, run_name};

/// From this ratio on the looks at the disk are of different disks, as it were.
const UNSTEADY: f64 = 1.5;

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub struct SyncArguments {
    #[command(flatten)]
    target: Target,
    /// Directory on the broker's disk, preferably its data directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Numbers of concurrent senders, measured in turn; each waits for its confirmation.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,100", value_parser = clap::value_parser!(u32).range(1..=1000))]
    senders: Vec<u32>,
    /// Number of messages of each sender.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    messages: u64,
    /// Body size in bytes.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    body_bytes: usize,
    /// Number of rounds; the result is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of each measurement of the disk and of the lower bound, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    disk_ms: u64,
}

/// Measures, and prints a table.
pub fn run(arguments: &SyncArguments) -> anyhow::Result<()> {
    let plan = Plan {
        url: arguments.target.url.clone(),
        server: arguments.target.server()?,
        directory: arguments.directory.clone(),
        rounds: arguments.rounds,
        disk: Duration::from_millis(arguments.disk_ms),
        senders: arguments.senders.clone(),
        messages: arguments.messages,
        body_bytes: arguments.body_bytes,
        run: run_name(),
    };
    let measurement = sync::run(&plan, &Stop::on_signal()?.flag())?;
    let mut out = std::io::stdout();
    match arguments.target.json {
        true => writeln!(out, "{}", serde_json::to_string(&measurement)?)?,
        false => print(&mut out, &measurement)?,
    }
    Ok(())
}

fn print(out: &mut impl Write, measurement: &Measurement) -> std::io::Result<()> {
    let Measurement { disk_per_second, disk_ratio, round_trip_us, paused_us, rows } = measurement;
    writeln!(
        out,
        "disk alone: {disk_per_second:.0} synced writes a second, {:.0} µs each; round trip to the broker: {round_trip_us:.0} µs; \
         disk alone with a pause of that length after each write: {paused_us:.0} µs",
        1e6 / disk_per_second
    )?;
    if *disk_ratio > UNSTEADY {
        writeln!(
            out,
            "its fastest round was {disk_ratio:.2} times as fast as its slowest: the disk is busy or varies"
        )?;
    }
    writeln!(
        out,
        "{:>8} {:>12} {:>8} {:>18} {:>18} {:>12} {:>33}",
        "senders",
        "messages/s",
        "MB/s",
        "to the disk's rate",
        "less the round trip",
        "with pauses",
        "to the lower bound"
    )?;
    for row in rows {
        let [less, paused] = [row.share_less_round_trip, row.share_of_paused]
            .map(|share| share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}")));
        writeln!(
            out,
            "{:>8} {:>12.0} {:>8.1} {:>18.2} {less:>18} {paused:>12} {:>33.2}",
            row.senders,
            row.published_per_second,
            row.megabytes_per_second,
            row.share,
            row.share_of_lower_bound
        )?;
    }
    Ok(())
}
