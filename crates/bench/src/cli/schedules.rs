//! `postroad-bench schedules`: messages that are due later, and whether others are on time
//! meanwhile.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use postroad_bench::Stop;
use postroad_bench::backlog::{self, ScheduledMessages};
use postroad_bench::schedules::{self, Lateness, Measurement, Plan};

use crate::cli::{Filling, Target, run_name};

/// Arguments of `schedules`.
#[derive(Debug, Args)]
pub struct SchedulesArguments {
    #[command(flatten)]
    target: Target,
    /// Number of scheduled messages.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// Hours until the first of them is due; longer than the measurement.
    #[arg(long, value_name = "H", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=8760))]
    first_hours: u64,
    /// Hours over which their times are spread.
    #[arg(long, value_name = "H", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=8760))]
    spread_hours: u64,
    #[command(flatten)]
    filling: Filling,
    /// Number of messages whose lateness is measured, without and with the backlog.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    probe: u32,
    /// Number of these messages due per second.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    probe_per_second: u32,
    /// Data directory of the broker on this machine, to measure disk space.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Measures, and prints how it went.
pub fn run(arguments: &SchedulesArguments) -> anyhow::Result<()> {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let due =
        ScheduledMessages { first: hours(arguments.first_hours), spread: hours(arguments.spread_hours) };
    let waiting = backlog::Plan {
        url: arguments.target.url.clone(),
        server: arguments.target.server()?,
        targets: 1,
        turns: 1,
        publishers: arguments.filling.publishers,
        window: arguments.filling.window,
        messages: arguments.messages,
        time_max: None,
        body_bytes: arguments.filling.body_bytes,
        persistent: true,
        due: Some(due),
        interval: Duration::from_secs(5),
        run: run_name(),
    };
    let plan = Plan { waiting, probe: arguments.probe, probe_per_second: arguments.probe_per_second };
    let disk = || arguments.data.as_deref().map(disk_bytes).transpose();
    let disk_before = disk()?;
    let measurement = schedules::run(&plan, &Stop::on_signal()?.flag(), |look| {
        eprintln!(
            "{:>6.1} s: {:>9} scheduled, {:>7.0}/s",
            look.seconds, look.published, look.published_per_second
        );
    })?;
    let disk_bytes = disk()?.zip(disk_before).map(|(after, before)| after.saturating_sub(before));
    let mut out = io::stdout();
    match arguments.target.json {
        true => {
            let mut all = serde_json::to_value(measurement)?;
            all["disk_bytes"] = serde_json::to_value(disk_bytes)?;
            writeln!(out, "{all}")?;
        }
        false => print(&mut out, &measurement, disk_bytes)?,
    }
    Ok(())
}

/// Disk space of the files of a directory, without holes.
fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path())?,
            Ok(metadata) => metadata.blocks() * 512,
            // A running broker removes files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(bytes)
}

fn print(out: &mut impl Write, measurement: &Measurement, disk_bytes: Option<u64>) -> io::Result<()> {
    let Measurement { messages, published_per_second, resident_before_mib, resident_mib, alone, beside } =
        measurement;
    writeln!(out, "{messages} messages scheduled, {published_per_second:.0}/s")?;
    if let (Some(before), Some(after), Some(each)) =
        (resident_before_mib, resident_mib, measurement.bytes_per_message())
    {
        writeln!(out, "memory {before:.1} MiB before, {after:.1} MiB with them: {each:.1} bytes a message")?;
    }
    if let Some(bytes) = disk_bytes {
        let each = bytes as f64 / *messages as f64;
        writeln!(out, "disk {:.1} MiB: {each:.0} bytes a message", bytes as f64 / 1024.0 / 1024.0)?;
    }
    writeln!(
        out,
        "{:<12} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "late by ms", "p50", "p99", "max", "came", "early"
    )?;
    for (name, late) in [("alone", alone), ("beside them", beside)] {
        let Lateness { came, early, p50_ms, p99_ms, max_ms } = late;
        writeln!(out, "{name:<12} {p50_ms:>8} {p99_ms:>8} {max_ms:>8} {came:>8} {early:>8}")?;
    }
    Ok(())
}
