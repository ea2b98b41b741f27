//! One store: a directory that is opened, locked, and read back into partitions. Several together:
//! see `stores`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use postroad_cluster::META_PARTITION;
use postroad_core::{
    LastRecord, Partition, RecordError, Settings, SnapshotError, decode_record, sends_in_record,
};
use postroad_journal::{
    CommitError, Damage, Disk, Journal, JournalFile, Keys, LostSegment, OpenError, Options, ReadError,
    ReadOnly, RealDisk, Recovered, StoredCheckpoint, TornTail,
};
use postroad_model::{Effect, MessageKey, PartitionId, PartitionRange, Placement, Position};
use postroad_node::equip;
use postroad_routing::Addressing;

use crate::layout::{LAYOUT_FILE, Layout};
use crate::opening::{Opening, Stage};

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Something in the directory is encrypted with a key that is not configured.
    #[error(
        "{0}; set its file in [encryption] or in the [[encryption.tenant_key]] of its tenant: as key_file, or in former_key_files if it was replaced (`postroad key id` prints the id of a key file)"
    )]
    KeyUnknown(OpenError),
    /// Something in the directory is not encrypted, which the configuration forbids.
    #[error(
        "{0} (encryption.required): either it was put there, or encryption was enabled recently; then set `required` only after `postroad store stats` lists nothing without a key"
    )]
    InTheClear(OpenError),
    /// The journal does not open.
    #[error(transparent)]
    Journal(OpenError),
    /// The first records of a new store cannot be written.
    #[error(transparent)]
    First(CommitError),
    /// A record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of the directory cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The layout file was not written by Postroad.
    #[error("{}: {reason}", file.display())]
    Layout {
        /// The file.
        file: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The layout file is missing beside an existing journal: a new layout would hide its messages.
    #[error(
        "{} is missing, but there is a journal ({journal}). Nothing was changed. Restore the file from a copy, or recreate it with `postroad store repair {} --write`; with several stores, give each of the others with --store",
        directory.join(LAYOUT_FILE).display(), directory.display()
    )]
    LayoutGone {
        /// The directory.
        directory: PathBuf,
        /// The files that exist.
        journal: JournalFiles,
    },
    /// Nothing is there that a broker would leave.
    #[error("not a data directory: it has no {LAYOUT_FILE} and no journal")]
    NoStore,
    /// It is one of several replicas.
    #[error(
        "the store is a replica of a cluster: its last records may not be confirmed; start it with --node and the others"
    )]
    Replicated,
    /// The log has more partitions than the layout.
    #[error(
        "the log has records of partition {partition}, but {LAYOUT_FILE} lists only {} to {}: restore the right file, or recreate it with `postroad store repair`",
        range.first.0, range.end() - 1
    )]
    Beyond {
        /// Which the layout does not have.
        partition: u16,
        /// Which it has.
        range: PartitionRange,
    },
    /// A newer Postroad made the directory.
    #[error("{}: layout version {found} is not supported; this build reads version {known}", file.display())]
    LayoutVersion {
        /// The layout file.
        file: PathBuf,
        /// The version in it.
        found: u64,
        /// The newest one known here.
        known: u32,
    },
    /// A further store cannot be used.
    #[error("the store {name} in {}: {reason}", path.display())]
    Further {
        /// Its name.
        name: String,
        /// Where it is, or should be.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A store is there, and the configuration does not name it.
    #[error(
        "{}: its store {name} has messages, but the configuration has no [[store]] of that name",
        directory.display()
    )]
    Unnamed {
        /// The data directory.
        directory: PathBuf,
        /// Its name.
        name: String,
    },
    /// The directory is no data directory, but one of several of another.
    #[error(
        "{} is the store {name} of another data directory; set --data to that directory, and configure this one as a [[store]]",
        directory.display()
    )]
    NotMain {
        /// The directory.
        directory: PathBuf,
        /// Its name there.
        name: String,
    },
    /// A partition's snapshot cannot be understood.
    #[error("partition {partition}: {source}")]
    Snapshot {
        /// Whose.
        partition: u16,
        /// The fault.
        source: SnapshotError,
    },
    /// A record cannot be understood.
    #[error("partition {partition}, record {position}: {source}")]
    Record {
        /// Whose.
        partition: u16,
        /// Its position.
        position: u64,
        /// The fault.
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

/// Faults of a directory that were found when it was opened.
#[derive(Debug, Default)]
pub struct Report {
    /// Partitions that are stopped, with the first damage in each.
    pub damaged: Vec<Damage>,
    /// Files whose messages cannot be read.
    pub lost: Vec<LostSegment>,
    /// A write that was never confirmed, at the very end.
    pub torn: Option<TornTail>,
    /// Checkpoints that cannot be read.
    pub skipped_checkpoints: Vec<PathBuf>,
}

impl Report {
    fn of<F>(recovered: &Recovered<F>) -> Report {
        Report {
            damaged: recovered.damaged.clone(),
            lost: recovered.lost.clone(),
            torn: recovered.torn.clone(),
            skipped_checkpoints: recovered.skipped_checkpoints.clone(),
        }
    }
}

/// A directory of a broker that does not run: read, and not changed.
pub type Stopped = Store<ReadOnly<RealDisk>>;

/// An open directory with the state that it held.
pub struct Store<D: Disk = RealDisk> {
    /// The disk, for jobs beside the journal.
    pub disk: D,
    /// The journal.
    pub journal: Journal<D>,
    /// The faults.
    pub report: Report,
    /// Every partition that lives here, recovered.
    pub partitions: BTreeMap<PartitionId, Partition>,
}

impl Stopped {
    /// Reads the directory of a broker that does not run, and changes nothing in it but the lock.
    /// Other stores that belong to it are not looked at.
    ///
    /// # Errors
    /// [`StoreError`]: there is none, or it is in use, or so damaged that a broker would not start
    /// with it.
    pub fn look(
        directory: &Path,
        keys: Keys,
        addressing: Addressing,
        settings: impl Fn(PartitionId, Placement, u64) -> Settings,
    ) -> Result<Stopped, StoreError> {
        let (disk, layout) = Stopped::find(directory)?;
        let placement = layout.placement();
        let settings = |id| settings(id, placement, layout.starts);
        let mut stopped = Store::recover(disk, layout.range(), keys, settings, Opening::begin())?;
        let addressing = Arc::new(addressing);
        stopped.partitions.values_mut().for_each(|partition| partition.address_by(addressing.clone()));
        Ok(stopped)
    }

    /// The part of a directory that can be read without its keys: the journal, and no partition.
    ///
    /// # Errors
    /// As [`Stopped::look`].
    pub fn look_without_keys(directory: &Path) -> Result<Stopped, StoreError> {
        let (disk, _) = Stopped::find(directory)?;
        let opened =
            Journal::open_with(disk.clone(), Options::default(), Keys::done_without(), &mut |_, _| ());
        let (journal, recovered) = opened?;
        let (report, partitions) = (Report::of(&recovered), BTreeMap::new());
        Ok(Store { disk, journal, report, partitions })
    }

    fn find(directory: &Path) -> Result<(ReadOnly<RealDisk>, Layout), StoreError> {
        let Some(layout) = Layout::find(directory)? else { return Err(without_layout(directory)) };
        Ok((ReadOnly(RealDisk::open_to_look(directory)?), layout))
    }
}

/// Why a directory without a layout cannot be read.
fn without_layout(directory: &Path) -> StoreError {
    match JournalFiles::in_directory(directory) {
        Ok(Some(journal)) => StoreError::LayoutGone { directory: directory.to_owned(), journal },
        Ok(None) => StoreError::NoStore,
        Err(error) => error,
    }
}

/// Files of a journal in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalFiles {
    /// Segments, compacted ones too.
    pub segments: usize,
    /// Checkpoints.
    pub checkpoints: usize,
}

