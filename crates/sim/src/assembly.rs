//! The assembly: partitions, their logs and one journal, on a simulated disk, without a thread of
//! its own.
//!
//! It joins the same pieces as the broker's runtime, one core to each partition, so that everything
//! which threads could reorder is a choice of the caller: each way between two of them is a line of
//! its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use postroad_core::{
    LastRecord, Partition, Settings, UnwrittenPages, chunk_in_record, decode_record, encode_record,
    jobs_in_record, read_back, sends_in_record, tell_together,
};
use postroad_journal::{Disk, Journal, Keys, OpenError, Options, SimulatedDisk};
use postroad_model::{
    CarriedPiece, Chunks, Destination, Effect, Event, Message, MessageKey, Now, PartitionId, Peer, Position,
};
use postroad_replication::{
    Job, JobDone, LocalLog, LogEvent, LogWriter, Port, Proposal, ReplLog, ToPartition, ToWriter,
};

use crate::kept::Kept;
use crate::oracle::{MessageNumber, number_of};
use crate::phase::Phase;
use crate::places::Places;
use crate::repeating::first_of;
use crate::upload::check_piece;

type File = <SimulatedDisk as Disk>::File;

/// Messages that a way to the journal holds before it pushes back.
const WIRE_MESSAGES_MAX: usize = 12;

/// Payloads are sorted in several chunks for each segment.
const SORTED_BYTES: u64 = 2 << 10;

/// Who speaks to a partition: each has a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Another partition, or itself.
    Partition(PartitionId),
    /// The client in this slot.
    Client(usize),
}

/// The input of a partition.
#[allow(clippy::large_enum_variant, reason = "nearly all are events")]
pub enum Arriving {
    /// An event for it.
    Event(Event),
    /// A queue lives elsewhere now, says the partition that it leaves.
    Place {
        /// The queue.
        queue: Destination,
        /// Where it lives now.
        to: PartitionId,
        /// Where it was.
        from: PartitionId,
    },
}

#[derive(Debug, Default)]
struct Lines {
    to_writer: VecDeque<ToWriter>,
    to_core: VecDeque<ToPartition>,
}

/// One end of the way between a partition and the journal.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Lines>>);

impl Port for Wire {
    fn send(&mut self, message: ToWriter) -> Result<(), ToWriter> {
        let mut lines = self.0.borrow_mut();
        if lines.to_writer.len() >= WIRE_MESSAGES_MAX {
            return Err(message);
        }
        lines.to_writer.push_back(message);
        Ok(())
    }

    fn receive(&mut self) -> Option<ToPartition> {
        self.0.borrow_mut().to_core.pop_front()
    }
}

/// One partition with its share of the log.
pub struct Core {
    /// Which one.
    pub id: PartitionId,
    /// The state machine.
    pub partition: Partition,
    log: LocalLog<Wire>,
    wire: Wire,
    inbox: BTreeMap<Source, VecDeque<Arriving>>,
    /// Where queues live, as far as it knows.
    pub places: Places,
    reads: HashMap<Position, Vec<MessageKey>>,
    /// Pieces of delivered messages that are read back, each with its message, its place, and all
    /// of them: a reader has them in use.
    pieces: HashMap<Position, Vec<(MessageNumber, usize, Arc<Chunks>)>>,
    /// Records with scheduled messages that are being read.
    shelf_reads: HashSet<Position>,
    /// Pieces that are read for other partitions, each with whom it is for.
    carried: HashMap<Position, Vec<(PartitionId, CarriedPiece)>>,
    /// A snapshot is being made.
    unwritten: Option<UnwrittenPages>,
    kept: Kept,
    /// The fault of a piece, or of the live counts.
    pub broken: Option<String>,
    now_ms: u64,
}

/// The input of a partition, and its output: for the oracle and the clients.
pub struct Turn {
    /// Which partition.
    pub partition: PartitionId,
    /// The event; `None` if a durable command was applied.
    pub event: Option<Event>,
    /// Its effects.
    pub effects: Vec<Effect>,
}

impl Core {
    /// Lines that have something for this partition.
    pub fn sources(&self) -> Vec<Source> {
        self.inbox.iter().filter(|(_, line)| !line.is_empty()).map(|(source, _)| *source).collect()
    }

    /// Puts an event after the others of its source.
    pub fn send(&mut self, source: Source, event: Event) {
        self.inbox.entry(source).or_default().push_back(Arriving::Event(event));
    }

