//! Writing the sorted copy of a segment, on whatever thread: its live records, those of one address
//! one after the other.
//!
//! Never here: when; that is in [`crate::retaining::sorting`].

use crate::disks::disk::{Disk, DiskFile, read_full_at, write_all_at};
use crate::keys::Keys;
use crate::layout::bundle::Bundles;
use crate::layout::format::{
    FIRST_GROUP, PAYLOAD_ALIGN, RECORD_HEADER_BYTES, RecordHeader, SECTOR_BYTES, SegmentNumber, sorted_name,
};
use crate::layout::sorted::{PARTITIONS_MAX, SLOT_BYTES, Slot, Slots, SortedHeader, number_of};
use crate::reading::scan::Window;
use crate::reading::sorted::SortedCopy;
use crate::retaining::live::LiveSet;
use crate::writing::pace::Pace;
use crate::writing::segment::Segment;
use postroad_model::{PartitionId, Position};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

/// Records with the same number are read together: their address, as a rule. Supplied by a user who
/// knows the meaning of payloads.
pub type SortKey = fn(&[u8]) -> u32;

/// Bytes of a segment that show how many addresses it has side by side, and how large its records
/// are.
const SAMPLE_BYTES: u64 = 1 << 20;

/// Larger records are read where they are: a disk reads its pages of 4 KiB whole, half of one on
/// either side in the mean, and of this size on that is less than the cost of reading and writing
/// the copy.
const PAYLOAD_BYTES_MEAN_MAX: u64 = 2 << 10;

/// With fewer, a reader of one address reads not much else besides.
const ADDRESSES_MIN: usize = 4;

/// Records that are sorted at a time: 40 bytes of memory for each. A thousand addresses have 65
/// there, 28 KB of small messages.
const SORTED_MAX: usize = 1 << 16;

/// Up to this number of addresses, payloads are held in memory until they are written: they need
/// not be found one by one.
const HELD_ADDRESSES_MAX: usize = 128;

/// Up to this number of addresses get a range of the copy each, so that later chunks follow on
/// earlier ones: 40 bytes of memory for each. Of more of them a chunk has a few records each.
const STRETCHES_MAX: usize = 4096;

/// Bytes of each address that show how much shorter its bundles are than its records.
const MEASURED_BYTES: u64 = 8 << 10;

/// A range has room for this many eighths of its address's records if the rest of the segment is
/// like its beginning.
const STRETCH_EIGHTHS: u64 = 9;

/// Slots of a copy, each of 8 bytes of memory while it is made: a segment of 64 MiB has as many
/// records of 128 bytes.
const SLOTS_MAX: u64 = 1 << 19;

/// Read or written between two rests.
const STEP_BYTES: u64 = 512 << 10;

/// Room for this number of segments must be left on the disk: a copy is worth less than new data.
const FREE_SEGMENTS_MIN: u64 = 8;

/// An order from [`crate::Journal::wants_sorting`].
#[derive(Debug)]
#[must_use = "the journal waits for the answer: give it to `Journal::finish_sorting`"]
pub struct SortRequest<F> {
    pub(crate) segment: Segment,
    pub(crate) file: Arc<F>,
    pub(crate) keep: BTreeMap<PartitionId, LiveSet>,
    pub(crate) keys: Keys,
    pub(crate) sort_key: SortKey,
    /// The most that is held in memory of payloads.
    pub(crate) held_bytes_max: usize,
    pub(crate) is_late: bool,
    /// Of a regular segment.
    pub(crate) segment_bytes: u64,
}

/// The result of a [`SortRequest`].
#[derive(Debug)]
pub struct Sorting {
    pub(crate) number: SegmentNumber,
    pub(crate) salt: u64,
    /// Whether there is a copy now: not where it would be of no use. Or why there is none: there is
    /// no room for it, or something cannot be read or written.
    pub(crate) made: io::Result<bool>,
}

impl Sorting {
    /// Whether there is a copy now.
    pub fn has_copy(&self) -> bool {
        matches!(self.made, Ok(true))
    }
}

