//! The data directory: opened, locked, and read back into partitions.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use postroad_core::{
    Firing, Partition, RecordError, Settings, SnapshotError, decode_record, message_in_record,
};
use postroad_journal::{
    Damage, Disk, Journal, Keys, OpenError, Options, ReadError, ReadOnly, RealDisk, Recovered, TornTail,
};
use postroad_model::{
    DeadLetter, Effect, Message, MessageKey, Origin, PartitionId, Placement, Position, Protocol, Revived,
};
use postroad_openwire::StoredProperties;
use postroad_routing::{Addressing, is_wildcard};
use postroad_selector::Properties;
use serde::{Deserialize, Serialize};

use crate::runtime::opening::{Opening, Stage};

/// The file beside the journal that says how the directory is laid out.
pub const LAYOUT_FILE: &str = "layout.json";

/// The layout that this build writes, and the newest that it reads.
const LAYOUT_VERSION: u32 = 1;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Something in the directory is encrypted with a key that is not configured.
    #[error(
        "{0}; name its file in [encryption], as key_file, or in former_key_files if another has taken its place (`postroad key id` tells which key a file has)"
    )]
    KeyUnknown(OpenError),
    /// Something in the directory is not encrypted, which the configuration forbids.
    #[error(
        "{0} (encryption.required): either somebody put it there, or encryption was turned on only lately; then `required` must wait until `postroad journal stats` lists nothing without a key"
    )]
    InTheClear(OpenError),
    /// The journal does not open.
    #[error(transparent)]
    Journal(OpenError),
    /// A record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of the directory cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The layout file is not what Postroad writes.
    #[error("{}: {reason}", file.display())]
    Layout {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A newer Postroad made the directory.
    #[error("{}: layout version {found} is unknown; this Postroad reads up to {known}", file.display())]
    LayoutVersion {
        /// The layout file.
        file: PathBuf,
        /// The version in it.
        found: u64,
        /// The newest one known here.
        known: u32,
    },
    /// A partition's snapshot cannot be understood.
    #[error("partition {partition}: {source}")]
    Snapshot {
        /// Whose.
        partition: u16,
        /// What is wrong.
        source: SnapshotError,
    },
    /// A record cannot be understood.
    #[error("partition {partition}, record {position}: {source}")]
    Record {
        /// Whose.
        partition: u16,
        /// Its position.
        position: u64,
        /// What is wrong.
        source: RecordError,
    },
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> StoreError {
        match error {
            OpenError::KeyUnknown { .. } => StoreError::KeyUnknown(error),
            OpenError::InTheClear { .. } => StoreError::InTheClear(error),
            error => StoreError::Journal(error),
        }
    }
}

/// Facts of a data directory that never change after it was made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    version: u32,
    pub(super) partitions: u16,
    /// How often it was opened: makes the transaction ids of each run its own.
    pub(super) starts: u64,
}

impl Layout {
    pub(super) fn new(partitions: u16, starts: u64) -> Layout {
        Layout { version: LAYOUT_VERSION, partitions: partitions.max(1), starts }
    }
}

/// What was found wrong with a directory when it was opened.
#[derive(Debug, Default)]
pub struct Report {
    /// Partitions that are stopped, with the first damage in each.
    pub damaged: Vec<Damage>,
    /// A write that was never confirmed, at the very end.
    pub torn: Option<TornTail>,
    /// Checkpoints that cannot be read.
    pub skipped_checkpoints: Vec<PathBuf>,
}

impl Report {
    fn of<F>(recovered: &Recovered<F>) -> Report {
        Report {
            damaged: recovered.damaged.clone(),
            torn: recovered.torn.clone(),
            skipped_checkpoints: recovered.skipped_checkpoints.clone(),
        }
    }
}

/// A directory of a broker that does not run: read, and not changed.
pub type Stopped = Store<ReadOnly<RealDisk>>;

