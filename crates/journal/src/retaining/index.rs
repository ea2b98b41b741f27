//! Where in a segment a partition's records are, so closely that one read finds them.
//!
//! Never here: files; how it gets onto the disk and back is in [`crate::retaining::index_file`].

use crate::layout::format::{GroupNumber, SegmentNumber};
use postroad_model::{PartitionId, Position};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A partition gets one index entry for each stride of a segment that it has records in: so much is
/// read in one go, and 64 MiB segments then have an index of at most 24 KiB for each partition. The
/// segments in this room's tests are small, and are to have some, too.
pub(crate) const INDEX_STRIDE_BYTES: u64 = if cfg!(test) { 2 << 10 } else { 64 << 10 };

/// Read at a time where a record is looked for.
pub(crate) const READ_STEP_BYTES: usize = 64 << 10;

/// Bytes of an index besides its entries; an estimate.
const OVERHEAD_BYTES: u64 = 256;

/// The default limit of all cached ones: some 160 segments of one partition.
const BYTES_MAX: u64 = 4 << 20;

/// Indexes that are held at most, however small: one is looked for among them for each record that
/// is read.
const HELD_MAX: usize = 256;

/// Where a group starts that holds records of the partition, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub first: Position,
    pub offset: u64,
    pub group: GroupNumber,
}

/// The entries of each partition: rising in all fields, never none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentIndex(BTreeMap<PartitionId, Vec<IndexEntry>>);

impl SegmentIndex {
    /// Notes a record that comes after all others; one that is close after the last entry needs
    /// none.
    pub(crate) fn add(&mut self, partition: PartitionId, entry: IndexEntry) {
        let entries = self.0.entry(partition).or_default();
        if entries.last().is_none_or(|last| last.offset + INDEX_STRIDE_BYTES <= entry.offset) {
            entries.push(entry);
        }
    }

    pub(crate) fn insert(&mut self, partition: PartitionId, entries: Vec<IndexEntry>) {
        self.0.insert(partition, entries);
    }

    /// All entries of a partition.
    pub(crate) fn of(&self, partition: PartitionId) -> &[IndexEntry] {
        self.0.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// Where to start looking for a record.
    pub(crate) fn find(&self, partition: PartitionId, position: Position) -> Option<IndexEntry> {
        let entries = self.of(partition);
        let after = entries.partition_point(|entry| entry.first <= position);
        entries.get(after.checked_sub(1)?).copied()
    }

    /// Memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let entries: usize = self.0.values().map(Vec::capacity).sum();
        OVERHEAD_BYTES + (entries * size_of::<IndexEntry>()) as u64
    }
}

/// The indexes that are in memory beside that of the segment being filled: those that were needed
/// last, and those that wait to be written.
#[derive(Debug)]
pub(crate) struct Indexes {
    /// The one that was needed last at the back.
    held: VecDeque<(SegmentNumber, Arc<SegmentIndex>)>,
    held_bytes: u64,
    bytes_max: u64,
    /// Segments whose index is to be written once they are left for good, oldest first.
    pub waiting: VecDeque<SegmentNumber>,
    pub busy: bool,
    /// The last attempt to write one failed: there is no other before a segment is left or a
    /// checkpoint begins.
    pub failed: bool,
}

impl Indexes {
    pub(crate) fn new(waiting: VecDeque<SegmentNumber>) -> Indexes {
        let (held, held_bytes, bytes_max) = (VecDeque::new(), 0, BYTES_MAX);
        Indexes { held, held_bytes, bytes_max, waiting, busy: false, failed: false }
    }

    /// From now on those that are held keep to this bound.
    pub(crate) fn bound(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        self.shrink();
    }

    /// Keeps an index, in place of the least recently used ones.
    pub(crate) fn hold(&mut self, number: SegmentNumber, index: Arc<SegmentIndex>) {
        self.forget(number);
        self.held_bytes += index.memory_bytes();
        self.held.push_back((number, index));
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes_max < self.held_bytes || HELD_MAX < self.held.len() {
            let Some((_, index)) = self.held.pop_front() else { return };
            self.held_bytes -= index.memory_bytes();
        }
    }

