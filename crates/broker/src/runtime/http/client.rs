//! The client of a core's HTTP connections: many requests at a time, told apart by their tickets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use postroad_model::{
    ConnectionId, Destination, Event, LeaseAnswer, LeaseEvent, Principal, Refusal, Ticket, ToSession,
};
use postroad_node::{Core, Mailbox, Router, Taken};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};

use crate::runtime::connection::CoreHandle;

/// What came of a request.
pub type Answered = Result<Vec<LeaseAnswer>, Refusal>;

/// Answers, and how many messages a redrive has moved and left.
type Counted = Result<(Vec<LeaseAnswer>, (u64, u64)), Refusal>;

/// See the head of this file.
pub struct FrontClient {
    handle: CoreHandle,
    connection: ConnectionId,
    mailbox: Rc<Mailbox>,
    router: RefCell<Router>,
    waiting: RefCell<FxHashMap<Ticket, Waiting>>,
    last_ticket: Cell<u64>,
    /// Tells requests that wait for others to be answered.
    room: Notify,
    /// No request will come any more.
    ended: Notify,
}

struct Waiting {
    answers: Vec<LeaseAnswer>,
    redriven: (u64, u64),
    done: oneshot::Sender<Counted>,
}

/// Clients of users that are kept while no request of theirs waits.
const IDLE_USERS_MAX: usize = 256;

/// The clients of one core's HTTP requests: one for the broker itself and, where permissions are configured, one for each user.
pub struct Fronts {
    handle: CoreHandle,
    own: Rc<FrontClient>,
    users: RefCell<FxHashMap<Principal, Rc<FrontClient>>>,
    closing: Rc<Notify>,
}

impl Fronts {
    /// Clients of this core that run until `closing`.
    pub fn new(handle: CoreHandle, closing: Rc<Notify>) -> Rc<Fronts> {
        let own = FrontClient::new(handle.clone(), Principal::Operator, &closing);
        Rc::new(Fronts { handle, own, users: RefCell::default(), closing })
    }

    /// The client for requests of this principal.
    pub fn of(&self, principal: Principal) -> Rc<FrontClient> {
        let permits_all = self.handle.core.borrow().places().borrow().permissions.permit_all();
        if permits_all || principal == Principal::Operator {
            return self.own.clone();
        }
        let mut users = self.users.borrow_mut();
        if IDLE_USERS_MAX <= users.len() && !users.contains_key(&principal) {
            users.retain(|_, client| {
                let is_idle = Rc::strong_count(client) <= FrontClient::IDLE_OWNERS;
                if is_idle {
                    client.ended.notify_one();
                }
                !is_idle
            });
        }
        let make = || FrontClient::new(self.handle.clone(), principal.clone(), &self.closing);
        users.entry(principal.clone()).or_insert_with(make).clone()
    }
}

impl FrontClient {
    /// The table of users and the task that takes answers in.
    const IDLE_OWNERS: usize = 2;

    /// A client of this core, with a task that takes its answers in.
    pub fn new(handle: CoreHandle, principal: Principal, closing: &Rc<Notify>) -> Rc<FrontClient> {
        let (connection, mailbox) = handle.core.borrow_mut().join();
        let places = handle.core.borrow().places();
        let mut router = Router::new(connection, places, handle.share.clone());
        router.guard(principal, &mailbox);
        let router = RefCell::new(router);
        let (waiting, last_ticket, room) = (RefCell::default(), Cell::new(0), Notify::new());
        let ended = Notify::new();
        let client =
            Rc::new(FrontClient { handle, connection, mailbox, router, waiting, last_ticket, room, ended });
        let (runs, closing) = (client.clone(), closing.clone());
        tokio::task::spawn_local(async move { runs.run(&closing).await });
        client
    }

    /// Takes answers in until `closing`, and leaves the core then.
    async fn run(self: Rc<FrontClient>, closing: &Notify) {
        let closed = closing.notified();
        let mut closed = std::pin::pin!(closed);
        loop {
            tokio::select! {
                () = self.mailbox.filled((Taken::All, false)) => self.take_answers(),
                () = closed.as_mut() => break,
                () = self.ended.notified() => break,
            }
        }
        self.waiting.borrow_mut().clear();
        let connection = self.connection;
        self.say(|core, router| {
            router.close(|partition, event| core.submit(partition, event));
            core.leave(connection);
        });
        // A core that ends waits until every connection has left.
        self.handle.wake.notify_one();
    }