/// An open data directory with the state that it held.
pub struct Store<D: Disk = RealDisk> {
    /// The disk, for jobs beside the journal.
    pub disk: D,
    /// The journal.
    pub journal: Journal<D>,
    /// What was wrong.
    pub report: Report,
    /// Every partition, recovered.
    pub partitions: BTreeMap<PartitionId, Partition>,
    /// How many partitions there are.
    pub placement: Placement,
    /// Where addresses live, and what feeds them.
    pub addressing: Arc<Addressing>,
}

impl Store {
    /// Opens or makes the directory, whose files together take no more than `disk_bytes_max` if they can help it.
    /// `partitions` counts only for a new one; `settings` makes those of one partition.
    /// Queues that are in another partition than `addressing` says stay there.
    ///
    /// # Errors
    /// [`StoreError`]: in use, damaged, of a newer version, or refused by the system.
    pub fn open(
        directory: &Path,
        partitions: u16,
        disk_bytes_max: Option<u64>,
        keys: Keys,
        addressing: Addressing,
        settings: impl Fn(PartitionId, Placement, u64) -> Settings,
    ) -> Result<Store, StoreError> {
        let opening = Opening::begin();
        let disk = RealDisk::open(directory)?.limited(disk_bytes_max);
        let layout = find_layout(directory, partitions)?;
        if 0 < layout.starts {
            check_segments(directory, &disk)?;
        }
        let layout = Layout { starts: layout.starts + 1, ..layout };
        let current = keys.current();
        let store = Store::recover(disk, &layout, keys, addressing, settings, opening)?;
        if let Some(key) = current {
            tracing::info!(%key, "what is new is encrypted");
        }
        // Behind the first segment: a layout without any means that they were lost.
        write_layout(directory, &layout)?;
        for damage in &store.report.damaged {
            tracing::error!(%damage, "a partition is stopped");
        }
        for file in &store.report.skipped_checkpoints {
            tracing::error!(file = %file.display(), "a checkpoint is damaged; the one before is used");
        }
        if let Some(torn) = &store.report.torn {
            let file = torn.file.display();
            tracing::info!(%file, offset = torn.offset, "cut off a write that was never confirmed");
        }
        Ok(store)
    }
}

impl Stopped {
    /// Reads the directory of a broker that does not run, and changes nothing in it but the lock.
    ///
    /// # Errors
    /// [`StoreError`]: there is none, or it is in use, or so damaged that a broker would not start with it.
    pub fn look(
        directory: &Path,
        keys: Keys,
        addressing: Addressing,
        settings: impl Fn(PartitionId, Placement, u64) -> Settings,
    ) -> Result<Stopped, StoreError> {
        let (disk, layout) = Stopped::find(directory)?;
        Store::recover(disk, &layout, keys, addressing, settings, Opening::begin())
    }

    /// As much as can be told of a directory without its keys: the journal, and no partition.
    ///
    /// # Errors
    /// As [`Stopped::look`].
    pub fn look_without_keys(directory: &Path) -> Result<Stopped, StoreError> {
        let (disk, layout) = Stopped::find(directory)?;
        let opened =
            Journal::open_with(disk.clone(), Options::default(), Keys::done_without(), &mut |_, _| ());
        let (journal, recovered) = opened?;
        let (report, placement) = (Report::of(&recovered), Placement { partitions: layout.partitions });
        let (partitions, addressing) = (BTreeMap::new(), Arc::default());
        Ok(Store { disk, journal, report, partitions, placement, addressing })
    }

    fn find(directory: &Path) -> Result<(ReadOnly<RealDisk>, Layout), StoreError> {
        let file = directory.join(LAYOUT_FILE);
        let bytes = std::fs::read(&file).map_err(|source| StoreError::Io { file: file.clone(), source })?;
        let layout = read_layout(&file, &bytes)?;
        Ok((ReadOnly(RealDisk::open(directory)?), layout))
    }
}

