//! Events that cannot go on before the log has made what they need, a queue or a durable subscription, or has ended the subscription
//! that is there.
//!
//! What concerns a consumer that waits here waits behind it. What the log then says is told to each in turn.

use std::collections::HashMap;
use std::sync::Arc;

use postroad_model::{Attach, Command, ConnectionId, Destination, Effect, Event, Refusal, Ticket, Urgency};

use crate::Partition;
use crate::addresses::binding;
use crate::log::completion::Completion;

/// See the head of this file.
#[derive(Default)]
pub struct Waiting {
    for_queues: HashMap<Destination, Vec<Event>>,
    for_subscriptions: HashMap<Arc<str>, Vec<Event>>,
}

impl Waiting {
    /// Whether the queue is on its way into the log.
    pub fn is_for_queue(&self, queue: &Destination) -> bool {
        self.for_queues.contains_key(queue)
    }

    /// Whether the subscription is on its way into the log, or out of it.
    pub fn is_for_subscription(&self, name: &Arc<str>) -> bool {
        self.for_subscriptions.contains_key(name)
    }

    /// Puts an event behind what waits for the subscription; `false` if nothing does.
    pub fn wait_for_subscription(&mut self, name: &Arc<str>, event: &Event) -> bool {
        let waiting = self.for_subscriptions.get_mut(name);
        waiting.map(|waiting| waiting.push(event.clone())).is_some()
    }

    /// What waited for the queue, in order.
    pub fn take_for_queue(&mut self, queue: &Destination) -> Vec<Event> {
        self.for_queues.remove(queue).unwrap_or_default()
    }

    /// What waited for the subscription, in order.
    pub fn take_for_subscription(&mut self, name: &Arc<str>) -> Vec<Event> {
        self.for_subscriptions.remove(name).unwrap_or_default()
    }

    fn lines(&mut self) -> impl Iterator<Item = &mut Vec<Event>> {
        self.for_queues.values_mut().chain(self.for_subscriptions.values_mut())
    }

    /// What concerns a consumer that waits waits behind it; anything else is given back.
    pub fn behind_its_attach(&mut self, event: Event) -> Option<Event> {
        let (Event::Detach { consumer, .. } | Event::Credit { consumer, .. } | Event::Drain { consumer }) =
            event
        else {
            return Some(event);
        };
        let attaches = |event: &Event| matches!(event, Event::Attach(attach) if attach.consumer == consumer);
        match self.lines().find(|waiting| waiting.iter().any(attaches)) {
            Some(waiting) => {
                waiting.push(event);
                None
            }
            None => Some(event),
        }
    }

    /// The connection has ended: its consumers come no more.
    pub fn forget_consumers_of(&mut self, connection: ConnectionId) {
        for waiting in self.lines() {
            waiting.retain(|event| !concerns_consumer_of(event, connection));
        }
    }
}

fn concerns_consumer_of(event: &Event, connection: ConnectionId) -> bool {
    match event {
        Event::Attach(attach) => attach.consumer.connection == connection,
        Event::Detach { consumer, .. } | Event::Credit { consumer, .. } | Event::Drain { consumer } => {
            consumer.connection == connection
        }
        _ => false,
    }
}

impl Partition {
    /// Puts an event off until its queue is in the log; what comes later for that queue waits behind it.
    pub(crate) fn declare_first(&mut self, queue: Destination, event: Event, effects: &mut Vec<Effect>) {
        // A line is there as long as its queue is on the way, even if everybody has left it.
        if let Some(waiting) = self.waiting.for_queues.get_mut(&queue) {
            return waiting.push(event);
        }
        let attach = binding::attach_of(&event).cloned();
        self.waiting.for_queues.insert(queue.clone(), vec![event]);
        let completion = Completion::Declared { queue: queue.clone() };
        self.propose_queue(queue, attach.as_ref(), completion, effects);
    }

    /// Puts a reader off until its durable subscription is in the log; what comes later for that subscription waits behind it.
    pub(crate) fn subscribe_first(&mut self, name: &Arc<str>, attach: Attach, effects: &mut Vec<Effect>) {
        if let Some(waiting) = self.waiting.for_subscriptions.get_mut(name) {
            return waiting.push(Event::Attach(attach));
        }
        let command = Command::Subscribe(crate::addresses::subscription::wanted(&attach, name));
        self.waiting.for_subscriptions.insert(name.clone(), vec![Event::Attach(attach)]);
        let completion = Completion::Subscribed { name: name.clone() };
        self.propose(command, Urgency::Waiting, completion, effects);
    }

    /// Ends a durable subscription. What comes for it from now on waits: it is not for what ends.
    pub(crate) fn end_subscription(
        &mut self,
        name: Arc<str>,
        (connection, ticket): (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        self.waiting.for_subscriptions.insert(name.clone(), Vec::new());
        let completion = Completion::Unsubscribed { name: name.clone(), connection, ticket };
        self.propose(Command::Unsubscribe { name }, Urgency::Waiting, completion, effects);
    }

    /// The log has made what these events need.
    pub(crate) fn resume(&mut self, waiting: Vec<Event>, effects: &mut Vec<Effect>) {
        for event in waiting {
            self.soft(event, effects);
        }
    }

    /// The log has not made what these events need.
    pub(crate) fn refuse_waiting(
        &mut self,
        waiting: Vec<Event>,
        refusal: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        for event in waiting {
            match event {
                // Its consumer was never attached: there is nothing to undo.
                Event::Detach { .. } => self.soft(event, effects),
                event => self.answer(waiter(&event), Err(refusal.clone()), effects),
            }
        }
    }
}

/// Who waits for an event to be carried out.
fn waiter(event: &Event) -> Option<(ConnectionId, Ticket)> {
    match event {
        Event::Publish(publish) => Some((publish.connection, publish.ticket)),
        Event::Attach(Attach { consumer, ticket, .. }) => Some((consumer.connection, *ticket)),
        Event::Unsubscribe { connection, ticket, .. } => Some((*connection, *ticket)),
        _ => None,
    }
}
