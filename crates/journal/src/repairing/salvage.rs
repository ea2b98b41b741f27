//! Salvage: everything that can still be read of a directory, however damaged, and where nothing
//! can.
//!
//! Recovery stops where bytes differ from promised ones. Salvage reads on behind: each segment from
//! its first group to its last, over unreadable places. It changes nothing; [`Salvage::repair`]
//! does.

use crate::disks::disk::{Disk, DiskFile};
use crate::disks::tolerant::{Tolerant, TolerantFile};
use crate::error::{Damage, DamageKind, OpenError, ReadError};
use crate::keys::Keys;
use crate::layout::checkpoint_bytes::{Content, Place};
use crate::layout::format::{
    FIRST_GROUP, GroupEnd, GroupNumber, SegmentHeader, SegmentNumber, segment_name, segment_of,
};
use crate::opening::chain::{self, Found, SCAN_STEP_BYTES};
use crate::opening::checkpoint_load::{self, Loaded};
use crate::opening::recovered::TornTail;
use crate::opening::recovery::lacking;
use crate::opening::states::{StoredCheckpoint, StoredState};
use crate::reading::scan::{GroupHead, Window};
use crate::record::StoredRecord;
use crate::repairing::salvage_scan::{Scan, Scanned};
use crate::retaining::compacted::{self, Compacted};
use crate::retaining::live::LiveSet;
use crate::writing::segment::Segment;
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// See the head of this file.
#[derive(Debug)]
pub struct Salvage<D: Disk> {
    pub(crate) disk: Tolerant<D>,
    pub(crate) loaded: Loaded,
    /// All files with records that count, oldest first.
    pub(crate) files: Vec<Salvaged<TolerantFile<D::File>>>,
    /// All numbers that segment files have.
    pub(crate) numbers: BTreeSet<SegmentNumber>,
    /// End of the last group that counts.
    pub(crate) last: GroupEnd,
    pub(crate) keys: Keys,
    readable: BTreeMap<PartitionId, LiveSet>,
    damaged: Vec<Damage>,
    torn: Option<TornTail>,
}

/// A file, and the readable part of it.
#[derive(Debug)]
pub(crate) struct Salvaged<F> {
    pub file: Arc<F>,
    pub path: PathBuf,
    /// Its extent, and the records that can be read.
    pub segment: Segment,
    /// Where groups start that can be read; only of a file that is damaged, or that is read after
    /// the checkpoint.
    pub groups: Vec<u64>,
    /// Those of them whose header or table is damaged.
    pub rebuilt: BTreeMap<u64, GroupHead>,
    pub is_damaged: bool,
    /// Whether it is part of the log after the checkpoint.
    is_tail: bool,
}

/// The way back through the log after the checkpoint.
#[derive(Debug, Default)]
struct TailWalk {
    /// The end that the next segment pins; `None` for the last, or if that cannot be read.
    pin: Option<GroupEnd>,
    /// End of the newest group.
    last: Option<GroupEnd>,
    /// First position of each partition in the segments behind.
    floors: BTreeMap<PartitionId, Position>,
}

/// The items of a replay over damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// A record, as it was committed.
    Record(StoredRecord),
    /// Records that are gone.
    Lost(LostRecords),
}

/// Records of a partition that were promised and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecords {
    /// Whose.
    pub partition: PartitionId,
    /// The first of them,
    pub first: Position,
    /// and the last.
    pub last: Position,
    /// The rest of the payload in place, if it is one record whose payload alone is damaged: some
    /// of it is wrong.
    pub damaged_payload: Option<Bytes>,
}

impl<F: DiskFile> Salvaged<F> {
    /// The group at this offset, or its rebuilt part.
    pub(crate) fn head(&self, window: &mut Window<'_, F>, offset: u64) -> io::Result<Option<GroupHead>> {
        match self.rebuilt.get(&offset) {
            Some(head) => Ok(Some(head.clone())),
            None => window.head(self.segment.header.salt, offset),
        }
    }
}

impl<D: Disk> Salvage<D> {
    /// Reads the whole directory of a journal without keys.
    ///
    /// # Errors
    /// Those of [`Salvage::look_with`].
    pub fn look(disk: D) -> Result<Salvage<D>, OpenError> {
        Salvage::look_with(disk, Keys::default())
    }

