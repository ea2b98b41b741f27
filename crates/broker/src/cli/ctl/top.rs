//! `postroad top`: rates of the whole broker and its busiest queues, again and again.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, request};
use super::table::{Column, Table};

/// Queues that are asked for; those with the highest rates are among the deepest or the most used.
const ROWS_ASKED: u64 = 200;

const COLUMNS: &[Column] = &[
    Column::text("QUEUE", "name"),
    Column::number("IN/S", "in_rate"),
    Column::number("OUT/S", "out_rate"),
    Column::number("MESSAGES", "messages"),
    Column::number("IN FLIGHT", "in_flight"),
    Column::number("CONSUMERS", "consumers"),
    Column::number("DEAD", "dead_lettered"),
];

/// Which broker, and how.
#[derive(Debug, Args)]
pub struct TopArguments {
    #[command(flatten)]
    broker: BrokerArguments,
    /// Seconds between two pictures.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Number of pictures [default: until Ctrl-C].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Order of the queues.
    #[arg(long, value_enum, default_value_t = Sort::Messages)]
    sort: Sort,
    /// Queues shown.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=ROWS_ASKED))]
    rows: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Messages in a queue.
    Messages,
    /// Messages that come per second.
    In,
    /// Messages that consumers accept per second.
    Out,
}

impl Sort {
    /// The order to ask for: the most used queues since the start are the first to look at for
    /// rates.
    fn asked(self) -> &'static str {
        match self {
            Sort::Messages => "-messages",
            Sort::In => "-enqueued",
            Sort::Out => "-consumed",
        }
    }

    fn member(self) -> &'static str {
        match self {
            Sort::Messages => "messages",
            Sort::In => "in_rate",
            Sort::Out => "out_rate",
        }
    }
}

/// Figures of one moment.
struct Picture {
    at: Instant,
    overview: Value,
    queues: Vec<Value>,
}

/// Prints pictures until there are enough, or the reader is gone.
pub fn run(arguments: &TopArguments) -> anyhow::Result<()> {
    let mut before = take(arguments)?;
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while 0 < left {
        std::thread::sleep(Duration::from_secs(arguments.every));
        let now = take(arguments)?;
        let mut out = io::stdout().lock();
        clear(&mut out)?;
        print(&before, &now, arguments, &mut out).context("cannot write to standard output")?;
        (before, left) = (now, left - 1);
    }
    Ok(())
}

/// A terminal shows what follows from its first line on.
pub fn clear(out: &mut impl Write) -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        out.write_all(b"\x1b[H\x1b[2J").context("cannot write to standard output")?;
    }
    Ok(())
}

fn take(TopArguments { broker, sort, .. }: &TopArguments) -> anyhow::Result<Picture> {
    let overview = request(broker, Method::Get, "/api/v1/overview", None)?;
    let path = format!("/api/v1/queues?limit={ROWS_ASKED}&sort={}", sort.asked());
    let queues = request(broker, Method::Get, &path, None)?;
    let queues = queues["items"].as_array().cloned().unwrap_or_default();
    Ok(Picture { at: Instant::now(), overview, queues })
}

fn print(
    before: &Picture,
    now: &Picture,
    arguments: &TopArguments,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let (broker, sample) = (&now.overview["broker"], &now.overview["now"]);
    // The broker gives one sample to all who ask at about the same time.
    let sampled_ms = rise(&before.overview["now"], sample, "at_ms").max(1);
    let rate =
        |member: &str| per_second(rise(&before.overview["now"], sample, member), sampled_ms as f64 / 1e3);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    writeln!(
        out,
        "{}  version {}  up {} s",
        text(&broker["name"]),
        text(&broker["version"]),
        broker["uptime_seconds"]
    )?;
    writeln!(
        out,
        "in {}/s  out {}/s  messages {}  queues {}  connections {}",
        rate("enqueued_total"),
        rate("acknowledged_total"),
        sample["messages"],
        sample["queues"],
        sample["connections"],
    )?;
    writeln!(
        out,
        "syncs {}/s  sync p99 {} us  step p99 {} us  processor {} %  memory {} MiB  disk {} MiB",
        rate("syncs_total"),
        sample["sync_p99_us"],
        sample["step_p99_us"],
        rise(&before.overview["now"], sample, "process_cpu_ms_total") * 100 / sampled_ms,
        number(sample, "process_bytes") >> 20,
        number(sample, "disk_bytes") >> 20,
    )?;
    for alarm in now.overview["alarms"].as_array().into_iter().flatten() {
        writeln!(out, "{}: {}: {}", text(&alarm["severity"]), text(&alarm["subject"]), text(&alarm["text"]))?;
    }
    writeln!(out)?;
    let rows = rows(&before.queues, &now.queues, seconds, arguments);
    Table::new(COLUMNS).print(&rows, out)?;
    Ok(())
}

/// The rows of queues, with their rates, in the order that was asked for.
fn rows(before: &[Value], now: &[Value], seconds: f64, arguments: &TopArguments) -> Vec<Value> {
    let key = |queue: &Value| format!("{} {}", queue["name"], queue["subscription"]);
    let earlier: BTreeMap<String, &Value> = before.iter().map(|queue| (key(queue), queue)).collect();
    let row = |queue: &Value| {
        let earlier = earlier.get(&key(queue)).copied().unwrap_or(queue);
        json!({
            "name": queue["subscription"].as_str().or(queue["name"].as_str()),
            "in_rate": per_second(rise(earlier, queue, "enqueued"), seconds),
            "out_rate": per_second(rise(earlier, queue, "consumed"), seconds),
            "messages": queue["messages"],
            "in_flight": queue["in_flight"],
            "consumers": queue["consumers"],
            "dead_lettered": queue["dead_lettered"],
        })
    };
    let mut rows: Vec<Value> = now.iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(number(row, arguments.sort.member())));
    rows.truncate(usize::try_from(arguments.rows).unwrap_or(usize::MAX));
    rows
}

fn number(of: &Value, member: &str) -> u64 {
    of[member].as_u64().unwrap_or_default()
}

fn rise(before: &Value, now: &Value, member: &str) -> u64 {
    number(now, member).saturating_sub(number(before, member))
}

fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds.max(1e-3)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_rates_and_the_order_that_was_asked_for() {
        let queue = |name: &str, messages: u64, enqueued: u64, consumed: u64| {
            json!({
                "name": name, "messages": messages, "enqueued": enqueued, "consumed": consumed,
                "in_flight": 0, "consumers": 1, "dead_lettered": 0,
            })
        };
        let before = [queue("deep", 9, 100, 0), queue("busy", 1, 500, 400)];
        let now = [queue("deep", 9, 100, 0), queue("busy", 1, 700, 600), queue("new", 2, 2, 0)];
        let broker = BrokerArguments::default();
        for (sort, want) in
            [(Sort::Messages, "deep new busy"), (Sort::In, "busy deep new"), (Sort::Out, "busy deep new")]
        {
            let arguments = TopArguments { broker: broker.clone(), every: 2, count: None, sort, rows: 20 };
            let rows = rows(&before, &now, 2.0, &arguments);
            let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
            assert_eq!(names.join(" "), want, "{sort:?}");
            let busy = rows.iter().find(|row| row["name"] == "busy").expect("a row");
            assert_eq!((number(busy, "in_rate"), number(busy, "out_rate")), (100, 100));
        }
        let arguments = TopArguments { broker, every: 2, count: None, sort: Sort::Messages, rows: 1 };
        assert_eq!(rows(&before, &now, 2.0, &arguments).len(), 1, "no more rows than were asked for");
    }
}
