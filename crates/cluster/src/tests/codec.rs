//! Messages survive the way to bytes and back; damaged bytes are refused.

use bytes::Bytes;

use crate::{
    Body, CodecError, Entry, EntryId, EntryKind, FORMAT_VERSION, Index, Message, NodeId, Term, decode, encode,
};

pub fn id(index: u64, term: u64) -> EntryId {
    EntryId { index: Index(index), term: Term(term) }
}

pub fn message(body: Body) -> Message {
    Message { from: NodeId::new(1).unwrap(), to: NodeId::new(2).unwrap(), term: Term(5), body }
}

fn append() -> Body {
    let opening = Entry { id: id(8, 4), kind: EntryKind::Opening, payload: Bytes::new() };
    let batch = Entry { id: id(9, 5), kind: EntryKind::Batch, payload: Bytes::from_static(b"batch") };
    Body::Append { previous: id(7, 3), commit: Index(6), entries: vec![opening, batch] }
}

pub fn bodies() -> Vec<Body> {
    let mut bodies = vec![
        append(),
        Body::Append { previous: id(0, 0), commit: Index(0), entries: Vec::new() },
        Body::Accepted { index: Index(9), commit: Index(8) },
        Body::Rejected { index: Index(9), hint: id(4, 2), commit: Index(3) },
        Body::Heartbeat { commit: Index(3) },
        Body::HeartbeatReply { commit: Index(4) },
        Body::TimeoutNow,
        Body::SnapshotOffer { last: id(7, 3) },
    ];
    for (pre, flag) in [(false, false), (false, true), (true, false), (true, true)] {
        bodies.push(Body::VoteRequest { pre, transfer: flag, last: id(9, 4), commit: id(8, 3) });
        bodies.push(Body::VoteReply { pre, granted: flag, commit: id(8, 3) });
    }
    bodies
}

#[test]
fn messages_come_back_as_they_were() {
    for body in bodies() {
        let message = message(body);
        assert_eq!(decode(encode(&message).unwrap()), Ok(message));
    }
}

#[test]
fn no_single_damage_is_read() {
    for body in bodies() {
        let bytes = encode(&message(body)).unwrap();
        for length in 0..bytes.len() {
            assert!(decode(bytes.slice(..length)).is_err());
        }
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(damaged.into()).is_err(), "bit {bit}");
        }
    }
}

/// With a checksum that fits.
fn changed(body: Body, change: impl Fn(&mut Vec<u8>)) -> Result<Message, CodecError> {
    let mut bytes = encode(&message(body)).unwrap().to_vec();
    bytes.truncate(bytes.len() - 4);
    change(&mut bytes);
    let checksum = crc32c::crc32c(&bytes).to_le_bytes();
    bytes.extend_from_slice(&checksum);
    decode(bytes.into())
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

#[test]
fn values_that_no_replica_sends_are_refused() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, CodecError); 11] = [
        ("another version", |bytes| bytes[0] = FORMAT_VERSION + 1, CodecError::Version(FORMAT_VERSION + 1)),
        ("an unknown kind", |bytes| bytes[1] = 99, CodecError::Unknown(99)),
        ("no sender", |bytes| put(bytes, 2, 0), CodecError::Range(0)),
        ("a term without room to rise", |bytes| put(bytes, 18, u64::MAX), CodecError::Range(u64::MAX)),
        ("an index without room to rise", |bytes| put(bytes, 26, u64::MAX), CodecError::Range(u64::MAX)),
        ("too many entries", |bytes| bytes[50..54].fill(255), CodecError::Range(u64::from(u32::MAX))),
        ("more entries than bytes", |bytes| bytes[50] = 3, CodecError::Short),
        ("fewer entries than bytes", |bytes| bytes[50] = 1, CodecError::Long(18)),
        ("a term that falls along the log", |bytes| bytes[67] = 3, CodecError::Range(3)),
        ("a term later than the leader's", |bytes| bytes[67] = 6, CodecError::Range(6)),
        ("an opening entry with payload", |bytes| bytes[75] = 0, CodecError::Payload),
    ];
    for (name, change, error) in cases {
        assert_eq!(changed(append(), change), Err(error), "case: {name}");
    }
    let flag = changed(Body::VoteReply { pre: true, granted: true, commit: id(1, 1) }, |bytes| bytes[26] = 2);
    assert_eq!(flag, Err(CodecError::Unknown(2)));
}
