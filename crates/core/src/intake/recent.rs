//! Topic messages that came by links lately: in a network with loops the same one may come by
//! several.
//!
//! Queues do not need it: a message of a queue has one place at a time, and may return. Known to
//! this run alone. Two generations: when the younger one is full the older one is forgotten.

use std::collections::HashSet;

use rustc_hash::FxBuildHasher;

/// Names in one generation: many more than arrive while a message is on its longest way.
const NAMES_MAX: usize = 8192;

/// See the head of this file.
#[derive(Default)]
pub struct Recent {
    young: HashSet<u128, FxBuildHasher>,
    old: HashSet<u128, FxBuildHasher>,
}

impl Recent {
    /// Notes a message by its name; `false` if it came before.
    pub fn is_new(&mut self, name: u128) -> bool {
        if self.old.contains(&name) || !self.young.insert(name) {
            return false;
        }
        if NAMES_MAX <= self.young.len() {
            self.old = std::mem::take(&mut self.young);
        }
        true
    }

    /// Whether it came before.
    pub fn has(&self, name: u128) -> bool {
        self.old.contains(&name) || self.young.contains(&name)
    }

    /// Some of them may never have reached the log: they are taken in if they come again.
    pub fn clear(&mut self) {
        *self = Recent::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_for_two_generations_at_most() {
        let mut recent = Recent::default();
        let last = 3 * NAMES_MAX as u128;
        assert!((0..last).all(|name| recent.is_new(name)));
        assert!(!recent.is_new(last - 1) && !recent.is_new(last - NAMES_MAX as u128));
        assert!(recent.is_new(0), "forgotten");
        assert!(recent.young.len() + recent.old.len() <= 2 * NAMES_MAX);
        recent.clear();
        assert!(recent.is_new(last - 1));
    }
}
