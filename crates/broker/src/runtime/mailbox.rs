//! Mailboxes: what the core has for a connection, until the connection's task takes it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use bytes::Bytes;
use postroad_model::{Position, ToSession};

/// One connection's mailbox. Its bytes are bounded by the core (`outbox_bytes_max`), its replies by
/// what the connection may have outstanding.
#[derive(Default)]
pub struct Mailbox {
    messages: RefCell<VecDeque<ToSession>>,
    /// Pieces of a large message; they are asked for, a few at a time.
    chunks: RefCell<VecDeque<(Position, Result<Bytes, String>)>>,
    /// Of the task that waits for the next message.
    waiting: RefCell<Option<Waker>>,
}

impl Mailbox {
    /// Puts a message in and wakes the connection's task.
    pub fn put(&self, message: ToSession) {
        match message {
            ToSession::Chunk { position, bytes } => {
                self.chunks.borrow_mut().push_back((position, bytes));
            }
            message => self.messages.borrow_mut().push_back(message),
        }
        if let Some(task) = self.waiting.take() {
            task.wake();
        }
    }

    /// The oldest message.
    pub fn take(&self) -> Option<ToSession> {
        self.messages.borrow_mut().pop_front()
    }

    /// The oldest piece.
    pub fn take_chunk(&self) -> Option<(Position, Result<Bytes, String>)> {
        self.chunks.borrow_mut().pop_front()
    }

    /// Waits until something is in it; a piece, if it is `for_chunks` alone. One task may wait.
    pub async fn filled(&self, for_chunks: bool) {
        poll_fn(|context| {
            let is_empty =
                if for_chunks { self.chunks.borrow().is_empty() } else { self.messages.borrow().is_empty() };
            if !is_empty {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            match &mut *waiting {
                Some(task) => task.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}
