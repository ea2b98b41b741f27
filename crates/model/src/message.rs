//! Messages: opaque bytes in the encoding they arrived in, and the few headers that routing needs.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Destination, Position, RedriveMark, TraceKey, UserKey};

/// Who can read a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// The protocol.
    pub protocol: Protocol,
    /// The protocol's own version of its message layout.
    pub version: u8,
}

/// The protocols whose encodings a stored message may have. The numbers are on disk: never reuse
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// The loose, uncached form of an OpenWire message command.
    OpenWire = 1,
    /// All sections of an AMQP 1.0 message, as they were sent.
    Amqp = 2,
}

impl Protocol {
    /// The protocol of this number; `None` if this build knows none.
    pub fn from_number(number: u8) -> Option<Protocol> {
        [Protocol::OpenWire, Protocol::Amqp].into_iter().find(|protocol| *protocol as u8 == number)
    }
}

/// The priority of a message whose sender asks for none (JMS 3.1, section 3.4.10).
pub const NORMAL_PRIORITY: u8 = 4;

/// The highest of the ten priorities (JMS 3.1, section 3.4.10).
pub const HIGHEST_PRIORITY: u8 = 9;

/// One message. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who can read `bytes`.
    pub encoding: Encoding,
    /// Whether it must survive the broker.
    pub persistent: bool,
    /// JMS priority, 0 to 9.
    pub priority: u8,
    /// When it expires, in milliseconds since 1970; zero for never.
    pub expires_at_ms: u64,
    /// Headers that few messages have.
    pub rare: Option<Arc<RareHeaders>>,
    /// The protocol's own encoding, headers and body.
    pub bytes: Bytes,
}

impl Message {
    /// The group that it belongs to, if it has one.
    pub fn group(&self) -> Option<&Group> {
        self.rare.as_ref()?.group.as_ref()
    }

    /// The value by which a queue may keep the last message alone.
    pub fn last_value(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.last_value.as_ref()
    }

    /// Where the rest of its body lies, if it is a large one.
    pub fn chunks(&self) -> Option<&Arc<Chunks>> {
        self.rare.as_ref()?.chunks.as_ref()
    }

    /// The same message with the rest of its body elsewhere, or with none.
    pub fn with_chunks(mut self, chunks: Option<Arc<Chunks>>) -> Message {
        let rare = RareHeaders { chunks, ..self.rare.as_deref().cloned().unwrap_or_default() };
        self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        self
    }

    /// How often it has gone back from the dead letters by itself.
    pub fn returns(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.returns)
    }

    /// When it may be delivered, in milliseconds since 1970; zero for at once.
    pub fn visible_at_ms(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.visible_at_ms)
    }

    /// The same message, not to be delivered before this time.
    pub fn with_visible_at_ms(mut self, visible_at_ms: u64) -> Message {
        if self.visible_at_ms() != visible_at_ms {
            let rare = RareHeaders { visible_at_ms, ..self.rare.as_deref().cloned().unwrap_or_default() };
            self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        }
        self
    }

    /// The same message, with the number of its redrives.
    pub fn with_returns(mut self, returns: u32) -> Message {
        if self.returns() != returns {
            let rare = RareHeaders { returns, ..self.rare.as_deref().cloned().unwrap_or_default() };
            self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        }
        self
    }

    /// The redrive that an operator moved it by, if it can be undone.
    pub fn redriven(&self) -> Option<&Arc<RedriveMark>> {
        self.rare.as_ref()?.redriven.as_ref()
    }

    /// The same message, moved by this redrive, or by none.
    pub fn with_redriven(mut self, redriven: Option<Arc<RedriveMark>>) -> Message {
        if self.redriven() != redriven.as_ref() {
            let rare = RareHeaders { redriven, ..self.rare.as_deref().cloned().unwrap_or_default() };
            self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        }
        self
    }

    /// By which a queue knows it again, if a post is to be taken in once.
    pub fn deduplication(&self) -> Option<Deduplication> {
        self.rare.as_ref()?.deduplication
    }

    /// The same message, to be taken in once.
    pub fn with_deduplication(mut self, deduplication: Option<Deduplication>) -> Message {
        if self.deduplication() != deduplication {
            let rare = RareHeaders { deduplication, ..self.rare.as_deref().cloned().unwrap_or_default() };
            self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        }
        self
    }

    /// Bytes of its body that are not in `bytes`.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks().map_or(0, |chunks| chunks.bytes)
    }

    /// Bytes of it altogether, if `bytes` is here.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64 + self.chunk_bytes()
    }

    /// The user who sent it, as far as it is on its way into the log.
    pub fn user(&self) -> Option<UserKey> {
        self.rare.as_ref()?.user
    }

    /// The audit knows who sent it: from here on it is of no interest.
    pub fn forget_user(&mut self) {
        if self.user().is_some() {
            let rare = RareHeaders { user: None, ..self.rare.as_deref().cloned().unwrap_or_default() };
            self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        }
    }

    /// Its trace, as far as it is on its way into the log.
    pub fn trace(&self) -> Option<TraceKey> {
        self.rare.as_ref()?.trace
    }

    /// The same message, traced from here on.
    pub fn with_trace(mut self, trace: Option<TraceKey>) -> Message {
        if self.trace() != trace {
            let rare = RareHeaders { trace, ..self.rare.as_deref().cloned().unwrap_or_default() };
            self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        }
        self
    }

    /// Its trace, of which the message itself knows no more from here on.
    pub fn take_trace(&mut self) -> Option<TraceKey> {
        let trace = self.trace()?;
        let rare = RareHeaders { trace: None, ..self.rare.as_deref().cloned().unwrap_or_default() };
        self.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        Some(trace)
    }

    /// Which subscriptions of its topic get it, if not all.
    pub fn aim(&self) -> Option<&Aim> {
        self.rare.as_ref()?.aim.as_ref()
    }

    /// The same message for these subscriptions of its topic.
    pub fn aimed(mut self, aim: Aim) -> Message {
        let rare = RareHeaders { aim: Some(aim), ..self.rare.as_deref().cloned().unwrap_or_default() };
        self.rare = Some(Arc::new(rare));
        self
    }

    /// The client that sent it, if the broker needs to know.
    pub fn client(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.client.as_ref()
    }
}

