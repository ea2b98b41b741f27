//! Records that the system refused to read: out of descriptors, or of memory, or by a device that
//! is reset. That may pass, while a consumer of a failed read does without the record until the
//! next start. So the reads are repeated after pauses.

use std::collections::BTreeMap;

use bytes::Bytes;
use postroad_journal::ReadError;
use postroad_model::{PartitionId, Position};

/// Number of reads of a record before the refusal is reported: with the broker's pauses two
/// seconds.
pub(crate) const READS_MAX: u32 = 8;

/// See the head of this file. As many at most as partitions ask for at once.
#[derive(Default)]
pub(crate) struct Unread(BTreeMap<(PartitionId, Position), Refused>);

#[derive(Default)]
struct Refused {
    reads: u32,
    /// To be asked for again.
    waits: bool,
}

impl Unread {
    /// Whether the result of a read is not to be reported yet.
    pub(crate) fn puts_off(
        &mut self,
        partition: PartitionId,
        position: Position,
        record: &Result<Bytes, ReadError>,
    ) -> bool {
        if !matches!(record, Err(ReadError::Io { .. })) {
            self.0.remove(&(partition, position));
            return false;
        }
        let refused = self.0.entry((partition, position)).or_default();
        refused.reads += 1;
        refused.waits = refused.reads < READS_MAX;
        if refused.waits {
            return true;
        }
        self.0.remove(&(partition, position));
        false
    }

    /// Whether any waits for its pause to be over.
    pub(crate) fn waits(&self) -> bool {
        self.0.values().any(|refused| refused.waits)
    }

    /// Those that are to be asked for now.
    pub(crate) fn take(&mut self) -> Vec<(PartitionId, Position)> {
        let waiting = self.0.iter_mut().filter(|(_, refused)| refused.waits);
        waiting
            .map(|(record, refused)| {
                refused.waits = false;
                *record
            })
            .collect()
    }
}
