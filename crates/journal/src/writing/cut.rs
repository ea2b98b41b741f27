//! Cutting groups off the end: those that a replica wrote and its group never committed.

use crate::disks::disk::Disk;
use crate::error::CutError;
use crate::layout::format::{FIRST_GROUP, SECTOR_BYTES};
use crate::writing::journal::{Current, Journal};
use postroad_model::{PartitionId, Position};
use std::sync::Arc;

impl<D: Disk> Journal<D> {
    /// Makes void all groups after the one that holds this record, and ends the journal: whatever
    /// comes of it, it is to be opened again. Recovery then finds either all groups or those that
    /// stay; after `Ok` the latter.
    ///
    /// Nothing in the groups that go may have been retained, released, or be in a checkpoint: none
    /// of it was applied.
    ///
    /// # Errors
    /// [`CutError::Checkpointed`], [`CutError::Unreadable`]: nothing was changed.
    /// [`CutError::Commit`], [`CutError::NoSegment`]: to be tried again once the journal was opened
    /// again.
    pub fn cut_behind(mut self, partition: PartitionId, position: Position) -> Result<(), CutError> {
        self.sync()?;
        let end = self.find_group(partition, position)?.end;
        if end == self.last {
            return Ok(());
        }
        let kept = self.checkpoints.kept.back();
        let newest = kept.map(|newest| newest.summary.as_ref().map(|summary| summary.end));
        let covered = newest.is_some_and(|newest| newest.is_none_or(|newest| end.number < newest));
        if covered || self.checkpoints.busy {
            return Err(CutError::Checkpointed { partition, position });
        }
        let next = self.take_segment(self.options.segment_bytes)?;
        self.current = Current { header: next.header, file: Arc::new(next.file), end: FIRST_GROUP };
        // Its first group pins the end of the last one that stays, as after a failed sync.
        self.last = end;
        self.write_group(&[], SECTOR_BYTES, true)?;
        Ok(())
    }
}
