//! Network mode: the session of a connection whose peer is a broker.
//!
//! ```text
//!   acceptor:   BrokerInfo(network) ──▶ ConnectionInfo, let in ──▶ linked
//!   initiator:  greeting ──▶ the peer's BrokerInfo ──▶ ours, ConnectionInfo ──▶ linked
//! ```
//! Linked and duplex, or linked by our own initiative: the peer's consumer advisories become
//! demand, and deliveries of the [`Forwarder`] leave as messages whose responses settle them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::portable::Translate;
use postroad_model::{
    ConnectionId as ConnectionIdOfCore, ConsumerKey, Deadline, Delivery, Destination as Address,
    DestinationKind, DetachCause, Event, LinkFigures, LinkedPeer, Now, Page, Parting, Protocol, Refusal,
    Ticket,
};

use super::credit::CreditAsks;
use super::delivery::in_openwire;
use super::demand::{is_for_link, take_advisory};
use super::durables::{EarlyList, Offer, OfferedTo};
use super::exception::Exception;
use super::handshake::{Client, Introduction};
use super::origin::{is_link_producer, link_producer};
use super::spreading::Spreading;
use super::{OpenWireOptions, OpenWireSession, Turn};
use crate::codec::{
    BrokerId, BrokerInfo, BrokerSubscriptionInfo, Command, ConnectionId, ConnectionInfo, ConsumerId,
    ConsumerInfo, Destination, Message, MessageId, ProducerId, ProducerInfo, SessionId, SessionInfo,
    Throwable, WireError, WireString, from_stored,
};
use crate::network::{
    self, CreditQuestion, DialOptions, FORWARDER_TICKET, Forwarder, INBOUND, Link, LinkOptions, MakeForwarder,
};
use crate::portable::{id_by_every_way, to_wire_destination};

/// Topics on which a broker announces its consumers and temporary destinations.
const ADVISORIES: &str =
    "ActiveMQ.Advisory.Consumer.>,ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic";

/// Advisories that the peer may send ahead of acknowledgements.
const ADVISORY_PREFETCH: i32 = 1000;

/// Time for a peer to answer our introduction.
const LINKED_WITHIN_MS: u64 = 30_000;

/// Age of an unanswered message at which the peer is asked for a sign of life, and the interval of
/// these.
const PROBE_AFTER_MS: u64 = 1000;

/// Name of a link whose initiator sends none (default of `NetworkConnector.name`).
const UNNAMED: &str = "NC";

/// Brokers that a message may have passed: a longer path is a loop that nothing else has stopped.
const PATH_MAX: usize = 64;

/// State of a session whose peer is a broker.
#[derive(Default)]
pub struct Network {
    /// The peer has presented itself; a second time is a violation.
    peer: Option<Peer>,
    /// The output of this link.
    pub(super) forwarder: Option<Box<dyn Forwarder>>,
    /// The peer is a Postroad: it knows an entry again that it was forwarded before.
    pub(super) peer_is_postroad: bool,
    /// Questions of the peer.
    pub(super) asks: CreditAsks,
    /// The list of durable subscriptions for the peer.
    pub(super) offer: Offer,
    /// The peer's own list, if it came too early.
    pub(super) early: EarlyList,
    /// Our own ids on the peer's side.
    connection_id: WireString,
    /// Advisories that were not acknowledged yet, and the first of them.
    pub(super) unacknowledged: (i32, Option<MessageId>),
    /// Set if this broker has opened the connection.
    dial: Option<Box<Dialling>>,
    /// Commands that carried messages to the peer, with the times at which they left, as far as the
    /// first is unanswered.
    unanswered: VecDeque<(i32, u64)>,
    /// When the peer is to be asked for a sign of life; `None` while it owes no answer.
    probe_ms: Deadline,
}

