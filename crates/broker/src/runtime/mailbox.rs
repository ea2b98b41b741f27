//! Mailboxes: what the core has for a connection, until the connection's task takes it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use postroad_model::{PartitionId, Position, Ticket, ToSession};

use crate::runtime::router::is_echo;

/// What a connection waits for.
#[derive(Clone, Copy)]
pub enum Wanted {
    /// Whatever is sent to its session.
    Messages,
    /// It is busy with a large message.
    Pieces {
        /// The next piece of it.
        pieces: bool,
        /// Messages too, but no deliveries.
        answers: bool,
    },
}

fn is_delivery(message: &ToSession) -> bool {
    matches!(message, ToSession::Deliver(_))
}

/// A piece of a large message, or why it cannot be had; by its partition and record.
type Piece = ((PartitionId, Position), Result<Bytes, String>);

/// One connection's mailbox. Its bytes are bounded by the core (`outbox_bytes_max`), its replies by
/// the questions that its session may have open.
#[derive(Default)]
pub struct Mailbox {
    messages: RefCell<VecDeque<ToSession>>,
    /// Pieces of a large message; they are asked for, a few at a time.
    chunks: RefCell<VecDeque<Piece>>,
    /// Tickets of replies that have come. That waits behind nothing: what is read of the client depends on it, and what is ahead of
    /// a reply may wait for what the client says.
    answered: RefCell<Vec<Ticket>>,
    /// Its client has connected anew. That does not wait for what is ahead of it, which nobody may ever take.
    evicted: Cell<bool>,
    /// Of the task that waits for the next message.
    waiting: RefCell<Option<Waker>>,
}

impl Mailbox {
    /// Puts a message in and wakes the connection's task.
    pub fn put(&self, message: ToSession) {
        match message {
            ToSession::Chunk { from, position, bytes } => {
                self.chunks.borrow_mut().push_back(((from, position), bytes));
            }
            ToSession::Evicted => self.evicted.set(true),
            message => {
                let ticket = if let ToSession::Reply { ticket, .. } = message { Some(ticket) } else { None };
                self.answered.borrow_mut().extend(ticket);
                if !ticket.is_some_and(is_echo) {
                    self.messages.borrow_mut().push_back(message);
                }
            }
        }
        if let Some(task) = self.waiting.take() {
            task.wake();
        }
    }

    /// The oldest message; with `but_deliveries` none, if that is a delivery.
    pub fn take(&self, but_deliveries: bool) -> Option<ToSession> {
        let mut messages = self.messages.borrow_mut();
        if but_deliveries {
            messages.pop_front_if(|message| !is_delivery(message))
        } else {
            messages.pop_front()
        }
    }

    /// Tells the tickets to which replies have come since the last time.
    pub fn each_answered(&self, each: impl FnMut(Ticket)) {
        self.answered.borrow_mut().drain(..).for_each(each);
    }

    /// The oldest piece.
    pub fn take_chunk(&self) -> Option<Piece> {
        self.chunks.borrow_mut().pop_front()
    }

    /// Waits until something that is wanted is in it, or a reply has come. One task may wait.
    pub async fn filled(&self, wanted: Wanted) {
        poll_fn(|context| {
            let has = match wanted {
                Wanted::Messages => !self.messages.borrow().is_empty(),
                Wanted::Pieces { pieces, answers } => {
                    let messages = self.messages.borrow();
                    pieces && !self.chunks.borrow().is_empty()
                        || answers && messages.front().is_some_and(|first| !is_delivery(first))
                }
            };
            if has || !self.answered.borrow().is_empty() { Poll::Ready(()) } else { self.wait(context) }
        })
        .await;
    }

    /// Waits until a reply has come. One task may wait.
    pub async fn answered(&self) {
        poll_fn(|context| match self.answered.borrow().is_empty() {
            true => self.wait(context),
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Waits until the connection is to end because its client has another one. The same task may wait for both.
    pub async fn evicted(&self) {
        poll_fn(|context| if self.evicted.get() { Poll::Ready(()) } else { self.wait(context) }).await;
    }

    fn wait(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.waiting.borrow_mut();
        match &mut *waiting {
            Some(task) => task.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_known_of_ahead_of_what_is_ahead_of_them() {
        let mailbox = Mailbox::default();
        let (session, echo) = (Ticket(7), Ticket(u64::MAX));
        assert!(is_echo(echo) && !is_echo(session));
        let consumer = postroad_model::ConsumerKey::new(postroad_model::ConnectionId::new(0, 1), 1);
        mailbox.put(ToSession::Drained { consumer });
        for ticket in [session, echo] {
            mailbox.put(ToSession::Reply { ticket, result: Ok(()) });
        }
        let take_answered = || {
            let mut answered = Vec::new();
            mailbox.each_answered(|ticket| answered.push(ticket));
            answered
        };
        assert_eq!(take_answered(), [session, echo]);
        assert_eq!(mailbox.take(false), Some(ToSession::Drained { consumer }));
        assert_eq!(mailbox.take(false), Some(ToSession::Reply { ticket: session, result: Ok(()) }));
        assert_eq!((mailbox.take(false), take_answered()), (None, vec![]), "no session hears of echoes");
    }
}
