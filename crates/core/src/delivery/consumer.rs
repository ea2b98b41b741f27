//! Consumers: attach, credit, drain, detach.

use std::num::NonZeroU32;
use std::sync::Arc;

use postroad_model::{
    Attach, ConsumerKey, ConsumerMode, ConsumerNotice, Delivered, DestinationKind, DetachCause, Effect,
    Event, QueueId, Refusal, Share, Subscription, peer_of_link,
};
use postroad_routing::Prefetch;
use postroad_selector::Selector;

use crate::Partition;
use crate::addresses::binding::changes_bindings;
use crate::addresses::destination::{check_owner, delete_queue};
use crate::addresses::subscription::{find_subscription, may_steal, shared_subscription, take_subscription};
use crate::addresses::{moving, offline};
use crate::delivery::browse::Browse;
use crate::delivery::dispatch::dispatch;
use crate::delivery::drains::ENDED_MAX;
use crate::delivery::gathering;
use crate::delivery::group::{free_groups, share_groups};
use crate::delivery::held::Held;
use crate::delivery::line::{leave_line, line_up};
use crate::delivery::selection::{self, Selection};
use crate::delivery::slow::Pace;
use crate::delivery::spread::{
    attach_to_pattern, feed_starved, finish_drain_of_members, forget_spread, readers_of,
};
use crate::flow::Pulse;
use crate::intake::queue_quota;
use crate::intake::waiting::{declare_first, subscribe_first};
use crate::leader::Leader;
use crate::leasing::{Reserving, drop_reserve};
use crate::notice::announce_consumer;
use crate::partition::{bind_volatile, reply};
use crate::queue::{Seat, Turn, Waiting};
use crate::retained::begin_replay;
use crate::settings::Settings;
use crate::settling::doubt;
use crate::settling::release::release_entries;
use crate::state::State;

/// An attached reader of one queue.
pub struct Consumer {
    /// Its source.
    pub queue: QueueId,
    /// How it reads.
    pub mode: ConsumerMode,
    /// How many more messages it may be sent.
    pub credit: u32,
    /// Those of the highest priority are served first; of exclusive ones, only the first of them.
    pub priority: i8,
    /// Skips messages of its own connection.
    pub no_local: bool,
    /// Its unsettled deliveries, in the order of sending.
    pub held: Held,
    /// Its view, if it browses.
    pub browse: Option<Browse>,
    /// Its selection, if not everything.
    pub selection: Option<Selection>,
    /// Its credit ends as soon as the bodies that are being read have been sent.
    pub draining: bool,
    /// When it was last served, as `next_hold` counts; at first, when it came.
    pub served: u64,
    /// Its place among the consumers of its queue.
    pub seat: Seat,
    /// It waits in its queue's line, or is idle: see `idle`.
    pub in_line: bool,
    /// Its turn there, since it last came.
    pub turn: Turn,
    /// A member of a consumer of several queues, which had its turn without credit and waits for
    /// some.
    pub starved: bool,
    /// Its notice; a member has none.
    pub notice: Option<Arc<ConsumerNotice>>,
    /// Whether it is slow.
    pub pace: Pace,
    /// Its work within the last minute.
    pub pulse: Pulse,
    /// Whose consumer may take its subscription: see [`Attach::steals`].
    pub steals: Option<Arc<str>>,
    /// It takes a subscription to another broker: see `addresses::moving`.
    pub moves: bool,
    /// The reserve that it stands for, if it does.
    pub reserving: Option<Box<Reserving>>,
}

impl Consumer {
    /// Itself, in line.
    pub fn waiting(&self, key: ConsumerKey) -> Waiting {
        // Browsers take turns in the order in which they come to the line.
        let served = if self.browse.is_some() { 0 } else { self.served };
        Waiting { priority: self.priority, served, key }
    }
}

