//! The clients of a core's HTTP connections: many requests at a time, on behalf of users.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postroad_model::{
    Action, ConnectionId, Destination, Event, LeaseAnswer, LeaseEvent, Message, Principal, Refusal, Reserve,
    Reserved, Ticket, ToSession,
};
use postroad_node::{
    Ahead, ClientError, ClientLimits, ClientOptions, ConnectionPermit, LocalClient, TenantMeters,
};
use postroad_routing::Permissions;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::bodies::{Bodies, Room};
use crate::runtime::connection::{CoreHandle, log_refused_request};
use crate::runtime::ticks_ms;

/// Answers to a request about leases.
pub type Answered = Result<Vec<LeaseAnswer>, Refusal>;

/// Requests of one client that wait for their answers: as many long polls as there may be
/// connections, each with some streams.
const REQUESTS_MAX: usize = 1 << 16;

/// Bytes of headers and properties that a message may have beyond the limit of its body.
const HEADERS_BYTES: u64 = 64 << 10;

/// A post waits no longer for the rate of its tenant.
const PACED_MAX: Duration = Duration::from_secs(5);

/// Clients of users that are kept while no request of theirs waits.
const IDLE_USERS_MAX: usize = 256;

/// The clients of one core's HTTP requests: one for the broker itself and, where permissions are
/// configured, one for each user.
pub struct Fronts {
    handle: CoreHandle,
    own: Rc<LocalClient>,
    users: RefCell<FxHashMap<Principal, Rc<LocalClient>>>,
    bodies: Bodies,
    closing: Rc<Notify>,
}

impl Fronts {
    /// Clients of this core that run until `closing`.
    pub fn new(handle: CoreHandle, closing: Rc<Notify>) -> Rc<Fronts> {
        let own = join(&handle, Principal::Operator, &closing);
        Rc::new(Fronts { handle, own, users: RefCell::default(), bodies: Bodies::default(), closing })
    }

    /// A client for one request of this principal, which takes a place among the connections of its
    /// tenant.
    ///
    /// # Errors
    /// [`Refusal::TooManyConnections`].
    pub fn of(&self, principal: Principal) -> Result<FrontClient, Refusal> {
        let places = self.handle.core.borrow().places();
        let (permit, tenants) = (places.borrow().permit(&principal)?, places.borrow().tenants.clone());
        let (client, bodies) = (self.client_of(principal.clone()), self.bodies.clone());
        let caller = Caller { principal, permissions: places.borrow().permissions.clone() };
        Ok(FrontClient { client, bodies, room: RefCell::default(), tenants, caller, _permit: permit })
    }

    fn client_of(&self, principal: Principal) -> Rc<LocalClient> {
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
        let make = || join(&self.handle, principal.clone(), &self.closing);
        users.entry(principal.clone()).or_insert_with(make).clone()
    }
}

/// A client of this core, with a task that takes its answers in until `closing`.
fn join(handle: &CoreHandle, principal: Principal, closing: &Rc<Notify>) -> Rc<LocalClient> {
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
    Rc::new(client)
}

/// The principal of requests, with the permissions in force when they began.
#[derive(Clone)]
struct Caller {
    principal: Principal,
    permissions: Arc<Permissions>,
}

impl Caller {
    fn check_writes<'q>(&self, mut queues: impl Iterator<Item = &'q str>) -> Result<(), Refusal> {
        let grants = self.permissions.grants_of(&self.principal);
        queues.try_for_each(|queue| grants.check(&self.principal, Action::Write, &Destination::queue(queue)))
    }
}

/// A client whose errors are refusals: for one request, or for tasks of the broker.
pub struct FrontClient {
    client: Rc<LocalClient>,
    bodies: Bodies,
    /// Memory of the large bodies that the request has been given.
    room: RefCell<Room>,
    tenants: TenantMeters,
    caller: Caller,
    _permit: Option<ConnectionPermit>,
}

