//! Mailboxes: the core's output for a connection, until the connection's task takes it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use postroad_model::{PartitionId, Position, Ticket, ToSession};

use crate::router::is_echo;

/// Which messages a connection takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Any.
    All,
    /// But no deliveries: it is sending a large message, and may say something else between its
    /// pieces. Replies pass deliveries that wait: reading from the client depends on them, and so
    /// does the rest of the large message.
    ButDeliveries,
    /// Replies alone, wherever they are: it has a large message which its session does not know
    /// yet, and output for a consumer comes after that.
    Replies,
    /// None: it is sending a large message.
    None,
}

impl Taken {
    /// Where the oldest of those is.
    fn find(self, messages: &VecDeque<ToSession>) -> Option<usize> {
        let reply = || messages.iter().position(|message| matches!(message, ToSession::Reply { .. }));
        match self {
            Taken::All => (!messages.is_empty()).then_some(0),
            Taken::ButDeliveries => match messages.front()? {
                ToSession::Deliver(_) => reply(),
                _ => Some(0),
            },
            Taken::Replies => reply(),
            Taken::None => None,
        }
    }
}

/// Why a connection's task is called, apart from messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Its client has a new connection.
    Evicted,
    /// A step of a handover has begun.
    Handover,
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
    /// Tickets of replies that have come. They never wait: reading from the client depends on them,
    /// and output before a reply may wait for the client's next input.
    answered: RefCell<Vec<Ticket>>,
    /// Its client has a new connection. That does not wait for earlier output, which may never be
    /// taken.
    evicted: Cell<bool>,
    /// A step of a handover has begun.
    handover: Cell<bool>,
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

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.messages.borrow().is_empty()
    }

    /// The oldest message, if it is one of these.
    pub fn take(&self, taken: Taken) -> Option<ToSession> {
        let mut messages = self.messages.borrow_mut();
        let found = taken.find(&messages)?;
        messages.remove(found)
    }

    /// Reports the tickets to which replies have come since the last call.
    pub fn each_answered(&self, each: impl FnMut(Ticket)) {
        self.answered.borrow_mut().drain(..).for_each(each);
    }

    /// The oldest piece.
    pub fn take_chunk(&self) -> Option<Piece> {
        self.chunks.borrow_mut().pop_front()
    }

    /// Waits until one of these messages is there, a piece has come, if any is wanted, or a reply
    /// has come. One task may wait.
    pub async fn filled(&self, (messages, pieces): (Taken, bool)) {
        poll_fn(|context| {
            let has = pieces && !self.chunks.borrow().is_empty()
                || messages.find(&self.messages.borrow()).is_some();
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

    /// Waits until the connection is to end because its client has another one. The same task may
    /// wait for both.
    pub async fn evicted(&self) {
        poll_fn(|context| if self.evicted.get() { Poll::Ready(()) } else { self.wait(context) }).await;
    }

    /// Waits until the connection is to end because its client has another one, or is to look at a
    /// handover. The same task may wait for both.
    pub async fn called(&self) -> Call {
        poll_fn(|context| match (self.evicted.get(), self.handover.take()) {
            (true, _) => Poll::Ready(Call::Evicted),
            (false, true) => Poll::Ready(Call::Handover),
            (false, false) => self.wait(context).map(|()| Call::Handover),
        })
        .await
    }

    /// Has the task look at a handover.
    pub fn call(&self) {
        self.handover.set(true);
        if let Some(task) = self.waiting.take() {
            task.wake();
        }
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
    fn replies_pass_deliveries_while_a_large_message_is_sent() {
        let mailbox = Mailbox::default();
        let consumer = postroad_model::ConsumerKey::new(postroad_model::ConnectionId::new(0, 1), 1);
        let message = postroad_model::Message {
            encoding: postroad_model::Encoding { protocol: postroad_model::Protocol::Amqp, version: 0 },
            persistent: true,
            priority: postroad_model::NORMAL_PRIORITY,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::new(),
        };
        let delivery = postroad_model::Delivery {
            consumer,
            source: None,
            tag: postroad_model::EntryTag(1),
            queue: (postroad_model::PartitionId(0), postroad_model::QueueId(0)),
            failed_deliveries: 0,
            by_policy: false,
            first_of_group: false,
            trace: None,
            message,
        };
        let reply = |number| ToSession::Reply { ticket: Ticket(number), result: Ok(()) };
        mailbox.put(ToSession::Deliver(delivery.clone()));
        (1..=4).for_each(|number| mailbox.put(reply(number)));
        mailbox.put(ToSession::Drained { consumer });
        for (case, taken, want) in [
            ("it sends one", Taken::None, None),
            ("it may say something between", Taken::ButDeliveries, Some(reply(1))),
            ("it finds out how long one will be", Taken::Replies, Some(reply(2))),
            ("it has sent it", Taken::All, Some(ToSession::Deliver(delivery))),
            ("it sends one again", Taken::ButDeliveries, Some(reply(3))),
            ("it finds that out again", Taken::Replies, Some(reply(4))),
            ("what concerns a consumer comes behind it", Taken::Replies, None),
            ("but for one that is on its way", Taken::ButDeliveries, Some(ToSession::Drained { consumer })),
        ] {
            assert_eq!(mailbox.take(taken), want, "{case}");
        }
    }

    #[test]
    fn replies_are_known_of_ahead_of_what_is_ahead_of_them() {
        let mailbox = Mailbox::default();
        let (session, echo) = (Ticket(7), Ticket(u64::MAX));
        assert!(is_echo(echo) && !is_echo(session));
        let consumer = postroad_model::ConsumerKey::new(postroad_model::ConnectionId::new(0, 1), 1);
        mailbox.put(ToSession::Drained { consumer });
        for (case, taken, want) in [
            ("it has a large message", Taken::Replies, None),
            ("it sends one", Taken::None, None),
            (
                "it sends one, and may interrupt it",
                Taken::ButDeliveries,
                Some(ToSession::Drained { consumer }),
            ),
        ] {
            assert_eq!(mailbox.take(taken), want, "{case}");
        }
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
        assert_eq!(mailbox.take(Taken::All), Some(ToSession::Drained { consumer }));
        assert_eq!(mailbox.take(Taken::All), Some(ToSession::Reply { ticket: session, result: Ok(()) }));
        assert_eq!((mailbox.take(Taken::All), take_answered()), (None, vec![]), "no session hears of echoes");
    }
}
