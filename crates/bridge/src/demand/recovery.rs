//! Deliveries in doubt: those that a link had not confirmed when it was cut, or this broker
//! crashed, stay with the link until its peer says that it has them.

use std::sync::Arc;

use postroad_model::{
    Attach, ConsumerKey, ConsumerMode, Delivered, Destination, DestinationKind, Event, PartitionId, Share,
    link_to,
};
use postroad_openwire::network::{FORWARDER_NUMBER, Link};

use super::{Closing, DemandEngine, Subscription, Target};

/// A link that has not come back after this time may have no peer any more: its deliveries are
/// ready again.
const KEPT_MS: u32 = 60_000;

/// Consumers that take over deliveries in doubt have numbers of their own, from here on.
const HEIRS: u32 = 1 << 30;

/// The pattern of all queues.
const ALL: &str = ">";

/// Whether a peer recognises a message of this source that comes again.
fn is_recognised(link: &Link, target: &Target) -> bool {
    let Target { source, moves, .. } = target;
    let is_queue = source.kind == DestinationKind::Queue && !source.temporary && !source.is_pattern();
    link.counts_credit && (is_queue || moves.is_some())
}

impl DemandEngine {
    /// See [`link_to`]; `None` for what may be delivered to anyone when the link is cut.
    pub(super) fn heir_of(&self, target: &Target) -> Option<Arc<str>> {
        let link = self.link.as_ref()?;
        is_recognised(link, target).then(|| link_to(&link.peer_id))
    }

    /// Attaches a consumer without credit to all queues of each partition: it gets deliveries in
    /// doubt alone, and ends when the peer has answered them.
    pub(super) fn recover(&mut self, events: &mut Vec<Event>) {
        let Some(link) = self.link.as_ref().filter(|link| link.counts_credit) else { return };
        let (connection, name) = (link.connection, link_to(&link.peer_id));
        for partition in 0..link.partitions {
            let (ticket, source) = (self.ticket(), Destination::queue(ALL));
            let number = FORWARDER_NUMBER | HEIRS | u32::from(partition);
            let consumer = ConsumerKey::new(connection, number);
            events.push(Event::Attach(Attach {
                consumer,
                source: source.clone(),
                at: Some(PartitionId(partition)),
                mode: ConsumerMode::Shared,
                credit: 0,
                credit_by_default: false,
                priority: self.options.priority,
                no_local: false,
                client: None,
                selector: Arc::default(),
                subscription: None,
                share: Share::No,
                steals: Some(name.clone()),
                retroactive: false,
                notice: None,
                ticket,
            }));
            events.push(Event::Drain { consumer });
            let target = Target::of(source, Arc::default(), false);
            let subscription = Subscription {
                target,
                at: Some(PartitionId(partition)),
                window: 0,
                granted: 0,
                unanswered: 0,
                refusals: 0,
                far: None,
                closing: Closing::No,
            };
            self.subscriptions.insert(number, subscription);
        }
    }

    /// The link is cut: whether the peer has messages of this subscription that it did not confirm.
    pub(super) fn left_by(&self, link: &Link, subscription: &Subscription) -> Delivered {
        // One without a window has taken over deliveries in doubt, of whichever queue.
        let may_have_some = 0 < subscription.unanswered && is_recognised(link, &subscription.target);
        if !may_have_some && (0 < subscription.window || !link.counts_credit) {
            return Delivered::None;
        }
        Delivered::InDoubt { kept_ms: KEPT_MS }
    }
}
