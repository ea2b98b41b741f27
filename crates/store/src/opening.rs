//! Progress of the opening of a store, logged once it takes long, whatever the cause.
//!
//! The opening thread only notes its progress; a thread of its own logs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// An opening that takes longer is logged, and again after each such time.
const EVERY: Duration = Duration::from_secs(1);

/// The stages, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Locking the directory, reading its layout.
    Directory,
    /// Reading the last checkpoint.
    Checkpoint,
    /// Verifying the journal behind it, in bytes.
    Journal,
    /// Reading the partitions of the checkpoint.
    States,
    /// Applying the records after it.
    Records,
    /// Telling the journal which records are needed, by partition.
    Needed,
}

impl Stage {
    const ALL: [Stage; 6] =
        [Stage::Directory, Stage::Checkpoint, Stage::Journal, Stage::States, Stage::Records, Stage::Needed];

    /// Its description, and the unit in which it is counted.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Stage::Directory => ("opens the directory", "steps"),
            Stage::Checkpoint => ("reads the last checkpoint", "files"),
            Stage::Journal => ("verifies the journal", "bytes"),
            Stage::States => ("takes over the checkpoint", "partitions"),
            Stage::Records => ("applies the journal", "records"),
            Stage::Needed => ("counts references to messages", "partitions"),
        }
    }
}

/// Where it is.
#[derive(Default)]
struct Reached {
    stage: AtomicU8,
    done: AtomicU64,
    /// The total; 0 if it is unknown.
    of: AtomicU64,
}

/// An opening under way. When it is dropped, its progress is logged no more.
pub struct Opening {
    began: Instant,
    reached: Arc<Reached>,
    _end: Sender<()>,
}

impl Opening {
    /// Starts the clock.
    pub fn begin() -> Opening {
        let (end, ended) = channel();
        let (began, reached) = (Instant::now(), Arc::new(Reached::default()));
        let seen = reached.clone();
        let thread = std::thread::Builder::new().name("opening".into());
        if let Err(error) = thread.spawn(move || tell(began, &seen, &ended)) {
            tracing::debug!(%error, "no thread reports the progress of the start");
        }
        Opening { began, reached, _end: end }
    }

    /// Begins the next stage, with the total amount of work in it; 0 if it is unknown.
    pub fn enter(&self, stage: Stage, of: u64) {
        tracing::debug!(seconds = ?self.began.elapsed(), step = stage.words().0, "starting");
        self.reached.done.store(0, Ordering::Relaxed);
        self.reached.of.store(of, Ordering::Relaxed);
        self.reached.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// The part that is done.
    pub fn done(&self, done: u64) {
        self.reached.done.store(done, Ordering::Relaxed);
    }

    /// The store is open: logged if its progress was.
    pub fn end(self, records: u64) {
        let lasted = self.began.elapsed();
        if lasted > EVERY {
            tracing::info!(seconds = tenths(lasted), records, "the store is open");
        }
    }
}

fn tell(began: Instant, reached: &Reached, ended: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
        let stage = Stage::ALL.get(usize::from(reached.stage.load(Ordering::Relaxed)));
        let (step, unit) = stage.map_or(("", ""), |stage| stage.words());
        let (done, of) = (reached.done.load(Ordering::Relaxed), reached.of.load(Ordering::Relaxed));
        tracing::info!(seconds = tenths(began.elapsed()), step, unit, done, of, "starting");
    }
}

fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_told_by_their_numbers() {
        for (number, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(stage as u8), number, "{stage:?}");
        }
    }
}
