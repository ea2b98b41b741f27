//! The table of data types: the fields of commands.

use super::{
    Command, Message, MessageAck, WireError, WireString,
    reader::Reader,
    scan::Scanner,
    structure::{
        Structure, default_or, field_read, field_skip, field_type, field_write, fields, in_version, structure,
    },
    writer::Writer,
};

/// Rows that may stand wherever any data type may.
macro_rules! data_types {
    ($( $(#[$meta:meta])* $id:literal $Name:ident { $($columns:tt)* } )*) => {
        $(
            fields! { $(#[$meta])* $Name { $($columns)* } }
            structure! { $id $Name }
            convert! { $Name }
        )*

        /// Any value with a type id, where the protocol leaves the type open.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant holds the type of its name")]
        pub enum DataStructure {
            $( $Name($Name), )*
            Destination(Destination),
            TransactionId(TransactionId),
            Command(Box<Command>),
        }

        impl Structure for DataStructure {
            const NAME: &'static str = "DataStructure";

            fn type_id(&self) -> u8 {
                match self {
                    $( DataStructure::$Name(_) => $id, )*
                    DataStructure::Destination(value) => value.type_id(),
                    DataStructure::TransactionId(value) => value.type_id(),
                    DataStructure::Command(value) => value.type_id(),
                }
            }

            fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError> {
                match type_id {
                    $( $id => $Name::decode(type_id, offset, reader).map(DataStructure::$Name), )*
                    100..=103 => {
                        Destination::decode(type_id, offset, reader).map(DataStructure::Destination)
                    }
                    111 | 112 => {
                        TransactionId::decode(type_id, offset, reader).map(DataStructure::TransactionId)
                    }
                    _ => Box::decode(type_id, offset, reader).map(DataStructure::Command),
                }
            }

            fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
                match self {
                    $( DataStructure::$Name(value) => value.encode(writer), )*
                    DataStructure::Destination(value) => value.encode(writer),
                    DataStructure::TransactionId(value) => value.encode(writer),
                    DataStructure::Command(value) => value.encode(writer),
                }
            }

            fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError> {
                match type_id {
                    $( $id => $Name::skip(type_id, offset, scanner), )*
                    100..=103 => Destination::skip(type_id, offset, scanner),
                    111 | 112 => TransactionId::skip(type_id, offset, scanner),
                    _ => Command::skip(type_id, offset, scanner),
                }
            }
        }
    };
}

/// To and from the open type.
macro_rules! convert {
    ($Name:ident) => {
        impl From<$Name> for DataStructure {
            fn from(value: $Name) -> DataStructure {
                DataStructure::$Name(value)
            }
        }

        impl TryFrom<DataStructure> for $Name {
            type Error = DataStructure;

            fn try_from(value: DataStructure) -> Result<$Name, DataStructure> {
                match value {
                    DataStructure::$Name(value) => Ok(value),
                    other => Err(other),
                }
            }
        }
    };
}

data_types! {
    /// A connection of a client, named by that client.
    #[derive(Eq, Hash)]
    120 ConnectionId { value: string, }

    /// A session of a connection.
    #[derive(Eq, Hash)]
    121 SessionId { connection_id: string, value: long, }

    /// A consumer of a session.
    #[derive(Eq, Hash, Ord, PartialOrd)]
    122 ConsumerId { connection_id: string, session_id: long, value: long, }

    /// A producer of a session.
    #[derive(Eq, Hash, Ord, PartialOrd)]
    123 ProducerId { connection_id: string, value: long, session_id: long, }

    /// A broker.
    #[derive(Eq, Hash)]
    124 BrokerId { value: string, }

    /// A message: its producer and the producer's count.
    #[derive(Eq, Hash)]
    110 MessageId {
        text_view: string since 10,
        producer_id: cached(ProducerId),
        producer_sequence_id: long,
        broker_sequence_id: long,
    }

    /// A durable subscription, as stores and advisories describe it.
    55 SubscriptionInfo {
        client_id: string,
        destination: cached(Destination),
        selector: string,
        subscription_name: string,
        subscribed_destination: object(Destination) since 3,
        no_local: bool since 11,
    }

    /// A network bridge's addition to a selector: how far a message may travel.
    91 NetworkBridgeFilter {
        network_ttl: int until 9,
        network_broker_id: cached(BrokerId),
        message_ttl: int since 10,
        consumer_ttl: int since 10,
    }

    /// A broker that discovery found or lost.
    40 DiscoveryEvent { service_name: string, broker_name: string, }

    /// Journal record: acknowledgement by a durable subscriber.
    50 JournalTopicAck {
        destination: object(Destination),
        message_id: object(MessageId),
        message_sequence_id: long,
        subscription_name: string,
        client_id: string,
        transaction_id: object(TransactionId),
    }

    /// Journal record: acknowledgement on a queue.
    52 JournalQueueAck { destination: object(Destination), message_ack: boxed(MessageAck), }

    /// Journal record: a remark.
    53 JournalTrace { message: string, }

    /// Journal record: a step of a transaction.
    54 JournalTransaction { transaction_id: object(TransactionId), kind: byte, was_prepared: bool, }
}

convert! { Destination }
convert! { TransactionId }

fields! {
    /// A transaction of one connection.
    #[derive(Eq, Hash)]
    LocalTransactionId { value: long, connection_id: cached(ConnectionId), }
}
structure! { 111 LocalTransactionId }

fields! {
    /// A branch of a distributed transaction (X/Open XA, `xid`).
    #[derive(Eq, Hash)]
    XaTransactionId { format_id: int, global_transaction_id: bytes, branch_qualifier: bytes, }
}
structure! { 112 XaTransactionId }

/// A transaction of either kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TransactionId {
    /// Ends with its connection.
    Local(LocalTransactionId),
    /// Outlives its connection once prepared.
    Xa(Box<XaTransactionId>),
}

impl Structure for TransactionId {
    const NAME: &'static str = "TransactionId";

    fn type_id(&self) -> u8 {
        match self {
            TransactionId::Local(_) => LocalTransactionId::TYPE_ID,
            TransactionId::Xa(_) => XaTransactionId::TYPE_ID,
        }
    }

    fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match type_id {
            LocalTransactionId::TYPE_ID => {
                Structure::decode(type_id, offset, reader).map(TransactionId::Local)
            }
            XaTransactionId::TYPE_ID => Structure::decode(type_id, offset, reader).map(TransactionId::Xa),
            _ => Err(WireError::UnexpectedType { type_id, wanted: Self::NAME, offset }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            TransactionId::Local(value) => value.encode(writer),
            TransactionId::Xa(value) => value.encode(writer),
        }
    }

    fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError> {
        match type_id {
            LocalTransactionId::TYPE_ID => LocalTransactionId::skip(type_id, offset, scanner),
            XaTransactionId::TYPE_ID => XaTransactionId::skip(type_id, offset, scanner),
            _ => Err(WireError::UnexpectedType { type_id, wanted: Self::NAME, offset }),
        }
    }
}

/// A destination: its kind and its name, which may list several
/// (`queue://a,topic://b`) and may carry options (`a?consumer.prefetchSize=1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Each message goes to one consumer.
    Queue(WireString),
    /// Each message goes to every subscription.
    Topic(WireString),
    /// A queue that lives as long as its connection.
    TempQueue(WireString),
    /// A topic that lives as long as its connection.
    TempTopic(WireString),
}

impl Destination {
    /// The name without its kind.
    pub fn name(&self) -> &WireString {
        match self {
            Destination::Queue(name)
            | Destination::Topic(name)
            | Destination::TempQueue(name)
            | Destination::TempTopic(name) => name,
        }
    }

    /// Queue or temporary queue.
    pub fn is_queue(&self) -> bool {
        matches!(self, Destination::Queue(_) | Destination::TempQueue(_))
    }

    /// Temporary queue or topic.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Destination::TempQueue(_) | Destination::TempTopic(_))
    }
}

