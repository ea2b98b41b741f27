//! Which segments exist, which records lie in them, and when a segment is dead.

use crate::disk::Disk;
use crate::format::{FIRST_GROUP, GroupNumber, SegmentHeader, SegmentNumber, segment_name};
use crate::journal::Journal;
use crate::segment::{IndexEntry, Segment};
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;

/// All segments that hold groups, by number and by the records in them.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    table: BTreeMap<SegmentNumber, Segment>,
    /// For each partition, the segment in which a run of positions begins.
    places: BTreeMap<PartitionId, BTreeMap<Position, SegmentNumber>>,
}

/// How much of a segment is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Which segment.
    pub number: SegmentNumber,
    /// Bytes of groups in it.
    pub used_bytes: u64,
    /// Records in it, of all partitions.
    pub records: u64,
    /// Those retained and not yet released.
    pub live_records: u64,
}

impl Segments {
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
        offset: u64,
        group: GroupNumber,
    ) {
        let Some(segment) = self.table.get_mut(&number) else { return };
        if segment.add(partition, position, offset, group) {
            self.places.entry(partition).or_default().insert(position, number);
        }
    }

    pub(crate) fn contains(&self, number: SegmentNumber) -> bool {
        self.table.contains_key(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.table.values()
    }

    /// The segment in which a record lies, and where in it to start looking.
    pub(crate) fn find(&self, partition: PartitionId, position: Position) -> Option<(&Segment, IndexEntry)> {
        let number = self.place(partition, position)?;
        let segment = self.table.get(&number)?;
        Some((segment, segment.entry(partition, position)?))
    }

    fn place(&self, partition: PartitionId, position: Position) -> Option<SegmentNumber> {
        self.places.get(&partition)?.range(..=position).next_back().map(|(_, number)| *number)
    }

    /// The live count of the segment in which a record lies.
    fn live_mut(&mut self, partition: PartitionId, position: Position) -> Option<&mut u64> {
        let number = self.place(partition, position)?;
        let range = self.table.get_mut(&number)?.ranges.get_mut(&partition)?;
        (position <= range.last).then_some(&mut range.live)
    }

    fn remove(&mut self, number: SegmentNumber) -> Option<Segment> {
        let segment = self.table.remove(&number)?;
        for (partition, range) in &segment.ranges {
            if let Some(places) = self.places.get_mut(partition) {
                places.remove(&range.first);
            }
        }
        Some(segment)
    }
}

impl<D: Disk> Journal<D> {
    /// Counts a record as live: its segment outlives all checkpoints until the record is released.
    /// Returns false, and counts nothing, if the journal has no such record.
    pub fn retain(&mut self, partition: PartitionId, position: Position) -> bool {
        let Some(live) = self.segments.live_mut(partition, position) else { return false };
        *live += 1;
        true
    }

    /// Takes back one [`Journal::retain`]. Returns false if there is none to take back.
    pub fn release(&mut self, partition: PartitionId, position: Position) -> bool {
        match self.segments.live_mut(partition, position) {
            None | Some(0) => false,
            Some(live) => {
                *live -= 1;
                if *live == 0 {
                    self.recycle_dead();
                }
                true
            }
        }
    }

    /// Replaces all of a partition's counts: exactly these records are live. Returns how many the journal does not have.
    pub fn recount(&mut self, partition: PartitionId, live: impl IntoIterator<Item = Position>) -> u64 {
        for segment in self.segments.table.values_mut() {
            if let Some(range) = segment.ranges.get_mut(&partition) {
                range.live = 0;
            }
        }
        let unknown = live.into_iter().filter(|&position| !self.retain(partition, position)).count();
        self.recycle_dead();
        unknown as u64
    }

    /// How much of each segment is still needed, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = SegmentUse> {
        self.segments.iter().map(|segment| SegmentUse {
            number: segment.header.number,
            used_bytes: segment.end - FIRST_GROUP,
            records: segment.ranges.values().map(|range| range.last.get() - range.first.get() + 1).sum(),
            live_records: segment.live(),
        })
    }

    /// Takes dead segments out of service. A segment is dead if nothing in it is live, now and in the older of the two
    /// checkpoints kept, and that checkpoint covers all its records: then recovery needs it from neither.
    pub(crate) fn recycle_dead(&mut self) {
        let Some(older) = self.checkpoints.older() else { return };
        let current = self.current.header.number;
        let dead: Vec<SegmentNumber> = (self.segments.table.values())
            .filter(|segment| {
                segment.header.number != current && segment.live() == 0 && older.covers(segment)
            })
            .map(|segment| segment.header.number)
            .collect();
        for number in dead {
            if let Some(segment) = self.segments.remove(number) {
                self.handles.forget(number);
                self.discard(segment_name(number), segment.header.capacity_bytes);
            }
        }
    }
}
