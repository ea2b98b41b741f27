//! The log of a broker that stands alone: the partition's side.

use std::collections::{BTreeMap, VecDeque};

use postroad_journal::{Payload, Record};
use postroad_model::{Command, Durability, PartitionId, Position, Snapshot, Urgency};

use crate::log::{LogEvent, Proposal, ReplLog, WrittenTimes};
use crate::writer::{Change, Note, ToPartition, ToWriter};

/// The way between a partition's thread and the journal's: bounded, in order, without loss.
pub trait Port {
    /// Hands a message over, or gives it back if there is no room now.
    ///
    /// # Errors
    /// The message itself: try again after the next wake-up.
    fn send(&mut self, message: ToWriter) -> Result<(), ToWriter>;

    /// The next message from the journal's thread.
    fn receive(&mut self) -> Option<ToPartition>;
}

/// The handle of one thread on the journal, for the partitions that the thread owns.
pub struct LocalLog<P: Port> {
    port: P,
    partitions: BTreeMap<PartitionId, Partition>,
    /// Records that the port had no room for, in order.
    outgoing: VecDeque<ToWriter>,
    events: VecDeque<LogEvent>,
}

struct Partition {
    next: Position,
    /// Rises with each failure: earlier records are void.
    epoch: u64,
    proposed: VecDeque<(Position, Command)>,
    batch: Vec<Record>,
    batch_waiting: bool,
    /// Whether the batch has a record that must be synced: one with a waiting client, or one whose
    /// time will come.
    batch_syncs: bool,
    lazy_syncs: bool,
    /// Since the last flush.
    notes: Vec<Note>,
}

const PARTITIONS_ARE_KNOWN: &str = "partitions are given at the start and never change";

/// Records for which a batch makes room at once, if the one before had as many.
const BATCH_RESERVED_MAX: usize = 256;

impl Partition {
    /// The gathered records; the next batch mostly has as many.
    fn take_batch(&mut self) -> Vec<Record> {
        let next = Vec::with_capacity(self.batch.len().min(BATCH_RESERVED_MAX));
        std::mem::replace(&mut self.batch, next)
    }

    /// Sends the notes about the partition's records.
    fn send_notes(&mut self, id: PartitionId, outgoing: &mut VecDeque<ToWriter>) {
        if !self.notes.is_empty() {
            outgoing.push_back(ToWriter::Notes { partition: id, notes: std::mem::take(&mut self.notes) });
        }
    }
}

impl<P: Port> LocalLog<P> {
    /// A handle for these partitions, whose logs end at the positions given.
    pub fn new(
        port: P,
        partitions: impl IntoIterator<Item = (PartitionId, Option<Position>)>,
    ) -> LocalLog<P> {
        let fresh = |(id, last): (PartitionId, Option<Position>)| {
            let next = last.map_or(Position::FIRST, Position::next);
            let partition = Partition {
                next,
                epoch: 0,
                proposed: VecDeque::new(),
                batch: Vec::new(),
                batch_waiting: false,
                batch_syncs: false,
                lazy_syncs: false,
                notes: Vec::new(),
            };
            (id, partition)
        };
        let partitions = partitions.into_iter().map(fresh).collect();
        LocalLog { port, partitions, outgoing: VecDeque::new(), events: VecDeque::new() }
    }

    /// The way to the journal.
    pub fn port(&mut self) -> &mut P {
        &mut self.port
    }

    fn partition(&mut self, id: PartitionId) -> &mut Partition {
        self.partitions.get_mut(&id).expect(PARTITIONS_ARE_KNOWN)
    }

    fn committed(
        &mut self,
        id: PartitionId,
        (epoch, through): (u64, Position),
        written: Option<WrittenTimes>,
    ) {
        let partition = self.partitions.get_mut(&id).expect(PARTITIONS_ARE_KNOWN);
        if partition.epoch != epoch {
            return;
        }
        let durable = partition.proposed.iter().take_while(|(position, _)| *position <= through).count();
        let durable = partition.proposed.drain(..durable);
        self.events.extend(durable.map(|(position, command)| LogEvent::Committed {
            partition: id,
            position,
            command,
            written,
        }));
    }

