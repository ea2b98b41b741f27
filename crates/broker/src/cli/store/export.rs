//! `postroad store export`: all messages of a stopped broker, one to a line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use postroad_core::{
    HeldJob, LastRecord, Partition, chunk_in_record, encode_record, held_jobs_in_record, sends_in_record,
};
use postroad_journal::{Journal, ReadOnly, RealDisk};
use postroad_model::{
    Chunks, Command, Compression, Destination, MessageKey, PartitionId, Position, Schedule, Sent,
};
use postroad_store::Stopped;

use super::Place;
use super::export_file::Summing;
use super::line::{End, Entry, Head, Piece, Scheduled, VERSION};
use crate::cli::base64;
use crate::cli::words::counted;

/// The name of standard output.
const STANDARD_OUTPUT: &str = "-";

/// The journal of a stopped broker.
type StoppedJournal = Journal<ReadOnly<RealDisk>>;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    #[command(flatten)]
    place: Place,
    /// File to write [default: -, standard output].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Writes the entries of all queues, and scheduled messages. A message that cannot be read has a
/// line with the reason, and makes the export fail in the end, as do messages of prepared
/// transactions, which have none.
pub fn run(arguments: &ExportArguments) -> anyhow::Result<()> {
    let mut stopped = arguments.place.open()?;
    let to = arguments.to.as_ref().filter(|file| file.as_os_str() != STANDARD_OUTPUT);
    let file = to.map(|file| open(file)).transpose()?;
    let out: Box<dyn Write> = match &file {
        Some(file) => Box::new(file),
        None => Box::new(std::io::stdout().lock()),
    };
    let mut out = Summing { out: BufWriter::new(out), crc32c: 0 };
    writeln!(out, "{}", serde_json::to_string(&Head { postroad_export: VERSION })?)?;
    let Stopped { journal, partitions, report, .. } = &mut stopped;
    let mut writing =
        Writing { journal, last: LastRecord::default(), out, end: End::default(), scheduled: 0 };
    for (queue, entry) in entries(partitions) {
        writing.held(queue, entry)?;
    }
    for (id, partition) in &*partitions {
        partition.held_jobs().try_for_each(|job| writing.job(*id, &job))?;
        for (position, jobs) in partition.held_shelves() {
            writing.shelf(*id, position, jobs)?;
        }
    }
    writing.end.prepared = partitions.values().map(Partition::prepared_messages).sum();
    let Writing { mut out, mut end, scheduled, .. } = writing;
    end.crc32c = Some(out.crc32c);
    writeln!(out, "{}", serde_json::to_string(&end)?)?;
    out.flush()?;
    drop(out);
    if let Some((file, name)) = file.as_ref().zip(to) {
        sync(file, name).with_context(|| format!("{} may be lost at a power failure", name.display()))?;
    }
    let of_these = if 0 < scheduled { format!(", {scheduled} of them scheduled") } else { String::new() };
    eprintln!("{}{of_these}", counted(end.messages, "message"));
    report.damaged.iter().for_each(|damage| eprintln!("{damage}"));
    let mut missing = Vec::new();
    if 0 < end.prepared {
        let count = counted(end.prepared, "message");
        missing.push(format!(
            "{count} of prepared transactions left out: resolve them with `postroad transactions`"
        ));
    }
    if 0 < end.unreadable || !report.damaged.is_empty() {
        let (unreadable, stopped) =
            (counted(end.unreadable, "message"), counted(report.damaged.len() as u64, "partition"));
        missing.push(format!("{unreadable} unreadable, and {stopped} stopped"));
    }
    if !missing.is_empty() {
        bail!("{}", missing.join("; "));
    }
    Ok(())
}

/// The output: a new file, or one that a reader has opened already, such as a named pipe.
fn open(file: &Path) -> anyhow::Result<File> {
    let opened = match file.metadata() {
        Ok(there) if !there.is_file() && !there.is_dir() => File::options().write(true).open(file),
        _ => File::create_new(file),
    };
    opened.with_context(|| format!("cannot create {}; it must not exist", file.display()))
}

