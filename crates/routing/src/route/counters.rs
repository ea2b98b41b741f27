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
    targets: Box<[TargetCounters]>,
}

/// Counters of the copies for one target.
#[derive(Debug, Default)]
struct TargetCounters {
    copies: AtomicU64,
    retried: AtomicU64,
    refused: AtomicU64,
}

/// The figures of one target at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTargetFigures {
    /// Copies sent to it.
    pub copies: u64,
    /// Times that it refused a copy, which is sent to it again later.
    pub retried: u64,
    /// Copies that it refused for the last time: they went to the dead letters.
    pub refused: u64,
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
    /// By target, in the order of the rule; last those for recipients that messages named.
    pub targets: Vec<RouteTargetFigures>,
}

impl RouteCounters {
    pub(super) fn new(targets: usize) -> RouteCounters {
        let targets = std::iter::repeat_with(TargetCounters::default).take(targets + 1).collect();
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
        self.count_at(target, |counts| &counts.copies);
    }

    /// See [`RouteTargetFigures::retried`].
    pub(super) fn note_retried(&self, target: Option<u32>) {
        self.count_at(target, |counts| &counts.retried);
    }

    /// See [`RouteTargetFigures::refused`].
    pub(super) fn note_refused(&self, target: Option<u32>) {
        self.count_at(target, |counts| &counts.refused);
        self.note_dead_lettered();
    }

    fn count_at(&self, target: Option<u32>, counter: fn(&TargetCounters) -> &AtomicU64) {
        let place = target.map_or(self.targets.len() - 1, |target| target as usize);
        if let Some(counts) = self.targets.get(place) {
            counter(counts).fetch_add(1, Relaxed);
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
            targets: self.targets.iter().map(TargetCounters::figures).collect(),
        }
    }

    /// Whether it has places for as many targets.
    pub(super) fn has_places_for(&self, targets: usize) -> bool {
        self.targets.len() == targets + 1
    }
}

impl TargetCounters {
    fn figures(&self) -> RouteTargetFigures {
        RouteTargetFigures {
            copies: self.copies.load(Relaxed),
            retried: self.retried.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}
