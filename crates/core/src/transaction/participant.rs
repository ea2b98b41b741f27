//! The participant: promises durably, then does as the coordinator decided.

use std::collections::BTreeMap;
use std::vec::IntoIter;

use postroad_model::{
    Changes, Command, ConnectionId, ConsumerKey, Destination, Effect, MessageKey, PartitionId, Peer,
    Position, Refusal, Schedule, Sent, Settlement, TransactionId, TransactionKey, Urgency,
};

use crate::Partition;
use crate::addresses::subscription::end_former_subscription;
use crate::entries::{drop_reference, note_released};
use crate::intake::chunks::{release_scheduled, schedule_chunks, take_peers_piece};
use crate::intake::limit::set_state;
use crate::intake::publish::{dispatch_all, retained};
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::about_move;
use crate::queue::EntryState;
use crate::schedule::take_offer;
use crate::settling::carrying::piece_taken;
use crate::settling::settle::give_back_all;
use crate::state::State;
use crate::transaction::VolatileChanges;
use crate::transaction::closing::{Answers, Close, Returning, carry_out_volatile, close};
use crate::transaction::coordinator::{done_by, prepared_by, tell, tell_decision};
use crate::transaction::held::room_to_prepare;
use crate::transaction::open::{
    Asked, OpenTransaction, enlist, hold_again, open_transaction, put_back, roll_back,
};
use crate::transaction::slices::{Rest, carry_out, next};
use crate::transaction::timeout::discard_overdue;

/// A share of a transaction that is in the log and waits for the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Stored messages and where they will go.
    pub sends: Vec<(MessageKey, Destination)>,
    /// Entries that are leaving.
    pub settlements: Vec<Settlement>,
    /// Those of the messages that come from where their queue lived before: see
    /// [`postroad_model::Sent::moved`].
    pub moved: BTreeMap<MessageKey, u32>,
    /// Messages that are due later, with the bytes of their bodies.
    pub scheduled: Vec<(MessageKey, u64, Schedule)>,
}

/// A share of a transaction whose record is durable, and that is not prepared yet.
pub struct Preparing {
    id: TransactionId,
    position: Position,
    /// Of the next message in the record.
    ordinal: u32,
    sends: IntoIter<Sent>,
    /// Entries at the end of the list that are not marked yet.
    leaving: usize,
}

impl Preparing {
    /// Changes that are left.
    pub(super) fn len(&self) -> usize {
        self.sends.len() + self.leaving
    }

    pub(super) fn step(&mut self, partition: &mut Partition, budget: &mut usize, effects: &mut Vec<Effect>) {
        let Some(mut prepared) = partition.state.prepared.remove(&self.id) else { return };
        for sent in next(&mut self.sends, budget) {
            let key = MessageKey::Durable { position: self.position, ordinal: self.ordinal };
            self.ordinal += 1;
            store(&mut partition.state, &mut partition.leader, (key, sent), &mut prepared, effects);
        }
        let marked = prepared.settlements.len() - self.leaving;
        let number = self.leaving.min(*budget);
        *budget -= number;
        self.leaving -= number;
        for settlement in &prepared.settlements[marked..marked + number] {
            set_state(partition, settlement.queue, settlement.tag, EntryState::Leaving);
        }
        partition.state.prepared.insert(self.id, prepared);
    }
}

/// A prepared share of a transaction that is being aborted.
pub struct Aborting {
    sends: IntoIter<(MessageKey, Destination)>,
    jobs: IntoIter<(MessageKey, u64, Schedule)>,
    /// Entries that return, and who had settled them.
    back: IntoIter<(Option<ConsumerKey>, Settlement)>,
    returning: Returning,
}

impl Aborting {
    /// Changes that are left.
    pub(super) fn len(&self) -> usize {
        self.sends.len() + self.jobs.len() + self.back.len()
    }

    pub(super) fn step(&mut self, partition: &mut Partition, budget: &mut usize, effects: &mut Vec<Effect>) {
        for (key, _) in next(&mut self.sends, budget) {
            drop_reference(partition, key, effects);
        }
        for (key, bytes, _) in next(&mut self.jobs, budget) {
            note_released(partition, key, bytes, effects);
            release_scheduled(&mut partition.state, key, effects);
        }
        for (by, end) in next(&mut self.back, budget) {
            if !by.is_some_and(|by| hold_again(partition, by, &end)) {
                self.returning.hold(partition, end.queue);
                give_back_all(partition, &[end]);
            }
        }
        if self.len() == 0 {
            let touched = std::mem::take(&mut self.returning).end(partition);
            dispatch_all(partition, touched, effects);
        }
    }
}

