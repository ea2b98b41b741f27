//! Replies: which command of the client the core's answers belong to.

use postroad_model::{Destination, Refusal, Ticket};
use rustc_hash::FxHashMap;

use super::consumer::ConsumerNumber;
use super::exception::Exception;
use super::transaction::{BranchStep, branch_exception};
use super::{OpenWireSession, Turn};
use crate::codec::{ProducerAck, ProducerId};

/// Commands of one connection that may wait for the core. No more input is taken then until answers have come; sends
/// alone are held back earlier.
const WAITING_MAX: usize = 16_384;

/// Refuses what would make one of a connection's tables larger than `max`.
///
/// # Errors
/// A `ResourceAllocationException` that names `what` there is too much of.
pub fn check_bound(what: &str, count: usize, max: usize) -> Result<(), Exception> {
    if count < max {
        return Ok(());
    }
    let text = format!("too many {what} on this connection: the limit is {max}");
    Err(Exception::of("ResourceAllocationException", &text))
}

/// One command that waits for the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingId(Ticket);

/// What follows once the core has answered everything that a command asked of it.
#[derive(Debug)]
pub enum Then {
    /// Only the response.
    Respond,
    /// The broker asked for itself: not even a response.
    Nothing,
    /// A client id was claimed.
    Claimed,
    /// A destination was declared: others learn of a temporary one before the client has its response.
    Declared(Destination),
    /// A destination was deleted.
    Deleted(Destination),
    /// A message was sent: its producer's window opens again.
    Sent {
        /// The producer and the size of the message, if it has a window.
        window: Option<(ProducerId, i32)>,
    },
    /// A consumer was attached; if that fails it is forgotten.
    Attached(Vec<ConsumerNumber>),
    /// A branch is prepared: the client waits for its vote.
    Prepared,
    /// A step of a branch is done.
    Branch(BranchStep),
    /// The branches in doubt were listed.
    Recovered,
    /// A transaction has ended, well or badly.
    Ended {
        /// The session's number for it.
        transaction: u64,
        /// Whether it was to be committed.
        commit: bool,
    },
}

#[derive(Debug)]
struct Waiting {
    respond: Option<i32>,
    /// Answers that are outstanding.
    missing: u32,
    refusal: Option<Refusal>,
    then: Then,
}

/// All commands that wait.
#[derive(Default)]
pub struct Replies {
    last: u64,
    waiting: FxHashMap<Ticket, Waiting>,
}

impl Replies {
    /// A ticket for `answers` questions that make up one command.
    pub fn wait(&mut self, answers: u32, respond: Option<i32>, then: Then) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.waiting.insert(ticket, Waiting { respond, missing: answers, refusal: None, then });
        ticket
    }

    /// Whether another command may wait.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// The name under which a command waits.
    pub fn id(ticket: Ticket) -> WaitingId {
        WaitingId(ticket)
    }

    /// Says which response the client waits for.
    pub fn respond_to(&mut self, id: WaitingId, respond: Option<i32>) {
        if let Some(waiting) = self.waiting.get_mut(&id.0) {
            waiting.respond = respond;
        }
    }

    /// One answer has come; the command, if it was the last.
    fn count(&mut self, ticket: Ticket, result: Result<(), Refusal>) -> Option<Waiting> {
        let waiting = self.waiting.get_mut(&ticket)?;
        if let Err(refusal) = result {
            waiting.refusal.get_or_insert(refusal);
        }
        waiting.missing = waiting.missing.saturating_sub(1);
        if waiting.missing > 0 { None } else { self.waiting.remove(&ticket) }
    }
}

impl OpenWireSession {
    pub(super) fn replied(&mut self, ticket: Ticket, result: Result<(), Refusal>, turn: &mut Turn<'_>) {
        let Some(Waiting { respond, refusal, then, .. }) = self.replies.count(ticket, result) else { return };
        let failed = refusal.is_some();
        if let (Then::Declared(destination), false) = (&then, failed) {
            return self.declared(destination, respond, turn);
        }
        match (&then, &refusal) {
            (Then::Prepared, refusal) => return self.prepared(respond, refusal.as_ref(), turn),
            (Then::Recovered, None) => return self.recovered(ticket, respond, turn),
            (Then::Branch(step), Some(refusal)) => {
                return self.refuse(respond, &branch_exception(refusal, *step), turn);
            }
            _ => {}
        }
        match refusal {
            _ if matches!(then, Then::Nothing) => return,
            None => self.respond(respond, turn),
            Some(refusal) => self.refuse(respond, &Exception::from(&refusal), turn),
        }
        match then {
            Then::Respond | Then::Nothing | Then::Declared(_) => {}
            Then::Prepared | Then::Branch(_) | Then::Recovered => {}
            Then::Claimed => self.claimed(!failed),
            Then::Deleted(destination) if !failed => self.deleted(&destination, turn),
            Then::Deleted(_) => {}
            Then::Sent { window } => self.open_window(window, turn),
            Then::Attached(numbers) if failed => self.undo_attach(&numbers, turn),
            Then::Attached(_) => {}
            Then::Ended { transaction, commit } => self.ended(transaction, commit && !failed),
        }
    }

    fn open_window(&mut self, window: Option<(ProducerId, i32)>, turn: &mut Turn<'_>) {
        if let Some((producer_id, size)) = window {
            let ack = ProducerAck { producer_id: Some(producer_id), size, ..ProducerAck::default() };
            self.send(ack.into(), turn);
        }
    }
}
