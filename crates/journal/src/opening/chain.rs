//! Which files of a directory form the journal: from the newest segment with a group in it, back
//! along the ends that each segment's first group pins.

use crate::disks::disk::{Disk, DiskFile, overwrite, read_full_at};
use crate::error::{Damage, DamageKind, OpenError};
use crate::layout::checkpoint_bytes::Place;
use crate::layout::format::{
    FIRST_GROUP, GroupEnd, GroupNumber, HeaderFault, SECTOR_BYTES, SegmentHeader, SegmentNumber, segment_name,
};
use crate::opening::recovered::TornTail;
use crate::reading::scan::{GroupHead, Window};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes read at a time when groups are read one after the other.
pub(crate) const SCAN_STEP_BYTES: usize = 256 << 10;

/// A segment file that may hold groups recovery must read.
#[derive(Debug)]
pub(crate) struct Found<F> {
    pub file: Arc<F>,
    pub path: PathBuf,
    /// `None`: no valid header for this file's name.
    pub header: Option<SegmentHeader>,
    /// Offset beyond which there cannot be groups.
    pub limit: u64,
    /// Behind the end of the journal, with groups in it that are void.
    pub begun: bool,
}

/// One segment of the journal.
#[derive(Debug)]
pub(crate) struct Link<F> {
    pub file: Arc<F>,
    pub path: PathBuf,
    pub header: SegmentHeader,
    pub limit: u64,
    /// The end that the next segment's first group pins; `None` in the last segment.
    pub pin: Option<GroupEnd>,
}

impl<F> Link<F> {
    /// Where its groups begin that recovery reads, if the checkpoint says `start`.
    pub(crate) fn first_offset(&self, start: Place) -> u64 {
        if self.header.number == start.segment { start.offset.max(FIRST_GROUP) } else { FIRST_GROUP }
    }

    /// Where they end at the latest.
    pub(crate) fn end_max(&self) -> u64 {
        self.pin.map_or(self.limit, |pin| pin.offset.min(self.limit))
    }

    /// How many bytes of them there are at most.
    pub(crate) fn bytes_max(&self, start: Place) -> u64 {
        self.end_max().saturating_sub(self.first_offset(start))
    }
}

/// The journal's segments, oldest first, and the files that are none.
#[derive(Debug)]
pub(crate) struct Chain<F> {
    pub links: Vec<Link<F>>,
    pub unused: BTreeMap<SegmentNumber, Found<F>>,
    /// A torn first group in a segment after the last.
    pub torn: Option<TornTail>,
}

/// A group after the end of the last segment, void because one before it is gone: its header
/// must not be taken for one of those that will be written there.
#[derive(Debug)]
pub(crate) struct Stale<F> {
    pub file: Arc<F>,
    pub path: PathBuf,
    pub offset: u64,
}

/// Opens the segment files and reads their headers.
pub(crate) fn find<D: Disk>(
    disk: &D,
    numbers: impl Iterator<Item = SegmentNumber>,
) -> Result<BTreeMap<SegmentNumber, Found<D::File>>, OpenError> {
    let mut found = BTreeMap::new();
    for number in numbers {
        let name = segment_name(number);
        let path = disk.path(&name);
        let failed = |source| OpenError::Io { file: path.clone(), source };
        let file = disk.open(&name).map_err(failed)?;
        let mut sector = [0; SECTOR_BYTES as usize];
        let length = file.length().map_err(failed)?;
        read_full_at(&file, &mut sector, 0).map_err(failed)?;
        let header = match SegmentHeader::decode(&sector) {
            Ok(header) => Some(header).filter(|header| header.number == number),
            Err(HeaderFault::Invalid) => None,
            Err(HeaderFault::Version(found)) => return Err(OpenError::UnknownVersion { file: path, found }),
        };
        let limit = header.map_or(length, |header| length.min(header.capacity_bytes));
        found.insert(number, Found { file: Arc::new(file), path, header, limit, begun: false });
    }
    Ok(found)
}

