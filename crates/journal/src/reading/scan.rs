//! Reading groups out of a segment, valid or not.

use crate::disks::disk::{DiskFile, read_part};
use crate::error::DamageKind;
use crate::keys::Keys;
use crate::layout::cipher::{Decryptor, Locked};
use crate::layout::format::{
    GROUP_HEADER_BYTES, GroupHeader, GroupNumber, PAYLOAD_ALIGN, RECORD_HEADER_BYTES, RecordHeader,
    SECTOR_BYTES, group_bytes,
};
use crate::writing::segment::Stored;
use std::io;
use std::ops::Range;

/// A stretch of a file in memory that moves on as it is asked for bytes further ahead.
pub(crate) struct Window<'f, F> {
    file: &'f F,
    /// Bytes read at a time.
    step: usize,
    /// No byte at or after this offset is looked at.
    limit: u64,
    /// Whether its data will not be read again soon.
    passes: bool,
    start: u64,
    /// The position of its data in the buffer.
    loaded: Range<usize>,
    buffer: Vec<u8>,
    decryptor: Decryptor,
}

/// A group whose header and record table are intact; its payloads may not be.
#[derive(Clone, Debug)]
pub(crate) struct GroupHead {
    pub header: GroupHeader,
    pub offset: u64,
    pub records: Vec<RecordEntry>,
}

/// One entry of the record table, and where its payload starts in the segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordEntry {
    pub header: RecordHeader,
    pub payload_offset: u64,
    /// Of the file.
    pub salt: u64,
}

impl RecordEntry {
    /// Bytes of the record on the disk.
    pub(crate) fn stored(&self) -> Stored {
        Stored { key: self.header.key, bytes: u64::from(self.header.payload_bytes) }
    }

    /// Where its payload is in the segment.
    pub(crate) fn payload(&self) -> Range<u64> {
        self.payload_offset..self.payload_offset + u64::from(self.header.payload_bytes)
    }

    /// The consequence of an unreadable payload.
    fn damage(&self, locked: Locked) -> DamageKind {
        let position = self.header.position;
        match locked {
            Locked::Unknown(key) => DamageKind::KeyUnknown { position, key },
            Locked::Forged => DamageKind::Forged { position },
        }
    }
}

impl GroupHead {
    /// Offset of the first byte after the group.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.header.length_bytes
    }
}

