//! Intake of a message: whether it becomes durable or stays in memory, and which queues get it.

use std::sync::Arc;

use postroad_model::{
    Aim, Command, ConnectionId, Destination, DestinationKind, Durability, Effect, Message, MessageKey,
    Position, Publish, QueueId, RareHeaders, Refusal, Retain, Sent, Ticket, Urgency,
};

use crate::Partition;
use crate::addresses::binding::bind_new_queues;
use crate::addresses::subscription::subscription_of;
use crate::clock::Clock;
use crate::delivery::dispatch::dispatch;
use crate::entries::{drop_reference, insert_volatile, push_entry, put_down};
use crate::intake::audit::{audit, behind_what_came_before, came_before};
use crate::intake::blocked::{BlockedOn, blocked_on};
use crate::intake::chunks::{finish_upload, schedule_chunks};
use crate::intake::homes::arrives;
use crate::intake::limit::{expect_message, park_send, wait_for_room};
use crate::intake::parked::SendObstacle;
use crate::intake::queue_quota;
use crate::intake::routes::{hold_back, publish_routed};
use crate::intake::waiting::{park_until_declared, proposals_ended};
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::durability::wanted_by;
use crate::log::propose::propose;
use crate::memory::bodies::is_part;
use crate::memory::packing::{are_deep, is_short_of_memory};
use crate::moving::own_step_ended;
use crate::notice::announce_arrival;
use crate::partition::{declare_queue, reply};
use crate::protocols::Protocols;
use crate::retained::{keep_recent, keep_recent_of, retain_message};
use crate::schedule::{check_schedule, take_job};
use crate::settings::Settings;
use crate::settling::last_value::note_last_value;
use crate::state::State;
use crate::transaction::{publish_in_transaction, refuse_publish};

/// The part of the memory for non-persistent messages that one queue may take: a quarter, so that a
/// few slow consumers leave room for all others.
const QUEUE_SHARE: u64 = 4;

/// Whether the message fits beside the present ones; an empty queue takes any message.
fn fits(taken: u64, sent: &Sent, max: u64) -> bool {
    taken == 0 || taken + sent.message.bytes.len() as u64 <= max
}

/// The record's messages must outlive the next checkpoint.
pub(crate) fn retained(position: Position, sends: &[Sent]) -> Effect {
    let bytes = sends.iter().map(|sent| sent.message.bytes.len() as u64).sum();
    Effect::Retain { position, count: sends.len() as u32, bytes }
}

/// How a message is taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Through the log.
    Durable,
    /// In memory.
    Volatile,
    /// In memory, once all its queues exist.
    NeedsQueue,
}

impl Settings {
    /// Bytes of memory that the non-persistent messages of one queue may take.
    pub fn queue_share(&self) -> u64 {
        self.volatile_bytes_max / QUEUE_SHARE
    }
}

/// Whether the queue is a durable subscription that takes nothing of the client that sent the
/// message, or that has the message already.
fn skips(state: &State, queue: QueueId, message: &Message) -> bool {
    if message.rare.is_none() {
        return false;
    }
    let subscription = state.queues.get(&queue).and_then(|queue| queue.subscription.as_ref());
    if let Some(Aim::Except(name)) = message.aim()
        && subscription.is_some_and(|own| own.own_name() == &**name)
    {
        return true;
    }
    message.client().is_some() && subscription.and_then(|own| own.skips.as_ref()) == message.client()
}

/// Whether these queues of an address have a reader; a topic has one if it has a subscription.
fn is_read(state: &State, receivers: &[QueueId], to: &Destination) -> bool {
    let consumed = |id| {
        let queue = state.queues.get(id).filter(|queue| queue.source == *to);
        queue.is_some_and(|queue| !queue.consumers.is_empty())
    };
    match to.kind {
        DestinationKind::Queue => receivers.iter().any(consumed),
        DestinationKind::Topic => !receivers.is_empty(),
    }
}

