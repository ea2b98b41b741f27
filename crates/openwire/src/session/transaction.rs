//! Transactions: the local ones of a connection, and its shares of branches, which belong to no
//! connection once they are prepared.
//!
//! The work of a connection in a branch is a share. It is numbered like a local transaction, and
//! handed over to the coordinator of the branch once all sessions of the connection that have
//! started, resumed or joined the branch have ended or suspended their work: the steps name the
//! connection alone, so starts and ends are counted. A start after that begins another share.
//!
//! A session that never ends its work keeps the share of its connection open. Prepare, commit and
//! rollback by this connection take the share with them. If another connection prepares, the share
//! is no part of the branch: nothing of it is committed, its end is refused, and it is rolled back
//! with that or with its connection.

use std::collections::BTreeSet;

use postroad_model::{
    BranchId, BranchStanding, ConnectionId, Decision, Event, LookupMap, Refusal, Ticket, TransactionKey,
};

use super::exception::{Exception, XaCode};
use super::replies::{self, Then};
use super::{Done, OpenWireSession, Turn};
use crate::codec::{
    self, DataArrayResponse, DataStructure, IntegerResponse, LocalTransactionId, TransactionId,
    TransactionInfo, XaTransactionId,
};

/// Open transactions of one connection: a session has one at a time, and pools have hundreds of
/// sessions.
const OPEN_MAX: usize = 16_384;

/// Branches in one answer: an array on the wire has no more elements.
const LISTED_MAX: usize = i16::MAX as usize;

/// Votes of a resource (`XAResource.XA_OK`, `XAResource.XA_RDONLY`).
const XA_OK: i32 = 0;
const XA_READ_ONLY: i32 = 3;

/// Why a transaction can only be rolled back.
const PARTLY_REFUSED: &str = "rolled back: the broker refused a message or an acknowledgement of the \
     transaction; the exception listener of the connection, or its sender, has the reason";

/// Open transactions by the client's name.
#[derive(Default)]
pub struct Transactions {
    last: u64,
    open: LookupMap<LocalTransactionId, u64>,
    /// The share that is being done in each branch.
    shares: LookupMap<BranchId, OpenShare>,
    /// The branches found so far for each recover request.
    listed: LookupMap<Ticket, Vec<BranchId>>,
    /// Those that can only be rolled back.
    doomed: BTreeSet<u64>,
}

/// A share that is not handed over.
struct OpenShare {
    number: u64,
    /// Starts without their ends: a session may end its work while another one goes on.
    starts: u32,
}

impl Transactions {
    /// Whether the client is between transactions.
    pub fn are_none_open(&self) -> bool {
        self.open.len() + self.shares.len() == 0
    }

    /// A repeated begin continues it: its earlier work is still to be committed.
    fn begin(&mut self, id: &LocalTransactionId) {
        if self.open.contains_key(id) {
            return;
        }
        self.last += 1;
        let owned =
            |id: &codec::ConnectionId| codec::ConnectionId { value: id.value.as_ref().map(super::own) };
        let id = LocalTransactionId { connection_id: id.connection_id.as_ref().map(owned), ..*id };
        self.open.insert(id, self.last);
    }

    /// The session's number for an open transaction.
    pub fn find(&self, id: &TransactionId) -> Result<u64, Exception> {
        match id {
            TransactionId::Local(id) => self.open.get(id).copied().ok_or_else(|| {
                Exception::jms(&format!("transaction {} was not begun, or has ended", id.value))
            }),
            TransactionId::Xa(id) => {
                self.shares.get(&branch(id)?).map(|share| share.number).ok_or_else(|| {
                    Exception::xa(
                        XaCode::NotKnown,
                        "the branch was not started here, or was ended or suspended",
                    )
                })
            }
        }
    }

    fn start(&mut self, branch: BranchId) {
        match self.shares.get_mut(&branch) {
            Some(share) => share.starts = share.starts.saturating_add(1),
            None => {
                self.last += 1;
                self.shares.insert(branch, OpenShare { number: self.last, starts: 1 });
            }
        }
    }

    /// A session ends its work in the branch; whether another one of the connection goes on.
    fn leave(&mut self, branch: &BranchId) -> bool {
        let Some(share) = self.shares.get_mut(branch) else { return false };
        share.starts = share.starts.saturating_sub(1);
        share.starts > 0
    }

    fn end(&mut self, id: &TransactionId) -> Result<u64, Exception> {
        let number = self.find(id)?;
        if let TransactionId::Local(id) = id {
            self.open.remove(id);
        }
        Ok(number)
    }

    /// A part of the transaction could not be done, so nothing of it may be.
    pub fn doom(&mut self, transaction: Option<u64>) {
        self.doomed.extend(transaction);
    }

    /// The core's id of it.
    pub fn key(&self, connection: ConnectionId, number: u64) -> TransactionKey {
        TransactionKey { connection, number }
    }
}