/// Where a message stands among those of its producer: sent again after a lost connection, it is
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The producer, by a digest of the name that its client gave it.
    pub producer: u128,
    /// Its messages rise, in the order of sending.
    pub sequence: u64,
    /// The producer is a queue of another broker that forwards its entries by a link.
    pub from_link: bool,
}

/// Headers that few messages have: they cost the others one pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareHeaders {
    /// The group that it belongs to.
    pub group: Option<Group>,
    /// The client that sent it, for subscriptions that skip their own client's messages.
    pub client: Option<Arc<str>>,
    /// The value by which a queue keeps the last message alone, if one that it is sent to does.
    pub last_value: Option<Arc<str>>,
    /// The rest of a large body.
    pub chunks: Option<Arc<Chunks>>,
    /// How often it has gone back from the dead letters by itself.
    pub returns: u32,
    /// The user who sent it, if one has logged in: duplicates are looked for among the messages of
    /// the same user.
    pub user: Option<UserKey>,
    /// It is not delivered before, in milliseconds since 1970; zero for at once.
    pub visible_at_ms: u64,
    /// By which the queue that it is posted to knows it again.
    pub deduplication: Option<Deduplication>,
    /// Its trace, while it is on its way into the log: records and snapshots do not have it.
    pub trace: Option<TraceKey>,
    /// Which subscriptions of its topic get it, if not all.
    pub aim: Option<Aim>,
    /// The redrive that moved it to its queue.
    pub redriven: Option<Arc<RedriveMark>>,
}

/// Which durable subscriptions of its topic get a message that comes by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The one of this name alone: it waited in the subscription of this name at the other broker.
    Only(Arc<str>),
    /// All but the one of this name, which has got it so before.
    Except(Arc<str>),
}

/// For how long a queue knows a message again that is to be taken in once.
pub const DEDUPLICATION_MS: u64 = 300_000;

/// By which a queue knows a message again that was posted before (SQS: `MessageDeduplicationId`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deduplication {
    /// A digest: messages with the same one are duplicates.
    pub key: u128,
    /// The message's own id: senders of duplicates are answered with that of the first.
    pub id: u128,
    /// Until then, in milliseconds since 1970: [`DEDUPLICATION_MS`] after it was sent.
    pub until_ms: u64,
}

/// The body of a large message: records of its partition's log, which hold it in pieces.
/// [`Message::bytes`] is the message as if its body were empty.
///
/// In the core's memory it takes eight bytes for each piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Bytes of all pieces together.
    pub bytes: u64,
    /// Bytes of each piece but the last, which may be shorter; never zero.
    pub piece_bytes: u32,
    /// The records, in the order of the body; their positions rise.
    pub positions: Box<[Position]>,
}

/// Bytes of each piece of a large body but the last: small enough that a turn of the journal with
/// some of them in it is as short as others, large enough that their headers and syncs cost little
/// beside them.
pub const CHUNK_BYTES: usize = 256 << 10;

impl Chunks {
    /// Bytes of the piece at this place.
    pub fn bytes_of(&self, index: usize) -> u64 {
        let piece = u64::from(self.piece_bytes);
        self.bytes.saturating_sub(index as u64 * piece).min(piece)
    }

    /// Each record, with the bytes of the piece in it.
    pub fn iter(&self) -> impl Iterator<Item = (Position, u64)> + '_ {
        self.positions.iter().enumerate().map(|(index, position)| (*position, self.bytes_of(index)))
    }
}

/// Messages of a group go to one consumer, in order (JMS 3.1, section 3.5.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name (`JMSXGroupID`).
    pub id: Arc<str>,
    /// The message's number in the group, from 1 (`JMSXGroupSeq`); a negative one ends the group, 0
    /// says nothing.
    pub sequence: i32,
}

/// A dead letter without its past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revived {
    /// Where it could not be processed, if it says so.
    pub origin: Option<Destination>,
    /// Why, if it says so.
    pub reason: Option<Arc<str>>,
    /// The message for the next attempt: as its sender sent it, in its own encoding.
    pub message: Message,
}

/// The history of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue that it goes to.
    pub queue: Destination,
    /// Where it could not be processed.
    pub origin: Destination,
    /// Why, if the consumer said so.
    pub reason: Option<Arc<str>>,
}

impl DeadLetter {
    /// The property in which JMS clients and their selectors look for the reason
    /// (`ActiveMQMessage.DLQ_DELIVERY_FAILURE_CAUSE_PROPERTY`).
    pub const CAUSE: &str = "dlqDeliveryFailureCause";
}
