//! Sends that wait: for memory, for room, for the disk, for a queue, or for earlier sends of their
//! producers.
//!
//! Each waits in the line of its address. One to several addresses blocks later sends of its
//! producer to any of them: an earlier send is never after a later one, so waits never form a
//! circle.
//! Never here: the reason for which the first of a line waits (`limit`, `lines`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use postroad_model::{ConnectionId, Destination, Publish};

/// A send that waits.
#[derive(Debug)]
pub struct Parked {
    /// The message.
    pub publish: Publish,
    /// When it is refused, in ms since 1970; `None` for never.
    pub until_ms: Option<u64>,
    /// Rises from one to the next that is behind it.
    number: i64,
}

impl Parked {
    /// Which of all that wait.
    pub fn number(&self) -> i64 {
        self.number
    }
}

/// The obstacle before a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendObstacle {
    /// Something at its address.
    pub here: bool,
    /// A send of its own producer to one of its addresses, persistent like it or not: that must not
    /// be overtaken.
    pub own: bool,
}

/// Whose it is, whether it is persistent, and one of the addresses that it is for.
type Way = (ConnectionId, bool, Destination);

/// See the head of this file.
#[derive(Default)]
pub struct ParkedSends {
    /// By number, which is their order.
    lines: BTreeMap<Destination, BTreeMap<i64, Parked>>,
    /// The numbers of those that go to an address at which they do not wait, and where each waits.
    elsewhere: BTreeMap<Destination, BTreeMap<i64, Destination>>,
    /// The addresses at which those of each connection wait.
    own: BTreeMap<ConnectionId, BTreeMap<i64, Destination>>,
    /// The numbers of those on each way.
    ways: BTreeMap<Way, BTreeSet<i64>>,
    /// Those that are refused at some time, with that time and where they wait.
    late: BTreeMap<(u64, i64), Destination>,
    next_number: i64,
    /// The lowest number that was given to one before all others.
    first_number: i64,
}

fn ways_of(publish: &Publish) -> impl Iterator<Item = Way> {
    let persistent = publish.sent.message.persistent;
    publish.sent.targets().map(move |to| (publish.connection, persistent, to.clone()))
}

impl ParkedSends {
    /// Puts one after all others of its address.
    pub fn push(&mut self, publish: Publish, until_ms: Option<u64>) {
        let number = self.next_number;
        self.next_number += 1;
        self.enter(Parked { publish, until_ms, number });
    }

    /// Puts one before all others of its address: it was the first there, and nothing of its
    /// producer was before it.
    pub fn push_first(&mut self, publish: Publish) {
        self.first_number -= 1;
        let number = self.first_number;
        self.enter(Parked { publish, until_ms: None, number });
    }

    fn enter(&mut self, parked: Parked) {
        let (to, number) = (parked.publish.sent.to.clone(), parked.number);
        for way in ways_of(&parked.publish) {
            self.ways.entry(way).or_default().insert(number);
        }
        for target in parked.publish.sent.targets().filter(|target| **target != to) {
            self.elsewhere.entry(target.clone()).or_default().insert(number, to.clone());
        }
        self.own.entry(parked.publish.connection).or_default().insert(number, to.clone());
        if let Some(until_ms) = parked.until_ms {
            self.late.insert((until_ms, number), to.clone());
        }
        self.lines.entry(to).or_default().insert(number, parked);
    }

    /// The first one at this address is refused then, if it has no such time yet.
    pub fn end_first(&mut self, to: &Destination, until_ms: Option<u64>) {
        let first = self.lines.get_mut(to).and_then(|line| line.first_entry());
        if let Some(mut first) = first {
            let first = first.get_mut();
            if let (None, Some(until_ms)) = (first.until_ms, until_ms) {
                first.until_ms = Some(until_ms);
                self.late.insert((until_ms, first.number), to.clone());
            }
        }
    }

    /// When the first one is refused.
    pub fn next_refusal_ms(&self) -> Option<u64> {
        self.late.first_key_value().map(|((until_ms, _), _)| *until_ms)
    }

    /// Takes out those that have waited long enough, up to a number, those of each time in order.
    pub fn take_late(&mut self, now_ms: u64, most: usize) -> Vec<Parked> {
        let mut all = Vec::new();
        while all.len() < most
            && let Some(next) = self.late.first_entry().filter(|next| next.key().0 <= now_ms)
        {
            let ((_, number), to) = next.remove_entry();
            all.extend(self.take(&to, number));
        }
        all
    }

    /// How many wait at this address.
    pub fn count_at(&self, to: &Destination) -> usize {
        self.lines.get(to).map_or(0, BTreeMap::len)
    }

    /// Those at this address, in order.
    pub fn at(&self, to: &Destination) -> impl Iterator<Item = &Parked> {
        self.lines.get(to).into_iter().flat_map(BTreeMap::values)
    }

