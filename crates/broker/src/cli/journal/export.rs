//! `postroad journal export`: all messages of a stopped broker, one to a line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use postroad_core::{encode_record, message_in_record};
use postroad_model::{Command, Compression, Destination, MessageKey, PartitionId, Position, Sent};

use super::Place;
use super::line::{End, Entry, Head, VERSION};
use crate::cli::base64;
use crate::runtime::Stopped;

/// What `export` can be told.
#[derive(Debug, Args)]
pub struct ExportArguments {
    #[command(flatten)]
    place: Place,
    /// Where to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Writes what is in all queues. A message that cannot be read has a line that says why, and makes the export fail in the end.
pub fn run(arguments: &ExportArguments) -> anyhow::Result<()> {
    let mut stopped = arguments.place.open()?;
    let out: Box<dyn Write> = match &arguments.to {
        Some(file) => Box::new(
            File::create_new(file)
                .with_context(|| format!("cannot make {}; it must be new", file.display()))?,
        ),
        None => Box::new(std::io::stdout().lock()),
    };
    let mut out = BufWriter::new(out);
    writeln!(out, "{}", serde_json::to_string(&Head { postroad_export: VERSION })?)?;
    let mut end = End { messages: 0, unreadable: 0 };
    for (queue, mut entry) in entries(&stopped) {
        match read(&mut stopped, queue, &entry) {
            Ok(record) => entry.record = Some(base64::encode(&record)),
            Err(error) => entry.unreadable = Some(format!("{error:#}")),
        }
        match entry.unreadable {
            None => end.messages += 1,
            Some(_) => end.unreadable += 1,
        }
        writeln!(out, "{}", serde_json::to_string(&entry)?)?;
    }
    writeln!(out, "{}", serde_json::to_string(&end)?)?;
    out.flush()?;
    drop(out);
    eprintln!("{} messages", end.messages);
    for damage in &stopped.report.damaged {
        eprintln!("{damage}");
    }
    if 0 < end.unreadable || !stopped.report.damaged.is_empty() {
        let damaged = stopped.report.damaged.len();
        bail!("{} messages cannot be read, and {damaged} partitions are stopped", end.unreadable);
    }
    Ok(())
}

/// What lies in all durable queues, without bodies.
fn entries(stopped: &Stopped) -> Vec<(Destination, Entry)> {
    let mut entries = Vec::new();
    for (id, partition) in &stopped.partitions {
        for held in partition.durable_entries() {
            let MessageKey::Durable { position, ordinal } = held.key else { continue };
            let entry = Entry {
                destination: held.queue.to_string(),
                subscription: held.subscription.map(|subscription| subscription.name.to_string()),
                partition: id.0,
                position: position.get(),
                ordinal,
                failed_deliveries: held.failed_deliveries,
                priority: held.headers.priority,
                expires_at_ms: held.headers.expires_at_ms,
                body_bytes: held.body_bytes,
                record: None,
                unreadable: None,
            };
            entries.push((held.queue.clone(), entry));
        }
    }
    entries
}

/// Reads the message, as a record that puts it where it is.
fn read(stopped: &mut Stopped, to: Destination, entry: &Entry) -> anyhow::Result<Bytes> {
    let position = Position::new(entry.position).context("no position")?;
    let record = stopped.journal.read(PartitionId(entry.partition), position)?;
    let message = message_in_record(&record, entry.ordinal)?.context("the record has no such message")?;
    let sent = Sent::new(to, message);
    Ok(encode_record(&Command::Enqueue(sent), Compression::None).concat().into())
}
