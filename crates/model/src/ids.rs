//! Ids and positions, each a type of its own so that none is taken for another.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

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

    /// The position that no record comes behind.
    pub const MAX: Position = Position(NonZeroU64::MAX);

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
    /// At a billion records a second the sequence lasts 584 years; running out is a broken
    /// invariant.
    pub fn next(self) -> Position {
        Position(self.0.checked_add(1).expect("positions last 584 years"))
    }
}

/// One client connection, unique within one run of the broker.
///
/// The high 16 bits name the core that owns the socket, so that an effect finds its way without a
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// A connection of `core`, the `number`th there. `number` must fit 48 bits.
    pub const fn new(core: u16, number: u64) -> ConnectionId {
        ConnectionId((core as u64) << 48 | number & ((1 << 48) - 1))
    }

    /// The core that owns this connection's socket.
    pub const fn core(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Its number within its core.
    pub const fn number(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    /// The pseudo connection of a partition that moves messages of its own accord (dead letters).
    pub const fn internal(partition: PartitionId) -> ConnectionId {
        ConnectionId::new(u16::MAX, partition.0 as u64)
    }

    /// Whose own work it stands for.
    pub const fn partition(self) -> Option<PartitionId> {
        if self.is_internal() { Some(PartitionId(self.number() as u16)) } else { None }
    }

    /// Whether it stands for a partition's own work.
    pub const fn is_internal(self) -> bool {
        self.core() == u16::MAX
    }
}

/// One consumer: a number chosen by the session, unique within its connection's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// The connection that attached it.
    pub connection: ConnectionId,
    /// The session's own number for it.
    pub number: u32,
    /// A consumer of a pattern of queues has a member in each, counted from 1; 0 is the consumer as
    /// a whole.
    pub member: u32,
}

impl ConsumerKey {
    /// A consumer as a whole.
    pub const fn new(connection: ConnectionId, number: u32) -> ConsumerKey {
        ConsumerKey { connection, number, member: 0 }
    }

    /// The consumer that it is a member of; itself, if it is none.
    pub const fn whole(self) -> ConsumerKey {
        ConsumerKey { member: 0, ..self }
    }

    /// This member of it.
    pub const fn with_member(self, member: u32) -> ConsumerKey {
        ConsumerKey { member, ..self }
    }
}

/// One local transaction of a connection, numbered by its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionKey {
    /// The connection that began it.
    pub connection: ConnectionId,
    /// The session's own number for it; never used twice on one connection.
    pub number: u64,
}

/// A transaction over several partitions, unique for the life of the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The partition whose log holds the decision.
    pub coordinator: PartitionId,
    /// Which run of the broker began it (rises from start to start).
    pub incarnation: u64,
    /// Counts the coordinator's transactions within that run.
    pub number: u64,
}

/// One branch of a distributed transaction, as its transaction manager calls it (XA specification,
/// section 4.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId {
    /// How the transaction manager writes its ids.
    pub format: i32,
    /// The transaction over all resources.
    pub transaction: Arc<[u8]>,
    /// This resource's part of it.
    pub qualifier: Arc<[u8]>,
}

impl BranchId {
    /// Bytes of each of its two parts, at most (`MAXGTRIDSIZE` and `MAXBQUALSIZE`).
    pub const PART_BYTES_MAX: usize = 64;
}

