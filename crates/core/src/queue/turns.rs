//! A line: the consumers that can take a message now, those of higher priority first, and in turns among equals.

use std::collections::VecDeque;

use postroad_model::ConsumerKey;

/// See the head of this file.
#[derive(Default)]
pub struct Turns {
    line: VecDeque<(i8, ConsumerKey)>,
}

impl Turns {
    /// The consumer at this place of the line; 0 is the front.
    pub fn get(&self, place: usize) -> Option<ConsumerKey> {
        self.line.get(place).map(|(_, key)| *key)
    }

    /// Behind all others of its priority.
    pub fn push(&mut self, priority: i8, key: ConsumerKey) {
        match self.line.back() {
            Some((last, _)) if *last < priority => {
                let place = self.line.partition_point(|(other, _)| *other >= priority);
                self.line.insert(place, (priority, key));
            }
            _ => self.line.push_back((priority, key)),
        }
    }

    /// Takes the consumer at this place out; returns it with its priority.
    pub fn take(&mut self, place: usize) -> Option<(i8, ConsumerKey)> {
        self.line.remove(place)
    }

    /// Takes a consumer out, wherever it stands.
    pub fn remove(&mut self, key: ConsumerKey) {
        self.line.retain(|(_, waiting)| *waiting != key);
    }

    /// Takes all out, in their order.
    pub fn drain(&mut self) -> Vec<ConsumerKey> {
        self.line.drain(..).map(|(_, key)| key).collect()
    }
}
