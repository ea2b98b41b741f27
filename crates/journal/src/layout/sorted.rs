//! Bytes of a sorted copy of a segment: the records that were live when it was made, those of one address behind each other.
//!
//! ```text
//! copy   = sector with header | records, gaps between some | zeros to the next sector | a slot (8) for each position of each partition
//! record = salt of the segment (8) | record header (24) | payload as it is in the segment | zeros to 8 bytes
//! slot   = place of the record, in units of 8 bytes; 0: not here (4) | bytes of its payload (4)
//! ```
//! Each record is known by itself to be the one that is wanted, of that life of the segment: so nothing is believed of the rest
//! but where to look.

use crate::layout::format::{
    HeaderFault, PAYLOAD_ALIGN, PLAIN_VERSION, RECORD_HEADER_BYTES, RecordHeader, SECTOR_BYTES, SORTED_MAGIC,
    SegmentHeader, seal, unseal,
};
use bytes::{Buf, BufMut};
use postroad_model::{PartitionId, Position};
use std::ops::Range;

/// What is ahead of a payload.
pub(crate) const RECORD_FRONT_BYTES: u64 = 8 + RECORD_HEADER_BYTES as u64;

pub(crate) const SLOT_BYTES: u64 = 8;

/// Partitions that a header has room for; a segment with more of them gets no copy.
pub(crate) const PARTITIONS_MAX: usize = 32;

/// The first sector of a sorted copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortedHeader {
    /// Of the segment.
    pub salt: u64,
    /// Where the segment ends.
    pub end: u64,
    /// Where the slots begin.
    pub slots_at: u64,
    /// Whose slots, in their order.
    pub slots: Vec<Slots>,
}

/// The slots of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub partition: PartitionId,
    /// The position of the first one; the others follow densely.
    pub first: Position,
    pub count: u32,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    place: u32,
    pub payload_bytes: u32,
}

impl SortedHeader {
    pub(crate) fn encode(&self) -> [u8; SECTOR_BYTES as usize] {
        let mut sector = [0; SECTOR_BYTES as usize];
        let mut rest = &mut sector[16..];
        rest.put_u64_le(self.salt);
        rest.put_u64_le(self.end);
        rest.put_u64_le(self.slots_at);
        rest.put_u16_le(self.slots.len() as u16);
        for Slots { partition, first, count } in &self.slots {
            rest.put_u16_le(partition.0);
            rest.put_u32_le(*count);
            rest.put_u64_le(first.get());
        }
        seal(SORTED_MAGIC, &mut sector, PLAIN_VERSION);
        sector
    }

    /// `None` if it is damaged, of another version, or of another segment or another life of it.
    pub(crate) fn decode(
        sector: &[u8; SECTOR_BYTES as usize],
        segment: &SegmentHeader,
        end: u64,
    ) -> Option<SortedHeader> {
        let mut rest = match unseal(SORTED_MAGIC, sector) {
            Ok(rest) => rest,
            Err(HeaderFault::Invalid | HeaderFault::Version(_)) => return None,
        };
        let (salt, of_end, slots_at) = (rest.get_u64_le(), rest.get_u64_le(), rest.get_u64_le());
        let partitions = usize::from(rest.get_u16_le());
        if (salt, of_end) != (segment.salt, end) || PARTITIONS_MAX < partitions {
            return None;
        }
        let mut slots = Vec::with_capacity(partitions);
        for _ in 0..partitions {
            let (partition, count) = (PartitionId(rest.get_u16_le()), rest.get_u32_le());
            slots.push(Slots { partition, first: Position::new(rest.get_u64_le())?, count });
        }
        Some(SortedHeader { salt, end, slots_at, slots })
    }

    /// Where the slot of a record is in the file; `None` if it has none.
    pub(crate) fn slot_of(&self, partition: PartitionId, position: Position) -> Option<Range<u64>> {
        let at = self.slots_at.checked_add(number_of(&self.slots, partition, position)? * SLOT_BYTES)?;
        Some(at..at + SLOT_BYTES)
    }
}

/// Which of all slots behind each other is that of a record; `None` if it has none.
pub(crate) fn number_of(slots: &[Slots], partition: PartitionId, position: Position) -> Option<u64> {
    let before = slots.iter().take_while(|slots| slots.partition != partition);
    let ahead: u64 = before.map(|slots| u64::from(slots.count)).sum();
    let slots = slots.iter().find(|slots| slots.partition == partition)?;
    let number = position.get().checked_sub(slots.first.get())?;
    (number < u64::from(slots.count)).then_some(ahead + number)
}

impl Slot {
    /// Of a record that begins at `offset`; `None` if that is further than a slot can say.
    pub(crate) fn new(offset: u64, payload_bytes: u32) -> Option<Slot> {
        let place = u32::try_from(offset / PAYLOAD_ALIGN).ok()?;
        Some(Slot { place, payload_bytes })
    }

    pub(crate) fn encode(self) -> [u8; SLOT_BYTES as usize] {
        let mut bytes = [0; SLOT_BYTES as usize];
        (&mut bytes[..4]).put_u32_le(self.place);
        (&mut bytes[4..]).put_u32_le(self.payload_bytes);
        bytes
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Slot> {
        let slot = Slot { place: bytes.try_get_u32_le().ok()?, payload_bytes: bytes.try_get_u32_le().ok()? };
        Some(slot).filter(|slot| slot.place != 0)
    }

    /// Where the record is in the file.
    pub(crate) fn record(self) -> Range<u64> {
        let begin = u64::from(self.place) * PAYLOAD_ALIGN;
        begin..begin + RECORD_FRONT_BYTES + u64::from(self.payload_bytes)
    }
}

/// What a record takes.
pub(crate) fn record_bytes(header: &RecordHeader) -> u64 {
    RECORD_FRONT_BYTES + u64::from(header.payload_bytes).next_multiple_of(PAYLOAD_ALIGN)
}

/// Appends a record.
pub(crate) fn put_record(out: &mut Vec<u8>, salt: u64, header: &RecordHeader, payload: &[u8]) {
    out.put_u64_le(salt);
    out.put_slice(&header.encode());
    out.put_slice(payload);
    out.resize(out.len().next_multiple_of(PAYLOAD_ALIGN as usize), 0);
}

/// The header of the record that these bytes begin with, its payload, unverified, and what is behind; `None`: there is none of
/// this life of the segment, or it goes on beyond them.
pub(crate) fn split_record(mut bytes: &[u8], salt: u64) -> Option<(RecordHeader, &[u8], &[u8])> {
    let own_salt = bytes.try_get_u64_le().ok()?;
    let (header, rest) = bytes.split_first_chunk()?;
    let header = RecordHeader::decode(header).filter(|_| own_salt == salt)?;
    let payload_bytes = usize::try_from(header.payload_bytes).ok()?;
    let (payload, _) = rest.split_at_checked(payload_bytes)?;
    let aligned = payload_bytes.next_multiple_of(PAYLOAD_ALIGN as usize);
    Some((header, payload, rest.get(aligned..).unwrap_or_default()))
}
