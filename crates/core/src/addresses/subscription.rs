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
use crate::addresses::destination::delete_queue;
use crate::addresses::{moving, offline};
use crate::delivery::consumer::{make_subscription, oust};
use crate::delivery::selection;
use crate::intake::limit::new_queue;
use crate::intake::waiting::end_named_subscription;
use crate::partition::{add_queue, reply};
use crate::queue::Queue;
use crate::retained::begin_replay;
use crate::settings::Settings;
use crate::state::State;
use crate::transaction::tell;

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

/// The queue of a durable subscription; `None` if the log must make it first, or is making it.
/// One that was made with another selector or topic is made again (JMS 3.1, section 8.3.3).
pub fn find_subscription(
    partition: &Partition,
    attach: &Attach,
    name: &Arc<str>,
) -> Result<Option<QueueId>, Refusal> {
    if Subscription::without_aside(name).is_some() {
        return moving::find(partition, attach, name);
    }
    let queue = partition.state.subscriptions.get(name).and_then(|id| partition.state.queues.get(id));
    let Some(queue) = queue.filter(|_| !partition.leader.intake.waiting.is_for_subscription(name)) else {
        return Ok(None);
    };
    let wanted = wanted(attach, name);
    let Some(found) = queue.subscription.as_ref() else { return Ok(None) };
    let same = *found == wanted;
    if found.shared != wanted.shared {
        return Err(Refusal::SubscriptionOfOtherKind { name: name.clone(), shared: found.shared });
    }
    let is_free = moving::has_no_reader(&partition.leader, queue) || same && found.shared;
    if !is_free {
        return Err(Refusal::SubscriptionInUse { name: name.clone() });
    }
    Ok(same.then_some(queue.id))
}

