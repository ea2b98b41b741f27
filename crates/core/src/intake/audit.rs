//! The audit: the last messages of each producer that are in the log, so that one sent again is known.
//!
//! A client that loses its connection does not know whether its last messages arrived, and sends them again over the
//! next one. Producers number their messages. Of each producer the last numbers are kept one by one, because one that
//! was refused must be taken in when it comes again, although a later one is in the log. Of producers that have been
//! silent for long the oldest are forgotten.
//! Never here: how protocols name producers.

use std::collections::HashMap;

use postroad_model::{ConnectionId, Effect, Message, Origin, Publish, Refusal, Urgency};
use rustc_hash::FxBuildHasher;

use crate::Partition;
use crate::log::completion::Completion;

/// How the assembly reads who sent a message, whatever its protocol; `None` if it does not say.
pub type OriginOf = fn(&Message) -> Option<Origin>;

type Lasts = HashMap<u128, Last, FxBuildHasher>;

/// Words of bits for the last messages of a producer. A client that waits for answers has few of them outstanding.
const WORDS: usize = 4;

/// Messages of one producer that are told apart: what is older counts as new.
pub const AUDITED_MESSAGES: u64 = 64 * WORDS as u64;

/// The last messages of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Last {
    /// The newest of them.
    pub sequence: u64,
    /// Bit `n` of all words: whether the message `n` ahead of the newest is in the log.
    pub seen: [u64; WORDS],
}

impl Last {
    fn of(sequence: u64) -> Last {
        Last { sequence, seen: [1, 0, 0, 0] }
    }

    fn note(&mut self, sequence: u64) {
        if self.sequence < sequence {
            self.shift(sequence - self.sequence);
            self.sequence = sequence;
        }
        let behind = self.sequence - sequence;
        if behind < AUDITED_MESSAGES {
            self.seen[(behind / 64) as usize] |= 1 << (behind % 64);
        }
    }

    fn shift(&mut self, by: u64) {
        let (words, bits) = (usize::try_from(by / 64).unwrap_or(WORDS).min(WORDS), by % 64);
        for index in (0..WORDS).rev() {
            let from = |back: usize| index.checked_sub(words + back).map_or(0, |from| self.seen[from]);
            // Shifting by all 64 bits of a word is not defined.
            let carried = if bits == 0 { 0 } else { from(1) >> (64 - bits) };
            self.seen[index] = from(0) << bits | carried;
        }
    }

    fn knows(&self, sequence: u64) -> bool {
        let behind = self.sequence.checked_sub(sequence).filter(|behind| *behind < AUDITED_MESSAGES);
        behind.is_some_and(|behind| self.seen[(behind / 64) as usize] >> (behind % 64) & 1 == 1)
    }
}

/// See the head of this file. Two generations: when the younger one is full the older one is forgotten, so that what
/// was heard of lately stays, at a cost that does not grow with their number.
#[derive(Default)]
pub struct Audit {
    young: Lasts,
    old: Lasts,
}

impl Audit {
    /// The message is in the log. At least half of `producers_max` are remembered, at most all of them.
    pub fn note(&mut self, origin: Origin, producers_max: usize) {
        let generation = producers_max / 2;
        if generation == 0 {
            return;
        }
        let Origin { producer, sequence } = origin;
        if let Some(last) = self.young.get_mut(&producer) {
            return last.note(sequence);
        }
        let mut last = self.old.remove(&producer).unwrap_or_else(|| Last::of(sequence));
        last.note(sequence);
        if generation <= self.young.len() {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(producer, last);
    }

    /// Whether the message is in the log.
    pub fn knows(&self, origin: Origin) -> bool {
        let last = self.young.get(&origin.producer).or_else(|| self.old.get(&origin.producer));
        last.is_some_and(|last| last.knows(origin.sequence))
    }

    /// Producers and their last messages: those heard of lately, and the others. Each in order.
    pub fn generations(&self) -> [Vec<(u128, Last)>; 2] {
        [&self.young, &self.old].map(|lasts| {
            let mut lasts: Vec<_> = lasts.iter().map(|(producer, last)| (*producer, *last)).collect();
            lasts.sort_unstable();
            lasts
        })
    }

    /// An audit that remembers these.
    pub fn restore([young, old]: [Vec<(u128, Last)>; 2]) -> Audit {
        Audit { young: young.into_iter().collect(), old: old.into_iter().collect() }
    }
}

impl Partition {
    /// A persistent message is in the log.
    pub(crate) fn audit(&mut self, message: &Message) {
        if message.persistent
            && let Some(origin) = (self.origin_of)(message)
        {
            self.audit.note(origin, self.settings.audited_producers_max);
        }
    }

