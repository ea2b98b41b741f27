//! Writing a compacted segment, on whatever thread: live records of a run of segments into one new
//! file.

use crate::disks::disk::{Disk, DiskFile, write_all_at};
use crate::error::{CompactionError, Damage, DamageKind};
use crate::keys::Keys;
use crate::layout::cipher::Encryptor;
use crate::layout::format::{
    FIRST_GROUP, GroupEnd, GroupHeader, GroupNumber, SegmentHeader, SegmentNumber, compacted_name,
};
use crate::layout::group::{Draft, measure, stored};
use crate::reading::scan::{GroupHead, Window};
use crate::record::{Payload, Record};
use crate::repairing::salvage::Salvaged;
use crate::retaining::compacted::{Run, UNFINISHED};
use crate::retaining::compaction::Shorten;
use crate::retaining::index::{IndexEntry, READ_STEP_BYTES, SegmentIndex};
use crate::retaining::index_file::{Form, Lookup, encode};
use crate::retaining::live::LiveSet;
use crate::writing::pace::Pace;
use crate::writing::segment::{Range, Segment};
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;

/// Records are written and synced in steps of about this size, so that no sync of a group waits
/// after more of them.
const STEP_BYTES: u64 = 512 << 10;

/// This much stays free on the disk, for the checkpoints by which a full one is emptied.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// An order from [`crate::Journal::wants_compaction`].
#[derive(Debug)]
#[must_use = "the journal waits for the answer: give it to `Journal::finish_compaction`"]
pub struct CompactionRequest<F> {
    pub(crate) run: Run,
    /// Oldest first.
    pub(crate) sources: Vec<Source<F>>,
    pub(crate) keep: BTreeMap<PartitionId, LiveSet>,
    pub(crate) keys: Keys,
    pub(crate) shorten: Option<Shorten>,
    /// The disk is short of space: no rests.
    pub(crate) hurries: bool,
}

/// A segment to take records from.
#[derive(Debug)]
pub(crate) struct Source<F> {
    pub file: Arc<F>,
    pub path: PathBuf,
    pub segment: Segment,
}

/// A compacted segment that is durable, under its name.
#[derive(Debug)]
pub struct CompactedSegment<F> {
    pub(crate) segment: Segment,
    pub(crate) file: F,
    /// The segments whose place it takes.
    pub(crate) replaced: Vec<SegmentNumber>,
}

/// The file under way.
struct Output<F> {
    file: F,
    path: PathBuf,
    segment: Segment,
    batch: Vec<Record>,
    batch_bytes: u64,
    draft: Draft,
    encryptor: Encryptor,
    keys: Keys,
    shorten: Option<Shorten>,
    last: GroupNumber,
}

impl<F: DiskFile> CompactionRequest<F> {
    /// Reads and writes. `pace` is called after each step of half a megabyte or so, to rest as long
    /// as it sees fit; not while the disk is short of space.
    ///
    /// # Errors
    /// [`CompactionError`]: the segments stay as they are. Give it to
    /// [`crate::Journal::finish_compaction`] as well.
    pub fn run<D: Disk<File = F>>(
        self,
        disk: &D,
        pace: &mut dyn Pace,
    ) -> Result<CompactedSegment<F>, CompactionError> {
        let made = if self.hurries { self.make(disk, &mut ()) } else { self.make(disk, pace) };
        if made.is_err() {
            // It only takes space from others. If it cannot be removed, recovery finds it,
            // incomplete or good.
            let _ = disk.remove(UNFINISHED);
            let _ = disk.remove(&compacted_name(self.run));
        }
        made
    }

    fn make<D: Disk<File = F>>(
        &self,
        disk: &D,
        pace: &mut dyn Pace,
    ) -> Result<CompactedSegment<F>, CompactionError> {
        let failed = |source| CompactionError::Io { file: disk.path(UNFINISHED), source };
        let mut output = Output::begin(disk, self.run, &self.keys, self.shorten).map_err(failed)?;
        let sources: Vec<_> = self.sources.iter().map(|source| (source, source.index(disk))).collect();
        for (&partition, keep) in &self.keep {
            for (source, index) in &sources {
                let Some(range) = source.segment.ranges.get(&partition) else { continue };
                source.copy(disk, partition, (range, index), keep, &mut output, pace)?;
            }
        }
        output.write_batch(disk)?;
        output.finish(self.run).map_err(failed)?;
        let name = compacted_name(self.run);
        // From here on the file may be found by a recovery: whatever fails is more than a want of
        // space.
        let named = disk.rename(UNFINISHED, &name).and_then(|()| disk.sync_directory());
        named.map_err(|error| failed(io::Error::other(error)))?;
        let replaced = self.sources.iter().map(|source| source.segment.header.number).collect();
        Ok(CompactedSegment { segment: output.segment.compacted(self.run), file: output.file, replaced })
    }
}