impl<D: Disk> Store<D> {
    fn recover(
        disk: D,
        layout: &Layout,
        keys: Keys,
        addressing: Addressing,
        settings: impl Fn(PartitionId, Placement, u64) -> Settings,
        opening: Opening,
    ) -> Result<Store<D>, StoreError> {
        let placement = Placement { partitions: layout.partitions };
        opening.enter(Stage::Checkpoint, 0);
        let (mut journal, mut recovered) =
            Journal::open_with(disk.clone(), Options::default(), keys, &mut |done, of| {
                if done == 0 {
                    opening.enter(Stage::Journal, of);
                }
                opening.done(done);
            })?;
        let mut partitions: BTreeMap<PartitionId, Partition> = BTreeMap::new();
        let settings = |id| settings(id, placement, layout.starts);
        opening.enter(Stage::States, recovered.checkpoints.len() as u64);
        // Each state goes once it is taken over.
        for (checkpoint, number) in std::mem::take(&mut recovered.checkpoints).into_iter().zip(1..) {
            let id = checkpoint.partition;
            let restored = Partition::restore(settings(id), &checkpoint.state);
            let mut partition =
                restored.map_err(|source| StoreError::Snapshot { partition: id.0, source })?;
            read_prepared(&mut journal, id, &mut partition)?;
            partitions.insert(id, partition);
            opening.done(number);
        }
        for id in (0..placement.partitions).map(PartitionId) {
            partitions.entry(id).or_insert_with(|| Partition::new(settings(id)));
        }
        partitions.values_mut().for_each(equip);
        opening.enter(Stage::Records, 0);
        let mut records = 0;
        for record in recovered.records() {
            let record = record?;
            replay(&mut partitions, record.partition, record.position, &record.payload)?;
            records += 1;
            opening.done(records);
        }
        let addressing = Arc::new(settle(addressing, placement, &partitions));
        for partition in partitions.values_mut() {
            partition.address_by(addressing.clone());
        }
        opening.enter(Stage::Needed, partitions.len() as u64);
        for ((id, partition), number) in partitions.iter().zip(1..) {
            journal.recount(*id, partition.live_messages());
            opening.done(number);
        }
        opening.end(records);
        let report = Report::of(&recovered);
        Ok(Store { disk, journal, report, partitions, placement, addressing })
    }
}

/// Rules may have changed since a queue was made: it stays where it is.
fn settle(
    mut addressing: Addressing,
    placement: Placement,
    partitions: &BTreeMap<PartitionId, Partition>,
) -> Addressing {
    for (id, partition) in partitions {
        for queue in partition.lasting_queues().filter(|queue| !is_wildcard(&queue.name)) {
            if addressing.partition_of(placement, queue) == *id {
                continue;
            }
            if !addressing.feeds_of(queue).is_empty() {
                tracing::warn!(%queue, "no virtual topic feeds it: it was made in another partition; delete it once it is empty");
            }
            addressing.settled.insert(queue.name.clone(), *id);
        }
    }
    addressing
}

/// Reads the bodies of prepared messages back: where they go may depend on them.
fn read_prepared<D: Disk>(
    journal: &mut Journal<D>,
    id: PartitionId,
    partition: &mut Partition,
) -> Result<(), StoreError> {
    for key in partition.absent_prepared() {
        let MessageKey::Durable { position, ordinal } = key else { continue };
        let record = journal.read(id, position)?;
        let message = message_in_record(&record, ordinal);
        let failed = |source| StoreError::Record { partition: id.0, position: position.get(), source };
        if let Some(message) = message.map_err(failed)? {
            partition.restore_body(key, message);
        }
    }
    Ok(())
}

/// Tells a partition how the protocols read and write their messages.
pub(super) fn equip(partition: &mut Partition) {
    partition.read_properties_by(properties_of);
    partition.read_origins_by(origin_of);
    partition.write_due_by(write_due);
    partition.mark_dead_letters_by(mark_dead_letter);
    partition.revive_by(revive_dead_letter);
    partition.count_retained_by(postroad_openwire::count_retained);
}

/// Each protocol reads its own messages.
pub(super) fn properties_of(message: &Message) -> Box<dyn Properties + '_> {
    match message.encoding.protocol {
        Protocol::OpenWire => Box::new(StoredProperties::of(&message.bytes, message.encoding.version)),
        Protocol::Amqp => {
            Box::new(postroad_amqp::message::StoredProperties::of(&message.bytes, message.expires_at_ms))
        }
    }
}