    /// Whether the message came before, and is in the log.
    pub(crate) fn came_before(&self, publish: &Publish) -> bool {
        let origin = || (self.origin_of)(&publish.sent.message);
        publish.resent
            && publish.sent.message.persistent
            && origin().is_some_and(|origin| self.audit.knows(origin))
    }

    /// What a client sends over its next connection may be on its way to the log from the last one: the answer waits
    /// until everything ahead of it is there. Given back if it need not wait.
    pub(crate) fn behind_what_came_before(
        &mut self,
        publish: Publish,
        effects: &mut Vec<Effect>,
    ) -> Option<Publish> {
        if !publish.sent.message.persistent {
            return Some(publish);
        }
        let names_producer = || (self.origin_of)(&publish.sent.message).is_some();
        let connection = self.connections.get(&publish.connection);
        // What is sent behind one that waits waits behind it.
        let is_behind = connection.is_some_and(|connection| connection.resends > 0);
        if !is_behind && (!publish.resent || !names_producer()) {
            return Some(publish);
        }
        // It has come just now: its connection is there.
        let connection = self.connections.entry(publish.connection).or_default();
        if connection.resent && connection.resends == 0 {
            return Some(publish);
        }
        connection.resends += 1;
        let nothing = postroad_model::Command::Transact(postroad_model::Changes::default());
        self.propose(nothing, Urgency::Waiting, Completion::Resent(Box::new(publish)), effects);
        None
    }

    /// Everything that was ahead of the message is in the log.
    pub(crate) fn resent(&mut self, publish: Publish, effects: &mut Vec<Effect>) {
        if self.no_more_waits(publish.connection) {
            self.publish_now(publish, effects);
        }
    }

    /// The log has failed: whether the message is there is certain now.
    pub(crate) fn resend_failed(&mut self, publish: &Publish, refusal: &Refusal, effects: &mut Vec<Effect>) {
        if self.no_more_waits(publish.connection) {
            let result = if self.came_before(publish) { Ok(()) } else { Err(refusal.clone()) };
            self.reply(publish.connection, publish.ticket, result, effects);
        }
    }

    /// One message less waits; `false` if its connection is gone.
    fn no_more_waits(&mut self, connection: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(&connection) else { return false };
        connection.resends = connection.resends.saturating_sub(1);
        connection.resent = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(producer: u128, sequence: u64) -> Origin {
        Origin { producer, sequence }
    }

    #[test]
    fn messages_of_a_producer_are_told_apart() {
        let mut audit = Audit::default();
        for sequence in [1, 5, 3, 200] {
            audit.note(origin(7, sequence), 10);
        }
        for (name, asked, want) in [
            ("the last", origin(7, 200), true),
            ("earlier ones", origin(7, 5), true),
            ("one that came late", origin(7, 3), true),
            ("one between them that was refused", origin(7, 4), false),
            ("a later one", origin(7, 201), false),
            ("of another producer", origin(8, 1), false),
        ] {
            assert_eq!(audit.knows(asked), want, "case: {name}");
        }
    }

    #[test]
    fn what_is_too_old_counts_as_new() {
        let mut last = Last::of(1);
        for sequence in 2..=1000 {
            last.note(sequence);
            let first = sequence.saturating_sub(AUDITED_MESSAGES - 1).max(1);
            assert!(last.knows(first) && last.knows(sequence) && !last.knows(first - 1), "{sequence}");
        }
        last.note(5000);
        assert!(!last.knows(1000) && !last.knows(4999) && last.knows(5000));
    }

    #[test]
    fn the_producers_silent_for_longest_are_forgotten() {
        let mut audit = Audit::default();
        for producer in 0..1000 {
            audit.note(origin(producer, 1), 10);
            audit.note(origin(0, 1), 10);
            assert!(audit.young.len() + audit.old.len() <= 10);
        }
        let known: Vec<u128> = (0..1000).filter(|producer| audit.knows(origin(*producer, 1))).collect();
        assert!(known.starts_with(&[0]) && known.contains(&999) && known.contains(&996), "{known:?}");
        assert_eq!(Audit::restore(audit.generations()).generations(), audit.generations());
    }

    #[test]
    fn without_a_place_nothing_is_remembered() {
        let mut audit = Audit::default();
        audit.note(origin(1, 1), 0);
        assert!(!audit.knows(origin(1, 1)));
    }
}
