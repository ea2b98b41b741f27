//! Session room: one AMQP conversation. Bytes in, events out; answers in, bytes out.
//!
//! ```text
//!   header ─▶ [SASL] ─▶ header ─▶ open ─▶ begin ─▶ attach ─▶ flow, transfer, disposition ─▶ detach, end, close
//!   (layers.rs)                 (connection.rs)  (channel.rs)  (link.rs)  (incoming.rs, outgoing.rs, disposition.rs)
//! ```
//! The standard's session is a [`channel::Channel`] here: a session is the whole connection.
//! The core's answers find their way back by [`replies`].
//! Never here: sockets, clocks, queues, other connections.

pub(crate) mod address;
mod channel;
mod connection;
mod delay;
mod disposition;
mod fault;
mod incoming;
mod layers;
mod link;
mod outgoing;
mod recovery;
mod replies;
mod sequence;
mod terminus;
mod transaction;
mod upload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::portable::Translate;
use postroad_model::{
    ConnectionId, ConsumerKey, Deadline, Delivery, Elsewhere, Endpoint, Event, Liveness, Login, LoginAnswer,
    LookupMap, Now, Parting, Protocol, Refusal, Replies, Session, ToSession, Underway,
};

use crate::codec::{
    Close, DeliveryState, Detach, Disposition, End, Error, Field, FrameKind, Performative, Reader, Rejected,
    Role, Text, TransactionalState, announced_bytes, begin_frame, end_frame, take_frame,
};
use channel::Channel;
use connection::Peer;
use fault::Fault;
use layers::Layer;
use link::LinkAt;
use replies::Then;
use transaction::Transactions;

/// The operator's settings of AMQP connections.
#[derive(Clone, Debug)]
pub struct AmqpOptions {
    /// Largest frame that a client may send, in bytes.
    pub max_frame_bytes: u32,
    /// Largest message that a client may send, in bytes.
    pub max_message_bytes: u64,
    /// From this size on the body of a message is passed on while it comes, and never in memory as
    /// a whole.
    pub large_message_bytes: u64,
    /// A client that is silent for this time is considered dead, in milliseconds; 0 for never.
    pub max_inactivity_ms: u64,
    /// The broker's name.
    pub broker_name: String,
    /// SASL mechanisms by which a client may say who it is, the best first.
    pub mechanisms: Vec<&'static str>,
    /// Whether it must, or may begin without a SASL layer.
    pub must_login: bool,
    /// Whether users are known: without them names and passwords are not checked, and all clients
    /// are the same anonymous user.
    pub has_users: bool,
    /// How many partitions the broker has: a pattern is read in each.
    pub partitions: u16,
    /// Where clients are served, if not here: each is sent there once it has logged in.
    pub elsewhere: Option<Arc<Elsewhere>>,
}

/// One conversation with an AMQP client.
pub struct AmqpSession {
    id: ConnectionId,
    options: AmqpOptions,
    translate: Translate,
    layer: Layer,
    /// The client's credentials, until they are fetched.
    login: Option<Login>,
    peer: Peer,
    /// By the client's number.
    channels: BTreeMap<u16, Channel>,
    /// Our numbers for them.
    outgoing_channels: BTreeSet<u16>,
    /// Links that send to the client, by the core's number for their consumer.
    consumers: BTreeMap<u32, LinkAt>,
    /// Links by name and by the client's role.
    names: LookupMap<(Text, bool), LinkAt>,
    /// Counts channels, links and consumers: a number that is used once distinguishes an old one
    /// from a new one.
    last_number: u32,
    transactions: Transactions,
    replies: Replies<Then>,
    liveness: Liveness,
    /// Bytes of messages of which the end is still to come.
    partial_bytes: u64,
    /// The last frame, if it confirms sends: the next confirmation may extend it.
    confirmation: disposition::Confirmation,
    temporaries: u32,
    uploads: upload::Uploads,
    /// The channel on which a large message is on its way out.
    streaming: Option<u16>,
}

/// One turn of a session: where its events and frames go.
struct Turn<'a> {
    events: &'a mut Vec<Event>,
    output: &'a mut BytesMut,
    now: Now,
}

