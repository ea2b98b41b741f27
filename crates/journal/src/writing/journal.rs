//! The journal in service: groups in, durable groups out.

use crate::disks::disk::{Disk, DiskFile, write_all_at, write_all_durable_at};
use crate::error::{CommitError, Damage, ReopenError};
use crate::keys::Keys;
use crate::layout::cipher::Encryptor;
use crate::layout::format::{GroupEnd, GroupHeader, GroupNumber, SECTOR_BYTES, SegmentHeader, segment_name};
use crate::layout::group::{Draft, measure, stored};
use crate::reading::read::Handles;
use crate::record::Record;
use crate::retaining::checkpoint::Checkpoints;
use crate::retaining::compaction::Compactions;
use crate::retaining::index::Indexes;
use crate::retaining::rekeying::Rekeying;
use crate::retaining::retention::Segments;
use crate::retaining::sorting::Sorted;
use crate::writing::log2_histogram::Log2Histogram;
use crate::writing::prepare::PreparedSegment;
use crate::writing::room::Room;
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Sizes, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of a segment; rounded up to sectors, at least [`Options::SEGMENT_BYTES_MIN`].
    pub segment_bytes: u64,
    /// A checkpoint is due when this much was committed since the last: bounds the data that a
    /// start must read.
    pub checkpoint_bytes: u64,
    /// And not before this multiple of the states' size in the last one, which grow with the
    /// backlog, or four times as much was committed: bounds the data that checkpoints add to all
    /// writes.
    pub checkpoint_share: u64,
    /// Dead segments kept for reuse; further ones are removed.
    pub dead_segments_max: usize,
}

impl Options {
    /// Below this the reserve could not hold a single settle.
    pub const SEGMENT_BYTES_MIN: u64 = 32 * SECTOR_BYTES;
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            checkpoint_bytes: 64 << 20,
            checkpoint_share: 8,
            dead_segments_max: 4,
        }
    }
}

/// The journal of one storage device. One owner, no locks; blocking calls.
#[derive(Debug)]
pub struct Journal<D: Disk> {
    pub(crate) disk: D,
    pub(crate) options: Options,
    pub(crate) current: Current<D::File>,
    pub(crate) segments: Segments,
    /// End of the last durable group.
    pub(crate) last: GroupEnd,
    /// The highest number ever given to a group, failed ones included: none is given twice.
    pub(crate) last_number: GroupNumber,
    /// Last durable position of each partition.
    pub(crate) positions: BTreeMap<PartitionId, Position>,
    pub(crate) stopped: BTreeMap<PartitionId, Damage>,
    pub(crate) room: Room<D::File>,
    pub(crate) handles: Handles<D::File>,
    pub(crate) indexes: Indexes,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) compactions: Compactions,
    pub(crate) sorted: Sorted<D::File>,
    /// A write or sync failed: nothing is written until `reopen` succeeds.
    pub(crate) failed: bool,
    /// The last group that [`Journal::seal`] wrote.
    pub(crate) sealed: GroupNumber,
    /// How far the current segment is filled, for the writer of the next one; see
    /// [`Journal::tell_filled`].
    pub(crate) filled: Arc<AtomicU64>,
    /// The group being written.
    pub(crate) draft: Draft,
    pub(crate) keys: Keys,
    pub(crate) encryptor: Encryptor,
    pub(crate) rekeying: Rekeying,
    /// The groups at the end of the current segment that were written and not synced, byte by byte:
    /// should the sync fail, they are written again by another handle.
    pub(crate) unsynced: Vec<u8>,
    /// Durations of syncs; for metrics only.
    pub(crate) sync_micros: Log2Histogram,
}

/// The segment that groups are appended to; its ranges are in [`Segments`].
#[derive(Debug)]
pub(crate) struct Current<F> {
    pub header: SegmentHeader,
    pub file: Arc<F>,
    /// Where the next group starts.
    pub end: u64,
}

