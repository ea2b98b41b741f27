//! Which segments exist, which records lie in them, and when a segment is dead.

use crate::disks::disk::Disk;
use crate::layout::format::{FIRST_GROUP, GroupNumber, SegmentHeader, SegmentNumber};
use crate::retaining::live::LiveSet;
use crate::writing::journal::Journal;
use crate::writing::segment::{Range, Segment, Stored};
use postroad_model::{MessageRow, PartitionId, Position};
use std::collections::{BTreeMap, BTreeSet};

/// All segments that hold groups, by number and by the records in them.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    table: BTreeMap<SegmentNumber, Segment>,
    /// For each partition, the segment in which a run of positions begins.
    places: BTreeMap<PartitionId, BTreeMap<Position, SegmentNumber>>,
    live: BTreeMap<PartitionId, LiveSet>,
    /// Partitions whose live messages are known by number from the checkpoint, but not yet one by
    /// one.
    uncounted: BTreeSet<PartitionId>,
    /// See [`Journal::keep_from`].
    kept_from: Option<(PartitionId, Position)>,
}

/// How much of a segment is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Which segment.
    pub number: SegmentNumber,
    /// The first of the segments whose place it has taken, if it was compacted.
    pub compacted_from: Option<SegmentNumber>,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes of groups in it.
    pub used_bytes: u64,
    /// Records in it, of all partitions.
    pub records: u64,
    /// Messages in them that were retained and not yet released.
    pub live_messages: u64,
    /// Bytes of these messages.
    pub live_bytes: u64,
}

impl Segments {
    /// Takes in a segment from a checkpoint: which of its messages are live is not known yet.
    pub(crate) fn restore(&mut self, segment: Segment) {
        let live = segment.ranges.iter().filter(|(_, range)| 0 < range.live);
        self.uncounted.extend(live.map(|(partition, _)| *partition));
        self.insert(segment);
    }

    pub(crate) fn insert(&mut self, segment: Segment) {
        for (partition, range) in &segment.ranges {
            self.places.entry(*partition).or_default().insert(range.first, segment.header.number);
        }
        self.table.insert(segment.header.number, segment);
    }

    /// Notes that a segment now ends at `end`.
    pub(crate) fn extend(&mut self, header: SegmentHeader, end: u64) {
        self.table.entry(header.number).or_insert_with(|| Segment::new(header)).end = end;
    }

    /// Notes one record of the group that starts at `offset`.
    pub(crate) fn add(
        &mut self,
        number: SegmentNumber,
        partition: PartitionId,
        position: Position,
        stored: Stored,
        offset: u64,
        group: GroupNumber,
    ) {
        let Some(segment) = self.table.get_mut(&number) else { return };
        if segment.add(partition, position, stored, offset, group) {
            self.places.entry(partition).or_default().insert(position, number);
        }
    }

    pub(crate) fn contains(&self, number: SegmentNumber) -> bool {
        self.table.contains_key(&number)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.table.values()
    }

    /// The segment in which a record lies.
    pub(crate) fn find(&self, partition: PartitionId, position: Position) -> Option<&Segment> {
        let segment = self.table.get(&self.place(partition, position)?)?;
        segment.range_at(partition, position).map(|_| segment)
    }

    /// The index of a segment is on the disk, or needs not be there.
    pub(crate) fn drop_index(&mut self, number: SegmentNumber) {
        if let Some(segment) = self.table.get_mut(&number) {
            segment.index = None;
        }
    }

    pub(crate) fn get(&self, number: SegmentNumber) -> Option<&Segment> {
        self.table.get(&number)
    }

    /// Whether the segment is there, in the file of its number and not in a compacted one.
    pub(crate) fn has_file(&self, number: SegmentNumber) -> bool {
        self.get(number).is_some_and(|segment| segment.compacted.is_none())
    }

    /// Whether a segment stays as it is, whatever of it is live: see [`Journal::keep_from`].
    pub(crate) fn keeps(&self, segment: &Segment) -> bool {
        self.kept_from.is_some_and(|(partition, first)| {
            segment.ranges.get(&partition).is_some_and(|range| first <= range.last)
        })
    }

    pub(crate) fn is_uncounted(&self, partition: PartitionId) -> bool {
        self.uncounted.contains(&partition)
    }

    /// The live records of a partition between two positions.
    pub(crate) fn live_between(&self, partition: PartitionId, first: Position, last: Position) -> LiveSet {
        self.live.get(&partition).map_or(LiveSet::default(), |live| live.between(first, last))
    }

