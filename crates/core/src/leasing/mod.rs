//! Leases: entries that are delivered to a deadline instead of a connection.
//!
//! ```text
//!             reserve                      delete
//!   Ready ──────────────▶ Leased ──────────────────▶ Leaving ──record applied──▶ (removed)
//!     ▲                   │  ▲ │                        │
//!     │                   │  └─┘ extend                 │ not durable
//!     ├── deadline ───────┤◀────────────────────────────┘
//!     └── release ────────┘
//! ```
//! An extend or a release takes effect once the log has it. Until then, and while a delete is on
//! its way, the entry is locked (`Leaving`): its deadline waits, and so do requests by its handles.
//!
//! A lease is in the log as a `Lease` record, and in snapshots. The record is written before the
//! client is answered, but not synced for it: it outlives the process, and the machine once a later
//! group is synced. An entry without a holder that waits for its time (a delay) is kept in the same
//! way, without a lease id.
//!
//! A deadline is kept in ticks in this run, and as a time of day in the log; see
//! [`postroad_model::LeaseEnd`].

mod clear;
mod duplicates;
mod end;
mod handle;
mod options;
mod post;
mod reserve;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use postroad_model::{EntryTag, LeaseEnd, LeaseId, QueueId};
use rustc_hash::FxBuildHasher;

use crate::Settings;

pub(crate) use clear::{Clearing, clear_on};
pub(crate) use duplicates::{Duplicates, Remembered};
pub(crate) use handle::{
    Handling, apply_lease, apply_touch, group_of, handle_entries, handled, take_back_handled,
};
use post::{Delayed, Posts};
pub(crate) use post::{Posting, delay_new, has_posted, post_failed};
use reserve::Reserves;
pub(crate) use reserve::{
    Answering, Reserving, answer_reserve, drop_reserve, end_waits, ends_at_bound, feed_reserve, finish_fed,
    finish_overdue, finish_reserve, has_looked_at_all, is_reserving, leases_left, peeks, refuse_reserve,
    refuse_reserve_of_deleted, take_back_reserved,
};
use watch::Watches;

pub use end::{
    begin_lease, bury_if_spent, dispatch_freed, end_leases, forget_lease, is_spent, may_bury_spent,
};
pub use options::{about_lease, apply_configure};

/// The lease of one entry, or its delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `None`: without a holder, it waits for its time.
    pub id: Option<LeaseId>,
    /// When it ends, as the log has it.
    pub end: LeaseEnd,
    /// When it ends in ticks; `None` until the time is known after a start.
    until_ms: Option<u64>,
    /// The message group that it keeps from others.
    pub group: Option<Arc<str>>,
}

/// How many entries of a queue are leased, and how many are delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Leases hold them.
    pub leased: u64,
    /// They wait for their time.
    pub delayed: u64,
}

/// All leases of a partition.
#[derive(Default)]
pub struct Leases {
    entries: BTreeMap<(QueueId, EntryTag), Lease>,
    due: BTreeSet<(u64, QueueId, EntryTag)>,
    /// Found in the log or a snapshot, before the time was known. A replica that follows has all of
    /// its leases here.
    untimed: BTreeSet<(QueueId, EntryTag)>,
    counts: HashMap<QueueId, LeaseCounts, FxBuildHasher>,
}

/// Requests for leases, known to this run alone.
#[derive(Default)]
pub struct Leasing {
    /// How many leases were given in this run.
    given: u64,
    /// Requests for messages that need attention.
    pub(crate) reserves: Reserves,
    /// Posts whose duplicates are looked for.
    posts: Posts,
    /// Clients that wait for the length of a queue.
    pub(crate) watches: Watches,
    /// Entries whose touch or release is on its way to the log.
    locked: BTreeSet<(QueueId, EntryTag)>,
    /// Queues in which a message group became free: they are to be dispatched.
    freed: Vec<QueueId>,
    /// So that messages that are due together stay in order.
    delayed: Delayed,
}

impl Leasing {
    /// Nothing waits; numbers go on.
    pub fn successor(&self) -> Leasing {
        Leasing { given: self.given, reserves: self.reserves.successor(), ..Leasing::default() }
    }