/// A record that is to be sorted.
struct Row {
    sort_key: u32,
    header: RecordHeader,
    /// Of its payload, in the segment or among those that are held.
    offset: u64,
}

/// Records that are sorted together.
struct Chunk {
    rows: Vec<Row>,
    /// Their payloads as they are stored, if they are held.
    held: Option<Vec<u8>>,
    held_bytes_max: usize,
}

impl Chunk {
    fn new(addresses: usize, held_bytes_max: usize) -> Chunk {
        let held = (addresses <= HELD_ADDRESSES_MAX).then(|| Vec::with_capacity(held_bytes_max));
        Chunk { rows: Vec::new(), held, held_bytes_max }
    }

    fn takes(&self, payload_bytes: usize) -> bool {
        let fits = |held: &Vec<u8>| held.len() + payload_bytes <= self.held_bytes_max;
        self.rows.is_empty() || self.rows.len() < SORTED_MAX && self.held.as_ref().is_none_or(fits)
    }

    fn push(&mut self, mut row: Row, stored: &[u8]) {
        if let Some(held) = &mut self.held {
            row.offset = held.len() as u64;
            held.extend_from_slice(stored);
        }
        self.rows.push(row);
    }

    fn sort(&mut self) {
        self.rows.sort_unstable_by_key(|row| (row.sort_key, row.header.partition, row.header.position));
    }

    /// The records of each address, once it is sorted.
    fn stretches(&self) -> impl Iterator<Item = (u32, &[Row])> {
        let of_one = self.rows.chunk_by(|one, next| one.sort_key == next.sort_key);
        of_one.filter_map(|rows| Some((rows.first()?.sort_key, rows)))
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.held.iter_mut().for_each(Vec::clear);
    }
}

impl<F: DiskFile> SortRequest<F> {
    /// Whether others have waited long for a copy: consumers may reach segments without one.
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// Reads and writes, if that is worth it. Nothing is synced: checksums detect the result of a
    /// power failure.
    pub fn run<D: Disk<File = F>>(self, disk: &D, pace: &mut dyn Pace) -> Sorting {
        let (number, salt) = (self.segment.header.number, self.segment.header.salt);
        if self.is_there(disk) {
            return Sorting { number, salt, made: Ok(true) };
        }
        let _ = disk.remove(&self.name());
        let made = match self.worth(disk) {
            Ok(Some(addresses)) => self.write(disk, addresses, pace).map(|()| true),
            other => other.map(|_| false),
        };
        if made.is_err() {
            // Half of one only takes space from others.
            let _ = disk.remove(&self.name());
        }
        Sorting { number, salt, made }
    }

    fn name(&self) -> String {
        sorted_name(self.segment.header.number, self.segment.header.salt)
    }

    /// Whether an earlier start of the broker has made the copy, to its end: the header is written
    /// last.
    fn is_there<D: Disk<File = F>>(&self, disk: &D) -> bool {
        let Ok(file) = disk.open(&self.name()) else { return false };
        let copy = SortedCopy { file: Arc::new(file), segment: self.segment.header, end: self.segment.end };
        copy.header().is_some()
    }

    /// How many addresses the segment has side by side, if they are many and its records small; an
    /// error if there is no room for a copy.
    fn worth<D: Disk<File = F>>(&self, disk: &D) -> io::Result<Option<usize>> {
        let capacity_bytes = self.segment.header.capacity_bytes.max(self.segment.end);
        let wanted = capacity_bytes.saturating_add(self.segment_bytes.saturating_mul(FREE_SEGMENTS_MIN));
        let slots = self.slots().iter().map(|slots| u64::from(slots.count)).sum::<u64>();
        if PARTITIONS_MAX < self.keep.len() || SLOTS_MAX < slots {
            return Ok(None);
        }
        if disk.free_bytes()?.is_some_and(|free| free < wanted) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (mut addresses, mut records, mut bytes) = (BTreeSet::new(), 0, 0);
        self.scan(&mut |row, _| {
            addresses.insert(row.sort_key);
            records += 1;
            bytes += u64::from(row.header.payload_bytes);
            Ok(bytes < SAMPLE_BYTES)
        })?;
        let is_worth_it = ADDRESSES_MIN <= addresses.len() && bytes < PAYLOAD_BYTES_MEAN_MAX * records;
        Ok(is_worth_it.then_some(addresses.len()))
    }