    /// Reads the whole directory.
    ///
    /// # Errors
    /// [`OpenError::UnknownVersion`]: a newer Postroad wrote it; that is no damage.
    /// [`OpenError::KeyUnknown`]: nor is that. [`OpenError::Io`], also of a checkpoint that cannot
    /// be opened: it may be good, and with an older one its data would count as lost.
    pub fn look_with(disk: D, keys: Keys) -> Result<Salvage<D>, OpenError> {
        let disk = Tolerant(disk);
        let names = disk.list().map_err(|source| OpenError::Io { file: disk.path(""), source })?;
        let mut loaded = checkpoint_load::load(&disk, &names, &keys)?;
        if let Some(refused) = loaded.refused.take() {
            return Err(refused);
        }
        let numbers: BTreeSet<SegmentNumber> = names.iter().filter_map(|name| segment_of(name)).collect();
        let (compacted, _) = compacted::load(&disk, &names, loaded.segments())?;
        let damaged = loaded.skipped.iter().map(|file| {
            let (partition, offset, kind) = (None, 0, DamageKind::Checkpoint);
            Damage { partition, file: file.clone(), offset, kind }
        });
        let damaged = damaged.collect();
        let (files, readable) = (Vec::new(), BTreeMap::new());
        let last = loaded.content().map_or(GroupEnd::default(), |content| content.end);
        let mut salvage = Salvage { disk, loaded, files, numbers, last, keys, readable, damaged, torn: None };
        salvage.read_sealed(&compacted)?;
        salvage.read_tail(&compacted)?;
        salvage.files.sort_by_key(|file| file.segment.header.number);
        Ok(salvage)
    }

    /// Whether there is nothing at all to repair anything from.
    pub fn is_empty(&self) -> bool {
        self.loaded.checkpoint.is_none() && self.numbers.is_empty() && self.files.is_empty()
    }

    /// Every place where promised bytes are gone; checkpoints first.
    pub fn damaged(&self) -> &[Damage] {
        &self.damaged
    }

