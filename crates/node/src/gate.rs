//! The gate of one connection: which of its events the permissions refuse.
//!
//! Every protocol, the HTTP queues and the admin API pass their events through a router, so one
//! check serves all of them.

use std::sync::Arc;

use postroad_model::{Action, Destination, Event, LeaseEvent, Principal, Question, Refusal, Ticket};
use postroad_routing::{Grants, Permissions};
use rustc_hash::FxHashMap;

/// Verdicts that are remembered; beyond that all are forgotten and found again.
const REMEMBERED_MAX: usize = 1024;

/// Messages that clients send here control scheduled messages
/// (`ScheduledMessage.AMQ_SCHEDULER_MANAGEMENT_DESTINATION`).
const SCHEDULER_MANAGEMENT: &str = "ActiveMQ.Scheduler.Management";

/// Topics that say which consumers there are.
const CONSUMERS: &str = "ActiveMQ.Advisory.Consumer.>";

/// See the head of this file.
pub(crate) struct Gate {
    principal: Principal,
    /// The permissions that `grants` come from.
    permissions: Arc<Permissions>,
    grants: Grants,
    remembered: FxHashMap<(Action, Destination), bool>,
    /// The stores of names, where these are others.
    elsewhere: FxHashMap<Destination, Option<u16>>,
}

impl Gate {
    pub(crate) fn new(principal: Principal, permissions: Arc<Permissions>) -> Gate {
        let grants = permissions.grants_of(&principal);
        Gate {
            principal,
            permissions,
            grants,
            remembered: FxHashMap::default(),
            elsewhere: FxHashMap::default(),
        }
    }

    /// The refusal of this event and the ticket that waits for it, unless it is permitted by the
    /// permissions now in force.
    pub(crate) fn refusal(
        &mut self,
        event: &Event,
        in_force: &Arc<Permissions>,
    ) -> Option<(Ticket, Refusal)> {
        if !Arc::ptr_eq(&self.permissions, in_force) {
            *self = Gate::new(self.principal.clone(), in_force.clone());
        }
        if self.grants.permit_all() && self.permissions.places().is_none() {
            return None;
        }
        self.check(event).err()
    }

    fn check(&mut self, event: &Event) -> Result<(), (Ticket, Refusal)> {
        match event {
            Event::Publish(publish) if !publish.is_notice => {
                publish.sent.targets().try_for_each(|to| self.need(Action::Write, to, publish.ticket))
            }
            Event::Chunk { to, ticket, .. } => {
                to.iter().try_for_each(|to| self.need(Action::Write, to, *ticket))
            }
            Event::Attach(attach) => self.need(Action::Read, &attach.source, attach.ticket),
            Event::Declare { destination, ticket, .. } => self.need(Action::Create, destination, *ticket),
            Event::Delete { destination, ticket, .. } => self.need(Action::Manage, destination, *ticket),
            Event::Redrive { wanted, ticket, .. } => {
                self.need(Action::Manage, &wanted.from, *ticket)?;
                wanted.to.as_ref().map_or(Ok(()), |to| self.need(Action::Write, to, *ticket))
            }
            Event::Pause { queue, ticket, .. } => self.need(Action::Manage, queue, *ticket),
            Event::Move { queue, ticket, .. } => self.need(Action::Admin, queue, *ticket),
            Event::EndJobs { ticket, .. } | Event::BrowseJobs { ticket, .. } => {
                self.need(Action::Write, &Destination::topic(SCHEDULER_MANAGEMENT), *ticket)
            }
            Event::ListMoves { ticket, .. } => self.need_everywhere(Action::Admin, *ticket),
            Event::Document(request) => self.need_everywhere(Action::Admin, request.ticket),
            Event::Ask { ask, ticket, .. } => self.check_question(&ask.question, *ticket),
            Event::Lease(event) => self.check_lease(event),
            _ => Ok(()),
        }
    }

    fn check_question(&mut self, question: &Question, ticket: Ticket) -> Result<(), (Ticket, Refusal)> {
        match question {
            // They show selectors, and properties of messages: a temporary destination has no
            // permissions of its own that would protect them.
            Question::Consumers { of: Some(queue) } | Question::Explain { queue, .. } if queue.temporary => {
                self.need_everywhere(Action::Admin, ticket)
            }
            Question::Queues { only: Some(queue), .. } | Question::Consumers { of: Some(queue) } => {
                self.need_any(&[Action::Manage, Action::Read, Action::Write, Action::Create], queue, ticket)
            }
            Question::Explain { queue, .. } => self.need_any(&[Action::Manage, Action::Read], queue, ticket),
            // Links ask, whose users read the advisories of consumers.
            Question::Subscriptions { .. } => self.need(Action::Read, &Destination::topic(CONSUMERS), ticket),
            _ => self.need_everywhere(Action::Admin, ticket),
        }
    }

