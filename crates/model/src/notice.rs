//! Notices: advisories of the broker about itself. Protocols have their own forms for them.

use std::sync::Arc;

use crate::{ConnectionId, ConsumerMode, Destination, Message, Ticket};

/// A client's connection, as advisories report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNotice {
    /// The client's name of its connection; no other connection has this name.
    pub name: Arc<str>,
    /// The client's id.
    pub client_id: Arc<str>,
    /// Who it says that it is.
    pub user: Option<Arc<str>>,
}

/// A consumer, as advisories report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerNotice {
    /// The name of its connection, the number of its session and its own, with colons in between.
    pub name: Arc<str>,
    /// Its source.
    pub source: Destination,
    /// How it reads.
    pub mode: ConsumerMode,
    /// How many messages it takes ahead.
    pub prefetch: u32,
    /// Those of higher priority are served first.
    pub priority: i8,
    /// It skips messages of its own connection.
    pub no_local: bool,
    /// It begins with the messages that a topic keeps for retroactive consumers.
    pub retroactive: bool,
    /// Its selector; empty for everything.
    pub selector: Arc<str>,
    /// The client's name for the durable subscription that it reads.
    pub subscription: Option<Arc<str>>,
    /// The broker's name of that subscription, if it has one reader at a time: by it the
    /// subscription is known at other brokers, too.
    pub durable: Option<Arc<str>>,
    /// When that subscription has begun here, in milliseconds since 1970, as the core knows; it may
    /// have begun earlier. Zero otherwise.
    pub since_ms: u64,
    /// Its client's id.
    pub client_id: Arc<str>,
    /// Set if a link to another broker subscribes by it.
    pub network: Option<NetworkPath>,
}

/// For whom a link subscribes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    /// Ids of the brokers that the demand has passed, the nearest one last.
    pub brokers: Vec<Arc<str>>,
    /// Names of the consumers that it stands for.
    pub consumers: Vec<Arc<str>>,
}

/// A producer, as advisories report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerNotice {
    /// As [`ConsumerNotice::name`].
    pub name: Arc<str>,
    /// Where it sends to.
    pub to: Destination,
    /// How many bytes it sends ahead of confirmations; zero for no such limit.
    pub window_bytes: u32,
}

/// A link to another broker, as advisories report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeNotice {
    /// Its name among all links of this run.
    pub name: Arc<str>,
    /// Id of the peer.
    pub peer_id: Arc<str>,
    /// Name of the peer.
    pub peer_name: Arc<str>,
    /// Where its clients reach the peer.
    pub peer_url: Arc<str>,
    /// The address of the connection's other end.
    pub remote_ip: Arc<str>,
    /// The peer has opened the connection.
    pub is_accepted: bool,
}

/// Something that others may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A connection has come, or has gone.
    Connection {
        /// Which.
        client: Arc<ClientNotice>,
        /// It is there.
        present: bool,
    },
    /// A consumer has come, or has gone.
    Consumer {
        /// Which.
        consumer: Arc<ConsumerNotice>,
        /// It is there.
        present: bool,
    },
    /// A durable subscription has ended.
    Unsubscribed {
        /// Its topic.
        topic: Destination,
        /// Id of its client.
        client_id: Arc<str>,
        /// The client's name for it.
        name: Arc<str>,
    },
    /// A link to another broker has begun, or has ended.
    Bridge {
        /// Which.
        bridge: Arc<BridgeNotice>,
        /// It is there.
        present: bool,
    },
    /// A producer has come, or has gone.
    Producer {
        /// Which.
        producer: Arc<ProducerNotice>,
        /// It is there.
        present: bool,
    },
    /// A destination has come into being, or has ended.
    Destination {
        /// Which.
        destination: Destination,
        /// It is there.
        present: bool,
    },
    /// A consumer settles none of its messages for longer than its policy allows.
    SlowConsumer {
        /// Which.
        consumer: Arc<ConsumerNotice>,
        /// Where.
        at: Destination,
    },
    /// Sends to a destination begin to wait, because a queue is at its limit.
    Full {
        /// The destination.
        destination: Destination,
    },
    /// A producer sends more than a queue at its limit takes.
    FastProducer {
        /// Which; of several that its connection has for this destination, one.
        producer: Arc<ProducerNotice>,
        /// Where.
        at: Destination,
    },
    /// Something happened to a message.
    Message {
        /// The event.
        event: MessageEvent,
        /// Where.
        at: Destination,
        /// The message. Its body may be missing.
        message: Message,
        /// The consumer that it happened with.
        consumer: Option<Arc<ConsumerNotice>>,
    },
}

/// Events of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageEvent {
    /// Its time was over.
    Expired,
    /// It went to the dead letters.
    DeadLettered,
    /// Its queue held more than its policy allows.
    Discarded,
    /// The broker has taken it in.
    Delivered,
    /// A consumer has acknowledged it.
    Consumed,
    /// The broker has taken it in, there is no consumer, and it is not persistent.
    NoConsumer,
}

/// A notice that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The notice.
    pub notice: Notice,
    /// Who waits until it is published.
    pub answer: Option<(ConnectionId, Ticket)>,
}
