//! Opening a journal: the newest readable checkpoint, then every durable group after it.

use crate::disks::disk::{Disk, DiskFile, overwrite, read_full_at, write_all_at};
use crate::error::{Damage, DamageKind, OpenError};
use crate::keys::{KeyId, Keys};
use crate::layout::checkpoint_bytes::Place;
use crate::layout::format::{
    FIRST_GROUP, GroupEnd, GroupNumber, SECTOR_BYTES, SegmentNumber, index_of, segment_name, segment_of,
    sorted_of,
};
use crate::opening::assembly::Assembly;
use crate::opening::chain::{self, Chain, Found, SCAN_STEP_BYTES, Stale};
use crate::opening::checkpoint_load::{self, Loaded};
use crate::opening::recovered::{LostSegment, Part, Recovered};
use crate::opening::reread::reread;
use crate::opening::verify::Verified;
use crate::reading::scan::Window;
use crate::retaining::compacted::{self, Compacted};
use crate::retaining::retention::Segments;
use crate::writing::journal::{Journal, Options};
use crate::writing::segment::Segment;
use postroad_model::PartitionId;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::Path;
use std::path::PathBuf;
use std::time::Instant;

/// Bytes of the last groups written again at a time.
const REWRITE_STEP_BYTES: usize = 1 << 20;

impl<D: Disk> Journal<D> {
    /// Opens the journal of a directory, or makes a new one in an empty directory. Reads the newest
    /// checkpoint and the later records, not the backlog; everything it reports is durable by then.
    ///
    /// # Errors
    /// [`OpenError::Damaged`]: promised records are gone and their partitions are unknown; where
    /// they are known, [`Recovered::damaged`] names them, and the journal serves the other
    /// partitions.
    /// [`OpenError::UnknownVersion`], [`OpenError::KeyUnknown`], [`OpenError::Io`]: nothing was
    /// changed, or nothing that matters.
    pub fn open(disk: D, options: Options) -> Result<(Journal<D>, Recovered<D::File>), OpenError> {
        Journal::open_with(disk, options, Keys::default(), &mut |_, _| ())
    }

    /// As [`Journal::open`], with keys: new records are encrypted with the current one. Reports to
    /// `watch` how many bytes of groups were verified, of how many at most: 0 before the first, and
    /// again after each group.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn open_with(
        disk: D,
        options: Options,
        keys: Keys,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<(Journal<D>, Recovered<D::File>), OpenError> {
        Journal::open_stopping(disk, options, keys, &BTreeMap::new(), watch)
    }

    /// As [`Journal::open_with`], with these partitions stopped in any case: records that they need
    /// cannot be read.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn open_stopping(
        disk: D,
        options: Options,
        keys: Keys,
        stopped: &BTreeMap<PartitionId, Damage>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<(Journal<D>, Recovered<D::File>), OpenError> {
        let began = Instant::now();
        let options = options.in_bounds();
        let directory_failed = |source| OpenError::Io { file: disk.path(""), source };
        let names = disk.list().map_err(directory_failed)?;
        let mut loaded = checkpoint_load::load(&disk, &names, &keys)?;
        let refused = loaded.refused.take();
        let mut numbers: BTreeSet<SegmentNumber> = names.iter().filter_map(|name| segment_of(name)).collect();
        let content = loaded.content();
        let start = content.map_or(Place::BEGINNING, |content| content.start);
        let end = content.map_or(GroupEnd::default(), |content| content.end);
        let (compacted, obsolete) = compacted::load(&disk, &names, loaded.segments())?;
        let found = chain::find(&disk, numbers.iter().copied().filter(|&number| start.segment <= number))?;
        let missing = |number| missing(&disk, &loaded, number);
        let verified = chain::link(found, start, end, missing)
            .and_then(|chain| verify(&disk, &loaded, &numbers, compacted, chain, &keys, watch));
        let (mut verified, mut unused, dead) = or_refused(verified, refused)?;
        for (partition, damage) in stopped {
            verified.damaged.entry(*partition).or_insert_with(|| damage.clone());
        }
        check_keys(&disk, &verified.segments, &keys)?;
        let indexes = names
            .iter()
            .filter(|name| index_of(name).is_some_and(|number| !verified.segments.has_file(number)));
        let (sorted, unsorted) = sorted_copies(&names, &verified.segments);
        let obsolete = obsolete.into_iter().chain(dead).chain(indexes.cloned()).chain(unsorted).collect();
        clear(&disk, &mut verified, &mut unused, &mut numbers)?;
        settle_tail(&verified)?;
        // Entries seen here may be those of a process that ended before it synced them.
        disk.sync_directory().map_err(directory_failed)?;
        let (journal, mut recovered) =
            Assembly { disk, options, keys, loaded, numbers, verified, unused, obsolete, sorted }
                .put_together()?;
        recovered.elapsed = began.elapsed();
        Ok((journal, recovered))
    }
}

