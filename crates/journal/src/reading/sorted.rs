//! Records out of the sorted copy of their segment: neighbours of one address lie one after the
//! other there.

use crate::disks::disk::{DiskFile, read_full_at};
use crate::keys::Keys;
use crate::layout::bundle::{Begin, Place, begin, split_record};
use crate::layout::cipher::Decryptor;
use crate::layout::format::{RECORD_HEADER_BYTES, RecordHeader, SECTOR_BYTES, SegmentHeader};
use crate::layout::sorted::{Slot, SortedHeader};
use crate::reading::extents::{GAP_BYTES, READ_BYTES_MAX, read_extents, read_of_table};
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

thread_local! {
    /// Of each thread that reads rows.
    static ROWS: Cell<Rows> = const { Cell::new(Rows::new()) };
}

/// Buffers kept from one reading of rows to the next.
#[derive(Default)]
struct Rows {
    /// New memory for each read costs more than the reading.
    buffer: Vec<u8>,
    records: Vec<u8>,
    /// The continuation of the last rows, which will be wanted next: its place need not be looked
    /// up.
    next: VecDeque<Next>,
}

struct Next {
    salt: u64,
    partition: PartitionId,
    position: Position,
    place: Place,
}

/// The number of queues whose consumers find their places again.
const NEXT_MAX: usize = 256;

/// A row of fewer was not worth looking for its place alone.
const ROW_RECORDS_MIN: usize = 8;

/// Read where a row begins, as how much its records take is not known before: a bundle at least.
const ROW_BYTES: u64 = 64 << 10;

impl Rows {
    const fn new() -> Rows {
        Rows { buffer: Vec::new(), records: Vec::new(), next: VecDeque::new() }
    }

    fn take_next(&mut self, salt: u64, partition: PartitionId, position: Position) -> Option<Place> {
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
    /// The payloads of these records of a partition, as far as they are there and as they were
    /// committed, the first ones of them, until they take `bytes_max` together.
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
    pub(crate) fn place(&self, partition: PartitionId, position: Position) -> Option<Place> {
        self.places(&self.header()?, partition, &[position]).pop().map(|(_, place)| place)
    }

    /// Where the records are, of those that are here.
    fn places(
        &self,
        header: &SortedHeader,
        partition: PartitionId,
        positions: &[Position],
    ) -> Vec<(Position, Place)> {
        let slots =
            positions.iter().filter_map(|&position| Some((position, header.slot_of(partition, position)?)));
        let (positions, slots): (Vec<Position>, Vec<Range<u64>>) = slots.unzip();
        let mut places = Vec::with_capacity(slots.len());
        read_of_table(&*self.file, &slots, |member, bytes| {
            let place = Slot::decode(bytes).map(Slot::place);
            // The slots may point anywhere after a power failure.
            let place = place.filter(|place| place.bundle.end <= header.slots_at);
            places.extend(place.map(|place| (positions[member], place)));
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
    /// Those that follow on each other, as most do that are wanted together, row by row: where each
    /// of them is need not be looked up. Returns those from which on it is so no more.
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
    fn read_row(&mut self, first: Place, end: u64, left: &mut &[Position], rows: &mut Rows) {
        let salt = self.copy.segment.salt;
        let (mut at, mut offset, mut skipped) = (first.bundle.start, first.offset, 0);
        let mut wanted_bytes = ROW_BYTES;
        loop {
            let (before, part) = (left.len(), at..end.min(at + wanted_bytes));
            let Ok(place) = self.copy.file.read_once(part.clone(), &mut rows.buffer) else { return };
            let bytes = &rows.buffer[place];
            let mut rest = bytes;
            loop {
                let (bundle, behind) = match begin(rest, salt) {
                    Begin::Whole(bundle, behind) => (bundle, behind),
                    Begin::Cut => break,
                    Begin::Nothing => return,
                };
                let Some(records) = bundle.records(&mut rows.records) else { return };
                if let Some((header, within)) = self.take_row(records, offset, left, &mut skipped) {
                    let start = part.start + (bytes.len() - rest.len()) as u64;
                    let bundle = start..start + (rest.len() - behind.len()) as u64;
                    let RecordHeader { partition, position, .. } = header;
                    rows.keep_next(Next {
                        salt,
                        partition,
                        position,
                        place: Place { bundle, offset: within },
                    });
                    return;
                }
                (rest, offset) = (behind, 0);
            }
            let read = (bytes.len() - rest.len()) as u64;
            if left.is_empty() || read == 0 || part.end == end {
                return;
            }
            at += read;
            // As far as those that are left go, if they take as much as those that were there.
            let further = read.saturating_mul(left.len() as u64) / (before - left.len()).max(1) as u64;
            wanted_bytes = further.clamp(ROW_BYTES, READ_BYTES_MAX);
        }
    }

    /// Takes the requested records of a bundle, from this place among them on. Returns the first
    /// that is not in the row, or is not wanted any more, with its place: those of the next bundle
    /// may go on with the row if there is none.
    fn take_row(
        &mut self,
        records: &[u8],
        offset: usize,
        left: &mut &[Position],
        skipped: &mut u64,
    ) -> Option<(RecordHeader, usize)> {
        let mut rest = records.get(offset..)?;
        while let Some((header, stored, behind)) = split_record(rest) {
            let is_of_row =
                |wanted: &Position| header.partition == self.partition && header.position <= *wanted;
            let [wanted, further @ ..] = *left else { return Some((header, records.len() - rest.len())) };
            if !is_of_row(wanted) || *skipped > GAP_BYTES || self.bytes_left == 0 {
                return Some((header, records.len() - rest.len()));
            }
            if header.position == *wanted {
                self.take(&header, stored);
                (*left, *skipped) = (further, 0);
            } else {
                *skipped += stored.len() as u64;
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
        let (mut places, mut ahead, mut last) = (self.copy.places(header, self.partition, positions), 0, 0);
        places.retain(|(_, Place { bundle, .. })| {
            let fits = ahead < self.bytes_left;
            let is_known = std::mem::replace(&mut last, bundle.start) == bundle.start;
            ahead += if is_known { 0 } else { bundle.end - bundle.start };
            fits
        });
        places.sort_unstable_by_key(|(_, place)| (place.bundle.start, place.offset));
        let of_bundles: Vec<&[(Position, Place)]> =
            places.chunk_by(|(_, one), (_, next)| one.bundle == next.bundle).collect();
        let wanted: Vec<Range<u64>> = of_bundles.iter().map(|places| places[0].1.bundle.clone()).collect();
        let mut buffer = Vec::new();
        read_extents(&*self.copy.file, &wanted, |member, bytes| {
            let Begin::Whole(bundle, _) = begin(bytes, self.copy.segment.salt) else { return };
            let Some(records) = bundle.records(&mut buffer) else { return };
            for (position, place) in of_bundles[member] {
                if self.bytes_left > 0
                    && let Some((header, stored, _)) = records.get(place.offset..).and_then(split_record)
                    && (header.partition, header.position) == (self.partition, *position)
                {
                    self.take(&header, stored);
                }
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
        self.bytes_left = self.bytes_left.saturating_sub((RECORD_HEADER_BYTES + stored.len()) as u64);
    }
}