/// When the last delivery was sent to a consumer that ends and that its application saw, as
/// `next_hold` counts.
pub fn last_seen(leader: &Leader, key: ConsumerKey, delivered: Delivered) -> u64 {
    match delivered {
        Delivered::All => u64::MAX,
        Delivered::None | Delivered::InDoubt { .. } => 0,
        Delivered::Through { member, tag } => {
            let reader = leader.delivery.consumers.get(&key.with_member(member));
            reader.map_or(0, |reader| reader.held.order_of(tag))
        }
    }
}

/// The credit that the policy decides, where the client leaves it open. The client learns it
/// before the answer, for one without any has to ask for each message.
fn with_prefetch(settings: &Settings, mut attach: Attach, effects: &mut Vec<Effect>) -> Attach {
    let is_open = std::mem::take(&mut attach.credit_by_default);
    let Prefetch { consumers, durable, browsers } = settings.policies.prefetch(&attach.source);
    let decided = match attach.mode {
        ConsumerMode::Browse => browsers.map(NonZeroU32::get),
        _ if attach.source.kind == DestinationKind::Topic && attach.subscription.is_some() => durable,
        _ => consumers,
    };
    let Some(messages) = decided.filter(|messages| is_open && *messages != attach.credit) else {
        return attach;
    };
    attach.credit = messages;
    if let Some(notice) = &mut attach.notice {
        Arc::make_mut(notice).prefetch = messages;
    }
    effects.push(Effect::Prefetch { consumer: attach.consumer, messages });
    attach
}

/// Refuses a number that is taken.
pub fn check_new(leader: &Leader, key: ConsumerKey) -> Result<(), Refusal> {
    match leader.delivery.consumers.contains_key(&key) || leader.delivery.spreads.contains_key(&key) {
        true => Err(Refusal::ConsumerExists { number: key.number }),
        false => Ok(()),
    }
}

/// Whether a body that may be its own is on its way; a browser may be about to see more, too.
pub fn may_get_more(state: &State, leader: &Leader, key: ConsumerKey) -> bool {
    let Some(consumer) = leader.delivery.consumers.get(&key) else { return false };
    match &consumer.browse {
        Some(browse) => consumer.in_line || browse.is_fetching,
        None => {
            leader.delivery.backlogs.has(consumer.queue)
                || state.queues.get(&consumer.queue).is_some_and(|queue| queue.fetching)
                || leader.settling.doubts.are_read_by(consumer.queue, key)
        }
    }
}

/// Ends the credit of draining consumers, unless something may still be theirs.
pub fn finish_drains(state: &mut State, leader: &mut Leader, id: QueueId, effects: &mut Vec<Effect>) {
    for whole in leader.delivery.draining_wholes.iter().copied().collect::<Vec<_>>() {
        finish_drain_of_members(state, leader, whole, effects);
    }
    let ended = leader.delivery.drains.of(id).filter(|key| !may_get_more(state, leader, *key));
    let ended: Vec<ConsumerKey> = ended.take(ENDED_MAX).collect();
    for key in &ended {
        leave_line(state, leader, *key);
        leader.delivery.drains.end(id, *key);
        let Some(consumer) = leader.delivery.consumers.get_mut(key) else { continue };
        if std::mem::take(&mut consumer.draining) {
            (consumer.credit, consumer.pace.withheld) = (0, 0);
            effects.push(Effect::Drained { consumer: *key });
        }
    }
    if ended.len() == ENDED_MAX && leader.delivery.drains.of(id).next().is_some() {
        leader.delivery.backlogs.put(id);
    }
}

/// Whether the log needs the bindings of the consumer's queue first, or is getting them for
/// another consumer.
fn must_wait_for_bindings(state: &State, leader: &Leader, settings: &Settings, attach: &Attach) -> bool {
    let is_queue = attach.source.kind == DestinationKind::Queue && !attach.source.temporary;
    is_queue
        && (leader.intake.waiting.is_for_queue(&attach.source) || changes_bindings(state, settings, attach))
}

