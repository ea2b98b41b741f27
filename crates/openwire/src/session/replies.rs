//! Replies: which command of the client the core's answers belong to.

use postroad_model::{Destination, Refusal, Ticket};

use super::consumer::ConsumerNumber;
use super::durables::{offer_listed, offer_subscriptions};
use super::exception::Exception;
use super::transaction::{BranchStep, branch_exception};
use super::{OpenWireSession, Turn};
use crate::codec::{ProducerAck, ProducerId};

/// Refuses an entry that would make one of a connection's tables larger than `max`.
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

/// The continuation once the core has answered all requests of a command.
#[derive(Debug)]
pub enum Then {
    /// Only the response.
    Respond,
    /// Consumers were removed.
    Removed {
        /// The next removal, if one waits for this one.
        next: Option<Ticket>,
    },
    /// A piece of a large message.
    Piece,
    /// The broker asked for itself: not even a response.
    Nothing,
    /// A client id was claimed.
    Claimed,
    /// A destination was declared.
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
    /// Consumers were counted for a peer.
    Credit,
    /// Durable subscriptions were listed for a peer.
    Offered,
    /// A transaction has ended, well or badly.
    Ended {
        /// The session's number for it.
        transaction: u64,
        /// Whether it was to be committed.
        commit: bool,
    },
}

/// A command that waits for the core.
#[derive(Debug)]
pub struct Waiting {
    /// The response that the client waits for.
    respond: Option<i32>,
    pub(super) then: Then,
}

impl OpenWireSession {
    /// A ticket for `answers` questions that make up one command.
    pub(super) fn wait(&mut self, answers: u32, respond: Option<i32>, then: Then) -> Ticket {
        self.replies.wait(answers, Waiting { respond, then })
    }

    /// Says which response the client waits for.
    pub(super) fn respond_later(&mut self, ticket: Ticket, respond: Option<i32>) {
        if let Some(waiting) = self.replies.then(ticket) {
            waiting.respond = respond;
        }
    }

    pub(super) fn replied(&mut self, ticket: Ticket, result: Result<(), Refusal>, turn: &mut Turn<'_>) {
        let mut last = Some((ticket, result));
        while let Some((ticket, result)) = last.take()
            && let Some((waiting, refusal)) = self.replies.count(ticket, result)
        {
            match waiting.then {
                Then::Removed { next } => {
                    self.respond_with(waiting.respond, refusal.as_ref(), turn);
                    // The next is refused, too: its client would take this one for confirmed.
                    last = next.map(|next| (next, refusal.map_or(Ok(()), Err)));
                }
                _ => self.go_on(ticket, waiting, refusal, turn),
            }
        }
    }

    /// The response says how it has ended.
    fn respond_with(&mut self, respond: Option<i32>, refusal: Option<&Refusal>, turn: &mut Turn<'_>) {
        match refusal {
            None => self.respond(respond, turn),
            Some(refusal) => self.refuse(respond, &Exception::from(refusal), turn),
        }
    }

    /// All answers have come.
    fn go_on(
        &mut self,
        ticket: Ticket,
        Waiting { respond, then }: Waiting,
        refusal: Option<Refusal>,
        turn: &mut Turn<'_>,
    ) {
        let failed = refusal.is_some();
        match (&then, &refusal) {
            (Then::Prepared, refusal) => return self.prepared(respond, refusal.as_ref(), turn),
            (Then::Piece, _) => return self.piece_answered(refusal),
            (Then::Credit, refusal) => return self.credit_counted(ticket, refusal.as_ref(), turn),
            (Then::Offered, refusal) => return offer_listed(self, refusal.as_ref(), turn),
            (Then::Recovered, None) => return self.recovered(ticket, respond, turn),
            (Then::Branch(step), Some(refusal)) => {
                return self.refuse(respond, &branch_exception(refusal, *step), turn);
            }
            _ => {}
        }
        if matches!(then, Then::Nothing) {
            return;
        }
        self.respond_with(respond, refusal.as_ref(), turn);
        match then {
            Then::Respond | Then::Removed { .. } | Then::Nothing | Then::Piece => {}
            Then::Declared(destination) if !failed => self.declared(&destination),
            Then::Declared(_) => {}
            Then::Prepared | Then::Branch(_) | Then::Recovered | Then::Credit | Then::Offered => {}
            Then::Claimed => self.claimed(!failed, turn),
            Then::Deleted(destination) if !failed => self.deleted(&destination),
            Then::Deleted(_) => {}
            Then::Sent { window } => self.open_window(window, turn),
            Then::Attached(numbers) if failed => self.undo_attach(&numbers, turn),
            Then::Attached(_) => offer_subscriptions(self, turn),
            Then::Ended { transaction, commit } => self.ended(transaction, commit && !failed),
        }
    }

    /// A producer hears that the window which its message took is free again, whatever became of
    /// the message.
    pub(super) fn open_window(&mut self, window: Option<(ProducerId, i32)>, turn: &mut Turn<'_>) {
        if let Some((producer_id, size)) = window {
            let ack = ProducerAck { producer_id: Some(producer_id), size, ..ProducerAck::default() };
            self.send(ack.into(), turn);
        }
    }
}
