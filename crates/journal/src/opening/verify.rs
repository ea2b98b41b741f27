//! Verifying the groups after a checkpoint: durable, torn or damaged.

use crate::disks::disk::DiskFile;
use crate::error::{Damage, DamageKind, OpenError};
use crate::keys::Keys;
use crate::layout::checkpoint_bytes::{Content, Place};
use crate::layout::format::{GroupEnd, GroupNumber, SegmentNumber};
use crate::opening::chain::{Link, SCAN_STEP_BYTES, Stale};
use crate::opening::recovered::{LostSegment, Part, TornTail};
use crate::opening::states::StoredState;
use crate::reading::scan::{GroupHead, Window};
use crate::retaining::retention::Segments;
use postroad_model::{PartitionId, Position};
use std::collections::BTreeMap;

/// The result so far, group by group.
#[derive(Debug, Default)]
pub(crate) struct Verified<F> {
    pub segments: Segments,
    /// Last durable position of each partition.
    pub positions: BTreeMap<PartitionId, Position>,
    /// Last position in the checkpoint.
    pub applied: BTreeMap<PartitionId, Position>,
    pub damaged: BTreeMap<PartitionId, Damage>,
    pub lost: Vec<LostSegment>,
    pub torn: Option<TornTail>,
    pub parts: Vec<Part<F>>,
    /// Records in them.
    pub records: u64,
    /// End of the last valid group.
    pub last: GroupEnd,
    /// Groups after the end that are void.
    pub stale: Vec<Stale<F>>,
    /// Up to here, in the segment of the last group that was read, everything was synced when that
    /// was written.
    pub settled: Option<u64>,
    /// Groups up to this one are in `segments` already.
    indexed: GroupNumber,
    /// The first group read must have this number, unless `last` is the group before it.
    first: Option<GroupNumber>,
    /// Last position read, of each partition.
    seen: BTreeMap<PartitionId, Position>,
    keys: Keys,
}

/// Records of a group that differ from the committed ones, by their place in it.
type Bad = BTreeMap<usize, DamageKind>;

impl<F: DiskFile> Verified<F> {
    /// Before the first group after a checkpoint, whose segments are in `segments`.
    pub(crate) fn new(
        segments: Segments,
        checkpoint: Option<&Content<StoredState>>,
        keys: Keys,
    ) -> Verified<F> {
        let mut verified = Verified {
            segments,
            positions: BTreeMap::new(),
            applied: BTreeMap::new(),
            damaged: BTreeMap::new(),
            lost: Vec::new(),
            torn: None,
            parts: Vec::new(),
            records: 0,
            last: GroupEnd::default(),
            stale: Vec::new(),
            settled: None,
            indexed: GroupNumber::default(),
            first: None,
            seen: BTreeMap::new(),
            keys,
        };
        if let Some(content) = checkpoint {
            verified.last = content.end;
            verified.indexed = content.end.number;
            verified.first = content.start.group;
            for entry in &content.partitions {
                verified.positions.insert(entry.partition, entry.last);
                verified.applied.extend(entry.position.map(|position| (entry.partition, position)));
            }
        }
        verified
    }

    /// Reads all groups of one segment, from `start` if it is the one that the checkpoint names;
    /// reports the bytes read after each.
    ///
    /// # Errors
    /// [`OpenError::Damaged`]: damage before the tail that no partition can be named for.
    pub(crate) fn read(
        &mut self,
        link: Link<F>,
        start: Place,
        watch: &mut dyn FnMut(u64),
    ) -> Result<(), OpenError> {
        let (number, from, limit) = (link.header.number, link.first_offset(start), link.end_max());
        let file = link.file.clone();
        let mut window = Window::with_keys(&*file, SCAN_STEP_BYTES, limit, &self.keys);
        let failed = |source| OpenError::Io { file: link.path.clone(), source };
        let mut offset = from;
        while offset < limit {
            let head = window.head(link.header.salt, offset).map_err(failed)?;
            let Some(head) = head.filter(|head| self.continues(number, head)) else { break };
            let mut bad = Bad::new();
            for (index, entry) in head.records.iter().enumerate() {
                bad.extend(window.check(entry).map_err(failed)?.map(|kind| (index, kind)));
            }
            // An altered group was complete.
            let may_be_torn = bad.values().any(|kind| matches!(kind, DamageKind::Payload { .. }));
            if may_be_torn && link.pin.is_none() && self.is_last(&mut window, &link, &head)? {
                break;
            }
            self.note(&link, &head, &bad);
            offset = head.end();
            watch(offset - from);
        }
        self.finish(&link, &mut window, offset)?;
        let Link { file, path, header, .. } = link;
        self.parts.push(Part { file, path, header, start: from, end: offset });
        Ok(())
    }

