//! Dead letters that go back: they come to a queue of their own, and for all else they count as
//! dead letters still.

use postroad_model::{ConnectionId, ConsumerKey, Destination, Ticket};

use super::{Ask, Oracle, Place};

/// The operators' requests, and their results.
#[derive(Default)]
pub(super) struct Reviving {
    to: Option<Destination>,
    asked: bool,
    /// Deliveries from there.
    delivered: u64,
}

impl Oracle {
    /// From the start: dead letters may go back to this queue, and nothing else comes there.
    pub fn expect_reviving(&mut self, to: Option<Destination>) {
        self.reviving.to = to;
    }

    /// An operator redrives dead letters.
    pub(super) fn asked_to_revive(&mut self, connection: ConnectionId, ticket: Ticket) {
        self.reviving.asked = true;
        self.ask(connection, ticket, Ask::Other);
    }

    /// Deliveries of dead letters that went back.
    pub fn revived(&self) -> u64 {
        self.reviving.delivered
    }

    /// Whether it is a consumer of those.
    pub(super) fn reads_revived(&mut self, key: ConsumerKey) -> bool {
        let source = self.readers.get(&key).map(|reader| &reader.source);
        let reads = source.is_some_and(|source| self.reviving.to.as_ref() == Some(source));
        self.reviving.delivered += u64::from(reads);
        reads
    }

    /// Whether the messages there may be elsewhere by now, and have begun again there.
    pub(super) fn has_perhaps_revived(&self, place: &Place) -> bool {
        self.reviving.asked && matches!(place, Place::Queue(queue) if *queue == self.dead_letters)
    }
}