    /// A group at the very end that was not completely written, and so never confirmed. It is no
    /// damage.
    pub fn torn(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// The newest state of each partition that can be read.
    pub fn checkpoints(&self) -> Vec<StoredCheckpoint> {
        self.loaded.states().collect()
    }

    /// Whether a record can be read.
    pub fn has(&self, partition: PartitionId, position: Position) -> bool {
        self.readable.get(&partition).is_some_and(|readable| readable.contains(position))
    }

    /// The payload of a record; `None` if it cannot be read.
    ///
    /// # Errors
    /// [`ReadError::Io`]: data that was read before cannot be read now.
    pub fn read(&self, partition: PartitionId, position: Position) -> Result<Option<Bytes>, ReadError> {
        if !self.has(partition, position) {
            return Ok(None);
        }
        self.find(partition, position, true)
    }

    /// The rest of a damaged record's payload: some of it is wrong. `None` if nothing is left.
    ///
    /// # Errors
    /// [`ReadError::Io`].
    pub fn read_damaged(
        &self,
        partition: PartitionId,
        position: Position,
    ) -> Result<Option<Bytes>, ReadError> {
        if self.has(partition, position) {
            return Ok(None);
        }
        self.find(partition, position, false)
    }

    fn find(
        &self,
        partition: PartitionId,
        position: Position,
        intact: bool,
    ) -> Result<Option<Bytes>, ReadError> {
        for file in &self.files {
            let Some(entry) = file.segment.start_of(partition, position, file.segment.index.as_deref())
            else {
                continue;
            };
            let failed = |source| ReadError::Io { file: file.path.clone(), source };
            let (salt, end) = (file.segment.header.salt, file.segment.end);
            let mut window = Window::with_keys(&*file.file, SCAN_STEP_BYTES, end, &self.keys);
            let mut offset = Some(entry.offset);
            while let Some(at) = offset.filter(|&at| at < end) {
                let Some(head) = file.head(&mut window, at).map_err(failed)? else {
                    offset = window.search(Some(salt), at + 1, GroupNumber(0)).map_err(failed)?;
                    continue;
                };
                let is_it = |header: &crate::layout::format::RecordHeader| {
                    header.partition == partition && header.position == position
                };
                if let Some(entry) = head.records.iter().find(|entry| is_it(&entry.header)) {
                    let found = match intact {
                        true => window.payload(entry).map(Result::ok),
                        false => window.damaged_payload(entry),
                    };
                    return Ok(found.map_err(failed)?.map(Bytes::copy_from_slice));
                }
                offset = Some(head.end());
            }
        }
        Ok(None)
    }

    /// Shows everything after the checkpoints, in the order in which it was committed, to `visit`:
    /// each partition's positions rise without gaps, as lost records are shown in their places.
    ///
    /// # Errors
    /// [`ReadError::Io`]; or [`ReadError::Damaged`] if data that was read before cannot be read
    /// now.
    pub fn replay<E: From<ReadError>>(&self, visit: &mut dyn FnMut(Met) -> Result<(), E>) -> Result<(), E> {
        let mut last: BTreeMap<PartitionId, Position> = BTreeMap::new();
        let applied = self.content().map_or(&[][..], |content| &content.partitions).iter();
        last.extend(applied.filter_map(|entry| Some((entry.partition, entry.position?))));
        // Without a checkpoint compacted segments are the only source of earlier data.
        let from_beginning = self.loaded.checkpoint.is_none();
        for file in self.files.iter().filter(|file| file.is_tail || from_beginning) {
            self.replay_file(file, &mut last, visit)?;
        }
        for entry in self.content().map_or(&[][..], |content| &content.partitions) {
            let next = last.get(&entry.partition).map_or(Position::FIRST, |last| last.next());
            if next <= entry.last {
                let (partition, first, last) = (entry.partition, next, entry.last);
                visit(Met::Lost(LostRecords { partition, first, last, damaged_payload: None }))?;
            }
        }
        Ok(())
    }

    fn replay_file<E: From<ReadError>>(
        &self,
        file: &Salvaged<TolerantFile<D::File>>,
        last: &mut BTreeMap<PartitionId, Position>,
        visit: &mut dyn FnMut(Met) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |source| ReadError::Io { file: file.path.clone(), source };
        let mut window = Window::with_keys(&*file.file, SCAN_STEP_BYTES, file.segment.end, &self.keys);
        for &offset in &file.groups {
            let head = file.head(&mut window, offset).map_err(failed)?;
            let (partition, path, kind) = (None, file.path.clone(), DamageKind::Group);
            let head = head.ok_or(ReadError::Damaged(Damage { partition, file: path, offset, kind }))?;
            for entry in &head.records {
                let (partition, position) = (entry.header.partition, entry.header.position);
                let next = last.get(&partition).map_or(Position::FIRST, |last| last.next());
                if position < next {
                    continue;
                }
                if let Some(before) = Position::new(position.get() - 1).filter(|&before| next <= before) {
                    let (first, last, damaged_payload) = (next, before, None);
                    visit(Met::Lost(LostRecords { partition, first, last, damaged_payload }))?;
                }
                last.insert(partition, position);
                let payload = window.payload(entry).map_err(failed)?.map(Bytes::copy_from_slice);
                let met = match payload {
                    Ok(payload) => Met::Record(StoredRecord { partition, position, payload }),
                    Err(_) => {
                        let left = window.damaged_payload(entry).map_err(failed)?;
                        let damaged_payload = left.map(Bytes::copy_from_slice);
                        Met::Lost(LostRecords { partition, first: position, last: position, damaged_payload })
                    }
                };
                visit(met)?;
            }
        }
        Ok(())
    }

    pub(crate) fn content(&self) -> Option<&Content<StoredState>> {
        self.loaded.content()
    }

    fn start(&self) -> Place {
        self.content().map_or(Place::BEGINNING, |content| content.start)
    }

    /// Segments of the checkpoint in which recovery reads nothing but bodies, and compacted ones.
    fn read_sealed(&mut self, compacted: &[Compacted]) -> Result<(), OpenError> {
        let listed: Vec<Segment> =
            self.loaded.checkpoint.iter().flat_map(|(_, segments)| segments).cloned().collect();
        let (start, all) = (self.start().segment, self.loaded.checkpoint.is_none());
        for found in compacted.iter().filter(|found| all || found.run.last < start) {
            if all || listed.iter().any(|segment| found.run.contains(segment.header.number)) {
                self.read_compacted(found)?;
            }
        }
        for segment in listed.into_iter().filter(|segment| segment.header.number < start) {
            let number = segment.header.number;
            if compacted.iter().any(|found| found.run.last < start && found.run.contains(number)) {
                continue;
            }
            if !self.numbers.contains(&number) {
                if 0 < segment.live() {
                    self.miss(number);
                }
                continue;
            }
            let name = segment_name(number);
            let mut scan = Scan::new(Some(segment.header.salt), self.keys.clone());
            (scan.end, scan.limit) = (segment.end, segment.end);
            let is_sound = chain::find(&self.disk, [number].into_iter())?
                .get(&number)
                .and_then(|found| found.header)
                .is_some_and(|header| header.salt == segment.header.salt);
            if !is_sound {
                self.note(Damage {
                    partition: None,
                    file: self.disk.path(&name),
                    offset: 0,
                    kind: DamageKind::SegmentHeader,
                });
            }
            let end = segment.end;
            let header =
                SegmentHeader { capacity_bytes: segment.header.capacity_bytes.max(end), ..segment.header };
            self.take_in(&name, Segment { end, ..Segment::new(header) }, scan, is_sound, false)?;
        }
        Ok(())
    }

    fn read_compacted(&mut self, found: &Compacted) -> Result<(), OpenError> {
        let (salt, end) =
            found.segment.as_ref().map_or((None, 0), |index| (Some(index.header.salt), index.end));
        let mut scan = Scan::new(salt, self.keys.clone());
        scan.rises = false;
        scan.end = end;
        if salt.is_some() {
            scan.limit = end;
        } else {
            let (partition, offset, kind) = (None, 0, DamageKind::SegmentHeader);
            self.note(Damage { partition, file: found.path.clone(), offset, kind });
        }
        let (number, capacity_bytes) = (found.run.last, end);
        let header = SegmentHeader { number, salt: salt.unwrap_or(0), capacity_bytes };
        let mut segment = Segment::new(header);
        segment.compacted = Some(found.run);
        self.take_in(&found.name, segment, scan, salt.is_some(), false).map(|_| ())
    }

    /// The log after the checkpoint, from the newest segment back to where the checkpoint says to
    /// start.
    fn read_tail(&mut self, compacted: &[Compacted]) -> Result<(), OpenError> {
        let start = self.start().segment;
        let replaced = |number| {
            self.loaded.checkpoint.is_none() && compacted.iter().any(|found| found.run.contains(number))
        };
        let tail = self.numbers.iter().copied().filter(|&number| start <= number && !replaced(number));
        let mut found = chain::find(&self.disk, tail)?;
        self.drop_former(&mut found)?;
        let listed = self.loaded.checkpoint.iter().flat_map(|(_, segments)| segments);
        let expected = listed.map(|segment| segment.header.number).filter(|number| start <= *number);
        let expected = expected.chain(Some(self.last.segment).filter(|last| last.0 != 0));
        let mut missing: BTreeSet<SegmentNumber> =
            expected.filter(|number| !found.contains_key(number)).collect();
        let mut walk = TailWalk::default();
        for (number, found) in found.into_iter().rev() {
            if walk.pin.is_some_and(|pin| pin.segment < number) {
                // No group in it was ever confirmed.
                continue;
            }
            missing.extend(walk.pin.take_if(|pin| number < pin.segment).map(|pin| pin.segment));
            let Some(scanned) = self.read_link(number, &found, &walk)? else { continue };
            let end = scanned.last.map(|(offset, group)| GroupEnd { segment: number, offset, number: group });
            walk.last = walk.last.or(end);
            walk.floors.extend(scanned.firsts);
            walk.pin = scanned.previous.filter(|_| number != start);
            if number == start || walk.pin.is_some_and(|pin| pin.segment.0 == 0) {
                walk.pin = None;
                break;
            }
        }
        if self.loaded.checkpoint.is_some() || self.loaded.skipped.is_empty() {
            // Without a checkpoint it may as well have been recycled.
            missing.extend(walk.pin.map(|pin| pin.segment));
        }
        self.note_missing(missing);
        if let Some(last) =
            walk.last.filter(|last| (self.last.segment, self.last.offset) < (last.segment, last.offset))
        {
            self.last = GroupEnd { number: self.last.number.max(last.number), ..last };
        }
        Ok(())
    }

    /// One segment of the log; `None` if it was made ready and nothing was confirmed in it.
    fn read_link(
        &mut self,
        number: SegmentNumber,
        found: &Found<TolerantFile<D::File>>,
        walk: &TailWalk,
    ) -> Result<Option<Scanned>, OpenError> {
        let mut listed = self.loaded.checkpoint.iter().flat_map(|(_, segments)| segments);
        let told = listed.find(|segment| segment.header.number == number).map(|segment| segment.header);
        let header = found.header.or(told);
        let mut scan = Scan::new(header.map(|header| header.salt), self.keys.clone());
        scan.is_newest = walk.last.is_none();
        scan.floors = walk.floors.clone();
        if let Some(pin) = walk.pin {
            (scan.end, scan.limit) = (pin.offset, pin.offset);
        } else if let end = self.content().map_or(GroupEnd::default(), |content| content.end)
            && end.segment == number
        {
            scan.end = end.offset;
        }
        let (salt, capacity_bytes) = (0, found.limit);
        let header = header.unwrap_or(SegmentHeader { number, salt, capacity_bytes });
        let (name, is_sound) = (segment_name(number), found.header.is_some());
        let scanned = self.take_in(&name, Segment::new(header), scan, is_sound, true)?;
        if scanned.last.is_none() && walk.last.is_none() && scanned.damaged.is_empty() {
            return Ok(None);
        }
        if !is_sound {
            let (partition, offset, kind) = (None, 0, DamageKind::SegmentHeader);
            self.note(Damage { partition, file: found.path.clone(), offset, kind });
        }
        Ok(Some(scanned))
    }

    /// Leaves out files without a header of their own that hold nothing but groups of a former
    /// life.
    fn drop_former(
        &self,
        found: &mut BTreeMap<SegmentNumber, Found<TolerantFile<D::File>>>,
    ) -> Result<(), OpenError> {
        let mut numbers: BTreeMap<SegmentNumber, GroupNumber> = BTreeMap::new();
        for found in found.values() {
            let Some(header) = found.header else { continue };
            let failed = |source| OpenError::Io { file: found.path.clone(), source };
            let mut window = Window::new(&*found.file, SCAN_STEP_BYTES, found.limit);
            if let Some(at) = window.search(Some(header.salt), FIRST_GROUP, GroupNumber(0)).map_err(failed)?
                && let Some(head) = window.head(header.salt, at).map_err(failed)?
            {
                numbers.insert(header.number, head.header.number);
            }
        }
        let mut former = Vec::new();
        for (&number, found) in found.iter().filter(|(_, found)| found.header.is_none()) {
            let before = numbers.range(..number).next_back().map_or(GroupNumber(0), |(_, group)| *group);
            let failed = |source| OpenError::Io { file: found.path.clone(), source };
            let mut window = Window::new(&*found.file, SCAN_STEP_BYTES, found.limit);
            if window.search(None, FIRST_GROUP, before).map_err(failed)?.is_none() {
                former.push(number);
            }
        }
        former.iter().for_each(|number| drop(found.remove(number)));
        Ok(())
    }

    /// Scans one file, and keeps the result.
    fn take_in(
        &mut self,
        name: &str,
        mut segment: Segment,
        scan: Scan,
        is_sound: bool,
        is_tail: bool,
    ) -> Result<Scanned, OpenError> {
        let path = self.disk.path(name);
        let failed = |source| OpenError::Io { file: path.clone(), source };
        let file = Arc::new(self.disk.open(name).map_err(failed)?);
        let length = file.length().map_err(failed)?;
        let mut scanned = scan.run(&*file, length, &mut segment, &mut self.readable).map_err(failed)?;
        if let Some(key) = scanned.key_unknown {
            return Err(lacking(path, Some(key), &self.keys));
        }
        for (partition, offset, kind) in &scanned.damaged {
            self.note(Damage { partition: *partition, file: path.clone(), offset: *offset, kind: *kind });
        }
        if let Some(offset) = scanned.torn {
            self.torn = Some(TornTail { file: path.clone(), offset });
        }
        let is_damaged = !is_sound || !scanned.damaged.is_empty();
        let keep_groups = is_tail || is_damaged || self.loaded.checkpoint.is_none();
        let groups = if keep_groups { std::mem::take(&mut scanned.groups) } else { Vec::new() };
        if scanned.last.is_some() || is_damaged {
            let rebuilt = std::mem::take(&mut scanned.rebuilt);
            self.files.push(Salvaged { file, path, segment, groups, rebuilt, is_damaged, is_tail });
        }
        Ok(scanned)
    }

    fn note(&mut self, damage: Damage) {
        if !self.damaged.contains(&damage) {
            self.damaged.push(damage);
        }
    }

    fn note_missing(&mut self, missing: BTreeSet<SegmentNumber>) {
        missing.into_iter().for_each(|number| self.miss(number));
        let is_new = self.loaded.checkpoint.is_none() && self.loaded.skipped.is_empty();
        let lowest = self.numbers.first().copied();
        if is_new && lowest.is_some_and(|lowest| lowest != SegmentNumber::FIRST) && !self.files.is_empty() {
            self.miss(SegmentNumber::FIRST);
        }
    }

    fn miss(&mut self, number: SegmentNumber) {
        let (partition, offset, kind) = (None, 0, DamageKind::SegmentMissing);
        self.note(Damage { partition, file: self.disk.path(&segment_name(number)), offset, kind });
    }
}
