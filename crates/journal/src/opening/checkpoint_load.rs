//! Finding the newest checkpoint that can be read.

use crate::disks::disk::{Disk, DiskFile, read_full_at};
use crate::error::OpenError;
use crate::keys::{KeyId, Keys};
use crate::layout::checkpoint_bytes::{
    BodyExtent, Content, FRONT_BYTES, decode_header, decode_segments, decode_table, table_bytes,
};
use crate::layout::format::{HeaderFault, SECTOR_BYTES, checkpoint_name, checkpoint_of};
use crate::opening::recovery::lacking;
use crate::opening::states::{BodyScan, StoredState};
use crate::retaining::checkpoint::UNFINISHED;
use crate::writing::segment::Segment;
use std::io;
use std::path::PathBuf;

/// A checkpoint, and the segments before it.
pub(crate) type Parsed = (Content<StoredState>, Vec<Segment>);

/// The newest readable checkpoint, and the files around it.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub checkpoint: Option<Parsed>,
    /// What its states are encrypted with.
    pub key: Option<KeyId>,
    /// Newer ones that cannot be read, newest first.
    pub skipped: Vec<PathBuf>,
    /// The system refuses to read the newest of them that it does: it may be good, and this one too old to be used.
    pub refused: Option<OpenError>,
    pub last_sequence: u64,
    /// The one before the newest readable, unread but for what its states are encrypted with: the next start may need it.
    pub before: Option<(u64, Option<KeyId>)>,
    /// Names of those that may be good, as the system refuses to read them.
    pub doubtful: Vec<String>,
    /// Names of files that no recovery needs.
    pub superfluous: Vec<String>,
}

impl Loaded {
    /// What the checkpoint says.
    pub(crate) fn content(&self) -> Option<&Content<StoredState>> {
        self.checkpoint.as_ref().map(|(content, _)| content)
    }

    /// The segments that it lists.
    pub(crate) fn segments(&self) -> &[Segment] {
        self.checkpoint.as_ref().map_or(&[], |(_, segments)| segments)
    }
}

/// Reads checkpoints, newest first, until one is good.
///
/// # Errors
/// [`OpenError::UnknownVersion`], [`OpenError::KeyUnknown`] and [`OpenError::InTheClear`]: one that cannot be read for another reason is
/// skipped. [`OpenError::Io`]: there is no good one, and one that the system refuses to read may be: nothing is known to be damaged.
pub(crate) fn load<D: Disk>(disk: &D, names: &[String], keys: &Keys) -> Result<Loaded, OpenError> {
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| checkpoint_of(name)).collect();
    sequences.sort_unstable_by(|a, b| b.cmp(a));
    let mut loaded = Loaded { last_sequence: sequences.first().copied().unwrap_or(0), ..Loaded::default() };
    loaded.superfluous.extend(names.iter().filter(|name| *name == UNFINISHED).cloned());
    for sequence in sequences {
        let name = checkpoint_name(sequence);
        if loaded.checkpoint.is_some() {
            match loaded.before {
                None => match read_header(disk, &name) {
                    Err(Unreadable::Io(_)) => loaded.doubtful.push(name),
                    header => {
                        let key = header.ok().and_then(|(_, extent)| extent.cipher);
                        loaded.before = Some((sequence, key.map(|cipher| cipher.key)));
                    }
                },
                Some(_) => loaded.superfluous.push(name),
            }
            continue;
        }
        match read(disk, &name, sequence, keys) {
            Ok((checkpoint, key)) => (loaded.checkpoint, loaded.key) = (Some(checkpoint), key),
            Err(Unreadable::Fault(HeaderFault::Version(found))) => {
                return Err(OpenError::UnknownVersion { file: disk.path(&name), found });
            }
            Err(Unreadable::Lacking(key)) => return Err(lacking(disk.path(&name), key, keys)),
            Err(unreadable) => {
                loaded.skipped.push(disk.path(&name));
                if let Unreadable::Io(source) = unreadable {
                    loaded.refused.get_or_insert(OpenError::Io { file: disk.path(&name), source });
                    loaded.doubtful.push(name);
                } else {
                    loaded.superfluous.push(name);
                }
            }
        }
    }
    match loaded.refused.take_if(|_| loaded.checkpoint.is_none()) {
        Some(refused) => Err(refused),
        None => Ok(loaded),
    }
}

enum Unreadable {
    Fault(HeaderFault),
    /// The system refuses.
    Io(io::Error),
    /// This key; or none is not enough.
    Lacking(Option<KeyId>),
}

impl From<HeaderFault> for Unreadable {
    fn from(fault: HeaderFault) -> Unreadable {
        Unreadable::Fault(fault)
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Unreadable {
        Unreadable::Io(error)
    }
}

fn read_header<D: Disk>(disk: &D, name: &str) -> Result<(D::File, BodyExtent), Unreadable> {
    let file = disk.open(name)?;
    let mut sector = [0; SECTOR_BYTES as usize];
    read_full_at(&file, &mut sector, 0)?;
    let extent = decode_header(&sector)?;
    Ok((file, extent))
}

fn read<D: Disk>(
    disk: &D,
    name: &str,
    sequence: u64,
    keys: &Keys,
) -> Result<(Parsed, Option<KeyId>), Unreadable> {
    let (file, extent) = read_header(disk, name)?;
    let length = file.length()?;
    if extent.sequence != sequence || length.saturating_sub(SECTOR_BYTES) < extent.bytes {
        return Err(HeaderFault::Invalid.into());
    }
    let opener = extent.cipher.and_then(|cipher| cipher.opener(keys));
    let mut body = BodyScan::begin(file, disk.path(name), opener);
    let parsed = read_body(&mut body, &extent)?;
    if body.checksum() != extent.checksum {
        return Err(HeaderFault::Invalid.into());
    }
    let key = extent.cipher.map(|cipher| cipher.key);
    if keys.lacks(key) {
        return Err(Unreadable::Lacking(key));
    }
    Ok((parsed, key))
}

/// Nothing of it is known to be right before its checksum is.
fn read_body(body: &mut BodyScan, extent: &BodyExtent) -> Result<Parsed, Unreadable> {
    let body_bytes = usize::try_from(extent.bytes).map_err(|_| HeaderFault::Invalid)?;
    let front = there(body.bytes(FRONT_BYTES)?)?;
    let table_bytes = there(table_bytes(&front).filter(|bytes| *bytes <= body_bytes))?;
    let partitions = there(body.bytes(table_bytes - FRONT_BYTES)?)?;
    let table = [front, partitions].concat().into();
    let (content, segment_count) = there(decode_table(extent.sequence, table))?;
    let states = content.partitions.iter().try_fold(0, |sum: usize, entry| sum.checked_add(entry.state));
    let segment_bytes = states.and_then(|states| (body_bytes - table_bytes).checked_sub(states));
    let segments = there(body.bytes(there(segment_bytes)?)?)?;
    let segments = there(decode_segments(segments, segment_count, content.end.segment, extent.version))?;
    let content = content.with_states(|name, bytes| there(body.state(name, bytes)?))?;
    Ok((content, segments))
}

/// What should be there, and make sense.
fn there<T>(found: Option<T>) -> Result<T, Unreadable> {
    found.ok_or(Unreadable::Fault(HeaderFault::Invalid))
}
