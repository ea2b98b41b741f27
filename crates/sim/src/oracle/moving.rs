//! Queues on the move: while a queue leaves, nothing is delivered where it was to a consumer that
//! follows it, nor anything twice.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{ConsumerKey, ConsumerMode, Destination, PartitionId};

use super::{Checked, Fate, Hold, Letter, MessageCopy, Oracle, Place, Spot};

/// The clients' requests, and their results.
#[derive(Default)]
pub(super) struct Moves {
    asked: BTreeSet<Destination>,
    /// Credit of consumers that their former partition still has; `None`: that of a drained browser
    /// is not followed here.
    left_behind: BTreeMap<(ConsumerKey, PartitionId), Option<u32>>,
}

impl Moves {
    /// A client asks that the queue may move.
    pub fn asked(&mut self, queue: &Destination) {
        self.asked.insert(queue.clone());
    }

    pub fn crashed(&mut self) {
        self.left_behind.clear();
    }
}

impl Oracle {
    /// Whether the place may be on the move, or have moved.
    pub(super) fn has_perhaps_moved(&self, place: &Place) -> bool {
        matches!(place, Place::Queue(queue) if self.moves.asked.contains(queue))
    }

    /// Whether a message may be gone with the memory of an earlier run. A message that was in the
    /// log without need may be in memory alone where its queue lives now.
    pub(super) fn is_perhaps_forgotten(&self, (place, message): &Spot, copy: &MessageCopy) -> bool {
        let lasts = |letter: &Letter| letter.sent.message.persistent;
        let need_not_last = matches!(place, Place::Queue(queue) if self.is_forgetful(queue))
            || !self.letters.get(message).is_some_and(lasts);
        copy.run != self.run && (copy.volatile || need_not_last && self.has_perhaps_moved(place))
    }

    /// The credit of a consumer changes where it is, or where it was before.
    pub(super) fn credit_at(
        &mut self,
        partition: PartitionId,
        key: ConsumerKey,
        change: impl FnOnce(&mut u32),
    ) {
        if let Some(credit) = self.moves.left_behind.get_mut(&(key, partition)) {
            return credit.as_mut().map_or((), change);
        }
        if let Some(reader) = self.readers.get_mut(&key) {
            change(&mut reader.credit);
        }
    }

    /// A partition has done with a consumer, which is to follow its queue: it has nothing from
    /// there any more.
    pub(super) fn departs(&mut self, key: ConsumerKey, from: PartitionId) -> Checked {
        let holds = self.copies.iter().find(|(_, copy)| {
            let held = match copy.hold {
                Hold::Held(by) => by == key && copy.ended.is_none() && !copy.perhaps_taken,
                Hold::InTransaction(number, by) => by == key && self.operations[number].fate == Fate::Open,
                Hold::Free => false,
            };
            held && !copy.gone && !copy.disputed && !copy.perhaps_held
        });
        if let Some(((place, message), _)) = holds {
            return Err(format!("{key:?} is to follow its queue, and holds message {message} of {place:?}"));
        }
        let Some(reader) = self.readers.get_mut(&key) else {
            return Err(format!("{key:?} is to follow its queue, and is not there"));
        };
        (reader.attached, reader.follows) = (false, true);
        reader.held.clear();
        let credit = std::mem::take(&mut reader.credit);
        let source = reader.source.clone();
        let is_followed = reader.mode != ConsumerMode::Browse;
        self.moves.left_behind.insert((key, from), is_followed.then_some(credit));
        self.groups.retain(|_, owner| *owner != key);
        if let Some(line) = self.lines.get_mut(&source) {
            line.retain(|other| *other != key);
        }
        Ok(())
    }

    /// It gets its credit back, which it uses where it is now.
    pub(super) fn has_left(&mut self, key: ConsumerKey, from: PartitionId, credit: u32) -> Checked {
        match self.moves.left_behind.remove(&(key, from)) {
            Some(None) => Ok(()),
            Some(Some(had)) if had == credit => Ok(()),
            had => Err(format!("{key:?} had a credit of {had:?} in {from:?}, and takes {credit} along")),
        }
    }

    /// It comes to where its queue lives now.
    pub(super) fn follows(&mut self, key: ConsumerKey, to: PartitionId) {
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.at = to;
        }
    }

    /// It is there, or its client gets the reply that it cannot be.
    pub(super) fn has_followed(&mut self, key: ConsumerKey, good: bool) {
        let Some(reader) = self.readers.get_mut(&key).filter(|reader| reader.follows) else { return };
        if !good {
            self.readers.remove(&key);
            return;
        }
        (reader.attached, reader.follows) = (true, false);
        let source = reader.source.clone();
        self.lines.entry(source).or_default().push(key);
    }
}
