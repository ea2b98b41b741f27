//! Verdicts: entries leave their queues, return to them, or go to the dead letters.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::{
    Command, ConnectionId, ConsumerKey, DeadLetter, Destination, Effect, EntryTag, Message, MessageEvent,
    MessageKey, Outcome, QueueId, Refusal, Sent, Settle, SettleCause, Settlement, Ticket, Urgency,
};

use crate::Partition;
use crate::connection::Connections;
use crate::delivery::slow::note_what_came_again;
use crate::figures::QueueCounts;
use crate::intake::account::Owners;
use crate::intake::blocked::BlockedOn;
use crate::intake::route_retries::is_staging;
use crate::intake::routes::route_own;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::memory::packing::is_short_of_memory;
use crate::partition::Counters;
use crate::protocols::Protocols;
use crate::queue::{Entry, EntryState, LaneNumber};
use crate::settings::Settings;
use crate::state::State;
use crate::traces;
use crate::transaction::open_transaction;

/// Why a message whose time was over lies among the dead letters.
const EXPIRED: &str = "expired";

impl Partition {
    pub(crate) fn settle(&mut self, mut settle: Settle, effects: &mut Vec<Effect>) {
        let consumer = settle.consumer;
        if !settle.tags.is_sorted_by(|one, next| one < next) {
            // A tag that was taken back and delivered to the same consumer again is listed twice,
            // and settled once.
            let mut named = BTreeSet::new();
            settle.tags.retain(|tag| named.insert(*tag));
        }
        self.take_verdict(settle, effects);
        self.give_withheld(consumer, effects);
        // The settled messages may have blocked the replay of its topics' retained messages.
        let queue = self.leader.delivery.consumers.get(&consumer).map(|consumer| consumer.queue);
        if let Some(id) =
            queue.filter(|id| self.state.queues.get(id).is_some_and(|queue| queue.replay.is_some()))
        {
            self.dispatch(id, effects);
        }
    }

    fn take_verdict(&mut self, settle: Settle, effects: &mut Vec<Effect>) {
        let Settle { consumer, tags, outcome, transaction, reason, ticket } = settle;
        let answer = ticket.map(|ticket| (consumer.connection, ticket));
        let queue = self.leader.delivery.consumers.get(&consumer).map(|consumer| consumer.queue);
        let needs_body = transaction.is_some()
            || matches!(outcome, Outcome::Rejected | Outcome::Expired | Outcome::Retried);
        let has_lost_some = match queue {
            Some(_) => !self.has_spoken(consumer, &tags, needs_body),
            None => self.leader.connections.was_force_detached(consumer),
        };
        // A release needs no entry that is still held.
        if has_lost_some && !matches!(outcome, Outcome::Released { .. } | Outcome::Retried) {
            if let Some(transaction) = transaction {
                open_transaction(&mut self.leader, &self.settings, self.now_ms, transaction)
                    .refuse(Refusal::TakenBack);
            }
            return self.answer(answer, Err(Refusal::TakenBack), effects);
        }
        let Some(queue) = queue else {
            if let Some(transaction) = transaction {
                open_transaction(&mut self.leader, &self.settings, self.now_ms, transaction);
            }
            return self.answer(answer, Ok(()), effects);
        };
        note_what_came_again(&mut self.leader, consumer, &tags, outcome);
        traces::settled(self, queue, &tags, outcome);
        match (outcome, transaction) {
            (Outcome::Accepted | Outcome::Expired, Some(transaction)) => {
                if let Some(refusal) = self.leader.transactions.timed_out_refusal(transaction) {
                    return self.answer(answer, Err(refusal), effects);
                }
                let cause = cause(outcome);
                self.settle_in_transaction(queue, consumer, &tags, cause, transaction);
                self.answer(answer, Ok(()), effects);
            }
            (Outcome::Accepted, None) => {
                self.settle_now(queue, consumer, &tags, SettleCause::Consumed, answer, effects);
            }
            (Outcome::Expired, None) | (Outcome::Rejected, _)
                if self.propose_again(queue, consumer, &tags, outcome, answer, effects) => {}
            (Outcome::Expired, None) => self.settle_expired(queue, consumer, &tags, answer, effects),
            (Outcome::Rejected, _) => self.reject(queue, consumer, &tags, reason, answer, effects),
            (Outcome::Released { failed }, _) => {
                let held = self.held_of(queue, consumer, &tags);
                forget_held(&mut self.leader, consumer, &held);
                self.release(queue, consumer, &held, failed, effects);
                self.answer(answer, Ok(()), effects);
                self.dispatch(queue, effects);
            }
            (Outcome::Retried, _) => {
                let held = self.held_of(queue, consumer, &tags);
                self.count_failed(queue, &held, effects);
                self.answer(answer, Ok(()), effects);
            }
        }
    }

