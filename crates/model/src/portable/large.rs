//! Large bodies on their way from one protocol into another: piece by piece, never whole in memory.
//!
//! The protocol that a message came by reads the pieces into what a [`super::Body`] of text, bytes or an object would hold;
//! the consumer's writes that out. Neither knows the other.

use bytes::{BufMut, Bytes, BytesMut};

use super::TranslationError;
use crate::Message;

/// One step of a body's way. Its pieces may be cut anywhere.
pub trait Step {
    /// Takes the next piece, and appends to `out` what follows from all so far.
    ///
    /// # Errors
    /// What is wrong with the body, and where.
    fn take(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), String>;

    /// All pieces have come: appends what is left.
    ///
    /// # Errors
    /// The body breaks off.
    fn end(&mut self, out: &mut BytesMut) -> Result<(), String>;
}

/// A large message whose body can be read piece by piece.
pub struct LargeReader {
    /// The message as if its body were short, in its own encoding, complete in memory: what it is made portable from.
    pub message: Message,
    /// Bytes that the step will give, if that is known before.
    pub bytes: Option<u64>,
    /// From the pieces in the log to what the body holds: UTF-8 if it is text.
    pub step: Box<dyn Step>,
}

/// How the consumer's protocol has a large body.
pub struct LargeWriter {
    /// What stands ahead of a body of so many bytes, as they leave.
    pub front: fn(u64) -> Result<Bytes, TranslationError>,
    /// Whether as many bytes leave as the body holds.
    pub keeps_length: bool,
    /// From what the body holds to what leaves.
    pub step: Box<dyn Step>,
}

/// What one side has just as the other has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsItIs;

impl Step for AsItIs {
    fn take(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), String> {
        out.put_slice(piece);
        Ok(())
    }

    fn end(&mut self, _: &mut BytesMut) -> Result<(), String> {
        Ok(())
    }
}