    fn failed(&mut self, id: PartitionId, epoch: u64, last: Option<Position>, reason: String) {
        let partition = self.partition(id);
        partition.epoch = epoch;
        partition.next = last.map_or(Position::FIRST, Position::next);
        partition.proposed.clear();
        partition.batch.clear();
        (partition.batch_waiting, partition.batch_syncs, partition.lazy_syncs) = (false, false, false);
        self.events.push_back(LogEvent::Failed { partition: id, reason });
    }

    fn take_in(&mut self, message: ToPartition) {
        match message {
            ToPartition::Durable { partition, epoch, through, written } => {
                self.committed(partition, (epoch, through), written);
            }
            ToPartition::Failed { partition, epoch, last, reason } => {
                self.failed(partition, epoch, last, reason)
            }
            ToPartition::Space { ample } => self.events.push_back(LogEvent::Space { ample }),
            ToPartition::SnapshotWanted { partition } => {
                self.events.push_back(LogEvent::SnapshotWanted { partition });
            }
            ToPartition::Read { partition, position, record } => {
                self.events.push_back(LogEvent::Read { partition, position, record });
            }
        }
    }
}

/// Whether the record takes nothing new in, and so may use the room kept back on a full disk.
fn frees(command: &Command) -> bool {
    match command {
        Command::Declare { .. } | Command::Chunk(_) | Command::Enqueue(_) | Command::Fire { .. } => false,
        Command::Shelve { .. } | Command::Unshelve { .. } => false,
        Command::Transact(changes) | Command::Prepare { changes, .. } => changes.sends.is_empty(),
        _ => true,
    }
}

impl<P: Port> ReplLog for LocalLog<P> {
    fn propose(&mut self, id: PartitionId, proposal: Proposal) {
        let Proposal { command, record, urgency, durability, key } = proposal;
        let partition = self.partition(id);
        let position = partition.next;
        partition.next = position.next();
        let reserve = frees(&command);
        let payload = Payload::from(record);
        partition.batch.push(Record { partition: id, position, payload, reserve, key });
        partition.batch_waiting |= urgency == Urgency::Waiting;
        if durability == Durability::Sync {
            partition.batch_syncs |= urgency == Urgency::Waiting;
            partition.lazy_syncs |= urgency == Urgency::Lazy;
        }
        partition.proposed.push_back((position, command));
    }

    fn has_lazy(&self) -> bool {
        self.partitions.values().any(|partition| !partition.batch.is_empty())
    }

    fn flush(&mut self, lazy_due: bool) -> bool {
        let due = lazy_due || self.partitions.values().any(|partition| partition.batch_waiting);
        for (id, partition) in &mut self.partitions {
            partition.send_notes(*id, &mut self.outgoing);
            if due && !partition.batch.is_empty() {
                self.outgoing.push_back(ToWriter::Batch {
                    partition: *id,
                    epoch: partition.epoch,
                    records: partition.take_batch(),
                    sync: partition.batch_syncs || lazy_due && partition.lazy_syncs,
                });
                (partition.batch_waiting, partition.batch_syncs, partition.lazy_syncs) =
                    (false, false, false);
            }
        }
        let mut wake = false;
        while let Some(message) = self.outgoing.pop_front() {
            wake |= message.wakes();
            if let Err(message) = self.port.send(message) {
                self.outgoing.push_front(message);
                return true;
            }
        }
        wake
    }

    fn poll(&mut self) -> Option<LogEvent> {
        while self.events.is_empty() {
            let message = self.port.receive()?;
            self.take_in(message);
        }
        self.events.pop_front()
    }

    fn read(&mut self, partition: PartitionId, position: Position) {
        self.outgoing.push_back(ToWriter::Read { partition, position });
    }

    fn retain(&mut self, partition: PartitionId, position: Position, count: u32, bytes: u64) {
        self.partition(partition).notes.push(Note { position, bytes, change: Change::Retained { count } });
    }

    fn release(&mut self, partition: PartitionId, position: Position, ordinal: u32, bytes: u64) {
        self.partition(partition).notes.push(Note { position, bytes, change: Change::Released { ordinal } });
    }

    fn snapshot(&mut self, partition: PartitionId, position: Position, state: Snapshot) {
        if let Some(noted) = self.partitions.get_mut(&partition) {
            noted.send_notes(partition, &mut self.outgoing);
        }
        self.outgoing.push_back(ToWriter::Snapshot { partition, position, state });
    }
}
