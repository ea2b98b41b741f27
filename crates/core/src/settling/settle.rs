//! Verdicts: entries leave their queues, return to them, or go to the dead letters.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::{
    Changes, Command, ConnectionId, ConsumerKey, DeadLetter, Destination, Effect, EntryTag, Message,
    MessageEvent, MessageKey, Outcome, QueueId, Refusal, Sent, Settle, SettleCause, Settlement, Ticket,
    Urgency,
};

use crate::connection::Connections;
use crate::delivery::dispatch::dispatch;
use crate::delivery::slow::{give_withheld, has_spoken, note_what_came_again};
use crate::entries::{entry_at, release_gone};
use crate::figures::QueueCounts;
use crate::intake::account::Owners;
use crate::intake::blocked::BlockedOn;
use crate::intake::limit::set_state;
use crate::intake::publish::{answer_request, dispatch_all};
use crate::intake::route_retries::is_staging;
use crate::intake::routes::route_own;
use crate::intake::unparking::unpark_held_by;
use crate::leader::Leader;
use crate::leasing::forget_lease;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::memory::packing::{is_short_of_memory, open_page};
use crate::notice::announce_message;
use crate::partition::Counters;
use crate::protocols::Protocols;
use crate::queue::{Entry, EntryState, LaneNumber};
use crate::settings::Settings;
use crate::settling::carrying::{move_entries, move_messages};
use crate::settling::expiry::grave_of;
use crate::settling::release::{count_failed, release_entries};
use crate::settling::rest::{give_back_or_rest, let_rest, rest_in_grave};
use crate::state::State;
use crate::transaction::{open_transaction, settle_in_transaction};
use crate::{Partition, traces};

/// Why a message whose time was over lies among the dead letters.
const EXPIRED: &str = "expired";

/// Entries leave by one record if they are no more than these slices: it has 2 MiB then, and would
/// otherwise take too long to write in one step.
const LEAVING_SLICES: usize = 128;

fn cause(outcome: Outcome) -> SettleCause {
    match outcome {
        Outcome::Expired => SettleCause::Expired,
        _ => SettleCause::Consumed,
    }
}

/// Whether the broker force-detached this consumer and requeued its messages: its late
/// acknowledgements must be refused.
pub fn was_force_detached(connections: &Connections, consumer: ConsumerKey) -> bool {
    let connection = connections.get(&consumer.connection);
    connection.is_some_and(|connection| connection.force_detached.contains(&consumer.whole()))
}

/// Entries that leave by a verdict, as soon as the log has it.
#[derive(Default)]
pub struct Verdict {
    /// Their ends.
    pub settlements: Vec<Settlement>,
    /// Those of entries that are leaving already, by an earlier verdict that is on its way to the
    /// log.
    pub again: Vec<Settlement>,
}

/// As [`forget_held`], for messages that it has settled.
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

pub fn settle_verdicts(partition: &mut Partition, mut settle: Settle, effects: &mut Vec<Effect>) {
    let consumer = settle.consumer;
    if !settle.tags.is_sorted_by(|one, next| one < next) {
        // A tag that was taken back and delivered to the same consumer again is listed twice,
        // and settled once.
        let mut named = BTreeSet::new();
        settle.tags.retain(|tag| named.insert(*tag));
    }
    take_verdict(partition, settle, effects);
    give_withheld(partition, consumer, effects);
    // The settled messages may have blocked the replay of its topics' retained messages.
    let queue = partition.leader.delivery.consumers.get(&consumer).map(|consumer| consumer.queue);
    if let Some(id) =
        queue.filter(|id| partition.state.queues.get(id).is_some_and(|queue| queue.replay.is_some()))
    {
        dispatch(partition, id, effects);
    }
}