/// Applies policies to a message that comes in.
pub fn prepare_sent(settings: &Settings, clock: &Clock, protocols: &Protocols, sent: &mut Sent) {
    // The time to live of a scheduled message counts from its due time, as its producer asked.
    if sent.schedule.is_none() {
        let policies = &settings.policies;
        let end_ms = policies.end_ms(sent.targets(), sent.message.expires_at_ms, clock.wall_ms());
        sent.message.expires_at_ms = end_ms;
    }
    note_last_value(settings, protocols, sent);
}

/// Whether the message bypasses the log and must wait for its producer's earlier messages in
/// the log: they went there because a durable queue was bound to the address until then, or
/// because of one of several addresses.
pub fn follows_the_log(leader: &Leader, publish: &Publish, admitted: &Result<Admitted, Refusal>) -> bool {
    let connection = leader.connections.get(&publish.connection);
    let follows = leader.log.barrier.max(connection.map_or(0, |connection| connection.barrier_proposal));
    publish.sent.message.persistent
        && matches!(admitted, Ok(Admitted::Volatile))
        && proposals_ended(leader) < follows
}

/// Whether the queue may have this message in memory too.
pub fn share_has_room_for(state: &State, settings: &Settings, queue: QueueId, sent: &Sent) -> bool {
    let queue = state.queues.get(&queue);
    queue.is_none_or(|queue| fits(queue.volatile_bytes, sent, settings.queue_share()))
}

/// Whether the queue may have more in memory that topics retain.
pub fn share_is_open(state: &State, settings: &Settings, queue: QueueId) -> bool {
    state.queues.get(&queue).is_some_and(|queue| queue.volatile_bytes < settings.queue_share())
}

/// The message as it gets into the log: who sent it is kept only where a subscription asks.
pub fn without_idle_client(state: &State, mut sent: Sent) -> Sent {
    let Some(rare) = sent.message.rare.as_ref().filter(|rare| rare.client.is_some()) else { return sent };
    let skipped = |to: &Destination| {
        let bounds = state.addresses.bounds(to);
        bounds.iter().any(|bound| bound.iter().any(|queue| skips(state, queue, &sent.message)))
    };
    let asked = state.skipping_subscriptions > 0 && std::iter::once(&sent.to).chain(&sent.also).any(skipped);
    if !asked {
        let rest = RareHeaders { client: None, ..(**rare).clone() };
        sent.message.rare = (rest != RareHeaders::default()).then(|| Arc::new(rest));
    }
    sent
}

/// The memory that a message lacks: that of a queue, or all that there is for messages.
pub fn lacks_memory_for(
    state: &State,
    leader: &Leader,
    settings: &Settings,
    sent: &Sent,
    receivers: &[QueueId],
) -> Option<BlockedOn> {
    let full = receivers.iter().find(|queue| !share_has_room_for(state, settings, **queue, sent));
    let held_bytes = state.bodies.volatile_bytes.saturating_sub(leader.retained.body_bytes());
    full.map(|queue| BlockedOn::Share(*queue))
        .or_else(|| (!fits(held_bytes, sent, settings.volatile_bytes_max)).then_some(BlockedOn::Memory))
}

/// Evicts the newest bodies to the disk once the budget is spent, on bodies or on other memory
/// of messages: the oldest are due first. Messages of `deep` queues are evicted at once. Some
/// of these new messages may be gone or packed already.
pub fn evict_newest(
    state: &mut State,
    leader: &mut Leader,
    settings: &Settings,
    newest: impl IntoIterator<Item = MessageKey>,
    deep: bool,
) {
    for key in newest {
        if !deep && !is_short_of_memory(state, leader, settings) {
            return;
        }
        state.bodies.evict(key);
    }
}

