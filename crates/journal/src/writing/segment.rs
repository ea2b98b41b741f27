//! The state in memory of one segment that holds groups: its extent, and its records' ranges.

use crate::keys::{KeyId, Keys};
use crate::layout::format::{
    FIRST_GROUP, GroupNumber, SegmentHeader, SegmentNumber, compacted_name, index_name, segment_name,
};
use crate::retaining::compacted::Run;
use crate::retaining::index::{INDEX_STRIDE_BYTES, IndexEntry, SegmentIndex};
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A segment with its records' ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub header: SegmentHeader,
    /// Offset of the first byte after the last valid group.
    pub end: u64,
    pub ranges: BTreeMap<PartitionId, Range>,
    /// Bytes of payloads by key; of an old file all its groups.
    pub keys: BTreeMap<Option<KeyId>, u64>,
    /// The segments whose place it has taken; `None` if it was never compacted.
    pub compacted: Option<Run>,
    /// Complete, while groups are appended and until it is on the disk; `None` from then on: see
    /// [`crate::retaining::index_file`].
    pub index: Option<Arc<SegmentIndex>>,
}

/// The records of one partition in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: Position,
    pub last: Position,
    /// How many: fewer than the positions from first to last once the segment was compacted.
    pub records: u64,
    /// Messages in them that were retained and not yet released.
    pub live: u64,
    /// Bytes of these messages; 0 until they are counted again after a start.
    pub live_bytes: u64,
    /// Where the group of its first record starts, and that group's number.
    pub offset: u64,
    pub group: GroupNumber,
}

/// Bytes of a record on the disk, and its encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub key: Option<KeyId>,
    pub bytes: u64,
}

impl Range {
    /// Where its first record is.
    pub(crate) fn begin(&self) -> IndexEntry {
        IndexEntry { first: self.first, offset: self.offset, group: self.group }
    }
}

impl Segment {
    pub(crate) fn new(header: SegmentHeader) -> Segment {
        let (ranges, keys, index) = (BTreeMap::new(), BTreeMap::new(), Some(Arc::default()));
        Segment { header, end: FIRST_GROUP, ranges, keys, compacted: None, index }
    }

    /// Notes one record of the group that starts at `offset`. Returns true if it is the partition's
    /// first in here.
    pub(crate) fn add(
        &mut self,
        partition: PartitionId,
        position: Position,
        stored: Stored,
        offset: u64,
        group: GroupNumber,
    ) -> bool {
        *self.keys.entry(stored.key).or_default() += stored.bytes;
        if let Some(index) = &mut self.index {
            Arc::make_mut(index).add(partition, IndexEntry { first: position, offset, group });
        }
        let Some(range) = self.ranges.get_mut(&partition) else {
            let (first, last) = (position, position);
            let range = Range { first, last, records: 1, live: 0, live_bytes: 0, offset, group };
            self.ranges.insert(partition, range);
            return true;
        };
        range.last = position;
        range.records += 1;
        false
    }

    /// The range of a partition in which a record lies.
    pub(crate) fn range_at(&self, partition: PartitionId, position: Position) -> Option<&Range> {
        self.ranges.get(&partition).filter(|range| (range.first..=range.last).contains(&position))
    }

    /// Where to start looking for a record; without an index at the partition's first one.
    pub(crate) fn start_of(
        &self,
        partition: PartitionId,
        position: Position,
        index: Option<&SegmentIndex>,
    ) -> Option<IndexEntry> {
        let range = self.range_at(partition, position)?;
        let found = index.and_then(|index| index.find(partition, position));
        Some(found.unwrap_or_else(|| range.begin()))
    }

    /// Whether it is so long that an index says more than where the records of each partition
    /// begin.
    pub(crate) fn needs_index(&self) -> bool {
        FIRST_GROUP + INDEX_STRIDE_BYTES < self.end
    }

    /// The same as a compacted one: it knows how many records it has.
    pub(crate) fn compacted(mut self, run: Run) -> Segment {
        self.compacted = Some(run);
        for range in self.ranges.values_mut() {
            range.records = range.live;
        }
        self
    }

    /// Whether something in it is encrypted with another key than it would be now, or is and would
    /// not be, or the reverse.
    pub(crate) fn is_outdated(&self, keys: &Keys) -> bool {
        self.keys.iter().any(|(&key, &bytes)| 0 < bytes && keys.target(key) != key)
    }

    /// The file it is in.
    pub(crate) fn file_name(&self) -> String {
        self.compacted.map_or_else(|| segment_name(self.header.number), compacted_name)
    }

    /// The file that its index may be in beside it.
    pub(crate) fn index_name(&self) -> Option<String> {
        let beside = self.compacted.is_none() && self.needs_index();
        beside.then(|| index_name(self.header.number))
    }

    /// The first segment of its run, or itself.
    pub(crate) fn first_number(&self) -> SegmentNumber {
        self.compacted.map_or(self.header.number, |run| run.first)
    }

    pub(crate) fn live(&self) -> u64 {
        self.ranges.values().map(|range| range.live).sum()
    }
}