    /// Whether a group follows the one before it.
    fn continues(&self, segment: SegmentNumber, head: &GroupHead) -> bool {
        let header = &head.header;
        if let Some(first) = self.first {
            return header.number == first;
        }
        let dense = header.number == self.last.number.next();
        header.previous == self.last
            && (dense || (self.last.segment != segment && self.last.number < header.number))
    }

    /// Whether no later group proves that this one was synced, so that it may be torn.
    fn is_last(
        &self,
        window: &mut Window<'_, F>,
        link: &Link<F>,
        head: &GroupHead,
    ) -> Result<bool, OpenError> {
        let later = window.was_synced(link.header.salt, head.offset, head.header.number);
        Ok(!later.map_err(|source| OpenError::Io { file: link.path.clone(), source })?)
    }

    /// Decides the meaning of the end of a segment's groups at `offset`.
    fn finish(&mut self, link: &Link<F>, window: &mut Window<'_, F>, offset: u64) -> Result<(), OpenError> {
        let failed = |source| OpenError::Io { file: link.path.clone(), source };
        let damaged =
            |kind| OpenError::Damaged(Damage { partition: None, file: link.path.clone(), offset, kind });
        let unread = self.first.is_some() || self.last.number < self.indexed || link.limit < offset;
        match link.pin {
            Some(pin) if pin == self.last && offset == pin.offset && self.first.is_none() => Ok(()),
            Some(_) => Err(damaged(DamageKind::Group)),
            None => {
                let (salt, last) = (link.header.salt, self.last.number);
                // Mostly there are none, and the rest of the segment is read through once.
                let stale = window.headers(salt, offset + 1, last).map_err(failed)?;
                let was_synced =
                    !stale.is_empty() && window.was_synced(salt, offset, last).map_err(failed)?;
                if unread || was_synced {
                    return Err(damaged(DamageKind::Group));
                }
                if !stale.is_empty() || window.resembles_group(salt, offset).map_err(failed)? {
                    self.torn = Some(TornTail { file: link.path.clone(), offset });
                }
                let place = |offset| Stale { file: link.file.clone(), path: link.path.clone(), offset };
                self.stale.extend(stale.into_iter().map(place));
                Ok(())
            }
        }
    }

    fn note(&mut self, link: &Link<F>, head: &GroupHead, bad: &Bad) {
        let number = head.header.number;
        self.first = None;
        self.records += head.records.len() as u64;
        self.last = GroupEnd { segment: link.header.number, offset: head.end(), number };
        self.settled = Some(head.header.synced_before(head.offset));
        let new = self.indexed < number;
        if new {
            self.segments.extend(link.header, head.end());
        }
        for (index, entry) in head.records.iter().enumerate() {
            let (partition, position) = (entry.header.partition, entry.header.position);
            self.check_position(link, head, partition, position);
            if let Some(&kind) = bad.get(&index).filter(|_| self.applied.get(&partition) < Some(&position)) {
                self.damage(link, Some(partition), entry.payload_offset, kind);
            }
            if new {
                let stored = entry.stored();
                self.segments.add(link.header.number, partition, position, stored, head.offset, number);
                self.positions.insert(partition, position);
            }
        }
    }

    fn check_position(
        &mut self,
        link: &Link<F>,
        head: &GroupHead,
        partition: PartitionId,
        position: Position,
    ) {
        let after_checkpoint =
            || self.applied.get(&partition).map_or(Position::FIRST, |applied| applied.next());
        let (expected, dense) = match self.seen.get(&partition) {
            Some(seen) => (seen.next(), position == seen.next()),
            // Reading starts at the oldest group any partition needs: this one's may be older than
            // it needs.
            None => (after_checkpoint(), position <= after_checkpoint()),
        };
        if !dense {
            self.damage(
                link,
                Some(partition),
                head.offset,
                DamageKind::Gap { expected, found: position.get() },
            );
        }
        self.seen.insert(partition, position);
    }

    /// Stops partitions whose records end before the last one that the checkpoint knows of.
    pub(crate) fn check_ends(&mut self, content: &Content<StoredState>, end: &std::path::Path) {
        for entry in &content.partitions {
            let applied = entry.position.map_or(0, Position::get);
            let seen = self.seen.get(&entry.partition).map_or(applied, |seen| applied.max(seen.get()));
            if let Some(expected) = Position::new(seen + 1).filter(|&expected| expected <= entry.last) {
                let kind = DamageKind::Gap { expected, found: 0 };
                let partition = Some(entry.partition);
                let damage = Damage { partition, file: end.to_owned(), offset: self.last.offset, kind };
                self.damaged.entry(entry.partition).or_insert(damage);
            }
        }
    }

    fn damage(&mut self, link: &Link<F>, partition: Option<PartitionId>, offset: u64, kind: DamageKind) {
        if let Some(partition) = partition {
            let damage = Damage { partition: Some(partition), file: link.path.clone(), offset, kind };
            self.damaged.entry(partition).or_insert(damage);
        }
    }
}
