//! Reading records back: bodies dropped from memory, before they are due.

use crate::disks::disk::{Disk, DiskFile};
use crate::error::{Damage, DamageKind, ReadError};
use crate::keys::Keys;
use crate::layout::format::SegmentNumber;
use crate::reading::scan::{GroupHead, Window};
use crate::record::StoredRecord;
use crate::repairing::rebuild::whole_or_rebuilt;
use crate::retaining::index::{Indexes, READ_STEP_BYTES, SegmentIndex};
use crate::retaining::index_file::{FoundIndex, Lookup};
use crate::writing::journal::Journal;
use crate::writing::segment::Segment;
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Open files of sealed segments. A backlog of terabytes must not use up the descriptors of the
/// process.
const HANDLES_MAX: usize = 64;

/// Files kept open for reading, the one opened last at the back.
#[derive(Debug)]
pub(crate) struct Handles<F>(VecDeque<(SegmentNumber, Arc<F>)>);

impl<F> Handles<F> {
    pub(crate) fn new() -> Handles<F> {
        Handles(VecDeque::new())
    }

    pub(crate) fn keep(&mut self, number: SegmentNumber, file: Arc<F>) {
        if HANDLES_MAX <= self.0.len() {
            self.0.pop_front();
        }
        self.0.push_back((number, file));
    }

    pub(crate) fn forget(&mut self, number: SegmentNumber) {
        self.0.retain(|(kept, _)| *kept != number);
    }

    pub(crate) fn get(&self, number: SegmentNumber) -> Option<Arc<F>> {
        self.0.iter().find(|(kept, _)| *kept == number).map(|(_, file)| file.clone())
    }
}

/// A planned read; may run on another thread than the journal's while records in it are retained.
#[derive(Debug)]
pub(crate) struct ReadRequest<F> {
    pub(crate) file: Arc<F>,
    path: Arc<Path>,
    pub(crate) salt: u64,
    /// Where to start looking, and the end of the segment's groups.
    pub(crate) offset: u64,
    /// Where it is said how much later to start, if that is not known yet.
    pub(crate) lookup: Option<Lookup>,
    pub(crate) end: u64,
    pub(crate) partition: PartitionId,
    pub(crate) from: Position,
    /// The partition's last record in this segment.
    last: Position,
    records_max: usize,
    bytes_max: u64,
    pub(crate) keys: Keys,
}

/// Where the look for a record in its segment begins.
struct Start {
    offset: u64,
    lookup: Option<Lookup>,
    /// The partition's last record there.
    last: Position,
}

/// `None`: the segment has no such record.
fn start(segment: &Segment, indexes: &mut Indexes, partition: PartitionId, from: Position) -> Option<Start> {
    let last = segment.range_at(partition, from)?.last;
    let index = segment.index.clone().or_else(|| indexes.take_up(segment.header.number));
    let lookup = (index.is_none() && segment.needs_index()).then(|| Lookup::new(segment));
    let offset = segment.start_of(partition, from, index.as_deref())?.offset;
    Some(Start { offset, lookup, last })
}

impl<D: Disk> Journal<D> {
    /// The payload of one durable record, its checksum verified.
    ///
    /// # Errors
    /// [`ReadError::NotFound`]: never committed, recycled, or left out as it was dead.
    /// [`ReadError::Damaged`]: the disk lost it.
    pub fn read(&mut self, partition: PartitionId, position: Position) -> Result<Bytes, ReadError> {
        self.ready_request(partition, position, 1, u64::MAX)?.run_alone()
    }

    /// Durable records of a partition from `from` on, in order: at least one; at most
    /// `records_max`, and not beyond `bytes_max` of payload; those of one segment only, so there
    /// may be more than it returns.
    ///
    /// # Errors
    /// Those of [`Journal::read`], about the first record. A bad later one ends the answer before
    /// it.
    pub fn read_many(
        &mut self,
        partition: PartitionId,
        from: Position,
        records_max: usize,
        bytes_max: u64,
    ) -> Result<Vec<StoredRecord>, ReadError> {
        self.ready_request(partition, from, records_max, bytes_max)?.run()
    }

