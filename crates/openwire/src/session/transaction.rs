//! Local transactions of a connection.

use std::collections::{BTreeSet, HashMap};

use postroad_model::{ConnectionId, Event, Parting, TransactionKey};

use super::exception::Exception;
use super::replies::{self, Then};
use super::{OpenWireSession, Turn};
use crate::codec::{self, DataArrayResponse, LocalTransactionId, TransactionId, TransactionInfo};

/// Open transactions of one connection: a session has one at a time, and pools have hundreds of sessions.
const OPEN_MAX: usize = 16_384;

/// Open transactions by the client's name.
#[derive(Default)]
pub struct Transactions {
    last: u64,
    open: HashMap<LocalTransactionId, u64>,
    /// Those that can only be rolled back.
    doomed: BTreeSet<u64>,
}

impl Transactions {
    fn begin(&mut self, id: &LocalTransactionId) {
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
            TransactionId::Xa(_) => Err(xa_unsupported()),
        }
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

    /// What the core calls it.
    pub fn key(&self, connection: ConnectionId, number: u64) -> TransactionKey {
        TransactionKey { connection, number }
    }
}

fn xa_unsupported() -> Exception {
    Exception::jms("XA transactions are not supported yet")
}

impl OpenWireSession {
    pub(super) fn transact(
        &mut self,
        info: &TransactionInfo,
        respond: Option<i32>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        if let Err(exception) = self.step(info, respond, turn) {
            self.refuse(respond, &exception, turn);
        }
        Ok(())
    }

    fn step(
        &mut self,
        info: &TransactionInfo,
        respond: Option<i32>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Exception> {
        if info.kind == TransactionInfo::RECOVER {
            // There are no prepared branches to recover.
            let response =
                DataArrayResponse { correlation_id: respond.unwrap_or(0), ..DataArrayResponse::default() };
            self.send(response.into(), turn);
            return Ok(());
        }
        let Some(id) = &info.transaction_id else {
            return Err(Exception::jms("TransactionInfo without a transaction id"));
        };
        match (info.kind, id) {
            (_, TransactionId::Xa(_)) => Err(xa_unsupported()),
            (TransactionInfo::BEGIN, TransactionId::Local(local)) => {
                replies::check_bound("open transactions", self.transactions.open.len(), OPEN_MAX)?;
                self.transactions.begin(local);
                self.respond(respond, turn);
                Ok(())
            }
            (TransactionInfo::COMMIT_ONE_PHASE, _) => self.end(id, true, respond, turn),
            (TransactionInfo::ROLLBACK, _) => self.end(id, false, respond, turn),
            (kind, _) => Err(Exception::jms(&format!(
                "transaction step {kind} is not supported for local transactions"
            ))),
        }
    }

    fn end(
        &mut self,
        id: &TransactionId,
        commit: bool,
        respond: Option<i32>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Exception> {
        let number = self.transactions.end(id)?;
        let doomed = self.transactions.doomed.remove(&number);
        if commit && doomed {
            self.roll_back_doomed(number, turn);
            let text =
                "rolled back: an acknowledgement in the transaction was for a message that was not held";
            return Err(Exception::of("TransactionRolledBackException", text));
        }
        let ticket = self.replies.wait(1, respond, Then::Ended { transaction: number, commit });
        let transaction = self.transactions.key(self.id, number);
        turn.events.push(match commit {
            true => Event::Commit { transaction, participants: Vec::new(), ticket },
            false => Event::Rollback { transaction, ticket: Some(ticket) },
        });
        Ok(())
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