    /// The one that has waited longest at this address.
    pub fn first(&self, to: &Destination) -> Option<&Parked> {
        self.lines.get(to)?.first_key_value().map(|(_, first)| first)
    }

    /// Takes the first one at this address out.
    pub fn take_first(&mut self, to: &Destination) -> Option<Parked> {
        let number = self.first(to)?.number;
        self.take(to, number)
    }

    fn take(&mut self, to: &Destination, number: i64) -> Option<Parked> {
        let line = self.lines.get_mut(to)?;
        let taken = line.remove(&number)?;
        if line.is_empty() {
            self.lines.remove(to);
        }
        self.forget(&taken);
        Some(taken)
    }

    /// Takes out all, those of each address in order.
    pub fn take_all(&mut self) -> Vec<Parked> {
        let ParkedSends { lines, next_number, first_number, .. } = std::mem::take(self);
        (self.next_number, self.first_number) = (next_number, first_number);
        lines.into_values().flat_map(BTreeMap::into_values).collect()
    }

    /// Takes out those of these numbers that go to an address, in order.
    pub fn take_out_to(&mut self, to: &Destination, numbers: &[i64]) -> Vec<Parked> {
        let elsewhere = |number: &i64| self.elsewhere.get(to)?.get(number).cloned();
        let places: Vec<(i64, Destination)> =
            numbers.iter().map(|number| (*number, elsewhere(number).unwrap_or_else(|| to.clone()))).collect();
        places.into_iter().filter_map(|(number, at)| self.take(&at, number)).collect()
    }

    /// Those of this connection, in order.
    pub fn of(&self, connection: ConnectionId) -> impl Iterator<Item = &Parked> {
        let own = self.own.get(&connection).into_iter().flatten();
        own.filter_map(|(number, to)| self.lines.get(to)?.get(number))
    }

    /// Takes out all of this connection that this is true of, in order.
    pub fn take_out_of(&mut self, connection: ConnectionId, goes: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let own = self.of(connection).filter(|parked| goes(parked));
        let own: Vec<(Destination, i64)> =
            own.map(|parked| (parked.publish.sent.to.clone(), parked.number)).collect();
        own.into_iter().filter_map(|(to, number)| self.take(&to, number)).collect()
    }

    fn forget(&mut self, parked: &Parked) {
        if let Some(until_ms) = parked.until_ms {
            self.late.remove(&(until_ms, parked.number));
        }
        if let Some(own) = self.own.get_mut(&parked.publish.connection) {
            own.remove(&parked.number);
            if own.is_empty() {
                self.own.remove(&parked.publish.connection);
            }
        }
        for target in parked.publish.sent.targets() {
            let Some(others) = self.elsewhere.get_mut(target) else { continue };
            others.remove(&parked.number);
            if others.is_empty() {
                self.elsewhere.remove(target);
            }
        }
        for way in ways_of(&parked.publish) {
            let Some(numbers) = self.ways.get_mut(&way) else { continue };
            numbers.remove(&parked.number);
            if numbers.is_empty() {
                self.ways.remove(&way);
            }
        }
    }

    /// The obstacle before this send, which has just come.
    pub fn ahead_of(&self, publish: &Publish) -> SendObstacle {
        SendObstacle { here: self.is_at(&publish.sent.to), own: self.has_own_ahead(publish, i64::MAX) }
    }

    /// The obstacle before the first at some address.
    pub fn ahead_of_first(&self, first: &Parked) -> SendObstacle {
        SendObstacle { here: false, own: self.has_own_ahead(&first.publish, first.number) }
    }

    fn has_own_ahead(&self, publish: &Publish, number: i64) -> bool {
        !self.ways.is_empty() && self.earliest_of(publish).is_some_and(|earliest| earliest < number)
    }

    /// The number of the earliest send of its producer to one of its addresses.
    fn earliest_of(&self, publish: &Publish) -> Option<i64> {
        ways_of(publish).filter_map(|way| self.ways.get(&way)?.first()).min().copied()
    }

    /// The earliest send of the same producer that the first at this address must not overtake.
    pub fn own_before_first(&self, to: &Destination) -> Option<&Parked> {
        let first = self.first(to)?;
        let earliest = self.earliest_of(&first.publish).filter(|earliest| *earliest < first.number)?;
        let at = self.own.get(&first.publish.connection)?.get(&earliest)?;
        self.lines.get(at)?.get(&earliest)
    }

    /// Whether anything waits that this connection has sent.
    pub fn has_any_of(&self, connection: ConnectionId) -> bool {
        self.own.contains_key(&connection)
    }

    /// Whether something waits at this address.
    pub fn is_at(&self, to: &Destination) -> bool {
        self.lines.contains_key(to)
    }

