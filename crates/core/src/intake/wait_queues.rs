//! Lines of addresses whose first send waits, by the reason of each wait.
//!
//! Freed room wakes one line alone, and of that no more than can go on: so it costs the same,
//! however many wait.

use std::collections::BTreeMap;

use postroad_model::Destination;

use crate::intake::blocked::BlockedOn;

/// See the head of this file.
#[derive(Default)]
pub struct WaitQueues {
    /// By number, which is their order.
    lines: BTreeMap<BlockedOn, BTreeMap<i64, Destination>>,
    /// The reason of each waiting address, and its number in that line.
    by_address: BTreeMap<Destination, (BlockedOn, i64)>,
}

impl WaitQueues {
    /// Whether no address waits.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// How many addresses wait for this.
    pub fn waiting_for(&self, held_by: BlockedOn) -> u64 {
        self.lines.get(&held_by).map_or(0, |line| line.len() as u64)
    }

    /// The address waits for this from now on, after others or, if it has waited longest, before
    /// them.
    pub fn put(&mut self, to: Destination, held_by: BlockedOn, is_first: bool) {
        if self.by_address.get(&to).is_some_and(|(before, _)| *before == held_by) {
            return;
        }
        self.forget(&to);
        let line = self.lines.entry(held_by).or_default();
        let number = match is_first {
            true => line.first_key_value().map_or(0, |(first, _)| first - 1),
            false => line.last_key_value().map_or(0, |(last, _)| last + 1),
        };
        line.insert(number, to.clone());
        self.by_address.insert(to, (held_by, number));
    }

    /// Nothing waits at the address.
    pub fn forget(&mut self, to: &Destination) {
        let Some((held_by, number)) = self.by_address.remove(to) else { return };
        self.take(held_by, number);
    }

    fn take(&mut self, held_by: BlockedOn, number: i64) -> Option<Destination> {
        let line = self.lines.get_mut(&held_by)?;
        let taken = line.remove(&number);
        if line.is_empty() {
            self.lines.remove(&held_by);
        }
        taken
    }

    /// The address that has waited for this longest.
    pub fn take_first(&mut self, held_by: BlockedOn) -> Option<Destination> {
        let number = *self.lines.get(&held_by)?.first_key_value()?.0;
        let to = self.take(held_by, number)?;
        self.by_address.remove(&to);
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_in_one_line_and_in_its_order() {
        let to = |name: &str| Destination::queue(name);
        let mut waits = WaitQueues::default();
        for name in ["a", "b", "c", "d"] {
            waits.put(to(name), BlockedOn::Memory, false);
        }
        // Again for the same: it keeps its place. For another reason: it is in that line alone.
        waits.put(to("a"), BlockedOn::Memory, false);
        waits.put(to("b"), BlockedOn::Log, false);
        waits.put(to("d"), BlockedOn::Log, true);
        waits.forget(&to("c"));
        assert_eq!((waits.waiting_for(BlockedOn::Memory), waits.waiting_for(BlockedOn::Log)), (1, 2));
        // One that has left and comes again is the last.
        waits.put(to("c"), BlockedOn::Memory, false);
        waits.put(to("b"), BlockedOn::Memory, false);
        let mut all = |held_by| std::iter::from_fn(|| waits.take_first(held_by)).collect::<Vec<_>>();
        assert_eq!(all(BlockedOn::Memory), ["a", "c", "b"].map(to));
        assert_eq!(all(BlockedOn::Log), ["d"].map(to));
        assert!(waits.is_empty() && waits.lines.is_empty());
    }
}
