//! `postroad journal export`: all messages of a stopped broker, one to a line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use postroad_core::{LastRecord, Partition, chunk_in_record, encode_record, sends_in_record};
use postroad_journal::{Journal, ReadOnly, RealDisk};
use postroad_model::{Chunks, Command, Compression, Destination, MessageKey, PartitionId, Position, Sent};

use super::Place;
use super::line::{End, Entry, Head, Piece, VERSION};
use crate::cli::base64;
use crate::runtime::Stopped;

/// The journal of a stopped broker.
type StoppedJournal = Journal<ReadOnly<RealDisk>>;

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
    let (mut end, mut last) = (End { messages: 0, unreadable: 0 }, LastRecord::default());
    let Stopped { journal, partitions, report, .. } = &mut stopped;
    for (queue, mut entry) in entries(partitions) {
        match read(journal, &mut last, queue, &entry) {
            Ok((sent, chunks)) => match write_pieces(journal, &entry, chunks.as_deref(), &mut out)? {
                Ok(pieces) => {
                    let record = encode_record(&Command::Enqueue(sent), Compression::None).concat();
                    (entry.record, entry.pieces) = (Some(base64::encode(&record)), pieces);
                }
                Err(reason) => entry.unreadable = Some(reason),
            },
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
    for damage in &report.damaged {
        eprintln!("{damage}");
    }
    if 0 < end.unreadable || !report.damaged.is_empty() {
        let damaged = report.damaged.len();
        bail!("{} messages cannot be read, and {damaged} partitions are stopped", end.unreadable);
    }
    Ok(())
}

/// What lies in all durable queues, without bodies.
fn entries(partitions: &BTreeMap<PartitionId, Partition>) -> impl Iterator<Item = (Destination, Entry)> + '_ {
    partitions.iter().flat_map(|(id, partition)| {
        partition.durable_entries().filter_map(|held| {
            let MessageKey::Durable { position, ordinal } = held.key else { return None };
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
                pieces: None,
                unreadable: None,
            };
            Some((held.queue.clone(), entry))
        })
    })
}

/// Reads the message, as it is to be put where it is, and where the rest of a large body lies.
fn read(
    journal: &mut StoppedJournal,
    last: &mut LastRecord,
    to: Destination,
    entry: &Entry,
) -> anyhow::Result<(Sent, Option<Arc<Chunks>>)> {
    let position = Position::new(entry.position).context("no position")?;
    let partition = PartitionId(entry.partition);
    let sends = last
        .sends(partition, position, || anyhow::Ok(sends_in_record(&journal.read(partition, position)?)?))?;
    let sent = sends.get(entry.ordinal).context("the record has no such message")?;
    let chunks = sent.message.chunks().cloned();
    Ok((Sent::new(to, sent.message.clone().with_chunks(None)), chunks))
}

/// Writes a large body, a line for each piece, and how many there were; if one cannot be read, nothing is written for it and
/// those behind it.
fn write_pieces(
    journal: &mut StoppedJournal,
    entry: &Entry,
    chunks: Option<&Chunks>,
    out: &mut impl Write,
) -> anyhow::Result<Result<Option<u64>, String>> {
    let Some(chunks) = chunks else { return Ok(Ok(None)) };
    for position in &chunks.positions {
        let piece = match read_piece(journal, entry, *position) {
            Ok(piece) => piece,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        writeln!(out, "{}", serde_json::to_string(&Piece { piece: base64::encode(&piece) })?)?;
    }
    Ok(Ok(Some(chunks.positions.len() as u64)))
}

fn read_piece(journal: &mut StoppedJournal, entry: &Entry, position: Position) -> anyhow::Result<Bytes> {
    let record = journal.read(PartitionId(entry.partition), position)?;
    chunk_in_record(&record)?.context("the record is no piece of a message")
}
