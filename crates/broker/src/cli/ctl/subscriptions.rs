//! `postroad ctl subscriptions`: durable subscriptions, and their end by an operator.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::{FilteredArguments, print_rows, with_state};

const COLUMNS: &[Column] = &[
    Column::whole("SUBSCRIPTION", "subscription"),
    Column::text("TOPIC", "topic"),
    Column::text("STATE", "state"),
    Column::number("MESSAGES", "messages"),
    Column::number("IN FLIGHT", "in_flight"),
    Column::number("CONSUMERS", "consumers"),
    Column::number("ENQUEUED", "enqueued"),
    Column::number("CONSUMED", "consumed"),
    Column::text("LINK", "link"),
];

/// A list, or the end of a subscription.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SubscriptionsArguments {
    #[command(subcommand)]
    command: Option<SubscriptionsCommand>,
    #[command(flatten)]
    list: FilteredArguments,
}

#[derive(Debug, Subcommand)]
enum SubscriptionsCommand {
    /// End a durable subscription without consumers; its messages are discarded.
    Delete(SubscriptionArguments),
}

/// Which subscription.
#[derive(Debug, Args)]
struct SubscriptionArguments {
    /// Subscription as listed.
    #[arg(value_name = "SUBSCRIPTION")]
    name: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// With its state, and the link that it is of.
fn with_link(subscription: &Value) -> Value {
    let mut subscription = with_state(subscription);
    let part = |key: &str| subscription[key].as_str().unwrap_or_default();
    subscription["link"] = match (part("link_peer"), part("link_state")) {
        ("", _) => "-".into(),
        (peer, "none") => format!("{peer}, no such link").into(),
        (peer, state) => format!("{peer}, {state}").into(),
    };
    subscription
}

pub fn run(SubscriptionsArguments { command, list }: &SubscriptionsArguments) -> anyhow::Result<()> {
    let Some(SubscriptionsCommand::Delete(of)) = command else {
        return print_rows(&list.list, COLUMNS, "/api/v1/subscriptions", &list.query(), with_link);
    };
    let path = format!("/api/v1/subscriptions/{}", encoded(&of.name));
    request(&of.broker, Method::Delete, &path, None)?;
    eprintln!("deleted the subscription {}", of.name);
    Ok(())
}
