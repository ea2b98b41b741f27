//! Bytes of a bundle: records that lie one after the other in a sorted copy, compressed together.
//!
//! ```text
//! bundle = salt of the segment (8) | bytes of the block (4) | bytes of the records (4) | block | zeros to 8 bytes
//! block  = the records as one LZ4 block, or as they are where that is not shorter
//! record = record header (24) | payload as it is in the segment
//! ```
//! Records of one address are similar: they repeat their destination, their sender and their
//! properties. Each is verified by its own checksum, so a bundle has none of its own.

use crate::layout::format::{PAYLOAD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};
use crate::layout::sorted::Slot;
use bytes::{Buf, BufMut};
use postroad_model::{PartitionId, Position};
use std::ops::Range;

/// The header of a block.
const FRONT_BYTES: usize = 16;

/// Bytes of the records of a bundle, at most: reading one of them expands all. With more a block
/// would be hardly shorter.
pub(crate) const BUNDLE_RECORDS_BYTES_MAX: usize = 32 << 10;

/// Where a record is in the file: in which bundle, and where among the records of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub bundle: Range<u64>,
    pub offset: usize,
}

/// Bundles of one segment one after the other, and which records are in them.
#[derive(Debug)]
pub(crate) struct Bundles {
    salt: u64,
    bytes: Vec<u8>,
    records: Vec<(PartitionId, Position, Slot)>,
    /// Of the bundle that is not full yet, with their places among its records.
    open: Vec<u8>,
    members: Vec<(PartitionId, Position, u16)>,
}

impl Bundles {
    /// None yet, of a segment with this salt.
    pub(crate) fn new(salt: u64) -> Bundles {
        let (bytes, records, open, members) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Bundles { salt, bytes, records, open, members }
    }

    /// Those that are full or [closed](Bundles::close).
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where their records are, if the first of them begins at this offset of the file; `None` for
    /// one that is further away than a slot can say.
    pub(crate) fn records(
        &self,
        offset: u64,
    ) -> impl Iterator<Item = (PartitionId, Position, Option<Slot>)> + '_ {
        self.records
            .iter()
            .map(move |(partition, position, slot)| (*partition, *position, slot.moved(offset)))
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.open.clear();
        self.members.clear();
    }

    /// Appends a record. One that is too large for any bundle is left out.
    pub(crate) fn put(&mut self, header: &RecordHeader, payload: &[u8]) {
        let bytes = RECORD_HEADER_BYTES + payload.len();
        if BUNDLE_RECORDS_BYTES_MAX < bytes {
            return;
        }
        if BUNDLE_RECORDS_BYTES_MAX < self.open.len() + bytes {
            self.close();
        }
        self.members.push((header.partition, header.position, self.open.len() as u16));
        self.open.put_slice(&header.encode());
        self.open.put_slice(payload);
    }

    /// The next record begins a new bundle.
    pub(crate) fn close(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let begin = self.bytes.len();
        let block = lz4_flex::block::compress(&self.open);
        let block = if block.len() < self.open.len() { &block } else { &self.open };
        self.bytes.put_u64_le(self.salt);
        self.bytes.put_u32_le(block.len() as u32);
        self.bytes.put_u32_le(self.open.len() as u32);
        self.bytes.put_slice(block);
        self.bytes.resize(self.bytes.len().next_multiple_of(PAYLOAD_ALIGN as usize), 0);
        let bundle = begin as u64..self.bytes.len() as u64;
        let slots = self
            .members
            .drain(..)
            .map(|(partition, position, offset)| (partition, position, Slot::new(&bundle, offset)));
        self.records.extend(slots);
        self.open.clear();
    }
}

/// A bundle in bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bundle<'b> {
    block: &'b [u8],
    records_bytes: usize,
}

/// The parts at the beginning of these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin<'b> {
    /// A bundle, and the bytes after it.
    Whole(Bundle<'b>, &'b [u8]),
    /// A bundle of which some is missing, if it is one.
    Cut,
    /// No bundle of this life of the segment.
    Nothing,
}

/// Looks at the front of a bundle.
pub(crate) fn begin(bytes: &[u8], salt: u64) -> Begin<'_> {
    let Some((mut front, rest)) = bytes.split_at_checked(FRONT_BYTES) else {
        return Begin::Cut;
    };
    let (own_salt, block_bytes, records_bytes) =
        (front.get_u64_le(), front.get_u32_le() as usize, front.get_u32_le() as usize);
    let may_be = (1..=BUNDLE_RECORDS_BYTES_MAX).contains(&records_bytes) && block_bytes <= records_bytes;
    if own_salt != salt || !may_be {
        return Begin::Nothing;
    }
    match rest.split_at_checked(block_bytes.next_multiple_of(PAYLOAD_ALIGN as usize)) {
        Some((block, behind)) => Begin::Whole(Bundle { block: &block[..block_bytes], records_bytes }, behind),
        None => Begin::Cut,
    }
}

impl Bundle<'_> {
    /// Its records, into memory that is used again and again; `None`: they cannot be had.
    pub(crate) fn records<'r>(&self, records: &'r mut Vec<u8>) -> Option<&'r [u8]> {
        records.resize(self.records_bytes, 0);
        if self.block.len() == self.records_bytes {
            records.copy_from_slice(self.block);
            return Some(records);
        }
        let expanded = lz4_flex::block::decompress_into(self.block, records).ok()?;
        (expanded == self.records_bytes).then_some(records)
    }
}

