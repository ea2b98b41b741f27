//! One connection's task: socket, session and core, in turns.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postroad_model::{
    BridgeNotice, ConnectionId, Delivery, Event, LoginAnswer, Notice, Now, Parting, Principal, Refusal,
    Session, ToSession, Underway,
};
use postroad_net::{Connection, Moved};
use postroad_security::{Door, Visit};
use tokio::sync::{Notify, Semaphore, watch};

use crate::runtime::alarm::Alarm;
use crate::runtime::body::{Body, End};
use crate::runtime::closing::Closing;
use crate::runtime::cluster::EntryLogin;
use crate::runtime::dialler::{LinkChange, LinkReporter};
use crate::runtime::farewell::{linger, part, reason_of, tell};
use crate::runtime::handover::{CoreHandover, Step};
use crate::runtime::identified::Identified;
use crate::runtime::links::{LinkBoard, LinkKey};
use crate::runtime::new_socket::Arrival;
use crate::runtime::reception::Reception;
use crate::runtime::{now_ms, ticks_ms};
use postroad_node::{Call, Mailbox, Taken};
use postroad_node::{ConnectionPermit, Share, Traced};
use postroad_node::{Core, Router};

/// Deliveries are encoded until this number of bytes waits for the socket.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// A peer with this number of unread bytes may have no room to send more: its silence does not show
/// that it is dead.
const UNREAD_BYTES_MAX: u64 = 16 << 10;

/// Time for the handshakes of a connection, such as TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The longest time for which input of a connection that has ended counts as outstanding, unless it
/// is handled earlier.
const AFTERMATH: Duration = Duration::from_secs(10);

/// Limit of the bytes still read from a connection that is evicted: more than a socket usually
/// holds.
const REST_BYTES_MAX: usize = 1 << 20;

/// How a connection reaches its core.
#[derive(Clone)]
pub struct CoreHandle {
    /// The core's state.
    pub core: Rc<RefCell<Core>>,
    /// Wakes the core's own task, which sends gathered events on; the other threads wake it too.
    pub wake: Arc<Notify>,
    /// A permit for each password that may be looked at beside it.
    pub logins: Arc<Semaphore>,
    /// Limit of the outstanding bytes of its connections together.
    pub share: Rc<Share>,
    /// How links to other brokers are.
    pub links: LinkBoard,
    /// Its connections that end with their credential.
    pub identified: Rc<Identified>,
    /// How all its connections end.
    pub closing: Rc<Closing>,
    /// How far a handover of leadership is.
    pub handover: Rc<CoreHandover>,
}

impl CoreHandle {
    /// The way of clients inside the process to the same core.
    pub fn of_clients(&self) -> postroad_node::CoreHandle {
        let CoreHandle { core, wake, share, .. } = self.clone();
        postroad_node::CoreHandle { core, wake, share }
    }
}

/// Limit of the events for which a core keeps room allocated, for its next connection.
const EVENTS_KEPT_MAX: usize = 1024;

thread_local! {
    /// Of each core: connections that have nothing to say keep no room for it.
    static EVENTS: Cell<Vec<Event>> = const { Cell::new(Vec::new()) };
}

fn borrow(events: &mut Vec<Event>) {
    if events.capacity() == 0 {
        *events = EVENTS.take();
    }
}

/// All events are gone.
fn lend(events: &mut Vec<Event>) {
    if (1..=EVENTS_KEPT_MAX).contains(&events.capacity()) {
        EVENTS.set(std::mem::take(events));
    } else {
        *events = Vec::new();
    }
}

