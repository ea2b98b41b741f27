//! Intake of a message: whether it becomes durable or stays in memory, and which queues get it.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::{
    Aim, Command, ConnectionId, Destination, DestinationKind, Durability, Effect, Message, MessageKey,
    Position, Publish, QueueId, RareHeaders, Refusal, Retain, Sent, Ticket, Urgency,
};

use crate::Partition;
use crate::addresses::subscription::subscription_of;
use crate::clock::Clock;
use crate::intake::audit::{audit, came_before};
use crate::intake::blocked::BlockedOn;
use crate::intake::chunks::{finish_upload, schedule_chunks};
use crate::intake::parked::{Parked, SendObstacle};
use crate::intake::queue_quota;
use crate::intake::routes::hold_back;
use crate::intake::unparking;
use crate::intake::waiting::{awaits_queue, proposals_ended};
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::durability::wanted_by;
use crate::memory::bodies::is_part;
use crate::memory::packing::{are_deep, is_short_of_memory};
use crate::notice::announce_arrival;
use crate::partition::{insert_volatile, reply};
use crate::protocols::Protocols;
use crate::schedule::check_schedule;
use crate::settings::Settings;
use crate::settling::last_value::note_last_value;
use crate::state::State;

/// The part of the memory for non-persistent messages that one queue may take: a quarter, so that a
/// few slow consumers leave room for all others.
const QUEUE_SHARE: u64 = 4;

impl Partition {
    pub(crate) fn publish(&mut self, mut publish: Publish, effects: &mut Vec<Effect>) {
        if !finish_upload(&mut self.leader, self.now_ms, &mut publish) {
            let reason = "its body has not come".to_owned();
            let refusal = Refusal::StoreFailed { reason };
            return reply(publish.connection, publish.ticket, Err(refusal), effects);
        }
        if let Err(refusal) = self.leader.intake.links.note_delivery(&publish) {
            return reply(publish.connection, publish.ticket, Err(refusal), effects);
        }
        if !publish.is_notice
            && let Err(refusal) = queue_quota::check_sends(self, std::slice::from_ref(&publish.sent))
        {
            return reply(publish.connection, publish.ticket, Err(refusal), effects);
        }
        if let Some(routing) = publish.routed.take() {
            let is_redelivered = publish.transaction.is_some() && routing.hold.retry.is_some();
            if !routing.further.is_empty() || is_redelivered {
                return self.publish_routed(publish, *routing, effects);
            }
            hold_back(&mut self.leader, &self.clock, &mut publish.sent, &routing.hold);
        }
        prepare_sent(&self.settings, &self.clock, &self.protocols, &mut publish.sent);
        if publish.transaction.is_some() {
            self.counters.receive(&publish.sent.to, &self.state.addresses);
            return self.publish_in_transaction(publish, effects);
        }
        if let Some(publish) = self.behind_what_came_before(publish, effects) {
            self.publish_now(publish, effects);
        }
    }

    pub(crate) fn publish_now(&mut self, publish: Publish, effects: &mut Vec<Effect>) {
        if came_before(&self.state, &self.protocols, &publish) {
            self.counters.duplicates += 1;
            return reply(publish.connection, publish.ticket, Ok(()), effects);
        }
        if let Some(Aim::Only(name)) = publish.sent.message.aim()
            && subscription_of(&self.state, &publish.sent.to, name).is_none()
        {
            let refusal = Refusal::NoSuchSubscription { name: name.clone() };
            return reply(publish.connection, publish.ticket, Err(refusal), effects);
        }
        let admitted = admit(&self.state, &self.leader, &self.settings, &self.clock, &publish.sent);
        let receivers = self.receivers_if_needed(&publish, &admitted);
        if publish.is_notice {
            let (connection, ticket) = (publish.connection, publish.ticket);
            self.tell_all(publish, receivers, effects);
            return reply(connection, ticket, Ok(()), effects);
        }
        self.counters.receive(&publish.sent.to, &self.state.addresses);
        let ahead = self.leader.intake.parked.ahead_of(&publish);
        match self.must_wait(&publish, &admitted, &receivers, ahead) {
            Some(until_ms) => self.park(publish, until_ms, effects),
            None => self.take_in(publish, admitted, &receivers, effects),
        }
    }

