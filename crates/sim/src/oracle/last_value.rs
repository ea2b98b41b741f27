//! Last values: of the messages with the same value a queue, or each subscription of a topic, keeps the newest at least.

use postroad_model::Destination;

use crate::selectors::value_of;

use super::{Checked, Fate, Letter, MessageNumber, Oracle, Place, Spot};

impl Oracle {
    /// From the start: of this destination's messages the last of each value is kept.
    pub fn expect_last_values(&mut self, at: Destination) {
        self.last_values = Some(at);
    }

    /// Whether a newer message may take the place of one there.
    pub(super) fn may_replace(&self, place: &Place) -> bool {
        self.last_values.is_some() && self.last_values.as_ref() == self.source_of(place)
    }

    /// Whether the one message surely came later than the other: it was sent once the other was confirmed. What waits for a decision
    /// or until it is due comes when that happens. While a queue moves, one producer sends to where it was, and counts as older there, when
    /// another sends to where it will be already.
    fn is_surely_newer(&self, one: MessageNumber, than: MessageNumber, there: &Place) -> bool {
        let at_once = |message| {
            let letter = self.letters.get(&message)?;
            let operation = &self.operations[letter.operation];
            (operation.what == "send" && letter.sent.schedule.is_none()).then_some(letter)
        };
        let (Some(one), Some(than)) = (at_once(one), at_once(than)) else { return false };
        let ways_may_differ = self.has_perhaps_moved(there) && one.from != than.from;
        !ways_may_differ && than.confirmed.is_some_and(|confirmed| confirmed < one.asked)
    }

    /// What is missing there was superseded: by a message of the same value that is not missing, and that is not surely older.
    ///
    /// # Errors
    /// A value is lost.
    pub(super) fn check_superseded(&self, (place, message): &Spot, missing: &[Spot]) -> Checked {
        let source = self.source_of(place);
        let supersedes = |(other, letter): (&MessageNumber, &Letter)| {
            other != message
                && value_of(*other) == value_of(*message)
                && letter.sent.targets().any(|to| Some(to) == source)
                && self.operations[letter.operation].fate != Fate::Aborted
                && !missing.contains(&(place.clone(), *other))
                && !self.is_surely_newer(*message, *other, place)
        };
        match value_of(*message).is_some() && self.letters.iter().any(supersedes) {
            true => Ok(()),
            false => Err(format!("message {message} left {place:?}, and no newer one has its value")),
        }
    }

    /// Whether what has taken the message's place may have ended by itself, or with the memory that it was in, before an older one came from
    /// where the queue was.
    fn may_be_outlived(&self, place: &Place, message: MessageNumber) -> bool {
        let ends = |(other, letter): (&MessageNumber, &Letter)| {
            let spot = (place.clone(), *other);
            let is_forgotten = |copy| self.is_perhaps_forgotten(&spot, copy);
            value_of(*other) == value_of(message)
                && letter.sent.targets().any(|to| Some(to) == self.source_of(place))
                && (letter.sent.message.expires_at_ms != 0
                    || self.copies.get(&spot).is_some_and(is_forgotten))
                && !self.is_surely_newer(message, *other, place)
        };
        self.has_perhaps_moved(place) && self.letters.iter().any(ends)
    }

    /// A message is delivered, and nothing newer of its value is surely there.
    pub(super) fn check_is_last(&self, spot: &Spot, what: &str) -> Checked {
        if value_of(spot.1).is_none() || !self.may_replace(&spot.0) {
            return Ok(());
        }
        let mut others = self.copies.range((spot.0.clone(), 0)..=(spot.0.clone(), MessageNumber::MAX));
        let newer = others.find(|(at, copy)| {
            let other = &at.1;
            let there = !self.is_perhaps_forgotten(at, copy)
                && copy.ended.is_none()
                && !copy.gone
                && !copy.volatile
                && !copy.perhaps_held
                && !copy.disputed;
            let came = self.operations[copy.created].fate == Fate::Committed;
            // One that expires may have gone by itself.
            let lasts = self.letters.get(other).is_some_and(|letter| letter.sent.message.expires_at_ms == 0);
            value_of(*other) == value_of(spot.1)
                && there
                && came
                && lasts
                && self.is_surely_newer(*other, spot.1, &spot.0)
                && !self.may_be_outlived(&spot.0, *other)
        });
        match newer {
            Some(((_, newer), _)) => Err(format!("{what}: message {newer} has its value, and is newer")),
            None => Ok(()),
        }
    }
}
