//! How long a leader's writes take until a majority has synced them.
//!
//! ```text
//! proposed ──── local write and sync ────▶ synced here ──── network, sync of followers ────▶ committed
//! └──────────────────────────────── total ────────────────────────────────────────────────┘
//!                                          └─────────────────── majority ─────────────────┘
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use postroad_cluster::{Index, Role, Status};

use crate::runtime::durations::Durations;

/// Writes that are timed at once; further ones are not timed, as the leader proposes no more than a
/// few.
const PENDING_MAX: usize = 256;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct CommitTimes {
    pending: VecDeque<Pending>,
    latency: CommitLatency,
}

/// The durations so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitLatency {
    /// From the proposal to the commit.
    pub total: Durations,
    /// From the local sync to the commit.
    pub majority: Durations,
}

#[derive(Debug)]
struct Pending {
    last: Index,
    proposed_at: Instant,
    synced_at: Instant,
}

impl CommitTimes {
    /// A write of this node is synced here, and the end of its log.
    pub fn synced(&mut self, group: &Status, proposed_at: Instant, synced_at: Instant) {
        let last = group.last;
        if self.pending.back().is_some_and(|pending| last <= pending.last) {
            return;
        }
        if self.pending.len() < PENDING_MAX {
            self.pending.push_back(Pending { last, proposed_at, synced_at });
        }
        self.look(group, synced_at);
    }

    /// Counts writes that are committed now. Those of a leader that was deposed have an unknown
    /// end.
    pub fn look(&mut self, group: &Status, now: Instant) {
        if group.role != Role::Leader {
            return self.pending.clear();
        }
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.last <= group.committed) {
            let since = |at: Instant| -> Duration { now.saturating_duration_since(at) };
            self.latency.total.add(since(pending.proposed_at));
            self.latency.majority.add(since(pending.synced_at));
        }
    }

    /// The durations so far.
    pub fn latency(&self) -> CommitLatency {
        self.latency.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_cluster::Term;

    fn status(role: Role, last: u64, committed: u64) -> Status {
        let (last, committed) = (Index(last), Index(committed));
        Status { role, term: Term(1), last, durable: last, committed }
    }

    #[test]
    fn a_commit_is_timed_from_its_proposal_and_from_its_sync() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut times = CommitTimes::default();
        times.synced(&status(Role::Leader, 5, 4), begin, begin + ms(2));
        times.synced(&status(Role::Leader, 6, 4), begin + ms(2), begin + ms(3));
        times.look(&status(Role::Leader, 6, 4), begin + ms(4));
        assert_eq!(times.latency(), CommitLatency::default());
        times.look(&status(Role::Leader, 6, 5), begin + ms(10));
        let CommitLatency { total, majority } = times.latency();
        assert_eq!((total.total, majority.total), (ms(10), ms(8)));
        times.look(&status(Role::Leader, 6, 6), begin + ms(12));
        let CommitLatency { total, majority } = times.latency();
        assert_eq!((total.total, majority.total), (ms(20), ms(17)));
    }

    #[test]
    fn writes_of_a_deposed_leader_and_those_beyond_the_bound_are_not_timed() {
        let begin = Instant::now();
        let mut times = CommitTimes::default();
        for last in 1..=2 * PENDING_MAX as u64 {
            times.synced(&status(Role::Leader, last, 0), begin, begin);
        }
        assert_eq!(times.pending.len(), PENDING_MAX);
        times.look(&status(Role::Follower { leader: None }, 600, 600), begin);
        times.look(&status(Role::Leader, 600, 600), begin);
        assert_eq!(times.latency(), CommitLatency::default());
    }
}
