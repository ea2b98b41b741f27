//! The ledger: messages that came = messages that are there + messages that left, in each queue and
//! in all.
//!
//! Each round over all queues checks it. A difference is an error of the broker: it raises an alarm
//! and has a line in the log.

use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::Arc;

use crate::figures::WatchedQueue;

/// Queues with a difference that are listed.
const LISTED_MAX: usize = 100;

/// The counts of several queues together. All count from the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSums {
    /// Queues.
    pub queues: u64,
    /// Messages that were there at the start, and that came since.
    pub sent: u64,
    /// Messages that wait for a consumer.
    pub held: u64,
    /// Messages that a consumer has, that rest until their redelivery, or that are leaving.
    pub in_flight: u64,
    /// Messages that consumers accepted.
    pub consumed: u64,
    /// Messages whose time was over.
    pub expired: u64,
    /// Messages that became dead letters.
    pub dead_lettered: u64,
    /// Messages dropped at limits, or replaced by a newer one of the same value.
    pub dropped: u64,
    /// Messages that moved to another store with their queue.
    pub moved: u64,
    /// Messages by which counts and content differ, each way.
    pub difference: u64,
    /// Queues with a difference.
    pub differing: u64,
}

impl AddAssign for LedgerSums {
    fn add_assign(&mut self, more: LedgerSums) {
        self.queues += more.queues;
        self.sent += more.sent;
        self.held += more.held;
        self.in_flight += more.in_flight;
        self.consumed += more.consumed;
        self.expired += more.expired;
        self.dead_lettered += more.dead_lettered;
        self.dropped += more.dropped;
        self.moved += more.moved;
        self.difference = self.difference.saturating_add(more.difference);
        self.differing += more.differing;
    }
}

/// The last complete check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// When it ended; `None` before the first.
    pub checked_ms: Option<u64>,
    /// Checks so far.
    pub checks: u64,
    /// All lasting queues together.
    pub sums: LedgerSums,
    /// Some queues with a difference, by name.
    pub differing: Vec<(Arc<str>, i64)>,
}

/// A check on its way.
#[derive(Debug, Default)]
pub struct Check {
    sums: LedgerSums,
    differing: Vec<(Arc<str>, i64)>,
}

impl Check {
    /// Adds the queues of one page.
    pub fn add(&mut self, sums: LedgerSums, queues: &[WatchedQueue]) {
        self.sums += sums;
        let room = LISTED_MAX.saturating_sub(self.differing.len());
        let differing = queues.iter().filter(|queue| queue.difference != 0).take(room);
        self.differing.extend(differing.map(|queue| (queue.subject().into(), queue.difference)));
    }

    /// Ends it. Queues that differ now and did not at the last check are logged.
    pub fn end(self, ledger: &mut Ledger, now_ms: u64) {
        let known: BTreeSet<&Arc<str>> = ledger.differing.iter().map(|(queue, _)| queue).collect();
        for (queue, difference) in self.differing.iter().filter(|(queue, _)| !known.contains(queue)) {
            tracing::error!(%queue, difference, "the ledger differs: messages that came are neither there nor counted as gone");
        }
        let Check { sums, differing } = self;
        *ledger = Ledger { checked_ms: Some(now_ms), checks: ledger.checks + 1, sums, differing };
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Destination;

    use super::*;

    fn queue(name: &str, difference: i64) -> WatchedQueue {
        WatchedQueue {
            partition: 0,
            queue: 0,
            destination: Destination::queue(name),
            subscription: None,
            messages: 0,
            consumers: 0,
            dead_lettered: 0,
            oldest: None,
            next: 0,
            difference,
        }
    }

    #[test]
    fn a_check_sums_pages_and_lists_some_queues_that_differ() {
        let mut ledger = Ledger::default();
        let sums = LedgerSums { queues: 500, sent: 7, difference: 3, differing: 2, ..LedgerSums::default() };
        let mut check = Check::default();
        check.add(sums, &[queue("a", 0), queue("b", -1)]);
        let many: Vec<WatchedQueue> = (0..LISTED_MAX).map(|number| queue(&format!("c{number}"), 2)).collect();
        check.add(sums, &many);
        check.end(&mut ledger, 9);
        assert_eq!((ledger.checked_ms, ledger.checks), (Some(9), 1));
        assert_eq!((ledger.sums.queues, ledger.sums.sent, ledger.sums.difference), (1000, 14, 6));
        assert_eq!(ledger.differing.len(), LISTED_MAX);
        assert_eq!(ledger.differing[0], ("queue://b".into(), -1));
        Check::default().end(&mut ledger, 10);
        assert_eq!((ledger.checks, ledger.sums, ledger.differing.len()), (2, LedgerSums::default(), 0));
    }
}
