//! Reads of several records of one segment: their groups are read and verified once for all of
//! them, and neighbouring payloads are read in one go.
//!
//! A group of a busy log has a table of thousands of records, and a backlog is read back in its
//! order: one read for each record would go through the whole table for each of them. Where other
//! queues' messages lie between, the disk has all payloads of a request to look for at once.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;

use bytes::Bytes;
use postroad_model::{PartitionId, Position};

use crate::disks::disk::{Disk, DiskFile};
use crate::error::ReadError;
use crate::layout::cipher::Decryptor;
use crate::reading::extents::read_extents;
use crate::reading::read::ReadRequest;
use crate::reading::scan::{GroupHead, RecordEntry, Window};
use crate::reading::sorted::SortedCopy;
use crate::repairing::rebuild::whole_or_rebuilt;
use crate::retaining::index::READ_STEP_BYTES;
use crate::retaining::index_file::FoundIndex;
use crate::writing::journal::Journal;

/// Records of one request: as many as the core asks for at once.
const RECORDS_MAX: usize = 512;

/// After this number of bytes the missing ones are left for another turn: others wait for the same
/// thread.
const PAYLOAD_BYTES_MAX: u64 = 1 << 20;

/// A planned read of records of one partition in one segment; may run on another thread than the
/// journal's while they are retained.
#[derive(Debug)]
pub struct NearRequest<F> {
    /// As each of them would be read alone.
    requests: Vec<ReadRequest<F>>,
    /// Where to look first.
    copy: Option<SortedCopy<F>>,
}

/// The results of the reads of this turn, and the reads that are left.
#[derive(Debug)]
pub struct NearRecords<F> {
    /// Each record's payload, its checksum verified, or why it cannot be had.
    pub records: Vec<(Position, Result<Bytes, ReadError>)>,
    /// The rest, to be run next.
    pub rest: Option<NearRequest<F>>,
    /// An index that had to be read for it: give it to [`Journal::keep_index`].
    pub index: Option<FoundIndex>,
}

impl<D: Disk> Journal<D> {
    /// Plans to read a record: together with those of `last`, the request that was planned before
    /// it, if it lies after them in the same segment. Otherwise in a request of its own, which is
    /// returned.
    ///
    /// # Errors
    /// [`ReadError::NotFound`]: no such record. [`ReadError::Damaged`]: its segment is gone.
    /// [`ReadError::Io`]: it cannot be opened.
    pub fn near_request(
        &mut self,
        partition: PartitionId,
        position: Position,
        last: Option<&mut NearRequest<D::File>>,
    ) -> Result<Option<NearRequest<D::File>>, ReadError> {
        if let Some(last) = last
            && let Some(known) = last.takes(partition, position)
            && let Some(request) = self.request_beside(known, position)
        {
            last.requests.push(request);
            return Ok(None);
        }
        let request = self.read_request(partition, position, 1, u64::MAX)?;
        let copy = self.sorted_copy(partition, position);
        Ok(Some(NearRequest { requests: vec![request], copy }))
    }
}

impl<F: DiskFile> NearRequest<F> {
    /// The last of its requests, if a record may be read with it.
    fn takes(&self, partition: PartitionId, position: Position) -> Option<&ReadRequest<F>> {
        let last = self.requests.last().filter(|_| self.requests.len() < RECORDS_MAX)?;
        (last.partition == partition && last.from < position).then_some(last)
    }

    /// Looks where each of them starts, if that is not known yet.
    fn look_up<D: Disk<File = F>>(&mut self, disk: &D) -> Option<FoundIndex> {
        let found = self.requests.iter_mut().find_map(|request| request.look_up(disk))?;
        for request in self.requests.iter_mut().filter(|request| request.lookup.is_some()) {
            request.start_by(&found.index);
        }
        Some(found)
    }