/// Serves one connection to its end, at the latest until the word.
pub async fn serve(
    handle: Rc<CoreHandle>,
    arrival: Box<Arrival>,
    make: impl FnOnce(ConnectionId, &Visit) -> Box<dyn Session>,
    word: Rc<Notify>,
) {
    // The box is freed here: it is a temporary.
    let Arrival { mut connection, peer, protocol, door, scheme, link, login } =
        *std::convert::identity(arrival);
    let mut closed = std::pin::pin!(word.notified());
    let shaken = tokio::select! {
        shaken = shake_hands(&mut connection) => shaken,
        () = closed.as_mut() => return,
    };
    if let Err(parting) = shaken {
        tell(&parting, peer, link.as_ref());
        return linger(&mut connection).await;
    }
    let (id, mailbox) = handle.core.borrow_mut().join();
    let mut router = handle.core.borrow().router(id, handle.share.clone());
    router.guard(if link.is_some() { Principal::Operator } else { Principal::Anonymous }, &mailbox);
    let certificate = certificate_of(&connection, login.as_deref());
    let visit = Visit::new(door.borrow().clone(), certificate).at(peer.ip()).over(protocol);
    let session = make(id, &visit);
    let login = Reception::of(visit, handle.logins.clone(), (login, &mut connection.input));
    // Left to itself it would begin with four of some 200 bytes each, which most connections never
    // need at once.
    let (events, begun) = (Vec::new(), Instant::now());
    let mut task = Task {
        handle,
        connection,
        mailbox,
        router,
        session,
        login,
        events,
        begun,
        alarm: Alarm::new(begun),
        is_known: false,
        was_refused: false,
        listens: true,
        unread_bytes: 0,
        body: None,
        behind: BytesMut::new(),
        link,
        id,
        peer,
        door,
        permit: None,
        paced_until: None,
        bridge: None,
        traced: Vec::new(),
        scheme,
        is_counted: false,
    };
    let parting = tokio::select! {
        // Ahead of answers that another node leads: the client hears which.
        biased;
        () = closed.as_mut() => None,
        parting = task.converse() => Some(parting),
    };
    let stops = parting.is_none();
    let parting = parting.unwrap_or_else(|| task.stop());
    task.end(&parting);
    // When the broker stops, cores end without asking each other.
    Box::pin(task.finish((!stops).then_some(closed))).await;
    task.handle.identified.remove(id);
    task.leave(id);
}

/// The peer's certificate, which it may have shown where it came into the cluster.
fn certificate_of<'c>(connection: &'c Connection, login: Option<&'c EntryLogin>) -> Option<&'c [u8]> {
    connection.peer_certificate().or_else(|| login?.certificate.as_deref())
}

/// Before the conversation: the layers.
async fn shake_hands(connection: &mut Connection) -> Result<(), Parting> {
    match tokio::time::timeout(HANDSHAKE, connection.ready()).await {
        Ok(Ok(Moved::Closed)) => Err(Parting::Farewell),
        Ok(ready) => ready.map(drop).map_err(broken),
        Err(_) => {
            let seconds = HANDSHAKE.as_secs();
            Err(Parting::Fault(format!("the peer did not finish its handshake within {seconds} s")))
        }
    }
}

/// The other end is a broker, and was let in.
struct Bridged {
    notice: Arc<BridgeNotice>,
    /// Its row on the board, if the peer has opened the connection.
    row: Option<LinkKey>,
}

/// Operators see which permission a client lacks, and which quota a tenant has used up.
pub fn log_refused_request(refusal: &Refusal) {
    if matches!(refusal, Refusal::NotPermitted { .. } | Refusal::TooManyQueues { .. }) {
        tracing::warn!(%refusal, "request refused");
    }
}

struct Task {
    handle: Rc<CoreHandle>,
    connection: Connection,
    mailbox: Rc<Mailbox>,
    router: Router,
    session: Box<dyn Session>,
    login: Reception,
    events: Vec<Event>,
    begun: Instant,
    alarm: Alarm,
    /// Whether the layers have heard that it is known who the peer is.
    is_known: bool,
    /// A login of the client was refused.
    was_refused: bool,
    /// Whether the socket is read.
    listens: bool,
    /// Bytes that waited in the socket when last it was looked for signs of life.
    unread_bytes: u64,
    /// The large message that is being sent: later messages of the core wait for its end.
    body: Option<Box<Body>>,
    /// Output of the session that must wait after that message.
    behind: BytesMut,
    /// Who wants to hear of it, if this broker has opened it to another one.
    link: Option<LinkReporter>,
    id: ConnectionId,
    peer: SocketAddr,
    /// Who is let in, now and later.
    door: watch::Receiver<Arc<Door>>,
    /// Its place among the connections of its tenant.
    permit: Option<ConnectionPermit>,
    /// Until then nothing is read: its tenant has sent faster than it may.
    paced_until: Option<Instant>,
    bridge: Option<Box<Bridged>>,
    /// Traced deliveries in the output, which is bounded.
    traced: Vec<Traced>,
    /// Of the URLs by which its client comes.
    scheme: &'static str,
    /// A handover waits for its client to finish something.
    is_counted: bool,
}