pub fn begin_attach(partition: &mut Partition, attach: Attach, effects: &mut Vec<Effect>) {
    let mut attach = with_prefetch(&partition.settings, attach, effects);
    if attach.source.kind == DestinationKind::Queue
        && attach.mode == ConsumerMode::Shared
        && partition.settings.policies.is_exclusive(&attach.source)
    {
        attach.mode = ConsumerMode::Exclusive;
    }
    let Some(attach) = attach_to_pattern(partition, attach, effects) else { return };
    // A topic that is being deleted ends its subscriptions that are in memory alone.
    if attach.source.kind == DestinationKind::Topic
        && partition.leader.intake.waiting.wait_for_address(&attach.source, &Event::Attach(attach.clone()))
    {
        return;
    }
    // A subscription that is being set aside for a link is resumed after that.
    if let Some(name) = &attach.subscription
        && partition
            .leader
            .intake
            .waiting
            .wait_for_subscription(&Subscription::aside_of(name), &Event::Attach(attach.clone()))
    {
        return;
    }
    let (connection, ticket) = (attach.consumer.connection, attach.ticket);
    let source = match source_of(partition, &attach, effects) {
        Ok(None) => queue_quota::check_reader(partition, &attach).map(|()| None),
        found => found,
    };
    match source {
        Ok(Some(_))
            if must_wait_for_bindings(&partition.state, &partition.leader, &partition.settings, &attach) =>
        {
            let queue = attach.source.clone();
            declare_first(partition, queue, attach, effects);
        }
        Ok(Some(queue)) => {
            reply(connection, ticket, Ok(()), effects);
            attach_to(partition, queue, attach, effects);
        }
        Ok(None) if let Some(name) = attach.subscription.clone() => {
            subscribe_first(partition, &name, attach, effects);
        }
        Ok(None) => {
            let queue = attach.source.clone();
            declare_first(partition, queue, attach, effects);
        }
        Err(refusal) => reply(connection, ticket, Err(refusal), effects),
    }
}

/// The queue to read from; `None` if it must be declared first.
fn source_of(
    partition: &mut Partition,
    attach: &Attach,
    effects: &mut Vec<Effect>,
) -> Result<Option<QueueId>, Refusal> {
    let source = &attach.source;
    check_new(&partition.leader, attach.consumer)?;
    check_owner(&partition.state, source, attach.consumer.connection)?;
    let address = partition.state.addresses.get(source);
    let selector = selection::parse(&attach.selector)?;
    match (source.kind, &attach.subscription) {
        (DestinationKind::Topic, Some(name)) if attach.share == Share::Volatile => {
            shared_subscription(partition, attach, name, effects).map(Some)
        }
        (DestinationKind::Topic, Some(name)) => {
            let found = find_subscription(partition, attach, name);
            match found {
                Err(Refusal::SubscriptionInUse { .. }) if may_steal(partition, attach, name) => {
                    take_subscription(partition, name, effects);
                    find_subscription(partition, attach, name)
                }
                found => found,
            }
        }
        (DestinationKind::Topic, None) => Ok(Some(make_subscription(partition, attach, selector, effects))),
        (DestinationKind::Queue, _) => Ok(address.and_then(|address| address.bound.own())),
    }
}

/// A volatile subscription, which begins with the retained and the retroactive messages of the
/// topic.
pub fn make_subscription(
    partition: &mut Partition,
    attach: &Attach,
    selector: Option<Selector>,
    effects: &mut Vec<Effect>,
) -> QueueId {
    let queue = bind_volatile(
        &mut partition.state,
        &mut partition.leader,
        &partition.settings,
        &attach.source,
        selector.clone(),
    );
    if let Some(new) = partition.state.queues.get_mut(&queue) {
        new.prefetch = attach.credit;
        new.follow(&partition.settings.policies);
    }
    begin_replay(partition, queue, attach, selector, true, effects);
    queue
}

