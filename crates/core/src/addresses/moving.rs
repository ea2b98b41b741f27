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

use postroad_model::{Attach, ConsumerKey, Effect, QueueId, Refusal, SettleCause, Subscription};
use postroad_selector::Value;

use crate::Partition;
use crate::addresses::subscription::{apply_unsubscribe, wanted};
use crate::delivery::line::leave_line;
use crate::delivery::selection;
use crate::intake::homes::BROKER_PATH;
use crate::leader::Leader;
use crate::memory::bodies::BodyLocation;
use crate::queue::{Entry, EntryState, Queue, tag};
use crate::settling::settle::settle_held;
use crate::state::State;

/// The newest messages of a subscription that are looked at: more than come while a peer's word of
/// the move is on its way, and a few milliseconds of work.
const MEANWHILE_MAX: u64 = 512;

/// A peer's word of a move takes less time. What came here earlier stays, whatever the clock of the
/// peer was set to.
const MEANWHILE_MS: u64 = 10_000;

/// When the broker that forwarded a message had taken it in.
const IN_TIME_THERE: &str = "JMSPostroadInTime";

/// When it came here.
const IN_TIME: &str = "JMSActiveMQBrokerInTime";

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

/// A link has come for a subscription that is set aside. Messages that its peer had sent here
/// before that was known, and had taken in after the subscription began there, are in both
/// subscriptions: they leave this one. The peer has them in its log, as it forwards them from
/// there.
pub fn drop_what_the_peer_has(partition: &mut Partition, id: QueueId, peer: &str, effects: &mut Vec<Effect>) {
    let Some(queue) = partition.state.queues.get(&id) else { return };
    let Some(subscription) = queue.subscription.as_ref().filter(|found| found.is_aside()) else { return };
    let Some(selector) = selection::of_binding(&subscription.selector) else { return };
    let since_ms = partition.clock.wall_ms().saturating_sub(MEANWHILE_MS);
    let has_it = |entry: &Entry| {
        let message = partition.state.bodies.resident(BodyLocation::from(entry))?;
        let properties = (partition.protocols.properties_of)(message);
        let Value::String(path) = properties.property(BROKER_PATH)? else { return None };
        let Value::Long(came_ms) = properties.property(IN_TIME)? else { return None };
        let is_late =
            since_ms <= u64::try_from(came_ms).ok()? && properties.property(IN_TIME_THERE).is_some();
        let last = path.trim_matches(['[', ']']).rsplit(", ").next();
        let is_direct = last.is_some_and(|last| last == peer);
        Some(is_late && is_direct && !selector.matches(&*properties))
    };
    let (mut tags, mut left) = (Vec::new(), MEANWHILE_MAX);
    // Those ahead of the others have followed from the peer, and are here alone.
    for (number, lane) in queue.lanes.iter().filter(|(number, _)| !number.is_ahead()) {
        let end = lane.next_sequence();
        let looked_at = end.min(left);
        left -= looked_at;
        for sequence in end - looked_at..end {
            let ready = lane.get(sequence).filter(|entry| entry.state == EntryState::Ready);
            if ready.and_then(has_it) == Some(true) {
                tags.push(tag(number.0, sequence));
            }
        }
    }
    settle_held(partition, id, &tags, SettleCause::Moved, None, effects);
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
