//! `postroad-bench depth`: a queue with a long backlog beside the same queue when it was empty, and
//! beside one that still is.

use std::io::Write;

use anyhow::ensure;
use clap::Args;
use postroad_bench::depth::{self, Measurement, Pace, Plan, Round};
use postroad_bench::{Stop, median};

use crate::cli::{Filling, Target, run_name};

/// Arguments of `depth`.
#[derive(Debug, Args)]
pub struct DepthArguments {
    #[command(flatten)]
    target: Target,
    /// Number of messages in the backlog.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    messages: u64,
    /// Number of queues that share the backlog; rates are those of the first.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    queues: u32,
    /// Number of messages to measure a rate.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(4..))]
    probe: u64,
    /// Number of further rounds that measure an empty queue and the deep one in turn.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=1000))]
    rounds: u32,
    #[command(flatten)]
    filling: Filling,
    /// Command that restarts the broker (split at spaces) after a kill, to measure the time to the
    /// first delivery. The broker is killed again at the end. Needs --server-pid.
    #[arg(long, value_name = "COMMAND", requires = "server_pid")]
    restart: Option<String>,
}

/// Measures, and prints how it went.
pub fn run(arguments: &DepthArguments) -> anyhow::Result<()> {
    let restart: Option<Vec<String>> =
        arguments.restart.as_ref().map(|command| command.split_whitespace().map(str::to_owned).collect());
    ensure!(restart.as_ref().is_none_or(|command| !command.is_empty()), "--restart: the command is empty");
    let plan = Plan {
        url: arguments.target.url.clone(),
        server: arguments.target.server()?,
        messages: arguments.messages,
        queues: arguments.queues,
        probe: arguments.probe,
        rounds: arguments.rounds,
        publishers: arguments.filling.publishers,
        window: arguments.filling.window,
        body_bytes: arguments.filling.body_bytes,
        restart,
        run: run_name(),
    };
    let measurement = depth::run(&plan, &Stop::on_signal()?.flag(), |look| {
        eprintln!(
            "{:>6.1} s: {:>9} published, {:>7.0}/s",
            look.seconds, look.published, look.published_per_second
        );
    })?;
    let mut out = std::io::stdout();
    match arguments.target.json {
        true => writeln!(out, "{}", serde_json::to_string(&measurement)?)?,
        false => print(&mut out, &measurement)?,
    }
    Ok(())
}

fn print(out: &mut impl Write, measurement: &Measurement) -> std::io::Result<()> {
    let Measurement {
        messages, empty, deep, resident_before_mib, resident_mib, rested_seconds, restart, ..
    } = measurement;
    let row = |what: &str, decimals: usize, of: fn(&Pace) -> Option<f64>| {
        let (empty, deep) = (of(empty)?, of(deep)?);
        Some(format!("{what:<10} {empty:>12.decimals$} {deep:>14.decimals$} {:>8.2}", deep / empty))
    };
    writeln!(out, "per second empty queue {messages:>14} {:>8}", "ratio")?;
    let paces = [
        row("published", 0, |pace| Some(pace.published_per_second)),
        row("consumed", 0, |pace| Some(pace.consumed_per_second)),
    ];
    paces.iter().flatten().try_for_each(|row| writeln!(out, "{row}"))?;
    if let (Some(publishing), Some(consuming)) = (
        row("publishing", 1, |pace| pace.publishing_micros),
        row("consuming", 1, |pace| pace.consuming_micros),
    ) {
        writeln!(out, "server's processor time, µs a message\n{publishing}\n{consuming}")?;
    }
    print_rounds(out, &measurement.rounds)?;
    if let (Some(before), Some(after), Some(each)) =
        (resident_before_mib, resident_mib, measurement.bytes_per_message())
    {
        writeln!(
            out,
            "memory {before:.1} MiB before, {after:.1} MiB with the backlog: {each:.1} bytes a message"
        )?;
    }
    if let Some(seconds) = rested_seconds {
        writeln!(
            out,
            "background work on the backlog went on for {seconds:.1} s after the last confirmation"
        )?;
    }
    if let Some(restart) = restart {
        let memory = restart.resident_mib.map_or_else(String::new, |mib| format!("; memory {mib:.1} MiB"));
        let (connected, delivered) = (restart.connected_seconds, restart.delivered_seconds);
        writeln!(
            out,
            "after a kill: connected in {connected:.3} s, first delivery in {delivered:.3} s{memory}"
        )?;
    }
    Ok(())
}

/// The value of the median round.
fn print_rounds(out: &mut impl Write, rounds: &[Round]) -> std::io::Result<()> {
    if rounds.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "medians of {} rounds beside the backlog: an empty queue, the deep one, their ratio",
        rounds.len()
    )?;
    let mut print = |what: &str, of: fn(&Pace) -> f64| {
        let (empty, deep) =
            (rounds.iter().map(|round| of(&round.empty)), rounds.iter().map(|round| of(&round.deep)));
        let ratio = median(deep.clone().zip(empty.clone()).map(|(deep, empty)| deep / empty));
        let (empty, deep) = (median(empty), median(deep));
        writeln!(out, "{what:<10} {empty:>12.0} {deep:>14.0} {ratio:>8.2}")
    };
    print("published", |pace| pace.published_per_second)?;
    print("consumed", |pace| pace.consumed_per_second)
}
