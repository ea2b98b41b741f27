//! Records out of the sorted copy of their segment: neighbours of one address lie behind each other there.

use crate::disks::disk::{DiskFile, read_full_at};
use crate::keys::Keys;
use crate::layout::cipher::Decryptor;
use crate::layout::format::{PAYLOAD_ALIGN, RecordHeader, SECTOR_BYTES, SegmentHeader};
use crate::layout::sorted::{RECORD_FRONT_BYTES, Slot, SortedHeader, split_record};
use crate::reading::extents::{GAP_BYTES, READ_BYTES_MAX, read_extents, read_of_table};
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A file that may be the sorted copy of a segment.
#[derive(Debug)]
pub(crate) struct SortedCopy<F> {
    pub file: Arc<F>,
    /// Of the segment,
    pub segment: SegmentHeader,
    /// and where that ends.
    pub end: u64,
}

impl<F: DiskFile> SortedCopy<F> {
    /// The payloads of these records of a partition, as far as they are there and as they were committed, the first ones of
    /// them, until they take `bytes_max` together.
    pub(crate) fn read(
        &self,
        partition: PartitionId,
        positions: &[Position],
        keys: &Keys,
        bytes_max: u64,
    ) -> BTreeMap<Position, Bytes> {
        let mut taking = Taking {
            copy: self,
            partition,
            decryptor: Decryptor::new(keys.clone()),
            bytes_left: bytes_max,
            payloads: BTreeMap::new(),
        };
        if let Some(header) = self.header() {
            let scattered = taking.read_row(&header, positions);
            taking.read_scattered(&header, scattered);
        }
        taking.payloads
    }

    /// `None`: it is not whole, or of another segment or another life of it.
    pub(crate) fn header(&self) -> Option<SortedHeader> {
        let mut sector = [0; SECTOR_BYTES as usize];
        read_full_at(&*self.file, &mut sector, 0).ok()?;
        SortedHeader::decode(&sector, &self.segment, self.end)
    }

    /// Where the records are, of those that are here.
    fn places(
        &self,
        header: &SortedHeader,
        partition: PartitionId,
        positions: &[Position],
    ) -> Vec<(Position, Range<u64>)> {
        let slots =
            positions.iter().filter_map(|&position| Some((position, header.slot_of(partition, position)?)));
        let (positions, slots): (Vec<Position>, Vec<Range<u64>>) = slots.unzip();
        let mut places = Vec::with_capacity(slots.len());
        read_of_table(&*self.file, &slots, |member, bytes| {
            let record = Slot::decode(bytes).map(Slot::record);
            // What a power cut left of the slots may point anywhere.
            let record = record.filter(|record| record.end <= header.slots_at);
            places.extend(record.map(|record| (positions[member], record)));
        });
        places
    }
}

/// One reading of several records.
struct Taking<'c, F> {
    copy: &'c SortedCopy<F>,
    partition: PartitionId,
    decryptor: Decryptor,
    bytes_left: u64,
    payloads: BTreeMap<Position, Bytes>,
}

impl<F: DiskFile> Taking<'_, F> {
    /// Those that follow the first one, as most do that are wanted together: where each of them is need not be looked up. Returns
    /// those from which on it is so no more.
    fn read_row<'p>(&mut self, header: &SortedHeader, positions: &'p [Position]) -> &'p [Position] {
        let first = positions.get(..1).unwrap_or_default();
        let Some((_, first)) = self.copy.places(header, self.partition, first).pop() else {
            return positions;
        };
        let (mut at, mut left, mut buffer) = (first.start, positions, Vec::new());
        let one_bytes = (first.end - first.start).next_multiple_of(PAYLOAD_ALIGN);
        loop {
            let bytes = one_bytes.saturating_mul(left.len() as u64);
            let bytes = bytes.min(READ_BYTES_MAX.max(one_bytes)).min(header.slots_at.saturating_sub(at));
            buffer.resize(bytes as usize, 0);
            let Ok(filled) = read_full_at(&*self.copy.file, &mut buffer, at) else { break };
            let before = left.len();
            match self.take_row(&buffer[..filled], &mut left) {
                Some(passed) if left.len() < before => at += passed,
                _ => break,
            }
        }
        left
    }

    /// Takes what is wanted of the records that these bytes begin with. Returns the bytes of those before the first that is cut;
    /// `None`: what is wanted next is none of the row, or nothing is.
    fn take_row(&mut self, bytes: &[u8], left: &mut &[Position]) -> Option<u64> {
        let (mut rest, mut skipped) = (bytes, 0);
        while let [wanted, further @ ..] = *left {
            let Some((header, stored, behind)) = split_record(rest, self.copy.segment.salt) else {
                return Some((bytes.len() - rest.len()) as u64);
            };
            let is_of_row = header.partition == self.partition && header.position <= *wanted;
            if !is_of_row || skipped > GAP_BYTES || self.bytes_left == 0 {
                return None;
            }
            if header.position == *wanted {
                self.take(&header, stored);
                (*left, skipped) = (further, 0);
            } else {
                skipped += stored.len() as u64;
            }
            rest = behind;
        }
        None
    }

    /// Those that lie anywhere, by their slots.
    fn read_scattered(&mut self, header: &SortedHeader, positions: &[Position]) {
        if positions.is_empty() || self.bytes_left == 0 {
            return;
        }
        let (mut places, mut ahead) = (self.copy.places(header, self.partition, positions), 0);
        places.retain(|(_, place)| {
            let fits = ahead < self.bytes_left;
            ahead += place.end - place.start;
            fits
        });
        places.sort_unstable_by_key(|(_, place)| place.start);
        let wanted: Vec<Range<u64>> = places.iter().map(|(_, place)| place.clone()).collect();
        read_extents(&*self.copy.file, &wanted, |member, bytes| {
            if let Some((header, stored, _)) = split_record(bytes, self.copy.segment.salt)
                && (header.partition, header.position) == (self.partition, places[member].0)
            {
                self.take(&header, stored);
            }
        });
    }

    /// Takes a record that is wanted, if it is as it was committed.
    fn take(&mut self, header: &RecordHeader, stored: &[u8]) {
        if header.holds(stored)
            && let Ok(payload) = self.decryptor.open(header, self.copy.segment.salt, stored)
        {
            self.payloads.insert(header.position, Bytes::copy_from_slice(payload));
        }
        self.bytes_left = self.bytes_left.saturating_sub(RECORD_FRONT_BYTES + stored.len() as u64);
    }
}
