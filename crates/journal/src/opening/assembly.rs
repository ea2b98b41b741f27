//! Builds a journal from the result of recovery.

use crate::disks::disk::{Disk, DiskFile, overwrite};
use crate::error::{Damage, OpenError};
use crate::keys::Keys;
use crate::layout::cipher::Encryptor;
use crate::layout::format::{FIRST_GROUP, GroupNumber, SegmentNumber, segment_name};
use crate::layout::group::Draft;
use crate::opening::checkpoint_load::Loaded;
use crate::opening::recovered::Recovered;
use crate::opening::recovery::Unused;
use crate::opening::states::StoredCheckpoint;
use crate::opening::verify::Verified;
use crate::reading::read::Handles;
use crate::retaining::checkpoint::{Checkpoint, Checkpoints, Kept, Summary, UNFINISHED};
use crate::retaining::compaction::Compactions;
use crate::retaining::index::Indexes;
use crate::retaining::rekeying::Rekeying;
use crate::retaining::sorting::Sorted;
use crate::writing::journal::{Current, Journal, Options};
use crate::writing::log2_histogram::Log2Histogram;
use crate::writing::prepare::{PreparedSegment, SegmentRequest, Zeros};
use crate::writing::room::Room;
use postroad_model::PartitionId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything a journal is put together from.
pub(crate) struct Assembly<D: Disk> {
    pub disk: D,
    pub options: Options,
    pub keys: Keys,
    pub loaded: Loaded,
    /// All segment files.
    pub numbers: BTreeSet<SegmentNumber>,
    pub verified: Verified<D::File>,
    /// Segment files read that are not part of the journal.
    pub unused: Unused<D::File>,
    /// Compacted segments that were compacted again or died.
    pub obsolete: Vec<String>,
    /// Sorted copies of segments that are there, by their salts.
    pub sorted: BTreeMap<SegmentNumber, u64>,
}

impl<D: Disk> Assembly<D> {
    pub(crate) fn put_together(mut self) -> Result<(Journal<D>, Recovered<D::File>), OpenError> {
        let (carried, states) = self.states()?;
        let current = self.current()?;
        let spare = self.spare(current.header.number);
        let dead = self.dead(current.header.number, spare.as_ref().map(|spare| spare.header.number));
        let mut checkpoints = self.checkpoints();
        checkpoints.carried = carried;
        let verified = self.verified;
        // The data that the next start has to read is bounded, however often the broker starts.
        checkpoints.committed(verified.parts.iter().map(|part| part.end - part.start).sum());
        let stopped: BTreeMap<PartitionId, Damage> = verified.damaged;
        let recovered = Recovered {
            checkpoints: states,
            damaged: stopped.values().cloned().collect(),
            lost: verified.lost,
            torn: verified.torn,
            skipped_checkpoints: self.loaded.skipped,
            records_max: verified.records,
            elapsed: std::time::Duration::ZERO,
            positions: verified.applied,
            stopped: stopped.keys().copied().collect(),
            parts: verified.parts,
            keys: self.keys.clone(),
        };
        let failed = |source| OpenError::Io { file: self.disk.path(""), source };
        let encryptor = Encryptor::begin(&self.disk, &self.keys).map_err(failed)?;
        let last_number = self.numbers.last().copied().unwrap_or_default().max(current.header.number);
        let read = verified.segments.iter().filter(|segment| segment.index.is_some());
        let waiting =
            read.map(|segment| segment.header.number).filter(|&number| number != current.header.number);
        let indexes = Indexes::new(waiting.collect());
        let room = Room::after_start(spare, last_number);
        let mut journal = Journal {
            disk: self.disk,
            options: self.options,
            current,
            segments: verified.segments,
            last: verified.last,
            last_number: verified.last.number,
            positions: verified.positions,
            stopped,
            room,
            handles: Handles::new(),
            indexes,
            checkpoints,
            compactions: Compactions::after_start(self.obsolete),
            sorted: Sorted::new(self.sorted),
            failed: false,
            sealed: GroupNumber::default(),
            filled: Arc::default(),
            draft: Draft::default(),
            encryptor,
            rekeying: Rekeying::default(),
            keys: self.keys,
            unsynced: Vec::new(),
            sync_micros: Log2Histogram::default(),
        };
        for (name, bytes) in dead {
            // Their contents may be older than encryption.
            let reusable = !journal.keys.encrypts();
            journal.discard(name, bytes, reusable);
        }
        journal.tell_filled();
        Ok((journal, recovered))
    }