    /// Reads, until all are there or enough.
    pub fn run<D: Disk<File = F>>(mut self, disk: &D) -> NearRecords<F> {
        let sorted = self.take_sorted();
        if !sorted.is_empty() {
            // Records that are not in the copy wait after later requests of others.
            let records = sorted.into_iter().map(|(position, payload)| (position, Ok(payload)));
            let rest = Some(self).filter(|rest| !rest.requests.is_empty());
            return NearRecords { records: records.collect(), rest, index: None };
        }
        let index = self.look_up(disk);
        let Some(last) = self.requests.last() else {
            return NearRecords { records: Vec::new(), rest: None, index };
        };
        // From the first request to the last the current segment may have grown, and keys have
        // come.
        let (file, end, keys) = (last.file.clone(), last.end, last.keys.clone());
        self.announce_heads();
        let window = Window::with_keys(&*file, READ_STEP_BYTES, end, &keys);
        let mut passage = SegmentCursor { window, group: None };
        let (mut entries, mut payload_bytes) = (Vec::with_capacity(self.requests.len()), 0);
        for request in &self.requests {
            let entry = passage.find(request);
            payload_bytes += entry.map_or(0, |entry| u64::from(entry.header.payload_bytes));
            entries.push(entry);
            if PAYLOAD_BYTES_MAX <= payload_bytes {
                break;
            }
        }
        let rest = self.requests.split_off(entries.len());
        let rest = (!rest.is_empty()).then_some(NearRequest { requests: rest, copy: None });
        let payloads = read_payloads(&*file, &entries, Decryptor::new(keys));
        let records = self.requests.into_iter().zip(payloads).map(|(request, payload)| {
            let position = request.from;
            // A record that is not at its expected place is read alone, which reports the fault.
            (position, payload.map_or_else(|| request.run_alone(), Ok))
        });
        NearRecords { records: records.collect(), rest, index }
    }

    /// Takes the records that are in the sorted copy; looks there no more once it has none.
    fn take_sorted(&mut self) -> BTreeMap<Position, Bytes> {
        let Some((copy, first)) = self.copy.as_ref().zip(self.requests.first()) else {
            return BTreeMap::new();
        };
        let positions: Vec<Position> = self.requests.iter().map(|request| request.from).collect();
        let found = copy.read(first.partition, &positions, &first.keys, PAYLOAD_BYTES_MAX);
        self.requests.retain(|request| !found.contains_key(&request.from));
        if found.is_empty() {
            self.copy = None;
        }
        found
    }

    /// Announces to the disk where groups will be looked at, if there are several.
    fn announce_heads(&self) {
        let mut heads: Vec<Range<u64>> = Vec::new();
        for request in &self.requests {
            if heads.last().is_none_or(|head| head.end <= request.offset) {
                heads.push(request.offset..request.end.min(request.offset + READ_STEP_BYTES as u64));
            }
        }
        if let [first, _, ..] = &self.requests[..]
            && heads.len() > 1
        {
            heads.into_iter().for_each(|head| first.file.will_need(head));
        }
    }
}

/// The payload of each entry that is as it was committed.
fn read_payloads<F: DiskFile>(
    file: &F,
    entries: &[Option<RecordEntry>],
    mut decryptor: Decryptor,
) -> Vec<Option<Bytes>> {
    let found: Vec<(usize, RecordEntry)> =
        entries.iter().enumerate().filter_map(|(place, entry)| Some((place, (*entry)?))).collect();
    let places: Vec<Range<u64>> = found.iter().map(|(_, entry)| entry.payload()).collect();
    let mut payloads = vec![None; entries.len()];
    read_extents(file, &places, |member, stored| {
        let (place, entry) = &found[member];
        if entry.header.holds(stored) {
            let opened = decryptor.open(&entry.header, entry.salt, stored);
            payloads[*place] = opened.ok().map(Bytes::copy_from_slice);
        }
    });
    payloads
}

/// The way through one segment, from each record to the next.
struct SegmentCursor<'f, F> {
    window: Window<'f, F>,
    /// The group that was looked at last, and how far.
    group: Option<(GroupHead, usize)>,
}

impl<F: DiskFile> SegmentCursor<'_, F> {
    /// Where the record is, which lies after all that were found before; `None` unless all on the
    /// way to it is as it should be.
    fn find(&mut self, request: &ReadRequest<F>) -> Option<RecordEntry> {
        let known = mem::take(&mut self.group).filter(|(head, _)| request.offset <= head.offset);
        let (mut head, mut passed) = match known {
            Some(known) => known,
            None => (self.head(request, request.offset)?, 0),
        };
        loop {
            let ahead = head.records.iter().enumerate().skip(passed);
            let mut own = ahead.filter(|(_, entry)| entry.header.partition == request.partition);
            if let Some((index, entry)) = own.find(|(_, entry)| request.from <= entry.header.position) {
                let entry = Some(*entry).filter(|entry| entry.header.position == request.from);
                self.group = Some((head, index));
                return entry;
            }
            (head, passed) = (self.head(request, head.end())?, 0);
        }
    }

    fn head(&mut self, request: &ReadRequest<F>, offset: u64) -> Option<GroupHead> {
        if request.end <= offset {
            return None;
        }
        // A requested record was committed here or after it.
        whole_or_rebuilt(&mut self.window, request.salt, offset).ok()?
    }
}
