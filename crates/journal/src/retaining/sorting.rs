//! Which segments get a sorted copy, and when: see docs/decisions/0024-sorted-copies.md.
//!
//! ```text
//!  a segment is left ──▶ a quarter of it is live: a backlog ──▶ order
//!  order ──▶ another thread looks whether many addresses lie side by side, and writes the copy ──▶ readers look there first
//!  the segment goes, or the disk is short of space and this is one of the newest ──▶ the copy goes
//! ```
//! A copy says nothing that its segment does not. It is not synced, a backup goes without it, and
//! where it is missing or broken the segment is read.

use crate::disks::disk::{Disk, DiskFile, is_full};
use crate::layout::format::{SegmentNumber, sorted_name};
use crate::reading::read::Handles;
use crate::reading::sorted::SortedCopy;
use crate::retaining::sorter::{SortKey, SortRequest, Sorting, kept};
use crate::writing::journal::Journal;
use crate::writing::room::Space;
use crate::writing::segment::Segment;
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Of a segment at least this part of its records is live when it gets a copy: of fewer it would
/// soon be of no use.
const LIVE_SHARE_MIN: u64 = 4;

/// Segments that are examined in one go, at most: after a start there are thousands, and clients
/// must not wait for that.
const LOOKED_AT_MAX: usize = 16;

/// With this number of segments waiting, copies are late: a backlog grows faster than they come.
const WAITING_MAX: usize = 4;

/// The existing copies, and the segments still to be examined. Segments are those of a number and a
/// salt: another life is another segment.
#[derive(Debug)]
pub(crate) struct Sorted<F> {
    sort_key: Option<SortKey>,
    held_bytes_max: usize,
    /// Segments that have a copy, as far as is known; half a one, if the process ended in the
    /// middle of it.
    ready: BTreeMap<SegmentNumber, u64>,
    /// Segments that were looked at.
    judged: BTreeMap<SegmentNumber, u64>,
    busy: bool,
    /// There is nothing to look at until something changes.
    rests: bool,
    handles: Handles<F>,
}

impl<F> Sorted<F> {
    /// After a start: these copies were found.
    pub(crate) fn new(ready: BTreeMap<SegmentNumber, u64>) -> Sorted<F> {
        let (judged, handles) = (BTreeMap::new(), Handles::new());
        Sorted { sort_key: None, held_bytes_max: 0, ready, judged, busy: false, rests: false, handles }
    }

    /// A segment was left or compacted.
    pub(crate) fn wake(&mut self) {
        self.rests = false;
    }

    /// A segment is no more; the file that goes with it.
    pub(crate) fn forget(&mut self, number: SegmentNumber) -> Option<String> {
        self.judged.remove(&number);
        self.handles.forget(number);
        self.ready.remove(&number).map(|salt| sorted_name(number, salt))
    }
}

impl<D: Disk> Journal<D> {
    /// Enables copies of deep backlogs of many addresses in their order, by the result of
    /// `sort_key` for a payload. This much of payloads is held in memory meanwhile: the more, the
    /// fewer writes.
    pub fn sort_by(&mut self, sort_key: SortKey, held_bytes_max: u64) {
        self.sorted.sort_key = Some(sort_key);
        self.sorted.held_bytes_max = usize::try_from(held_bytes_max).unwrap_or(usize::MAX);
    }

    /// The order for the next sorted copy, if one is of use and none is under way. Ask after every
    /// commit.
    pub fn wants_sorting(&mut self) -> Option<SortRequest<D::File>> {
        let idle = !self.sorted.busy && !self.sorted.rests && !self.failed && self.space() == Space::Ample;
        let sort_key = self.sorted.sort_key.filter(|_| idle)?;
        for _ in 0..LOOKED_AT_MAX {
            let (segment, is_late) = {
                let mut unsorted = self.unsorted();
                (unsorted.next().cloned(), unsorted.nth(WAITING_MAX - 1).is_some())
            };
            let Some(segment) = segment else {
                self.sorted.rests = true;
                return None;
            };
            let (number, salt) = (segment.header.number, segment.header.salt);
            self.sorted.judged.insert(number, salt);
            // One that was found at the start is looked at, too: the process may have ended in the
            // middle of it.
            let records: u64 = segment.ranges.values().map(|range| range.records).sum();
            if LIVE_SHARE_MIN * segment.live() < records {
                continue;
            }
            let Ok(file) = self.disk.open(&segment.file_name()) else { continue };
            let live = |partition, first, last| self.segments.live_between(partition, first, last);
            let keep = kept(&segment, live);
            self.sorted.busy = true;
            let segment = Segment { index: None, ..segment };
            return Some(SortRequest {
                segment,
                file: Arc::new(file),
                keep,
                keys: self.keys.clone(),
                sort_key,
                held_bytes_max: self.sorted.held_bytes_max,
                is_late,
                segment_bytes: self.options.segment_bytes,
            });
        }
        None
    }

