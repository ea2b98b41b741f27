//! `postroad journal import`: messages of an export, into the queues of a stopped broker.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use postroad_core::decode_record;
use postroad_model::{Chunks, Command, Destination, Position, Sent};

use super::line::{End, Entry, Head, Piece, VERSION, VERSION_MIN};
use crate::cli::{base64, stores};
use crate::config::Config;
use crate::runtime::Filler;

/// What `import` can be told.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The data directory of a broker that does not run; it is made if there is none.
    #[arg(value_name = "DIR")]
    data: PathBuf,
    /// What `export` wrote.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Leave out what was in durable subscriptions, instead of refusing the file for it.
    #[arg(long)]
    skip_subscriptions: bool,
    /// The broker's configuration file, for the keys of a store that is or is to be encrypted.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Reads the whole file first: one that is not whole, or not understood, changes nothing.
pub fn run(arguments: &ImportArguments) -> anyhow::Result<()> {
    let mut found = End::default();
    let (mut skipped, mut pieces) = (0_u64, 0_u64);
    let mut large = VecDeque::new();
    let end = each_line(&arguments.from, &mut |line| {
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
            bail!("{missing} of the lines with its body are missing");
        }
        match &entry.unreadable {
            None => found.messages += 1,
            Some(_) => found.unreadable += 1,
        }
        let to = match &entry.subscription {
            Some(name) if !arguments.skip_subscriptions => {
                bail!(
                    "it was in the subscription {name}, which cannot be filled; --skip-subscriptions leaves it out"
                )
            }
            Some(_) => {
                skipped += 1;
                None
            }
            None => sent(&entry)?.map(|sent| sent.to),
        };
        if has_pieces {
            large.push_back(to);
        }
        Ok(())
    })?;
    found.prepared = end.prepared;
    if end != found {
        bail!("{}: the last line counts {end:?}, and there are {found:?}", arguments.from.display());
    }
    let config = Config { data: arguments.data.clone(), ..Config::of(arguments.config.as_deref())? };
    let mut target = Target::open(&config, large)?;
    each_line(&arguments.from, &mut |line| match line {
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
        eprintln!("{skipped} messages of subscriptions left out");
    }
    if 0 < found.unreadable {
        eprintln!("{} messages could not be read when they were exported", found.unreadable);
    }
    if 0 < found.prepared {
        eprintln!("{} messages of prepared transactions were not exported", found.prepared);
    }
    Ok(())
}

/// A line between the first and the last.
enum Line {
    Entry(Box<Entry>),
    Piece(Piece),
}

fn decode(piece: &Piece) -> anyhow::Result<Bytes> {
    Ok(Bytes::from(base64::decode(&piece.piece).context("`piece` is not base64")?))
}

/// Shows each message's line, and each piece of one, to `visit`; returns the last line.
fn each_line(file: &Path, visit: &mut dyn FnMut(Line) -> anyhow::Result<()>) -> anyhow::Result<End> {
    let reading = || format!("cannot read {}", file.display());
    let lines = BufReader::new(File::open(file).with_context(reading)?).lines();
    let mut end = None;
    for (index, line) in lines.enumerate() {
        let place = || format!("{}: line {}", file.display(), index + 1);
        let line = line.with_context(place)?;
        if end.is_some() {
            bail!("{}: nothing may follow the last line, which counts", place());
        }
        if index == 0 {
            let head: Head = serde_json::from_str(&line).with_context(|| {
                format!("{}: an export begins with {{\"postroad_export\":{VERSION}}}", place())
            })?;
            if !(VERSION_MIN..=VERSION).contains(&head.postroad_export) {
                bail!("{}: export format {}, this program knows {VERSION}", place(), head.postroad_export);
            }
        } else if let Ok(last) = serde_json::from_str::<End>(&line) {
            end = Some(last);
        } else {
            let line = match serde_json::from_str::<Piece>(&line) {
                Ok(piece) => Line::Piece(piece),
                Err(_) => Line::Entry(serde_json::from_str(&line).with_context(place)?),
            };
            visit(line).with_context(place)?;
        }
    }
    end.with_context(|| {
        format!("{}: the last line, which counts, is missing: the file is cut off", file.display())
    })
}

/// The message, but for a large body; `None` if it could not be exported.
fn sent(entry: &Entry) -> anyhow::Result<Option<Sent>> {
    let Some(text) = &entry.record else { return Ok(None) };
    let record = Bytes::from(base64::decode(text).context("`record` is not base64")?);
    match decode_record(&record).context("`record` is not understood")? {
        Command::Enqueue(sent) if sent.to.to_string() == entry.destination => Ok(Some(sent)),
        Command::Enqueue(sent) => bail!("`record` is for {}, the line for {}", sent.to, entry.destination),
        _ => bail!("`record` enqueues nothing"),
    }
}

/// The directory that is filled.
struct Target {
    filler: Filler,
    /// Where each large message goes from the next one on, for its pieces come first in the file; `None`: it is not imported.
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
        let to = self.large.front().context("the file has changed since it was looked through")?;
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
        eprintln!("{imported} messages imported");
        troubles.iter().for_each(|trouble| eprintln!("{trouble}"));
        Ok(())
    }
}
