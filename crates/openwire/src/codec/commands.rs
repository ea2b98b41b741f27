//! The table of commands: every frame a peer may send.

use super::{
    BrokerId, ConnectionId, ConsumerId, DataStructure, Destination, Message, MessageId, ProducerId,
    RemovedId, SessionId, TransactionId, WireError, WireString,
    reader::Reader,
    scan::Scanner,
    structure::{
        Structure, default_or, field_read, field_skip, field_type, field_write, fields, in_version,
        structure, with_base,
    },
    writer::Writer,
};

macro_rules! commands {
    ($( $(#[$meta:meta])* $id:literal $Name:ident $base:ident $(since $since:literal)? { $($columns:tt)* } )*) => {
        $(
            with_base! { fields ($(#[$meta])* $Name) $base { $($columns)* } }
            structure! { $id $Name $(since $since)? }

            impl From<$Name> for Command {
                fn from(command: $Name) -> Command {
                    Command::$Name(command)
                }
            }
        )*

        /// One frame.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant holds the command of its name")]
        pub enum Command {
            $( $Name($Name), )*
            /// A message of any body, types 23 to 29.
            Message(Box<Message>),
        }

        impl Command {
            /// Name of the command, as the reference has it.
            pub fn name(&self) -> &'static str {
                match self {
                    $( Command::$Name(_) => stringify!($Name), )*
                    Command::Message(message) => message.kind.name(),
                }
            }

            /// The sender's number for this command, which a response quotes;
            /// 0 for `WireFormatInfo`, which has none.
            pub fn command_id(&self) -> i32 {
                match self {
                    $( Command::$Name(command) => base_field!($base command.command_id, 0), )*
                    Command::Message(message) => message.command_id,
                }
            }

            /// Whether the sender waits for a response.
            pub fn response_required(&self) -> bool {
                match self {
                    $( Command::$Name(command) => base_flag!($base command.response_required), )*
                    Command::Message(message) => message.response_required,
                }
            }

            /// Numbers a command before it is sent; nothing for `WireFormatInfo`.
            pub fn set_command_id(&mut self, command_id: i32) {
                match self {
                    $( Command::$Name(command) => set_base_field!($base command.command_id, command_id), )*
                    Command::Message(message) => message.command_id = command_id,
                }
            }
        }

        impl Structure for Command {
            const NAME: &'static str = "Command";

            fn type_id(&self) -> u8 {
                match self {
                    $( Command::$Name(_) => $id, )*
                    Command::Message(message) => message.type_id(),
                }
            }

            fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError> {
                match type_id {
                    $( $id => $Name::decode(type_id, offset, reader).map(Command::$Name), )*
                    23..=29 => Box::decode(type_id, offset, reader).map(Command::Message),
                    _ => Err(WireError::UnknownType { type_id, offset }),
                }
            }

            fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
                match self {
                    $( Command::$Name(command) => command.encode(writer), )*
                    Command::Message(message) => message.encode(writer),
                }
            }

            fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError> {
                match type_id {
                    $( $id => $Name::skip(type_id, offset, scanner), )*
                    23..=29 => Message::skip(type_id, offset, scanner),
                    _ => Err(WireError::UnknownType { type_id, offset }),
                }
            }
        }
    };
}

macro_rules! base_field {
    (bare $command:ident.$field:ident, $none:expr) => {{
        let _ = $command;
        $none
    }};
    ($base:ident $command:ident.$field:ident, $none:expr) => {
        $command.$field
    };
}

macro_rules! base_flag {
    (bare $command:ident.$field:ident) => { base_field!(bare $command.$field, false) };
    (partial $command:ident.$field:ident) => { base_field!(bare $command.$field, false) };
    ($base:ident $command:ident.$field:ident) => { $command.$field };
}

macro_rules! set_base_field {
    (bare $command:ident.$field:ident, $value:ident) => {{
        let _ = $command;
    }};
    ($base:ident $command:ident.$field:ident, $value:ident) => {
        $command.$field = $value
    };
}

commands! {
    /// First frame of both sides: version and options.
    /// The magic bytes before it are checked, not kept.
    1 WireFormatInfo bare { magic: magic, version: int, marshalled_properties: bytes, }

    /// A broker presents itself.
    2 BrokerInfo command {
        broker_id: cached(BrokerId),
        broker_url: string,
        peer_broker_infos: array(BrokerInfo),
        broker_name: string,
        slave_broker: bool,
        master_broker: bool,
        fault_tolerant_configuration: bool,
        duplex_connection: bool since 2,
        network_connection: bool since 2,
        connection_id: long since 2,
        broker_upload_url: string since 3,
        network_properties: string since 3,
    }

    /// A client opens its connection.
    3 ConnectionInfo command {
        connection_id: cached(ConnectionId),
        client_id: string,
        password: string,
        user_name: string,
        broker_path: array(BrokerId),
        broker_master_connector: bool,
        manageable: bool,
        client_master: bool since 2 default true,
        fault_tolerant: bool since 6,
        failover_reconnect: bool since 6,
        client_ip: string since 8,
    }

    /// A client opens a session.
    4 SessionInfo command { session_id: cached(SessionId), }

    /// A client attaches a consumer.
    5 ConsumerInfo command {
        consumer_id: cached(ConsumerId),
        browser: bool,
        destination: cached(Destination),
        prefetch_size: int,
        maximum_pending_message_limit: int,
        dispatch_async: bool,
        selector: string,
        client_id: string since 10,
        subscription_name: string,
        no_local: bool,
        exclusive: bool,
        retroactive: bool,
        priority: byte,
        broker_path: array(BrokerId),
        additional_predicate: boxed(DataStructure),
        network_subscription: bool,
        optimized_acknowledge: bool,
        no_range_acks: bool,
        network_consumer_path: array(ConsumerId) since 4,
    }

    /// A client attaches a producer.
    6 ProducerInfo command {
        producer_id: cached(ProducerId),
        destination: cached(Destination),
        broker_path: array(BrokerId),
        dispatch_async: bool since 2,
        window_size: int since 3,
    }

    /// A step of a transaction; see [`TransactionInfo::BEGIN`] and its siblings.
    7 TransactionInfo command {
        connection_id: cached(ConnectionId),
        transaction_id: cached(TransactionId),
        kind: byte,
    }

    /// A client creates or deletes a destination.
    8 DestinationInfo command {
        connection_id: cached(ConnectionId),
        destination: cached(Destination),
        operation_type: byte,
        timeout: long,
        broker_path: array(BrokerId),
    }

    /// A client ends a durable subscription.
    9 RemoveSubscriptionInfo command {
        connection_id: cached(ConnectionId),
        subscription_name: string,
        client_id: string,
    }

    /// Says that the peer is alive.
    10 KeepAliveInfo command {}

    /// The peer is about to close.
    11 ShutdownInfo command {}

    /// A client ends a connection, session, consumer or producer.
    12 RemoveInfo command {
        object_id: cached(RemovedId),
        last_delivered_sequence_id: long since 5 default RemoveInfo::LAST_DELIVERED_UNKNOWN,
    }

    /// An order in words, such as `shutdown`.
    14 ControlCommand command { command: string, }

    /// Asks that buffers be flushed.
    15 FlushCommand command {}

    /// Gives a client the reason why its connection fails.
    16 ConnectionError command { exception: throwable, connection_id: object(ConnectionId), }

    /// Changes a consumer while it runs.
    17 ConsumerControl command {
        destination: object(Destination) since 6,
        close: bool,
        consumer_id: object(ConsumerId),
        prefetch: int,
        flush: bool since 2,
        start: bool since 2,
        stop: bool since 2,
    }

    /// Controls a client's connection, and names other brokers to connect to.
    18 ConnectionControl command {
        close: bool,
        exit: bool,
        fault_tolerant: bool,
        resume: bool,
        suspend: bool,
        connected_brokers: string since 6 default Some(WireString::default()),
        reconnect_to: string since 6 default Some(WireString::default()),
        rebalance_connection: bool since 6,
        token: bytes since 8,
    }

    /// Gives a producer back `size` bytes of its window.
    19 ProducerAck command since 3 { producer_id: object(ProducerId), size: int, }

    /// A consumer without prefetch asks for one message.
    20 MessagePull command since 2 {
        consumer_id: cached(ConsumerId),
        destination: cached(Destination),
        timeout: long,
        correlation_id: string since 3,
        message_id: object(MessageId) since 3,
    }

    /// A message for a consumer; without one: the end of a browse or of a pull.
    21 MessageDispatch command {
        consumer_id: cached(ConsumerId),
        destination: cached(Destination),
        message: boxed(Message),
        redelivery_counter: int,
    }

    /// A consumer settles messages; see [`MessageAck::STANDARD`] and its siblings.
    22 MessageAck command {
        destination: cached(Destination),
        transaction_id: cached(TransactionId),
        consumer_id: cached(ConsumerId),
        ack_type: byte,
        first_message_id: object(MessageId),
        last_message_id: object(MessageId),
        message_count: int,
        poison_cause: throwable since 7,
    }

    /// Answers a command that required it.
    30 Response response {}

    /// Answers a command that failed.
    31 ExceptionResponse response { exception: throwable, }

    /// Answers with a value.
    32 DataResponse response { data: boxed(DataStructure), }

    /// Answers with values.
    33 DataArrayResponse response { data: array(DataStructure), }

    /// Answers with a number.
    34 IntegerResponse response { result: int, }

    /// A piece of a command too large for one datagram.
    60 PartialCommand partial { data: bytes, }

    /// The last piece.
    61 LastPartialCommand partial { data: bytes, }

    /// Asks for commands again that were lost.
    65 ReplayCommand command { first_nak_number: int, last_nak_number: int, }

    /// Reports to a slave which message went to which consumer.
    90 MessageDispatchNotification command {
        consumer_id: cached(ConsumerId),
        destination: cached(Destination),
        delivery_sequence_id: long,
        message_id: object(MessageId),
    }

    /// The durable subscriptions of a broker, for its network peer.
    92 BrokerSubscriptionInfo command since 12 {
        broker_id: object(BrokerId),
        broker_name: string,
        subscription_infos: array(ConsumerInfo),
    }
}

/// Values of [`TransactionInfo::kind`].
impl TransactionInfo {
    /// Opens a transaction.
    pub const BEGIN: u8 = 0;
    /// First phase of a distributed commit.
    pub const PREPARE: u8 = 1;
    /// Commits without a first phase.
    pub const COMMIT_ONE_PHASE: u8 = 2;
    /// Second phase of a distributed commit.
    pub const COMMIT_TWO_PHASE: u8 = 3;
    /// Undoes a transaction.
    pub const ROLLBACK: u8 = 4;
    /// Asks for the prepared transactions.
    pub const RECOVER: u8 = 5;
    /// Forgets a heuristically finished transaction.
    pub const FORGET: u8 = 6;
    /// Ends the work of a branch.
    pub const END: u8 = 7;
}

/// Values of [`MessageAck::ack_type`].
impl MessageAck {
    /// Delivered to the client, not consumed: more may be sent.
    pub const DELIVERED: u8 = 0;
    /// Refused for good: to the dead letter queue.
    pub const POISON: u8 = 1;
    /// Consumed: everything from the first to the last message.
    pub const STANDARD: u8 = 2;
    /// Will be delivered to the application again.
    pub const REDELIVERED: u8 = 3;
    /// Consumed: the last message alone.
    pub const INDIVIDUAL: u8 = 4;
    /// Dropped by a topic subscription that did not match it.
    pub const UNMATCHED: u8 = 5;
    /// Expired at the client.
    pub const EXPIRED: u8 = 6;
}

/// Values of [`DestinationInfo::operation_type`].
impl DestinationInfo {
    /// Creates the destination.
    pub const ADD: u8 = 0;
    /// Deletes the destination.
    pub const REMOVE: u8 = 1;
}

/// Values of [`RemoveInfo::last_delivered_sequence_id`].
impl RemoveInfo {
    /// The client delivered nothing.
    pub const LAST_DELIVERED_UNSET: i64 = -1;
    /// The client does not say.
    pub const LAST_DELIVERED_UNKNOWN: i64 = -2;
}

/// The eight bytes by which OpenWire is known. Checked when read, so that a
/// value of this type needs no content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Magic;

impl Magic {
    /// As they stand in the first frame of a connection, after its type id.
    pub const BYTES: [u8; 8] = *b"ActiveMQ";
}
