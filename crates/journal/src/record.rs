//! Input and output of the journal.

use crate::keys::KeyId;
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
    /// A key of its own, or one that has taken the place of that; without one the journal's.
    pub key: Option<KeyId>,
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

/// A payload of any number of pieces, written one after the other and never copied.
///
/// Where the pieces were cut is not stored: they come back as one.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pieces: Vec<Bytes>,
}

impl Payload {
    /// The pieces, in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
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
        Payload { pieces: vec![piece] }
    }
}

impl<const N: usize> From<[Bytes; N]> for Payload {
    fn from(pieces: [Bytes; N]) -> Payload {
        Payload { pieces: pieces.into() }
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(pieces: Vec<Bytes>) -> Payload {
        Payload { pieces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_its_pieces_in_order() {
        let payload = Payload::from(vec![Bytes::from("ab"), Bytes::from("c")]);
        assert_eq!(payload, Payload::from(Bytes::from("abc")), "cuts do not matter");
        assert_eq!((payload.byte_length(), payload.to_bytes()), (3, Bytes::from("abc")));
        assert_eq!(Payload::default().to_bytes(), Bytes::new());
    }
}