/// Where the session writes to: after a body that nothing may interrupt.
fn output<'t>(
    body: &Option<Box<Body>>,
    behind: &'t mut BytesMut,
    output: &'t mut BytesMut,
) -> &'t mut BytesMut {
    if body.as_ref().is_some_and(|body| body.is_exclusive) { behind } else { output }
}

impl Task {
    async fn converse(&mut self) -> Parting {
        if let Err(parting) = self.begin() {
            return parting;
        }
        loop {
            if let Err(parting) = self.step().await {
                return parting;
            }
        }
    }

    /// Handles input that came with the handshakes of the layers.
    fn begin(&mut self) -> Result<(), Parting> {
        if self.connection.input.is_empty() {
            return Ok(());
        }
        self.receive()?;
        self.submit();
        self.connection.write().map_err(broken)
    }

    /// The broker ends, or another node leads.
    fn stop(&mut self) -> Parting {
        let (now, onward) = (self.now(), self.handle.closing.onward(self.scheme));
        let output = output(&self.body, &mut self.behind, &mut self.connection.output);
        self.session.stop(onward.as_ref(), now, output);
        Parting::Farewell
    }

    async fn step(&mut self) -> Result<(), Parting> {
        let reads = self.listen();
        let takes = self.connection.output.len() < OUTPUT_BYTES_MAX;
        let missing = if reads { self.session.missing_bytes(&self.connection.input) } else { 0 };
        self.alarm.set(self.session.deadline());
        tokio::select! {
            call = self.mailbox.called() => if call == Call::Evicted { self.give_way().await? },
            () = std::future::ready(()), if takes && self.goes_on() => {}
            () = self.mailbox.filled(self.waits_for()), if takes => {}
            () = self.router.turn_comes(), if takes && self.holds_back() => {}
            moved = self.connection.moved_in_turn(reads, missing, |context| self.router.poll_turn(context)) => {
                self.react(moved)?
            }
            () = self.alarm.rings() => self.wake(reads, missing).await?,
            answer = self.login.answered() => self.admit(answer)?,
            () = self.router.others_have_less(), if !reads => {}
            () = paced(self.paced_until), if !reads => self.paced_until = None,
        }
        self.take_mail()?;
        self.let_in();
        self.submit();
        self.handle.handover.count(&mut self.is_counted, || self.session.underway());
        self.connection.write().map_err(broken)?;
        self.trace_written();
        Ok(())
    }

    /// Traced deliveries are out once the output is.
    fn trace_written(&mut self) {
        if !self.traced.is_empty() && self.body.is_none() && self.connection.is_flushed() {
            self.traced.drain(..).for_each(|traced| self.router.note_written(&traced));
            self.handle.wake.notify_one();
        }
    }

    /// From the next read on, the limits of authenticated peers apply.
    fn let_in(&mut self) {
        if !self.is_known && self.session.is_known() {
            self.is_known = true;
            self.connection.let_in();
            self.begin_link();
        }
        if self.bridge.is_some()
            && let Some(remark) = self.session.remark()
        {
            self.remark(remark);
        }
    }

    /// Shows operators a link that was let in.
    fn begin_link(&mut self) {
        let Some(linked) = self.session.link() else { return };
        let notice = Arc::new(BridgeNotice {
            name: format!("{}-{}", self.id.core(), self.id.number()).into(),
            peer_id: linked.peer_id.clone(),
            peer_name: linked.peer_name.clone(),
            peer_url: linked.peer_url.clone(),
            remote_ip: self.peer.to_string().into(),
            is_accepted: self.link.is_none(),
        });
        let told = Notice::Bridge { bridge: notice.clone(), present: true };
        self.handle.core.borrow_mut().publish_notice(told);
        let row = match &self.link {
            Some(link) => {
                link.tell(LinkChange::Linked(linked));
                None
            }
            None => {
                tracing::info!(bridge = &*linked.link, peer = &*linked.peer_name, address = %self.peer, "link accepted");
                Some(self.handle.links.accepted(linked, self.peer))
            }
        };
        self.bridge = Some(Box::new(Bridged { notice, row }));
    }