impl FrontClient {
    /// A client of the broker itself with memory for large bodies of its own.
    pub fn new(handle: &CoreHandle, closing: &Rc<Notify>) -> Rc<FrontClient> {
        let client = join(handle, Principal::Operator, closing);
        let (bodies, room, tenants) = (Bodies::default(), RefCell::default(), TenantMeters::default());
        let caller = Caller { principal: Principal::Operator, permissions: Arc::default() };
        Rc::new(FrontClient { client, bodies, room, tenants, caller, _permit: None })
    }

    /// The same client, for work that outlives this request.
    pub fn another(&self) -> FrontClient {
        let (client, bodies, tenants) = (self.client.clone(), self.bodies.clone(), self.tenants.clone());
        let caller = self.caller.clone();
        FrontClient { client, bodies, room: RefCell::default(), tenants, caller, _permit: None }
    }

    /// Checks that the caller may write to these queues, which the broker will do in its place.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`] for the first queue to which it may not.
    pub fn check_writes<'q>(&self, queues: impl Iterator<Item = &'q str>) -> Result<(), Refusal> {
        self.caller.check_writes(queues).inspect_err(log_refused_request)
    }

    /// Makes a request about leases, and waits for the answers. Dropped before they have come, a
    /// watch is cancelled.
    pub async fn lease(&self, event: impl FnOnce(ConnectionId, Ticket) -> LeaseEvent) -> Answered {
        self.client.lease(event).await.map_err(refusal)
    }

    /// Reserves messages, without their large bodies. Those larger than `bytes_max` are left out:
    /// their leases expire, and consumers of other protocols get them. Dropped before the answer
    /// has come, the reserve is cancelled.
    pub async fn reserve(
        &self,
        reserve: impl FnOnce(ConnectionId, Ticket) -> Reserve,
        bytes_max: u64,
    ) -> Result<Vec<Reserved>, Refusal> {
        let mut queue = None;
        let event = |connection, ticket| {
            let reserve = reserve(connection, ticket);
            queue = Some(reserve.queue.clone());
            LeaseEvent::Reserve(reserve)
        };
        let answers = self.lease(event).await?;
        let reserved = answers.into_iter().find_map(|answer| match answer {
            LeaseAnswer::Reserved(reserved) => Some(reserved),
            _ => None,
        });
        let mut reserved = reserved.unwrap_or_default();
        reserved.retain(|reserved| {
            let (bytes, fits) =
                (reserved.message.size(), reserved.message.size() <= bytes_max + HEADERS_BYTES);
            if !fits && let Some(queue) = &queue {
                passed_over(&queue.name, bytes, bytes_max);
            }
            fits
        });
        Ok(reserved)
    }

    /// Reserves messages, complete: their large bodies are in memory until
    /// [`FrontClient::take_room`] is dropped.
    pub async fn reserve_whole(
        &self,
        reserve: impl FnOnce(ConnectionId, Ticket) -> Reserve,
        bytes_max: u64,
    ) -> Result<Vec<Reserved>, Refusal> {
        let mut reserved = self.reserve(reserve, bytes_max).await?;
        let room = self.complete(&mut reserved).await?;
        self.room.replace_with(|own| std::mem::take(own).with(room));
        Ok(reserved)
    }

    /// Reads large bodies. Messages that cannot be read are left out.
    pub async fn complete(&self, reserved: &mut Vec<Reserved>) -> Result<Room, Refusal> {
        let room = self.bodies.room_for(reserved).await?;
        let mut complete = Vec::with_capacity(reserved.len());
        for mut one in std::mem::take(reserved) {
            if one.message.chunks().is_none() {
                complete.push(one);
                continue;
            }
            match self.client.whole_of(&one).await {
                Ok(message) => {
                    one.message = message;
                    complete.push(one);
                }
                Err(error @ ClientError::Unreadable { .. }) => {
                    tracing::warn!(%error, "an HTTP client does not get a large message");
                }
                Err(error) => return Err(refusal(error)),
            }
        }
        *reserved = complete;
        Ok(room)
    }

    /// The memory of the large bodies that were reserved: to be kept as long as they are.
    pub fn take_room(&self) -> Room {
        self.room.take()
    }

    /// Posts messages, all or none. `None`: routes or composite destinations have passed them on.
    pub async fn post(
        &self,
        to: Destination,
        messages: Vec<Message>,
    ) -> Result<Option<Vec<LeaseAnswer>>, Refusal> {
        self.wait_for_rate(&to, messages.len() as u64).await?;
        self.client.post(to, messages).await.map_err(refusal)
    }

    /// Waits until the tenant of the destination may send again, and counts the messages.
    async fn wait_for_rate(&self, to: &Destination, messages: u64) -> Result<(), Refusal> {
        if !self.tenants.any_rate() {
            return Ok(());
        }
        let now = || Duration::from_millis(ticks_ms());
        match self.tenants.sent(to, 0, now()) {
            Some(Ahead { wait, refusal }) if PACED_MAX < wait => return Err(refusal),
            Some(Ahead { wait, .. }) => tokio::time::sleep(wait).await,
            None => {}
        }
        let _ = self.tenants.sent(to, messages, now());
        Ok(())
    }

    /// Makes a request, and waits until it is carried out.
    pub async fn ask(&self, event: impl FnOnce(ConnectionId, Ticket) -> Event) -> Result<(), Refusal> {
        self.client.request(event).await.map_err(refusal)?.result
    }

    /// Has dead letters redriven; returns how many were moved, and how many stay.
    pub async fn ask_redriven(
        &self,
        event: impl FnOnce(ConnectionId, Ticket) -> Event,
    ) -> Result<(u64, u64), Refusal> {
        let answer = self.client.request(event).await.map_err(refusal)?;
        answer.result?;
        let counts = answer.collected.iter().map(|message| match message {
            ToSession::Redriven { counts, .. } => (counts.moved, counts.stayed),
            _ => (0, 0),
        });
        Ok(counts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)))
    }
}

