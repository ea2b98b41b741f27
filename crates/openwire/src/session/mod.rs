//! Session room: one OpenWire conversation. Bytes in, events out; answers in, bytes out.
//!
//! ```text
//!   first bytes ──▶ WireFormatInfo ──▶ ConnectionInfo ──▶ consumers, producers, transactions ──▶ ShutdownInfo
//!                   (handshake.rs)                        (one file each)
//! ```
//! The core's answers find their way back by [`replies`].
//! Never here: sockets, clocks, queues, other connections.

mod consumer;
mod credit;
mod dead_letter;
mod delivery;
mod demand;
mod download;
mod durables;
mod exception;
mod handshake;
mod header_changes;
mod moving;
mod names;
mod network;
mod origin;
mod producer;
mod properties;
mod replies;
mod schedule;
mod spreading;
mod temporary;
mod transaction;
mod upload;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::portable::Translate;
use postroad_model::{
    ConnectionId, ConsumerKey, Deadline, Delivery, Elsewhere, Event, LinkedPeer, Liveness, Login,
    LoginAnswer, Now, Parting, Protocol, RareHeaders, Refusal, Replies, Session, Ticket, ToSession, Underway,
};

use crate::codec::{
    Command, KeepAliveInfo, Response, SIZE_BYTES, WireFormat, WireString, announced_bytes, cut_frame,
    stamp_arrival,
};
use crate::network::MakeForwarder;
use crate::spread::ClientSpread;
use consumer::Consumers;
use exception::Exception;
use handshake::Introduction;
use replies::Waiting;
use temporary::Temporaries;
use transaction::Transactions;

pub(crate) use dead_letter::without_past;
pub use dead_letter::{mark_dead_letter, origin_of_dead_letter, revive_dead_letter};
pub use header_changes::change_headers;
pub(crate) use names::to_model as to_model_destination;
pub(crate) use names::{destinations_of, model_parts as parts_of};
pub use origin::{name_of, origin_of};
pub(crate) use producer::to_model as to_model_message;
pub use properties::StoredProperties;
pub(crate) use schedule::SCHEDULE_PREFIX;
pub use schedule::write_due;

/// The operator's settings of OpenWire connections.
#[derive(Clone, Debug)]
pub struct OpenWireOptions {
    /// Largest frame that a client may send, in bytes.
    pub max_frame_bytes: u64,
    /// From this size on the body of a message is passed on while it comes, and never in memory as
    /// a whole.
    pub large_message_bytes: u64,
    /// Offer the tight encoding: smaller frames, more work on both sides.
    pub tight_encoding: bool,
    /// Offer marshalling caches: smaller frames, more work on both sides.
    pub cache: bool,
    /// A peer that is silent for this time is considered dead, in milliseconds; 0 for never.
    pub max_inactivity_ms: i64,
    /// The broker's name.
    pub broker_name: String,
    /// The broker's id, unique among all brokers, whatever their names.
    pub broker_id: String,
    /// Where it can be reached.
    pub broker_url: String,
    /// How many partitions it has: a consumer of a pattern reads from each.
    pub partitions: u16,
    /// Whether clients have to log in.
    pub asks_login: bool,
    /// Forwards messages over duplex connections of other brokers; `None`: they are one-way.
    pub forwarder: Option<MakeForwarder>,
    /// Where clients are served, if not here: each is sent there once it has logged in.
    pub elsewhere: Option<Arc<Elsewhere>>,
    /// The brokers that `failover:` clients are offered; `None`: none.
    pub spread: Option<Arc<ClientSpread>>,
}

