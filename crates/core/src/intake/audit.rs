//! The audit: the last messages of each producer that are in the log, so that one sent again is
//! known.
//!
//! A client that loses its connection does not know whether its last messages arrived, and sends
//! them again over the next one. Producers number their messages. Of each producer the last numbers
//! are kept one by one, because one that was refused must be taken in when it comes again, although
//! a later one is in the log. Of producers that have been silent for long the oldest are forgotten.
//! A producer belongs to the user who sends by it.
//! Never here: how protocols name producers.

use std::collections::HashMap;

use postroad_model::{ConnectionId, Effect, Message, Origin, Publish, Refusal, Urgency, UserKey};
use rustc_hash::FxBuildHasher;

use crate::Partition;
use crate::intake::arrivals::{Arrivals, Runs};
use crate::intake::publish::publish_now;
use crate::leader::Leader;
use crate::leaving::is_leaving;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::reply;
use crate::protocols::Protocols;
use crate::settings::Settings;
use crate::state::State;

/// How the assembly reads who sent a message, whatever its protocol; `None` if it does not say.
pub type OriginOf = fn(&Message) -> Option<Origin>;

type Generation = HashMap<Producer, Windows, FxBuildHasher>;

/// A producer, as the audit knows it. Producers of different users never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Producer {
    /// Who sends by it; `None` for the anonymous user.
    pub user: Option<UserKey>,
    /// See [`Origin::producer`].
    pub id: u128,
}

/// Words of bits for the last messages of a producer. A client that waits for answers has few of
/// them outstanding.
const WORDS: usize = 4;

/// Messages of one producer that are distinguished: older ones count as new.
pub const AUDITED_MESSAGES: u64 = 64 * WORDS as u64;

/// The last messages of one producer around one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// The newest of them.
    pub sequence: u64,
    /// Bit `n` of all words: whether the message `n` ahead of the newest is in the log.
    pub seen: [u64; WORDS],
}

impl Window {
    fn of(sequence: u64) -> Window {
        Window { sequence, seen: [1, 0, 0, 0] }
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

    /// The messages that it knows, older ones first.
    fn sequences(self) -> impl Iterator<Item = u64> {
        let behind = (0..AUDITED_MESSAGES).rev().filter_map(move |behind| self.sequence.checked_sub(behind));
        behind.filter(move |sequence| self.knows(*sequence))
    }

    /// Whether the window has a place for the number, or still has one for some of its own once it
    /// has moved there.
    fn is_near(&self, sequence: u64) -> bool {
        self.sequence.abs_diff(sequence) < AUDITED_MESSAGES
    }
}

/// The state of one producer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Windows {
    /// Around the number that came last.
    pub last: Window,
    /// Where its numbers were before they leapt further than a window, if they did: they may come
    /// back.
    pub other: Option<Box<Window>>,
}

impl Windows {
    fn of(sequence: u64) -> Windows {
        Windows { last: Window::of(sequence), other: None }
    }

    fn note(&mut self, sequence: u64) {
        if !self.last.is_near(sequence) {
            let other = self.other.take().filter(|other| other.is_near(sequence));
            let to = other.map_or_else(|| Window::of(sequence), |other| *other);
            self.other = Some(Box::new(std::mem::replace(&mut self.last, to)));
        }
        self.last.note(sequence);
    }

    /// Notes all that the other windows know, older messages first.
    fn merge(&mut self, other: &Windows) {
        let windows = other.other.iter().map(|window| **window).chain([other.last]);
        windows.flat_map(Window::sequences).for_each(|sequence| self.note(sequence));
    }

    fn knows(&self, sequence: u64) -> bool {
        self.last.knows(sequence) || self.other.as_ref().is_some_and(|other| other.knows(sequence))
    }
}

/// Messages of producers, and entries of other brokers' queues, that another partition has had.
#[derive(Default)]
pub struct Known {
    /// Last messages of producers.
    pub producers: Vec<(Producer, Windows)>,
    /// Entries that came by links.
    pub arrivals: Vec<(Producer, Runs)>,
}

/// See the head of this file. Two generations: when the younger one is full the older one is
/// forgotten, so that recently seen producers stay, at a cost that does not grow with their number.
#[derive(Default)]
pub struct Audit {
    young: Generation,
    old: Generation,
    /// Entries that came by links of other brokers.
    pub arrivals: Arrivals,
}

