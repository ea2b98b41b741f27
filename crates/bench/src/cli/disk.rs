//! `postroad-bench disk`: the limits of the disk of a directory, and their meaning for a broker.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use postroad_bench::disk::{DiskReport, measure_disk};

/// Arguments of `disk`.
#[derive(Debug, Args)]
pub struct DiskArguments {
    /// Directory on the disk to measure, preferably the future data directory; needs 64 MiB
    /// temporarily.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Duration of each of about thirty measurements, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    each_ms: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Measures, and prints a table and its meaning.
pub fn run(arguments: &DiskArguments) -> anyhow::Result<()> {
    let report = measure_disk(&arguments.directory, Duration::from_millis(arguments.each_ms))
        .with_context(|| format!("cannot measure the disk under {}", arguments.directory.display()))?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        table(&mut out, &report)?;
    }
    Ok(())
}

fn table(out: &mut impl Write, report: &DiskReport) -> std::io::Result<()> {
    writeln!(
        out,
        "{:<26} {:>8} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "what", "KiB", "times", "MB/s", "median µs", "p99", "p99.9", "max"
    )?;
    for row in &report.rows {
        writeln!(
            out,
            "{:<26} {:>8} {:>9} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
            row.name,
            row.block_bytes as f64 / 1024.0,
            row.operations,
            row.bytes_per_second / 1e6,
            row.median_us,
            row.p99_us,
            row.p999_us,
            row.max_us
        )?;
    }
    for refused in &report.refused {
        writeln!(out, "not possible here: {refused}")?;
    }
    for sentence in &report.verdict {
        writeln!(out, "\n{sentence}")?;
    }
    Ok(())
}
