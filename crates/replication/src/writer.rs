//! The log of a broker that stands alone: the journal's side.
//!
//! [`LogWriter`] gathers the messages of the partitions, writes them as one group, and reports. It
//! has no thread of its own: the runtime gives it one, the simulator calls it in turn. Long work
//! that need not hold up the next group leaves as a [`Job`] for another thread.

pub mod gathered;
pub mod replicated;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use postroad_journal::{
    Backup, BackupError, Checkpoint, CommitError, Damage, Disk, KeyId, Log2Histogram, NearRecords, ReadError,
    Record, SegmentUse, Space,
};
use postroad_model::{PartitionId, Position, Snapshot};

use crate::job::{Job, JobDone};
use crate::log::WrittenTimes;
use crate::pauses::Pauses;
use crate::replica::{Held, Replicated};
use crate::scrub::Scrub;
use crate::unread::Unread;
use crate::written::Written;

/// Messages from partitions to the journal.
#[derive(Debug)]
pub enum ToWriter {
    /// Records to make durable.
    Batch {
        /// Whose.
        partition: PartitionId,
        /// The partition's epoch when it sent them.
        epoch: u64,
        /// Dense, in order.
        records: Vec<Record>,
        /// Whether they are reported after the sync, or once the system has them.
        sync: bool,
    },
    /// See [`crate::ReplLog::retain`] and [`crate::ReplLog::release`].
    Notes {
        /// Whose log.
        partition: PartitionId,
        /// In order.
        notes: Vec<Note>,
    },
    /// See [`crate::ReplLog::read`].
    Read {
        /// Whose log.
        partition: PartitionId,
        /// The record.
        position: Position,
    },
    /// See [`crate::ReplLog::snapshot`].
    Snapshot {
        /// Whose state.
        partition: PartitionId,
        /// The last record in it.
        position: Position,
        /// The state.
        state: Snapshot,
    },
}

/// How many messages of a record are needed has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The record.
    pub position: Position,
    /// Bytes of the messages, together.
    pub bytes: u64,
    /// How.
    pub change: Change,
}

/// See [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Further messages of the record are needed.
    Retained {
        /// How many.
        count: u32,
    },
    /// One is needed no more.
    Released {
        /// Which of its record's messages.
        ordinal: u32,
    },
}

impl ToWriter {
    /// Whether the journal's thread should be woken for it at once.
    pub(crate) fn wakes(&self) -> bool {
        match self {
            ToWriter::Batch { .. } | ToWriter::Read { .. } | ToWriter::Snapshot { .. } => true,
            ToWriter::Notes { .. } => false,
        }
    }
}

/// Messages from the journal to partitions.
#[derive(Debug)]
pub enum ToPartition {
    /// Everything of this epoch up to here is as durable as was asked for.
    Durable {
        /// Whose.
        partition: PartitionId,
        /// The epoch.
        epoch: u64,
        /// The last durable record.
        through: Position,
        /// When its group was written; the caller, who has the clock, fills it in.
        written: Option<WrittenTimes>,
    },
    /// Everything that is not durable yet is void, and whatever comes with an older epoch too.
    Failed {
        /// Whose.
        partition: PartitionId,
        /// The epoch from now on.
        epoch: u64,
        /// The last durable record.
        last: Option<Position>,
        /// The error of the operating system.
        reason: String,
    },
    /// Whether there is room for records that add data.
    Space {
        /// `false`: refuse them.
        ample: bool,
    },
    /// The journal wants the partition's state.
    SnapshotWanted {
        /// Whose.
        partition: PartitionId,
    },
    /// A record that was asked for.
    Read {
        /// Whose log.
        partition: PartitionId,
        /// The record.
        position: Position,
        /// Its bytes, or why they cannot be had.
        record: Result<Bytes, String>,
    },
}

impl ToPartition {
    /// Which partition it is for; `None` for all of them.
    pub fn partition(&self) -> Option<PartitionId> {
        match self {
            ToPartition::Durable { partition, .. }
            | ToPartition::Failed { partition, .. }
            | ToPartition::SnapshotWanted { partition }
            | ToPartition::Read { partition, .. } => Some(*partition),
            ToPartition::Space { .. } => None,
        }
    }
}

/// The work beside the writing whose last attempt failed, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedWork {
    /// No segment could be made ready.
    pub segment: Option<String>,
    /// No checkpoint could be written.
    pub checkpoint: Option<String>,
    /// Segments could not be compacted.
    pub compaction: Option<String>,
}

impl FailedWork {
    /// Whether failed work is to be tried again soon; a compaction waits for the next checkpoint.
    fn any(&self) -> bool {
        self.segment.is_some() || self.checkpoint.is_some()
    }
}

