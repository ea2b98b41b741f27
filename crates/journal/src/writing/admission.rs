//! Whether groups have room, asked before they are written: a replica must not promise to store one
//! that its disk has no space for.

use crate::disks::disk::Disk;
use crate::layout::cipher::PAYLOAD_EXTRA_BYTES;
use crate::layout::format::{
    FIRST_GROUP, GROUP_HEADER_BYTES, PAYLOAD_ALIGN, RECORD_HEADER_BYTES, SECTOR_BYTES,
};
use crate::writing::journal::Journal;
use crate::writing::room::RESERVE_SHARE;

/// The space that a group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    /// Its bytes on the disk, at most.
    pub bytes: u64,
    /// Whether it may use the reserve: see [`crate::Record::reserve`].
    pub reserve: bool,
}

impl GroupSize {
    /// Of a group with this number of records, whose payloads have these bytes together, encrypted
    /// or not.
    pub fn at_most(records: u64, payload_bytes: u64, reserve: bool) -> GroupSize {
        let of_record = RECORD_HEADER_BYTES as u64 + PAYLOAD_EXTRA_BYTES + PAYLOAD_ALIGN;
        let table = records.saturating_mul(of_record).saturating_add(GROUP_HEADER_BYTES as u64);
        let bytes = table.saturating_add(payload_bytes).saturating_add(SECTOR_BYTES);
        GroupSize { bytes: bytes / SECTOR_BYTES * SECTOR_BYTES, reserve }
    }
}

/// Whether all these groups have room, one after the other, in the current segment and in the
/// spare one.
pub fn holds<D: Disk>(journal: &Journal<D>, groups: impl IntoIterator<Item = GroupSize>) -> bool {
    let capacity = journal.current.header.capacity_bytes;
    let mut free = if journal.must_leave() { 0 } else { capacity.saturating_sub(journal.current.end) };
    let mut spare = journal.room.spare.as_ref().map(|spare| spare.header.capacity_bytes - FIRST_GROUP);
    let kept = journal.options.segment_bytes / RESERVE_SHARE;
    for GroupSize { bytes, reserve } in groups {
        let kept = if reserve || spare.is_some() { 0 } else { kept };
        if bytes.saturating_add(kept) > free {
            match spare.take() {
                Some(capacity) if bytes <= capacity => free = capacity,
                _ => return false,
            }
        }
        free -= bytes;
    }
    true
}

/// Makes sure that this group has room after those that were promised before and are not
/// written yet; by a segment that is made on the spot if need be. After an attempt that failed
/// it makes none: [`Journal::wants_segment`] orders the next one.
pub fn secures<D: Disk>(journal: &mut Journal<D>, promised: &[GroupSize], group: GroupSize) -> bool {
    let with_it = || promised.iter().copied().chain([group]);
    if holds(journal, with_it()) {
        return true;
    }
    if journal.room.refused || journal.needs_reopen() {
        return false;
    }
    if promised.is_empty() {
        return journal.make_room(group.bytes, group.reserve).is_ok();
    }
    if journal.room.spare.is_none() {
        journal.room.spare = journal.take_segment(journal.options.segment_bytes).ok();
    }
    holds(journal, with_it())
}

/// Whether a segment whose messages are all consumed stays for other replicas alone: see
/// [`Journal::keep_from`].
pub fn keeps_for_others<D: Disk>(journal: &Journal<D>) -> bool {
    let current = journal.current.header.number;
    let waits = |segment: &&crate::writing::segment::Segment| {
        segment.header.number != current && segment.live() == 0 && journal.segments.keeps(segment)
    };
    journal.segments.iter().any(|segment| waits(&segment))
}

/// Whether few further segments fit on the disk: see [`Journal::take_stock`].
pub fn is_short_of_space<D: Disk>(journal: &Journal<D>) -> bool {
    journal.room.short
}

#[cfg(test)]
mod tests {
    use postroad_model::{PartitionId, Position};

    use super::*;
    use crate::{Options, Payload, Record, SimulatedDisk};

    /// SplitMix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    #[test]
    fn groups_that_were_promised_are_written_whatever_the_disk_has_left() {
        let (mut written, mut refused) = (0, 0);
        for seed in 0..60 {
            let disk = SimulatedDisk::new(seed);
            let options =
                Options { segment_bytes: 16 << 10, checkpoint_bytes: 1 << 30, ..Options::default() };
            let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
            let (mut random, mut position) = (seed, Position::FIRST);
            disk.set_capacity(Some(disk.used_bytes() + next(&mut random) % (100 << 10)));
            for _ in 0..40 {
                if next(&mut random).is_multiple_of(3)
                    && let Some(request) = journal.wants_segment()
                {
                    journal.provide(request.prepare(&disk, &mut ()));
                }
                let (mut promised, mut groups) = (Vec::new(), Vec::new());
                for _ in 0..1 + next(&mut random) % 4 {
                    let reserve = next(&mut random).is_multiple_of(2);
                    let payload = vec![7; (next(&mut random) % 5000) as usize];
                    let size = GroupSize::at_most(1, payload.len() as u64, reserve);
                    if !secures(&mut journal, &promised, size) {
                        refused += 1;
                        continue;
                    }
                    promised.push(size);
                    let payload = Payload::from(bytes::Bytes::from(payload));
                    let partition = PartitionId(0);
                    groups.push(Record { partition, position, payload, reserve, key: None });
                    position = position.next();
                }
                for group in groups {
                    journal.append(&[group]).unwrap();
                    written += 1;
                }
            }
        }
        assert!(written > 500 && refused > 500, "{written} written, {refused} refused");
    }
}
