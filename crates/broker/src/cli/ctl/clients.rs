//! `postroad ctl sessions`, `producers`, `topics` and `bindings`: lists of what clients have made.

use clap::Args;
use serde_json::Value;

use super::table::Column;
use super::{FilteredArguments, print, print_rows};

const SESSIONS: &[Column] = &[
    Column::text("SESSION", "session"),
    Column::text("CONNECTION", "connection"),
    Column::number("CONSUMERS", "consumers"),
    Column::number("PRODUCERS", "producers"),
    Column::number("CREDIT", "credit"),
    Column::number("HELD", "held"),
];

const PRODUCERS: &[Column] = &[
    Column::text("DESTINATION", "destination"),
    Column::text("CONNECTION", "connection"),
    Column::text("NAME", "name"),
    Column::number("WINDOW", "window_bytes"),
];

const TOPICS: &[Column] = &[
    Column::text("NAME", "name"),
    Column::number("BINDINGS", "bindings"),
    Column::number("SELECTORS", "selectors"),
];

const BINDINGS: &[Column] = &[
    Column::text("TOPIC", "topic"),
    Column::text("KIND", "kind"),
    Column::text("TO", "to"),
    Column::number("MESSAGES", "messages"),
    Column::text("SELECTOR", "selector"),
];

/// Whose producers.
#[derive(Debug, Args)]
pub struct OfDestinationArguments {
    /// The queue or topic: queue://NAME, topic://NAME, or NAME for a queue.
    #[arg(value_name = "DESTINATION")]
    destination: Option<String>,
    #[command(flatten)]
    of: FilteredArguments,
}

/// Whose bindings.
#[derive(Debug, Args)]
pub struct OfTopicArguments {
    /// The topic, or a pattern of topics: topic://NAME or NAME.
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    of: FilteredArguments,
}

pub fn sessions(of: &FilteredArguments) -> anyhow::Result<()> {
    print(&of.list, SESSIONS, "/api/v1/sessions", &of.query(), None)
}

pub fn topics(of: &FilteredArguments) -> anyhow::Result<()> {
    print(&of.list, TOPICS, "/api/v1/topics", &of.query(), None)
}

pub fn producers(OfDestinationArguments { destination, of }: &OfDestinationArguments) -> anyhow::Result<()> {
    let query = [("destination", destination.as_deref()), of.query()[0]];
    print(&of.list, PRODUCERS, "/api/v1/producers", &query, None)
}

pub fn bindings(OfTopicArguments { topic, of }: &OfTopicArguments) -> anyhow::Result<()> {
    let query = [("destination", topic.as_deref()), of.query()[0]];
    print_rows(&of.list, BINDINGS, "/api/v1/bindings", &query, with_selector)
}

/// A binding, with its selectors in a cell.
fn with_selector(binding: &Value) -> Value {
    let mut binding = binding.clone();
    let selectors = binding["selectors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    binding["selector"] = selectors.collect::<Vec<_>>().join(" OR ").into();
    binding
}
