//! The result of opening a journal.

use crate::disks::disk::DiskFile;
use crate::error::{Damage, DamageKind, ReadError};
use crate::keys::Keys;
use crate::layout::format::SegmentHeader;
use crate::opening::chain::SCAN_STEP_BYTES;
use crate::opening::states::StoredCheckpoint;
use crate::reading::scan::Window;
use crate::record::StoredRecord;
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The contents of a journal: first apply the checkpoints, then [`Recovered::records`].
#[derive(Debug)]
pub struct Recovered<F> {
    /// The last state of each partition that has one, stopped partitions left out. To be read
    /// before checkpoints are written.
    pub checkpoints: Vec<StoredCheckpoint>,
    /// Partitions that are stopped, with the first damage found in each. The journal takes no
    /// records for them.
    pub damaged: Vec<Damage>,
    /// Files before the checkpoint without which records that it knows to be live cannot be read.
    /// No partition is stopped for them.
    pub lost: Vec<LostSegment>,
    /// A group at the very end that was not completely written, and so never confirmed: cut off.
    pub torn: Option<TornTail>,
    /// Newer checkpoints that could not be read.
    pub skipped_checkpoints: Vec<PathBuf>,
    /// How many [`Recovered::records`] there are at most.
    pub records_max: u64,
    /// Time that opening took.
    pub elapsed: Duration,
    /// Last position in the checkpoint, of each partition that has one.
    pub(crate) positions: BTreeMap<PartitionId, Position>,
    pub(crate) stopped: BTreeSet<PartitionId>,
    pub(crate) parts: Vec<Part<F>>,
    pub(crate) keys: Keys,
}

/// A file of the journal whose records cannot be read, though some are live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSegment {
    /// The file, and its fault.
    pub damage: Damage,
    /// Messages in it that were live when the checkpoint was made.
    pub messages: u64,
}

/// Where a torn group was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// The groups of one segment that recovery has verified.
#[derive(Debug)]
pub(crate) struct Part<F> {
    pub file: Arc<F>,
    pub path: PathBuf,
    pub header: SegmentHeader,
    pub start: u64,
    pub end: u64,
}

impl<F: DiskFile> Recovered<F> {
    /// The records after the checkpoints, in the order in which they were committed, which is the
    /// order of positions in each partition; none of stopped partitions. Read from the disk as they
    /// are asked for, one group in memory at a time.
    pub fn records(&self) -> Replay<'_, F> {
        Replay { recovered: self, parts: self.parts.iter(), part: None, ready: VecDeque::new() }
    }
}

/// Iterator of [`Recovered::records`]; ends after the first error.
pub struct Replay<'r, F> {
    recovered: &'r Recovered<F>,
    parts: std::slice::Iter<'r, Part<F>>,
    /// The part being read, and the offset of its next group.
    part: Option<(&'r Part<F>, Window<'r, F>, u64)>,
    ready: VecDeque<StoredRecord>,
}

impl<F: DiskFile> Iterator for Replay<'_, F> {
    type Item = Result<StoredRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(Ok(record));
            }
            match &self.part {
                Some((part, _, offset)) if *offset < part.end => {
                    if let Err(error) = self.read_group() {
                        (self.part, self.parts) = (None, [].iter());
                        self.ready.clear();
                        return Some(Err(error));
                    }
                }
                _ => {
                    let part = self.parts.next()?;
                    let window =
                        Window::with_keys(&*part.file, SCAN_STEP_BYTES, part.end, &self.recovered.keys);
                    self.part = Some((part, window, part.start));
                }
            }
        }
    }
}

impl<F: DiskFile> Replay<'_, F> {
    /// Reads the next group of the current part.
    fn read_group(&mut self) -> Result<(), ReadError> {
        let Some((part, window, offset)) = &mut self.part else { return Ok(()) };
        let failed = |source| ReadError::Io { file: part.path.clone(), source };
        let damaged = |partition, offset, kind| {
            ReadError::Damaged(Damage { partition, file: part.path.clone(), offset, kind })
        };
        let head = window.head(part.header.salt, *offset).map_err(failed)?;
        let head = head.ok_or_else(|| damaged(None, *offset, DamageKind::Group))?;
        for entry in &head.records {
            let (partition, position) = (entry.header.partition, entry.header.position);
            let applied = self.recovered.positions.get(&partition).is_some_and(|&last| position <= last);
            if applied || self.recovered.stopped.contains(&partition) {
                continue;
            }
            let payload = window.payload(entry).map_err(failed)?;
            let payload = payload.map_err(|kind| damaged(Some(partition), entry.payload_offset, kind))?;
            let payload = Bytes::copy_from_slice(payload);
            self.ready.push_back(StoredRecord { partition, position, payload });
        }
        *offset = head.end();
        Ok(())
    }
}
