//! Rebuild of a partition from a log with lost records.
//!
//! Records name entries by numbers, which each reader of all records counts alike. Behind a lost
//! record the count may be another one than that of the broker which wrote the log, and a
//! settlement could name an unsettled entry. So from the first lost record on only records that
//! name an entry from before it are applied. Every other entry stays: settled messages may come a
//! second time, but nothing is lost that is still there.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use postroad_model::{
    Changes, Command, Destination, Due, Effect, EntryTag, MessageKey, MessageRow, Position, QueueId, Sent,
    SettleCause, Settlement,
};

use crate::Partition;
use crate::entries::{entry_at, put_down};
use crate::queue::{LaneNumber, Packed, Queue, tag, untag};
use crate::schedule::{apply_unschedule, take_job};
use crate::settling::settle::end_entry;

/// A partition that is put together again from a log with holes.
pub struct PartitionRebuild {
    partition: Partition,
    /// The next sequence of each lane of each queue when the first record was lost; `None` until
    /// then.
    certain: Option<Lanes>,
    lost: Vec<RangeInclusive<Position>>,
    messages: Vec<LostMessage>,
    doubts: Doubts,
}

type Lanes = BTreeMap<QueueId, BTreeMap<u8, u64>>;

/// How a partition goes on.
pub struct RebuiltPartition {
    /// Its state: every message in it is there.
    pub partition: Partition,
    /// The messages that it had, and that are gone with their records. The contents of lost records
    /// themselves are unknown.
    pub lost: Vec<LostMessage>,
    /// The records left out.
    pub doubts: Doubts,
}

/// Records that could not be applied, as their numbers may name other entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// How many settlements, by queue; `None` for queues that were made after the loss.
    pub settlements: BTreeMap<Option<Destination>, u64>,
    /// How many failed deliveries were not counted.
    pub deliveries: u64,
    /// Commits and aborts of a lost prepare: its messages are lost with it.
    pub transactions: u64,
}

/// A message that is gone with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostMessage {
    /// The queue that held it, or was to get it.
    pub queue: Option<Destination>,
    /// The durable subscription that the queue is, if it is one.
    pub subscription: Option<Arc<str>>,
    /// Its record,
    pub position: Position,
    /// and which of that record's messages it is.
    pub ordinal: u32,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// Its holder.
    pub holder: Holder,
}

/// The reason why a message is kept in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An entry of a queue.
    Entry,
    /// A transaction that is prepared and not decided.
    Transaction,
    /// A job that is due later.
    Job,
}

impl PartitionRebuild {
    /// Begins with the state of a checkpoint, or with nothing. `is_there` says which records are
    /// left; the messages of prepared transactions are here by now, as far as they are.
    pub fn begin(partition: Partition, is_there: impl Fn(Position) -> bool) -> PartitionRebuild {
        let (certain, lost, messages, doubts) = (None, Vec::new(), Vec::new(), Doubts::default());
        let mut mending = PartitionRebuild { partition, certain, lost, messages, doubts };
        mending.drop_shares(&is_there);
        mending
    }

    /// The next record that is there comes after `last`: those between are lost.
    pub fn lose(&mut self, last: Position) {
        let first = self.partition.state.applied.map_or(Position::FIRST, Position::next);
        if last < first {
            return;
        }
        self.certain.get_or_insert_with(|| lanes_of(&self.partition));
        self.lost.push(first..=last);
        self.partition.state.applied = Some(last);
    }

    /// Applies the record after the last one, as far as its meaning is certain.
    pub fn apply(&mut self, position: Position, command: Command) {
        if let Command::Left { .. } = command {
            // The lost record may have made unknown entries: from here on they are counted
            // otherwise.
            self.certain.get_or_insert_with(|| lanes_of(&self.partition));
        }
        let command = match self.certain {
            None => command,
            Some(_) => self.certain_part(command),
        };
        self.partition.apply(position, command, &mut Vec::<Effect>::new());
    }

