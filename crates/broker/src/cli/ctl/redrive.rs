//! `postroad ctl redrive`: dead letters go back, at once or at a rate, or are only counted.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, encoded, request};

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
}

pub fn run(arguments: &RedriveArguments) -> anyhow::Result<()> {
    if arguments.dry_run {
        return print_plan(arguments, &arguments.post(arguments.max)?["plan"]);
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
        let answer = arguments.post(step).with_context(|| format!("{} went back before that", done.moved))?;
        let moved = answer["moved"].as_u64().unwrap_or_default();
        done.moved += moved;
        done.stayed = answer["stayed"].as_u64().unwrap_or_default();
        let is_all = max.is_some_and(|max| max <= done.moved);
        if arguments.rate.is_none() || is_all || step.is_none_or(|step| moved < step) {
            break;
        }
    }
    let Done { moved, stayed } = done;
    let mut out = std::io::stdout().lock();
    let written = match arguments.json {
        true => writeln!(out, "{}", json!({ "moved": moved, "stayed": stayed })),
        false => writeln!(out, "{moved} messages went back, {stayed} stayed in {}", arguments.queue),
    };
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
    fn post(&self, max: Option<u64>) -> anyhow::Result<Value> {
        let RedriveArguments { queue, to, origin, selector, dry_run, .. } = self;
        let body =
            json!({ "to": to, "origin": origin, "selector": selector, "max": max, "dry_run": dry_run });
        let path = format!("/api/v1/queues/{}/redrive", encoded(queue));
        request(&self.broker, Method::Post, &path, Some(&body))
    }
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
    match count(&plan["without_origin"]) {
        0 => Ok(()),
        none => writeln!(out, "  {none} have no queue to go back to; --to names one").map_err(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
