//! Messages: their table row, their stored form, and the fields read or patched
//! in the stored form without decoding it.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    BrokerId, Command, ConsumerId, DataStructure, Destination, MessageDispatch, MessageId, ProducerId,
    TransactionId, WireError, WireFormat, WireString,
    reader::{Layout, Reader},
    scan::{Scanner, Span},
    structure::{
        Structure, check_version, default_or, field_read, field_skip, field_type, field_write, fields,
        in_version, with_base,
    },
    writer::{BooleanWriter, Writer},
};

/// The kind of a message's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// No body.
    #[default]
    Plain,
    /// Raw bytes.
    Bytes,
    /// A primitive map.
    Map,
    /// A serialised Java object.
    Object,
    /// A sequence of primitives.
    Stream,
    /// Text: a 4-byte length and modified UTF-8.
    Text,
    /// A reference to data kept elsewhere; since version 3.
    Blob,
}

impl MessageKind {
    /// Data type id on the wire.
    pub fn type_id(self) -> u8 {
        match self {
            MessageKind::Plain => 23,
            MessageKind::Bytes => 24,
            MessageKind::Map => 25,
            MessageKind::Object => 26,
            MessageKind::Stream => 27,
            MessageKind::Text => 28,
            MessageKind::Blob => 29,
        }
    }

    /// The kind with this type id, if it is a message's.
    pub fn from_type_id(type_id: u8) -> Option<MessageKind> {
        Some(match type_id {
            23 => MessageKind::Plain,
            24 => MessageKind::Bytes,
            25 => MessageKind::Map,
            26 => MessageKind::Object,
            27 => MessageKind::Stream,
            28 => MessageKind::Text,
            29 => MessageKind::Blob,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            MessageKind::Plain => "ActiveMQMessage",
            MessageKind::Bytes => "ActiveMQBytesMessage",
            MessageKind::Map => "ActiveMQMapMessage",
            MessageKind::Object => "ActiveMQObjectMessage",
            MessageKind::Stream => "ActiveMQStreamMessage",
            MessageKind::Text => "ActiveMQTextMessage",
            MessageKind::Blob => "ActiveMQBlobMessage",
        }
    }
}

/// First version with blob messages.
const BLOB_SINCE: u8 = 3;

/// First version in which the broker says when it received a message.
const IN_TIME_SINCE: u8 = 3;

/// First version with a flag after that.
const GROUP_FIRST_SINCE: u8 = 10;

/// The row of the table, for the two things made of it.
macro_rules! message_columns {
    ($callback:ident ($($head:tt)*)) => {
        with_base! { $callback ($($head)*) command {
            producer_id: cached(ProducerId),
            destination: cached(Destination),
            transaction_id: cached(TransactionId),
            original_destination: cached(Destination),
            message_id: object(MessageId),
            original_transaction_id: cached(TransactionId),
            group_id: string,
            group_sequence: int,
            correlation_id: string,
            persistent: bool,
            expiration_ms: long,
            priority: byte,
            reply_to: object(Destination),
            timestamp_ms: long,
            message_type: string,
            content: bytes,
            marshalled_properties: bytes,
            data_structure: boxed(DataStructure),
            target_consumer_id: cached(ConsumerId),
            compressed: bool,
            redelivery_counter: int,
            broker_path: array(BrokerId),
            arrival_ms: long,
            user_id: string,
            received_by_df_bridge: bool,
            droppable: bool since 2,
            cluster: array(BrokerId) since 3,
            broker_in_time_ms: long since 3,
            broker_out_time_ms: long since 3,
            group_first_for_consumer: bool since 10,
        } }
    };
}

/// Where each field of a stored message stands.
macro_rules! spans {
    ($Spans:ident { $(
        $field:ident: $kind:ident $(($T:ident))? $(since $since:literal)?,
    )* }) => {
        #[derive(Clone, Debug, Default)]
        #[allow(dead_code, reason = "one span per column, asked for or not")]
        struct $Spans { $( $field: Span, )* }

        impl $Spans {
            /// `scanner` stands after the type id.
            fn scan(scanner: &mut Scanner<'_>) -> Result<$Spans, WireError> {
                let mut spans = $Spans::default();
                $( if in_version!(scanner $(since $since)?) {
                    let start = scanner.offset;
                    field_skip!(scanner $kind $($T)?);
                    spans.$field = Span { start, end: scanner.offset };
                } )*
                Ok(spans)
            }

            /// Where the properties stand, which ends the walk; `scanner` stands after the type id.
            fn properties(scanner: &mut Scanner<'_>) -> Result<Span, WireError> {
                $( if in_version!(scanner $(since $since)?) {
                    let start = scanner.offset;
                    field_skip!(scanner $kind $($T)?);
                    if stringify!($field) == "marshalled_properties" {
                        return Ok(Span { start, end: scanner.offset });
                    }
                } )*
                Ok(Span::default())
            }
        }
    };
}

message_columns! { fields (
    /// A message of any kind, types 23 to 29.
    Message carries {
        /// The kind of the body; the type id on the wire.
        kind: MessageKind,
        /// The reference that a blob message carries besides; only for [`MessageKind::Blob`].
        blob: Option<Box<BlobReference>>,
    }
) }

message_columns! { spans (MessageSpans) }

fields! {
    /// Where the data of a blob message lies.
    BlobReference { remote_blob_url: string, mime_type: string, deleted_by_broker: bool, }
}

impl Structure for Message {
    const NAME: &'static str = "Message";