/// How far a link is that this broker opens.
struct Dialling {
    options: DialOptions,
    /// The peer was sent our greeting.
    greeted: bool,
    /// The command that introduced us; its response lets us in.
    introduced: Option<i32>,
    /// The peer has let us in.
    linked: bool,
}

/// The `BrokerInfo` of a broker.
struct Peer {
    id: Arc<str>,
    name: Arc<str>,
    /// Where its clients reach it.
    url: Arc<str>,
    /// Empty without one.
    swimlane: Arc<str>,
    /// This broker belongs to another one.
    crosses_swimlanes: bool,
    /// The initiator's name for the link.
    link: Arc<str>,
    /// The link's figures for operators.
    figures: Arc<LinkFigures>,
    /// It wants to be forwarded messages over this connection.
    is_duplex: bool,
    /// It has opened the connection for its network; otherwise its `BrokerInfo` is only a courtesy.
    is_network: bool,
    /// How it wants to be forwarded messages.
    options: LinkOptions,
}

impl Network {
    /// Whether the core's name of a consumer is one of the forwarder's.
    pub fn has_consumer(&self, number: u32) -> bool {
        self.forwarder.as_ref().is_some_and(|forwarder| forwarder.has_consumer(number))
    }

    /// Whether messages leave by this connection other than to consumers.
    pub fn forwards(&self) -> bool {
        self.forwarder.is_some()
    }

    /// Whether this broker has opened the connection.
    pub fn dials(&self) -> bool {
        self.dial.is_some()
    }

    /// How long the peer of a link that this broker opens may be silent, if the link has an own
    /// option.
    pub fn max_inactivity_ms(&self) -> Option<i64> {
        let ms = self.dial.as_ref()?.options.max_inactivity_ms?;
        i64::try_from(ms).ok()
    }

    /// Whether the peer has let us in; `None` if the peer has opened the connection.
    pub fn is_linked(&self) -> Option<bool> {
        self.dial.as_ref().map(|dial| dial.linked)
    }

    /// The peer's side of a duplex link has introduced itself. ActiveMQ up to 5.19 and 6.2 then
    /// answers no introduction.
    fn is_met(&mut self) {
        if let Some(dial) = self.dial.as_mut().filter(|dial| dial.options.duplex) {
            dial.linked = true;
        }
    }

    /// When something is to be said or to be heard while a link is being opened, or the forwarder
    /// is to be woken.
    pub fn deadline(&self) -> Deadline {
        match self.dial.as_ref().filter(|dial| !dial.linked) {
            Some(dial) => Some(if dial.greeted { LINKED_WITHIN_MS } else { 0 }),
            None => {
                let forwarder = self.forwarder.as_ref().and_then(|forwarder| forwarder.deadline());
                forwarder.into_iter().chain(self.probe_ms).min()
            }
        }
    }

    /// Whether the peer is to be asked now for a sign of life, because it is late with an answer.
    pub fn probes(&mut self, now: Now) -> bool {
        let is_due = self.probe_ms.is_some_and(|due_ms| due_ms <= now.ticks_ms);
        if !is_due {
            return false;
        }
        self.probe_ms = Some(now.ticks_ms.saturating_add(PROBE_AFTER_MS));
        let is_late = |(_, sent_ms): &(i32, u64)| sent_ms.saturating_add(PROBE_AFTER_MS) <= now.wall_ms;
        self.unanswered.front().is_some_and(is_late)
    }

    /// The peer has said something.
    pub fn heard(&self, now: Now) {
        if let Some(peer) = &self.peer {
            peer.figures.heard_ms.set(now.wall_ms);
        }
    }

