//! Clients inside the process: the counterpart of a protocol session, for code of the broker
//! itself.
//!
//! A [`LocalClient`] lives on the thread of one core (it is not `Send`) and costs no thread switch:
//! HTTP queues and bridges use it. A [`Client`] is a `Send` handle to a local client on some core,
//! for code on other threads: the control socket and the admin API. Both have a user, a limit on
//! outstanding requests, and one on deliveries.
//!
//! ```ignore
//! // On a core's thread: publish, then consume.
//! let (client, mailbox) = LocalClient::join(&handle, ClientOptions::named("orders-bridge"));
//! tokio::task::spawn_local(mailbox.run());
//! // Durable when it returns.
//! client.publish(Sent::new(Destination::queue("orders"), message)).await?;
//! let mut consumer = client.attach(Attachment::shared(Destination::queue("orders"), 100)).await?;
//! while let Some(delivery) = consumer.next().await {
//!     // Durable when it returns.
//!     consumer.settle(&[Held::of(&delivery)], Outcome::Accepted).await?;
//!     consumer.renew(&delivery);
//! }
//!
//! // On any other thread: run something with a local client, wherever its core is.
//! let client = clients.connect(ClientOptions::named("admin")).await?;
//! let asked = |local| async move { local.request(|c, t| event_with(c, t)).await };
//! let answer = client.run(asked).await??;
//! ```
//!
//! Bounds: [`ClientLimits`]. A request beyond the bound waits ([`LocalClient::request`]) or is
//! refused ([`LocalClient::try_request`]). The bytes that wait for replies count in the share of
//! the core, as for connections.
//!
//! Never here: sockets, protocols, clocks and timeouts: the caller adds its own, and may drop any
//! future.

mod consumer;
mod door;
mod leases;
mod mailbox_task;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    Ask, ConnectionId, ConsumerKey, Delivery, Event, Message, Page, PartitionId, Position, Principal,
    Publish, Refusal, Sent, Ticket, ToSession,
};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};

use crate::core::Core;
use crate::mailbox::Mailbox;
use crate::outstanding::Share;
use crate::router::Router;
use crate::translate::with_body;

pub use consumer::{Attachment, Consumer, Held};
pub use door::{Client, Clients, JoiningClient, admit};
pub use mailbox_task::MailboxTask;

use consumer::Inbox;

/// The way to a core, on its own thread.
#[derive(Clone)]
pub struct CoreHandle {
    /// The core's state.
    pub core: Rc<RefCell<Core>>,
    /// Wakes the core's own task, which sends gathered output.
    pub wake: Arc<Notify>,
    /// The limit of outstanding bytes of all connections and clients of the core.
    pub share: Rc<Share>,
}

impl CoreHandle {
    /// Says something to the core, and has it done.
    fn tell<T>(&self, say: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core.borrow_mut();
        let said = say(&mut core);
        core.run();
        let wants_turn = core.wants_turn();
        drop(core);
        if wants_turn {
            self.wake.notify_one();
        }
        said
    }
}

/// Who a client is, and how much it may have.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Its name in lists and logs.
    pub name: Arc<str>,
    /// The user on whose behalf it acts, or the broker itself.
    pub principal: Principal,
    /// How much it may have.
    pub limits: ClientLimits,
}

impl ClientOptions {
    /// A client of the broker itself with the default limits.
    pub fn named(name: &str) -> ClientOptions {
        ClientOptions { name: name.into(), principal: Principal::Operator, limits: ClientLimits::default() }
    }
}

/// How much one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Requests that wait for their answers.
    pub requests_max: usize,
    /// Messages that its consumers may be sent and have not taken, together.
    pub credit_max: u64,
    /// Consumers attached at the same time.
    pub consumers_max: usize,
}

impl Default for ClientLimits {
    /// As much as a busy connection of a protocol has.
    fn default() -> ClientLimits {
        ClientLimits { requests_max: 1024, credit_max: 16_384, consumers_max: 1024 }
    }
}

