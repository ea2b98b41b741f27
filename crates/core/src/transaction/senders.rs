//! Senders: how many transactions send to each destination.
//!
//! A queue on the move waits until none sends to it. Each transaction counts once for each of its
//! destinations, from its first message there until its record is on the way to the log, or for one
//! that is prepared, until its end. So a look costs the same with any number of transactions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use postroad_model::{Destination, Sent};

/// Destinations of one ended transaction that leave the counts at once; the others follow with the
/// next ticks.
const ENDED_MAX: usize = 1024;

/// The destinations of one transaction. Most have one, which needs no set.
#[derive(Clone, Debug, Default)]
pub struct SentTo {
    first: Option<Destination>,
    others: BTreeSet<Destination>,
}

impl SentTo {
    /// Whether the destination is new for the transaction.
    fn insert(&mut self, to: &Destination) -> bool {
        match &self.first {
            Some(first) if first == to => false,
            Some(_) => !self.others.contains(to) && self.others.insert(to.clone()),
            None => {
                self.first = Some(to.clone());
                true
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Destination> {
        self.first.iter().chain(&self.others)
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Senders {
    counts: BTreeMap<Destination, u64>,
    /// Destinations of transactions that have ended, which are still counted.
    ended: VecDeque<BTreeSet<Destination>>,
}

impl Senders {
    /// The transaction sends one more message.
    pub fn note(&mut self, sent_to: &mut SentTo, sent: &Sent) {
        sent.targets().for_each(|to| self.add(sent_to, to));
    }

    /// The transaction sends a message to this destination.
    pub fn add(&mut self, sent_to: &mut SentTo, to: &Destination) {
        if sent_to.insert(to) {
            *self.counts.entry(to.clone()).or_default() += 1;
        }
    }

    /// The transaction sends nothing any more.
    pub fn end(&mut self, sent_to: SentTo) {
        let SentTo { first, others } = sent_to;
        first.iter().for_each(|to| self.remove(to));
        match others.len() <= ENDED_MAX {
            true => others.iter().for_each(|to| self.remove(to)),
            false => self.ended.push_back(others),
        }
    }

    /// As [`Senders::end`], for parts of several sessions.
    pub fn end_all(&mut self, all: Vec<SentTo>) {
        all.into_iter().for_each(|sent_to| self.end(sent_to));
    }

    /// The next destinations of ended transactions.
    pub fn go_on(&mut self) {
        for _ in 0..ENDED_MAX {
            let Some(others) = self.ended.front_mut() else { return };
            match others.pop_first() {
                Some(to) => self.remove(&to),
                None => drop(self.ended.pop_front()),
            }
        }
    }

    /// When the next step is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.ended.is_empty()).then_some(now_ms + 1)
    }

    /// Transactions that send to this destination.
    pub fn count(&self, to: &Destination) -> u64 {
        self.counts.get(to).copied().unwrap_or(0)
    }

    /// Whether the counts are those of these transactions.
    pub fn are_of<'s>(&'s self, all: impl Iterator<Item = &'s SentTo>) -> bool {
        let mut counts = BTreeMap::new();
        let ended = self.ended.iter().flatten();
        for to in all.flat_map(SentTo::iter).chain(ended) {
            *counts.entry(to.clone()).or_default() += 1;
        }
        counts == self.counts
    }

    fn remove(&mut self, to: &Destination) {
        let Some(count) = self.counts.get_mut(to) else { return };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transaction_counts_once_for_a_destination() {
        let (mut senders, mut one, mut other) = (Senders::default(), SentTo::default(), SentTo::default());
        let [a, b] = ["a", "b"].map(Destination::queue);
        for (sent_to, to) in [(&mut one, &a), (&mut other, &a)] {
            senders.add(sent_to, to);
            senders.add(sent_to, to);
        }
        senders.add(&mut one, &b);
        senders.add(&mut one, &b);
        assert_eq!((senders.count(&a), senders.count(&b)), (2, 1));
        assert!(senders.are_of([&one, &other].into_iter()));
        senders.end(one);
        assert_eq!((senders.count(&a), senders.count(&b)), (1, 0));
        senders.end_all(vec![other]);
        assert!(senders.counts.is_empty() && senders.next_ms(0).is_none());
    }

    #[test]
    fn one_with_many_destinations_ends_in_steps() {
        let (mut senders, mut wide) = (Senders::default(), SentTo::default());
        for number in 0..2 * ENDED_MAX {
            senders.add(&mut wide, &Destination::queue(&format!("q{number}")));
        }
        senders.end(wide);
        assert_eq!((senders.counts.len(), senders.next_ms(5)), (2 * ENDED_MAX - 1, Some(6)));
        senders.go_on();
        assert_eq!(senders.counts.len(), ENDED_MAX - 1);
        assert!(senders.are_of(std::iter::empty()));
        senders.go_on();
        assert!(senders.counts.is_empty() && senders.next_ms(5).is_none());
    }
}
