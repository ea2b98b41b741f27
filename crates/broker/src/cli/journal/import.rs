//! `postroad journal import`: messages of an export, into the queues of a stopped broker.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use postroad_core::decode_record;
use postroad_journal::{Journal, Payload, RealDisk, Record};
use postroad_model::{Command, PartitionId, Placement, Position, Sent};
use postroad_routing::Addressing;

use super::line::{End, Entry, Head, VERSION};
use super::settings;
use crate::cli::base64;
use crate::config::Config;
use crate::runtime::Store;

/// Messages are made durable in groups of about this many bytes.
const GROUP_BYTES: usize = 1 << 20;

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
}

/// Reads the whole file first: one that is not whole, or not understood, changes nothing.
pub fn run(arguments: &ImportArguments) -> anyhow::Result<()> {
    let mut found = End { messages: 0, unreadable: 0 };
    let mut skipped = 0_u64;
    let end = each_line(&arguments.from, &mut |entry| {
        match &entry.unreadable {
            None => found.messages += 1,
            Some(_) => found.unreadable += 1,
        }
        match &entry.subscription {
            Some(name) if !arguments.skip_subscriptions => {
                bail!(
                    "it was in the subscription {name}, which cannot be filled; --skip-subscriptions leaves it out"
                )
            }
            Some(_) => skipped += 1,
            None => {
                sent(&entry)?;
            }
        }
        Ok(())
    })?;
    if end != found {
        bail!("{}: the last line counts {end:?}, and there are {found:?}", arguments.from.display());
    }
    let mut target = Target::open(&arguments.data)?;
    each_line(&arguments.from, &mut |entry| match &entry.subscription {
        Some(_) => Ok(()),
        None => sent(&entry)?.map_or(Ok(()), |record| target.add(record)),
    })?;
    target.commit()?;
    eprintln!("{} messages imported", target.imported);
    if 0 < skipped {
        eprintln!("{skipped} messages of subscriptions left out");
    }
    if 0 < found.unreadable {
        eprintln!("{} messages could not be read when they were exported", found.unreadable);
    }
    Ok(())
}

/// Shows each message's line to `visit`; returns the last line.
fn each_line(file: &Path, visit: &mut dyn FnMut(Entry) -> anyhow::Result<()>) -> anyhow::Result<End> {
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
            if head.postroad_export != VERSION {
                bail!("{}: export format {}, this program knows {VERSION}", place(), head.postroad_export);
            }
        } else if let Ok(last) = serde_json::from_str::<End>(&line) {
            end = Some(last);
        } else {
            let entry = serde_json::from_str(&line).with_context(place)?;
            visit(entry).with_context(place)?;
        }
    }
    end.with_context(|| {
        format!("{}: the last line, which counts, is missing: the file is cut off", file.display())
    })
}

/// The message and the record that enqueues it; `None` if it could not be exported.
fn sent(entry: &Entry) -> anyhow::Result<Option<(Sent, Bytes)>> {
    let Some(text) = &entry.record else { return Ok(None) };
    let record = Bytes::from(base64::decode(text).context("`record` is not base64")?);
    match decode_record(&record).context("`record` is not understood")? {
        Command::Enqueue(sent) if sent.to.to_string() == entry.destination => Ok(Some((sent, record))),
        Command::Enqueue(sent) => bail!("`record` is for {}, the line for {}", sent.to, entry.destination),
        _ => bail!("`record` enqueues nothing"),
    }
}

/// The directory that is filled.
struct Target {
    journal: Journal<RealDisk>,
    placement: Placement,
    addressing: Arc<Addressing>,
    group: Vec<Record>,
    group_bytes: usize,
    next: BTreeMap<PartitionId, Position>,
    imported: u64,
}

impl Target {
    fn open(data: &Path) -> anyhow::Result<Target> {
        let config = Config::default();
        let (partitions, settings) = (config.runtime.partitions, settings(&config)?);
        let opened = Store::open(data, partitions, None, config.addressing()?, settings);
        let store = opened.with_context(|| format!("cannot open {}", data.display()))?;
        let Store { journal, placement, addressing, .. } = store;
        let (group, next) = (Vec::new(), BTreeMap::new());
        Ok(Target { journal, placement, addressing, group, group_bytes: 0, next, imported: 0 })
    }

    fn add(&mut self, (sent, record): (Sent, Bytes)) -> anyhow::Result<()> {
        let partition = self.addressing.partition_of(self.placement, &sent.to);
        let last = self.journal.last_position(partition);
        let position =
            *self.next.entry(partition).or_insert_with(|| last.map_or(Position::FIRST, Position::next));
        self.next.insert(partition, position.next());
        self.group_bytes += record.len();
        self.group.push(Record { partition, position, payload: Payload::from(record), reserve: false });
        if GROUP_BYTES <= self.group_bytes { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> anyhow::Result<()> {
        self.journal
            .commit(&self.group)
            .with_context(|| format!("{} messages were imported", self.imported))?;
        self.imported += self.group.len() as u64;
        self.group.clear();
        self.group_bytes = 0;
        Ok(())
    }
}
