//! `postroad ctl ledger`: messages that came, are there, and left, by queue and in all.

use std::io::Write;

use anyhow::Context;
use serde_json::{Value, json};

use super::http::{Method, request};
use super::table::{Column, Table};
use super::{FilteredArguments, ListArguments, print_rows, stores_asked};

const COLUMNS: &[Column] = &[
    Column::text("QUEUE", "name"),
    Column::number("SENT", "sent"),
    Column::number("HELD", "held"),
    Column::number("IN FLIGHT", "in_flight"),
    Column::number("CONSUMED", "consumed"),
    Column::number("EXPIRED", "expired"),
    Column::number("DEAD", "dead_lettered"),
    Column::number("DROPPED", "dropped"),
    Column::number("MOVED", "moved"),
    Column::number("DIFFERENCE", "difference"),
];

const QUEUES_PATH: &str = "/api/v1/queues";

/// Prints the rows of queues, and the last check of all, of each store.
pub fn print(of: &FilteredArguments) -> anyhow::Result<()> {
    for store in stores_asked(&of.list, QUEUES_PATH) {
        let list = ListArguments { broker: of.list.broker.of_store(store), ..of.list.clone() };
        print_store(&of.query(), &list)?;
    }
    Ok(())
}

/// Prints those of one store.
fn print_store(query: &[(&str, Option<&str>)], list: &ListArguments) -> anyhow::Result<()> {
    print_rows(list, COLUMNS, QUEUES_PATH, query, row)?;
    let all = request(&list.broker, Method::Get, "/api/v1/ledger", None)?;
    let mut out = std::io::stdout().lock();
    let ListArguments { json, .. } = list;
    let printed = match (json, all["checked_ms"].is_null()) {
        (true, _) => writeln!(out, "{all}"),
        (false, true) => writeln!(out, "all queues: not checked yet"),
        (false, false) => {
            let mut sums = all.clone();
            sums["name"] = format!("all {} queues", all["queues"]).into();
            Table::new(COLUMNS).print(&[sums], &mut out)
        }
    };
    printed.context("cannot write to standard output")
}

/// A row of the list of queues as one of the ledger.
fn row(queue: &Value) -> Value {
    let number = |member: &str| queue[member].as_u64().unwrap_or_default();
    let name = match (queue["kind"].as_str(), queue["subscription"].as_str()) {
        (Some("subscription"), Some(subscription)) => {
            format!("{} of topic {}", subscription, queue["name"].as_str().unwrap_or_default())
        }
        _ => queue["name"].as_str().unwrap_or_default().to_owned(),
    };
    json!({
        "name": name,
        "sent": number("enqueued"),
        "held": number("messages").saturating_sub(number("in_flight")),
        "in_flight": number("in_flight"),
        "consumed": number("consumed"),
        "expired": number("expired"),
        "dead_lettered": number("dead_lettered"),
        "dropped": number("dropped"),
        "moved": number("moved"),
        "difference": queue["difference"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_adds_up() {
        let queue = json!({
            "name": "a", "kind": "queue", "messages": 5, "in_flight": 2, "enqueued": 13, "consumed": 4,
            "expired": 1, "dead_lettered": 2, "dropped": 1, "moved": 0, "difference": 0,
        });
        let row = row(&queue);
        let left: u64 = ["held", "in_flight", "consumed", "expired", "dead_lettered", "dropped", "moved"]
            .iter()
            .map(|member| row[*member].as_u64().unwrap())
            .sum();
        assert_eq!(row["sent"].as_u64(), Some(left));
    }
}