    fn certain_part(&mut self, command: Command) -> Command {
        match command {
            Command::Settle(settlements) => Command::Settle(self.certain_of(settlements)),
            Command::Transact(changes) => Command::Transact(self.certain_changes(changes)),
            Command::Prepare { id, changes } => {
                Command::Prepare { id, changes: self.certain_changes(changes) }
            }
            Command::CountDelivery { queue, tags } => {
                let before = tags.len();
                let tags: Vec<EntryTag> =
                    tags.into_iter().filter(|tag| self.is_certain(queue, *tag)).collect();
                self.doubts.deliveries += (before - tags.len()) as u64;
                Command::CountDelivery { queue, tags }
            }
            Command::Lease { queue, before_first, until, tags } => {
                // Each has its lease by its place.
                let are_certain = tags.iter().all(|tag| self.is_certain(queue, *tag));
                self.doubts.deliveries += if are_certain { 0 } else { tags.len() as u64 };
                let tags = if are_certain { tags } else { Vec::new() };
                Command::Lease { queue, before_first, until, tags }
            }
            Command::Touch { queue, until, entries } => {
                let is_certain = |(tag, _): &(EntryTag, _)| self.is_certain(queue, *tag);
                Command::Touch { queue, until, entries: entries.into_iter().filter(is_certain).collect() }
            }
            // The job's own record is lost, but its message is here.
            Command::Fire { due, sent, .. } if self.is_lost(due.position) => Command::Enqueue(sent),
            Command::Commit { id } | Command::Abort { id }
                if !self.partition.state.prepared.contains_key(&id) =>
            {
                self.doubts.transactions += 1;
                command
            }
            other => other,
        }
    }

    fn certain_changes(&mut self, changes: Changes) -> Changes {
        Changes { settlements: self.certain_of(changes.settlements), ..changes }
    }

    fn certain_of(&mut self, settlements: Vec<Settlement>) -> Vec<Settlement> {
        let (certain, doubtful): (Vec<_>, Vec<_>) =
            settlements.into_iter().partition(|settlement| self.is_certain(settlement.queue, settlement.tag));
        for settlement in doubtful {
            let known = self.certain.as_ref().is_some_and(|certain| certain.contains_key(&settlement.queue));
            let queue = self.partition.state.queues.get(&settlement.queue).filter(|_| known);
            let queue = queue.map(|queue| queue.source.clone());
            *self.doubts.settlements.entry(queue).or_default() += 1;
        }
        certain
    }

    /// Whether the entry was there before the first loss, so that its number is right.
    fn is_certain(&self, queue: QueueId, entry: EntryTag) -> bool {
        let Some(certain) = &self.certain else { return true };
        let (lane, sequence) = untag(entry);
        certain.get(&queue).and_then(|lanes| lanes.get(&lane)).is_some_and(|next| sequence < *next)
    }

    fn is_lost(&self, position: Position) -> bool {
        self.lost.iter().any(|lost| lost.contains(&position))
    }

    /// Behind the last record: the messages of jobs that are on shelves, all of which end here.
    /// Each is to be put back: its own record says when it is due, so nothing is asked of the
    /// records of shelves.
    pub fn take_shelved(&mut self) -> Vec<MessageRow> {
        std::mem::take(&mut self.partition.state.jobs.shelves).keys.rows().collect()
    }

    /// A message of [`PartitionRebuild::take_shelved`], with its size; `None` if its record is not
    /// there.
    pub fn put_back(&mut self, key: MessageKey, body_bytes: u64, sent: Option<&Sent>) {
        let MessageKey::Durable { position, ordinal } = key else { return };
        let Some((sent, schedule)) = sent.and_then(|sent| Some((sent, sent.schedule.as_ref()?))) else {
            let (queue, subscription, holder) = (None, None, Holder::Job);
            let lost = LostMessage { queue, subscription, position, ordinal, body_bytes, holder };
            return self.messages.push(lost);
        };
        let bytes = sent.message.bytes.len() as u64;
        take_job(&mut self.partition, key, bytes, schedule, &mut Vec::new());
    }

    /// After the last record, and after [`PartitionRebuild::take_shelved`]: ends whatever needs a
    /// record that is not there any more.
    pub fn end(mut self, is_there: impl Fn(Position) -> bool) -> RebuiltPartition {
        self.drop_entries(&is_there);
        self.drop_jobs(&is_there);
        let mut prepared = std::mem::take(&mut self.partition.state.prepared);
        for share in prepared.values_mut() {
            share.settlements.retain(|end| entry_at(&mut self.partition, end.queue, end.tag).is_some());
        }
        self.partition.state.prepared = prepared;
        RebuiltPartition { partition: self.partition, lost: self.messages, doubts: self.doubts }
    }

