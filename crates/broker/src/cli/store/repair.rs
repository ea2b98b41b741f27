//! `postroad store repair`: makes a damaged directory usable with its readable contents.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use postroad_core::{Holder, LostMessage};
use postroad_model::PartitionId;
use postroad_store::{ApparentRecord, DamagedStore, Known, Lost, broker_id};
use serde_json::{Value, json};

use super::{Place, settings};
use crate::cli::words::counted;
use crate::config::Config;
use crate::runtime::now_ms;

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArguments {
    #[command(flatten)]
    place: Place,
    /// Repair the directory; without this, only show the losses.
    #[arg(long)]
    write: bool,
    /// Number of partitions, if the layout file is damaged and some were never used [default: those
    /// in the log].
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<u16>,
    /// Directory of each further store, if the layout file of the data directory is damaged.
    #[arg(long = "store", value_name = "DIR", conflicts_with = "of")]
    stores: Vec<PathBuf>,
    /// Data directory, if DIR is one of its further stores with a damaged layout file.
    #[arg(long, value_name = "DATA")]
    of: Option<PathBuf>,
}

/// One finding: as text, and as an object.
struct Finding(String, Value);

/// Reads everything and reports the losses; with `--write` makes the directory one that opens.
pub fn run(arguments: &RepairArguments) -> anyhow::Result<()> {
    let data = &arguments.place.data;
    let keys = arguments.place.keys()?;
    let (stores, of) = (arguments.stores.clone(), arguments.of.clone());
    let known = Known { partitions: arguments.partitions, stores, of, now_ms: now_ms() };
    let found = DamagedStore::look(data, &known, keys, settings(&Config::default())?)
        .with_context(|| format!("cannot read {}", data.display()))?;
    let mut out = std::io::stdout().lock();
    let mut say = |Finding(text, object): &Finding| match arguments.place.json {
        true => writeln!(out, "{object}"),
        false => writeln!(out, "{text}"),
    };
    if !found.is_damaged() {
        say(&Finding("nothing to repair".into(), json!({"kind": "summary", "damaged": 0})))?;
        return Ok(());
    }
    let told = tell(&found);
    told.iter().try_for_each(&mut say)?;
    if !arguments.write {
        bail!("nothing was changed; with --write {} is repaired without the lost records", data.display());
    }
    broker_id::forget(data)?;
    let report: String = told.iter().map(|Finding(_, object)| format!("{object}\n")).collect();
    let (aside, repaired) =
        found.repair(report.as_bytes()).with_context(|| format!("cannot repair {}", data.display()))?;
    let files = counted(repaired.aside.len() as u64, "file");
    let text = format!("repaired; kept in {}: {files}, with this report", aside.display());
    let aside = aside.display().to_string();
    let object =
        json!({"kind": "repaired", "aside": aside, "files": repaired.aside, "rescued": repaired.rescued});
    say(&Finding(text, object))?;
    let again = arguments.place.open().context("the repaired directory does not open")?;
    match again.report.damaged.first() {
        Some(damage) => bail!("damage remains: {damage}"),
        None => Ok(()),
    }
}

fn tell(found: &DamagedStore) -> Vec<Finding> {
    let mut told: Vec<Finding> = Vec::new();
    if let Some(what) = &found.layout_damage {
        let partitions = found.partition_count();
        let text = format!("the layout file is damaged: {what}; {partitions} partitions");
        told.push(Finding(text, json!({"kind": "layout", "what": what, "partitions": partitions})));
    }
    for damage in found.salvage().damaged() {
        let (file, what) = (damage.file.display().to_string(), damage.kind.to_string());
        let partition = damage.partition.map(|partition| partition.0);
        let object = json!({"kind": "damage", "file": file, "offset": damage.offset, "partition": partition, "what": what});
        told.push(Finding(damage.to_string(), object));
    }
    told.extend(found.lost.iter().map(lost_records));
    for (id, mended) in &found.partitions {
        told.extend(mended.lost.iter().map(|lost| lost_message(found, *id, lost)));
        for (queue, count) in &mended.doubts.settlements {
            let queue = queue.as_ref().map(ToString::to_string);
            let of = queue.as_deref().unwrap_or("queues created after the loss");
            let text =
                format!("{of}: {count} acknowledgements left out: these messages may be delivered again");
            let object =
                json!({"kind": "doubt", "partition": id.0, "destination": queue, "settlements": count});
            told.push(Finding(text, object));
        }
        if 0 < mended.doubts.transactions {
            let count = mended.doubts.transactions;
            let text =
                format!("partition {}: {count} transactions ended, because parts of them are lost", id.0);
            told.push(Finding(text, json!({"kind": "doubt", "partition": id.0, "transactions": count})));
        }
    }
    told.push(summary(found));
    told
}

