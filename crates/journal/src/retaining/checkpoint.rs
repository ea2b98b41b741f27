//! Checkpoints: the states of all partitions at known positions, so that recovery reads later
//! records only.

use crate::disks::disk::{Disk, DiskFile, write_all_at};
use crate::error::CheckpointError;
use crate::keys::{KeyId, Keys};
use crate::layout::checkpoint_bytes::{
    CheckpointBytes, CheckpointDraft, Content, PartitionEntry, Place, encode,
};
use crate::layout::format::{FIRST_GROUP, GroupNumber, SegmentNumber, checkpoint_name};
use crate::writing::journal::{Journal, Options};
use crate::writing::pace::Pace;
use crate::writing::room::Space;
use crate::writing::segment::Segment;
use bytes::Bytes;
use postroad_model::{PartitionId, Position, Snapshot};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};

/// The state of one partition after the record at `position`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whose state.
    pub partition: PartitionId,
    /// The last record that is in it.
    pub position: Position,
    /// Opaque bytes, in pieces that are never copied.
    pub state: Snapshot,
}

/// A checkpoint to be written; any thread may.
#[derive(Debug)]
#[must_use = "the journal waits for the answer: give it to `Journal::finish_checkpoint`"]
pub struct CheckpointRequest {
    sequence: u64,
    /// An old checkpoint's file to write over, so that a full disk does not prevent freeing space.
    slot: Option<String>,
    draft: CheckpointDraft,
    keys: Keys,
    summary: Summary,
}

/// A checkpoint that is durable.
#[derive(Debug)]
pub struct WrittenCheckpoint {
    sequence: u64,
    key: Option<KeyId>,
    summary: Summary,
}

/// A checkpoint on the disk.
#[derive(Debug)]
pub(crate) struct Kept {
    pub sequence: u64,
    /// The encryption of its states.
    pub key: Option<KeyId>,
    /// `None`: kept in case the newest is damaged, but not read.
    pub summary: Option<Summary>,
}

/// The coverage of one checkpoint.
#[derive(Debug)]
pub(crate) struct Summary {
    pub positions: BTreeMap<PartitionId, Position>,
    pub live: BTreeMap<SegmentNumber, u64>,
    /// Where recovery from it starts to read.
    pub start: Place,
    /// The last group that it knows of.
    pub end: GroupNumber,
}

/// The checkpoints kept, and the progress since.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Oldest first, at most [`KEPT_MAX`].
    pub kept: VecDeque<Kept>,
    /// The highest sequence number ever used.
    pub last_sequence: u64,
    /// Names of newer ones that the start was refused to read: they may be good, and stay until
    /// there are two that surely are.
    pub doubtful: Vec<String>,
    /// A file that is no longer needed.
    pub slot: Option<String>,
    pub busy: bool,
    /// The last one failed: none is made only for keys or for space until the caller retries, which
    /// may be a while.
    pub failed: bool,
    /// One failed, and is to be tried again.
    pub is_wanted: bool,
    pub committed_bytes: u64,
    /// The size of all states in the last one.
    pub state_bytes: u64,
    /// States of stopped partitions, from the last checkpoint that has them: carried on as they
    /// are.
    pub carried: Vec<Checkpoint>,
}

/// Should the newest turn out to be damaged, the one before is used.
pub(crate) const KEPT_MAX: usize = 2;

/// However large states are, a checkpoint is due after this multiple of
/// [`Options::checkpoint_bytes`]: a start applies later records.
const RARE_MAX: u64 = 4;

/// Name of a checkpoint that is not complete.
pub(crate) const UNFINISHED: &str = "unfinished-checkpoint";

/// Checkpoint files are allocated in steps of this size, so that writing over an old one seldom
/// needs more space.
const ALLOCATION_STEP_BYTES: u64 = 64 << 10;

/// Checkpoints are written and synced in steps of this size: the state of a long backlog must not
/// hold up a group's sync.
const WRITE_STEP_BYTES: usize = 256 << 10;

impl Checkpoints {
    pub(crate) fn committed(&mut self, bytes: u64) {
        self.committed_bytes = self.committed_bytes.saturating_add(bytes);
    }

    /// The older of the checkpoints recovery may use; `None` while there is only one, since with
    /// that one damaged recovery would start from the very first record, or while its coverage is
    /// not known.
    pub(crate) fn older(&self) -> Option<&Summary> {
        let older = self.kept.front().filter(|_| self.kept.len() == KEPT_MAX)?;
        older.summary.as_ref()
    }

