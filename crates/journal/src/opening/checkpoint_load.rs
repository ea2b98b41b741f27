//! Finding the newest checkpoint that can be read.

use crate::disks::disk::{Disk, DiskFile, read_full_at};
use crate::error::OpenError;
use crate::keys::{KeyId, Keys};
use crate::layout::checkpoint_bytes::{
    BodyExtent, Content, FRONT_BYTES, decode_header, decode_segments, decode_table, table_bytes,
};
use crate::layout::format::{HeaderFault, SECTOR_BYTES, checkpoint_name, checkpoint_of};
use crate::opening::body::Body;
use crate::opening::recovery::lacking;
use crate::opening::states::{StoredCheckpoint, StoredState};
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
    /// The encryption of its states.
    pub key: Option<KeyId>,
    /// Newer ones that cannot be read, newest first.
    pub skipped: Vec<PathBuf>,
    /// The system refuses to read the newest of them that it does: it may be good, and this one too
    /// old to be used.
    pub refused: Option<OpenError>,
    pub last_sequence: u64,
    /// The one before the newest readable, unread except for the encryption of its states: the next
    /// start may need it.
    pub before: Option<(u64, Option<KeyId>)>,
    /// Names of those that may be good, as the system refuses to read them.
    pub doubtful: Vec<String>,
    /// Names of files that no recovery needs.
    pub superfluous: Vec<String>,
}

impl Loaded {
    /// The contents of the checkpoint.
    pub(crate) fn content(&self) -> Option<&Content<StoredState>> {
        self.checkpoint.as_ref().map(|(content, _)| content)
    }

    /// The states in it.
    pub(crate) fn states(&self) -> impl Iterator<Item = StoredCheckpoint> {
        let entries = self.content().map_or(&[][..], |content| &content.partitions);
        entries.iter().filter_map(|entry| {
            let (partition, state) = (entry.partition, entry.state.clone());
            entry.position.map(|position| StoredCheckpoint { partition, position, state })
        })
    }

    /// The segments that it lists.
    pub(crate) fn segments(&self) -> &[Segment] {
        self.checkpoint.as_ref().map_or(&[], |(_, segments)| segments)
    }
}

/// Reads checkpoints, newest first, until one is good.
///
/// # Errors
/// [`OpenError::UnknownVersion`], [`OpenError::KeyUnknown`] and [`OpenError::InTheClear`]: one that
/// cannot be read for another reason is skipped. [`OpenError::Io`]: there is no good one, and one
/// that the system refuses to read may be: nothing is known to be damaged.
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
        match error.kind() {
            // A checkpoint that differs from read to read cannot be used.
            io::ErrorKind::InvalidData => HeaderFault::Invalid.into(),
            _ => Unreadable::Io(error),
        }
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
    if extent.sequence != sequence || file.length()?.saturating_sub(SECTOR_BYTES) < extent.bytes {
        return Err(HeaderFault::Invalid.into());
    }
    let body = there(Body::check(file, &disk.path(name), &extent)?)?;
    let key = extent.cipher.map(|cipher| cipher.key);
    if keys.lacks(key) {
        return Err(Unreadable::Lacking(key));
    }
    Ok((parse(&body, &extent, keys)?, key))
}

/// Its contents; states stay encrypted if their key is not known.
fn parse(body: &Body, extent: &BodyExtent, keys: &Keys) -> Result<Parsed, Unreadable> {
    let table_bytes = there(table_bytes(&body.read(0..FRONT_BYTES)?))?;
    let table = body.read(0..table_bytes)?;
    let (content, segment_count) = there(decode_table(extent.sequence, table.into()))?;
    let states = content.partitions.iter().try_fold(0, |sum: usize, entry| sum.checked_add(entry.state));
    let begin = states.and_then(|states| body.byte_length().checked_sub(states));
    let mut begin = there(begin.filter(|begin| table_bytes <= *begin))?;
    let segments = body.read(table_bytes..begin)?;
    let segments = there(decode_segments(segments.into(), segment_count, content.end.segment))?;
    let mut opener = extent.cipher.and_then(|cipher| cipher.opener(keys));
    let content = content.with_states(|name, bytes| {
        let sealed = opener.as_mut().map(|opener| opener.next(name, bytes));
        let state = StoredState::new(body.clone(), begin..begin + bytes, sealed);
        begin += bytes;
        there(state.is_sound()?.then_some(state))
    })?;
    Ok((content, segments))
}

/// The parts that must exist and be consistent.
fn there<T>(found: Option<T>) -> Result<T, Unreadable> {
    found.ok_or(Unreadable::Fault(HeaderFault::Invalid))
}
