//! Repair: a damaged directory becomes one that opens, with everything in it that could be read.
//!
//! ```text
//!   1. each file to be removed gets another name aside  from here on nothing can be lost
//!   2. live records of damaged segments are written into compacted ones
//!   3. a new segment is begun                           a crash up to here leaves the damage as it was
//!   4. two checkpoints say that recovery begins there   from here on the directory opens
//!   5. the files aside are removed
//! ```

use crate::disks::disk::{Disk, DiskFile, write_all_at};
use crate::disks::tolerant::Tolerant;
use crate::error::RepairError;
use crate::layout::checkpoint_bytes::{Content, PartitionEntry, Place, encode};
use crate::layout::cipher::Encryptor;
use crate::layout::format::{
    FIRST_GROUP, GroupEnd, GroupHeader, SECTOR_BYTES, checkpoint_name, checkpoint_of,
};
use crate::layout::group::Draft;
use crate::repairing::salvage::Salvage;
use crate::retaining::checkpoint::{Checkpoint, write_file};
use crate::retaining::compacted::Run;
use crate::retaining::compactor::rescue;
use crate::retaining::live::LiveSet;
use crate::writing::journal::Options;
use crate::writing::prepare::{SegmentRequest, Zeros};
use crate::writing::segment::Segment;
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The changes of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Names of the files that were set aside.
    pub aside: Vec<String>,
    /// Names of the segments that took the place of damaged ones.
    pub rescued: Vec<String>,
}

/// The records that are to be kept, by partition.
type Live = BTreeMap<PartitionId, LiveSet>;

impl<D: Disk> Salvage<D> {
    /// Makes the directory one that opens: with these states, each after the last position that
    /// [`Salvage::replay`] showed, and the records that are `live` in them, each of which can be
    /// read. Damaged files and all former checkpoints get into `aside`, an empty directory on the
    /// same device, as they are.
    ///
    /// # Errors
    /// [`RepairError`]: the damage is still there, and so is all that could be read.
    pub fn repair(
        &self,
        aside: &D,
        options: Options,
        states: Vec<Checkpoint>,
        live: impl IntoIterator<Item = (PartitionId, Position)>,
    ) -> Result<Repaired, RepairError> {
        let mut kept = Live::new();
        for (partition, position) in live {
            let set = kept.entry(partition).or_default();
            if !set.contains(position) {
                set.add(position, 0..1);
            }
        }
        let names = self.names_aside().map_err(|source| self.failed("", source))?;
        for name in &names {
            self.disk
                .link(name, &Tolerant(aside.clone()), name)
                .map_err(|source| self.failed(name, source))?;
        }
        aside.sync_directory().map_err(|source| RepairError::Io { file: aside.path(""), source })?;
        let sequence = self.loaded.last_sequence + 1;
        let (segments, rescued) = self.rescue(&kept, sequence)?;
        let end = self.begin_segment(options)?;
        for sequence in [sequence, sequence + 1] {
            self.write_checkpoint(sequence, end, &states, &segments)?;
        }
        for name in &names {
            self.disk.remove(name).map_err(|source| self.failed(name, source))?;
        }
        self.disk.sync_directory().map_err(|source| self.failed("", source))?;
        Ok(Repaired { aside: names, rescued })
    }

    fn failed(&self, name: &str, source: io::Error) -> RepairError {
        RepairError::Io { file: self.disk.path(name), source }
    }

    fn names_aside(&self) -> io::Result<Vec<String>> {
        let mut names: Vec<String> =
            self.disk.list()?.into_iter().filter(|name| checkpoint_of(name).is_some()).collect();
        let damaged = self.files.iter().filter(|file| file.is_damaged);
        names.extend(damaged.map(|file| file.segment.file_name()));
        names.sort();
        Ok(names)
    }

    /// All segments as they will be, and the names of new ones.
    fn rescue(&self, live: &Live, checkpoint: u64) -> Result<(Vec<Segment>, Vec<String>), RepairError> {
        let (mut segments, mut rescued) = (Vec::new(), Vec::new());
        for file in &self.files {
            let keep = live_in(&file.segment, live);
            if !file.is_damaged {
                segments.push(counted(file.segment.clone(), &keep));
                continue;
            }
            if keep.values().all(LiveSet::is_empty) {
                continue;
            }
            let number = file.segment.header.number;
            let run = file.segment.compacted.unwrap_or(Run { first: number, last: number, checkpoint });
            let new = rescue(&self.disk, Run { checkpoint, ..run }, file, &self.keys, &keep)?;
            rescued.push(new.file_name());
            segments.push(counted(new, &keep));
        }
        Ok((segments, rescued))
    }

    /// Makes a segment after all others, with an empty group in it, and returns that group's end.
    fn begin_segment(&self, options: Options) -> Result<GroupEnd, RepairError> {
        let listed = self.loaded.checkpoint.iter().flat_map(|(_, segments)| segments);
        let known = listed.map(|segment| segment.header.number).chain(self.numbers.iter().copied());
        let number = known.max().unwrap_or_default().max(self.last.segment).next();
        let capacity_bytes = options.in_bounds().segment_bytes;
        let (recycle, zeros, filled) = (None, Zeros::None, Arc::default());
        let request = SegmentRequest { number, capacity_bytes, recycle, zeros, filled };
        let made = request.prepare(&self.disk, &mut ())?;
        let group = self.last.number.next();
        let header = GroupHeader {
            salt: made.header.salt,
            number: group,
            previous: self.last,
            length_bytes: SECTOR_BYTES,
            unsynced_sectors: 0,
            record_count: 0,
            table_checksum: 0,
        };
        let name = crate::layout::format::segment_name(number);
        let mut encryptor =
            Encryptor::begin(&self.disk, &self.keys).map_err(|source| self.failed(&name, source))?;
        let mut draft = Draft::default();
        draft.encode(header, &[], FIRST_GROUP, &mut encryptor);
        let written = write_all_at(&made.file, &mut draft.pieces(&[], SECTOR_BYTES), FIRST_GROUP);
        written.and_then(|()| made.file.sync()).map_err(|source| self.failed(&name, source))?;
        Ok(GroupEnd { segment: number, offset: FIRST_GROUP + SECTOR_BYTES, number: group })
    }

    fn write_checkpoint(
        &self,
        sequence: u64,
        end: GroupEnd,
        states: &[Checkpoint],
        segments: &[Segment],
    ) -> Result<(), RepairError> {
        let partitions = states.iter().map(|state| PartitionEntry {
            partition: state.partition,
            position: Some(state.position),
            last: state.position,
            state: state.state.clone(),
        });
        let start = Place { segment: end.segment, offset: end.offset, group: None };
        let content = Content { sequence, start, end, partitions: partitions.collect() };
        let draft = encode(&content, &segments.iter().collect::<Vec<_>>(), &self.keys);
        let name = checkpoint_name(sequence);
        let bytes = draft.finish(&self.disk, &self.keys).map_err(|source| self.failed(&name, source))?;
        let written = write_file(&self.disk, &name, None, &bytes, &mut ());
        written.map_err(|source| self.failed(&name, source))
    }
}

/// The live part of the records in a segment.
fn live_in(segment: &Segment, live: &Live) -> Live {
    let sets = segment.ranges.iter().filter_map(|(partition, range)| {
        Some((*partition, live.get(partition)?.between(range.first, range.last)))
    });
    sets.collect()
}

/// The segment with its live records counted; the next start counts their messages.
fn counted(mut segment: Segment, live: &Live) -> Segment {
    for (partition, range) in &mut segment.ranges {
        range.live = live.get(partition).map_or(0, LiveSet::records);
    }
    segment
}
