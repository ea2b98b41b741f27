//! A damaged data directory: its readable contents, and its repair.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use postroad_core::{
    LastRecord, Partition, PartitionRebuild, RebuiltPartition, Sends, Settings, decode_record,
    message_in_record, sends_in_record,
};
use postroad_journal::{Checkpoint, Keys, LostRecords, Met, Options, ReadError, RealDisk, Repaired, Salvage};
use postroad_model::{Message, MessageKey, PartitionId, Placement, Position, Sent};

use crate::layout::{FurtherLayout, LAYOUT_FILE, Layout, StoreMembership};
use crate::store::{StoreError, restore};
use postroad_node::{equip, read_portable};

/// Directory for damaged files, with a number from 1.
const ASIDE: &str = "damaged-";

/// See the head of this file.
pub struct DamagedStore {
    directory: PathBuf,
    salvage: Salvage<RealDisk>,
    layout: Layout,
    /// Why the layout file is not to be believed.
    pub layout_damage: Option<String>,
    /// Lost records of the log, in its order.
    pub lost: Vec<Lost>,
    /// All partitions, as they go on.
    pub partitions: BTreeMap<PartitionId, RebuiltPartition>,
}

/// Facts known about a directory whose layout file may be unreadable.
#[derive(Debug, Default)]
pub struct Known {
    /// How many partitions it has.
    pub partitions: Option<u16>,
    /// The directories of all its further stores, if it is a data directory that has some.
    pub stores: Vec<PathBuf>,
    /// The data directory that it belongs to, if it is a further store.
    pub of: Option<PathBuf>,
    /// The present time: a new layout counts starts from it, so that transaction ids differ from
    /// earlier ones.
    pub now_ms: u64,
}

/// Records that are gone.
pub struct Lost {
    /// Which.
    pub records: LostRecords,
    /// The record that the bytes at its place describe, parts of which are wrong.
    pub apparent: Option<ApparentRecord>,
}

/// A damaged record as its bytes describe it, if these bytes are not the damaged ones.
pub struct ApparentRecord {
    /// The kind of record.
    pub kind: String,
    /// The messages in it: where to, and their ids.
    pub messages: Vec<(String, Option<String>)>,
}

impl DamagedStore {
    /// Reads all that is left, and changes nothing. `known` helps where the layout file does not.
    ///
    /// # Errors
    /// The directory is in use, of a newer version, or cannot be read; or a record that is intact
    /// makes no sense.
    pub fn look(
        directory: &Path,
        known: &Known,
        keys: Keys,
        settings: impl Fn(PartitionId, Placement, u64) -> Settings,
    ) -> anyhow::Result<DamagedStore> {
        if !directory.is_dir() {
            bail!("there is no such directory");
        }
        let salvage =
            Salvage::look_with(RealDisk::open_to_look(directory)?, keys).map_err(StoreError::from)?;
        if salvage.is_empty() {
            bail!("it has no checkpoint and no segment: nothing to recover from");
        }
        let seen = count_partitions(&salvage)?;
        let (layout, layout_damage) = layout_of(directory, seen, known)?;
        let placement = layout.placement();
        let settings = |id| settings(id, placement, layout.starts);
        let mut mending: BTreeMap<PartitionId, PartitionRebuild> = BTreeMap::new();
        for checkpoint in salvage.checkpoints() {
            let id = checkpoint.partition;
            let mut partition = restore(&checkpoint, settings(id))?;
            read_prepared(&salvage, id, &mut partition)?;
            mending.insert(id, begin(&salvage, id, partition));
        }
        for id in layout.range().iter() {
            mending.entry(id).or_insert_with(|| begin(&salvage, id, Partition::new(settings(id))));
        }
        let mut lost = Vec::new();
        salvage.replay(&mut |met| replay(&mut mending, met, &mut lost))?;
        for (id, mending) in &mut mending {
            put_back(&salvage, *id, mending)?;
        }
        let end = |(id, mending): (PartitionId, PartitionRebuild)| {
            (id, mending.end(|position| salvage.has(id, position)))
        };
        let partitions = mending.into_iter().map(end).collect();
        Ok(DamagedStore { directory: directory.to_owned(), salvage, layout, layout_damage, lost, partitions })
    }

    /// The records that were read.
    pub fn salvage(&self) -> &Salvage<RealDisk> {
        &self.salvage
    }

    /// Whether there is anything that a start would not mend by itself.
    pub fn is_damaged(&self) -> bool {
        self.layout_damage.is_some() || !self.salvage.damaged().is_empty() || !self.lost.is_empty()
    }

    /// The id of a message that is gone, if the rest of its record still has it.
    pub fn id_of(&self, partition: PartitionId, position: Position, ordinal: u32) -> Option<String> {
        let left = self.salvage.read_damaged(partition, position).ok()??;
        id_of(&message_in_record(&left, ordinal).ok()??)
    }

