//! Subscriptions with names: queues bound to a topic that outlive a reader, or that several share.
//!
//! | share | without a name | with a name |
//! |---|---|---|
//! | no | ends with its reader | durable, one reader at a time |
//! | durable | | durable, any number of readers |
//! | volatile | | ends with its last reader |

use std::sync::Arc;

use postroad_model::{
    Attach, ConnectionId, ConsumerKey, Destination, DetachCause, Effect, Event, PartitionId, Peer, QueueId,
    Refusal, Share, Subscription, Ticket,
};

use crate::Partition;
use crate::addresses::{moving, offline};
use crate::delivery::selection;
use crate::intake::limit::new_queue;
use crate::partition::{add_queue, reply};
use crate::queue::Queue;
use crate::settings::Settings;
use crate::state::State;
use crate::transaction::tell;

impl Partition {
    /// The queue of a durable subscription; `None` if the log must make it first, or is making it.
    /// One that was made with another selector or topic is made again (JMS 3.1, section 8.3.3).
    pub(crate) fn find_subscription(
        &self,
        attach: &Attach,
        name: &Arc<str>,
    ) -> Result<Option<QueueId>, Refusal> {
        if Subscription::without_aside(name).is_some() {
            return moving::find(self, attach, name);
        }
        let queue = self.state.subscriptions.get(name).and_then(|id| self.state.queues.get(id));
        let Some(queue) = queue.filter(|_| !self.leader.intake.waiting.is_for_subscription(name)) else {
            return Ok(None);
        };
        let wanted = wanted(attach, name);
        let Some(found) = queue.subscription.as_ref() else { return Ok(None) };
        let same = *found == wanted;
        if found.shared != wanted.shared {
            return Err(Refusal::SubscriptionOfOtherKind { name: name.clone(), shared: found.shared });
        }
        let is_free = moving::has_no_reader(self, queue) || same && found.shared;
        if !is_free {
            return Err(Refusal::SubscriptionInUse { name: name.clone() });
        }
        Ok(same.then_some(queue.id))
    }

    /// Whether the reader of a subscription is left over from the same user: other users' readers
    /// are theirs, and those of the same connection reads was not left.
    pub(crate) fn may_steal(&self, attach: &Attach, name: &Arc<str>) -> bool {
        let queue = self.state.subscriptions.get(name).and_then(|id| self.state.queues.get(id));
        let mut readers = queue.into_iter().flat_map(|queue| queue.consumers.iter());
        let is_its = |reader: &ConsumerKey| {
            reader.connection != attach.consumer.connection
                && self
                    .leader
                    .delivery
                    .consumers
                    .get(reader)
                    .is_some_and(|reader| reader.steals == attach.steals || reader.moves)
        };
        attach.steals.is_some() && readers.all(is_its)
    }

    /// Ends the reader of a durable subscription that is not shared: its own client reads it by
    /// another connection now.
    pub(crate) fn take_subscription(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let queue = self.state.subscriptions.get(name).and_then(|id| self.state.queues.get(id));
        let alone = |queue: &&Queue| queue.subscription.as_ref().is_some_and(|found| !found.shared);
        let readers =
            queue.filter(alone).map_or_else(Vec::new, |queue| queue.consumers.iter().copied().collect());
        let is_aside = Subscription::without_aside(name).is_some();
        for reader in readers {
            // A link has been told to leave it, and keeps what it has until its peer has answered.
            if !is_aside && moving::moves(self, reader) {
                continue;
            }
            // Its entries wait for the reader to come.
            let _ = self.oust(reader, DetachCause::Stolen, effects);
        }
    }

    /// The queue of a subscription that ends with its last reader, made for its first one.
    pub(crate) fn shared_subscription(
        &mut self,
        attach: &Attach,
        name: &Arc<str>,
        effects: &mut Vec<Effect>,
    ) -> Result<QueueId, Refusal> {
        let wanted = wanted(attach, name);
        if let Some(queue) =
            self.leader.volatile.subscriptions.get(name).and_then(|id| self.state.queues.get(id))
        {
            return match queue.subscription.as_ref() == Some(&wanted) {
                true => Ok(queue.id),
                false => Err(Refusal::SubscriptionInUse { name: name.clone() }),
            };
        }
        let selector = selection::parse(&attach.selector)?;
        let id = self.subscribe(attach, selector, effects);
        if let Some(queue) = self.state.queues.get_mut(&id) {
            queue.subscription = Some(wanted);
        }
        self.leader.volatile.subscriptions.insert(name.clone(), id);
        Ok(id)
    }

    /// A durable subscription was made: its retroactive messages are in memory alone, as in
    /// ActiveMQ.
    pub(crate) fn begin_subscription(&mut self, attach: &Attach, effects: &mut Vec<Effect>) {
        let id = attach.subscription.as_ref().and_then(|name| self.state.subscriptions.get(name)).copied();
        let Some(id) = id.filter(|id| self.state.queues.get(id).is_some_and(|queue| queue.len() == 0)) else {
            return;
        };
        let selector = selection::parse(&attach.selector).ok().flatten();
        self.begin_replay(id, attach, selector, false, effects);
    }

