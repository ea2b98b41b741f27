//! A change of the key: data under another key than the current one is written again, piece by
//! piece.
//!
//! ```text
//!  a start with other keys ──▶ the current segment is left ──▶ checkpoints, until compaction may move the segments
//!  compaction writes live records with the current key ──▶ old files go ──▶ two more checkpoints: the former key is needed no more
//! ```
//! Turning encryption on, or off, is the same.

use crate::disks::disk::Disk;
use crate::keys::KeyId;
use crate::writing::journal::Journal;
use std::collections::BTreeMap;

/// Checkpoints that are made for keys alone, until something was written again: two until segments
/// may be moved, and two until both that are kept are of the new key. Segments that cannot be moved
/// wait for the regular ones.
const CHECKPOINTS_MAX: u32 = 4;

/// How far it is.
#[derive(Debug)]
pub(crate) struct Rekeying {
    checkpoints_left: u32,
}

impl Default for Rekeying {
    fn default() -> Rekeying {
        Rekeying { checkpoints_left: CHECKPOINTS_MAX }
    }
}

impl Rekeying {
    /// One was written; one that failed brought nothing nearer.
    pub(crate) fn checkpoint_written(&mut self) {
        self.checkpoints_left = self.checkpoints_left.saturating_sub(1);
    }

    /// Something was written again.
    pub(crate) fn progress(&mut self) {
        self.checkpoints_left = CHECKPOINTS_MAX;
    }
}

impl<D: Disk> Journal<D> {
    /// Whether the current segment takes no more groups, since something in it is to be encrypted
    /// by another key, or by none. The next group leaves it, and [`Journal::seal`] does.
    pub fn must_leave(&self) -> bool {
        let current = self.segments.get(self.current.header.number);
        current.is_some_and(|segment| segment.is_outdated(&self.keys))
    }

    /// Whether a checkpoint brings it nearer that nothing is encrypted otherwise than it would be
    /// now.
    pub(crate) fn rekeying_waits(&self) -> bool {
        let goes_on = self.compactions.goes_on(self.checkpoints.oldest_of_two());
        let may_try = 0 < self.rekeying.checkpoints_left;
        may_try && !goes_on && !self.must_leave() && self.has_outdated()
    }

    fn has_outdated(&self) -> bool {
        let outdated = |key| self.keys.target(key) != key;
        self.segments.iter().any(|segment| segment.is_outdated(&self.keys))
            || self.checkpoints.kept.iter().any(|kept| outdated(kept.key))
    }

    /// How many bytes of payloads each key has on the disk, live or not; without a key the plain
    /// data. A key that only a kept checkpoint needs has 0 bytes. Those that are not listed are
    /// needed no more.
    pub fn bytes_by_key(&self) -> BTreeMap<Option<KeyId>, u64> {
        let mut bytes_by_key: BTreeMap<Option<KeyId>, u64> = BTreeMap::new();
        for (&key, &bytes) in self.segments.iter().flat_map(|segment| &segment.keys) {
            *bytes_by_key.entry(key).or_default() += bytes;
        }
        for kept in &self.checkpoints.kept {
            bytes_by_key.entry(kept.key).or_default();
        }
        bytes_by_key
    }
}
