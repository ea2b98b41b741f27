//! Messages as bytes; docs/formats/replication.md.
//!
//! ```text
//! version u8 │ kind u8 │ from u64 │ to u64 │ term u64 │ body │ checksum u32 (CRC-32C of all before)
//! ```
//! Little endian. The transport frames a message by its length.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::entry::{Entry, EntryId, EntryKind, Index, NodeId, Term};
use crate::members::Members;
use crate::message::{Body, Message};

/// The first byte of each message.
pub const FORMAT_VERSION: u8 = 4;
/// Bytes of a message: the largest batch, and the entries of one [`Body::Append`] that may be
/// beside it.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Entries of one [`Body::Append`]: more than the engine puts into one.
pub const ENTRIES_MAX: usize = 1 << 17;
/// Numbers above have no room to rise; no log and no election count comes near.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

const HEAD_BYTES: usize = 26;
const CHECKSUM_BYTES: usize = 4;
const ENTRY_HEAD_BYTES: usize = 13;

const VOTE_REQUEST: u8 = 1;
const VOTE_REPLY: u8 = 2;
const APPEND: u8 = 3;
const ACCEPTED: u8 = 4;
const REJECTED: u8 = 5;
const HEARTBEAT: u8 = 6;
const HEARTBEAT_REPLY: u8 = 7;
const TIMEOUT_NOW: u8 = 8;
const SNAPSHOT_OFFER: u8 = 9;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Shorter than its fields.
    #[error("message is too short")]
    Short,
    /// Bytes are left over.
    #[error("message has {0} bytes too many")]
    Long(usize),
    /// Above [`MESSAGE_BYTES_MAX`].
    #[error("message of {0} bytes is too large")]
    TooLarge(usize),
    /// Damaged on the way.
    #[error("message checksum does not match")]
    Checksum,
    /// Of another version.
    #[error("message version {0} is not supported")]
    Version(u8),
    /// A kind of message or entry, or a flag, that this version does not have.
    #[error("unknown message kind, entry kind or flag {0}")]
    Unknown(u8),
    /// A number out of range: a node of zero, an index or a term too high, too many entries.
    #[error("number {0} is out of range")]
    Range(u64),
    /// Only an opening entry is empty.
    #[error("entry payload does not fit its kind")]
    Payload,
}

/// The bytes of a message.
///
/// # Errors
/// [`CodecError::TooLarge`], [`CodecError::Range`]: the message is not one that [`decode`] accepts.
pub fn encode(message: &Message) -> Result<Bytes, CodecError> {
    let bytes = HEAD_BYTES + body_bytes(&message.body) + CHECKSUM_BYTES;
    if bytes > MESSAGE_BYTES_MAX {
        return Err(CodecError::TooLarge(bytes));
    }
    let mut out = BytesMut::with_capacity(bytes);
    out.put_u8(FORMAT_VERSION);
    out.put_u8(kind(&message.body));
    out.put_u64_le(message.from.get());
    out.put_u64_le(message.to.get());
    out.put_u64_le(message.term.0);
    put_body(&mut out, &message.body)?;
    let checksum = crc32c::crc32c(&out);
    out.put_u32_le(checksum);
    Ok(out.freeze())
}

fn kind(body: &Body) -> u8 {
    match body {
        Body::VoteRequest { .. } => VOTE_REQUEST,
        Body::VoteReply { .. } => VOTE_REPLY,
        Body::Append { .. } => APPEND,
        Body::Accepted { .. } => ACCEPTED,
        Body::Rejected { .. } => REJECTED,
        Body::Heartbeat { .. } => HEARTBEAT,
        Body::HeartbeatReply { .. } => HEARTBEAT_REPLY,
        Body::TimeoutNow => TIMEOUT_NOW,
        Body::SnapshotOffer { .. } => SNAPSHOT_OFFER,
    }
}

fn body_bytes(body: &Body) -> usize {
    match body {
        Body::Append { entries, .. } => {
            28 + entries.iter().map(|entry| ENTRY_HEAD_BYTES + entry.payload.len()).sum::<usize>()
        }
        Body::VoteRequest { .. } | Body::Rejected { .. } => 34,
        _ => 18,
    }
}

fn put_body(out: &mut BytesMut, body: &Body) -> Result<(), CodecError> {
    match body {
        Body::VoteRequest { pre, transfer, last, commit } => {
            out.put_u8(u8::from(*pre));
            out.put_u8(u8::from(*transfer));
            put_id(out, *last);
            put_id(out, *commit);
        }
        Body::VoteReply { pre, granted, commit } => {
            out.put_u8(u8::from(*pre));
            out.put_u8(u8::from(*granted));
            put_id(out, *commit);
        }
        Body::Append { previous, commit, entries } => return put_append(out, *previous, *commit, entries),
        Body::Accepted { index, commit } => {
            out.put_u64_le(index.0);
            out.put_u64_le(commit.0);
        }
        Body::Rejected { index, hint, commit } => {
            out.put_u64_le(index.0);
            put_id(out, *hint);
            out.put_u64_le(commit.0);
        }
        Body::Heartbeat { commit } | Body::HeartbeatReply { commit } => out.put_u64_le(commit.0),
        Body::TimeoutNow => {}
        Body::SnapshotOffer { last } => put_id(out, *last),
    }
    Ok(())
}

