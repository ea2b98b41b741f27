//! `postroad ctl trace`: where one message spent its time.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::{Column, Table};

const STAGES: &[Column] = &[
    Column::text("STAGE", "stage"),
    Column::number("AFTER", "after"),
    Column::number("TOOK", "took"),
    Column::text("", "mark"),
    Column::text("QUEUE", "queue"),
    Column::text("CONSUMER", "by"),
    Column::text("NOTE", "note"),
];

/// Which message.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// JMSMessageID of the message.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(TraceArguments { id, broker, json }: &TraceArguments) -> anyhow::Result<()> {
    let answer = request(broker, Method::Get, &format!("/api/v1/messages/{}/trace", encoded(id)), None)?;
    let mut out = std::io::stdout().lock();
    if *json {
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let text = |member: &str| answer[member].as_str().unwrap_or("none");
    let state = if answer["is_gone"] == true { "gone" } else { "held" };
    writeln!(out, "message      {}", text("id"))?;
    writeln!(out, "destination  {}", text("destination"))?;
    writeln!(out, "trace        {}, parent span {}", text("trace_id"), text("parent_span_id"))?;
    writeln!(out, "received     {}", text("received_at"))?;
    writeln!(out, "state        {state} after {}", duration(&answer["micros"]))?;
    writeln!(out, "longest      {}", text("longest"))?;
    let rows: Vec<Value> = answer["stages"].as_array().into_iter().flatten().map(row).collect();
    Table::new(STAGES).print(&rows, &mut out)?;
    for gap in answer["gaps"].as_array().into_iter().flatten() {
        writeln!(out, "note: {}", gap.as_str().unwrap_or_default())?;
    }
    Ok(())
}

fn row(stage: &Value) -> Value {
    let mut row = stage.clone();
    let open = if stage["is_open"] == true { "…" } else { "" };
    row["after"] = duration(&stage["offset_micros"]).into();
    row["took"] = format!("{}{open}", duration(&stage["micros"])).into();
    row["mark"] = if stage["is_longest"] == true { "longest" } else { "" }.into();
    if let (Some(connection), Some(consumer)) = (stage["connection"].as_str(), stage["consumer"].as_u64()) {
        row["by"] = format!("{connection} {consumer}").into();
    }
    row
}

/// With a unit in which it has at most four digits before the point.
fn duration(micros: &Value) -> String {
    let micros = micros.as_u64().unwrap_or(0);
    let in_units = |per_unit: u64, unit: &str| {
        format!("{}.{:03} {unit}", micros / per_unit, micros % per_unit / (per_unit / 1000))
    };
    match micros {
        0..1000 => format!("{micros} us"),
        1000..10_000_000 => in_units(1000, "ms"),
        _ => in_units(1_000_000, "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_that_fits() {
        for (micros, want) in [
            (0_u64, "0 us"),
            (999, "999 us"),
            (1000, "1.000 ms"),
            (12_345, "12.345 ms"),
            (9_999_999, "9999.999 ms"),
            (10_000_000, "10.000 s"),
            (3_661_020_000, "3661.020 s"),
        ] {
            assert_eq!(duration(&micros.into()), want);
        }
    }
}
