//! The group that is filling: how many records it has, and where it ends.

use postroad_journal::{Disk, Record};
use postroad_model::{PartitionId, Position};

use super::LogWriter;

/// Records that wait to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// How many there are.
    pub records: u64,
    /// The last partition among those with records in the group, and its last record there: the end
    /// of the group, as it is reported.
    pub last: Option<(PartitionId, Position)>,
}

impl<D: Disk> LogWriter<D> {
    /// The records that wait to be written.
    pub fn gathered(&self) -> Gathered {
        let last = match self.partitions.len() {
            1 => self.filling.last().map(|record| (record.partition, record.position)),
            _ => self.filling.iter().map(|record| (record.partition, record.position)).max(),
        };
        Gathered { records: self.filling.len() as u64, last }
    }
}

/// An empty list with the old one's memory.
pub(super) fn recycle(mut group: Vec<Record>) -> Vec<Record> {
    group.clear();
    group
}