/// The core's name for a branch.
///
/// # Errors
/// A part is longer than the XA specification allows.
fn branch(id: &XaTransactionId) -> Result<BranchId, Exception> {
    let part = |bytes: &Option<bytes::Bytes>| bytes.as_deref().unwrap_or_default().into();
    let branch = BranchId {
        format: id.format_id,
        transaction: part(&id.global_transaction_id),
        qualifier: part(&id.branch_qualifier),
    };
    let longest = branch.transaction.len().max(branch.qualifier.len());
    if longest > BranchId::PART_BYTES_MAX {
        let text =
            format!("a part of the Xid has {longest} bytes; the maximum is {}", BranchId::PART_BYTES_MAX);
        return Err(Exception::xa(XaCode::Invalid, &text));
    }
    Ok(branch)
}

fn on_the_wire(branch: &BranchId) -> DataStructure {
    let part = |bytes: &[u8]| Some(bytes::Bytes::copy_from_slice(bytes));
    DataStructure::TransactionId(TransactionId::Xa(Box::new(XaTransactionId {
        format_id: branch.format,
        global_transaction_id: part(&branch.transaction),
        branch_qualifier: part(&branch.qualifier),
    })))
}

/// The meaning of a refusal for the transaction manager.
pub fn branch_exception(refusal: &Refusal, step: BranchStep) -> Exception {
    let code = match (refusal, step) {
        (Refusal::NoSuchBranch, _) => XaCode::NotKnown,
        (Refusal::BranchOverruled { committed: true }, _) => XaCode::HeuristicCommit,
        (Refusal::BranchOverruled { committed: false }, _) => XaCode::HeuristicRollback,
        (Refusal::TransactionTimedOut { .. }, _) => XaCode::RolledBackTimeout,
        (Refusal::BranchNotPrepared | Refusal::BranchClosed, _) => XaCode::Protocol,
        (Refusal::StoreFailed { .. } | Refusal::StoreFull { .. }, BranchStep::Decide) => XaCode::Retry,
        (_, BranchStep::Prepare) => XaCode::RolledBack,
        _ => XaCode::Failed,
    };
    Exception::xa(code, &refusal.to_string())
}

/// Where in its life a branch is when the core answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchStep {
    /// A share has ended.
    End,
    /// It is to be prepared, or committed without that: if it fails, it is rolled back.
    Prepare,
    /// It is to be decided: if that fails it stays as it was.
    Decide,
}

impl OpenWireSession {
    pub(super) fn transact(
        &mut self,
        info: &TransactionInfo,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        if info.kind == TransactionInfo::RECOVER {
            let ticket = self.wait(1, None, Then::Recovered);
            turn.events.push(Event::ListBranches { connection: self.id, ticket });
            return Ok(Done::Later(ticket));
        }
        match (info.kind, &info.transaction_id) {
            (_, None) => Err(Exception::jms("TransactionInfo without a transaction id")),
            (kind, Some(TransactionId::Xa(id))) => self.branch_step(kind, branch(id)?, turn),
            (TransactionInfo::BEGIN, Some(TransactionId::Local(local))) => {
                self.check_open()?;
                self.transactions.begin(local);
                Ok(Done::Now)
            }
            (TransactionInfo::COMMIT_ONE_PHASE, Some(id)) => self.end(id, true, turn),
            (TransactionInfo::ROLLBACK, Some(id)) => self.end(id, false, turn),
            (kind, _) => Err(Exception::jms(&format!(
                "transaction step {kind} is not supported for local transactions"
            ))),
        }
    }

    fn check_open(&self) -> Result<(), Exception> {
        let open = self.transactions.open.len() + self.transactions.shares.len();
        replies::check_bound("open transactions", open, OPEN_MAX)
    }

    fn branch_step(&mut self, kind: u8, branch: BranchId, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        match kind {
            TransactionInfo::BEGIN => {
                self.check_open()?;
                self.transactions.start(branch);
                Ok(Done::Now)
            }
            TransactionInfo::END if self.transactions.leave(&branch) => Ok(Done::Now),
            TransactionInfo::END => self.end_share(&branch, turn),
            TransactionInfo::PREPARE => {
                self.end_share(&branch, turn)?;
                let ticket = self.wait(1, None, Then::Prepared);
                turn.events.push(Event::PrepareBranch { branch, connection: self.id, ticket });
                Ok(Done::Later(ticket))
            }
            TransactionInfo::COMMIT_ONE_PHASE => self.decide(branch, Decision::CommitOnePhase, turn),
            TransactionInfo::COMMIT_TWO_PHASE => self.decide(branch, Decision::Commit, turn),
            TransactionInfo::ROLLBACK => self.decide(branch, Decision::Rollback, turn),
            TransactionInfo::FORGET => {
                let ticket = self.wait(1, None, Then::Branch(BranchStep::Decide));
                turn.events.push(Event::ForgetBranch { branch, connection: self.id, ticket });
                Ok(Done::Later(ticket))
            }
            kind => Err(Exception::xa(XaCode::Invalid, &format!("transaction step {kind} is unknown"))),
        }
    }