    /// See [`Forwarder::wake`].
    pub fn wake(&mut self, now_ms: u64, events: &mut Vec<Event>) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.wake(now_ms, events);
        }
    }

    /// See [`Forwarder::question`].
    pub fn question(&mut self, now_ms: u64) -> Option<CreditQuestion> {
        self.forwarder.as_mut()?.question(now_ms)
    }

    /// See [`Forwarder::asked`].
    pub fn asked(&mut self, request: i32, question: &CreditQuestion) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.asked(request, question);
        }
    }

    /// See [`Forwarder::credit`].
    pub fn credit(&mut self, request: i32, credit: u32, now_ms: u64, events: &mut Vec<Event>) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.credit(request, credit, now_ms, events);
        }
    }

    /// See [`postroad_model::Session::link`].
    pub fn linked(&self) -> Option<LinkedPeer> {
        let peer = self.peer.as_ref().filter(|peer| peer.is_network || self.dials())?;
        Some(LinkedPeer {
            link: peer.link.clone(),
            peer_id: peer.id.clone(),
            peer_name: peer.name.clone(),
            peer_url: peer.url.clone(),
            swimlane: peer.swimlane.clone(),
            crosses_swimlanes: peer.crosses_swimlanes,
            is_duplex: self.dial.as_ref().map_or(peer.is_duplex, |dial| dial.options.duplex),
            figures: peer.figures.clone(),
        })
    }

    /// Whether the peer is a broker of a link.
    pub fn is_link(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_network || self.dials())
    }

    /// Whether the peer wants to know how many clients there are here.
    pub fn counts_clients(&self) -> bool {
        self.peer_is_postroad && self.is_link() && self.is_linked() != Some(false)
    }

    /// The peer has said how many clients it has.
    pub fn peer_has_clients(&self, clients: u64) {
        if let Some(peer) = self.peer.as_ref().filter(|_| self.is_link()) {
            peer.figures.clients.set(clients.saturating_add(1));
        }
    }

    /// See [`postroad_model::Session::remark`].
    pub fn remark(&mut self) -> Option<String> {
        self.early.remark().or_else(|| self.forwarder.as_mut()?.remark())
    }

    /// Whether the message, if it comes again, is found among those that came before. A forwarded
    /// message keeps its id and may legally come by another way, too: only one of a named entry is
    /// looked up.
    pub fn may_know(&self, message: &Message) -> bool {
        !(self.is_link() || self.dials()) || message.producer_id.as_ref().is_some_and(is_link_producer)
    }

    /// A message has come.
    pub fn received(&self) {
        if let Some(peer) = &self.peer {
            peer.figures.received.add(1);
        }
    }

    /// A message has left.
    fn dispatched(&mut self, request: i32, bytes: usize, now: Now) {
        self.unanswered.push_back((request, now.wall_ms));
        self.probe_ms = self.probe_ms.or(Some(now.ticks_ms.saturating_add(PROBE_AFTER_MS)));
        if let Some(peer) = &self.peer {
            peer.figures.dispatched.add(1);
            peer.figures.dispatched_bytes.add(bytes as u64);
        }
        self.show_oldest();
    }

    /// Shows how old the oldest message is that the peer has not answered.
    fn show_oldest(&mut self) {
        let Some((forwarder, peer)) = self.forwarder.as_ref().zip(self.peer.as_ref()) else { return };
        while self.unanswered.front().is_some_and(|(request, _)| !forwarder.awaits(*request)) {
            self.unanswered.pop_front();
        }
        if self.unanswered.is_empty() {
            self.probe_ms = None;
        }
        peer.figures.oldest_sent_ms.set(self.unanswered.front().map_or(0, |(_, wall_ms)| *wall_ms));
    }

    /// Whether the core answers the forwarder by this ticket.
    pub fn has_asked(&self, ticket: Ticket) -> bool {
        ticket.0 & FORWARDER_TICKET != 0 && self.forwards()
    }

    fn name_of_link(&self, properties: &str) -> Arc<str> {
        match &self.dial {
            Some(dial) => dial.options.name.clone(),
            None => LinkOptions::name_in(properties).unwrap_or_else(|| UNNAMED.to_owned()).into(),
        }
    }

    /// The peer as the receiver of the list of durable subscriptions, if it wants one.
    pub(super) fn offers_to(&self) -> Option<OfferedTo<'_>> {
        let peer = self.peer.as_ref().filter(|_| self.is_link())?;
        let wants = match &self.dial {
            Some(dial) => dial.options.duplex,
            None => peer.options.syncs_durables,
        };
        let consumer_ttl = self.dial.as_ref().map_or(&peer.options, |dial| &dial.options.link).consumer_ttl;
        let passes_on = self.peer_is_postroad || !(0..=1).contains(&consumer_ttl);
        wants.then_some(OfferedTo { id: &peer.id, name: &peer.name, passes_on })
    }

    /// See [`Forwarder::page`].
    pub fn page(&mut self, ticket: Ticket, page: Page) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.page(ticket, page);
        }
    }

    /// See [`Forwarder::drained`].
    pub fn drained(&mut self, number: u32, events: &mut Vec<Event>) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.drained(number, events);
        }
    }

    /// See [`Forwarder::detached`].
    pub fn detached(&mut self, number: u32, cause: DetachCause, events: &mut Vec<Event>) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.detached(number, cause, events);
        }
    }

    /// See [`Forwarder::unsendable`].
    pub fn unsendable(&mut self, delivery: &Delivery, reason: &str, now_ms: u64, events: &mut Vec<Event>) {
        if let Some(forwarder) = &mut self.forwarder
            && forwarder.admit(delivery.consumer, delivery.tag, now_ms, events).is_some()
        {
            forwarder.unsendable(delivery.consumer, delivery.tag, reason, events);
        }
    }

    /// The connection is gone.
    pub fn close(&mut self, events: &mut Vec<Event>) {
        if let Some(mut forwarder) = self.forwarder.take() {
            forwarder.close(events);
        }
    }
}