    fn type_id(&self) -> u8 {
        self.kind.type_id()
    }

    fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = message_kind(type_id, offset, reader.layout.version)?;
        let mut message = Message { kind, ..Message::default() };
        message.read_fields(reader)?;
        if kind == MessageKind::Blob {
            message.blob.get_or_insert_default().read_fields(reader)?;
        }
        Ok(message)
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        message_kind(self.type_id(), 0, writer.layout.version)?;
        self.write_fields(writer)?;
        match (&self.kind, &self.blob) {
            (MessageKind::Blob, Some(blob)) => blob.write_fields(writer),
            (MessageKind::Blob, None) => BlobReference::default().write_fields(writer),
            _ => Ok(()),
        }
    }

    fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError> {
        let kind = message_kind(type_id, offset, scanner.version())?;
        Message::skip_fields(scanner)?;
        if kind == MessageKind::Blob { BlobReference::skip_fields(scanner) } else { Ok(()) }
    }
}

fn message_kind(type_id: u8, offset: usize, version: u8) -> Result<MessageKind, WireError> {
    let wanted = Message::NAME;
    let kind = MessageKind::from_type_id(type_id);
    let kind = kind.ok_or(WireError::UnexpectedType { type_id, wanted, offset })?;
    if kind == MessageKind::Blob {
        check_version(type_id, offset, BLOB_SINCE, version)?;
    }
    Ok(kind)
}

/// The stored form of `message`: type id and fields, loose, uncached, without
/// stack traces, in `format.version`.
///
/// `original_frame` is the frame that `format` decoded to `message`. If it has that form already it
/// is returned itself, without copying, unless it is small: then it is copied, for it shares its
/// buffer with frames that may be gone long before it.
///
/// # Errors
/// Only for messages that were built or changed here, as [`WireFormat::encode`].
pub fn stored_form(
    format: &WireFormat,
    message: &Message,
    original_frame: &Bytes,
) -> Result<Bytes, WireError> {
    let stack_traces = format.stack_traces && message.data_structure.is_some();
    let is_whole_frame = original_frame.first() == Some(&message.type_id());
    if !format.tight_encoding && !format.has_cache() && !stack_traces && is_whole_frame {
        let is_small = original_frame.len() < SHARED_FRAME_BYTES_MIN;
        return Ok(if is_small { Bytes::copy_from_slice(original_frame) } else { original_frame.clone() });
    }
    to_stored(message, format.version)
}

/// Frames from this size on stay in the buffer that they were read into. Half of one read: such a
/// frame keeps little more alive than itself.
const SHARED_FRAME_BYTES_MIN: usize = 8 << 10;

/// Writes into the frame of a message when the broker received it, if the frame is in the stored
/// form; anything else is left alone. The time stands before another one and, in newer versions,
/// a flag: the end of all but blob messages.
pub fn stamp_arrival(frame: &mut [u8], version: u8, now_ms: u64) {
    let kind = frame.first().and_then(|type_id| MessageKind::from_type_id(*type_id));
    if kind.is_none_or(|kind| kind == MessageKind::Blob) || version < IN_TIME_SINCE {
        return;
    }
    let from_end = 8 + 8 + usize::from(GROUP_FIRST_SINCE <= version);
    let at = frame.len().checked_sub(from_end).filter(|at| TYPE_AND_BASE_BYTES < *at);
    if let Some(place) = at.and_then(|at| frame.get_mut(at..at + 8)) {
        place.copy_from_slice(&now_ms.to_be_bytes());
    }
}