    fn check_lease(&mut self, event: &LeaseEvent) -> Result<(), (Ticket, Refusal)> {
        let ticket = event.ticket();
        let Some(queue) = event.queue() else { return Ok(()) };
        match event {
            LeaseEvent::Post(_) => self.need(Action::Write, queue, ticket),
            LeaseEvent::Reserve(_) | LeaseEvent::Handle(_) => self.need(Action::Read, queue, ticket),
            LeaseEvent::Configure { .. } => self.need(Action::Create, queue, ticket),
            LeaseEvent::Clear { .. } => self.need(Action::Manage, queue, ticket),
            LeaseEvent::Describe { .. } | LeaseEvent::Watch(_) => self.need_any(&Action::ALL, queue, ticket),
            LeaseEvent::Cancel { .. } | LeaseEvent::List { .. } | LeaseEvent::Configured { .. } => Ok(()),
        }
    }

    fn need_everywhere(&self, action: Action, ticket: Ticket) -> Result<(), (Ticket, Refusal)> {
        match self.grants.permit_everywhere(action) {
            true => Ok(()),
            false => Err((ticket, self.not_permitted(action, &Destination::queue(">")))),
        }
    }

    /// One of the actions is enough. The refusal names the first one.
    fn need_any(
        &mut self,
        actions: &[Action],
        destination: &Destination,
        ticket: Ticket,
    ) -> Result<(), (Ticket, Refusal)> {
        let mut refused = Ok(());
        for action in actions {
            match self.need(*action, destination, ticket) {
                Ok(()) => return Ok(()),
                Err(refusal) => refused = refused.and(Err(refusal)),
            }
        }
        refused
    }

    fn need(
        &mut self,
        action: Action,
        destination: &Destination,
        ticket: Ticket,
    ) -> Result<(), (Ticket, Refusal)> {
        if destination.temporary {
            return Ok(());
        }
        if let Some(store) = self.other_store(destination) {
            return Err((ticket, Refusal::OtherStore { destination: destination.clone(), store }));
        }
        let asked = (action, destination.clone());
        let permitted = match self.remembered.get(&asked) {
            Some(permitted) => *permitted,
            None => {
                if REMEMBERED_MAX <= self.remembered.len() {
                    self.remembered.clear();
                }
                let permitted = self.grants.permit(action, destination);
                self.remembered.insert(asked, permitted);
                permitted
            }
        };
        if permitted { Ok(()) } else { Err((ticket, self.not_permitted(action, destination))) }
    }

    /// The store of the cluster that has the destination, if it is another one.
    fn other_store(&mut self, destination: &Destination) -> Option<u16> {
        let places = self.permissions.places()?;
        if let Some(known) = self.elsewhere.get(destination) {
            return *known;
        }
        if REMEMBERED_MAX <= self.elsewhere.len() {
            self.elsewhere.clear();
        }
        let store = places.elsewhere(destination);
        self.elsewhere.insert(destination.clone(), store);
        store
    }

