//! Reads of several records that lie close together: what stands around them is read and checked once for all of them.
//!
//! A group of a busy log has a table of thousands of records, and a backlog is read back in its order: one read for each record
//! would go through the whole table for each of them.

use std::mem;

use bytes::Bytes;
use postroad_model::{PartitionId, Position};

use crate::disks::disk::{Disk, DiskFile};
use crate::error::ReadError;
use crate::reading::read::ReadRequest;
use crate::reading::scan::{GroupHead, Window};
use crate::retaining::index::READ_STEP_BYTES;
use crate::retaining::index_file::FoundIndex;
use crate::writing::journal::Journal;

/// Records of one request: as many as the core asks for at once.
const RECORDS_MAX: usize = 64;

/// Records whose places in the index are further apart are nothing to each other.
const NEAR_BYTES: u64 = 256 << 10;

/// After so many bytes of payload those that are still missing are left for another turn: others wait for the same thread.
const PAYLOAD_BYTES_MAX: u64 = 1 << 20;

/// A planned read of records of one partition in one segment; may run on another thread than the journal's while they are
/// retained.
#[derive(Debug)]
pub struct NearRequest<F> {
    /// As each of them would be read alone.
    requests: Vec<ReadRequest<F>>,
}

/// What came of the reads that had their turn, and those that had none.
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
    /// Plans to read a record: together with those of `last`, the request that was planned before it, if it lies close
    /// behind them. Otherwise in a request of its own, which is returned.
    ///
    /// # Errors
    /// [`ReadError::NotFound`]: no such record. [`ReadError::Io`]: its segment cannot be opened.
    pub fn near_request(
        &mut self,
        partition: PartitionId,
        position: Position,
        last: Option<&mut NearRequest<D::File>>,
    ) -> Result<Option<NearRequest<D::File>>, ReadError> {
        let request = self.read_request(partition, position, 1, u64::MAX)?;
        match last.filter(|last| last.takes(&request)) {
            Some(last) => {
                last.requests.push(request);
                Ok(None)
            }
            None => Ok(Some(NearRequest { requests: vec![request] })),
        }
    }
}

impl<F> ReadRequest<F> {
    /// Whether it starts close behind another.
    fn is_near(&self, first: &ReadRequest<F>) -> bool {
        self.offset.checked_sub(first.offset).is_some_and(|ahead| ahead < NEAR_BYTES)
    }
}

impl<F: DiskFile> NearRequest<F> {
    fn takes(&self, request: &ReadRequest<F>) -> bool {
        let (Some(first), Some(last)) = (self.requests.first(), self.requests.last()) else { return false };
        self.requests.len() < RECORDS_MAX
            && (request.partition, request.salt) == (first.partition, first.salt)
            && last.from < request.from
            && (request.lookup.is_some() || first.lookup.is_some() || request.is_near(first))
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
        let index = self.look_up(disk);
        let mut records = Vec::with_capacity(self.requests.len());
        let mut payload_bytes = 0;
        let Some(last) = self.requests.last() else { return NearRecords { records, rest: None, index } };
        // From the first request to the last the current segment may have grown, and keys have come.
        let (file, end, keys) = (last.file.clone(), last.end, last.keys.clone());
        let window = Window::with_keys(&*file, READ_STEP_BYTES, end, &keys);
        let mut passage = Passage { window, group: None };
        let far = |request: &ReadRequest<F>| !request.is_near(&self.requests[0]);
        let behind = self.requests.iter().position(far).unwrap_or(self.requests.len());
        let mut later = self.requests.split_off(behind);
        let mut requests = self.requests.into_iter();
        for request in requests.by_ref() {
            let position = request.from;
            // What is not found where it should be is looked for alone: that says what is wrong.
            let record = match passage.find(&request) {
                Some(payload) => Ok(payload),
                None => request.run_alone(),
            };
            payload_bytes += record.as_ref().map_or(0, |payload| payload.len() as u64);
            records.push((position, record));
            if PAYLOAD_BYTES_MAX <= payload_bytes {
                break;
            }
        }
        let mut requests: Vec<ReadRequest<F>> = requests.collect();
        requests.append(&mut later);
        let rest = (!requests.is_empty()).then_some(NearRequest { requests });
        NearRecords { records, rest, index }
    }
}

/// The way through one segment, from each record to the next.
struct Passage<'f, F> {
    window: Window<'f, F>,
    /// The group that was looked at last, and how far.
    group: Option<(GroupHead, usize)>,
}

impl<F: DiskFile> Passage<'_, F> {
    /// The record's payload, which lies behind all that were found before; `None` unless all on the way to it is as it should be.
    fn find(&mut self, request: &ReadRequest<F>) -> Option<Bytes> {
        let known = mem::take(&mut self.group).filter(|(head, _)| request.offset <= head.offset);
        let (mut head, mut passed) = match known {
            Some(known) => known,
            None => (self.head(request, request.offset)?, 0),
        };
        loop {
            let ahead = head.records.iter().enumerate().skip(passed);
            let mut own = ahead.filter(|(_, entry)| entry.header.partition == request.partition);
            if let Some((index, entry)) = own.find(|(_, entry)| request.from <= entry.header.position) {
                let is_it = entry.header.position == request.from;
                let payload = if is_it { self.window.payload(entry).ok()?.ok() } else { None };
                let payload = payload.map(Bytes::copy_from_slice);
                self.group = Some((head, index));
                return payload;
            }
            (head, passed) = (self.head(request, head.end())?, 0);
        }
    }

    fn head(&mut self, request: &ReadRequest<F>, offset: u64) -> Option<GroupHead> {
        if request.end <= offset {
            return None;
        }
        self.window.head(request.salt, offset).ok()?
    }
}
