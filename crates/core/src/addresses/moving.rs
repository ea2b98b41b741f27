//! Subscriptions that are set aside: their subscriber reads them at another broker, and a link
//! takes their messages there.
//!
//! ```text
//!   S, read here ──reader leaves──▶ S ──a link's consumer comes──▶ "moving S" ──drained──▶ (ended)
//!         ▲                                                            │
//!         └──────────────── a reader comes here again ─────────────────┘
//! ```
//! It is one queue all the time; its name and its selector change. Set aside it gathers only what
//! was on its way to it from other brokers ([`Subscription::set_aside`]): what is sent here reaches
//! the subscription at the other broker by its topic.
//!
//! Never here: links, and who reads at the other broker.

use std::sync::Arc;

use postroad_model::{Attach, ConsumerKey, Effect, QueueId, Refusal, Subscription};

use crate::Partition;
use crate::addresses::subscription::{apply_unsubscribe, wanted};
use crate::delivery::line::leave_line;
use crate::delivery::selection;
use crate::leader::Leader;
use crate::queue::Queue;
use crate::state::State;

/// Whether the queue has no readers but those of links, which leave it to the first other one.
pub fn has_no_reader(leader: &Leader, queue: &Queue) -> bool {
    queue.consumers.iter().all(|key| moves(leader, *key))
}

/// Whether the consumer is a link's that takes a subscription to another broker.
pub fn moves(leader: &Leader, key: ConsumerKey) -> bool {
    leader.delivery.consumers.get(&key).is_some_and(|consumer| consumer.moves)
}

/// The queue of a subscription that is to be read as set aside; `None` if it must be set aside
/// first.
pub fn find(partition: &Partition, attach: &Attach, aside: &Arc<str>) -> Result<Option<QueueId>, Refusal> {
    let own: Arc<str> = Subscription::without_aside(aside).unwrap_or(aside).into();
    let none = || Refusal::NoSuchSubscription { name: own.clone() };
    let in_use = || Refusal::SubscriptionInUse { name: own.clone() };
    let waiting = &partition.leader.intake.waiting;
    if waiting.is_for_subscription(&own) {
        return Err(in_use());
    }
    let named = |name| partition.state.subscriptions.get(name).and_then(|id| partition.state.queues.get(id));
    let (queue, is_aside) = match named(aside) {
        Some(queue) => (queue, true),
        None => (named(&own).ok_or_else(none)?, false),
    };
    let found = queue.subscription.as_ref().ok_or_else(none)?;
    let wanted = wanted(attach, aside);
    if !is_same(found, wanted.own_selector()) || found.topic != attach.source {
        return Err(none());
    }
    match is_aside && !waiting.is_for_subscription(aside) {
        true if queue.consumers.is_empty() => Ok(Some(queue.id)),
        false if has_no_reader(&partition.leader, queue) => Ok(None),
        _ => Err(in_use()),
    }
}

/// Whether this is a subscription for one reader that selects so.
fn is_same(found: &Subscription, own_selector: &str) -> bool {
    !found.shared && found.own_selector() == own_selector
}

/// The name of the subscription while it is set aside, if it is.
pub fn aside_of(state: &State, name: &Arc<str>) -> Option<Arc<str>> {
    let aside = Subscription::aside_of(name);
    state.subscriptions.contains_key(&aside).then_some(aside)
}

/// Whether the record that makes this subscription is one that sets it aside, or that resumes it.
pub fn apply(partition: &mut Partition, made: &Subscription, effects: &mut Vec<Effect>) -> bool {
    let own = made.own_name();
    if made.is_aside() {
        rename(partition, own, made, effects);
        return true;
    }
    let aside = Subscription::aside_of(own);
    if !partition.state.subscriptions.contains_key(&aside) {
        return false;
    }
    if rename(partition, &aside, made, effects) {
        return true;
    }
    // It reads something else from now on.
    apply_unsubscribe(partition, &aside, effects);
    false
}

/// The subscription of this name is `made` from now on, if it selects alike; `false` otherwise.
fn rename(partition: &mut Partition, from: &str, made: &Subscription, effects: &mut Vec<Effect>) -> bool {
    let Some(id) = partition.state.subscriptions.get(from).copied() else { return false };
    let Some(queue) = partition.state.queues.get_mut(&id) else { return false };
    let found = queue.subscription.as_ref();
    let skips = found.and_then(|found| found.skips.clone());
    let is_alike = |found: &Subscription| is_same(found, made.own_selector()) && found.topic == made.topic;
    if made.shared || !found.is_some_and(is_alike) {
        return false;
    }
    queue.subscription = Some(Subscription { skips, ..made.clone() });
    let readers: Vec<ConsumerKey> = queue.consumers.iter().copied().collect();
    let selectors = selection::of_binding(&made.selector).map(|selector| vec![selector]);
    partition.state.addresses.bound_mut(&made.topic).insert(id, selectors);
    partition.state.subscriptions.remove(from);
    partition.state.subscriptions.insert(made.name.clone(), id);
    if !made.is_aside() {
        readers.into_iter().for_each(|reader| stop(partition, reader, effects));
    }
    true
}

/// A consumer of a link gets nothing more; what it has it keeps until its peer has answered.
fn stop(partition: &mut Partition, key: ConsumerKey, effects: &mut Vec<Effect>) {
    if !moves(&partition.leader, key) {
        return;
    }
    leave_line(&mut partition.state, &mut partition.leader, key);
    if let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) {
        (consumer.draining, consumer.credit) = (false, 0);
        effects.push(Effect::Drained { consumer: key });
    }
}
