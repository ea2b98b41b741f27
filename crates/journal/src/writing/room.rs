//! Space ahead: the spare segment, the dead ones that wait for reuse, and the reserve of a full
//! disk.

use crate::disks::disk::{Disk, is_full};
use crate::error::{CommitError, PrepareError};
use crate::layout::format::{FIRST_GROUP, GroupEnd, SegmentNumber, segment_name};
use crate::writing::journal::{Journal, Options};
use crate::writing::prepare::{PreparedSegment, SegmentRequest, Zeros};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// This part of a segment is kept back while there is no spare segment: only groups of records that
/// free something ([`crate::Record::reserve`]) may use it. With 64 MiB segments it holds eight
/// thousand settles even if each is synced alone.
pub const RESERVE_SHARE: u64 = 16;

/// With space for fewer further segments than this the disk is short of space: freeing space goes
/// before speed.
const SHORT_SEGMENTS: u64 = 8;

/// As if the segment before were full to its last byte, however large it is.
const FILLED: u64 = 1 << 62;

/// Whether there is disk space ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// As far as the journal knows.
    Ample,
    /// No spare segment could be made. Refuse additions; settlements still fit.
    Low,
}

/// Segments that hold no groups.
#[derive(Debug)]
pub(crate) struct Room<F> {
    pub spare: Option<PreparedSegment<F>>,
    /// Names of dead files of regular size.
    pub dead: VecDeque<String>,
    /// The request whose answer is awaited.
    pub outstanding: Option<SegmentNumber>,
    /// The highest number ever given to a segment.
    pub last_number: SegmentNumber,
    /// The last attempt to make a segment failed for want of space. For another reason it says
    /// nothing of space: commits go on while the current segment lasts, try for themselves then,
    /// and name the reason.
    pub refused: bool,
    /// Fewer than [`SHORT_SEGMENTS`] fit on the disk; see [`Journal::take_stock`].
    pub short: bool,
    /// As many bytes are missing to that number, and sorted copies shall make room for them.
    pub missing_bytes: u64,
}

impl<F> Room<F> {
    /// Nothing is ordered, and nothing was refused.
    pub fn after_start(spare: Option<PreparedSegment<F>>, last_number: SegmentNumber) -> Room<F> {
        Room {
            spare,
            dead: VecDeque::new(),
            outstanding: None,
            last_number,
            refused: false,
            short: false,
            missing_bytes: 0,
        }
    }
}

impl<D: Disk> Journal<D> {
    /// The order for the next segment, if there is no spare one and none is ordered yet. Ask after
    /// every commit, and after a failed preparation again after a pause (a second, say) or a
    /// checkpoint.
    pub fn wants_segment(&mut self) -> Option<SegmentRequest> {
        if self.room.spare.is_some() || self.room.outstanding.is_some() {
            return None;
        }
        let request = self.order(self.options.segment_bytes, Zeros::Beside);
        self.room.outstanding = Some(request.number);
        Some(request)
    }

    /// Takes the answer to [`Journal::wants_segment`], good or bad.
    pub fn provide(&mut self, answer: Result<PreparedSegment<D::File>, PrepareError>) {
        let number = match &answer {
            Ok(segment) => segment.header.number,
            Err(error) => error.number,
        };
        if self.room.outstanding == Some(number) {
            self.room.outstanding = None;
        }
        match answer {
            Ok(segment) => self.accept(segment),
            Err(error) => self.room.refused = error.is_full(),
        }
        self.take_stock();
    }

    /// Looks how much space the disk has left. If it is short, a checkpoint that brings some back
    /// is due at once, and compaction goes on without rest; and the newest sorted copies make room.
    /// Call it at the start, once the messages that are live are known.
    pub fn take_stock(&mut self) {
        let free = match self.space() {
            // Whatever the file system says: it may keep quotas, or have no size of its own.
            Space::Low => 0,
            Space::Ample => self.disk.free_bytes().ok().flatten().unwrap_or(u64::MAX),
        };
        self.room.missing_bytes = (SHORT_SEGMENTS * self.options.segment_bytes).saturating_sub(free);
        self.room.short = self.room.missing_bytes != 0;
        if self.room.short && self.checkpoint_brings_space() {
            self.want_checkpoint();
        }
    }

    /// Whether a segment that [`Journal::wants_segment`] ordered is still being made: a write
    /// without space may find it there.
    pub fn awaits_segment(&self) -> bool {
        self.room.outstanding.is_some()
    }

    /// Whether there is disk space ahead.
    pub fn space(&self) -> Space {
        if self.room.refused && self.room.spare.is_none() { Space::Low } else { Space::Ample }
    }