    /// The number of the older of two checkpoints.
    pub(crate) fn oldest_of_two(&self) -> Option<u64> {
        Some(self.kept.front().filter(|_| self.kept.len() == KEPT_MAX)?.sequence)
    }
}

impl Summary {
    /// Whether recovery from this checkpoint needs nothing of a segment.
    pub(crate) fn covers(&self, segment: &Segment) -> bool {
        let last = segment.header.number;
        let first = segment.first_number();
        self.is_past(segment) && self.live.range(first..=last).all(|(_, &live)| live == 0)
    }

    /// Whether recovery from this checkpoint reads no record of a segment but those live in it.
    pub(crate) fn is_past(&self, segment: &Segment) -> bool {
        segment.header.number < self.start.segment
            && segment.ranges.iter().all(|(partition, range)| {
                self.positions.get(partition).is_some_and(|&position| range.last <= position)
            })
    }
}

impl<D: Disk> Journal<D> {
    /// Whether a checkpoint should be made now: enough was committed since the last one, or space
    /// is low and checkpoints bring some back. Never while one is being written.
    pub fn checkpoint_due(&self) -> bool {
        let enough = self.checkpoint_distance() <= self.checkpoints.committed_bytes;
        let idle = !self.checkpoints.busy && !self.failed;
        let low = self.space() == Space::Low && self.checkpoint_brings_space();
        let helps = !self.checkpoints.failed && (low || self.rekeying_waits());
        idle && (enough || self.released_much() || helps || self.checkpoints.is_wanted)
    }

    /// Whether a start would have something to apply, and none is being written that changes that.
    pub fn is_ahead_of_checkpoint(&self) -> bool {
        0 < self.checkpoints.committed_bytes && !self.checkpoints.busy && !self.failed
    }

