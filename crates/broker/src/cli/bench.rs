//! `postroad bench`: measurements of a broker, or of this machine.

mod backlog;
mod depth;
mod disk;
mod fanout;
mod filters;
mod lower_bound;
mod schedules;
mod sync;
mod upkeep;

use anyhow::Context;
use clap::{Args, Subcommand};
use postroad_bench::{BrokerUrl, ServerTime};

use crate::cli::names::parse_url;
use crate::runtime::now_ms;

/// The measurements.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Measure the cost of selectors on a running broker: six experiments, a fitted model, charts.
    Filters(Box<filters::FiltersArguments>),
    /// Measure the latency of sends to a virtual topic with few and many durable queues.
    Fanout(fanout::FanoutArguments),
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
    /// Compare senders that wait for each confirmation with the disk's rate of syncs.
    Sync(sync::SyncArguments),
    /// Measure the latency of sends during checkpoints and compaction, and without them.
    Upkeep(upkeep::UpkeepArguments),
}

/// Which broker is measured, and who reads the result.
#[derive(Debug, Args)]
struct Target {
    /// URL of the broker; any broker with OpenWire.
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:61616", value_parser = parse_url)]
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
    now_ms().to_string()
}

/// Measures.
pub fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Filters(arguments) => filters::run(arguments),
        Bench::Fanout(arguments) => fanout::run(arguments),
        Bench::Backlog(arguments) => backlog::run(arguments),
        Bench::Depth(arguments) => depth::run(arguments),
        Bench::Schedules(arguments) => schedules::run(arguments),
        Bench::Disk(arguments) => disk::run(arguments),
        Bench::LowerBound(arguments) => lower_bound::run(arguments),
        Bench::Sync(arguments) => sync::run(arguments),
        Bench::Upkeep(arguments) => upkeep::run(arguments),
    }
}