    pub(crate) fn apply_subscribe(&mut self, subscription: Subscription, effects: &mut Vec<Effect>) {
        if moving::apply(self, &subscription, effects) {
            return;
        }
        let existing =
            self.state.subscriptions.get(&subscription.name).and_then(|id| self.state.queues.get(id));
        if existing.is_some_and(|queue| queue.subscription.as_ref() == Some(&subscription)) {
            return;
        }
        self.apply_unsubscribe(&subscription.name, effects);
        let id = self.state.take_queue_id(self.settings.id);
        self.bind_subscription(
            new_queue(&self.state, &self.leader, &self.settings, id, subscription.topic.clone()),
            subscription,
        );
    }

    /// Makes the queue a durable subscription.
    pub(crate) fn bind_subscription(&mut self, mut queue: Queue, subscription: Subscription) {
        let selector = selection::of_binding(&subscription.selector);
        let selectors = selector.map(|selector| vec![selector]);
        self.state.addresses.bound_mut(&subscription.topic).insert(queue.id, selectors);
        self.state.subscriptions.insert(subscription.name.clone(), queue.id);
        self.state.skipping_subscriptions += u64::from(subscription.skips.is_some());
        queue.subscription = Some(subscription);
        let id = queue.id;
        add_queue(&mut self.state, &mut self.leader, queue);
        offline::note(self, id);
    }

    pub(crate) fn apply_unsubscribe(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        if let Some(id) = self.state.subscriptions.remove(name) {
            self.delete_queue(id, effects);
        }
    }

    /// This durable subscription was made in another partition: one of its name and kind here is
    /// over if it reads another topic, as it would be if both topics lived here (see
    /// [`Partition::find_subscription`]); unless it has a reader.
    pub(crate) fn end_former_subscription(&mut self, made: &Subscription, effects: &mut Vec<Effect>) {
        let queue = self.state.subscriptions.get(&made.name).and_then(|id| self.state.queues.get(id));
        let unread = queue.filter(|queue| queue.consumers.is_empty());
        let is_over = unread
            .and_then(|queue| queue.subscription.as_ref())
            .is_some_and(|found| found.topic != made.topic && found.shared == made.shared);
        if is_over && !self.leader.intake.waiting.is_for_subscription(&made.name) {
            self.end_subscription(made.name.clone(), None, effects);
        }
    }

    pub(crate) fn unsubscribe(
        &mut self,
        name: Arc<str>,
        connection: ConnectionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        if self
            .leader
            .intake
            .waiting
            .wait_for_subscription(&name, &Event::Unsubscribe { name: name.clone(), connection, ticket })
        {
            return;
        }
        let queue = self.state.subscriptions.get(&name).and_then(|id| self.state.queues.get(id));
        let refusal = match queue {
            None if let Some(aside) = moving::aside_of(self, &name) => {
                return self.end_subscription(aside, Some((connection, ticket)), effects);
            }
            None => Refusal::NoSuchSubscription { name },
            // Something has come to it after all.
            Some(queue) if Subscription::without_aside(&name).is_some() && 0 < queue.len() => {
                Refusal::SubscriptionInUse { name }
            }
            Some(queue) if !queue.consumers.is_empty() => Refusal::SubscriptionInUse { name },
            Some(_) => {
                return self.end_subscription(name, Some((connection, ticket)), effects);
            }
        };
        reply(connection, ticket, Err(refusal), effects);
    }
}

pub(crate) fn wanted(attach: &Attach, name: &Arc<str>) -> Subscription {
    Subscription {
        name: name.clone(),
        topic: attach.source.clone(),
        selector: attach.selector.trim().into(),
        skips: attach.client.clone().filter(|_| attach.no_local),
        shared: attach.share == Share::Durable,
    }
}

/// A durable subscription was made here: it may have read another topic before, in another
/// partition.
pub fn tell_of_subscription(state: &State, settings: &Settings, name: &Arc<str>, effects: &mut Vec<Effect>) {
    let queue = state.subscriptions.get(name).and_then(|id| state.queues.get(id));
    let Some(made) = queue.and_then(|queue| queue.subscription.as_ref()) else { return };
    let others = (0..settings.placement.partitions).map(PartitionId);
    for other in others.filter(|other| *other != settings.id) {
        tell(other, Peer::Subscribed(Box::new(made.clone())), effects);
    }
}

/// The subscription of this topic and name, whether it is set aside or not.
pub fn subscription_of(state: &State, topic: &Destination, name: &Arc<str>) -> Option<QueueId> {
    let aside = || state.subscriptions.get(&Subscription::aside_of(name));
    let id = state.subscriptions.get(name).or_else(aside).copied()?;
    state.queues.get(&id).is_some_and(|queue| queue.source == *topic).then_some(id)
}