/// Whether it goes through the log because of some of its addresses: messages sent to the
/// others alone bypass it.
pub fn goes_both_ways(state: &State, settings: &Settings, sent: &Sent) -> bool {
    let past_log = |to: &Destination| to.temporary || wanted_by(state, settings, to) == Durability::Memory;
    sent.message.persistent
        && sent.schedule.is_none()
        && !sent.also.is_empty()
        && sent.targets().any(past_log)
}

fn admit_to(
    state: &State,
    settings: &Settings,
    to: &Destination,
    persistent: bool,
) -> Result<Admitted, Refusal> {
    let exists = state.addresses.get(to).is_some();
    let durable = || persistent && wanted_by(state, settings, to) != Durability::Memory;
    Ok(match to.kind {
        _ if to.temporary && exists => Admitted::Volatile,
        _ if to.temporary => return Err(Refusal::NoSuchDestination(to.clone())),
        // A message that no durable queue holds is not journaled.
        DestinationKind::Topic if durable() => Admitted::Durable,
        DestinationKind::Topic => Admitted::Volatile,
        DestinationKind::Queue if durable() => Admitted::Durable,
        DestinationKind::Queue if exists => Admitted::Volatile,
        DestinationKind::Queue => Admitted::NeedsQueue,
    })
}

/// Whether there is memory for a message: in all, and in each queue of its address that takes
/// it. So one slow subscriber holds up its own topic only.
fn has_memory_for(
    state: &State,
    leader: &Leader,
    settings: &Settings,
    sent: &Sent,
    receivers: &[QueueId],
) -> bool {
    lacks_memory_for(state, leader, settings, sent, receivers).is_none()
}

/// Decides the durability of a message, and refuses one that cannot be taken.
pub fn admit(
    state: &State,
    leader: &Leader,
    settings: &Settings,
    clock: &Clock,
    sent: &Sent,
) -> Result<Admitted, Refusal> {
    if let Some(schedule) = &sent.schedule {
        check_schedule(clock, sent, schedule)?;
        let full = || Refusal::StoreFull { to: sent.to.clone() };
        return if leader.log.space_ample { Ok(Admitted::Durable) } else { Err(full()) };
    }
    let mut admitted = admit_to(state, settings, &sent.to, sent.message.persistent)?;
    for to in &sent.also {
        // A message that one address stores goes through the log for all, and its record makes
        // the queues that it needs.
        admitted = match (admitted, admit_to(state, settings, to, sent.message.persistent)?) {
            (Admitted::Durable, _) | (_, Admitted::Durable) => Admitted::Durable,
            (Admitted::NeedsQueue, _) | (_, Admitted::NeedsQueue) => Admitted::NeedsQueue,
            (Admitted::Volatile, Admitted::Volatile) => Admitted::Volatile,
        };
    }
    match admitted {
        Admitted::Durable if !leader.log.space_ample => Err(Refusal::StoreFull { to: sent.to.clone() }),
        admitted => Ok(admitted),
    }
}

pub fn take_publish(partition: &mut Partition, mut publish: Publish, effects: &mut Vec<Effect>) {
    if !finish_upload(&mut partition.leader, partition.now_ms, &mut publish) {
        let reason = "its body has not come".to_owned();
        return refuse_publish(partition, &publish, Refusal::StoreFailed { reason }, effects);
    }
    if let Err(refusal) = partition.leader.intake.links.note_delivery(&publish) {
        return refuse_publish(partition, &publish, refusal, effects);
    }
    if !publish.is_notice
        && let Err(refusal) = queue_quota::check_sends(partition, std::slice::from_ref(&publish.sent))
    {
        return refuse_publish(partition, &publish, refusal, effects);
    }
    if let Some(routing) = publish.routed.take() {
        let is_redelivered = publish.transaction.is_some() && routing.hold.retry.is_some();
        if !routing.further.is_empty() || is_redelivered {
            return publish_routed(partition, publish, *routing, effects);
        }
        hold_back(&mut partition.leader, &partition.clock, &mut publish.sent, &routing.hold);
    }
    prepare_sent(&partition.settings, &partition.clock, &partition.protocols, &mut publish.sent);
    if publish.transaction.is_some() {
        partition.counters.receive(&publish.sent.to, &partition.state.addresses);
        return publish_in_transaction(partition, publish, effects);
    }
    if let Some(publish) = behind_what_came_before(partition, publish, effects) {
        publish_now(partition, publish, effects);
    }
}

