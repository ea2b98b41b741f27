//! Rebuilding a group whose header or record table is damaged: each entry of the table has a
//! checksum of its own, over itself and its payload, so that valid ones are as committed.
//!
//! Never for a place that may hold a former life of the file: the caller knows that a group of this
//! life was here.

use crate::disks::disk::DiskFile;
use crate::layout::format::{
    GROUP_HEADER_BYTES, GroupEnd, GroupHeader, GroupNumber, PAYLOAD_ALIGN, RECORD_HEADER_BYTES, RecordHeader,
    SECTOR_BYTES, group_bytes,
};
use crate::reading::scan::{GroupHead, RecordEntry, Window};
use std::io;

/// Lengths that a table without a header may have, as far as its entries tell: more than one only
/// if payloads look like entries.
const LENGTHS_MAX: usize = 16;

/// Limit of the entries of a table without a header: no writer makes a larger group.
const ENTRIES_MAX: usize = 1 << 20;

type Row = [u8; RECORD_HEADER_BYTES];

/// The valid part of the group at `offset`, which follows the group `last`; `None` if there is
/// none.
pub(crate) fn rebuild<F: DiskFile>(
    window: &mut Window<'_, F>,
    salt: u64,
    offset: u64,
    last: GroupNumber,
) -> io::Result<Option<GroupHead>> {
    let head = match window.header(offset)? {
        Some(header) if header.salt != salt || header.number <= last => None,
        Some(header) => with_header(window, header, offset)?,
        None => without_header(window, salt, offset, last)?,
    };
    Ok(head.filter(|head| !head.records.is_empty()))
}

/// The group at `offset` of a segment's life, where one is known to have been committed; the valid
/// part of a damaged one.
pub(crate) fn whole_or_rebuilt<F: DiskFile>(
    window: &mut Window<'_, F>,
    salt: u64,
    offset: u64,
) -> io::Result<Option<GroupHead>> {
    match window.head(salt, offset)? {
        Some(head) => Ok(Some(head)),
        None => rebuild(window, salt, offset, GroupNumber(0)),
    }
}

fn padded(header: &RecordHeader) -> u64 {
    u64::from(header.payload_bytes).next_multiple_of(PAYLOAD_ALIGN)
}

/// The header is sound, the table is not: entries up to the first bad one are found from the front,
/// those after the last bad one from the end.
fn with_header<F: DiskFile>(
    window: &mut Window<'_, F>,
    header: GroupHeader,
    offset: u64,
) -> io::Result<Option<GroupHead>> {
    let (rows, salt) = (table(window, offset, header.record_count as usize)?, header.salt);
    let end = offset.saturating_add(header.length_bytes);
    if rows.len() < header.record_count as usize
        || window.bytes(offset, header.length_bytes as usize)?.is_none()
    {
        return Ok(None);
    }
    let mut records = Vec::new();
    let mut at = offset + header.front_bytes();
    for row in &rows {
        let Some(entry) = holding(window, row, salt, at)?.filter(|entry| entry.payload().end <= end) else {
            break;
        };
        at += padded(&entry.header);
        records.push(entry);
    }
    let behind = &rows[(records.len() + 1).min(rows.len())..];
    records.extend(from_the_end(window, behind, salt, at, end)?);
    Ok(Some(GroupHead { header, offset, records }))
}

/// The entries of these rows whose payloads lie one after the other up to `end`, as many as hold;
/// none begins before `start`.
fn from_the_end<F: DiskFile>(
    window: &mut Window<'_, F>,
    rows: &[Row],
    salt: u64,
    start: u64,
    end: u64,
) -> io::Result<Vec<RecordEntry>> {
    let mut found = Vec::new();
    // The last payload is followed by zeros up to the next sector.
    for padding in (0..SECTOR_BYTES).step_by(PAYLOAD_ALIGN as usize) {
        let mut at = end - padding;
        for row in rows.iter().rev() {
            let Some(header) = RecordHeader::decode(row) else { break };
            let Some(begin) = at.checked_sub(padded(&header)).filter(|&begin| start <= begin) else { break };
            let Some(entry) = holding(window, row, salt, begin)? else { break };
            at = begin;
            found.push(entry);
        }
        if !found.is_empty() {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

/// The header is damaged: how long the table is follows from where its first payload is.
fn without_header<F: DiskFile>(
    window: &mut Window<'_, F>,
    salt: u64,
    offset: u64,
    last: GroupNumber,
) -> io::Result<Option<GroupHead>> {
    let rows = table(window, offset, ENTRIES_MAX)?;
    for count in (1..=rows.len()).rev().take(LENGTHS_MAX) {
        let mut at = offset + (GROUP_HEADER_BYTES + count * RECORD_HEADER_BYTES) as u64;
        let mut records = Vec::new();
        for row in &rows[..count] {
            let Some(entry) = holding(window, row, salt, at)? else { break };
            at += padded(&entry.header);
            records.push(entry);
        }
        // One that is damaged as well would leave open where the next one is.
        let lengths = records.iter().map(|entry| u64::from(entry.header.payload_bytes));
        if let Some(length_bytes) = group_bytes(lengths).filter(|_| records.len() == count) {
            let header = GroupHeader {
                salt,
                number: last.next(),
                previous: GroupEnd::default(),
                length_bytes,
                unsynced_sectors: 0,
                record_count: count as u32,
                table_checksum: 0,
            };
            return Ok(Some(GroupHead { header, offset, records }));
        }
    }
    Ok(None)
}

/// Up to this number of rows of the table of the group at `offset`, as long as they may be entries,
/// or all if the header has the number.
fn table<F: DiskFile>(window: &mut Window<'_, F>, offset: u64, rows_max: usize) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let is_told = rows_max < ENTRIES_MAX;
    while rows.len() < rows_max {
        let at = offset + (GROUP_HEADER_BYTES + rows.len() * RECORD_HEADER_BYTES) as u64;
        let row = window.bytes(at, RECORD_HEADER_BYTES)?.and_then(|bytes| bytes.first_chunk().copied());
        match row.filter(|row| is_told || RecordHeader::decode(row).is_some()) {
            Some(row) => rows.push(row),
            None => break,
        }
    }
    Ok(rows)
}

/// The entry of this row, if its checksum holds for the payload at this place.
fn holding<F: DiskFile>(
    window: &mut Window<'_, F>,
    row: &Row,
    salt: u64,
    at: u64,
) -> io::Result<Option<RecordEntry>> {
    let Some(header) = RecordHeader::decode(row) else { return Ok(None) };
    let entry = RecordEntry { header, payload_offset: at, salt };
    Ok(window.check(&entry)?.is_none().then_some(entry))
}
