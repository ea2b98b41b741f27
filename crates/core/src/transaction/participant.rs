//! The participant: promises durably, then does as the coordinator decided.

use std::collections::BTreeMap;
use std::vec::IntoIter;

use postroad_model::{
    Changes, Command, ConnectionId, ConsumerKey, Destination, Effect, MessageKey, PartitionId, Peer,
    Position, Refusal, Schedule, Sent, Settlement, TransactionId, TransactionKey, Urgency,
};

use crate::Partition;
use crate::intake::chunks::{release_scheduled, schedule_chunks};
use crate::intake::publish::retained;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::queue::EntryState;
use crate::transaction::VolatileChanges;
use crate::transaction::closing::{Answers, Close, Returning, carry_out_volatile, close};
use crate::transaction::coordinator::{tell, tell_decision};
use crate::transaction::held::room_to_prepare;
use crate::transaction::open::{Asked, OpenTransaction, enlist, open_transaction};
use crate::transaction::slices::{Rest, carry_out, next};

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

impl Partition {
    pub(crate) fn peer(&mut self, from: PartitionId, peer: Peer, effects: &mut Vec<Effect>) {
        match peer {
            Peer::Enlist { transaction, sends, uploads } => {
                enlist(&mut self.leader, &self.settings, self.now_ms, transaction, sends, uploads)
            }
            Peer::Piece { piece, bytes } => self.take_peers_piece(from, piece, bytes, effects),
            Peer::PieceTaken { upload, result } => self.piece_taken(from, upload, result, effects),
            Peer::Forsake { upload } => {
                self.leader.intake.uploads.abandon(ConnectionId::internal(from), upload, effects)
            }
            Peer::Subscribed(made) => self.end_former_subscription(&made, effects),
            Peer::Offer { sent } => self.take_offer(*sent, effects),
            Peer::Discard { transactions, id, timed_out } => {
                self.discard(&transactions, id, timed_out, effects);
            }
            Peer::Prepare { transactions, id } => self.prepare(transactions, id, effects),
            Peer::Prepared { id, result } => self.prepared_by(from, id, result, effects),
            Peer::Decided { id, commit } => self.decided(id, commit, effects),
            Peer::Done { id } => self.done_by(from, id, effects),
            Peer::InDoubt { id } => tell_decision(&mut self.state, &mut self.leader, from, id, effects),
            Peer::Expect { .. }
            | Peer::Expecting { .. }
            | Peer::Remember { .. }
            | Peer::Remembers { .. }
            | Peer::Handle(_)
            | Peer::Arrived { .. } => {
                self.about_move(from, peer, effects);
            }
        }
    }

    /// The client has said everything; a coordinator that was faster need not wait any longer.
    pub(crate) fn seal(&mut self, key: TransactionKey, effects: &mut Vec<Effect>) {
        match self.leader.transactions.open.get_mut(&key).map(OpenTransaction::seal) {
            Some(None) => {}
            Some(Some(Asked::Prepare(transactions, id))) => self.prepare(transactions, id, effects),
            Some(Some(Asked::Discard { timed_out })) => self.discard_one(key, timed_out, effects),
            // All that was said was refused.
            None => open_transaction(&mut self.leader, &self.settings, self.now_ms, key)
                .end(Refusal::NoSuchTransaction),
        }
    }

    fn prepare(&mut self, transactions: Vec<TransactionKey>, id: TransactionId, effects: &mut Vec<Effect>) {
        if let Some(key) = transactions.iter().copied().find(|key| is_unsealed(&self.leader, *key)) {
            return open_transaction(&mut self.leader, &self.settings, self.now_ms, key)
                .ask(Asked::Prepare(transactions, id));
        }
        let refusal = match room_to_prepare(&self.leader, &self.settings, &transactions) {
            Ok(bytes) => {
                self.leader.transactions.begin_prepared(id, bytes);
                None
            }
            Err(refusal) => Some(refusal),
        };
        close(self, &transactions, (refusal, Close::Prepare(id)), effects);
    }

    /// A branch is undone before any request to prepare it.
    fn discard(
        &mut self,
        transactions: &[TransactionKey],
        id: TransactionId,
        timed_out: bool,
        effects: &mut Vec<Effect>,
    ) {
        for key in transactions {
            match is_unsealed(&self.leader, *key) {
                true => open_transaction(&mut self.leader, &self.settings, self.now_ms, *key)
                    .ask(Asked::Discard { timed_out }),
                false => self.discard_one(*key, timed_out, effects),
            }
        }
        tell(id.coordinator, Peer::Done { id }, effects);
    }

