//! The origin: empties a queue into its target, and ends it.

use std::collections::BTreeMap;

use postroad_model::{
    Command, ConnectionId, ConsumerKey, Delivered, Destination, DestinationKind, DetachCause, Effect,
    EntryTag, MessageKey, Moving, PartitionId, Peer, QueueId, Refusal, Sent, SettleCause, Settlement, Ticket,
    Urgency,
};
use postroad_routing::is_wildcard;

use super::{Leaving, Stage, audit};
use crate::Partition;
use crate::connection::Connections;
use crate::delivery::consumer::{oust, remove_consumer};
use crate::delivery::dispatch::fetch_behind;
use crate::delivery::fetches::Waiter;
use crate::entries::entry_at;
use crate::intake::limit::set_state;
use crate::intake::publish::dispatch_all;
use crate::leader::{Leader, Transactions};
use crate::leasing::{finish_reserve, handle_entries, is_reserving};
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::target::{expect_from, has_arrived};
use crate::moving::{Moves, is_moving, set_on_the_move};
use crate::partition::{declare_queue, reply};
use crate::queue::{EntryState, untag};
use crate::settings::Settings;
use crate::settling::carrying::move_messages;
use crate::state::State;
use crate::transaction::tell;

/// Messages of one step: one transaction over two partitions, whose four syncs they share.
const STEP_MESSAGES: usize = 256;

/// A step moves not more than this size, or one message.
const STEP_BYTES: u64 = 1 << 20;

/// The interval of checks while the next message is in flight, or a transaction is open.
const LOOK_MS: u64 = 10;

/// After a refusal it is tried again.
pub(super) const RETRY_MS: u64 = 1000;

/// How often the log has to come round after the last message, before nothing can come out of it
/// any more: an event that waits for an answer of the log may go into it then, once.
const ROUNDS: u8 = 2;

/// Queues that may be on the move at once out of one partition.
const MOVES_MAX: usize = 16;

/// Whether the log is about to learn that it leaves, as requested.
fn is_about_to_leave(leader: &Leader, queue: &Destination) -> bool {
    let leaves = |completion: &Completion| matches!(completion, Completion::Leaves { queue: other, .. } if other == queue);
    leader.log.pending.iter().any(leaves)
}

pub fn placed(leader: &mut Leader, now_ms: u64, queue: &Destination, of: u16) {
    let Some(leaving) = leader.moves.leaving.get_mut(queue) else { return };
    leaving.placed += 1;
    if leaving.stage == Stage::Placing && of <= leaving.placed {
        (leaving.stage, leaving.next_ms) = (Stage::Emptying, Some(now_ms));
    }
}

impl Moves {
    /// From now on it is at this stage, and it is time for something at `next_ms`, if that is
    /// known.
    fn set_stage(&mut self, queue: &Destination, stage: Stage, next_ms: Option<u64>) {
        if let Some(leaving) = self.leaving.get_mut(queue) {
            (leaving.stage, leaving.next_ms) = (stage, next_ms);
        }
    }
}

/// Consumers that read this queue alone.
fn readers_left(state: &State, id: QueueId) -> Vec<ConsumerKey> {
    let consumers = state.queues.get(&id).into_iter().flat_map(|queue| queue.consumers.iter());
    consumers.filter(|key| key.member == 0).copied().collect()
}

impl Transactions {
    /// Open, closing and prepared transactions that send to it.
    pub fn transactions_for(&self, queue: &Destination) -> u64 {
        self.senders.count(queue)
    }
}

/// The queue is gone here.
pub fn end_move(state: &mut State, leader: &mut Leader, queue: &Destination) {
    state.leaving.remove(queue);
    leader.moves.leaving.remove(queue);
}

impl Connections {
    /// The credit of a consumer that is to follow its queue.
    pub fn departed(&mut self, key: ConsumerKey) -> Option<&mut u32> {
        self.get_mut(&key.connection)?.departed.get_mut(&key)
    }

    /// A consumer knows that its queue has left; nothing more that is meant for it comes here.
    pub(super) fn leave_for(&mut self, key: ConsumerKey, effects: &mut Vec<Effect>) {
        let connection = self.get_mut(&key.connection);
        if let Some(credit) = connection.and_then(|connection| connection.departed.remove(&key)) {
            effects.push(Effect::Left { consumer: key, credit });
        }
    }
}

