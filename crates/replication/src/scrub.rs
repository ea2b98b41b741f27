//! Damage that is looked for while the broker runs: sealed segments are read in turn, and each damaged place is told once.
//!
//! Never here: when; whoever drives the writer has a clock.

use postroad_journal::{Damage, Disk, Journal, SegmentNumber, Walk};
use std::collections::{BTreeSet, VecDeque};

/// Damaged places told one by one; a disk with more is beyond reading them.
const KNOWN_MAX: usize = 10_000;

/// Where the search is.
#[derive(Default)]
pub(crate) struct Scrub {
    busy: bool,
    last: Option<SegmentNumber>,
    /// Places found, and not told yet.
    found: VecDeque<String>,
    /// All of them, by what they say.
    known: BTreeSet<String>,
}

impl Scrub {
    /// The walk through the next sealed segment, unless one is under way.
    pub(crate) fn next_walk<D: Disk>(&mut self, journal: &Journal<D>) -> Option<Walk<D::File>> {
        if self.busy {
            return None;
        }
        let next = journal.next_sealed(self.last).or_else(|| journal.next_sealed(None))?;
        let walk = journal.walk(next).ok().flatten();
        self.busy = walk.is_some();
        walk
    }

    /// What came of it.
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
        let places = match found {
            Ok(places) => places.iter().map(Damage::to_string).collect(),
            Err(reason) => vec![reason],
        };
        places.into_iter().for_each(|place| self.add(place));
    }

    /// A damaged place, however it was found.
    pub(crate) fn add(&mut self, place: String) {
        if self.known.len() < KNOWN_MAX && self.known.insert(place.clone()) {
            self.found.push_back(place);
        }
    }

    /// The next place that was not told yet.
    pub(crate) fn next_found(&mut self) -> Option<String> {
        self.found.pop_front()
    }

    /// How many places are known.
    pub(crate) fn known(&self) -> usize {
        self.known.len()
    }
}