impl OpenWireSession {
    /// The initiator's side of a connection to another broker.
    pub fn dial(
        id: ConnectionIdOfCore,
        options: OpenWireOptions,
        translate: Translate,
        dial: DialOptions,
    ) -> OpenWireSession {
        let mut session = OpenWireSession::new(id, options, translate);
        session.network.dial =
            Some(Box::new(Dialling { options: dial, greeted: false, introduced: None, linked: false }));
        session
    }

    /// Greets the peer, or gives up on one that does not let us in.
    pub(super) fn wake_dial(&mut self, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let Some(dial) = self.network.dial.as_mut().filter(|dial| !dial.linked) else { return Ok(()) };
        if !dial.greeted {
            dial.greeted = true;
            return self.greet(turn);
        }
        if turn.now.ticks_ms < LINKED_WITHIN_MS {
            return Ok(());
        }
        let seconds = LINKED_WITHIN_MS / 1000;
        Err(Parting::Fault(format!("the peer did not accept the link within {seconds} s")))
    }

    /// The peer has said which broker it is: now we do.
    fn introduce_link(&mut self, turn: &mut Turn<'_>) {
        let Some((peer, dial)) = self.network.peer.as_ref().zip(self.network.dial.as_ref()) else { return };
        let DialOptions { name, duplex, user, password, link, .. } = dial.options.clone();
        let number = link.share.number;
        // Another broker would forward the same messages over each connection.
        let duplex = duplex && (number == 0 || self.network.peer_is_postroad);
        let at_peer: Arc<str> = if number == 0 { name.clone() } else { format!("{name}#{number}").into() };
        let own = self.options.forwarder.as_ref().map(MakeForwarder::properties).unwrap_or_default();
        let here = self.options.broker_name.clone();
        let client = Client {
            connection_id: format!("link {at_peer} to {}", peer.name).as_str().into(),
            client_id: format!("{at_peer}_{}{INBOUND}{here}", peer.name).into(),
            user: None,
            owner: "".into(),
        };
        let outbound = format!("{at_peer}_{here}_outbound");
        let sent =
            if self.network.peer_is_postroad { link.clone() } else { link.clone().with_all_included() };
        self.introduction = Introduction::Known(client);
        let spread = self.options.spread.clone();
        self.spreading = spread.map(|spread| Box::new(Spreading::new(spread, false)));
        let info = BrokerInfo {
            broker_id: Some(BrokerId { value: Some(self.options.broker_id.as_str().into()) }),
            broker_name: Some(here.as_str().into()),
            broker_url: Some(self.options.broker_url.as_str().into()),
            network_connection: true,
            duplex_connection: duplex,
            network_properties: Some((sent.to_properties(&name, duplex) + &own).as_str().into()),
            ..BrokerInfo::default()
        };
        self.send(info.into(), turn);
        let introduced = self.next_command_id.wrapping_add(1);
        if let Some(dial) = &mut self.network.dial {
            dial.introduced = Some(introduced);
            dial.options.duplex = duplex;
        }
        let credentials = (user.as_deref(), password.as_deref());
        self.introduce_to_peer(&outbound, credentials, link.only_statics, turn);
        if let Some(make) = self.options.forwarder.clone() {
            self.start_forwarder(make.make(link), turn);
        }
    }

