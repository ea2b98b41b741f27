//! Lines of addresses whose first send waits, by the reason of each wait.
//!
//! Freed room wakes one line alone, and of that no more than can go on: so it costs the same,
//! however many wait.

use std::collections::{BTreeMap, VecDeque};

use postroad_model::Destination;

use crate::intake::blocked::BlockedOn;

/// See the head of this file.
#[derive(Default)]
pub struct WaitQueues {
    lines: BTreeMap<BlockedOn, VecDeque<Destination>>,
    /// The reason of each waiting address; an entry in a line with another reason is of the past.
    by_address: BTreeMap<Destination, BlockedOn>,
    /// How many addresses wait for each reason.
    counts: BTreeMap<BlockedOn, u64>,
}

impl WaitQueues {
    /// Whether no address waits.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// How many addresses wait for this.
    pub fn waiting_for(&self, held_by: BlockedOn) -> u64 {
        self.counts.get(&held_by).copied().unwrap_or_default()
    }

    fn count_one_less(&mut self, held_by: BlockedOn) {
        if let Some(count) = self.counts.get_mut(&held_by) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&held_by);
            }
        }
    }

    /// All waits end.
    pub fn clear(&mut self) {
        *self = WaitQueues::default();
    }

    /// The address waits for this from now on, after others or, if it has waited longest, before
    /// them.
    pub fn put(&mut self, to: Destination, held_by: BlockedOn, is_first: bool) {
        let before = self.by_address.insert(to.clone(), held_by);
        if before == Some(held_by) {
            return;
        }
        before.into_iter().for_each(|before| self.count_one_less(before));
        *self.counts.entry(held_by).or_default() += 1;
        let line = self.lines.entry(held_by).or_default();
        if is_first { line.push_front(to) } else { line.push_back(to) }
    }

    /// Nothing waits at the address.
    pub fn forget(&mut self, to: &Destination) {
        let Some(held_by) = self.by_address.remove(to) else { return };
        self.count_one_less(held_by);
        if let Some(line) = self.lines.get_mut(&held_by) {
            line.retain(|other| other != to);
        }
    }

    /// The address that has waited for this longest.
    pub fn take_first(&mut self, held_by: BlockedOn) -> Option<Destination> {
        let line = self.lines.get_mut(&held_by)?;
        while let Some(to) = line.pop_front() {
            if self.by_address.get(&to) == Some(&held_by) {
                self.by_address.remove(&to);
                self.count_one_less(held_by);
                return Some(to);
            }
        }
        self.lines.remove(&held_by);
        None
    }
}