/// One conversation with an OpenWire client.
pub struct OpenWireSession {
    id: ConnectionId,
    options: OpenWireOptions,
    /// Reads messages that came by other protocols.
    translate: Translate,
    format: WireFormat,
    /// The wire formats are negotiated.
    negotiated: bool,
    introduction: Introduction,
    login: handshake::LoginState,
    moving: moving::Moving,
    /// The headers of messages that have no other ones than who sent them; `None` for the anonymous
    /// user.
    user_headers: Option<Arc<RareHeaders>>,
    /// Its client had lost another connection, and may resend its messages of that.
    reconnected: bool,
    /// `javax.jms.` or `jakarta.jms.`: where the client looks for exceptions.
    jms_package: &'static str,
    consumers: Consumers,
    producers: producer::Producers,
    transactions: Transactions,
    temporaries: Temporaries,
    replies: Replies<Waiting>,
    liveness: Liveness,
    next_command_id: i32,
    /// Number of the last delivery.
    next_delivery: u64,
    names: names::Names,
    network: network::Network,
    spreading: Option<Box<spreading::Spreading>>,
    uploads: upload::Uploads,
    /// The large message that is going out.
    download: Option<download::Download>,
}

/// One turn of a session: where its events and frames go.
struct Turn<'a> {
    events: &'a mut Vec<Event>,
    output: &'a mut BytesMut,
    now: Now,
}

impl OpenWireSession {
    /// The broker's side of a new connection. Messages of other protocols are read by `translate`.
    pub fn new(id: ConnectionId, options: OpenWireOptions, translate: Translate) -> OpenWireSession {
        OpenWireSession {
            id,
            options,
            translate,
            format: WireFormat::initial(),
            negotiated: false,
            introduction: Introduction::default(),
            login: handshake::LoginState::default(),
            moving: moving::Moving::default(),
            user_headers: None,
            reconnected: false,
            jms_package: exception::JAVAX,
            consumers: Consumers::default(),
            producers: producer::Producers::default(),
            transactions: Transactions::default(),
            temporaries: Temporaries::default(),
            replies: Replies::default(),
            liveness: Liveness::since(0),
            next_command_id: 0,
            next_delivery: 0,
            names: names::Names::default(),
            network: network::Network::default(),
            spreading: None,
            uploads: upload::Uploads::default(),
            download: None,
        }
    }

    /// The largest frame that the client may send now.
    fn frame_bytes_max(&self) -> u64 {
        let agreed = if self.is_introduced() { u64::MAX } else { handshake::FIRST_FRAME_BYTES_MAX };
        self.options.max_frame_bytes.min(self.format.max_frame_bytes).min(agreed)
    }

    /// The next frame, if it is there. A client that announces a frame over the limit gets an
    /// error, unless it has not even stated which form of the protocol it reads.
    fn next_frame(&mut self, input: &mut BytesMut, turn: &mut Turn<'_>) -> Result<Option<Bytes>, Parting> {
        let frame = cut_frame(input, self.frame_bytes_max()).map_err(|error| {
            if self.negotiated {
                self.send_connection_error(&Exception::io(&error.to_string()), turn);
            }
            Parting::Fault(error.to_string())
        })?;
        Ok(frame.map(|frame| self.stamped(frame, turn.now)))
    }

    /// The frame; that of a message says when it came, so that its bytes are stored as they are.
    fn stamped(&self, mut frame: BytesMut, now: Now) -> Bytes {
        if self.negotiated && !self.format.tight_encoding && !self.format.has_cache() {
            stamp_arrival(&mut frame, self.format.version, now.wall_ms);
        }
        frame.freeze()
    }

    fn take(&mut self, frame: &Bytes, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let command = match self.format.decode(frame) {
            Ok(command) => command,
            Err(error) => {
                self.send_connection_error(&Exception::io(&error.to_string()), turn);
                return Err(Parting::Fault(format!("not an OpenWire command: {error}")));
            }
        };
        if !self.negotiated && !matches!(command, Command::WireFormatInfo(_)) {
            return Err(Parting::Fault(format!("{} ahead of WireFormatInfo", command.name())));
        }
        let Some(command) = durables::keep_early(self, command) else { return Ok(()) };
        if let Err(exception) = self.check_introduced(&command) {
            let respond = command.response_required().then(|| command.command_id());
            self.refuse(respond, &exception, turn);
            return Ok(());
        }
        match self.take_from_peer(command, turn)? {
            Some(command) => self.understand(command, frame, turn),
            None => Ok(()),
        }
    }