    /// The queues that will have the message, as far as anything depends on them yet: for memory,
    /// or on their limits.
    pub(crate) fn receivers_if_needed(
        &self,
        publish: &Publish,
        admitted: &Result<Admitted, Refusal>,
    ) -> Vec<QueueId> {
        let unlimited = publish.sent.schedule.is_some() || !self.settings.policies.any_limit();
        match admitted {
            Ok(Admitted::Durable) if unlimited => Vec::new(),
            Ok(Admitted::Durable | Admitted::Volatile) => {
                self.receivers_of(&publish.sent, Some(publish.connection))
            }
            Ok(Admitted::NeedsQueue) | Err(_) => Vec::new(),
        }
    }

    /// How long the message has to wait: for memory, for room in a queue, for the disk, or for its
    /// producer's earlier messages; `None` if it need not, `Some(None)` without a deadline.
    fn must_wait(
        &self,
        publish: &Publish,
        admitted: &Result<Admitted, Refusal>,
        receivers: &[QueueId],
        ahead: SendObstacle,
    ) -> Option<Option<u64>> {
        let blocked_on = self.blocked_on(publish, admitted, receivers, ahead)?;
        match (admitted, blocked_on) {
            (Ok(Admitted::Durable | Admitted::Volatile), _) => {
                Some(self.wait_for_room(&publish.sent, receivers, ahead).flatten())
            }
            // It waits at the head of its line, and for that queue alone: see
            // `park_until_declared`.
            (Ok(Admitted::NeedsQueue), BlockedOn::Log) => None,
            _ => Some(None),
        }
    }

    /// It need not wait, or no longer.
    fn take_in(
        &mut self,
        mut publish: Publish,
        admitted: Result<Admitted, Refusal>,
        receivers: &[QueueId],
        effects: &mut Vec<Effect>,
    ) {
        let (connection, ticket) = (publish.connection, publish.ticket);
        let is_taken = matches!(admitted, Ok(Admitted::Durable | Admitted::Volatile));
        if is_taken && publish.sent.to.kind == DestinationKind::Topic && !self.arrives(&mut publish) {
            self.counters.duplicates += 1;
            return reply(connection, ticket, Ok(()), effects);
        }
        let is_followed = matches!(publish.sent.message.aim(), Some(Aim::Except(_)));
        let others: Vec<QueueId>;
        let receivers = match is_followed {
            true => {
                others = self.receivers_of(&publish.sent, Some(connection));
                &others
            }
            false => receivers,
        };
        let is_aimed = matches!(publish.sent.message.aim(), Some(Aim::Only(_)));
        if let Some(name) = publish.once.as_deref().filter(|_| is_taken && !is_aimed)
            && !self.leader.intake.recent.is_new(*name)
        {
            self.counters.duplicates += 1;
            return reply(connection, ticket, Ok(()), effects);
        }
        match admitted {
            Ok(Admitted::Durable) => {
                self.bind_new_queues(std::slice::from_ref(&publish.sent), effects);
                let goes_both_ways = goes_both_ways(&self.state, &self.settings, &publish.sent);
                let expecting = self.expect(&publish.sent, receivers);
                let bytes = publish.sent.message.size();
                let command = Command::Enqueue(without_idle_client(&self.state, publish.sent));
                let completion = match expecting.is_empty() {
                    true => Completion::Reply { connection, ticket },
                    false => Completion::Sent { connection, ticket, expecting, bytes },
                };
                self.propose(command, Urgency::Waiting, completion, effects);
                let known = self.leader.connections.get_or_make(connection);
                known.sends = self.leader.log.made;
                if goes_both_ways {
                    known.barrier_proposal = self.leader.log.made;
                }
            }
            Ok(Admitted::Volatile) => {
                self.hand_out(publish.sent, receivers, publish.retain, effects);
                reply(connection, ticket, Ok(()), effects);
            }
            Ok(Admitted::NeedsQueue) => self.park_until_declared(publish, effects),
            Err(refusal) => reply(connection, ticket, Err(refusal), effects),
        }
    }

