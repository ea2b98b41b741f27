//! `postroad-bench lower-bound`: the least work of any broker on this machine.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use postroad_bench::lower_bound::{self, Plan, Row};

/// Arguments of `lower-bound`.
#[derive(Debug, Args)]
pub struct LowerBoundArguments {
    /// Directory on the disk, preferably the broker's data directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Number of producers, each with one message in flight.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=500))]
    producers: u16,
    /// Number of consumers that acknowledge each message; 0: no deliveries.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=500))]
    consumers: u16,
    /// Message size in bytes, with headers.
    #[arg(long, value_name = "N", default_value_t = 1300, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    message_bytes: u32,
    /// Duration of each measurement, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    each_ms: u64,
    /// Print JSON, one object per line, instead of a table.
    #[arg(long)]
    json: bool,
}

/// Measures, and prints a table.
pub fn run(arguments: &LowerBoundArguments) -> anyhow::Result<()> {
    let plan = Plan {
        directory: arguments.directory.clone(),
        producers: arguments.producers.into(),
        consumers: arguments.consumers.into(),
        message_bytes: arguments.message_bytes as usize,
        time: Duration::from_millis(arguments.each_ms),
    };
    let rows = lower_bound::run(&plan)
        .with_context(|| format!("cannot measure with a file in {}", plan.directory.display()))?;
    let mut out = std::io::stdout();
    match arguments.json {
        true => rows.iter().try_for_each(|row| Ok(writeln!(out, "{}", serde_json::to_string(row)?)?)),
        false => Ok(print(&mut out, &rows)?),
    }
}

fn print(out: &mut impl Write, rows: &[Row]) -> std::io::Result<()> {
    writeln!(out, "{:<14} {:>12} {:>10} {:>18}", "", "messages/s", "together", "server µs/message")?;
    for Row { synced, per_second, together, server_us } in rows {
        let way = if *synced { "with the disk" } else { "in memory" };
        writeln!(out, "{way:<14} {per_second:>12.0} {together:>10.1} {server_us:>18.1}")?;
    }
    Ok(())
}
