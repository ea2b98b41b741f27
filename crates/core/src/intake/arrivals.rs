//! Arrivals over links: the entries of other brokers' queues that are in the log here.
//!
//! A broker numbers the entries of each of its queues, and sends that number along when it forwards
//! one. If it does not hear that the message arrived, it forwards the entry again, perhaps after
//! both brokers have crashed. The numbers of one queue mostly follow one another, so they are kept
//! as runs: a queue that is forwarded as a whole is one run, however long. At the bound the lowest
//! runs of a queue are forgotten, then the queues not heard of for longest.
//!
//! Never here: how links name queues. The same name of the same user is one queue.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxBuildHasher;

use crate::intake::audit::Producer;

/// Runs kept of one queue. A queue of which only every second entry is forwarded has this many
/// entries in doubt at most.
pub const RUNS_MAX: usize = 8192;

/// Runs of all queues of a generation together: some 2 MiB.
const GENERATION_RUNS_MAX: usize = 32_768;

/// Numbers of one queue: the first and the last of each run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds one number.
    fn note(&mut self, number: u64) {
        if self.knows(number) {
            return;
        }
        let before = self.0.range(..number).next_back().map(|(first, last)| (*first, *last));
        let joined = before.filter(|(_, last)| last.checked_add(1) == Some(number));
        let first = joined.map_or(number, |(first, _)| first);
        let next = number.checked_add(1).and_then(|next| self.0.remove(&next));
        self.0.insert(first, next.unwrap_or(number));
        if RUNS_MAX < self.0.len() {
            self.0.pop_first();
        }
    }

    /// Adds all of these.
    fn merge(&mut self, other: &Runs) {
        other.iter().for_each(|(first, last)| self.add(first, last));
        while RUNS_MAX < self.0.len() {
            self.0.pop_first();
        }
    }

    /// Adds one run: those that overlap or touch it become one with it.
    fn add(&mut self, mut first: u64, mut last: u64) {
        while let Some((from, to)) =
            self.0.range(..=last.saturating_add(1)).next_back().map(|(from, to)| (*from, *to))
            && first <= to.saturating_add(1)
        {
            self.0.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        self.0.insert(first, last);
    }

    fn knows(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    /// The first and the last of each run, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// These runs.
    pub fn restore(runs: impl IntoIterator<Item = (u64, u64)>) -> Runs {
        Runs(runs.into_iter().collect())
    }
}

/// A queue of another broker.
type Known = HashMap<Producer, Runs, FxBuildHasher>;

/// One generation, as a snapshot has it.
pub type Generation = Vec<(Producer, Runs)>;

/// See the head of this file. Two generations, as in the audit.
#[derive(Default)]
pub struct Arrivals {
    young: Known,
    young_runs: usize,
    old: Known,
}

impl Arrivals {
    /// The entry is in the log. Of at most this many queues the numbers are kept.
    pub fn note(&mut self, queue: Producer, number: u64, queues_max: usize) {
        let generation = (queues_max / 2).max(1);
        if !self.young.contains_key(&queue) {
            let known = self.old.remove(&queue).unwrap_or_default();
            if generation <= self.young.len() || GENERATION_RUNS_MAX <= self.young_runs {
                self.old = std::mem::take(&mut self.young);
                self.young_runs = 0;
            }
            self.young_runs += known.0.len();
            self.young.insert(queue, known);
        }
        if let Some(known) = self.young.get_mut(&queue) {
            let before = known.0.len();
            known.note(number);
            self.young_runs = self.young_runs + known.0.len() - before;
        }
    }

    /// These entries count as those that came here; of queues that are new here as far as there is
    /// a place.
    pub fn remember(&mut self, known: Vec<(Producer, Runs)>, queues_max: usize) {
        let generation = (queues_max / 2).max(1);
        for (queue, runs) in known {
            if let Some(own) = self.old.get_mut(&queue) {
                own.merge(&runs);
            } else if let Some(own) = self.young.get_mut(&queue) {
                let before = own.0.len();
                own.merge(&runs);
                self.young_runs = self.young_runs + own.0.len() - before;
            } else if self.young.len() < generation && self.young_runs < GENERATION_RUNS_MAX {
                self.young_runs += runs.0.len();
                self.young.insert(queue, runs);
            }
        }
    }

    /// Whether the entry is in the log.
    pub fn knows(&self, queue: Producer, number: u64) -> bool {
        let known = self.young.get(&queue).or_else(|| self.old.get(&queue));
        known.is_some_and(|known| known.knows(number))
    }

    /// Queues with their numbers: those heard of lately, and the others. Each in order.
    pub fn generations(&self) -> [Generation; 2] {
        [&self.young, &self.old].map(|known| {
            let mut all: Vec<_> = known.iter().map(|(queue, runs)| (*queue, runs.clone())).collect();
            all.sort_unstable_by_key(|(queue, _)| *queue);
            all
        })
    }

    /// Arrivals that know these.
    pub fn restore([young, old]: [Generation; 2]) -> Arrivals {
        let young_runs = young.iter().map(|(_, runs)| runs.0.len()).sum();
        Arrivals { young: young.into_iter().collect(), young_runs, old: old.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: u128) -> Producer {
        Producer { user: None, id }
    }

    #[test]
    fn numbers_that_follow_one_another_are_one_run() {
        for (case, numbers, want) in [
            ("in order", &[1, 2, 3][..], &[(1, 3)][..]),
            ("a gap that is closed", &[1, 3, 2], &[(1, 3)]),
            ("twice", &[5, 5], &[(5, 5)]),
            ("downwards", &[3, 2, 1], &[(1, 3)]),
            ("apart", &[7, 1, 4], &[(1, 1), (4, 4), (7, 7)]),
            ("the end", &[u64::MAX, u64::MAX - 1, 0], &[(0, 0), (u64::MAX - 1, u64::MAX)]),
        ] {
            let mut runs = Runs::default();
            numbers.iter().for_each(|number| runs.note(*number));
            assert_eq!(runs.iter().collect::<Vec<_>>(), want, "case: {case}");
            assert!(numbers.iter().all(|number| runs.knows(*number)), "case: {case}");
        }
        let runs = Runs::restore([(2, 4)]);
        assert_eq!([1, 2, 4, 5].map(|number| runs.knows(number)), [false, true, true, false]);
    }

    #[test]
    fn the_lowest_runs_are_forgotten_at_the_bound() {
        let mut runs = Runs::default();
        let numbers = || (0..=RUNS_MAX as u64).map(|number| 2 * number);
        numbers().for_each(|number| runs.note(number));
        assert_eq!(numbers().find(|number| runs.knows(*number)), Some(2));
    }

    #[test]
    fn queues_not_heard_of_for_longest_are_forgotten() {
        let mut arrivals = Arrivals::default();
        for id in 0..1000 {
            arrivals.note(queue(id), 1, 10);
            arrivals.note(queue(0), 1, 10);
            assert!(arrivals.young.len() + arrivals.old.len() <= 10);
        }
        assert!([0, 999, 996].iter().all(|id| arrivals.knows(queue(*id), 1)));
        assert!(!arrivals.knows(queue(1), 1) && !arrivals.knows(queue(999), 2));
        assert_eq!(Arrivals::restore(arrivals.generations()).generations(), arrivals.generations());
    }

    #[test]
    fn runs_of_all_queues_together_are_bounded() {
        let mut arrivals = Arrivals::default();
        for id in 0..20 {
            (0..RUNS_MAX as u64).for_each(|number| arrivals.note(queue(id), 2 * number, 1000));
        }
        let kept = arrivals.generations().iter().flatten().map(|(_, runs)| runs.0.len()).sum::<usize>();
        assert!(kept <= 2 * (GENERATION_RUNS_MAX + RUNS_MAX), "{kept}");
        assert!(arrivals.knows(queue(19), 0));
    }
}