    pub(crate) fn forget(&mut self, number: SegmentNumber) {
        if let Some(at) = self.held.iter().position(|(held, _)| *held == number)
            && let Some((_, index)) = self.held.remove(at)
        {
            self.held_bytes -= index.memory_bytes();
        }
    }

    /// The index of a segment, if it is cached, for use now.
    pub(crate) fn take_up(&mut self, number: SegmentNumber) -> Option<Arc<SegmentIndex>> {
        let at = self.held.iter().rposition(|(held, _)| *held == number)?;
        if at + 1 < self.held.len() {
            let found = self.held.remove(at)?;
            self.held.push_back(found);
        }
        self.look(number)
    }

    /// The same, without the need for it.
    pub(crate) fn look(&self, number: SegmentNumber) -> Option<Arc<SegmentIndex>> {
        self.held.iter().rfind(|(held, _)| *held == number).map(|(_, index)| index.clone())
    }

    /// Memory that they take.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: u64) -> Arc<SegmentIndex> {
        let mut index = SegmentIndex::default();
        for number in 0..entries {
            let (first, offset) = (Position::new(number + 1).unwrap(), number * INDEX_STRIDE_BYTES);
            index.add(PartitionId(0), IndexEntry { first, offset, group: GroupNumber(number + 1) });
        }
        index.into()
    }

    #[test]
    fn there_is_an_entry_for_each_stride_and_the_one_before_a_record_finds_it() {
        let mut index = SegmentIndex::default();
        let entry = |first, offset| IndexEntry {
            first: Position::new(first).unwrap(),
            offset,
            group: GroupNumber(first),
        };
        let (next, far) = (512 + INDEX_STRIDE_BYTES, 9 * INDEX_STRIDE_BYTES);
        for (first, offset) in
            [(3, 512), (4, 512), (5, next - 1), (6, next), (9, far), (10, far + INDEX_STRIDE_BYTES - 1)]
        {
            index.add(PartitionId(1), entry(first, offset));
        }
        assert_eq!(index.of(PartitionId(1)), [entry(3, 512), entry(6, next), entry(9, far)]);
        for (position, want) in
            [(2, None), (3, Some(3)), (5, Some(3)), (6, Some(6)), (8, Some(6)), (99, Some(9))]
        {
            let found = index.find(PartitionId(1), Position::new(position).unwrap());
            assert_eq!(found.map(|entry| entry.first.get()), want, "record {position}");
        }
        assert_eq!(index.find(PartitionId(0), Position::FIRST), None);
    }

    #[test]
    fn what_is_held_keeps_to_its_bound_and_goes_in_the_order_of_need() {
        let bytes = index(100).memory_bytes();
        let mut indexes = Indexes::new(VecDeque::new());
        indexes.bound(3 * bytes);
        for number in 1..=3 {
            indexes.hold(SegmentNumber(number), index(100));
        }
        assert!(indexes.take_up(SegmentNumber(1)).is_some());
        indexes.hold(SegmentNumber(4), index(100));
        let held = |indexes: &Indexes| indexes.held.iter().map(|(number, _)| number.0).collect::<Vec<_>>();
        assert_eq!(held(&indexes), [3, 1, 4]);
        indexes.forget(SegmentNumber(1));
        assert_eq!((held(&indexes), indexes.held_bytes()), (vec![3, 4], 2 * bytes));
        indexes.hold(SegmentNumber(5), index(1000));
        assert_eq!((held(&indexes), indexes.held_bytes()), (vec![], 0), "larger than everything");
        (1..1000).for_each(|number| indexes.hold(SegmentNumber(number), index(0)));
        assert!(held(&indexes).len() <= HELD_MAX);
    }
}