    /// Whether a checkpoint is being written.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoints.busy
    }

    /// The bytes committed from one checkpoint to the next: a start applies them. Where states are
    /// large it is more, so that they are a small share of all writes, up to a bound; beyond, as
    /// much as a start reads of states.
    fn checkpoint_distance(&self) -> u64 {
        let Options { checkpoint_bytes, checkpoint_share, .. } = self.options;
        let states = self.checkpoints.state_bytes;
        let rare = checkpoint_share.saturating_mul(states).min(RARE_MAX * checkpoint_bytes);
        checkpoint_bytes.max(rare).max(checkpoint_share.min(1) * states)
    }

    /// Whether a checkpoint frees a segment, or brings a compaction nearer that does.
    pub(crate) fn checkpoint_brings_space(&self) -> bool {
        self.checkpoint_frees() || self.checkpoint_compacts()
    }

    /// Makes a checkpoint due, however little was committed since the last one: that failed, and a
    /// start would read all since the one before it.
    pub fn want_checkpoint(&mut self) {
        self.checkpoints.is_wanted = true;
    }

    /// Whether a segment waits for nothing but checkpoints: nothing in it is live, and a checkpoint
    /// of all that is durable would cover it. Two of them free it, as both that are kept must.
    /// Segments held back by a stopped partition stay held back, so they do not count here.
    fn checkpoint_frees(&self) -> bool {
        let carried = self.checkpoints.carried.iter().map(|state| (state.partition, state.position));
        let served = self.positions.iter().filter(|(partition, _)| !self.stopped.contains_key(partition));
        let positions = carried.chain(served.map(|(&partition, &last)| (partition, last))).collect();
        let start = self.start_place(&positions);
        let possible = Summary { positions, live: BTreeMap::new(), start, end: self.last.number };
        let waits = |segment: &Segment| {
            let number = segment.header.number;
            // One that is being compacted is free once that is done.
            let idle = number != self.current.header.number && !self.compactions.is_busy(number);
            idle && !self.segments.keeps(segment) && segment.live() == 0 && possible.covers(segment)
        };
        self.segments.iter().any(waits)
    }

    /// Writes a checkpoint of all partitions that have records, and recycles the files that it
    /// replaces.
    ///
    /// The live counts go into it as they are: each partition's calls of [`Journal::retain`] and
    /// [`Journal::release`] must be those of exactly the records up to its position.
    ///
    /// # Errors
    /// [`CheckpointError`]: the checkpoints before stay valid.
    pub fn write_checkpoint(&mut self, states: Vec<Checkpoint>) -> Result<(), CheckpointError> {
        let request = self.begin_checkpoint(states)?;
        let written = request.write(&self.disk, &mut ());
        self.finish_checkpoint(written)
    }

    /// The first half of [`Journal::write_checkpoint`]: fixes the content, writes nothing.
    /// Everything must be synced: see [`Journal::sync`].
    ///
    /// # Errors
    /// All of [`CheckpointError`] but `Io`.
    pub fn begin_checkpoint(
        &mut self,
        states: Vec<Checkpoint>,
    ) -> Result<CheckpointRequest, CheckpointError> {
        if self.checkpoints.busy {
            return Err(CheckpointError::Busy);
        }
        if self.has_unsynced() {
            return Err(CheckpointError::Unsynced);
        }
        let positions = self.check_states(&states)?;
        let states: Vec<Checkpoint> =
            states.into_iter().chain(self.checkpoints.carried.iter().cloned()).collect();
        let start = self.start_place(&positions);
        let segments: Vec<&Segment> = self.segments.iter().collect();
        let live = segments.iter().map(|segment| (segment.header.number, segment.live())).collect();
        let partitions = self.positions.iter().map(|(&partition, &last)| {
            let state = states.iter().find(|state| state.partition == partition);
            let position = state.map(|state| state.position);
            PartitionEntry {
                partition,
                position,
                last,
                state: state.map(|state| state.state.clone()).unwrap_or_default(),
            }
        });
        let sequence = self.checkpoints.last_sequence + 1;
        let content = Content { sequence, start, end: self.last, partitions: partitions.collect() };
        let draft = encode(&content, &segments, &self.keys);
        let summary = Summary { positions, live, start, end: self.last.number };
        self.compactions.failed &= self.checkpoints.committed_bytes < self.checkpoint_distance();
        self.plan_compaction(sequence, &summary);
        self.checkpoints.last_sequence = sequence;
        (self.checkpoints.busy, self.checkpoints.is_wanted) = (true, false);
        self.indexes.failed = false;
        self.checkpoints.committed_bytes = 0;
        self.checkpoints.state_bytes = content.state_bytes();
        self.compactions.released_bytes = 0;
        let (slot, keys) = (self.checkpoints.slot.take(), self.keys.clone());
        Ok(CheckpointRequest { sequence, slot, draft, keys, summary })
    }

    /// The second half of [`Journal::write_checkpoint`]: takes the answer, good or bad.
    ///
    /// # Errors
    /// The one given.
    pub fn finish_checkpoint(
        &mut self,
        answer: Result<WrittenCheckpoint, CheckpointError>,
    ) -> Result<(), CheckpointError> {
        self.checkpoints.busy = false;
        self.checkpoints.failed = answer.is_err();
        let written = answer.inspect_err(|_| self.checkpoints.slot = Some(UNFINISHED.to_owned()))?;
        let WrittenCheckpoint { sequence, key, summary } = written;
        self.rekeying.checkpoint_written();
        self.checkpoints.kept.push_back(Kept { sequence, key, summary: Some(summary) });
        if KEPT_MAX < self.checkpoints.kept.len()
            && let Some(oldest) = self.checkpoints.kept.pop_front()
        {
            let name = checkpoint_name(oldest.sequence);
            if self.keys.target(oldest.key) == oldest.key {
                self.checkpoints.slot = Some(name);
            } else {
                // A new file in its place may be shorter, and leave some of it.
                self.compactions.obsolete.push(name);
            }
        }
        if self.checkpoints.kept.len() == KEPT_MAX {
            self.compactions.obsolete.append(&mut self.checkpoints.doubtful);
        }
        self.recycle_dead();
        self.take_stock();
        Ok(())
    }

    /// The position of each partition that has a state, carried ones included.
    fn check_states(
        &self,
        states: &[Checkpoint],
    ) -> Result<BTreeMap<PartitionId, Position>, CheckpointError> {
        let mut positions: BTreeMap<PartitionId, Position> =
            self.checkpoints.carried.iter().map(|state| (state.partition, state.position)).collect();
        let newest = self.checkpoints.kept.back().and_then(|newest| newest.summary.as_ref());
        let before = newest.map(|newest| &newest.positions);
        for state in states {
            let (partition, position) = (state.partition, Some(state.position));
            let oldest = before.and_then(|before| before.get(&partition)).copied();
            let twice = positions.insert(partition, state.position).is_some();
            if twice
                || self.stopped.contains_key(&partition)
                || self.last_position(partition) < position
                || position < oldest
            {
                return Err(CheckpointError::BadPosition { partition, position });
            }
        }
        let missing = |partition: &&PartitionId| {
            !positions.contains_key(partition) && !self.stopped.contains_key(partition)
        };
        match self.positions.keys().find(missing) {
            Some(&partition) => Err(CheckpointError::PartitionMissing(partition)),
            None => Ok(positions),
        }
    }

    /// The first place from which all records after these positions, and none of a former journal,
    /// can be read.
    fn start_place(&self, positions: &BTreeMap<PartitionId, Position>) -> Place {
        let end = Place { segment: self.last.segment, offset: self.last.offset, group: None };
        let first_after = |(&partition, &last): (&PartitionId, &Position)| {
            let after = positions.get(&partition).map_or(Position::FIRST, |position| position.next());
            let segment = if last < after { None } else { self.segments.find(partition, after) }?;
            // If its index is not in memory some more is read.
            let index = segment.index.clone().or_else(|| self.indexes.look(segment.header.number));
            let entry = segment.start_of(partition, after, index.as_deref())?;
            Some(Place { segment: segment.header.number, offset: entry.offset, group: Some(entry.group) })
        };
        let places = self.positions.iter().filter_map(first_after);
        places.min_by_key(|place| (place.segment, place.offset)).unwrap_or(end)
    }
}

