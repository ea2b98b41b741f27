//! Compacted segments whose header or index is damaged, and which no checkpoint lists yet: all that
//! either says stands in the other and in the groups.

use crate::disks::disk::{Disk, DiskFile, read_full_at};
use crate::error::OpenError;
use crate::layout::format::{FIRST_GROUP, SegmentHeader};
use crate::opening::chain::SCAN_STEP_BYTES;
use crate::reading::scan::Window;
use crate::retaining::compacted::Compacted;
use crate::retaining::index_file::{Form, Unreadable, decode_entry, read_head};
use crate::writing::segment::Segment;
use std::io;

/// No index is longer.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// The contents of the file, by its groups; `None` if it is unknown whether these are all of them.
///
/// # Errors
/// [`OpenError::Io`]: the system refuses to read it.
pub(crate) fn reread<D: Disk>(disk: &D, found: &Compacted) -> Result<Option<Segment>, OpenError> {
    let read = || {
        let file = disk.open(&found.name)?;
        let end = match read_head(&file, Form::Compacted(found.run), &read_full_at) {
            Ok(head) => head.map(|head| head.end),
            Err(Unreadable::Io(source)) => return Err(source),
            Err(Unreadable::Version(_)) => return Ok(None),
        };
        let Some(segment) = by_groups(&file, found)? else { return Ok(None) };
        let is_all = match end {
            Some(end) => segment.end == end,
            None => is_followed_by_its_index(&file, &segment)?,
        };
        Ok(is_all.then_some(segment))
    };
    read().map_err(|source| OpenError::Io { file: found.path.clone(), source })
}

/// The segment up to the first group that cannot be read; `None` if that is the first of all.
fn by_groups<F: DiskFile>(file: &F, found: &Compacted) -> io::Result<Option<Segment>> {
    let length = file.length()?;
    let mut window = Window::new(file, SCAN_STEP_BYTES, length);
    let Some(first) = window.header(FIRST_GROUP)? else { return Ok(None) };
    let (number, salt) = (found.run.last, first.salt);
    let mut segment = Segment::new(SegmentHeader { number, salt, capacity_bytes: 0 });
    while segment.end < length
        && let Some(head) = window.head(salt, segment.end)?
    {
        for entry in &head.records {
            let (partition, position) = (entry.header.partition, entry.header.position);
            segment.add(partition, position, entry.stored(), head.offset, head.header.number);
        }
        segment.end = head.end();
    }
    segment.header.capacity_bytes = segment.end;
    (segment.compacted, segment.index) = (Some(found.run), None);
    Ok(Some(segment))
}

/// Whether after the groups there is the index of just these: then they are all.
fn is_followed_by_its_index<F: DiskFile>(file: &F, segment: &Segment) -> io::Result<bool> {
    let bytes = file.length()?.saturating_sub(segment.end);
    if INDEX_BYTES_MAX < bytes {
        return Ok(false);
    }
    let mut entry = vec![0; bytes as usize];
    if read_full_at(file, &mut entry, segment.end)? < entry.len() {
        return Ok(false);
    }
    let known = (segment.header.salt, segment.header.number, segment.end);
    let found = decode_entry(entry, known);
    Ok(found.is_some_and(|indexed| indexed.ranges.keys().eq(segment.ranges.keys())))
}
