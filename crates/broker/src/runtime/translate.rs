//! The one place where protocols meet: who reads what came by which of them, and who writes large bodies for whom.

use bytes::{Bytes, BytesMut};
use postroad_amqp::portable as amqp;
use postroad_model::portable::{LargeReader, LargeWriter, Portable, Step, TranslationError};
use postroad_model::{Message, Protocol};
use postroad_openwire::codec::with_content;
use postroad_openwire::portable as openwire;

/// A message as every protocol understands it.
///
/// # Errors
/// Its bytes are not what its protocol says they are.
pub fn read_portable(message: &Message) -> Result<Portable, TranslationError> {
    match message.encoding.protocol {
        Protocol::OpenWire => openwire::read_portable(message),
        Protocol::Amqp => amqp::read_portable(message),
    }
}

/// A large message with its body in memory.
///
/// # Errors
/// Its bytes are not what its protocol says they are.
pub fn with_body(message: &Message, body: &[u8]) -> Result<Message, String> {
    let bytes = match message.encoding.protocol {
        Protocol::OpenWire => {
            with_content(&message.bytes, message.encoding.version, body).map_err(|error| error.to_string())?
        }
        Protocol::Amqp => [&message.bytes[..], body].concat().into(),
    };
    Ok(Message { bytes, ..message.clone() }.with_chunks(None))
}

/// A large body on its way into another protocol: what its own reads of it, the consumer's writes.
pub struct Rewriter {
    source: Source,
    /// The message as if its body were empty.
    message: Message,
    known_bytes: Option<u64>,
    reads: Box<dyn Step>,
    writer: LargeWriter,
    /// What was read of a piece, and is to be written.
    between: BytesMut,
}

/// What it is made from.
#[derive(Clone)]
struct Source {
    message: Message,
    /// The first piece of its body.
    first: Bytes,
    to: Protocol,
    /// Whether what is said to be text is taken as bytes.
    as_bytes: bool,
}

impl Rewriter {
    /// The body of this message, which begins with the piece `first`, for a consumer of the protocol `to`; `None` for one that has to be
    /// there whole.
    ///
    /// # Errors
    /// [`TranslationError`]: nobody can be sent this message by that protocol.
    pub fn of(message: &Message, first: &Bytes, to: Protocol) -> Result<Option<Rewriter>, TranslationError> {
        let source = Source { message: message.clone(), first: first.clone(), to, as_bytes: false };
        source.rewriter()
    }

    /// From the first piece on again.
    ///
    /// # Errors
    /// As [`Rewriter::of`].
    pub fn again(&self) -> Result<Option<Rewriter>, TranslationError> {
        self.source.clone().rewriter()
    }

    /// As [`Rewriter::again`] of a body that was said to be text, and is not: as bytes. `None` if it cannot be anything else.
    ///
    /// # Errors
    /// As [`Rewriter::of`].
    pub fn as_bytes(&self) -> Result<Option<Rewriter>, TranslationError> {
        match self.source.as_bytes {
            true => Ok(None),
            false => Source { as_bytes: true, ..self.source.clone() }.rewriter(),
        }
    }

    /// The message as if its body were empty: its own protocol's, and complete.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Bytes of the body as they leave, if that is known before it is read.
    pub fn known_bytes(&self) -> Option<u64> {
        self.known_bytes
    }

    /// What stands ahead of a body of so many bytes.
    ///
    /// # Errors
    /// [`TranslationError::Unwritable`]: it is too long for that protocol.
    pub fn front(&self, bytes: u64) -> Result<Bytes, TranslationError> {
        (self.writer.front)(bytes)
    }

    /// What follows from the next piece.
    ///
    /// # Errors
    /// What is wrong with the body, and where.
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

impl Source {
    fn rewriter(self) -> Result<Option<Rewriter>, TranslationError> {
        let reader = match self.message.encoding.protocol {
            // Its messages say for certain what they are.
            Protocol::OpenWire if self.as_bytes => None,
            Protocol::OpenWire => openwire::read_large(&self.message)?,
            Protocol::Amqp => amqp::read_large(&self.message, &self.first, self.as_bytes),
        };
        let Some(LargeReader { message, bytes, step }) = reader else { return Ok(None) };
        let portable = read_portable(&message)?;
        let writer = match self.to {
            Protocol::OpenWire => openwire::write_large(&portable.body),
            Protocol::Amqp => amqp::write_large(&portable),
        };
        let Some(writer) = writer else { return Ok(None) };
        let known_bytes = bytes.filter(|_| writer.keeps_length);
        let between = BytesMut::new();
        Ok(Some(Rewriter { source: self, message, known_bytes, reads: step, writer, between }))
    }
}