fn attach_to(partition: &mut Partition, id: QueueId, mut attach: Attach, effects: &mut Vec<Effect>) {
    let key = attach.consumer;
    partition.leader.connections.get_or_make(key.connection).consumers.insert(key);
    if let Some(notice) = &mut attach.notice
        && let Some(durable) = &notice.durable
    {
        let since_ms = partition.leader.intake.homes.since_ms(durable).unwrap_or(partition.clock.wall_ms());
        Arc::make_mut(notice).since_ms = since_ms;
    }
    announce_consumer(attach.notice.as_ref(), true, effects);
    take_seat(partition, id, key, &attach);
    if let Some(name) = attach.steals {
        if let Some(peer) = peer_of_link(&name) {
            moving::drop_what_the_peer_has(partition, id, peer, effects);
        }
        doubt::hand_on(partition, (id, &name), key, effects);
    }
    dispatch(partition, id, effects);
}

/// Gives a consumer its place in a queue.
pub fn take_seat(partition: &mut Partition, id: QueueId, key: ConsumerKey, attach: &Attach) {
    let Some(queue) = partition.state.queues.get_mut(&id) else { return };
    // A subscription takes matching messages only; on a queue it is the consumer that selects.
    let selects = queue.source.kind == DestinationKind::Queue;
    let selector = selection::parse(&attach.selector).ok().flatten().filter(|_| selects);
    let browse = (attach.mode == ConsumerMode::Browse).then(|| Browse::of(queue));
    let grouped = queue.groups.is_some() && browse.is_none();
    let sharing = attach.mode == ConsumerMode::Shared && key.member == 0;
    if let Some(selector) = selector.clone().filter(|_| sharing) {
        queue.add_selecting(key, selector);
    }
    let seat = queue.consumers.take(key, attach.mode, attach.priority);
    partition.leader.delivery.operators += usize::from(attach.mode == ConsumerMode::Operator);
    let consumer = Consumer {
        queue: id,
        mode: attach.mode,
        credit: attach.credit,
        priority: attach.priority,
        no_local: attach.no_local,
        held: Held::default(),
        browse,
        selection: (selector.is_some() || grouped).then(|| Selection::new(selector)),
        draining: false,
        // Behind those that were served already, and before whatever is served from now on.
        served: partition.leader.delivery.next_hold - 1,
        seat,
        in_line: false,
        turn: Turn::default(),
        starved: false,
        notice: attach.notice.clone().filter(|_| key.member == 0),
        pace: Pace::default(),
        pulse: Pulse::default(),
        steals: attach.steals.clone(),
        moves: attach.subscription.as_deref().is_some_and(|name| Subscription::without_aside(name).is_some()),
        reserving: None,
    };
    partition.leader.delivery.consumers.insert(key, Box::new(consumer));
    gathering::gather(partition, id);
    line_up(&mut partition.state, &mut partition.leader, &partition.settings, key);
    share_groups(&mut partition.state, &mut partition.leader, id, key);
}

pub fn add_credit(partition: &mut Partition, key: ConsumerKey, add: u32, effects: &mut Vec<Effect>) {
    if let Some(spread) = partition.leader.delivery.spreads.get_mut(&key) {
        spread.credit = spread.credit.saturating_add(add);
        return feed_starved(partition, key, effects);
    }
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else {
        if let Some(credit) = partition.leader.connections.departed(key) {
            *credit = credit.saturating_add(add);
        }
        return;
    };
    consumer.credit = consumer.credit.saturating_add(add);
    if 0 < add {
        consumer.pulse.stops_waiting(partition.now_ms);
    }
    let id = consumer.queue;
    line_up(&mut partition.state, &mut partition.leader, &partition.settings, key);
    dispatch(partition, id, effects);
}