fn check_movable(
    state: &State,
    leader: &Leader,
    settings: &Settings,
    queue: &Destination,
    to: PartitionId,
) -> Result<(), Refusal> {
    let no = |reason: &str| Err(Refusal::NotMovable { queue: queue.clone(), reason: reason.to_owned() });
    if is_moving(state, leader, queue) || is_about_to_leave(leader, queue) {
        return Err(Refusal::QueueMoving(queue.clone()));
    }
    if queue.kind != DestinationKind::Queue || queue.temporary || is_wildcard(&queue.name) {
        return no("it is a temporary queue or a pattern");
    }
    if state.addresses.own_queue(queue).is_none() {
        return no("there is no such queue");
    }
    if state.addresses.own_queue(queue).and_then(|id| state.queues.get(&id)?.options.as_ref()).is_some() {
        return no("clients have set options for it, which cannot move");
    }
    if state.addresses.own_queue(queue).is_some_and(|id| state.paused.contains(id)) {
        return no("it is paused: resume it first");
    }
    if to == settings.id {
        return no("it is already in that store");
    }
    let addressing = &settings.addressing;
    if let Some(feed) = addressing.feeds_of(queue).first() {
        let reason = format!("{} feeds it, and must be in the same store as its queues", feed.topic);
        return no(&reason);
    }
    if addressing.mirrored.as_ref().is_some_and(|mirrored| mirrored.topic_of(queue).is_some()) {
        return no("it is mirrored, and must be in the same store as its topic");
    }
    if MOVES_MAX <= leader.moves.leaving.len() {
        return no("too many queues are moving from its partition; try again later");
    }
    Ok(())
}

/// Whether it lives here, as far as is known here.
pub fn lives_here_now(settings: &Settings, queue: &Destination) -> bool {
    settings.partition_of(queue) == settings.id
}

/// Whether it holds nothing that can go, and nothing that is here can become a message of it
/// but by way of the log.
fn is_quiet(state: &State, leader: &Leader, queue: &Destination, id: QueueId) -> bool {
    let unreadable = leader.moves.leaving.get(queue).map_or(0, |leaving| leaving.unreadable.len() as u64);
    state.queues.get(&id).is_none_or(|queue| queue.len() == unreadable)
        && !leader.intake.parked.sends_to(queue)
        && !leader.intake.waiting.is_for_queue(queue)
        && leader.transactions.transactions_for(queue) == 0
        && !leader.transactions.closings.holds_up(id)
        && leader.intake.uploads.sent_to(queue) == 0
}

/// The log could not take it.
pub fn move_failed(leader: &mut Leader, now_ms: u64, queue: &Destination) {
    leader.moves.set_stage(queue, Stage::Emptying, Some(now_ms + RETRY_MS));
}

pub fn list_moves(
    state: &State,
    leader: &Leader,
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    let moving = |(queue, leaving): (&Destination, &Leaving)| {
        let found = state.addresses.own_queue(queue).and_then(|id| state.queues.get(&id));
        Moving {
            queue: queue.clone(),
            to: leaving.to,
            moved: leaving.moved,
            left: found.map_or(0, crate::queue::Queue::len),
            held: found.map_or(0, |queue| queue.away.messages),
            transactions: leader.transactions.transactions_for(queue),
            uploads: leader.intake.uploads.sent_to(queue),
            refused: leaving.refused.clone(),
        }
    };
    let moves: Vec<Moving> = leader.moves.leaving.iter().map(moving).collect();
    if !moves.is_empty() {
        effects.push(Effect::Moves { connection, ticket, moves });
    }
    reply(connection, ticket, Ok(()), effects);
}

/// Whether the queue is not to leave before all that comes after it is here.
fn waits_for_others(leader: &Leader, settings: &Settings, queue: &Destination) -> bool {
    leader.moves.expected.contains_key(queue) && lives_here_now(settings, queue)
}

/// Whether later messages for the address here get to where it lives.
pub fn passes_on(leader: &Leader, settings: &Settings, to: &Destination) -> bool {
    match leader.moves.leaving.get(to).map(|leaving| leaving.stage) {
        Some(stage) => !matches!(stage, Stage::Ending | Stage::Stuck),
        None => lives_here_now(settings, to) || leader.moves.expected.contains_key(to),
    }
}

/// Whether the queue may be expected here. A leaving queue comes from elsewhere only where it
/// lives, as messages of jobs do, and before its new place is announced: else two could hand it
/// to one another for ever.
pub fn may_expect(leader: &Leader, settings: &Settings, queue: &Destination) -> bool {
    let leaving = leader.moves.leaving.get(queue);
    leaving.is_none_or(|leaving| leaving.stage == Stage::Announced && lives_here_now(settings, queue))
}