    /// Puts the news of a queue's new place after other output of that partition.
    pub fn tell_place(&mut self, (queue, to, from): (Destination, PartitionId, PartitionId)) {
        let line = self.inbox.entry(Source::Partition(from)).or_default();
        line.push_back(Arriving::Place { queue, to, from });
    }

    /// The queue lives elsewhere from now on.
    pub fn settle(&mut self, queue: &Destination, to: PartitionId) {
        self.places.settle(queue, to);
        self.partition.address_by(self.places.addressing());
    }

    /// Lets the partition know the time if its next item of the line is an event that need not
    /// wait.
    pub fn tick_before_event(&mut self, source: Source, now: Now) -> Option<Turn> {
        let next = self.inbox.get(&source).and_then(VecDeque::front);
        let is_due = matches!(next, Some(Arriving::Event(event)) if !self.partition.holds_back(event));
        if is_due { self.tick(now) } else { None }
    }

    /// Whether the next event of a line would wait in the partition, which is closing a transaction
    /// of its connection.
    pub fn holds_back(&self, source: Source) -> bool {
        match self.inbox.get(&source).and_then(VecDeque::front) {
            Some(Arriving::Event(event)) => self.partition.holds_back(event),
            _ => false,
        }
    }

    /// The next item of a line.
    pub fn take(&mut self, source: Source) -> Option<Arriving> {
        self.inbox.get_mut(&source)?.pop_front()
    }

    /// The partition's clock.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Lets the partition know the time; `None` if it does already.
    pub fn tick(&mut self, now: Now) -> Option<Turn> {
        if now.ticks_ms <= self.now_ms {
            return None;
        }
        self.now_ms = now.ticks_ms;
        Some(self.soft(Event::Tick { now }))
    }

    /// Gives the partition an event.
    pub fn soft(&mut self, event: Event) -> Turn {
        let mut effects = Vec::new();
        self.partition.soft(event.clone(), &mut effects);
        Turn { partition: self.id, event: Some(event), effects }
    }

    /// Takes one event of the log; `None` if there is none for the oracle.
    pub fn poll(&mut self) -> Option<Turn> {
        self.write_down();
        let mut effects = Vec::new();
        match self.log.poll()? {
            LogEvent::Committed { position, command, .. } => {
                self.partition.apply(position, command, &mut effects);
                Some(Turn { partition: self.id, event: None, effects })
            }
            // At once: whatever is proposed from here on belongs to the log's next epoch.
            LogEvent::Failed { reason, .. } => Some(self.soft(Event::ProposalsFailed { reason })),
            LogEvent::Space { ample } => Some(self.soft(Event::Space { ample })),
            LogEvent::SnapshotWanted { .. } => {
                self.unwritten = Some(self.partition.unwritten_pages());
                None
            }
            LogEvent::Read { position, record, .. } => {
                self.read_back(position, &record);
                self.shelf_back(position, &record);
                for (number, index, chunks) in self.pieces.remove(&position).unwrap_or_default() {
                    self.note_broken(|_| check_piece(number, index, &chunks, &record));
                }
                self.carry_back(position, &record, &mut effects);
                (!effects.is_empty()).then_some(Turn { partition: self.id, event: None, effects })
            }
        }
    }

    /// Passes read messages to other partitions.
    fn carry_back(&mut self, position: Position, record: &Result<Bytes, String>, effects: &mut Vec<Effect>) {
        for (to, carried) in self.carried.remove(&position).unwrap_or_default() {
            let piece = record.as_ref().map_err(Clone::clone).and_then(|record| {
                let piece = chunk_in_record(record).map_err(|error| error.to_string())?;
                piece.ok_or_else(|| "no piece is in the record".to_owned())
            });
            match piece {
                Ok(bytes) => {
                    effects.push(Effect::Tell { to, peer: Peer::Piece { piece: carried, bytes } });
                }
                Err(reason) => {
                    let upload = carried.upload;
                    self.send(Source::Partition(self.id), Event::PieceUnread { upload, reason });
                }
            }
        }
    }

    /// A step of the snapshot that is being made, and the snapshot once nothing is left.
    fn write_down(&mut self) {
        let Some(unwritten) = &mut self.unwritten else { return };
        if self.partition.has_unfinished_records() || self.partition.write_pages(unwritten) {
            return;
        }
        self.unwritten = None;
        if let Some(position) = self.partition.applied() {
            let state = self.partition.snapshot_pieces();
            self.log.snapshot(self.id, position, state);
        }
    }