    /// All branching on commands is here; each arm does one thing elsewhere.
    fn understand(&mut self, command: Command, frame: &Bytes, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let respond = command.response_required().then(|| command.command_id());
        let done = match command {
            Command::Message(message) => {
                self.network.received();
                return self.send_message(*message, frame, turn);
            }
            Command::MessageAck(ack) => self.acknowledge(&ack, turn),
            Command::MessagePull(pull) => self.pull(&pull, turn),
            Command::WireFormatInfo(info) => return self.negotiate(&info, turn),
            Command::BrokerInfo(info) => return self.meet_broker(&info, turn),
            Command::ConnectionInfo(info) => {
                self.moving.introduced(&info);
                if !self.options.asks_login && moving::sends_on(self) {
                    return Err(moving::send_on(self, respond, turn));
                }
                self.connect(&info, turn)
            }
            // Nothing follows from these for this broker.
            Command::SessionInfo(_) | Command::FlushCommand(_) | Command::ConnectionControl(_) => {
                Ok(Done::Now)
            }
            // The peer is served without any demand of ours.
            Command::BrokerSubscriptionInfo(_) if self.network.is_link() => Ok(Done::Now),
            Command::ControlCommand(info) => Ok(self.control(&info, turn)),
            Command::ProducerInfo(info) => self.add_producer(info, turn),
            Command::ConsumerInfo(info) => self.add_consumer(info, turn),
            Command::ConsumerControl(control) => self.control_consumer(&control, turn),
            Command::RemoveSubscriptionInfo(info) => self.unsubscribe(&info, turn),
            Command::RemoveInfo(info) => self.remove(&info, turn),
            Command::DestinationInfo(info) => self.change_destination(&info, turn),
            Command::TransactionInfo(info) => self.transact(&info, turn),
            Command::KeepAliveInfo(info) => return self.keep_alive(&info, turn),
            Command::ShutdownInfo(_) => return Err(Parting::Farewell),
            other => Err(Exception::jms(&format!("{} is not supported by this broker", other.name()))),
        };
        self.conclude(respond, done, turn);
        Ok(())
    }

    /// Answers a command now, or arranges that the core's answers to it will.
    fn conclude(&mut self, respond: Option<i32>, done: Result<Done, Exception>, turn: &mut Turn<'_>) {
        match done {
            Ok(Done::Now) => self.respond(respond, turn),
            Ok(Done::Later(ticket)) => self.respond_later(ticket, respond),
            Err(exception) => self.refuse(respond, &exception, turn),
        }
    }

    fn respond(&mut self, respond: Option<i32>, turn: &mut Turn<'_>) {
        if let Some(correlation_id) = respond {
            let response = Response { correlation_id, ..Response::default() };
            self.send(response.into(), turn);
        }
    }

    fn keep_alive(&mut self, info: &KeepAliveInfo, turn: &mut Turn<'_>) -> Result<(), Parting> {
        if info.response_required {
            self.send(KeepAliveInfo::default().into(), turn);
        }
        Ok(())
    }

    /// Writes a command of the broker's own. None has texts or lists that are too long for the
    /// wire; one that is larger than the frames which the client has agreed to is dropped.
    fn send(&mut self, mut command: Command, turn: &mut Turn<'_>) {
        self.next_command_id = self.next_command_id.wrapping_add(1);
        command.set_command_id(self.next_command_id);
        let _ = self.format.encode(&command, turn.output);
        self.liveness.wrote(turn.now.ticks_ms);
    }
}

/// How far a command has got.
enum Done {
    /// It is done: the reply is sent at once.
    Now,
    /// The reply follows the answer of the core to this ticket.
    Later(Ticket),
}

