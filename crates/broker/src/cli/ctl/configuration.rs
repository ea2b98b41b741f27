//! `postroad ctl config`: the configuration of a running broker, and its changes.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, request};
use super::table::{Column, Table};
use super::{FilteredArguments, ListArguments, print, print_rows};

const SETTINGS: &[Column] = &[
    Column::whole("KEY", "key"),
    Column::text("VALUE", "value"),
    Column::text("FROM", "origin"),
    Column::text("CHANGES", "follows"),
];

const CHANGES: &[Column] = &[
    Column::whole("KEY", "key"),
    Column::text("FROM", "from"),
    Column::text("TO", "to"),
    Column::text("IN FORCE", "follows"),
];

const VERSIONS: &[Column] = &[
    Column::number("VERSION", "version"),
    Column::text("AT", "at"),
    Column::text("CAUSE", "cause"),
    Column::number("CHANGES", "changes"),
    Column::text("USER", "user"),
    Column::text("PEER", "peer"),
];

/// Commands for the configuration of a running broker.
#[derive(Debug, Subcommand)]
pub enum ConfigurationCommand {
    /// List the settings in force, and where each comes from.
    Get(FilteredArguments),
    /// List the changes that the configuration file would make to the settings in force.
    Diff(AnswerArguments),
    /// List the changes that another file would make, and which of them need a restart.
    Plan(SourceArguments),
    /// Replace the broker's configuration file; changes that need no restart are in force at once.
    Apply(SourceArguments),
    /// Have the broker read its configuration file again; changes that need no restart are in force
    /// at once.
    Reload(ReloadArguments),
    /// List the versions that have been in force, or print one of them.
    History(HistoryArguments),
}

/// Which broker, and how to print.
#[derive(Debug, Args)]
pub struct AnswerArguments {
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Which configuration.
#[derive(Debug, Args)]
pub struct SourceArguments {
    /// Configuration file (TOML) on this machine.
    #[arg(value_name = "FILE", required_unless_present = "version")]
    file: Option<PathBuf>,
    /// An earlier version of the broker, in place of a file.
    #[arg(long, value_name = "N", conflicts_with = "file")]
    version: Option<u64>,
    #[command(flatten)]
    answer: AnswerArguments,
}

/// Whether to change anything.
#[derive(Debug, Args)]
pub struct ReloadArguments {
    /// List the changes only, as `diff` does.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    answer: AnswerArguments,
}

/// Which version.
#[derive(Debug, Args)]
pub struct HistoryArguments {
    /// Print the text of this version. Secrets are masked.
    #[arg(value_name = "VERSION")]
    version: Option<u64>,
    #[command(flatten)]
    list: ListArguments,
}

pub fn run(command: &ConfigurationCommand) -> anyhow::Result<()> {
    match command {
        ConfigurationCommand::Get(of) => {
            print_rows(&of.list, SETTINGS, "/api/v1/configuration", &of.query(), with_follows)
        }
        ConfigurationCommand::Diff(answer)
        | ConfigurationCommand::Reload(ReloadArguments { dry_run: true, answer }) => {
            let plan = request(&answer.broker, Method::Get, "/api/v1/configuration/diff", None)?;
            let file = plan["file"].as_str().unwrap_or("the command line").to_owned();
            print_plan(&plan, answer.json, &format!("{file} and the settings in force are the same"))
        }
        ConfigurationCommand::Plan(source) => {
            let plan = source.post("/api/v1/configuration/plan")?;
            print_plan(&plan, source.answer.json, "nothing would change")
        }
        ConfigurationCommand::Apply(source) => {
            print_change(&source.post("/api/v1/configuration/apply")?, "applied", source.answer.json)
        }
        ConfigurationCommand::Reload(ReloadArguments { answer, .. }) => {
            let plan = request(&answer.broker, Method::Post, "/api/v1/configuration/reload", None)?;
            print_change(&plan, "reloaded", answer.json)
        }
        ConfigurationCommand::History(HistoryArguments { version: Some(version), list }) => {
            let path = format!("/api/v1/configuration/history/{version}");
            let found = request(&list.broker, Method::Get, &path, None)?;
            let text = found["text"].as_str().unwrap_or_default();
            let mut out = std::io::stdout().lock();
            let written = match list.json {
                true => writeln!(out, "{found}"),
                false => write!(out, "{text}"),
            };
            written.context("cannot write to standard output")
        }
        ConfigurationCommand::History(HistoryArguments { list, .. }) => {
            let path = "/api/v1/configuration/history";
            match list.json {
                true => print(list, VERSIONS, path, &[], None),
                false => print_rows(list, VERSIONS, path, &[], with_author),
            }
        }
    }
}

impl SourceArguments {
    fn post(&self, path: &str) -> anyhow::Result<Value> {
        let body = match &self.file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                json!({ "text": text.with_context(|| format!("cannot read {}", file.display()))? })
            }
            None => json!({ "version": self.version }),
        };
        let answer = request(&self.answer.broker, Method::Post, path, Some(&body));
        answer.with_context(|| match (&self.file, self.version) {
            (Some(file), _) => format!("{} is refused", file.display()),
            (None, version) => format!("version {} is refused", version.unwrap_or_default()),
        })
    }
}

/// Prints changes that were made, and says how many wait.
fn print_change(plan: &Value, made: &str, json: bool) -> anyhow::Result<()> {
    print_plan(plan, json, "nothing has changed")?;
    let changes = plan["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let waiting = changes.iter().filter(|change| change["needs_restart"] == true).count();
    eprintln!(
        "{made} version {}: {} changes are in force, {waiting} need a restart",
        plan["version"],
        changes.len() - waiting
    );
    Ok(())
}

fn print_plan(plan: &Value, json: bool, none: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let changes: Vec<Value> = plan["changes"].as_array().into_iter().flatten().map(with_follows).collect();
    let written = match (json, changes.is_empty()) {
        (true, _) => writeln!(out, "{plan}"),
        (false, true) => writeln!(out, "{none}"),
        (false, false) => Table::new(CHANGES).print(&changes, &mut out),
    };
    written.context("cannot write to standard output")
}

/// A row, with the time at which its change is in force.
fn with_follows(row: &Value) -> Value {
    let mut row = row.clone();
    row["follows"] = if row["needs_restart"] == true { "at the next start" } else { "at once" }.into();
    row
}

fn with_author(row: &Value) -> Value {
    let mut row = row.clone();
    let seconds = row["at_ms"].as_u64().unwrap_or_default() / 1000;
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    row["at"] = httpdate::fmt_http_date(at).into();
    for member in ["user", "peer"] {
        row[member] = row["author"][member].clone();
    }
    row
}