    fn read_back(&mut self, position: Position, record: &Result<Bytes, String>) {
        let own = Source::Partition(self.id);
        for event in read_back(position, record, self.reads.remove(&position).unwrap_or_default()) {
            let last = match self.inbox.get_mut(&own).and_then(VecDeque::back_mut) {
                Some(Arriving::Event(last)) => Some(last),
                _ => None,
            };
            if let Some(event) = tell_together(last, event) {
                self.send(own, event);
            }
        }
    }

    fn read_shelf(&mut self, position: Position) {
        if self.shelf_reads.insert(position) {
            self.log.read(self.id, position);
        }
    }

    fn shelf_back(&mut self, position: Position, record: &Result<Bytes, String>) {
        if !self.shelf_reads.remove(&position) {
            return;
        }
        let jobs = record.as_ref().map_err(Clone::clone).and_then(|record| {
            let jobs = jobs_in_record(record).map_err(|error| error.to_string())?;
            jobs.ok_or_else(|| "no scheduled messages in the record".to_owned())
        });
        self.send(Source::Partition(self.id), Event::ShelfRead { position, jobs });
    }

    /// Whether the journal has said something.
    pub fn has_news(&self) -> bool {
        !self.wire.0.borrow().to_core.is_empty()
    }

    /// Carries out the effects on the log; returns the messages to other partitions.
    pub fn carry_out(&mut self, effects: &[Effect]) -> Vec<(PartitionId, Event)> {
        let mut told = Vec::new();
        for effect in effects {
            match effect {
                Effect::Propose { command, urgency, durability, compression, .. } => {
                    let record = encode_record(command, *compression);
                    let (command, urgency, durability) = (command.clone(), *urgency, *durability);
                    let proposal = Proposal { command, record, urgency, durability, key: None };
                    self.log.propose(self.id, proposal);
                }
                Effect::Fetch { keys } => self.fetch(keys),
                Effect::ReadShelf { position } => self.read_shelf(*position),
                Effect::Retain { position, count, bytes } => {
                    self.note_broken(|core| core.kept.retain(*position, *count));
                    self.log.retain(self.id, *position, *count, *bytes);
                }
                Effect::Release { position, ordinal, bytes } => {
                    self.note_broken(|core| core.kept.release(*position, *ordinal));
                    self.log.release(self.id, *position, *ordinal, *bytes);
                }
                Effect::Deliver(delivery) => self.read_pieces(&delivery.message),
                Effect::CarryChunk { position, to, piece } => {
                    let waiting = self.carried.entry(*position).or_default();
                    waiting.push((*to, piece.clone()));
                    if waiting.len() == 1 {
                        self.log.read(self.id, *position);
                    }
                }
                Effect::Tell { to, peer } => {
                    told.push((*to, Event::Peer { from: self.id, peer: peer.clone() }));
                }
                _ => {}
            }
        }
        told
    }

    /// The first broken rule is reported.
    fn note_broken(&mut self, check: impl FnOnce(&mut Core) -> Result<(), String>) {
        let broken = check(self).err();
        self.broken = self.broken.take().or(broken);
    }

    /// Reads the body of a message that is delivered, as a connection does.
    fn read_pieces(&mut self, message: &Message) {
        let number = first_of(message).or_else(|| number_of(message));
        let (Some(chunks), Some(number)) = (message.chunks(), number) else { return };
        for (index, position) in chunks.positions.iter().enumerate() {
            let waiting = self.pieces.entry(*position).or_default();
            waiting.push((number, index, chunks.clone()));
            if waiting.len() == 1 {
                self.log.read(self.id, *position);
            }
        }
    }

    fn fetch(&mut self, keys: &[MessageKey]) {
        for key in keys {
            let MessageKey::Durable { position, .. } = key else { continue };
            let waiting = self.reads.entry(*position).or_default();
            waiting.push(*key);
            if waiting.len() == 1 {
                self.log.read(self.id, *position);
            }
        }
    }

    /// Sends the gathered records to the journal; lazy ones only if their time has come.
    pub fn flush(&mut self, lazy_due: bool) {
        self.log.flush(lazy_due);
    }
}

/// A broker that runs.
pub struct Assembly {
    /// The partitions.
    pub cores: Vec<Core>,
    /// The journal's side.
    pub writer: LogWriter<SimulatedDisk>,
    disk: SimulatedDisk,
    jobs: VecDeque<Job<File>>,
    done: VecDeque<JobDone<File>>,
    /// Something went wrong in housekeeping: to be tried again after a pause.
    pub retry: bool,
    /// Runs of segments that were compacted.
    pub compactions: u64,
    /// The work that recovery left for each partition.
    pub first: Vec<Turn>,
}