fn put_append(
    out: &mut BytesMut,
    previous: EntryId,
    commit: Index,
    entries: &[Entry],
) -> Result<(), CodecError> {
    if entries.len() > ENTRIES_MAX {
        return Err(CodecError::Range(entries.len() as u64));
    }
    put_id(out, previous);
    out.put_u64_le(commit.0);
    out.put_u32_le(entries.len() as u32);
    for entry in entries {
        out.put_u64_le(entry.id.term.0);
        out.put_u8(match entry.kind {
            EntryKind::Opening => 0,
            EntryKind::Batch => 1,
            EntryKind::Members => 2,
        });
        out.put_u32_le(entry.payload.len() as u32);
        out.put_slice(&entry.payload);
    }
    Ok(())
}

fn put_id(out: &mut BytesMut, id: EntryId) {
    out.put_u64_le(id.index.0);
    out.put_u64_le(id.term.0);
}

/// Reads one message, which the bytes are exactly. Payloads share the bytes.
///
/// # Errors
/// See [`CodecError`]: the peer's fault; its connection is to be closed.
pub fn decode(mut bytes: Bytes) -> Result<Message, CodecError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(CodecError::TooLarge(bytes.len()));
    }
    let version = *bytes.first().ok_or(CodecError::Short)?;
    if version != FORMAT_VERSION {
        return Err(CodecError::Version(version));
    }
    if bytes.len() < HEAD_BYTES + CHECKSUM_BYTES {
        return Err(CodecError::Short);
    }
    let mut checksum = bytes.split_off(bytes.len() - CHECKSUM_BYTES);
    if crc32c::crc32c(&bytes) != checksum.get_u32_le() {
        return Err(CodecError::Checksum);
    }
    let mut fields = Fields(bytes);
    fields.0.advance(1);
    let kind = fields.byte()?;
    let (from, to) = (fields.node()?, fields.node()?);
    let term = Term(fields.number()?);
    let body = fields.body(kind, term)?;
    match fields.0.len() {
        0 => Ok(Message { from, to, term, body }),
        left => Err(CodecError::Long(left)),
    }
}

struct Fields(Bytes);

impl Fields {
    fn byte(&mut self) -> Result<u8, CodecError> {
        self.0.try_get_u8().map_err(|_| CodecError::Short)
    }

    fn flag(&mut self) -> Result<bool, CodecError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(CodecError::Unknown(other)),
        }
    }

    fn number(&mut self) -> Result<u64, CodecError> {
        let number = self.0.try_get_u64_le().map_err(|_| CodecError::Short)?;
        if number > NUMBER_MAX { Err(CodecError::Range(number)) } else { Ok(number) }
    }

    fn node(&mut self) -> Result<NodeId, CodecError> {
        NodeId::new(self.number()?).ok_or(CodecError::Range(0))
    }

    fn index(&mut self) -> Result<Index, CodecError> {
        self.number().map(Index)
    }

    fn id(&mut self) -> Result<EntryId, CodecError> {
        Ok(EntryId { index: self.index()?, term: Term(self.number()?) })
    }

    fn body(&mut self, kind: u8, term: Term) -> Result<Body, CodecError> {
        Ok(match kind {
            VOTE_REQUEST => Body::VoteRequest {
                pre: self.flag()?,
                transfer: self.flag()?,
                last: self.id()?,
                commit: self.id()?,
            },
            VOTE_REPLY => Body::VoteReply { pre: self.flag()?, granted: self.flag()?, commit: self.id()? },
            APPEND => self.append(term)?,
            ACCEPTED => Body::Accepted { index: self.index()?, commit: self.index()? },
            REJECTED => Body::Rejected { index: self.index()?, hint: self.id()?, commit: self.index()? },
            HEARTBEAT => Body::Heartbeat { commit: self.index()? },
            HEARTBEAT_REPLY => Body::HeartbeatReply { commit: self.index()? },
            TIMEOUT_NOW => Body::TimeoutNow,
            SNAPSHOT_OFFER => Body::SnapshotOffer { last: self.id()? },
            other => return Err(CodecError::Unknown(other)),
        })
    }

    fn append(&mut self, leader_term: Term) -> Result<Body, CodecError> {
        let (previous, commit) = (self.id()?, self.index()?);
        let count = self.0.try_get_u32_le().map_err(|_| CodecError::Short)? as usize;
        if count > ENTRIES_MAX {
            return Err(CodecError::Range(count as u64));
        }
        let mut entries = Vec::with_capacity(count.min(self.0.len() / ENTRY_HEAD_BYTES));
        let mut before = previous;
        for _ in 0..count {
            let entry = self.entry(before)?;
            // Terms never fall along a log, and none is later than the leader's own.
            if entry.id.term < before.term || entry.id.term > leader_term {
                return Err(CodecError::Range(entry.id.term.0));
            }
            before = entry.id;
            entries.push(entry);
        }
        Ok(Body::Append { previous, commit, entries })
    }

    fn entry(&mut self, before: EntryId) -> Result<Entry, CodecError> {
        let id = EntryId { index: before.index.next(), term: Term(self.number()?) };
        let kind = match self.byte()? {
            0 => EntryKind::Opening,
            1 => EntryKind::Batch,
            2 => EntryKind::Members,
            other => return Err(CodecError::Unknown(other)),
        };
        let length = self.0.try_get_u32_le().map_err(|_| CodecError::Short)? as usize;
        if length > self.0.len() {
            return Err(CodecError::Short);
        }
        if (kind == EntryKind::Opening) != (length == 0) {
            return Err(CodecError::Payload);
        }
        let payload = self.0.split_to(length);
        if kind == EntryKind::Members && Members::decode(id.index, &payload).is_none() {
            return Err(CodecError::Payload);
        }
        Ok(Entry { id, kind, payload })
    }
}