impl Session for OpenWireSession {
    fn receive(
        &mut self,
        input: &mut BytesMut,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) -> Result<(), Parting> {
        self.liveness.heard(now.ticks_ms);
        self.network.heard(now);
        if !self.negotiated {
            handshake::check_protocol(input)?;
        }
        let mut turn = Turn { events, output, now };
        while self.takes_input() {
            if self.take_large(input, &mut turn)? {
                continue;
            }
            if self.uploads.current.is_some() {
                return Ok(());
            }
            if durables::pass_over_early(self, input) {
                return Ok(());
            }
            let Some(frame) = self.next_frame(input, &mut turn)? else {
                spreading::say_due(self, &mut turn);
                return moving::move_due(self, &mut turn);
            };
            self.uploads.took_frame();
            self.take(&frame, &mut turn)?;
        }
        Ok(())
    }

    fn answer(
        &mut self,
        message: ToSession,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) -> Result<(), Parting> {
        let mut turn = Turn { events, output, now };
        match message {
            // An error would be final for the application; without an answer a failover client
            // sends again.
            ToSession::Reply {
                result: Err(refusal @ (Refusal::NotLeader | Refusal::OutcomeUnknown)),
                ..
            } => {
                return Err(Parting::Fault(refusal.to_string()));
            }
            ToSession::Reply { ticket, result } if self.network.has_asked(ticket) => {
                self.reply_to_forwarder(ticket, result, &mut turn)?;
            }
            ToSession::Reply { ticket, result } => {
                self.replied(ticket, result, &mut turn);
                moving::move_due(self, &mut turn)?;
            }
            ToSession::Deliver(delivery) if self.is_forwarded(delivery.consumer) => {
                self.forward(&delivery, &mut turn);
            }
            ToSession::Deliver(delivery) => self.deliver(delivery, &mut turn)?,
            // The runtime gives it to `body`, in its turn.
            ToSession::Chunk { .. } => {}
            ToSession::Prefetch { consumer, messages } => {
                self.prefetch_decided(consumer.number, messages, &mut turn);
            }
            ToSession::Drained { consumer } if self.is_forwarded(consumer) => {
                self.network.drained(consumer.number, turn.events);
            }
            ToSession::Detached { consumer, cause } if self.is_forwarded(consumer) => {
                self.network.detached(consumer.number, cause, turn.events);
            }
            ToSession::Drained { consumer } => self.drained(consumer.number, &mut turn),
            ToSession::Detached { consumer, cause } => self.detached(consumer.number, cause, &mut turn),
            ToSession::Ended { transaction, committed } => self.ended(transaction, committed),
            ToSession::Branches { ticket, branches } => self.listed(ticket, branches),
            // OpenWire has no link recovery: its clients number their messages.
            ToSession::Unsettled { .. } => {}
            // Operators alone ask for it.
            ToSession::Redriven { .. } | ToSession::Moves { .. } | ToSession::Lease { .. } => {}
            ToSession::Page { ticket, page } if self.network.has_asked(ticket) => {
                self.network.page(ticket, *page);
            }
            ToSession::Page { ticket, page } if self.network.offer.has_asked(ticket) => {
                self.network.offer.add(*page);
            }
            ToSession::Page { ticket, page } => self.add_consumers(ticket, &page),
            // The runtime's own.
            ToSession::Moved { .. } | ToSession::Left { .. } => {}
            ToSession::Evicted => return Err(Parting::Fault("its client has reconnected".to_owned())),
        }
        Ok(())
    }

    fn wake(&mut self, now: Now, events: &mut Vec<Event>, output: &mut BytesMut) -> Result<(), Parting> {
        let mut turn = Turn { events, output, now };
        self.end_pulls(&mut turn);
        self.wake_dial(&mut turn)?;
        self.network.wake(now.ticks_ms, turn.events);
        self.ask_credit(&mut turn);
        spreading::say_due(self, &mut turn);
        moving::move_due(self, &mut turn)?;
        if self.network.probes(now) {
            self.send(
                KeepAliveInfo { response_required: true, ..KeepAliveInfo::default() }.into(),
                &mut turn,
            );
        }
        self.liveness.check(now.ticks_ms).map_err(|silence| Parting::Fault(silence.to_string()))?;
        if self.negotiated && self.liveness.must_write(now.ticks_ms) {
            self.send(KeepAliveInfo::default().into(), &mut turn);
        }
        Ok(())
    }