fn take_verdict(partition: &mut Partition, settle: Settle, effects: &mut Vec<Effect>) {
    let Settle { consumer, tags, outcome, transaction, reason, ticket } = settle;
    let answer = ticket.map(|ticket| (consumer.connection, ticket));
    let queue = partition.leader.delivery.consumers.get(&consumer).map(|consumer| consumer.queue);
    let needs_body =
        transaction.is_some() || matches!(outcome, Outcome::Rejected | Outcome::Expired | Outcome::Retried);
    let has_lost_some = match queue {
        Some(_) => !has_spoken(partition, consumer, &tags, needs_body),
        None => was_force_detached(&partition.leader.connections, consumer),
    };
    // A release needs no entry that is still held.
    if has_lost_some && !matches!(outcome, Outcome::Released { .. } | Outcome::Retried) {
        if let Some(transaction) = transaction {
            open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, transaction)
                .refuse(Refusal::TakenBack);
        }
        return answer_request(partition, answer, Err(Refusal::TakenBack), effects);
    }
    let Some(queue) = queue else {
        if let Some(transaction) = transaction {
            open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, transaction);
        }
        return answer_request(partition, answer, Ok(()), effects);
    };
    note_what_came_again(&mut partition.leader, consumer, &tags, outcome);
    traces::settled(partition, queue, &tags, outcome);
    match (outcome, transaction) {
        (Outcome::Accepted | Outcome::Expired, Some(transaction)) => {
            if let Some(refusal) = partition.leader.transactions.timed_out_refusal(transaction) {
                return answer_request(partition, answer, Err(refusal), effects);
            }
            let cause = cause(outcome);
            let result = settle_in_transaction(partition, queue, consumer, &tags, cause, transaction);
            answer_request(partition, answer, result, effects);
        }
        (Outcome::Accepted, None) => {
            let by = (queue, consumer);
            let verdict = begin_verdict(partition, by, (&tags, outcome), answer.is_some(), effects);
            accept_behind(partition, consumer, verdict, answer, effects);
        }
        (Outcome::Expired, None) | (Outcome::Rejected, _)
            if propose_again(partition, queue, consumer, &tags, outcome, answer, effects) => {}
        (Outcome::Expired, None) => settle_expired(partition, queue, consumer, &tags, answer, effects),
        (Outcome::Rejected, _) => reject(partition, queue, consumer, &tags, reason, answer, effects),
        (Outcome::Released { failed }, _) => {
            let held = held_of(partition, queue, consumer, &tags);
            forget_held(&mut partition.leader, consumer, &held);
            release_entries(partition, queue, consumer, &held, failed, effects);
            answer_request(partition, answer, Ok(()), effects);
            dispatch(partition, queue, effects);
        }
        (Outcome::Retried, _) => {
            let held = held_of(partition, queue, consumer, &tags);
            count_failed(partition, queue, &held, effects);
            answer_request(partition, answer, Ok(()), effects);
        }
    }
}

/// Those of `tags` that the consumer really holds, outside any transaction.
fn held_of(partition: &mut Partition, queue: QueueId, by: ConsumerKey, tags: &[EntryTag]) -> Vec<EntryTag> {
    let held = EntryState::Held { by, in_transaction: false };
    let mut found = Vec::with_capacity(tags.len());
    for tag in tags {
        if entry_at(partition, queue, *tag).is_some_and(|entry| entry.state == held) {
            found.push(*tag);
        }
    }
    found
}

/// Entries that a consumer settles are leaving from now on, those in memory alone at once. A client
/// that `waits` is answered after the earlier verdicts by which others of them leave.
pub fn begin_verdict(
    partition: &mut Partition,
    (queue, consumer): (QueueId, ConsumerKey),
    (tags, outcome): (&[EntryTag], Outcome),
    waits: bool,
    effects: &mut Vec<Effect>,
) -> Verdict {
    let held = held_of(partition, queue, consumer, tags);
    end_held(&mut partition.leader, partition.now_ms, consumer, &held);
    let may_be_leaving = waits && held.len() < tags.len();
    let again = if may_be_leaving { leaving_of(partition, queue, tags, cause(outcome)) } else { Vec::new() };
    let settlements = begin_leaving(partition, queue, &held, cause(outcome), effects);
    Verdict { settlements, again }
}

/// A repeated settlement of entries that are all leaving: its answer waits for the log, as that
/// of the first one. `false` if it settles anything else.
fn propose_again(
    partition: &mut Partition,
    queue: QueueId,
    consumer: ConsumerKey,
    tags: &[EntryTag],
    outcome: Outcome,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) -> bool {
    if answer.is_none() || !held_of(partition, queue, consumer, tags).is_empty() {
        return false;
    }
    let again = leaving_of(partition, queue, tags, cause(outcome));
    if again.is_empty() {
        return false;
    }
    settle_behind(partition, Vec::new(), &again, answer, effects);
    true
}