/// The sorted copies of segments that are there, and the names of the others.
fn sorted_copies(names: &[String], segments: &Segments) -> (BTreeMap<SegmentNumber, u64>, Vec<String>) {
    let (mut sorted, mut superfluous) = (BTreeMap::new(), Vec::new());
    for name in names {
        let Some((number, salt)) = sorted_of(name) else { continue };
        if segments.get(number).is_some_and(|segment| segment.header.salt == salt) {
            sorted.insert(number, salt);
        } else {
            superfluous.push(name.clone());
        }
    }
    (sorted, superfluous)
}

/// Segment files that are not part of the journal.
pub(crate) type Unused<F> = BTreeMap<SegmentNumber, Found<F>>;

/// The result of verification; the third are compacted segments that the checkpoint does not need.
type Verification<F> = (Verified<F>, Unused<F>, Vec<String>);

/// Refuses a journal with records that are encrypted with a key that is not known, before anything
/// is changed.
fn check_keys<D: Disk>(disk: &D, segments: &Segments, keys: &Keys) -> Result<(), OpenError> {
    for segment in segments.iter() {
        let used = segment.keys.iter().filter(|(_, bytes)| **bytes > 0).map(|(key, _)| *key);
        if let Some(key) = used.into_iter().find(|&key| keys.lacks(key)) {
            return Err(lacking(disk.path(&segment.file_name()), key, keys));
        }
    }
    Ok(())
}

/// A file needs this key, which is not known; or none, which is not enough.
pub(crate) fn lacking(file: PathBuf, key: Option<KeyId>, keys: &Keys) -> OpenError {
    match key {
        Some(key) => OpenError::KeyUnknown { file, key, given: keys.ids().collect() },
        None => OpenError::InTheClear { file },
    }
}

/// The consequence of a missing segment.
fn missing<D: Disk>(disk: &D, loaded: &Loaded, number: SegmentNumber) -> Damage {
    let segment = || (disk.path(&segment_name(number)), DamageKind::SegmentMissing);
    let (file, kind) = match (&loaded.checkpoint, loaded.skipped.first()) {
        // Recycled, surely, as the checkpoint that cannot be read covers it.
        (None, Some(checkpoint)) => (checkpoint.clone(), DamageKind::Checkpoint),
        _ => segment(),
    };
    Damage { partition: None, file, offset: 0, kind }
}

/// Verifies all groups after the checkpoint.
fn verify<D: Disk>(
    disk: &D,
    loaded: &Loaded,
    numbers: &BTreeSet<SegmentNumber>,
    compacted: Vec<Compacted>,
    chain: Chain<D::File>,
    keys: &Keys,
    watch: &mut dyn FnMut(u64, u64),
) -> Result<Verification<D::File>, OpenError> {
    let content = loaded.content();
    let start = content.map_or(Place::BEGINNING, |content| content.start);
    let Sealed { segments, stopped, lost, dead } = sealed(disk, loaded, numbers, start.segment, compacted)?;
    let mut verified = Verified::new(segments, content, keys.clone());
    let tail = chain.links.last().map(|link| link.path.clone());
    let bytes: u64 = chain.links.iter().map(|link| link.bytes_max(start)).sum();
    watch(0, bytes);
    let mut before = 0;
    for link in chain.links {
        let bytes_max = link.bytes_max(start);
        verified.read(link, start, &mut |read| watch(before + read, bytes))?;
        before += bytes_max;
    }
    if let (Some(content), Some(tail)) = (content, tail) {
        verified.check_ends(content, &tail);
    }
    verified.lost = lost;
    for (partition, damage) in stopped {
        verified.damaged.entry(partition).or_insert(damage);
    }
    for unused in chain.unused.values() {
        unused.check_headerless(verified.last.number)?;
    }
    verified.torn = verified.torn.or(chain.torn);
    Ok((verified, chain.unused, dead))
}

