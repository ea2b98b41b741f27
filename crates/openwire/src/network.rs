//! Networks of brokers: the state of the two ends of a network connection, and the seam to the
//! demand engine.
//!
//! A network connection is an OpenWire connection on which the peer has presented itself as a
//! broker (`BrokerInfo.networkConnection`). Messages that come over it are sends like others. If it
//! is duplex, messages also leave by it: the peer's consumers are read from its consumer
//! advisories, a [`Forwarder`] subscribes here in their place, and the session sends on what that
//! subscription is delivered.
//!
//! Never here: sockets, retries, other protocols.

use std::sync::Arc;

use postroad_model::{
    self as model, ConnectionId, ConsumerKey, Deadline, Destination, DetachCause, EntryTag, Event,
    LinkFigures, Page, Refusal, Ticket,
};

use crate::codec::{
    BrokerId, ConsumerId, ConsumerInfo, DataStructure, DestinationInfo, RemovedId, WireString,
};
use crate::session::destinations_of;

/// The property of a consumer advisory with the broker's name of the durable subscription that it
/// reads: see [`model::ConsumerNotice::durable`].
pub const DURABLE_PROPERTY: &str = "postroadSubscription";

/// The property beside it: [`model::ConsumerNotice::since_ms`].
pub const SINCE_PROPERTY: &str = "postroadSince";

/// In the target of a message that leaves by a link: ahead of the name of the only subscription at
/// the peer that is to get it.
pub const ONLY_PREFIX: &str = "postroad-subscription:";

pub use postroad_model::{LINK_INBOUND as INBOUND, LINK_PREFIX as DURABLE_PREFIX};

/// Marks the tickets of a [`Forwarder`], which the session passes to it. The router has the two
/// bits above.
pub const FORWARDER_TICKET: u64 = 1 << 61;

/// Marks the consumer numbers of a [`Forwarder`]; a session counts its client's consumers from one.
pub const FORWARDER_NUMBER: u32 = 1 << 31;

/// The two brokers of a network connection, as this one sees them.
#[derive(Clone, Debug)]
pub struct Link {
    /// The connection.
    pub connection: ConnectionId,
    /// Id of this broker.
    pub broker_id: Arc<str>,
    /// Name of this broker.
    pub broker_name: Arc<str>,
    /// Id of the peer.
    pub peer_id: Arc<str>,
    /// Name of the peer.
    pub peer_name: Arc<str>,
    /// Partitions of this broker: a consumer of a pattern reads from each.
    pub partitions: u16,
    /// The peer is a Postroad: it says how many messages its consumers would take at once, and a
    /// message may return to it.
    pub counts_credit: bool,
    /// The peer belongs to another swimlane: only destinations that the options name are forwarded.
    pub crosses_swimlanes: bool,
    /// Its figures for operators.
    pub figures: Arc<LinkFigures>,
}

/// The messages that a link forwards, and how; the names are those of ActiveMQ's
/// `networkConnector`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Messages that each subscription of the link may have in flight (`prefetchSize`).
    pub prefetch: u32,
    /// Brokers that a message may pass (`messageTTL`); negative for any number.
    pub message_ttl: i32,
    /// Brokers over which a consumer is known (`consumerTTL`); negative for any number.
    pub consumer_ttl: i32,
    /// Priority of the link's subscriptions beside that of local consumers
    /// (`consumerPriorityBase`).
    pub priority: i8,
    /// Whether subscriptions for brokers further away have a lower priority
    /// (`decreaseNetworkConsumerPriority`).
    pub decreases_priority: bool,
    /// Whether temporary destinations of the peer exist here too (`bridgeTempDestinations`).
    pub temporaries: bool,
    /// Only these are forwarded, if any are named (`dynamicallyIncludedDestinations`).
    pub include: Vec<Destination>,
    /// These are not (`excludedDestinations`).
    pub exclude: Vec<Destination>,
    /// These are forwarded without any demand (`staticallyIncludedDestinations`).
    pub statics: Vec<Destination>,
    /// No demand is read from advisories (`staticBridge`).
    pub only_statics: bool,
    /// The brokers exchange lists of their durable subscriptions when the link begins
    /// (`syncDurableSubs`).
    pub syncs_durables: bool,
    /// Which destinations this connection serves, if the link has several.
    pub share: LinkShare,
}