    /// Those of `tags` that the consumer really holds, outside any transaction.
    fn held_of(&mut self, queue: QueueId, by: ConsumerKey, tags: &[EntryTag]) -> Vec<EntryTag> {
        let held = EntryState::Held { by, in_transaction: false };
        let mut found = Vec::with_capacity(tags.len());
        for tag in tags {
            if self.entry(queue, *tag).is_some_and(|entry| entry.state == held) {
                found.push(*tag);
            }
        }
        found
    }

    fn settle_now(
        &mut self,
        queue: QueueId,
        consumer: ConsumerKey,
        tags: &[EntryTag],
        cause: SettleCause,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let held = self.held_of(queue, consumer, tags);
        end_held(&mut self.leader, self.now_ms, consumer, &held);
        let may_be_leaving = answer.is_some() && held.len() < tags.len();
        let again = if may_be_leaving { self.leaving_of(queue, tags, cause) } else { Vec::new() };
        let settlements = self.leave(queue, &held, cause, effects);
        self.settle_behind(settlements, &again, answer, effects);
    }

    /// A repeated settlement of entries that are all leaving: its answer waits for the log, as that
    /// of the first one. `false` if it settles anything else.
    fn propose_again(
        &mut self,
        queue: QueueId,
        consumer: ConsumerKey,
        tags: &[EntryTag],
        outcome: Outcome,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if answer.is_none() || !self.held_of(queue, consumer, tags).is_empty() {
            return false;
        }
        let again = self.leaving_of(queue, tags, cause(outcome));
        if again.is_empty() {
            return false;
        }
        self.settle_behind(Vec::new(), &again, answer, effects);
        true
    }

    /// Those of `tags` that are leaving already, by a verdict that is on its way to the log.
    fn leaving_of(&mut self, queue: QueueId, tags: &[EntryTag], cause: SettleCause) -> Vec<Settlement> {
        let leaves = |tag: &&EntryTag| {
            self.entry(queue, **tag).is_some_and(|entry| entry.state == EntryState::Leaving)
        };
        let leaving: Vec<EntryTag> = tags.iter().filter(leaves).copied().collect();
        if leaving.is_empty() {
            return Vec::new();
        }
        let proposed = self.leader.log.pending.iter().flat_map(|completion| match completion {
            Completion::Settled { settlements, .. } => &settlements[..],
            _ => &[],
        });
        let soon = self
            .leader
            .settling
            .unsaved
            .iter()
            .chain(proposed)
            .filter(|settlement| settlement.queue == queue);
        let soon: BTreeSet<EntryTag> = soon.map(|settlement| settlement.tag).collect();
        let leaving = leaving.into_iter().filter(|tag| soon.contains(tag));
        leaving.map(|tag| Settlement { queue, tag, cause }).collect()
    }

    /// A consumer found that the time of these was over.
    fn settle_expired(
        &mut self,
        queue: QueueId,
        consumer: ConsumerKey,
        tags: &[EntryTag],
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let held = self.held_of(queue, consumer, tags);
        end_held(&mut self.leader, self.now_ms, consumer, &held);
        let (mut buried, mut ended, mut to) = (Vec::new(), Vec::new(), None);
        for tag in held {
            self.announce_message(queue, tag, MessageEvent::Expired, Some(consumer), effects);
            let key = self.entry(queue, tag).map(|entry| entry.key);
            match key.and_then(|key| self.grave_of(queue, key)) {
                Some(grave) => {
                    to = Some(grave);
                    buried.push(tag);
                }
                None => ended.push(tag),
            }
        }
        // One settlement is carried out whole or not at all: entries without a dead-letter queue
        // leave together with those that move.
        let leaving = self.leave(queue, &ended, SettleCause::Expired, effects);
        match to {
            Some(grave) => self.bury_expired((queue, &buried), leaving, grave, answer, effects),
            None => self.settle_leaving(leaving, answer, effects),
        }
    }