    fn remark(&self, remark: String) {
        match (&self.link, &self.bridge) {
            (Some(link), _) => link.tell(LinkChange::Remark(remark)),
            (None, Some(bridge)) if let Some(row) = &bridge.row => {
                tracing::warn!(address = %self.peer, "{remark}");
                self.handle.links.remarks(row, &remark);
            }
            (None, _) => {}
        }
    }

    fn end_link(&mut self, parting: &Parting) {
        let Some(bridge) = self.bridge.take() else { return };
        let Bridged { notice, row } = *bridge;
        self.handle.core.borrow_mut().publish_notice(Notice::Bridge { bridge: notice, present: false });
        if let Some(row) = row {
            self.handle.links.ended(&row, reason_of(parting));
        }
    }

    /// Its client has connected again. Input from this connection counts as sent before input from
    /// the new one.
    async fn give_way(&mut self) -> Result<(), Parting> {
        if self.login.is_revoked() {
            return Err(Parting::Fault("its token has expired, or its token or user was removed".to_owned()));
        }
        self.take_rest().await?;
        let now = self.now();
        let output = output(&self.body, &mut self.behind, &mut self.connection.output);
        self.session.answer(ToSession::Evicted, now, &mut self.events, output)
    }

    /// Reads the bytes that the peer has sent by now, within the limits: the rest was never
    /// confirmed.
    async fn take_rest(&mut self) -> Result<(), Parting> {
        let mut bytes_left = REST_BYTES_MAX;
        while bytes_left > 0 && self.listen() {
            let missing = self.session.missing_bytes(&self.connection.input);
            let moved = tokio::select! {
                biased;
                moved = self.connection.moved(true, missing) => moved,
                () = std::future::ready(()) => return Ok(()),
            };
            if let Ok(Moved::Read(bytes)) = moved {
                bytes_left = bytes_left.saturating_sub(bytes);
            }
            self.react(moved)?;
            self.take_answered();
            self.submit();
        }
        Ok(())
    }

    /// Whether the large message can continue with the bytes that are there already.
    fn goes_on(&self) -> bool {
        let goes_on = self.body.as_ref().is_some_and(|body| match body.is_leaving() {
            true => self.session.body_missing() == 0 || body.has_next() && self.session.takes_body(),
            false => body.has_next(),
        });
        goes_on && self.router.has_turn()
    }

    /// Whether output waits for the turn of its tenant.
    fn holds_back(&self) -> bool {
        !self.router.has_turn() && (self.body.is_some() || !self.mailbox.is_empty())
    }

    /// The kinds of mail that it can use now: messages, and pieces of a large one.
    fn waits_for(&self) -> (Taken, bool) {
        let is_turn = self.router.has_turn();
        let pieces =
            is_turn && self.body.as_ref().is_some_and(|body| !body.is_leaving() || self.session.takes_body());
        (self.takes(), pieces)
    }

    /// Which messages the session can have now.
    fn takes(&self) -> Taken {
        match &self.body {
            None if self.handle.handover.step() != Step::Serves || self.session.is_leaving() => {
                Taken::ButDeliveries
            }
            None if !self.router.has_turn() => Taken::ButDeliveries,
            None => Taken::All,
            Some(body) if !body.is_leaving() => Taken::Replies,
            Some(_) if self.session.interleaves() => Taken::ButDeliveries,
            Some(_) => Taken::None,
        }
    }

    /// Whether the socket is to be read now.
    fn listen(&mut self) -> bool {
        let room = self.connection.output.len().max(self.behind.len()) < OUTPUT_BYTES_MAX;
        let listens = room
            && self.paced_until.is_none()
            && self.connection.has_room()
            && self.router.may_read()
            && self.session.takes_input()
            && (self.handle.handover.step() != Step::TakesNothingNew || self.session.underway().work);
        if listens != self.listens {
            self.listens = listens;
            // Input until now was read as it came, or was left in the socket and is read now.
            self.session.heard(self.now());
        }
        listens
    }

