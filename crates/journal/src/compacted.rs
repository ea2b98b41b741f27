//! Compacted segments on the disk: what the live records of a run of segments became.
//!
//! ```text
//! file  = header sector | groups, as in a segment | index: the segment's entry as in a checkpoint
//! name  = <first segment of the run>-<last one>-<checkpoint>.compacted
//! ```
//! A file of this name takes the place of all segments of the run, whether their files are still there or not.

use crate::checkpoint_bytes::{decode_segment, encode_segment};
use crate::disk::{Disk, DiskFile, read_full_at};
use crate::error::OpenError;
use crate::format::{
    COMPACTED_MAGIC, HeaderFault, SECTOR_BYTES, SegmentNumber, compacted_of, seal, unseal, version_of,
};
use crate::segment::Segment;
use bytes::{Buf, BufMut, Bytes};
use std::cmp::Reverse;
use std::path::PathBuf;

/// Name of a compacted segment that is not complete.
pub(crate) const UNFINISHED: &str = "unfinished-compaction";

/// A run of segments, by the numbers of its ends, and what of it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: SegmentNumber,
    pub last: SegmentNumber,
    /// The checkpoint whose live records are kept: recovery from an older one may need others.
    pub checkpoint: u64,
}

impl Run {
    pub(crate) fn contains(&self, number: SegmentNumber) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

/// A compacted segment found at the start.
#[derive(Debug)]
pub(crate) struct Compacted {
    pub run: Run,
    pub name: String,
    pub path: PathBuf,
    /// Its index, in which the live messages are those it was made with; `None` if it is damaged.
    pub segment: Option<Segment>,
}

/// The header sector of a file whose groups end at `end`, and the index behind it.
pub(crate) fn encode(segment: &Segment, run: Run) -> ([u8; SECTOR_BYTES as usize], Vec<u8>) {
    let mut index = Vec::new();
    encode_segment(&mut index, segment, segment.header.version);
    let mut sector = [0; SECTOR_BYTES as usize];
    let mut header = &mut sector[16..];
    header.put_u64_le(run.first.0);
    header.put_u64_le(run.last.0);
    header.put_u64_le(run.checkpoint);
    header.put_u64_le(segment.header.salt);
    header.put_u64_le(segment.end);
    header.put_u64_le(index.len() as u64);
    header.put_u32_le(crc32c::crc32c(&index));
    seal(COMPACTED_MAGIC, &mut sector, segment.header.version);
    (sector, index)
}

/// Reads the index of every compacted segment. Of two whose runs overlap, the longer one was made of the other:
/// the shorter one is left out. All names that no recovery needs are in the second list.
///
/// # Errors
/// [`OpenError::UnknownVersion`]; [`OpenError::Io`] if one cannot be opened or read at all.
pub(crate) fn load<D: Disk>(disk: &D, names: &[String]) -> Result<(Vec<Compacted>, Vec<String>), OpenError> {
    let mut runs: Vec<(Run, &String)> =
        names.iter().filter_map(|name| Some((compacted_of(name)?, name))).collect();
    runs.sort_by_key(|(run, _)| (run.first, Reverse(run.last), Reverse(run.checkpoint)));
    let mut superfluous: Vec<String> = names.iter().filter(|name| *name == UNFINISHED).cloned().collect();
    let mut found: Vec<Compacted> = Vec::new();
    for (run, name) in runs {
        if found.last().is_some_and(|before| run.first <= before.run.last) {
            superfluous.push(name.clone());
            continue;
        }
        let path = disk.path(name);
        let segment = match read(disk, name, run) {
            Ok(segment) => segment,
            Err(Unreadable::Version(found)) => return Err(OpenError::UnknownVersion { file: path, found }),
            Err(Unreadable::Io(source)) => return Err(OpenError::Io { file: path, source }),
        };
        found.push(Compacted { run, name: name.clone(), path, segment });
    }
    Ok((found, superfluous))
}

enum Unreadable {
    Version(u32),
    Io(std::io::Error),
}

/// `None`: damaged.
fn read<D: Disk>(disk: &D, name: &str, run: Run) -> Result<Option<Segment>, Unreadable> {
    let file = disk.open(name).map_err(Unreadable::Io)?;
    let mut sector = [0; SECTOR_BYTES as usize];
    read_full_at(&file, &mut sector, 0).map_err(Unreadable::Io)?;
    let mut header = match unseal(COMPACTED_MAGIC, &sector) {
        Ok(header) => header,
        Err(HeaderFault::Version(found)) => return Err(Unreadable::Version(found)),
        Err(HeaderFault::Invalid) => return Ok(None),
    };
    let found = Run {
        first: SegmentNumber(header.get_u64_le()),
        last: SegmentNumber(header.get_u64_le()),
        checkpoint: header.get_u64_le(),
    };
    let (salt, end) = (header.get_u64_le(), header.get_u64_le());
    let (bytes, checksum) = (header.get_u64_le(), header.get_u32_le());
    let length = file.length().map_err(Unreadable::Io)?;
    if found != run || length.saturating_sub(end) < bytes {
        return Ok(None);
    }
    let mut index = vec![0; bytes as usize];
    let read = read_full_at(&file, &mut index, end).map_err(Unreadable::Io)?;
    if read < index.len() || crc32c::crc32c(&index) != checksum {
        return Ok(None);
    }
    let mut index = Bytes::from(index);
    let segment = decode_segment(&mut index, version_of(&sector)).filter(|segment| {
        index.is_empty() && (segment.header.salt, segment.header.number, segment.end) == (salt, run.last, end)
    });
    Ok(segment.map(|segment| segment.compacted(run)))
}
