//! The coordinator: asks all, decides once, tells all.

use std::collections::BTreeSet;

use postroad_model::{
    Command, ConnectionId, Effect, PartitionId, Peer, Refusal, Ticket, TransactionId, TransactionKey, Urgency,
};

use crate::Partition;
use crate::completion::Completion;

/// A transaction that this partition coordinates; forgotten by a restart, unlike its decision.
#[derive(Debug)]
pub struct Coordination {
    /// Who takes part.
    participants: Vec<PartitionId>,
    /// Whose answer is outstanding: to `Prepare` first, to `Decided` afterwards.
    awaiting: BTreeSet<PartitionId>,
    /// Somebody could not prepare.
    refused: bool,
    /// Who waits, if anybody does.
    answer: Option<(ConnectionId, Ticket)>,
}

impl Partition {
    pub(crate) fn coordinate(
        &mut self,
        key: TransactionKey,
        participants: &[PartitionId],
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let id = TransactionId {
            coordinator: self.settings.id,
            incarnation: self.settings.incarnation,
            number: self.next_transaction,
        };
        self.next_transaction += 1;
        let awaiting = participants.iter().copied().collect();
        let participants = participants.to_vec();
        for to in &participants {
            effects.push(Effect::Tell { to: *to, peer: Peer::Prepare { transaction: key, id } });
        }
        self.coordinating.insert(id, Coordination { participants, awaiting, refused: false, answer });
    }

    /// One participant has prepared, or could not.
    pub(crate) fn prepared_by(
        &mut self,
        from: PartitionId,
        id: TransactionId,
        ready: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(coordination) = self.coordinating.get_mut(&id) else {
            return self.tell_decision(from, id, effects);
        };
        coordination.refused |= !ready;
        if !coordination.awaiting.remove(&from) || !coordination.awaiting.is_empty() {
            return;
        }
        let participants = coordination.participants.clone();
        if coordination.refused {
            let reason = "a participant of the transaction could not prepare".to_owned();
            return self.decision_failed(id, &Refusal::StoreFailed { reason }, effects);
        }
        coordination.awaiting = participants.iter().copied().collect();
        let command = Command::Decide { id, participants };
        self.propose(command, Urgency::Waiting, Completion::Decided { id }, effects);
    }

    /// The decision is durable.
    pub(crate) fn spread_decision(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        for to in self.decided.get(&id).cloned().unwrap_or_default() {
            effects.push(Effect::Tell { to, peer: Peer::Decided { id, commit: true } });
        }
    }

    /// There will be no decision: abort.
    pub(crate) fn decision_failed(
        &mut self,
        id: TransactionId,
        refusal: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let Some(coordination) = self.coordinating.remove(&id) else { return };
        for to in coordination.participants {
            effects.push(Effect::Tell { to, peer: Peer::Decided { id, commit: false } });
        }
        self.answer(coordination.answer, Err(refusal.clone()), effects);
    }

    /// One participant's commit is durable; after the last one the client has its answer.
    pub(crate) fn done_by(&mut self, from: PartitionId, id: TransactionId, effects: &mut Vec<Effect>) {
        let Some(coordination) = self.coordinating.get_mut(&id) else { return };
        coordination.awaiting.remove(&from);
        if !coordination.awaiting.is_empty() {
            return;
        }
        let answer = coordination.answer;
        self.coordinating.remove(&id);
        self.propose(Command::Forget { id }, Urgency::Lazy, Completion::Nothing, effects);
        self.answer(answer, Ok(()), effects);
    }

    /// Someone asks what became of a transaction: nothing known and nothing under way means abort.
    pub(crate) fn tell_decision(&mut self, to: PartitionId, id: TransactionId, effects: &mut Vec<Effect>) {
        let commit = self.decided.contains_key(&id);
        if commit || !self.coordinating.contains_key(&id) {
            effects.push(Effect::Tell { to, peer: Peer::Decided { id, commit } });
        }
    }

    /// After a restart, or when the log has recovered: every unfinished decision is told again, and
    /// every prepared transaction is asked about.
    pub(crate) fn resolve_transactions(&mut self, effects: &mut Vec<Effect>) {
        for (id, participants) in self.decided.clone() {
            let awaiting = participants.iter().copied().collect();
            self.coordinating.entry(id).or_insert(Coordination {
                participants,
                awaiting,
                refused: false,
                answer: None,
            });
            self.spread_decision(id, effects);
        }
        for id in self.prepared.keys().copied().collect::<Vec<_>>() {
            self.tell(id.coordinator, Peer::InDoubt { id }, effects);
        }
    }

    pub(crate) fn tell(&self, to: PartitionId, peer: Peer, effects: &mut Vec<Effect>) {
        effects.push(Effect::Tell { to, peer });
    }
}
