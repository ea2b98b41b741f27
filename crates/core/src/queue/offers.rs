//! Offers: messages of groups that are free again, which consumers look at when their turn comes.
//!
//! Each consumer takes up all offers since the last that it has seen, at once: how far it steps
//! back is the least of them. So an offer costs the same, however many consumers there are.

use std::collections::{BTreeMap, VecDeque};

/// Offers of one lane that are kept apart; older ones are one, and cost another look.
const KEPT_MAX: usize = 1024;

/// See the head of this file.
#[derive(Default)]
pub struct Offers {
    last: u64,
    /// For each lane, offers from which on consumers step back, each farther than the one before.
    lanes: BTreeMap<u8, VecDeque<Offer>>,
}

struct Offer {
    number: u64,
    cursor: u64,
}

impl Offers {
    /// Messages from these cursors on are free, one for each lane. Returns the number of the offer.
    pub fn add(&mut self, cursors: impl Iterator<Item = (u8, u64)>) -> u64 {
        self.last += 1;
        let number = self.last;
        for (lane, cursor) in cursors {
            let kept = self.lanes.entry(lane).or_default();
            while kept.back().is_some_and(|last| cursor <= last.cursor) {
                kept.pop_back();
            }
            kept.push_back(Offer { number, cursor });
            if KEPT_MAX < kept.len()
                && let Some(first) = kept.pop_front()
                && let Some(next) = kept.front_mut()
            {
                next.cursor = first.cursor;
            }
        }
        number
    }

    /// The number of the latest offer.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// How far a consumer has to step back in this lane that has seen the offers up to this one.
    pub fn since(&self, seen: u64, lane: u8) -> Option<u64> {
        let kept = self.lanes.get(&lane)?;
        let first = kept.partition_point(|offer| offer.number <= seen);
        kept.get(first).map(|offer| offer.cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_steps_back_as_far_as_the_farthest_offer_that_it_has_not_seen() {
        let (mut offers, mut all) = (Offers::default(), Vec::new());
        for number in 0..500_u64 {
            let cursor = number * 7919 % 1000;
            all.push(cursor);
            assert_eq!(offers.add([(4, cursor), (5, 3)].into_iter()), number + 1);
            for seen in [0, number / 2, number] {
                let want = all[seen as usize..].iter().min().copied();
                assert_eq!(offers.since(seen, 4), want, "after {number}, seen {seen}");
            }
        }
        assert_eq!((offers.since(499, 5), offers.since(500, 5), offers.since(0, 6)), (Some(3), None, None));
    }

    #[test]
    fn beyond_the_bound_a_consumer_steps_back_too_far_rather_than_not_far_enough() {
        let mut offers = Offers::default();
        let most = KEPT_MAX as u64;
        for number in 0..2 * most {
            offers.add(std::iter::once((0, number)));
        }
        assert_eq!(offers.lanes[&0].len(), KEPT_MAX);
        assert_eq!((offers.since(0, 0), offers.since(most / 2, 0)), (Some(0), Some(0)));
        assert_eq!(offers.since(2 * most - 3, 0), Some(2 * most - 3));
    }
}
