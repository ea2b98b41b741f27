//! Records: commands as bytes, in the log and between brokers. See docs/formats/records.md.
//!
//! All numbers are little-endian. A record begins with its type and the version of its layout; the
//! checksum is the journal's.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use postroad_model::{
    Aim, Binding, BranchId, Changes, Chunks, Command, Compression, Deduplication, Destination,
    DestinationKind, Due, Encoding, EntryTag, Group, HIGHEST_PRIORITY, LeaseEnd, LeaseId, Message,
    PartitionId, Piece, Position, Protocol, QueueId, QueueOptions, RareHeaders, Recurrence, RouteRetry,
    Schedule, Sent, SettleCause, Settlement, Snapshot, Spilled, Subscription, TransactionId, UserKey,
};

use crate::documents;
use crate::log::compressed::{self, Method};
use crate::log::queue_records::of_queue;
use crate::log::reader::Reader;
use crate::log::{flag, known, redrive_mark};

/// The layout that this build writes, and the newest that it reads.
pub(crate) const VERSION: u8 = 1;

/// A bit of a destination's flags that says something about it where it stands: an address is
/// followed by more of them, a subscription to the topic is shared.
const MARKED: u8 = 4;

/// Set in the flags of a message's first destination if its schedule follows.
const SCHEDULED: u8 = 8;

/// Set in the flags of a message's first destination if it has moved: how often it was delivered
/// without success follows.
const MOVED: u8 = 16;

/// Why bytes are no record. They passed the journal's checksum, so a newer or broken build wrote
/// them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The record ends too early.
    #[error("record ends at byte {at}, where {wanted} more bytes belong")]
    Truncated {
        /// Where the next field begins.
        at: usize,
        /// How long it is.
        wanted: usize,
    },
    /// The record goes on after its last field.
    #[error("record has {extra} bytes behind its end")]
    TooLong {
        /// How many.
        extra: usize,
    },
    /// A field has a value that this build does not know.
    #[error("{field} {value} is not supported by this build")]
    Unknown {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u8,
    },
    /// A page of entries does not hold together.
    #[error("a page of entries is damaged: {what}")]
    Page {
        /// The fault.
        what: &'static str,
    },
    /// A compressed body does not fit its headers.
    #[error("the compressed body at byte {at} is damaged: {what}")]
    Body {
        /// Where it begins.
        at: usize,
        /// The fault.
        what: &'static str,
    },
    /// A large body is not in as many pieces as its size asks for.
    #[error("a body of {bytes} bytes does not lie in {records} records")]
    Chunks {
        /// Bytes of the body.
        bytes: u64,
        /// Records that are named.
        records: usize,
    },
    /// Messages of a record are not in the order of their ordinals.
    #[error("message {ordinal} of the record stands where one from {least} on belongs")]
    Ordinal {
        /// Which one.
        ordinal: u32,
        /// The first that may stand there.
        least: u32,
    },
    /// A name is no UTF-8.
    #[error("the name at byte {at} is not UTF-8")]
    Name {
        /// Where it begins.
        at: usize,
    },
}

pub(super) mod kind {
    pub const DECLARE: u8 = 1;
    pub const DELETE: u8 = 2;
    pub const ENQUEUE: u8 = 3;
    pub const SETTLE: u8 = 4;
    pub const COUNT_DELIVERY: u8 = 5;
    pub const TRANSACT: u8 = 6;
    pub const PREPARE: u8 = 7;
    pub const DECIDE: u8 = 8;
    pub const COMMIT: u8 = 9;
    pub const ABORT: u8 = 10;
    pub const FORGET: u8 = 11;
    pub const SUBSCRIBE: u8 = 12;
    pub const UNSUBSCRIBE: u8 = 13;
    pub const PROMISE: u8 = 14;
    pub const FIRE: u8 = 15;
    pub const UNSCHEDULE: u8 = 16;
    pub const OVERRULE: u8 = 17;
    pub const FORGET_BRANCH: u8 = 18;
    pub const CHUNK: u8 = 19;
    pub const BIND: u8 = 20;
    pub const UNBIND: u8 = 21;
    pub const SHELVE: u8 = 22;
    pub const UNSHELVE: u8 = 23;
    pub const LEAVE: u8 = 24;
    pub const LEFT: u8 = 25;
    pub const LEASE: u8 = 26;
    pub const TOUCH: u8 = 27;
    pub const CONFIGURE: u8 = 28;
    pub const REMEMBER: u8 = 29;
    pub const PAUSE: u8 = 30;
    pub const DOCUMENT: u8 = 31;
}

