//! Which segments are compacted, and when: see docs/decisions/0008-compacted-segments.md.
//!
//! ```text
//!  a checkpoint begins ──▶ plan: sparse segments in runs, and which of their records are live in that checkpoint
//!  both kept checkpoints are that one or newer ──▶ ripe: other records are needed by no recovery
//!  order ──▶ another thread writes the new file and gives it its name ──▶ the table is changed, old files go
//! ```

use crate::disks::disk::Disk;
use crate::error::CompactionError;
use crate::layout::format::SegmentNumber;
use crate::retaining::checkpoint::Summary;
use crate::retaining::compacted::Run;
use crate::retaining::compactor::{CompactedSegment, CompactionRequest, Source};
use crate::retaining::live::LiveSet;
use crate::writing::journal::Journal;
use crate::writing::segment::Segment;
use postroad_model::PartitionId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a record besides its bodies: its place in the table, its headers, padding. An estimate.
const RECORD_OVERHEAD_BYTES: u64 = 160;

/// Of the payload of a record and which of its messages are needed, a payload with no more than
/// these, and how many it has; `None`: it stays as it is.
pub type Shorten = fn(&[u8], &dyn Fn(u32) -> bool) -> Option<(u32, Vec<u8>)>;

/// A compaction that wins less than this part of a segment is not worth a file.
const GAIN_SHARE_MIN: u64 = 64;

/// While the disk is short of space a compaction takes no more than this number of segments at a
/// time: each step frees space soon, and the space stays free should the power fail.
const SHORT_TAKEN_SEGMENTS: u64 = 4;

/// When this multiple of [`crate::Options::checkpoint_bytes`] was released since the last
/// checkpoint, one is due: segments wait for checkpoints before they are recycled or compacted, and
/// consumers of large messages write little.
pub(crate) const RELEASED_SHARE: u64 = 4;

/// Planned, running and left-over compactions.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    plan: Option<Plan>,
    /// Segments that are being read.
    busy: BTreeSet<SegmentNumber>,
    /// Segments of which a compaction failed for another reason than space.
    backoffs: BTreeMap<SegmentNumber, Backoff>,
    /// The last attempt failed: no checkpoint is made only for the next one.
    pub failed: bool,
    /// Names of files that were replaced.
    pub obsolete: Vec<String>,
    /// The needed part of a record; without it all of it.
    shorten: Option<Shorten>,
    /// Bytes of messages released since the last checkpoint.
    pub released_bytes: u64,
    /// A checkpoint has looked for sparse segments since the start.
    looked: bool,
}

/// A compaction that failed is tried again, after twice as many checkpoints each time.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    failures: u32,
    /// Not planned with an earlier checkpoint.
    until: u64,
}

/// The longest pause is two to this power of checkpoints: at 64 MiB to each, every 4 GiB that are
/// written.
const FAILURES_COUNTED_MAX: u32 = 6;

/// Compactions that may begin once both kept checkpoints are `sequence` or newer.
#[derive(Debug)]
struct Plan {
    sequence: u64,
    batches: VecDeque<Batch>,
}

/// Segments that lie one after the other, to become one.
#[derive(Debug)]
struct Batch {
    segments: Vec<SegmentNumber>,
    checkpoint: u64,
    /// The live records of each partition.
    keep: BTreeMap<PartitionId, LiveSet>,
    /// The space it wins.
    gain_bytes: u64,
}

/// Files that nothing refers to any more; handles on them stay good.
#[derive(Debug)]
#[must_use = "the files take space until they are removed"]
pub struct RemovalRequest(Vec<String>);

impl RemovalRequest {
    /// Removes them. Files that cannot be removed now are found by the next start.
    pub fn run<D: Disk>(self, disk: &D) {
        for name in self.0 {
            let _ = disk.remove(&name);
        }
    }
}

impl Compactions {
    pub(crate) fn after_start(obsolete: Vec<String>) -> Compactions {
        Compactions { obsolete, ..Compactions::default() }
    }

    pub(crate) fn is_busy(&self, number: SegmentNumber) -> bool {
        self.busy.contains(&number)
    }

    fn set_back(&mut self, number: SegmentNumber, checkpoint: u64) {
        let backoff = self.backoffs.entry(number).or_default();
        backoff.failures = (backoff.failures + 1).min(FAILURES_COUNTED_MAX);
        backoff.until = checkpoint + (1 << backoff.failures);
    }

    /// Whether something is under way, or will be without a further checkpoint once `oldest` is the
    /// older one kept.
    pub(crate) fn goes_on(&self, oldest: Option<u64>) -> bool {
        !self.busy.is_empty() || self.left().is_some_and(|plan| plan.is_ripe(oldest))
    }