/// The record at the beginning of these bytes, its payload unverified, and the bytes after it;
/// `None`: there is none.
pub(crate) fn split_record(bytes: &[u8]) -> Option<(RecordHeader, &[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk()?;
    let header = RecordHeader::decode(header)?;
    let (payload, behind) = rest.split_at_checked(usize::try_from(header.payload_bytes).ok()?)?;
    Some((header, payload, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::simulation::Random;

    const SALT: u64 = 7;

    fn header(number: u64, payload: &[u8]) -> RecordHeader {
        let position = Position::new(number).expect("not zero");
        let (partition, payload_bytes) = (PartitionId(3), payload.len() as u32);
        let header =
            RecordHeader { payload_bytes, checksum: 0, partition, reserve: false, key: None, position };
        header.sealed(std::iter::once(payload))
    }

    fn bundles(payloads: &[Vec<u8>]) -> Bundles {
        let mut bundles = Bundles::new(SALT);
        for (number, payload) in (1..).zip(payloads) {
            bundles.put(&header(number, payload), payload);
        }
        bundles.close();
        bundles
    }

    fn noise(random: &mut Random, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| random.below(256) as u8).collect()
    }

    #[test]
    fn each_record_is_where_its_slot_says() {
        let mut random = Random(1);
        let largest = BUNDLE_RECORDS_BYTES_MAX - RECORD_HEADER_BYTES;
        let (alike, unlike) = (vec![vec![7; 300]; 500], (0..500).map(|_| noise(&mut random, 300)).collect());
        for (case, payloads, left_out, shorter) in [
            ("nothing", vec![], vec![], false),
            ("an empty one", vec![vec![]], vec![], false),
            ("alike", alike, vec![], true),
            ("of no pattern", unlike, vec![], false),
            ("as large as can be", vec![vec![1; 9], vec![2; largest], vec![3; 9]], vec![], true),
            ("too large", vec![vec![1; 9], vec![2; largest + 1], vec![3; 9]], vec![2], false),
        ] {
            let bundles = bundles(&payloads);
            let plain: usize = payloads.iter().map(|payload| RECORD_HEADER_BYTES + payload.len()).sum();
            assert_eq!(bundles.bytes().len() < plain / 2, shorter || !left_out.is_empty(), "case: {case}");
            let (offset, mut found, mut buffer) = (4096, Vec::new(), Vec::new());
            for (partition, position, slot) in bundles.records(offset) {
                let Place { bundle, offset: within } = slot.expect("near enough").place();
                let bytes =
                    &bundles.bytes()[(bundle.start - offset) as usize..(bundle.end - offset) as usize];
                let Begin::Whole(bundle, &[]) = begin(bytes, SALT) else { panic!("case: {case}") };
                let records = bundle.records(&mut buffer).expect("a block");
                let (header, payload, _) = split_record(&records[within..]).expect("a record");
                assert_eq!((header.partition, header.position), (partition, position), "case: {case}");
                assert!(
                    header.holds(payload) && payload == payloads[position.get() as usize - 1],
                    "case: {case}"
                );
                found.push(position.get());
            }
            let want = (1..=payloads.len() as u64).filter(|number| !left_out.contains(number));
            assert_eq!(found, want.collect::<Vec<_>>(), "case: {case}");
        }
    }

    #[test]
    fn what_is_no_bundle_is_told() {
        let whole = bundles(&vec![vec![7; 300]; 20]);
        let bytes = whole.bytes();
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = value;
            bytes
        };
        for (case, bytes, want) in [
            ("no bytes", vec![], Begin::Cut),
            ("half of its front", bytes[..9].to_vec(), Begin::Cut),
            ("its front alone", bytes[..16].to_vec(), Begin::Cut),
            ("all but the last byte", bytes[..bytes.len() - 1].to_vec(), Begin::Cut),
            ("another life of the segment", with(0, 8), Begin::Nothing),
            ("more records than a bundle has", with(14, 1), Begin::Nothing),
            ("a block longer than its records", with(10, 1), Begin::Nothing),
            ("zeros", vec![0; 100], Begin::Nothing),
        ] {
            assert_eq!(begin(&bytes, SALT), want, "case: {case}");
        }
    }

    /// Whatever the bytes are, nothing panics, and no record that holds is another than was put
    /// there.
    #[test]
    fn damaged_blocks_give_no_wrong_record() {
        let payloads: Vec<Vec<u8>> = (0..40).map(|number| vec![number; 200]).collect();
        let whole = bundles(&payloads);
        let (mut buffer, mut refused) = (Vec::new(), 0);
        for seed in 0..5000 {
            let mut random = Random(seed);
            let mut bytes = whole.bytes().to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            let Begin::Whole(bundle, _) = begin(&bytes, SALT) else { continue };
            let Some(mut rest) = bundle.records(&mut buffer) else {
                refused += 1;
                continue;
            };
            while let Some((header, payload, behind)) = split_record(rest) {
                if header.holds(payload) {
                    assert_eq!(payload, payloads[header.position.get() as usize - 1], "seed {seed}");
                }
                rest = behind;
            }
        }
        assert!(refused > 100, "{refused}");
    }
}
