//! Records out of the sorted copy of their segment: neighbours of one address lie behind each other there.

use crate::disks::disk::{DiskFile, read_full_at};
use crate::keys::Keys;
use crate::layout::cipher::Decryptor;
use crate::layout::format::{SECTOR_BYTES, SegmentHeader};
use crate::layout::sorted::{Slot, SortedHeader, record_in};
use crate::reading::extents::{read_extents, read_of_table};
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
    /// them that take no more than `bytes_max` together, or the first one alone.
    pub(crate) fn read(
        &self,
        partition: PartitionId,
        positions: &[Position],
        keys: &Keys,
        bytes_max: u64,
    ) -> BTreeMap<Position, Bytes> {
        let mut payloads = BTreeMap::new();
        let Some(header) = self.header() else { return payloads };
        let (mut places, mut bytes) = (self.places(&header, partition, positions), 0);
        let fits = |(_, place): &(Position, Range<u64>)| {
            let is_first = bytes == 0;
            bytes += place.end - place.start;
            is_first || bytes <= bytes_max
        };
        let fitting = places.iter().cloned().take_while(fits).count();
        places.truncate(fitting);
        places.sort_unstable_by_key(|(_, place)| place.start);
        let wanted: Vec<Range<u64>> = places.iter().map(|(_, place)| place.clone()).collect();
        let mut decryptor = Decryptor::new(keys.clone());
        read_extents(&*self.file, &wanted, |member, bytes| {
            let (position, _) = places[member];
            if let Some((header, stored)) = record_in(bytes, self.segment.salt, partition, position)
                && let Ok(payload) = decryptor.open(&header, self.segment.salt, stored)
            {
                payloads.insert(position, Bytes::copy_from_slice(payload));
            }
        });
        payloads
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