    fn now(&self) -> Now {
        Now { ticks_ms: self.begun.elapsed().as_millis() as u64, wall_ms: now_ms() }
    }

    fn react(&mut self, moved: std::io::Result<Moved>) -> Result<(), Parting> {
        match moved.map_err(broken)? {
            Moved::Read(_) => {
                self.router.note_read();
                self.receive()
            }
            Moved::Closed => Err(Parting::Farewell),
            Moved::Writable => Ok(()),
        }
    }

    /// Gives the input to the session, and its credentials to the task that checks them.
    fn receive(&mut self) -> Result<(), Parting> {
        loop {
            let now = self.now();
            let Connection { input, output: out, .. } = &mut self.connection;
            let output = output(&self.body, &mut self.behind, out);
            borrow(&mut self.events);
            self.session.receive(input, now, &mut self.events, output)?;
            let Some(login) = self.session.login() else { return Ok(()) };
            let Some(answer) = self.login.ask_or_repeat(login, output) else { return Ok(()) };
            let answer = self.identify(answer);
            let Connection { output: out, .. } = &mut self.connection;
            let output = self::output(&self.body, &mut self.behind, out);
            self.session.admit(answer, now, &mut self.events, output)?;
        }
    }

    /// From the login on events need the permissions of the user, and the connection ends with its
    /// credential. It is refused if its tenant has no place for it.
    fn identify(&mut self, answer: LoginAnswer) -> LoginAnswer {
        self.was_refused |= matches!(answer, LoginAnswer::Refused { .. });
        let LoginAnswer::Welcome { principal, .. } = &answer else { return answer };
        let principal = principal.clone();
        let permit = self.handle.core.borrow().places().borrow().permit(&principal);
        match permit {
            Ok(permit) => self.permit = permit,
            Err(refusal) => return LoginAnswer::Full { reason: refusal.to_string() },
        }
        let credential = self.login.credential(&principal);
        self.router.set_principal(principal);
        if let Some((credential, is_revoked)) = credential {
            let ends = (self.mailbox.clone(), is_revoked);
            self.handle.identified.add(self.id, (credential, self.door.clone()), ends);
        }
        answer
    }

    fn admit(&mut self, answer: LoginAnswer) -> Result<(), Parting> {
        let answer = self.identify(answer);
        let now = self.now();
        let output = output(&self.body, &mut self.behind, &mut self.connection.output);
        self.session.admit(answer, now, &mut self.events, output)?;
        self.receive()
    }

    /// The session's deadline may have come.
    async fn wake(&mut self, reads: bool, missing: usize) -> Result<(), Parting> {
        // This thread may have been away for long, and the peer's sign of life be there already.
        tokio::select! {
            biased;
            moved = self.connection.moved(reads, missing) => self.react(moved)?,
            () = std::future::ready(()) => {}
        }
        let now = self.now();
        if self.session.deadline().is_some_and(|deadline| deadline <= now.ticks_ms) {
            if !reads && self.may_live()? {
                self.session.heard(now);
            }
            let output = output(&self.body, &mut self.behind, &mut self.connection.output);
            self.session.wake(now, &mut self.events, output)?;
        }
        Ok(())
    }

    /// Whether a peer that is not read has sent more, or may have no room to.
    fn may_live(&mut self) -> Result<bool, Parting> {
        let unread = self.connection.unread_bytes().map_err(broken)?;
        let before = std::mem::replace(&mut self.unread_bytes, unread);
        Ok(before != unread || UNREAD_BYTES_MAX <= unread)
    }

    /// Takes messages of the core, and then the input that the session could not take before.
    fn take_mail(&mut self) -> Result<(), Parting> {
        self.take_answered();
        let took_input = self.session.takes_input();
        self.answer_mail()?;
        let resumes = !took_input && self.session.takes_input() && !self.connection.input.is_empty();
        if resumes { self.receive() } else { Ok(()) }
    }

    fn take_answered(&mut self) {
        self.mailbox.each_answered(|ticket| self.router.answered(ticket));
    }