/// Why a broker did not start.
#[derive(Debug)]
pub enum BootError {
    /// The disk refused; may be tried again.
    Disk(String),
    /// Promised data is gone.
    Damaged(String),
}

impl Assembly {
    /// Opens the journal and brings every partition back, as the broker does.
    ///
    /// # Errors
    /// [`BootError`]: the disk refused, or its contents differ from the written ones.
    pub fn boot(
        disk: &SimulatedDisk,
        options: Options,
        keys: Keys,
        settings: &[Settings],
        places: &Places,
    ) -> Result<Assembly, BootError> {
        let equip = |partition: &mut Partition| {
            partition.read_origins_by(crate::client::origin_of);
            partition.read_properties_by(crate::selectors::properties_of);
            partition.write_due_by(crate::repeating::fired);
        };
        let (journal, mut partitions) = recover(disk, options, keys, settings, equip)?;
        let places = places.found(&mut partitions);
        Ok(Assembly::new(disk, journal, partitions, &places))
    }

    fn new(
        disk: &SimulatedDisk,
        mut journal: Journal<SimulatedDisk>,
        partitions: BTreeMap<PartitionId, Partition>,
        places: &Places,
    ) -> Assembly {
        journal.sort_by(postroad_core::sort_key_of_record, SORTED_BYTES);
        journal.shorten_by(postroad_core::shorten_record);
        let writer = LogWriter::new(journal, partitions.keys().copied());
        let core = |(id, partition): (PartitionId, Partition)| {
            let wire = Wire::default();
            let log = LocalLog::new(wire.clone(), [(id, partition.applied())]);
            let kept = Kept::at_start(partition.live_messages(), partition.applied());
            Core {
                id,
                partition,
                log,
                wire,
                places: places.clone(),
                inbox: BTreeMap::new(),
                reads: HashMap::new(),
                pieces: HashMap::new(),
                carried: HashMap::new(),
                shelf_reads: HashSet::new(),
                unwritten: None,
                kept,
                broken: None,
                now_ms: 0,
            }
        };
        let mut cores: Vec<Core> = partitions.into_iter().map(core).collect();
        let begin = |core: &mut Core| {
            let mut effects = Vec::new();
            core.partition.start(&mut effects);
            Turn { partition: core.id, event: None, effects }
        };
        let first = cores.iter_mut().map(begin).collect();
        let (jobs, done) = (VecDeque::new(), VecDeque::new());
        Assembly { cores, writer, disk: disk.clone(), jobs, done, retry: false, compactions: 0, first }
    }

    /// The journal's thread takes in up to `most` messages of one partition; `false` if there was
    /// none.
    pub fn push(&mut self, index: usize, most: usize) -> bool {
        let mut any = false;
        for _ in 0..most {
            let message = self.cores[index].wire.0.borrow_mut().to_writer.pop_front();
            let Some(message) = message else { break };
            self.writer.push(message);
            any = true;
        }
        self.retry |= self.writer.wants_retry();
        any
    }

    /// The journal's thread writes the gathered records.
    pub fn write(&mut self) -> bool {
        let any = self.writer.has_records();
        if any {
            self.writer.write();
            self.retry |= self.writer.wants_retry();
        }
        any
    }

    /// The journal's thread sends its events.
    pub fn send_out(&mut self) -> bool {
        let mut any = false;
        while let Some(job) = self.writer.next_job() {
            self.jobs.push_back(job);
            any = true;
        }
        while let Some(message) = self.writer.next_message() {
            any = true;
            match (message.partition(), message) {
                (Some(id), message) => self.wire_of(id, message),
                (None, ToPartition::Space { ample }) => {
                    for core in &self.cores {
                        core.wire.0.borrow_mut().to_core.push_back(ToPartition::Space { ample });
                    }
                }
                (None, _) => {}
            }
        }
        any
    }

    fn wire_of(&mut self, id: PartitionId, message: ToPartition) {
        if let Some(core) = self.cores.get(usize::from(id.0)) {
            core.wire.0.borrow_mut().to_core.push_back(message);
        }
    }

    /// The next job of one of the threads beside the journal's: there is one for each kind, and
    /// which of those that have something to do is up to `choice`.
    fn choose_job(&self, choice: u64) -> Option<usize> {
        let mut first: Vec<usize> = (0..self.jobs.len()).collect();
        first.retain(|&index| {
            self.jobs.iter().position(|other| other.kind() == self.jobs[index].kind()) == Some(index)
        });
        let chosen = choice.checked_rem(first.len() as u64)?;
        first.get(chosen as usize).copied()
    }