/// One of several connections of a link. Each destination has one connection, which both ends know
/// by its name: neither demand nor traffic is multiplied, and the order of a destination is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkShare {
    /// Which connection, from 0.
    pub number: u16,
    /// Number of connections.
    pub of: u16,
}

impl Default for LinkShare {
    fn default() -> LinkShare {
        LinkShare { number: 0, of: 1 }
    }
}

impl LinkShare {
    /// Connections of one link.
    pub const MAX: u16 = 16;

    /// Whether messages of the destination go over this connection. A release that changes this
    /// changes the protocol.
    pub fn has(self, destination: &Destination) -> bool {
        if self.of <= 1 {
            return true;
        }
        // FNV-1a.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = destination.name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        // The last step of SplitMix64: names that differ in their last letter alone are spread too.
        let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (hash ^ hash >> 31) % u64::from(self.of) == u64::from(self.number)
    }

    /// The property of an initiator, such as `1/4`.
    fn from_text(text: &str) -> Option<LinkShare> {
        let (number, of) = text.split_once('/')?;
        let share = LinkShare { number: number.parse().ok()?, of: of.parse().ok()? };
        (share.number < share.of && share.of <= LinkShare::MAX).then_some(share)
    }
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            prefetch: 1000,
            message_ttl: 1,
            consumer_ttl: 1,
            priority: -5,
            decreases_priority: true,
            temporaries: true,
            include: Vec::new(),
            exclude: Vec::new(),
            statics: Vec::new(),
            only_statics: false,
            syncs_durables: false,
            share: LinkShare::default(),
        }
    }
}

/// A link that this broker opens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DialOptions {
    /// Its name for operators; part of the names by which the peer knows it.
    pub name: Arc<str>,
    /// Messages come back by the same connection.
    pub duplex: bool,
    /// Who we are at the peer.
    pub user: Option<Arc<str>>,
    /// Its password.
    pub password: Option<Arc<str>>,
    /// A peer that is silent for this time is gone; `None`: as for all connections; 0: never.
    pub max_inactivity_ms: Option<u64>,
    /// The forwarded destinations.
    pub link: LinkOptions,
}

/// A consumer at the peer, or behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteConsumer {
    /// Its id, unique in the network.
    pub id: Arc<str>,
    /// The destination that it reads from.
    pub sources: Vec<Destination>,
    /// Its selector; empty for all messages.
    pub selector: Arc<str>,
    /// Messages that it takes ahead.
    pub prefetch: u32,
    /// It sees, and takes nothing.
    pub browses: bool,
    /// Its durable subscription: the client id, and the client's name for it.
    pub subscription: Option<(Arc<str>, Arc<str>)>,
    /// The peer's name of its durable subscription, which it reads now, if the peer says so.
    pub durable: Option<Arc<str>>,
    /// When that subscription has begun, in milliseconds since 1970 as the peer counts.
    pub since_ms: u64,
    /// Brokers that its demand has passed, without the peer.
    pub path: Vec<Arc<str>>,
    /// Consumers that it stands for, if it is a subscription of another link.
    pub stands_for: Vec<Arc<str>>,
}

/// A change of the demand on the peer's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A consumer has come.
    Consumer(RemoteConsumer),
    /// A consumer has gone.
    Gone {
        /// Its id.
        id: Arc<str>,
    },
    /// A durable subscription has ended.
    Unsubscribed {
        /// As [`RemoteConsumer::subscription`].
        subscription: (Arc<str>, Arc<str>),
        /// Its topic; `None` for all that a subscription of this name reads.
        topic: Option<Destination>,
    },
    /// A temporary destination has come or gone.
    Temporary {
        /// Which.
        destination: Destination,
        /// It is there.
        present: bool,
    },
}

/// A question to the peer: how many messages of a queue its consumers would take at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditQuestion {
    /// The subscription that it is for.
    pub number: u32,
    /// The queue.
    pub source: Destination,
    /// The consumers' selector.
    pub selector: Arc<str>,
    /// Consumers at brokers behind the peer count, too.
    pub onward: bool,
}

/// Subscribes here for the consumers of a peer, and settles the messages that the peer has taken.
pub trait Forwarder {
    /// The peer has introduced itself and was let in.
    fn begin(&mut self, link: Link, events: &mut Vec<Event>);