    fn drop_entries(&mut self, is_there: &impl Fn(Position) -> bool) {
        let mut ending = Vec::new();
        let mut queues: Vec<&Queue> = self.partition.state.queues.values().collect();
        queues.sort_unstable_by_key(|queue| queue.id);
        for queue in queues {
            for (number, sequence, key, body_bytes) in entries_of(&self.partition, queue) {
                let MessageKey::Durable { position, ordinal } = key else { continue };
                if is_there(position) && self.has_pieces(key, is_there) {
                    continue;
                }
                ending.push((queue.id, tag(number.0, sequence)));
                let subscription = queue.subscription.as_ref().map(|subscription| subscription.name.clone());
                let (queue, holder) = (Some(queue.source.clone()), Holder::Entry);
                let lost = LostMessage { queue, subscription, position, ordinal, body_bytes, holder };
                self.messages.push(lost);
            }
        }
        for (queue, tag) in ending {
            end_entry(&mut self.partition, queue, tag, SettleCause::Dropped, &mut Vec::new());
        }
    }

    /// Whether every piece of a large body is there; a body that came whole has none.
    fn has_pieces(&self, key: MessageKey, is_there: &impl Fn(Position) -> bool) -> bool {
        let chunks = self.partition.state.bodies.headers(key).and_then(|(message, _)| message.chunks());
        chunks.is_none_or(|chunks| chunks.iter().all(|(position, _)| is_there(position)))
    }

    /// Messages of prepared transactions: a commit could not deliver them.
    fn drop_shares(&mut self, is_there: &impl Fn(Position) -> bool) {
        let lost = &mut self.messages;
        let mut prepared = std::mem::take(&mut self.partition.state.prepared);
        for share in prepared.values_mut() {
            share.sends.retain(|(key, to)| {
                let found = lost_message(*key, is_there);
                if let Some((position, ordinal)) = found {
                    let body_bytes = self.partition.state.bodies.headers(*key).map_or(0, |(_, bytes)| bytes);
                    let (queue, subscription, holder) = (Some(to.clone()), None, Holder::Transaction);
                    lost.push(LostMessage { queue, subscription, position, ordinal, body_bytes, holder });
                    put_down(&mut self.partition, *key, &mut Vec::new());
                }
                found.is_none()
            });
            share.scheduled.retain(|(key, bytes, _)| {
                let found = lost_message(*key, is_there);
                lost.extend(found.map(|(position, ordinal)| {
                    let (queue, subscription, body_bytes) = (None, None, *bytes);
                    let holder = Holder::Transaction;
                    LostMessage { queue, subscription, position, ordinal, body_bytes, holder }
                }));
                found.is_none()
            });
        }
        self.partition.state.prepared = prepared;
    }

    fn drop_jobs(&mut self, is_there: &impl Fn(Position) -> bool) {
        let jobs = self.partition.state.jobs.iter().filter(|(due, ..)| !is_there(due.position));
        let gone: Vec<_> = jobs.map(|(due, job, _)| (due, job)).collect();
        let jobs: Vec<Due> = gone.iter().map(|(due, _)| *due).collect();
        apply_unschedule(&mut self.partition, &jobs, &mut Vec::new());
        for (Due { position, ordinal, .. }, job) in gone {
            let (queue, subscription, body_bytes) = (None, None, job.bytes.into());
            let holder = Holder::Job;
            self.messages.push(LostMessage { queue, subscription, position, ordinal, body_bytes, holder });
        }
    }
}

/// The position and ordinal of a message whose record is not there.
fn lost_message(key: MessageKey, is_there: &impl Fn(Position) -> bool) -> Option<(Position, u32)> {
    match key {
        MessageKey::Durable { position, ordinal } if !is_there(position) => Some((position, ordinal)),
        _ => None,
    }
}

/// Every durable lane of every durable queue, with its next sequence.
fn lanes_of(partition: &Partition) -> Lanes {
    let durable = partition.state.queues.values().filter(|queue| !queue.id.is_volatile());
    let lanes = durable.map(|queue| {
        let lanes = queue.lanes.iter().filter(|(number, _)| !number.is_volatile());
        (queue.id, lanes.map(|(number, lane)| (number.0, lane.next_sequence())).collect())
    });
    lanes.collect()
}

/// Lane, sequence, message and size of each entry, packed or not.
fn entries_of<'p>(
    partition: &'p Partition,
    queue: &'p Queue,
) -> impl Iterator<Item = (LaneNumber, u64, MessageKey, u64)> + 'p {
    queue.lanes.iter().flat_map(move |(number, lane)| {
        let open = lane.iter().map(move |(sequence, entry)| {
            let bytes = partition.state.bodies.headers(entry.key).map_or(0, |(_, bytes)| bytes);
            (number, sequence, entry.key, bytes)
        });
        let packed = lane.packed_pages().flat_map(|page| page.entries()).map(move |packed| {
            let Packed { sequence, position, ordinal, body_bytes, .. } = packed;
            (number, sequence, MessageKey::Durable { position, ordinal }, body_bytes)
        });
        open.chain(packed)
    })
}