    /// The slots of a copy, all of them still empty.
    fn slots(&self) -> Vec<Slots> {
        let ranges =
            self.keep.keys().filter_map(|partition| Some((*partition, self.segment.ranges.get(partition)?)));
        let slots = ranges.map(|(partition, range)| {
            let count = range.last.get() - range.first.get() + 1;
            Slots { partition, first: range.first, count: u32::try_from(count).unwrap_or(u32::MAX) }
        });
        slots.collect()
    }

    /// Hands each live record, in the order in which they lie, with its payload as it is stored, to
    /// `each`, until it has enough.
    fn scan(&self, each: &mut dyn FnMut(Row, &[u8]) -> io::Result<bool>) -> io::Result<()> {
        let Segment { header, end, .. } = &self.segment;
        let mut window = Window::with_keys(&*self.file, STEP_BYTES as usize, *end, &self.keys).passing();
        let mut offset = FIRST_GROUP;
        while offset < *end {
            let head = window.head(header.salt, offset)?.ok_or(io::ErrorKind::InvalidData)?;
            for entry in &head.records {
                let keep = self.keep.get(&entry.header.partition);
                if !keep.is_some_and(|keep| keep.contains(entry.header.position)) {
                    continue;
                }
                let payload = window.payload(entry)?.map_err(|_| io::ErrorKind::InvalidData)?;
                let (sort_key, offset) = ((self.sort_key)(payload), entry.payload_offset);
                let stored = window.bytes(offset, entry.header.payload_bytes as usize)?;
                let stored = stored.ok_or(io::ErrorKind::InvalidData)?;
                if !each(Row { sort_key, header: entry.header, offset }, stored)? {
                    return Ok(());
                }
            }
            offset = head.end();
        }
        Ok(())
    }

    fn write<D: Disk<File = F>>(&self, disk: &D, addresses: usize, pace: &mut dyn Pace) -> io::Result<()> {
        let mut output = Output::begin(disk.create(&self.name())?, self);
        let (mut chunk, mut scanned) = (Chunk::new(addresses, self.held_bytes_max), 0);
        let mut is_first = true;
        self.scan(&mut |row, stored| {
            scanned += stored.len() as u64;
            if STEP_BYTES <= scanned {
                scanned = 0;
                pace.step();
            }
            if !chunk.takes(stored.len()) {
                chunk.sort();
                if std::mem::take(&mut is_first) {
                    output.lay_out(self, &chunk, FIRST_GROUP..row.offset)?;
                }
                output.put_sorted(self, &mut chunk, pace)?;
            }
            chunk.push(row, stored);
            Ok(true)
        })?;
        chunk.sort();
        output.put_sorted(self, &mut chunk, pace)?;
        output.finish(self)
    }

    /// Puts rows of a chunk into bundles.
    fn bundle(&self, rows: &[Row], held: Option<&[u8]>, bundles: &mut Bundles) -> io::Result<()> {
        let mut buffer = Vec::new();
        bundles.clear();
        for row in rows {
            bundles.put(&row.header, self.payload(row, held, &mut buffer)?);
        }
        bundles.close();
        Ok(())
    }

    /// The payload of one of the rows of a chunk as it is stored: out of the segment, by way of
    /// `buffer`, unless it is held.
    fn payload<'c>(
        &self,
        row: &Row,
        held: Option<&'c [u8]>,
        buffer: &'c mut Vec<u8>,
    ) -> io::Result<&'c [u8]> {
        let (offset, length) = (row.offset, row.header.payload_bytes as usize);
        let payload = match held {
            Some(held) => held.get(offset as usize..).and_then(|rest| rest.get(..length)),
            None => {
                buffer.resize(length, 0);
                let read = read_full_at(&*self.file, buffer, offset)?;
                Some(&buffer[..]).filter(|payload| read == length && row.header.holds(payload))
            }
        };
        payload.ok_or(io::ErrorKind::InvalidData.into())
    }
}

