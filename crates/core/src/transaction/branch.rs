//! Branches of distributed transactions: gathered from sessions, promised, and decided by whoever has their id.
//!
//! ```text
//!   EndBranch ─▶ open ──Prepare to all──▶ record Promise ──▶ in doubt ──Commit──▶ record Decide, as any transaction
//!                 │                                             │
//!                 └──Rollback, or a session is gone──▶ dropped  └──Rollback──▶ record Abort, told to all
//! ```
//! A branch lives in the partition that its id hashes to, and survives there; its parts are prepared where they
//! were done. Only the end of an open branch depends on the connections that worked in it.

use std::collections::{BTreeMap, HashMap};

use postroad_model::{
    BranchId, Command, ConnectionId, Decision, Effect, PartitionId, Peer, Refusal, Ticket, TransactionId,
    TransactionKey, Urgency,
};

use super::coordinator::{Coordination, Purpose};
use crate::Partition;
use crate::completion::Completion;

/// The branches that a partition coordinates.
#[derive(Default)]
pub struct Branches {
    /// What sessions have done and nobody has asked to prepare; forgotten by a restart.
    open: HashMap<BranchId, Vec<Share>>,
    /// In doubt: in the log, and not decided.
    promised: BTreeMap<BranchId, Promised>,
    /// The sessions' shares of what is in doubt, in this run.
    shares: HashMap<TransactionId, Vec<TransactionKey>>,
}

/// What one session did in a branch, from one start to one end.
struct Share {
    transaction: TransactionKey,
    participants: Vec<PartitionId>,
}

/// A branch that every participant has prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promised {
    /// What its participants call it.
    pub id: TransactionId,
    /// Who prepared it.
    pub participants: Vec<PartitionId>,
}

impl Branches {
    /// Whether the transaction waits for somebody's decision.
    pub fn is_promised(&self, id: TransactionId) -> bool {
        self.promised.values().any(|promised| promised.id == id)
    }

    /// All that are in doubt.
    pub fn promised(&self) -> impl Iterator<Item = (&BranchId, &Promised)> {
        self.promised.iter()
    }

    /// The branch is in doubt from now on.
    pub fn promise(&mut self, branch: BranchId, promised: Promised) {
        self.promised.insert(branch, promised);
    }

    /// The branch is in doubt no more: it is decided, or undone.
    pub fn end(&mut self, id: TransactionId) {
        self.promised.retain(|_, promised| promised.id != id);
    }

    /// Whom to tell when it ends.
    pub fn keep_shares(&mut self, id: TransactionId, shares: Vec<TransactionKey>) {
        self.shares.insert(id, shares);
    }
}

/// For each participant, which of the shares it knows.
fn by_participant(shares: &[Share]) -> BTreeMap<PartitionId, Vec<TransactionKey>> {
    let mut asked: BTreeMap<PartitionId, Vec<TransactionKey>> = BTreeMap::new();
    for share in shares {
        for participant in &share.participants {
            asked.entry(*participant).or_default().push(share.transaction);
        }
    }
    asked
}

fn transactions(shares: &[Share]) -> Vec<TransactionKey> {
    shares.iter().map(|share| share.transaction).collect()
}

impl Partition {
    pub(crate) fn end_branch(
        &mut self,
        branch: BranchId,
        transaction: TransactionKey,
        participants: Vec<PartitionId>,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        let share = Share { transaction, participants };
        let closed = self.branches.promised.contains_key(&branch) || self.is_being_prepared(&branch);
        let result = if closed { Err(Refusal::BranchClosed) } else { Ok(()) };
        if closed {
            self.undo_shares(vec![share], None, effects);
        } else {
            self.branches.open.entry(branch).or_default().push(share);
        }
        self.reply(transaction.connection, ticket, result, effects);
    }

    fn is_being_prepared(&self, branch: &BranchId) -> bool {
        let prepares =
            |known: &Coordination| matches!(&known.purpose, Purpose::Promise(other) if other == branch);
        self.coordinating.values().any(prepares)
    }

    pub(crate) fn prepare_branch(
        &mut self,
        branch: BranchId,
        connection: ConnectionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        // A client that has lost the connection over its question may ask again.
        if self.branches.promised.contains_key(&branch) {
            return self.reply(connection, ticket, Ok(()), effects);
        }
        let Some(shares) = self.branches.open.remove(&branch) else {
            return self.reply(connection, ticket, Err(Refusal::NoSuchBranch), effects);
        };
        let asked = by_participant(&shares);
        if asked.is_empty() {
            self.shares_ended(transactions(&shares), true, effects);
            return self.reply(connection, ticket, Err(Refusal::BranchEmpty), effects);
        }
        let participants = asked.keys().copied().collect();
        let mut coordination = Coordination::new(Purpose::Promise(branch), participants);
        coordination.answers.push((connection, ticket));
        coordination.shares = transactions(&shares);
        self.ask_to_prepare(asked, coordination, effects);
    }