fn write_due(message: &Message, firing: &Firing<'_>) -> Message {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::write_due(message, firing.job, firing.now_ms, firing.number),
        // When it is due stays in it, for consumers to read (JMS 2.0, section 3.4.13).
        Protocol::Amqp => message.clone(),
    }
}

fn origin_of(message: &Message) -> Option<Origin> {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::origin_of(&message.bytes, message.encoding.version),
        // Its clients settle what they sent over the next connection themselves.
        Protocol::Amqp => None,
    }
}

fn mark_dead_letter(message: &Message, past: &DeadLetter) -> Message {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::mark_dead_letter(message, past),
        Protocol::Amqp => postroad_amqp::message::mark_dead_letter(message, past),
    }
}

fn revive_dead_letter(message: &Message) -> Revived {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::revive_dead_letter(message),
        Protocol::Amqp => postroad_amqp::message::revive_dead_letter(message),
    }
}

fn replay(
    partitions: &mut BTreeMap<PartitionId, Partition>,
    id: PartitionId,
    position: Position,
    record: &Bytes,
) -> Result<(), StoreError> {
    let Some(partition) = partitions.get_mut(&id) else { return Ok(()) };
    let command = decode_record(record).map_err(|source| StoreError::Record {
        partition: id.0,
        position: position.get(),
        source,
    })?;
    let mut effects: Vec<Effect> = Vec::new();
    partition.apply(position, command, &mut effects);
    Ok(())
}

/// Refuses a directory that was in use before and has not one segment: all its messages would be gone without a word.
fn check_segments(directory: &Path, disk: &RealDisk) -> Result<(), StoreError> {
    let names = disk.list().map_err(|source| StoreError::Io { file: directory.to_owned(), source })?;
    if names.iter().any(|name| name.ends_with(".segment")) {
        return Ok(());
    }
    let reason = format!(
        "the store was in use before, and all its segments are gone: restore them, or remove {LAYOUT_FILE} to begin anew"
    );
    Err(StoreError::Layout { file: directory.to_owned(), reason })
}

/// Reads the layout file; without one that of a new directory, which has seen no start.
fn find_layout(directory: &Path, partitions: u16) -> Result<Layout, StoreError> {
    let file = directory.join(LAYOUT_FILE);
    match std::fs::read(&file) {
        Ok(bytes) => read_layout(&file, &bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Layout::new(partitions, 0)),
        Err(source) => Err(StoreError::Io { file, source }),
    }
}

pub(super) fn write_layout(directory: &Path, layout: &Layout) -> Result<(), StoreError> {
    let file = directory.join(LAYOUT_FILE);
    let io = |source| StoreError::Io { file: file.clone(), source };
    let text = serde_json::to_vec_pretty(layout).map_err(|error| io(error.into()))?;
    let fresh = directory.join(format!("{LAYOUT_FILE}.new"));
    write_synced(&fresh, &text).map_err(io)?;
    std::fs::rename(&fresh, &file).map_err(io)?;
    std::fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)
}

fn write_synced(file: &Path, text: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(file)?;
    file.write_all(text)?;
    file.sync_all()
}

/// What a layout file says.
///
/// # Errors
/// [`StoreError::LayoutVersion`]; [`StoreError::Layout`] if it is damaged.
pub(super) fn read_layout(file: &Path, bytes: &[u8]) -> Result<Layout, StoreError> {
    let wrong = |reason: String| StoreError::Layout { file: file.to_owned(), reason };
    // The version comes first: what else a newer one says is unknown.
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    let known = LAYOUT_VERSION;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(known) => {}
        Some(found) => return Err(StoreError::LayoutVersion { file: file.to_owned(), found, known }),
        None => return Err(wrong("it names no layout version".to_owned())),
    }
    let layout: Layout = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    if layout.partitions == 0 {
        return Err(wrong("partitions is 0; a store has at least one".to_owned()));
    }
    Ok(layout)
}
