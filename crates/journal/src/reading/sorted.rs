//! Records out of the sorted copy of their segment: neighbours of one address lie behind each other there.

use crate::disks::disk::{DiskFile, read_full_at};
use crate::keys::Keys;
use crate::layout::cipher::Decryptor;
use crate::layout::format::{PAYLOAD_ALIGN, RecordHeader, SECTOR_BYTES, SegmentHeader};
use crate::layout::sorted::{RECORD_FRONT_BYTES, Slot, SortedHeader, split_record};
use crate::reading::extents::{GAP_BYTES, READ_BYTES_MAX, read_extents, read_of_table};
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

thread_local! {
    /// Of each thread that reads rows.
    static ROWS: Cell<Rows> = const { Cell::new(Rows { buffer: Vec::new(), next: VecDeque::new() }) };
}

/// What is kept from one reading of rows to the next.
#[derive(Default)]
struct Rows {
    /// Memory that is asked for anew each time costs more than the reading.
    buffer: Vec<u8>,
    /// What followed on the last rows, and will be wanted next: where it is need not be looked up.
    next: VecDeque<Next>,
}

struct Next {
    salt: u64,
    partition: PartitionId,
    position: Position,
    place: Range<u64>,
}

/// Consumers of so many queues find their places again.
const NEXT_MAX: usize = 256;

/// A row of fewer was not worth looking for its place alone.
const ROW_RECORDS_MIN: usize = 8;

impl Rows {
    fn take_next(&mut self, salt: u64, partition: PartitionId, position: Position) -> Option<Range<u64>> {
        let is_it = |next: &Next| (next.salt, next.partition, next.position) == (salt, partition, position);
        let found = self.next.iter().position(is_it)?;
        self.next.remove(found).map(|next| next.place)
    }

    fn keep_next(&mut self, next: Next) {
        if NEXT_MAX <= self.next.len() {
            self.next.pop_front();
        }
        self.next.push_back(next);
    }
}

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
            let scattered = taking.read_rows(&header, positions);
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

    /// Where a record is, if it is here.
    #[cfg(test)]
    pub(crate) fn place(&self, partition: PartitionId, position: Position) -> Option<Range<u64>> {
        self.places(&self.header()?, partition, &[position]).pop().map(|(_, place)| place)
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
    /// Those that follow on each other, as most do that are wanted together, row by row: where each of them is need not be looked
    /// up. Returns those from which on it is so no more.
    fn read_rows<'p>(&mut self, header: &SortedHeader, positions: &'p [Position]) -> &'p [Position] {
        let (mut rows, mut left) = (ROWS.take(), positions);
        while let Some(&first) = left.first().filter(|_| self.bytes_left > 0) {
            let known = rows.take_next(self.copy.segment.salt, self.partition, first);
            let look_up = || self.copy.places(header, self.partition, &[first]).pop().map(|(_, place)| place);
            let Some(place) = known.or_else(look_up) else { break };
            let before = left.len();
            self.read_row(place, header.slots_at, &mut left, &mut rows);
            if before - left.len() < ROW_RECORDS_MIN {
                break;
            }
        }
        ROWS.set(rows);
        left
    }

    /// The row that begins with a record at this place, as far as it is wanted.
    fn read_row(&mut self, first: Range<u64>, end: u64, left: &mut &[Position], rows: &mut Rows) {
        let one_bytes = (first.end - first.start).next_multiple_of(PAYLOAD_ALIGN);
        let mut at = first.start;
        loop {
            // Those that are left, and the one behind them.
            let bytes = one_bytes.saturating_mul(left.len() as u64 + 1);
            let bytes = bytes.min(READ_BYTES_MAX.max(one_bytes)).min(end.saturating_sub(at));
            let Ok(bytes) = self.copy.file.read_once(at..at + bytes, &mut rows.buffer) else { return };
            let before = left.len();
            let rest = self.take_row(bytes, left);
            at += (bytes.len() - rest.len()) as u64;
            if let Some((header, stored, _)) = split_record(rest, self.copy.segment.salt) {
                let (salt, RecordHeader { partition, position, .. }) = (self.copy.segment.salt, header);
                let place = at..at + RECORD_FRONT_BYTES + stored.len() as u64;
                rows.keep_next(Next { salt, partition, position, place });
                return;
            }
            // The last one was cut.
            if left.is_empty() || left.len() == before {
                return;
            }
        }
    }

    /// Takes what is wanted of the records that these bytes begin with. Returns the bytes from the first one on that is cut, or is none
    /// of the row, or all that are wanted.
    fn take_row<'b>(&mut self, bytes: &'b [u8], left: &mut &[Position]) -> &'b [u8] {
        let (mut rest, mut skipped) = (bytes, 0);
        while let [wanted, further @ ..] = *left
            && let Some((header, stored, behind)) = split_record(rest, self.copy.segment.salt)
        {
            let is_of_row = header.partition == self.partition && header.position <= *wanted;
            if !is_of_row || skipped > GAP_BYTES || self.bytes_left == 0 {
                break;
            }
            if header.position == *wanted {
                self.take(&header, stored);
                (*left, skipped) = (further, 0);
            } else {
                skipped += stored.len() as u64;
            }
            rest = behind;
        }
        rest
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
