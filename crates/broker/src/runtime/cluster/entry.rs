//! Where clients of a node with several stores come in: each logs in, which says its tenant, and is
//! handed to the leader of the tenant's store.
//!
//! ```text
//!  client ──▶ any listener ──▶ session up to the login ──▶ the store's leader, with all bytes and the
//!      outcome; in this process: with the socket ──▶ a session reads the same bytes again
//! ```
//! Never here: the words of a protocol, HTTP.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use postroad_cluster::{HANDED_BYTES_MAX, NodeId};
use postroad_model::{LoginAnswer, Parting, Principal, Session};
use postroad_net::{Connection, Moved};
use postroad_routing::{FIRST_STORE, Permissions};
use postroad_security::Visit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use crate::runtime::cluster::entry_login::EntryLogin;
use crate::runtime::cluster::forward::{BUFFER_BYTES, copy, hand_over, other_leads, reach};
use crate::runtime::cluster::sealed::{Far, connected_pair};
use crate::runtime::cluster::store_part::StorePart;
use crate::runtime::cluster::view::ClusterView;
use crate::runtime::farewell::part;
use crate::runtime::new_socket::NewSocket;
use crate::runtime::now;
use crate::runtime::reception::Reception;

/// A client that has not logged in within this time finds its connection closed.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(30);
/// A client that has logged in waits for a leader of its store, at most this long.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// From one look for a leader to the next.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Bytes that may come before and with the login.
const LOGIN_BYTES_MAX: usize = HANDED_BYTES_MAX / 2;
/// Passwords that are checked at a time.
const LOGINS_MAX: usize = 2;

/// See the head of this file. Call its functions within a `LocalSet`; the clients end with it.
pub struct ClientEntry {
    /// The stores that are here, by number, with their leaders.
    stores: BTreeMap<u16, Replica>,
    part: StorePart,
    logins: Arc<Semaphore>,
    /// They say the store of a principal.
    permissions: RefCell<Arc<Permissions>>,
}

/// This node's replica of a store, and who leads it.
type Replica = (ClusterView, watch::Receiver<Option<NodeId>>);

/// A client that has logged in.
type Introduced = (Principal, EntryLogin);

impl ClientEntry {
    /// Of a node whose stores are open.
    pub fn new(part: &StorePart, permissions: Arc<Permissions>) -> ClientEntry {
        let replica = |(number, view): (u16, &ClusterView)| (number, (view.clone(), view.leaders()));
        let (stores, part) = (part.views().map(replica).collect(), part.clone());
        let logins = Arc::new(Semaphore::new(LOGINS_MAX));
        ClientEntry { stores, part, logins, permissions: RefCell::new(permissions) }
    }

    /// Tenants and their users are those from now on.
    pub fn follow(&self, permissions: Arc<Permissions>) {
        self.permissions.replace(permissions);
    }

    /// Lets a client log in in a session of `make`, and hands it to the leader of its store.
    pub fn receive(
        self: &Rc<ClientEntry>,
        socket: NewSocket,
        make: impl FnOnce(&Visit) -> Box<dyn Session> + 'static,
    ) {
        let entry = self.clone();
        tokio::task::spawn_local(async move {
            let peer = socket.peer;
            if let Err(error) = entry.serve(socket, make).await {
                tracing::debug!(%peer, %error, "a connection ended early");
            }
        });
    }

    /// The store of a principal.
    pub fn store_of(&self, principal: &Principal) -> u16 {
        self.permissions.borrow().store_of(principal)
    }

    /// The store of the tenant of this name, if there is one.
    pub fn store_of_tenant(&self, name: &str) -> u16 {
        self.permissions.borrow().places().map_or(FIRST_STORE, |places| places.of_tenant(name))
    }

    /// Why the store of this number is not here; `None` if it is.
    pub fn absence(&self, store: u16) -> Option<String> {
        self.part.absence(store)
    }

    fn store(&self, number: u16) -> io::Result<&Replica> {
        let absent = || io::Error::other(self.absence(number).unwrap_or_default());
        self.stores.get(&number).ok_or_else(absent)
    }