pub fn publish_now(partition: &mut Partition, publish: Publish, effects: &mut Vec<Effect>) {
    if came_before(&partition.state, &partition.protocols, &publish) {
        partition.counters.duplicates += 1;
        return reply(publish.connection, publish.ticket, Ok(()), effects);
    }
    if let Some(Aim::Only(name)) = publish.sent.message.aim()
        && subscription_of(&partition.state, &publish.sent.to, name).is_none()
    {
        let refusal = Refusal::NoSuchSubscription { name: name.clone() };
        return reply(publish.connection, publish.ticket, Err(refusal), effects);
    }
    let admitted =
        admit(&partition.state, &partition.leader, &partition.settings, &partition.clock, &publish.sent);
    let receivers = receivers_if_needed(partition, &publish, &admitted);
    if publish.is_notice {
        let (connection, ticket) = (publish.connection, publish.ticket);
        tell_all(partition, publish, receivers, effects);
        return reply(connection, ticket, Ok(()), effects);
    }
    partition.counters.receive(&publish.sent.to, &partition.state.addresses);
    let ahead = partition.leader.intake.parked.ahead_of(&publish);
    match must_wait(partition, &publish, &admitted, &receivers, ahead) {
        Some(until_ms) => park_send(partition, publish, until_ms, effects),
        None => take_in(partition, publish, admitted, &receivers, effects),
    }
}

/// The queues that will have the message, as far as anything depends on them yet: for memory,
/// or on their limits.
pub fn receivers_if_needed(
    partition: &Partition,
    publish: &Publish,
    admitted: &Result<Admitted, Refusal>,
) -> Vec<QueueId> {
    let unlimited = publish.sent.schedule.is_some() || !partition.settings.policies.any_limit();
    match admitted {
        Ok(Admitted::Durable) if unlimited => Vec::new(),
        Ok(Admitted::Durable | Admitted::Volatile) => {
            receivers_of(partition, &publish.sent, Some(publish.connection))
        }
        Ok(Admitted::NeedsQueue) | Err(_) => Vec::new(),
    }
}

/// How long the message has to wait: for memory, for room in a queue, for the disk, or for its
/// producer's earlier messages; `None` if it need not, `Some(None)` without a deadline.
pub fn must_wait(
    partition: &Partition,
    publish: &Publish,
    admitted: &Result<Admitted, Refusal>,
    receivers: &[QueueId],
    ahead: SendObstacle,
) -> Option<Option<u64>> {
    let blocked_on = blocked_on(partition, publish, admitted, receivers, ahead)?;
    match (admitted, blocked_on) {
        (Ok(Admitted::Durable | Admitted::Volatile), _) => {
            Some(wait_for_room(partition, &publish.sent, receivers, ahead).flatten())
        }
        // It waits at the head of its line, and for that queue alone: see
        // `park_until_declared`.
        (Ok(Admitted::NeedsQueue), BlockedOn::Log) => None,
        _ => Some(None),
    }
}

