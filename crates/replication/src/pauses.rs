//! Pauses between attempts at a checkpoint that fails: twice as many each time, as the states of a
//! long backlog are much work for all partitions.

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Pauses {
    failures: u32,
    left: u32,
}

/// The longest rest is two to this power of pauses.
const FAILURES_COUNTED_MAX: u32 = 8;

impl Pauses {
    pub(crate) fn failed(&mut self) {
        self.failures = (self.failures + 1).min(FAILURES_COUNTED_MAX);
        self.left = 1 << self.failures;
    }

    /// Counts one; whether it was the last.
    pub(crate) fn pass(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }
}