/// The stored form of a message that never was a frame.
///
/// # Errors
/// As [`WireFormat::encode`].
pub fn to_stored(message: &Message, version: u8) -> Result<Bytes, WireError> {
    let body_bytes = message.content.as_ref().map_or(0, Bytes::len);
    let mut data = BytesMut::with_capacity(body_bytes + STORED_HEADER_BYTES);
    data.put_u8(message.type_id());
    let mut booleans = BooleanWriter::default();
    message.encode(&mut Writer::new(Layout::stored(version), &mut data, &mut booleans, None))?;
    Ok(data.freeze())
}

/// Typical bytes of a message beside its body, to reserve once.
const STORED_HEADER_BYTES: usize = 512;

/// Decodes a stored message. Its parts are slices of `stored`.
///
/// # Errors
/// As [`WireFormat::decode`]: `stored` is not the output of [`stored_form`], or not
/// of that version.
pub fn from_stored(stored: &Bytes, version: u8) -> Result<Message, WireError> {
    let mut reader = Reader::new(stored, Layout::stored(version), None);
    let type_id = reader.byte()?;
    let message = Message::decode(type_id, 0, &mut reader)?;
    reader.finish()?;
    Ok(message)
}

/// The broker's fields of one delivery.
#[derive(Clone, Debug)]
pub struct DispatchHeader<'a> {
    /// Number of the dispatch command; the broker's own count.
    pub command_id: i32,
    /// Who gets the message.
    pub consumer_id: &'a ConsumerId,
    /// Where the message was taken from: it shows this as its destination, and as its original one
    /// where it was sent. `None` if that is where it was sent.
    pub destination: Option<&'a Destination>,
    /// Deliveries before this one.
    pub redelivery_counter: i32,
}

/// Fields of the message itself that the broker sets. `None` leaves the value of the
/// producer sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// [`MessageId::broker_sequence_id`]: the message's place in its queue.
    pub broker_sequence_id: Option<i64>,
    /// When the broker received the message; since version 3.
    pub broker_in_time_ms: Option<i64>,
    /// When the broker sent it on; since version 3.
    pub broker_out_time_ms: Option<i64>,
    /// When the message reached the queue.
    pub arrival_ms: Option<i64>,
    /// When the message's time is over, as the broker has it; 0 for never.
    pub expiration_ms: Option<i64>,
    /// Deliveries before this one, as the message itself has it.
    pub redelivery_counter: Option<i32>,
    /// The consumer has just begun the message's group; since version 10.
    pub group_first_for_consumer: Option<bool>,
}

/// The usual maximum that a dispatch adds to the stored message: consumer, destination, and patched
/// fields.
const DISPATCH_BYTES: usize = 256;

/// Appends a `MessageDispatch` frame of a stored message to `out`; returns the message's id.
///
/// A loose, uncached peer whose messages look like the stored one gets the
/// stored bytes, with the fields of `patch` overwritten. For any other peer
/// the message is decoded and encoded again.
///
/// # Errors
/// As [`from_stored`] and [`WireFormat::encode`]; `out` is then as before.
pub fn encode_dispatch(
    format: &mut WireFormat,
    header: &DispatchHeader<'_>,
    stored: &Bytes,
    stored_version: u8,
    patch: &Patch,
    out: &mut BytesMut,
) -> Result<Option<MessageId>, WireError> {
    if !format.tight_encoding && !format.has_cache() {
        let mut scanner = Scanner::new(stored, stored_version);
        let type_id = scanner.byte()?;
        message_kind(type_id, 0, stored_version)?;
        let spans = MessageSpans::scan(&mut scanner)?;
        let stack_traces = format.stack_traces && !spans.data_structure.is_null(stored);
        if !stack_traces && same_layout(stored, &spans, stored_version, format.version) {
            let at = |span: Span| Reader::at(stored, span.start, Layout::stored(stored_version));
            let id = at(spans.message_id).object()?;
            let sent_to: Option<Destination> = at(spans.destination).object()?;
            out.reserve(stored.len() + DISPATCH_BYTES);
            format.write_frame(out, MessageDispatch::TYPE_ID, |writer| {
                splice(writer, header, stored, &spans, patch, sent_to.as_ref())
            })?;
            return Ok(id);
        }
    }
    let mut message = from_stored(stored, stored_version)?;
    patch.apply(&mut message);
    let id = message.message_id.clone();
    if let Some(at) = header.destination.filter(|at| message.destination.as_ref() != Some(at)) {
        message.original_destination = message.destination.replace(at.clone());
    }
    let destination = message.destination.clone();
    let dispatch = MessageDispatch {
        command_id: header.command_id,
        response_required: false,
        consumer_id: Some(header.consumer_id.clone()),
        destination,
        message: Some(Box::new(message)),
        redelivery_counter: header.redelivery_counter,
    };
    format.encode(&Command::MessageDispatch(dispatch), out)?;
    Ok(id)
}

