//! `postroad ctl broker`: shows the broker, drains it, and resumes it.

use std::io::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::http::{BrokerArguments, Method, request};

/// Which broker, and the action.
#[derive(Debug, Args)]
pub struct BrokerStateArguments {
    /// Action [default: show the broker].
    #[arg(value_enum)]
    action: Option<Action>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Action {
    /// Refuse new connections and messages; deliveries go on. Ends with a restart.
    Drain,
    /// End the draining.
    Resume,
}

/// Carries it out, and prints the state of the broker after it.
pub fn run(arguments: &BrokerStateArguments) -> anyhow::Result<()> {
    let BrokerStateArguments { action, broker, json } = arguments;
    let (method, path) = match action {
        None => (Method::Get, "/api/v1/broker"),
        Some(Action::Drain) => (Method::Post, "/api/v1/broker/drain"),
        Some(Action::Resume) => (Method::Post, "/api/v1/broker/resume"),
    };
    let answer = request(broker, method, path, None)?;
    let mut out = std::io::stdout().lock();
    let printed = if *json {
        writeln!(out, "{answer}")
    } else {
        let text = |member: &str| answer[member].as_str().unwrap_or_default().to_owned();
        let state = if answer["draining"] == true { "draining" } else { "running" };
        let (name, version) = (text("name"), text("version"));
        // A node of a cluster that follows does not say it.
        let uptime = answer["uptime_seconds"].as_u64().map(|seconds| format!(", up for {seconds} s"));
        writeln!(out, "{name}, version {version}, {state}{}", uptime.unwrap_or_default())
    };
    printed.context("cannot write to standard output")
}