    fn waits_for_checkpoint(&self, oldest: Option<u64>) -> bool {
        !self.failed && self.left().is_some_and(|plan| !plan.is_ripe(oldest))
    }

    /// The plan, if there is something left of it.
    fn left(&self) -> Option<&Plan> {
        self.plan.as_ref().filter(|plan| !plan.batches.is_empty())
    }
}

impl Plan {
    fn is_ripe(&self, oldest: Option<u64>) -> bool {
        oldest.is_some_and(|oldest| self.sequence <= oldest)
    }
}

impl Segment {
    /// The size of its live messages in a file of their own; an estimate.
    fn needed_bytes(&self) -> u64 {
        let needed =
            |range: &crate::writing::segment::Range| range.live_bytes + range.live * RECORD_OVERHEAD_BYTES;
        self.ranges.values().map(needed).sum()
    }
}

impl<D: Disk> Journal<D> {
    /// Compaction writes the result of `shorten` in place of records.
    pub fn shorten_by(&mut self, shorten: Shorten) {
        self.compactions.shorten = Some(shorten);
    }

    /// Fixes the segments that may be compacted once the checkpoint of this number is the older one
    /// kept.
    pub(crate) fn plan_compaction(&mut self, sequence: u64, summary: &Summary) {
        self.compactions.looked = true;
        if self.compactions.left().is_some() || !self.compactions.busy.is_empty() {
            return;
        }
        let Compactions { backoffs, .. } = &mut self.compactions;
        backoffs.retain(|number, _| self.segments.contains(*number));
        let mut batches = self.batches(sequence, summary);
        if self.room.short {
            batches.make_contiguous().sort_by_key(|batch| Reverse(batch.gain_bytes));
        }
        self.compactions.plan = (!batches.is_empty()).then_some(Plan { sequence, batches });
    }

    /// Runs of neighbours, each of which wins at least as many bytes as it has to write.
    /// Those that are encrypted otherwise than they would be now move in any case.
    fn batches(&self, checkpoint: u64, summary: &Summary) -> VecDeque<Batch> {
        let mut batches = VecDeque::new();
        let mut run: Vec<&Segment> = Vec::new();
        let (mut needed, mut taken) = (0, 0);
        let taken_max =
            if self.room.short { SHORT_TAKEN_SEGMENTS * self.options.segment_bytes } else { u64::MAX };
        for segment in self.segments.iter() {
            let (bytes, capacity) = (segment.needed_bytes(), segment.header.capacity_bytes);
            let fits = needed + bytes <= self.options.segment_bytes && taken + capacity <= taken_max;
            let moves = self.may_move(segment, checkpoint, summary)
                && (self.is_sparse(segment) || segment.is_outdated(&self.keys));
            if !moves || !fits {
                batches.extend(self.batch(checkpoint, &std::mem::take(&mut run)));
                (needed, taken) = (0, 0);
            }
            if moves {
                run.push(segment);
                (needed, taken) = (needed + bytes, taken + capacity);
            }
        }
        batches.extend(self.batch(checkpoint, &run));
        batches
    }

    fn batch(&self, checkpoint: u64, run: &[&Segment]) -> Option<Batch> {
        let needed: u64 = run.iter().map(|segment| segment.needed_bytes()).sum();
        let taken: u64 = run.iter().map(|segment| segment.header.capacity_bytes).sum();
        let gain = taken.saturating_sub(needed);
        // Without anything live they are recycled as they are.
        let worth = needed.max(self.options.segment_bytes / GAIN_SHARE_MIN) <= gain;
        if needed == 0 || !(worth || run.iter().any(|segment| segment.is_outdated(&self.keys))) {
            return None;
        }
        let mut keep: BTreeMap<PartitionId, LiveSet> = BTreeMap::new();
        let partitions: BTreeSet<PartitionId> =
            run.iter().flat_map(|segment| segment.ranges.keys().copied()).collect();
        for partition in partitions {
            let mut ranges = run.iter().filter_map(|segment| segment.ranges.get(&partition));
            let Some(first) = ranges.next() else { continue };
            let last = ranges.next_back().unwrap_or(first);
            let live = self.segments.live_between(partition, first.first, last.last);
            if !live.is_empty() {
                keep.insert(partition, live);
            }
        }
        let segments = run.iter().map(|segment| segment.header.number).collect();
        Some(Batch { segments, checkpoint, keep, gain_bytes: gain })
    }

    /// Whether less than half of it is needed.
    fn is_sparse(&self, segment: &Segment) -> bool {
        2 * segment.needed_bytes() <= self.options.segment_bytes
    }

