//! The counters of the log's writer.

/// Counts since the start; they only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Groups, each with one write.
    pub groups: u64,
    /// Syncs: one for each group, but for those of destinations that do without.
    pub syncs: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Records of the largest group.
    pub records_max: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Runs of segments that were compacted.
    pub compactions: u64,
    /// Segments, checkpoints, compactions, indexes and sorted copies that failed.
    pub failed_jobs: u64,
}