/// Writes the records to `keep` of a damaged segment into a compacted one that takes its place.
///
/// # Errors
/// [`CompactionError`]: nothing was changed.
pub(crate) fn rescue<D: Disk>(
    disk: &D,
    run: Run,
    damaged: &Salvaged<D::File>,
    keys: &Keys,
    keep: &BTreeMap<PartitionId, LiveSet>,
) -> Result<Segment, CompactionError> {
    let Salvaged { file, path, segment, groups, .. } = damaged;
    let source = Source { file: file.clone(), path: path.clone(), segment: segment.clone() };
    let failed = |source| CompactionError::Io { file: disk.path(UNFINISHED), source };
    let mut output = Output::begin(disk, run, keys, None).map_err(failed)?;
    for (&partition, keep) in keep {
        let mut window = Window::with_keys(&*source.file, READ_STEP_BYTES, source.segment.end, keys);
        for &offset in groups {
            let head = damaged.head(&mut window, offset).map_err(failed)?;
            let head = head.ok_or_else(|| source.damaged(partition, offset, DamageKind::Group))?;
            source.copy_records(partition, keep, &mut window, &head, &mut output)?;
            if STEP_BYTES <= output.batch_bytes {
                output.write_batch(disk)?;
            }
        }
    }
    output.write_batch(disk)?;
    output.finish(run).map_err(failed)?;
    disk.rename(UNFINISHED, &compacted_name(run)).and_then(|()| disk.sync_directory()).map_err(failed)?;
    Ok(output.segment.compacted(run))
}

impl<F: DiskFile> Source<F> {
    fn index<D: Disk<File = F>>(&self, disk: &D) -> Arc<SegmentIndex> {
        match &self.segment.index {
            Some(index) => index.clone(),
            None if self.segment.needs_index() => Lookup::new(&self.segment).find(disk, &self.file).index,
            None => Arc::default(),
        }
    }

    /// Copies the records of one partition that are to be kept; reads only the parts of the file
    /// that have some.
    fn copy<D: Disk<File = F>>(
        &self,
        disk: &D,
        partition: PartitionId,
        (range, index): (&Range, &SegmentIndex),
        keep: &LiveSet,
        output: &mut Output<F>,
        pace: &mut dyn Pace,
    ) -> Result<(), CompactionError> {
        let begin = [range.begin()];
        // Of a damaged one only the part after the damage may be left.
        let entries = Some(index.of(partition)).filter(|entries| entries.first() == begin.first());
        let entries = entries.unwrap_or(&begin);
        for (place, entry) in entries.iter().enumerate() {
            let next = entries.get(place + 1);
            let before = |next: &IndexEntry| Position::new(next.first.get() - 1);
            let last = next.map_or(Some(range.last), before).unwrap_or(entry.first);
            if keep.between(entry.first, last).is_empty() {
                continue;
            }
            let end = next.map_or(self.segment.end, |next| next.offset);
            let mut window = Window::with_keys(&*self.file, READ_STEP_BYTES, self.segment.end, &output.keys);
            let mut offset = entry.offset;
            while offset < end {
                offset = self.copy_group(partition, keep, &mut window, offset, output)?;
                if STEP_BYTES <= output.batch_bytes {
                    output.write_batch(disk)?;
                    pace.step();
                }
            }
        }
        Ok(())
    }

    fn copy_group(
        &self,
        partition: PartitionId,
        keep: &LiveSet,
        window: &mut Window<'_, F>,
        offset: u64,
        output: &mut Output<F>,
    ) -> Result<u64, CompactionError> {
        let failed = |source| CompactionError::Io { file: self.path.clone(), source };
        let head = window.head(self.segment.header.salt, offset).map_err(failed)?;
        let head = head.ok_or_else(|| self.damaged(partition, offset, DamageKind::Group))?;
        self.copy_records(partition, keep, window, &head, output)?;
        Ok(head.end())
    }

