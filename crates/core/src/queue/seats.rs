//! Seats: the consumers that are attached to a queue, in the order in which they came, and the one
//! of them that the queue is served to alone.

use std::cmp::Reverse;

use postroad_model::{ConsumerKey, ConsumerMode};

use super::line::Line;

/// See the head of this file.
#[derive(Default)]
pub struct Seats {
    all: Line<u64>,
    /// Those that want the queue for themselves; the first has it.
    exclusive: Line<(Reverse<i8>, u64)>,
    /// How many of them take messages, and do not only look at them.
    takers: usize,
    /// How many of those share the queue.
    sharing: usize,
}

/// The place of a consumer in its queue, by which it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    number: u64,
    /// The priority, of one that wants the queue for itself.
    exclusive: Option<i8>,
    mode: ConsumerMode,
}

impl Seats {
    /// A consumer has come. Its priority matters among those that want the queue for themselves.
    #[must_use = "the consumer goes by its seat"]
    pub fn take(&mut self, key: ConsumerKey, mode: ConsumerMode, priority: i8) -> Seat {
        let number = self.all.last_place().map_or(0, |last| last + 1);
        self.all.insert(number, key);
        let exclusive = (mode == ConsumerMode::Exclusive).then_some(priority);
        if let Some(priority) = exclusive {
            self.exclusive.insert((Reverse(priority), number), key);
        }
        self.takers += usize::from(mode != ConsumerMode::Browse);
        self.sharing += usize::from(mode == ConsumerMode::Shared);
        Seat { number, exclusive, mode }
    }

    /// The consumer has gone.
    pub fn leave(&mut self, Seat { number, exclusive, mode }: Seat) {
        self.all.remove(number);
        self.takers -= usize::from(mode != ConsumerMode::Browse);
        self.sharing -= usize::from(mode == ConsumerMode::Shared);
        if let Some(priority) = exclusive {
            self.exclusive.remove((Reverse(priority), number));
        }
    }

    /// Of those that want the queue for themselves, the one of the highest priority that came
    /// first.
    pub fn chosen(&self) -> Option<ConsumerKey> {
        self.exclusive.first().map(|(_, key)| key)
    }

    /// The one that came first.
    pub fn first(&self) -> Option<&ConsumerKey> {
        self.all.iter().next()
    }

    /// All of them, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &ConsumerKey> {
        self.all.iter()
    }

    /// From this number on, in the order in which they came, with their numbers.
    pub fn from(&self, number: u64) -> impl Iterator<Item = (u64, ConsumerKey)> {
        self.all.from(number)
    }

    /// How many take messages.
    pub fn takers(&self) -> usize {
        self.takers
    }

    /// How many share the queue.
    pub fn sharing(&self) -> usize {
        self.sharing
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::ConnectionId;

    use super::*;

    #[test]
    fn the_chosen_one_has_the_highest_priority_and_came_first() {
        let mut seats = Seats::default();
        let key = |number| ConsumerKey::new(ConnectionId::new(0, 1), number);
        let (shared, exclusive) = (ConsumerMode::Shared, ConsumerMode::Exclusive);
        let come = [(shared, 9), (exclusive, 1), (exclusive, 4), (exclusive, 4), (ConsumerMode::Browse, 9)];
        let taken: Vec<Seat> = (0..)
            .zip(come)
            .map(|(number, (mode, priority))| seats.take(key(number), mode, priority))
            .collect();
        assert_eq!((seats.chosen(), seats.len()), (Some(key(2)), 5));
        assert_eq!((seats.takers(), seats.sharing()), (4, 1));
        for (leaves, chosen) in [(0, Some(2)), (2, Some(3)), (1, Some(3)), (3, None), (4, None)] {
            seats.leave(taken[leaves]);
            assert_eq!(seats.chosen(), chosen.map(key), "after {leaves}");
        }
        assert!(seats.is_empty() && seats.first().is_none());
        assert_eq!((seats.takers(), seats.sharing()), (0, 0));
    }
}