/// Why a client's request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The core said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The client has ended: the broker stops, or it was closed. Whether the request was carried
    /// out is not known.
    #[error("the broker is shutting down")]
    Ended,
    /// As many requests as the client may have wait for their answers.
    #[error("{max} requests wait for their answers already")]
    TooManyRequests {
        /// The limit.
        max: usize,
    },
    /// Its consumers may have no more credit together.
    #[error("the consumers of this client may have credit for {max} messages together")]
    TooMuchCredit {
        /// The limit.
        max: u64,
    },
    /// It has as many consumers as it may.
    #[error("this client may have {max} consumers")]
    TooManyConsumers {
        /// The limit.
        max: usize,
    },
    /// The core serves as many clients as it may.
    #[error("{max} clients are served already")]
    TooManyClients {
        /// The limit.
        max: usize,
    },
    /// The body of a large message cannot be had.
    #[error("the message cannot be read: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
    /// A body is larger than the caller takes.
    #[error("the message has {bytes} bytes, and at most {max} are taken")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// Whether it was carried out; durably, where the request is about something durable.
    pub result: Result<(), Refusal>,
    /// Output before the reply with the same ticket: branches, moves, pages.
    pub collected: Vec<ToSession>,
}

/// A request on its way: wait for it, or drop it and never know.
#[must_use = "the answer says whether the request was carried out"]
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Answer>);

impl Receipt {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn answer(self) -> Result<Answer, ClientError> {
        self.0.await.map_err(|_| ClientError::Ended)
    }

    /// Waits until it is carried out.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Ended`].
    pub async fn done(self) -> Result<(), ClientError> {
        Ok(self.answer().await?.result?)
    }
}

/// A client on the thread of its core. Clones are the same client, which ends with the last of
/// them.
#[derive(Clone)]
pub struct LocalClient {
    joined: Rc<Joined>,
    _lease: Rc<Lease>,
}

/// State shared by the client and its mailbox's task.
struct Joined {
    id: ConnectionId,
    handle: CoreHandle,
    options: ClientOptions,
    mailbox: Rc<Mailbox>,
    state: RefCell<State>,
    /// There may be room for another request.
    room: Notify,
    /// The last clone of the client is gone.
    released: Notify,
}

struct State {
    router: Router,
    last_ticket: u64,
    requests: FxHashMap<Ticket, Request>,
    last_consumer: u32,
    consumers: FxHashMap<u32, Rc<Inbox>>,
    /// Messages that consumers may be sent, or were sent and have not taken.
    credit: u64,
    pieces: FxHashMap<(PartitionId, Position), Vec<PieceWaiter>>,
    has_ended: bool,
}

/// Waits for a piece of a large body, or why it cannot be read.
type PieceWaiter = oneshot::Sender<Result<Bytes, String>>;

struct Request {
    collected: Vec<ToSession>,
    answer: oneshot::Sender<Answer>,
}

/// Ends the client when its last clone is gone.
struct Lease(Rc<Joined>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.released.notify_one();
    }
}

impl LocalClient {
    /// Joins the core. Nothing is answered unless the task runs: spawn [`MailboxTask::run`] on the
    /// core's thread, and drop that to end the client.
    pub fn join(handle: &CoreHandle, options: ClientOptions) -> (LocalClient, MailboxTask) {
        let (id, mailbox) = handle.core.borrow_mut().join();
        let mut router = handle.core.borrow().router(id, handle.share.clone());
        router.guard(options.principal.clone(), &mailbox);
        let state = State {
            router,
            last_ticket: 0,
            requests: FxHashMap::default(),
            last_consumer: 0,
            consumers: FxHashMap::default(),
            credit: 0,
            pieces: FxHashMap::default(),
            has_ended: false,
        };
        let joined = Rc::new(Joined {
            id,
            handle: handle.clone(),
            options,
            mailbox,
            state: RefCell::new(state),
            room: Notify::new(),
            released: Notify::new(),
        });
        let client = LocalClient { joined: joined.clone(), _lease: Rc::new(Lease(joined.clone())) };
        (client, MailboxTask::new(joined))
    }

    /// Its connection, as events name it.
    pub fn connection(&self) -> ConnectionId {
        self.joined.id
    }

    /// Who it is.
    pub fn options(&self) -> &ClientOptions {
        &self.joined.options
    }

    /// The way to its core.
    pub fn core(&self) -> &CoreHandle {
        &self.joined.handle
    }

    /// Waits until another request may be made.
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn ready(&self) -> Result<(), ClientError> {
        loop {
            let (room, freed) = (self.joined.room.notified(), self.joined.handle.share.freed());
            let (has_ended, has_room) = {
                let state = self.joined.state.borrow();
                (state.has_ended, state.has_room(&self.joined.options.limits))
            };
            if has_ended {
                return Err(ClientError::Ended);
            }
            if has_room {
                let seat = self.joined.state.borrow().router.fair_seat().cloned();
                if let Some(seat) = seat {
                    seat.comes().await;
                }
                return Ok(());
            }
            tokio::select! {
                () = room => {}
                () = freed => {}
            }
        }
    }