    pub(crate) fn decide_branch(
        &mut self,
        branch: &BranchId,
        decision: Decision,
        answer: (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        let (connection, ticket) = answer;
        if let Some(promised) = self.branches.promised.get(branch).cloned() {
            let purpose = match decision {
                Decision::Rollback => Purpose::Withdraw,
                Decision::Commit | Decision::CommitOnePhase => Purpose::Commit,
            };
            return self.decide_promised(promised, purpose, answer, effects);
        }
        let shares = match (decision, self.branches.open.contains_key(branch)) {
            (Decision::Rollback, false) if self.is_being_prepared(branch) => Err(Refusal::BranchClosed),
            (_, false) if self.is_being_prepared(branch) => Err(Refusal::BranchNotPrepared),
            (_, false) => Err(Refusal::NoSuchBranch),
            (Decision::Commit, true) => Err(Refusal::BranchNotPrepared),
            (_, true) => Ok(self.branches.open.remove(branch).unwrap_or_default()),
        };
        match (shares, decision) {
            (Err(refusal), _) => self.reply(connection, ticket, Err(refusal), effects),
            (Ok(shares), Decision::Rollback) => self.undo_shares(shares, Some(answer), effects),
            (Ok(shares), _) => self.commit_shares(&shares, answer, effects),
        }
    }

    /// Carries an open branch out at once: by one record if all of it lies here.
    fn commit_shares(&mut self, shares: &[Share], answer: (ConnectionId, Ticket), effects: &mut Vec<Effect>) {
        let asked = by_participant(shares);
        let participants: Vec<PartitionId> = asked.keys().copied().collect();
        let keys = transactions(shares);
        if participants.is_empty() {
            self.shares_ended(keys, true, effects);
            return self.answer(Some(answer), Ok(()), effects);
        }
        if participants == [self.settings.id] {
            return self.commit_here(&asked[&self.settings.id], keys, Some(answer), effects);
        }
        let mut coordination = Coordination::new(Purpose::Commit, participants);
        coordination.answers.push(answer);
        coordination.shares = keys;
        self.ask_to_prepare(asked, coordination, effects);
    }

    /// Carries out what was decided about a promise, or joins those who wait for the same.
    fn decide_promised(
        &mut self,
        Promised { id, participants }: Promised,
        purpose: Purpose,
        answer: (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        let commits = |purpose: &Purpose| matches!(purpose, Purpose::Commit);
        if let Some(under_way) = self.coordinating.get_mut(&id) {
            return match commits(&under_way.purpose) == commits(&purpose) {
                true => under_way.answers.push(answer),
                false => self.answer(Some(answer), Err(Refusal::BranchClosed), effects),
            };
        }
        let commit = commits(&purpose);
        let mut coordination = Coordination::new(purpose, participants.clone());
        coordination.answers.push(answer);
        coordination.shares = self.branches.shares.remove(&id).unwrap_or_default();
        self.coordinating.insert(id, coordination);
        match commit {
            true => self.decide(id, participants, effects),
            false => {
                self.propose(Command::Abort { id }, Urgency::Waiting, Completion::Withdrawn { id }, effects);
            }
        }
    }

    /// The promise is withdrawn, durably: everybody who had given it is told.
    pub(crate) fn withdrawn(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        let Some(coordination) = self.coordinating.get_mut(&id) else { return };
        coordination.purpose = Purpose::Undo;
        for to in &coordination.participants {
            effects.push(Effect::Tell { to: *to, peer: Peer::Decided { id, commit: false } });
        }
    }

    /// Drops what was done and not prepared, everywhere.
    fn undo_shares(
        &mut self,
        shares: Vec<Share>,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let asked = by_participant(&shares);
        if asked.is_empty() {
            self.shares_ended(transactions(&shares), false, effects);
            return self.answer(answer, Ok(()), effects);
        }
        let id = self.next_transaction_id();
        let mut coordination = Coordination::new(Purpose::Undo, asked.keys().copied().collect());
        coordination.answers.extend(answer);
        coordination.shares = transactions(&shares);
        for (to, transactions) in asked {
            self.tell(to, Peer::Discard { transactions, id }, effects);
        }
        self.coordinating.insert(id, coordination);
    }

    /// A connection is gone, and with it the open branches in which it worked.
    pub(crate) fn undo_branches_of(&mut self, connection: ConnectionId, effects: &mut Vec<Effect>) {
        let worked =
            |shares: &Vec<Share>| shares.iter().any(|share| share.transaction.connection == connection);
        let gone: Vec<BranchId> = (self.branches.open.iter())
            .filter(|(_, shares)| worked(shares))
            .map(|(branch, _)| branch.clone())
            .collect();
        for branch in gone {
            let shares = self.branches.open.remove(&branch).unwrap_or_default();
            self.undo_shares(shares, None, effects);
        }
    }

    pub(crate) fn list_branches(
        &mut self,
        connection: ConnectionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        let branches = self.branches.promised.keys().cloned().collect();
        effects.push(Effect::Branches { connection, ticket, branches });
        self.reply(connection, ticket, Ok(()), effects);
    }

    pub(crate) fn apply_promise(
        &mut self,
        id: TransactionId,
        branch: BranchId,
        participants: Vec<PartitionId>,
    ) {
        self.branches.promise(branch, Promised { id, participants });
    }

    /// The promise is durable.
    pub(crate) fn promised(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        let Some(Coordination { answers, shares, .. }) = self.coordinating.remove(&id) else { return };
        self.branches.keep_shares(id, shares);
        self.answer_all(answers, &Ok(()), effects);
    }

    pub(crate) fn shares_ended(
        &self,
        shares: Vec<TransactionKey>,
        committed: bool,
        effects: &mut Vec<Effect>,
    ) {
        effects.extend(shares.into_iter().map(|transaction| Effect::Ended { transaction, committed }));
    }
}
