//! Bytes on the disk, format version 1; docs/formats/journal.md describes the same in prose.
//!
//! ```text
//! segment  = sector with the segment header, then groups, each starting on a sector
//! group    = group header (64) | record table (24 each) | payloads, each on 8 bytes | zeros to the next sector
//! ```
//! All numbers are little-endian. A decoder here takes any bytes and never panics.

use crate::keys::KeyId;
use crate::retaining::compacted::Run;
use bytes::{Buf, BufMut};
use postroad_model::{PartitionId, Position};

/// The version of segments, checkpoints, indexes and copies; any other is refused.
pub const FORMAT_VERSION: u32 = 1;

/// Groups start on this boundary: the smallest unit a disk writes whole, so that writing a later
/// group never rewrites a sector that holds synced bytes, and a torn write cannot harm them.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Payloads start on this boundary.
pub(crate) const PAYLOAD_ALIGN: u64 = 8;

/// Where the first group of a segment starts.
pub(crate) const FIRST_GROUP: u64 = SECTOR_BYTES;

pub(crate) const GROUP_HEADER_BYTES: usize = 64;
pub(crate) const RECORD_HEADER_BYTES: usize = 24;

/// "PR-SEGMT", and as the first bytes of a checkpoint "PR-CHKPT".
const SEGMENT_MAGIC: &[u8; 8] = b"PR-SEGMT";
pub(crate) const CHECKPOINT_MAGIC: &[u8; 8] = b"PR-CHKPT";
/// The same of a compacted segment.
pub(crate) const COMPACTED_MAGIC: &[u8; 8] = b"PR-CMPCT";
/// The same of the index beside a segment.
pub(crate) const INDEX_MAGIC: &[u8; 8] = b"PR-INDEX";
/// The same of the sorted copy of a segment.
pub(crate) const SORTED_MAGIC: &[u8; 8] = b"PR-BUNDL";
/// Numbers and offsets stay far below overflow; a larger one on the disk is damage under a right
/// checksum.
pub(crate) const NUMBER_MAX: u64 = 1 << 56;
/// Bytes of a group's length.
const LENGTH_BYTES: usize = 6;
const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"PRGR");

/// Version of the record header; a reader refuses a group with any other.
const RECORD_VERSION: u8 = 1;
const FLAG_RESERVE: u8 = 1;

/// A segment's place in the order of segments; also its file name. Rising, not dense; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

/// A group's place in the order of groups of the whole journal. Rising; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupNumber(pub u64);

impl SegmentNumber {
    /// That of the first segment in a new directory.
    pub(crate) const FIRST: SegmentNumber = SegmentNumber(1);

    pub(crate) fn next(self) -> SegmentNumber {
        SegmentNumber(self.0 + 1)
    }
}

impl GroupNumber {
    pub(crate) fn next(self) -> GroupNumber {
        GroupNumber(self.0 + 1)
    }
}

/// The end of a group, which the group after it must name. All zero before the first group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupEnd {
    pub segment: SegmentNumber,
    /// Offset of the first byte after the group.
    pub offset: u64,
    pub number: GroupNumber,
}

/// First sector of a segment, synced before any group is written into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub number: SegmentNumber,
    /// Differs for each use of the file: data of an earlier use is never taken for live.
    pub salt: u64,
    /// Bytes usable, this sector included.
    pub capacity_bytes: u64,
}

/// Why a segment or checkpoint header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Checksum or magic number fails.
    Invalid,
    /// Intact, of a version this program does not know.
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SECTOR_BYTES as usize] {
        let mut bytes = [0; SECTOR_BYTES as usize];
        (&mut bytes[16..24]).put_u64_le(self.number.0);
        (&mut bytes[24..32]).put_u64_le(self.salt);
        (&mut bytes[32..40]).put_u64_le(self.capacity_bytes);
        seal(SEGMENT_MAGIC, &mut bytes);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SECTOR_BYTES as usize]) -> Result<SegmentHeader, HeaderFault> {
        let mut rest = unseal(SEGMENT_MAGIC, bytes)?;
        Ok(SegmentHeader {
            number: SegmentNumber(rest.get_u64_le()),
            salt: rest.get_u64_le(),
            capacity_bytes: rest.get_u64_le(),
        })
    }
}