    /// Whether something that waits anywhere will go to this address, perhaps among others.
    pub fn sends_to(&self, to: &Destination) -> bool {
        self.lines.contains_key(to) || self.elsewhere.contains_key(to)
    }

    /// Those that go to this address, perhaps among others: first those that wait there.
    pub fn sent_to(&self, to: &Destination) -> impl Iterator<Item = &Parked> {
        let elsewhere = self.elsewhere.get(to).into_iter().flatten();
        let elsewhere = elsewhere.filter_map(|(number, at)| self.lines.get(at)?.get(number));
        self.lines.get(to).into_iter().flat_map(BTreeMap::values).chain(elsewhere)
    }

    /// The address after this one at which something waits.
    pub fn next_address(&self, after: Option<&Destination>) -> Option<&Destination> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.lines.range::<Destination, _>((after, Bound::Unbounded)).next().map(|(to, _)| to)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{Encoding, Message, NORMAL_PRIORITY, Protocol, Sent, Ticket};

    use super::*;

    fn publish(connection: u32, to: &str, ticket: u64) -> Publish {
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: NORMAL_PRIORITY,
            expires_at_ms: 0,
            rare: None,
            bytes: bytes::Bytes::new(),
        };
        Publish::plain(
            ConnectionId::new(0, connection.into()),
            Ticket(ticket),
            Sent::new(Destination::queue(to), message),
        )
    }

    fn tickets(parked: &[Parked]) -> Vec<u64> {
        parked.iter().map(|parked| parked.publish.ticket.0).collect()
    }

    #[test]
    fn those_that_have_waited_long_enough_are_found_by_time() {
        let mut waiting = ParkedSends::default();
        for (ticket, to, until_ms) in
            [(1, "a", None), (2, "a", Some(30)), (3, "b", Some(10)), (4, "b", Some(20)), (5, "c", Some(20))]
        {
            waiting.push(publish(1, to, ticket), until_ms);
        }
        assert_eq!(waiting.next_refusal_ms(), Some(10));
        // Only the first one at an address gets a time later, and only its first one counts.
        waiting.end_first(&Destination::queue("a"), Some(15));
        waiting.end_first(&Destination::queue("a"), Some(5));
        waiting.end_first(&Destination::queue("b"), Some(5));
        assert_eq!((waiting.next_refusal_ms(), tickets(&waiting.take_late(9, 9))), (Some(10), vec![]));
        let first = waiting.take_first(&Destination::queue("b"));
        assert_eq!(first.map(|parked| parked.publish.ticket.0), Some(3));
        assert_eq!(waiting.next_refusal_ms(), Some(15));
        assert_eq!(tickets(&waiting.take_late(20, 2)), [1, 4]);
        assert_eq!(tickets(&waiting.take_late(20, 2)), [5]);
        assert_eq!((waiting.next_refusal_ms(), waiting.is_at(&Destination::queue("b"))), (Some(30), false));
        waiting.take_out_of(ConnectionId::new(0, 1), |_| true);
        assert_eq!((waiting.next_refusal_ms(), waiting.is_empty()), (None, true));
    }

    #[test]
    fn sends_to_an_address_are_found_without_those_to_others() {
        let several = |first: &str, more: &str, ticket| {
            let mut publish = publish(1, first, ticket);
            publish.sent.also = vec![Destination::queue(more)];
            publish
        };
        let mut waiting = ParkedSends::default();
        for (ticket, to) in (1..=3).zip(["a", "b", "a"]) {
            waiting.push(publish(1, to, ticket), None);
        }
        waiting.push(several("b", "a", 4), Some(10));
        waiting.push(several("a", "c", 5), None);
        let found = |waiting: &ParkedSends, to| {
            let to = Destination::queue(to);
            waiting.sent_to(&to).map(|parked| (parked.publish.ticket.0, parked.number())).collect::<Vec<_>>()
        };
        assert_eq!(found(&waiting, "a").iter().map(|found| found.0).collect::<Vec<_>>(), [1, 3, 5, 4]);
        assert_eq!(found(&waiting, "c").len(), 1);
        let numbers: Vec<i64> = found(&waiting, "a").into_iter().map(|found| found.1).collect();
        assert_eq!(tickets(&waiting.take_out_to(&Destination::queue("a"), &numbers[1..])), [3, 5, 4]);
        assert_eq!((waiting.elsewhere.len(), waiting.late.len()), (0, 0));
        for (to, is_left) in [("a", true), ("b", true), ("c", false)] {
            assert_eq!(waiting.sends_to(&Destination::queue(to)), is_left, "{to}");
        }
        assert_eq!((tickets(&waiting.take_all()), waiting.is_empty()), (vec![1, 2], true));
        assert_eq!((waiting.own.len(), waiting.ways.len()), (0, 0));
    }
}
