//! `postroad ctl redrive`: dead letters go back, at once or at a rate, or are only counted.
//! `postroad ctl redrives`: the last of these, and their undo.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Subcommand};
use postroad_model::rfc3339;
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::{ListArguments, print_rows};

/// A rate is kept by a step each tenth of a second.
const STEP: Duration = Duration::from_millis(100);

/// Which dead letters, and where to.
#[derive(Debug, Args)]
pub struct RedriveArguments {
    /// The dead-letter queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// A queue to go to, instead of that where each was.
    #[arg(long, value_name = "QUEUE")]
    to: Option<String>,
    /// Only messages that were in this queue.
    #[arg(long, value_name = "QUEUE")]
    origin: Option<String>,
    /// Only messages that match this JMS selector.
    #[arg(long, value_name = "CONDITION")]
    selector: Option<String>,
    /// Not more messages than this.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// Not more messages in a second than this.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
    /// Only count the messages that would go, by their targets.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Counts of all steps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    moved: u64,
    stayed: u64,
    /// The number of the redrive, once a step was done.
    id: Option<u64>,
}

pub fn run(arguments: &RedriveArguments) -> anyhow::Result<()> {
    if arguments.dry_run {
        return print_plan(arguments, &arguments.post(arguments.max, None)?["plan"]);
    }
    // Not more than are there now: what fails again must not go round and round.
    let path = format!("/api/v1/queues/{}", encoded(&arguments.queue));
    let there = request(&arguments.broker, Method::Get, &path, None)?["messages"].as_u64();
    let max = arguments.max.into_iter().chain(there).min();
    let begun = Instant::now();
    let mut done = Done::default();
    loop {
        let step = next_step(arguments.rate, max, done.moved, begun.elapsed());
        if step == Some(0) && max.is_none_or(|max| done.moved < max) {
            std::thread::sleep(STEP);
            continue;
        }
        if step == Some(0) {
            break;
        }
        let answer =
            arguments.post(step, done.id).with_context(|| format!("{} went back before that", done.moved))?;
        let moved = answer["moved"].as_u64().unwrap_or_default();
        done.moved += moved;
        done.id = answer["redrive"].as_u64();
        done.stayed = answer["stayed"].as_u64().unwrap_or_default();
        let is_all = max.is_some_and(|max| max <= done.moved);
        if arguments.rate.is_none() || is_all || step.is_none_or(|step| moved < step) {
            break;
        }
    }
    let Done { moved, stayed, id } = done;
    let mut out = std::io::stdout().lock();
    let written = match arguments.json {
        true => writeln!(out, "{}", json!({ "moved": moved, "stayed": stayed, "redrive": id })),
        false => writeln!(out, "{moved} messages went back, {stayed} stayed in {}", arguments.queue),
    };
    if let Some(id) = id.filter(|_| !arguments.json && 0 < moved) {
        eprintln!("`postroad ctl redrives undo {id}` undoes it for those that still wait");
    }
    written.context("cannot write to standard output")
}

/// How many messages may go now: as many as the rate allows since the beginning. `None` is all.
fn next_step(rate: Option<u64>, max: Option<u64>, moved: u64, elapsed: Duration) -> Option<u64> {
    let left = max.map(|max| max.saturating_sub(moved));
    let Some(rate) = rate else { return left };
    let allowed = (rate as u128 * (elapsed + STEP).as_millis() / 1000) as u64;
    let now = allowed.saturating_sub(moved);
    Some(left.map_or(now, |left| left.min(now)))
}

impl RedriveArguments {
    fn post(&self, max: Option<u64>, continues: Option<u64>) -> anyhow::Result<Value> {
        let RedriveArguments { queue, to, origin, selector, dry_run, .. } = self;
        let body = json!({
            "to": to, "origin": origin, "selector": selector, "max": max, "dry_run": dry_run,
            "continues": continues,
        });
        let path = format!("/api/v1/queues/{}/redrive", encoded(queue));
        request(&self.broker, Method::Post, &path, Some(&body))
    }
}

const COLUMNS: &[Column] = &[
    Column::whole("ID", "id"),
    Column::text("AT", "at"),
    Column::text("USER", "user"),
    Column::text("FROM", "from"),
    Column::text("STATE", "state"),
    Column::number("MOVED", "moved"),
    Column::number("UNDONE", "undone"),
    Column::text("TO", "queues"),
];

/// A list, or the undo of one.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RedrivesArguments {
    #[command(subcommand)]
    command: Option<RedrivesCommand>,
    /// Only redrives of this dead-letter queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE")]
    queue: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, Subcommand)]