    /// The last segment of the journal; without one a prepared segment, or a new one: a short one,
    /// for whose zeros start-up can wait, and which lasts until there are those of the next.
    fn current(&mut self) -> Result<Current<D::File>, OpenError> {
        if let Some(tail) = self.verified.parts.last() {
            return Ok(Current { header: tail.header, file: tail.file.clone(), end: tail.end });
        }
        let prepared = match self.spare(SegmentNumber(0)) {
            Some(spare) => spare,
            None => {
                let number = self.numbers.last().copied().unwrap_or_default().next();
                let capacity_bytes = self.options.first_segment_bytes();
                let (recycle, zeros, filled) = (None, Zeros::First, Arc::default());
                let request = SegmentRequest { number, capacity_bytes, recycle, zeros, filled };
                let made = request.prepare(&self.disk, &mut ());
                made.map_err(|error| OpenError::Io { file: error.file, source: error.source })?
            }
        };
        Ok(Current { header: prepared.header, file: Arc::new(prepared.file), end: FIRST_GROUP })
    }

    /// A prepared segment of regular size after `current`, taken out of the unused ones.
    fn spare(&mut self, current: SegmentNumber) -> Option<PreparedSegment<D::File>> {
        let regular = self.options.segment_bytes;
        let fits = |found: &crate::opening::chain::Found<D::File>| {
            found.header.is_some_and(|header| header.capacity_bytes == regular) && found.limit == regular
        };
        let behind = self.unused.range(current.next()..).find(|(_, found)| fits(found));
        let number = behind.map(|(number, _)| *number)?;
        let found = self.unused.remove(&number)?;
        let (header, file) = (found.header?, Arc::into_inner(found.file)?);
        // Its writer may have ended because it could not be synced: then it can be read, and is not
        // on the disk. Without it later writes to it would not be found; so a file that cannot be
        // synced is created again.
        overwrite(&file, 0, &header.encode()).ok()?;
        Some(PreparedSegment { header, file })
    }

    /// Segment files without use, with the size in which they can be used again; 0 if they cannot.
    fn dead(&self, current: SegmentNumber, spare: Option<SegmentNumber>) -> Vec<(String, u64)> {
        let dead = self.numbers.iter().filter(|&&number| {
            number != current && Some(number) != spare && !self.verified.segments.has_file(number)
        });
        dead.map(|&number| {
            let name = segment_name(number);
            // Its writer did not finish: its space was taken, and is not all zeroed.
            let is_unfinished = self.unused.get(&number).is_some_and(|found| found.header.is_none());
            let length = self.disk.open(&name).and_then(|file| file.length());
            (name, length.ok().filter(|_| !is_unfinished).unwrap_or(0))
        })
        .collect()
    }

    /// The states in the checkpoint that are carried on, as their partitions are stopped, and those
    /// that are to be used.
    fn states(&self) -> Result<(Vec<Checkpoint>, Vec<StoredCheckpoint>), OpenError> {
        let is_stopped = |stored: &StoredCheckpoint| self.verified.damaged.contains_key(&stored.partition);
        let (stopped, used): (Vec<_>, _) = self.loaded.states().partition(is_stopped);
        // Their file goes before they do.
        let carried = stopped.iter().map(StoredCheckpoint::read).collect::<Result<_, _>>()?;
        Ok((carried, used))
    }

    /// The kept checkpoints.
    fn checkpoints(&mut self) -> Checkpoints {
        let mut checkpoints = Checkpoints {
            last_sequence: self.loaded.last_sequence,
            doubtful: std::mem::take(&mut self.loaded.doubtful),
            ..Checkpoints::default()
        };
        let mut superfluous = std::mem::take(&mut self.loaded.superfluous);
        // A new file in its place may be shorter, and leave some plain data.
        if !self.keys.encrypts() {
            let unfinished = superfluous.iter().position(|name| name == UNFINISHED);
            let reused = unfinished.or(superfluous.len().checked_sub(1));
            checkpoints.slot = reused.map(|index| superfluous.swap_remove(index));
        }
        for name in superfluous {
            // If it cannot be removed now, the next start tries again.
            let _ = self.disk.remove(&name);
        }
        let Some((content, segments)) = self.loaded.checkpoint.take() else {
            return checkpoints;
        };
        let live = segments.iter().map(|segment| (segment.header.number, segment.live())).collect();
        let positions = self.verified.applied.clone();
        let (sequence, start, end) = (content.sequence, content.start, content.end.number);
        checkpoints.state_bytes = content.partitions.iter().map(|entry| entry.state.byte_length()).sum();
        checkpoints.kept.extend(self.loaded.before.map(|(sequence, key)| Kept {
            sequence,
            key,
            summary: None,
        }));
        let (key, summary) = (self.loaded.key, Some(Summary { positions, live, start, end }));
        checkpoints.kept.push_back(Kept { sequence, key, summary });
        checkpoints
    }
}