    fn not_permitted(&self, action: Action, destination: &Destination) -> Refusal {
        let (user, destination) = (self.principal.user().cloned(), destination.clone());
        Refusal::NotPermitted { user, action, destination }
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{Ask, ConnectionId, Explained, Order};
    use postroad_routing::{DestinationPattern, Grantee, Permission, StorePlaces};

    use super::*;

    const CONNECTION: ConnectionId = ConnectionId::new(0, 1);

    fn permissions(actions: &[Action]) -> Arc<Permissions> {
        let mut permissions = Permissions::default();
        permissions.add(Permission {
            grantees: vec![Grantee::User("ann".into())],
            destinations: vec![DestinationPattern::parse("queue://orders.>").expect("a pattern")],
            actions: actions.iter().copied().collect(),
        });
        Arc::new(permissions)
    }

    fn ask(question: Question) -> Event {
        let ask = Arc::new(Ask { question, order: Order::default(), after: None, rows: 1 });
        Event::Ask { ask, connection: CONNECTION, ticket: Ticket(7) }
    }

    fn declare(name: &str) -> Event {
        let destination = Destination::queue(name);
        Event::Declare { destination, connection: CONNECTION, steals: None, ticket: Ticket(7) }
    }

    fn delete(name: &str) -> Event {
        Event::Delete { destination: Destination::queue(name), connection: CONNECTION, ticket: Ticket(7) }
    }

    fn clear(name: &str) -> Event {
        let queue = Destination::queue(name);
        Event::Lease(Box::new(LeaseEvent::Clear { queue, connection: CONNECTION, ticket: Ticket(7) }))
    }

    fn describe(name: &str) -> Event {
        let queue = Destination::queue(name);
        Event::Lease(Box::new(LeaseEvent::Describe { queue, connection: CONNECTION, ticket: Ticket(7) }))
    }

    #[test]
    fn each_event_needs_the_action_that_it_performs() {
        let only =
            |name: &str| Question::Queues { name_part: "".into(), only: Some(Destination::queue(name)) };
        let explain = |name: &str| Question::Explain { queue: Destination::queue(name), of: Explained::Next };
        for (event, granted, refused) in [
            (declare("orders.a"), vec![Action::Create], vec![Action::Read, Action::Write]),
            (delete("orders.a"), vec![Action::Manage], vec![Action::Create]),
            (clear("orders.a"), vec![Action::Manage], vec![Action::Read]),
            (describe("orders.a"), Action::ALL.to_vec(), vec![]),
            (declare("other"), vec![], Action::ALL.to_vec()),
            (
                ask(only("orders.a")),
                vec![Action::Read, Action::Write, Action::Manage, Action::Create],
                vec![Action::Admin],
            ),
            (ask(only("other")), vec![], Action::ALL.to_vec()),
            (
                ask(explain("orders.a")),
                vec![Action::Read, Action::Manage],
                vec![Action::Write, Action::Create, Action::Admin],
            ),
            (ask(explain("other")), vec![], Action::ALL.to_vec()),
            (ask(Question::Connections), vec![], Action::ALL.to_vec()),
            (Event::Credit { consumer: consumer(), add: 1 }, Action::ALL.to_vec(), vec![]),
        ] {
            let refusal = |action: Action| {
                let permissions = permissions(&[action]);
                let mut gate = Gate::new(Principal::User("ann".into()), permissions.clone());
                gate.refusal(&event, &permissions)
            };
            for action in granted {
                assert_eq!(refusal(action), None, "{event:?} with {action}");
            }
            for action in refused {
                let (ticket, found) = refusal(action).unwrap_or_else(|| panic!("{event:?} with {action}"));
                assert_eq!(ticket, Ticket(7));
                assert!(matches!(found, Refusal::NotPermitted { .. }), "{found}");
            }
        }
    }

    #[test]
    fn temporary_destinations_are_looked_into_by_administrators_alone() {
        let queue = || Destination { temporary: true, ..Destination::queue("t") };
        let permissions = permissions(&Action::ALL);
        let mut gate = Gate::new(Principal::User("ann".into()), permissions.clone());
        let mut operator = Gate::new(Principal::Operator, permissions.clone());
        for (question, is_refused) in [
            (Question::Queues { name_part: "".into(), only: Some(queue()) }, false),
            (Question::Consumers { of: Some(queue()) }, true),
            (Question::Explain { queue: queue(), of: Explained::Next }, true),
        ] {
            let event = ask(question);
            assert_eq!(gate.refusal(&event, &permissions).is_some(), is_refused, "{event:?}");
            assert_eq!(operator.refusal(&event, &permissions), None, "{event:?}");
        }
    }

    fn consumer() -> postroad_model::ConsumerKey {
        postroad_model::ConsumerKey { connection: CONNECTION, number: 1, member: 0 }
    }

    #[test]
    fn new_permissions_count_at_once() {
        let none = Arc::<Permissions>::default();
        let some = permissions(&[Action::Create]);
        let mut gate = Gate::new(Principal::Anonymous, none.clone());
        assert_eq!(gate.refusal(&declare("orders.a"), &none), None);
        let refused = gate.refusal(&declare("orders.a"), &some);
        let (_, refusal) = refused.expect("the anonymous user has no permission");
        let text = "the anonymous user has no permission to create queue://orders.a";
        assert!(refusal.to_string().starts_with(text), "{refusal}");
        let mut gate = Gate::new(Principal::User("ann".into()), some.clone());
        assert_eq!(gate.refusal(&declare("orders.a"), &some), None);
        let mut operator = Gate::new(Principal::Operator, some.clone());
        assert_eq!(operator.refusal(&ask(Question::Connections), &some), None);
    }

    #[test]
    fn names_of_another_store_are_refused_with_its_number_for_operators_too() {
        let mut permissions = Permissions::default();
        let owns = [DestinationPattern::parse("queue://acme.>").expect("a pattern")];
        let mut places = StorePlaces::of_store(1, 3);
        places.add_tenant("acme", &owns, 2);
        permissions.place(places);
        let permissions = Arc::new(permissions);
        let mut gate = Gate::new(Principal::Operator, permissions.clone());
        assert_eq!(gate.refusal(&declare("other.a"), &permissions), None);
        let (ticket, refusal) = gate.refusal(&declare("acme.a"), &permissions).expect("it is elsewhere");
        assert_eq!(ticket, Ticket(7));
        assert!(refusal.to_string().starts_with("queue://acme.a is in store 2"), "{refusal}");
    }

    #[test]
    fn the_memory_of_verdicts_is_bounded() {
        let some = permissions(&[Action::Create]);
        let mut gate = Gate::new(Principal::User("ann".into()), some.clone());
        for number in 0..=REMEMBERED_MAX {
            assert_eq!(gate.refusal(&declare(&format!("orders.{number}")), &some), None);
        }
        assert_eq!(gate.remembered.len(), 1);
    }
}