/// Whether the reader of a subscription is left over from the same user: other users' readers
/// are theirs, and those of the same connection reads was not left.
pub fn may_steal(partition: &Partition, attach: &Attach, name: &Arc<str>) -> bool {
    let queue = partition.state.subscriptions.get(name).and_then(|id| partition.state.queues.get(id));
    let mut readers = queue.into_iter().flat_map(|queue| queue.consumers.iter());
    let is_its = |reader: &ConsumerKey| {
        reader.connection != attach.consumer.connection
            && partition
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
pub fn take_subscription(partition: &mut Partition, name: &Arc<str>, effects: &mut Vec<Effect>) {
    let queue = partition.state.subscriptions.get(name).and_then(|id| partition.state.queues.get(id));
    let alone = |queue: &&Queue| queue.subscription.as_ref().is_some_and(|found| !found.shared);
    let readers =
        queue.filter(alone).map_or_else(Vec::new, |queue| queue.consumers.iter().copied().collect());
    let is_aside = Subscription::without_aside(name).is_some();
    for reader in readers {
        // A link has been told to leave it, and keeps what it has until its peer has answered.
        if !is_aside && moving::moves(&partition.leader, reader) {
            continue;
        }
        // Its entries wait for the reader to come.
        let _ = oust(partition, reader, DetachCause::Stolen, effects);
    }
}

/// The queue of a subscription that ends with its last reader, made for its first one.
pub fn shared_subscription(
    partition: &mut Partition,
    attach: &Attach,
    name: &Arc<str>,
    effects: &mut Vec<Effect>,
) -> Result<QueueId, Refusal> {
    let wanted = wanted(attach, name);
    if let Some(queue) =
        partition.leader.volatile.subscriptions.get(name).and_then(|id| partition.state.queues.get(id))
    {
        return match queue.subscription.as_ref() == Some(&wanted) {
            true => Ok(queue.id),
            false => Err(Refusal::SubscriptionInUse { name: name.clone() }),
        };
    }
    let selector = selection::parse(&attach.selector)?;
    let id = make_subscription(partition, attach, selector, effects);
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.subscription = Some(wanted);
    }
    partition.leader.volatile.subscriptions.insert(name.clone(), id);
    Ok(id)
}

/// A durable subscription was made: its retroactive messages are in memory alone, as in
/// ActiveMQ.
pub fn begin_subscription(partition: &mut Partition, attach: &Attach, effects: &mut Vec<Effect>) {
    let id = attach.subscription.as_ref().and_then(|name| partition.state.subscriptions.get(name)).copied();
    let Some(id) = id.filter(|id| partition.state.queues.get(id).is_some_and(|queue| queue.len() == 0))
    else {
        return;
    };
    let selector = selection::parse(&attach.selector).ok().flatten();
    begin_replay(partition, id, attach, selector, false, effects);
}

pub fn apply_subscribe(partition: &mut Partition, subscription: Subscription, effects: &mut Vec<Effect>) {
    if moving::apply(partition, &subscription, effects) {
        return;
    }
    let existing =
        partition.state.subscriptions.get(&subscription.name).and_then(|id| partition.state.queues.get(id));
    if existing.is_some_and(|queue| queue.subscription.as_ref() == Some(&subscription)) {
        return;
    }
    apply_unsubscribe(partition, &subscription.name, effects);
    let id = partition.state.take_queue_id(partition.settings.id);
    bind_subscription(
        partition,
        new_queue(&partition.state, &partition.leader, &partition.settings, id, subscription.topic.clone()),
        subscription,
    );
}

/// Makes the queue a durable subscription.
pub fn bind_subscription(partition: &mut Partition, mut queue: Queue, subscription: Subscription) {
    let selector = selection::of_binding(&subscription.selector);
    let selectors = selector.map(|selector| vec![selector]);
    partition.state.addresses.bound_mut(&subscription.topic).insert(queue.id, selectors);
    partition.state.subscriptions.insert(subscription.name.clone(), queue.id);
    partition.state.skipping_subscriptions += u64::from(subscription.skips.is_some());
    queue.subscription = Some(subscription);
    let id = queue.id;
    add_queue(&mut partition.state, &mut partition.leader, queue);
    offline::note(partition, id);
}

pub fn apply_unsubscribe(partition: &mut Partition, name: &Arc<str>, effects: &mut Vec<Effect>) {
    if let Some(id) = partition.state.subscriptions.remove(name) {
        delete_queue(partition, id, effects);
    }
}

/// This durable subscription was made in another partition: one of its name and kind here is
/// over if it reads another topic, as it would be if both topics lived here (see
/// [`find_subscription`]); unless it has a reader.
pub fn end_former_subscription(partition: &mut Partition, made: &Subscription, effects: &mut Vec<Effect>) {
    let queue = partition.state.subscriptions.get(&made.name).and_then(|id| partition.state.queues.get(id));
    let unread = queue.filter(|queue| queue.consumers.is_empty());
    let is_over = unread
        .and_then(|queue| queue.subscription.as_ref())
        .is_some_and(|found| found.topic != made.topic && found.shared == made.shared);
    if is_over && !partition.leader.intake.waiting.is_for_subscription(&made.name) {
        end_named_subscription(partition, made.name.clone(), None, effects);
    }
}

pub fn begin_unsubscribing(
    partition: &mut Partition,
    name: Arc<str>,
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    if partition
        .leader
        .intake
        .waiting
        .wait_for_subscription(&name, &Event::Unsubscribe { name: name.clone(), connection, ticket })
    {
        return;
    }
    let queue = partition.state.subscriptions.get(&name).and_then(|id| partition.state.queues.get(id));
    let refusal = match queue {
        None if let Some(aside) = moving::aside_of(&partition.state, &name) => {
            return end_named_subscription(partition, aside, Some((connection, ticket)), effects);
        }
        None => Refusal::NoSuchSubscription { name },
        // Something has come to it after all.
        Some(queue) if Subscription::without_aside(&name).is_some() && 0 < queue.len() => {
            Refusal::SubscriptionInUse { name }
        }
        Some(queue) if !queue.consumers.is_empty() => Refusal::SubscriptionInUse { name },
        Some(_) => {
            return end_named_subscription(partition, name, Some((connection, ticket)), effects);
        }
    };
    reply(connection, ticket, Err(refusal), effects);
}
