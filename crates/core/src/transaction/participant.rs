//! The participant: promises durably, then does as the coordinator decided.

use std::collections::BTreeMap;

use postroad_model::{
    Changes, Command, ConnectionId, Destination, Effect, MessageKey, PartitionId, Peer, Position, Refusal,
    Schedule, Settlement, TransactionId, TransactionKey, Urgency,
};

use crate::Partition;
use crate::intake::publish::retained;
use crate::log::completion::Completion;
use crate::queue::EntryState;
use crate::transaction::open::{Asked, OpenTransaction};
use crate::transaction::slices::{Rest, carry_out};

/// A share of a transaction that is in the log and waits for the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Stored messages and where they will go.
    pub sends: Vec<(MessageKey, Destination)>,
    /// Entries that are leaving.
    pub settlements: Vec<Settlement>,
    /// Those of the messages that come from where their queue lived before: see [`postroad_model::Sent::moved`].
    pub moved: BTreeMap<MessageKey, u32>,
    /// Messages that are due later, with the bytes of their bodies.
    pub scheduled: Vec<(MessageKey, u64, Schedule)>,
}

impl Partition {
    pub(crate) fn peer(&mut self, from: PartitionId, peer: Peer, effects: &mut Vec<Effect>) {
        match peer {
            Peer::Enlist { transaction, sends, uploads } => self.enlist(transaction, sends, uploads),
            Peer::Piece { piece, bytes } => self.take_peers_piece(from, piece, bytes, effects),
            Peer::PieceTaken { upload, result } => self.piece_taken(from, upload, result, effects),
            Peer::Forsake { upload } => self.abandon(ConnectionId::internal(from), upload, effects),
            Peer::Subscribed(made) => self.end_former_subscription(&made, effects),
            Peer::Offer { sent } => self.take_offer(*sent, effects),
            Peer::Discard { transactions, id, timed_out } => {
                self.discard(&transactions, id, timed_out, effects);
            }
            Peer::Prepare { transactions, id } => self.prepare(transactions, id, effects),
            Peer::Prepared { id, result } => self.prepared_by(from, id, result, effects),
            Peer::Decided { id, commit } => self.decided(id, commit, effects),
            Peer::Done { id } => self.done_by(from, id, effects),
            Peer::InDoubt { id } => self.tell_decision(from, id, effects),
            Peer::Expect { .. }
            | Peer::Expecting { .. }
            | Peer::Remember { .. }
            | Peer::Remembers { .. }
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
            None => self.open_transaction(key).end(Refusal::NoSuchTransaction),
        }
    }

    /// Whether the client may have said more than has come here: the coordinator's word can be faster, even than all of it.
    fn is_unsealed(&self, key: TransactionKey) -> bool {
        self.leader
            .transactions
            .open
            .get(&key)
            .map_or_else(|| !self.has_ended(key.connection), |open| !open.is_sealed())
    }

    fn prepare(&mut self, transactions: Vec<TransactionKey>, id: TransactionId, effects: &mut Vec<Effect>) {
        if let Some(key) = transactions.iter().copied().find(|key| self.is_unsealed(*key)) {
            return self.open_transaction(key).ask(Asked::Prepare(transactions, id));
        }
        let closed = match self.room_to_prepare(&transactions) {
            Ok(bytes) => self.close_all(&transactions, effects).map(|closed| (closed, bytes)),
            Err(refusal) => {
                self.undo_all(&transactions, effects);
                Err(refusal)
            }
        };
        let ((changes, volatile), bytes) = match closed {
            Ok(closed) => closed,
            Err(refusal) => {
                let result = Err(refusal);
                return self.tell(id.coordinator, Peer::Prepared { id, result }, effects);
            }
        };
        self.leader.transactions.branches.held_by_prepared.begin(id, bytes);
        self.leader.transactions.prepared_volatile.insert(id, volatile);
        if changes == Changes::default() {
            return self.tell(id.coordinator, Peer::Prepared { id, result: Ok(()) }, effects);
        }
        self.bind_new_queues(&changes.sends, effects);
        let settlements = changes.settlements.clone();
        let completion = Completion::Prepared { id, settlements };
        self.propose(Command::Prepare { id, changes }, Urgency::Waiting, completion, effects);
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
            match self.is_unsealed(*key) {
                true => self.open_transaction(*key).ask(Asked::Discard { timed_out }),
                false => self.discard_one(*key, timed_out, effects),
            }
        }
        self.tell(id.coordinator, Peer::Done { id }, effects);
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
        let (mut sends, mut scheduled) = (Vec::with_capacity(changes.sends.len()), Vec::new());
        let mut moved = BTreeMap::new();
        for (ordinal, sent) in changes.sends.into_iter().enumerate() {
            let key = MessageKey::Durable { position, ordinal: ordinal as u32 };
            if let Some(schedule) = sent.schedule {
                scheduled.push((key, sent.message.bytes.len() as u64, *schedule));
                self.schedule_chunks(key, &sent.message, effects);
                continue;
            }
            self.retain_chunks(&sent.message, effects);
            moved.extend(sent.moved.map(|failed| (key, failed)));
            self.state.bodies.insert(key, sent.message);
            for to in std::iter::once(sent.to).chain(sent.also) {
                self.state.bodies.refer(key);
                self.state.bodies.pin(key);
                sends.push((key, to));
            }
        }
        for settlement in &changes.settlements {
            self.set_state(settlement.queue, settlement.tag, EntryState::Leaving);
        }
        self.state
            .prepared
            .insert(id, Prepared { sends, settlements: changes.settlements, moved, scheduled });
    }

    /// The coordinator has decided. A repeated decision has no effect.
    fn decided(&mut self, id: TransactionId, commit: bool, effects: &mut Vec<Effect>) {
        if self.state.prepared.contains_key(&id) {
            let command = if commit { Command::Commit { id } } else { Command::Abort { id } };
            let urgency = if commit { Urgency::Waiting } else { Urgency::Lazy };
            return self.propose(command, urgency, Completion::Ended { id }, effects);
        }
        self.leader.transactions.branches.held_by_prepared.end(id);
        match (self.leader.transactions.prepared_volatile.remove(&id), commit) {
            (Some(volatile), true) => volatile.carry_out(self, effects),
            (Some(volatile), false) => self.put_back(Vec::new(), volatile, effects),
            (None, _) => {}
        }
        self.tell(id.coordinator, Peer::Done { id }, effects);
    }

    pub(crate) fn apply_commit(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        self.leader.transactions.branches.held_by_prepared.end(id);
        let Some(prepared) = self.state.prepared.remove(&id) else { return };
        let volatile = self.leader.transactions.prepared_volatile.remove(&id).unwrap_or_default();
        carry_out(self, Rest::of_prepared(prepared, volatile), effects);
    }

    pub(crate) fn apply_abort(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        self.state.branches.end(id);
        self.leader.transactions.branches.held_by_prepared.end(id);
        let Some(prepared) = self.state.prepared.remove(&id) else { return };
        for (key, _) in prepared.sends {
            self.drop_reference(key, effects);
        }
        for (key, bytes, _) in prepared.scheduled {
            self.released(key, bytes, effects);
            self.release_scheduled(key, effects);
        }
        let volatile = self.leader.transactions.prepared_volatile.remove(&id).unwrap_or_default();
        self.put_back(prepared.settlements, volatile, effects);
    }
}