    /// Entries of one queue whose time is over move to the dead letters; those that are `leaving`
    /// go in the same transaction.
    pub(crate) fn bury_expired(
        &mut self,
        (queue, tags): (QueueId, &[EntryTag]),
        leaving: Vec<Settlement>,
        grave: Destination,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(origin) = self.state.queues.get(&queue).map(|queue| queue.source.clone()) else { return };
        // It has its past already.
        let is_staged = is_staging(&origin);
        let past = DeadLetter { queue: grave.clone(), origin, reason: Some(EXPIRED.into()) };
        let (mut sends, mut moving) = (Vec::new(), Vec::new());
        for tag in tags {
            let key = self.entry(queue, *tag).map(|entry| entry.key);
            if let Some(message) = key.and_then(|key| self.state.bodies.resident(key)) {
                let dead = match is_staged {
                    true => Message { expires_at_ms: 0, ..message.clone() },
                    false => self.protocols.dead(message, &past),
                };
                sends.push(Sent::new(grave.clone(), dead));
                moving.push(*tag);
                self.announce_message(queue, *tag, MessageEvent::DeadLettered, None, effects);
            }
        }
        let sends = route_own(&mut self.leader, &self.settings, &self.clock, &self.protocols, sends);
        self.move_entries((queue, &moving, SettleCause::Expired), sends, leaving, answer, effects);
    }

    /// Entries leave their queue for good, as soon as the log has it.
    pub(crate) fn settle_held(
        &mut self,
        queue: QueueId,
        held: &[EntryTag],
        cause: SettleCause,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let settlements = self.leave(queue, held, cause, effects);
        self.settle_leaving(settlements, answer, effects);
    }

    /// Entries that are leaving are gone once the log has it.
    pub(crate) fn settle_leaving(
        &mut self,
        settlements: Vec<Settlement>,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        self.settle_behind(settlements, &[], answer, effects);
    }

    /// As `settle_leaving`, after verdicts on their way to the log by which the entries of `again`
    /// leave. These come back if the log does not take that: the answer waits for the log, which
    /// must not have this without that.
    fn settle_behind(
        &mut self,
        settlements: Vec<Settlement>,
        again: &[Settlement],
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        if settlements.is_empty() && again.is_empty() {
            return self.answer(answer, Ok(()), effects);
        }
        let urgency = if answer.is_some() { Urgency::Waiting } else { Urgency::Lazy };
        let command = Command::Settle([settlements.as_slice(), again].concat());
        self.propose(command, urgency, Completion::Settled { settlements, answer }, effects);
    }

    /// Volatile entries are gone at once; durable ones are leaving, and their settlements are
    /// returned.
    pub(crate) fn leave(
        &mut self,
        queue: QueueId,
        tags: &[EntryTag],
        cause: SettleCause,
        effects: &mut Vec<Effect>,
    ) -> Vec<Settlement> {
        let mut settlements = Vec::with_capacity(tags.len());
        for tag in tags {
            let Some(entry) = self.entry(queue, *tag) else { continue };
            match entry.key {
                MessageKey::Durable { .. } if !queue.is_volatile() => {
                    self.set_state(queue, *tag, EntryState::Leaving);
                    settlements.push(Settlement { queue, tag: *tag, cause });
                }
                _ => self.end_entry(queue, *tag, cause, effects),
            }
        }
        settlements
    }