/// Puts magic, version and checksum in front of a header sector. All versions keep these sixteen
/// bytes, so that an unknown version is distinguished from damage.
pub(crate) fn seal(magic: &[u8; 8], sector: &mut [u8; SECTOR_BYTES as usize]) {
    sector[..8].copy_from_slice(magic);
    (&mut sector[8..12]).put_u32_le(FORMAT_VERSION);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&sector[..12]), &sector[16..]);
    (&mut sector[12..16]).put_u32_le(checksum);
}

/// The header after the sixteen bytes of [`seal`].
pub(crate) fn unseal<'a>(
    magic: &[u8; 8],
    sector: &'a [u8; SECTOR_BYTES as usize],
) -> Result<&'a [u8], HeaderFault> {
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&sector[..12]), &sector[16..]);
    if sector[..8] != *magic || (&sector[12..16]).get_u32_le() != checksum {
        return Err(HeaderFault::Invalid);
    }
    match (&sector[8..12]).get_u32_le() {
        FORMAT_VERSION => Ok(&sector[16..]),
        other => Err(HeaderFault::Version(other)),
    }
}

/// Front of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub salt: u64,
    pub number: GroupNumber,
    /// End of the group before. In the first group of a segment this pins the valid end of the
    /// segment before: data of a failed group after that end is void.
    pub previous: GroupEnd,
    /// Bytes on the disk, header and padding included; a multiple of a sector.
    pub length_bytes: u64,
    /// This number of sectors directly before the group was not known to be synced when it was
    /// written: after a power failure they may be gone though it is there. Earlier sectors were
    /// promised.
    pub unsynced_sectors: u16,
    pub record_count: u32,
    pub table_checksum: u32,
}

impl GroupHeader {
    /// Everything before this offset was known to be synced when the group at `offset` was
    /// written.
    pub(crate) fn synced_before(&self, offset: u64) -> u64 {
        offset.saturating_sub(u64::from(self.unsynced_sectors) * SECTOR_BYTES)
    }

    /// `offset`: where in its segment the group starts; part of the checksum, so that a copied
    /// group is not valid.
    pub(crate) fn encode(&self, offset: u64) -> [u8; GROUP_HEADER_BYTES] {
        let mut bytes = [0; GROUP_HEADER_BYTES];
        let mut rest = &mut bytes[8..];
        rest.put_u64_le(self.salt);
        rest.put_u64_le(self.number.0);
        rest.put_u64_le(self.previous.segment.0);
        rest.put_u64_le(self.previous.offset);
        rest.put_u64_le(self.previous.number.0);
        rest.put_uint_le(self.length_bytes, LENGTH_BYTES);
        rest.put_u16_le(self.unsynced_sectors);
        rest.put_u32_le(self.record_count);
        rest.put_u32_le(self.table_checksum);
        (&mut bytes[..4]).put_u32_le(GROUP_MAGIC);
        let checksum = GroupHeader::checksum(&bytes, offset);
        (&mut bytes[4..8]).put_u32_le(checksum);
        bytes
    }

