//! The coordinator: asks all participants, decides once, notifies all.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{
    BranchId, Command, ConnectionId, Effect, PartitionId, Peer, Refusal, Ticket, TransactionId,
    TransactionKey, Urgency,
};

use crate::Partition;
use crate::intake::publish::answer_request;
use crate::intake::waiting::echo;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::settings::Settings;
use crate::state::State;
use crate::transaction::branch::shares_ended;

/// A transaction that this partition coordinates; forgotten by a restart, unlike its decision.
#[derive(Debug)]
pub struct Coordination {
    /// Who takes part.
    pub(super) participants: Vec<PartitionId>,
    /// Whose answer is outstanding: to `Prepare` first, to `Decided` afterwards.
    pub(super) awaiting: BTreeSet<PartitionId>,
    /// Why a participant could not prepare.
    refused: Option<Refusal>,
    /// Why it is being undone, if its client had not asked for that.
    refusal: Option<Refusal>,
    /// Its purpose.
    pub(super) purpose: Purpose,
    /// Who waits.
    pub(super) answers: Vec<(ConnectionId, Ticket)>,
    /// The sessions' shares of a branch, which are notified of its end.
    pub(super) shares: Vec<TransactionKey>,
}

/// The continuation once every participant has answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The transaction is to be committed.
    Commit,
    /// The branch is to be decided later.
    Promise(BranchId),
    /// The branch is to be undone, which is not durable yet.
    Withdraw,
    /// The transaction is being undone.
    Undo,
}

impl Coordination {
    /// Waits for all participants.
    pub(super) fn new(purpose: Purpose, participants: Vec<PartitionId>) -> Coordination {
        let awaiting = participants.iter().copied().collect();
        let (answers, shares) = (Vec::new(), Vec::new());
        Coordination { participants, awaiting, refused: None, refusal: None, purpose, answers, shares }
    }

    /// Takes the requests that its end would answer.
    pub(crate) fn take_answers(&mut self) -> Vec<(ConnectionId, Ticket)> {
        std::mem::take(&mut self.answers)
    }
}

/// Connections that have closed, with the transactions that this partition still coordinates for
/// them, and the echo that waits for their end. A connection closes once, so there are at most as
/// many as transactions.
#[derive(Default)]
pub struct Coordinated {
    closed: BTreeMap<ConnectionId, (BTreeSet<TransactionId>, Option<Ticket>)>,
}

impl Coordinated {
    /// The connection has closed, and these are under way.
    pub fn close(&mut self, connection: ConnectionId, transactions: BTreeSet<TransactionId>) {
        if !transactions.is_empty() {
            self.closed.insert(connection, (transactions, None));
        }
    }

    /// Echoes that wait.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        let closed = self.closed.iter();
        closed.filter_map(|(connection, (_, echo))| Some((*connection, (*echo)?))).collect()
    }

    /// Whether an echo of the connection has to wait: then it is kept.
    pub fn holds_up(&mut self, connection: ConnectionId, ticket: Ticket) -> bool {
        let closed = self.closed.get_mut(&connection);
        closed.map(|(_, echo)| *echo = Some(ticket)).is_some()
    }

    /// One of them has ended: the echo that need not wait any longer.
    fn end(&mut self, connection: ConnectionId, transaction: TransactionId) -> Option<Ticket> {
        let (transactions, echo) = self.closed.get_mut(&connection)?;
        transactions.remove(&transaction);
        if !transactions.is_empty() {
            return None;
        }
        let echo = *echo;
        self.closed.remove(&connection);
        echo
    }
}

pub fn tell(to: PartitionId, peer: Peer, effects: &mut Vec<Effect>) {
    effects.push(Effect::Tell { to, peer });
}

/// Remembers the transaction until it has ended.
pub fn begin_coordinating(leader: &mut Leader, id: TransactionId, coordination: Coordination) {
    for (connection, _) in &coordination.answers {
        if let Some(connection) = leader.connections.get_mut(connection) {
            connection.coordinated.insert(id);
        }
    }
    leader.transactions.coordinating.insert(id, coordination);
}

pub fn next_transaction_id(leader: &mut Leader, settings: &Settings) -> TransactionId {
    let (coordinator, incarnation) = (settings.id, settings.incarnation);
    let id = TransactionId { coordinator, incarnation, number: leader.transactions.next_transaction };
    leader.transactions.next_transaction += 1;
    id
}

/// The decision is durable.
pub fn spread_decision(state: &mut State, id: TransactionId, effects: &mut Vec<Effect>) {
    for to in state.decided.get(&id).cloned().unwrap_or_default() {
        effects.push(Effect::Tell { to, peer: Peer::Decided { id, commit: true } });
    }
}

/// A participant asks for the outcome of a transaction: nothing known and nothing under way
/// means abort. A promised one waits for its manager's decision.
pub fn tell_decision(
    state: &mut State,
    leader: &mut Leader,
    to: PartitionId,
    id: TransactionId,
    effects: &mut Vec<Effect>,
) {
    let commit = state.decided.contains_key(&id);
    let undone = leader.transactions.coordinating.get(&id).is_none_or(|known| known.purpose == Purpose::Undo);
    if commit || undone && !state.branches.is_promised(id) {
        effects.push(Effect::Tell { to, peer: Peer::Decided { id, commit } });
    }
}