/// Groups of at most this size are written and not synced: a group's distance to the synced part
/// has 16 bits, in sectors, and the data that a failed sync would lose is kept in memory.
const UNSYNCED_BYTES_MAX: u64 = 16 << 20;

/// Memory that is kept for them while there are none.
const UNSYNCED_BYTES_KEPT: usize = 256 << 10;

impl<D: Disk> Journal<D> {
    /// Writes `records` as one group, with one write and one sync. `Ok` means durable; an empty
    /// group is.
    ///
    /// Makes a segment on the spot if none was provided in time; that takes longer, but never fails
    /// for it.
    ///
    /// # Errors
    /// After [`CommitError::WriteFailed`] or [`CommitError::SyncFailed`] the journal takes no group
    /// until [`Journal::reopen`] succeeds; the fate of this one is open until then, and it is void
    /// afterwards. After any other error nothing was written and the journal goes on.
    pub fn commit(&mut self, records: &[Record]) -> Result<(), CommitError> {
        self.put(records, true)
    }

    /// As [`Journal::commit`], without the sync: `Ok` means that the operating system has the
    /// group, and that it outlives the process. It outlives the machine once [`Journal::sync`] or a
    /// later commit has succeeded; until then a power cut may take it, together with all later
    /// writes. Syncs by itself when there is too much to be kept in memory.
    ///
    /// # Errors
    /// Those of [`Journal::commit`].
    pub fn append(&mut self, records: &[Record]) -> Result<(), CommitError> {
        let bytes = measure(records, &self.encryptor)?;
        if UNSYNCED_BYTES_MAX < bytes {
            return self.put(records, true);
        }
        if UNSYNCED_BYTES_MAX < self.unsynced.len() as u64 + bytes {
            self.sync()?;
        }
        self.put(records, false)
    }

    /// Syncs the appended groups.
    ///
    /// # Errors
    /// As [`Journal::commit`]: the journal takes no group until [`Journal::reopen`] succeeds, which
    /// writes the appended groups again.
    pub fn sync(&mut self) -> Result<(), CommitError> {
        if self.failed {
            return Err(CommitError::NeedsReopen);
        }
        if self.has_unsynced() { self.sync_current(self.current.end) } else { Ok(()) }
    }

    /// Whether groups were appended and not synced.
    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// How many microseconds each sync of groups took since the start, whatever came of it. A write
    /// that is durable by itself counts as one.
    pub fn sync_micros(&self) -> &Log2Histogram {
        &self.sync_micros
    }

    fn put(&mut self, records: &[Record], sync: bool) -> Result<(), CommitError> {
        if self.failed {
            return Err(CommitError::NeedsReopen);
        }
        if records.is_empty() {
            return Ok(());
        }
        self.check_positions(records)?;
        let bytes = measure(records, &self.encryptor)?;
        let reserve = records.iter().all(|record| record.reserve);
        self.make_room(bytes, reserve)?;
        let group = self.write_group(records, bytes, sync)?;
        let start = self.last.offset - bytes;
        for record in records {
            let stored = stored(record, &self.encryptor);
            self.segments.add(group.segment, record.partition, record.position, stored, start, group.number);
            self.positions.insert(record.partition, record.position);
        }
        self.checkpoints.committed(bytes);
        Ok(())
    }

    /// Writes an empty group after the last one, if that has records. Damage to a group is
    /// distinguished from a torn one by the data after it: so that a journal at rest has none that
    /// could be taken for the other.
    ///
    /// # Errors
    /// As [`Journal::commit`]; committed records stay durable.
    pub fn seal(&mut self) -> Result<(), CommitError> {
        if self.failed {
            return Err(CommitError::NeedsReopen);
        }
        // Ahead of the empty group, which then shows that all before it was durable.
        self.sync()?;
        if self.wants_seal() {
            if self.must_leave() {
                self.make_room(SECTOR_BYTES, true)?;
            }
            self.sealed = self.write_group(&[], SECTOR_BYTES, true)?.number;
        }
        Ok(())
    }

