//! Spilling: data of this run only that has no room in memory lies in a file; and states, parts of
//! which lie there.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

/// Where bytes can be put that memory has no room for.
pub trait Spill: Debug + Send + Sync {
    /// Puts them there; `None`: there is no room, or they are too few to be worth it, and stay
    /// where they are.
    fn put(&self, bytes: &Bytes) -> Option<Arc<dyn Spilled>>;
}

/// Bytes in a spill file, until the last reference is dropped.
pub trait Spilled: Debug + Send + Sync {
    /// How many they are.
    fn byte_length(&self) -> usize;

    /// The bytes. Ends the process if they cannot be read any more: the log has all of it, and the
    /// next start finds it there.
    fn read(&self) -> Bytes;
}

/// Bytes, wherever they are.
#[derive(Clone, Debug)]
pub enum Piece {
    /// In memory.
    Here(Bytes),
    /// In a file.
    Spilled(Arc<dyn Spilled>),
}

impl Piece {
    /// How many they are.
    pub fn byte_length(&self) -> usize {
        match self {
            Piece::Here(bytes) => bytes.len(),
            Piece::Spilled(spilled) => spilled.byte_length(),
        }
    }

    /// The bytes: shared, or read.
    pub fn bytes(&self) -> Bytes {
        self.clone().into_bytes()
    }

    /// As [`Piece::bytes`], of one that is not needed any more.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Piece::Here(bytes) => bytes,
            Piece::Spilled(spilled) => spilled.read(),
        }
    }
}

/// The state of a partition, as a snapshot of it is written: in pieces, without copies of them or
/// of their list.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pieces: Arc<Vec<Piece>>,
}

impl Snapshot {
    /// The pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Length of all pieces together.
    pub fn byte_length(&self) -> usize {
        self.pieces.iter().map(Piece::byte_length).sum()
    }

    /// All pieces as one; copies only if there are several.
    pub fn to_bytes(&self) -> Bytes {
        match &self.pieces[..] {
            [one] => one.bytes(),
            many => many.iter().map(Piece::bytes).collect::<Vec<_>>().concat().into(),
        }
    }
}

/// States are equal if their bytes are, wherever those are and however they were cut.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Snapshot) -> bool {
        self.byte_length() == other.byte_length() && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Snapshot {}

impl From<Bytes> for Snapshot {
    fn from(bytes: Bytes) -> Snapshot {
        vec![Piece::Here(bytes)].into()
    }
}

impl From<Vec<Piece>> for Snapshot {
    fn from(pieces: Vec<Piece>) -> Snapshot {
        Snapshot { pieces: Arc::new(pieces) }
    }
}

impl FromIterator<Bytes> for Snapshot {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Snapshot {
        pieces.into_iter().map(Piece::Here).collect::<Vec<_>>().into()
    }
}