/// The record of a command, as pieces to be written one after the other; bodies that are not
/// compressed are shared, not copied.
pub fn encode_record(command: &Command, compression: Compression) -> Vec<Bytes> {
    let mut out = Writer { compression, ..Writer::default() };
    match command {
        Command::Declare { queue } => out.begin(kind::DECLARE).destination(queue),
        Command::Delete { queue } => out.begin(kind::DELETE).destination(queue),
        Command::Bind(binding) => out.begin(kind::BIND).binding(binding),
        Command::Unbind { topic, queue } => out.begin(kind::UNBIND).destination(topic).destination(queue),
        Command::Enqueue(sent) => out.begin(kind::ENQUEUE).sent(sent),
        Command::Chunk(bytes) => out.begin(kind::CHUNK).shared(bytes),
        Command::Subscribe(subscription) => out.begin(kind::SUBSCRIBE).subscription(subscription),
        Command::Unsubscribe { name } => out.begin(kind::UNSUBSCRIBE).text(name),
        Command::Settle(settlements) => out.begin(kind::SETTLE).settlements(settlements),
        Command::CountDelivery { queue, tags } => out.begin(kind::COUNT_DELIVERY).tags(*queue, tags),
        Command::Lease { queue, before_first, until, tags } => {
            out.begin(kind::LEASE).u64(before_first.0).lease_end(*until).tags(*queue, tags)
        }
        Command::Touch { queue, until, entries } => {
            let until: Vec<_> = until.iter().collect();
            out.begin(kind::TOUCH).u64(queue.0).list(&until, |out, until| {
                out.lease_end(**until);
            });
            out.list(entries, |out, (tag, lease)| {
                out.u64(tag.0).lease(*lease);
            })
        }
        Command::Configure { queue, options } => {
            out.begin(kind::CONFIGURE).destination(queue).queue_options(options)
        }
        Command::Transact(changes) => out.begin(kind::TRANSACT).changes(changes),
        Command::Left { sends } => out.begin(kind::LEFT).list(sends, |out, (ordinal, sent)| {
            out.u32(*ordinal).sent(sent);
        }),
        Command::Prepare { id, changes } => out.begin(kind::PREPARE).transaction(*id).changes(changes),
        Command::Decide { id, participants } => {
            out.begin(kind::DECIDE).transaction(*id).participants(participants)
        }
        Command::Fire { due, next, sent } => {
            let next: Vec<_> = next.iter().collect();
            out.begin(kind::FIRE).due(*due).list(&next, |out, (at_ms, again)| {
                out.u64(*at_ms).again(again);
            });
            out.sent(sent)
        }
        Command::Unschedule { jobs } => out.begin(kind::UNSCHEDULE).list(jobs, |out, due| {
            out.due(*due);
        }),
        Command::Shelve { jobs } => out.begin(kind::SHELVE).shared(jobs),
        Command::Unshelve { shelf, jobs } => out.begin(kind::UNSHELVE).u64(shelf.get()).shared(jobs),
        Command::Promise { id, branch, participants } => {
            out.begin(kind::PROMISE).transaction(*id).branch(branch).participants(participants)
        }
        Command::Overrule { id, branch, participants, commit } => {
            out.begin(kind::OVERRULE).transaction(*id).branch(branch).participants(participants);
            out.u8(u8::from(*commit))
        }
        Command::ForgetBranch { branch } => out.begin(kind::FORGET_BRANCH).branch(branch),
        Command::Pause { queue, paused } => out.begin(kind::PAUSE).destination(queue).u8(u8::from(*paused)),
        Command::Document(change) => documents::write_change(out.begin(kind::DOCUMENT), change),
        Command::Leave { queue, to } => out.begin(kind::LEAVE).destination(queue).u16(to.0),
        Command::Remember { known } => out.begin(kind::REMEMBER).shared(known),
        Command::Commit { id } => out.begin(kind::COMMIT).transaction(*id),
        Command::Abort { id } => out.begin(kind::ABORT).transaction(*id),
        Command::Forget { id } => out.begin(kind::FORGET).transaction(*id),
    };
    out.finish()
}

/// The command of a record; bodies are slices of `record`, but for those that were compressed.
///
/// # Errors
/// [`RecordError`]: the record is of a newer version, or was not written by Postroad.
pub fn decode_record(record: &Bytes) -> Result<Command, RecordError> {
    let mut input = Reader::new(record.clone());
    let kind = input.u8()?;
    let version = input.u8()?;
    if version != VERSION {
        return Err(RecordError::Unknown { field: "record version", value: version });
    }
    let command = match kind {
        kind::DECLARE => Command::Declare { queue: input.destination()? },
        kind::DELETE => Command::Delete { queue: input.destination()? },
        kind::BIND => Command::Bind(input.binding()?),
        kind::UNBIND => Command::Unbind { topic: input.destination()?, queue: input.destination()? },
        kind::ENQUEUE => Command::Enqueue(input.sent()?),
        kind::CHUNK => Command::Chunk(input.rest()),
        kind::SUBSCRIBE => Command::Subscribe(input.subscription()?),
        kind::UNSUBSCRIBE => Command::Unsubscribe { name: input.text()? },
        kind::SETTLE => Command::Settle(input.settlements()?),
        kind::COUNT_DELIVERY => {
            let queue = QueueId(input.u64()?);
            Command::CountDelivery { queue, tags: input.list(|input| Ok(EntryTag(input.u64()?)))? }
        }
        kind::LEASE | kind::TOUCH | kind::CONFIGURE | kind::PAUSE => of_queue(kind, &mut input)?,
        kind::DOCUMENT => documents::read_change(&mut input)?,
        kind::TRANSACT => Command::Transact(input.changes()?),
        kind::LEFT => {
            let mut least = 0;
            let sends = input.list(|input| {
                let ordinal = input.u32()?;
                if ordinal < least {
                    return Err(RecordError::Ordinal { ordinal, least });
                }
                least = ordinal.saturating_add(1);
                Ok((ordinal, input.sent()?))
            })?;
            Command::Left { sends }
        }
        kind::PREPARE => Command::Prepare { id: input.transaction()?, changes: input.changes()? },
        kind::DECIDE => {
            let id = input.transaction()?;
            Command::Decide { id, participants: input.participants()? }
        }
        kind::FIRE => {
            let due = input.due()?;
            let next = input.list(|input| Ok((input.u64()?, input.again()?)))?.pop();
            Command::Fire { due, next, sent: input.sent()? }
        }
        kind::UNSCHEDULE => Command::Unschedule { jobs: input.list(Reader::due)? },
        kind::SHELVE => Command::Shelve { jobs: input.rest() },
        kind::UNSHELVE => Command::Unshelve { shelf: input.position()?, jobs: input.rest() },
        kind::PROMISE => Command::Promise {
            id: input.transaction()?,
            branch: input.branch()?,
            participants: input.participants()?,
        },
        kind::OVERRULE => Command::Overrule {
            id: input.transaction()?,
            branch: input.branch()?,
            participants: input.participants()?,
            commit: input.boolean("outcome")?,
        },
        kind::FORGET_BRANCH => Command::ForgetBranch { branch: input.branch()? },
        kind::LEAVE | kind::REMEMBER => known::command_of_move(kind, &mut input)?,
        kind::COMMIT => Command::Commit { id: input.transaction()? },
        kind::ABORT => Command::Abort { id: input.transaction()? },
        kind::FORGET => Command::Forget { id: input.transaction()? },
        value => return Err(RecordError::Unknown { field: "record type", value }),
    };
    input.end()?;
    Ok(command)
}

