//! Temporary destinations of the peer, which exist here too for requests and their replies.

use postroad_model::{ConnectionId, Destination, Event, Refusal, link_to};

use super::{DemandEngine, Subscription};

/// Temporary destinations of the peer that exist here too.
const TEMPORARIES_MAX: usize = 16_384;

impl DemandEngine {
    /// The peer has a temporary destination, which a consumer of it `reads`. Each connection of a
    /// link declares it, as a request may come over any of them.
    pub(super) fn declare(&mut self, destination: Destination, reads: bool, events: &mut Vec<Event>) {
        let Some(link) = &self.link else { return };
        let connection = link.connection;
        let is_known = self.temporaries.contains(&destination)
            || self.declaring.values().any(|declared| *declared == destination);
        let takes_over = reads && self.is_one_of_several() && self.options.share.has(&destination);
        if is_known && !takes_over || !self.options.temporaries || TEMPORARIES_MAX <= self.temporaries.len() {
            return;
        }
        self.declare_at(connection, destination, events);
    }

    fn declare_at(&mut self, connection: ConnectionId, destination: Destination, events: &mut Vec<Event>) {
        let (ticket, Some(link)) = (self.ticket(), &self.link) else { return };
        // The connection that reads it has to own it, even if another one of the link knew of it
        // first.
        let steals = self.is_one_of_several().then(|| link_to(&link.peer_id));
        self.declaring.insert(ticket, destination.clone());
        events.push(Event::Declare { destination, connection, steals, ticket });
    }

    fn is_one_of_several(&self) -> bool {
        1 < self.options.share.of
    }

    /// The core lets the owner of a temporary destination read it alone. Another connection of the
    /// link may have declared it after this one; otherwise its connection has deleted it.
    pub(super) fn temporary_refused(
        &mut self,
        subscription: &Subscription,
        refusal: &Refusal,
        events: &mut Vec<Event>,
    ) {
        let Subscription { target, at, window, .. } = subscription;
        let Some(connection) = self.link.as_ref().map(|link| link.connection) else { return };
        let is_stolen = self.is_one_of_several() && matches!(refusal, Refusal::NotOwner(_));
        if is_stolen && self.targets.contains_key(target) {
            self.declare_at(connection, target.source.clone(), events);
            self.attach(target, *at, *window, events);
        }
    }

    /// A temporary destination of the peer has gone.
    pub(super) fn delete(&mut self, destination: Destination, events: &mut Vec<Event>) {
        let is_known = self.temporaries.remove(&destination);
        // Of several connections the one deletes it that has read it.
        if is_known && self.options.share.has(&destination) {
            self.deleting.insert(destination.clone());
            self.delete_if_unread(destination, events);
        }
    }

    /// Deletes a temporary destination that is gone at the peer, once its last subscription has
    /// ended: the core deletes none in use.
    pub(super) fn delete_if_unread(&mut self, destination: Destination, events: &mut Vec<Event>) {
        let is_read = self.subscriptions.values().any(|of| of.target.source == destination);
        let Some(connection) = self.link.as_ref().map(|link| link.connection) else { return };
        if is_read || !self.deleting.remove(&destination) {
            return;
        }
        if self.is_one_of_several() {
            self.declare_at(connection, destination.clone(), events);
            self.declaring.retain(|_, declared| *declared != destination);
        }
        let ticket = self.ticket();
        events.push(Event::Delete { destination, connection, ticket });
    }
}
