//! Bytes of a checkpoint file, format version 3; docs/formats/journal.md describes the same in
//! prose.
//!
//! ```text
//! file = header sector | body: front, partitions, segments with ranges and index | states
//! ```
//! Front and partitions are the table: it says how long all else is.

use crate::disks::disk::Disk;
use crate::keys::{KeyId, Keys};
use crate::layout::cipher::{StateCipher, StateName, sealed_state_bytes};
use crate::layout::format::{
    CHECKPOINT_MAGIC, FIRST_GROUP, GroupEnd, GroupNumber, HeaderFault, NUMBER_MAX, SECTOR_BYTES,
    SegmentHeader, SegmentNumber, seal, unseal,
};
use crate::retaining::index::{IndexEntry, SegmentIndex};
use crate::writing::segment::{Range, Segment};
use bytes::{Buf, BufMut, Bytes};
use postroad_model::{PartitionId, Piece, Position, Snapshot};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Bytes of the front: how many partitions and segments there are, where recovery starts, and where
/// it ended.
pub(crate) const FRONT_BYTES: usize = 2 * 4 + 6 * 8;

/// Bytes of each partition after it.
const PARTITION_BYTES: usize = 4 * 8;

/// The contents of a checkpoint besides the segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content<S = Snapshot> {
    pub sequence: u64,
    /// Where recovery starts to read.
    pub start: Place,
    /// End of the last durable group when it was made; all records up to here are in the index.
    pub end: GroupEnd,
    pub partitions: Vec<PartitionEntry<S>>,
}

/// One partition in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionEntry<S = Snapshot> {
    pub partition: PartitionId,
    /// The last record in the state; `None` if there is no state.
    pub position: Option<Position>,
    /// The last durable record.
    pub last: Position,
    pub state: S,
}

/// The start of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub segment: SegmentNumber,
    pub offset: u64,
    /// The group's number; `None` at the end of all groups.
    pub group: Option<GroupNumber>,
}

/// A checkpoint whose content is fixed; the long steps are still to be done.
#[derive(Debug)]
pub(crate) struct CheckpointDraft {
    sequence: u64,
    /// The encryption of the states.
    key: Option<KeyId>,
    body: Bytes,
    /// As they are; shared, not copied.
    states: Vec<(StateName, Snapshot)>,
}

/// The parts of a checkpoint file: the list of pieces of a long backlog takes megabytes, and is not
/// copied.
pub(crate) struct CheckpointBytes {
    header: Bytes,
    body: Bytes,
    states: Vec<Snapshot>,
    /// How many they are.
    pub byte_length: u64,
}

/// Fixes the content of a checkpoint.
pub(crate) fn encode(content: &Content, segments: &[&Segment], keys: &Keys) -> CheckpointDraft {
    let key = keys.current();
    let mut body = Vec::new();
    body.put_u32_le(content.partitions.len() as u32);
    body.put_u32_le(segments.len() as u32);
    body.put_u64_le(content.start.segment.0);
    body.put_u64_le(content.start.offset);
    body.put_u64_le(content.start.group.map_or(0, |group| group.0));
    body.put_u64_le(content.end.segment.0);
    body.put_u64_le(content.end.offset);
    body.put_u64_le(content.end.number.0);
    for entry in &content.partitions {
        let bytes = entry.state.byte_length();
        body.put_u64_le(u64::from(entry.partition.0));
        body.put_u64_le(entry.position.map_or(0, Position::get));
        body.put_u64_le(entry.last.get());
        body.put_u64_le(if key.is_some() { sealed_state_bytes(bytes) } else { bytes } as u64);
    }
    for segment in segments {
        // All others are complete, and their index is beside them.
        let index = segment.index.as_deref().filter(|_| segment.header.number == content.end.segment);
        encode_segment(&mut body, segment, index);
    }
    let sequence = content.sequence;
    let states = content.partitions.iter().map(|entry| (entry.name(sequence), entry.state.clone())).collect();
    CheckpointDraft { sequence, key, body: body.into(), states }
}

impl Content {
    /// The size of the states.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.partitions.iter().map(|entry| entry.state.byte_length() as u64).sum()
    }
}

impl<S> Content<S> {
    /// The same with other states, made from each one's name and contents.
    pub(crate) fn with_states<T, E>(
        self,
        mut other: impl FnMut(StateName, S) -> Result<T, E>,
    ) -> Result<Content<T>, E> {
        let Content { sequence, start, end, partitions } = self;
        let partitions = partitions.into_iter().map(|entry| {
            let name = entry.name(sequence);
            let PartitionEntry { partition, position, last, state } = entry;
            Ok(PartitionEntry { partition, position, last, state: other(name, state)? })
        });
        Ok(Content { sequence, start, end, partitions: partitions.collect::<Result<_, E>>()? })
    }
}