pub fn begin_move(
    partition: &mut Partition,
    queue: Destination,
    to: PartitionId,
    (connection, ticket): (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    if let Err(refusal) = check_movable(&partition.state, &partition.leader, &partition.settings, &queue, to)
    {
        return reply(connection, ticket, Err(refusal), effects);
    }
    let completion = Completion::Leaves { queue: queue.clone(), connection, ticket };
    propose(partition, Command::Leave { queue, to }, Urgency::Waiting, completion, effects);
}

pub fn apply_leave(partition: &mut Partition, queue: Destination, to: PartitionId) {
    declare_queue(partition, &queue);
    set_on_the_move(&mut partition.state, &queue, true);
    partition.state.leaving.entry(queue.clone()).or_insert(to);
    if partition.leader.is_live {
        partition.leader.moves.leave(queue, to);
    }
}

/// Messages of a job here go to the partition where the queue lives, if it has left since the
/// job was made. A move that was about to end goes on; a move that a record ahead in the log
/// has ended begins again after it.
pub fn send_after(partition: &mut Partition, sent: &Sent, effects: &mut Vec<Effect>) {
    let is_queue = |to: &&Destination| to.kind == DestinationKind::Queue && !to.temporary;
    for queue in sent.targets().filter(is_queue) {
        let to = partition.settings.partition_of(queue);
        if to == partition.settings.id {
            continue;
        }
        match partition.leader.moves.leaving.get(queue).map(|leaving| leaving.stage) {
            // It comes here.
            None if partition.leader.moves.expected.contains_key(queue) => {}
            Some(Stage::Settling { .. } | Stage::Stuck) => {
                partition.leader.moves.set_stage(queue, Stage::Emptying, Some(partition.now_ms));
            }
            Some(Stage::Announced | Stage::Placing | Stage::Emptying) => {}
            Some(Stage::Ending) | None => {
                let command = Command::Leave { queue: queue.clone(), to };
                propose(partition, command, Urgency::Waiting, Completion::Nothing, effects);
            }
        }
    }
}

/// Something was said about a queue that is on the move.
pub fn about_move(partition: &mut Partition, from: PartitionId, peer: Peer, effects: &mut Vec<Effect>) {
    match peer {
        Peer::Expect { queue } => expect_from(partition, queue, from, effects),
        Peer::Arrived { queue } => has_arrived(partition, &queue, from, effects),
        Peer::Remember { queue, parts } => audit::take(partition, (queue, from), parts, effects),
        Peer::Remembers { queue } => audit::taken(partition, &queue),
        Peer::Handle(asked) => handle_entries(partition, *asked, effects),
        Peer::Expecting { queue } => {
            if waits_for_others(&partition.leader, &partition.settings, &queue) {
                return;
            }
            let leaving = partition.leader.moves.leaving.get_mut(&queue);
            let Some(leaving) = leaving.filter(|leaving| leaving.stage == Stage::Announced) else {
                return;
            };
            (leaving.stage, leaving.next_ms) = (Stage::Placing, None);
            effects.push(Effect::Place { queue, to: leaving.to });
        }
        _ => {}
    }
}

/// Does the due steps for the queues that are leaving.
pub fn go_on_moving(partition: &mut Partition, effects: &mut Vec<Effect>) {
    if !partition.leader.is_live {
        return;
    }
    let now_ms = partition.now_ms;
    let due = |leaving: &Leaving| leaving.next_ms.is_some_and(|at_ms| at_ms <= now_ms);
    let due = partition.leader.moves.leaving.iter().filter(|(_, leaving)| due(leaving));
    for queue in due.map(|(queue, _)| queue.clone()).collect::<Vec<_>>() {
        move_on(partition, &queue, effects);
    }
}

fn move_on(partition: &mut Partition, queue: &Destination, effects: &mut Vec<Effect>) {
    let (Some(id), Some(leaving)) =
        (partition.state.addresses.own_queue(queue), partition.leader.moves.leaving.get(queue))
    else {
        return;
    };
    let (stage, to) = (leaving.stage, leaving.to);
    let is_free = leaving.moving == 0 && leaving.awaits.is_none();
    if stage == Stage::Emptying {
        audit::hand_over(partition, queue, effects);
    }
    match stage {
        Stage::Announced if waits_for_others(&partition.leader, &partition.settings, queue) => {
            partition.leader.moves.set_stage(queue, stage, Some(partition.now_ms + LOOK_MS));
        }
        Stage::Announced => {
            partition.leader.moves.set_stage(queue, stage, Some(partition.now_ms + RETRY_MS));
            // A job may send to a queue that has moved on since: all reports of this move then
            // name its present place.
            let place = partition.settings.partition_of(queue);
            let to = if place == partition.settings.id { to } else { place };
            if let Some(leaving) = partition.leader.moves.leaving.get_mut(queue) {
                leaving.to = to;
            }
            tell(to, Peer::Expect { queue: queue.clone() }, effects);
        }
        Stage::Emptying if is_free => {
            partition.leader.moves.set_stage(queue, stage, Some(partition.now_ms + LOOK_MS));
            take_step(partition, queue, id, effects);
        }
        Stage::Emptying | Stage::Placing | Stage::Settling { .. } | Stage::Ending | Stage::Stuck => {
            partition.leader.moves.set_stage(queue, stage, None);
        }
    }
}

/// The oldest messages go, as far as no consumer has one of them.
fn take_step(partition: &mut Partition, queue: &Destination, id: QueueId, effects: &mut Vec<Effect>) {
    let (going, absent) = next_to_go(partition, queue, id);
    let Some(leaving) = partition.leader.moves.leaving.get_mut(queue) else { return };
    if let Some((tag, key)) = absent {
        // It is read while those before it are on their way.
        (leaving.awaits, leaving.next_ms) = (Some(key), None);
        fetch_behind(partition, Waiter::Queue(id), tag, effects);
    }
    let Some(leaving) = partition.leader.moves.leaving.get_mut(queue) else { return };
    if !going.is_empty() {
        (leaving.moving, leaving.next_ms) = (going.len() as u64, None);
        let answer = Some((ConnectionId::internal(partition.settings.id), Ticket(leaving.number)));
        let (sends, settlements) = take_along(partition, queue, id, &going);
        return move_messages(partition, sends, settlements, answer, effects);
    }
    if absent.is_none() && is_quiet(&partition.state, &partition.leader, queue, id) {
        for consumer in readers_left(&partition.state, id) {
            part_with(partition, consumer, effects);
        }
        partition.leader.moves.set_stage(queue, Stage::Settling { rounds: ROUNDS }, None);
        go_round(partition, queue, effects);
    }
}

/// The messages of one step, in the order in which they would be delivered, leaving from now
/// on; or if there are none, those that must be read first. Messages only in memory go apart
/// from those in the log, which a transaction would put before them.
fn next_to_go(
    partition: &mut Partition,
    queue: &Destination,
    id: QueueId,
) -> (Vec<EntryTag>, Option<(EntryTag, MessageKey)>) {
    let (mut going, mut bytes, mut cursor) = (Vec::new(), 0, BTreeMap::new());
    let mut in_log = None;
    while going.len() < STEP_MESSAGES && bytes < STEP_BYTES {
        let Some(tag) = partition.state.queues.get(&id).and_then(|queue| queue.next_in_order(&cursor)) else {
            break;
        };
        let (lane, sequence) = untag(tag);
        if partition.leader.moves.leaving.get(queue).is_some_and(|leaving| leaving.unreadable.contains(&tag))
        {
            cursor.insert(lane, sequence + 1);
            continue;
        }
        let Some(entry) = entry_at(partition, id, tag) else { break };
        let (key, state) = (entry.key, entry.state);
        let is_in_log = matches!(key, MessageKey::Durable { .. });
        if !matches!(state, EntryState::Ready | EntryState::Resting)
            || in_log.is_some_and(|first| first != is_in_log)
        {
            break;
        }
        let Some(message) = partition.state.bodies.resident(key) else {
            return (going, Some((tag, key)));
        };
        bytes += message.size();
        // Else its page might be packed before it goes, and its body be gone.
        set_state(partition, id, tag, EntryState::Leaving);
        in_log = Some(is_in_log);
        cursor.insert(lane, sequence + 1);
        going.push(tag);
    }
    (going, None)
}

/// These entries leave, and their messages are sent to where the queue lives now.
fn take_along(
    partition: &mut Partition,
    queue: &Destination,
    id: QueueId,
    going: &[EntryTag],
) -> (Vec<Sent>, Vec<Settlement>) {
    let (mut sends, mut settlements) = (Vec::with_capacity(going.len()), Vec::with_capacity(going.len()));
    for tag in going {
        let Some(entry) = entry_at(partition, id, *tag) else { continue };
        let (key, failed) = (entry.key, entry.failed_deliveries + entry.uncounted_deliveries);
        let Some(message) = partition.state.bodies.resident(key).cloned() else { continue };
        sends.push(Sent { moved: Some(failed), ..Sent::new(queue.clone(), message) });
        settlements.push(Settlement { queue: id, tag: *tag, cause: SettleCause::Moved });
    }
    (sends, settlements)
}

/// A transaction of this partition's own has ended: a step of a move, or of a redrive.
pub fn own_step_ended(
    partition: &mut Partition,
    ticket: Ticket,
    result: Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    let Some(queue) = partition.leader.moves.of_step(ticket) else {
        return partition.step_ended(ticket, result, effects);
    };
    let Some(leaving) = partition.leader.moves.leaving.get_mut(&queue) else { return };
    let moving = std::mem::take(&mut leaving.moving);
    if let Err(refusal) = result {
        (leaving.refused, leaving.next_ms) = (Some(refusal), Some(partition.now_ms + RETRY_MS));
        return;
    }
    leaving.refused = None;
    leaving.moved += moving;
    move_on(partition, &queue, effects);
}

/// The log is to come round.
fn go_round(partition: &mut Partition, queue: &Destination, effects: &mut Vec<Effect>) {
    let Some(to) = partition.leader.moves.leaving.get(queue).map(|leaving| leaving.to) else { return };
    let command = Command::Leave { queue: queue.clone(), to };
    let completion = Completion::MoveBarrier { queue: queue.clone() };
    propose(partition, command, Urgency::Waiting, completion, effects);
}

/// All that was on its way to the log when it was asked to come round is here.
pub fn pass_move_barrier(partition: &mut Partition, queue: &Destination, effects: &mut Vec<Effect>) {
    let Some(id) = partition.state.addresses.own_queue(queue) else { return };
    let Some(leaving) = partition.leader.moves.leaving.get(queue) else { return };
    let Stage::Settling { rounds } = leaving.stage else { return };
    let to = leaving.to;
    if !is_quiet(&partition.state, &partition.leader, queue, id)
        || !readers_left(&partition.state, id).is_empty()
    {
        return partition.leader.moves.set_stage(queue, Stage::Emptying, Some(partition.now_ms));
    }
    if audit::is_due(&partition.leader, queue) {
        return partition.leader.moves.set_stage(queue, Stage::Emptying, Some(partition.now_ms + LOOK_MS));
    }
    if 1 < rounds {
        partition.leader.moves.set_stage(queue, Stage::Settling { rounds: rounds - 1 }, None);
        return go_round(partition, queue, effects);
    }
    let Some(leaving) = partition.leader.moves.leaving.get_mut(queue) else { return };
    if !leaving.unreadable.is_empty() {
        let reason = format!("{} messages", leaving.unreadable.len());
        (leaving.stage, leaving.refused) = (Stage::Stuck, Some(Refusal::Unreadable { reason }));
        return tell(to, Peer::Arrived { queue: queue.clone() }, effects);
    }
    leaving.stage = Stage::Ending;
    let completion = Completion::LeftFor { queue: queue.clone(), to };
    propose(partition, Command::Delete { queue: queue.clone() }, Urgency::Waiting, completion, effects);
}

/// A consumer is to follow its queue, which is empty. Late verdicts of a consumer on messages
/// taken back from it could not be assigned there: it ends, as it would for being slow.
fn part_with(partition: &mut Partition, key: ConsumerKey, effects: &mut Vec<Effect>) {
    if is_reserving(&partition.leader, key) {
        // Its client asks again where the queue is now.
        return finish_reserve(partition, key, effects);
    }
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return };
    if !consumer.pace.taken.is_empty() {
        let touched = oust(partition, key, DetachCause::Slow, effects);
        return dispatch_all(partition, touched, effects);
    }
    // It is not gone, so there is no notice.
    consumer.notice = None;
    if consumer.draining {
        // Its awaited message has left by another way: there is nothing for it here.
        consumer.credit = 0;
        effects.push(Effect::Drained { consumer: key });
    }
    let credit = consumer.credit;
    remove_consumer(partition, key, Delivered::None, effects);
    partition.leader.connections.get_or_make(key.connection).departed.insert(key, credit);
    effects.push(Effect::Moved { consumer: key });
}