    /// A planned read that knows where to start.
    fn ready_request(
        &mut self,
        partition: PartitionId,
        from: Position,
        records_max: usize,
        bytes_max: u64,
    ) -> Result<ReadRequest<D::File>, ReadError> {
        let mut request = self.read_request(partition, from, records_max, bytes_max)?;
        if let Some(found) = request.look_up(&self.disk) {
            self.keep_index(found);
        }
        Ok(request)
    }

    /// Plans the work of [`Journal::read_many`], to be run elsewhere.
    ///
    /// # Errors
    /// [`ReadError::NotFound`]: no such record. [`ReadError::Damaged`]: its segment is gone.
    /// [`ReadError::Io`]: it cannot be opened.
    pub(crate) fn read_request(
        &mut self,
        partition: PartitionId,
        from: Position,
        records_max: usize,
        bytes_max: u64,
    ) -> Result<ReadRequest<D::File>, ReadError> {
        let not_found = ReadError::NotFound { partition, position: from };
        let Some(segment) = self.segments.find(partition, from) else { return Err(not_found) };
        let (header, end) = (segment.header, segment.end);
        let Some(Start { offset, lookup, last }) = start(segment, &mut self.indexes, partition, from) else {
            return Err(not_found);
        };
        let name = segment.file_name();
        let path = self.disk.path(&name).into();
        let file = self.handle(header.number, &name, partition)?;
        let (salt, records_max, keys) = (header.salt, records_max.max(1), self.keys.clone());
        Ok(ReadRequest {
            file,
            path,
            salt,
            offset,
            lookup,
            end,
            partition,
            from,
            last,
            records_max,
            bytes_max,
            keys,
        })
    }

    /// The plan of [`Journal::read_request`] for another record of the partition, if it is in the
    /// same segment.
    pub(crate) fn request_beside(
        &mut self,
        known: &ReadRequest<D::File>,
        from: Position,
    ) -> Option<ReadRequest<D::File>> {
        let segment = self.segments.find(known.partition, from);
        let segment = segment.filter(|segment| segment.header.salt == known.salt)?;
        let Start { offset, lookup, last } = start(segment, &mut self.indexes, known.partition, from)?;
        Some(ReadRequest {
            file: known.file.clone(),
            path: known.path.clone(),
            offset,
            lookup,
            // The segment that is filled may have grown, and keys may have come.
            end: segment.end,
            keys: self.keys.clone(),
            from,
            last,
            ..*known
        })
    }

    fn handle(
        &mut self,
        number: SegmentNumber,
        name: &str,
        partition: PartitionId,
    ) -> Result<Arc<D::File>, ReadError> {
        if number == self.current.header.number {
            return Ok(self.current.file.clone());
        }
        if let Some(file) = self.handles.get(number) {
            return Ok(file);
        }
        let file = self.open_segment(name, Some(partition))?;
        self.handles.keep(number, file.clone());
        Ok(file)
    }

    /// Opens the file of a segment of which `partition` misses something. That it is gone does not
    /// pass, as a refusal may.
    pub(crate) fn open_segment(
        &self,
        name: &str,
        partition: Option<PartitionId>,
    ) -> Result<Arc<D::File>, ReadError> {
        let file = || self.disk.path(name);
        match self.disk.open(name) {
            Ok(opened) => Ok(Arc::new(opened)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let kind = DamageKind::SegmentMissing;
                Err(ReadError::Damaged(Damage { partition, file: file(), offset: 0, kind }))
            }
            Err(source) => Err(ReadError::Io { file: file(), source }),
        }
    }
}