/// The segments before the checkpoint's start, and the checkpoint's knowledge of those after that.
#[derive(Default)]
struct Sealed {
    segments: Segments,
    stopped: Vec<(PartitionId, Damage)>,
    lost: Vec<LostSegment>,
    /// Compacted segments that the checkpoint does not need.
    dead: Vec<String>,
}

fn sealed<D: Disk>(
    disk: &D,
    loaded: &Loaded,
    numbers: &BTreeSet<SegmentNumber>,
    start: SegmentNumber,
    mut compacted: Vec<Compacted>,
) -> Result<Sealed, OpenError> {
    let mut sealed = Sealed::default();
    let listed = || loaded.checkpoint.iter().flat_map(|(_, segments)| segments);
    compacted.retain(|found| found.run.last < start);
    for found in &compacted {
        let old: Vec<&Segment> =
            listed().filter(|segment| found.run.contains(segment.header.number)).collect();
        if old.is_empty() {
            sealed.dead.push(found.name.clone());
        } else if let Some(segment) = &found.segment {
            sealed.take_over(found, segment.clone(), &old);
        } else if let Some(segment) = as_listed(disk, found, &old)? {
            sealed.segments.restore(segment);
        } else if let Some(segment) = reread(disk, found)? {
            sealed.take_over(found, segment, &old);
        } else {
            // Later checkpoints list the same segments: they may yet be repaired.
            old.iter().for_each(|&old| sealed.segments.restore(old.clone()));
            sealed.lost.extend(LostSegment::among(&old, &found.path, DamageKind::SegmentHeader));
        }
    }
    for segment in listed() {
        let number = segment.header.number;
        if compacted.iter().any(|found| found.run.contains(number)) {
            continue;
        }
        let gone = number < start && !numbers.contains(&number);
        if gone {
            let path = disk.path(&segment_name(number));
            sealed.lost.extend(LostSegment::among(&[segment], &path, DamageKind::SegmentMissing));
        }
        if !gone || 0 < segment.live() {
            sealed.segments.restore(segment.clone());
        }
    }
    Ok(sealed)
}

impl Sealed {
    /// Takes a compacted segment in, with the live counts of those whose place it takes; partitions
    /// of which something live is not in it are stopped.
    fn take_over(&mut self, found: &Compacted, mut segment: Segment, old: &[&Segment]) {
        segment.ranges.values_mut().for_each(|range| range.live = 0);
        for (&partition, range) in old.iter().flat_map(|old| &old.ranges) {
            match segment.ranges.get_mut(&partition) {
                Some(new) => new.live += range.live,
                None if range.live == 0 => {}
                None => {
                    let (file, kind) = (found.path.clone(), DamageKind::SegmentMissing);
                    let damage = Damage { partition: Some(partition), file, offset: 0, kind };
                    self.stopped.push((partition, damage));
                }
            }
        }
        self.segments.restore(segment);
    }
}