impl fmt::Display for BranchId {
    /// `FORMAT:TRANSACTION:QUALIFIER`, the parts in hexadecimal.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.format)?;
        for part in [&self.transaction, &self.qualifier] {
            write!(out, ":")?;
            part.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Why a text names no branch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BranchTextError {
    /// It has other than three parts.
    #[error("a branch is FORMAT:TRANSACTION:QUALIFIER, with 2 colons; this has {colons}")]
    Parts {
        /// How many colons it has.
        colons: usize,
    },
    /// The format is no number.
    #[error("the format {0:?} is no number of 32 bits")]
    Format(String),
    /// A part is not written as bytes are.
    #[error("{0:?} is not hexadecimal, two digits to a byte, of at most {max} bytes", max = BranchId::PART_BYTES_MAX)]
    Part(String),
}

impl FromStr for BranchId {
    type Err = BranchTextError;

    /// Parses the output of `Display`.
    fn from_str(text: &str) -> Result<BranchId, BranchTextError> {
        let parts: Vec<&str> = text.split(':').collect();
        let [format, transaction, qualifier] = parts[..] else {
            return Err(BranchTextError::Parts { colons: parts.len() - 1 });
        };
        let format = format.parse().map_err(|_| BranchTextError::Format(format.to_owned()))?;
        Ok(BranchId { format, transaction: bytes_of(transaction)?, qualifier: bytes_of(qualifier)? })
    }
}

fn bytes_of(text: &str) -> Result<Arc<[u8]>, BranchTextError> {
    let wrong = || BranchTextError::Part(text.to_owned());
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * BranchId::PART_BYTES_MAX {
        return Err(wrong());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    bytes.collect::<Option<Arc<[u8]>>>().ok_or_else(wrong)
}

/// Where a branch stands that waits for a word of its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchStanding {
    /// It is prepared, and in doubt.
    Prepared,
    /// An operator has ended it, and it has not been forgotten.
    Overruled {
        /// How it ended.
        committed: bool,
    },
}

/// A session's number of a request to the core; the reply carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One queue of a partition.
///
/// Durable queues are counted by the records of their partition, whose number stands above, so that
/// no two queues of a broker have one id; volatile ones (subscriptions and temporary queues, known
/// to this run only) carry the top bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

impl QueueId {
    const VOLATILE: u64 = 1 << 63;

    /// Bits below the partition.
    const NUMBER_BITS: u32 = 40;

    /// The `number`th durable queue that a partition made.
    pub const fn durable(partition: PartitionId, number: u64) -> QueueId {
        QueueId((partition.0 as u64) << QueueId::NUMBER_BITS | number)
    }

    /// The `number`th volatile queue of this run.
    pub const fn volatile(number: u64) -> QueueId {
        QueueId(number | QueueId::VOLATILE)
    }

    /// Whether the queue is forgotten when the broker stops.
    pub const fn is_volatile(self) -> bool {
        self.0 & QueueId::VOLATILE != 0
    }
}

/// Place of one entry in its queue: the lane in the top byte, the sequence within the lane below.
///
/// A consumer sees it as the tag of a delivery and settles by it. Durable lanes are numbered by
/// records alone, so every replica calls the same entry by the same tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryTag(pub u64);

impl EntryTag {
    /// Bits below the lane.
    pub const SEQUENCE_BITS: u32 = 56;
}

/// One message of a partition, whichever queues hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKey {
    /// In the log: the `ordinal`th message of the record at `position`.
    Durable {
        /// The record.
        position: Position,
        /// Counts messages within the record from zero.
        ordinal: u32,
    },
    /// In memory only, counted within this run.
    Volatile(u64),
}

/// Messages that are alike, in records that follow one another: each record has as many of them,
/// from the same place on, and all are of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageRow {
    /// The first of the records.
    pub first: Position,
    /// How many records.
    pub records: u64,
    /// Which of its record's messages the first of each record is.
    pub ordinal: u32,
    /// How many messages each record has.
    pub messages: u32,
    /// Bytes of each body.
    pub body_bytes: u64,
}

impl MessageRow {
    /// A row of one.
    pub fn of_one(position: Position, ordinal: u32, body_bytes: u64) -> MessageRow {
        MessageRow { first: position, records: 1, ordinal, messages: 1, body_bytes }
    }

    /// The messages.
    pub fn keys(&self) -> impl Iterator<Item = MessageKey> + use<> {
        let MessageRow { first, records, .. } = *self;
        let ordinals = self.ordinals();
        let positions = (0..records).filter_map(move |place| Position::new(first.get().wrapping_add(place)));
        positions.flat_map(move |position| {
            ordinals.clone().map(move |ordinal| MessageKey::Durable { position, ordinal })
        })
    }

    /// Which of its record's messages those of each record are.
    pub fn ordinals(&self) -> Range<u32> {
        self.ordinal..self.ordinal.saturating_add(self.messages)
    }

    /// Takes those of `next` in; `false` if it does not go on there.
    pub fn extend(&mut self, next: &MessageRow) -> bool {
        if self.first.get().checked_add(self.records) == Some(next.first.get()) {
            let is_further = (self.ordinal, self.messages, self.body_bytes)
                == (next.ordinal, next.messages, next.body_bytes);
            self.records += if is_further { next.records } else { 0 };
            is_further
        } else {
            let is_beside = (self.first, self.records, self.body_bytes)
                == (next.first, next.records, next.body_bytes)
                && self.ordinal.checked_add(self.messages) == Some(next.ordinal);
            self.messages += if is_beside { next.messages } else { 0 };
            is_beside
        }
    }
}