impl<F: DiskFile> ReadRequest<F> {
    /// Finds the start, if it is not known yet; returns the index entries found for it.
    pub(crate) fn look_up<D: Disk<File = F>>(&mut self, disk: &D) -> Option<FoundIndex> {
        let found = self.lookup.take()?.find(disk, &self.file);
        self.start_by(&found.index);
        Some(found)
    }

    pub(crate) fn start_by(&mut self, index: &SegmentIndex) {
        self.lookup = None;
        let entry = index.find(self.partition, self.from);
        self.offset = entry.map_or(self.offset, |entry| entry.offset);
    }

    /// Reads.
    ///
    /// # Errors
    /// As [`Journal::read_many`].
    fn run(self) -> Result<Vec<StoredRecord>, ReadError> {
        let mut window = Window::with_keys(&*self.file, READ_STEP_BYTES, self.end, &self.keys);
        let mut found = Vec::new();
        let mut payload_bytes = 0;
        let (mut offset, mut hit) = (self.offset, None);
        let missing = |hit: Option<u64>| match hit {
            Some(offset) => self.damaged(offset, DamageKind::Group),
            None => ReadError::NotFound { partition: self.partition, position: self.from },
        };
        while offset < self.end {
            // A requested record was committed here.
            let head = match whole_or_rebuilt(&mut window, self.salt, offset) {
                Ok(Some(head)) => head,
                _ if !found.is_empty() => break,
                Ok(None) => return Err(self.damaged(offset, DamageKind::Group)),
                Err(source) => return Err(self.failed(source)),
            };
            offset += head.header.length_bytes;
            if head.records.len() < head.header.record_count as usize {
                hit.get_or_insert(head.offset);
            }
            match self.take(&mut window, &head, &mut found, &mut payload_bytes) {
                Ok(true) => {}
                Ok(false) => break,
                Err(ReadError::NotFound { .. }) => return Err(missing(hit)),
                Err(error) => return Err(error),
            }
        }
        if found.is_empty() { Err(missing(hit)) } else { Ok(found) }
    }

    /// Reads the first record alone.
    pub(crate) fn run_alone(self) -> Result<Bytes, ReadError> {
        let (partition, position) = (self.partition, self.from);
        let first = self.run()?.into_iter().next();
        first.map(|record| record.payload).ok_or(ReadError::NotFound { partition, position })
    }

    /// Adds the wanted records of one group. False: enough, or the next one is bad.
    fn take(
        &self,
        window: &mut Window<'_, F>,
        head: &GroupHead,
        found: &mut Vec<StoredRecord>,
        payload_bytes: &mut u64,
    ) -> Result<bool, ReadError> {
        for entry in &head.records {
            let record = entry.header;
            if record.partition != self.partition || record.position < self.from {
                continue;
            }
            if found.is_empty() && record.position != self.from {
                // A compacted segment continues with the live records.
                let (partition, position) = (self.partition, self.from);
                return Err(ReadError::NotFound { partition, position });
            }
            *payload_bytes += u64::from(record.payload_bytes);
            if found.len() == self.records_max || (!found.is_empty() && self.bytes_max < *payload_bytes) {
                return Ok(false);
            }
            let payload = match window.payload(entry) {
                Ok(Ok(payload)) => Bytes::copy_from_slice(payload),
                _ if !found.is_empty() => return Ok(false),
                Ok(Err(kind)) => return Err(self.damaged(entry.payload_offset, kind)),
                Err(source) => return Err(self.failed(source)),
            };
            found.push(StoredRecord { partition: self.partition, position: record.position, payload });
        }
        let done = found.last().is_some_and(|record| self.last <= record.position);
        Ok(!done && found.len() < self.records_max)
    }

    fn damaged(&self, offset: u64, kind: DamageKind) -> ReadError {
        ReadError::Damaged(Damage {
            partition: Some(self.partition),
            file: self.path.to_path_buf(),
            offset,
            kind,
        })
    }

    fn failed(&self, source: std::io::Error) -> ReadError {
        ReadError::Io { file: self.path.to_path_buf(), source }
    }
}