/// Where a partition's log ended when the journal was opened.
pub type Opened = (PartitionId, Option<Position>);

/// See the head of this file.
pub struct LogWriter<D: Disk> {
    journal: Held<D>,
    partitions: BTreeMap<PartitionId, Share>,
    /// Records of the group that is filling.
    filling: Vec<Record>,
    /// Whether it must be synced before it is reported.
    filling_syncs: bool,
    out: VecDeque<ToPartition>,
    /// Records that other leaders proposed.
    replicated: VecDeque<Replicated>,
    jobs: VecDeque<Job<D::File>>,
    /// The gathered records need the space of the segment that is being made.
    waits: bool,
    /// Records that only free space were refused: their partitions keep them and wait for a word.
    refused: bool,
    space: Space,
    /// Snapshots asked for; `None` while no checkpoint is being gathered.
    gathering: Option<Gathering>,
    /// Why the journal stopped, while it is not reopened.
    broken: Option<String>,
    /// Records of a failed write or sync, perhaps on the disk: void only after reopening.
    undecided: Option<(Vec<Record>, String)>,
    trouble: FailedWork,
    checkpoint_pauses: Pauses,
    written: Written,
    scrub: Scrub,
    unread: Unread,
}

#[derive(Default)]
struct Share {
    epoch: u64,
}

#[derive(Default)]
struct Gathering {
    missing: Vec<PartitionId>,
    states: Vec<Checkpoint>,
    /// Notes of partitions after their snapshot: they belong to the next checkpoint.
    later: Vec<(PartitionId, Vec<Note>)>,
}

impl<D: Disk> LogWriter<D> {
    /// A writer for these partitions of an open journal, or of a replica.
    pub fn new(
        journal: impl Into<Held<D>>,
        partitions: impl IntoIterator<Item = PartitionId>,
    ) -> LogWriter<D> {
        let mut journal = journal.into();
        journal.take_stock();
        let scrub = Scrub::knowing(journal.stopped());
        let mut writer = LogWriter {
            journal,
            partitions: partitions.into_iter().map(|id| (id, Share::default())).collect(),
            filling: Vec::new(),
            filling_syncs: false,
            out: VecDeque::new(),
            replicated: VecDeque::new(),
            jobs: VecDeque::new(),
            waits: false,
            refused: false,
            space: Space::Ample,
            gathering: None,
            broken: None,
            undecided: None,
            trouble: FailedWork::default(),
            checkpoint_pauses: Pauses::default(),
            written: Written::default(),
            scrub,
            unread: Unread::default(),
        };
        writer.order_next();
        writer
    }

    /// Takes a message of a partition.
    pub fn push(&mut self, message: ToWriter) {
        match message {
            ToWriter::Batch { partition, epoch, records, sync } => {
                let current = self.partitions.get(&partition).map(|share| share.epoch);
                if current != Some(epoch) {
                    return;
                }
                self.filling.extend(records);
                self.filling_syncs |= sync;
            }
            ToWriter::Snapshot { partition, position, state } => {
                self.gather(partition, position, state);
            }
            ToWriter::Read { partition, position } => self.read(partition, position),
            ToWriter::Notes { partition, notes } => match &mut self.gathering {
                Some(gathering) if !gathering.missing.contains(&partition) => {
                    gathering.later.push((partition, notes));
                }
                _ => self.note(partition, &notes),
            },
        }
    }

    fn note(&mut self, partition: PartitionId, notes: &[Note]) {
        for Note { position, bytes, change } in notes {
            match *change {
                Change::Retained { count } => self.journal.retain(partition, *position, count, *bytes),
                Change::Released { ordinal } => self.journal.release(partition, *position, ordinal, *bytes),
            };
        }
    }

    /// Whether records that add data are refused for want of space.
    pub fn is_full(&self) -> bool {
        replicated::present_space(self) == Space::Low
    }