impl Audit {
    /// The message is in the log. At least half of `producers_max` are remembered, at most all of
    /// them.
    pub fn note(&mut self, producer: Producer, sequence: u64, producers_max: usize) {
        let generation = producers_max / 2;
        if generation == 0 {
            return;
        }
        if let Some(known) = self.young.get_mut(&producer) {
            return known.note(sequence);
        }
        let mut known = self.old.remove(&producer).unwrap_or_else(|| Windows::of(sequence));
        known.note(sequence);
        if generation <= self.young.len() {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(producer, known);
    }

    /// These messages count as those that came here. Producers that are new here are left out where
    /// there is no place: none of those that sent here is forgotten for them.
    pub fn remember(&mut self, known: Known, producers_max: usize) {
        let generation = producers_max / 2;
        for (producer, windows) in known.producers {
            if let Some(own) = self.young.get_mut(&producer).or(self.old.get_mut(&producer)) {
                own.merge(&windows);
            } else if self.old.len() < generation {
                self.old.insert(producer, windows);
            } else if self.young.len() < generation {
                self.young.insert(producer, windows);
            }
        }
        self.arrivals.remember(known.arrivals, producers_max);
    }

    /// Whether the message is in the log.
    pub fn knows(&self, producer: Producer, sequence: u64) -> bool {
        let known = self.young.get(&producer).or_else(|| self.old.get(&producer));
        known.is_some_and(|known| known.knows(sequence))
    }

    /// Producers and their last messages: those heard of lately, and the others. Each in order.
    pub fn generations(&self) -> [Vec<(Producer, Windows)>; 2] {
        [&self.young, &self.old].map(|known| {
            let mut all: Vec<_> = known.iter().map(|(producer, known)| (*producer, known.clone())).collect();
            all.sort_unstable();
            all
        })
    }

    /// An audit that remembers these.
    pub fn restore([young, old]: [Vec<(Producer, Windows)>; 2], arrivals: Arrivals) -> Audit {
        Audit { young: young.into_iter().collect(), old: old.into_iter().collect(), arrivals }
    }
}

impl Protocols {
    /// Who sent a message, and the number that it has there.
    fn producer_of(&self, message: &Message) -> Option<(Producer, Origin)> {
        let origin = (self.origin_of)(message)?;
        Some((Producer { user: message.user(), id: origin.producer }, origin))
    }
}

/// A persistent message is in the log.
pub fn audit(state: &mut State, settings: &Settings, protocols: &Protocols, message: &Message) {
    if message.persistent
        && let Some((producer, origin)) = protocols.producer_of(message)
    {
        let (audit, max) = (&mut state.audit, settings.audited_producers_max);
        match origin.from_link {
            true => audit.arrivals.note(producer, origin.sequence, max),
            false => audit.note(producer, origin.sequence, max),
        }
    }
}

/// Whether the message came before, and is in the log.
pub fn came_before(state: &State, protocols: &Protocols, publish: &Publish) -> bool {
    let producer = || protocols.producer_of(&publish.sent.message);
    publish.resent
        && publish.sent.message.persistent
        && producer().is_some_and(|(producer, origin)| match origin.from_link {
            true => state.audit.arrivals.knows(producer, origin.sequence),
            false => state.audit.knows(producer, origin.sequence),
        })
}

/// One message less waits; `false` if its connection is gone.
fn no_more_waits(leader: &mut Leader, connection: ConnectionId) -> bool {
    if is_leaving(leader, connection) {
        return false;
    }
    let Some(connection) = leader.connections.get_mut(&connection) else { return false };
    connection.resends = connection.resends.saturating_sub(1);
    connection.resent = true;
    true
}

/// The log has failed: whether the message is there is certain now.
pub fn resend_failed(
    state: &mut State,
    leader: &mut Leader,
    protocols: &Protocols,
    publish: &Publish,
    refusal: &Refusal,
    effects: &mut Vec<Effect>,
) {
    if no_more_waits(leader, publish.connection) {
        let result = if came_before(state, protocols, publish) { Ok(()) } else { Err(refusal.clone()) };
        reply(publish.connection, publish.ticket, result, effects);
    }
}

/// A message sent over a client's next connection may be on its way to the log from the last
/// one: the answer waits until everything ahead of it is there. Given back if it need not wait.
pub fn behind_what_came_before(
    partition: &mut Partition,
    publish: Publish,
    effects: &mut Vec<Effect>,
) -> Option<Publish> {
    if !publish.sent.message.persistent {
        return Some(publish);
    }
    let lacks_windows = crate::moving::lacks_windows(&partition.leader, &publish);
    let names_producer = || (partition.protocols.origin_of)(&publish.sent.message).is_some();
    let connection = partition.leader.connections.get(&publish.connection);
    // A send behind a waiting one waits behind it.
    let is_behind = connection.is_some_and(|connection| connection.resends > 0);
    if !is_behind && (!publish.resent || !names_producer()) {
        return Some(publish);
    }
    // It has come just now: its connection is there.
    let connection = partition.leader.connections.get_or_make(publish.connection);
    if connection.resent && connection.resends == 0 && !lacks_windows {
        return Some(publish);
    }
    connection.resends += 1;
    let nothing = postroad_model::Command::Transact(postroad_model::Changes::default());
    propose(partition, nothing, Urgency::Waiting, Completion::Resent(Box::new(publish)), effects);
    None
}

/// Everything that was ahead of the message is in the log.
pub fn note_resent(partition: &mut Partition, publish: Publish, effects: &mut Vec<Effect>) {
    let Some(publish) = crate::moving::behind_windows(
        &mut partition.state,
        &mut partition.leader,
        &partition.protocols,
        publish,
        effects,
    ) else {
        return;
    };
    if no_more_waits(&mut partition.leader, publish.connection) {
        publish_now(partition, publish, effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(id: u128) -> Producer {
        Producer { user: None, id }
    }

    #[test]
    fn messages_of_a_producer_are_told_apart() {
        let mut audit = Audit::default();
        let ann = Producer { user: UserKey::of("ann"), id: 7 };
        for sequence in [1, 5, 3, 200] {
            audit.note(producer(7), sequence, 10);
        }
        audit.note(ann, 201, 10);
        for (name, producer, sequence, want) in [
            ("the last", producer(7), 200, true),
            ("earlier ones", producer(7), 5, true),
            ("one that came late", producer(7), 3, true),
            ("one between them that was refused", producer(7), 4, false),
            ("a later one", producer(7), 201, false),
            ("of another producer", producer(8), 1, false),
            ("of another user", ann, 200, false),
            ("the other user's own", ann, 201, true),
        ] {
            assert_eq!(audit.knows(producer, sequence), want, "case: {name}");
        }
    }

    #[test]
    fn what_is_too_old_counts_as_new() {
        let mut last = Window::of(1);
        for sequence in 2..=1000 {
            last.note(sequence);
            let first = sequence.saturating_sub(AUDITED_MESSAGES - 1).max(1);
            assert!(last.knows(first) && last.knows(sequence) && !last.knows(first - 1), "{sequence}");
        }
        last.note(5000);
        assert!(!last.knows(1000) && !last.knows(4999) && last.knows(5000));
    }

    #[test]
    fn a_leap_forgets_nothing_that_came_just_before() {
        let far = 1 << 40;
        let known_of = |sequences: &[u64]| {
            let mut windows = Windows::of(sequences[0]);
            sequences.iter().for_each(|sequence| windows.note(*sequence));
            let known = sequences.iter().copied().filter(|sequence| windows.knows(*sequence));
            known.collect::<Vec<u64>>()
        };
        for (case, sequences, want) in [
            ("ahead", &[1, 2, far][..], &[1, 2, far][..]),
            ("ahead, and back", &[1, far, 2, 3], &[1, far, 2, 3]),
            ("ahead, back, and ahead again", &[1, far, 2, far + 1], &[1, far, 2, far + 1]),
            ("backward", &[far, 1, 2], &[far, 1, 2]),
            ("twice: the earliest is forgotten", &[1, far, 2 * far], &[far, 2 * far]),
            ("to the end", &[1, u64::MAX, 2, u64::MAX - 1], &[1, u64::MAX, 2, u64::MAX - 1]),
            ("by less than a window", &[1, AUDITED_MESSAGES], &[1, AUDITED_MESSAGES]),
            ("by a window", &[1, AUDITED_MESSAGES + 1], &[1, AUDITED_MESSAGES + 1]),
        ] {
            assert_eq!(known_of(sequences), want, "case: {case}");
        }
    }

    #[test]
    fn the_producers_silent_for_longest_are_forgotten() {
        let mut audit = Audit::default();
        for id in 0..1000 {
            audit.note(producer(id), 1, 10);
            audit.note(producer(0), 1, 10);
            assert!(audit.young.len() + audit.old.len() <= 10);
        }
        let known: Vec<u128> = (0..1000).filter(|id| audit.knows(producer(*id), 1)).collect();
        assert!(known.starts_with(&[0]) && known.contains(&999) && known.contains(&996), "{known:?}");
        assert_eq!(
            Audit::restore(audit.generations(), Arrivals::default()).generations(),
            audit.generations()
        );
    }

    #[test]
    fn without_a_place_nothing_is_remembered() {
        let mut audit = Audit::default();
        audit.note(producer(1), 1, 0);
        assert!(!audit.knows(producer(1), 1));
    }
}