    /// The queues that take a message: those bound to its address whose selectors it matches, but
    /// for `noLocal`.
    fn receivers(&self, to: &Destination, message: &Message, from: Option<ConnectionId>) -> Vec<QueueId> {
        if let Some(Aim::Only(name)) = message.aim() {
            return subscription_of(&self.state, to, name).into_iter().collect();
        }
        let bounds = self.state.addresses.bounds(to);
        let mut receivers = Vec::new();
        for bound in &bounds {
            receivers.extend(bound.taking(|| (self.protocols.properties_of)(message)));
        }
        if bounds.len() > 1 {
            receivers.sort_unstable();
            receivers.dedup();
        }
        receivers.retain(|queue| !self.shuts_out(*queue, from) && !skips(&self.state, *queue, message));
        receivers
    }

    /// The queues that take a message at any of its addresses.
    pub(crate) fn receivers_of(&self, sent: &Sent, from: Option<ConnectionId>) -> Vec<QueueId> {
        let mut receivers = self.receivers(&sent.to, &sent.message, from);
        for to in &sent.also {
            receivers.extend(self.receivers(to, &sent.message, from));
        }
        receivers
    }

    /// Lets parked sends in, as far as there is room; with many addresses also in the next ticks.
    pub(crate) fn unpark(&mut self, effects: &mut Vec<Effect>) {
        if self.leader.intake.parked.is_empty() {
            return;
        }
        let goes_on = self.leader.intake.unparking.at().is_some();
        self.leader.intake.unparking.begin();
        if !goes_on {
            self.go_on_unparking(effects);
        }
    }

    /// The next addresses of the round, if one is under way.
    pub(crate) fn go_on_unparking(&mut self, effects: &mut Vec<Effect>) {
        let (mut left, mut moved) = (unparking::LOOKED_MAX, BTreeSet::new());
        while let Some(after) = self.leader.intake.unparking.at() {
            let Some(to) = self.leader.intake.parked.next_address(after).cloned() else {
                self.leader.intake.unparking.end();
                break;
            };
            left -= 1;
            while 0 < left
                && let Some((publish, admitted, receivers)) = self.next_parked(&to)
            {
                left -= 1;
                moved.insert(BlockedOn::Own(publish.connection));
                self.take_in(publish, admitted, &receivers, effects);
            }
            if left == 0 {
                // This one is looked at once more: more of its sends may go on.
                break;
            }
            self.note_what_holds(&to);
            self.leader.intake.unparking.pass(to);
        }
        self.unpark_held_by_all(moved, effects);
    }

    /// As `unpark`, after sends of this connection that waited at these addresses went away.
    pub(crate) fn unpark_at(
        &mut self,
        addresses: BTreeSet<Destination>,
        connection: ConnectionId,
        effects: &mut Vec<Effect>,
    ) {
        self.unpark_first(addresses, BTreeSet::from([BlockedOn::Own(connection)]), effects);
    }

    /// Sends that waited at these addresses went away: the next ones there go on, and what waited
    /// for this.
    pub(crate) fn unpark_first(
        &mut self,
        addresses: impl IntoIterator<Item = Destination>,
        mut moved: BTreeSet<BlockedOn>,
        effects: &mut Vec<Effect>,
    ) {
        for to in addresses {
            while let Some((publish, admitted, receivers)) = self.next_parked(&to) {
                moved.insert(BlockedOn::Own(publish.connection));
                self.take_in(publish, admitted, &receivers, effects);
            }
            self.note_what_holds(&to);
        }
        self.unpark_held_by_all(moved, effects);
    }