/// A message is larger than its reader takes.
pub fn passed_over(queue: &str, bytes: u64, bytes_max: u64) {
    tracing::warn!(queue, bytes, bytes_max, "an HTTP client does not get a message that is too large for it");
}

fn refusal(error: ClientError) -> Refusal {
    match error {
        ClientError::Refused(refusal) => {
            log_refused_request(&refusal);
            refusal
        }
        other => Refusal::StoreFailed { reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use postroad_routing::{DestinationPattern, Grantee, Permission};

    use super::*;

    #[test]
    fn queues_that_the_broker_writes_to_in_place_of_a_user_need_its_permission() {
        let mut permissions = Permissions::default();
        permissions.add(Permission {
            grantees: vec![Grantee::User("bob".into())],
            destinations: vec![DestinationPattern::parse("queue://bob.>").unwrap()],
            actions: [Action::Write].into_iter().collect(),
        });
        let (some, none) = (Arc::new(permissions), Arc::<Permissions>::default());
        let bob = || Principal::User("bob".into());
        for (case, principal, permissions, queues, want) in [
            ("its own", bob(), &some, vec!["bob.a", "bob.b"], None),
            ("no queue", bob(), &some, vec![], None),
            ("another one", bob(), &some, vec!["bob.a", "bills"], Some("bills")),
            ("another user", Principal::User("eve".into()), &some, vec!["bob.a"], Some("bob.a")),
            ("anonymous", Principal::Anonymous, &some, vec!["bob.a"], Some("bob.a")),
            ("the broker", Principal::Operator, &some, vec!["bills"], None),
            ("without permissions", bob(), &none, vec!["bills"], None),
        ] {
            let caller = Caller { principal: principal.clone(), permissions: permissions.clone() };
            let refusal = want.map(|queue| Refusal::NotPermitted {
                user: principal.user().cloned(),
                action: Action::Write,
                destination: Destination::queue(queue),
            });
            assert_eq!(caller.check_writes(queues.into_iter()).err(), refusal, "case: {case}");
        }
    }
}
