//! `postroad-bench noisy`: one tenant's latency while another sends ten times its share.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use postroad_bench::noisy::{self, Neighbour, NoisyPlan, Window};
use postroad_bench::{BrokerUrl, Stop};

/// Arguments of `noisy`.
#[derive(Debug, Args)]
pub struct NoisyArguments {
    /// URL of the broker; any broker with OpenWire.
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:61616")]
    url: BrokerUrl,
    /// Prefix of the noisy tenant's queues.
    #[arg(long, value_name = "NAME", default_value = "loud")]
    noisy: String,
    /// Prefix of the quiet tenant's queues.
    #[arg(long, value_name = "NAME", default_value = "calm")]
    quiet: String,
    /// Connections of the noisy tenant that send.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Unconfirmed sends of each of them.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// Sends of the quiet tenant in a second.
    #[arg(long, value_name = "N", default_value_t = 200.0)]
    rate: f64,
    /// Connections of the quiet tenant.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    quiet_connections: u32,
    /// Body size in bytes.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    body_bytes: usize,
    /// Have the broker trace the quiet tenant's sends, and name the slowest with --json.
    #[arg(long)]
    trace: bool,
    /// Duration of each window, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Number of pairs of windows.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Measures, and prints a table.
pub fn run(arguments: &NoisyArguments) -> anyhow::Result<()> {
    let seconds = arguments.seconds;
    anyhow::ensure!(0.0 < arguments.rate && arguments.rate <= 1e6, "--rate must be above 0, at most 1000000");
    let plan = NoisyPlan {
        url: arguments.url.clone(),
        tenants: [arguments.noisy.clone(), arguments.quiet.clone()],
        connections: arguments.connections,
        window: arguments.window,
        quiet_rate: arguments.rate,
        quiet_connections: arguments.quiet_connections,
        body_bytes: arguments.body_bytes,
        traces: arguments.trace,
        duration: Duration::try_from_secs_f64(seconds)
            .with_context(|| format!("--seconds {seconds} is not a valid duration"))?,
        rounds: arguments.rounds,
    };
    let outcome = noisy::run(&plan, &Stop::on_signal()?.flag())?;
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
        return Ok(());
    }
    writeln!(out, "| neighbour | offered/s | confirmed/s | sends | p50 µs | p99 µs | p99.9 µs |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|")?;
    for window in &outcome.windows {
        let Window { neighbour, offered_per_second, noisy_per_second, quiet_sends, .. } = window;
        let Window { p50_us, p99_us, p999_us, .. } = window;
        let neighbour = match neighbour {
            Neighbour::Silent => "silent",
            Neighbour::AtShare => "at its share",
            Neighbour::Noisy => "ten times its share",
        };
        writeln!(
            out,
            "| {neighbour} | {offered_per_second:.0} | {noisy_per_second:.0} | {quiet_sends} | {p50_us} | {p99_us} | {p999_us} |"
        )?;
    }
    let ratios: Vec<String> = outcome.ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    writeln!(
        out,
        "\np99 beside ten times the share over p99 beside the share: {}; median {:.2}; {:.0} sends/s without the quiet tenant",
        ratios.join(", "),
        outcome.ratio,
        outcome.capacity_per_second
    )?;
    Ok(())
}