    /// The peer has answered our introduction; `false` if it has answered something else.
    fn let_in(&mut self, request: i32, refused: Option<&str>) -> Result<bool, Parting> {
        let Some(dial) = self.network.dial.as_mut() else { return Ok(false) };
        if dial.introduced != Some(request) {
            return Ok(false);
        }
        dial.linked = refused.is_none();
        match refused {
            None => Ok(true),
            Some(reason) => Err(Parting::Fault(format!("the peer refuses the link: {reason}"))),
        }
    }

    /// The peer presents itself as a broker.
    pub(super) fn meet_broker(&mut self, info: &BrokerInfo, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let id = info.broker_id.as_ref().and_then(|id| id.value.as_ref());
        let id: Arc<str> = id.map(|id| id.to_str().into()).unwrap_or_default();
        let wrong = if self.network.peer.is_some() {
            Some("a second BrokerInfo on one connection")
        } else if info.slave_broker {
            Some("BrokerInfo of a slave broker, which this broker does not serve")
        } else if *id == *self.options.broker_id {
            Some("BrokerInfo with the id of this broker: the link leads back to it")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.send_connection_error(&Exception::io(wrong), turn);
            return Err(Parting::Fault(wrong.to_owned()));
        }
        let properties = info.network_properties.as_ref().map(|text| text.to_str().into_owned());
        let swimlane: Arc<str> = network::swimlane_in(properties.as_deref().unwrap_or_default()).into();
        let forwarder = self.options.forwarder.as_ref();
        let crosses_swimlanes = forwarder.is_some_and(|make| make.is_elsewhere(&swimlane));
        self.network.peer = Some(Peer {
            id,
            name: info.broker_name.as_ref().map(|name| name.to_str().into()).unwrap_or_default(),
            url: info.broker_url.as_ref().map(|url| url.to_str().into()).unwrap_or_default(),
            link: self.network.name_of_link(properties.as_deref().unwrap_or_default()),
            swimlane,
            crosses_swimlanes,
            figures: Arc::default(),
            is_duplex: info.duplex_connection,
            is_network: info.network_connection,
            options: LinkOptions::from_properties(properties.as_deref().unwrap_or_default()),
        });
        if self.network.dials() {
            self.introduce_link(turn);
        }
        Ok(())
    }

    /// The peer was let in: a duplex link begins to forward.
    pub(super) fn begin_link(&mut self, turn: &mut Turn<'_>) {
        let Some(peer) = self.network.peer.as_ref().filter(|peer| peer.is_network && peer.is_duplex) else {
            return;
        };
        let make = self.options.forwarder.clone().filter(|_| self.network.forwarder.is_none());
        let Some(make) = make else { return };
        let options = peer.options.clone();
        let only_statics = options.only_statics;
        let client_id = format!("{}_{}{INBOUND}duplex", peer.name, self.options.broker_name);
        self.introduce_to_peer(&client_id, (None, None), only_statics, turn);
        self.start_forwarder(make.make(options), turn);
    }