    /// As `unpark`, where it was this that held sends up: others need not be asked.
    pub(crate) fn unpark_held_by(&mut self, held_by: BlockedOn, effects: &mut Vec<Effect>) {
        if !self.leader.intake.lines.is_empty() {
            self.unpark_held_by_all(BTreeSet::from([held_by]), effects);
        }
    }

    fn unpark_held_by_all(&mut self, mut moved: BTreeSet<BlockedOn>, effects: &mut Vec<Effect>) {
        while let Some(held_by) = moved.pop_first().filter(|_| !self.leader.intake.lines.is_empty()) {
            self.unpark_line(held_by, &mut moved, effects);
        }
    }

    /// A send that leaves this line moves the sends that wait after it in other lines.
    fn unpark_line(
        &mut self,
        held_by: BlockedOn,
        moved: &mut BTreeSet<BlockedOn>,
        effects: &mut Vec<Effect>,
    ) {
        let mut stay = Vec::new();
        while let Some(to) = self.leader.intake.lines.take_first(held_by) {
            if unparking::LOOKED_MAX <= stay.len() {
                // All are looked at, in steps.
                self.leader.intake.lines.put(to, held_by, true);
                self.leader.intake.unparking.begin();
                break;
            }
            if let Some((publish, admitted, receivers)) = self.next_parked(&to) {
                moved.insert(BlockedOn::Own(publish.connection));
                self.take_in(publish, admitted, &receivers, effects);
                // Its next one, which may wait for nothing any more, has its turn after those of
                // the others.
                if let Some(next) = self.leader.intake.parked.first(&to) {
                    let own = BlockedOn::Own(next.publish.connection);
                    moved.insert(own);
                    self.leader.intake.lines.put(to, own, false);
                }
                continue;
            }
            match (self.what_holds(&to), held_by) {
                // Each waits for something of its own.
                (Some(still), BlockedOn::Own(_) | BlockedOn::Log) if still == held_by => stay.push(to),
                // There is no room for the oldest send: later ones wait after it.
                (Some(still), _) if still == held_by => {
                    return self.leader.intake.lines.put(to, held_by, true);
                }
                (Some(other), _) => self.leader.intake.lines.put(to, other, false),
                (None, _) => {}
            }
        }
        stay.into_iter().for_each(|to| self.leader.intake.lines.put(to, held_by, false));
    }

    /// Takes the oldest send to this address out of the waiting room, if it need not wait any
    /// longer.
    #[allow(clippy::type_complexity, reason = "what take_in needs")]
    fn next_parked(
        &mut self,
        to: &Destination,
    ) -> Option<(Publish, Result<Admitted, Refusal>, Vec<QueueId>)> {
        let parked = self.leader.intake.parked.first(to)?;
        let first = &parked.publish;
        let admitted = admit(&self.state, &self.leader, &self.settings, &self.clock, &first.sent);
        let receivers = self.receivers_if_needed(first, &admitted);
        let ahead = self.leader.intake.parked.ahead_of_first(parked);
        if awaits_queue(&self.state, &self.leader, &first.sent, &admitted) {
            return None;
        }
        if let Some(until_ms) = self.must_wait(first, &admitted, &receivers, ahead) {
            // The cause of its wait may have another deadline than the former cause.
            self.leader.intake.parked.end_first(to, until_ms);
            return None;
        }
        let Parked { publish, .. } = self.leader.intake.parked.take_first(to)?;
        Some((publish, admitted, receivers))
    }

    /// Hands a message to every queue that takes it, in memory alone.
    pub(crate) fn publish_volatile(
        &mut self,
        sent: Sent,
        from: Option<ConnectionId>,
        effects: &mut Vec<Effect>,
    ) {
        let receivers = self.receivers_of(&sent, from);
        self.hand_out(sent, &receivers, None, effects);
    }