impl Structure for Destination {
    const NAME: &'static str = "Destination";

    fn type_id(&self) -> u8 {
        match self {
            Destination::Queue(_) => 100,
            Destination::Topic(_) => 101,
            Destination::TempQueue(_) => 102,
            Destination::TempTopic(_) => 103,
        }
    }

    fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = match type_id {
            100 => Destination::Queue,
            101 => Destination::Topic,
            102 => Destination::TempQueue,
            103 => Destination::TempTopic,
            _ => return Err(WireError::UnexpectedType { type_id, wanted: Self::NAME, offset }),
        };
        let offset = reader.offset();
        Ok(kind(reader.string()?.ok_or(WireError::MissingName { type_id, offset })?))
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        writer.string(Some(self.name()))
    }

    fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError> {
        match type_id {
            100..=103 => scanner.string(),
            _ => Err(WireError::UnexpectedType { type_id, wanted: Self::NAME, offset }),
        }
    }
}

/// The object that a [`super::RemoveInfo`] ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RemovedId {
    /// A connection with all that is in it.
    Connection(ConnectionId),
    /// A session with all that is in it.
    Session(SessionId),
    /// A consumer.
    Consumer(ConsumerId),
    /// A producer.
    Producer(ProducerId),
}

impl From<RemovedId> for DataStructure {
    fn from(id: RemovedId) -> DataStructure {
        match id {
            RemovedId::Connection(id) => id.into(),
            RemovedId::Session(id) => id.into(),
            RemovedId::Consumer(id) => id.into(),
            RemovedId::Producer(id) => id.into(),
        }
    }
}