    /// Says to the peer who we are there, and asks it for its demand.
    fn introduce_to_peer(
        &mut self,
        client_id: &str,
        (user, password): (Option<&str>, Option<&str>),
        only_statics: bool,
        turn: &mut Turn<'_>,
    ) {
        let (core, number) = (self.id.core(), self.next_command_id);
        let is_known = self.network.peer_is_postroad && self.network.dials();
        let connection_id = match is_known {
            // The peer ends an earlier connection of this link, and is done with it, before it
            // takes anything by the new one.
            true => format!("{} link {client_id}", self.options.broker_id),
            false => format!("{}-{core}-{}-{number}", self.options.broker_id, turn.now.wall_ms),
        };
        let connection_id: WireString = connection_id.as_str().into();
        // Entries that come again over a duplex link are known, too.
        self.reconnected |= is_known;
        self.network.connection_id = connection_id.clone();
        let connection = ConnectionInfo {
            connection_id: Some(ConnectionId { value: Some(connection_id.clone()) }),
            client_id: Some(client_id.into()),
            user_name: user.map(Into::into),
            password: password.map(Into::into),
            response_required: self.network.dials(),
            failover_reconnect: is_known,
            ..ConnectionInfo::default()
        };
        self.send(connection.into(), turn);
        let session_id = Some(SessionId { connection_id: Some(connection_id), value: 1 });
        self.send(SessionInfo { session_id, ..SessionInfo::default() }.into(), turn);
        let producer_id = Some(self.producer_at_peer());
        self.send(ProducerInfo { producer_id, ..ProducerInfo::default() }.into(), turn);
        if !only_statics {
            let consumer = ConsumerInfo {
                consumer_id: Some(self.consumer_at_peer()),
                destination: Some(Destination::Topic(ADVISORIES.into())),
                prefetch_size: ADVISORY_PREFETCH,
                dispatch_async: true,
                ..ConsumerInfo::default()
            };
            self.send(consumer.into(), turn);
        }
    }

    fn producer_at_peer(&self) -> ProducerId {
        let connection_id = Some(self.network.connection_id.clone());
        ProducerId { connection_id, session_id: 1, value: 1 }
    }

    /// A message that returns to a broker has the path that it had there.
    fn place_in_path(&self, path: &[BrokerId]) -> Option<usize> {
        let peer = self.network.peer.as_ref().filter(|_| self.network.peer_is_postroad)?;
        let is_peer = |id: &BrokerId| id.value.as_ref().is_some_and(|id| id.to_str() == *peer.id);
        path.iter().position(is_peer)
    }

    /// By it a Postroad finds out whether it has the entry; other brokers get the link's only
    /// producer.
    fn producer_of_forwarded(&self, delivery: &Delivery) -> ProducerId {
        let is_known = self.network.peer_is_postroad && delivery.message.persistent;
        let of_entry = || link_producer(&self.options.broker_id, delivery.queue, delivery.tag);
        is_known.then(of_entry).flatten().unwrap_or_else(|| self.producer_at_peer())
    }

    pub(super) fn consumer_at_peer(&self) -> ConsumerId {
        let connection_id = Some(self.network.connection_id.clone());
        ConsumerId { connection_id, session_id: 1, value: 1 }
    }

    fn start_forwarder(&mut self, mut forwarder: Box<dyn Forwarder>, turn: &mut Turn<'_>) {
        let Some(peer) = &self.network.peer else { return };
        let link = Link {
            connection: self.id,
            broker_id: self.options.broker_id.as_str().into(),
            broker_name: self.options.broker_name.as_str().into(),
            peer_id: peer.id.clone(),
            peer_name: peer.name.clone(),
            partitions: self.options.partitions,
            counts_credit: self.network.peer_is_postroad,
            crosses_swimlanes: peer.crosses_swimlanes,
            figures: peer.figures.clone(),
        };
        forwarder.begin(link, turn.events);
        self.network.forwarder = Some(forwarder);
    }

