//! The one place where protocols meet: the reader of each protocol's messages, and the writers of
//! large bodies.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_amqp::portable as amqp;
use postroad_model::portable::{LargeReader, LargeWriter, Portable, Step, TranslationError};
use postroad_model::{Encoding, Group, HeaderChanges, Message, Protocol, RareHeaders};
use postroad_openwire::codec::with_content;
use postroad_openwire::portable as openwire;
use postroad_selector::Properties;

/// A message as every protocol understands it.
///
/// # Errors
/// Its bytes are malformed for its protocol.
pub fn read_portable(message: &Message) -> Result<Portable, TranslationError> {
    match message.encoding.protocol {
        Protocol::OpenWire => openwire::read_portable(message),
        Protocol::Amqp => amqp::read_portable(message),
    }
}

/// The properties that a selector reads, read by the message's own protocol.
pub fn properties_of(message: &Message) -> Box<dyn Properties + '_> {
    match message.encoding.protocol {
        Protocol::OpenWire => {
            Box::new(postroad_openwire::StoredProperties::of(&message.bytes, message.encoding.version))
        }
        Protocol::Amqp => {
            Box::new(postroad_amqp::message::StoredProperties::of(&message.bytes, message.expires_at_ms))
        }
    }
}

/// A message made inside the process, in the encoding of AMQP: protocols translate it as one that a
/// client sent.
pub fn write_message(portable: &Portable) -> Message {
    let group = portable
        .headers
        .group_id
        .as_ref()
        .map(|id| Group { id: id.as_str().into(), sequence: portable.headers.group_sequence.unwrap_or(0) });
    let rare = group.map(|group| Arc::new(RareHeaders { group: Some(group), ..RareHeaders::default() }));
    Message {
        encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
        persistent: portable.headers.persistent,
        priority: portable.headers.priority,
        expires_at_ms: portable.headers.expires_at_ms.unwrap_or(0).try_into().unwrap_or(0),
        rare,
        bytes: amqp::write_portable(portable),
    }
}

/// The message with these headers changed, and the same body. One that cannot be read stays as it
/// is.
pub fn change_headers(message: &Message, changes: &HeaderChanges) -> Message {
    let changed = match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::change_headers(message, changes).ok(),
        Protocol::Amqp => postroad_amqp::message::change_headers(message, changes).ok(),
    };
    changed.unwrap_or_else(|| message.clone())
}

/// A large message with its body in memory.
///
/// # Errors
/// Its bytes are malformed for its protocol.
pub fn with_body(message: &Message, body: &[u8]) -> Result<Message, String> {
    let bytes = match message.encoding.protocol {
        Protocol::OpenWire => {
            with_content(&message.bytes, message.encoding.version, body).map_err(|error| error.to_string())?
        }
        Protocol::Amqp => [&message.bytes[..], body].concat().into(),
    };
    Ok(Message { bytes, ..message.clone() }.with_chunks(None))
}

/// A large body on its way into another protocol: its own protocol reads it, the consumer's writes
/// it.
pub struct Rewriter {
    /// The message as if its body were short.
    message: Message,
    known_bytes: Option<u64>,
    reads: Box<dyn Step>,
    writer: LargeWriter,
    /// The output of the reader, still to be written.
    between: BytesMut,
}

impl Rewriter {
    /// The body of this message, which begins with the piece `first`, for a consumer of the
    /// protocol `to`; with `as_bytes` declared text is taken as bytes. `None` for one that has to
    /// be there whole, or that cannot be bytes.
    ///
    /// # Errors
    /// [`TranslationError`]: the message cannot be encoded in that protocol.
    pub fn of(
        message: &Message,
        first: &Bytes,
        to: Protocol,
        as_bytes: bool,
    ) -> Result<Option<Rewriter>, TranslationError> {
        let reader = match message.encoding.protocol {
            // Its messages always declare their kind.
            Protocol::OpenWire if as_bytes => None,
            Protocol::OpenWire => openwire::read_large(message)?,
            Protocol::Amqp => amqp::read_large(message, first, as_bytes),
        };
        let Some(LargeReader { message, bytes, step }) = reader else { return Ok(None) };
        let portable = read_portable(&message)?;
        let writer = match to {
            Protocol::OpenWire => openwire::write_large(&portable.body),
            Protocol::Amqp => amqp::write_large(&portable),
        };
        let Some(writer) = writer else { return Ok(None) };
        let known_bytes = bytes.filter(|_| writer.keeps_length);
        let between = BytesMut::new();
        Ok(Some(Rewriter { message, known_bytes, reads: step, writer, between }))
    }

    /// The message as if its body were short: its own protocol's, and complete.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Bytes of the body as they leave, if that is known before it is read.
    pub fn known_bytes(&self) -> Option<u64> {
        self.known_bytes
    }

    /// The bytes before a body of this length.
    ///
    /// # Errors
    /// [`TranslationError::Unwritable`]: it is too long for that protocol.
    pub fn front(&self, bytes: u64) -> Result<Bytes, TranslationError> {
        (self.writer.front)(bytes)
    }

    /// The output for the next piece.
    ///
    /// # Errors
    /// The fault of the body, and its position.
    pub fn take(&mut self, piece: &[u8], is_last: bool) -> Result<BytesMut, String> {
        let mut written = BytesMut::with_capacity(piece.len());
        self.between.clear();
        self.reads.take(piece, &mut self.between)?;
        if is_last {
            self.reads.end(&mut self.between)?;
        }
        self.writer.step.take(&self.between, &mut written)?;
        if is_last {
            self.writer.step.end(&mut written)?;
        }
        Ok(written)
    }
}