    /// How many partitions there are from now on.
    pub fn partition_count(&self) -> u16 {
        self.layout.partitions
    }

    /// Makes the directory one that opens. Damaged files are kept in a directory inside of it,
    /// together with `report`.
    ///
    /// # Errors
    /// The rest is unchanged, and the repair can be repeated.
    pub fn repair(self, report: &[u8]) -> anyhow::Result<(PathBuf, Repaired)> {
        let aside = self.make_aside()?;
        write(&aside.join("report.jsonl"), report)?;
        let disk = RealDisk::open(&aside)?;
        let states = self.partitions.iter().filter_map(|(id, mended)| {
            let (partition, state) = (*id, mended.partition.snapshot_pieces());
            mended.partition.applied().map(|position| Checkpoint { partition, position, state })
        });
        let live = self.partitions.iter().flat_map(|(id, mended)| {
            let keys = mended.partition.live_messages().flat_map(|row| row.keys());
            keys.filter_map(|key| match key {
                MessageKey::Durable { position, .. } => Some((*id, position)),
                MessageKey::Volatile(_) => None,
            })
        });
        let repaired = self.salvage.repair(&disk, Options::default(), states.collect(), live)?;
        if self.layout_damage.is_some() {
            let file = self.directory.join(LAYOUT_FILE);
            if file.exists() {
                std::fs::rename(&file, aside.join(LAYOUT_FILE))
                    .with_context(|| format!("cannot move {}", file.display()))?;
            }
            self.layout.write(&self.directory)?;
        }
        Ok((aside, repaired))
    }

    fn make_aside(&self) -> anyhow::Result<PathBuf> {
        for number in 1..=u16::MAX {
            let aside = self.directory.join(format!("{ASIDE}{number}"));
            match std::fs::create_dir(&aside) {
                Ok(()) => return Ok(aside),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", aside.display()));
                }
            }
        }
        bail!("{} has too many directories {ASIDE}…", self.directory.display())
    }
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", file.display());
    let mut made = std::fs::File::create_new(file).with_context(failed)?;
    std::io::Write::write_all(&mut made, bytes).and_then(|()| made.sync_all()).with_context(failed)
}

fn begin(salvage: &Salvage<RealDisk>, id: PartitionId, mut partition: Partition) -> PartitionRebuild {
    equip(&mut partition);
    PartitionRebuild::begin(partition, |position| salvage.has(id, position))
}

/// One more than the highest partition that has records or a state.
fn count_partitions(salvage: &Salvage<RealDisk>) -> Result<u16, ReadError> {
    let states = salvage.checkpoints().into_iter().map(|checkpoint| checkpoint.partition.0 + 1);
    let mut seen = states.max().unwrap_or(1);
    salvage.replay::<ReadError>(&mut |met| {
        let (Met::Record(postroad_journal::StoredRecord { partition, .. })
        | Met::Lost(LostRecords { partition, .. })) = met;
        seen = seen.max(partition.0.saturating_add(1));
        Ok(())
    })?;
    Ok(seen)
}

/// The layout, recreated if the file is damaged or does not fit, and the fault of the file.
fn layout_of(directory: &Path, seen: u16, known: &Known) -> anyhow::Result<(Layout, Option<String>)> {
    let file = directory.join(LAYOUT_FILE);
    let found = Layout::find(directory);
    let wrong = match (found, known.partitions) {
        (Ok(Some(layout)), None) if seen <= layout.range().end() => return Ok((layout, None)),
        (Ok(Some(layout)), Some(partitions)) if layout.partitions == partitions => return Ok((layout, None)),
        (Ok(Some(layout)), _) => format!("it lists {} partitions", layout.partitions),
        (Ok(None), _) => format!("{} is missing", file.display()),
        (Err(error @ StoreError::LayoutVersion { .. }), None) => return Err(error.into()),
        (Err(error), _) => error.to_string(),
    };
    // More starts than it can have seen.
    let starts = known.now_ms;
    let layout = match &known.of {
        Some(of) => by_main(of, seen, starts)?,
        None if known.stores.is_empty() => Layout::new(known.partitions.unwrap_or(seen), starts),
        None => by_further(&known.stores, starts)?,
    };
    if let Some(partitions) = known.partitions.filter(|partitions| *partitions != layout.partitions) {
        bail!("by the other stores it has {} partitions, not {partitions}", layout.partitions);
    }
    if layout.range().end() < seen {
        bail!("the log has records of {seen} partitions, not of {}", layout.range().end());
    }
    Ok((layout, Some(wrong)))
}