/// Syncs the output, if it is a file.
fn sync(file: &File, name: &Path) -> std::io::Result<()> {
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    file.sync_all()?;
    let name = std::path::absolute(name)?;
    name.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// The contents of all durable queues, without bodies.
fn entries(partitions: &BTreeMap<PartitionId, Partition>) -> impl Iterator<Item = (Destination, Entry)> + '_ {
    partitions.iter().flat_map(|(id, partition)| {
        partition.durable_entries().filter_map(|held| {
            let MessageKey::Durable { position, ordinal } = held.key else { return None };
            let entry = Entry {
                destination: held.queue.to_string(),
                subscription: held.subscription.map(|subscription| subscription.name.to_string()),
                failed_deliveries: held.failed_deliveries,
                priority: held.headers.priority,
                expires_at_ms: held.headers.expires_at_ms,
                body_bytes: held.body_bytes,
                ..nowhere(*id, position, ordinal)
            };
            Some((held.queue.clone(), entry))
        })
    })
}

/// The line of a message of which nothing is known but where its record is.
fn nowhere(partition: PartitionId, position: Position, ordinal: u32) -> Entry {
    Entry {
        destination: String::new(),
        subscription: None,
        schedule: None,
        partition: partition.0,
        position: position.get(),
        ordinal,
        failed_deliveries: 0,
        priority: 0,
        expires_at_ms: 0,
        body_bytes: 0,
        record: None,
        pieces: None,
        unreadable: None,
    }
}

/// The same as in the record, for people and scripts.
fn scheduled(schedule: &Schedule, due_ms: u64) -> Scheduled {
    let again = schedule.again.as_ref();
    let period_ms = again.map(|again| again.period_ms).filter(|period_ms| 0 < *period_ms);
    let cron = again.and_then(|again| again.cron.as_deref()).map(str::to_owned);
    let times = again.and_then(|again| again.times);
    Scheduled { job: schedule.job.to_string(), due_ms, period_ms, times, cron }
}

/// An export that is being written.
struct Writing<'j, W> {
    journal: &'j mut StoppedJournal,
    last: LastRecord,
    out: W,
    end: End,
    /// How many of the messages are due later.
    scheduled: u64,
}

impl<W: Write> Writing<'_, W> {
    /// A message of a queue.
    fn held(&mut self, queue: Destination, entry: Entry) -> anyhow::Result<()> {
        match self.read(&entry) {
            Ok(stored) => self.message(Sent::new(queue, stored.message), entry),
            Err(error) => self.line(Entry { unreadable: Some(format!("{error:#}")), ..entry }),
        }
    }

    /// A message that is due later, once for each address that it will go to.
    fn job(&mut self, partition: PartitionId, job: &HeldJob) -> anyhow::Result<()> {
        let body_bytes = u64::from(job.body_bytes);
        let entry = || Entry { body_bytes, ..nowhere(partition, job.due.position, job.due.ordinal) };
        let stored = match self.read(&entry()) {
            Ok(stored) => stored,
            Err(error) => return self.line(Entry { unreadable: Some(format!("{error:#}")), ..entry() }),
        };
        let began = stored.schedule.as_deref().cloned();
        let schedule = job.schedule(&began.unwrap_or_else(|| Schedule::once("".into(), job.due.at_ms)));
        for to in stored.targets() {
            let entry = Entry {
                destination: to.to_string(),
                schedule: Some(scheduled(&schedule, job.due.at_ms)),
                priority: stored.message.priority,
                expires_at_ms: stored.message.expires_at_ms,
                ..entry()
            };
            let sent = Sent::new(to.clone(), stored.message.clone());
            self.message(Sent { schedule: Some(Box::new(schedule.clone())), ..sent }, entry)?;
        }
        Ok(())
    }

    /// The jobs of a shelf.
    fn shelf(&mut self, partition: PartitionId, position: Position, jobs: u32) -> anyhow::Result<()> {
        let read = |record: Bytes| held_jobs_in_record(&record)?.context("the record has no jobs");
        match self.journal.read(partition, position).map_err(anyhow::Error::from).and_then(read) {
            Ok(jobs) => jobs.iter().try_for_each(|job| self.job(partition, job)),
            Err(error) => (0..jobs).try_for_each(|ordinal| {
                let unreadable = Some(format!("what says when it is due: {error:#}"));
                self.line(Entry { unreadable, ..nowhere(partition, position, ordinal) })
            }),
        }
    }

    /// The message as it was sent.
    fn read(&mut self, entry: &Entry) -> anyhow::Result<Sent> {
        let position = Position::new(entry.position).context("no position")?;
        let (partition, journal) = (PartitionId(entry.partition), &mut *self.journal);
        let read = || anyhow::Ok(sends_in_record(&journal.read(partition, position)?)?);
        let sends = self.last.sends(partition, position, read)?;
        Ok(sends.get(entry.ordinal).context("the record has no such message")?.clone())
    }

    /// Writes the message, as it is to be put where the line says, with its body if that is a large
    /// one.
    fn message(&mut self, sent: Sent, mut entry: Entry) -> anyhow::Result<()> {
        let chunks = sent.message.chunks().cloned();
        let sent = Sent { message: sent.message.clone().with_chunks(None), ..sent };
        match write_pieces(self.journal, &entry, chunks.as_deref(), &mut self.out)? {
            Ok(pieces) => {
                let record = encode_record(&Command::Enqueue(sent), Compression::None).concat();
                (entry.record, entry.pieces) = (Some(base64::encode(&record)), pieces);
            }
            Err(reason) => entry.unreadable = Some(reason),
        }
        self.line(entry)
    }

    fn line(&mut self, entry: Entry) -> anyhow::Result<()> {
        match entry.unreadable {
            None => self.end.messages += 1,
            Some(_) => self.end.unreadable += 1,
        }
        self.scheduled += u64::from(entry.unreadable.is_none() && entry.schedule.is_some());
        writeln!(self.out, "{}", serde_json::to_string(&entry)?)?;
        Ok(())
    }
}

