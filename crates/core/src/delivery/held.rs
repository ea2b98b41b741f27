//! Unsettled deliveries of a consumer: in the order of sending, and found by tag.

use std::collections::{BTreeMap, HashMap};

use postroad_model::EntryTag;
use rustc_hash::FxBuildHasher;

/// See the head of this file. Every step costs little, however much is held.
#[derive(Default)]
pub struct Held {
    in_order: BTreeMap<u64, Sent>,
    orders: HashMap<EntryTag, u64, FxBuildHasher>,
}

struct Sent {
    tag: EntryTag,
    /// When, in ticks.
    at_ms: u64,
}

impl Held {
    /// One more is sent now; `order` is above all before it, and above 0.
    pub fn push(&mut self, order: u64, tag: EntryTag, now_ms: u64) {
        self.in_order.insert(order, Sent { tag, at_ms: now_ms });
        self.orders.insert(tag, order);
    }

    /// When it was sent, as was said then; 0 if it is not held.
    pub fn order_of(&self, tag: EntryTag) -> u64 {
        self.orders.get(&tag).copied().unwrap_or(0)
    }

    /// When the oldest was sent, in ticks.
    pub fn oldest_ms(&self) -> Option<u64> {
        self.in_order.first_key_value().map(|(_, sent)| sent.at_ms)
    }

    /// When it was sent, in ticks, if it is held.
    pub fn sent_ms(&self, tag: EntryTag) -> Option<u64> {
        self.in_order.get(self.orders.get(&tag)?).map(|sent| sent.at_ms)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// It was settled or given back; returns when it was sent, in ticks, if it was held.
    pub fn remove(&mut self, tag: EntryTag) -> Option<u64> {
        let order = self.orders.remove(&tag)?;
        self.in_order.remove(&order).map(|sent| sent.at_ms)
    }

    /// Everything, in no particular order.
    pub fn tags(&self) -> impl Iterator<Item = EntryTag> {
        self.orders.keys().copied()
    }

    /// Takes the first ones out, this number of them at most, in two parts as [`Held::split`] does.
    pub fn take_first(&mut self, max: usize, last_seen: u64) -> (Vec<EntryTag>, Vec<EntryTag>) {
        let (mut seen, mut unseen) = (Vec::new(), Vec::new());
        while seen.len() + unseen.len() < max
            && let Some((order, Sent { tag, .. })) = self.in_order.pop_first()
        {
            self.orders.remove(&tag);
            if order <= last_seen { seen.push(tag) } else { unseen.push(tag) }
        }
        (seen, unseen)
    }

    /// Everything, in two parts: messages that the application saw, up to `last_seen`, and the
    /// rest.
    pub fn split(self, last_seen: u64) -> (Vec<EntryTag>, Vec<EntryTag>) {
        let (seen, unseen): (Vec<_>, Vec<_>) =
            self.in_order.into_iter().partition(|(order, _)| *order <= last_seen);
        let tags = |part: Vec<(u64, Sent)>| part.into_iter().map(|(_, sent)| sent.tag).collect();
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
        for (case, last_seen, seen, unseen) in [
            ("all", None, &[9, 2, 4][..], &[][..]),
            ("some", Some(2), &[9, 2], &[4]),
            ("not held", Some(7), &[], &[9, 2, 4]),
        ] {
            let mut held = Held::default();
            for (order, tag) in (11..).zip(tags(&[9, 7, 2, 4])) {
                held.push(order, tag, order);
            }
            held.remove(EntryTag(7));
            assert_eq!((held.oldest_ms(), held.sent_ms(EntryTag(2))), (Some(11), Some(13)), "case: {case}");
            assert_eq!(held.sent_ms(EntryTag(7)), None, "case: {case}");
            let last_seen = last_seen.map_or(u64::MAX, |tag| held.order_of(EntryTag(tag)));
            let mut parts: (Vec<EntryTag>, Vec<EntryTag>) = Default::default();
            while !held.is_empty() {
                let (seen, unseen) = held.take_first(2, last_seen);
                parts.0.extend(seen);
                parts.1.extend(unseen);
            }
            assert_eq!(parts, (tags(seen), tags(unseen)), "case, in slices: {case}");
            for (order, tag) in (11..).zip(tags(&[9, 7, 2, 4])) {
                held.push(order, tag, order);
            }
            held.remove(EntryTag(7));
            assert_eq!(held.split(last_seen), (tags(seen), tags(unseen)), "case: {case}");
        }
    }
}