/// Those of `tags` that are leaving already, by a verdict that is on its way to the log.
fn leaving_of(
    partition: &mut Partition,
    queue: QueueId,
    tags: &[EntryTag],
    cause: SettleCause,
) -> Vec<Settlement> {
    let leaves = |tag: &&EntryTag| {
        entry_at(partition, queue, **tag).is_some_and(|entry| entry.state == EntryState::Leaving)
    };
    let leaving: Vec<EntryTag> = tags.iter().filter(leaves).copied().collect();
    if leaving.is_empty() {
        return Vec::new();
    }
    let proposed = partition.leader.log.pending.iter().flat_map(|completion| match completion {
        Completion::Settled { settlements, .. } => &settlements[..],
        _ => &[],
    });
    let soon = partition
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
    partition: &mut Partition,
    queue: QueueId,
    consumer: ConsumerKey,
    tags: &[EntryTag],
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let held = held_of(partition, queue, consumer, tags);
    end_held(&mut partition.leader, partition.now_ms, consumer, &held);
    let (mut buried, mut ended, mut to) = (Vec::new(), Vec::new(), None);
    for tag in held {
        announce_message(partition, queue, tag, MessageEvent::Expired, Some(consumer), effects);
        let key = entry_at(partition, queue, tag).map(|entry| entry.key);
        match key
            .and_then(|key| grave_of(&partition.state, &partition.settings, &partition.protocols, queue, key))
        {
            Some(grave) => {
                to = Some(grave);
                buried.push(tag);
            }
            None => ended.push(tag),
        }
    }
    // One settlement is carried out whole or not at all: entries without a dead-letter queue
    // leave together with those that move.
    let leaving = begin_leaving(partition, queue, &ended, SettleCause::Expired, effects);
    match to {
        Some(grave) => bury_expired(partition, (queue, &buried), leaving, grave, answer, effects),
        None => settle_leaving(partition, leaving, answer, effects),
    }
}

/// Entries of one queue whose time is over move to the dead letters; those that are `leaving`
/// go in the same transaction.
pub fn bury_expired(
    partition: &mut Partition,
    (queue, tags): (QueueId, &[EntryTag]),
    leaving: Vec<Settlement>,
    grave: Destination,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let Some(origin) = partition.state.queues.get(&queue).map(|queue| queue.source.clone()) else { return };
    // It has its past already.
    let is_staged = is_staging(&origin);
    let past = DeadLetter { queue: grave.clone(), origin, reason: Some(EXPIRED.into()) };
    let (mut sends, mut moving) = (Vec::new(), Vec::new());
    for tag in tags {
        let key = entry_at(partition, queue, *tag).map(|entry| entry.key);
        if let Some(message) = key.and_then(|key| partition.state.bodies.resident(key)) {
            let dead = match is_staged {
                true => Message { expires_at_ms: 0, ..message.clone() },
                false => partition.protocols.dead(message, &past),
            };
            sends.push(Sent::new(grave.clone(), dead));
            moving.push(*tag);
            announce_message(partition, queue, *tag, MessageEvent::DeadLettered, None, effects);
        }
    }
    let sends =
        route_own(&mut partition.leader, &partition.settings, &partition.clock, &partition.protocols, sends);
    move_entries(partition, (queue, &moving, SettleCause::Expired), sends, leaving, answer, effects);
}

/// Entries leave their queue for good, as soon as the log has it.
pub fn settle_held(
    partition: &mut Partition,
    queue: QueueId,
    held: &[EntryTag],
    cause: SettleCause,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let settlements = begin_leaving(partition, queue, held, cause, effects);
    settle_leaving(partition, settlements, answer, effects);
}

/// Entries that are leaving are gone once the log has it.
pub fn settle_leaving(
    partition: &mut Partition,
    settlements: Vec<Settlement>,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    settle_behind(partition, settlements, &[], answer, effects);
}

/// As `settle_leaving`, after verdicts on their way to the log by which the entries of `again`
/// leave. These come back if the log does not take that: the answer waits for the log, which
/// must not have this without that.
fn settle_behind(
    partition: &mut Partition,
    settlements: Vec<Settlement>,
    again: &[Settlement],
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    if settlements.is_empty() && again.is_empty() {
        return answer_request(partition, answer, Ok(()), effects);
    }
    let urgency = if answer.is_some() { Urgency::Waiting } else { Urgency::Lazy };
    let command = leave_by(&partition.settings, [settlements.as_slice(), again].concat());
    propose(partition, command, urgency, Completion::Settled { settlements, answer }, effects);
}

