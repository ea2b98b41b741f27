//! Large bodies on their way from one protocol into another: piece by piece, never whole in memory.
//!
//! The protocol that a message came by reads the pieces into the contents of a [`super::Body`] of
//! text, bytes or an object; the consumer's writes that out. Neither knows the other.

use bytes::{BufMut, Bytes, BytesMut};

use super::TranslationError;
use crate::Message;

/// One step of a body's way. Its pieces may be cut anywhere.
pub trait Step {
    /// Takes the next piece, and appends the resulting bytes to `out`.
    ///
    /// # Errors
    /// The fault of the body, and its position.
    fn take(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), String>;

    /// All pieces have come: appends the rest.
    ///
    /// # Errors
    /// The body breaks off.
    fn end(&mut self, out: &mut BytesMut) -> Result<(), String>;
}

/// A large message whose body can be read piece by piece.
pub struct LargeReader {
    /// The message as if its body were short, in its own encoding, complete in memory: the source
    /// of the portable form.
    pub message: Message,
    /// Bytes that the step will give, if that is known before.
    pub bytes: Option<u64>,
    /// From the pieces in the log to the contents of the body: UTF-8 if it is text.
    pub step: Box<dyn Step>,
}

/// How the consumer's protocol has a large body.
pub struct LargeWriter {
    /// The bytes before a body of this length.
    pub front: fn(u64) -> Result<Bytes, TranslationError>,
    /// Whether as many bytes leave as the body holds.
    pub keeps_length: bool,
    /// From the contents of the body to the bytes of the consumer's protocol.
    pub step: Box<dyn Step>,
}

/// Pieces that both sides have in the same form.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassThrough;

impl Step for PassThrough {
    fn take(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), String> {
        out.put_slice(piece);
        Ok(())
    }

    fn end(&mut self, _: &mut BytesMut) -> Result<(), String> {
        Ok(())
    }
}
