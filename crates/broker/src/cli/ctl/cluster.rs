//! `postroad ctl cluster`: the nodes of a cluster, and orders to them.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, request};
use super::table::{Column, Table};
use crate::runtime::CAUGHT_UP;

/// The new leader leads, and says so, within this time.
const LEADS_WITHIN: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(20);
/// A change of members is watched for this time; it goes on without that.
const WATCHED_FOR: Duration = Duration::from_secs(120);
const WATCH_EVERY: Duration = Duration::from_millis(100);

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
    /// Admit a node that asks to join: it gets a copy of the store, and its vote once it has caught
    /// up.
    Join(JoinArguments),
    /// Make a mirror take the place of all other nodes, which are lost. Given to the mirror itself.
    Promote(PromoteArguments),
    /// Remove a node for good. If it leads, another one leads first.
    Leave(MemberArguments),
    /// Admit a node that asks to join, and remove one that never returns once the new one has
    /// caught up.
    Replace(ReplaceArguments),
}

/// Which node.
#[derive(Debug, Args)]
pub struct MemberArguments {
    /// Name of the node.
    node: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Which node joins, with or without a vote.
#[derive(Debug, Args)]
pub struct JoinArguments {
    /// Name of the node.
    node: String,
    /// It gets all that is committed, late perhaps, and never a vote: a copy at another site, for
    /// the day on which all others are lost.
    #[arg(long)]
    mirror: bool,
    /// Stores that a mirror gets, as 2,3: tenants are chosen by the stores in which they are.
    /// Store 1, with users and tenants, comes with them.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", requires = "mirror")]
    stores: Vec<u16>,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Which mirror takes over.
#[derive(Debug, Args)]
pub struct PromoteArguments {
    /// Name of the mirror.
    node: String,
    /// Do so although it reaches a node that leads.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Which node in place of which other.
#[derive(Debug, Args)]
pub struct ReplaceArguments {
    /// Name of the node that goes.
    old: String,
    /// Name of the node that asks to join.
    new: String,
    /// Remove the old node although it is connected.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    broker: BrokerArguments,
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
    Column::text("ZONE", "zone"),
    Column::text("ROLE", "role"),
    Column::text("STORES", "stores"),
    Column::text("STATE", "state"),
    Column::number("STORED", "stored"),
    Column::number("LAG", "lag"),
    Column::number("SENT", "sent_bytes"),
    Column::number("COPIED", "copied_bytes"),
];

/// Of several stores.
const STORES: &[Column] = &[
    Column::number("STORE", "store"),
    Column::text("LEADER", "leader"),
    Column::number("TERM", "term"),
    Column::number("COMMITTED", "committed"),
    Column::number("LAG", "lag"),
    Column::text("MEMBERS", "members"),
];

/// Carries it out.
///
/// # Errors
/// No broker answers, it is no node of a cluster, or it refuses the order.
pub fn run(ClusterArguments { order, broker, json }: &ClusterArguments) -> anyhow::Result<()> {
    match order {
        None => print_cluster(broker, *json),
        Some(ClusterOrder::Transfer(arguments)) => transfer(arguments),
        Some(ClusterOrder::Join(JoinArguments { node, mirror, stores, broker })) => {
            let (began, mut order) = (Instant::now(), json!({ "node": node, "mirror": mirror }));
            if !stores.is_empty() {
                order["stores"] = json!(stores);
            }
            request(broker, Method::Post, "/api/v1/cluster/join", Some(&order))?;
            let (done, is_done): (_, fn(&Value, &str) -> bool) = match mirror {
                true if !stores.is_empty() => (format!("{node} mirrors the stores"), mirrors),
                true => (format!("{node} mirrors the store"), mirrors),
                false => (format!("{node} votes"), votes),
            };
            watch(broker, began, (&done, &[node]), |state| is_done(state, node) && are_complete(state))
        }
        Some(ClusterOrder::Promote(PromoteArguments { node, force, broker })) => {
            let (began, order) = (Instant::now(), json!({ "node": node, "force": force }));
            let begun = request(broker, Method::Post, "/api/v1/cluster/promote", Some(&order))?;
            print_absent(&begun)?;
            watch(broker, began, (&format!("{node} leads"), &[node]), |state| {
                let leads = |store: &Value| store["leader"] == **node;
                state["leader"] == **node
                    && state["serves"] == Value::Bool(true)
                    && stores(state).iter().filter(|store| is_here(store)).all(leads)
            })
        }
        Some(ClusterOrder::Leave(MemberArguments { node, broker })) => {
            let began = Instant::now();
            request(broker, Method::Post, "/api/v1/cluster/leave", Some(&json!({ "node": node })))?;
            watch(broker, began, (&format!("{node} has left"), &[node]), |state| is_gone(state, node))
        }
        Some(ClusterOrder::Replace(ReplaceArguments { old, new, force, broker })) => {
            let (began, order) = (Instant::now(), json!({ "old": old, "new": new, "force": force }));
            request(broker, Method::Post, "/api/v1/cluster/replace", Some(&order))?;
            let done = format!("{new} votes in place of {old}");
            let replaced =
                |state: &Value| votes(state, new) && row(state, old).is_none() && are_complete(state);
            watch(broker, began, (&done, &[old, new]), replaced)
        }
    }
}

fn row<'s>(state: &'s Value, node: &str) -> Option<&'s Value> {
    state["items"].as_array()?.iter().find(|row| row["node"] == *node)
}

/// The stores of a cluster that has several.
fn stores(state: &Value) -> &[Value] {
    state["stores"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether the asked node has it: a mirror may have some stores alone.
fn is_here(store: &Value) -> bool {
    store["here"] != Value::Bool(false)
}

/// Says which stores a mirror does not take over.
fn print_absent(begun: &Value) -> anyhow::Result<()> {
    let absent: Vec<String> =
        begun["absent"].as_array().into_iter().flatten().map(Value::to_string).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let which = absent.join(", ");
    writeln!(
        std::io::stdout().lock(),
        "not here, and left to the former nodes: store {which}. Keep the data directories of these nodes"
    )
    .context("cannot write to standard output")
}

/// Whether all stores have all members, with their votes.
fn are_complete(state: &Value) -> bool {
    stores(state).iter().filter(|store| is_here(store)).all(|store| store["members"] == "complete")
}

/// The stores that are not that far, and why.
fn unfinished(state: &Value) -> String {
    let here = stores(state).iter().filter(|store| is_here(store));
    let open = here.filter(|store| store["members"] != "complete");
    open.map(|store| format!(" Store {}: {}.", store["store"], text(&store["members"]))).collect()
}

/// Whether the node lags by the latest entries alone.
fn mirrors(state: &Value, node: &str) -> bool {
    row(state, node).is_some_and(|row| {
        row["role"] == "mirror"
            && row["state"] == "connected"
            && row["stored"].as_u64().is_some_and(|stored| 0 < stored)
            && row["lag"].as_u64().is_some_and(|lag| lag <= CAUGHT_UP)
    })
}

fn votes(state: &Value, node: &str) -> bool {
    row(state, node).is_some_and(|row| row["votes"] == Value::Bool(true))
}

fn is_gone(state: &Value, node: &str) -> bool {
    let is_itself = state["node"] == *node && state["removed"] == Value::Bool(true);
    state["items"].is_array() && (is_itself || row(state, node).is_none())
}

/// Why members wait for a step of a leader, by node. The leaders of other stores than those of the
/// asked node are asked themselves, if something is to be done there.
fn all_waits(broker: &BrokerArguments, state: &Value) -> BTreeMap<String, String> {
    let mut heard = vec![state.clone()];
    for store in stores(state).iter().filter(|store| is_here(store) && store["members"] != "complete") {
        let has_said = |node: &Value| heard.iter().any(|state| state["node"] == *node);
        let number = store["store"].as_u64().and_then(|number| u16::try_from(number).ok());
        if store["leader"].is_string() && !has_said(&store["leader"]) && number.is_some() {
            let other = request(&broker.of_store(number), Method::Get, STATE, None);
            heard.extend(other.ok().filter(|other| !has_said(&other["node"])));
        }
    }
    joined_waits(&heard)
}

/// The reasons that nodes give in their states, by the node that waits.
fn joined_waits(states: &[Value]) -> BTreeMap<String, String> {
    let mut waits: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for row in states.iter().filter_map(|state| state["items"].as_array()).flatten() {
        if let Some(reason) = row["waits"].as_str().filter(|reason| !reason.is_empty()) {
            waits.entry(text(&row["node"]).to_owned()).or_default().push(reason);
        }
    }
    waits.into_iter().map(|(node, reasons)| (node, reasons.join("; "))).collect()
}

/// How far the change has come that these nodes are part of, the last of which is the one to watch.
fn progress(state: &Value, nodes: &[&str], waits: &BTreeMap<String, String>) -> String {
    let watched = nodes.last().and_then(|node| row(state, node));
    let mut said = watched
        .map_or_else(String::new, |row| format!(" It is a {}: {}.", text(&row["role"]), text(&row["state"])));
    said.push_str(&unfinished(state));
    let reasons = nodes.iter().filter_map(|node| Some((node, waits.get(*node)?)));
    let reasons: Vec<String> = reasons.map(|(node, reason)| format!(" {node} waits: {reason}.")).collect();
    match state["leader"].as_str().filter(|leader| state["node"] != **leader && stores(state).is_empty()) {
        Some(leader) if reasons.is_empty() => said.push_str(&format!(" {leader} leads, and knows why.")),
        _ => said.extend(reasons),
    }
    said
}

/// Waits until the state is as it should be, and says so; or how far it has come, and why not
/// further.
fn watch(
    broker: &BrokerArguments,
    began: Instant,
    (done, nodes): (&str, &[&str]),
    is_done: impl Fn(&Value) -> bool,
) -> anyhow::Result<()> {
    let mut last = Value::Null;
    let mut out = std::io::stdout().lock();
    while began.elapsed() < WATCHED_FOR {
        // A leader that hands over does not answer for a moment.
        if let Ok(state) = request(broker, Method::Get, STATE, None) {
            if is_done(&state) {
                let millis = began.elapsed().as_millis();
                return writeln!(out, "{done} after {millis} ms").context("cannot write to standard output");
            }
            last = state;
        }
        std::thread::sleep(WATCH_EVERY);
    }
    let seconds = WATCHED_FOR.as_secs();
    let said = progress(&last, nodes, &all_waits(broker, &last));
    writeln!(
        out,
        "the order was taken and is carried out, but not finished after {seconds} s.{said} `postroad ctl cluster` \
         shows how far it is"
    )
    .context("cannot write to standard output")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("node that is not known")
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

/// Prints the last damage of each node that had some, and which disks are full.
fn print_faults(rows: &[Value], out: &mut impl Write) -> std::io::Result<()> {
    for (row, fault) in rows.iter().flat_map(|row| [(row, "damage"), (row, "full")]) {
        if let Some(fault) = row[fault].as_str().filter(|fault| !fault.is_empty()) {
            writeln!(out, "node {}: {fault}", text(&row["node"]))?;
        }
    }
    Ok(())
}

/// Prints why members wait for a step of a leader.
fn print_waits(waits: &BTreeMap<String, String>, out: &mut impl Write) -> std::io::Result<()> {
    waits.iter().try_for_each(|(node, reason)| writeln!(out, "node {node} waits: {reason}"))
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
        let level = &answer["level"];
        writeln!(
            out,
            "leader {leader}, term {term}, committed {committed}, elections seen {elections}, level {level}"
        )
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
        .and_then(|()| match stores(&answer) {
            [] => Ok(()),
            stores => Table::new(STORES).print(stores, &mut out),
        })
        .and_then(|()| print_faults(rows, &mut out))
        .and_then(|()| print_waits(&all_waits(broker, &answer), &mut out))
    };
    printed.context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_is_not_finished_says_how_far_it_is_and_why_not_further() {
        let row = |node: &str, waits: &str| json!({ "node": node, "role": "follower", "state": "connected", "waits": waits });
        let state = |node: &str, stores: Value, items: &[Value]| json!({ "node": node, "leader": "n1", "stores": stores, "items": items });
        let open =
            json!([{ "store": 2, "here": true, "leader": "n2", "members": "n3 has still to leave it" }]);
        let (one, far) = (json!([]), "n4, which replaces it, is not reached");
        for (case, states, nodes, want) in [
            (
                "the leader knows",
                vec![state("n1", one.clone(), &[row("n3", far), row("n4", "")])],
                &["n3", "n4"][..],
                " It is a follower: connected. n3 waits: n4, which replaces it, is not reached.",
            ),
            (
                "of another node nothing is said",
                vec![state("n1", one.clone(), &[row("n2", ""), row("n3", far)])],
                &["n2"],
                " It is a follower: connected.",
            ),
            ("it is gone", vec![state("n1", one.clone(), &[])], &["n3"], ""),
            (
                "a node that follows",
                vec![state("n2", one, &[row("n3", "")])],
                &["n3"],
                " It is a follower: connected. n1 leads, and knows why.",
            ),
            (
                "the leaders of several stores",
                vec![
                    state("n1", open, &[row("n3", "store 1: it is still a member of store 2")]),
                    state(
                        "n2",
                        Value::Null,
                        &[row("n3", "store 2: without it 1 of 2 votes reached, 2 needed")],
                    ),
                ],
                &["n3"],
                " It is a follower: connected. Store 2: n3 has still to leave it. n3 waits: store 1: it is still a \
                 member of store 2; store 2: without it 1 of 2 votes reached, 2 needed.",
            ),
            ("no state was read", vec![Value::Null], &["n3"], ""),
        ] {
            assert_eq!(progress(&states[0], nodes, &joined_waits(&states)), want, "case: {case}");
        }
    }
}
