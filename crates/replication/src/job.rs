//! Work for other threads, which need not hold up the next group: the orders and their results.

use postroad_journal::{
    CheckpointError, CheckpointRequest, CompactedSegment, CompactionError, CompactionRequest, Damage, Disk,
    IndexError, IndexRequest, NearRecords, NearRequest, Pace, PrepareError, PreparedSegment, RemovalRequest,
    SegmentNumber, SegmentRequest, SortRequest, Sorting, Walk, WrittenCheckpoint, WrittenIndex,
};
use postroad_model::PartitionId;

/// Work that another thread may do while the next group is written.
#[derive(Debug)]
pub enum Job<F> {
    /// Make the next segment ready.
    Segment(SegmentRequest),
    /// Write the index of a segment that is complete.
    Index(IndexRequest),
    /// Write a checkpoint.
    Checkpoint(CheckpointRequest),
    /// Read records.
    Read {
        /// Whose log.
        partition: PartitionId,
        /// Which ones, and where they are.
        request: NearRequest<F>,
    },
    /// Write the live records of some segments into one.
    Compaction(CompactionRequest<F>),
    /// Copy the live records of a segment in the order of their addresses.
    Sort(SortRequest<F>),
    /// Remove files that nothing refers to.
    Removal(RemovalRequest),
    /// Read a sealed segment, to find damage before its records are needed.
    Scrub(Walk<F>),
}

/// See [`Job::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Reading bodies back.
    Read,
    /// Making the next segment, and writing data of the last one that need not stay in memory.
    Segment,
    /// Writing a checkpoint.
    Checkpoint,
    /// Copying a segment in the order of its addresses.
    Sort,
    /// Everything that may take as long as it likes.
    Background,
}

/// A job's result, to be given to [`crate::LogWriter::finish`].
#[derive(Debug)]
pub enum JobDone<F> {
    /// A segment, or why there is none.
    Segment(Result<PreparedSegment<F>, PrepareError>),
    /// The index of a segment is written, or why not.
    Index(Result<WrittenIndex, IndexError>),
    /// A checkpoint, or why there is none.
    Checkpoint(Result<WrittenCheckpoint, CheckpointError>),
    /// Records, or why they cannot be had.
    Read {
        /// Whose log.
        partition: PartitionId,
        /// Its result.
        found: NearRecords<F>,
    },
    /// A compacted segment, or why there is none.
    Compaction(Result<CompactedSegment<F>, CompactionError>),
    /// A segment was copied in the order of its addresses, or not.
    Sort(Sorting),
    /// Files are gone.
    Removal,
    /// The damage found in a segment, or why it could not be read.
    Scrub {
        /// Which one.
        number: SegmentNumber,
        /// Which life of it.
        salt: u64,
        /// Damaged places.
        found: Result<Vec<Damage>, String>,
    },
}

impl<F: postroad_journal::DiskFile> Job<F> {
    /// The kind of work. One kind must not wait for another: readers wait for bodies, the journal
    /// for its next segment, a full disk for checkpoints; compaction has no waiting client.
    pub fn kind(&self) -> JobKind {
        match self {
            Job::Read { .. } => JobKind::Read,
            Job::Segment(_) | Job::Index(_) => JobKind::Segment,
            Job::Checkpoint(_) => JobKind::Checkpoint,
            Job::Sort(_) => JobKind::Sort,
            Job::Compaction(_) | Job::Removal(_) | Job::Scrub(_) => JobKind::Background,
        }
    }

    /// Whether it would be of more use sooner, so that it is not to rest.
    pub fn is_late(&self) -> bool {
        matches!(self, Job::Sort(request) if request.is_late())
    }

    /// Does the work; one that takes long calls `pace` after each step, to rest as long as it sees
    /// fit.
    pub fn run<D: Disk<File = F>>(self, disk: &D, pace: &mut dyn Pace) -> JobDone<F> {
        match self {
            Job::Compaction(request) => JobDone::Compaction(request.run(disk, pace)),
            Job::Sort(request) => JobDone::Sort(request.run(disk, pace)),
            Job::Removal(request) => {
                request.run(disk);
                JobDone::Removal
            }
            Job::Scrub(walk) => {
                let found = walk.run(pace, &mut |_| ()).map_err(|error| error.to_string());
                JobDone::Scrub { number: walk.number(), salt: walk.salt(), found }
            }
            Job::Segment(request) => JobDone::Segment(request.prepare(disk, pace)),
            Job::Index(request) => JobDone::Index(request.write(disk)),
            Job::Checkpoint(request) => JobDone::Checkpoint(request.write(disk, pace)),
            Job::Read { partition, request } => JobDone::Read { partition, found: request.run(disk) },
        }
    }
}
