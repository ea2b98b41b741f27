//! `postroad ctl`: lists and message actions of a running broker, by its admin API over the control
//! socket or HTTP.

mod access_keys;
mod apply;
mod audit;
mod broker;
mod clients;
mod cluster;
mod configuration;
mod explain;
mod http;
mod ledger;
mod plan;
mod redrive;
mod routes;
mod schedules;
mod subscriptions;
mod table;
mod tenant_samples;
mod tenants;
mod tokens;
pub mod top;
mod trace;
mod transactions;
mod users;

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use http::{BrokerArguments, Method, encoded, request};
use table::{Column, Table};

/// Rows that are asked for at a time.
const PAGE: u64 = 200;

/// Commands for a running broker.
#[derive(Debug, Subcommand)]
pub enum Ctl {
    /// Show the broker, drain it, or end the draining.
    Broker(broker::BrokerStateArguments),
    /// List queues and durable subscriptions with their counts.
    Queues(FilteredArguments),
    /// List durable subscriptions, and delete them.
    Subscriptions(subscriptions::SubscriptionsArguments),
    /// Show the policy in force for a queue or topic, and where it comes from.
    Policy(PolicyArguments),
    /// List stores, with the state of their journals.
    Stores(ListArguments),
    /// List the addresses that clients connect to.
    Listeners(ListArguments),
    /// Show the costs of messages, the headroom, and the forecast for another load.
    Plan(plan::PlanArguments),
    /// List the connections of clients.
    Connections(ListArguments),
    /// List consumers, of one queue or all.
    Consumers(ConsumersArguments),
    /// List sessions of clients with consumers or producers.
    Sessions(FilteredArguments),
    /// List producers that clients have announced, of one destination or all.
    Producers(clients::OfDestinationArguments),
    /// List topics, with the number of their bindings.
    Topics(FilteredArguments),
    /// List queues and subscriptions that topics feed, of one topic or all.
    Bindings(clients::OfTopicArguments),
    /// List scheduled messages in the order in which they are due, show one, or delete it.
    Schedules(Box<schedules::SchedulesArguments>),
    /// List links to other brokers, with their states.
    Bridges(ListArguments),
    /// List messages that came, are there, and left, by queue and in all; their difference must be
    /// 0.
    Ledger(FilteredArguments),
    /// List alerts that are pending or fire.
    Alerts(ListArguments),
    /// List the last changes that operators made, and failed logins, the newest first.
    Audit(Box<audit::AuditArguments>),
    /// Show the nodes of a cluster with leader and progress, as known to the asked node; or hand
    /// leadership over.
    Cluster(cluster::ClusterArguments),
    /// List branches of XA transactions that wait for a decision, and end them.
    Transactions(transactions::TransactionsArguments),
    /// List routes, with the counts of their messages, or test one message.
    Routes(RoutesArguments),
    /// Print the messages of a queue without removing them.
    Browse(BrowseArguments),
    /// Explain why a message is not delivered, and which change would deliver it.
    #[command(subcommand)]
    Explain(explain::ExplainCommand),
    /// Show where a traced message spent its time, stage by stage.
    Trace(trace::TraceArguments),
    /// Remove one message of a queue, by its JMSMessageID.
    Remove(MessageArguments),
    /// Move one message of a queue to another queue or topic.
    Move(MoveArguments),
    /// Copy one message of a queue to another queue or topic.
    Copy(MoveArguments),
    /// Send dead letters back to the queues that they came from.
    Redrive(redrive::RedriveArguments),
    /// List the last redrives, and undo one.
    Redrives(redrive::RedrivesArguments),
    /// Remove all messages of a queue that no consumer has.
    Purge(QueueArguments),
    /// Pause a queue: consumers stay attached and get nothing, sends go on.
    Pause(QueueArguments),
    /// Resume a paused queue.
    Resume(QueueArguments),
    /// Show, plan and change the configuration.
    #[command(subcommand)]
    Config(configuration::ConfigurationCommand),
    /// Create, list and delete access keys of SQS clients.
    #[command(subcommand)]
    Key(access_keys::AccessKeyCommand),
    /// Create, list and revoke tokens of users.
    #[command(subcommand)]
    Token(tokens::TokenCommand),
    /// Add, list and remove users, and set their passwords and groups.
    #[command(subcommand)]
    User(users::UserCommand),
    /// Add, list, change and delete tenants.
    #[command(subcommand)]
    Tenant(tenants::TenantCommand),
    /// Plan and apply the queues, users, routes and alerts of a tenant, as a file declares them.
    Apply(apply::ApplyArguments),
}