    /// The peer's side wants something else.
    ///
    /// # Errors
    /// Why the link cannot go on.
    fn demand(&mut self, change: Demand, events: &mut Vec<Event>) -> Result<(), String>;

    /// The durable subscriptions of the peer, whether they have readers or not. Those that are not
    /// among them have ended: all of them, or only those that the options include.
    ///
    /// # Errors
    /// Why the link cannot go on.
    fn subscriptions(
        &mut self,
        of_peer: Vec<RemoteConsumer>,
        all: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), String>;

    /// The core answers one of its own questions with this page.
    fn page(&mut self, ticket: Ticket, page: Page);

    /// Whether it has this consumer of the connection.
    fn has_consumer(&self, number: u32) -> bool;

    /// Where a message that was delivered to this consumer comes from, if it is to be sent;
    /// otherwise it is given back.
    fn admit(
        &mut self,
        consumer: ConsumerKey,
        tag: EntryTag,
        now_ms: u64,
        events: &mut Vec<Event>,
    ) -> Option<Destination>;

    /// The only subscription at the peer that is to get what this consumer is delivered; `None` for
    /// all that the destination has.
    fn only_for(&self, consumer: ConsumerKey) -> Option<Arc<str>>;

    /// The next question to the peer that is due: how many messages its consumers would take at
    /// once.
    fn question(&mut self, now_ms: u64) -> Option<CreditQuestion>;

    /// The question was sent to the peer as the command of this number.
    fn asked(&mut self, request: i32, question: &CreditQuestion);

    /// The peer has answered a question.
    fn credit(&mut self, request: i32, credit: u32, now_ms: u64, events: &mut Vec<Event>);

    /// A delivery was sent to the peer as the command of this number.
    fn sent(&mut self, request: i32, consumer: ConsumerKey, tag: EntryTag);

    /// A delivery can never be sent to the peer: it becomes a dead letter.
    fn unsendable(&mut self, consumer: ConsumerKey, tag: EntryTag, reason: &str, events: &mut Vec<Event>);

    /// The peer has answered a command. Answers to other commands than those of `sent` are passed
    /// over. A message that it refuses is given back, counted as failed, after a pause: see
    /// [`Forwarder::deadline`].
    fn answered(&mut self, request: i32, refused: Option<&str>, now_ms: u64, events: &mut Vec<Event>);

    /// Whether the peer has still to answer this command.
    fn awaits(&self, request: i32) -> bool;

    /// When [`Forwarder::wake`] is due.
    fn deadline(&self) -> Deadline;

    /// The deadline may have come.
    fn wake(&mut self, now_ms: u64, events: &mut Vec<Event>);

    /// Something that operators should read in the log, once.
    fn remark(&mut self) -> Option<String>;

    /// The core has answered one of its own questions.
    ///
    /// # Errors
    /// Why the link cannot go on.
    fn replied(
        &mut self,
        ticket: Ticket,
        result: Result<(), Refusal>,
        events: &mut Vec<Event>,
    ) -> Result<(), String>;

    /// A consumer has no credit left, as it asked.
    fn drained(&mut self, number: u32, events: &mut Vec<Event>);

    /// The core has ended a consumer.
    fn detached(&mut self, number: u32, cause: DetachCause, events: &mut Vec<Event>);

    /// The connection is gone: deliveries in flight go back to their queues, uncounted.
    fn close(&mut self, events: &mut Vec<Event>);
}

/// The property of an initiator that has several connections: which this is.
const SHARE_PROPERTY: &str = "postroadLink";

/// The property of a broker that belongs to a swimlane.
const SWIMLANE_PROPERTY: &str = "postroadSwimlane";

/// Makes the forwarders of connections to and from other brokers.
#[derive(Clone)]
pub struct MakeForwarder(Arc<Maker>);

struct Maker {
    swimlane: Box<str>,
    make: Box<dyn Fn(LinkOptions) -> Box<dyn Forwarder> + Send + Sync>,
}

impl MakeForwarder {
    /// For a broker of this swimlane; empty for none. Each connection gets a forwarder of its own.
    pub fn new(
        swimlane: &str,
        make: impl Fn(LinkOptions) -> Box<dyn Forwarder> + Send + Sync + 'static,
    ) -> MakeForwarder {
        MakeForwarder(Arc::new(Maker { swimlane: swimlane.into(), make: Box::new(make) }))
    }