impl AmqpSession {
    /// The broker's side of a new connection. `translate` reads the messages of other protocols.
    pub fn new(id: ConnectionId, options: AmqpOptions, translate: Translate) -> AmqpSession {
        AmqpSession {
            id,
            liveness: Liveness::since(0),
            options,
            translate,
            layer: Layer::default(),
            login: None,
            peer: Peer::default(),
            channels: BTreeMap::new(),
            outgoing_channels: BTreeSet::new(),
            consumers: BTreeMap::new(),
            names: LookupMap::default(),
            last_number: 0,
            transactions: Transactions::default(),
            replies: Replies::default(),
            partial_bytes: 0,
            confirmation: disposition::Confirmation::default(),
            temporaries: 0,
            uploads: upload::Uploads::default(),
            streaming: None,
        }
    }

    /// A number that no channel, link or consumer of this connection has had.
    fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Takes one frame.
    fn take(&mut self, channel: u16, body: Bytes, turn: &mut Turn<'_>) -> Result<(), Parting> {
        if body.is_empty() {
            return Ok(());
        }
        let mut reader = Reader::new(&body);
        let performative = match Performative::read(&mut reader) {
            Ok(performative) => performative,
            Err(error) => return Err(self.fail(Fault::decode(&error), turn)),
        };
        let payload = body.slice(reader.offset()..);
        if !payload.is_empty() && !matches!(performative, Performative::Transfer(_)) {
            let text = format!("{} bytes follow a {} frame", payload.len(), performative.name());
            return Err(self.fail(Fault::framing(text), turn));
        }
        match self.perform(channel, performative, payload, turn) {
            Ok(()) => Ok(()),
            Err(Refused::Fault(fault)) => self.answer_fault(fault, turn),
            Err(Refused::Parting(parting)) => Err(parting),
        }
    }

    fn perform(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refused> {
        channel::check_number(channel)?;
        match performative {
            Performative::Open(_) if channel != 0 => {
                return Err(Fault::framing(format!("an Open on channel {channel}; it belongs on 0")).into());
            }
            Performative::Open(open) => return self.open(open, turn).map_err(Refused::Fault),
            Performative::Close(close) => return self.close_connection(close, turn),
            _ => self.check_open(performative.name())?,
        }
        if let Performative::Begin(begin) = performative {
            return Ok(self.begin(channel, &begin, turn)?);
        }
        if let Performative::End(_) = performative {
            return Ok(self.end(channel, turn)?);
        }
        if !self.is_live(channel)? {
            if let Performative::Transfer(transfer) = &performative {
                self.transactions.doom_any(incoming::settled_transaction(None, Some(transfer)));
            }
            return Ok(());
        }
        match performative {
            Performative::Attach(attach) => self.attach(channel, attach, turn)?,
            Performative::Flow(flow) => self.flow(channel, &flow, turn)?,
            Performative::Transfer(transfer) => self.transfer(channel, transfer, payload, turn)?,
            Performative::Disposition(disposition) => self.dispose(channel, disposition, turn)?,
            Performative::Detach(detach) => self.detach(channel, &detach, turn)?,
            _ => {}
        }
        Ok(())
    }

    /// Writes a frame. One that exceeds the client's frame size is shortened, or not sent: see
    /// [`brief`].
    fn send(&mut self, channel: u16, performative: impl Into<Performative>, turn: &mut Turn<'_>) {
        let performative = performative.into();
        let start = turn.output.len();
        if write_frame(channel, &performative, turn.output) <= self.peer.frame_bytes_max() {
            return self.liveness.wrote(turn.now.ticks_ms);
        }
        turn.output.truncate(start);
        match brief(performative) {
            Some(performative) => {
                write_frame(channel, &performative, turn.output);
                self.liveness.wrote(turn.now.ticks_ms);
            }
            None => self.end_too_small(channel, turn),
        }
    }

    /// The client cannot be informed that a link is attached: nothing in its channel can be relied
    /// on any more (2.7.3).
    fn end_too_small(&mut self, outgoing: u16, turn: &mut Turn<'_>) {
        let max_bytes = self.peer.frame_bytes_max();
        let text = format!("the answer to an attach needs more than the {max_bytes} bytes of a frame");
        let error = fault::error("amqp:frame-size-too-small", text);
        let known = self.channels.iter().find(|(_, known)| known.outgoing == outgoing);
        if let Some(channel) = known.map(|(channel, _)| *channel) {
            self.end_by(channel, End { error: Some(error) }, turn);
        }
    }

    /// The largest frame that the client may send now.
    fn frame_bytes_max(&self) -> u32 {
        match self.layer {
            Layer::Frames => self.options.max_frame_bytes,
            _ => self.options.max_frame_bytes.min(layers::FIRST_FRAME_BYTES_MAX),
        }
    }

    /// Takes one frame, or one header, from the front of `input`; `false` if none is there whole.
    fn step(&mut self, input: &mut BytesMut, turn: &mut Turn<'_>) -> Result<bool, Parting> {
        if self.layer.awaits_header() {
            return self.take_header(input, turn);
        }
        let frame = match take_frame(input, self.frame_bytes_max()) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(false),
            Err(error) => return Err(self.fail(Fault::framing(error.to_string()), turn)),
        };
        match (&self.layer, frame.kind) {
            (Layer::Frames, FrameKind::Amqp { channel }) => self.take(channel, frame.body, turn)?,
            (Layer::Sasl(_), FrameKind::Sasl) => self.take_sasl(&frame.body)?,
            (Layer::Frames, FrameKind::Sasl) => {
                let fault = Fault::framing("a SASL frame outside the SASL layer".to_owned());
                return Err(self.fail(fault, turn));
            }
            _ => return Err(Parting::Fault("an AMQP frame inside the SASL layer".to_owned())),
        }
        Ok(true)
    }
}