    /// Makes sure that a group of this size fits after [`Journal`]'s current end, in a further
    /// segment if need be.
    pub(crate) fn make_room(&mut self, group_bytes: u64, reserve: bool) -> Result<(), CommitError> {
        if self.fits(group_bytes, reserve) {
            return Ok(());
        }
        let needed = FIRST_GROUP + group_bytes;
        if needed <= self.options.segment_bytes {
            if self.room.spare.is_none() {
                let made = self.take_segment(self.options.segment_bytes);
                self.room.spare = Some(made.map_err(|error| no_segment(error, group_bytes))?);
            }
            // With a spare, the reserve may be used up.
            if self.fits(group_bytes, reserve) {
                return Ok(());
            }
        }
        // The first group of the next segment pins the end of this one: that must be durable by
        // then.
        self.sync()?;
        let next = self.take_segment(needed.max(self.options.segment_bytes));
        self.enter(next.map_err(|error| no_segment(error, group_bytes))?);
        Ok(())
    }

    pub(crate) fn fits(&self, group_bytes: u64, reserve: bool) -> bool {
        if self.must_leave() {
            return false;
        }
        let free = self.current.header.capacity_bytes.saturating_sub(self.current.end);
        let kept =
            if reserve || self.room.spare.is_some() { 0 } else { self.options.segment_bytes / RESERVE_SHARE };
        group_bytes.saturating_add(kept) <= free
    }

    /// A segment of at least this capacity: the spare one, or one made on the spot and not zeroed.
    pub(crate) fn take_segment(
        &mut self,
        capacity_bytes: u64,
    ) -> Result<PreparedSegment<D::File>, PrepareError> {
        if capacity_bytes <= self.options.segment_bytes
            && let Some(spare) = self.room.spare.take()
        {
            // A refusal before it was made, or besides it, does not concern the one that follows
            // it.
            self.room.refused = false;
            return Ok(spare);
        }
        let made = self.order(capacity_bytes, Zeros::None).prepare(&self.disk, &mut ());
        // If one is being made, that may have taken the space: its result shows it.
        let tells = self.room.outstanding.is_none() || self.room.refused;
        self.room.refused = tells && made.as_ref().is_err_and(PrepareError::is_full);
        // Segments are used in the order of their numbers: an older spare can only be recycled.
        if made.is_ok()
            && let Some(spare) = self.room.spare.take()
        {
            self.discard(segment_name(spare.header.number), spare.header.capacity_bytes, true);
        }
        made
    }

    fn order(&mut self, capacity_bytes: u64, zeros: Zeros) -> SegmentRequest {
        let number = self.room.last_number.next();
        self.room.last_number = number;
        let regular = capacity_bytes == self.options.segment_bytes;
        let recycle = if regular { self.room.dead.pop_front() } else { None };
        // While sends are refused for want of this segment nothing fills the one before: waiting
        // for that would not end.
        let filled = if self.room.refused { Arc::new(AtomicU64::new(FILLED)) } else { self.filled.clone() };
        SegmentRequest { number, capacity_bytes, recycle, zeros, filled }
    }

    fn accept(&mut self, segment: PreparedSegment<D::File>) {
        self.room.refused = false;
        if self.room.spare.is_none() && self.current.header.number < segment.header.number {
            self.room.spare = Some(segment);
        } else {
            self.discard(segment_name(segment.header.number), segment.header.capacity_bytes, true);
        }
    }

    /// Keeps a file without live records for reuse, or removes it: one in which something is to be
    /// read that would be encrypted now, or a group that failed, is not `reusable`. The first
    /// segment's stays as it is until a group is durable, in whichever segment: recovery knows by
    /// it that a journal without groups has lost none. The next start finds it dead. There may be
    /// groups that failed in it, so it is not used again.
    pub(crate) fn discard(&mut self, name: String, capacity_bytes: u64, reusable: bool) {
        let is_first = name == segment_name(SegmentNumber::FIRST);
        if self.last == GroupEnd::default() && is_first {
            return;
        }
        let fits = reusable && !is_first && capacity_bytes == self.options.segment_bytes;
        if fits && self.room.dead.len() < self.options.dead_segments_max {
            self.room.dead.push_back(name);
        } else {
            // If it cannot be removed now, recovery finds it dead and tries again.
            let _ = self.disk.remove(&name);
        }
    }
}

fn no_segment(error: PrepareError, group_bytes: u64) -> CommitError {
    if is_full(&error.source) { CommitError::NoSpace { group_bytes } } else { CommitError::NoSegment(error) }
}

/// The first segment of a journal is this part of a regular one, twice the reserve until there is
/// another...
const FIRST_SHARE: u64 = RESERVE_SHARE / 2;

/// ... but not shorter than this, or than a regular one.
const FIRST_BYTES_MIN: u64 = 1 << 20;

impl Options {
    /// Size of the first segment of a journal.
    pub(crate) fn first_segment_bytes(&self) -> u64 {
        let bytes = (self.segment_bytes / FIRST_SHARE).max(FIRST_BYTES_MIN).min(self.segment_bytes);
        bytes.next_multiple_of(crate::layout::format::SECTOR_BYTES)
    }

    /// With the limits of the format applied.
    pub(crate) fn in_bounds(mut self) -> Options {
        let sector = crate::layout::format::SECTOR_BYTES;
        let bytes = self.segment_bytes.clamp(Options::SEGMENT_BYTES_MIN, 1 << 40);
        self.segment_bytes = bytes.next_multiple_of(sector);
        self
    }
}