    /// Makes a request, in the order of calls, without waiting for anything. `make` is given the
    /// connection and ticket that the event is to carry; one reply comes for the ticket.
    ///
    /// # Errors
    /// [`ClientError::TooManyRequests`]: await [`LocalClient::ready`]. [`ClientError::Ended`].
    pub fn try_request(
        &self,
        make: impl FnOnce(ConnectionId, Ticket) -> Event,
    ) -> Result<Receipt, ClientError> {
        let mut state = self.joined.state.borrow_mut();
        if state.has_ended {
            return Err(ClientError::Ended);
        }
        if !state.has_room(&self.joined.options.limits) {
            return Err(ClientError::TooManyRequests { max: self.joined.options.limits.requests_max });
        }
        let ticket = state.ticket();
        let (answer, answered) = oneshot::channel();
        state.requests.insert(ticket, Request { collected: Vec::new(), answer });
        drop(state);
        self.joined.route(make(self.joined.id, ticket));
        Ok(Receipt(answered))
    }

    /// Makes a request as soon as there is room, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError::Ended`]. A refusal is in the answer.
    pub async fn request(
        &self,
        make: impl FnOnce(ConnectionId, Ticket) -> Event,
    ) -> Result<Answer, ClientError> {
        self.ready().await?;
        self.try_request(make)?.answer().await
    }

    /// Sends a message without waiting for the reply. Messages keep the order of the calls, on each
    /// queue.
    ///
    /// # Errors
    /// As [`LocalClient::try_request`].
    pub fn send(&self, sent: Sent) -> Result<Receipt, ClientError> {
        self.try_request(|connection, ticket| Event::Publish(Publish::plain(connection, ticket, sent)))
    }

    /// Sends a message; done once it is as safe as its delivery mode promises.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Ended`].
    pub async fn publish(&self, sent: Sent) -> Result<(), ClientError> {
        self.ready().await?;
        self.send(sent)?.done().await
    }

    /// A page of a list, gathered over all partitions.
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn ask(&self, ask: Ask) -> Result<Page, ClientError> {
        let ask = Arc::new(ask);
        let of_all = ask.clone();
        let make = |connection, ticket| Event::Ask { ask: of_all, connection, ticket };
        let Answer { result, collected } = self.request(make).await?;
        result?;
        let pages = collected.into_iter().filter_map(|message| match message {
            ToSession::Page { page, .. } => Some(*page),
            _ => None,
        });
        Ok(Page::merge(pages.collect(), &ask))
    }

    /// Sends an event without a reply. Bounded by the partitions' echoes, as for connections.
    pub fn say(&self, event: Event) {
        if !self.joined.state.borrow().has_ended {
            self.joined.route(event);
        }
    }

    /// The message of a delivery, complete: the pieces of a large body are read from the log. Not
    /// to be called after the delivery was settled.
    ///
    /// # Errors
    /// [`ClientError::TooLarge`], [`ClientError::Unreadable`], [`ClientError::Ended`].
    pub async fn whole(&self, delivery: &Delivery, bytes_max: u64) -> Result<Message, ClientError> {
        let message = &delivery.message;
        if message.size() > bytes_max {
            return Err(ClientError::TooLarge { bytes: message.size(), max: bytes_max });
        }
        let from = self.joined.state.borrow().router.partition_of(delivery.consumer);
        self.gather(message, delivery.consumer, from).await
    }

    /// Reads the pieces of a large body from the log of the partition `from`, and puts the message
    /// together.
    async fn gather(
        &self,
        message: &Message,
        consumer: ConsumerKey,
        from: PartitionId,
    ) -> Result<Message, ClientError> {
        let Some(chunks) = message.chunks() else { return Ok(message.clone()) };
        let mut body = Vec::with_capacity(chunks.bytes as usize);
        for (position, _) in chunks.iter() {
            let (piece, comes) = oneshot::channel();
            self.joined.state.borrow_mut().pieces.entry((from, position)).or_default().push(piece);
            self.say(Event::WantChunk { consumer, from, position });
            let piece = comes.await.map_err(|_| ClientError::Ended)?;
            body.extend_from_slice(&piece.map_err(|reason| ClientError::Unreadable { reason })?);
        }
        with_body(message, &body).map_err(|reason| ClientError::Unreadable { reason })
    }
}

impl State {
    fn has_room(&self, limits: &ClientLimits) -> bool {
        self.requests.len() < limits.requests_max && self.router.may_read()
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }
}

impl Joined {
    fn route(&self, event: Event) {
        let mut state = self.state.borrow_mut();
        self.handle.tell(|core| state.router.route(event, |partition, event| core.submit(partition, event)));
    }
}
