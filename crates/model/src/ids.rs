//! Ids and positions, each a type of its own so that none is taken for another.

use std::num::NonZeroU64;

/// One partition of this broker: a state machine with one owner thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u16);

/// Place of one record in the log of its partition: counts records, not bytes.
///
/// Dense and rising: the first record of a partition has position 1.
/// Invariant: never zero, so `Option<Position>` costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(NonZeroU64);

impl Position {
    /// The position of a partition's first record.
    pub const FIRST: Position = Position(NonZeroU64::MIN);

    /// `None` for zero, which is no position.
    pub const fn new(position: u64) -> Option<Position> {
        match NonZeroU64::new(position) {
            Some(position) => Some(Position(position)),
            None => None,
        }
    }

    /// The number on the wire and on the disk.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The position after this one.
    ///
    /// At a billion records a second the sequence lasts 584 years; running out is a broken invariant.
    pub fn next(self) -> Position {
        Position(self.0.checked_add(1).expect("positions last 584 years"))
    }
}
