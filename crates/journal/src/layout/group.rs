//! The bytes of one group, ready to be written; where something is encrypted, in one buffer.

use crate::disks::direct::{BUFFER_ALIGN_BYTES, aligned_begin};
use crate::error::CommitError;
use crate::layout::cipher::{Encryptor, PAYLOAD_EXTRA_BYTES};
use crate::layout::format::{
    GROUP_HEADER_BYTES, GroupHeader, PAYLOAD_ALIGN, RECORD_HEADER_BYTES, RecordHeader, SECTOR_BYTES,
    group_bytes,
};
use crate::record::Record;
use crate::writing::segment::Stored;
use std::io::IoSlice;

/// Longest payload: its length has 32 bits on the disk.
const PAYLOAD_BYTES_MAX: u64 = u32::MAX as u64;

/// Longest group. Far beyond the load of one sync; keeps offsets and a segment of its own size in
/// bounds.
const GROUP_BYTES_MAX: u64 = 8 << 30;

/// Memory that a draft keeps for the next group.
const BYTES_KEPT: usize = 1 << 20;

const ZEROS: [u8; SECTOR_BYTES as usize] = [0; SECTOR_BYTES as usize];

/// A group about to be written; kept to save the allocation.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Header and table; with payloads and padding if something is encrypted.
    bytes: Vec<u8>,
    /// Where they begin: a whole group where it can go to the device from, without another copy.
    begin: usize,
}

/// Bytes of a record on the disk.
pub(crate) fn stored(record: &Record, encryptor: &Encryptor) -> Stored {
    let key = encryptor.key_for(record.key);
    let extra_bytes = if key.is_some() { PAYLOAD_EXTRA_BYTES } else { 0 };
    Stored { key, bytes: record.payload.byte_length() + extra_bytes }
}

/// Size of the group on the disk.
///
/// # Errors
/// [`CommitError::TooLarge`].
pub(crate) fn measure(records: &[Record], encryptor: &Encryptor) -> Result<u64, CommitError> {
    let lengths = records.iter().map(|record| stored(record, encryptor).bytes);
    if let Some(found_bytes) = lengths.clone().find(|&bytes| PAYLOAD_BYTES_MAX < bytes) {
        return Err(CommitError::TooLarge { found_bytes, max_bytes: PAYLOAD_BYTES_MAX });
    }
    let found_bytes = group_bytes(lengths).unwrap_or(u64::MAX);
    if GROUP_BYTES_MAX < found_bytes || u32::MAX as usize <= records.len() {
        return Err(CommitError::TooLarge { found_bytes, max_bytes: GROUP_BYTES_MAX });
    }
    Ok(found_bytes)
}

impl Draft {
    /// Makes the group of these records, to be written at `offset`. Its length must be the result
    /// of [`measure`].
    pub(crate) fn encode(
        &mut self,
        mut header: GroupHeader,
        records: &[Record],
        offset: u64,
        encryptor: &mut Encryptor,
    ) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT);
        self.begin = 0;
        let table_bytes = GROUP_HEADER_BYTES + records.len() * RECORD_HEADER_BYTES;
        if encryptor.encrypts() {
            let length = header.length_bytes as usize;
            self.bytes.reserve_exact(length + BUFFER_ALIGN_BYTES);
            self.begin = aligned_begin(&self.bytes);
            self.bytes.resize(self.begin + table_bytes, 0);
            for (index, record) in records.iter().enumerate() {
                let row = self.seal(header.salt, record, encryptor);
                let place = self.begin + GROUP_HEADER_BYTES + index * RECORD_HEADER_BYTES;
                self.bytes[place..place + RECORD_HEADER_BYTES].copy_from_slice(&row.encode());
            }
            self.bytes.resize(self.begin + length, 0);
        } else {
            self.bytes.reserve(table_bytes);
            self.bytes.resize(GROUP_HEADER_BYTES, 0);
            for record in records {
                let row = row(record, stored(record, encryptor));
                let row = row.sealed(record.payload.pieces().iter().map(|piece| &piece[..]));
                self.bytes.extend_from_slice(&row.encode());
            }
        }
        let group = &mut self.bytes[self.begin..];
        header.table_checksum = crc32c::crc32c(&group[GROUP_HEADER_BYTES..table_bytes]);
        group[..GROUP_HEADER_BYTES].copy_from_slice(&header.encode(offset));
    }

    /// Appends a payload as it is on the disk, with its padding; returns its row of the table.
    fn seal(&mut self, salt: u64, record: &Record, encryptor: &mut Encryptor) -> RecordHeader {
        let row = row(record, stored(record, encryptor));
        let begin = self.bytes.len();
        encryptor.seal(&row, salt, record.payload.pieces(), &mut self.bytes);
        let row = row.sealed(std::iter::once(&self.bytes[begin..]));
        let end = self.begin + (self.bytes.len() - self.begin).next_multiple_of(PAYLOAD_ALIGN as usize);
        self.bytes.resize(end, 0);
        row
    }

    /// All bytes of the group, in order, padding included: `bytes` of them.
    pub(crate) fn pieces<'a>(&'a self, records: &'a [Record], bytes: u64) -> Vec<IoSlice<'a>> {
        let mut pieces = Vec::with_capacity(2 + 2 * records.len());
        let ready = &self.bytes[self.begin..];
        pieces.push(IoSlice::new(ready));
        let mut written = ready.len() as u64;
        if written < bytes {
            for record in records {
                for piece in record.payload.pieces() {
                    pieces.push(IoSlice::new(piece));
                }
                let length = record.payload.byte_length();
                let padding = length.next_multiple_of(PAYLOAD_ALIGN) - length;
                pieces.push(IoSlice::new(&ZEROS[..padding as usize]));
                written += length + padding;
            }
        }
        pieces.push(IoSlice::new(&ZEROS[..(bytes - written) as usize]));
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

fn row(record: &Record, stored: Stored) -> RecordHeader {
    RecordHeader {
        payload_bytes: stored.bytes as u32,
        checksum: 0,
        partition: record.partition,
        reserve: record.reserve,
        key: stored.key,
        position: record.position,
    }
}
