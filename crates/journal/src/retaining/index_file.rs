//! The indexes of complete segments on the disk: after the groups of a compacted segment, in a
//! file beside any other.
//!
//! ```text
//! compacted  = header sector | groups | the segment's entry as in a checkpoint, with its whole index
//! beside     = header sector | that entry
//! ```
//! An index file can be made from its segment: it is not synced, and one that is missing, damaged
//! or of another version is created again by its next user.

use crate::disks::disk::{Disk, DiskFile, read_full_at, write_all_at};
use crate::error::IndexError;
use crate::layout::checkpoint_bytes::{decode_segment, encode_segment};
use crate::layout::format::{
    COMPACTED_MAGIC, FIRST_GROUP, GroupNumber, HeaderFault, INDEX_MAGIC, SECTOR_BYTES, SegmentHeader,
    SegmentNumber, compacted_name, index_name, seal, unseal,
};
use crate::opening::chain::SCAN_STEP_BYTES;
use crate::reading::scan::Window;
use crate::retaining::compacted::Run;
use crate::retaining::index::SegmentIndex;
use crate::writing::journal::Journal;
use crate::writing::segment::Segment;
use bytes::{Buf, BufMut, Bytes};
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;

/// This much stays free on the disk, for the checkpoints by which a full one is emptied.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// Which of the two kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Compacted(Run),
    Beside(SegmentNumber),
}

impl Form {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Form::Compacted(_) => COMPACTED_MAGIC,
            Form::Beside(_) => INDEX_MAGIC,
        }
    }

    fn run(self) -> Run {
        match self {
            Form::Compacted(run) => run,
            Form::Beside(number) => Run { first: number, last: number, checkpoint: 0 },
        }
    }

    /// Where the entry is, in a file whose segment's groups end at `end`.
    pub(crate) fn offset(self, end: u64) -> u64 {
        match self {
            Form::Compacted(_) => end,
            Form::Beside(_) => SECTOR_BYTES,
        }
    }

    fn name(self) -> String {
        match self {
            Form::Compacted(run) => compacted_name(run),
            Form::Beside(number) => index_name(number),
        }
    }
}

/// The header sector of a file, and the entry in it.
pub(crate) fn encode(form: Form, segment: &Segment) -> ([u8; SECTOR_BYTES as usize], Vec<u8>) {
    let mut entry = Vec::new();
    encode_segment(&mut entry, segment, segment.index.as_deref());
    let mut sector = [0; SECTOR_BYTES as usize];
    let (mut header, run) = (&mut sector[16..], form.run());
    header.put_u64_le(run.first.0);
    header.put_u64_le(run.last.0);
    header.put_u64_le(run.checkpoint);
    header.put_u64_le(segment.header.salt);
    header.put_u64_le(segment.end);
    header.put_u64_le(entry.len() as u64);
    header.put_u32_le(crc32c::crc32c(&entry));
    seal(form.magic(), &mut sector);
    (sector, entry)
}

/// Why nothing can be said of a file.
pub(crate) enum Unreadable {
    Version(u32),
    Io(io::Error),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Unreadable {
        Unreadable::Io(error)
    }
}

/// Reads the entry in a file; `None`: damaged.
pub(crate) fn read<D: Disk>(disk: &D, name: &str, form: Form) -> Result<Option<Segment>, Unreadable> {
    read_in(&disk.open(name)?, form, read_full_at)
}

/// The contents of the header sector of such a file.
#[derive(Debug)]
pub(crate) struct Head {
    pub salt: u64,
    /// Where the segment's groups end.
    pub end: u64,
    bytes: u64,
    checksum: u32,
}

/// Reads the header sector by `get`; `None`: damaged.
pub(crate) fn read_head<F: DiskFile>(
    file: &F,
    form: Form,
    get: &impl Fn(&F, &mut [u8], u64) -> io::Result<usize>,
) -> Result<Option<Head>, Unreadable> {
    let mut sector = [0; SECTOR_BYTES as usize];
    get(file, &mut sector, 0)?;
    let mut header = match unseal(form.magic(), &sector) {
        Ok(header) => header,
        Err(HeaderFault::Version(found)) => return Err(Unreadable::Version(found)),
        Err(HeaderFault::Invalid) => return Ok(None),
    };
    let found = Run {
        first: SegmentNumber(header.get_u64_le()),
        last: SegmentNumber(header.get_u64_le()),
        checkpoint: header.get_u64_le(),
    };
    let (salt, end) = (header.get_u64_le(), header.get_u64_le());
    let (bytes, checksum) = (header.get_u64_le(), header.get_u32_le());
    Ok((found == form.run()).then_some(Head { salt, end, bytes, checksum }))
}