/// It need not wait, or no longer.
pub fn take_in(
    partition: &mut Partition,
    mut publish: Publish,
    admitted: Result<Admitted, Refusal>,
    receivers: &[QueueId],
    effects: &mut Vec<Effect>,
) {
    let (connection, ticket) = (publish.connection, publish.ticket);
    let is_taken = matches!(admitted, Ok(Admitted::Durable | Admitted::Volatile));
    let is_aimed = matches!(publish.sent.message.aim(), Some(Aim::Only(_)));
    // First: one that is not taken in again must not count as taken by a new subscription.
    if let Some(name) = publish.once.as_deref().filter(|_| is_taken && !is_aimed)
        && !partition.leader.intake.recent.is_new(*name)
    {
        partition.counters.duplicates += 1;
        return reply(connection, ticket, Ok(()), effects);
    }
    if is_taken && publish.sent.to.kind == DestinationKind::Topic && !arrives(partition, &mut publish) {
        partition.counters.duplicates += 1;
        return reply(connection, ticket, Ok(()), effects);
    }
    let is_followed = matches!(publish.sent.message.aim(), Some(Aim::Except(_)));
    let others: Vec<QueueId>;
    let receivers = match is_followed {
        true => {
            others = receivers_of(partition, &publish.sent, Some(connection));
            &others
        }
        false => receivers,
    };
    match admitted {
        Ok(Admitted::Durable) => {
            bind_new_queues(partition, std::slice::from_ref(&publish.sent), effects);
            let goes_both_ways = goes_both_ways(&partition.state, &partition.settings, &publish.sent);
            let expecting = expect_message(partition, &publish.sent, receivers);
            let bytes = publish.sent.message.size();
            let command = Command::Enqueue(without_idle_client(&partition.state, publish.sent));
            let completion = match expecting.is_empty() {
                true => Completion::Reply { connection, ticket },
                false => Completion::Sent { connection, ticket, expecting, bytes },
            };
            propose(partition, command, Urgency::Waiting, completion, effects);
            let known = partition.leader.connections.get_or_make(connection);
            known.sends = partition.leader.log.made;
            if goes_both_ways {
                known.barrier_proposal = partition.leader.log.made;
            }
        }
        Ok(Admitted::Volatile) => {
            hand_out(partition, publish.sent, receivers, publish.retain, effects);
            reply(connection, ticket, Ok(()), effects);
        }
        Ok(Admitted::NeedsQueue) => park_until_declared(partition, publish, effects),
        Err(refusal) => reply(connection, ticket, Err(refusal), effects),
    }
}

/// The queues that take a message: those bound to its address whose selectors it matches, but
/// for `noLocal`.
fn receivers_at(
    partition: &Partition,
    to: &Destination,
    message: &Message,
    from: Option<ConnectionId>,
) -> Vec<QueueId> {
    if let Some(Aim::Only(name)) = message.aim() {
        return subscription_of(&partition.state, to, name).into_iter().collect();
    }
    let bounds = partition.state.addresses.bounds(to);
    let mut receivers = Vec::new();
    for bound in &bounds {
        receivers.extend(bound.taking(|| (partition.protocols.properties_of)(message)));
    }
    if bounds.len() > 1 {
        receivers.sort_unstable();
        receivers.dedup();
    }
    receivers
        .retain(|queue| !shuts_out(partition, *queue, from) && !skips(&partition.state, *queue, message));
    receivers
}

/// The queues that take a message at any of its addresses.
pub fn receivers_of(partition: &Partition, sent: &Sent, from: Option<ConnectionId>) -> Vec<QueueId> {
    let mut receivers = receivers_at(partition, &sent.to, &sent.message, from);
    for to in &sent.also {
        receivers.extend(receivers_at(partition, to, &sent.message, from));
    }
    receivers
}

/// Hands a message to every queue that takes it, in memory alone.
pub fn publish_volatile(
    partition: &mut Partition,
    sent: Sent,
    from: Option<ConnectionId>,
    effects: &mut Vec<Effect>,
) {
    let receivers = receivers_of(partition, &sent, from);
    hand_out(partition, sent, &receivers, None, effects);
}

/// A notice never waits: it goes to the subscriptions that have room for it now.
fn tell_all(
    partition: &mut Partition,
    publish: Publish,
    mut receivers: Vec<QueueId>,
    effects: &mut Vec<Effect>,
) {
    let Publish { sent, retain, .. } = publish;
    let wanted = receivers.len();
    receivers.retain(|queue| {
        has_memory_for(
            &partition.state,
            &partition.leader,
            &partition.settings,
            &sent,
            std::slice::from_ref(queue),
        )
    });
    partition.counters.advisories_dropped += (wanted - receivers.len()) as u64;
    hand_out(partition, sent, &receivers, retain, effects);
}