    /// A notice never waits: it goes to the subscriptions that have room for it now.
    fn tell_all(&mut self, publish: Publish, mut receivers: Vec<QueueId>, effects: &mut Vec<Effect>) {
        let Publish { sent, retain, .. } = publish;
        let wanted = receivers.len();
        receivers.retain(|queue| {
            has_memory_for(&self.state, &self.leader, &self.settings, &sent, std::slice::from_ref(queue))
        });
        self.counters.advisories_dropped += (wanted - receivers.len()) as u64;
        self.hand_out(sent, &receivers, retain, effects);
    }

    fn hand_out(
        &mut self,
        mut sent: Sent,
        receivers: &[QueueId],
        retain: Option<Retain>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(retain) = retain {
            self.retain(&sent.to, &sent.message, &retain, effects);
            let count = self.leader.retained.count(&sent.to.name);
            if !receivers.is_empty() {
                sent.message = (self.protocols.count_retained)(&sent.message, count);
            }
        }
        for to in sent.targets() {
            self.keep_recent(to, &sent.message, effects);
            if sent.moved.is_none() {
                announce_arrival(
                    &self.settings,
                    &sent.message,
                    to,
                    is_read(&self.state, receivers, to),
                    effects,
                );
            }
        }
        let is_part = is_part(&sent.message.bytes);
        let (moved, key) =
            (sent.moved, insert_volatile(&mut self.state, &mut self.leader, sent.message, effects));
        // Every queue has it before any is served: serving one may expire it there, and let a
        // parked send in after it.
        self.state.bodies.refer(key);
        for queue in receivers {
            self.push_entry(*queue, key, moved);
        }
        for queue in receivers {
            self.dispatch(*queue, effects);
        }
        self.drop_reference(key, effects);
        if is_part {
            self.state.bodies.keep_apart(key);
        }
    }

    /// Whether the queue belongs to a `noLocal` subscription of the connection that publishes.
    fn shuts_out(&self, queue: QueueId, from: Option<ConnectionId>) -> bool {
        let subscription = self
            .state
            .queues
            .get(&queue)
            .filter(|queue| queue.id.is_volatile() && queue.source.kind == DestinationKind::Topic);
        let subscriber = subscription.and_then(|queue| queue.consumers.first());
        let subscriber = subscriber.filter(|key| Some(key.connection) == from);
        subscriber
            .and_then(|key| self.leader.delivery.consumers.get(key))
            .is_some_and(|consumer| consumer.no_local)
    }

    /// Carries out durable sends: one body each in the store, one entry in each durable queue.
    pub(crate) fn enqueue_durable(
        &mut self,
        position: Position,
        sends: Vec<Sent>,
        effects: &mut Vec<Effect>,
    ) {
        if !sends.is_empty() {
            effects.push(retained(position, &sends));
        }
        self.enqueue_left(position, 0..sends.len() as u32, sends, effects);
    }

    /// As [`Partition::enqueue_durable`], of messages with these ordinals, without a report that
    /// they are needed.
    pub(crate) fn enqueue_left(
        &mut self,
        position: Position,
        ordinals: impl Iterator<Item = u32> + Clone,
        sends: Vec<Sent>,
        effects: &mut Vec<Effect>,
    ) {
        let keys = ordinals.clone().map(|ordinal| MessageKey::Durable { position, ordinal });
        let mut parts = Vec::new();
        let mut touched: Vec<QueueId> = Vec::with_capacity(sends.len());
        for ((mut sent, key), ordinal) in sends.into_iter().zip(keys.clone()).zip(ordinals) {
            let completion = self.leader.log.pending.front();
            let from = completion.and_then(|completion| completion.sender(ordinal as usize));
            // The windows of one that has moved come apart from it: it does not tell its user any
            // more.
            if sent.moved.is_none() || sent.message.aim().is_some() {
                audit(&mut self.state, &self.settings, &self.protocols, &sent.message);
            }
            sent.message.forget_user();
            let trace = sent.message.take_trace();
            if let Some(schedule) = &sent.schedule {
                self.take_job(key, sent.message.bytes.len() as u64, schedule, effects);
                schedule_chunks(&mut self.state, &mut self.leader, key, &sent.message, effects);
                if let Some(trace) = trace {
                    self.leader.traces.scheduled(trace);
                }
                continue;
            }
            if let Some(trace) = trace {
                self.leader.traces.begin(key, trace);
            }
            self.leader.intake.uploads.retain_chunks(&sent.message, effects);
            if is_part(&sent.message.bytes) {
                parts.push(key);
            }
            self.state.bodies.insert(key, sent.message);
            self.state.bodies.refer(key);
            // Until all of its addresses have it: the queues of one may leave bodies to the disk,
            // and selectors at the next judge it.
            self.state.bodies.pin(key);
            for to in std::iter::once(&sent.to).chain(&sent.also) {
                self.bind_entries((key, sent.moved), to, from, &mut touched, effects);
            }
            self.put_down(key, effects);
        }
        let are_deep = are_deep(&self.state, &touched);
        self.dispatch_all(touched, effects);
        evict_newest(&mut self.state, &mut self.leader, &self.settings, keys, are_deep);
        parts.into_iter().for_each(|key| self.state.bodies.keep_apart(key));
    }

