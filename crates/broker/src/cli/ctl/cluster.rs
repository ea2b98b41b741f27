//! `postroad ctl cluster`: the nodes of a cluster, and orders to them.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, request};
use super::table::{Column, Table};

/// The new leader leads, and says so, within this time.
const LEADS_WITHIN: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The state, or an order.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ClusterArguments {
    #[command(subcommand)]
    order: Option<ClusterOrder>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Orders to the leader.
#[derive(Debug, Subcommand)]
pub enum ClusterOrder {
    /// Make another node the leader. Clients that reconnect by themselves notice a short delay.
    Transfer(TransferArguments),
}

/// Which node.
#[derive(Debug, Args)]
pub struct TransferArguments {
    /// Name of the node that is to lead.
    node: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

const STATE: &str = "/api/v1/cluster";

const NODES: &[Column] = &[
    Column::text("NODE", "node"),
    Column::text("ADDRESS", "address"),
    Column::text("ROLE", "role"),
    Column::text("STATE", "state"),
    Column::number("STORED", "stored"),
    Column::number("LAG", "lag"),
    Column::number("SENT", "sent_bytes"),
    Column::number("COPIED", "copied_bytes"),
];

/// Carries it out.
///
/// # Errors
/// No broker answers, it is no node of a cluster, or it refuses the order.
pub fn run(ClusterArguments { order, broker, json }: &ClusterArguments) -> anyhow::Result<()> {
    match order {
        None => print_cluster(broker, *json),
        Some(ClusterOrder::Transfer(arguments)) => transfer(arguments),
    }
}

fn transfer(TransferArguments { node, broker }: &TransferArguments) -> anyhow::Result<()> {
    let order = json!({ "to": node });
    let begun = request(broker, Method::Post, "/api/v1/cluster/transfer", Some(&order))?;
    let mut out = std::io::stdout().lock();
    if begun["begun"] == Value::Bool(false) {
        return writeln!(out, "{node} leads already").context("cannot write to standard output");
    }
    let began = Instant::now();
    while began.elapsed() < LEADS_WITHIN {
        // A former leader does not answer for a moment.
        let leads = request(broker, Method::Get, STATE, None).is_ok_and(|state| state["leader"] == **node);
        if leads {
            let millis = began.elapsed().as_millis();
            return writeln!(out, "{node} leads after {millis} ms")
                .context("cannot write to standard output");
        }
        std::thread::sleep(ASK_EVERY);
    }
    let seconds = LEADS_WITHIN.as_secs();
    bail!("{node} does not lead after {seconds} s; `postroad ctl cluster` shows who does")
}

/// Prints who leads, and a row for each node.
fn print_cluster(broker: &BrokerArguments, json: bool) -> anyhow::Result<()> {
    let answer = request(broker, Method::Get, "/api/v1/cluster", None)?;
    let Value::Array(rows) = &answer["items"] else { bail!("the broker is not a node of a cluster") };
    let mut out = std::io::stdout().lock();
    let printed = if json {
        writeln!(out, "{answer}")
    } else {
        let leader = answer["leader"].as_str().unwrap_or("none");
        let (term, committed) = (&answer["term"], &answer["committed"]);
        let elections = &answer["elections"];
        let millis = |name: &str, rank: &str| answer[name][rank].as_f64().unwrap_or_default() / 1e3;
        let (p50, p99) = (millis("commit_micros", "p50"), millis("commit_micros", "p99"));
        let waits = millis("majority_micros", "p99");
        writeln!(out, "leader {leader}, term {term}, committed {committed}, elections seen {elections}")
            .and_then(|()| match answer["role"].as_str() {
                Some("leader") => {
                    writeln!(out, "commit p50 {p50} ms, p99 {p99} ms; after the local sync p99 {waits} ms")
                }
                _ => Ok(()),
            })
            .and_then(|()| match answer["balanced"].as_str() {
                Some(balanced) => writeln!(out, "balanced: {balanced}"),
                None => Ok(()),
            })
            .and_then(|()| Table::new(NODES).print(rows, &mut out))
    };
    printed.context("cannot write to standard output")
}