/// The room for the records of one address.
struct Stretch {
    /// Position of the next write,
    at: u64,
    end: u64,
    /// and the beginning of the sector there.
    rest: Vec<u8>,
}

/// The file under way.
struct Output<F> {
    file: F,
    /// Unwritten records without a range, and their places.
    buffer: Vec<u8>,
    offset: u64,
    stretches: BTreeMap<u32, Stretch>,
    /// Unwritten records of ranges, one after the other: had each its own, it would be as long as
    /// the longest ever was.
    joined: Vec<u8>,
    slots: Vec<Slots>,
    /// Those of all partitions one after the other.
    filled: Vec<Slot>,
}

impl<F: DiskFile> Output<F> {
    fn begin(file: F, request: &SortRequest<F>) -> Output<F> {
        let slots = request.slots();
        let count: usize = slots.iter().map(|slots| slots.count as usize).sum();
        let (buffer, joined, stretches) = (Vec::new(), Vec::new(), BTreeMap::new());
        let filled = vec![Slot::default(); count];
        Output { file, buffer, offset: SECTOR_BYTES, stretches, joined, slots, filled }
    }

    /// Gives each address a range, by its share of the first chunk, which is all of this part of
    /// the segment.
    fn lay_out(&mut self, request: &SortRequest<F>, first: &Chunk, part: Range<u64>) -> io::Result<()> {
        if STRETCHES_MAX < first.stretches().count() {
            return Ok(());
        }
        let (whole, mut bundles) =
            (request.segment.end.saturating_sub(part.start), Bundles::new(request.segment.header.salt));
        for (sort_key, rows) in first.stretches() {
            let measured = pieces(rows, MEASURED_BYTES).next().unwrap_or_default();
            request.bundle(measured, first.held.as_deref(), &mut bundles)?;
            let share = |bytes: u64, of: u64, to: u64| bytes.saturating_mul(of) / to.max(1);
            let bundled = share(rows_bytes(rows), bundles.bytes().len() as u64, rows_bytes(measured));
            let bytes = share(bundled, whole, part.end - part.start);
            let (at, rest) = (self.offset, Vec::new());
            let end = (at + bytes / 8 * STRETCH_EIGHTHS).next_multiple_of(SECTOR_BYTES);
            self.stretches.insert(sort_key, Stretch { at, end, rest });
            self.offset = end;
        }
        self.file.allocate(self.offset)
    }

    /// Writes these records in the order of their addresses, each where its address has room, or
    /// else after them all; none of them is left.
    fn put_sorted(
        &mut self,
        request: &SortRequest<F>,
        chunk: &mut Chunk,
        pace: &mut dyn Pace,
    ) -> io::Result<()> {
        let (mut bundles, mut done) = (Bundles::new(request.segment.header.salt), 0);
        for (sort_key, rows) in chunk.stretches() {
            for rows in pieces(rows, STEP_BYTES) {
                request.bundle(rows, chunk.held.as_deref(), &mut bundles)?;
                self.put(sort_key, &bundles)?;
                done += rows_bytes(rows);
                if STEP_BYTES <= done {
                    done = 0;
                    pace.step();
                }
            }
        }
        chunk.clear();
        Ok(())
    }

    /// Writes whole sectors of these bundles of one address, and keeps the rest.
    fn put(&mut self, sort_key: u32, bundles: &Bundles) -> io::Result<()> {
        let length = bundles.bytes().len() as u64;
        let stretch = self.stretches.get_mut(&sort_key);
        let stretch = stretch.filter(|to| to.rest.len() as u64 + length <= to.end - to.at);
        let begin = match stretch {
            Some(Stretch { at, rest, .. }) => {
                let begin = *at + rest.len() as u64;
                self.joined.clear();
                self.joined.extend_from_slice(rest);
                self.joined.extend_from_slice(bundles.bytes());
                write_sectors(&self.file, &mut self.joined, at)?;
                rest.clear();
                rest.extend_from_slice(&self.joined);
                begin
            }
            None => {
                let begin = self.offset + self.buffer.len() as u64;
                self.buffer.extend_from_slice(bundles.bytes());
                if STEP_BYTES <= self.buffer.len() as u64 {
                    write_sectors(&self.file, &mut self.buffer, &mut self.offset)?;
                }
                begin
            }
        };
        bundles
            .records(begin)
            .try_for_each(|(partition, position, slot)| self.note(partition, position, slot))
    }