    /// Connects a client of this node to the leader of a store. Returns the connection, and a
    /// future that ends once another node leads.
    ///
    /// # Errors
    /// No leader is reached in time.
    pub async fn connect(
        &self,
        client: (SocketAddr, &str),
        store: u16,
        within: Duration,
    ) -> io::Result<(Box<dyn Far>, impl Future<Output = ()> + use<>)> {
        let (view, leaders) = self.store(store)?;
        let until = Instant::now() + within;
        loop {
            match reach(view, client, None).await {
                Ok((stream, node)) => return Ok((stream, other_leads(leaders.clone(), node))),
                Err(error) => tracing::debug!(store, %error, "the leader is not reached"),
            }
            if until < Instant::now() || view.is_removed() {
                return Err(io::Error::other(view.reason()));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn serve(
        &self,
        socket: NewSocket,
        make: impl FnOnce(&Visit) -> Box<dyn Session>,
    ) -> io::Result<()> {
        let NewSocket {
            socket,
            peer,
            scheme,
            service,
            tls,
            tls_is_asked_for,
            websocket_bytes_max,
            door,
            place,
            ..
        } = socket;
        let mut connection = NewSocket::connect(socket, (tls, tls_is_asked_for), None, websocket_bytes_max)?;
        let introduced = async {
            if connection.ready().await? == Moved::Closed {
                return Ok(Err(Parting::Farewell));
            }
            let visit = Visit::new(door.borrow().clone(), connection.peer_certificate());
            let visit = visit.at(peer.ip()).over(service.name());
            let session = make(&visit);
            let reception = Reception::new(visit, self.logins.clone());
            let absence = |principal: &Principal| self.absence(self.store_of(principal));
            Introduction::new(&mut connection, session, (reception, &absence)).finish().await
        };
        let (principal, login) = match tokio::time::timeout(INTRODUCED_WITHIN, introduced).await {
            Ok(Ok(Ok(introduced))) => introduced,
            Ok(Ok(Err(parting))) => {
                if let Parting::Fault(reason) = parting {
                    tracing::warn!(%peer, reason, "connection ended");
                }
                part(&mut connection).await;
                return Ok(());
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        connection.let_in();
        self.hand(connection, (peer, scheme), (principal, login)).await?;
        drop(place);
        Ok(())
    }

    /// Hands a client to the leader of its store, and stays between the two if that is elsewhere.
    async fn hand(
        &self,
        connection: Connection,
        (peer, scheme): (SocketAddr, &'static str),
        (principal, login): Introduced,
    ) -> io::Result<()> {
        let store = self.permissions.borrow().store_of(&principal);
        let (view, leaders) = self.store(store)?;
        let until = Instant::now() + SERVED_WITHIN;
        loop {
            if view.is_elected() {
                return hand_here(view, connection, (peer, scheme), login).await;
            }
            if let Some(leader) = view.leader() {
                match hand_over((peer, scheme), Some(&login), &leader, view.node_tls()).await {
                    Ok(far) => {
                        let other = other_leads(leaders.clone(), Some(leader.node));
                        return match connection.into_socket()? {
                            Ok(near) => copy(TcpStream::from_std(near)?, far, other).await,
                            Err(connection) => pass(connection, far, other).await,
                        };
                    }
                    Err(error) => tracing::debug!(%peer, store, %error, "the leader is not reached"),
                }
            }
            if until < Instant::now() || view.is_removed() {
                tracing::warn!(%peer, store, "closing a client: its store has no leader that is reached");
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Gives a client to the leader, which is in this process: its socket, or one in place of it if it
/// has layers.
async fn hand_here(
    view: &ClusterView,
    connection: Connection,
    (peer, scheme): (SocketAddr, &'static str),
    login: EntryLogin,
) -> io::Result<()> {
    match connection.into_socket()? {
        Ok(socket) => {
            view.hand((socket, peer, scheme), Box::new(login));
            Ok(())
        }
        Err(connection) => {
            let (near, far) = connected_pair().await?;
            near.set_nodelay(true)?;
            view.hand((far, peer, scheme), Box::new(login));
            // The leader ends it.
            pass(connection, near, std::future::pending()).await
        }
    }
}

/// Why the store of a principal is not at this node, if it is not.
type Absence<'c> = &'c dyn Fn(&Principal) -> Option<String>;

/// A client's session up to the outcome of its login.
struct Introduction<'c> {
    connection: &'c mut Connection,
    session: Box<dyn Session>,
    reception: Reception,
    /// All plain bytes that have come.
    bytes: BytesMut,
    /// How many of them are still in the connection's input.
    untaken: usize,
    answers: Vec<LoginAnswer>,
    /// Whether something was written.
    has_answered: bool,
    absence: Absence<'c>,
    /// It has logged in, and its store is not here: its session ends it with the reason.
    is_absent: bool,
}

impl<'c> Introduction<'c> {
    fn new(
        connection: &'c mut Connection,
        session: Box<dyn Session>,
        (reception, absence): (Reception, Absence<'c>),
    ) -> Introduction<'c> {
        let (bytes, answers, untaken) = (BytesMut::new(), Vec::new(), 0);
        let (has_answered, is_absent) = (false, false);
        Introduction {
            connection,
            session,
            reception,
            bytes,
            untaken,
            answers,
            has_answered,
            absence,
            is_absent,
        }
    }

    async fn finish(mut self) -> io::Result<Result<Introduced, Parting>> {
        let mut known = self.receive();
        loop {
            match known {
                Ok(Some(principal)) => return self.introduced(principal).await.map(Ok),
                Ok(None) => {}
                Err(parting) => return Ok(Err(parting)),
            }
            self.has_answered |= !self.connection.output.is_empty();
            self.connection.write()?;
            let reads = self.session.takes_input();
            let missing = if reads { self.session.missing_bytes(&self.connection.input) } else { 0 };
            known = tokio::select! {
                moved = self.connection.moved(reads, missing.min(LOGIN_BYTES_MAX)) => match moved? {
                    Moved::Closed => Err(Parting::Farewell),
                    Moved::Writable => Ok(None),
                    Moved::Read(_) => self.receive(),
                },
                answer = self.reception.answered() => match self.admit(answer) {
                    Ok(None) => self.receive(),
                    admitted => admitted,
                },
            };
        }
    }

    /// The client has read everything that came before the outcome.
    async fn introduced(mut self, principal: Principal) -> io::Result<Introduced> {
        self.connection.write()?;
        while !self.connection.is_flushed() {
            if self.connection.moved(false, 0).await? == Moved::Closed {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            self.connection.write()?;
        }
        self.note_bytes();
        let credential = self.reception.credential(&principal).map(|(credential, _)| credential);
        let certificate = self.connection.peer_certificate().map(Bytes::copy_from_slice);
        // All of it is in the bytes.
        self.connection.input.clear();
        let (answers, bytes) = (self.answers, self.bytes.freeze());
        Ok((principal, EntryLogin { answers, credential, certificate, bytes }))
    }

    fn note_bytes(&mut self) {
        self.bytes.extend_from_slice(&self.connection.input[self.untaken..]);
        self.untaken = self.connection.input.len();
    }

    /// Gives the session the bytes that have come. Returns who the client is, once that is known.
    fn receive(&mut self) -> Result<Option<Principal>, Parting> {
        self.note_bytes();
        if LOGIN_BYTES_MAX < self.bytes.len() {
            return Err(Parting::Fault(format!("more than {LOGIN_BYTES_MAX} bytes came before its login")));
        }
        loop {
            let Connection { input, output, .. } = &mut *self.connection;
            // No core is there that would take the events.
            let received = self.session.receive(input, now(), &mut Vec::new(), output);
            self.untaken = self.connection.input.len();
            received?;
            let Some(login) = self.session.login() else { break };
            let Some(answer) = self.reception.ask(login) else { return Ok(None) };
            if let Some(principal) = self.admit(answer)? {
                return Ok(Some(principal));
            }
        }
        if !self.session.is_known() || self.is_absent {
            return Ok(None);
        }
        if self.has_answered {
            return Err(Parting::Fault("it has begun without a login".to_owned()));
        }
        // It need not log in: the leader's session answers everything.
        self.connection.output.clear();
        Ok(Some(Principal::Anonymous))
    }

    /// Takes an answer to the login. The welcome is for the leader's session to say.
    fn admit(&mut self, answer: LoginAnswer) -> Result<Option<Principal>, Parting> {
        let (output, is_good) = (&mut self.connection.output, matches!(answer, LoginAnswer::Challenge(_)));
        if let LoginAnswer::Welcome { principal, last } = &answer {
            let Some(reason) = (self.absence)(principal) else {
                let principal = principal.clone();
                self.answers.push(answer);
                return Ok(Some(principal));
            };
            self.is_absent = true;
            let answer = LoginAnswer::Elsewhere { reason, last: last.clone() };
            self.session.admit(answer, now(), &mut Vec::new(), output)?;
            return Ok(None);
        }
        if is_good {
            self.answers.push(answer.clone());
        }
        self.session.admit(answer, now(), &mut Vec::new(), output)?;
        Ok(None)
    }
}

/// Copies plain bytes between a client's connection, with its layers, and the leader.
async fn pass(mut connection: Connection, far: impl Far, until: impl Future<Output = ()>) -> io::Result<()> {
    let mut until = std::pin::pin!(until);
    let (mut from_leader, mut to_leader) = tokio::io::split(far);
    let (mut inward, mut outward, mut is_flushed) = (BytesMut::new(), BytesMut::new(), true);
    loop {
        connection.output.extend_from_slice(&inward);
        inward.clear();
        connection.write()?;
        if outward.is_empty() && !connection.input.is_empty() {
            outward = connection.input.split();
            is_flushed = false;
        }
        let (reads, takes) = (outward.is_empty(), connection.output.len() < BUFFER_BYTES);
        // Nothing is lost if it is dropped before it is done.
        let written = async {
            while !outward.is_empty() {
                to_leader.write_buf(&mut outward).await?;
            }
            to_leader.flush().await
        };
        inward.reserve(BUFFER_BYTES);
        tokio::select! {
            moved = connection.moved(reads, 0) => if moved? == Moved::Closed {
                return Ok(());
            },
            read = from_leader.read_buf(&mut inward), if takes => if read? == 0 {
                break;
            },
            flushed = written, if !is_flushed => {
                flushed?;
                is_flushed = true;
            }
            () = until.as_mut() => break,
        }
    }
    part(&mut connection).await;
    Ok(())
}
