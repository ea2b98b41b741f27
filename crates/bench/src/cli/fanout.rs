//! `postroad-bench fanout`: the cost of a send to many durable queues.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use postroad_bench::Stop;
use postroad_bench::fanout::{self, Measurement, Plan};

use crate::cli::{Target, run_name};

/// Arguments of `fanout`.
#[derive(Debug, Args)]
pub struct FanoutArguments {
    #[command(flatten)]
    target: Target,
    /// Numbers of virtual-topic queues, measured in turn, each with its own topic.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [1, 10, 100, 1000])]
    queues: Vec<u32>,
    /// Number of rounds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Duration of each measurement, in seconds.
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Body size in bytes.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    body_bytes: usize,
}

/// Measures, and prints a table.
pub fn run(arguments: &FanoutArguments) -> anyhow::Result<()> {
    let seconds = arguments.seconds;
    let plan = Plan {
        url: arguments.target.url.clone(),
        server: arguments.target.server()?,
        queues: arguments.queues.clone(),
        rounds: arguments.rounds,
        window: Duration::try_from_secs_f64(seconds)
            .with_context(|| format!("--seconds {seconds} is not a valid duration"))?,
        body_bytes: arguments.body_bytes,
        run: run_name(),
    };
    let measurements = fanout::run(&plan, &Stop::on_signal()?.flag())?;
    let mut out = std::io::stdout();
    if arguments.target.json {
        for measurement in &measurements {
            writeln!(out, "{}", serde_json::to_string(measurement)?)?;
        }
        return Ok(());
    }
    writeln!(
        out,
        "| queues | published/s | p50 µs | p99 µs | p99.9 µs | server CPU µs/message | p99, ratio to the first | lost |"
    )?;
    writeln!(out, "|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    let first = measurements.first().map_or(0, |first| first.p99_us).max(1);
    for measurement in &measurements {
        let Measurement { queues, published_per_second, p50_us, p99_us, p999_us, lost, .. } = measurement;
        let cpu = measurement.server_cpu_us.map_or_else(|| "–".to_owned(), |cpu| format!("{cpu:.0}"));
        let ratio = *p99_us as f64 / first as f64;
        writeln!(
            out,
            "| {queues} | {published_per_second:.0} | {p50_us} | {p99_us} | {p999_us} | {cpu} | {ratio:.2} | {lost} |"
        )?;
    }
    Ok(())
}