/// Versions in which the layout of a message changed, or of an id in it.
const LAYOUTS_SINCE: [u8; 4] = [1, 2, 3, 10];

fn same_layout(stored: &[u8], spans: &MessageSpans, stored_version: u8, version: u8) -> bool {
    let layout = |version| LAYOUTS_SINCE.iter().rev().find(|since| **since <= version);
    stored_version == version
        || (layout(stored_version) == layout(version) && spans.data_structure.is_null(stored))
}

/// The columns of `MessageDispatch`, with `stored` in place of its message.
fn splice(
    writer: &mut Writer<'_>,
    header: &DispatchHeader<'_>,
    stored: &Bytes,
    spans: &MessageSpans,
    patch: &Patch,
    sent_to: Option<&Destination>,
) -> Result<(), WireError> {
    writer.int(header.command_id);
    writer.flag(false);
    writer.object(Some(header.consumer_id))?;
    writer.object(header.destination.or(sent_to))?;
    writer.flag(true);
    // Both destinations stand before everything else that changes.
    let rest = match header.destination.filter(|at| sent_to != Some(at)) {
        Some(at) => {
            writer.raw(&stored[..spans.destination.start]);
            writer.object(Some(at))?;
            writer.raw(&stored[spans.destination.end..spans.original_destination.start]);
            writer.object(sent_to)?;
            spans.original_destination.end
        }
        None => 0,
    };
    let copy = writer.raw(&stored[rest..]);
    let moved =
        |span: Span| Span { start: span.start.saturating_sub(rest), end: span.end.saturating_sub(rest) };
    // The sequence is the last column of a message id.
    let sequence = Span { start: spans.message_id.end.saturating_sub(8), end: spans.message_id.end };
    if !spans.message_id.is_null(stored) {
        moved(sequence).put(copy, patch.broker_sequence_id.map(i64::to_be_bytes));
    }
    moved(spans.broker_in_time_ms).put(copy, patch.broker_in_time_ms.map(i64::to_be_bytes));
    moved(spans.broker_out_time_ms).put(copy, patch.broker_out_time_ms.map(i64::to_be_bytes));
    moved(spans.arrival_ms).put(copy, patch.arrival_ms.map(i64::to_be_bytes));
    moved(spans.expiration_ms).put(copy, patch.expiration_ms.map(i64::to_be_bytes));
    moved(spans.redelivery_counter).put(copy, patch.redelivery_counter.map(i32::to_be_bytes));
    let first = patch.group_first_for_consumer.map(|first| [u8::from(first)]);
    moved(spans.group_first_for_consumer).put(copy, first);
    writer.int(header.redelivery_counter);
    Ok(())
}

impl Patch {
    fn apply(&self, message: &mut Message) {
        if let (Some(id), Some(value)) = (&mut message.message_id, self.broker_sequence_id) {
            id.broker_sequence_id = value;
        }
        message.broker_in_time_ms = self.broker_in_time_ms.unwrap_or(message.broker_in_time_ms);
        message.broker_out_time_ms = self.broker_out_time_ms.unwrap_or(message.broker_out_time_ms);
        message.arrival_ms = self.arrival_ms.unwrap_or(message.arrival_ms);
        message.expiration_ms = self.expiration_ms.unwrap_or(message.expiration_ms);
        message.redelivery_counter = self.redelivery_counter.unwrap_or(message.redelivery_counter);
        message.group_first_for_consumer =
            self.group_first_for_consumer.unwrap_or(message.group_first_for_consumer);
    }
}

/// The fields of a message that a broker needs before it stores and routes it.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingHeaders {
    /// The kind of the body.
    pub kind: MessageKind,
    /// Where the producer sent it.
    pub destination: Option<Destination>,
    /// Where it was sent first, if a broker moved it.
    pub original_destination: Option<Destination>,
    /// The transaction it belongs to.
    pub transaction_id: Option<TransactionId>,
    /// Its id.
    pub message_id: Option<MessageId>,
    /// Bytes of the id within the stored form, presence flag included.
    pub message_id_bytes: std::ops::Range<usize>,
    /// Whether it must survive a restart.
    pub persistent: bool,
    /// 0 to 9; 4 is normal. Other values come from outside unchanged.
    pub priority: u8,
    /// Milliseconds since 1970; 0 for never.
    pub expiration_ms: i64,
    /// When it was sent, milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Deliveries so far, as the producer's side knows.
    pub redelivery_counter: i32,
    /// When the broker received it; 0 before version 3.
    pub broker_in_time_ms: i64,
    /// `JMSXGroupID`.
    pub group_id: Option<WireString>,
    /// `JMSXGroupSeq`.
    pub group_sequence: i32,
    /// `JMSReplyTo`.
    pub reply_to: Option<Destination>,
    /// `JMSCorrelationID`.
    pub correlation_id: Option<WireString>,
    /// `JMSType`.
    pub message_type: Option<WireString>,
    /// `JMSXUserID`.
    pub user_id: Option<WireString>,
    /// A primitive map: the message's properties.
    pub marshalled_properties: Option<Bytes>,
    /// Bytes of the body.
    pub content_bytes: usize,
    /// Whether the body is deflated.
    pub compressed: bool,
}

