//! Fills the stores of a broker that does not run: one thread does in turn the work of the cores
//! and journals of a running one. Records are written in groups, partitions apply them, and
//! checkpoints are written on the way and at the end: so the next start has as little to do as any
//! other.
//!
//! Never here: the contents of the stores, and their source. There are no connections: replies of
//! partitions are dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use postroad_core::{Load, Partition, encode_record};
use postroad_journal::{Disk, Journal, KeyId, Payload, RealDisk, Record};
use postroad_model::{
    Command, Compression, Destination, Effect, PartitionId, PartitionRange, Placement, Position, Refusal,
};
use postroad_replication::{Change, LogWriter, Note, ToPartition, ToWriter};
use postroad_routing::Addressing;

use crate::stores::Stores;
use postroad_node::TenantKeys;

/// Records are made durable in groups of about this many bytes.
const GROUP_BYTES: u64 = 1 << 20;

/// The reason why a store can be filled no further: earlier commands may be in it or not, and
/// nothing else has changed.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// No store has the partition.
    #[error("no store has partition {}", .0.0)]
    Homeless(PartitionId),
    /// The journal refuses; with the reason.
    #[error("{0}")]
    Refused(String),
}

/// See the head of this file.
pub struct Filler {
    stores: Vec<FilledStore<RealDisk>>,
    partitions: BTreeMap<PartitionId, Partition>,
    placement: Placement,
    addressing: Arc<Addressing>,
    keys: TenantKeys,
}

struct FilledStore<D: Disk> {
    range: PartitionRange,
    disk: D,
    writer: LogWriter<D>,
    /// By partition, where its next record goes.
    next: BTreeMap<PartitionId, Position>,
    /// Commands by partition that the writer has and that are not applied yet.
    waiting: BTreeMap<PartitionId, VecDeque<(Position, Command)>>,
    group_bytes: u64,
}

impl Filler {
    /// Nothing is changed yet.
    pub fn of(stores: Stores, keys: TenantKeys) -> Filler {
        let Stores { stores, partitions, placement, addressing } = stores;
        let stores = stores.into_iter().map(|store| FilledStore::of(store.range, store.disk, store.journal));
        Filler { stores: stores.collect(), partitions, placement, addressing, keys }
    }

    /// The first limit for which so much more in these queues would be too much: see
    /// [`Partition::limit_exceeded_by`].
    pub fn limit_exceeded_by(&self, more: BTreeMap<Destination, Load>) -> Option<Refusal> {
        let mut shares: BTreeMap<PartitionId, BTreeMap<Destination, Load>> = BTreeMap::new();
        for (to, load) in more {
            shares.entry(self.addressing.partition_of(self.placement, &to)).or_default().insert(to, load);
        }
        shares.iter().find_map(|(id, share)| self.partitions.get(id)?.limit_exceeded_by(share))
    }

    /// Appends a command for the partition in which `to` lives, and returns its position. A piece
    /// of a body stays until the stores are opened again, even if no message names it.
    ///
    /// # Errors
    /// [`FillError`]
    pub fn put(&mut self, command: Command, to: &Destination) -> Result<Position, FillError> {
        let partition = self.addressing.partition_of(self.placement, to);
        let homeless = FillError::Homeless(partition);
        let key = self.keys.key_of(&command, Some(std::slice::from_ref(to)));
        let store = self.stores.iter_mut().find(|store| store.range.contains(partition)).ok_or(homeless)?;
        let position = store.push(partition, command, key);
        if GROUP_BYTES <= store.group_bytes {
            store.write(&mut self.partitions).map_err(|error| store.explained(error))?;
        }
        Ok(position)
    }

    /// Makes all commands durable, with a checkpoint; returns the work that failed without a loss.
    ///
    /// # Errors
    /// [`FillError`]
    pub fn end(mut self) -> Result<Vec<String>, FillError> {
        let mut troubles = Vec::new();
        for store in &mut self.stores {
            let written = store.write(&mut self.partitions);
            let ended = written.and_then(|()| store.end(&mut self.partitions));
            troubles.extend(ended.map_err(|error| store.explained(error))?);
        }
        Ok(troubles)
    }
}

impl FilledStore<RealDisk> {
    /// Names the limit that the store has, where there is no room.
    fn explained(&self, error: FillError) -> FillError {
        match (error, self.disk.bytes_max()) {
            (FillError::Refused(reason), Some(bytes)) if self.writer.is_full() => {
                FillError::Refused(format!("{reason}; the disk_bytes_max of its store is {bytes}"))
            }
            (error, _) => error,
        }
    }
}

impl<D: Disk> FilledStore<D> {
    fn of(range: PartitionRange, disk: D, journal: Journal<D>) -> FilledStore<D> {
        let last = |id: PartitionId| journal.last_position(id);
        let next = range.iter().map(|id| (id, last(id).map_or(Position::FIRST, Position::next))).collect();
        let writer = LogWriter::new(journal, range.iter());
        FilledStore { range, disk, writer, next, waiting: BTreeMap::new(), group_bytes: 0 }
    }