    fn checksum(bytes: &[u8; GROUP_HEADER_BYTES], offset: u64) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[8..]), &offset.to_le_bytes())
    }

    /// Bytes of the header and the record table.
    pub(crate) fn front_bytes(&self) -> u64 {
        GROUP_HEADER_BYTES as u64 + u64::from(self.record_count) * RECORD_HEADER_BYTES as u64
    }

    /// `None` unless the checksum holds for a group at `offset`, and the group has room for its
    /// record table: a reader that goes from group to group always gets ahead.
    pub(crate) fn decode(bytes: &[u8; GROUP_HEADER_BYTES], offset: u64) -> Option<GroupHeader> {
        let mut rest = &bytes[..];
        if rest.get_u32_le() != GROUP_MAGIC || rest.get_u32_le() != GroupHeader::checksum(bytes, offset) {
            return None;
        }
        let header = GroupHeader {
            salt: rest.get_u64_le(),
            number: GroupNumber(rest.get_u64_le()),
            previous: GroupEnd {
                segment: SegmentNumber(rest.get_u64_le()),
                offset: rest.get_u64_le(),
                number: GroupNumber(rest.get_u64_le()),
            },
            length_bytes: rest.get_uint_le(LENGTH_BYTES),
            unsynced_sectors: rest.get_u16_le(),
            record_count: rest.get_u32_le(),
            table_checksum: rest.get_u32_le(),
        };
        let GroupEnd { segment, offset, number } = header.previous;
        let numbers = [header.number.0, segment.0, offset, number.0];
        let sound = 0 < header.number.0 && numbers.iter().all(|&number| number <= NUMBER_MAX);
        let length = header.length_bytes;
        let fits = length.is_multiple_of(SECTOR_BYTES) && header.front_bytes() <= length;
        (sound && fits).then_some(header)
    }

    /// Whether these bytes look like a group of this salt whose checksum need not hold: a torn one.
    pub(crate) fn resembles(bytes: &[u8; GROUP_HEADER_BYTES], salt: u64) -> bool {
        (&bytes[..4]).get_u32_le() == GROUP_MAGIC && (&bytes[8..16]).get_u64_le() == salt
    }
}

/// One entry of a group's record table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// On the disk.
    pub payload_bytes: u32,
    /// Over the rest of this header and the payload as it is on the disk.
    pub checksum: u32,
    pub partition: PartitionId,
    pub reserve: bool,
    /// The encryption of the payload.
    pub key: Option<KeyId>,
    pub position: Position,
}

impl RecordHeader {
    /// With the checksum still to be computed over `pieces`.
    pub(crate) fn sealed<'a>(mut self, pieces: impl Iterator<Item = &'a [u8]>) -> RecordHeader {
        let start = crc32c::crc32c(&self.unsealed());
        self.checksum = pieces.fold(start, crc32c::crc32c_append);
        self
    }

    /// The header with its checksum zero: the part that checksum and encryption bind to the
    /// payload.
    pub(crate) fn unsealed(&self) -> [u8; RECORD_HEADER_BYTES] {
        RecordHeader { checksum: 0, ..*self }.encode()
    }

    /// Whether `payload` is the one that this header was sealed with.
    pub(crate) fn holds(&self, payload: &[u8]) -> bool {
        self.sealed(std::iter::once(payload)).checksum == self.checksum
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        let mut rest = &mut bytes[..];
        rest.put_u32_le(self.payload_bytes);
        rest.put_u32_le(self.checksum);
        rest.put_u16_le(self.partition.0);
        rest.put_u8(RECORD_VERSION);
        rest.put_u8(if self.reserve { FLAG_RESERVE } else { 0 });
        rest.put_u32_le(KeyId::number(self.key));
        rest.put_u64_le(self.position.get());
        bytes
    }

    /// `None` for values that no writer produces.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<RecordHeader> {
        let mut rest = &bytes[..];
        let (payload_bytes, checksum) = (rest.get_u32_le(), rest.get_u32_le());
        let partition = PartitionId(rest.get_u16_le());
        let (version, flags, key) = (rest.get_u8(), rest.get_u8(), rest.get_u32_le());
        let position = Position::new(rest.get_u64_le()).filter(|position| position.get() <= NUMBER_MAX)?;
        if version != RECORD_VERSION || flags & !FLAG_RESERVE != 0 {
            return None;
        }
        let (reserve, key) = (flags == FLAG_RESERVE, KeyId::of(key));
        Some(RecordHeader { payload_bytes, checksum, partition, reserve, key, position })
    }
}

/// Bytes on the disk of a group whose payloads have these lengths; `None` on overflow.
pub(crate) fn group_bytes(payload_bytes: impl ExactSizeIterator<Item = u64>) -> Option<u64> {
    let table = (payload_bytes.len() as u64).checked_mul(RECORD_HEADER_BYTES as u64)?;
    let mut total = table.checked_add(GROUP_HEADER_BYTES as u64)?;
    for bytes in payload_bytes {
        total = total.checked_add(bytes.checked_next_multiple_of(PAYLOAD_ALIGN)?)?;
    }
    total.checked_next_multiple_of(SECTOR_BYTES)
}

