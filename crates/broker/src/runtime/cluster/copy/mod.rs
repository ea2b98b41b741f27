//! Copies of the leader's store for nodes that cannot catch up from its log: their disk was
//! replaced, or they were away too long.
//!
//! ```text
//!  node                                   leader
//!  request: copy, bytes of each file ───▶ resumes that copy, or makes one: a backup of hard links
//!                          ◀─── manifest: term, layout, files, or a refusal
//!                          ◀─── chunks, each with a checksum
//!  verifies all files, and restarts from them (`install`)
//! ```
//! A node that has a former store needs no copy if that has a part of the leader's log (`former`).
//! Each message is a frame of the connection. docs/formats/replication.md has the fields.
//!
//! Never here: which nodes may vote (`joining`), whether a copy may replace a log (crates/cluster).

mod former;
mod incoming;
mod install;
mod outgoing;

use std::collections::BTreeMap;
use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postroad_cluster::{Index, Members};
use serde::{Deserialize, Serialize};

use postroad_store::Layout;

pub use incoming::{Fetched, Fetcher, Progress};
pub use install::{announce, install};
pub use outgoing::Outgoing;

/// The version of manifests, requests and markers.
const VERSION: u32 = 3;

/// Bytes of a file in one frame.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes before them: file u32, offset u64, checksum u32.
const CHUNK_HEAD_BYTES: usize = 16;
/// Bytes of a manifest or a request: enough for a million segments.
const MANIFEST_BYTES_MAX: usize = 64 << 20;

/// What a node asks for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    version: u32,
    /// The copy of which it has a part; empty if of none.
    copy: String,
    /// How much of each file it has.
    have: BTreeMap<String, u64>,
    /// The least term of a copy that is of use, if this leader's last one was too early. Leaders of
    /// the version before do not know it, and end the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    least: Option<u64>,
    /// The log of a former store: the answer is the part of it that the leader has. Leaders of the
    /// version before do not know it, and end the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log: Option<former::LogTerms>,
}

/// The answer, before the chunks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Answer {
    /// A copy follows.
    Manifest(Box<Manifest>),
    /// The part of a former log that the leader has; its end is entry 0 if there is none.
    Shared(Box<former::SharedLog>),
    /// There is none, for this reason.
    Refused(String),
}

/// The content of a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    /// Random; tells it from all others.
    copy: String,
    /// The term in which its author led.
    term: u64,
    /// Index and term of the last entry of its log.
    last: (u64, u64),
    layout: Layout,
    /// Names of journal files, and their bytes.
    files: Vec<(String, u64)>,
    /// The members that were in force at its author.
    members: ListedMembers,
}

/// A list of members: the entry that says so, and its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ListedMembers(u64, Vec<u8>);

impl ListedMembers {
    fn of(members: &Members) -> ListedMembers {
        ListedMembers(members.since.0, members.encode().to_vec())
    }

    fn members(&self) -> Option<Members> {
        Members::decode(Index(self.0), &self.1)
    }
}

impl Manifest {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

fn malformed(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed copy: {reason}"))
}

/// The frame of a part of a file.
fn encode_chunk(file: u32, offset: u64, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(CHUNK_HEAD_BYTES + bytes.len());
    out.put_u32_le(file);
    out.put_u64_le(offset);
    let head = crc32c::crc32c(&out);
    out.put_u32_le(crc32c::crc32c_append(head, bytes));
    out.put_slice(bytes);
    out.freeze()
}

/// File, offset and bytes of such a frame.
fn decode_chunk(mut frame: &[u8]) -> io::Result<(u32, u64, &[u8])> {
    if frame.len() <= CHUNK_HEAD_BYTES {
        return Err(malformed("a chunk is too short"));
    }
    let head = crc32c::crc32c(&frame[..CHUNK_HEAD_BYTES - 4]);
    let (file, offset, checksum) = (frame.get_u32_le(), frame.get_u64_le(), frame.get_u32_le());
    match crc32c::crc32c_append(head, frame) == checksum {
        true => Ok((file, offset, frame)),
        false => Err(malformed("a chunk was damaged on the way")),
    }
}

#[cfg(test)]
mod tests;
