//! `postroad ctl audit`: the last changes that operators made, and failed logins.

use clap::Args;
use postroad_model::rfc3339;
use serde_json::Value;

use super::table::Column;
use super::{ListArguments, print_rows};

const COLUMNS: &[Column] = &[
    Column::text("AT", "at"),
    Column::text("USER", "user"),
    Column::text("FROM", "peer"),
    Column::text("METHOD", "method"),
    Column::text("PATH", "path"),
    Column::number("STATUS", "status"),
    Column::text("DETAIL", "detail"),
];

/// Which rows.
#[derive(Debug, Args)]
pub struct AuditArguments {
    /// Only rows with this text in their path, address or detail.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only rows of this user; `--user` names the user who asks.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only attempts that were refused, failed logins among them.
    #[arg(long, conflicts_with = "done")]
    failed: bool,
    /// Only changes that were carried out.
    #[arg(long)]
    done: bool,
    /// Only rows at or after this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    from_ms: Option<u64>,
    /// Only rows before this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    to_ms: Option<u64>,
    #[command(flatten)]
    list: ListArguments,
}

pub fn run(arguments: &AuditArguments) -> anyhow::Result<()> {
    let AuditArguments { filter, by, failed, done, from_ms, to_ms, list } = arguments;
    let (from_ms, to_ms) = (from_ms.map(|ms| ms.to_string()), to_ms.map(|ms| ms.to_string()));
    let failed = match (failed, done) {
        (true, _) => Some("true"),
        (_, true) => Some("false"),
        _ => None,
    };
    let query = [
        ("filter", filter.as_deref()),
        ("user", by.as_deref()),
        ("failed", failed),
        ("from_ms", from_ms.as_deref()),
        ("to_ms", to_ms.as_deref()),
    ];
    print_rows(list, COLUMNS, "/api/v1/audit", &query, with_time)
}

fn with_time(row: &Value) -> Value {
    let mut row = row.clone();
    row["at"] = row["at_ms"].as_u64().map(|ms| rfc3339(ms / 1000)).into();
    row
}