impl CheckpointRequest {
    /// Writes and syncs the file, then gives it its name.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]: the disk is full or broken. Give it to
    /// [`Journal::finish_checkpoint`] as well.
    pub fn write<D: Disk>(self, disk: &D, pace: &mut dyn Pace) -> Result<WrittenCheckpoint, CheckpointError> {
        let CheckpointRequest { sequence, slot, draft, keys, summary } = self;
        let name = checkpoint_name(sequence);
        let failed = |source| CheckpointError::Io { file: disk.path(&name), source };
        let key = draft.key();
        let bytes = draft.finish(disk, &keys).map_err(failed)?;
        write_file(disk, &name, slot.as_deref(), &bytes, pace).map_err(failed)?;
        Ok(WrittenCheckpoint { sequence, key, summary })
    }
}

/// Writes and syncs a checkpoint of these bytes, over the file `slot` if there is one, and gives it
/// its name then.
pub(crate) fn write_file<D: Disk>(
    disk: &D,
    name: &str,
    slot: Option<&str>,
    bytes: &CheckpointBytes,
    pace: &mut dyn Pace,
) -> io::Result<()> {
    if let Some(slot) = slot.filter(|slot| *slot != UNFINISHED) {
        disk.rename(slot, UNFINISHED)?;
    }
    let mut file = disk.create(UNFINISHED)?;
    if 1 < file.names()? {
        // A backup has it, too.
        disk.remove(UNFINISHED)?;
        file = disk.create(UNFINISHED)?;
    }
    let wanted = bytes.byte_length.next_multiple_of(ALLOCATION_STEP_BYTES);
    if file.length()? < wanted {
        file.allocate(wanted)?;
    }
    let (mut offset, mut step, mut step_bytes) = (0, Vec::new(), 0);
    for mut rest in bytes.pieces() {
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(WRITE_STEP_BYTES));
            step_bytes += part.len();
            step.push(part);
            if WRITE_STEP_BYTES <= step_bytes {
                write_step(&file, &mut step, offset)?;
                offset += std::mem::take(&mut step_bytes) as u64;
                file.sync()?;
                pace.step();
            }
        }
    }
    write_step(&file, &mut step, offset)?;
    file.sync()?;
    disk.rename(UNFINISHED, name)?;
    disk.sync_directory()
}

/// Writes these, which are gone then.
fn write_step<F: DiskFile>(file: &F, step: &mut Vec<Bytes>, offset: u64) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = step.iter().map(|part| IoSlice::new(part)).collect();
    write_all_at(file, &mut slices, offset)?;
    step.clear();
    Ok(())
}

impl Place {
    /// Where recovery starts when there is no checkpoint.
    pub(crate) const BEGINNING: Place = Place { segment: SegmentNumber(0), offset: FIRST_GROUP, group: None };
}