pub fn begin_drain(partition: &mut Partition, key: ConsumerKey, effects: &mut Vec<Effect>) {
    if let Some(spread) = partition.leader.delivery.spreads.get_mut(&key) {
        spread.draining = true;
        partition.leader.delivery.draining_wholes.insert(key);
        feed_starved(partition, key, effects);
        return finish_drain_of_members(&mut partition.state, &mut partition.leader, key, effects);
    }
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else {
        if let Some(credit) = partition.leader.connections.departed(key) {
            *credit = 0;
            effects.push(Effect::Drained { consumer: key });
        }
        return;
    };
    consumer.draining = true;
    let id = consumer.queue;
    partition.leader.delivery.drains.begin(id, key);
    dispatch(partition, id, effects);
    finish_drains(&mut partition.state, &mut partition.leader, id, effects);
}

/// Ends a consumer that did not ask for it; its application may have seen all that it held. The
/// queues that got that back are then to be dispatched.
pub fn oust(
    partition: &mut Partition,
    key: ConsumerKey,
    cause: DetachCause,
    effects: &mut Vec<Effect>,
) -> Vec<QueueId> {
    effects.push(Effect::Detached { consumer: key.whole(), cause });
    if let Some(connection) = partition.leader.connections.get_mut(&key.connection) {
        connection.note_force_detached(key.whole());
    }
    remove_consumer(partition, key.whole(), Delivered::All, effects)
}

/// The consumer is gone, and its deliveries are back in their queues, which are then to be
/// dispatched.
pub fn remove_consumer(
    partition: &mut Partition,
    key: ConsumerKey,
    delivered: Delivered,
    effects: &mut Vec<Effect>,
) -> Vec<QueueId> {
    let last_seen = last_seen(&partition.leader, key, delivered);
    if let Some(connection) = partition.leader.connections.get_mut(&key.connection) {
        connection.consumers.remove(&key);
        connection.departed.remove(&key);
    }
    let readers = readers_of(&partition.leader, key);
    if let Some(spread) = forget_spread(&mut partition.leader, key) {
        announce_consumer(spread.notice(), false, effects);
    }
    // A message returned by one of them goes to no other of them: nothing is dispatched until
    // all have left.
    let kept_ms = match delivered {
        Delivered::InDoubt { kept_ms } => Some(kept_ms),
        _ => None,
    };
    let removed = |reader| remove_reader(partition, reader, (last_seen, kept_ms), effects);
    readers.into_iter().filter_map(removed).collect()
}

pub fn remove_reader(
    partition: &mut Partition,
    key: ConsumerKey,
    (last_seen, kept_ms): (u64, Option<u32>),
    effects: &mut Vec<Effect>,
) -> Option<QueueId> {
    leave_line(&mut partition.state, &mut partition.leader, key);
    let consumer = *partition.leader.delivery.consumers.remove(&key)?;
    partition.leader.delivery.operators -= usize::from(consumer.mode == ConsumerMode::Operator);
    announce_consumer(consumer.notice.as_ref(), false, effects);
    let id = consumer.queue;
    partition.leader.delivery.drains.end(id, key);
    let queue = partition.state.queues.get_mut(&id)?;
    queue.consumers.leave(consumer.seat);
    queue.remove_selecting(key);
    if id.is_volatile() && queue.source.kind == DestinationKind::Topic && queue.consumers.is_empty() {
        delete_queue(partition, id, effects);
        return None;
    }
    free_groups(partition, id, key, consumer.selection);
    if let Some(reserving) = consumer.reserving {
        drop_reserve(partition, id, key, *reserving);
    }
    let (seen, unseen) = consumer.held.split(last_seen);
    release_entries(partition, id, key, &seen, true, effects);
    let in_doubt = consumer.steals.zip(kept_ms);
    if !in_doubt.is_some_and(|(name, ms)| {
        doubt::keep(&mut partition.leader, partition.now_ms, (id, name), (key, &unseen), ms)
    }) {
        release_entries(partition, id, key, &unseen, false, effects);
    }
    offline::note(partition, id);
    Some(id)
}