    /// One for a connection with these options.
    pub fn make(&self, options: LinkOptions) -> Box<dyn Forwarder> {
        (self.0.make)(options)
    }

    /// The property by which this broker names its swimlane to peers; empty without one.
    pub fn properties(&self) -> String {
        match &*self.0.swimlane {
            "" => String::new(),
            swimlane => format!("{SWIMLANE_PROPERTY}={}\n", swimlane.replace('\\', "\\\\")),
        }
    }

    /// Whether a peer of this swimlane belongs to another one. A broker without a swimlane belongs
    /// to each.
    pub fn is_elsewhere(&self, swimlane: &str) -> bool {
        !self.0.swimlane.is_empty() && !swimlane.is_empty() && *self.0.swimlane != *swimlane
    }
}

impl std::fmt::Debug for MakeForwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MakeForwarder")
    }
}

/// The value of one property in the text that a broker sends (`BrokerInfo.networkProperties`).
fn value_in(text: &str, name: &str) -> Option<String> {
    let (_, value) = text.lines().filter_map(property).find(|(key, _)| key == name)?;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The swimlane of the broker that sends these properties; empty for none.
pub fn swimlane_in(text: &str) -> String {
    value_in(text, SWIMLANE_PROPERTY).unwrap_or_default()
}

impl LinkOptions {
    /// The options of an initiator, as it sends them (`BrokerInfo.networkProperties`): a Java
    /// properties text. Unknown keys and values that cannot be read are passed over.
    pub fn from_properties(text: &str) -> LinkOptions {
        let mut options = LinkOptions::default();
        for (key, value) in text.lines().filter_map(property) {
            options.set(&key, value.trim());
        }
        options
    }

    /// As an initiator of this name sends them. Classic makes its side of a duplex link only if
    /// they say so, too.
    pub fn to_properties(&self, name: &str, duplex: bool) -> String {
        // ActiveMQ reads no list without brackets.
        let list = |list: &[Destination]| {
            let names: Vec<String> = list.iter().map(ToString::to_string).collect();
            format!("[{}]", names.join(","))
        };
        let mut properties = vec![
            ("name", name.to_owned()),
            ("duplex", duplex.to_string()),
            ("prefetchSize", self.prefetch.to_string()),
            ("messageTTL", self.message_ttl.to_string()),
            ("consumerTTL", self.consumer_ttl.to_string()),
            ("consumerPriorityBase", self.priority.to_string()),
            ("decreaseNetworkConsumerPriority", self.decreases_priority.to_string()),
            ("bridgeTempDestinations", self.temporaries.to_string()),
            ("staticBridge", self.only_statics.to_string()),
            ("syncDurableSubs", true.to_string()),
        ];
        let LinkShare { number, of } = self.share;
        if 1 < of {
            properties.push((SHARE_PROPERTY, format!("{number}/{of}")));
        }
        for (key, destinations) in [
            ("dynamicallyIncludedDestinations", &self.include),
            ("staticallyIncludedDestinations", &self.statics),
        ] {
            if !destinations.is_empty() {
                properties.push((key, list(destinations)));
            }
        }
        let line = |(key, value): (&str, String)| format!("{key}={}\n", value.replace('\\', "\\\\"));
        properties.into_iter().map(line).collect()
    }

    /// The initiator's name for its connector, in the text that [`LinkOptions::from_properties`]
    /// reads.
    pub fn name_in(text: &str) -> Option<String> {
        value_in(text, "name")
    }

    /// The same for ActiveMQ, which lists durable subscriptions of included destinations alone, and
    /// none if all are included by default.
    pub fn with_all_included(mut self) -> LinkOptions {
        if self.include.is_empty() {
            self.include = vec![Destination::queue(">"), Destination::topic(">")];
        }
        self
    }

    fn set(&mut self, key: &str, value: &str) {
        let is_true = value.eq_ignore_ascii_case("true");
        match key {
            "prefetchSize" => {
                self.prefetch = value.parse().ok().filter(|got| 0 < *got).unwrap_or(self.prefetch)
            }
            "messageTTL" => self.message_ttl = value.parse().unwrap_or(self.message_ttl),
            "consumerTTL" => self.consumer_ttl = value.parse().unwrap_or(self.consumer_ttl),
            "networkTTL" => {
                let ttl = value.parse().unwrap_or(1);
                (self.message_ttl, self.consumer_ttl) = (ttl, ttl);
            }
            "consumerPriorityBase" => self.priority = value.parse().unwrap_or(self.priority),
            "decreaseNetworkConsumerPriority" => self.decreases_priority = is_true,
            "bridgeTempDestinations" => self.temporaries = is_true,
            "staticBridge" => self.only_statics = is_true,
            "syncDurableSubs" => self.syncs_durables = is_true,
            SHARE_PROPERTY => self.share = LinkShare::from_text(value).unwrap_or_default(),
            "dynamicallyIncludedDestinations" => self.include = destinations_of(value),
            "excludedDestinations" => self.exclude = destinations_of(value),
            "staticallyIncludedDestinations" => self.statics = destinations_of(value),
            _ => {}
        }
    }
}

/// One line of a Java properties text. Only the escapes that names of destinations need are undone.
fn property(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    if line.starts_with(['#', '!']) {
        return None;
    }
    let (mut key, mut value, mut is_value, mut escaped) = (String::new(), String::new(), false, false);
    for character in line.chars() {
        let part = if is_value { &mut value } else { &mut key };
        match character {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '=' | ':' if !escaped && !is_value => is_value = true,
            _ => part.push(character),
        }
        escaped = false;
    }
    is_value.then(|| (key.trim().to_owned(), value))
}

/// The target of a message for this subscription of its topic alone.
pub fn target_of(subscription: &str) -> ConsumerId {
    let connection_id = Some(format!("{ONLY_PREFIX}{subscription}").as_str().into());
    ConsumerId { connection_id, ..ConsumerId::default() }
}

/// The subscription that alone is to get a message with this target.
pub fn only_in(target: &ConsumerId) -> Option<Arc<str>> {
    let target = target.connection_id.as_ref()?.to_str();
    target.strip_prefix(ONLY_PREFIX).map(Into::into)
}

/// The demand in a consumer advisory, or in a durable subscription of a `BrokerSubscriptionInfo`;
/// `None` if it has none.
pub fn demand_of(structure: &DataStructure) -> Option<Demand> {
    let DataStructure::Command(command) = structure else { return None };
    match &**command {
        crate::codec::Command::ConsumerInfo(info) => consumer(info).map(Demand::Consumer),
        crate::codec::Command::RemoveInfo(info) => match info.object_id.as_ref()? {
            RemovedId::Consumer(id) => Some(Demand::Gone { id: name_of(id) }),
            _ => None,
        },
        crate::codec::Command::RemoveSubscriptionInfo(info) => {
            let subscription = (text(&info.client_id), text(&info.subscription_name));
            Some(Demand::Unsubscribed { subscription, topic: None })
        }
        crate::codec::Command::DestinationInfo(info) => temporary(info),
        _ => None,
    }
}

/// A consumer of the peer; `None` without an id or a destination.
pub fn consumer(info: &ConsumerInfo) -> Option<RemoteConsumer> {
    let sources = info.destination.as_ref().map(crate::session::parts_of).unwrap_or_default();
    let name = info.subscription_name.as_ref().map(|name| name.to_str().into());
    Some(RemoteConsumer {
        id: name_of(info.consumer_id.as_ref()?),
        sources: (!sources.is_empty()).then_some(sources)?,
        selector: text(&info.selector),
        prefetch: u32::try_from(info.prefetch_size).unwrap_or(0),
        browses: info.browser,
        subscription: name.map(|name| (text(&info.client_id), name)),
        durable: None,
        since_ms: 0,
        path: info.broker_path.iter().flatten().flat_map(broker_name).collect(),
        stands_for: info.network_consumer_path.iter().flatten().map(name_of).collect(),
    })
}

fn temporary(info: &DestinationInfo) -> Option<Demand> {
    let destination = crate::session::to_model_destination(info.destination.as_ref()?);
    let present = info.operation_type == DestinationInfo::ADD;
    destination.temporary.then_some(Demand::Temporary { destination, present })
}

fn name_of(id: &ConsumerId) -> Arc<str> {
    let connection = id.connection_id.as_ref().map(WireString::to_str).unwrap_or_default();
    format!("{connection}:{}:{}", id.session_id, id.value).into()
}

fn broker_name(id: &BrokerId) -> Option<Arc<str>> {
    id.value.as_ref().map(|value| value.to_str().into())
}

fn text(text: &Option<WireString>) -> Arc<str> {
    text.as_ref().map(|text| text.to_str().into()).unwrap_or_default()
}

/// Whether a message on this topic is about consumers or temporary destinations, and is for the
/// link itself.
pub fn is_for_link(destination: &model::Destination) -> bool {
    let rest = destination.name.strip_prefix("ActiveMQ.Advisory.");
    destination.kind == model::DestinationKind::Topic
        && rest.is_some_and(|rest| {
            rest.starts_with("Consumer.")
                || rest.starts_with("VirtualDestination.Consumer.")
                || matches!(rest, "TempQueue" | "TempTopic")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_an_initiator_are_read_tolerantly() {
        let text = "#a comment\nprefetchSize=7\nmessageTTL = 3\nconsumerTTL=oops\nunknown=1\nno line\n\
                    dynamicallyIncludedDestinations=queue\\://a.>,topic\\://b\nbridgeTempDestinations=false\n";
        let want = LinkOptions {
            prefetch: 7,
            message_ttl: 3,
            temporaries: false,
            include: vec![Destination::queue("a.>"), Destination::topic("b")],
            ..LinkOptions::default()
        };
        assert_eq!(LinkOptions::from_properties(text), want);
        let want = LinkOptions { share: LinkShare { number: 2, of: 3 }, syncs_durables: true, ..want };
        assert_eq!(LinkOptions::from_properties(&want.to_properties("a\\b", true)), want);
        assert!(want.to_properties("east", true).contains("Destinations=[queue://a.>,topic://b]\n"));
        assert_eq!(LinkOptions::from_properties(""), LinkOptions::default());
        assert_eq!(LinkOptions::name_in(&want.to_properties("east", true)).as_deref(), Some("east"));
        assert_eq!(LinkOptions::name_in(text), None);
    }

    #[test]
    fn a_swimlane_is_read_from_the_properties_of_a_broker() {
        let of = |swimlane: &str| MakeForwarder::new(swimlane, |_| unreachable!());
        for name in ["payroll", "a = b", "c\\d"] {
            assert_eq!(swimlane_in(&of(name).properties()), name);
            let all = LinkOptions::default().to_properties("east", true) + &of(name).properties();
            assert_eq!(swimlane_in(&all), name);
        }
        assert_eq!((of("").properties(), swimlane_in("name=x\n")), (String::new(), String::new()));
        for (own, peer, want) in [("a", "b", true), ("a", "a", false), ("", "b", false), ("a", "", false)] {
            assert_eq!(of(own).is_elsewhere(peer), want, "{own:?} {peer:?}");
        }
    }

    #[test]
    fn each_destination_has_one_of_the_connections_of_a_link() {
        for of in 1..=LinkShare::MAX {
            let mut served = vec![0; usize::from(of)];
            for queue in 0..1600 {
                let queue = Destination::queue(&format!("orders.{queue}"));
                let has = |number: &u16| LinkShare { number: *number, of }.has(&queue);
                let numbers: Vec<u16> = (0..of).filter(has).collect();
                let [number] = numbers[..] else { panic!("{queue} has {numbers:?} of {of}") };
                served[usize::from(number)] += 1;
            }
            let fair = 1600 / usize::from(of);
            assert!(served.iter().all(|served| fair / 2 < *served), "{served:?} of {of}");
        }
        assert!(
            LinkShare { number: 1, of: 4 }.has(&Destination::queue("orders")),
            "as other releases have it"
        );
    }

    #[test]
    fn a_share_that_cannot_be_is_all() {
        for (text, want) in [
            ("1/4", (1, 4)),
            ("4/4", (0, 1)),
            ("0/17", (0, 1)),
            ("0/0", (0, 1)),
            ("x", (0, 1)),
            ("-1/2", (0, 1)),
        ] {
            let LinkShare { number, of } =
                LinkOptions::from_properties(&format!("postroadLink={text}")).share;
            assert_eq!((number, of), want, "{text}");
        }
    }
}