    /// A lease that was not given before.
    fn next_lease(&mut self, settings: &Settings) -> LeaseId {
        self.given += 1;
        let (partition, partitions) = (settings.id, settings.placement.partitions);
        LeaseId::before_first(settings.incarnation, partition, partitions).plus(self.given)
    }

    /// Posts that wait for others, and watches.
    pub fn waiters(&self) -> Vec<(postroad_model::ConnectionId, postroad_model::Ticket)> {
        self.posts.waiters().chain(self.watches.waiters()).collect()
    }
}

impl Leases {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The lease of an entry.
    pub fn get(&self, queue: QueueId, tag: EntryTag) -> Option<&Lease> {
        self.entries.get(&(queue, tag))
    }

    /// For how long the lease of an entry lasts.
    pub fn lasts_ms(&self, (queue, tag): (QueueId, EntryTag), now_ms: u64) -> u64 {
        let until_ms = self.get(queue, tag).and_then(|lease| lease.until_ms);
        until_ms.map_or(0, |until_ms| until_ms.saturating_sub(now_ms))
    }

    /// How many the queue has.
    pub fn counts(&self, queue: QueueId) -> LeaseCounts {
        self.counts.get(&queue).copied().unwrap_or_default()
    }

    /// The leases of lasting queues, in order, but for entries in memory alone.
    pub fn durable(&self) -> impl Iterator<Item = (QueueId, EntryTag, &Lease)> {
        let durable = self.entries.iter().filter(|((queue, tag), _)| {
            !queue.is_volatile() && !crate::queue::LaneNumber::of_tag(*tag).is_volatile()
        });
        durable.map(|((queue, tag), lease)| (*queue, *tag, lease))
    }

    /// When the next one ends, in ticks.
    pub fn next_ms(&self) -> Option<u64> {
        if !self.untimed.is_empty() {
            return Some(0);
        }
        self.due.first().map(|(at_ms, ..)| *at_ms)
    }

    /// Leases the entry, in place of the lease that it has. `until_ms` as in [`Lease`].
    pub fn insert(&mut self, (queue, tag): (QueueId, EntryTag), lease: Lease) {
        match lease.until_ms {
            Some(until_ms) => drop(self.due.insert((until_ms, queue, tag))),
            None => drop(self.untimed.insert((queue, tag))),
        }
        let (until_ms, counts) = (lease.until_ms, self.counts.entry(queue).or_default());
        *counted(counts, &lease) += 1;
        let Some(before) = self.entries.insert((queue, tag), lease) else { return };
        *counted(counts, &before) -= 1;
        if before.until_ms != until_ms {
            self.forget_time((queue, tag), &before);
        }
    }

    /// Ends the lease of the entry.
    pub fn remove(&mut self, queue: QueueId, tag: EntryTag) -> Option<Lease> {
        let lease = self.entries.remove(&(queue, tag))?;
        self.forget_time((queue, tag), &lease);
        if let Some(counts) = self.counts.get_mut(&queue) {
            *counted(counts, &lease) -= 1;
            if *counts == LeaseCounts::default() {
                self.counts.remove(&queue);
            }
        }
        Some(lease)
    }

    fn forget_time(&mut self, (queue, tag): (QueueId, EntryTag), lease: &Lease) {
        match lease.until_ms {
            Some(until_ms) => drop(self.due.remove(&(until_ms, queue, tag))),
            None => drop(self.untimed.remove(&(queue, tag))),
        }
    }

