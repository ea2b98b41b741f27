//! Scanning one file over whatever cannot be read in it.

use crate::disks::disk::DiskFile;
use crate::error::DamageKind;
use crate::keys::{KeyId, Keys};
use crate::layout::format::{FIRST_GROUP, GroupEnd, GroupNumber};
use crate::opening::chain::SCAN_STEP_BYTES;
use crate::reading::scan::{GroupHead, Window};
use crate::repairing::rebuild::rebuild;
use crate::retaining::live::LiveSet;
use crate::writing::segment::Segment;
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;
use std::io;

/// How to read a file, by the knowledge of it.
#[derive(Debug)]
pub(crate) struct Scan {
    /// `None`: its header is gone; that of its newest group.
    salt: Option<u64>,
    /// Groups reach at least up to here.
    pub end: u64,
    /// And no further than to here.
    pub limit: u64,
    /// Whether numbers of groups rise: not in a compacted segment.
    pub rises: bool,
    /// Whether its end may be torn.
    pub is_newest: bool,
    /// First positions in newer segments: records here with the same positions were never
    /// confirmed.
    pub floors: BTreeMap<PartitionId, Position>,
    pub keys: Keys,
}

/// The result of a scan, beside the records.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// Where groups start that can be read.
    pub groups: Vec<u64>,
    /// Those whose header or table is damaged, with their valid parts.
    pub rebuilt: BTreeMap<u64, GroupHead>,
    /// End and number of the last of them.
    pub last: Option<(u64, GroupNumber)>,
    /// The end that the first group of the file pins, if that can be read.
    pub previous: Option<GroupEnd>,
    /// First position of each partition.
    pub firsts: BTreeMap<PartitionId, Position>,
    pub damaged: Vec<(Option<PartitionId>, u64, DamageKind)>,
    /// Where a write ends that was never confirmed.
    pub torn: Option<u64>,
    /// A key that is needed and not known.
    pub key_unknown: Option<KeyId>,
}

impl Scan {
    pub(crate) fn new(salt: Option<u64>, keys: Keys) -> Scan {
        let (rises, is_newest, floors) = (true, false, BTreeMap::new());
        Scan { salt, end: FIRST_GROUP, limit: u64::MAX, rises, is_newest, floors, keys }
    }

    /// Reads everything; notes extent and records in `segment`, and in `readable` those that are
    /// intact.
    pub(crate) fn run<F: DiskFile>(
        self,
        file: &F,
        length: u64,
        segment: &mut Segment,
        readable: &mut BTreeMap<PartitionId, LiveSet>,
    ) -> io::Result<Scanned> {
        let mut scanned = Scanned::default();
        let limit = self.limit.min(length);
        let mut window = Window::with_keys(file, SCAN_STEP_BYTES, limit, &self.keys);
        let Some(salt) = self.salt.map_or_else(|| newest_salt(&mut window), |salt| Ok(Some(salt)))? else {
            if FIRST_GROUP < self.end {
                scanned.damaged.push((None, FIRST_GROUP, DamageKind::Group));
            }
            return Ok(scanned);
        };
        segment.header.salt = salt;
        // Of a rebuilt group it may be made up.
        scanned.previous =
            window.header(FIRST_GROUP)?.filter(|header| header.salt == salt).map(|header| header.previous);
        let (mut offset, mut last, mut gave_up) = (FIRST_GROUP, GroupNumber(0), false);
        while offset < limit {
            let head = window.head(salt, offset)?.filter(|head| !self.rises || last < head.header.number);
            let Some(head) = head else {
                let after = if self.rises { last } else { GroupNumber(0) };
                let next = window.search(Some(salt), offset + 1, after)?;
                let proven = offset < self.end || !self.is_newest || window.was_synced(salt, offset, last)?;
                if next.is_none() && self.end <= offset || !proven {
                    break;
                }
                scanned.damaged.push((None, offset, DamageKind::Group));
                // Data here was written in this life of the file: a later group proves it.
                let rebuilt =
                    rebuild(&mut window, salt, offset, last)?.filter(|head| self.follows(head, segment));
                if let Some(head) = rebuilt {
                    note(&mut window, &head, segment, readable, &mut scanned)?;
                    (offset, last) = (head.end(), head.header.number);
                    scanned.rebuilt.insert(head.offset, head);
                } else {
                    (offset, gave_up) = (next.unwrap_or(limit), next.is_none());
                }
                continue;
            };
            if self.is_void(&head) || self.is_torn(&mut window, salt, &head)? {
                break;
            }
            note(&mut window, &head, segment, readable, &mut scanned)?;
            (offset, last) = (head.end(), head.header.number);
        }
        if offset < self.end && !gave_up {
            scanned.damaged.push((None, offset, DamageKind::Group));
        } else if self.is_newest && window.resembles_group(salt, offset)? {
            scanned.torn = Some(offset);
        }
        segment.end = segment.end.max(scanned.last.map_or(FIRST_GROUP, |(end, _)| end));
        segment.header.capacity_bytes = segment.header.capacity_bytes.max(segment.end);
        Ok(scanned)
    }