/// Sorts the files into the journal's and the unused. `start` and `end` are those of the
/// checkpoint.
pub(crate) fn link<F: DiskFile>(
    mut found: BTreeMap<SegmentNumber, Found<F>>,
    start: Place,
    end: GroupEnd,
    missing: impl Fn(SegmentNumber) -> Damage,
) -> Result<Chain<F>, OpenError> {
    let (tail, torn) = find_tail(&mut found, end.segment)?;
    let lowest = found.keys().next().copied();
    if tail.is_none() && end.segment.0 == 0 && lowest.is_some_and(|lowest| lowest != SegmentNumber::FIRST) {
        // The first file stays until a group is durable, and only a checkpoint lets it go then.
        return Err(OpenError::Damaged(missing(SegmentNumber::FIRST)));
    }
    let mut links = Vec::new();
    let mut next = if tail.is_some() { tail } else { Some(end.segment).filter(|segment| segment.0 != 0) };
    let mut pin = None;
    while let Some(number) = next {
        let Some(segment) = found.remove(&number) else { return Err(OpenError::Damaged(missing(number))) };
        let Some(header) = segment.header else { return Err(segment.damaged(0, DamageKind::SegmentHeader)) };
        next = None;
        if number != start.segment {
            let first = segment.first_group()?.map(|head| head.header);
            let Some(first) = first else { return Err(segment.damaged(FIRST_GROUP, DamageKind::Group)) };
            let before = first.previous.segment;
            if before < start.segment || number <= before {
                return Err(segment.damaged(FIRST_GROUP, DamageKind::Group));
            }
            next = Some(before).filter(|before| before.0 != 0);
            let Found { file, path, limit, .. } = segment;
            links.push(Link { file, path, header, limit, pin });
            pin = Some(first.previous);
        } else {
            let Found { file, path, limit, .. } = segment;
            links.push(Link { file, path, header, limit, pin });
        }
    }
    links.reverse();
    Ok(Chain { links, unused: found, torn })
}

/// The newest segment after `end` with a group in it; those after that which were begun are
/// marked, and the first of them reported.
fn find_tail<F: DiskFile>(
    found: &mut BTreeMap<SegmentNumber, Found<F>>,
    end: SegmentNumber,
) -> Result<(Option<SegmentNumber>, Option<TornTail>), OpenError> {
    let mut torn = None;
    for (&number, segment) in found.range_mut(end.next()..).rev() {
        let Some(header) = segment.header else { continue };
        let mut window = segment.window();
        let head = segment.first_group()?;
        let failed = |source| OpenError::Io { file: segment.path.clone(), source };
        let (whole, after) = match &head {
            Some(head) => (window.is_whole(head).map_err(failed)?, head.header.number),
            None => (false, GroupNumber(0)),
        };
        if whole {
            return Ok((Some(number), torn));
        }
        // Most have none, and are read through once.
        let has_groups =
            window.search(Some(header.salt), FIRST_GROUP, GroupNumber(0)).map_err(failed)?.is_some();
        if has_groups && window.was_synced(header.salt, FIRST_GROUP, after).map_err(failed)? {
            return match head {
                Some(_) => Ok((Some(number), torn)),
                None => Err(segment.damaged(FIRST_GROUP, DamageKind::Group)),
            };
        }
        segment.begun = has_groups || window.resembles_group(header.salt, FIRST_GROUP).map_err(failed)?;
        if segment.begun {
            torn = Some(TornTail { file: segment.path.clone(), offset: FIRST_GROUP });
        }
    }
    Ok((None, torn))
}

impl<F: DiskFile> Found<F> {
    fn window(&self) -> Window<'_, F> {
        Window::new(&*self.file, SCAN_STEP_BYTES, self.limit)
    }

    fn first_group(&self) -> Result<Option<GroupHead>, OpenError> {
        let Some(header) = self.header else { return Ok(None) };
        let mut window = Window::new(&*self.file, SECTOR_BYTES as usize, self.limit);
        let head = window.head(header.salt, FIRST_GROUP);
        let head = head.map_err(|source| OpenError::Io { file: self.path.clone(), source })?;
        Ok(head.filter(|head| head.header.previous.number < head.header.number))
    }

    /// Makes the groups in it void for ever: else the result of a later power failure could make
    /// them valid again, with their end of the segment before.
    pub(crate) fn renew(&mut self, salt: u64) -> Result<(), OpenError> {
        let Some(header) = &mut self.header else { return Ok(()) };
        header.salt = salt;
        overwrite(&*self.file, 0, &header.encode())
            .map_err(|source| OpenError::Io { file: self.path.clone(), source })
    }

    /// Refuses a file without a valid header that holds groups newer than the journal's last: they
    /// were promised.
    pub(crate) fn check_headerless(&self, last: GroupNumber) -> Result<(), OpenError> {
        if self.header.is_some() {
            return Ok(());
        }
        let newer = self.window().search(None, FIRST_GROUP, last);
        match newer.map_err(|source| OpenError::Io { file: self.path.clone(), source })? {
            Some(_) => Err(self.damaged(0, DamageKind::SegmentHeader)),
            None => Ok(()),
        }
    }

    fn damaged(&self, offset: u64, kind: DamageKind) -> OpenError {
        OpenError::Damaged(Damage { partition: None, file: self.path.clone(), offset, kind })
    }
}