impl<'f, F: DiskFile> Window<'f, F> {
    /// Of a file whose payloads, where they are encrypted, are looked at no further than their
    /// checksums.
    pub(crate) fn new(file: &'f F, step: usize, limit: u64) -> Window<'f, F> {
        Window::with_keys(file, step, limit, &Keys::default())
    }

    pub(crate) fn with_keys(file: &'f F, step: usize, limit: u64, keys: &Keys) -> Window<'f, F> {
        let decryptor = Decryptor::new(keys.clone());
        Window { file, step, limit, passes: false, start: 0, loaded: 0..0, buffer: Vec::new(), decryptor }
    }

    /// The same, without leaving pages in the system's page cache or using them: for reading a
    /// whole file.
    pub(crate) fn passing(self) -> Window<'f, F> {
        Window { passes: true, ..self }
    }

    /// `length` bytes at `offset`; `None` if they reach beyond the limit or the file.
    pub(crate) fn bytes(&mut self, offset: u64, length: usize) -> io::Result<Option<&[u8]>> {
        Ok(self.load(offset, length)?.and_then(|place| self.buffer.get(place)))
    }

    /// Where in the buffer these bytes are now.
    fn load(&mut self, offset: u64, length: usize) -> io::Result<Option<Range<usize>>> {
        let Some(end) = offset.checked_add(length as u64).filter(|&end| end <= self.limit) else {
            return Ok(None);
        };
        if offset < self.start || self.start + (self.loaded.len() as u64) < end {
            let wanted = (self.step.max(length) as u64).min(self.limit - offset);
            (self.start, self.loaded) = (offset, 0..0);
            let (part, buffer) = (offset..offset + wanted, &mut self.buffer);
            self.loaded = match self.passes {
                true => self.file.read_once(part, buffer)?,
                false => read_part(self.file, part, buffer)?,
            };
        }
        let from = self.loaded.start + (offset - self.start) as usize;
        Ok(Some(from..from + length).filter(|place| place.end <= self.loaded.end))
    }

    /// The group that starts at `offset`, if its header and table are intact and of this salt.
    pub(crate) fn head(&mut self, salt: u64, offset: u64) -> io::Result<Option<GroupHead>> {
        let Some(header) = self.header(offset)?.filter(|header| header.salt == salt) else { return Ok(None) };
        if offset.checked_add(header.length_bytes).is_none_or(|end| self.limit < end) {
            return Ok(None);
        }
        let table_bytes = header.record_count as usize * RECORD_HEADER_BYTES;
        let Some(table) = self.bytes(offset + GROUP_HEADER_BYTES as u64, table_bytes)? else {
            return Ok(None);
        };
        if crc32c::crc32c(table) != header.table_checksum {
            return Ok(None);
        }
        Ok(entries(table, salt, offset)
            .filter(|records| length(records) == Some(header.length_bytes))
            .map(|records| GroupHead { header, offset, records }))
    }

    /// The header of the group at `offset`, if it is intact, whatever its salt.
    pub(crate) fn header(&mut self, offset: u64) -> io::Result<Option<GroupHeader>> {
        let bytes = self.bytes(offset, GROUP_HEADER_BYTES)?;
        Ok(bytes.and_then(|bytes| GroupHeader::decode(bytes.first_chunk()?, offset)))
    }

    /// Whether a torn group of this salt starts at `offset`.
    pub(crate) fn resembles_group(&mut self, salt: u64, offset: u64) -> io::Result<bool> {
        let bytes = self.bytes(offset, GROUP_HEADER_BYTES)?;
        Ok(bytes
            .and_then(|bytes| bytes.first_chunk())
            .is_some_and(|bytes| GroupHeader::resembles(bytes, salt)))
    }

    /// A record's payload as it was committed, or its fault.
    pub(crate) fn payload(&mut self, entry: &RecordEntry) -> io::Result<Result<&[u8], DamageKind>> {
        let place = self.load(entry.payload_offset, entry.header.payload_bytes as usize)?;
        let stored = place.and_then(|place| self.buffer.get(place));
        let Some(stored) = stored.filter(|stored| entry.header.holds(stored)) else {
            return Ok(Err(DamageKind::Payload { position: entry.header.position }));
        };
        let opened = self.decryptor.open(&entry.header, entry.salt, stored);
        Ok(opened.map_err(|locked| entry.damage(locked)))
    }

    /// The fault of a payload, as far as the keys at hand tell: with none its checksum alone.
    pub(crate) fn check(&mut self, entry: &RecordEntry) -> io::Result<Option<DamageKind>> {
        let damage = self.payload(entry)?.err();
        Ok(damage.filter(|kind| !kind.is_locked()))
    }

    /// The rest of a damaged payload: some of it is wrong. Of an encrypted one nothing is left.
    pub(crate) fn damaged_payload(&mut self, entry: &RecordEntry) -> io::Result<Option<&[u8]>> {
        match entry.header.key {
            None => self.bytes(entry.payload_offset, entry.header.payload_bytes as usize),
            Some(_) => Ok(None),
        }
    }

    /// Whether the payloads of a group are all there, as they were written.
    pub(crate) fn is_whole(&mut self, head: &GroupHead) -> io::Result<bool> {
        for entry in &head.records {
            if matches!(self.check(entry)?, Some(DamageKind::Payload { .. })) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Offset of the first group header from `offset` on, on any sector, with a number above
    /// `after`; of this salt, if one is given.
    pub(crate) fn search(
        &mut self,
        salt: Option<u64>,
        offset: u64,
        after: GroupNumber,
    ) -> io::Result<Option<u64>> {
        let found = self.find_header(salt, offset, |header, _| after < header.number)?;
        Ok(found.map(|(offset, _)| offset))
    }

    /// Offset, salt and number of the first group header from `offset` on, on any sector, whatever
    /// its salt.
    pub(crate) fn next_header(&mut self, offset: u64) -> io::Result<Option<(u64, u64, GroupNumber)>> {
        let found = self.find_header(None, offset, |_, _| true)?;
        Ok(found.map(|(at, header)| (at, header.salt, header.number)))
    }

    /// Whether a group numbered above `after` on any sector after `offset` proves that whatever
    /// began at `offset` had been synced: it was written only afterwards.
    pub(crate) fn was_synced(&mut self, salt: u64, offset: u64, after: GroupNumber) -> io::Result<bool> {
        let proves = |header: &GroupHeader, at| after < header.number && offset < header.synced_before(at);
        Ok(self.find_header(Some(salt), offset + 1, proves)?.is_some())
    }

    /// Offsets of all group headers of this salt from `offset` on, with a number above `after`.
    pub(crate) fn headers(&mut self, salt: u64, mut offset: u64, after: GroupNumber) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        while let Some(at) = self.search(Some(salt), offset, after)? {
            found.push(at);
            offset = at + SECTOR_BYTES;
        }
        Ok(found)
    }

    fn find_header(
        &mut self,
        salt: Option<u64>,
        mut offset: u64,
        wanted: impl Fn(&GroupHeader, u64) -> bool,
    ) -> io::Result<Option<(u64, GroupHeader)>> {
        offset = offset.next_multiple_of(SECTOR_BYTES);
        while let Some(next) = offset.checked_add(SECTOR_BYTES).filter(|&next| next <= self.limit) {
            let header = self.header(offset)?.filter(|found| salt.is_none_or(|salt| salt == found.salt));
            if let Some(header) = header.filter(|header| wanted(header, offset)) {
                return Ok(Some((offset, header)));
            }
            offset = next;
        }
        Ok(None)
    }
}

fn entries(table: &[u8], salt: u64, group_offset: u64) -> Option<Vec<RecordEntry>> {
    let mut payload_offset = group_offset.checked_add((GROUP_HEADER_BYTES + table.len()) as u64)?;
    let (rows, _) = table.as_chunks::<RECORD_HEADER_BYTES>();
    let entry = |row| {
        let header = RecordHeader::decode(row)?;
        let entry = RecordEntry { header, payload_offset, salt };
        let padded = u64::from(header.payload_bytes).next_multiple_of(PAYLOAD_ALIGN);
        payload_offset = payload_offset.checked_add(padded)?;
        Some(entry)
    };
    rows.iter().map(entry).collect()
}

fn length(records: &[RecordEntry]) -> Option<u64> {
    group_bytes(records.iter().map(|entry| u64::from(entry.header.payload_bytes)))
}