    fn login(&mut self) -> Option<Login> {
        self.login.fetch()
    }

    fn admit(
        &mut self,
        answer: LoginAnswer,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) -> Result<(), Parting> {
        self.admitted(answer, &mut Turn { events, output, now })
    }

    fn is_known(&self) -> bool {
        self.network.is_linked().unwrap_or_else(|| self.is_introduced())
    }

    fn takes_input(&self) -> bool {
        self.replies.has_room()
            && self.uploads.take_input()
            && !matches!(self.introduction, Introduction::Claiming(_))
    }

    fn link(&self) -> Option<LinkedPeer> {
        self.network.linked()
    }

    fn remark(&mut self) -> Option<String> {
        self.network.remark()
    }

    fn heard(&mut self, now: Now) {
        self.liveness.heard(now.ticks_ms);
    }

    fn deadline(&self) -> Deadline {
        let spreading = self.spreading.as_ref().filter(|_| self.network.counts_clients());
        let report = spreading.map(|spreading| spreading.report_ms());
        let due = [self.liveness.deadline(), self.consumers.next_pull_end(), self.network.deadline(), report];
        due.into_iter().chain([self.moving.deadline()]).flatten().min()
    }

    fn underway(&self) -> Underway {
        let is_large_under_way = self.uploads.current.is_some() || self.download.is_some();
        Underway {
            deliveries: self.consumers.any_holds(),
            work: !self.transactions.are_none_open() || !self.replies.is_empty() || is_large_under_way,
        }
    }

    fn is_leaving(&self) -> bool {
        self.moving.is_leaving()
    }

    fn streams(&self) -> Option<Protocol> {
        // Forwarding changes a message in other places than a dispatch does: the runtime puts it
        // together first.
        (self.can_stream() && !self.network.forwards()).then_some(Protocol::OpenWire)
    }

    fn has_consumer(&self, consumer: ConsumerKey) -> bool {
        self.consumers.has_number(consumer.number) || self.is_forwarded(consumer)
    }

    fn body_missing(&self) -> u64 {
        self.download.as_ref().map_or(0, |download| download.left)
    }

    fn body(&mut self, bytes: &Bytes, now: Now, _: &mut Vec<Event>, output: &mut BytesMut) {
        self.write_body(bytes, now.ticks_ms, output);
    }

    fn body_lost(&mut self, reason: &str, events: &mut Vec<Event>) {
        self.lose_body(reason, events);
    }

    fn cannot_deliver(
        &mut self,
        delivery: &Delivery,
        reason: &str,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) {
        if self.is_forwarded(delivery.consumer) {
            return self.network.unsendable(delivery, reason, now.ticks_ms, events);
        }
        self.reject(delivery.consumer, delivery.tag, reason, &mut Turn { events, output, now });
    }

    /// The core finds a client's leftovers by itself; a link's deliveries do not count as failed.
    fn close(&mut self, events: &mut Vec<Event>) {
        self.network.close(events);
    }

    fn missing_bytes(&self, input: &BytesMut) -> usize {
        if let Some(missing) = self.uploads.missing_bytes(input.len()) {
            return missing;
        }
        match announced_bytes(input, self.frame_bytes_max()) {
            Ok(Some(bytes)) => (SIZE_BYTES + bytes).saturating_sub(input.len()),
            _ => 0,
        }
    }
}

/// A text that outlives the frame it came in must not keep that frame's buffer alive.
fn own(text: &WireString) -> WireString {
    WireString::from_wire(Bytes::copy_from_slice(text.as_bytes())).unwrap_or_default()
}
