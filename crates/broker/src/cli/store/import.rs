//! `postroad store import`: messages of an export, into the queues of a stopped broker.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use postroad_core::{Load, decode_record};
use postroad_model::{Chunks, Command, Destination, Position, Sent};
use postroad_store::Filler;

use super::export_file::{ExportFile, Line};
use super::line::{End, Entry, Piece};
use crate::cli::words::counted;
use crate::cli::{base64, stores};
use crate::config::Config;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Data directory of a stopped broker; created if it does not exist.
    #[arg(value_name = "DIR")]
    data: PathBuf,
    /// File written by `export`; - for standard input.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Skip messages of durable subscriptions instead of refusing the file.
    #[arg(long)]
    skip_subscriptions: bool,
    /// Configuration file with policies, stores and encryption keys.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Reads the whole file first: one that is not whole, or not understood, changes nothing.
pub fn run(arguments: &ImportArguments) -> anyhow::Result<()> {
    let file = ExportFile::open(&arguments.from, &arguments.data)?;
    let Content { found, more, large, skipped } = look_through(&file, arguments.skip_subscriptions)?;
    let config = Config { data: arguments.data.clone(), ..Config::of(arguments.config.as_deref())? };
    let mut target = Target::open(&config, large)?;
    if let Some(refusal) = target.filler.limit_exceeded_by(more) {
        bail!("nothing was imported: {file} does not fit: {refusal}; raise that limit");
    }
    file.each_line(&mut |line| match line {
        Line::Piece(piece) => target.add_piece(decode(&piece)?),
        Line::Entry(entry) => {
            let body = target.take_pieces(entry.pieces)?;
            match &entry.subscription {
                Some(_) => Ok(()),
                None => sent(&entry)?.map_or(Ok(()), |sent| target.add(sent, body)),
            }
        }
    })?;
    target.end()?;
    if 0 < skipped {
        eprintln!("{} of subscriptions left out", counted(skipped, "message"));
    }
    if 0 < found.unreadable {
        let unreadable = counted(found.unreadable, "message");
        eprintln!("{unreadable} could not be read when they were exported");
    }
    if 0 < found.prepared {
        let prepared = counted(found.prepared, "message");
        eprintln!("{prepared} of prepared transactions left out when they were exported");
    }
    Ok(())
}

/// The counts of an export.
#[derive(Default)]
struct Content {
    found: End,
    /// The queues with a rest of the backlog.
    more: BTreeMap<Destination, Load>,
    /// Where each large message goes; `None`: it is not imported.
    large: VecDeque<Option<Destination>>,
    /// Messages of subscriptions.
    skipped: u64,
}

fn look_through(file: &ExportFile, skip_subscriptions: bool) -> anyhow::Result<Content> {
    let mut content = Content::default();
    let mut pieces = 0_u64;
    let end = file.each_line(&mut |line| {
        let entry = match line {
            Line::Piece(piece) => {
                pieces += 1;
                return decode(&piece).map(drop);
            }
            Line::Entry(entry) => *entry,
        };
        let (has_pieces, missing) = (0 < pieces, entry.pieces.unwrap_or(0).saturating_sub(pieces));
        pieces = 0;
        if 0 < missing {
            bail!("{missing} lines of its body are missing");
        }
        let to = content.take(&entry, skip_subscriptions)?;
        if has_pieces {
            content.large.push_back(to);
        }
        Ok(())
    })?;
    content.found.prepared = end.prepared;
    content.found.crc32c = end.crc32c;
    if end != content.found {
        bail!("{file}: the last line has the counts {end:?}, but the file has {:?}", content.found);
    }
    Ok(content)
}

impl Content {
    /// Counts an entry; returns its destination.
    fn take(&mut self, entry: &Entry, skip_subscriptions: bool) -> anyhow::Result<Option<Destination>> {
        match &entry.unreadable {
            None => self.found.messages += 1,
            Some(_) => self.found.unreadable += 1,
        }
        match &entry.subscription {
            Some(name) if !skip_subscriptions => {
                bail!(
                    "it belongs to the subscription {name}, which cannot be imported; --skip-subscriptions skips it"
                )
            }
            Some(_) => {
                self.skipped += 1;
                Ok(None)
            }
            None => Ok(sent(entry)?.map(|sent| {
                // Scheduled messages count when they are due.
                if sent.schedule.is_none() {
                    let bytes = entry.body_bytes.max(sent.message.size());
                    self.more.entry(sent.to.clone()).or_default().add(bytes);
                }
                sent.to
            })),
        }
    }
}

