//! Codec room: OpenWire bytes to commands and back, versions 1 to 12, loose
//! and tight, with and without marshalling caches.
//!
//! Start at [`WireFormat`] and [`FrameReader`]; the protocol itself is the two
//! tables in `commands.rs` and `data.rs`, plus the row of [`Message`].
//! `structure.rs` says how a row becomes code.
//! Never here: sockets, clocks, sessions, the meaning of a command for a broker.

mod commands;
mod content;
mod data;
mod message;
mod structure;

mod format;
mod frame;
mod options;

mod primitive;
mod text;
mod throwable;

mod cache;
mod cursor;
mod reader;
mod scan;
mod writer;

mod error;

pub use commands::*;
pub use content::{content_at, destination_of, open_content, with_content};
pub use data::{
    BrokerId, ConnectionId, ConsumerId, DataStructure, Destination, DiscoveryEvent, JournalQueueAck,
    JournalTopicAck, JournalTrace, JournalTransaction, LocalTransactionId, MessageId, NetworkBridgeFilter,
    ProducerId, RemovedId, SessionId, SubscriptionInfo, TransactionId, XaTransactionId,
};
pub use error::WireError;
pub use format::WireFormat;
pub use frame::{FrameReader, SIZE_BYTES, announced_bytes, cut_frame, take_frame};
pub use message::{
    BlobReference, DispatchHeader, Message, MessageKind, Patch, RoutingHeaders, encode_dispatch, from_stored,
    peek_headers, peek_message_id, peek_producer_named, peek_properties, stamp_arrival, stored_form,
    to_stored,
};
pub use options::WireFormatOptions;
pub use primitive::{
    FoundProperty, PRIMITIVE_NESTING_MAX, PRIMITIVE_VALUES_MAX, Primitive, PrimitiveMap, decode_text_body,
    encode_text_body, find_property,
};
pub use structure::{VERSION_MAX, VERSION_MIN};
pub use text::WireString;
pub use throwable::{StackFrame, Throwable};