    fn answer_mail(&mut self) -> Result<(), Parting> {
        borrow(&mut self.events);
        let mut now = None;
        while self.connection.output.len() < OUTPUT_BYTES_MAX {
            if self.body.is_some() && self.router.has_turn() && self.send_body()? {
                continue;
            }
            let Some(message) = self.mailbox.take(self.takes()) else { return Ok(()) };
            let now = *now.get_or_insert_with(|| self.now());
            let mut core = self.handle.core.borrow_mut();
            self.router.note(&message, |partition, event| core.submit(partition, event));
            drop(core);
            let Some(message) = self.router.merge(message) else { continue };
            if let ToSession::Reply { result: Err(refusal), .. } = &message {
                log_refused_request(refusal);
            }
            let mut core = self.handle.core.borrow_mut();
            self.router.resume(|partition, event| core.submit(partition, event));
            drop(core);
            if let ToSession::Deliver(delivery) = &message {
                self.traced.extend(Traced::of(delivery));
            }
            match message {
                ToSession::Deliver(delivery) if delivery.message.chunks().is_some() => {
                    self.begin_body(delivery, now)?;
                }
                message => {
                    self.session.answer(message, now, &mut self.events, &mut self.connection.output)?
                }
            }
        }
        Ok(())
    }

    /// A large message: its body comes from the log while it goes out.
    fn begin_body(&mut self, delivery: Delivery, now: Now) -> Result<(), Parting> {
        let Some(chunks) = delivery.message.chunks().cloned() else { return Ok(()) };
        let (consumer, from) = (delivery.consumer, self.router.partition_of(delivery.consumer));
        match self.session.streams() {
            Some(protocol) if protocol == delivery.message.encoding.protocol => {
                self.leave_with(delivery, Body::streamed(consumer, from, chunks), now)?;
            }
            Some(protocol) => self.body = Some(Box::new(Body::rewritten(from, chunks, delivery, protocol))),
            None => match Body::whole(from, chunks, delivery) {
                Ok(body) => self.body = Some(Box::new(body)),
                Err((delivery, reason)) => self.cannot_deliver(&delivery, &reason, now),
            },
        }
        Ok(())
    }

    /// The message leaves, and its body follows.
    fn leave_with(&mut self, delivery: Delivery, mut body: Body, now: Now) -> Result<(), Parting> {
        body.is_exclusive = !self.session.interleaves();
        let message = ToSession::Deliver(delivery);
        self.session.answer(message, now, &mut self.events, &mut self.connection.output)?;
        self.body = Some(Box::new(body)).filter(|_| 0 < self.session.body_missing());
        Ok(())
    }

    fn cannot_deliver(&mut self, delivery: &Delivery, reason: &str, now: Now) {
        let output = &mut self.connection.output;
        self.session.cannot_deliver(delivery, reason, now, &mut self.events, output);
    }

    /// Sends the next piece of the body, if it is there; `false` if it is not.
    fn send_body(&mut self) -> Result<bool, Parting> {
        let now = self.now();
        let Some(body) = &mut self.body else { return Ok(true) };
        if body.is_leaving() && self.session.body_missing() == 0 {
            // Its consumer is gone, or the rest of it has no meaning for the peer any more.
            self.end_body(None, now)?;
            return Ok(true);
        }
        if body.is_leaving() && !self.session.takes_body() {
            return Ok(false);
        }
        if !body.is_leaving() && !self.session.has_consumer(body.consumer()) {
            // No consumer waits for this message any more.
            self.body = None;
            return Ok(true);
        }
        body.ask(&mut self.events);
        while !body.has_next() {
            let Some(((from, position), piece)) = self.mailbox.take_chunk() else { return Ok(false) };
            body.put(from, position, piece);
        }
        match body.advance() {
            Ok(leaves) => {
                if let Some(bytes) = leaves {
                    self.router.charge(bytes.len() as u64);
                    self.session.body(&bytes, now, &mut self.events, &mut self.connection.output);
                }
                if body.is_complete() {
                    self.end_body(None, now)?;
                } else {
                    body.ask(&mut self.events);
                }
            }
            Err(reason) => self.end_body(Some(reason), now)?,
        }
        Ok(true)
    }