fn decode(piece: &Piece) -> anyhow::Result<Bytes> {
    Ok(Bytes::from(base64::decode(&piece.piece).context("`piece` is not base64")?))
}

/// The message, but for a large body; `None` if it could not be exported.
fn sent(entry: &Entry) -> anyhow::Result<Option<Sent>> {
    let Some(text) = &entry.record else { return Ok(None) };
    let record = Bytes::from(base64::decode(text).context("`record` is not base64")?);
    match decode_record(&record).context("`record` is malformed")? {
        Command::Enqueue(sent) if sent.to.to_string() == entry.destination => Ok(Some(sent)),
        Command::Enqueue(sent) => bail!("`record` is for {}, the line for {}", sent.to, entry.destination),
        _ => bail!("`record` enqueues nothing"),
    }
}

/// The directory that is filled.
struct Target {
    filler: Filler,
    /// Where each large message goes from the next one on, for its pieces come first in the file;
    /// `None`: it is not imported.
    large: VecDeque<Option<Destination>>,
    /// Whether pieces of the next message have come.
    has_pieces: bool,
    /// Of the next message, where its body lies.
    pieces: Vec<(Position, u64)>,
    imported: u64,
}

impl Target {
    fn open(config: &Config, large: VecDeque<Option<Destination>>) -> anyhow::Result<Target> {
        let (keys, policies) = (config.keys()?, Arc::new(config.policies()?));
        let (stores, keys) = stores::open(config, &policies, keys)?;
        let filler = Filler::of(stores, keys);
        Ok(Target { filler, large, has_pieces: false, pieces: Vec::new(), imported: 0 })
    }

    fn add(&mut self, sent: Sent, body: Option<Chunks>) -> anyhow::Result<()> {
        let to = sent.to.clone();
        let message = sent.message.with_chunks(body.map(Arc::new));
        self.put(Command::Enqueue(Sent { message, ..sent }), &to)?;
        self.imported += 1;
        Ok(())
    }

    fn add_piece(&mut self, piece: Bytes) -> anyhow::Result<()> {
        self.has_pieces = true;
        let to = self.large.front().context("the file changed while it was being imported")?;
        let Some(to) = to.clone() else { return Ok(()) };
        let bytes = piece.len() as u64;
        let position = self.put(Command::Chunk(piece), &to)?;
        self.pieces.push((position, bytes));
        Ok(())
    }

    fn put(&mut self, command: Command, to: &Destination) -> anyhow::Result<Position> {
        let imported = self.imported;
        self.filler.put(command, to).with_context(|| format!("about {imported} messages were imported"))
    }

    /// The body of the next message, if it is a large one: its pieces have been added.
    fn take_pieces(&mut self, count: Option<u64>) -> anyhow::Result<Option<Chunks>> {
        if std::mem::take(&mut self.has_pieces) {
            self.large.pop_front();
        }
        let pieces = std::mem::take(&mut self.pieces);
        // Those that could not be exported whole leave some behind.
        let Some(skipped) = count.and_then(|count| pieces.len().checked_sub(usize::try_from(count).ok()?))
        else {
            return Ok(None);
        };
        let pieces = &pieces[skipped..];
        let piece_bytes = pieces.first().map_or(0, |(_, bytes)| *bytes);
        let (last, others) = pieces.split_last().context("a large message without pieces")?;
        if others.iter().any(|(_, bytes)| *bytes != piece_bytes) || piece_bytes < last.1 || last.1 == 0 {
            bail!("the pieces of a large message differ in size, and not only the last one is shorter");
        }
        let (bytes, piece_bytes) = (pieces.iter().map(|(_, bytes)| bytes).sum(), u32::try_from(piece_bytes)?);
        let positions = pieces.iter().map(|(position, _)| *position).collect();
        Ok(Some(Chunks { bytes, piece_bytes, positions }))
    }

    fn end(self) -> anyhow::Result<()> {
        let imported = self.imported;
        let troubles =
            self.filler.end().with_context(|| format!("about {imported} messages were imported"))?;
        eprintln!("{} imported", counted(imported, "message"));
        troubles.iter().for_each(|trouble| eprintln!("{trouble}"));
        Ok(())
    }
}