enum RedrivesCommand {
    /// Move the messages of a redrive that still wait back to the dead letters.
    Undo(UndoArguments),
}

/// Which redrive.
#[derive(Debug, Args)]
struct UndoArguments {
    /// Number as listed.
    #[arg(value_name = "ID")]
    id: u64,
    /// Only count the messages that would be moved.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

pub fn redrives(RedrivesArguments { command, queue, list }: &RedrivesArguments) -> anyhow::Result<()> {
    let Some(RedrivesCommand::Undo(arguments)) = command else {
        let query = [("destination", queue.as_deref())];
        return print_rows(list, COLUMNS, "/api/v1/redrives", &query, with_words);
    };
    let UndoArguments { id, dry_run, broker, json } = arguments;
    let path = format!("/api/v1/redrives/{id}/undo");
    let answer = request(broker, Method::Post, &path, Some(&json!({ "dry_run": dry_run })))?;
    let mut out = std::io::stdout().lock();
    let written = match json {
        true => writeln!(out, "{answer}"),
        false => undone(&answer, *dry_run).iter().try_for_each(|line| writeln!(out, "{line}")),
    };
    written.context("cannot write to standard output")
}

/// A redrive, with its time and its targets in words.
fn with_words(redrive: &Value) -> Value {
    let mut redrive = redrive.clone();
    let targets = redrive["targets"].as_array().into_iter().flatten();
    let names = targets.filter_map(|target| {
        let name = target["destination"].as_str()?;
        Some(name.strip_prefix("queue://").unwrap_or(name))
    });
    redrive["queues"] = names.collect::<Vec<_>>().join(", ").into();
    redrive["at"] = redrive["at_ms"].as_u64().map(|ms| rfc3339(ms / 1000)).into();
    redrive
}

/// The result of an undo: which messages were moved, and why others stay.
fn undone(answer: &Value, dry_run: bool) -> Vec<String> {
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    let verb = if dry_run { "would be dead letters again" } else { "are dead letters again" };
    let mut lines = vec![format!("{} messages {verb}", count("moved"))];
    for (name, why) in [
        ("in_flight", "are in flight: a consumer, a lease or a transaction has them"),
        ("dead_again", "are dead letters already"),
        ("gone", "were consumed, have expired, or were moved elsewhere"),
    ] {
        if 0 < count(name) {
            lines.push(format!("  {} {why}", count(name)));
        }
    }
    if answer["gone"].is_null() {
        lines.push("  the redrive was interrupted: how many it had moved is not known".to_owned());
    }
    lines
}

fn print_plan(arguments: &RedriveArguments, plan: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        return writeln!(out, "{plan}").context("cannot write to standard output");
    }
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let least = if plan["is_complete"] == true { "" } else { "at least " };
    writeln!(out, "{least}{} messages would go back", count(&plan["messages"]))?;
    for target in plan["to"].as_array().into_iter().flatten() {
        let name = target["destination"].as_str().unwrap_or_default();
        writeln!(out, "  {} to {name}", count(&target["messages"]))?;
    }
    for (name, why) in [
        ("without_origin", "have no queue to go back to; --to names one"),
        ("not_permitted", "stay: you have no permission to write to the queue where they were"),
    ] {
        match count(&plan[name]) {
            0 => {}
            stay => writeln!(out, "  {stay} {why}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_says_why_messages_stay() {
        let all = json!({ "moved": 3, "in_flight": 2, "dead_again": 1, "gone": 4 });
        let lines = undone(&all, false);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].starts_with("3 messages are") && lines[1].starts_with("  2 are in flight"));
        let unknown = json!({ "moved": 3, "in_flight": 0, "dead_again": 0, "gone": null });
        let lines = undone(&unknown, true);
        assert_eq!(lines[0], "3 messages would be dead letters again");
        assert!(lines.len() == 2 && lines[1].contains("interrupted"), "{lines:?}");
    }

    #[test]
    fn a_rate_is_kept_from_the_beginning() {
        let ms = Duration::from_millis;
        for (rate, max, moved, elapsed, want) in [
            (None, None, 0, ms(0), None),
            (None, Some(7), 2, ms(0), Some(5)),
            (Some(100), None, 0, ms(0), Some(10)),
            (Some(100), None, 10, ms(0), Some(0)),
            (Some(100), None, 10, ms(500), Some(50)),
            (Some(100), Some(12), 10, ms(500), Some(2)),
            (Some(1), None, 0, ms(100), Some(0)),
        ] {
            assert_eq!(next_step(rate, max, moved, elapsed), want, "{rate:?} {max:?} {moved} {elapsed:?}");
        }
    }
}