    /// The segments that may need a copy and were not looked at, the oldest first.
    fn unsorted(&self) -> impl Iterator<Item = &Segment> {
        let newest = self.segments.iter().rev().nth(1).map(|segment| segment.header.number);
        let known = |partition: &PartitionId| {
            !self.stopped.contains_key(partition) && !self.segments.is_uncounted(*partition)
        };
        let old = self.segments.iter().take_while(move |segment| Some(segment.header.number) <= newest);
        old.filter(move |segment| {
            let Segment { header, .. } = segment;
            self.sorted.judged.get(&header.number) != Some(&header.salt)
                && !self.compactions.is_busy(header.number)
                && segment.ranges.keys().all(known)
        })
    }

    /// Takes the answer to [`Journal::wants_sorting`]. A segment without room gets another turn
    /// when a segment was left or compacted; one that cannot be read or written now does not.
    ///
    /// # Errors
    /// Why there is no copy, though one would be of use and there is room: the segment is read as
    /// it is.
    pub fn finish_sorting(&mut self, answer: Sorting) -> io::Result<()> {
        self.sorted.busy = false;
        let Sorting { number, salt, made } = answer;
        let is_current = self.still_has(number, salt);
        if is_current {
            // The former one is gone.
            self.sorted.ready.remove(&number);
            self.sorted.handles.forget(number);
        }
        match (made, is_current) {
            (Ok(true), true) => drop(self.sorted.ready.insert(number, salt)),
            (Ok(true), false) => self.compactions.obsolete.push(sorted_name(number, salt)),
            (Ok(false), _) => {}
            (Err(error), _) if is_full(&error) => {
                self.sorted.judged.remove(&number);
                self.sorted.rests = true;
            }
            // Of a segment that is gone it says nothing.
            (Err(error), is_current) => return if is_current { Err(error) } else { Ok(()) },
        }
        Ok(())
    }

    /// The copy to look for a record in first, if there is one.
    pub(crate) fn sorted_copy(
        &mut self,
        partition: PartitionId,
        position: Position,
    ) -> Option<SortedCopy<D::File>> {
        let segment = self.segments.find(partition, position)?;
        let (segment, end) = (segment.header, segment.end);
        let number = segment.number;
        self.sorted.ready.get(&number).filter(|salt| **salt == segment.salt)?;
        let file = match self.sorted.handles.get(number) {
            Some(file) => file,
            None => {
                let Ok(file) = self.disk.open(&sorted_name(number, segment.salt)) else {
                    self.sorted.ready.remove(&number);
                    return None;
                };
                let file = Arc::new(file);
                self.sorted.handles.keep(number, file.clone());
                file
            }
        };
        Some(SortedCopy { file, segment, end })
    }

    /// On a disk that is short of space copies are removed, before anything is refused: those of
    /// the newest segments, which are read last.
    pub(crate) fn drop_copies_for_room(&mut self) {
        let mut missing_bytes = std::mem::take(&mut self.room.missing_bytes);
        while missing_bytes > 0
            && let Some((number, salt)) = self.sorted.ready.pop_last()
        {
            let file = self.disk.open(&sorted_name(number, salt));
            let bytes = file.and_then(|file| file.length()).unwrap_or(0);
            missing_bytes = missing_bytes.saturating_sub(bytes);
            // It gets another turn once there is room.
            self.sorted.judged.remove(&number);
            self.sorted.handles.forget(number);
            self.compactions.obsolete.push(sorted_name(number, salt));
            self.sorted.wake();
        }
    }
}
