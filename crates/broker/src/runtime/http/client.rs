//! The clients of a core's HTTP connections: many requests at a time, on behalf of users.

use std::cell::RefCell;
use std::rc::Rc;

use postroad_model::{
    ConnectionId, Destination, Event, LeaseAnswer, LeaseEvent, Message, Principal, Refusal, Ticket, ToSession,
};
use postroad_node::{ClientError, ClientLimits, ClientOptions, LocalClient};
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::runtime::connection::CoreHandle;

/// Answers to a request about leases.
pub type Answered = Result<Vec<LeaseAnswer>, Refusal>;

/// Requests of one client that wait for their answers: as many long polls as there may be connections, each with some streams.
const REQUESTS_MAX: usize = 1 << 16;

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
        let own = FrontClient::new(&handle, Principal::Operator, &closing);
        Rc::new(Fronts { handle, own, users: RefCell::default(), closing })
    }

    /// The client for requests of this principal.
    pub fn of(&self, principal: Principal) -> Rc<FrontClient> {
        let places = self.handle.core.borrow().places();
        let permits_all = places.borrow().permissions.permit_all() && !places.borrow().draining.is_on();
        if permits_all || principal == Principal::Operator {
            return self.own.clone();
        }
        let mut users = self.users.borrow_mut();
        if IDLE_USERS_MAX <= users.len() && !users.contains_key(&principal) {
            // Those without requests end.
            users.retain(|_, client| 1 < Rc::strong_count(client));
        }
        let make = || FrontClient::new(&self.handle, principal.clone(), &self.closing);
        users.entry(principal.clone()).or_insert_with(make).clone()
    }
}

/// A client whose errors are refusals.
pub struct FrontClient(LocalClient);

impl FrontClient {
    /// A client of this core, with a task that takes its answers in until `closing`.
    pub fn new(handle: &CoreHandle, principal: Principal, closing: &Rc<Notify>) -> Rc<FrontClient> {
        let limits = ClientLimits { requests_max: REQUESTS_MAX, ..ClientLimits::default() };
        let options = ClientOptions { name: "http".into(), principal, limits };
        let (client, mailbox) = LocalClient::join(&handle.of_clients(), options);
        let closing = closing.clone();
        tokio::task::spawn_local(async move {
            tokio::select! {
                () = closing.notified() => {}
                () = mailbox.run() => {}
            }
        });
        Rc::new(FrontClient(client))
    }

    /// Makes a request about leases, and waits for the answers. Dropped before they have come, a reserve or watch is cancelled.
    ///
    /// Large messages are left out: their bodies are read in pieces, which HTTP clients cannot take. Their leases expire, and
    /// consumers of other protocols get them.
    pub async fn lease(&self, event: impl FnOnce(ConnectionId, Ticket) -> LeaseEvent) -> Answered {
        let mut answers = self.0.lease(event).await.map_err(refusal)?;
        for answer in &mut answers {
            if let LeaseAnswer::Reserved(reserved) = answer {
                reserved.retain(|reserved| reserved.message.chunks().is_none());
            }
        }
        Ok(answers)
    }

    /// Posts messages, all or none. `None`: routes or composite destinations have passed them on.
    pub async fn post(
        &self,
        to: Destination,
        messages: Vec<Message>,
    ) -> Result<Option<Vec<LeaseAnswer>>, Refusal> {
        self.0.post(to, messages).await.map_err(refusal)
    }

    /// Makes a request, and waits until it is carried out.
    pub async fn ask(&self, event: impl FnOnce(ConnectionId, Ticket) -> Event) -> Result<(), Refusal> {
        self.0.request(event).await.map_err(refusal)?.result
    }

    /// Has dead letters redriven; returns how many were moved, and how many stay.
    pub async fn ask_redriven(
        &self,
        event: impl FnOnce(ConnectionId, Ticket) -> Event,
    ) -> Result<(u64, u64), Refusal> {
        let answer = self.0.request(event).await.map_err(refusal)?;
        answer.result?;
        let counts = answer.collected.iter().map(|message| match message {
            ToSession::Redriven { moved, stayed, .. } => (*moved, *stayed),
            _ => (0, 0),
        });
        Ok(counts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)))
    }
}

fn refusal(error: ClientError) -> Refusal {
    match error {
        ClientError::Refused(refusal) => refusal,
        other => Refusal::StoreFailed { reason: other.to_string() },
    }
}
