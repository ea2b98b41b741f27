//! What goes into the journal and what comes out of it.

use bytes::Bytes;
use postroad_model::{PartitionId, Position};

/// One record to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The partition whose log it belongs to.
    pub partition: PartitionId,
    /// The next position of that partition; positions are dense.
    pub position: Position,
    /// Opaque bytes.
    pub payload: Payload,
    /// True for records that free something (settles): they may use the space kept back for them
    /// when no further segment can be made.
    pub reserve: bool,
}

/// One record read back, its checksum verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The partition whose log it belongs to.
    pub partition: PartitionId,
    /// Its place in that log.
    pub position: Position,
    /// The bytes that were committed, in one buffer of its own.
    pub payload: Bytes,
}

/// A payload of up to [`Payload::PIECES_MAX`] pieces, written one after the other and never copied.
///
/// Where the pieces were cut is not stored: they come back as one.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pieces: [Bytes; Payload::PIECES_MAX],
    count: usize,
}

/// A payload was given more than [`Payload::PIECES_MAX`] pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a payload has at most {} pieces", Payload::PIECES_MAX)]
pub struct TooManyPieces;

impl Payload {
    /// Four are enough for a command, a header section, a body and a trailer.
    pub const PIECES_MAX: usize = 4;

    /// Adds one piece behind the others.
    ///
    /// # Errors
    /// [`TooManyPieces`]: all places are taken; the payload is unchanged.
    pub fn push(&mut self, piece: Bytes) -> Result<(), TooManyPieces> {
        let place = self.pieces.get_mut(self.count).ok_or(TooManyPieces)?;
        *place = piece;
        self.count += 1;
        Ok(())
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces[..self.count]
    }

    /// Length of all pieces together, in bytes.
    pub fn byte_length(&self) -> u64 {
        self.pieces().iter().map(|piece| piece.len() as u64).sum()
    }

    /// All pieces as one buffer; copies only if there is more than one piece.
    pub fn to_bytes(&self) -> Bytes {
        match self.pieces() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

/// Payloads are equal if their bytes are, wherever the pieces were cut.
impl PartialEq for Payload {
    fn eq(&self, other: &Payload) -> bool {
        self.byte_length() == other.byte_length()
            && self.pieces().iter().flatten().eq(other.pieces().iter().flatten())
    }
}

impl Eq for Payload {}

impl From<Bytes> for Payload {
    fn from(piece: Bytes) -> Payload {
        let mut payload = Payload::default();
        payload.pieces[0] = piece;
        payload.count = 1;
        payload
    }
}

impl<const N: usize> From<[Bytes; N]> for Payload {
    fn from(pieces: [Bytes; N]) -> Payload {
        const { assert!(N <= Payload::PIECES_MAX, "too many pieces") };
        let mut payload = Payload::default();
        for (place, piece) in payload.pieces.iter_mut().zip(pieces) {
            *place = piece;
        }
        payload.count = N;
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_takes_pieces_up_to_its_limit() {
        let mut payload = Payload::from([Bytes::from("ab"), Bytes::from("c")]);
        assert_eq!(payload, Payload::from(Bytes::from("abc")), "cuts do not matter");
        assert_eq!(payload.push(Bytes::from("d")), Ok(()));
        assert_eq!(payload.push(Bytes::from("e")), Ok(()));
        assert_eq!(payload.push(Bytes::from("f")), Err(TooManyPieces));
        assert_eq!((payload.byte_length(), payload.to_bytes()), (5, Bytes::from("abcde")));
        assert_eq!(Payload::default().to_bytes(), Bytes::new());
    }
}