    /// Takes an entry out for good, and counts why.
    pub(crate) fn end_entry(
        &mut self,
        queue: QueueId,
        tag: EntryTag,
        cause: SettleCause,
        effects: &mut Vec<Effect>,
    ) {
        self.open_page(queue, tag);
        if cause == SettleCause::Consumed
            && is_advised_of_ends(&self.state, &self.leader, &self.settings, queue)
        {
            self.announce_message(queue, tag, MessageEvent::Consumed, None, effects);
        }
        self.forget_lease(queue, tag);
        let removed = self.state.queues.get_mut(&queue).and_then(|queue| queue.remove(tag));
        let Some(entry) = removed else { return };
        traces::ended(self, entry.key, (queue, tag), cause);
        let (mut size, mut in_memory, mut value) = (0, 0, None);
        if let Some((headers, bytes)) = self.state.bodies.headers(&entry) {
            self.state.expiries.remove(headers.expires_at_ms, queue, tag);
            size = bytes;
            in_memory = headers.bytes.len() as u64;
            value = headers.last_value().cloned();
        }
        let mut unknown = QueueCounts::default();
        let (mut makes_room, mut owners) = (false, Owners::default());
        let volatile_bytes = if matches!(entry.key, MessageKey::Volatile(_)) { in_memory } else { 0 };
        let counts = match self.state.queues.get_mut(&queue) {
            Some(queue) => {
                queue.load.remove(size);
                queue.volatile_bytes -= volatile_bytes;
                owners = queue.owners;
                self.leader.intake.accounts.remove(owners, size, volatile_bytes);
                if entry.state != EntryState::Ready {
                    queue.away.remove(size);
                }
                makes_room = !queue.limit.is_none();
                if queue.requests.is_watched {
                    self.leader.leasing.watches.note(queue.id);
                }
                if let (Some(value), Some(last_values)) = (value, &mut queue.last_values) {
                    last_values.forget(&value, tag);
                }
                if self.leader.is_live {
                    self.leader.flows.note(queue, self.now_ms, |passed| passed.leaves(cause));
                }
                queue.counts.of_lane(LaneNumber::of_tag(tag))
            }
            None => &mut unknown,
        };
        count_end(&mut self.counters, counts, cause);
        self.let_message_go(&entry, effects);
        if makes_room {
            self.unpark_held_by(BlockedOn::Queue(queue), effects);
        }
        if volatile_bytes > 0 {
            self.unpark_held_by(BlockedOn::Share(queue), effects);
        }
        for owner in owners.into_iter().flatten() {
            self.unpark_held_by(BlockedOn::Account(owner), effects);
        }
    }

    /// An entry is gone, and its claim on the message. If other queues have claims on it that no
    /// consumer holds, the body need not stay in memory.
    pub(crate) fn let_message_go(&mut self, entry: &Entry, effects: &mut Vec<Effect>) {
        let in_hand = entry.state.is_in_hand();
        let gone = if in_hand { self.state.bodies.put_down(entry) } else { self.state.bodies.unrefer(entry) };
        let is_gone = gone.is_some();
        self.release_gone(entry.key, gone, effects);
        if !is_gone && in_hand && is_short_of_memory(&self.state, &self.leader, &self.settings) {
            self.state.bodies.evict(entry.key);
        }
    }

    /// The settlements did not reach the log: their entries go back to their places.
    pub(crate) fn stay(&mut self, settlements: &[Settlement], effects: &mut Vec<Effect>) {
        let queues = self.give_back_all(settlements);
        self.dispatch_all(queues, effects);
    }

    /// As `stay`; the queues that it returns are to be dispatched.
    pub(crate) fn give_back_all(&mut self, settlements: &[Settlement]) -> Vec<QueueId> {
        let mut queues = Vec::new();
        for settlement in settlements {
            let key = self.entry(settlement.queue, settlement.tag).map(|entry| entry.key);
            if let Some(key) = key {
                self.give_back_or_rest(settlement.queue, settlement.tag);
                queues.push(settlement.queue);
                self.state.bodies.unpin(key);
            }
        }
        queues
    }

