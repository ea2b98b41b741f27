//! Scrubbing: sealed segments are read in turn while the broker runs, and each damaged place is
//! reported once.
//!
//! Never here: when; the driver of the writer has a clock.

use postroad_journal::{CompactionError, Damage, Disk, Journal, ReadError, SegmentNumber, Walk};
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;

/// Limit of damaged places that are reported one by one; a disk with more is beyond reading them.
const KNOWN_MAX: usize = 10_000;

/// Where the search is.
#[derive(Default)]
pub(crate) struct Scrub {
    busy: bool,
    last: Option<SegmentNumber>,
    /// Places found, and not reported yet.
    found: VecDeque<String>,
    /// The first of them.
    first: Option<String>,
    /// All of them, by file and offset: a reader of a record and a scrubber may report the same
    /// place differently.
    known: BTreeSet<(PathBuf, u64)>,
}

impl Scrub {
    /// These were reported before.
    pub(crate) fn knowing<'d>(damaged: impl Iterator<Item = &'d Damage>) -> Scrub {
        let known = damaged.map(|damage| (damage.file.clone(), damage.offset)).collect();
        Scrub { known, ..Scrub::default() }
    }

    /// The walk through the next sealed segment, unless one is under way.
    pub(crate) fn next_walk<D: Disk>(&mut self, journal: &Journal<D>) -> Option<Walk<D::File>> {
        if self.busy {
            return None;
        }
        let next = journal.next_sealed(self.last).or_else(|| journal.next_sealed(None))?;
        let walk = journal.walk(next).unwrap_or_else(|error| {
            match error {
                ReadError::Damaged(damage) => self.add(&damage),
                error => self.refused(error.to_string()),
            }
            self.last = Some(next);
            None
        });
        self.busy = walk.is_some();
        walk
    }

    /// The result.
    pub(crate) fn walked<D: Disk>(
        &mut self,
        journal: &Journal<D>,
        (number, salt): (SegmentNumber, u64),
        found: Result<Vec<Damage>, String>,
    ) {
        (self.busy, self.last) = (false, Some(number));
        if !journal.still_has(number, salt) {
            return;
        }
        match found {
            Ok(places) => places.iter().for_each(|place| self.add(place)),
            Err(reason) => self.refused(reason),
        }
    }

    /// A damaged place, however it was found.
    pub(crate) fn add(&mut self, damage: &Damage) {
        self.note((damage.file.clone(), damage.offset), damage.to_string());
    }

    /// A compaction reads all that it keeps. Returns why it failed, if it did.
    pub(crate) fn of_compaction(&mut self, failed: Option<CompactionError>) -> Option<CompactionError> {
        if let Some(CompactionError::Damaged(damage)) = &failed {
            self.add(damage);
        }
        failed
    }

    /// The system does not read it; the reason names the file.
    pub(crate) fn refused(&mut self, reason: String) {
        self.note((PathBuf::from(&reason), 0), reason);
    }

    fn note(&mut self, place: (PathBuf, u64), said: String) {
        if self.known.len() < KNOWN_MAX && self.known.insert(place) {
            self.first.get_or_insert_with(|| said.clone());
            self.found.push_back(said);
        }
    }

    /// The next place that was not reported yet.
    pub(crate) fn next_found(&mut self) -> Option<String> {
        self.found.pop_front()
    }

    /// The first place that was found since the start.
    pub(crate) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// How many places are known.
    pub(crate) fn known(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use postroad_journal::{DamageKind, Options, Payload, Record, SimulatedDisk};
    use postroad_model::{PartitionId, Position};

    #[test]
    fn it_goes_on_behind_a_segment_that_is_gone() {
        let disk = SimulatedDisk::new(8);
        let options = Options { segment_bytes: 64 << 10, ..Options::default() };
        let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
        for number in 1..=8 {
            let payload = Payload::from([Bytes::from(vec![7; 30 << 10])]);
            let (partition, position) = (PartitionId(0), Position::new(number).unwrap());
            journal.commit(&[Record { partition, position, payload, reserve: false, key: None }]).unwrap();
        }
        let gone = "0000000000000002.segment";
        disk.remove(gone).unwrap();
        let mut scrub = Scrub::default();
        let mut seen = Vec::new();
        for _ in 0..8 {
            let Some(walk) = scrub.next_walk(&journal) else { continue };
            let found = walk.run(&mut (), &mut |_| ()).map_err(|error| error.to_string());
            seen.push(walk.number().0);
            scrub.walked(&journal, (walk.number(), walk.salt()), found);
        }
        assert_eq!(seen, [1, 3, 1, 3, 1], "all that are there, again and again");
        let told: Vec<String> = std::iter::from_fn(|| scrub.next_found()).collect();
        assert_eq!(told, [format!("{gone}: damaged at byte 0: the file is missing")]);
        let (partition, file) = (Some(PartitionId(0)), PathBuf::from(gone));
        let damage = Damage { partition, file, offset: 0, kind: DamageKind::SegmentMissing };
        scrub.add(&damage);
        assert_eq!((scrub.known(), scrub.next_found()), (1, None), "a reader has found it, too");
    }
}
