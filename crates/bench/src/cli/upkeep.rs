//! `postroad-bench upkeep`: the cost of checkpoints and compaction for senders.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use postroad_bench::upkeep::{self, BackgroundLoad, Measurement, Plan};
use postroad_bench::{BrokerUrl, Stop};

use crate::cli::run_name;

/// Arguments of `upkeep`.
#[derive(Debug, Args)]
pub struct UpkeepArguments {
    /// URL of the broker; any broker with OpenWire. Checkpoints and compactions are counted on
    /// Postroad only.
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:61616")]
    url: BrokerUrl,
    /// HTTP port of the broker, on the same host.
    #[arg(long, value_name = "PORT", default_value_t = 8161)]
    http_port: u16,
    /// Duration of each of the three windows, in seconds.
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,
    /// Bytes of each measured body.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    body_bytes: usize,
    /// Background load of the journal, in megabytes per second.
    #[arg(long, value_name = "MB", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    passing: u64,
    /// Print JSON, one object per line, instead of a table.
    #[arg(long)]
    json: bool,
}

/// Measures, and prints a table.
pub fn run(arguments: &UpkeepArguments) -> anyhow::Result<()> {
    let seconds = arguments.seconds;
    let plan = Plan {
        url: arguments.url.clone(),
        metrics: Some((arguments.url.host.clone(), arguments.http_port)),
        window: Duration::try_from_secs_f64(seconds)
            .with_context(|| format!("--seconds {seconds} is not a valid duration"))?,
        body_bytes: arguments.body_bytes,
        passing_bytes_per_second: arguments.passing * 1_000_000,
        run: run_name(),
    };
    let measurements = upkeep::run(&plan, &Stop::on_signal()?.flag())?;
    let mut out = std::io::stdout();
    if arguments.json {
        for measurement in &measurements {
            writeln!(out, "{}", serde_json::to_string(measurement)?)?;
        }
        return Ok(());
    }
    writeln!(
        out,
        "| beside | published | p50 µs | p99 µs | p99.9 µs | max µs | MB/s passed | checkpoints | compactions |"
    )?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    for measurement in &measurements {
        print(&mut out, measurement, seconds)?;
    }
    if measurements.iter().all(|measurement| measurement.checkpoints.is_none()) {
        let port = arguments.http_port;
        writeln!(
            out,
            "\nNo metrics of a Postroad at port {port}: checkpoints and compactions cannot be counted."
        )?;
    }
    Ok(())
}

fn print(out: &mut impl Write, measurement: &Measurement, seconds: f64) -> std::io::Result<()> {
    let Measurement { beside, published, p50_us, p99_us, p999_us, max_us, checkpoints, compactions, .. } =
        measurement;
    let beside = match beside {
        BackgroundLoad::Nothing => "nothing",
        BackgroundLoad::Passing => "messages that pass",
        BackgroundLoad::Keeping => "messages that pass, one in 48 MiB stays",
    };
    let told = |count: &Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let (checkpoints, compactions) = (told(checkpoints), told(compactions));
    let passed = measurement.passed_bytes() as f64 / 1e6 / seconds;
    writeln!(
        out,
        "| {beside} | {published} | {p50_us} | {p99_us} | {p999_us} | {max_us} | {passed:.0} | {checkpoints} | {compactions} |"
    )
}
