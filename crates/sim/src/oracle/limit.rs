//! Limits: the drops that a queue, or each subscription of a topic, may make, and the sends that
//! may have to wait for room there.

use postroad_model::Destination;

use super::{MessageNumber, Oracle, Place};

/// The destination that has a limit.
pub(super) struct Limited {
    at: Destination,
    /// Messages beyond it leave; otherwise sends wait.
    drops: bool,
}

impl Oracle {
    /// From the start: this destination has a limit, at which it drops, or sends wait.
    pub fn expect_limit(&mut self, at: Destination, drops: bool) {
        self.limited = Some(Limited { at, drops });
    }

    /// Whether the place may lose messages by its limit.
    pub(super) fn may_drop(&self, place: &Place) -> bool {
        let ring = self.limited.as_ref().filter(|limited| limited.drops);
        ring.is_some_and(|limited| self.source_of(place) == Some(&limited.at))
    }

    /// The queue that the place is, or the topic whose subscription it is.
    pub(super) fn source_of<'a>(&'a self, place: &'a Place) -> Option<&'a Destination> {
        match place {
            Place::Queue(queue) => Some(queue),
            Place::Named(name) => self.names.topic_of(name),
            Place::Subscription(key) => self.readers.get(key).map(|reader| &reader.source),
        }
    }

    /// Whether the message may have to wait for room, at any of its addresses or where a topic
    /// takes it.
    pub(super) fn is_to_narrow(&self, message: MessageNumber) -> bool {
        let Some(narrow) = self.limited.as_ref().filter(|limited| !limited.drops) else { return false };
        let Some(letter) = self.letters.get(&message) else { return false };
        letter.sent.targets().any(|to| *to == narrow.at)
            || self.is_fed(&(Place::Queue(narrow.at.clone()), message))
    }
}