impl<S> PartitionEntry<S> {
    fn name(&self, sequence: u64) -> StateName {
        StateName { sequence, partition: self.partition, position: self.position }
    }
}

impl CheckpointDraft {
    /// The encryption of its states.
    pub(crate) fn key(&self) -> Option<KeyId> {
        self.key
    }

    /// The bytes of the file, states encrypted if they are to be.
    ///
    /// # Errors
    /// There is no randomness.
    pub(crate) fn finish<D: Disk>(self, disk: &D, keys: &Keys) -> io::Result<CheckpointBytes> {
        let cipher = self.key.map(|key| {
            let (salt, first_nonce) = (disk.salt()?, disk.salt()?);
            io::Result::Ok(StateCipher { key, salt, first_nonce })
        });
        let cipher = cipher.transpose()?;
        let states = match cipher {
            Some(cipher) => cipher.seal(keys, self.states).expect("the current key is known"),
            None => self.states.into_iter().map(|(_, state)| state).collect(),
        };
        let state_bytes: usize = states.iter().map(Snapshot::byte_length).sum();
        let body_bytes = (self.body.len() + state_bytes) as u64;
        let checksum =
            states.iter().flat_map(Snapshot::pieces).fold(crc32c::crc32c(&self.body), |checksum, piece| {
                crc32c::crc32c_append(checksum, &piece.bytes())
            });
        let mut sector = [0; SECTOR_BYTES as usize];
        let mut header = &mut sector[16..];
        header.put_u64_le(self.sequence);
        header.put_u64_le(body_bytes);
        header.put_u32_le(checksum);
        if let Some(StateCipher { key, salt, first_nonce }) = cipher {
            header.put_u32_le(KeyId::number(Some(key)));
            header.put_u64_le(salt);
            header.put_u64_le(first_nonce);
        }
        seal(CHECKPOINT_MAGIC, &mut sector);
        let (header, byte_length) = (Bytes::copy_from_slice(&sector), SECTOR_BYTES + body_bytes);
        Ok(CheckpointBytes { header, body: self.body, states, byte_length })
    }
}

impl CheckpointBytes {
    /// Piece by piece; spilled pieces are read when they are reached.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Bytes> {
        let states = self.states.iter().flat_map(Snapshot::pieces);
        [self.header.clone(), self.body.clone()].into_iter().chain(states.map(Piece::bytes))
    }
}

/// A segment's entry; without an index it says where the records of each partition begin.
pub(crate) fn encode_segment(body: &mut Vec<u8>, segment: &Segment, index: Option<&SegmentIndex>) {
    body.put_u64_le(segment.header.number.0);
    body.put_u64_le(segment.header.salt);
    body.put_u64_le(segment.header.capacity_bytes);
    body.put_u64_le(segment.end);
    body.put_u64_le(segment.ranges.len() as u64);
    for (partition, range) in &segment.ranges {
        let begin = [range.begin()];
        let entries = index.map_or(&begin[..], |index| index.of(*partition));
        body.put_u32_le(u32::from(partition.0));
        body.put_u32_le(entries.len() as u32);
        body.put_u64_le(range.first.get());
        body.put_u64_le(range.last.get());
        body.put_u64_le(range.live);
        for entry in entries {
            body.put_u64_le(entry.first.get());
            body.put_u64_le(entry.offset);
            body.put_u64_le(entry.group.0);
        }
    }
    body.put_u32_le(segment.keys.len() as u32);
    for (&key, &bytes) in &segment.keys {
        body.put_u32_le(KeyId::number(key));
        body.put_u64_le(bytes);
    }
}

/// Length of the body that follows a header sector, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyExtent {
    pub sequence: u64,
    pub bytes: u64,
    pub checksum: u32,
    /// How its states are encrypted, if they are.
    pub cipher: Option<StateCipher>,
}

/// Reads the header sector.
pub(crate) fn decode_header(sector: &[u8; SECTOR_BYTES as usize]) -> Result<BodyExtent, HeaderFault> {
    let mut header = unseal(CHECKPOINT_MAGIC, sector)?;
    let (sequence, bytes, checksum) = (header.get_u64_le(), header.get_u64_le(), header.get_u32_le());
    let (key, salt, first_nonce) = (KeyId::of(header.get_u32_le()), header.get_u64_le(), header.get_u64_le());
    let cipher = key.map(|key| StateCipher { key, salt, first_nonce });
    Ok(BodyExtent { sequence, bytes, checksum, cipher })
}

