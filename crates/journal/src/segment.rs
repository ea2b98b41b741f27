//! What is known in memory of one segment that holds groups: its extent, its records' ranges, a sparse index.

use crate::compacted::Run;
use crate::format::{GroupNumber, SegmentHeader, SegmentNumber, compacted_name, segment_name};
use crate::keys::{KeyId, Keys};
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;

/// A partition gets one index entry for each stride of a segment that it has records in. 64 KiB are read in one
/// go, and 64 MiB segments then cost at most 24 KiB of memory for each partition.
pub(crate) const INDEX_STRIDE_BYTES: u64 = 64 << 10;

/// A segment with its records' ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub header: SegmentHeader,
    /// Offset of the first byte after the last valid group.
    pub end: u64,
    pub ranges: BTreeMap<PartitionId, Range>,
    /// Bytes of payloads by what they are encrypted with; of an old file all its groups.
    pub keys: BTreeMap<Option<KeyId>, u64>,
    /// The segments whose place it has taken; `None` if it was never compacted.
    pub compacted: Option<Run>,
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
    /// Bytes of these messages; 0 until they are counted anew after a start.
    pub live_bytes: u64,
    /// Rising in all fields; never empty.
    pub index: Vec<IndexEntry>,
}

/// What a record takes on the disk, and what it is encrypted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub key: Option<KeyId>,
    pub bytes: u64,
}

/// Where a group starts that holds records of the partition, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub first: Position,
    pub offset: u64,
    pub group: GroupNumber,
}

impl Segment {
    pub(crate) fn new(header: SegmentHeader) -> Segment {
        let end = crate::format::FIRST_GROUP;
        Segment { header, end, ranges: BTreeMap::new(), keys: BTreeMap::new(), compacted: None }
    }

    /// Notes one record of the group that starts at `offset`. Returns true if it is the partition's first in here.
    pub(crate) fn add(
        &mut self,
        partition: PartitionId,
        position: Position,
        stored: Stored,
        offset: u64,
        group: GroupNumber,
    ) -> bool {
        *self.keys.entry(stored.key).or_default() += stored.bytes;
        let entry = IndexEntry { first: position, offset, group };
        let Some(range) = self.ranges.get_mut(&partition) else {
            let (first, last, index) = (position, position, vec![entry]);
            self.ranges.insert(partition, Range { first, last, records: 1, live: 0, live_bytes: 0, index });
            return true;
        };
        range.last = position;
        range.records += 1;
        if range.index.last().is_none_or(|last| last.offset + INDEX_STRIDE_BYTES <= offset) {
            range.index.push(entry);
        }
        false
    }

    /// Where to start looking for a record.
    pub(crate) fn entry(&self, partition: PartitionId, position: Position) -> Option<IndexEntry> {
        let range = self.ranges.get(&partition)?;
        if position < range.first || range.last < position {
            return None;
        }
        let after = range.index.partition_point(|entry| entry.first <= position);
        range.index.get(after.checked_sub(1)?).copied()
    }

    /// The same as a compacted one: it knows how many records it has.
    pub(crate) fn compacted(mut self, run: Run) -> Segment {
        self.compacted = Some(run);
        for range in self.ranges.values_mut() {
            range.records = range.live;
        }
        self
    }

    /// Whether something in it is encrypted with another key than it would be now, or is and would not be, or the reverse.
    pub(crate) fn is_outdated(&self, keys: &Keys) -> bool {
        self.keys.iter().any(|(&key, &bytes)| 0 < bytes && keys.target(key) != key)
    }

    /// The file it is in.
    pub(crate) fn file_name(&self) -> String {
        self.compacted.map_or_else(|| segment_name(self.header.number), compacted_name)
    }

    /// The first segment of its run, or itself.
    pub(crate) fn first_number(&self) -> SegmentNumber {
        self.compacted.map_or(self.header.number, |run| run.first)
    }

    pub(crate) fn live(&self) -> u64 {
        self.ranges.values().map(|range| range.live).sum()
    }
}