/// Appends a frame; its size in bytes.
fn write_frame(channel: u16, performative: &Performative, out: &mut BytesMut) -> usize {
    let start = begin_frame(FrameKind::Amqp { channel }, out);
    performative.write(out);
    end_frame(start, out)
}

/// A frame without the text and details of its error: the rest has room in the smallest frame that
/// a peer may ask for. `None` for an attach, which has names and addresses of the client's own.
fn brief(performative: Performative) -> Option<Performative> {
    let condition_of = |error: Error| Error { description: None, info: None, ..error };
    let brief_error = |error: Option<Error>| error.map(condition_of);
    match performative {
        Performative::Attach(_) => None,
        Performative::Close(Close { error }) => Some(Close { error: brief_error(error) }.into()),
        Performative::End(End { error }) => Some(End { error: brief_error(error) }.into()),
        Performative::Detach(it) => Some(Detach { error: brief_error(it.error), ..it }.into()),
        Performative::Disposition(it) => {
            let state = it.state.map(|state| brief_state(state, condition_of));
            Some(Disposition { state, ..it }.into())
        }
        other => Some(other),
    }
}

fn brief_state(state: DeliveryState, brief: impl Fn(Error) -> Error) -> DeliveryState {
    match state {
        DeliveryState::Rejected(Rejected { error }) => {
            DeliveryState::Rejected(Rejected { error: error.map(brief) })
        }
        DeliveryState::TransactionalState(TransactionalState { txn_id, outcome }) => {
            let outcome = outcome.map(|outcome| Box::new(brief_state(*outcome, brief)));
            DeliveryState::TransactionalState(TransactionalState { txn_id, outcome })
        }
        other => other,
    }
}

/// Why a frame was not carried out.
enum Refused {
    Fault(Fault),
    Parting(Parting),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused::Fault(fault)
    }
}

/// The key of a link's name.
fn name_key(name: &Text, client: Role) -> (Text, bool) {
    (name.clone(), client == Role::Receiver)
}

