//! Draining: the broker takes no more messages of clients, and deliveries go on, until an operator
//! resumes it.
//!
//! Known to this process alone: a restart ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postroad_model::{Event, LeaseEvent, Principal, Refusal, Ticket};

/// Whether the broker is being drained; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// Begins or ends it.
    pub fn set(&self, drains: bool) {
        self.0.store(drains, Ordering::Relaxed);
    }

    /// Whether it has begun.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether messages of this principal are refused now. Those of the broker itself, such as
    /// alerts, are not.
    pub(crate) fn refuses(&self, principal: &Principal) -> bool {
        self.is_on() && !matches!(principal, Principal::Operator)
    }
}

/// The refusal of an event that sends a message, for the ticket that waits for it.
pub(crate) fn refusal(event: &Event) -> Option<(Ticket, Refusal)> {
    let ticket = match event {
        Event::Publish(publish) if !publish.is_notice => publish.ticket,
        Event::Chunk { ticket, .. } => *ticket,
        Event::Lease(event) => match &**event {
            LeaseEvent::Post(post) => post.ticket,
            _ => return None,
        },
        _ => return None,
    };
    Some((ticket, Refusal::Draining))
}

#[cfg(test)]
mod tests {
    use postroad_model::{ConnectionId, Destination};

    use super::*;

    #[test]
    fn only_messages_of_clients_are_refused() {
        let draining = Draining::default();
        assert!(!draining.refuses(&Principal::Anonymous));
        draining.clone().set(true);
        assert!(draining.refuses(&Principal::Anonymous) && draining.refuses(&Principal::User("ann".into())));
        assert!(!draining.refuses(&Principal::Operator));
        let (queue, connection, ticket) = (Destination::queue("a"), ConnectionId::new(0, 1), Ticket(7));
        let piece =
            Event::Chunk { connection, upload: 1, to: [queue.clone()].into(), bytes: "a".into(), ticket };
        assert_eq!(refusal(&piece), Some((ticket, Refusal::Draining)));
        let clear = LeaseEvent::Clear { queue, connection, ticket };
        assert_eq!(refusal(&Event::Lease(Box::new(clear))), None);
        assert_eq!(refusal(&Event::Echo { connection, ticket }), None);
    }
}