/// The layout of a data directory by those of its further stores, which tell whose they are and
/// where their partitions begin.
fn by_further(stores: &[PathBuf], starts: u64) -> anyhow::Result<Layout> {
    let mut listed = Vec::new();
    let mut main: Option<String> = None;
    for path in stores {
        let found = Layout::find(path)?
            .with_context(|| format!("there is no {LAYOUT_FILE} in {}", path.display()))?;
        let (Some(StoreMembership { name, of, first }), Some(identity)) = (found.further, found.identity)
        else {
            bail!("{} is not a further store of another directory", path.display());
        };
        if main.as_ref().is_some_and(|main| *main != of) {
            bail!("{} belongs to another data directory than the stores named before it", path.display());
        }
        main = Some(of);
        let partitions = found.partitions;
        listed.push(FurtherLayout { name, identity, first, partitions, given_up: false });
    }
    listed.sort_unstable_by_key(|store| store.first);
    let partitions = listed.first().map_or(1, |store| store.first);
    let ends = std::iter::once(partitions).chain(listed.iter().map(|store| store.range().end()));
    if let Some((end, store)) = ends.zip(&listed).find(|(end, store)| *end != store.first) {
        bail!("the partitions of {} start at {}, not at {end}: is a store missing?", store.name, store.first);
    }
    let mut layout = Layout::new(partitions, starts);
    (layout.identity, layout.stores) = (main, listed);
    Ok(layout)
}

/// The layout of a further store by that of the data directory, which lists it. Which of those
/// listed it is, tell the partitions that its log has.
fn by_main(main: &Path, seen: u16, starts: u64) -> anyhow::Result<Layout> {
    let found =
        Layout::find(main)?.with_context(|| format!("there is no {LAYOUT_FILE} in {}", main.display()))?;
    let last = PartitionId(seen.saturating_sub(1));
    let own = found.stores.into_iter().find(|store| store.range().contains(last)).with_context(|| {
        format!("{} lists no further store that has partition {}, which its log has", main.display(), last.0)
    })?;
    let of = found.identity.with_context(|| format!("{} has no identity", main.display()))?;
    let mut layout = Layout::new(own.partitions, starts);
    layout.identity = Some(own.identity);
    layout.further = Some(StoreMembership { name: own.name, of, first: own.first });
    Ok(layout)
}

/// Reads the bodies of prepared messages back, as far as they are there.
fn read_prepared(
    salvage: &Salvage<RealDisk>,
    id: PartitionId,
    partition: &mut Partition,
) -> Result<(), StoreError> {
    let mut last = LastRecord::default();
    for key in partition.absent_prepared() {
        let MessageKey::Durable { position, ordinal } = key else { continue };
        let sends = last.sends(id, position, || sends_left(salvage, id, position))?;
        if let Some(sent) = sends.get(ordinal) {
            partition.restore_body(key, sent.message.clone());
        }
    }
    Ok(())
}

/// The messages of a record; none if it is not there.
fn sends_left(
    salvage: &Salvage<RealDisk>,
    partition: PartitionId,
    position: Position,
) -> Result<Sends, StoreError> {
    let Some(record) = salvage.read(partition, position)? else { return Ok(Sends::default()) };
    let failed = |source| StoreError::Record { partition: partition.0, position: position.get(), source };
    sends_in_record(&record).map_err(failed)
}

/// Puts jobs back that were in records of their own, as far as their messages are there.
fn put_back(
    salvage: &Salvage<RealDisk>,
    id: PartitionId,
    mending: &mut PartitionRebuild,
) -> Result<(), StoreError> {
    let mut last = LastRecord::default();
    for row in mending.take_shelved() {
        for key in row.keys() {
            let MessageKey::Durable { position, ordinal } = key else { continue };
            let sends = last.sends(id, position, || sends_left(salvage, id, position))?;
            mending.put_back(key, row.body_bytes, sends.get(ordinal));
        }
    }
    Ok(())
}

fn replay(
    mending: &mut BTreeMap<PartitionId, PartitionRebuild>,
    met: Met,
    lost: &mut Vec<Lost>,
) -> Result<(), StoreError> {
    match met {
        Met::Record(record) => {
            let Some(partition) = mending.get_mut(&record.partition) else { return Ok(()) };
            let (id, position) = (record.partition.0, record.position.get());
            let failed = |source| StoreError::Record { partition: id, position, source };
            partition.apply(record.position, decode_record(&record.payload).map_err(failed)?);
        }
        Met::Lost(records) => {
            if let Some(partition) = mending.get_mut(&records.partition) {
                partition.lose(records.last);
            }
            let apparent = records.damaged_payload.as_ref().and_then(apparent);
            lost.push(Lost { records, apparent });
        }
    }
    Ok(())
}

fn apparent(payload: &Bytes) -> Option<ApparentRecord> {
    let command = decode_record(payload).ok()?;
    let kind: String = format!("{command:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect();
    let sends = sends_in_record(payload).unwrap_or_default();
    let told = |sent: Sent| (sent.to.to_string(), id_of(&sent.message));
    Some(ApparentRecord { kind, messages: sends.into_sent().into_iter().map(told).collect() })
}

fn id_of(message: &Message) -> Option<String> {
    Some(read_portable(message).ok()?.headers.message_id?.to_jms_message_id().to_string())
}
