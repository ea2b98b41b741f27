//! `postroad-bench backlog`: a composite destination that is published to and not read.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use postroad_bench::Stop;
use postroad_bench::backlog::{self, Look, Plan};

use crate::cli::{Target, run_name};

/// Arguments of `backlog`.
#[derive(Debug, Args)]
pub struct BacklogArguments {
    #[command(flatten)]
    target: Target,
    /// Number of target queues of each message.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    targets: u32,
    /// Total number of messages.
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    messages: u64,
    /// Maximum duration in seconds.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds_max: Option<u64>,
    /// Number of publishers, each with its own connection.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    publishers: u32,
    /// Number of unconfirmed sends of each publisher.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// Body size in bytes.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    body_bytes: usize,
}

/// Measures, and prints how it went.
pub fn run(arguments: &BacklogArguments) -> anyhow::Result<()> {
    let plan = Plan {
        url: arguments.target.url.clone(),
        server: arguments.target.server()?,
        targets: arguments.targets,
        turns: 1,
        publishers: arguments.publishers,
        window: arguments.window,
        messages: arguments.messages,
        time_max: arguments.seconds_max.map(Duration::from_secs),
        body_bytes: arguments.body_bytes,
        persistent: true,
        due: None,
        interval: Duration::from_secs(5),
        run: run_name(),
    };
    let measurement = backlog::run(&plan, &Stop::on_signal()?.flag(), |look| {
        let Look { seconds, published, published_per_second, resident_mib } = look;
        let memory = resident_mib.map_or_else(String::new, |memory| format!(", server {memory:.0} MiB"));
        eprintln!("{seconds:>6.1} s: {published:>9} published, {published_per_second:>7.0}/s{memory}");
    })?;
    let mut out = std::io::stdout();
    if arguments.target.json {
        writeln!(out, "{}", serde_json::to_string(&measurement)?)?;
        return Ok(());
    }
    write!(out, "{:.0} messages/s", measurement.published_per_second)?;
    if let (Some(cpu), Some(rate)) = (measurement.server_cpu_us, measurement.per_core_second()) {
        write!(out, ", {cpu:.1} µs of server CPU each: {rate:.0} messages for each second of one core")?;
    }
    writeln!(out)?;
    Ok(())
}