/// Asks each participant to prepare its part of these open transactions.
pub fn ask_to_prepare(
    leader: &mut Leader,
    settings: &Settings,
    asked: BTreeMap<PartitionId, Vec<TransactionKey>>,
    coordination: Coordination,
    effects: &mut Vec<Effect>,
) {
    let id = next_transaction_id(leader, settings);
    for (to, transactions) in asked {
        tell(to, Peer::Prepare { transactions, id }, effects);
    }
    begin_coordinating(leader, id, coordination);
}

/// After a restart, or when the log has recovered: every unfinished decision is sent again, and
/// every prepared transaction is asked about.
pub fn resolve_transactions(state: &mut State, leader: &mut Leader, effects: &mut Vec<Effect>) {
    for (id, participants) in state.decided.clone() {
        leader
            .transactions
            .coordinating
            .entry(id)
            .or_insert_with(|| Coordination::new(Purpose::Commit, participants));
        spread_decision(state, id, effects);
    }
    for id in state.prepared.keys().copied().collect::<Vec<_>>() {
        tell(id.coordinator, Peer::InDoubt { id }, effects);
    }
}

pub fn coordinate(
    leader: &mut Leader,
    settings: &Settings,
    key: TransactionKey,
    participants: &[PartitionId],
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let asked = participants.iter().map(|to| (*to, vec![key])).collect();
    let mut coordination = Coordination::new(Purpose::Commit, participants.to_vec());
    coordination.answers.extend(answer);
    ask_to_prepare(leader, settings, asked, coordination, effects);
}

/// The transaction has ended, or waits for its manager: connections that have closed need not
/// wait for it any more.
pub fn end_coordinating(
    leader: &mut Leader,
    id: TransactionId,
    effects: &mut Vec<Effect>,
) -> Option<Coordination> {
    let ended = leader.transactions.coordinating.remove(&id)?;
    for (connection, _) in &ended.answers {
        if let Some(known) = leader.connections.get_mut(connection) {
            known.coordinated.remove(&id);
        } else if let Some(ticket) = leader.ended.coordinated.end(*connection, id) {
            echo(leader, *connection, ticket, effects);
        }
    }
    Some(ended)
}

/// One participant has prepared, or could not.
pub fn prepared_by(
    partition: &mut Partition,
    from: PartitionId,
    id: TransactionId,
    result: Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    let Some(coordination) = partition.leader.transactions.coordinating.get_mut(&id) else {
        return tell_decision(&mut partition.state, &mut partition.leader, from, id, effects);
    };
    if let Err(refusal) = result {
        coordination.refused.get_or_insert(refusal);
    }
    if !coordination.awaiting.remove(&from) || !coordination.awaiting.is_empty() {
        return;
    }
    let participants = coordination.participants.clone();
    if let Some(refusal) = coordination.refused.take() {
        return decision_failed(partition, id, &refusal, effects);
    }
    if let Purpose::Promise(branch) = &coordination.purpose {
        let command = Command::Promise { id, branch: branch.clone(), participants };
        return propose(partition, command, Urgency::Waiting, Completion::Promised { id }, effects);
    }
    decide_coordinated(partition, id, participants, effects);
}

/// All participants have prepared: the decision goes into the log.
fn decide_coordinated(
    partition: &mut Partition,
    id: TransactionId,
    participants: Vec<PartitionId>,
    effects: &mut Vec<Effect>,
) {
    if let Some(coordination) = partition.leader.transactions.coordinating.get_mut(&id) {
        coordination.awaiting = participants.iter().copied().collect();
    }
    let command = Command::Decide { id, participants };
    propose(partition, command, Urgency::Waiting, Completion::Decided { id }, effects);
}

/// There will be no decision: abort, unless the branch was promised, which then waits for
/// another decision. The client has its answer once its consumers hold their messages again.
pub fn decision_failed(
    partition: &mut Partition,
    id: TransactionId,
    refusal: &Refusal,
    effects: &mut Vec<Effect>,
) {
    if partition.state.branches.is_promised(id) {
        let Some(ended) = end_coordinating(&mut partition.leader, id, effects) else { return };
        partition.leader.transactions.branches.keep_shares(id, ended.shares);
        return answer_all(partition, ended.answers, &Err(refusal.clone()), effects);
    }
    let Some(coordination) = partition.leader.transactions.coordinating.get_mut(&id) else { return };
    (coordination.purpose, coordination.refusal) = (Purpose::Undo, Some(refusal.clone()));
    coordination.awaiting = coordination.participants.iter().copied().collect();
    for to in &coordination.participants {
        effects.push(Effect::Tell { to: *to, peer: Peer::Decided { id, commit: false } });
    }
}

/// One participant has carried the decision out, durably; after the last one the client has its
/// answer.
pub fn done_by(partition: &mut Partition, from: PartitionId, id: TransactionId, effects: &mut Vec<Effect>) {
    let Some(coordination) = partition.leader.transactions.coordinating.get_mut(&id) else { return };
    coordination.awaiting.remove(&from);
    if !coordination.awaiting.is_empty() {
        return;
    }
    let Some(ended) = end_coordinating(&mut partition.leader, id, effects) else { return };
    let Coordination { purpose, refusal, answers, shares, .. } = ended;
    let committed = purpose != Purpose::Undo;
    if committed {
        propose(partition, Command::Forget { id }, Urgency::Lazy, Completion::Nothing, effects);
    }
    shares_ended(shares, committed, effects);
    answer_all(partition, answers, &refusal.map_or(Ok(()), Err), effects);
}

pub fn answer_all(
    partition: &mut Partition,
    answers: Vec<(ConnectionId, Ticket)>,
    result: &Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    for (connection, ticket) in answers {
        answer_request(partition, Some((connection, ticket)), result.clone(), effects);
    }
}
