//! Compacted segments on the disk: the live records of a run of segments.
//!
//! ```text
//! file  = header sector | groups, as in a segment | index: the segment's entry as in a checkpoint
//! name  = <first segment of the run>-<last one>-<checkpoint>.compacted
//! ```
//! A file of this name takes the place of all segments of the run, whether their files are still
//! there or not; but not if it is damaged, and they are.

use crate::disks::disk::Disk;
use crate::error::OpenError;
use crate::layout::format::{SegmentNumber, compacted_of};
use crate::retaining::index_file::{Form, Unreadable, read};
use crate::writing::segment::Segment;
use std::cmp::Reverse;
use std::path::PathBuf;

/// Name of a compacted segment that is not complete.
pub(crate) const UNFINISHED: &str = "unfinished-compaction";

/// A run of segments, by the numbers of its ends, and the part of it that was kept.
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

/// Reads the index of every compacted segment. Of two whose runs overlap, the longer one was made
/// of the other: the shorter one is left out. So is one that is damaged while all of `listed`, the
/// checkpoint's segments, that it was to take the place of are there: no confirmed record needs it.
/// All names that no recovery needs are in the second list.
///
/// # Errors
/// [`OpenError::UnknownVersion`]; [`OpenError::Io`] if one cannot be opened or read at all.
pub(crate) fn load<D: Disk>(
    disk: &D,
    names: &[String],
    listed: &[Segment],
) -> Result<(Vec<Compacted>, Vec<String>), OpenError> {
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
        let segment = match read(disk, name, Form::Compacted(run)) {
            // A reader that needs the index reads it again.
            Ok(segment) => segment.map(|segment| Segment { index: None, ..segment }),
            Err(Unreadable::Version(found)) => return Err(OpenError::UnknownVersion { file: path, found }),
            Err(Unreadable::Io(source)) => return Err(OpenError::Io { file: path, source }),
        };
        if segment.is_none() && is_replaceable(run, name, names, listed) {
            superfluous.push(name.clone());
            continue;
        }
        found.push(Compacted { run, name: name.clone(), path, segment });
    }
    Ok((found, superfluous))
}

/// Whether all that the file was made of is there.
fn is_replaceable(run: Run, name: &String, names: &[String], listed: &[Segment]) -> bool {
    let mut sources = listed.iter().filter(|segment| run.contains(segment.header.number)).peekable();
    let is_there = |source: &Segment| {
        let file_name = source.file_name();
        source.live() == 0 || file_name != *name && names.contains(&file_name)
    };
    sources.peek().is_some() && sources.all(is_there)
}