impl JournalFiles {
    /// `None` if there is nothing of a journal. Makes nothing there, not even the lock.
    ///
    /// # Errors
    /// [`StoreError::Io`]: the directory cannot be read.
    pub fn in_directory(directory: &Path) -> Result<Option<JournalFiles>, StoreError> {
        let failed = |source| StoreError::Io { file: directory.to_owned(), source };
        let mut files = JournalFiles { segments: 0, checkpoints: 0 };
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            match entry.map_err(failed)?.file_name().to_str().and_then(JournalFile::of) {
                Some(JournalFile::Segment | JournalFile::Compacted) => files.segments += 1,
                Some(JournalFile::Checkpoint) => files.checkpoints += 1,
                None => {}
            }
        }
        Ok((0 < files.segments + files.checkpoints).then_some(files))
    }
}

impl fmt::Display for JournalFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "segments: {}, checkpoints: {}", self.segments, self.checkpoints)
    }
}

impl<D: Disk> Store<D> {
    /// Reads the journal of the directory, and from it the partitions in the range.
    ///
    /// # Errors
    /// [`StoreError`]: damaged, of a newer version, or refused by the system.
    pub fn recover(
        disk: D,
        range: PartitionRange,
        keys: Keys,
        settings: impl Fn(PartitionId) -> Settings,
        opening: Opening,
    ) -> Result<Store<D>, StoreError> {
        let Restored { mut journal, recovered, mut partitions } =
            restore_all(&disk, range, &keys, &settings, &opening)?;
        if journal.last_position(META_PARTITION).is_some() {
            return Err(StoreError::Replicated);
        }
        for id in range.iter() {
            partitions.entry(id).or_insert_with(|| Partition::new(settings(id)));
        }
        partitions.values_mut().for_each(equip);
        opening.enter(Stage::Records, recovered.records_max);
        let mut records = 0;
        for record in recovered.records() {
            let record = record?;
            if !range.contains(record.partition) {
                return Err(StoreError::Beyond { partition: record.partition.0, range });
            }
            replay(&mut partitions, record.partition, record.position, &record.payload)?;
            records += 1;
            opening.done(records);
        }
        opening.enter(Stage::Needed, partitions.len() as u64);
        for ((id, partition), number) in partitions.iter().zip(1..) {
            journal.recount(*id, partition.live_messages());
            opening.done(number);
        }
        opening.end(records);
        let report = Report::of(&recovered);
        Ok(Store { disk, journal, report, partitions })
    }
}