impl Session for AmqpSession {
    fn receive(
        &mut self,
        input: &mut BytesMut,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) -> Result<(), Parting> {
        self.liveness.heard(now.ticks_ms);
        let mut turn = Turn { events, output, now };
        while self.takes_input() && self.step(input, &mut turn)? {}
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
            // The runtime gives it to `body`, in its turn.
            ToSession::Chunk { .. } => Ok(()),
            // A rejected delivery would be final for the application; one without an outcome is
            // sent again.
            ToSession::Reply {
                result: Err(refusal @ (Refusal::NotLeader | Refusal::OutcomeUnknown)),
                ..
            } => {
                let fault = Fault::connection("amqp:connection:forced", refusal.to_string());
                Err(self.fail(fault, &mut turn))
            }
            ToSession::Reply { ticket, result } => self.replied(ticket, result, &mut turn),
            ToSession::Deliver(delivery) => {
                self.deliver(delivery, &mut turn);
                Ok(())
            }
            ToSession::Drained { consumer } => {
                self.drained(consumer.number, &mut turn);
                Ok(())
            }
            ToSession::Detached { consumer, cause } => {
                self.ousted(consumer.number, cause, &mut turn);
                Ok(())
            }
            ToSession::Unsettled { ticket, deliveries } => {
                self.unsettled(ticket, deliveries);
                Ok(())
            }
            // Credit is the client's own, and AMQP has no requests for branches or redrives.
            ToSession::Prefetch { .. }
            | ToSession::Ended { .. }
            | ToSession::Branches { .. }
            | ToSession::Redriven { .. }
            | ToSession::Moves { .. }
            | ToSession::Lease { .. }
            | ToSession::Page { .. } => Ok(()),
            // The runtime's own.
            ToSession::Moved { .. } | ToSession::Left { .. } => Ok(()),
            ToSession::Evicted => {
                let text = "its client has reconnected".to_owned();
                let fault = Fault::connection("amqp:connection:forced", text);
                Err(self.fail(fault, &mut turn))
            }
        }
    }

    fn wake(&mut self, now: Now, events: &mut Vec<Event>, output: &mut BytesMut) -> Result<(), Parting> {
        let mut turn = Turn { events, output, now };
        if let Err(silence) = self.liveness.check(now.ticks_ms) {
            let fault = Fault::connection("amqp:resource-limit-exceeded", silence.to_string());
            return Err(self.fail(fault, &mut turn));
        }
        if self.liveness.must_write(now.ticks_ms) {
            let start = begin_frame(FrameKind::Amqp { channel: 0 }, turn.output);
            end_frame(start, turn.output);
            self.liveness.wrote(now.ticks_ms);
        }
        Ok(())
    }

    fn login(&mut self) -> Option<Login> {
        self.login.take()
    }

    fn admit(
        &mut self,
        answer: LoginAnswer,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) -> Result<(), Parting> {
        self.answer_sasl(answer, &mut Turn { events, output, now })
    }

    fn is_known(&self) -> bool {
        matches!(self.layer, Layer::AuthenticatedHeader | Layer::Frames)
    }

    fn takes_input(&self) -> bool {
        self.replies.has_room()
            && self.uploads.take_input()
            && !self.peer.is_waiting()
            && !self.layer.is_waiting()
    }

    fn heard(&mut self, now: Now) {
        self.liveness.heard(now.ticks_ms);
    }

    fn underway(&self) -> Underway {
        let is_sent = |known: &Channel| !known.unsettled.is_empty() || !known.pending.is_empty();
        Underway {
            deliveries: self.channels.values().any(is_sent),
            work: self.transactions.is_any_used() || !self.replies.is_empty() || 0 < self.partial_bytes,
        }
    }

    fn deadline(&self) -> Deadline {
        self.liveness.deadline()
    }

    fn streams(&self) -> Option<Protocol> {
        Some(Protocol::Amqp)
    }

    fn has_consumer(&self, consumer: ConsumerKey) -> bool {
        self.consumers.contains_key(&consumer.number)
    }

    fn body_missing(&self) -> u64 {
        self.streamed_bytes()
    }

    fn takes_body(&self) -> bool {
        self.wants_piece()
    }

    fn interleaves(&self) -> bool {
        true
    }

    fn body(&mut self, bytes: &Bytes, now: Now, events: &mut Vec<Event>, output: &mut BytesMut) {
        self.send_piece(bytes, &mut Turn { events, output, now });
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
        self.reject(delivery, reason, &mut Turn { events, output, now });
    }

    fn stop(&mut self, onward: Option<&Endpoint>, now: Now, output: &mut BytesMut) {
        if self.peer.has_opened() {
            let reason = if onward.is_some() { "another node leads" } else { "the broker ends" };
            let fault = connection::redirect(onward, reason);
            self.fail(fault, &mut Turn { events: &mut Vec::new(), output, now });
        }
    }

    fn close(&mut self, _: &mut Vec<Event>) {}

    fn missing_bytes(&self, input: &BytesMut) -> usize {
        if self.layer.awaits_header() {
            return 0;
        }
        match announced_bytes(input, self.frame_bytes_max()) {
            Ok(Some(bytes)) => bytes.saturating_sub(input.len()),
            _ => 0,
        }
    }
}