fn hand_out(
    partition: &mut Partition,
    mut sent: Sent,
    receivers: &[QueueId],
    retain: Option<Retain>,
    effects: &mut Vec<Effect>,
) {
    if let Some(retain) = retain {
        retain_message(partition, &sent.to, &sent.message, &retain, effects);
        let count = partition.leader.retained.count(&sent.to.name);
        if !receivers.is_empty() {
            sent.message = (partition.protocols.count_retained)(&sent.message, count);
        }
    }
    for to in sent.targets() {
        keep_recent(partition, to, &sent.message, effects);
        if sent.moved.is_none() {
            announce_arrival(
                &partition.settings,
                &sent.message,
                to,
                is_read(&partition.state, receivers, to),
                effects,
            );
        }
    }
    let is_part = is_part(&sent.message.bytes);
    let (moved, key) =
        (sent.moved, insert_volatile(&mut partition.state, &mut partition.leader, sent.message, effects));
    // Every queue has it before any is served: serving one may expire it there, and let a
    // parked send in after it.
    partition.state.bodies.refer(key);
    for queue in receivers {
        push_entry(partition, *queue, key, moved);
    }
    for queue in receivers {
        dispatch(partition, *queue, effects);
    }
    drop_reference(partition, key, effects);
    if is_part {
        partition.state.bodies.keep_apart(key);
    }
}

/// Whether the queue belongs to a `noLocal` subscription of the connection that publishes.
fn shuts_out(partition: &Partition, queue: QueueId, from: Option<ConnectionId>) -> bool {
    let subscription = partition
        .state
        .queues
        .get(&queue)
        .filter(|queue| queue.id.is_volatile() && queue.source.kind == DestinationKind::Topic);
    let subscriber = subscription.and_then(|queue| queue.consumers.first());
    let subscriber = subscriber.filter(|key| Some(key.connection) == from);
    subscriber
        .and_then(|key| partition.leader.delivery.consumers.get(key))
        .is_some_and(|consumer| consumer.no_local)
}

/// Carries out durable sends: one body each in the store, one entry in each durable queue.
pub fn enqueue_durable(
    partition: &mut Partition,
    position: Position,
    sends: Vec<Sent>,
    effects: &mut Vec<Effect>,
) {
    if !sends.is_empty() {
        effects.push(retained(position, &sends));
    }
    enqueue_left(partition, position, 0..sends.len() as u32, sends, effects);
}

/// As [`enqueue_durable`], of messages with these ordinals, without a report that
/// they are needed.
pub fn enqueue_left(
    partition: &mut Partition,
    position: Position,
    ordinals: impl Iterator<Item = u32> + Clone,
    sends: Vec<Sent>,
    effects: &mut Vec<Effect>,
) {
    let keys = ordinals.clone().map(|ordinal| MessageKey::Durable { position, ordinal });
    let mut parts = Vec::new();
    let mut touched: Vec<QueueId> = Vec::with_capacity(sends.len());
    for ((mut sent, key), ordinal) in sends.into_iter().zip(keys.clone()).zip(ordinals) {
        let completion = partition.leader.log.pending.front();
        let from = completion.and_then(|completion| completion.sender(ordinal as usize));
        // The windows of one that has moved come apart from it: it does not tell its user any
        // more.
        if sent.moved.is_none() || sent.message.aim().is_some() {
            audit(&mut partition.state, &partition.settings, &partition.protocols, &sent.message);
        }
        sent.message.forget_user();
        let trace = sent.message.take_trace();
        if let Some(schedule) = &sent.schedule {
            take_job(partition, key, sent.message.bytes.len() as u64, schedule, effects);
            schedule_chunks(&mut partition.state, &mut partition.leader, key, &sent.message, effects);
            if let Some(trace) = trace {
                partition.leader.traces.scheduled(trace);
            }
            continue;
        }
        if let Some(trace) = trace {
            partition.leader.traces.begin(key, trace);
        }
        partition.leader.intake.uploads.retain_chunks(&sent.message, effects);
        if is_part(&sent.message.bytes) {
            parts.push(key);
        }
        partition.state.bodies.insert(key, sent.message);
        partition.state.bodies.refer(key);
        // Until all of its addresses have it: the queues of one may leave bodies to the disk,
        // and selectors at the next judge it.
        partition.state.bodies.pin(key);
        for to in std::iter::once(&sent.to).chain(&sent.also) {
            bind_entries(partition, (key, sent.moved), to, from, &mut touched, effects);
        }
        put_down(partition, key, effects);
    }
    let are_deep = are_deep(&partition.state, &touched);
    dispatch_all(partition, touched, effects);
    evict_newest(&mut partition.state, &mut partition.leader, &partition.settings, keys, are_deep);
    parts.into_iter().for_each(|key| partition.state.bodies.keep_apart(key));
}