    /// Whether the records of a rebuilt group are such as come after those in the segment.
    fn follows(&self, head: &GroupHead, segment: &Segment) -> bool {
        let rises = |entry: &crate::reading::scan::RecordEntry| {
            let range = segment.ranges.get(&entry.header.partition);
            range.is_none_or(|range| range.last < entry.header.position)
        };
        head.end() <= self.limit && !self.is_void(head) && (!self.rises || head.records.iter().all(rises))
    }

    /// Whether a newer segment has the same positions again: then this group failed, and was never
    /// confirmed.
    fn is_void(&self, head: &GroupHead) -> bool {
        head.records.iter().any(|entry| {
            self.floors.get(&entry.header.partition).is_some_and(|floor| *floor <= entry.header.position)
        })
    }

    /// Whether a group that is not whole may never have been confirmed.
    fn is_torn<F: DiskFile>(
        &self,
        window: &mut Window<'_, F>,
        salt: u64,
        head: &GroupHead,
    ) -> io::Result<bool> {
        Ok(self.is_newest
            && self.end <= head.offset
            && !window.is_whole(head)?
            && !window.was_synced(salt, head.offset, head.header.number)?)
    }
}

fn note<F: DiskFile>(
    window: &mut Window<'_, F>,
    head: &GroupHead,
    segment: &mut Segment,
    readable: &mut BTreeMap<PartitionId, LiveSet>,
    scanned: &mut Scanned,
) -> io::Result<()> {
    for entry in &head.records {
        let (partition, position) = (entry.header.partition, entry.header.position);
        scanned.firsts.entry(partition).or_insert(position);
        if segment.ranges.get(&partition).is_none_or(|range| range.last < position) {
            segment.add(partition, position, entry.stored(), head.offset, head.header.number);
        }
        let damage = window.payload(entry)?.err();
        if let Some(DamageKind::KeyUnknown { key, .. }) = damage {
            scanned.key_unknown = Some(key);
        } else if let Some(kind) = damage {
            scanned.damaged.push((Some(partition), entry.payload_offset, kind));
        } else if let set = readable.entry(partition).or_default()
            && !set.contains(position)
        {
            set.add(position, 0..1);
        }
    }
    scanned.groups.push(head.offset);
    scanned.last = Some((head.end(), head.header.number));
    Ok(())
}

/// The salt of the group with the highest number: that of the file's last life, as each life begins
/// at the front.
fn newest_salt<F: DiskFile>(window: &mut Window<'_, F>) -> io::Result<Option<u64>> {
    let (mut newest, mut offset) = (None, FIRST_GROUP);
    while let Some((at, salt, number)) = window.next_header(offset)? {
        if newest.is_none_or(|(highest, _)| highest < number) {
            newest = Some((number, salt));
        }
        offset = at + 1;
    }
    Ok(newest.map(|(_, salt)| salt))
}