impl TryFrom<DataStructure> for RemovedId {
    type Error = DataStructure;

    fn try_from(value: DataStructure) -> Result<RemovedId, DataStructure> {
        match value {
            DataStructure::ConnectionId(id) => Ok(RemovedId::Connection(id)),
            DataStructure::SessionId(id) => Ok(RemovedId::Session(id)),
            DataStructure::ConsumerId(id) => Ok(RemovedId::Consumer(id)),
            DataStructure::ProducerId(id) => Ok(RemovedId::Producer(id)),
            other => Err(other),
        }
    }
}

impl Structure for RemovedId {
    const NAME: &'static str = "id of a connection, session, consumer or producer";

    fn type_id(&self) -> u8 {
        match self {
            RemovedId::Connection(id) => id.type_id(),
            RemovedId::Session(id) => id.type_id(),
            RemovedId::Consumer(id) => id.type_id(),
            RemovedId::Producer(id) => id.type_id(),
        }
    }

    fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match type_id {
            ConnectionId::TYPE_ID => Structure::decode(type_id, offset, reader).map(RemovedId::Connection),
            SessionId::TYPE_ID => Structure::decode(type_id, offset, reader).map(RemovedId::Session),
            ConsumerId::TYPE_ID => Structure::decode(type_id, offset, reader).map(RemovedId::Consumer),
            ProducerId::TYPE_ID => Structure::decode(type_id, offset, reader).map(RemovedId::Producer),
            _ => Err(WireError::UnexpectedType { type_id, wanted: Self::NAME, offset }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            RemovedId::Connection(id) => id.encode(writer),
            RemovedId::Session(id) => id.encode(writer),
            RemovedId::Consumer(id) => id.encode(writer),
            RemovedId::Producer(id) => id.encode(writer),
        }
    }

    fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError> {
        match type_id {
            120..=123 => DataStructure::skip(type_id, offset, scanner),
            _ => Err(WireError::UnexpectedType { type_id, wanted: Self::NAME, offset }),
        }
    }
}

impl From<Message> for DataStructure {
    fn from(message: Message) -> DataStructure {
        DataStructure::Command(Box::new(Command::Message(Box::new(message))))
    }
}