    /// The queue has ended.
    pub fn forget_queue(&mut self, queue: QueueId) {
        if !self.counts.contains_key(&queue) {
            return;
        }
        let range = (queue, EntryTag(0))..=(queue, EntryTag(u64::MAX));
        for (_, tag) in self.entries.range(range).map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(queue, tag);
        }
    }

    fn take_due(&mut self, now_ms: u64) -> Option<(QueueId, EntryTag)> {
        let (at_ms, queue, tag) = self.due.first().copied()?;
        (at_ms <= now_ms).then_some((queue, tag))
    }

    /// A record on its way to the log decides about the entry: its deadline waits.
    pub fn suspend(&mut self, queue: QueueId, tag: EntryTag) {
        if let Some(until_ms) = self.entries.get(&(queue, tag)).and_then(|lease| lease.until_ms) {
            self.due.remove(&(until_ms, queue, tag));
        }
    }

    /// The deadline of an entry that stays counts again.
    pub fn resume(&mut self, queue: QueueId, tag: EntryTag) {
        if let Some(until_ms) = self.entries.get(&(queue, tag)).and_then(|lease| lease.until_ms) {
            self.due.insert((until_ms, queue, tag));
        }
    }

    /// The time is known: leases of an earlier run get their deadlines in ticks.
    fn set_time(&mut self, now_ms: u64, wall_ms: u64) {
        for (queue, tag) in std::mem::take(&mut self.untimed) {
            let Some(lease) = self.entries.get_mut(&(queue, tag)).filter(|lease| lease.until_ms.is_none())
            else {
                continue;
            };
            let left_ms = lease.end.wall_ms.saturating_sub(wall_ms).min(lease.end.lasts_ms);
            let until_ms = now_ms.saturating_add(left_ms);
            lease.until_ms = Some(until_ms);
            self.due.insert((until_ms, queue, tag));
        }
    }
}

fn counted<'c>(counts: &'c mut LeaseCounts, lease: &Lease) -> &'c mut u64 {
    match lease.id {
        Some(_) => &mut counts.leased,
        None => &mut counts.delayed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: Option<u64>, until_ms: Option<u64>, wall_ms: u64, lasts_ms: u64) -> Lease {
        Lease { id: id.map(LeaseId), end: LeaseEnd { wall_ms, lasts_ms }, until_ms, group: None }
    }

    #[test]
    fn after_a_start_a_lease_lasts_no_longer_than_it_was_given_for() {
        for (case, wall_ms, want) in [
            ("half of it is over", 95_000, 5000),
            ("the clock went back", 10_000, 10_000),
            ("it is over", 200_000, 0),
        ] {
            let mut leases = Leases::default();
            leases.insert((QueueId(1), EntryTag(1)), lease(Some(1), None, 100_000, 10_000));
            assert_eq!(leases.next_ms(), Some(0), "case: {case}");
            leases.set_time(70, wall_ms);
            assert_eq!(leases.next_ms(), Some(70 + want), "case: {case}");
        }
    }

    #[test]
    fn leases_of_a_replica_that_never_knows_the_time_leave_nothing() {
        let mut leases = Leases::default();
        let at = |tag| (QueueId(1), EntryTag(tag));
        for number in 1..=100 {
            leases.insert(at(number), lease(Some(number), None, 0, 0));
            leases.insert(at(number), lease(Some(number + 100), None, 0, 0));
            assert!(leases.untimed.len() <= 2);
            leases.remove(QueueId(1), EntryTag(number - 1));
        }
        leases.insert(at(100), lease(Some(300), Some(5), 0, 0));
        assert_eq!((leases.untimed.len(), leases.next_ms()), (0, Some(5)), "its time is known");
        leases.insert(at(100), lease(Some(301), None, 0, 0));
        leases.forget_queue(QueueId(1));
        assert!(leases.is_empty() && leases.next_ms().is_none());
    }

    #[test]
    fn counts_follow_leases_and_delays() {
        let mut leases = Leases::default();
        let (queue, other) = (QueueId(1), QueueId(2));
        leases.insert((queue, EntryTag(1)), lease(Some(1), Some(5), 0, 0));
        leases.insert((queue, EntryTag(2)), lease(None, Some(6), 0, 0));
        leases.insert((other, EntryTag(1)), lease(Some(2), Some(7), 0, 0));
        assert_eq!(leases.counts(queue), LeaseCounts { leased: 1, delayed: 1 });
        leases.insert((queue, EntryTag(1)), lease(None, Some(9), 0, 0));
        assert_eq!(leases.counts(queue), LeaseCounts { leased: 0, delayed: 2 });
        leases.forget_queue(queue);
        assert_eq!((leases.counts(queue), leases.counts(other).leased), (LeaseCounts::default(), 1));
        assert_eq!((leases.next_ms(), leases.remove(other, EntryTag(1)).is_some()), (Some(7), true));
        assert!(leases.is_empty() && leases.next_ms().is_none());
    }
}