/// As `settle_behind`, of what this consumer has accepted: the end of a consumer of its client is
/// answered after that.
pub fn accept_behind(
    partition: &mut Partition,
    consumer: ConsumerKey,
    Verdict { settlements, again }: Verdict,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let is_lazy = answer.is_none() && !settlements.is_empty();
    settle_behind(partition, settlements, &again, answer, effects);
    let made = partition.leader.log.made;
    let connection = partition.leader.connections.get_mut(&consumer.connection);
    if let Some(connection) = connection.filter(|_| is_lazy) {
        connection.accepts = made;
    }
}

/// How many entries leave by one record.
pub fn leaving_max(settings: &Settings) -> usize {
    settings.slice_changes.saturating_mul(LEAVING_SLICES).max(1)
}

/// The command by which entries leave: many of them do in slices, once it is durable.
pub fn leave_by(settings: &Settings, settlements: Vec<Settlement>) -> Command {
    match settlements.len() <= settings.slice_changes {
        true => Command::Settle(settlements),
        false => Command::Transact(Changes { settlements, ..Changes::default() }),
    }
}

/// Volatile entries are gone at once; durable ones are leaving, and their settlements are
/// returned.
pub fn begin_leaving(
    partition: &mut Partition,
    queue: QueueId,
    tags: &[EntryTag],
    cause: SettleCause,
    effects: &mut Vec<Effect>,
) -> Vec<Settlement> {
    let mut settlements = Vec::with_capacity(tags.len());
    for tag in tags {
        let Some(entry) = entry_at(partition, queue, *tag) else { continue };
        match entry.key {
            MessageKey::Durable { .. } if !queue.is_volatile() => {
                set_state(partition, queue, *tag, EntryState::Leaving);
                settlements.push(Settlement { queue, tag: *tag, cause });
            }
            _ => end_entry(partition, queue, *tag, cause, effects),
        }
    }
    settlements
}

/// Takes an entry out for good, and counts why.
pub fn end_entry(
    partition: &mut Partition,
    queue: QueueId,
    tag: EntryTag,
    cause: SettleCause,
    effects: &mut Vec<Effect>,
) {
    open_page(partition, queue, tag);
    if cause == SettleCause::Consumed
        && is_advised_of_ends(&partition.state, &partition.leader, &partition.settings, queue)
    {
        announce_message(partition, queue, tag, MessageEvent::Consumed, None, effects);
    }
    forget_lease(partition, queue, tag);
    let removed = partition.state.queues.get_mut(&queue).and_then(|queue| queue.remove(tag));
    let Some(entry) = removed else { return };
    traces::ended(partition, entry.key, (queue, tag), cause);
    let (mut size, mut in_memory, mut value) = (0, 0, None);
    if let Some((headers, bytes)) = partition.state.bodies.headers(&entry) {
        partition.state.expiries.remove(headers.expires_at_ms, queue, tag);
        size = bytes;
        in_memory = headers.bytes.len() as u64;
        value = headers.last_value().cloned();
    }
    let mut unknown = QueueCounts::default();
    let (mut makes_room, mut owners) = (false, Owners::default());
    let volatile_bytes = if matches!(entry.key, MessageKey::Volatile(_)) { in_memory } else { 0 };
    let counts = match partition.state.queues.get_mut(&queue) {
        Some(queue) => {
            queue.load.remove(size);
            queue.volatile_bytes -= volatile_bytes;
            owners = queue.owners;
            partition.leader.intake.accounts.remove(owners, size, volatile_bytes);
            if entry.state != EntryState::Ready {
                queue.away.remove(size);
            }
            makes_room = !queue.limit.is_none();
            if queue.requests.is_watched {
                partition.leader.leasing.watches.note(queue.id);
            }
            if let (Some(value), Some(last_values)) = (value, &mut queue.last_values) {
                last_values.forget(&value, tag);
            }
            if partition.leader.is_live {
                partition.leader.flows.note(queue, partition.now_ms, |passed| passed.leaves(cause));
            }
            queue.counts.of_lane(LaneNumber::of_tag(tag))
        }
        None => &mut unknown,
    };
    count_end(&mut partition.counters, counts, cause);
    let_message_go(partition, &entry, effects);
    if makes_room {
        unpark_held_by(partition, BlockedOn::Queue(queue), effects);
    }
    if volatile_bytes > 0 {
        unpark_held_by(partition, BlockedOn::Share(queue), effects);
    }
    for owner in owners.into_iter().flatten() {
        unpark_held_by(partition, BlockedOn::Account(owner), effects);
    }
}

