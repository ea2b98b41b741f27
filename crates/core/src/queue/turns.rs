//! A line: the consumers that can take a message now, those of higher priority first; among equals
//! the one that was served longest ago.

use std::collections::VecDeque;

use postroad_model::ConsumerKey;

/// See the head of this file.
#[derive(Default)]
pub struct Turns {
    line: VecDeque<Waiting>,
}

/// A consumer in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Those of a higher one come first.
    pub priority: i8,
    /// When it was last served, as a number that rises. A consumer that leaves the line and comes
    /// back keeps its place by it.
    pub served: u64,
    /// Which.
    pub key: ConsumerKey,
}

impl Waiting {
    fn comes_before(&self, other: &Waiting) -> bool {
        other.priority < self.priority || other.priority == self.priority && self.served <= other.served
    }
}

impl Turns {
    /// The consumer at this place of the line; 0 is the front.
    pub fn get(&self, place: usize) -> Option<ConsumerKey> {
        self.line.get(place).map(|waiting| waiting.key)
    }

    /// Behind all others of its priority that were not served later than it.
    pub fn push(&mut self, waiting: Waiting) {
        match self.line.back() {
            Some(last) if !last.comes_before(&waiting) => {
                let place = self.line.partition_point(|other| other.comes_before(&waiting));
                self.line.insert(place, waiting);
            }
            _ => self.line.push_back(waiting),
        }
    }

    /// Takes the consumer at this place out.
    pub fn take(&mut self, place: usize) -> Option<Waiting> {
        self.line.remove(place)
    }

    /// Takes a consumer out, wherever it stands.
    pub fn remove(&mut self, key: ConsumerKey) {
        self.line.retain(|waiting| waiting.key != key);
    }

    /// Takes all out, in their order.
    pub fn drain(&mut self) -> Vec<ConsumerKey> {
        self.line.drain(..).map(|waiting| waiting.key).collect()
    }
}