/// As [`read`], by `get` out of a file that is open.
pub(crate) fn read_in<F: DiskFile>(
    file: &F,
    form: Form,
    get: impl Fn(&F, &mut [u8], u64) -> io::Result<usize>,
) -> Result<Option<Segment>, Unreadable> {
    let Some(Head { salt, end, bytes, checksum }) = read_head(file, form, &get)? else {
        return Ok(None);
    };
    let length = file.length()?;
    let offset = form.offset(end);
    if length.saturating_sub(offset) < bytes {
        return Ok(None);
    }
    let mut entry = vec![0; bytes as usize];
    let read = get(file, &mut entry, offset)?;
    if read < entry.len() || crc32c::crc32c(&entry) != checksum {
        return Ok(None);
    }
    let segment = decode_entry(entry, (salt, form.run().last, end));
    Ok(segment.map(|segment| match form {
        Form::Compacted(run) => segment.compacted(run),
        Form::Beside(_) => segment,
    }))
}

/// The entry of a segment of which this salt, number and end are known.
pub(crate) fn decode_entry(entry: Vec<u8>, known: (u64, SegmentNumber, u64)) -> Option<Segment> {
    let mut entry = Bytes::from(entry);
    decode_segment(&mut entry).filter(|segment| {
        entry.is_empty() && (segment.header.salt, segment.header.number, segment.end) == known
    })
}

/// A complete segment whose index is looked for on the disk; may be on another thread than the
/// journal's.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    header: SegmentHeader,
    end: u64,
    compacted: Option<Run>,
}

/// An index in use.
#[derive(Debug)]
pub struct FoundIndex {
    pub(crate) number: SegmentNumber,
    pub(crate) salt: u64,
    pub(crate) index: Arc<SegmentIndex>,
}

impl Lookup {
    pub(crate) fn new(segment: &Segment) -> Lookup {
        Lookup { header: segment.header, end: segment.end, compacted: segment.compacted }
    }

    fn form(&self) -> Form {
        self.compacted.map_or(Form::Beside(self.header.number), Form::Compacted)
    }

    /// The index of the segment, which is in `file`.
    pub(crate) fn find<D: Disk>(&self, disk: &D, file: &D::File) -> FoundIndex {
        let index = self.stored(disk).or_else(|| self.make(disk, file)).unwrap_or_default();
        FoundIndex { number: self.header.number, salt: self.header.salt, index }
    }

    /// The contents on the disk; `None` if they are missing, incomplete, or not of this life of the
    /// segment.
    fn stored<D: Disk>(&self, disk: &D) -> Option<Arc<SegmentIndex>> {
        let form = self.form();
        let found = read(disk, &form.name(), form).ok()??;
        let is_it = (found.header.salt, found.end) == (self.header.salt, self.end);
        found.index.filter(|_| is_it)
    }

    /// Reads the segment for it, and keeps it beside that if it is whole. `None`: the segment
    /// cannot be read.
    fn make<D: Disk>(&self, disk: &D, file: &D::File) -> Option<Arc<SegmentIndex>> {
        let mut segment = Segment::new(self.header);
        let mut window = Window::new(file, SCAN_STEP_BYTES, self.end);
        let (mut offset, mut is_whole) = (FIRST_GROUP, true);
        while offset < self.end {
            let Some(head) = window.head(self.header.salt, offset).ok()? else {
                is_whole = false;
                // Later entries can still be read.
                match window.search(Some(self.header.salt), offset + 1, GroupNumber(0)).ok()? {
                    Some(next) => offset = next,
                    None => break,
                }
                continue;
            };
            for entry in &head.records {
                let (partition, position) = (entry.header.partition, entry.header.position);
                segment.add(partition, position, entry.stored(), head.offset, head.header.number);
            }
            offset = head.end();
        }
        segment.end = self.end;
        if is_whole && self.compacted.is_none() {
            // Without it the next one who needs it makes it again.
            let _ = write(disk, &segment);
        }
        segment.index
    }
}

/// Writes the index beside a segment. Not synced: its checksums detect the result of a power
/// failure.
fn write<D: Disk>(disk: &D, segment: &Segment) -> io::Result<()> {
    let name = index_name(segment.header.number);
    let (sector, entry) = encode(Form::Beside(segment.header.number), segment);
    let wanted = SECTOR_BYTES + entry.len() as u64 + FREE_BYTES_MIN;
    if disk.free_bytes()?.is_some_and(|free| free < wanted) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    // A backup may have one of the same name, too: that stays as it is.
    let _ = disk.remove(&name);
    let file = disk.create(&name)?;
    write_all_at(&file, &mut [IoSlice::new(&sector), IoSlice::new(&entry)], 0)
}

