//! The task of a client: takes the core's output, and hands it to requests and consumers.

use std::rc::Rc;

use postroad_model::{Ticket, ToSession};

use crate::client::{Answer, Joined};
use crate::mailbox::Taken;
use crate::tracer::Traced;

/// This number of messages is taken before others on the thread have their turn.
const MESSAGES_PER_TURN: usize = 256;

/// See [`crate::LocalClient::join`].
#[must_use = "a client without its task is never answered"]
pub struct MailboxTask {
    joined: Rc<Joined>,
}

impl MailboxTask {
    pub(super) fn new(joined: Rc<Joined>) -> MailboxTask {
        MailboxTask { joined }
    }

    /// Runs until the last clone of the client is gone, or the broker ends it.
    pub async fn run(self) {
        let joined = self.joined.clone();
        loop {
            tokio::select! {
                // In this order: the simulator can repeat a run only if nothing is drawn here.
                biased;
                () = joined.mailbox.evicted() => return,
                () = joined.released.notified() => return,
                () = joined.mailbox.filled((Taken::All, true)) => {}
            }
            if !self.take() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes the available ones; `false` if there are more.
    fn take(&self) -> bool {
        let joined = &self.joined;
        joined.mailbox.each_answered(|ticket| joined.state.borrow_mut().router.answered(ticket));
        while let Some((of, piece)) = joined.mailbox.take_chunk() {
            for waiting in joined.state.borrow_mut().pieces.remove(&of).unwrap_or_default() {
                // The reader may have gone.
                let _ = waiting.send(piece.clone());
            }
        }
        let mut taken = 0;
        while taken < MESSAGES_PER_TURN
            && let Some(message) = joined.mailbox.take(Taken::All)
        {
            taken += 1;
            joined.take(message);
        }
        joined.handle.tell(|_| ());
        joined.room.notify_waiters();
        taken < MESSAGES_PER_TURN
    }
}

impl Drop for MailboxTask {
    fn drop(&mut self) {
        self.joined.end();
    }
}

impl Joined {
    fn take(&self, message: ToSession) {
        // A delivery counts as written out when its consumer takes it.
        if let ToSession::Deliver(delivery) = message {
            if let Some(traced) = Traced::of(&delivery) {
                self.state.borrow().router.note_written(&traced);
            }
            let inbox = self.state.borrow().consumers.get(&delivery.consumer.number).cloned();
            return match inbox {
                Some(inbox) => inbox.put(delivery),
                None => self.note(&ToSession::Deliver(delivery)),
            };
        }
        self.note(&message);
        let mut state = self.state.borrow_mut();
        let Some(message) = state.router.merge(message) else { return };
        let mut core = self.handle.core.borrow_mut();
        state.router.resume(|partition, event| core.submit(partition, event));
        drop(core);
        match message {
            ToSession::Reply { ticket, result } => {
                if let Some(request) = state.requests.remove(&ticket) {
                    // Its waiting request may be gone.
                    let _ = request.answer.send(Answer { result, collected: request.collected });
                }
            }
            ToSession::Drained { consumer } => {
                state.consumers.get(&consumer.number).into_iter().for_each(|inbox| inbox.drained());
            }
            ToSession::Detached { consumer, cause } => {
                let inbox = state.consumers.remove(&consumer.number);
                inbox.into_iter().for_each(|inbox| inbox.detached(cause));
            }
            message => {
                if let Some(request) = ticket_of(&message).and_then(|ticket| state.requests.get_mut(&ticket))
                {
                    request.collected.push(message);
                }
            }
        }
    }

    pub(super) fn note(&self, message: &ToSession) {
        let mut state = self.state.borrow_mut();
        let mut core = self.handle.core.borrow_mut();
        state.router.note(message, |partition, event| core.submit(partition, event));
    }

    /// The client is gone: waiting requests get an error, and the partitions are notified.
    fn end(&self) {
        let mut state = self.state.borrow_mut();
        state.has_ended = true;
        state.requests.clear();
        state.pieces.clear();
        for (_, inbox) in state.consumers.drain() {
            inbox.ended();
        }
        self.handle.tell(|core| {
            state.router.close(|partition, event| core.submit(partition, event));
        });
        self.handle.core.borrow_mut().leave(self.id);
        drop(state);
        self.handle.wake.notify_one();
        self.room.notify_waiters();
    }
}

/// The request that this is a part of the answer to.
fn ticket_of(message: &ToSession) -> Option<Ticket> {
    match message {
        ToSession::Branches { ticket, .. }
        | ToSession::Unsettled { ticket, .. }
        | ToSession::Redriven { ticket, .. }
        | ToSession::Moves { ticket, .. }
        | ToSession::Page { ticket, .. }
        | ToSession::Lease { ticket, .. } => Some(*ticket),
        _ => None,
    }
}