/// A share of a transaction is closed, and goes into the log.
pub fn propose_to_prepare(
    partition: &mut Partition,
    id: TransactionId,
    (changes, volatile): (Changes, VolatileChanges),
    effects: &mut Vec<Effect>,
) {
    partition.leader.transactions.prepared_volatile.insert(id, volatile);
    if changes == Changes::default() {
        return tell(id.coordinator, Peer::Prepared { id, result: Ok(()) }, effects);
    }
    let settlements = changes.settlements.clone();
    let completion = Completion::Prepared { id, settlements };
    propose(partition, Command::Prepare { id, changes }, Urgency::Waiting, completion, effects);
}

/// A message of a prepared transaction: stored, and in no queue yet.
fn store(
    state: &mut State,
    leader: &mut Leader,
    (key, mut sent): (MessageKey, Sent),
    prepared: &mut Prepared,
    effects: &mut Vec<Effect>,
) {
    let trace = sent.message.take_trace();
    if let Some(schedule) = sent.schedule {
        if let Some(trace) = trace {
            leader.traces.scheduled(trace);
        }
        prepared.scheduled.push((key, sent.message.bytes.len() as u64, *schedule));
        return schedule_chunks(state, leader, key, &sent.message, effects);
    }
    if let Some(trace) = trace {
        leader.traces.begin(key, trace);
    }
    leader.intake.uploads.retain_chunks(&sent.message, effects);
    prepared.moved.extend(sent.moved.map(|failed| (key, failed)));
    state.bodies.insert(key, sent.message);
    for to in std::iter::once(sent.to).chain(sent.also) {
        state.bodies.refer(key);
        state.bodies.pin(key);
        prepared.sends.push((key, to));
    }
}

/// Whether the client may have said more than has come here: the coordinator's word can be
/// faster, even than all of it.
fn is_unsealed(leader: &Leader, key: TransactionKey) -> bool {
    leader
        .transactions
        .open
        .get(&key)
        .map_or_else(|| !leader.ended.has_ended(key.connection), |open| !open.is_sealed())
}

pub fn hear(partition: &mut Partition, from: PartitionId, peer: Peer, effects: &mut Vec<Effect>) {
    match peer {
        Peer::Enlist { transaction, sends, uploads } => {
            enlist(&mut partition.leader, &partition.settings, partition.now_ms, transaction, sends, uploads)
        }
        Peer::Piece { piece, bytes } => take_peers_piece(partition, from, piece, bytes, effects),
        Peer::PieceTaken { upload, result } => piece_taken(partition, from, upload, result, effects),
        Peer::Forsake { upload } => {
            partition.leader.intake.uploads.abandon(ConnectionId::internal(from), upload, effects)
        }
        Peer::Subscribed(made) => end_former_subscription(partition, &made, effects),
        Peer::Offer { sent } => take_offer(partition, *sent, effects),
        Peer::Discard { transactions, id, timed_out } => {
            discard(partition, &transactions, id, timed_out, effects);
        }
        Peer::Prepare { transactions, id } => prepare(partition, transactions, id, effects),
        Peer::Prepared { id, result } => prepared_by(partition, from, id, result, effects),
        Peer::Decided { id, commit } => decided(partition, id, commit, effects),
        Peer::Done { id } => done_by(partition, from, id, effects),
        Peer::InDoubt { id } => tell_decision(&mut partition.state, &mut partition.leader, from, id, effects),
        Peer::Expect { .. }
        | Peer::Expecting { .. }
        | Peer::Remember { .. }
        | Peer::Remembers { .. }
        | Peer::Handle(_)
        | Peer::Arrived { .. } => {
            about_move(partition, from, peer, effects);
        }
    }
}

/// The client has said everything; a coordinator that was faster need not wait any longer.
pub fn seal(partition: &mut Partition, key: TransactionKey, effects: &mut Vec<Effect>) {
    match partition.leader.transactions.open.get_mut(&key).map(OpenTransaction::seal) {
        Some(None) => {}
        Some(Some(Asked::Prepare(transactions, id))) => prepare(partition, transactions, id, effects),
        Some(Some(Asked::Discard { timed_out })) => discard_one(partition, key, timed_out, effects),
        // All that was said was refused.
        None => open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, key)
            .end(Refusal::NoSuchTransaction),
    }
}