    fn discard_one(&mut self, key: TransactionKey, timed_out: bool, effects: &mut Vec<Effect>) {
        match timed_out {
            true => self.discard_overdue(key, effects),
            false => self.rollback(key, None, effects),
        }
    }

    pub(crate) fn apply_prepare(
        &mut self,
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
        self.state.prepared.insert(id, prepared);
        let preparing = Preparing { id, position, ordinal: 0, sends: sends.into_iter(), leaving };
        carry_out(self, Rest::of_prepare(preparing), effects);
    }

    /// The coordinator has decided. A repeated decision has no effect.
    fn decided(&mut self, id: TransactionId, commit: bool, effects: &mut Vec<Effect>) {
        if self.state.prepared.contains_key(&id) {
            let command = if commit { Command::Commit { id } } else { Command::Abort { id } };
            let urgency = if commit { Urgency::Waiting } else { Urgency::Lazy };
            return self.propose(command, urgency, Completion::Ended { id }, effects);
        }
        let sent_to = self.leader.transactions.take_prepared(id);
        match (self.leader.transactions.prepared_volatile.remove(&id), commit) {
            (Some(volatile), true) => {
                let answers = Answers { done: Some(id), ..Answers::default() };
                return carry_out_volatile(self, (volatile, sent_to), answers, effects);
            }
            (Some(volatile), false) => self.put_back(Vec::new(), volatile, effects),
            (None, _) => {}
        }
        self.leader.transactions.senders.end_all(sent_to);
        tell(id.coordinator, Peer::Done { id }, effects);
    }

    pub(crate) fn apply_commit(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        self.leader.transactions.end_prepared(id);
        let Some(prepared) = self.state.prepared.remove(&id) else { return };
        let volatile = self.leader.transactions.prepared_volatile.remove(&id).unwrap_or_default();
        carry_out(self, Rest::of_prepared(prepared, volatile), effects);
    }

    pub(crate) fn apply_abort(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        self.state.branches.end(id);
        self.leader.transactions.end_prepared(id);
        let Some(prepared) = self.state.prepared.remove(&id) else { return };
        let volatile = self.leader.transactions.prepared_volatile.remove(&id).unwrap_or_default();
        let aborting = Aborting {
            sends: prepared.sends.into_iter(),
            jobs: prepared.scheduled.into_iter(),
            back: volatile.returning(&prepared.settlements).into_iter(),
            returning: Returning::default(),
        };
        carry_out(self, Rest::of_abort(aborting), effects);
    }
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
            store(partition, (key, sent), &mut prepared, effects);
        }
        let marked = prepared.settlements.len() - self.leaving;
        let number = self.leaving.min(*budget);
        *budget -= number;
        self.leaving -= number;
        for settlement in &prepared.settlements[marked..marked + number] {
            partition.set_state(settlement.queue, settlement.tag, EntryState::Leaving);
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
            partition.drop_reference(key, effects);
        }
        for (key, bytes, _) in next(&mut self.jobs, budget) {
            partition.released(key, bytes, effects);
            release_scheduled(&mut partition.state, key, effects);
        }
        for (by, end) in next(&mut self.back, budget) {
            if !by.is_some_and(|by| partition.hold_again(by, &end)) {
                self.returning.hold(partition, end.queue);
                partition.give_back_all(&[end]);
            }
        }
        if self.len() == 0 {
            let touched = std::mem::take(&mut self.returning).end(partition);
            partition.dispatch_all(touched, effects);
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
    partition.propose(Command::Prepare { id, changes }, Urgency::Waiting, completion, effects);
}

/// A message of a prepared transaction: stored, and in no queue yet.
fn store(
    partition: &mut Partition,
    (key, mut sent): (MessageKey, Sent),
    prepared: &mut Prepared,
    effects: &mut Vec<Effect>,
) {
    let trace = sent.message.take_trace();
    if let Some(schedule) = sent.schedule {
        if let Some(trace) = trace {
            partition.leader.traces.scheduled(trace);
        }
        prepared.scheduled.push((key, sent.message.bytes.len() as u64, *schedule));
        return schedule_chunks(&mut partition.state, &mut partition.leader, key, &sent.message, effects);
    }
    if let Some(trace) = trace {
        partition.leader.traces.begin(key, trace);
    }
    partition.leader.intake.uploads.retain_chunks(&sent.message, effects);
    prepared.moved.extend(sent.moved.map(|failed| (key, failed)));
    partition.state.bodies.insert(key, sent.message);
    for to in std::iter::once(sent.to).chain(sent.also) {
        partition.state.bodies.refer(key);
        partition.state.bodies.pin(key);
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