    /// Whether the last group has records, and there is room for an empty one after it; or whether
    /// the segment is to be left for the keys in it.
    pub fn wants_seal(&self) -> bool {
        let sealed = self.last == GroupEnd::default() || self.sealed == self.last.number;
        !sealed && (self.must_leave() || self.fits(SECTOR_BYTES, true))
    }

    /// The last durable position of a partition; `None` if it has no records.
    pub fn last_position(&self, partition: PartitionId) -> Option<Position> {
        self.positions.get(&partition).copied()
    }

    /// The damage for which nothing is taken for a partition, of each in which recovery found some.
    pub fn stopped(&self) -> impl ExactSizeIterator<Item = &Damage> {
        self.stopped.values()
    }

    /// Whether recovery found damage in the partition: nothing is taken for it.
    pub fn is_stopped(&self, partition: PartitionId) -> bool {
        self.stopped.contains_key(&partition)
    }

    /// Whether a write or sync failed and [`Journal::reopen`] must succeed before the next group.
    pub fn needs_reopen(&self) -> bool {
        self.failed
    }

    /// Fails if new writes would be out of sight: the directory or the segment was removed or
    /// replaced.
    ///
    /// # Errors
    /// [`ReopenError::Io`]: the missing file or directory.
    pub fn check_place(&self) -> Result<(), ReopenError> {
        let failed = |file| move |source| ReopenError::Io { file, source };
        self.disk.check_place().map_err(failed(self.disk.path("")))?;
        match self.current.file.names() {
            Ok(0) => Err(failed(self.current_path())(std::io::Error::other("the file was removed"))),
            _ => Ok(()),
        }
    }

    /// Leaves the segment in which a write or sync failed, at its last good group, and goes on in a
    /// new one whose first group pins that end: data of the failed group on the disk is void from
    /// here on. Groups appended before it are written again before that, and synced. Without a
    /// failure it does nothing.
    ///
    /// # Errors
    /// [`ReopenError`]: the disk is full or still broken; call again later.
    pub fn reopen(&mut self) -> Result<(), ReopenError> {
        if !self.failed {
            return Ok(());
        }
        self.write_again()?;
        let next = self.take_segment(self.options.segment_bytes)?;
        self.enter(next);
        let written = self.write_group(&[], SECTOR_BYTES, true).map(|_| ());
        written.map_err(|error| match error {
            CommitError::WriteFailed { file, source, .. } | CommitError::SyncFailed { file, source, .. } => {
                ReopenError::Io { file, source }
            }
            other => ReopenError::Io { file: self.current_path(), source: std::io::Error::other(other) },
        })?;
        self.failed = false;
        Ok(())
    }