/// An order to write the index of a segment; any thread may.
#[derive(Debug)]
#[must_use = "the journal waits for the answer: give it to `Journal::finish_index`"]
pub struct IndexRequest(Segment);

/// An index that is on the disk.
#[derive(Debug)]
pub struct WrittenIndex {
    number: SegmentNumber,
    salt: u64,
}

impl IndexRequest {
    /// Writes it beside its segment.
    ///
    /// # Errors
    /// [`IndexError`]: the disk is full or broken. Give it to [`Journal::finish_index`] as well.
    pub fn write<D: Disk>(self, disk: &D) -> Result<WrittenIndex, IndexError> {
        let SegmentHeader { number, salt, .. } = self.0.header;
        match write(disk, &self.0) {
            Ok(()) => Ok(WrittenIndex { number, salt }),
            Err(source) => {
                // Half of one only takes space from others.
                let _ = disk.remove(&index_name(number));
                Err(IndexError { file: disk.path(&index_name(number)), source })
            }
        }
    }
}

impl<D: Disk> Journal<D> {
    /// The order to write the index of a segment that was left, if there is one and none is under
    /// way. Ask after every commit.
    pub fn wants_index(&mut self) -> Option<IndexRequest> {
        if self.indexes.busy || self.indexes.failed {
            return None;
        }
        // The data after it pins its end: no group comes there any more.
        while let Some(&number) = self.indexes.waiting.front().filter(|&&number| number < self.last.segment) {
            match self.segments.get(number).filter(|segment| segment.index.is_some()) {
                Some(segment) if segment.needs_index() => {
                    self.indexes.busy = true;
                    let mut segment = segment.clone();
                    // How many are live is nothing that stays.
                    segment.ranges.values_mut().for_each(|range| range.live = 0);
                    return Some(IndexRequest(segment));
                }
                _ => self.drop_index(number),
            }
        }
        None
    }

    /// Takes the answer to [`Journal::wants_index`], good or bad: an index that could not be
    /// written stays in memory.
    ///
    /// # Errors
    /// The one given.
    pub fn finish_index(&mut self, answer: Result<WrittenIndex, IndexError>) -> Result<(), IndexError> {
        self.indexes.busy = false;
        let WrittenIndex { number, salt } = answer.inspect_err(|_| self.indexes.failed = true)?;
        if self.still_has(number, salt) && self.segments.has_file(number) {
            if let Some(index) = self.segments.get(number).and_then(|segment| segment.index.clone()) {
                self.indexes.hold(number, index);
            }
        } else {
            self.compactions.obsolete.push(index_name(number));
        }
        self.drop_index(number);
        Ok(())
    }

    fn drop_index(&mut self, number: SegmentNumber) {
        self.indexes.waiting.retain(|waiting| *waiting != number);
        self.segments.drop_index(number);
    }

    /// Bounds the memory for indexes of complete segments; the default is 4 MiB. Others are read
    /// when they are needed.
    pub fn bound_indexes(&mut self, bytes_max: u64) {
        self.indexes.bound(bytes_max);
    }

    /// Keeps an index that was found on another thread, for those who need it next.
    pub fn keep_index(&mut self, found: FoundIndex) {
        if self.still_has(found.number, found.salt) {
            self.indexes.hold(found.number, found.index);
        } else {
            // It may have been written by a reader after the segment and its files had gone.
            self.compactions.obsolete.push(index_name(found.number));
        }
    }

    /// The file of the index beside a segment, if it exists and is damaged: nothing is lost, it is
    /// created again.
    pub fn damaged_index(&self, number: SegmentNumber) -> Option<PathBuf> {
        let segment = self.segments.get(number).filter(|segment| segment.compacted.is_none())?;
        let lookup = Lookup::new(segment);
        let name = index_name(number);
        let is_there = self.disk.open(&name).is_ok();
        (is_there && lookup.stored(&self.disk).is_none()).then(|| self.disk.path(&name))
    }

    /// Memory that indexes of segments take.
    pub fn index_bytes(&self) -> u64 {
        let own = self.segments.iter().filter_map(|segment| segment.index.as_ref());
        own.map(|index| index.memory_bytes()).sum::<u64>() + self.indexes.held_bytes()
    }
}