/// Reads the fields for routing from a stored message: one walk, no copies.
///
/// # Errors
/// As [`from_stored`]; text that no field of the result shows is not checked.
pub fn peek_headers(stored: &Bytes, version: u8) -> Result<RoutingHeaders, WireError> {
    let mut scanner = Scanner::new(stored, version);
    let type_id = scanner.byte()?;
    let kind = message_kind(type_id, 0, version)?;
    let spans = MessageSpans::scan(&mut scanner)?;
    let at = |span: Span| Reader::at(stored, span.start, Layout::stored(version));
    Ok(RoutingHeaders {
        kind,
        destination: at(spans.destination).object()?,
        original_destination: at(spans.original_destination).object()?,
        transaction_id: at(spans.transaction_id).object()?,
        message_id: at(spans.message_id).object()?,
        message_id_bytes: spans.message_id.start..spans.message_id.end,
        persistent: at(spans.persistent).flag()?,
        priority: at(spans.priority).byte()?,
        expiration_ms: at(spans.expiration_ms).long()?,
        timestamp_ms: at(spans.timestamp_ms).long()?,
        redelivery_counter: at(spans.redelivery_counter).int()?,
        broker_in_time_ms: if IN_TIME_SINCE <= version { at(spans.broker_in_time_ms).long()? } else { 0 },
        group_id: at(spans.group_id).string()?,
        group_sequence: at(spans.group_sequence).int()?,
        reply_to: at(spans.reply_to).object()?,
        correlation_id: at(spans.correlation_id).string()?,
        message_type: at(spans.message_type).string()?,
        user_id: at(spans.user_id).string()?,
        marshalled_properties: at(spans.marshalled_properties).bytes()?,
        content_bytes: (spans.content.end - spans.content.start).saturating_sub(5),
        compressed: at(spans.compressed).flag()?,
    })
}

/// The id of a stored message, read without looking at the bytes after it.
///
/// # Errors
/// As [`peek_headers`].
pub fn peek_message_id(stored: &Bytes, version: u8) -> Result<Option<MessageId>, WireError> {
    let mut scanner = Scanner::new(stored, version);
    scanner.skip(TYPE_AND_BASE_BYTES)?;
    scanner.object::<ProducerId>()?;
    scanner.object::<Destination>()?;
    scanner.object::<TransactionId>()?;
    scanner.object::<Destination>()?;
    Reader::at(stored, scanner.offset, Layout::stored(version)).object()
}

/// The producer of a stored message, if the name of its connection begins with `prefix`; read
/// without looking further otherwise.
pub fn peek_producer_named(stored: &Bytes, version: u8, prefix: &[u8]) -> Option<ProducerId> {
    // The object is there, its type, the text is there, its length.
    const NAME_AT: usize = TYPE_AND_BASE_BYTES + 1 + 1 + 1 + 2;
    if !stored.get(NAME_AT..)?.starts_with(prefix) {
        return None;
    }
    Reader::at(stored, TYPE_AND_BASE_BYTES, Layout::stored(version)).object().ok()?
}

/// The properties of a stored message, a primitive map, read without looking at the bytes after
/// them.
///
/// # Errors
/// As [`peek_headers`].
pub fn peek_properties(stored: &Bytes, version: u8) -> Result<Option<Bytes>, WireError> {
    let mut scanner = Scanner::new(stored, version);
    let type_id = scanner.byte()?;
    message_kind(type_id, 0, version)?;
    let span = MessageSpans::properties(&mut scanner)?;
    Reader::at(stored, span.start, Layout::stored(version)).bytes()
}

/// The type id, the command id and the flag that asks for a response stand before a message's own
/// fields.
pub(super) const TYPE_AND_BASE_BYTES: usize = 1 + 4 + 1;