/// A compacted segment whose header or index is damaged, as the checkpoint lists it, if that is so:
/// all that they say is there, and in the groups.
fn as_listed<D: Disk>(disk: &D, found: &Compacted, old: &[&Segment]) -> Result<Option<Segment>, OpenError> {
    let &[listed] = old else { return Ok(None) };
    let failed = |source| OpenError::Io { file: found.path.clone(), source };
    let (salt, number) = (listed.header.salt, listed.header.number);
    let file = disk.open(&found.name).map_err(failed)?;
    if number != found.run.last || file.length().map_err(failed)? < listed.end {
        return Ok(None);
    }
    let mut window = Window::new(&file, SCAN_STEP_BYTES, listed.end);
    let is_it = window.head(salt, FIRST_GROUP).map_err(failed)?.is_some()
        || window.search(Some(salt), FIRST_GROUP + 1, GroupNumber(0)).map_err(failed)?.is_some();
    Ok(is_it.then(|| Segment { index: None, ..listed.clone().compacted(found.run) }))
}

impl LostSegment {
    /// The consequence of a lost file with the live records of these segments, all before the
    /// checkpoint; `None` if there are none.
    fn among(segments: &[&Segment], file: &Path, kind: DamageKind) -> Option<LostSegment> {
        let messages = segments.iter().map(|segment| segment.live()).sum();
        let damage = Damage { partition: None, file: file.to_owned(), offset: 0, kind };
        (0 < messages).then_some(LostSegment { damage, messages })
    }
}

/// A file missing by a checkpoint is no damage as long as there may be a newer one, which the
/// system refuses to read at present; nor is an apparent torn tail, as that one may know that it
/// was promised.
fn or_refused<F>(
    verified: Result<Verification<F>, OpenError>,
    refused: Option<OpenError>,
) -> Result<Verification<F>, OpenError> {
    let is_damaged = match &verified {
        Ok((verified, ..)) => {
            !verified.damaged.is_empty() || !verified.lost.is_empty() || verified.torn.is_some()
        }
        Err(error) => matches!(error, OpenError::Damaged(_)),
    };
    refused.filter(|_| is_damaged).map_or(verified, Err)
}

/// Makes the data after the end of the journal void, before new groups come there.
fn clear<D: Disk>(
    disk: &D,
    verified: &mut Verified<D::File>,
    unused: &mut Unused<D::File>,
    numbers: &mut BTreeSet<SegmentNumber>,
) -> Result<(), OpenError> {
    // Their handles are let go: one of the segments may be the next to be used.
    for Stale { file, path, offset } in std::mem::take(&mut verified.stale) {
        overwrite(&*file, offset, &[0; SECTOR_BYTES as usize])
            .map_err(|source| OpenError::Io { file: path, source })?;
    }
    for (&number, found) in unused.iter_mut().filter(|(_, found)| found.begun) {
        let failed = |source| OpenError::Io { file: found.path.clone(), source };
        if number == SegmentNumber::FIRST {
            // By it recovery knows that a journal without groups has lost none.
            found.renew(disk.salt().map_err(failed)?)?;
        } else {
            // Its groups are newer than any: used again, and without a new header when the machine
            // ends, it would look like damage.
            disk.remove(&segment_name(number)).map_err(failed)?;
            numbers.remove(&number);
        }
    }
    unused.retain(|number, _| numbers.contains(number));
    Ok(())
}

/// Writes the last groups again and syncs them, from the first that may never have been: after a
/// crash of the process alone, or a failed sync before it, they may be in the page cache only, and
/// recovery has just read them from there. Their bytes stay the same, so that a torn write changes
/// nothing.
fn settle_tail<F: DiskFile>(verified: &Verified<F>) -> Result<(), OpenError> {
    match (verified.parts.last(), verified.settled) {
        (Some(tail), Some(start)) if tail.start < tail.end => {
            rewrite(tail, start).map_err(|source| OpenError::Io { file: tail.path.clone(), source })
        }
        _ => Ok(()),
    }
}

fn rewrite<F: DiskFile>(tail: &Part<F>, start: u64) -> io::Result<()> {
    let mut buffer = vec![0; REWRITE_STEP_BYTES.min((tail.end - start) as usize)];
    let mut offset = start;
    while offset < tail.end {
        let length = buffer.len().min((tail.end - offset) as usize);
        if read_full_at(&*tail.file, &mut buffer[..length], offset)? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_all_at(&*tail.file, &mut [IoSlice::new(&buffer[..length])], offset)?;
        offset += length as u64;
    }
    tail.file.sync()
}