/// How many bytes of the body precede its segments, by the first [`FRONT_BYTES`]; `None` if those
/// are not all there.
pub(crate) fn table_bytes(front: &[u8]) -> Option<usize> {
    let partitions = front.get(..FRONT_BYTES)?.try_get_u32_le().ok()?;
    Some(FRONT_BYTES + partitions as usize * PARTITION_BYTES)
}

/// The part before the segments: the contents, with the size of each state, and the number of
/// segments. `None` if it makes no sense.
pub(crate) fn decode_table(sequence: u64, table: Bytes) -> Option<(Content<usize>, u32)> {
    let mut rest = table;
    let partition_count = rest.try_get_u32_le().ok()?;
    let segment_count = rest.try_get_u32_le().ok()?;
    let start = Place {
        segment: SegmentNumber(number(&mut rest)?),
        offset: number(&mut rest)?,
        group: Some(GroupNumber(number(&mut rest)?)).filter(|group| group.0 != 0),
    };
    let end = GroupEnd {
        segment: SegmentNumber(number(&mut rest)?),
        offset: number(&mut rest)?,
        number: GroupNumber(number(&mut rest)?),
    };
    let partitions = (0..partition_count).map(|_| decode_partition(&mut rest)).collect::<Option<_>>()?;
    rest.is_empty().then_some((Content { sequence, start, end, partitions }, segment_count))
}

fn decode_partition(rest: &mut Bytes) -> Option<PartitionEntry<usize>> {
    let partition = PartitionId(u16::try_from(number(rest)?).ok()?);
    let position = Position::new(number(rest)?);
    let last = Position::new(number(rest)?)?;
    let state = usize::try_from(number(rest)?).ok()?;
    Some(PartitionEntry { partition, position, last, state })
}

/// The part between the table and the states: this number of segments, the last of them `current`.
/// `None` if it makes no sense.
pub(crate) fn decode_segments(bytes: Bytes, count: u32, current: SegmentNumber) -> Option<Vec<Segment>> {
    let mut rest = bytes;
    let mut segments = (0..count).map(|_| decode_segment(&mut rest)).collect::<Option<Vec<Segment>>>()?;
    // Only the index of the segment which was being filled is complete.
    for segment in segments.iter_mut().filter(|segment| segment.header.number != current) {
        segment.index = None;
    }
    rest.is_empty().then_some(segments)
}

/// Reads a segment's entry.
pub(crate) fn decode_segment(rest: &mut Bytes) -> Option<Segment> {
    let header = SegmentHeader {
        number: SegmentNumber(number(rest)?),
        salt: rest.try_get_u64_le().ok()?,
        capacity_bytes: number(rest)?,
    };
    let end = number(rest)?;
    let range_count = number(rest)?;
    let (mut ranges, mut index) = (BTreeMap::new(), SegmentIndex::default());
    for _ in 0..range_count {
        let partition = PartitionId(u16::try_from(rest.try_get_u32_le().ok()?).ok()?);
        let index_count = rest.try_get_u32_le().ok()?;
        let first = Position::new(number(rest)?)?;
        let last = Position::new(number(rest)?)?;
        let live = number(rest)?;
        let entries = (0..index_count).map(|_| decode_entry(rest)).collect::<Option<Vec<IndexEntry>>>()?;
        let &IndexEntry { offset, group, .. } = entries.first().filter(|_| first <= last)?;
        let records = last.get() - first.get() + 1;
        ranges.insert(partition, Range { first, last, records, live, live_bytes: 0, offset, group });
        index.insert(partition, entries);
    }
    let keys = decode_keys(rest)?;
    let index = Some(Arc::new(index));
    (FIRST_GROUP <= end).then_some(Segment { header, end, ranges, keys, compacted: None, index })
}

fn decode_keys(rest: &mut Bytes) -> Option<BTreeMap<Option<KeyId>, u64>> {
    let count = rest.try_get_u32_le().ok()?;
    (0..count).map(|_| Some((KeyId::of(rest.try_get_u32_le().ok()?), number(rest)?))).collect()
}

fn decode_entry(rest: &mut Bytes) -> Option<IndexEntry> {
    Some(IndexEntry {
        first: Position::new(number(rest)?)?,
        offset: number(rest)?,
        group: GroupNumber(number(rest)?),
    })
}

/// The next number, if it is one that a writer makes.
fn number(rest: &mut Bytes) -> Option<u64> {
    rest.try_get_u64_le().ok().filter(|&number| number <= NUMBER_MAX)
}