    fn place(&self, partition: PartitionId, position: Position) -> Option<SegmentNumber> {
        self.places.get(&partition)?.range(..=position).next_back().map(|(_, number)| *number)
    }

    /// The range of a partition in which a record lies.
    fn range_mut(&mut self, partition: PartitionId, position: Position) -> Option<&mut Range> {
        let number = self.place(partition, position)?;
        let range = self.table.get_mut(&number)?.ranges.get_mut(&partition)?;
        (position <= range.last).then_some(range)
    }

    fn retain(&mut self, partition: PartitionId, position: Position, messages: u32, bytes: u64) -> bool {
        let Some(range) = self.range_mut(partition, position) else { return false };
        range.live += u64::from(messages);
        range.live_bytes += bytes;
        self.live.entry(partition).or_default().add(position, 0..messages);
        true
    }

    /// Counts these messages; returns how many of them are in records that do not exist. Messages
    /// in order cost little.
    fn retain_all(&mut self, partition: PartitionId, live: impl IntoIterator<Item = MessageRow>) -> u64 {
        let mut set = self.live.remove(&partition).unwrap_or_default().filling();
        let mut unknown = 0;
        let mut run = Run { first: Position::FIRST, last: None, messages: 0, bytes: 0 };
        // From within: the input is a chain of many parts, which would be walked again for each
        // row.
        live.into_iter().for_each(|mut row| {
            while 0 < row.records {
                if !run.covers(row.first) {
                    self.count(partition, &run);
                    let range = self.range_mut(partition, row.first);
                    let ends = range.map(|range| (range.first, range.last));
                    let (first, last) = ends.map_or((row.first, None), |(first, last)| (first, Some(last)));
                    run = Run { first, last, messages: 0, bytes: 0 };
                }
                // Where there are no records one is looked at after the other.
                let here = run.last.map_or(1, |last| row.records.min(last.get() - row.first.get() + 1));
                match run.last {
                    None => unknown += u64::from(row.messages),
                    Some(_) => {
                        let messages = here.saturating_mul(u64::from(row.messages));
                        run.messages += messages;
                        run.bytes = run.bytes.saturating_add(messages.saturating_mul(row.body_bytes));
                        set.add(row.first, here, row.ordinals());
                    }
                }
                let Some(next) = row.first.get().checked_add(here).and_then(Position::new) else { break };
                row = MessageRow { first: next, records: row.records - here, ..row };
            }
        });
        self.count(partition, &run);
        self.live.insert(partition, set.done());
        unknown
    }

    fn count(&mut self, partition: PartitionId, run: &Run) {
        if let Some(range) = self.range_mut(partition, run.first).filter(|_| run.last.is_some()) {
            range.live += run.messages;
            range.live_bytes = range.live_bytes.saturating_add(run.bytes);
        }
    }

    /// The number of messages in the segment that are still live; `None` if the record has none to
    /// release.
    fn release(
        &mut self,
        partition: PartitionId,
        position: Position,
        ordinal: u32,
        bytes: u64,
    ) -> Option<u64> {
        let known = self.live.get_mut(&partition).is_some_and(|live| live.remove(position, ordinal));
        if !known && !self.uncounted.contains(&partition) {
            return None;
        }
        let range = self.range_mut(partition, position).filter(|range| 0 < range.live)?;
        range.live -= 1;
        range.live_bytes = range.live_bytes.saturating_sub(bytes);
        Some(range.live)
    }

    pub(crate) fn remove(&mut self, number: SegmentNumber) -> Option<Segment> {
        let segment = self.table.remove(&number)?;
        for (partition, range) in &segment.ranges {
            if let Some(places) = self.places.get_mut(partition) {
                places.remove(&range.first);
            }
        }
        Some(segment)
    }
}

/// Live messages that lie in one range of records.
struct Run {
    first: Position,
    /// `None` where there are no records.
    last: Option<Position>,
    messages: u64,
    bytes: u64,
}

impl Run {
    fn covers(&self, position: Position) -> bool {
        self.first <= position && self.last.is_some_and(|last| position <= last)
    }
}

impl<D: Disk> Journal<D> {
    /// Counts the first `messages` of a record as live: it outlives all checkpoints until they are
    /// released. `bytes` is their total size, by which the journal judges how much of a segment is
    /// still needed. Returns false, and counts nothing, if the journal has no such record. A
    /// message that no longer counts must not count again: its record may be compacted away at any
    /// time.
    pub fn retain(&mut self, partition: PartitionId, position: Position, messages: u32, bytes: u64) -> bool {
        self.segments.retain(partition, position, messages, bytes)
    }