/// A journal, and the partitions as they were at its checkpoint, those left out that are stopped.
pub struct Restored<D: Disk> {
    /// The journal.
    pub journal: Journal<D>,
    /// Its records, without the states of the partitions.
    pub recovered: Recovered<D::File>,
    /// The partitions that have a state.
    pub partitions: BTreeMap<PartitionId, Partition>,
}

/// Opens a journal with the partitions in the range. Again if there are some that cannot go on: it
/// takes no records for these.
pub fn restore_all<D: Disk>(
    disk: &D,
    range: PartitionRange,
    keys: &Keys,
    settings: &impl Fn(PartitionId) -> Settings,
    opening: &Opening,
) -> Result<Restored<D>, StoreError> {
    let mut stopped: BTreeMap<PartitionId, Damage> = BTreeMap::new();
    loop {
        opening.enter(Stage::Checkpoint, 0);
        let mut watch = |done, of| {
            if done == 0 {
                opening.enter(Stage::Journal, of);
            }
            opening.done(done);
        };
        let (disk, options) = (disk.clone(), Options::default());
        let opened = Journal::open_stopping(disk, options, keys.clone(), &stopped, &mut watch);
        let (mut journal, mut recovered) = opened?;
        let (mut partitions, known) = (BTreeMap::new(), stopped.len());
        opening.enter(Stage::States, recovered.checkpoints.len() as u64);
        for (checkpoint, number) in std::mem::take(&mut recovered.checkpoints).into_iter().zip(1..) {
            let id = checkpoint.partition;
            if id == META_PARTITION {
                recovered.checkpoints.push(checkpoint);
                continue;
            }
            if !range.contains(id) {
                return Err(StoreError::Beyond { partition: id.0, range });
            }
            let mut partition = restore(&checkpoint, settings(id))?;
            match read_prepared(&mut journal, id, &mut partition) {
                Err(StoreError::Read(ReadError::Damaged(damage))) => {
                    stopped.insert(id, Damage { partition: Some(id), ..damage });
                }
                read => read?,
            }
            partitions.insert(id, partition);
            opening.done(number);
        }
        if known == stopped.len() {
            return Ok(Restored { journal, recovered, partitions });
        }
    }
}

/// The partition as it was at the checkpoint; little of its state is in memory at a time.
pub fn restore(checkpoint: &StoredCheckpoint, settings: Settings) -> Result<Partition, StoreError> {
    let restored = checkpoint.state.read_by(|pieces| Partition::restore_pieces(settings, pieces))?;
    restored.map_err(|source| StoreError::Snapshot { partition: checkpoint.partition.0, source })
}

/// Reads the bodies of prepared messages back: where they go may depend on them. If it does and one
/// is damaged, the partition cannot go on.
fn read_prepared<D: Disk>(
    journal: &mut Journal<D>,
    id: PartitionId,
    partition: &mut Partition,
) -> Result<(), StoreError> {
    let mut last = LastRecord::default();
    for key in partition.absent_prepared() {
        let MessageKey::Durable { position, ordinal } = key else { continue };
        let failed = |source| StoreError::Record { partition: id.0, position: position.get(), source };
        let read = || sends_in_record(&journal.read(id, position)?).map_err(failed);
        match last.sends(id, position, read) {
            Ok(sends) => {
                if let Some(sent) = sends.get(ordinal) {
                    partition.restore_body(key, sent.message.clone());
                }
            }
            // Once its transaction ends it is in a queue like others that cannot be read.
            Err(StoreError::Read(ReadError::Damaged(damage))) if partition.is_prepared_for_queues(key) => {
                tracing::error!(%damage, "a message of a prepared transaction cannot be read");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
