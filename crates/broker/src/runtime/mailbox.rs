//! Mailboxes: what the core has for a connection, until the connection's task takes it.

use std::cell::RefCell;
use std::collections::VecDeque;

use postroad_model::ToSession;
use tokio::sync::Notify;

/// One connection's mailbox. Its bytes are bounded by the core (`outbox_bytes_max`), its replies by
/// what the connection may have outstanding.
#[derive(Default)]
pub struct Mailbox {
    messages: RefCell<VecDeque<ToSession>>,
    arrived: Notify,
}

impl Mailbox {
    /// Puts a message in and wakes the connection's task.
    pub fn put(&self, message: ToSession) {
        self.messages.borrow_mut().push_back(message);
        self.arrived.notify_one();
    }

    /// The oldest message.
    pub fn take(&self) -> Option<ToSession> {
        self.messages.borrow_mut().pop_front()
    }

    /// Waits until something is put in.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }
}