/// Which broker, and how to print.
#[derive(Clone, Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print one JSON object for each row.
    #[arg(long)]
    json: bool,
    /// Print the list again and again, with this pause, until Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    /// Maximum number of rows [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
}

/// A list, or a test.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RoutesArguments {
    #[command(subcommand)]
    command: Option<RoutesCommand>,
    #[command(flatten)]
    list: ListArguments,
}

/// Commands for routes.
#[derive(Debug, Subcommand)]
pub enum RoutesCommand {
    /// Print the targets and header changes of one message, by a configuration file; nothing is
    /// sent.
    Test(routes::TestArguments),
}

/// Which rows.
#[derive(Debug, Args)]
pub struct FilteredArguments {
    /// Only rows whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

impl FilteredArguments {
    /// The part of the query that it is.
    fn query(&self) -> [(&'static str, Option<&str>); 1] {
        [("filter", self.filter.as_deref())]
    }
}

/// Which destination.
#[derive(Debug, Args)]
pub struct PolicyArguments {
    /// The queue or topic: queue://NAME, topic://NAME, or NAME for a queue.
    #[arg(value_name = "DESTINATION")]
    destination: String,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Whose consumers.
#[derive(Debug, Args)]
pub struct ConsumersArguments {
    /// The queue or topic: queue://NAME, topic://NAME, or NAME for a queue.
    #[arg(value_name = "DESTINATION")]
    destination: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

/// Which messages.
#[derive(Debug, Args)]
pub struct BrowseArguments {
    /// The queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// Only messages that match this JMS selector.
    #[arg(long, value_name = "CONDITION")]
    selector: Option<String>,
    /// Only messages whose body has this text in it, in whatever case.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only messages sent at or after this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    from_ms: Option<i64>,
    /// Only messages sent before this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    to_ms: Option<i64>,
    /// Print at most this number of bytes of each body [default: 4096].
    #[arg(long, value_name = "N")]
    body_bytes: Option<u64>,
    /// Continue an earlier listing from the cursor that it printed.
    #[arg(long, value_name = "CURSOR")]
    from: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

/// Which message.
#[derive(Debug, Args)]
pub struct MessageArguments {
    /// The queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// JMSMessageID of the message.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Which message, and where to.
#[derive(Debug, Args)]
pub struct MoveArguments {
    #[command(flatten)]
    message: MessageArguments,
    /// Where to: queue://NAME, topic://NAME, or NAME for a queue.
    #[arg(long, value_name = "DESTINATION")]
    to: String,
}

/// Which queue.
#[derive(Debug, Args)]
pub struct QueueArguments {
    /// The queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE")]
    queue: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

const QUEUES: &[Column] = &[
    Column::text("NAME", "name"),
    Column::text("KIND", "kind"),
    Column::text("STATE", "state"),
    Column::number("MESSAGES", "messages"),
    Column::number("IN FLIGHT", "in_flight"),
    Column::number("CONSUMERS", "consumers"),
    Column::number("ENQUEUED", "enqueued"),
    Column::number("CONSUMED", "consumed"),
    Column::number("DEAD", "dead_lettered"),
];

const STORES: &[Column] = &[
    Column::text("NAME", "name"),
    Column::text("STATE", "state"),
    Column::number("SEGMENTS", "segments"),
    Column::number("FILES", "file_bytes"),
    Column::number("LIVE", "live_bytes"),
    Column::number("WRITTEN", "written_bytes"),
    Column::number("SYNCS", "syncs"),
    Column::number("FAILED", "failed_jobs"),
    Column::number("DAMAGED", "damaged_places"),
    Column::text("REASON", "reason"),
];

const LISTENERS: &[Column] = &[Column::text("PROTOCOL", "protocol"), Column::whole("URL", "url")];

const CONNECTIONS: &[Column] = &[
    Column::text("CONNECTION", "connection"),
    Column::text("NAME", "name"),
    Column::text("CLIENT ID", "client_id"),
    Column::text("USER", "user"),
    Column::number("CONSUMERS", "consumers"),
    Column::number("TRANSACTIONS", "transactions"),
    Column::number("UNWRITTEN", "unwritten_bytes"),
];

const CONSUMERS: &[Column] = &[
    Column::text("DESTINATION", "destination"),
    Column::text("CONNECTION", "connection"),
    Column::text("NAME", "name"),
    Column::text("MODE", "mode"),
    Column::number("CREDIT", "credit"),
    Column::number("HELD", "held"),
    Column::text("SELECTOR", "selector"),
];

const ROUTES: &[Column] = &[
    Column::text("NAME", "name"),
    Column::text("FROM", "from"),
    Column::text("MODE", "mode"),
    Column::number("MATCHED", "matched"),
    Column::number("COPIES", "copies"),
    Column::number("UNMATCHED", "unmatched"),
    Column::number("DEAD", "dead_lettered"),
    Column::number("CUT", "cut"),
];

const BRIDGES: &[Column] = &[
    Column::text("NAME", "name"),
    Column::number("LINK", "number"),
    Column::text("DIRECTION", "direction"),
    Column::text("STATE", "state"),
    Column::text("PROFILE", "profile"),
    Column::text("PEER", "peer"),
    Column::text("ADDRESS", "address"),
    Column::number("DEMAND", "demand"),
    Column::number("IN FLIGHT", "in_flight"),
    Column::number("FORWARDED", "forwarded"),
    Column::number("RECEIVED", "received"),
    Column::number("REFUSED", "refused"),
    Column::number("RECONNECTS", "reconnects"),
    Column::number("STUCK", "stuck_messages"),
    Column::text("WAITS FOR", "wait_cause"),
    Column::text("REASON", "reason"),
];

const ALERTS: &[Column] = &[
    Column::text("ALERT", "alert"),
    Column::text("SEVERITY", "severity"),
    Column::text("STATE", "state"),
    Column::text("SUBJECT", "subject"),
    Column::number("VALUE", "value"),
    Column::number("ABOVE", "above"),
    Column::text("TEXT", "text"),
];

const MESSAGES: &[Column] = &[
    Column::text("ID", "id"),
    Column::number("PRIORITY", "priority"),
    Column::number("BYTES", "bytes"),
    Column::number("FAILED", "failed_deliveries"),
    Column::text("BODY", "body"),
];

/// Options that say which broker, and each have a value.
const BROKER_OPTIONS: [&str; 5] = ["--data", "--url", "--user", "--password", "--token"];

/// The command line `ctl --data DIR queues` as `ctl queues --data DIR`, for options that say which
/// broker.
pub fn options_last(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.into_iter().collect();
    if line.get(1).is_none_or(|command| command != "ctl") {
        return line;
    }
    let mut moved = Vec::new();
    while let Some(option) = line.get(2).and_then(|option| option.to_str()) {
        let name = option.split('=').next().unwrap_or_default();
        if !BROKER_OPTIONS.contains(&name) {
            break;
        }
        let words = if option.contains('=') { 1 } else { 2 };
        moved.extend(line.drain(2..line.len().min(2 + words)));
    }
    let end = line.iter().position(|word| word == "--").unwrap_or(line.len());
    line.splice(end..end, moved);
    line
}

/// Asks the broker.
///
/// # Errors
/// It does not run, or says why not.
pub fn run(ctl: &Ctl) -> anyhow::Result<()> {
    match ctl {
        Ctl::Queues(of) => print_rows(&of.list, QUEUES, "/api/v1/queues", &of.query(), with_state),
        Ctl::Subscriptions(arguments) => subscriptions::run(arguments),
        Ctl::Policy(arguments) => print_policy(arguments),
        Ctl::Stores(list) => print(list, STORES, "/api/v1/stores", &[], None),
        Ctl::Listeners(list) => print(list, LISTENERS, "/api/v1/listeners", &[], None),
        Ctl::Plan(arguments) => plan::run(arguments),
        Ctl::Transactions(arguments) => transactions::run(arguments),
        Ctl::Broker(arguments) => broker::run(arguments),
        Ctl::Config(command) => configuration::run(command),
        Ctl::Key(command) => access_keys::run(command),
        Ctl::Token(command) => tokens::run(command),
        Ctl::User(command) => users::run(command),
        Ctl::Tenant(command) => tenants::run(command),
        Ctl::Apply(arguments) => apply::run(arguments),
        Ctl::Connections(list) => print(list, CONNECTIONS, "/api/v1/connections", &[], None),
        Ctl::Routes(RoutesArguments { command: Some(RoutesCommand::Test(arguments)), .. }) => {
            routes::test(arguments)
        }
        Ctl::Routes(RoutesArguments { list, .. }) => print(list, ROUTES, "/api/v1/routes", &[], None),
        Ctl::Sessions(arguments) => clients::sessions(arguments),
        Ctl::Producers(arguments) => clients::producers(arguments),
        Ctl::Topics(arguments) => clients::topics(arguments),
        Ctl::Bindings(arguments) => clients::bindings(arguments),
        Ctl::Schedules(arguments) => schedules::run(arguments),
        Ctl::Bridges(list) => print(list, BRIDGES, "/api/v1/bridges", &[], None),
        Ctl::Ledger(arguments) => ledger::print(arguments),
        Ctl::Alerts(list) => print(list, ALERTS, "/api/v1/alerts", &[], None),
        Ctl::Audit(arguments) => audit::run(arguments),
        Ctl::Cluster(arguments) => cluster::run(arguments),
        Ctl::Consumers(ConsumersArguments { destination, list }) => {
            let of = [("destination", destination.as_deref())];
            print(list, CONSUMERS, "/api/v1/consumers", &of, None)
        }
        Ctl::Browse(arguments) => browse(arguments),
        Ctl::Copy(arguments) => arguments.send("copy", "copied"),
        Ctl::Redrive(arguments) => redrive::run(arguments),
        Ctl::Redrives(arguments) => redrive::redrives(arguments),
        Ctl::Explain(command) => explain::run(command),
        Ctl::Trace(arguments) => trace::run(arguments),
        Ctl::Remove(message) => {
            request(&message.broker, Method::Delete, &message.path(), None)?;
            eprintln!("removed {} from {}", message.id, message.queue);
            Ok(())
        }
        Ctl::Move(arguments) => arguments.send("move", "moved"),
        Ctl::Purge(of) => {
            let answer = request(&of.broker, Method::Post, &of.path("purge"), None)?;
            eprintln!("removed {} messages from {}", answer["removed"], of.queue);
            Ok(())
        }
        Ctl::Pause(of) => {
            request(&of.broker, Method::Post, &of.path("pause"), None)?;
            eprintln!("paused {}; `postroad ctl resume {}` resumes it", of.queue, of.queue);
            Ok(())
        }
        Ctl::Resume(of) => {
            request(&of.broker, Method::Post, &of.path("resume"), None)?;
            eprintln!("resumed {}", of.queue);
            Ok(())
        }
    }
}

fn print_policy(PolicyArguments { destination, broker, json }: &PolicyArguments) -> anyhow::Result<()> {
    let path = format!("/api/v1/queues/{}/policy", encoded(destination));
    let answer = request(broker, Method::Get, &path, None)?;
    let mut out = std::io::stdout().lock();
    if *json {
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let named = |member: &str, none: &str| answer[member].as_str().unwrap_or(none).to_owned();
    writeln!(out, "destination  {}", named("destination", ""))?;
    writeln!(out, "policy       {}", named("pattern", "no [[policy]] matches: the defaults are in force"))?;
    writeln!(out, "tenant       {}", named("tenant", "none"))?;
    for setting in answer["settings"].as_array().into_iter().flatten() {
        let member = |name: &str| setting[name].as_str().unwrap_or_default();
        writeln!(out, "  {} = {} ({})", member("key"), member("value"), member("origin"))?;
    }
    Ok(())
}

fn browse(arguments: &BrowseArguments) -> anyhow::Result<()> {
    let BrowseArguments { queue, selector, text, from_ms, to_ms, body_bytes, from, list } = arguments;
    let path = format!("/api/v1/queues/{}/messages", encoded(queue));
    let (from_ms, to_ms) = (from_ms.map(|ms| ms.to_string()), to_ms.map(|ms| ms.to_string()));
    let body_bytes = body_bytes.map(|bytes| bytes.to_string());
    let query = [
        ("selector", selector.as_deref()),
        ("text", text.as_deref()),
        ("from_ms", from_ms.as_deref()),
        ("to_ms", to_ms.as_deref()),
        ("body_bytes", body_bytes.as_deref()),
    ];
    print(list, MESSAGES, &path, &query, from.clone())
}

/// A queue, with its state in a word.
fn with_state(queue: &Value) -> Value {
    let mut queue = queue.clone();
    queue["state"] = match (queue["is_moving"].as_bool(), queue["is_paused"].as_bool()) {
        (Some(true), _) => "moving".into(),
        (_, Some(true)) => "paused".into(),
        _ => "running".into(),
    };
    queue
}

impl QueueArguments {
    fn path(&self, action: &str) -> String {
        format!("/api/v1/queues/{}/{action}", encoded(&self.queue))
    }
}

impl MoveArguments {
    /// Copies or moves the message.
    fn send(&self, action: &str, done: &str) -> anyhow::Result<()> {
        let MoveArguments { message, to } = self;
        let path = format!("{}/{action}", message.path());
        request(&message.broker, Method::Post, &path, Some(&json!({ "to": to })))?;
        eprintln!("{done} {} from {} to {to}", message.id, message.queue);
        Ok(())
    }
}

impl MessageArguments {
    fn path(&self) -> String {
        format!("/api/v1/queues/{}/messages/{}", encoded(&self.queue), encoded(&self.id))
    }
}

/// Prints a list page by page.
fn print(
    list: &ListArguments,
    columns: &'static [Column],
    path: &str,
    query: &[(&str, Option<&str>)],
    cursor: Option<String>,
) -> anyhow::Result<()> {
    print_pages(list, columns, (path, query), cursor, Value::clone)
}

/// As [`print`], each row changed by `of`.
fn print_rows(
    list: &ListArguments,
    columns: &'static [Column],
    path: &str,
    query: &[(&str, Option<&str>)],
    of: fn(&Value) -> Value,
) -> anyhow::Result<()> {
    print_pages(list, columns, (path, query), None, of)
}

fn print_pages(
    list: &ListArguments,
    columns: &'static [Column],
    asked: (&str, &[(&str, Option<&str>)]),
    cursor: Option<String>,
    of: fn(&Value) -> Value,
) -> anyhow::Result<()> {
    let Some(seconds) = list.watch else { return print_once(list, columns, asked, cursor, of) };
    loop {
        if !list.json {
            top::clear(&mut std::io::stdout().lock())?;
        }
        print_once(list, columns, asked, cursor.clone(), of)?;
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

/// Lists of which each store of a cluster has its own.
const OF_EACH_STORE: [&str; 14] = [
    "/api/v1/queues",
    "/api/v1/topics",
    "/api/v1/connections",
    "/api/v1/consumers",
    "/api/v1/subscriptions",
    "/api/v1/transactions",
    "/api/v1/bridges",
    "/api/v1/alerts",
    "/api/v1/sessions",
    "/api/v1/producers",
    "/api/v1/bindings",
    "/api/v1/schedules",
    "/api/v1/redrives",
    TENANTS_PATH,
];
const TENANTS_PATH: &str = "/api/v1/tenants";

/// The stores that a list is asked of: all of a cluster that has several, unless one is named.
fn stores_asked(list: &ListArguments, path: &str) -> Vec<Option<u16>> {
    if list.broker.store.is_some() || !OF_EACH_STORE.contains(&path) {
        return vec![list.broker.store];
    }
    // A broker that stands alone has no such path, and the users of a tenant may not see it.
    let state = request(&list.broker, Method::Get, "/api/v1/cluster", None).unwrap_or_default();
    let stores = state["stores"].as_array().map_or(0, Vec::len) as u16;
    if stores < 2 { vec![None] } else { (1..=stores).map(Some).collect() }
}

fn print_once(
    list: &ListArguments,
    columns: &'static [Column],
    (path, query): (&str, &[(&str, Option<&str>)]),
    cursor: Option<String>,
    of: fn(&Value) -> Value,
) -> anyhow::Result<()> {
    let mut table = Table::new(columns);
    let mut left = list.max.unwrap_or(u64::MAX);
    for store in stores_asked(list, path) {
        if left == 0 {
            break;
        }
        let of_store = |row: &Value| {
            let mut row = of(row);
            if let (Some(store), Value::Object(row)) = (store, &mut row) {
                row.entry("store").or_insert(store.into());
            }
            row
        };
        let broker = list.broker.of_store(store);
        let asked = (&broker, path, query);
        print_store(list, asked, (&mut table, &mut left), cursor.clone(), of_store)?;
    }
    Ok(())
}

/// Prints the rows of one store.
fn print_store(
    list: &ListArguments,
    (broker, path, query): (&BrokerArguments, &str, &[(&str, Option<&str>)]),
    (table, left): (&mut Table, &mut u64),
    mut cursor: Option<String>,
    of: impl Fn(&Value) -> Value,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    // Each store lists all tenants, and knows the usage of its own.
    let is_shown = |row: &Value| {
        let others = broker.store.filter(|_| path == TENANTS_PATH);
        others.is_none_or(|store| row["store"].as_u64().is_none_or(|of| of == u64::from(store)))
    };
    loop {
        let limit = (*left).min(PAGE).to_string();
        let given = query.iter().copied().chain([("limit", Some(&*limit)), ("cursor", cursor.as_deref())]);
        let pairs = given.filter_map(|(name, value)| Some(format!("{name}={}", encoded(value?))));
        let asked = format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"));
        let page = request(broker, Method::Get, &asked, None)?;
        let Value::Array(rows) = &page["items"] else { bail!("unexpected answer from the broker: {page}") };
        let rows: Vec<Value> = rows.iter().filter(|row| is_shown(row)).map(&of).collect();
        match (list.json, broker.store.filter(|_| list.broker.store.is_none() && !rows.is_empty())) {
            (true, _) => rows.iter().try_for_each(|row| writeln!(out, "{row}")),
            (false, Some(store)) => {
                writeln!(out, "store {store}:").and_then(|()| table.print(&rows, &mut out))
            }
            (false, None) => table.print(&rows, &mut out),
        }
        .context("cannot write to standard output")?;
        *left = left.saturating_sub(rows.len() as u64);
        cursor = page["next"].as_str().map(str::to_owned);
        match &cursor {
            None => return Ok(()),
            Some(cursor) if *left == 0 => {
                if path.ends_with("/messages") {
                    eprintln!("there may be more: --from {cursor}");
                }
                return Ok(());
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_name_the_broker_may_come_before_the_command() {
        for (line, want) in [
            ("p ctl --data d queues", "p ctl queues --data d"),
            ("p ctl --url=u --user n queues --json", "p ctl queues --json --url=u --user n"),
            ("p ctl --data d routes test -- --x", "p ctl routes test --data d -- --x"),
            ("p ctl queues --data d", "p ctl queues --data d"),
            ("p ctl --help", "p ctl --help"),
            ("p ctl --data", "p ctl --data"),
            ("p ctl", "p ctl"),
            ("p serve --data d", "p serve --data d"),
            ("p", "p"),
        ] {
            let moved = options_last(line.split(' ').map(OsString::from));
            assert_eq!(moved.join(std::ffi::OsStr::new(" ")), want, "{line}");
        }
    }
}
