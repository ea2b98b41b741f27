//! `postroad-bench`: measurements of a broker, or of this machine.

mod backlog;
mod depth;
mod disk;
mod fanout;
mod filters;
mod http;
mod lower_bound;
mod noisy;
mod schedules;
mod sync;
mod upkeep;

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use postroad_bench::{BrokerUrl, ServerTime};

/// Measurements of a message broker, or of this machine.
#[derive(Debug, Parser)]
#[command(name = "postroad-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the cost of selectors on a running broker: six experiments, a fitted model, charts.
    Filters(Box<filters::FiltersArguments>),
    /// Measure the latency of sends to a virtual topic with few and many durable queues.
    Fanout(fanout::FanoutArguments),
    /// Measure queues over HTTP: batches of IronMQ and SQS, also against another server of SQS.
    Http(http::HttpArguments),
    /// Measure the rate and memory of sends to a composite destination without consumers.
    Backlog(backlog::BacklogArguments),
    /// Compare a deep queue with an empty one: rates, memory, and the start after a kill.
    Depth(depth::DepthArguments),
    /// Measure memory and lateness with many scheduled messages.
    Schedules(schedules::SchedulesArguments),
    /// Measure the disk of a directory, and derive the send rate of a broker.
    Disk(disk::DiskArguments),
    /// Measure the least work of any broker on this machine: receive, write, sync, send.
    LowerBound(lower_bound::LowerBoundArguments),
    /// Measure the latency of one tenant's sends while another tenant sends ten times its share.
    Noisy(noisy::NoisyArguments),
    /// Compare senders that wait for each confirmation with the disk's rate of syncs.
    Sync(sync::SyncArguments),
    /// Measure the latency of sends during checkpoints and compaction, and without them.
    Upkeep(upkeep::UpkeepArguments),
}

/// Which broker is measured, and who reads the result.
#[derive(Debug, Args)]
struct Target {
    /// URL of the broker; any broker with OpenWire.
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:61616")]
    url: BrokerUrl,
    /// Process id of the broker on this machine, to measure its processor time and memory.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Print JSON, one object per line, instead of a table.
    #[arg(long)]
    json: bool,
}

/// How a queue is filled by several publishers.
#[derive(Debug, Args)]
struct Filling {
    /// Number of publishers, each with its own connection.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    publishers: u32,
    /// Number of unconfirmed sends of each publisher.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// Body size in bytes.
    #[arg(long, value_name = "N", default_value_t = 100)]
    body_bytes: usize,
}

impl Target {
    fn server(&self) -> anyhow::Result<Option<ServerTime>> {
        let server = self.server_pid.map(ServerTime::of);
        if let Some(server) = server {
            server.spent().context("--server-pid: no such process on this machine")?;
        }
        Ok(server)
    }
}

/// Distinguishes the destinations of this run from those of others.
fn run_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().to_string()
}

/// Reads the command line and measures.
///
/// # Errors
/// The measurement failed; the error is to be shown, and the exit code is 1.
pub fn run() -> anyhow::Result<()> {
    match &Cli::parse().command {
        Command::Filters(arguments) => filters::run(arguments),
        Command::Fanout(arguments) => fanout::run(arguments),
        Command::Http(arguments) => http::run(arguments),
        Command::Backlog(arguments) => backlog::run(arguments),
        Command::Depth(arguments) => depth::run(arguments),
        Command::Schedules(arguments) => schedules::run(arguments),
        Command::Disk(arguments) => disk::run(arguments),
        Command::LowerBound(arguments) => lower_bound::run(arguments),
        Command::Noisy(arguments) => noisy::run(arguments),
        Command::Sync(arguments) => sync::run(arguments),
        Command::Upkeep(arguments) => upkeep::run(arguments),
    }
}
