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

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The cost of selectors on a running broker: six experiments, a fitted model, figures.
    Filters(Box<filters::FiltersArguments>),
    /// The latency of sends to a virtual topic with few and with many durable queues.
    Fanout(fanout::FanoutArguments),
    /// Sends to a composite destination that nobody reads: pace and memory.
    Backlog(backlog::BacklogArguments),
    /// A deep queue beside an empty one: pace at both ends, memory of the server, and its start after a kill.
    Depth(depth::DepthArguments),
    /// Messages that are due later: memory of the server, and how late others come meanwhile.
    Schedules(schedules::SchedulesArguments),
    /// The disk under a directory: writes, reads and syncs, and what they mean for a broker.
    Disk(disk::DiskArguments),
    /// What a server that does nothing but receive, write, sync and send takes on this machine: less no broker can.
    LowerBound(lower_bound::LowerBoundArguments),
    /// Senders that wait for each confirmation, beside the disk's own rate of syncs.
    Sync(sync::SyncArguments),
    /// The latency of sends while a running broker writes checkpoints and compacts its journal, beside while it does neither.
    Upkeep(upkeep::UpkeepArguments),
}

/// Which broker is measured, and who reads the result.
#[derive(Debug, Args)]
struct Target {
    /// The broker's URL; any broker that speaks OpenWire.
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:61616", value_parser = parse_url)]
    url: BrokerUrl,
    /// The broker's process on this machine, to measure its processor time and memory.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Print JSON, one object to a line, and no table.
    #[arg(long)]
    json: bool,
}

/// How a queue is filled by several publishers.
#[derive(Debug, Args)]
struct Filling {
    /// Publishers, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    publishers: u32,
    /// Sends that each publisher keeps unconfirmed.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// Bytes of each body.
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

/// Tells the destinations of this run from those of others.
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