    /// Rejected messages are delivered again after a delay, as often as the policy of their queue
    /// says. After that they move to the dead-letter queue, in one transaction, as far as the
    /// policy keeps them; the others end. Messages of the dead-letter queue itself stay there, and
    /// rest.
    fn reject(
        &mut self,
        queue: QueueId,
        consumer: ConsumerKey,
        tags: &[EntryTag],
        reason: Option<Arc<str>>,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(origin) = self.state.queues.get(&queue).map(|queue| queue.source.clone()) else { return };
        let held = self.held_of(queue, consumer, tags);
        end_held(&mut self.leader, self.now_ms, consumer, &held);
        let given_up = self.rest(queue, held, effects);
        let policy = &self.settings.policies.of(&origin).dead_letters;
        let keeps_all = policy.non_persistent;
        let Some(to) = policy.queue_of(&origin) else {
            self.counters.dropped += given_up.len() as u64;
            return self.settle_held(queue, &given_up, SettleCause::DeadLettered, answer, effects);
        };
        if to == origin {
            self.rest_in_grave(queue, &given_up, effects);
            return self.move_messages(Vec::new(), Vec::new(), answer, effects);
        }
        let past = DeadLetter { queue: to.clone(), origin, reason };
        let (mut sends, mut moving) = (Vec::new(), Vec::new());
        for tag in given_up {
            let Some(key) = self.entry(queue, tag).map(|entry| entry.key) else { continue };
            // A logged message can leave only through the log, even if it did not have to be
            // logged.
            let logged = matches!(key, MessageKey::Durable { .. }) && !queue.is_volatile();
            let keeps = |message: &&Message| message.persistent || logged || keeps_all;
            let message = self.state.bodies.resident(key).filter(keeps);
            match message.map(|message| self.protocols.dead(message, &past)) {
                Some(message) => {
                    sends.push(Sent::new(to.clone(), message));
                    moving.push(tag);
                    self.announce_message(queue, tag, MessageEvent::DeadLettered, None, effects);
                }
                None => {
                    self.counters.dropped += 1;
                    self.end_entry(queue, tag, SettleCause::DeadLettered, effects);
                }
            }
        }
        let sends = route_own(&mut self.leader, &self.settings, &self.clock, &self.protocols, sends);
        self.move_entries((queue, &moving, SettleCause::DeadLettered), sends, Vec::new(), answer, effects);
    }
}

fn cause(outcome: Outcome) -> SettleCause {
    match outcome {
        Outcome::Expired => SettleCause::Expired,
        _ => SettleCause::Consumed,
    }
}

impl Connections {
    /// Whether the broker force-detached this consumer and requeued its messages: its late
    /// acknowledgements must be refused.
    fn was_force_detached(&self, consumer: ConsumerKey) -> bool {
        let connection = self.get(&consumer.connection);
        connection.is_some_and(|connection| connection.force_detached.contains(&consumer.whole()))
    }
}

/// As [`Partition::forget_held`], for messages that it has settled.
pub fn end_held(leader: &mut Leader, now_ms: u64, key: ConsumerKey, tags: &[EntryTag]) {
    let Some(consumer) = leader.delivery.consumers.get_mut(&key) else { return };
    for tag in tags {
        if let Some(sent_ms) = consumer.held.remove(*tag) {
            consumer.pulse.settles(sent_ms, now_ms);
        }
    }
    if consumer.held.is_empty() {
        consumer.pulse.stops_waiting(now_ms);
    }
}

/// Removes the tags from the consumer's own list of held entries.
pub fn forget_held(leader: &mut Leader, consumer: ConsumerKey, tags: &[EntryTag]) {
    let Some(consumer) = leader.delivery.consumers.get_mut(&consumer) else { return };
    for tag in tags {
        consumer.held.remove(*tag);
    }
}

impl Protocols {
    /// The message as it lies among the dead letters: with its past, and without an end.
    pub fn dead(&self, message: &Message, past: &DeadLetter) -> Message {
        Message { expires_at_ms: 0, ..(self.mark_dead)(message, past) }
    }
}

fn is_advised_of_ends(state: &State, leader: &Leader, settings: &Settings, queue: QueueId) -> bool {
    let source = state.queues.get(&queue).map(|queue| &queue.source);
    leader.is_live && source.is_some_and(|source| settings.policies.advised(source).consumed)
}

/// Counts why an entry has left.
fn count_end(counters: &mut Counters, counts: &mut QueueCounts, cause: SettleCause) {
    let (all, own) = match cause {
        SettleCause::Consumed => (&mut counters.consumed, &mut counts.consumed),
        SettleCause::Expired => (&mut counters.expired, &mut counts.expired),
        SettleCause::DeadLettered => (&mut counters.dead_lettered, &mut counts.dead_lettered),
        SettleCause::Dropped => (&mut counters.overflowed, &mut counts.dropped),
        SettleCause::Replaced => (&mut counters.replaced, &mut counts.replaced),
        SettleCause::Moved => (&mut counters.moved, &mut counts.moved),
    };
    *all += 1;
    *own += 1;
}