const SEGMENT_SUFFIX: &str = ".segment";
const CHECKPOINT_SUFFIX: &str = ".checkpoint";
const COMPACTED_SUFFIX: &str = ".compacted";
const INDEX_SUFFIX: &str = ".index";
const SORTED_SUFFIX: &str = ".sorted";

/// File name of a segment.
pub(crate) fn segment_name(number: SegmentNumber) -> String {
    format!("{:016x}{SEGMENT_SUFFIX}", number.0)
}

/// The segment of this file name, if it is one.
pub(crate) fn segment_of(name: &str) -> Option<SegmentNumber> {
    numbered(name, SEGMENT_SUFFIX).map(SegmentNumber)
}

/// File name of the index beside a segment.
pub(crate) fn index_name(number: SegmentNumber) -> String {
    format!("{:016x}{INDEX_SUFFIX}", number.0)
}

/// The segment beside which an index of this file name is, if it is one.
pub(crate) fn index_of(name: &str) -> Option<SegmentNumber> {
    numbered(name, INDEX_SUFFIX).map(SegmentNumber)
}

/// File name of the sorted copy of a segment, in the life of it that has this salt.
pub(crate) fn sorted_name(number: SegmentNumber, salt: u64) -> String {
    format!("{:016x}-{salt:016x}{SORTED_SUFFIX}", number.0)
}

/// The segment whose sorted copy has this file name, if it is one, and its salt.
pub(crate) fn sorted_of(name: &str) -> Option<(SegmentNumber, u64)> {
    let (number, salt) = name.strip_suffix(SORTED_SUFFIX)?.split_once('-')?;
    let (number, salt) = (SegmentNumber(digits(number)?), u64::from_str_radix(salt, 16).ok()?);
    (name == sorted_name(number, salt)).then_some((number, salt))
}

/// File name of a checkpoint.
pub(crate) fn checkpoint_name(sequence: u64) -> String {
    format!("{sequence:016x}{CHECKPOINT_SUFFIX}")
}

/// The sequence number of a checkpoint of this file name, if it is one.
pub(crate) fn checkpoint_of(name: &str) -> Option<u64> {
    numbered(name, CHECKPOINT_SUFFIX)
}

/// File name of a compacted segment.
pub(crate) fn compacted_name(run: Run) -> String {
    format!("{:016x}-{:016x}-{:016x}{COMPACTED_SUFFIX}", run.first.0, run.last.0, run.checkpoint)
}

/// The run of segments whose place a file of this name takes, if it is a compacted segment.
pub(crate) fn compacted_of(name: &str) -> Option<Run> {
    let (first, rest) = name.strip_suffix(COMPACTED_SUFFIX)?.split_once('-')?;
    let (last, checkpoint) = rest.split_once('-')?;
    let (first, last) = (SegmentNumber(digits(first)?), SegmentNumber(digits(last)?));
    Some(Run { first, last, checkpoint: digits(checkpoint)? }).filter(|run| run.first <= run.last)
}

/// Files without which a journal has lost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFile {
    /// Groups as they were written.
    Segment,
    /// The rest of several segments.
    Compacted,
    /// The state up to some group.
    Checkpoint,
}

impl JournalFile {
    /// The kind of a file of this name; `None`: none of these.
    pub fn of(name: &str) -> Option<JournalFile> {
        let segment = segment_of(name).map(|_| JournalFile::Segment);
        let compacted = || compacted_of(name).map(|_| JournalFile::Compacted);
        segment.or_else(compacted).or_else(|| checkpoint_of(name).map(|_| JournalFile::Checkpoint))
    }
}

/// Whether a file of this name belongs to a journal: those of [`JournalFile`], indexes and sorted
/// copies.
pub fn is_journal_name(name: &str) -> bool {
    JournalFile::of(name).is_some() || index_of(name).is_some() || sorted_of(name).is_some()
}

fn numbered(name: &str, suffix: &str) -> Option<u64> {
    digits(name.strip_suffix(suffix)?)
}

fn digits(digits: &str) -> Option<u64> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 16 || !digits.bytes().all(lower) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok().filter(|&number| 0 < number && number <= NUMBER_MAX)
}
