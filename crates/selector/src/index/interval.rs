//! Intervals of numbers, and for one number those that contain it.
//!
//! Numbers are taken as 64-bit keys in the order of doubles. An interval is kept at the place where
//! its two ends part, seen as a walk down the bits of a key:
//!
//! ```text
//! low  = 0110 1…        node: depth 4, path 0110
//! high = 0110 0… → 1…   centre: path 0110 followed by 1000…
//! ```
//!
//! A number passes at most 65 such nodes on its own walk, and at each one only the lower or only
//! the upper ends matter, sorted: every interval that is looked at contains the number.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::SeededMap;
use super::postings::{EntryId, Postings};

/// Bits of a key.
const KEY_BITS: u32 = u64::BITS;

#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    nodes: SeededMap<(u32, u64), Node>,
    /// Nodes at each depth, so that empty depths are not looked up.
    depths: BTreeMap<u32, usize>,
}

/// All intervals that part at one place.
#[derive(Clone, Debug, Default)]
struct Node {
    by_low: BTreeMap<u64, Postings>,
    by_high: BTreeMap<u64, Postings>,
}

/// The order of doubles as the order of integers; the two zeros are one, and NaN has no key.
pub(super) fn number_key(value: f64) -> Option<u64> {
    if value.is_nan() {
        return None;
    }
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    Some(if bits >> 63 == 0 { bits | 1 << 63 } else { !bits })
}

/// The node where the ends part: depth, and the bits above it.
fn node_of(interval: &RangeInclusive<u64>) -> (u32, u64) {
    let depth = (interval.start() ^ interval.end()).leading_zeros();
    (depth, path(*interval.start(), depth))
}

fn path(key: u64, depth: u32) -> u64 {
    key.checked_shr(KEY_BITS - depth).unwrap_or(0)
}

impl Intervals {
    pub(super) fn insert(&mut self, interval: &RangeInclusive<u64>, id: EntryId) {
        let place = node_of(interval);
        let node = self.nodes.entry(place).or_insert_with(|| {
            *self.depths.entry(place.0).or_default() += 1;
            Node::default()
        });
        node.by_low.entry(*interval.start()).or_default().insert(id);
        node.by_high.entry(*interval.end()).or_default().insert(id);
    }

    pub(super) fn remove(&mut self, interval: &RangeInclusive<u64>, id: EntryId) {
        let place = node_of(interval);
        let Some(node) = self.nodes.get_mut(&place) else { return };
        remove_from(&mut node.by_low, *interval.start(), id);
        remove_from(&mut node.by_high, *interval.end(), id);
        if !node.by_low.is_empty() {
            return;
        }
        self.nodes.remove(&place);
        if let Some(count) = self.depths.get_mut(&place.0) {
            *count -= 1;
            if *count == 0 {
                self.depths.remove(&place.0);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Entries whose interval has one of these ends: a guess at how many lie about it.
    pub(super) fn shared_by(&self, interval: &RangeInclusive<u64>) -> usize {
        let node = self.nodes.get(&node_of(interval));
        node.map_or(0, |node| {
            node.by_low.len().max(node.by_low.get(interval.start()).map_or(0, Postings::len))
        })
    }

    pub(super) fn containing(&self, key: u64, visit: &mut impl FnMut(EntryId)) {
        for depth in self.depths.keys() {
            let Some(node) = self.nodes.get(&(*depth, path(key, *depth))) else { continue };
            // Below the centre every interval reaches far enough up, and above it far enough down.
            let upper_half = *depth == KEY_BITS || key >> (KEY_BITS - 1 - depth) & 1 == 1;
            if upper_half {
                node.by_high.range(key..).for_each(|(_, postings)| postings.each(visit));
            } else {
                node.by_low.range(..=key).for_each(|(_, postings)| postings.each(visit));
            }
        }
    }
}

fn remove_from(ends: &mut BTreeMap<u64, Postings>, end: u64, id: EntryId) {
    if let Some(postings) = ends.get_mut(&end) {
        postings.remove(id);
        if postings.is_empty() {
            ends.remove(&end);
        }
    }
}
