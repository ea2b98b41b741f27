//! Branches of distributed transactions: gathered from sessions, promised, and decided by any
//! session that has their id.
//!
//! ```text
//!   EndBranch ─▶ open ──Prepare to all──▶ record Promise ──▶ in doubt ──Commit──▶ record Decide, as any transaction
//!                 │                                             │
//!                 └──Rollback, or a session is gone──▶ dropped  ├──Rollback──▶ record Abort, sent to all
//!                                                               └──an operator──▶ record Overrule, then as above
//! ```
//! An operator's decision is remembered, and reported to the manager, until it is forgotten. A
//! branch lives in the partition that its id hashes to, and survives there; its parts are prepared
//! where they were done. Only the end of an open branch depends on the connections that worked in
//! it.

use std::collections::BTreeMap;

use postroad_model::{
    BranchId, BranchStanding, Command, ConnectionId, Decision, Effect, PartitionId, Peer, Refusal, Ticket,
    TransactionId, TransactionKey, Urgency,
};

use super::coordinator::{Coordination, Purpose};
use super::held::HeldByPrepared;
use crate::Partition;
use crate::intake::publish::answer_request;
use crate::leader::{Leader, Transactions};
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::reply;
use crate::settings::Settings;
use crate::state::State;
use crate::transaction::coordinator::{
    answer_all, ask_to_prepare, begin_coordinating, end_coordinating, next_transaction_id, tell,
};
use crate::transaction::open::commit_here;
use crate::transaction::participant::apply_abort;
use crate::transaction::timeout::{timed_out, watch_age};

/// Shares of open branches that a partition coordinates, of all sessions: some 300 bytes each.
/// Their contents count elsewhere.
const OPEN_SHARES_MAX: usize = 16_384;

/// Branches in doubt that a partition coordinates, as the log has them.
#[derive(Default)]
pub struct Branches {
    /// In doubt: prepared everywhere, and not decided.
    promised: BTreeMap<BranchId, Promised>,
    /// Those by the ids that their participants know.
    by_id: BTreeMap<TransactionId, BranchId>,
    /// Whether those were committed that an operator has ended; each is one that people have looked
    /// at.
    overruled: BTreeMap<BranchId, bool>,
}

/// Branches that are open, and sessions that wait for the others.
#[derive(Default)]
pub struct OpenBranches {
    /// Work of sessions that is not prepared; forgotten by a restart.
    open: BTreeMap<BranchId, Open>,
    /// How many shares those have together.
    open_shares: usize,
    /// The sessions' shares of branches in doubt.
    shares: BTreeMap<TransactionId, Vec<TransactionKey>>,
    /// Bytes that prepared transactions hold here, of branches and others.
    pub held_by_prepared: HeldByPrepared,
}

/// The work of sessions in a branch.
#[derive(Default)]
struct Open {
    shares: Vec<Share>,
    /// When the first share ended.
    begun_ms: u64,
    /// It was open for too long: nothing of it is left, and later requests for its end get that
    /// error.
    timed_out: bool,
}

/// The work of one session in a branch, from one start to one end.
pub struct Share {
    transaction: TransactionKey,
    participants: Vec<PartitionId>,
}

/// A branch that every participant has prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promised {
    /// Its participants' id of it.
    pub id: TransactionId,
    /// Who prepared it.
    pub participants: Vec<PartitionId>,
}

impl Branches {
    /// Whether the transaction waits for a decision.
    pub fn is_promised(&self, id: TransactionId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// The branch that the transaction is, if it is in doubt.
    pub fn branch_of(&self, id: TransactionId) -> Option<&BranchId> {
        self.by_id.get(&id)
    }

    /// All that are in doubt.
    pub fn promised(&self) -> impl Iterator<Item = (&BranchId, &Promised)> {
        self.promised.iter()
    }

    /// The branch is in doubt from now on.
    pub fn promise(&mut self, branch: BranchId, promised: Promised) {
        self.by_id.insert(promised.id, branch.clone());
        self.promised.insert(branch, promised);
    }

    /// The branch is in doubt no more: it is decided, or undone.
    pub fn end(&mut self, id: TransactionId) {
        if let Some(branch) = self.by_id.remove(&id) {
            self.promised.remove(&branch);
        }
    }

    /// Whether an operator has committed the branch, if an operator has ended it.
    pub fn overruled(&self, branch: &BranchId) -> Option<bool> {
        self.overruled.get(branch).copied()
    }

    /// All decisions of operators that are not forgotten, with whether they were commits.
    pub fn all_overruled(&self) -> impl Iterator<Item = (&BranchId, bool)> {
        self.overruled.iter().map(|(branch, committed)| (branch, *committed))
    }

    /// An operator has ended the branch.
    pub fn overrule(&mut self, branch: BranchId, commit: bool) {
        self.overruled.insert(branch, commit);
    }

    /// The operator's decision is forgotten.
    pub fn forget(&mut self, branch: &BranchId) {
        self.overruled.remove(branch);
    }

    pub fn list_branches(&mut self, connection: ConnectionId, ticket: Ticket, effects: &mut Vec<Effect>) {
        let promised = self.promised.keys().map(|branch| (branch, BranchStanding::Prepared));
        let overruled = self.all_overruled();
        let overruled =
            overruled.map(|(branch, committed)| (branch, BranchStanding::Overruled { committed }));
        let branches = promised.chain(overruled);
        let branches = branches.map(|(branch, standing)| (branch.clone(), standing)).collect();
        effects.push(Effect::Branches { connection, ticket, branches });
        reply(connection, ticket, Ok(()), effects);
    }

    pub fn apply_promise(&mut self, id: TransactionId, branch: BranchId, participants: Vec<PartitionId>) {
        self.promise(branch, Promised { id, participants });
    }
}

impl OpenBranches {
    /// One more share of an open branch, at this time.
    fn add_share(&mut self, branch: BranchId, share: Share, now_ms: u64) {
        let new = || Open { begun_ms: now_ms, ..Open::default() };
        self.open.entry(branch).or_insert_with(new).shares.push(share);
        self.open_shares += 1;
    }