    /// Why nothing is written, while nothing is.
    pub fn trouble_with_writing(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// See [`Journal::segments`].
    pub fn segments(&self) -> impl Iterator<Item = SegmentUse> {
        self.journal.segments()
    }

    /// See [`Journal::index_bytes`].
    pub fn index_bytes(&self) -> u64 {
        self.journal.index_bytes()
    }

    /// See [`Journal::bytes_by_key`].
    pub fn bytes_by_key(&self) -> BTreeMap<Option<KeyId>, u64> {
        self.journal.bytes_by_key()
    }

    /// See [`Journal::sync_micros`].
    pub fn sync_micros(&self) -> &Log2Histogram {
        self.journal.sync_micros()
    }

    /// Whether there is anything to write.
    pub fn has_records(&self) -> bool {
        !self.filling.is_empty()
    }

    /// Whether there is no space until the segment that is being made is ready: records gather
    /// until [`LogWriter::finish`] has the result.
    pub fn awaits_segment(&self) -> bool {
        self.waits
    }

    /// Whether a failure has stopped the journal until [`LogWriter::reopen`], after a pause.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether [`LogWriter::keep_up`] is to be called again after a pause even without writes, for
    /// releases while space is low, which come without a wake-up, and for failed work.
    pub fn wants_retry(&self) -> bool {
        let lacks_space = self.refused || self.journal.space() == Space::Low;
        self.is_broken() || lacks_space || self.trouble.any() || self.unread.waits()
    }

    /// Amounts that were made durable so far.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Present failures of the work beside the writing.
    pub fn trouble(&self) -> &FailedWork {
        &self.trouble
    }

    /// Whether something was reported that is not synced yet: [`LogWriter::sync`] is to be called
    /// within the time that was promised.
    pub fn has_unsynced(&self) -> bool {
        self.journal.has_unsynced()
    }

    /// Syncs records that were reported before their sync. Later writes may do so as well.
    pub fn sync(&mut self) {
        if self.is_broken() || !self.has_unsynced() {
            return;
        }
        match self.journal.sync() {
            Ok(()) => self.written.syncs += 1,
            Err(error) => self.refused(&[], error),
        }
    }

    /// Writes the gathered records as one group: one write, and one sync if any of them must be
    /// synced. The result is reported.
    pub fn write(&mut self) {
        if self.waits {
            return;
        }
        if matches!(self.journal, Held::Replica(_)) {
            return self.propose();
        }
        let syncs = std::mem::take(&mut self.filling_syncs);
        let group = std::mem::take(&mut self.filling);
        if group.is_empty() {
            return;
        }
        if let Some(reason) = self.broken.clone() {
            return self.fail_behind_undecided(group, &reason);
        }
        let written = if syncs { self.journal.commit(&group) } else { self.journal.append(&group) };
        match written {
            Ok(()) => self.durable(&group),
            Err(CommitError::NoSpace { .. }) if self.may_wait() => {
                (self.waits, self.filling_syncs, self.filling) = (true, syncs, group);
                return;
            }
            Err(error) => self.refused(&group, error),
        }
        self.order_next();
        self.filling = gathered::recycle(group);
    }

    /// A segment that is ordered has the space that another one, made on the spot, does not find.
    /// One that is tried again and again is not waited for.
    fn may_wait(&self) -> bool {
        self.journal.awaits_segment() && self.trouble.segment.is_none()
    }

    fn durable(&mut self, group: &[Record]) {
        let records = group.len() as u64;
        self.written.groups += 1;
        self.written.syncs += u64::from(!self.has_unsynced());
        self.written.records += records;
        self.written.records_max = self.written.records_max.max(records);
        self.written.bytes += group.iter().map(|record| record.payload.byte_length()).sum::<u64>();
        let mut through: BTreeMap<PartitionId, Position> = BTreeMap::new();
        for record in group {
            through.insert(record.partition, record.position);
        }
        for (partition, through) in through {
            let epoch = self.partitions.get(&partition).map_or(0, |share| share.epoch);
            self.out.push_back(ToPartition::Durable { partition, epoch, through, written: None });
        }
    }

    fn refused(&mut self, group: &[Record], error: CommitError) {
        let reason = error.to_string();
        match error {
            CommitError::WriteFailed { .. } | CommitError::SyncFailed { .. } | CommitError::NeedsReopen => {
                self.broken = Some(reason.clone());
                self.space = Space::Low;
                // Records that were undecided before are so still: nothing was written since.
                self.undecided.get_or_insert_with(|| (group.to_vec(), reason));
                self.reopen();
            }
            CommitError::NoSpace { .. } | CommitError::NoSegment(_)
                if group.iter().any(|record| !record.reserve) =>
            {
                self.write_what_frees(group, &reason);
            }
            CommitError::NoSpace { .. } | CommitError::NoSegment(_) => {
                self.fail(group, &reason);
                self.refused = true;
            }
            _ => self.fail(group, &reason),
        }
    }

    /// The group has no room: partitions that only free space in it go on, the others fail.
    fn write_what_frees(&mut self, group: &[Record], reason: &str) {
        let adds = |partition: PartitionId| {
            group.iter().any(|record| record.partition == partition && !record.reserve)
        };
        let (adding, freeing): (Vec<Record>, Vec<Record>) =
            group.iter().cloned().partition(|record| adds(record.partition));
        self.fail(&adding, reason);
        // Their settles are tried again, alone.
        self.say_space();
        if self.replica().is_some() {
            return self.filling = freeing;
        }
        match self.journal.commit(&freeing) {
            Ok(()) => self.durable(&freeing),
            Err(error) => self.refused(&freeing, error),
        }
    }

    /// Reports the state of the space to the partitions, if it has changed.
    fn tell_space(&mut self, space: Space) {
        if space != self.space {
            self.space = space;
            self.out.push_back(ToPartition::Space { ample: space == Space::Ample });
        }
    }

    fn fail(&mut self, group: &[Record], reason: &str) {
        let mut partitions: Vec<PartitionId> = group.iter().map(|record| record.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        for partition in partitions {
            let Some(share) = self.partitions.get_mut(&partition) else { continue };
            share.epoch += 1;
            let last = self.journal.last_position(partition);
            let (epoch, reason) = (share.epoch, reason.to_owned());
            self.out.push_back(ToPartition::Failed { partition, epoch, last, reason });
        }
    }

    /// While the journal is broken: partitions with undecided records get all failures later.
    fn fail_behind_undecided(&mut self, mut group: Vec<Record>, reason: &str) {
        if let Some((undecided, _)) = &self.undecided {
            group.retain(|record| undecided.iter().all(|other| other.partition != record.partition));
        }
        self.fail(&group, reason);
    }

    /// Stops writing if the directory is not where it was. Call it now and then.
    pub fn check_place(&mut self) {
        if self.broken.is_none()
            && let Err(error) = self.journal.check_place()
        {
            (self.broken, self.space) = (Some(error.to_string()), Space::Low);
        }
    }

    /// Goes on after a failure, or once the directory is back; never with the old file handle.
    pub fn reopen(&mut self) {
        match self.journal.check_place().and_then(|()| self.journal.reopen()) {
            Ok(()) => {
                (self.broken, self.waits) = (None, false);
                if let Some((group, reason)) = self.undecided.take() {
                    // Records that have gathered since are of the epoch that ends now.
                    let void =
                        |record: &Record| group.iter().any(|other| other.partition == record.partition);
                    self.filling.retain(|record| !void(record));
                    self.fail(&group, &reason);
                }
                self.space = self.journal.space();
                self.out.push_back(ToPartition::Space { ample: self.space == Space::Ample });
            }
            Err(error) => self.broken = Some(error.to_string()),
        }
    }

    /// After a pause: goes on if the journal stopped, and keeps up.
    pub fn retry(&mut self) {
        if self.is_broken() {
            self.reopen();
        }
        self.keep_up();
    }

    /// Reports the state of the space, changed or not: partitions try waiting commands again.
    fn say_space(&mut self) {
        self.space = replicated::present_space(self);
        self.out.push_back(ToPartition::Space { ample: self.space == Space::Ample });
    }

    /// Lets partitions try refused commands again, and orders the journal's next work. Call it
    /// after a pause while [`LogWriter::wants_retry`]: called at once, commands without room would
    /// come back without end.
    pub fn keep_up(&mut self) {
        if std::mem::take(&mut self.refused) {
            self.say_space();
        }
        if self.trouble.checkpoint.is_some() && self.checkpoint_pauses.pass() {
            self.journal.want_checkpoint();
        }
        for (partition, position) in self.unread.take() {
            self.read(partition, position);
        }
        replicated::give_up_trailing(self);
        self.order_next();
    }

    /// Orders the journal's next work, and reports a change of the space to the partitions.
    fn order_next(&mut self) {
        // Ahead of the next segment, whose zeros take long.
        if let Some(request) = self.journal.wants_index() {
            self.jobs.push_back(Job::Index(request));
        }
        if let Some(request) = self.journal.wants_segment() {
            self.jobs.push_back(Job::Segment(request));
        } else if !self.journal.awaits_segment() {
            // There is one: a group has made it on the spot.
            self.trouble.segment = None;
        }
        if let Some(request) = self.journal.wants_compaction() {
            self.jobs.push_back(Job::Compaction(request));
        }
        if let Some(request) = self.journal.wants_removal() {
            self.jobs.push_back(Job::Removal(request));
        }
        if let Some(request) = self.journal.wants_sorting() {
            self.jobs.push_back(Job::Sort(request));
        }
        self.tell_space(replicated::present_space(self));
        if self.journal.checkpoint_due() {
            self.ask_for_snapshots();
        }
    }

    /// Begins a checkpoint now, unless one is being made.
    pub fn ask_for_snapshots(&mut self) {
        if self.gathering.is_none() {
            self.expect_snapshots();
            let missing = self.gathering.iter().flat_map(|gathering| gathering.missing.iter());
            self.out.extend(missing.map(|partition| ToPartition::SnapshotWanted { partition: *partition }));
        }
    }

    /// The broker ends, and all partitions will say how they are without being asked: a checkpoint
    /// of that is made, if a start would have something to apply otherwise.
    pub fn expect_last_snapshots(&mut self) {
        if self.gathering.is_none() && self.journal.is_ahead_of_checkpoint() {
            self.expect_snapshots();
        }
    }

    /// Whether a checkpoint is being written.
    pub fn is_checkpointing(&self) -> bool {
        self.journal.is_checkpointing()
    }

    fn expect_snapshots(&mut self) {
        // One without records has no state to keep; a stopped one keeps its former state.
        let last = |id: PartitionId| match &self.journal {
            Held::Alone(journal) => journal.last_position(id),
            Held::Replica(replica) => replica.last_committed(id),
        };
        let has_state = |id: &PartitionId| last(*id).is_some() && !self.journal.is_stopped(*id);
        let missing: Vec<_> = self.partitions.keys().copied().filter(has_state).collect();
        if let Some(replica) = self.replica_mut() {
            replica.expect_states();
        }
        if missing.is_empty() {
            return self.begin_checkpoint(Vec::new());
        }
        self.gathering = Some(Gathering { missing, ..Gathering::default() });
    }

    fn gather(&mut self, partition: PartitionId, position: Position, state: Snapshot) {
        let Some(gathering) = &mut self.gathering else { return };
        if !gathering.missing.contains(&partition) {
            return;
        }
        gathering.missing.retain(|missing| *missing != partition);
        gathering.states.push(Checkpoint { partition, position, state });
        if !gathering.missing.is_empty() {
            return;
        }
        let Some(Gathering { states, later, .. }) = self.gathering.take() else { return };
        self.begin_checkpoint(states);
        for (partition, notes) in later {
            self.note(partition, &notes);
        }
    }

    fn read(&mut self, partition: PartitionId, position: Position) {
        let last = match self.jobs.back_mut() {
            Some(Job::Read { request, .. }) => Some(request),
            _ => None,
        };
        match self.journal.near_request(partition, position, last) {
            Ok(request) => {
                self.jobs.extend(request.map(|request| Job::Read { partition, request }));
            }
            Err(error) => self.tell_read(partition, position, Err(error)),
        }
    }

    fn was_read(&mut self, partition: PartitionId, found: NearRecords<D::File>) {
        found.index.into_iter().for_each(|index| self.journal.keep_index(index));
        for (position, record) in found.records {
            self.tell_read(partition, position, record);
        }
        self.jobs.extend(found.rest.map(|request| Job::Read { partition, request }));
    }

    fn tell_read(&mut self, partition: PartitionId, position: Position, record: Result<Bytes, ReadError>) {
        if let Err(ReadError::Damaged(damage)) = &record {
            self.scrub.add(damage);
        }
        if !self.unread.puts_off(partition, position, &record) && !replicated::withholds(self, &record) {
            let record = record.map_err(|error| error.to_string());
            self.out.push_back(ToPartition::Read { partition, position, record });
        }
    }

    /// The next job for another thread.
    pub fn next_job(&mut self) -> Option<Job<D::File>> {
        self.jobs.pop_front()
    }

    /// Orders that the next sealed segment is read for damage, unless one is being read. Call it
    /// now and then: all of them are read in turn. Returns how many there are, if it was ordered.
    pub fn scrub(&mut self) -> Option<usize> {
        let walk = self.scrub.next_walk(&self.journal)?;
        self.jobs.push_back(Job::Scrub(walk));
        Some(self.journal.segments().count())
    }

    /// The next damaged place that was found and not reported yet, with file and offset.
    pub fn next_damage(&mut self) -> Option<String> {
        self.scrub.next_found()
    }

    /// How many damaged places were found at the start and since.
    pub fn damaged_places(&self) -> usize {
        self.scrub.known()
    }

    /// Why partitions are stopped, of each that is.
    pub fn stopped(&self) -> impl Iterator<Item = &Damage> {
        self.journal.stopped()
    }

    /// Chooses the files of a backup: see [`Journal::begin_backup`].
    ///
    /// # Errors
    /// [`BackupError`]: there is no backup; the journal goes on.
    pub fn back_up(&mut self, to: &D) -> Result<Backup, BackupError> {
        // If that fails, the backup says why.
        self.seal();
        self.journal.begin_backup(to)
    }

    /// The journal comes to rest: see [`Journal::seal`]. Returns why it could not be sealed;
    /// nothing is lost by that, and [`LogWriter::is_broken`] may be true.
    pub fn seal(&mut self) -> Option<String> {
        let Err(error) = self.journal.seal() else {
            // The segment may have been left because its key has changed.
            self.order_next();
            return None;
        };
        let reason = error.to_string();
        self.refused(&[], error);
        Some(reason)
    }

    /// See [`Journal::must_leave`].
    pub fn must_leave(&self) -> bool {
        self.journal.must_leave()
    }

    /// Whether [`LogWriter::seal`] would write something.
    pub fn wants_seal(&self) -> bool {
        !self.is_broken() && self.journal.wants_seal()
    }

    /// Takes in a job's result. Returns why it failed, if it did: see [`LogWriter::wants_retry`].
    pub fn finish(&mut self, done: JobDone<D::File>) -> Option<String> {
        match done {
            JobDone::Segment(answer) => {
                self.waits = false;
                self.trouble.segment = answer.as_ref().err().map(ToString::to_string);
                self.written.failed_jobs += u64::from(answer.is_err());
                self.journal.provide(answer);
                self.tell_space(replicated::present_space(self));
                self.trouble.segment.clone()
            }
            JobDone::Index(answer) => {
                let failed = self.journal.finish_index(answer).err();
                self.written.failed_jobs += u64::from(failed.is_some());
                self.order_next();
                failed.map(|error| error.to_string())
            }
            JobDone::Checkpoint(answer) => {
                let failed = self.journal.finish_checkpoint(answer).err();
                self.trouble.checkpoint = failed.map(|error| error.to_string());
                self.written.failed_jobs += u64::from(self.trouble.checkpoint.is_some());
                if self.trouble.checkpoint.is_some() {
                    self.checkpoint_pauses.failed();
                } else {
                    self.checkpoint_pauses = Pauses::default();
                    self.written.checkpoints += 1;
                    if let Some(replica) = self.replica_mut() {
                        replica.checkpoint_written();
                    }
                    // Its freed segments are of use at once; a second checkpoint may free more.
                    self.order_next();
                }
                self.trouble.checkpoint.clone()
            }
            JobDone::Compaction(answer) => {
                let failed = self.scrub.of_compaction(self.journal.finish_compaction(answer).err());
                self.trouble.compaction = failed.map(|error| error.to_string());
                self.written.failed_jobs += u64::from(self.trouble.compaction.is_some());
                self.written.compactions += u64::from(self.trouble.compaction.is_none());
                self.order_next();
                None
            }
            JobDone::Scrub { number, salt, found } => {
                self.scrub.walked(&self.journal, (number, salt), found);
                None
            }
            JobDone::Sort(answer) => {
                let failed = self.journal.finish_sorting(answer).err();
                self.written.failed_jobs += u64::from(failed.is_some());
                self.order_next();
                failed.map(|error| error.to_string())
            }
            JobDone::Removal => {
                // There may be room now for refused commands.
                self.order_next();
                None
            }
            JobDone::Read { partition, found } => {
                self.was_read(partition, found);
                None
            }
        }
    }

    /// The next message to a partition.
    pub fn next_message(&mut self) -> Option<ToPartition> {
        self.out.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unread::READS_MAX;
    use postroad_journal::Journal;
    use postroad_journal::{Fault, Operation, Options, Payload, SimulatedDisk};

    const PARTITION: PartitionId = PartitionId(0);

    fn position(number: u64) -> Position {
        Position::new(number).unwrap()
    }

    /// A record of the partition comes, to be synced.
    fn push(writer: &mut LogWriter<SimulatedDisk>, number: u64, payload: Vec<u8>) {
        let (partition, position) = (PARTITION, position(number));
        let payload = Payload::from(Bytes::from(payload));
        let record = Record { partition, position, payload, reserve: false, key: None };
        writer.push(ToWriter::Batch { partition, epoch: 0, records: vec![record], sync: true });
    }

    /// Does all jobs, and answers as the partition would whose records up to `applied` are applied.
    fn settle_down(writer: &mut LogWriter<SimulatedDisk>, disk: &SimulatedDisk, applied: u64) -> Vec<bool> {
        let mut space = Vec::new();
        loop {
            if let Some(job) = writer.next_job() {
                writer.finish(job.run(disk, &mut ()));
                continue;
            }
            match writer.next_message() {
                None => return space,
                Some(ToPartition::Space { ample }) => space.push(ample),
                Some(ToPartition::SnapshotWanted { partition }) => {
                    let (position, state) = (position(applied), Bytes::from_static(b"state").into());
                    writer.push(ToWriter::Snapshot { partition, position, state });
                }
                Some(_) => {}
            }
        }
    }

    #[test]
    fn what_the_system_refuses_to_read_is_asked_for_again_before_it_is_called_lost() {
        for (refusals, want) in [(0, true), (1, true), (READS_MAX - 1, true), (READS_MAX, false)] {
            let disk = SimulatedDisk::new(1);
            let options = Options { segment_bytes: 16 << 10, ..Options::default() };
            let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
            let payload = Payload::from(Bytes::from(vec![7; 6000]));
            for number in 1..=6 {
                let (partition, position) = (PARTITION, position(number));
                let payload = payload.clone();
                let record = Record { partition, position, payload, reserve: false, key: None };
                journal.commit(&[record]).unwrap();
            }
            // No file is open yet but that of the last segment.
            drop(journal);
            let (journal, _) = Journal::open(disk.clone(), options).unwrap();
            let mut writer = LogWriter::new(journal, [PARTITION]);
            settle_down(&mut writer, &disk, 6);
            (0..u64::from(refusals)).for_each(|nth| disk.fail(Operation::Open, nth, Fault::Broken));
            writer.push(ToWriter::Read { partition: PARTITION, position: position(1) });
            let mut pauses = 0;
            let record = loop {
                while let Some(job) = writer.next_job() {
                    writer.finish(job.run(&disk, &mut ()));
                }
                match writer.next_message() {
                    Some(ToPartition::Read { record, .. }) => break record,
                    Some(_) => {}
                    None => {
                        assert!(writer.wants_retry(), "{refusals} refusals");
                        pauses += 1;
                        writer.retry();
                    }
                }
            };
            assert_eq!((record.is_ok(), pauses), (want, refusals.min(READS_MAX - 1)), "{refusals} refusals");
            assert!(!writer.unread.waits(), "{refusals} refusals");
        }
    }

    #[test]
    fn on_a_full_disk_releases_alone_bring_space_back() {
        let disk = SimulatedDisk::new(1);
        let options = Options {
            segment_bytes: 256 << 10,
            checkpoint_bytes: 1 << 30,
            dead_segments_max: 2,
            checkpoint_share: 0,
        };
        let (journal, _) = Journal::open(disk.clone(), options).unwrap();
        let mut writer = LogWriter::new(journal, [PARTITION]);
        assert_eq!(settle_down(&mut writer, &disk, 0), vec![]);
        // Room for two checkpoints and their reserve, and not for a third segment.
        disk.set_capacity(Some(disk.used_bytes() + (160 << 10)));
        let notes = |change| ToWriter::Notes {
            partition: PARTITION,
            notes: (1..=5)
                .map(|number| Note { position: position(number), bytes: 60 << 10, change })
                .collect(),
        };
        for number in 1..=5 {
            push(&mut writer, number, vec![7; 60 << 10]);
            writer.write();
        }
        writer.push(notes(Change::Retained { count: 1 }));
        assert_eq!(settle_down(&mut writer, &disk, 5), vec![false], "no third segment");
        assert!(writer.wants_retry() && writer.trouble().segment.is_some());
        writer.keep_up();
        assert_eq!(settle_down(&mut writer, &disk, 5), vec![], "everything is live: nothing to free");
        writer.push(notes(Change::Released { ordinal: 0 }));
        disk.fail(Operation::Rename, 0, Fault::Broken);
        for (attempt, space) in [("fails", vec![]), ("waits", vec![]), ("has made room", vec![true])] {
            assert_ne!(writer.trouble().checkpoint.is_some(), attempt == "fails", "{attempt}");
            writer.keep_up();
            assert_eq!(settle_down(&mut writer, &disk, 5), space, "the checkpoint {attempt}");
        }
        assert_eq!((writer.wants_retry(), writer.trouble()), (false, &FailedWork::default()));
    }

    #[test]
    fn what_finds_no_space_waits_for_the_segment_that_is_being_made() {
        for (fails, through) in [(false, Some(2)), (true, None)] {
            let disk = SimulatedDisk::new(1);
            let options = Options {
                segment_bytes: 256 << 10,
                checkpoint_bytes: 1 << 30,
                dead_segments_max: 2,
                checkpoint_share: 0,
            };
            let (journal, _) = Journal::open(disk.clone(), options).unwrap();
            let mut writer = LogWriter::new(journal, [PARTITION]);
            let job = writer.next_job().unwrap();
            if fails {
                disk.fail(Operation::Sync, 0, Fault::Full);
            }
            // It has all the space there is.
            let made = job.run(&disk, &mut ());
            disk.set_capacity(Some(disk.used_bytes()));
            push(&mut writer, 1, vec![7; 200 << 10]);
            writer.write();
            assert!(matches!(writer.next_message(), Some(ToPartition::Durable { .. })));
            push(&mut writer, 2, vec![7; 100 << 10]);
            (0..3).for_each(|_| writer.write());
            assert!(writer.awaits_segment() && writer.has_records());
            assert!(writer.next_message().is_none() && !writer.is_full());
            writer.finish(made);
            writer.write();
            let durable = std::iter::from_fn(|| writer.next_message()).find_map(|message| match message {
                ToPartition::Durable { through, .. } => Some(through.get()),
                _ => None,
            });
            assert_eq!((durable, writer.is_full(), writer.awaits_segment()), (through, fails, false));
        }
    }

    #[test]
    fn damage_in_a_sealed_segment_is_found_and_told_once() {
        let disk = SimulatedDisk::new(5);
        let options = Options {
            segment_bytes: 64 << 10,
            checkpoint_bytes: 1 << 30,
            dead_segments_max: 2,
            checkpoint_share: 0,
        };
        let (journal, _) = Journal::open(disk.clone(), options).unwrap();
        let mut writer = LogWriter::new(journal, [PARTITION]);
        for number in 1..=4 {
            push(&mut writer, number, vec![7; 30 << 10]);
            writer.write();
        }
        let name = "0000000000000001.segment";
        for (flipped, want) in [
            (None, vec![]),
            (
                Some(512 + 1000),
                vec![format!(
                    "{name}: damaged at byte 600: checksum of the record at position 1 fails (partition 0)"
                )],
            ),
            (None, vec![]),
        ] {
            if let Some(offset) = flipped {
                let mut bytes = disk.contents(name).unwrap();
                bytes[offset] ^= 1;
                disk.set_contents(name, bytes);
            }
            for _ in 0..3 {
                writer.scrub();
                settle_down(&mut writer, &disk, 4);
            }
            let told: Vec<String> = std::iter::from_fn(|| writer.next_damage()).collect();
            assert_eq!(told, want);
        }
        assert_eq!(writer.damaged_places(), 1);
        let written = Written {
            groups: 4,
            syncs: 4,
            records: 4,
            bytes: 4 * (30 << 10),
            records_max: 1,
            ..Written::default()
        };
        assert_eq!(writer.written(), written);
    }

    /// It has a record to write.
    fn with_one_record(disk: &SimulatedDisk) -> LogWriter<SimulatedDisk> {
        let (journal, _) = Journal::open(disk.clone(), Options::default()).unwrap();
        let mut writer = LogWriter::new(journal, [PARTITION]);
        push(&mut writer, 1, b"record".to_vec());
        writer
    }

    #[test]
    fn a_backup_of_a_broken_journal_leaves_nobody_waiting_for_a_failed_group() {
        let disk = SimulatedDisk::new(3);
        let mut writer = with_one_record(&disk);
        // Its own sync, and that of the segment in which the journal would go on.
        (0..2).for_each(|nth| disk.fail(Operation::Sync, nth, Fault::Broken));
        writer.write();
        assert!(writer.is_broken());
        let _ = writer.back_up(&SimulatedDisk::new(4));
        writer.retry();
        assert!(!writer.is_broken());
        let failed = std::iter::from_fn(|| writer.next_message()).filter(|message| {
            matches!(message, ToPartition::Failed { partition: PARTITION, epoch: 1, last: None, .. })
        });
        assert_eq!(failed.count(), 1);
    }

    #[test]
    fn a_checkpoint_that_failed_is_tried_again_though_nothing_is_written() {
        let disk = SimulatedDisk::new(3);
        let mut writer = with_one_record(&disk);
        writer.write();
        settle_down(&mut writer, &disk, 1);
        // Long enough for pauses to grow, and not forever.
        (0..20).for_each(|nth| disk.fail(Operation::Rename, nth, Fault::Broken));
        writer.ask_for_snapshots();
        settle_down(&mut writer, &disk, 1);
        assert!(writer.trouble().checkpoint.is_some());
        for _ in 0..1000 {
            writer.keep_up();
            settle_down(&mut writer, &disk, 1);
        }
        assert_eq!((writer.written().checkpoints, writer.written().failed_jobs), (0, 10));
        disk.clear_faults();
        for _ in 0..300 {
            writer.keep_up();
            settle_down(&mut writer, &disk, 1);
        }
        assert_eq!((writer.written().checkpoints, writer.trouble()), (1, &FailedWork::default()));
    }
}