    /// The job that [`Assembly::run_job`] would run, if it writes at all.
    pub fn next_job(&self, choice: u64) -> Option<Phase> {
        match &self.jobs[self.choose_job(choice)?] {
            Job::Segment(_) | Job::Index(_) => Some(Phase::Segment),
            Job::Checkpoint(_) => Some(Phase::Checkpoint),
            Job::Compaction(_) | Job::Removal(_) => Some(Phase::Compaction),
            Job::Sort(_) => Some(Phase::Sorting),
            Job::Read { .. } | Job::Scrub(_) => None,
        }
    }

    /// Does that job; `false` if there is none.
    pub fn run_job(&mut self, choice: u64) -> bool {
        let Some(job) = self.choose_job(choice).and_then(|chosen| self.jobs.remove(chosen)) else {
            return false;
        };
        self.done.push_back(job.run(&self.disk, &mut ()));
        true
    }

    /// The journal's thread takes in the result of a job.
    pub fn finish_job(&mut self) -> bool {
        let Some(done) = self.done.pop_front() else { return false };
        self.compactions += u64::from(matches!(&done, JobDone::Compaction(Ok(_))));
        self.retry |= self.writer.finish(done).is_some() || self.writer.wants_retry();
        true
    }

    /// The pause after a failure is over.
    pub fn try_again(&mut self) -> bool {
        if !std::mem::take(&mut self.retry) {
            return false;
        }
        self.writer.retry();
        self.retry = self.writer.wants_retry();
        true
    }
}

/// Opens the journal, and reads every partition back from it.
///
/// # Errors
/// [`BootError`]: the disk refused, or its contents differ from the written ones.
pub fn recover(
    disk: &SimulatedDisk,
    options: Options,
    keys: Keys,
    settings: &[Settings],
    equip: impl Fn(&mut Partition),
) -> Result<(Journal<SimulatedDisk>, BTreeMap<PartitionId, Partition>), BootError> {
    let opened = Journal::open_with(disk.clone(), options, keys, &mut |_, _| ());
    let (mut journal, recovered) = opened.map_err(|error| match error {
        OpenError::Io { .. } => BootError::Disk(error.to_string()),
        error => BootError::Damaged(error.to_string()),
    })?;
    if let Some(damage) = recovered.damaged.first() {
        return Err(BootError::Damaged(damage.to_string()));
    }
    let mut partitions: BTreeMap<PartitionId, Partition> = BTreeMap::new();
    for own in settings {
        let checkpoint = recovered.checkpoints.iter().find(|checkpoint| checkpoint.partition == own.id);
        let partition = match checkpoint {
            Some(checkpoint) => checkpoint
                .state
                .read_by(|pieces| Partition::restore_pieces(own.clone(), pieces))
                .map_err(|error| BootError::Disk(error.to_string()))?
                .map_err(|error| BootError::Damaged(error.to_string()))?,
            None => Partition::new(own.clone()),
        };
        let mut partition = partition;
        equip(&mut partition);
        read_prepared(&mut journal, &mut partition, own.id)?;
        partitions.insert(own.id, partition);
    }
    for record in recovered.records() {
        let record = record.map_err(|error| BootError::Disk(error.to_string()))?;
        let command =
            decode_record(&record.payload).map_err(|error| BootError::Damaged(error.to_string()))?;
        if let Some(partition) = partitions.get_mut(&record.partition) {
            partition.apply(record.position, command, &mut Vec::new());
        }
    }
    for (id, partition) in &partitions {
        let missing = journal.recount(*id, partition.live_messages());
        if missing > 0 {
            return Err(BootError::Damaged(format!("{missing} live records of {id:?} are not there")));
        }
    }
    Ok((journal, partitions))
}

/// Reads the bodies of prepared messages back, as the broker does: where they go may depend on
/// them.
fn read_prepared(
    journal: &mut Journal<SimulatedDisk>,
    partition: &mut Partition,
    id: PartitionId,
) -> Result<(), BootError> {
    let mut last = LastRecord::default();
    for key in partition.absent_prepared() {
        let MessageKey::Durable { position, ordinal } = key else { continue };
        let read = || {
            let record = journal.read(id, position).map_err(|error| BootError::Disk(error.to_string()))?;
            sends_in_record(&record).map_err(|error| BootError::Damaged(error.to_string()))
        };
        if let Some(sent) = last.sends(id, position, read)?.get(ordinal) {
            partition.restore_body(key, sent.message.clone());
        }
    }
    Ok(())
}
