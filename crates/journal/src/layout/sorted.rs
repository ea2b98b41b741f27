//! Bytes of a sorted copy of a segment: the records that were live when it was made, those of one
//! address one after the other.
//!
//! ```text
//! copy = sector with header | bundles, gaps between some | zeros to the next sector | a slot (8) for each position of each partition
//! slot = place of the record's bundle, in units of 8 bytes; 0: not here (4) | bytes of that, in the same units (2)
//!      | place of the record among those of the bundle (2)
//! ```
//! Each record is known by itself to be the one that is wanted, of that life of the segment: so
//! nothing is believed of the rest but where to look.

use crate::layout::bundle::Place;
use crate::layout::format::{
    HeaderFault, PAYLOAD_ALIGN, SECTOR_BYTES, SORTED_MAGIC, SegmentHeader, seal, unseal,
};
use bytes::{Buf, BufMut};
use postroad_model::{PartitionId, Position};
use std::ops::Range;

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

/// Where a record is, or that it is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Of its bundle, and that one's length, in units of [`PAYLOAD_ALIGN`].
    place: u32,
    length: u16,
    /// Among the records of the bundle.
    offset: u16,
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
        seal(SORTED_MAGIC, &mut sector);
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

/// Which of all slots one after the other is that of a record; `None` if it has none.
pub(crate) fn number_of(slots: &[Slots], partition: PartitionId, position: Position) -> Option<u64> {
    let before = slots.iter().take_while(|slots| slots.partition != partition);
    let ahead: u64 = before.map(|slots| u64::from(slots.count)).sum();
    let slots = slots.iter().find(|slots| slots.partition == partition)?;
    let number = position.get().checked_sub(slots.first.get())?;
    (number < u64::from(slots.count)).then_some(ahead + number)
}

impl Slot {
    /// Of a record among those of a bundle, which are no more than
    /// [`crate::layout::bundle::BUNDLE_RECORDS_BYTES_MAX`].
    pub(crate) fn new(bundle: &Range<u64>, offset: u16) -> Slot {
        let units = |bytes: u64| bytes / PAYLOAD_ALIGN;
        Slot { place: units(bundle.start) as u32, length: units(bundle.end - bundle.start) as u16, offset }
    }

    /// The same, this number of bytes further; `None` if a slot cannot express that.
    pub(crate) fn moved(self, bytes: u64) -> Option<Slot> {
        let units = u32::try_from(bytes / PAYLOAD_ALIGN).ok()?;
        Some(Slot { place: self.place.checked_add(units)?, ..self })
    }

    pub(crate) fn encode(self) -> [u8; SLOT_BYTES as usize] {
        let mut bytes = [0; SLOT_BYTES as usize];
        (&mut bytes[..4]).put_u32_le(self.place);
        (&mut bytes[4..6]).put_u16_le(self.length);
        (&mut bytes[6..]).put_u16_le(self.offset);
        bytes
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Slot> {
        let place = bytes.try_get_u32_le().ok().filter(|place| *place != 0)?;
        Some(Slot { place, length: bytes.try_get_u16_le().ok()?, offset: bytes.try_get_u16_le().ok()? })
    }

    /// In the file.
    pub(crate) fn place(self) -> Place {
        let begin = u64::from(self.place) * PAYLOAD_ALIGN;
        let bundle = begin..begin + u64::from(self.length) * PAYLOAD_ALIGN;
        Place { bundle, offset: usize::from(self.offset) }
    }
}

const _: () = assert!(crate::layout::bundle::BUNDLE_RECORDS_BYTES_MAX <= u16::MAX as usize);
