//! Last values: of the messages with the same value a queue, or each subscription of a topic, keeps
//! the newest at least.

use postroad_model::Destination;

use crate::selectors::value_of;

use super::{AT_ONCE, Checked, Fate, Letter, MessageNumber, Number, Oracle, Place, Spot};

impl Oracle {
    /// From the start: of this destination's messages the last of each value is kept.
    pub fn expect_last_values(&mut self, at: Destination) {
        self.last_values = Some(at);
    }

    /// Whether a newer message may take the place of one there.
    pub(super) fn may_replace(&self, place: &Place) -> bool {
        self.last_values.is_some() && self.last_values.as_ref() == self.source_of(place)
    }

    /// Whether the one message surely came later than the other: it was sent once the other was
    /// confirmed. A message that waits for a decision or until it is due comes when that happens.
    /// While a queue moves, one producer sends to where it was, and counts as older there, when
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

    /// A missing message was superseded: by one of the same value that is not missing, and that is
    /// not surely older.
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

    /// Whether the successor of the message may have ended by itself, or with the memory that it
    /// was in, before an older one came from where the queue was.
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

    /// Whether the holder of the message when the last run ended, or a run before that, may have
    /// had it as the newer one came. Given back by the end of the run it leaves only if a newer one
    /// is still there: that others had come, and have left, is not known any more.
    fn may_have_been_in_hand(&self, spot: &Spot, newer: MessageNumber) -> bool {
        let came = self.letters.get(&newer).map_or(0, |letter| letter.run);
        self.copies
            .get(spot)
            .is_some_and(|copy| copy.delivered && came <= copy.seen_run && copy.seen_run < self.run)
    }

    /// Whether another message may have taken this one's place, and have left in its turn.
    fn may_have_given_way(&self, place: &Place, message: MessageNumber) -> bool {
        let has_left = |other: MessageNumber, letter: &Letter| {
            let spot = (place.clone(), other);
            let forgotten_unseen = !letter.sent.message.persistent && letter.run != self.run;
            let is_over = |number: Number| self.operations[number].fate != Fate::Aborted;
            letter.sent.message.expires_at_ms != 0
                || self.copies.get(&spot).map_or(forgotten_unseen, |copy| {
                    self.is_perhaps_forgotten(&spot, copy) || copy.ended.is_some_and(is_over)
                })
        };
        self.letters.iter().any(|(other, letter)| {
            *other != message
                && value_of(*other) == value_of(message)
                && letter.sent.targets().any(|to| Some(to) == self.source_of(place))
                && self.operations[letter.operation].fate != Fate::Aborted
                && has_left(*other, letter)
                && !self.is_surely_newer(message, *other, place)
        })
    }

    /// A message is delivered, and nothing newer of its value is surely there.
    pub(super) fn check_is_last(&mut self, spot: &Spot, what: &str) -> Checked {
        if value_of(spot.1).is_none() || !self.may_replace(&spot.0) {
            return Ok(());
        }
        for newer in self.newer_than(spot) {
            if !self.may_have_been_in_hand(spot, newer.1) || !self.may_have_given_way(&spot.0, newer.1) {
                return Err(format!("{what}: message {} has its value, and is newer", newer.1));
            }
            // The delivery proves that the newer one has left: it must not come any more.
            if let Some(copy) = self.copies.get_mut(&newer) {
                copy.ended = Some(AT_ONCE);
            }
        }
        Ok(())
    }

    /// The newer message of the same value that is there, unless another has taken its place.
    fn newer_than(&self, spot: &Spot) -> Vec<Spot> {
        let others = self.copies.range((spot.0.clone(), 0)..=(spot.0.clone(), MessageNumber::MAX));
        let newer = others.filter(|(at, copy)| {
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
        newer.map(|(at, _)| at.clone()).collect()
    }
}