    /// Takes this message of a record back from [`Journal::retain`]. Returns false if there is none
    /// to take back.
    pub fn release(&mut self, partition: PartitionId, position: Position, ordinal: u32, bytes: u64) -> bool {
        let left = self.segments.release(partition, position, ordinal, bytes);
        if left.is_some() {
            self.compactions.released_bytes = self.compactions.released_bytes.saturating_add(bytes);
        }
        if left == Some(0) {
            self.recycle_dead();
        }
        left.is_some()
    }

    /// Replaces all of a partition's counts: exactly these messages are live. Returns how many of
    /// them are in records that the journal does not have. Of a stopped partition it is unknown
    /// which are live: its counts stay as the last checkpoint has them.
    pub fn recount(&mut self, partition: PartitionId, live: impl IntoIterator<Item = MessageRow>) -> u64 {
        if self.stopped.contains_key(&partition) {
            return 0;
        }
        for segment in self.segments.table.values_mut() {
            if let Some(range) = segment.ranges.get_mut(&partition) {
                (range.live, range.live_bytes) = (0, 0);
            }
        }
        self.segments.live.remove(&partition);
        self.segments.uncounted.remove(&partition);
        let unknown = self.segments.retain_all(partition, live);
        self.recycle_dead();
        unknown
    }

    /// Keeps all segments whole that have this record of a partition or a later one: they are
    /// neither recycled nor compacted. Other replicas of the store may still need their groups.
    pub fn keep_from(&mut self, partition: PartitionId, first: Position) {
        self.segments.kept_from = Some((partition, first));
    }

    /// The first record of a partition from which on [`Journal::read_group`] finds all, looking
    /// back over `bytes_max` of groups and the segment in which they begin. `None` if the partition
    /// has no record.
    pub fn first_whole(&self, partition: PartitionId, bytes_max: u64) -> Option<Position> {
        let (mut first, mut bytes) = (None, 0);
        for segment in self.segments.iter().rev() {
            let Some(range) = segment.ranges.get(&partition).filter(|_| segment.compacted.is_none()) else {
                break;
            };
            if first.is_some_and(|first| range.last.next() != first) || bytes_max <= bytes {
                break;
            }
            first = Some(range.first);
            bytes += segment.end - FIRST_GROUP;
        }
        first
    }

    /// How much of each segment is still needed, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = SegmentUse> {
        self.segments.iter().map(|segment| SegmentUse {
            number: segment.header.number,
            compacted_from: segment.compacted.map(|run| run.first),
            file_bytes: segment.header.capacity_bytes,
            used_bytes: segment.end - FIRST_GROUP,
            records: segment.ranges.values().map(|range| range.records).sum(),
            live_messages: segment.live(),
            live_bytes: segment.ranges.values().map(|range| range.live_bytes).sum(),
        })
    }

    /// Keeps nothing open or in memory of a segment that is no more.
    pub(crate) fn forget(&mut self, number: SegmentNumber) {
        self.handles.forget(number);
        self.indexes.forget(number);
        self.compactions.obsolete.extend(self.sorted.forget(number));
    }

    /// Takes dead segments out of service. A segment is dead if nothing in it is live, now and in
    /// the older of the two checkpoints kept, and that checkpoint covers all its records: then
    /// recovery needs it from neither.
    pub(crate) fn recycle_dead(&mut self) {
        let Some(older) = self.checkpoints.older() else { return };
        let current = self.current.header.number;
        let dead: Vec<SegmentNumber> = (self.segments.table.values())
            .filter(|segment| {
                let number = segment.header.number;
                let idle = number != current && !self.compactions.is_busy(number);
                idle && segment.live() == 0 && older.covers(segment) && !self.segments.keeps(segment)
            })
            .map(|segment| segment.header.number)
            .collect();
        for number in dead {
            if let Some(segment) = self.segments.remove(number) {
                self.forget(number);
                match segment.compacted {
                    Some(_) => self.compactions.obsolete.push(segment.file_name()),
                    None => {
                        self.compactions.obsolete.extend(segment.index_name());
                        let reusable = !segment.is_outdated(&self.keys);
                        self.discard(segment.file_name(), segment.header.capacity_bytes, reusable);
                    }
                }
            }
        }
    }
}