    /// Takes a command that only peers of a link send; returns any other.
    pub(super) fn take_from_peer(
        &mut self,
        command: Command,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Command>, Parting> {
        if !self.network.forwards() {
            return Ok(Some(command));
        }
        if let Some(info) = self.network.early.take() {
            self.take_subscriptions(&info, turn)?;
        }
        let one_way = self.network.dial.as_ref().is_some_and(|dial| !dial.options.duplex);
        match command {
            // The peer's side of a duplex link introduces itself, which says nothing new.
            Command::ConnectionInfo(_) | Command::SessionInfo(_) | Command::ProducerInfo(_)
                if self.network.dials() =>
            {
                self.network.is_met();
            }
            Command::Message(ref message) if one_way && !is_for_link(message) => {
                return Err(Parting::Fault("the peer sends messages over a one-way link".to_owned()));
            }
            Command::Response(response) => self.answered_by_peer(response.correlation_id, None, turn)?,
            Command::ExceptionResponse(response) => {
                let reason = reason_of(response.exception.as_deref());
                self.answered_by_peer(response.correlation_id, Some(&reason), turn)?;
            }
            Command::MessageDispatch(dispatch) => {
                if let Some(message) = dispatch.message {
                    take_advisory(self, &message, turn)?;
                }
            }
            Command::Message(message) if is_for_link(&message) => take_advisory(self, &message, turn)?,
            Command::IntegerResponse(answer) => self.credit_answered(&answer, turn)?,
            Command::BrokerSubscriptionInfo(info) => self.take_subscriptions(&info, turn)?,
            Command::ConnectionError(error) => {
                let reason = reason_of(error.exception.as_deref());
                return Err(Parting::Fault(format!("the peer reports an error: {reason}")));
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    fn answered_by_peer(
        &mut self,
        request: i32,
        refused: Option<&str>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        if self.let_in(request, refused)? {
            return Ok(());
        }
        let Some(forwarder) = &mut self.network.forwarder else { return Ok(()) };
        forwarder.answered(request, refused, turn.now.ticks_ms, turn.events);
        self.network.show_oldest();
        self.ask_credit(turn);
        Ok(())
    }

    fn take_subscriptions(
        &mut self,
        info: &BrokerSubscriptionInfo,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        let Some(forwarder) = &mut self.network.forwarder else { return Ok(()) };
        let of_peer = info.subscription_infos.iter().flatten().filter_map(network::consumer).collect();
        // ActiveMQ goes by the options of the initiator: this broker includes all.
        let all = self.network.peer_is_postroad || self.network.dial.is_some();
        forwarder.subscriptions(of_peer, all, turn.events).map_err(Parting::Fault)
    }

    /// The core answers the forwarder.
    pub(super) fn reply_to_forwarder(
        &mut self,
        ticket: Ticket,
        result: Result<(), Refusal>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        let Some(forwarder) = &mut self.network.forwarder else { return Ok(()) };
        forwarder.replied(ticket, result, turn.events).map_err(Parting::Fault)
    }

    /// Sends a delivery of the forwarder on to the peer.
    pub(super) fn forward(&mut self, delivery: &Delivery, turn: &mut Turn<'_>) {
        let (consumer, tag) = (delivery.consumer, delivery.tag);
        let Some(forwarder) = &mut self.network.forwarder else { return };
        let Some(source) = forwarder.admit(consumer, tag, turn.now.ticks_ms, turn.events) else {
            return self.ask_credit(turn);
        };
        let before = turn.output.len();
        let only = forwarder.only_for(consumer);
        let sent = self.write_forwarded(delivery, (&source, only.as_deref()), turn);
        let Some(forwarder) = &mut self.network.forwarder else { return };
        match sent {
            Ok(()) => {
                forwarder.sent(self.next_command_id, consumer, tag);
                let bytes = turn.output.len() - before;
                self.network.dispatched(self.next_command_id, bytes, turn.now);
            }
            Err(reason) => forwarder.unsendable(consumer, tag, &reason, turn.events),
        }
        self.ask_credit(turn);
    }

    fn write_forwarded(
        &mut self,
        delivery: &Delivery,
        (source, only): (&Address, Option<&str>),
        turn: &mut Turn<'_>,
    ) -> Result<(), String> {
        let source = delivery.source.as_ref().unwrap_or(source);
        let at = to_wire_destination(source);
        let stored = in_openwire(&delivery.message, delivery.tag, &at, self.translate, self.format.version);
        let (bytes, version) = stored.map_err(|error| error.to_string())?;
        let message = self.forwarded((&bytes, version), delivery, source, at);
        let mut message = message.map_err(|error| error.to_string())?;
        message.target_consumer_id = only.map(network::target_of);
        self.next_command_id = self.next_command_id.wrapping_add(1);
        let command = Command::Message(Box::new(Message { command_id: self.next_command_id, ..message }));
        self.format.encode(&command, turn.output).map_err(|error| error.to_string())?;
        self.liveness.wrote(turn.now.ticks_ms);
        Ok(())
    }

    /// The message as the peer gets it: its path has this broker, its producer is the link's, its
    /// id is unchanged. A topic message of another protocol gets an id that is the same by each
    /// link.
    fn forwarded(
        &self,
        (stored, version): (&Bytes, u8),
        delivery: &Delivery,
        source: &Address,
        at: Destination,
    ) -> Result<Message, WireError> {
        let mut message = from_stored(stored, version)?;
        let mut path = message.broker_path.take().unwrap_or_default();
        match self.place_in_path(&path) {
            Some(place) => path.truncate(place),
            None => {
                path.truncate(PATH_MAX);
                path.push(BrokerId { value: Some(self.options.broker_id.as_str().into()) });
            }
        }
        message.broker_path = Some(path).filter(|path| !path.is_empty());
        if self.network.peer_is_postroad {
            // Messages of other protocols have no time of arrival.
            let in_time_ms = message.broker_in_time_ms;
            message.arrival_ms = if in_time_ms == 0 { message.timestamp_ms } else { in_time_ms };
        }
        if delivery.message.encoding.protocol == Protocol::OpenWire {
            message.expiration_ms = i64::try_from(delivery.message.expires_at_ms).unwrap_or(0);
        } else if source.kind == DestinationKind::Topic
            && let Some(id) = &mut message.message_id
            && let Some(same) = id_by_every_way(id, &delivery.message.bytes)
        {
            *id = same;
        }
        // A subscription of a pattern is delivered messages of many topics.
        let keeps = source.kind == DestinationKind::Topic && source.is_pattern();
        if !keeps && message.destination.as_ref() != Some(&at) {
            let before = message.destination.replace(at);
            message.original_destination = message.original_destination.or(before);
        }
        let transaction = message.transaction_id.take();
        message.original_transaction_id = message.original_transaction_id.or(transaction);
        message.producer_id = Some(self.producer_of_forwarded(delivery));
        message.response_required = true;
        message.target_consumer_id = None;
        Ok(message)
    }

    /// Whether the delivery is for the forwarder.
    pub(super) fn is_forwarded(&self, consumer: ConsumerKey) -> bool {
        self.network.has_consumer(consumer.number)
    }
}

fn reason_of(exception: Option<&Throwable>) -> String {
    let Some(exception) = exception else { return "no reason given".to_owned() };
    let text = |text: &Option<WireString>| text.as_ref().map(|text| text.to_str().into_owned());
    let parts = [text(&exception.class_name), text(&exception.message)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}