/// An entry is gone, and its claim on the message. If other queues have claims on it that no
/// consumer holds, the body need not stay in memory.
pub fn let_message_go(partition: &mut Partition, entry: &Entry, effects: &mut Vec<Effect>) {
    let in_hand = entry.state.is_in_hand();
    let gone =
        if in_hand { partition.state.bodies.put_down(entry) } else { partition.state.bodies.unrefer(entry) };
    let is_gone = gone.is_some();
    release_gone(partition, entry.key, gone, effects);
    if !is_gone && in_hand && is_short_of_memory(&partition.state, &partition.leader, &partition.settings) {
        partition.state.bodies.evict(entry.key);
    }
}

/// The settlements did not reach the log: their entries go back to their places.
pub fn stays(partition: &mut Partition, settlements: &[Settlement], effects: &mut Vec<Effect>) {
    let queues = give_back_all(partition, settlements);
    dispatch_all(partition, queues, effects);
}

/// As `stay`; the queues that it returns are to be dispatched.
pub fn give_back_all(partition: &mut Partition, settlements: &[Settlement]) -> Vec<QueueId> {
    let mut queues = Vec::new();
    for settlement in settlements {
        let key = entry_at(partition, settlement.queue, settlement.tag).map(|entry| entry.key);
        if let Some(key) = key {
            give_back_or_rest(partition, settlement.queue, settlement.tag);
            queues.push(settlement.queue);
            partition.state.bodies.unpin(key);
        }
    }
    queues
}

/// Rejected messages are delivered again after a delay, as often as the policy of their queue
/// says. After that they move to the dead-letter queue, in one transaction, as far as the
/// policy keeps them; the others end. Messages of the dead-letter queue itself stay there, and
/// rest.
fn reject(
    partition: &mut Partition,
    queue: QueueId,
    consumer: ConsumerKey,
    tags: &[EntryTag],
    reason: Option<Arc<str>>,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let Some(origin) = partition.state.queues.get(&queue).map(|queue| queue.source.clone()) else { return };
    let held = held_of(partition, queue, consumer, tags);
    end_held(&mut partition.leader, partition.now_ms, consumer, &held);
    let given_up = let_rest(partition, queue, held, effects);
    let policy = &partition.settings.policies.of(&origin).dead_letters;
    let keeps_all = policy.non_persistent;
    let Some(to) = policy.queue_of(&origin) else {
        partition.counters.dropped += given_up.len() as u64;
        return settle_held(partition, queue, &given_up, SettleCause::DeadLettered, answer, effects);
    };
    if to == origin {
        rest_in_grave(partition, queue, &given_up, effects);
        return move_messages(partition, Vec::new(), Vec::new(), answer, effects);
    }
    let past = DeadLetter { queue: to.clone(), origin, reason };
    let (mut sends, mut moving) = (Vec::new(), Vec::new());
    for tag in given_up {
        let Some(key) = entry_at(partition, queue, tag).map(|entry| entry.key) else { continue };
        // A logged message can leave only through the log, even if it did not have to be
        // logged.
        let logged = matches!(key, MessageKey::Durable { .. }) && !queue.is_volatile();
        let keeps = |message: &&Message| message.persistent || logged || keeps_all;
        let message = partition.state.bodies.resident(key).filter(keeps);
        match message.map(|message| partition.protocols.dead(message, &past)) {
            Some(message) => {
                sends.push(Sent::new(to.clone(), message));
                moving.push(tag);
                announce_message(partition, queue, tag, MessageEvent::DeadLettered, None, effects);
            }
            None => {
                partition.counters.dropped += 1;
                end_entry(partition, queue, tag, SettleCause::DeadLettered, effects);
            }
        }
    }
    let sends =
        route_own(&mut partition.leader, &partition.settings, &partition.clock, &partition.protocols, sends);
    move_entries(partition, (queue, &moving, SettleCause::DeadLettered), sends, Vec::new(), answer, effects);
}