    /// One entry in each queue that the address feeds; a queue is made on first use. See
    /// [`Sent::moved`].
    pub(crate) fn bind_entries(
        &mut self,
        (key, moved): (MessageKey, Option<u32>),
        to: &Destination,
        from: Option<ConnectionId>,
        touched: &mut Vec<QueueId>,
        effects: &mut Vec<Effect>,
    ) {
        let before = touched.len();
        self.bind_entries_silently((key, moved), to, (from, touched), effects);
        if self.leader.is_live
            && moved.is_none()
            && let Some(message) = self.state.bodies.resident(key)
        {
            let is_read = is_read(&self.state, &touched[before..], to);
            announce_arrival(&self.settings, message, to, is_read, effects);
        }
    }

    /// The queue of this address. One that is temporary is not made: it ends with its connection,
    /// which may have gone since or in an earlier run.
    fn queue_for(&mut self, to: &Destination) -> Option<QueueId> {
        match to.temporary {
            true => self.state.addresses.own_queue(to),
            false => Some(self.declare_queue(to)),
        }
    }

    fn bind_entries_silently(
        &mut self,
        (key, moved): (MessageKey, Option<u32>),
        to: &Destination,
        (from, touched): (Option<ConnectionId>, &mut Vec<QueueId>),
        effects: &mut Vec<Effect>,
    ) {
        if to.kind == DestinationKind::Queue {
            let Some(queue) = self.queue_for(to) else { return };
            self.push_entry(queue, key, moved);
            return touched.push(queue);
        }
        let Some((message, _)) = self.state.bodies.headers(key) else { return };
        // What follows a subscriber the topic has kept where it came from.
        if !matches!(message.aim(), Some(Aim::Only(_))) {
            self.keep_recent_of(key, to, effects);
        }
        let Some((message, _)) = self.state.bodies.headers(key) else { return };
        let receivers = self.receivers(to, message, from);
        for queue in &receivers {
            self.push_entry(*queue, key, moved);
        }
        touched.extend(receivers);
    }

    pub(crate) fn dispatch_all(&mut self, mut queues: Vec<QueueId>, effects: &mut Vec<Effect>) {
        queues.sort_unstable();
        queues.dedup();
        for queue in queues {
            self.dispatch(queue, effects);
        }
    }

    /// Answers the request that waits, if any: a client's, or a redrive or move of this partition's
    /// own.
    pub(crate) fn answer(
        &mut self,
        to: Option<(ConnectionId, Ticket)>,
        result: Result<(), Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        match to {
            None => {}
            Some((connection, ticket)) if connection == ConnectionId::internal(self.settings.id) => {
                self.own_step_ended(ticket, result, effects);
            }
            Some((connection, ticket)) => reply(connection, ticket, result, effects),
        }
    }
}

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
