//! Turns: the consumers that can take a message now, those of higher priority first; among equals
//! the one that was served longest ago.

use std::cmp::Reverse;

use postroad_model::ConsumerKey;

use super::line::Line;

/// See the head of this file.
#[derive(Default)]
pub struct Turns {
    line: Line<Turn>,
    /// Counts those that came.
    came: u64,
}

/// A consumer that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Those of a higher one come first.
    pub priority: i8,
    /// When it was last served, as a number that rises. A consumer that leaves and comes back keeps
    /// its place by it.
    pub served: u64,
    /// Which.
    pub key: ConsumerKey,
}

/// The place of a consumer among those that wait. No later one is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    priority: Reverse<i8>,
    served: u64,
    number: u64,
}

impl Turns {
    /// The consumer whose turn is next, after this turn if there is one.
    pub fn next(&self, after: Option<Turn>) -> Option<(Turn, ConsumerKey)> {
        after.map_or_else(|| self.line.first(), |after| self.line.after(after))
    }

    /// Behind all others of its priority that were not served later than it.
    #[must_use = "the consumer is found by its turn"]
    pub fn push(&mut self, Waiting { priority, served, key }: Waiting) -> Turn {
        self.came += 1;
        let turn = Turn { priority: Reverse(priority), served, number: self.came };
        self.line.insert(turn, key);
        turn
    }

    /// Takes out the consumer that has this turn.
    pub fn take(&mut self, turn: Turn) -> Option<ConsumerKey> {
        self.line.remove(turn)
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::ConnectionId;

    use super::*;

    #[test]
    fn turns_go_by_priority_then_by_service_then_by_arrival() {
        let mut turns = Turns::default();
        let key = |number| ConsumerKey::new(ConnectionId::new(0, 1), number);
        let come = [(0, 5, 1), (0, 3, 2), (9, 7, 3), (0, 5, 4), (-1, 0, 5), (0, 3, 6)];
        let taken: Vec<Turn> = come
            .into_iter()
            .map(|(priority, served, number)| turns.push(Waiting { priority, served, key: key(number) }))
            .collect();
        let (mut order, mut next) = (Vec::new(), turns.next(None));
        while let Some((turn, key)) = next {
            order.push(key.number);
            next = turns.next(Some(turn));
        }
        assert_eq!(order, [3, 2, 6, 1, 4, 5]);
        // A turn is one consumer's, and over once it was taken.
        assert_eq!(turns.take(taken[1]), Some(key(2)));
        let back = turns.push(Waiting { priority: 0, served: 3, key: key(2) });
        assert_eq!((turns.take(taken[1]), turns.take(back)), (None, Some(key(2))));
        let (mut rest, mut next) = (Vec::new(), turns.next(None));
        while let Some((turn, key)) = next {
            rest.extend(turns.take(turn).map(|key| key.number));
            next = turns.next(Some(turn)).filter(|found| found.1 != key);
        }
        assert_eq!(rest, [3, 6, 1, 4, 5]);
    }
}