    fn copy_records(
        &self,
        partition: PartitionId,
        keep: &LiveSet,
        window: &mut Window<'_, F>,
        head: &GroupHead,
        output: &mut Output<F>,
    ) -> Result<(), CompactionError> {
        let failed = |source| CompactionError::Io { file: self.path.clone(), source };
        for entry in &head.records {
            let record = entry.header;
            if record.partition != partition || !keep.contains(record.position) {
                continue;
            }
            let payload = window.payload(entry).map_err(failed)?;
            let payload = payload.map_err(|kind| self.damaged(partition, entry.payload_offset, kind))?;
            let is_needed = |message| keep.needs(record.position, message);
            let shorter = output.shorten.and_then(|shorten| shorten(payload, &is_needed));
            // If some of the needed records are missing, the counts are wrong: then everything
            // stays.
            let shorter = shorter.filter(|(messages, _)| *messages == keep.messages(record.position));
            let payload = shorter.map_or_else(|| Bytes::copy_from_slice(payload), |(_, left)| left.into());
            output.batch_bytes += payload.len() as u64;
            let payload = Payload::from(payload);
            let (position, reserve, key) = (record.position, record.reserve, record.key);
            output.batch.push(Record { partition, position, payload, reserve, key });
        }
        Ok(())
    }

    fn damaged(&self, partition: PartitionId, offset: u64, kind: DamageKind) -> CompactionError {
        let (partition, file) = (Some(partition), self.path.clone());
        CompactionError::Damaged(Damage { partition, file, offset, kind })
    }
}

impl<F: DiskFile> Output<F> {
    fn begin<D: Disk<File = F>>(
        disk: &D,
        run: Run,
        keys: &Keys,
        shorten: Option<Shorten>,
    ) -> io::Result<Output<F>> {
        // A file of an attempt that failed may be longer than the new data.
        let _ = disk.remove(UNFINISHED);
        let (number, salt) = (run.last, disk.salt()?);
        let header = SegmentHeader { number, salt, capacity_bytes: 0 };
        let encryptor = Encryptor::begin(disk, keys)?;
        let file = disk.create(UNFINISHED)?;
        // Else a power failure might undo this file's name and not the later rename: then the data
        // of an earlier attempt would be renamed.
        disk.sync_directory()?;
        Ok(Output {
            file,
            path: disk.path(UNFINISHED),
            segment: Segment::new(header),
            batch: Vec::new(),
            batch_bytes: 0,
            draft: Draft::default(),
            encryptor,
            keys: keys.clone(),
            shorten,
            last: GroupNumber(0),
        })
    }

    /// Writes the gathered records as one group, and syncs it.
    fn write_batch<D: Disk<File = F>>(&mut self, disk: &D) -> Result<(), CompactionError> {
        let failed = |source| CompactionError::Io { file: self.path.clone(), source };
        let records = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if records.is_empty() {
            return Ok(());
        }
        let bytes = measure(&records, &self.encryptor).map_err(|error| failed(io::Error::other(error)))?;
        let free = disk.free_bytes().map_err(failed)?;
        if free.is_some_and(|free| free < bytes + FREE_BYTES_MIN) {
            return Err(failed(io::ErrorKind::StorageFull.into()));
        }
        let (number, offset) = (self.last.next(), self.segment.end);
        let header = GroupHeader {
            salt: self.segment.header.salt,
            number,
            previous: GroupEnd::default(),
            length_bytes: bytes,
            unsynced_sectors: 0,
            record_count: records.len() as u32,
            table_checksum: 0,
        };
        self.draft.encode(header, &records, offset, &mut self.encryptor);
        let mut pieces = self.draft.pieces(&records, bytes);
        write_all_at(&self.file, &mut pieces, offset).map_err(failed)?;
        self.file.sync().map_err(failed)?;
        for record in &records {
            let stored = stored(record, &self.encryptor);
            self.segment.add(record.partition, record.position, stored, offset, number);
        }
        (self.segment.end, self.last) = (offset + bytes, number);
        Ok(())
    }

    /// Index and header, synced.
    fn finish(&mut self, run: Run) -> io::Result<()> {
        for range in self.segment.ranges.values_mut() {
            range.live = range.records;
        }
        self.segment.header.capacity_bytes = self.segment.end;
        let (header, index) = encode(Form::Compacted(run), &self.segment);
        write_all_at(&self.file, &mut [IoSlice::new(&index)], self.segment.end)?;
        write_all_at(&self.file, &mut [IoSlice::new(&header)], 0)?;
        debug_assert!(FIRST_GROUP <= self.segment.end);
        self.file.sync()
    }
}