    /// Writes the appended unsynced groups to the same place, by a handle without a failure, and
    /// syncs them.
    fn write_again(&mut self) -> Result<(), ReopenError> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        let failed = |source| ReopenError::Io { file: self.current_path(), source };
        let file = self.disk.open(&segment_name(self.current.header.number)).map_err(failed)?;
        let start = self.current.end - self.unsynced.len() as u64;
        write_all_at(&file, &mut [IoSlice::new(&self.unsynced)], start).map_err(failed)?;
        file.sync().map_err(failed)?;
        self.current.file = Arc::new(file);
        self.unsynced.clear();
        Ok(())
    }

    fn check_positions(&self, records: &[Record]) -> Result<(), CommitError> {
        let mut next: BTreeMap<PartitionId, Position> = BTreeMap::new();
        for record in records {
            let partition = record.partition;
            if self.stopped.contains_key(&partition) {
                return Err(CommitError::PartitionStopped(partition));
            }
            let first = || self.last_position(partition).map_or(Position::FIRST, Position::next);
            let expected = next.entry(partition).or_insert_with(first);
            if record.position != *expected {
                let (expected, found) = (*expected, record.position);
                return Err(CommitError::NotDense { partition, expected, found });
            }
            *expected = expected.next();
        }
        Ok(())
    }

    /// Writes one group at the end of the current segment, and syncs it if it is to be. A failure
    /// poisons the journal.
    pub(super) fn write_group(
        &mut self,
        records: &[Record],
        bytes: u64,
        sync: bool,
    ) -> Result<GroupEnd, CommitError> {
        let offset = self.current.end;
        let number = self.last_number.next();
        self.last_number = number;
        let header = GroupHeader {
            salt: self.current.header.salt,
            number,
            previous: self.last,
            length_bytes: bytes,
            unsynced_sectors: (self.unsynced.len() as u64 / SECTOR_BYTES) as u16,
            record_count: records.len() as u32,
            table_checksum: 0,
        };
        self.draft.encode(header, records, offset, &mut self.encryptor);
        let mut pieces = self.draft.pieces(records, bytes);
        let file = &*self.current.file;
        // A write that is durable says nothing of those before it, which a sync makes durable as
        // well.
        let at_once = sync && self.unsynced.is_empty() && file.writes_durably();
        let began = Instant::now();
        let written = match at_once {
            true => write_all_durable_at(file, &mut pieces, offset),
            false => write_all_at(file, &mut pieces, offset),
        };
        if at_once {
            self.sync_micros.add(micros_since(began));
        }
        if let Err(source) = written {
            self.failed = true;
            return Err(CommitError::WriteFailed { file: self.current_path(), offset, source });
        }
        if sync && !at_once {
            self.sync_current(offset)?;
        } else if !sync {
            let pieces = self.draft.pieces(records, bytes);
            pieces.iter().for_each(|piece| self.unsynced.extend_from_slice(piece));
        }
        self.current.end = offset + bytes;
        self.last = GroupEnd { segment: self.current.header.number, offset: self.current.end, number };
        self.segments.extend(self.current.header, self.current.end);
        self.tell_filled();
        Ok(self.last)
    }

    /// Syncs the current segment, for a group at `offset`.
    fn sync_current(&mut self, offset: u64) -> Result<(), CommitError> {
        let began = Instant::now();
        let synced = self.current.file.sync();
        self.sync_micros.add(micros_since(began));
        if let Err(source) = synced {
            self.failed = true;
            return Err(CommitError::SyncFailed { file: self.current_path(), offset, source });
        }
        self.unsynced.clear();
        self.unsynced.shrink_to(UNSYNCED_BYTES_KEPT);
        Ok(())
    }

    /// In bytes of a regular segment: the free part of another one counts.
    pub(crate) fn tell_filled(&self) {
        let left = self.current.header.capacity_bytes.saturating_sub(self.current.end);
        self.filled.store(self.options.segment_bytes.saturating_sub(left), Ordering::Relaxed);
    }

    /// Makes `next` the current segment.
    pub(crate) fn enter(&mut self, next: PreparedSegment<D::File>) {
        let end = crate::layout::format::FIRST_GROUP;
        let next = Current { header: next.header, file: Arc::new(next.file), end };
        let left = std::mem::replace(&mut self.current, next);
        self.tell_filled();
        if self.segments.contains(left.header.number) {
            self.handles.keep(left.header.number, left.file);
            self.indexes.waiting.push_back(left.header.number);
            self.indexes.failed = false;
            self.sorted.wake();
        } else {
            // Not one durable group in it: nothing on the disk refers to it. One that failed may be
            // there, newer than all that a recovery finds: in a file that is about to be used
            // again, and has no header yet, that would look like damage.
            self.discard(segment_name(left.header.number), left.header.capacity_bytes, false);
        }
    }

    pub(crate) fn current_path(&self) -> PathBuf {
        self.disk.path(&segment_name(self.current.header.number))
    }
}

fn micros_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}
