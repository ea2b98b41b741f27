//! `postroad ctl subscriptions`: durable subscriptions, and their end by an operator.

use clap::{Args, Subcommand};

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::{QueuesArguments, print_rows, with_state};

const COLUMNS: &[Column] = &[
    Column::whole("SUBSCRIPTION", "subscription"),
    Column::text("TOPIC", "topic"),
    Column::text("STATE", "state"),
    Column::number("MESSAGES", "messages"),
    Column::number("IN FLIGHT", "in_flight"),
    Column::number("CONSUMERS", "consumers"),
    Column::number("ENQUEUED", "enqueued"),
    Column::number("CONSUMED", "consumed"),
];

/// A list, or the end of a subscription.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SubscriptionsArguments {
    #[command(subcommand)]
    command: Option<SubscriptionsCommand>,
    #[command(flatten)]
    list: QueuesArguments,
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

pub fn run(SubscriptionsArguments { command, list }: &SubscriptionsArguments) -> anyhow::Result<()> {
    let Some(SubscriptionsCommand::Delete(of)) = command else {
        let query = [("filter", list.filter.as_deref())];
        return print_rows(&list.list, COLUMNS, "/api/v1/subscriptions", &query, with_state);
    };
    let path = format!("/api/v1/subscriptions/{}", encoded(&of.name));
    request(&of.broker, Method::Delete, &path, None)?;
    eprintln!("deleted the subscription {}", of.name);
    Ok(())
}
