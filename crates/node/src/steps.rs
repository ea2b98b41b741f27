//! How long the steps of a core take.
//!
//! Never here: the meaning of the steps.

use std::time::{Duration, Instant};

use postroad_journal::Log2Histogram;

/// How long steps took, in microseconds: one is the handling of an event, a record or a tick by a
/// partition.
pub(crate) struct Steps {
    micros: Log2Histogram,
    /// When the step that is going on began.
    began: Instant,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps { micros: Log2Histogram::default(), began: Instant::now() }
    }
}

impl Steps {
    /// How long they took.
    pub fn micros(&self) -> &Log2Histogram {
        &self.micros
    }

    /// A step begins.
    pub fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// A step has ended, and another begins.
    pub fn end(&mut self) {
        let ended = Instant::now();
        self.micros.add(micros(ended.saturating_duration_since(self.began)));
        self.began = ended;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
