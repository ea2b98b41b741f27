//! Seats: the consumers that are attached to a queue, in the order in which they came, and the one
//! of them that the queue is served to alone.

use std::cmp::Reverse;

use postroad_model::ConsumerKey;

use super::line::Line;

/// See the head of this file.
#[derive(Default)]
pub struct Seats {
    all: Line<u64>,
    /// Those that want the queue for themselves; the first has it.
    exclusive: Line<(Reverse<i8>, u64)>,
}

/// The place of a consumer in its queue, by which it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    number: u64,
    /// The priority, of one that wants the queue for itself.
    exclusive: Option<i8>,
}

impl Seats {
    /// A consumer has come. With a priority it wants the queue for itself.
    #[must_use = "the consumer goes by its seat"]
    pub fn take(&mut self, key: ConsumerKey, exclusive: Option<i8>) -> Seat {
        let number = self.all.last_place().map_or(0, |last| last + 1);
        self.all.insert(number, key);
        if let Some(priority) = exclusive {
            self.exclusive.insert((Reverse(priority), number), key);
        }
        Seat { number, exclusive }
    }

    /// The consumer has gone.
    pub fn leave(&mut self, Seat { number, exclusive }: Seat) {
        self.all.remove(number);
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
        let come = [None, Some(1), Some(4), Some(4), None];
        let taken: Vec<Seat> =
            (0..).zip(come).map(|(number, exclusive)| seats.take(key(number), exclusive)).collect();
        assert_eq!((seats.chosen(), seats.len()), (Some(key(2)), 5));
        for (leaves, chosen) in [(0, Some(2)), (2, Some(3)), (1, Some(3)), (3, None), (4, None)] {
            seats.leave(taken[leaves]);
            assert_eq!(seats.chosen(), chosen.map(key), "after {leaves}");
        }
        assert!(seats.is_empty() && seats.first().is_none());
    }
}