/// One entry in each queue that the address feeds; a queue is made on first use. See
/// [`Sent::moved`].
pub fn bind_entries(
    partition: &mut Partition,
    (key, moved): (MessageKey, Option<u32>),
    to: &Destination,
    from: Option<ConnectionId>,
    touched: &mut Vec<QueueId>,
    effects: &mut Vec<Effect>,
) {
    let before = touched.len();
    bind_entries_silently(partition, (key, moved), to, (from, touched), effects);
    if partition.leader.is_live
        && moved.is_none()
        && let Some(message) = partition.state.bodies.resident(key)
    {
        let is_read = is_read(&partition.state, &touched[before..], to);
        announce_arrival(&partition.settings, message, to, is_read, effects);
    }
}

/// The queue of this address. One that is temporary is not made: it ends with its connection,
/// which may have gone since or in an earlier run.
fn queue_for(partition: &mut Partition, to: &Destination) -> Option<QueueId> {
    match to.temporary {
        true => partition.state.addresses.own_queue(to),
        false => Some(declare_queue(partition, to)),
    }
}

fn bind_entries_silently(
    partition: &mut Partition,
    (key, moved): (MessageKey, Option<u32>),
    to: &Destination,
    (from, touched): (Option<ConnectionId>, &mut Vec<QueueId>),
    effects: &mut Vec<Effect>,
) {
    if to.kind == DestinationKind::Queue {
        let Some(queue) = queue_for(partition, to) else { return };
        push_entry(partition, queue, key, moved);
        return touched.push(queue);
    }
    let Some((message, _)) = partition.state.bodies.headers(key) else { return };
    // What follows a subscriber the topic has kept where it came from.
    if !matches!(message.aim(), Some(Aim::Only(_))) {
        keep_recent_of(partition, key, to, effects);
    }
    let Some((message, _)) = partition.state.bodies.headers(key) else { return };
    let receivers = receivers_at(partition, to, message, from);
    for queue in &receivers {
        push_entry(partition, *queue, key, moved);
    }
    touched.extend(receivers);
}

pub fn dispatch_all(partition: &mut Partition, mut queues: Vec<QueueId>, effects: &mut Vec<Effect>) {
    queues.sort_unstable();
    queues.dedup();
    for queue in queues {
        dispatch(partition, queue, effects);
    }
}

/// Answers the request that waits, if any: a client's, or a redrive or move of this partition's
/// own.
pub fn answer_request(
    partition: &mut Partition,
    to: Option<(ConnectionId, Ticket)>,
    result: Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    match to {
        None => {}
        Some((connection, ticket)) if connection == ConnectionId::internal(partition.settings.id) => {
            own_step_ended(partition, ticket, result, effects);
        }
        Some((connection, ticket)) => reply(connection, ticket, result, effects),
    }
}
