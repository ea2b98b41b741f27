//! A second directory with everything that is durable now, while the journal goes on.
//!
//! Complete files get a further name there: that takes no time and no space, and a file with one is
//! never written again. Only the segment at the end, to which groups are appended, is copied, as
//! far as it was synced.

use crate::disks::disk::{Disk, DiskFile, read_full_at, write_all_at};
use crate::error::{BackupError, ReadError};
use crate::layout::format::{SegmentNumber, checkpoint_name, checkpoint_of, segment_name};
use crate::writing::journal::Journal;
use std::io::{self, IoSlice};
use std::path::PathBuf;

/// Bytes copied at a time.
const COPY_STEP_BYTES: usize = 1 << 20;

/// The temporary name of a file that is to be copied.
const COPYING_SUFFIX: &str = ".copying";

/// A backup whose files are chosen and held; the rest may take its time, on any thread.
#[derive(Debug)]
#[must_use = "the backup is not whole before `Backup::finish`"]
pub struct Backup {
    /// Files in it.
    pub files: u64,
    /// Missing segments, which are not in it either: their contents are lost in both.
    pub missing: Vec<PathBuf>,
    open: Vec<OpenSegment>,
}

/// A segment to which groups may still be appended.
#[derive(Debug)]
struct OpenSegment {
    name: String,
    /// The part of it to copy.
    end: u64,
    capacity_bytes: u64,
}

impl<D: Disk> Journal<D> {
    /// Syncs, and links the files that recovery would need if the machine failed now into the empty
    /// directory `to` of the same device.
    ///
    /// # Errors
    /// [`BackupError`]: the contents of `to` are worth nothing then.
    pub fn begin_backup(&mut self, to: &D) -> Result<Backup, BackupError> {
        self.seal()?;
        let mut open: Vec<OpenSegment> = Vec::new();
        let current = &self.current;
        let mut names: Vec<String> = Vec::new();
        for segment in self.segments.iter() {
            let (number, name) = (segment.header.number, segment.file_name());
            // A start from the backup appends after the last group.
            if number == self.last.segment && segment.compacted.is_none() {
                open.push(OpenSegment {
                    name,
                    end: segment.end,
                    capacity_bytes: segment.header.capacity_bytes,
                });
            } else {
                names.push(name);
            }
        }
        let (number, capacity_bytes) = (current.header.number, current.header.capacity_bytes);
        if self.last.segment == SegmentNumber::default() {
            open.push(OpenSegment { name: segment_name(number), end: current.end, capacity_bytes });
            // It shows that no group was lost: see `Journal::discard`.
            names.extend((number != SegmentNumber::FIRST).then(|| segment_name(SegmentNumber::FIRST)));
        }
        names.extend(self.checkpoints.kept.iter().map(|kept| checkpoint_name(kept.sequence)));
        for name in self.segments.iter().filter_map(|segment| segment.index_name()) {
            // Without it a start from the backup creates it.
            let _ = self.disk.link(&name, to, &name);
        }
        let failed = |name: &String, source: io::Error| match (self.disk.path(name), source.kind()) {
            (file, io::ErrorKind::CrossesDevices) => BackupError::OtherDevice { file, to: to.path(name) },
            (file, _) => BackupError::Io { file, source },
        };
        let mut missing = Vec::new();
        for name in &names {
            match self.disk.link(name, to, name) {
                // A start from the backup finds out as the next start here does.
                Err(_) if self.is_gone(name) => missing.push(self.disk.path(name)),
                linked => linked.map_err(|error| failed(name, error))?,
            }
        }
        for OpenSegment { name, .. } in &open {
            let copying = format!("{name}{COPYING_SUFFIX}");
            self.disk.link(name, to, &copying).map_err(|error| failed(name, error))?;
        }
        let files = (names.len() + open.len() - missing.len()) as u64;
        Ok(Backup { files, missing, open })
    }

    fn is_gone(&self, segment: &str) -> bool {
        checkpoint_of(segment).is_none()
            && matches!(self.open_segment(segment, None), Err(ReadError::Damaged(_)))
    }
}

impl Backup {
    /// Copies the files to be copied, and makes everything in `to` durable.
    ///
    /// # Errors
    /// The operating system refused; a full disk too.
    pub fn finish<D: Disk>(self, to: &D) -> io::Result<()> {
        let mut buffer = vec![0; COPY_STEP_BYTES];
        for OpenSegment { name, end, capacity_bytes } in self.open {
            let copying = format!("{name}{COPYING_SUFFIX}");
            let (source, target) = (to.open(&copying)?, to.create(&name)?);
            target.allocate(capacity_bytes)?;
            let mut offset = 0;
            while offset < end {
                let length = buffer.len().min((end - offset) as usize);
                if read_full_at(&source, &mut buffer[..length], offset)? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                write_all_at(&target, &mut [IoSlice::new(&buffer[..length])], offset)?;
                offset += length as u64;
            }
            target.sync()?;
            to.remove(&copying)?;
        }
        to.sync_directory()
    }
}