    fn take_answers(&self) {
        self.mailbox.each_answered(|ticket| self.router.borrow_mut().answered(ticket));
        while let Some(message) = self.mailbox.take(Taken::All) {
            self.say(|core, router| router.note(&message, |partition, event| core.submit(partition, event)));
            let merged = self.router.borrow_mut().merge(message);
            match merged {
                Some(ToSession::Lease { ticket, answer }) => {
                    if let Some(waiting) = self.waiting.borrow_mut().get_mut(&ticket) {
                        waiting.answers.push(answer);
                    }
                }
                Some(ToSession::Redriven { ticket, moved, stayed }) => {
                    if let Some(waiting) = self.waiting.borrow_mut().get_mut(&ticket) {
                        waiting.redriven = (waiting.redriven.0 + moved, waiting.redriven.1 + stayed);
                    }
                }
                Some(ToSession::Reply { ticket, result }) => {
                    if let Some(Waiting { answers, redriven, done }) =
                        self.waiting.borrow_mut().remove(&ticket)
                    {
                        // Who asked may have gone.
                        let _ = done.send(result.map(|()| (answers, redriven)));
                    }
                }
                _ => {}
            }
        }
        self.room.notify_waiters();
    }

    /// Asks, and waits for the answer. Dropped before it has come, a reserve or watch is cancelled.
    pub async fn ask(&self, event: impl FnOnce(ConnectionId, Ticket) -> Event) -> Answered {
        self.ask_counted(event).await.map(|(answers, _)| answers)
    }

    /// Has dead letters redriven; returns how many were moved, and how many stay.
    pub async fn ask_redriven(
        &self,
        event: impl FnOnce(ConnectionId, Ticket) -> Event,
    ) -> Result<(u64, u64), Refusal> {
        self.ask_counted(event).await.map(|(_, redriven)| redriven)
    }

    async fn ask_counted(&self, event: impl FnOnce(ConnectionId, Ticket) -> Event) -> Counted {
        while !self.router.borrow().may_read() {
            self.room.notified().await;
        }
        let ticket = Ticket(self.last_ticket.get() + 1);
        self.last_ticket.set(ticket.0);
        let (done, answered) = oneshot::channel();
        self.waiting.borrow_mut().insert(ticket, Waiting { answers: Vec::new(), redriven: (0, 0), done });
        let event = event(self.connection, ticket);
        let polled = match &event {
            Event::Lease(event) => match &**event {
                LeaseEvent::Reserve(reserve) => Some(reserve.queue.clone()),
                LeaseEvent::Watch(watch) => Some(watch.queue.clone()),
                _ => None,
            },
            _ => None,
        };
        let mut asked = Asked { client: self, ticket, polled };
        self.say(|core, router| router.route(event, |partition, event| core.submit(partition, event)));
        let answer = answered.await;
        asked.polled = None;
        let reason = "the broker is shutting down".to_owned();
        answer.unwrap_or(Err(Refusal::StoreFailed { reason }))
    }

    /// Says something to the core, and has it done.
    fn say(&self, say: impl FnOnce(&mut Core, &mut Router)) {
        let mut core = self.handle.core.borrow_mut();
        say(&mut core, &mut self.router.borrow_mut());
        core.run();
        let wants_turn = core.wants_turn();
        drop(core);
        if wants_turn {
            self.handle.wake.notify_one();
        }
    }
}

/// A request that waits.
struct Asked<'c> {
    client: &'c FrontClient,
    ticket: Ticket,
    /// The queue of a reserve or watch.
    polled: Option<Destination>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(queue) = self.polled.take() else { return };
        self.client.waiting.borrow_mut().remove(&self.ticket);
        let (connection, ticket) = (self.client.connection, self.ticket);
        let event = Event::Lease(Box::new(LeaseEvent::Cancel { queue, connection, ticket }));
        self.client.say(|core, router| router.route(event, |partition, event| core.submit(partition, event)));
    }
}
