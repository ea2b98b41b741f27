//! `postroad ctl schedules`: scheduled messages, one of them, and its end by an operator.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use postroad_model::rfc3339;
use serde_json::Value;

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::{ListArguments, print_rows};

const COLUMNS: &[Column] = &[
    Column::whole("ID", "id"),
    Column::text("DUE", "due"),
    Column::text("TO", "to"),
    Column::text("REPEATS", "repeats"),
    Column::number("BYTES", "bytes"),
    Column::text("JOB", "job"),
];

/// A list, or one scheduled message.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SchedulesArguments {
    #[command(subcommand)]
    command: Option<SchedulesCommand>,
    /// Only messages to destinations whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only messages of this job, as its client knows it.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only messages that are due at or after this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    from_ms: Option<u64>,
    /// Only messages that are due before this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    to_ms: Option<u64>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, Subcommand)]
enum SchedulesCommand {
    /// Show one scheduled message with its headers and body, as JSON.
    Show(ScheduleArguments),
    /// Delete a scheduled message; it is not sent.
    Delete(ScheduleArguments),
}

/// Which scheduled message.
#[derive(Debug, Args)]
struct ScheduleArguments {
    /// Id as listed.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

pub fn run(arguments: &SchedulesArguments) -> anyhow::Result<()> {
    let SchedulesArguments { command, filter, job, from_ms, to_ms, list } = arguments;
    let path = |of: &ScheduleArguments| format!("/api/v1/schedules/{}", encoded(&of.id));
    match command {
        None => {
            let (from_ms, to_ms) = (from_ms.map(|ms| ms.to_string()), to_ms.map(|ms| ms.to_string()));
            let query = [
                ("filter", filter.as_deref()),
                ("job", job.as_deref()),
                ("from_ms", from_ms.as_deref()),
                ("to_ms", to_ms.as_deref()),
            ];
            print_rows(list, COLUMNS, "/api/v1/schedules", &query, with_words)
        }
        Some(SchedulesCommand::Show(of)) => {
            let shown = request(&of.broker, Method::Get, &path(of), None)?;
            writeln!(std::io::stdout().lock(), "{shown:#}").context("cannot write to standard output")
        }
        Some(SchedulesCommand::Delete(of)) => {
            request(&of.broker, Method::Delete, &path(of), None)?;
            eprintln!("deleted the scheduled message {}", of.id);
            Ok(())
        }
    }
}

/// A scheduled message, with its time and repetitions in words.
fn with_words(schedule: &Value) -> Value {
    let mut schedule = schedule.clone();
    let names = schedule["destinations"].as_array().into_iter().flatten().filter_map(Value::as_str);
    schedule["to"] = names.collect::<Vec<_>>().join(", ").into();
    schedule["due"] = schedule["due_ms"].as_u64().map(|ms| rfc3339(ms / 1000)).into();
    schedule["repeats"] = repeats(&schedule).into();
    schedule
}

fn repeats(schedule: &Value) -> Option<String> {
    let times = schedule["times"].as_u64().map(|times| format!(", {times} times more")).unwrap_or_default();
    match (schedule["cron"].as_str(), schedule["period_ms"].as_u64()) {
        (Some(cron), _) => Some(format!("at {cron}")),
        (None, Some(period_ms)) => Some(format!("each {period_ms} ms{times}")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repetitions_are_told_in_words() {
        for (schedule, want) in [
            (json!({ "cron": null, "period_ms": null, "times": null }), None),
            (json!({ "cron": null, "period_ms": 500, "times": null }), Some("each 500 ms")),
            (json!({ "cron": null, "period_ms": 500, "times": 2 }), Some("each 500 ms, 2 times more")),
            (json!({ "cron": "0 6 * * *", "period_ms": 500, "times": 2 }), Some("at 0 6 * * *")),
        ] {
            assert_eq!(repeats(&schedule).as_deref(), want, "{schedule}");
        }
    }
}
