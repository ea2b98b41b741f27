//! Mailboxes: what the core has for a connection, until the connection's task takes it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use postroad_model::{PartitionId, Position, ToSession};

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
/// what the connection may have outstanding.
#[derive(Default)]
pub struct Mailbox {
    messages: RefCell<VecDeque<ToSession>>,
    /// Pieces of a large message; they are asked for, a few at a time.
    chunks: RefCell<VecDeque<Piece>>,
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
            message => self.messages.borrow_mut().push_back(message),
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

    /// The oldest piece.
    pub fn take_chunk(&self) -> Option<Piece> {
        self.chunks.borrow_mut().pop_front()
    }

    /// Waits until something that is wanted is in it. One task may wait.
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
            if has { Poll::Ready(()) } else { self.wait(context) }
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