    fn push(&mut self, partition: PartitionId, command: Command, key: Option<KeyId>) -> Position {
        let next = self.next.entry(partition).or_insert(Position::FIRST);
        let position = std::mem::replace(next, next.next());
        let payload = Payload::from(encode_record(&command, Compression::None));
        self.group_bytes += payload.byte_length();
        let records = vec![Record { partition, position, payload, reserve: false, key }];
        self.writer.push(ToWriter::Batch { partition, epoch: 0, records, sync: true });
        self.waiting.entry(partition).or_default().push_back((position, command));
        position
    }

    fn write(&mut self, partitions: &mut BTreeMap<PartitionId, Partition>) -> Result<(), FillError> {
        self.group_bytes = 0;
        // Once more if it had to wait for a segment.
        while self.writer.has_records() {
            self.writer.write();
            self.work(partitions)?;
        }
        // After a failed write, a journal that cannot continue at once reports the outcome later.
        if let Some(reason) = self.writer.trouble_with_writing() {
            return Err(FillError::Refused(reason.to_owned()));
        }
        match self.waiting.values().find_map(VecDeque::front) {
            Some((position, _)) => {
                let reason = format!("record {} was neither written nor refused", position.get());
                Err(FillError::Refused(reason))
            }
            None => Ok(()),
        }
    }

    /// See [`Filler::end`]; everything is written.
    fn end(&mut self, partitions: &mut BTreeMap<PartitionId, Partition>) -> Result<Vec<String>, FillError> {
        let (before, mut troubles) = (self.writer.written().checkpoints, Vec::new());
        self.writer.ask_for_snapshots();
        self.work(partitions)?;
        if self.writer.written().checkpoints == before {
            let reason = self.writer.trouble().checkpoint.clone().unwrap_or_default();
            troubles.push(format!("no checkpoint was written, so the next start takes longer: {reason}"));
        }
        if let Some(reason) = self.writer.seal() {
            troubles.push(format!("no clean shutdown mark was written; nothing is lost: {reason}"));
        }
        Ok(troubles)
    }

    /// Carries out the messages of the writer until it has none left.
    fn work(&mut self, partitions: &mut BTreeMap<PartitionId, Partition>) -> Result<(), FillError> {
        loop {
            while let Some(message) = self.writer.next_message() {
                match message {
                    ToPartition::Durable { partition, through, .. } => {
                        self.apply(partition, through, partitions)
                    }
                    ToPartition::Failed { reason, .. } => return Err(FillError::Refused(reason)),
                    ToPartition::SnapshotWanted { partition } => self.write_down(partition, partitions),
                    // There are no requests for reads here, and commands without space are refused.
                    ToPartition::Space { .. } | ToPartition::Read { .. } => {}
                }
            }
            let Some(job) = self.writer.next_job() else { return Ok(()) };
            self.writer.finish(job.run(&self.disk, &mut ()));
        }
    }

    fn apply(
        &mut self,
        id: PartitionId,
        through: Position,
        partitions: &mut BTreeMap<PartitionId, Partition>,
    ) {
        let Some(partition) = partitions.get_mut(&id) else { return };
        let waiting = self.waiting.entry(id).or_default();
        let durable = waiting.iter().take_while(|(position, _)| *position <= through).count();
        let (mut effects, mut notes) = (Vec::new(), Vec::new());
        for (position, command) in waiting.drain(..durable) {
            let mut named = None;
            match &command {
                Command::Chunk(piece) => notes.push(retained(position, 1, piece.len() as u64)),
                Command::Enqueue(sent) => named = sent.message.chunks().cloned(),
                _ => {}
            }
            partition.apply(position, command, &mut effects);
            notes.extend(effects.drain(..).filter_map(note));
            // The message counts them itself from here on.
            let pieces = named.iter().flat_map(|chunks| chunks.iter());
            notes.extend(pieces.map(|(position, bytes)| released(position, 0, bytes)));
        }
        self.writer.push(ToWriter::Notes { partition: id, notes });
    }

    fn write_down(&mut self, id: PartitionId, partitions: &BTreeMap<PartitionId, Partition>) {
        let state = partitions.get(&id).and_then(|partition| Some((partition, partition.applied()?)));
        if let Some((partition, position)) = state {
            let state = partition.snapshot_pieces();
            self.writer.push(ToWriter::Snapshot { partition: id, position, state });
        }
    }
}

/// The part of an effect that concerns the journal.
fn note(effect: Effect) -> Option<Note> {
    match effect {
        Effect::Retain { position, count, bytes } => Some(retained(position, count, bytes)),
        Effect::Release { position, ordinal, bytes } => Some(released(position, ordinal, bytes)),
        _ => None,
    }
}

fn retained(position: Position, count: u32, bytes: u64) -> Note {
    Note { position, bytes, change: Change::Retained { count } }
}

