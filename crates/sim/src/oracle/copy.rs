//! Copies of messages, each in its place, with their known state.

use postroad_model::PartitionId;

use super::resting::Rest;
use super::{Hold, Number, Oracle, Spot};

/// A message in one place.
pub(super) struct MessageCopy {
    pub created: Number,
    pub ended: Option<Number>,
    pub hold: Hold,
    pub delivered: bool,
    /// Bounds of the delivery count.
    pub failed: (u32, u32),
    /// The count that is known to be durable.
    pub floor: u32,
    /// The run of its last delivery.
    pub seen_run: u64,
    pub volatile: bool,
    pub run: u64,
    /// Its place was deleted.
    pub gone: bool,
    /// Whether it is free is not known.
    pub perhaps_held: bool,
    /// A consumer got it back from a transaction: its place among the consumer's messages is open.
    pub again: bool,
    /// It may have been taken back from who holds it.
    pub perhaps_taken: bool,
    /// The partition of its last delivery.
    pub at: Option<PartitionId>,
    /// Several consumers speak about it, from whom it may have been taken back: it may be here or
    /// not.
    pub disputed: bool,
    /// It rests, or may, until it comes again.
    pub rest: Option<Rest>,
}

impl Oracle {
    pub(super) fn copy(&mut self, spot: Spot, created: Number, volatile: bool) {
        self.operations[created].sends.push(spot.clone());
        let fresh = MessageCopy {
            created,
            ended: None,
            hold: Hold::Free,
            delivered: false,
            failed: (0, 0),
            floor: 0,
            seen_run: self.run,
            volatile,
            run: self.run,
            gone: false,
            perhaps_held: false,
            again: false,
            perhaps_taken: false,
            at: None,
            disputed: false,
            rest: None,
        };
        self.copies.insert(spot, fresh);
    }

    /// Whether it is surely there, not in flight, and does not rest.
    pub(super) fn is_free(&self, copy: &MessageCopy) -> bool {
        let ended = copy.ended.is_some() || copy.gone || copy.disputed;
        copy.hold == Hold::Free && !copy.perhaps_held && !ended && self.has_rested(copy)
    }
}

impl MessageCopy {
    /// It comes to a consumer, which may leave in the same turn.
    pub fn arrives(&mut self, leaves: bool, volatile: bool) {
        (self.ended, self.delivered, self.volatile) = (None, true, volatile);
        (self.perhaps_held, self.perhaps_taken, self.disputed) = (leaves, false, false);
        self.rest = None;
    }

    pub fn count(&mut self, at_least: u32, at_most: u32) {
        self.failed.0 += at_least;
        self.failed.1 += at_most;
    }
}