    /// The record is there.
    fn note(&mut self, partition: PartitionId, position: Position, slot: Option<Slot>) -> io::Result<()> {
        let number = number_of(&self.slots, partition, position);
        let filled = number.and_then(|number| self.filled.get_mut(number as usize));
        *filled.ok_or(io::ErrorKind::InvalidData)? = slot.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(())
    }

    /// The rest, the slots, and last the header.
    fn finish(mut self, request: &SortRequest<F>) -> io::Result<()> {
        for Stretch { at, mut rest, .. } in std::mem::take(&mut self.stretches).into_values() {
            rest.resize(rest.len().next_multiple_of(SECTOR_BYTES as usize), 0);
            write_all_at(&self.file, &mut [IoSlice::new(&rest)], at)?;
        }
        self.buffer.resize(self.buffer.len().next_multiple_of(SECTOR_BYTES as usize), 0);
        let slots_at = self.offset + self.buffer.len() as u64;
        for slots in std::mem::take(&mut self.filled).chunks((STEP_BYTES / SLOT_BYTES) as usize) {
            write_sectors(&self.file, &mut self.buffer, &mut self.offset)?;
            self.buffer.extend(slots.iter().flat_map(|slot| slot.encode()));
        }
        self.buffer.resize(self.buffer.len().next_multiple_of(SECTOR_BYTES as usize), 0);
        write_sectors(&self.file, &mut self.buffer, &mut self.offset)?;
        let Segment { header, end, .. } = &request.segment;
        let header = SortedHeader { salt: header.salt, end: *end, slots_at, slots: self.slots };
        write_all_at(&self.file, &mut [IoSlice::new(&header.encode())], 0)
    }
}

/// Writes the whole sectors gathered for this place, and goes on after them.
fn write_sectors<F: DiskFile>(file: &F, gathered: &mut Vec<u8>, at: &mut u64) -> io::Result<()> {
    let whole = gathered.len() - gathered.len() % SECTOR_BYTES as usize;
    write_all_at(file, &mut [IoSlice::new(&gathered[..whole])], *at)?;
    gathered.drain(..whole);
    *at += whole as u64;
    Ok(())
}

/// The size of these records before they are compressed.
fn rows_bytes(rows: &[Row]) -> u64 {
    rows.iter().map(row_bytes).sum()
}

fn row_bytes(row: &Row) -> u64 {
    RECORD_HEADER_BYTES as u64 + u64::from(row.header.payload_bytes)
}

/// The same rows, as many of them together as fit in this size, or one.
fn pieces(rows: &[Row], bytes_max: u64) -> impl Iterator<Item = &[Row]> {
    let mut bytes = 0;
    rows.chunk_by(move |one, next| {
        bytes += row_bytes(one);
        let fits = bytes + row_bytes(next) <= bytes_max;
        bytes = if fits { bytes } else { 0 };
        fits
    })
}

const _: () = assert!(SECTOR_BYTES.is_multiple_of(PAYLOAD_ALIGN) && STEP_BYTES.is_multiple_of(SECTOR_BYTES));

/// The live records between two positions of each partition, for the request of a segment.
pub(crate) fn kept(
    segment: &Segment,
    live_between: impl Fn(PartitionId, Position, Position) -> LiveSet,
) -> BTreeMap<PartitionId, LiveSet> {
    let ranges = segment.ranges.iter();
    let live =
        ranges.map(|(partition, range)| (*partition, live_between(*partition, range.first, range.last)));
    live.filter(|(_, live)| !live.is_empty()).collect()
}