    /// The body is out, or there, or lost.
    fn end_body(&mut self, lost: Option<String>, now: Now) -> Result<(), Parting> {
        let Some(body) = self.body.take() else { return Ok(()) };
        match body.end(lost) {
            End::Out => {}
            End::Torn(reason) => {
                self.session.body_lost(&reason, &mut self.events);
                return Err(Parting::Fault(format!("cannot read a message for its consumer: {reason}")));
            }
            End::Deliver(delivery) => {
                let message = ToSession::Deliver(delivery);
                self.session.answer(message, now, &mut self.events, &mut self.connection.output)?;
            }
            End::Leave(delivery, body) => self.leave_with(delivery, body, now)?,
            End::Never(delivery, reason) => self.cannot_deliver(&delivery, &reason, now),
        }
        if self.body.is_none() {
            self.connection.output.unsplit(std::mem::take(&mut self.behind));
        }
        Ok(())
    }

    /// Counts what is sent in the rates of tenants.
    fn pace(&mut self) {
        let tenants = self.handle.core.borrow().places().borrow().tenants.clone();
        if !tenants.any_rate() {
            return;
        }
        let now = Duration::from_millis(ticks_ms());
        let sends = self.events.iter().filter_map(|event| match event {
            Event::Publish(publish) if !publish.is_notice => Some(&publish.sent),
            _ => None,
        });
        let ahead = sends.flat_map(|sent| sent.targets()).filter_map(|to| tenants.sent(to, 1, now));
        if let Some(wait) = ahead.map(|ahead| ahead.wait).max() {
            self.paced_until = Some(Instant::now() + wait);
        }
    }

    fn submit(&mut self) {
        if !self.events.is_empty() {
            self.pace();
        }
        let mut core = self.handle.core.borrow_mut();
        for event in self.events.drain(..) {
            self.router.route(event, |partition, event| core.submit(partition, event));
        }
        lend(&mut self.events);
        core.run();
        if core.wants_turn() {
            drop(core);
            self.handle.wake.notify_one();
        }
    }

    /// Reports the end of the connection to the partitions and to its link.
    fn end(&mut self, parting: &Parting) {
        match self.was_refused {
            // The log has its login, or the number of such logins: see `FailedLogins`.
            true => tracing::debug!(peer = %self.peer, reason = reason_of(parting), "connection ended"),
            false => tell(parting, self.peer, self.link.as_ref()),
        }
        self.end_link(parting);
        self.session.close(&mut self.events);
        self.handle.handover.count(&mut self.is_counted, Underway::default);
        let mut core = self.handle.core.borrow_mut();
        for event in self.events.drain(..) {
            self.router.route(event, |partition, event| core.submit(partition, event));
        }
        self.router.close(|partition, event| core.submit(partition, event));
        core.run();
        drop(core);
        self.handle.wake.notify_one();
    }

    /// Says goodbye to the peer, and meanwhile waits until the broker has finished with all that
    /// came over the connection. Its client may have another one that waits for that.
    async fn finish(&mut self, stops: Option<Pin<&mut impl Future<Output = ()>>>) {
        let Task { handle, connection, mailbox, router, .. } = self;
        let concluded = async {
            let Some(stops) = stops else { return };
            tokio::select! {
                _ = tokio::time::timeout(AFTERMATH, all_is_done(router, mailbox)) => {}
                () = stops => return,
            }
            let mut core = handle.core.borrow_mut();
            router.conclude(|partition, event| core.submit(partition, event));
            core.run();
            drop(core);
            handle.wake.notify_one();
        };
        tokio::join!(part(connection), concluded);
    }

    fn leave(&mut self, id: ConnectionId) {
        self.handle.core.borrow_mut().leave(id);
        self.handle.wake.notify_one();
    }
}

/// Waits until a connection is read again whose tenant was too fast.
async fn paced(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits until the broker is done with all that came over a connection: until then it takes memory.
async fn all_is_done(router: &mut Router, mailbox: &Mailbox) {
    mailbox.each_answered(|ticket| router.answered(ticket));
    while router.awaits_echo() {
        mailbox.answered().await;
        mailbox.each_answered(|ticket| router.answered(ticket));
    }
}

fn broken(error: std::io::Error) -> Parting {
    match error.kind() {
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => Parting::Farewell,
        _ => Parting::Fault(error.to_string()),
    }
}