fn released(position: Position, ordinal: u32, bytes: u64) -> Note {
    Note { position, bytes, change: Change::Released { ordinal } }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postroad_core::Settings;
    use postroad_journal::{Fault, Keys, Operation, Options, SimulatedDisk, Ways};
    use postroad_model::{Chunks, Message, Sent};
    use tempfile::TempDir;

    use super::*;
    use crate::stores::Directories;
    use crate::test_message;

    const PARTITION: PartitionId = PartitionId(0);

    fn open(home: &TempDir) -> Stores {
        open_limited(home, None)
    }

    fn open_limited(home: &TempDir, disk_bytes_max: Option<u64>) -> Stores {
        let choose = |_: &std::path::Path| Ways::default();
        let directories =
            Directories { main: home.path(), partitions: 1, disk_bytes_max, further: &[], choose };
        Stores::open(directories, Keys::default(), Addressing::default(), Settings::at_rest).unwrap()
    }

    fn message(chunks: Option<Chunks>) -> Message {
        test_message().with_chunks(chunks.map(Arc::new))
    }

    #[test]
    fn a_start_behind_it_has_a_checkpoint_of_all_of_it() {
        let (home, queue) = (tempfile::tempdir().unwrap(), Destination::queue("filled"));
        for turn in 1..=2_u64 {
            let mut filler = Filler::of(open(&home), TenantKeys::default());
            for _ in 0..1000 {
                filler.put(Command::Enqueue(Sent::new(queue.clone(), message(None))), &queue).unwrap();
            }
            assert_eq!(filler.end().unwrap(), Vec::<String>::new(), "turn {turn}");
            let checkpoint = home.path().join(format!("{:016x}.checkpoint", turn));
            assert!(checkpoint.exists(), "turn {turn}: {:?}", std::fs::read_dir(home.path()));
            let opened = open(&home);
            let partition = &opened.partitions[&PARTITION];
            assert_eq!(partition.applied(), Position::new(1000 * turn), "turn {turn}");
            let live = partition.live_messages().flat_map(|row| row.keys()).count();
            assert_eq!(live as u64, 1000 * turn, "turn {turn}");
        }
    }

    /// Whether or not the journal could go on after it.
    #[test]
    fn a_sync_that_fails_is_an_error() {
        for failures in 1..=3 {
            let disk = SimulatedDisk::new(3);
            let (journal, _) = Journal::open(disk.clone(), Options::default()).unwrap();
            let range = PartitionRange { first: PARTITION, count: 1 };
            let mut store = FilledStore::of(range, disk.clone(), journal);
            let settings = Settings::at_rest(PARTITION, Placement::over(1), 1);
            let mut partitions = BTreeMap::from([(PARTITION, Partition::new(settings))]);
            let send = || Command::Enqueue(Sent::new(Destination::queue("filled"), message(None)));
            store.push(PARTITION, send(), None);
            store.write(&mut partitions).unwrap();
            (0..failures).for_each(|nth| disk.fail(Operation::Sync, nth, Fault::Broken));
            store.push(PARTITION, send(), None);
            let written = store.write(&mut partitions);
            assert!(matches!(written, Err(FillError::Refused(_))), "{failures} failures: {written:?}");
            assert_eq!(partitions[&PARTITION].applied(), Some(Position::FIRST), "{failures} failures");
        }
    }

    #[test]
    fn a_store_at_its_limit_names_that() {
        const LIMIT: u64 = 200 << 20;
        let (home, queue) = (tempfile::tempdir().unwrap(), Destination::queue("filled"));
        let mut filler = Filler::of(open_limited(&home, Some(LIMIT)), TenantKeys::default());
        let piece = Bytes::from(vec![7; 3 << 20]);
        let refused = (0..LIMIT >> 20).find_map(|_| filler.put(Command::Chunk(piece.clone()), &queue).err());
        let said = refused.unwrap().to_string();
        assert!(said.ends_with(&format!("; the disk_bytes_max of its store is {LIMIT}")), "{said}");
    }

    /// Checkpoints are written, and segments of which nothing counts go, while the pieces come that
    /// a message will name.
    #[test]
    fn a_body_of_many_segments_is_whole() {
        let (home, queue) = (tempfile::tempdir().unwrap(), Destination::queue("filled"));
        let mut filler = Filler::of(open(&home), TenantKeys::default());
        let (piece, pieces) = (Bytes::from(vec![7; 3 << 20]), 90);
        let put = |_| filler.put(Command::Chunk(piece.clone()), &queue).unwrap();
        let positions: Vec<Position> = (0..pieces).map(put).collect();
        let bytes = pieces * piece.len() as u64;
        let chunks = Chunks { bytes, piece_bytes: piece.len() as u32, positions: positions.clone().into() };
        filler.put(Command::Enqueue(Sent::new(queue.clone(), message(Some(chunks)))), &queue).unwrap();
        assert_eq!(filler.end().unwrap(), Vec::<String>::new());
        let mut opened = open(&home);
        for position in positions {
            let record = opened.stores[0].journal.read(PARTITION, position).unwrap();
            assert_eq!(postroad_core::chunk_in_record(&record).unwrap(), Some(piece.clone()));
        }
    }
}