fn summary(found: &DamagedStore) -> Finding {
    let damaged = found.salvage().damaged().len() + usize::from(found.layout_damage.is_some());
    let records: u64 =
        found.lost.iter().map(|lost| lost.records.last.get() - lost.records.first.get() + 1).sum();
    let messages: usize = found.partitions.values().map(|mended| mended.lost.len()).sum();
    let kept: u64 = (found.partitions.values().flat_map(|mended| mended.partition.queues()))
        .map(|(_, entries)| entries)
        .sum();
    let text = format!(
        "{}: {} and {} are lost, {kept} entries of queues are kept",
        counted(damaged as u64, "damaged place"),
        counted(records, "record"),
        counted(messages as u64, "message"),
    );
    let object = json!({
        "kind": "summary", "damaged": damaged, "lost_records": records, "lost_messages": messages, "kept_entries": kept,
    });
    Finding(text, object)
}

fn lost_records(lost: &Lost) -> Finding {
    let (partition, first, last) =
        (lost.records.partition.0, lost.records.first.get(), lost.records.last.get());
    let mut text = match first == last {
        true => format!("partition {partition}: the record at position {first} is lost"),
        false => format!("partition {partition}: the records at positions {first} to {last} are lost"),
    };
    let mut object = json!({"kind": "lost records", "partition": partition, "first": first, "last": last});
    if let Some(ApparentRecord { kind, messages }) = &lost.apparent {
        text.push_str(&format!("; its damaged bytes read as {kind}"));
        for (to, id) in messages {
            text.push_str(&format!(", message {} to {to}", id.as_deref().unwrap_or("without id")));
        }
        let messages: Vec<Value> =
            messages.iter().map(|(to, id)| json!({"destination": to, "message_id": id})).collect();
        object["damaged_bytes_read_as"] = json!({"record": kind, "messages": messages});
    }
    Finding(text, object)
}

fn lost_message(found: &DamagedStore, partition: PartitionId, lost: &LostMessage) -> Finding {
    let queue = lost.queue.as_ref().map(ToString::to_string);
    let id = found.id_of(partition, lost.position, lost.ordinal);
    let holder = match lost.holder {
        Holder::Entry => "queue",
        Holder::Transaction => "prepared transaction",
        Holder::Job => "scheduled message",
    };
    let place = match (&queue, &lost.subscription) {
        (Some(queue), Some(name)) => format!("{queue}, subscription {name}"),
        (Some(queue), None) => queue.clone(),
        (None, _) => holder.to_owned(),
    };
    let (position, ordinal) = (lost.position.get(), lost.ordinal);
    let mut text = format!(
        "{place}: a message of {} bytes is lost (partition {}, position {position}, number {ordinal})",
        lost.body_bytes, partition.0
    );
    if let Some(id) = &id {
        text.push_str(&format!("; by its damaged bytes {id}"));
    }
    let object = json!({
        "kind": "lost message", "holder": holder, "destination": queue, "subscription": lost.subscription.as_deref(),
        "partition": partition.0, "position": position, "ordinal": ordinal, "body_bytes": lost.body_bytes,
        "damaged_bytes_message_id": id,
    });
    Finding(text, object)
}