    /// Whether recovery from this checkpoint and all later ones needs only live records of the
    /// segment.
    fn may_move(&self, segment: &Segment, checkpoint: u64, summary: &Summary) -> bool {
        let number = segment.header.number;
        let known = |partition: &PartitionId| {
            !self.stopped.contains_key(partition) && !self.segments.is_uncounted(*partition)
        };
        number != self.current.header.number
            && summary.is_past(segment)
            && !self.segments.keeps(segment)
            && segment.ranges.keys().all(known)
            && self.compactions.backoffs.get(&number).is_none_or(|backoff| backoff.until <= checkpoint)
    }

    /// The order for the next compaction, if one is due and none is under way. Ask after every
    /// checkpoint and every compaction.
    pub fn wants_compaction(&mut self) -> Option<CompactionRequest<D::File>> {
        if !self.compactions.busy.is_empty() || self.failed {
            return None;
        }
        let oldest = self.checkpoints.oldest_of_two()?;
        loop {
            let plan = self.compactions.plan.as_mut().filter(|plan| plan.sequence <= oldest)?;
            let batch = plan.batches.pop_front()?;
            if let Some(request) = self.request(batch) {
                self.compactions.busy =
                    request.sources.iter().map(|source| source.segment.header.number).collect();
                return Some(request);
            }
        }
    }

    /// `None` if everything has died since, or a file cannot be opened.
    fn request(&mut self, batch: Batch) -> Option<CompactionRequest<D::File>> {
        let left: Vec<Segment> =
            batch.segments.iter().filter_map(|&number| self.segments.get(number).cloned()).collect();
        if left.iter().all(|segment| segment.live() == 0) {
            return None;
        }
        let (first, last) = (left.first()?.first_number(), left.last()?.header.number);
        let run = Run { first, last, checkpoint: batch.checkpoint };
        let mut sources = Vec::with_capacity(left.len());
        for segment in left {
            let path = self.disk.path(&segment.file_name());
            let Ok(file) = self.open_segment(&segment.file_name(), None) else {
                // Its neighbours need not wait for it.
                self.compactions.set_back(segment.header.number, self.checkpoints.last_sequence);
                return None;
            };
            sources.push(Source { file, path, segment });
        }
        let (keep, keys, hurries) = (batch.keep, self.keys.clone(), self.room.short);
        Some(CompactionRequest { run, sources, keep, keys, shorten: self.compactions.shorten, hurries })
    }

    /// Takes the answer to [`Journal::wants_compaction`], good or bad.
    ///
    /// # Errors
    /// The one given: nothing has changed.
    pub fn finish_compaction(
        &mut self,
        answer: Result<CompactedSegment<D::File>, CompactionError>,
    ) -> Result<(), CompactionError> {
        let busy = std::mem::take(&mut self.compactions.busy);
        self.compactions.failed = answer.is_err();
        let last_sequence = self.checkpoints.last_sequence;
        let CompactedSegment { segment, file, replaced } = answer.inspect_err(|error| {
            if !error.is_full() {
                busy.into_iter().for_each(|number| self.compactions.set_back(number, last_sequence));
            }
        })?;
        let mut segment = Segment { index: None, ..segment };
        for range in segment.ranges.values_mut() {
            (range.live, range.live_bytes) = (0, 0);
        }
        for number in replaced {
            let Some(old) = self.segments.remove(number) else { continue };
            for (partition, range) in &old.ranges {
                if let Some(new) = segment.ranges.get_mut(partition) {
                    new.live += range.live;
                    new.live_bytes += range.live_bytes;
                }
            }
            self.forget(number);
            self.compactions.obsolete.push(old.file_name());
            self.compactions.obsolete.extend(old.index_name());
        }
        self.handles.keep(segment.header.number, std::sync::Arc::new(file));
        self.segments.insert(segment);
        self.rekeying.progress();
        self.sorted.wake();
        self.recycle_dead();
        Ok(())
    }

    /// Files to be removed, on whatever thread; `None` if there are none.
    pub fn wants_removal(&mut self) -> Option<RemovalRequest> {
        self.drop_copies_for_room();
        let names = std::mem::take(&mut self.compactions.obsolete);
        (!names.is_empty()).then_some(RemovalRequest(names))
    }

    /// Whether a checkpoint is due for released bytes: see [`RELEASED_SHARE`].
    pub(crate) fn released_much(&self) -> bool {
        RELEASED_SHARE * self.options.checkpoint_bytes <= self.compactions.released_bytes
    }

    /// Whether a checkpoint brings a compaction nearer. After a start it is not known yet whether
    /// there is one.
    pub(crate) fn checkpoint_compacts(&self) -> bool {
        let current = self.current.header.number;
        let is_candidate = |segment: &Segment| {
            let idle = segment.header.number != current && !self.segments.keeps(segment);
            idle && segment.live() != 0 && self.is_sparse(segment)
        };
        self.compactions.waits_for_checkpoint(self.checkpoints.oldest_of_two())
            || !self.compactions.looked && self.segments.iter().any(is_candidate)
    }
}
