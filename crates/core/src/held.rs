//! What a consumer was sent and has not settled: in the order of sending, and found by tag.

use std::collections::{BTreeMap, HashMap};

use postroad_model::{Delivered, EntryTag};
use rustc_hash::FxBuildHasher;

/// See the head of this file. Every step costs little, however much is held.
#[derive(Default)]
pub struct Held {
    last: u64,
    in_order: BTreeMap<u64, EntryTag>,
    orders: HashMap<EntryTag, u64, FxBuildHasher>,
}

impl Held {
    /// One more was sent.
    pub fn push(&mut self, tag: EntryTag) {
        self.last += 1;
        self.in_order.insert(self.last, tag);
        self.orders.insert(tag, self.last);
    }

    /// It was settled or given back.
    pub fn remove(&mut self, tag: EntryTag) {
        if let Some(order) = self.orders.remove(&tag) {
            self.in_order.remove(&order);
        }
    }

    /// Everything, in no particular order.
    pub fn tags(&self) -> impl Iterator<Item = EntryTag> {
        self.orders.keys().copied()
    }

    /// Everything, in two parts: what the application saw, and the rest.
    pub fn split(self, delivered: Delivered) -> (Vec<EntryTag>, Vec<EntryTag>) {
        let last_seen = match delivered {
            Delivered::All => u64::MAX,
            Delivered::None => 0,
            Delivered::Through(last) => self.orders.get(&last).copied().unwrap_or(0),
        };
        let (seen, unseen): (Vec<_>, Vec<_>) =
            self.in_order.into_iter().partition(|(order, _)| *order <= last_seen);
        let tags = |part: Vec<(u64, EntryTag)>| part.into_iter().map(|(_, tag)| tag).collect();
        (tags(seen), tags(unseen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(numbers: &[u64]) -> Vec<EntryTag> {
        numbers.iter().map(|number| EntryTag(*number)).collect()
    }

    #[test]
    fn what_was_seen_is_told_from_the_rest_in_the_order_of_sending() {
        for (case, delivered, seen, unseen) in [
            ("all", Delivered::All, &[9, 2, 4][..], &[][..]),
            ("none", Delivered::None, &[], &[9, 2, 4]),
            ("some", Delivered::Through(EntryTag(2)), &[9, 2], &[4]),
            ("not held", Delivered::Through(EntryTag(7)), &[], &[9, 2, 4]),
        ] {
            let mut held = Held::default();
            tags(&[9, 7, 2, 4]).into_iter().for_each(|tag| held.push(tag));
            held.remove(EntryTag(7));
            assert_eq!(held.split(delivered), (tags(seen), tags(unseen)), "case: {case}");
        }
    }
}