/// Writes a large body, a line for each piece, and how many there were; if one cannot be read,
/// nothing is written for it and those after it.
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
    chunk_in_record(&record)?.context("the record is not a piece of a message")
}

#[cfg(test)]
mod tests {
    use postroad_core::Settings;
    use postroad_journal::{Keys, Payload, Record, Ways};
    use postroad_model::{Changes, Encoding, Message, NORMAL_PRIORITY, Protocol, TransactionId};
    use postroad_routing::Addressing;
    use postroad_store::{Directories, Stores};

    use super::*;

    /// A data directory with one message in a queue, and two, one of them due later, in a prepared
    /// transaction.
    fn with_prepared(data: &std::path::Path) {
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: NORMAL_PRIORITY,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"body"),
        };
        let sent = Sent::new(Destination::queue("q"), message);
        let later = Sent { schedule: Some(Box::new(Schedule::once("job".into(), u64::MAX))), ..sent.clone() };
        let changes = Changes { sends: vec![sent.clone(), later], settlements: Vec::new() };
        let id = TransactionId { coordinator: PartitionId(0), incarnation: 1, number: 1 };
        let commands = [Command::Enqueue(sent), Command::Prepare { id, changes }];
        let choose = |_: &std::path::Path| Ways::default();
        let directories =
            Directories { main: data, partitions: 1, disk_bytes_max: None, further: &[], choose };
        let mut stores =
            Stores::open(directories, Keys::default(), Addressing::default(), Settings::at_rest).unwrap();
        let mut position = Position::FIRST;
        for command in commands {
            let payload = Payload::from(encode_record(&command, Compression::None));
            let record = Record { partition: PartitionId(0), position, payload, reserve: false, key: None };
            stores.stores[0].journal.commit(&[record]).unwrap();
            position = position.next();
        }
    }

    #[test]
    fn messages_of_prepared_transactions_are_counted_and_make_it_fail() {
        let home = tempfile::tempdir().unwrap();
        let (data, to) = (home.path().join("data"), home.path().join("all.jsonl"));
        with_prepared(&data);
        let place = Place { data, json: false, config: None };
        let error = run(&ExportArguments { place, to: Some(to.clone()) }).unwrap_err().to_string();
        assert_eq!(
            error,
            "2 messages of prepared transactions left out: resolve them with `postroad transactions`"
        );
        let lines = std::fs::read_to_string(to).unwrap();
        let (ahead, last) = lines.trim_end().rsplit_once('\n').unwrap();
        let crc32c = crc32c::crc32c(format!("{ahead}\n").as_bytes());
        let want = format!(r#"{{"messages":1,"unreadable":0,"prepared":2,"crc32c":{crc32c}}}"#);
        assert_eq!(last, want);
    }
}