/// Most records are shorter, but for the bodies in them: their room is made once, not field by
/// field.
const HEAD_BYTES: usize = 192;

/// Blobs of fewer bytes are copied.
const SHARED_BYTES_MIN: usize = 512;

/// Builds a record or a snapshot.
#[derive(Default)]
pub(crate) struct Writer {
    done: Vec<Piece>,
    head: BytesMut,
    compression: Compression,
}

impl Writer {
    fn begin(&mut self, kind: u8) -> &mut Writer {
        self.head.reserve(HEAD_BYTES);
        self.u8(kind).u8(VERSION)
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Writer {
        self.head.put_u8(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Writer {
        self.head.put_u16_le(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Writer {
        self.head.put_u32_le(value);
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Writer {
        self.head.put_u64_le(value);
        self
    }

    pub(crate) fn u128(&mut self, value: u128) -> &mut Writer {
        self.head.put_u128_le(value);
        self
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Writer, &T)) -> &mut Writer {
        self.u32(items.len() as u32);
        for item in items {
            each(self, item);
        }
        self
    }

    pub(crate) fn destination(&mut self, destination: &Destination) -> &mut Writer {
        self.marked_destination(destination, 0)
    }

    /// A destination with one more flag, whose meaning is its place's.
    fn marked_destination(&mut self, destination: &Destination, marks: u8) -> &mut Writer {
        let topic = u8::from(destination.kind == DestinationKind::Topic);
        self.u8(topic | u8::from(destination.temporary) << 1 | marks);
        self.text(&destination.name)
    }

    pub(crate) fn binding(&mut self, binding: &Binding) -> &mut Writer {
        let Binding { topic, queue, selectors } = binding;
        self.destination(topic).destination(queue).list(selectors, |out, selector| {
            out.text(selector);
        })
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Writer {
        self.u32(text.len() as u32);
        self.head.put_slice(text.as_bytes());
        self
    }

    pub(crate) fn subscription(&mut self, subscription: &Subscription) -> &mut Writer {
        let Subscription { name, topic, selector, skips, shared } = subscription;
        self.text(name).marked_destination(topic, if *shared { MARKED } else { 0 });
        self.text(selector).text(skips.as_deref().unwrap_or_default())
    }

    /// The headers of a message; `bytes` is the length of its body, which may be elsewhere.
    pub(crate) fn headers(&mut self, message: &Message, bytes: u64) -> &mut Writer {
        self.marked_headers(message, bytes, 0)
    }

    /// The headers with one more flag, which says something of the body after them.
    fn marked_headers(&mut self, message: &Message, bytes: u64, mark: u8) -> &mut Writer {
        self.u8(message.encoding.protocol as u8).u8(message.encoding.version);
        let (group, client, last_value) = (message.group(), message.client(), message.last_value());
        let given = |given: bool, flag: u8| if given { flag } else { 0 };
        let further = given(message.user().is_some(), flag::USER)
            | given(message.visible_at_ms() != 0, flag::VISIBLE)
            | given(message.deduplication().is_some(), flag::DEDUPLICATION)
            | given(message.redriven().is_some(), flag::REDRIVEN)
            | match message.aim() {
                None => 0,
                Some(Aim::Only(_)) => flag::ONLY,
                Some(Aim::Except(_)) => flag::EXCEPT,
            };
        self.u8(given(message.persistent, flag::PERSISTENT)
            | given(group.is_some(), flag::GROUP)
            | given(client.is_some(), flag::CLIENT)
            | given(last_value.is_some(), flag::LAST_VALUE)
            | given(message.chunks().is_some(), flag::CHUNKS)
            | given(message.returns() != 0, flag::RETURNS)
            | given(further != 0, flag::FURTHER)
            | mark);
        if further != 0 {
            self.u8(further);
        }
        self.u8(message.priority).u64(message.expires_at_ms).u32(bytes as u32);
        if let Some(Group { id, sequence }) = group {
            self.text(id).u32(*sequence as u32);
        }
        if let Some(client) = client {
            self.text(client);
        }
        if let Some(last_value) = last_value {
            self.text(last_value);
        }
        if let Some(chunks) = message.chunks() {
            self.chunks(chunks);
        }
        if message.returns() != 0 {
            self.u32(message.returns());
        }
        if message.user().is_some() {
            self.u64(UserKey::number(message.user()));
        }
        if message.visible_at_ms() != 0 {
            self.u64(message.visible_at_ms());
        }
        if let Some(Deduplication { key, id, until_ms }) = message.deduplication() {
            self.u128(key).u128(id).u64(until_ms);
        }
        if let Some(Aim::Only(name) | Aim::Except(name)) = message.aim() {
            self.text(name);
        }
        redrive_mark::write(message.redriven(), self);
        self
    }

    pub(crate) fn chunks(&mut self, chunks: &Chunks) -> &mut Writer {
        self.u64(chunks.bytes).u32(chunks.piece_bytes).list(&chunks.positions, |out, position| {
            out.u64(position.get());
        })
    }

    /// Bytes that are shared, not copied.
    fn shared(&mut self, bytes: &Bytes) -> &mut Writer {
        self.piece(Piece::Here(bytes.clone()))
    }

    fn piece(&mut self, piece: Piece) -> &mut Writer {
        self.done.push(Piece::Here(self.head.split().freeze()));
        self.done.push(piece);
        self
    }

    pub(crate) fn schedule(&mut self, schedule: &Schedule) -> &mut Writer {
        let again: Vec<_> = schedule.again.iter().collect();
        let retry: Vec<_> = schedule.retry.iter().collect();
        self.text(&schedule.job).u64(schedule.due_ms).list(&again, |out, again| {
            out.again(again);
        });
        self.list(&retry, |out, retry| {
            out.text(&retry.route).u32(retry.failed);
        })
    }

    pub(crate) fn again(&mut self, again: &Recurrence) -> &mut Writer {
        let times = again.times.map_or(u64::MAX, u64::from);
        self.u64(again.period_ms).u64(times).u64(again.delay_ms);
        self.text(again.cron.as_deref().unwrap_or_default())
    }

    pub(crate) fn due(&mut self, due: Due) -> &mut Writer {
        self.u64(due.at_ms).u64(due.position.get()).u32(due.ordinal)
    }

    fn sent(&mut self, sent: &Sent) -> &mut Writer {
        let mark = |given: bool, mark: u8| if given { mark } else { 0 };
        let marks = mark(!sent.also.is_empty(), MARKED) | mark(sent.schedule.is_some(), SCHEDULED);
        let marks = marks | mark(sent.moved.is_some(), MOVED);
        self.marked_destination(&sent.to, marks);
        if !sent.also.is_empty() {
            self.list(&sent.also, |out, to| {
                out.destination(to);
            });
        }
        if let Some(schedule) = &sent.schedule {
            self.schedule(schedule);
        }
        if let Some(failed_deliveries) = sent.moved {
            self.u32(failed_deliveries);
        }
        self.body(&sent.message)
    }

    /// A message's headers and its body, compressed if that is wanted and makes it shorter.
    fn body(&mut self, message: &Message) -> &mut Writer {
        let bytes = message.bytes.len() as u64;
        let stored = match compressed::shorten(&message.bytes, self.compression) {
            None => {
                self.headers(message, bytes);
                message.bytes.clone()
            }
            Some((method, stored)) => {
                self.marked_headers(message, bytes, flag::COMPRESSED);
                self.u8(method.number()).u32(stored.len() as u32);
                stored
            }
        };
        self.shared(&stored)
    }

    pub(crate) fn settlements(&mut self, settlements: &[Settlement]) -> &mut Writer {
        self.list(settlements, |out, end| {
            out.u64(end.queue.0).u64(end.tag.0).u8(end.cause as u8);
        })
    }

    fn tags(&mut self, queue: QueueId, tags: &[EntryTag]) -> &mut Writer {
        self.u64(queue.0).list(tags, |out, tag| {
            out.u64(tag.0);
        })
    }

    fn changes(&mut self, changes: &Changes) -> &mut Writer {
        self.settlements(&changes.settlements);
        self.list(&changes.sends, |out, sent| {
            out.sent(sent);
        })
    }

    pub(crate) fn lease_end(&mut self, end: LeaseEnd) -> &mut Writer {
        self.u64(end.wall_ms).u64(end.lasts_ms)
    }

    /// A lease; 0 for none, as no lease has that number.
    pub(crate) fn lease(&mut self, lease: Option<LeaseId>) -> &mut Writer {
        self.u64(lease.map_or(0, |lease| lease.0))
    }

    pub(crate) fn queue_options(&mut self, options: &QueueOptions) -> &mut Writer {
        let QueueOptions { deliveries_max, dead_letters, document } = options;
        self.u32(*deliveries_max).text(dead_letters.as_deref().unwrap_or_default()).blob(document)
    }

    pub(crate) fn transaction(&mut self, id: TransactionId) -> &mut Writer {
        self.u16(id.coordinator.0).u64(id.incarnation).u64(id.number)
    }

    pub(crate) fn branch(&mut self, branch: &BranchId) -> &mut Writer {
        self.u32(branch.format as u32).blob(&branch.transaction).blob(&branch.qualifier)
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u32(bytes.len() as u32);
        self.head.put_slice(bytes);
        self
    }

    /// As [`Writer::blob`], of bytes that are kept as they are: shared, unless they are fewer than
    /// a piece of its own costs.
    pub(crate) fn kept_blob(&mut self, bytes: &Bytes) -> &mut Writer {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.blob(bytes);
        }
        self.u32(bytes.len() as u32).shared(bytes)
    }

    /// As [`Writer::blob`], of bytes that are read when they are written out.
    pub(crate) fn spilled_blob(&mut self, spilled: &Arc<dyn Spilled>) -> &mut Writer {
        self.u32(spilled.byte_length() as u32).piece(Piece::Spilled(spilled.clone()))
    }

    /// There will be this number of blobs in pieces of their own.
    pub(crate) fn reserve_blobs(&mut self, blobs: usize) {
        // Each has something before it.
        self.done.reserve_exact(2 * blobs + 1);
    }

    pub(crate) fn participants(&mut self, participants: &[PartitionId]) -> &mut Writer {
        self.list(participants, |out, participant| {
            out.u16(participant.0);
        })
    }

    /// A record, all of which is in memory.
    pub(crate) fn finish(self) -> Vec<Bytes> {
        self.pieces().into_iter().map(Piece::into_bytes).collect()
    }

    /// A snapshot.
    pub(crate) fn finish_state(self) -> Snapshot {
        self.pieces().into()
    }

    fn pieces(mut self) -> Vec<Piece> {
        if !self.head.is_empty() {
            self.done.push(Piece::Here(self.head.freeze()));
        }
        self.done
    }
}

impl Reader<'_> {
    pub(crate) fn destination(&mut self) -> Result<Destination, RecordError> {
        Ok(self.flagged_destination(3)?.0)
    }

    fn flagged_destination(&mut self, known: u8) -> Result<(Destination, u8), RecordError> {
        let flags = self.u8()?;
        if flags & !known != 0 {
            return Err(RecordError::Unknown { field: "destination flags", value: flags });
        }
        let name = self.text()?;
        let kind = if flags & 1 == 0 { DestinationKind::Queue } else { DestinationKind::Topic };
        Ok((Destination { kind, temporary: flags & 2 != 0, name }, flags))
    }

    pub(crate) fn binding(&mut self) -> Result<Binding, RecordError> {
        let (topic, queue) = (self.destination()?, self.destination()?);
        Ok(Binding { topic, queue, selectors: self.list(Reader::text)? })
    }

    pub(crate) fn subscription(&mut self) -> Result<Subscription, RecordError> {
        let (name, (topic, marks)) = (self.text()?, self.flagged_destination(3 | MARKED)?);
        let shared = marks & MARKED != 0;
        let selector = self.text()?;
        let skips = Some(self.text()?).filter(|client| !client.is_empty());
        Ok(Subscription { name, topic, selector, skips, shared })
    }

    /// The headers of a message, and the length of its body.
    pub(crate) fn headers(&mut self) -> Result<(Message, u64), RecordError> {
        let (message, bytes, _) = self.marked_headers(0)?;
        Ok((message, bytes))
    }

    /// Headers that may have the flags `marks` too; the last says which of these they have.
    fn marked_headers(&mut self, marks: u8) -> Result<(Message, u64, u8), RecordError> {
        let number = self.u8()?;
        let protocol = Protocol::from_number(number);
        let protocol = protocol.ok_or(RecordError::Unknown { field: "message protocol", value: number })?;
        let encoding = Encoding { protocol, version: self.u8()? };
        let flags = self.u8()?;
        let known = flag::ALL | marks;
        if flags & !known != 0 {
            return Err(RecordError::Unknown { field: "message flags", value: flags });
        }
        let further = if flags & flag::FURTHER != 0 { self.u8()? } else { 0 };
        if further & !flag::ALL_FURTHER != 0 {
            return Err(RecordError::Unknown { field: "further message flags", value: further });
        }
        let priority = self.u8()?.min(HIGHEST_PRIORITY);
        let expires_at_ms = self.u64()?;
        let bytes = u64::from(self.u32()?);
        let rare = self.rare(flags, further)?;
        let persistent = flags & flag::PERSISTENT != 0;
        let message = Message { encoding, persistent, priority, expires_at_ms, rare, bytes: Bytes::new() };
        Ok((message, bytes, flags & marks))
    }

    fn rare(&mut self, flags: u8, further: u8) -> Result<Option<Arc<RareHeaders>>, RecordError> {
        let mut rare = RareHeaders::default();
        if flags & flag::GROUP != 0 {
            rare.group = Some(Group { id: self.text()?, sequence: self.u32()? as i32 });
        }
        if flags & flag::CLIENT != 0 {
            rare.client = Some(self.text()?);
        }
        if flags & flag::LAST_VALUE != 0 {
            rare.last_value = Some(self.text()?);
        }
        if flags & flag::CHUNKS != 0 {
            rare.chunks = Some(Arc::new(self.chunks()?));
        }
        if flags & flag::RETURNS != 0 {
            rare.returns = self.u32()?;
        }
        if further & flag::USER != 0 {
            rare.user = UserKey::from_number(self.u64()?);
        }
        if further & flag::VISIBLE != 0 {
            rare.visible_at_ms = self.u64()?;
        }
        if further & flag::DEDUPLICATION != 0 {
            let (key, id) = (self.u128()?, self.u128()?);
            rare.deduplication = Some(Deduplication { key, id, until_ms: self.u64()? });
        }
        rare.aim = match further & (flag::ONLY | flag::EXCEPT) {
            0 => None,
            flag::ONLY => Some(Aim::Only(self.text()?)),
            flag::EXCEPT => Some(Aim::Except(self.text()?)),
            both => return Err(RecordError::Unknown { field: "further message flags", value: both }),
        };
        rare.redriven = redrive_mark::read(further & flag::REDRIVEN != 0, self)?;
        Ok((rare != RareHeaders::default()).then(|| Arc::new(rare)))
    }

    pub(crate) fn chunks(&mut self) -> Result<Chunks, RecordError> {
        let (bytes, piece_bytes) = (self.u64()?, self.u32()?);
        let positions = self.list(|input| {
            let position = Position::new(input.u64()?);
            position.ok_or(RecordError::Unknown { field: "position", value: 0 })
        })?;
        let records = u64::from(piece_bytes).checked_mul(positions.len() as u64);
        let is_enough =
            records.is_some_and(|room| 0 < bytes && bytes <= room && room - bytes < u64::from(piece_bytes));
        match is_enough {
            true => Ok(Chunks { bytes, piece_bytes, positions: positions.into() }),
            false => Err(RecordError::Chunks { bytes, records: positions.len() }),
        }
    }

    pub(crate) fn schedule(&mut self) -> Result<Schedule, RecordError> {
        let (job, due_ms) = (self.text()?, self.u64()?);
        let again = self.list(Reader::again)?.pop();
        let retry = self.list(|input| Ok(RouteRetry { route: input.text()?, failed: input.u32()? }))?.pop();
        Ok(Schedule { job, due_ms, again, retry })
    }

    pub(crate) fn again(&mut self) -> Result<Recurrence, RecordError> {
        let (period_ms, times, delay_ms) = (self.u64()?, u32::try_from(self.u64()?).ok(), self.u64()?);
        let cron = Some(self.text()?).filter(|cron| !cron.is_empty());
        Ok(Recurrence { period_ms, times, cron, delay_ms })
    }

    pub(crate) fn due(&mut self) -> Result<Due, RecordError> {
        Ok(Due { at_ms: self.u64()?, position: self.position()?, ordinal: self.u32()? })
    }

    pub(crate) fn position(&mut self) -> Result<Position, RecordError> {
        Position::new(self.u64()?).ok_or(RecordError::Unknown { field: "position", value: 0 })
    }

    pub(super) fn sent(&mut self) -> Result<Sent, RecordError> {
        let (to, marks) = self.flagged_destination(3 | MARKED | SCHEDULED | MOVED)?;
        let also = if marks & MARKED != 0 { self.list(Reader::destination)? } else { Vec::new() };
        let schedule = if marks & SCHEDULED != 0 { Some(Box::new(self.schedule()?)) } else { None };
        let moved = if marks & MOVED != 0 { Some(self.u32()?) } else { None };
        let (mut message, length, marks) = self.marked_headers(flag::COMPRESSED)?;
        message.bytes = match marks & flag::COMPRESSED {
            0 => self.body(length as usize)?,
            _ => self.compressed_body(length)?,
        };
        Ok(Sent { to, also, message, schedule, moved })
    }

    fn compressed_body(&mut self, plain_bytes: u64) -> Result<Bytes, RecordError> {
        let number = self.u8()?;
        let method =
            Method::of(number).ok_or(RecordError::Unknown { field: "compression", value: number })?;
        let length = self.u32()? as usize;
        let at = self.place();
        let stored = self.body(length)?;
        method.expand(&stored, plain_bytes).map_err(|what| RecordError::Body { at, what })
    }

    pub(crate) fn settlements(&mut self) -> Result<Vec<Settlement>, RecordError> {
        self.list(|input| {
            let (queue, tag) = (QueueId(input.u64()?), EntryTag(input.u64()?));
            let cause = match input.u8()? {
                0 => SettleCause::Consumed,
                1 => SettleCause::Expired,
                2 => SettleCause::DeadLettered,
                3 => SettleCause::Dropped,
                4 => SettleCause::Replaced,
                5 => SettleCause::Moved,
                value => return Err(RecordError::Unknown { field: "settle cause", value }),
            };
            Ok(Settlement { queue, tag, cause })
        })
    }

    fn changes(&mut self) -> Result<Changes, RecordError> {
        let settlements = self.settlements()?;
        Ok(Changes { settlements, sends: self.list(Reader::sent)? })
    }

    pub(crate) fn lease_end(&mut self) -> Result<LeaseEnd, RecordError> {
        Ok(LeaseEnd { wall_ms: self.u64()?, lasts_ms: self.u64()? })
    }

    pub(crate) fn lease(&mut self) -> Result<Option<LeaseId>, RecordError> {
        Ok(Some(LeaseId(self.u64()?)).filter(|lease| lease.0 != 0))
    }

    pub(crate) fn queue_options(&mut self) -> Result<QueueOptions, RecordError> {
        let (deliveries_max, dead_letters) = (self.u32()?, self.text()?);
        let dead_letters = Some(dead_letters).filter(|name| !name.is_empty());
        let document: Arc<[u8]> = self.blob()?;
        Ok(QueueOptions { deliveries_max, dead_letters, document: Bytes::copy_from_slice(&document) })
    }

    pub(crate) fn transaction(&mut self) -> Result<TransactionId, RecordError> {
        Ok(TransactionId {
            coordinator: PartitionId(self.u16()?),
            incarnation: self.u64()?,
            number: self.u64()?,
        })
    }

    pub(crate) fn branch(&mut self) -> Result<BranchId, RecordError> {
        let format = self.u32()? as i32;
        Ok(BranchId { format, transaction: self.blob()?, qualifier: self.blob()? })
    }

    pub(crate) fn participants(&mut self) -> Result<Vec<PartitionId>, RecordError> {
        self.list(|input| Ok(PartitionId(input.u16()?)))
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{DocumentChange, DocumentVersion, RedriveId, RedriveMark};

    use super::*;
    use crate::log::read_back::message_in_record;

    fn message(body: &'static [u8]) -> Message {
        let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
        Message {
            encoding,
            persistent: true,
            priority: 7,
            expires_at_ms: 42,
            rare: None,
            bytes: Bytes::from_static(body),
        }
    }

    fn in_group(group: Option<&str>) -> Sent {
        let group = group.map(|id| Group { id: id.into(), sequence: -1 });
        let rare = Some(Arc::new(RareHeaders {
            group,
            client: Some("client".into()),
            last_value: Some("v".into()),
            chunks: Some(Arc::new(Chunks {
                bytes: 5,
                piece_bytes: 2,
                positions: [3, 4, 9].into_iter().filter_map(Position::new).collect(),
            })),
            returns: 2,
            user: UserKey::of("ann"),
            visible_at_ms: 77,
            deduplication: Some(Deduplication { key: u128::MAX - 1, id: 5, until_ms: 9 }),
            trace: None,
            aim: Some(Aim::Only("3:cts:orders".into())),
            redriven: Some(Arc::new(RedriveMark {
                id: RedriveId(1_795_000_000_000),
                from: Destination::queue("dead"),
                origin: Some(Destination::topic("t")),
                reason: Some("rejected".into()),
            })),
        }));
        Sent::new(Destination::queue("a"), Message { rare, ..message(b"one") })
    }

    fn others() -> Vec<Destination> {
        vec![Destination::topic("t"), Destination { temporary: true, ..Destination::queue("b") }]
    }

    fn binding(selectors: &[&str]) -> Binding {
        Binding {
            topic: Destination::topic("v"),
            queue: Destination::queue("c.v"),
            selectors: selectors.iter().map(|selector| (*selector).into()).collect(),
        }
    }

    fn commands() -> Vec<(&'static str, Command)> {
        let sent = |name: &str, body| Sent::new(Destination::queue(name), message(body));
        let end = |tag, cause| Settlement { queue: QueueId(3), tag: EntryTag(tag), cause };
        let id = TransactionId { coordinator: PartitionId(2), incarnation: 9, number: 5 };
        let settlements = vec![
            end(1, SettleCause::Consumed),
            end(2, SettleCause::Expired),
            end(3, SettleCause::DeadLettered),
            end(4, SettleCause::Dropped),
            end(5, SettleCause::Replaced),
            end(6, SettleCause::Moved),
        ];
        let changes =
            Changes { sends: vec![sent("a", b"one"), sent("b", b"")], settlements: settlements.clone() };
        vec![
            ("declare", Command::Declare { queue: Destination::queue("größe") }),
            ("delete", Command::Delete { queue: Destination::topic("t") }),
            ("enqueue", Command::Enqueue(sent("orders", b"body"))),
            (
                "subscribe",
                Command::Subscribe(Subscription {
                    name: "c:s".into(),
                    topic: Destination::topic("t"),
                    selector: "a = 1".into(),
                    skips: None,
                    shared: true,
                }),
            ),
            (
                "subscribe without one's own",
                Command::Subscribe(Subscription {
                    name: "c:s".into(),
                    topic: Destination::topic("t"),
                    selector: "".into(),
                    skips: Some("c".into()),
                    shared: false,
                }),
            ),
            ("enqueue of a group", Command::Enqueue(in_group(Some("g")))),
            ("enqueue of a group without a name", Command::Enqueue(in_group(Some("")))),
            ("enqueue of a client", Command::Enqueue(in_group(None))),
            ("enqueue for several", Command::Enqueue(Sent { also: others(), ..sent("orders", b"body") })),
            (
                "enqueue of what has moved",
                Command::Enqueue(Sent { moved: Some(3), ..sent("orders", b"body") }),
            ),
            ("pause", Command::Pause { queue: Destination::queue("orders"), paused: true }),
            (
                "document",
                Command::Document(Box::new(DocumentChange {
                    name: "users".into(),
                    replaces: DocumentVersion(7),
                    content: Bytes::from_static(b"ann keys\n"),
                })),
            ),
            ("leave", Command::Leave { queue: Destination::queue("orders"), to: PartitionId(7) }),
            ("bind", Command::Bind(binding(&["", "a = 1"]))),
            ("bind to nothing", Command::Bind(binding(&[]))),
            (
                "unbind",
                Command::Unbind { topic: Destination::topic("v.>"), queue: Destination::queue("c.v.>") },
            ),
            ("unsubscribe", Command::Unsubscribe { name: "c:s".into() }),
            ("settle", Command::Settle(settlements)),
            ("count", Command::CountDelivery { queue: QueueId(1), tags: vec![EntryTag(8), EntryTag(9)] }),
            (
                "lease",
                Command::Lease {
                    queue: QueueId(1),
                    before_first: LeaseId(7),
                    until: LeaseEnd { wall_ms: 5, lasts_ms: 6 },
                    tags: vec![EntryTag(8), EntryTag(9)],
                },
            ),
            (
                "touch",
                Command::Touch {
                    queue: QueueId(1),
                    until: Some(LeaseEnd { wall_ms: 5, lasts_ms: 6 }),
                    entries: vec![(EntryTag(8), Some(LeaseId(3))), (EntryTag(9), None)],
                },
            ),
            (
                "release",
                Command::Touch { queue: QueueId(1), until: None, entries: vec![(EntryTag(8), None)] },
            ),
            (
                "configure",
                Command::Configure {
                    queue: Destination::queue("a"),
                    options: QueueOptions {
                        deliveries_max: 3,
                        dead_letters: Some("dead".into()),
                        document: Bytes::from_static(b"{}"),
                    },
                },
            ),
            ("transact", Command::Transact(changes.clone())),
            ("transact nothing", Command::Transact(Changes::default())),
            ("left", Command::Left { sends: (3..).step_by(4).zip(changes.sends.clone()).collect() }),
            ("prepare", Command::Prepare { id, changes }),
            ("decide", Command::Decide { id, participants: vec![PartitionId(0), PartitionId(7)] }),
            (
                "promise",
                Command::Promise {
                    id,
                    branch: BranchId { format: -1, transaction: [1, 2].into(), qualifier: [].into() },
                    participants: vec![PartitionId(1)],
                },
            ),
            (
                "overrule",
                Command::Overrule {
                    id,
                    branch: BranchId { format: 7, transaction: [].into(), qualifier: [3].into() },
                    participants: vec![PartitionId(0), PartitionId(2)],
                    commit: true,
                },
            ),
            (
                "forget branch",
                Command::ForgetBranch {
                    branch: BranchId { format: 7, transaction: [1].into(), qualifier: [].into() },
                },
            ),
            ("commit", Command::Commit { id }),
            ("abort", Command::Abort { id }),
            ("forget", Command::Forget { id }),
        ]
    }

    fn bytes_of(command: &Command) -> Bytes {
        encode_record(command, Compression::None).concat().into()
    }

    #[test]
    fn every_command_survives_its_record() {
        for (name, command) in commands() {
            assert_eq!(decode_record(&bytes_of(&command)), Ok(command), "case: {name}");
        }
    }

    #[test]
    fn a_cut_or_lengthened_record_is_refused() {
        for (name, command) in commands() {
            let whole = bytes_of(&command);
            for end in 0..whole.len() {
                assert!(decode_record(&whole.slice(..end)).is_err(), "case: {name} cut at {end}");
            }
            let longer: Bytes = [&whole[..], b"x"].concat().into();
            assert_eq!(decode_record(&longer), Err(RecordError::TooLong { extra: 1 }), "case: {name}");
        }
    }

    #[test]
    fn unknown_types_and_versions_are_named() {
        for (name, bytes, want) in [
            ("type", &[99_u8, VERSION][..], RecordError::Unknown { field: "record type", value: 99 }),
            ("version", &[1, 2], RecordError::Unknown { field: "record version", value: 2 }),
            ("no version", &[1, 0], RecordError::Unknown { field: "record version", value: 0 }),
            ("destination", &[1, VERSION, 4], RecordError::Unknown { field: "destination flags", value: 4 }),
        ] {
            assert_eq!(decode_record(&Bytes::copy_from_slice(bytes)), Err(want), "case: {name}");
        }
    }

    #[test]
    fn a_compressed_body_that_is_not_what_it_claims_is_refused() {
        let body = [7; 1000];
        let plain = Command::Enqueue(Sent::new(Destination::queue("a"), message(&[7; 1000])));
        let record = encode_record(&plain, Compression::Lz4).concat();
        assert!(record.len() < body.len());
        assert_eq!(decode_record(&record.clone().into()), Ok(plain));
        // Type, version, address (1 + 4 + 1), protocol, version, flags, priority, expiry (8), then
        // the length of the body.
        let (length, method) = (20, 24);
        let at = method + 5;
        let wrong = |what| Err(RecordError::Body { at, what });
        for (name, place, bytes, want) in [
            ("4 GiB", length, &[255; 4][..], wrong("it is too short for the length of its message")),
            ("one byte more", length, &1001_u32.to_le_bytes(), wrong("it is shorter than its message")),
            ("of another method", method, &[2], wrong("it is no Zstandard frame of that length")),
            ("an unknown method", method, &[3], Err(RecordError::Unknown { field: "compression", value: 3 })),
            (
                "more than is there",
                method + 1,
                &[255, 255, 0, 0],
                Err(RecordError::Truncated { at, wanted: 0xffff }),
            ),
        ] {
            let mut record = record.clone();
            record[place..place + bytes.len()].copy_from_slice(bytes);
            assert_eq!(decode_record(&record.into()), want, "case: {name}");
        }
    }

    #[test]
    fn messages_are_found_by_their_ordinal() {
        let found = commands().into_iter().find(|(name, _)| *name == "transact");
        let (_, transact) = found.expect("a case");
        let record = bytes_of(&transact);
        for (ordinal, want) in [(0, Some(message(b"one"))), (1, Some(message(b""))), (2, None)] {
            assert_eq!(message_in_record(&record, ordinal), Ok(want), "ordinal {ordinal}");
        }
    }
}