fn prepare(
    partition: &mut Partition,
    transactions: Vec<TransactionKey>,
    id: TransactionId,
    effects: &mut Vec<Effect>,
) {
    if let Some(key) = transactions.iter().copied().find(|key| is_unsealed(&partition.leader, *key)) {
        return open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, key)
            .ask(Asked::Prepare(transactions, id));
    }
    let refusal = match room_to_prepare(&partition.leader, &partition.settings, &transactions) {
        Ok(bytes) => {
            partition.leader.transactions.begin_prepared(id, bytes);
            None
        }
        Err(refusal) => Some(refusal),
    };
    close(partition, &transactions, (refusal, Close::Prepare(id)), effects);
}

/// A branch is undone before any request to prepare it.
fn discard(
    partition: &mut Partition,
    transactions: &[TransactionKey],
    id: TransactionId,
    timed_out: bool,
    effects: &mut Vec<Effect>,
) {
    for key in transactions {
        match is_unsealed(&partition.leader, *key) {
            true => open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, *key)
                .ask(Asked::Discard { timed_out }),
            false => discard_one(partition, *key, timed_out, effects),
        }
    }
    tell(id.coordinator, Peer::Done { id }, effects);
}

fn discard_one(partition: &mut Partition, key: TransactionKey, timed_out: bool, effects: &mut Vec<Effect>) {
    match timed_out {
        true => discard_overdue(partition, key, effects),
        false => roll_back(partition, key, None, effects),
    }
}

pub fn apply_prepare(
    partition: &mut Partition,
    position: Position,
    id: TransactionId,
    changes: Changes,
    effects: &mut Vec<Effect>,
) {
    if !changes.sends.is_empty() {
        effects.push(retained(position, &changes.sends));
    }
    let Changes { sends, settlements } = changes;
    let prepared = Prepared { settlements, ..Prepared::default() };
    let leaving = prepared.settlements.len();
    partition.state.prepared.insert(id, prepared);
    let preparing = Preparing { id, position, ordinal: 0, sends: sends.into_iter(), leaving };
    carry_out(partition, Rest::of_prepare(preparing), effects);
}

/// The coordinator has decided. A repeated decision has no effect.
fn decided(partition: &mut Partition, id: TransactionId, commit: bool, effects: &mut Vec<Effect>) {
    if partition.state.prepared.contains_key(&id) {
        let command = if commit { Command::Commit { id } } else { Command::Abort { id } };
        let urgency = if commit { Urgency::Waiting } else { Urgency::Lazy };
        return propose(partition, command, urgency, Completion::Ended { id }, effects);
    }
    let sent_to = partition.leader.transactions.take_prepared(id);
    match (partition.leader.transactions.prepared_volatile.remove(&id), commit) {
        (Some(volatile), true) => {
            let answers = Answers { done: Some(id), ..Answers::default() };
            return carry_out_volatile(partition, (volatile, sent_to), answers, effects);
        }
        (Some(volatile), false) => put_back(partition, Vec::new(), volatile, effects),
        (None, _) => {}
    }
    partition.leader.transactions.senders.end_all(sent_to);
    tell(id.coordinator, Peer::Done { id }, effects);
}

pub fn apply_commit(partition: &mut Partition, id: TransactionId, effects: &mut Vec<Effect>) {
    partition.leader.transactions.end_prepared(id);
    let Some(prepared) = partition.state.prepared.remove(&id) else { return };
    let volatile = partition.leader.transactions.prepared_volatile.remove(&id).unwrap_or_default();
    carry_out(partition, Rest::of_prepared(prepared, volatile), effects);
}

pub fn apply_abort(partition: &mut Partition, id: TransactionId, effects: &mut Vec<Effect>) {
    partition.state.branches.end(id);
    partition.leader.transactions.end_prepared(id);
    let Some(prepared) = partition.state.prepared.remove(&id) else { return };
    let volatile = partition.leader.transactions.prepared_volatile.remove(&id).unwrap_or_default();
    let aborting = Aborting {
        sends: prepared.sends.into_iter(),
        jobs: prepared.scheduled.into_iter(),
        back: volatile.returning(&prepared.settlements).into_iter(),
        returning: Returning::default(),
    };
    carry_out(partition, Rest::of_abort(aborting), effects);
}