    /// Hands over the connection's work in the branch since it started, resumed or joined it.
    fn end_share(&mut self, branch: &BranchId, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        let Some(share) = self.transactions.shares.remove(branch) else { return Ok(Done::Now) };
        let number = share.number;
        let ticket = self.wait(1, None, Then::Branch(BranchStep::End));
        let (branch, transaction) = (branch.clone(), self.transactions.key(self.id, number));
        let (undone, participants) = (branch.clone(), Vec::new());
        turn.events.push(Event::EndBranch { branch, transaction, participants, ticket });
        if !self.transactions.doomed.remove(&number) {
            return Ok(Done::Later(ticket));
        }
        let nobody = self.wait(1, None, Then::Nothing);
        let (branch, decision, connection) = (undone, Decision::Rollback, self.id);
        turn.events.push(Event::DecideBranch { branch, decision, connection, ticket: nobody });
        Err(Exception::xa(XaCode::RolledBackIntegrity, PARTLY_REFUSED))
    }

    fn decide(
        &mut self,
        branch: BranchId,
        decision: Decision,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        let ended = self.end_share(&branch, turn);
        if decision != Decision::Rollback {
            ended?;
        }
        let step = match decision {
            Decision::CommitOnePhase => BranchStep::Prepare,
            Decision::Commit | Decision::Rollback | Decision::Overrule { .. } => BranchStep::Decide,
        };
        let ticket = self.wait(1, None, Then::Branch(step));
        turn.events.push(Event::DecideBranch { branch, decision, connection: self.id, ticket });
        Ok(Done::Later(ticket))
    }

    /// The branch is prepared, or there was nothing to prepare, which ends it.
    pub(super) fn prepared(&mut self, respond: Option<i32>, refusal: Option<&Refusal>, turn: &mut Turn<'_>) {
        let result = match refusal {
            None => XA_OK,
            Some(Refusal::BranchEmpty) => XA_READ_ONLY,
            Some(refusal) => {
                return self.refuse(respond, &branch_exception(refusal, BranchStep::Prepare), turn);
            }
        };
        if let Some(correlation_id) = respond {
            let response = IntegerResponse { correlation_id, result, ..IntegerResponse::default() };
            self.send(response.into(), turn);
        }
    }

    /// Branches that are prepared, or were ended by an operator, of one partition of the broker.
    pub(super) fn listed(&mut self, ticket: Ticket, branches: Vec<(BranchId, BranchStanding)>) {
        let branches = branches.into_iter().map(|(branch, _)| branch);
        self.transactions.listed.get_or_insert_with(ticket, Vec::new).extend(branches);
    }

    /// All partitions have said which branches are in doubt.
    pub(super) fn recovered(&mut self, ticket: Ticket, respond: Option<i32>, turn: &mut Turn<'_>) {
        let branches = self.transactions.listed.remove(&ticket).unwrap_or_default();
        // The others are listed once these have ended: an answer that cannot be written would be
        // waited for in vain.
        let data = branches.iter().take(LISTED_MAX).map(on_the_wire).collect();
        let correlation_id = respond.unwrap_or(0);
        let response = DataArrayResponse { correlation_id, data: Some(data), ..DataArrayResponse::default() };
        self.send(response.into(), turn);
    }

    fn end(&mut self, id: &TransactionId, commit: bool, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        let number = self.transactions.end(id)?;
        let doomed = self.transactions.doomed.remove(&number);
        if commit && doomed {
            self.roll_back_doomed(number, turn);
            return Err(Exception::of("TransactionRolledBackException", PARTLY_REFUSED));
        }
        let ticket = self.wait(1, None, Then::Ended { transaction: number, commit });
        let transaction = self.transactions.key(self.id, number);
        turn.events.push(match commit {
            true => Event::Commit { transaction, participants: Vec::new(), ticket },
            false => Event::Rollback { transaction, ticket: Some(ticket) },
        });
        Ok(Done::Later(ticket))
    }

    fn roll_back_doomed(&mut self, number: u64, turn: &mut Turn<'_>) {
        let transaction = self.transactions.key(self.id, number);
        turn.events.push(Event::Rollback { transaction, ticket: None });
        self.ended(number, false);
    }

    /// The core has ended the transaction.
    pub(super) fn ended(&mut self, transaction: u64, committed: bool) {
        for consumer in self.consumers.iter_mut() {
            match committed {
                true => consumer.window.committed(transaction),
                false => consumer.window.rolled_back(transaction),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_is_begun_twice_is_one() {
        let local = |value| LocalTransactionId { value, connection_id: None };
        let mut transactions = Transactions::default();
        let numbers = [1, 1, 2].map(|value| {
            transactions.begin(&local(value));
            transactions.find(&TransactionId::Local(local(value)))
        });
        assert_eq!(numbers, [Ok(1), Ok(1), Ok(2)]);
    }
}
