//! Counters of one route. They are shared by all cores and by each later version of the route of
//! this name.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of the messages of one route.
#[derive(Debug, Default)]
pub struct RouteCounters {
    matched: AtomicU64,
    unmatched: AtomicU64,
    dead_lettered: AtomicU64,
    cut: AtomicU64,
    /// Rises with each message that goes to one of several targets in turn.
    turn: AtomicU64,
    /// By target, those of `otherwise` after the others, and last those that messages named.
    targets: Box<[AtomicU64]>,
}

/// The figures of a route at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteFigures {
    /// Messages that it sent on.
    pub matched: u64,
    /// Messages that its selector, or none of its targets, matched.
    pub unmatched: u64,
    /// Messages that it could not send on: they went to its dead-letter address, or stayed.
    pub dead_lettered: u64,
    /// Messages that had passed too many routes to take this one too.
    pub cut: u64,
    /// Copies by target, in the order of the rule; last those for recipients that messages named.
    pub targets: Vec<u64>,
}

impl RouteCounters {
    pub(super) fn new(targets: usize) -> RouteCounters {
        let targets = std::iter::repeat_with(AtomicU64::default).take(targets + 1).collect();
        RouteCounters { targets, ..RouteCounters::default() }
    }

    pub(super) fn note_matched(&self) {
        self.matched.fetch_add(1, Relaxed);
    }

    pub(super) fn note_unmatched(&self) {
        self.unmatched.fetch_add(1, Relaxed);
    }

    pub(super) fn note_dead_lettered(&self) {
        self.dead_lettered.fetch_add(1, Relaxed);
    }

    pub(super) fn note_cut(&self) {
        self.cut.fetch_add(1, Relaxed);
    }

    /// One more copy for this target; for a recipient that the message named if there is none of
    /// this number.
    pub(super) fn note_target(&self, target: Option<u32>) {
        let place = target.map_or(self.targets.len() - 1, |target| target as usize);
        if let Some(count) = self.targets.get(place) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Whose turn it is among this number.
    pub(super) fn turn(&self, of: usize) -> usize {
        let turn = self.turn.fetch_add(1, Relaxed);
        usize::try_from(turn % (of.max(1) as u64)).unwrap_or(0)
    }

    /// The figures now.
    pub fn figures(&self) -> RouteFigures {
        RouteFigures {
            matched: self.matched.load(Relaxed),
            unmatched: self.unmatched.load(Relaxed),
            dead_lettered: self.dead_lettered.load(Relaxed),
            cut: self.cut.load(Relaxed),
            targets: self.targets.iter().map(|count| count.load(Relaxed)).collect(),
        }
    }

    /// Whether it has places for as many targets.
    pub(super) fn has_places_for(&self, targets: usize) -> bool {
        self.targets.len() == targets + 1
    }
}