    /// The branch is open no more; returns its work.
    fn take_open(&mut self, branch: &BranchId) -> Option<Open> {
        let open = self.open.remove(branch)?;
        self.open_shares -= open.shares.len();
        Some(open)
    }

    /// Those that are open for longer than `limit_ms`, and when the next one will be.
    pub fn overdue(&self, now_ms: u64, limit_ms: u64) -> (Vec<BranchId>, Option<u64>) {
        let ages = self.open.iter().filter(|(_, open)| !open.timed_out);
        let until = ages.map(|(branch, open)| (open.begun_ms.saturating_add(limit_ms), branch));
        let (overdue, young): (Vec<_>, Vec<_>) = until.partition(|(until_ms, _)| *until_ms <= now_ms);
        let mut overdue: Vec<BranchId> = overdue.into_iter().map(|(_, branch)| branch.clone()).collect();
        overdue.sort_unstable();
        (overdue, young.into_iter().map(|(until_ms, _)| until_ms).min())
    }

    /// The branch was open for too long; returns its work.
    pub fn time_out(&mut self, branch: &BranchId) -> Vec<Share> {
        let Some(open) = self.open.get_mut(branch) else { return Vec::new() };
        open.timed_out = true;
        // Who worked in it still counts: with the last of them it is forgotten.
        let nothing = |share: &Share| Share { participants: Vec::new(), ..*share };
        let rest = open.shares.iter().map(nothing).collect();
        std::mem::replace(&mut open.shares, rest)
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

pub fn shares_ended(shares: Vec<TransactionKey>, committed: bool, effects: &mut Vec<Effect>) {
    effects.extend(shares.into_iter().map(|transaction| Effect::Ended { transaction, committed }));
}

impl Transactions {
    fn is_being_prepared(&self, branch: &BranchId) -> bool {
        let prepares =
            |known: &Coordination| matches!(&known.purpose, Purpose::Promise(other) if other == branch);
        self.coordinating.values().any(prepares)
    }

    /// The promise is withdrawn, durably: each participant that had promised is notified.
    pub fn withdrawn(&mut self, id: TransactionId, effects: &mut Vec<Effect>) {
        let Some(coordination) = self.coordinating.get_mut(&id) else { return };
        coordination.purpose = Purpose::Undo;
        for to in &coordination.participants {
            effects.push(Effect::Tell { to: *to, peer: Peer::Decided { id, commit: false } });
        }
    }
}

/// The decision is durable, and is repeated until every participant has carried it out.
pub fn apply_decide(state: &mut State, id: TransactionId, participants: Vec<PartitionId>) {
    state.branches.end(id);
    state.decided.insert(id, participants);
}

/// A branch that was not prepared, for a decision that needs none of that.
fn take_to_decide(
    state: &mut State,
    leader: &mut Leader,
    settings: &Settings,
    branch: &BranchId,
    decision: Decision,
) -> Result<Open, Refusal> {
    if let Some(committed) = state.branches.overruled(branch) {
        return Err(Refusal::BranchOverruled { committed });
    }
    let late = leader.transactions.branches.open.get(branch).map(|open| open.timed_out);
    let preparing = late.is_none() && leader.transactions.is_being_prepared(branch);
    match (decision, late) {
        (Decision::Rollback, None) if preparing => Err(Refusal::BranchClosed),
        (_, None) if preparing => Err(Refusal::BranchNotPrepared),
        (_, None) => Err(Refusal::NoSuchBranch),
        (Decision::Overrule { .. }, Some(_)) => Err(Refusal::BranchNotPrepared),
        (Decision::Commit, Some(false)) => Err(Refusal::BranchNotPrepared),
        (Decision::Commit | Decision::CommitOnePhase, Some(true)) => {
            leader.transactions.branches.take_open(branch);
            Err(timed_out(settings))
        }
        (_, Some(_)) => Ok(leader.transactions.branches.take_open(branch).unwrap_or_default()),
    }
}

pub fn end_branch(
    partition: &mut Partition,
    branch: BranchId,
    transaction: TransactionKey,
    participants: Vec<PartitionId>,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    let share = Share { transaction, participants };
    let closed = partition.state.branches.promised.contains_key(&branch)
        || partition.state.branches.overruled.contains_key(&branch)
        || partition.leader.transactions.is_being_prepared(&branch);
    let late = partition.leader.transactions.branches.open.get(&branch).is_some_and(|open| open.timed_out);
    let is_full = partition.leader.transactions.branches.open_shares >= OPEN_SHARES_MAX;
    let result = match (closed, late) {
        (true, _) => Err(Refusal::BranchClosed),
        (false, true) => Err(timed_out(&partition.settings)),
        (false, false) if is_full => Err(Refusal::TooManyBranches { max: OPEN_SHARES_MAX }),
        (false, false) => Ok(()),
    };
    match result {
        Err(_) => undo_shares(partition, vec![share], None, false, effects),
        Ok(()) => {
            watch_age(&mut partition.leader, &partition.settings, partition.now_ms);
            partition.leader.transactions.branches.add_share(branch, share, partition.now_ms);
        }
    }
    reply(transaction.connection, ticket, result, effects);
}

pub fn prepare_branch(
    partition: &mut Partition,
    branch: BranchId,
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    // A client that has lost the connection over its question may ask again.
    if partition.state.branches.promised.contains_key(&branch) {
        return reply(connection, ticket, Ok(()), effects);
    }
    let shares = match (
        partition.state.branches.overruled(&branch),
        partition.leader.transactions.branches.take_open(&branch),
    ) {
        (Some(committed), _) => Err(Refusal::BranchOverruled { committed }),
        (None, None) => Err(Refusal::NoSuchBranch),
        (None, Some(open)) if open.timed_out => Err(timed_out(&partition.settings)),
        (None, Some(open)) => Ok(open.shares),
    };
    let shares = match shares {
        Ok(shares) => shares,
        Err(refusal) => return reply(connection, ticket, Err(refusal), effects),
    };
    let asked = by_participant(&shares);
    if asked.is_empty() {
        shares_ended(transactions(&shares), true, effects);
        return reply(connection, ticket, Err(Refusal::BranchEmpty), effects);
    }
    let participants = asked.keys().copied().collect();
    let mut coordination = Coordination::new(Purpose::Promise(branch), participants);
    coordination.answers.push((connection, ticket));
    coordination.shares = transactions(&shares);
    ask_to_prepare(&mut partition.leader, &partition.settings, asked, coordination, effects);
}

pub fn decide_branch(
    partition: &mut Partition,
    branch: &BranchId,
    decision: Decision,
    answer: (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    let (connection, ticket) = answer;
    if let Some(promised) = partition.state.branches.promised.get(branch).cloned() {
        return match decision {
            Decision::Rollback => decide_promised(partition, promised, false, answer, effects),
            Decision::Commit | Decision::CommitOnePhase => {
                decide_promised(partition, promised, true, answer, effects);
            }
            Decision::Overrule { commit } => {
                overrule_branch(partition, branch.clone(), promised, commit, answer, effects);
            }
        };
    }
    match take_to_decide(&mut partition.state, &mut partition.leader, &partition.settings, branch, decision) {
        Err(refusal) => reply(connection, ticket, Err(refusal), effects),
        Ok(Open { timed_out: true, .. }) => reply(connection, ticket, Ok(()), effects),
        Ok(open) if decision == Decision::Rollback => {
            undo_shares(partition, open.shares, Some(answer), false, effects);
        }
        Ok(open) => commit_shares(partition, &open.shares, answer, effects),
    }
}

/// Carries an open branch out at once: by one record if all of it lies here.
fn commit_shares(
    partition: &mut Partition,
    shares: &[Share],
    answer: (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    let asked = by_participant(shares);
    let participants: Vec<PartitionId> = asked.keys().copied().collect();
    let keys = transactions(shares);
    if participants.is_empty() {
        shares_ended(keys, true, effects);
        return answer_request(partition, Some(answer), Ok(()), effects);
    }
    if participants == [partition.settings.id] {
        return commit_here(partition, &asked[&partition.settings.id], keys, Some(answer), effects);
    }
    let mut coordination = Coordination::new(Purpose::Commit, participants);
    coordination.answers.push(answer);
    coordination.shares = keys;
    ask_to_prepare(&mut partition.leader, &partition.settings, asked, coordination, effects);
}

/// Applies the decision on a promise, or joins the requests that wait for the same.
fn decide_promised(
    partition: &mut Partition,
    Promised { id, participants }: Promised,
    commit: bool,
    answer: (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    if let Some(under_way) = partition.leader.transactions.coordinating.get_mut(&id) {
        return match commit == (under_way.purpose == Purpose::Commit) {
            true => under_way.answers.push(answer),
            false => answer_request(partition, Some(answer), Err(Refusal::BranchClosed), effects),
        };
    }
    let command = match commit {
        true => Command::Decide { id, participants: participants.clone() },
        false => Command::Abort { id },
    };
    end_promise(partition, id, participants, (commit, command), answer, effects);
}

/// An operator decides about a promise.
fn overrule_branch(
    partition: &mut Partition,
    branch: BranchId,
    Promised { id, participants }: Promised,
    commit: bool,
    answer: (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    // Its manager has spoken before.
    if partition.leader.transactions.coordinating.contains_key(&id) {
        return answer_request(partition, Some(answer), Err(Refusal::BranchClosed), effects);
    }
    let command = Command::Overrule { id, branch, participants: participants.clone(), commit };
    end_promise(partition, id, participants, (commit, command), answer, effects);
}

fn end_promise(
    partition: &mut Partition,
    id: TransactionId,
    participants: Vec<PartitionId>,
    (commit, command): (bool, Command),
    answer: (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    let (purpose, completion) = match commit {
        true => (Purpose::Commit, Completion::Decided { id }),
        false => (Purpose::Withdraw, Completion::Withdrawn { id }),
    };
    let mut coordination = Coordination::new(purpose, participants);
    coordination.answers.push(answer);
    coordination.shares = partition.leader.transactions.branches.shares.remove(&id).unwrap_or_default();
    begin_coordinating(&mut partition.leader, id, coordination);
    propose(partition, command, Urgency::Waiting, completion, effects);
}

pub fn apply_overrule(
    partition: &mut Partition,
    (id, branch): (TransactionId, BranchId),
    participants: Vec<PartitionId>,
    commit: bool,
    effects: &mut Vec<Effect>,
) {
    partition.state.branches.overrule(branch, commit);
    match commit {
        true => apply_decide(&mut partition.state, id, participants),
        false => apply_abort(partition, id, effects),
    }
}

pub fn forget_branch(
    partition: &mut Partition,
    branch: BranchId,
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    if partition.state.branches.overruled(&branch).is_none() {
        return reply(connection, ticket, Err(Refusal::NoSuchBranch), effects);
    }
    let completion = Completion::Reply { connection, ticket };
    propose(partition, Command::ForgetBranch { branch }, Urgency::Waiting, completion, effects);
}

/// Drops the unprepared work, everywhere.
pub fn undo_shares(
    partition: &mut Partition,
    shares: Vec<Share>,
    answer: Option<(ConnectionId, Ticket)>,
    timed_out: bool,
    effects: &mut Vec<Effect>,
) {
    let asked = by_participant(&shares);
    if asked.is_empty() {
        shares_ended(transactions(&shares), false, effects);
        return answer_request(partition, answer, Ok(()), effects);
    }
    let id = next_transaction_id(&mut partition.leader, &partition.settings);
    let mut coordination = Coordination::new(Purpose::Undo, asked.keys().copied().collect());
    coordination.answers.extend(answer);
    coordination.shares = transactions(&shares);
    for (to, transactions) in asked {
        tell(to, Peer::Discard { transactions, id, timed_out }, effects);
    }
    begin_coordinating(&mut partition.leader, id, coordination);
}

/// A connection is gone, and with it the open branches in which it worked.
pub fn undo_branches_of(partition: &mut Partition, connection: ConnectionId, effects: &mut Vec<Effect>) {
    let worked = |open: &Open| open.shares.iter().any(|share| share.transaction.connection == connection);
    let gone: Vec<BranchId> = (partition.leader.transactions.branches.open.iter())
        .filter(|(_, open)| worked(open))
        .map(|(branch, _)| branch.clone())
        .collect();
    for branch in gone {
        match partition.leader.transactions.branches.take_open(&branch) {
            Some(open) if !open.timed_out => undo_shares(partition, open.shares, None, false, effects),
            _ => {}
        }
    }
}

/// The promise is durable.
pub fn promised(partition: &mut Partition, id: TransactionId, effects: &mut Vec<Effect>) {
    let Some(ended) = end_coordinating(&mut partition.leader, id, effects) else { return };
    partition.leader.transactions.branches.keep_shares(id, ended.shares);
    answer_all(partition, ended.answers, &Ok(()), effects);
}
