//! Making segments ready ahead of their use, on whatever thread.

use crate::disks::disk::{Disk, DiskFile, write_all_at};
use crate::error::PrepareError;
use crate::layout::format::{FIRST_GROUP, SegmentHeader, SegmentNumber, segment_name};
use crate::writing::pace::Pace;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Zeros are written and synced in steps of this size, so that a commit's sync never waits for
/// more of them.
const ZERO_STEP_BYTES: u64 = 256 << 10;

/// Zeros keep this part of a segment ahead of the groups in the one before: enough to be ready in
/// time when groups come faster, and so little that a backlog growing at the disk's speed sees a
/// steady load and no burst.
const ZERO_LEAD_SHARE: u64 = 4;

/// A new segment leaves this part of its size on the disk, for the checkpoints by which a full disk
/// is emptied...
const CHECKPOINT_SHARE: u64 = 16;

/// ... but no more than this, however large a segment some message needs.
const CHECKPOINT_BYTES_MAX: u64 = 4 << 20;

/// How a new file gets zeros. Space that is only allocated costs each sync of a write there a
/// change of the file's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// It is needed at once: allocated, and no more.
    None,
    /// Before anything else is written.
    First,
    /// While groups are written elsewhere: in steps, not much earlier than it is needed, or when
    /// there are no writes.
    Beside,
}

/// An order for one segment, from [`crate::Journal::wants_segment`].
#[derive(Debug)]
#[must_use = "the journal waits for the answer: give it to `Journal::provide`"]
pub struct SegmentRequest {
    pub(crate) number: SegmentNumber,
    pub(crate) capacity_bytes: u64,
    /// A dead file to use again, instead of a new one.
    pub(crate) recycle: Option<String>,
    pub(crate) zeros: Zeros,
    /// How far the segment before is filled, in bytes of a regular one.
    pub(crate) filled: Arc<AtomicU64>,
}

/// A segment that is ready for groups: allocated, its header synced, its directory entry too.
#[derive(Debug)]
pub struct PreparedSegment<F> {
    pub(crate) header: SegmentHeader,
    pub(crate) file: F,
}

impl SegmentRequest {
    /// Makes the segment; may run on another thread than the journal's. Takes as long as writing
    /// and syncing a whole segment, unless a dead file is used again; and as long as `pace` waits
    /// while it is well ahead of the groups.
    ///
    /// # Errors
    /// [`PrepareError`]: the disk is full or broken. Give it to [`crate::Journal::provide`] as
    /// well.
    pub fn prepare<D: Disk>(
        self,
        disk: &D,
        pace: &mut dyn Pace,
    ) -> Result<PreparedSegment<D::File>, PrepareError> {
        let name = segment_name(self.number);
        self.make(disk, &name, pace).map_err(|source| {
            // A half-made file only takes space from others. If it cannot be removed, recovery
            // finds it.
            let _ = disk.remove(&name);
            PrepareError { file: disk.path(&name), source, number: self.number }
        })
    }

    fn make<D: Disk>(
        &self,
        disk: &D,
        name: &str,
        pace: &mut dyn Pace,
    ) -> io::Result<PreparedSegment<D::File>> {
        let (number, salt, capacity_bytes) = (self.number, disk.salt()?, self.capacity_bytes);
        let header = SegmentHeader { number, salt, capacity_bytes };
        if let Some(dead) = &self.recycle {
            match disk.open(dead).and_then(|file| file.names()) {
                // A backup has it, too.
                Ok(2..) => disk.remove(dead)?,
                Ok(_) => disk.rename(dead, name)?,
                // It was removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let file = disk.create(name)?;
        self.check_space(disk, &file)?;
        self.fill(&file, disk.wants_zeros(), pace)?;
        // The header goes last: a file without it is known to hold nothing.
        write_all_at(&file, &mut [IoSlice::new(&header.encode())], 0)?;
        file.sync()?;
        disk.sync_directory()?;
        Ok(PreparedSegment { header, file })
    }

    /// Gives up before any space is taken: an attempt to allocate missing space takes all free
    /// space for a moment, from a checkpoint that would make space.
    fn check_space<D: Disk>(&self, disk: &D, file: &D::File) -> io::Result<()> {
        let missing = self.capacity_bytes.saturating_sub(file.length()?);
        if missing == 0 {
            return Ok(());
        }
        let wanted = missing + (self.capacity_bytes / CHECKPOINT_SHARE).min(CHECKPOINT_BYTES_MAX);
        match disk.free_bytes()? {
            Some(free) if free < wanted => {
                let reason = format!("{wanted} bytes are needed, {free} are free");
                Err(io::Error::new(io::ErrorKind::StorageFull, reason))
            }
            _ => Ok(()),
        }
    }

    fn fill<F: DiskFile>(&self, file: &F, wants_zeros: bool, pace: &mut dyn Pace) -> io::Result<()> {
        let written = file.length()?;
        if self.recycle.is_some() && self.capacity_bytes <= written {
            // Its blocks are written already, and the new salt makes their contents void.
            return Ok(());
        }
        file.allocate(self.capacity_bytes)?;
        if self.zeros == Zeros::None || !wants_zeros {
            return Ok(());
        }
        let zeros = vec![0_u8; ZERO_STEP_BYTES as usize];
        let mut offset = FIRST_GROUP;
        while offset < self.capacity_bytes {
            if self.zeros == Zeros::Beside {
                self.wait(offset, pace);
            }
            let step = ZERO_STEP_BYTES.min(self.capacity_bytes - offset);
            write_all_at(file, &mut [IoSlice::new(&zeros[..step as usize])], offset)?;
            offset += step;
            if self.zeros == Zeros::Beside {
                file.sync()?;
                pace.step();
            }
        }
        Ok(())
    }

    /// Until the groups come near; or until a wait ends without groups, so that no group has to
    /// wait for zeros.
    fn wait(&self, offset: u64, pace: &mut dyn Pace) {
        let filled = || self.filled.load(Ordering::Relaxed);
        let mut seen = filled();
        while seen + self.capacity_bytes / ZERO_LEAD_SHARE < offset && pace.ahead() {
            let before = std::mem::replace(&mut seen, filled());
            if before == seen {
                return;
            }
        }
    }
}
