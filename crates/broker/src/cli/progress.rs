//! Progress of long work, on standard error: how much is done and how fast.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::cli::words::counted;

/// Interval of the progress on a terminal, also before the first line.
const EVERY_ON_TERMINAL: Duration = Duration::from_secs(1);

/// Interval of the progress in a log.
const EVERY_IN_LOG: Duration = Duration::from_secs(10);

/// Shorter times count as this one: one message at once is no rate.
const CLOCK_SECONDS: f64 = 1e-6;

/// Counts messages and shows the progress.
pub struct Progress {
    verb: &'static str,
    started: Instant,
    /// When the count last changed: a wait that brought nothing is no work.
    last: Instant,
    every: Duration,
    next: Instant,
    on_terminal: bool,
    written: bool,
    count: u64,
    total: Option<u64>,
}

impl Progress {
    /// Starts the clock. `verb` is the operation on messages, `total` their expected number.
    pub fn new(verb: &'static str, total: Option<u64>) -> Progress {
        let on_terminal = std::io::stderr().is_terminal();
        let every = if on_terminal { EVERY_ON_TERMINAL } else { EVERY_IN_LOG };
        let started = Instant::now();
        Progress {
            verb,
            started,
            last: started,
            every,
            next: started + every,
            on_terminal,
            written: false,
            count: 0,
            total,
        }
    }

    /// Adds this number.
    pub fn add(&mut self, count: u64) {
        self.count += count;
        let now = Instant::now();
        self.last = now;
        if self.next <= now {
            self.next = now + self.every;
            self.tell();
        }
    }

    /// How many are done.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long it took to get there.
    pub fn seconds(&self) -> f64 {
        self.last.duration_since(self.started).as_secs_f64()
    }

    /// Messages in a second.
    pub fn rate(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.count as f64 / self.seconds().max(CLOCK_SECONDS) }
    }

    /// The last word: how many, where, how long, how fast. Takes progress off the terminal.
    pub fn summary(&mut self, place: &str) -> String {
        self.clear();
        let messages = counted(self.count, "message");
        let (verb, seconds, rate) = (self.verb, self.seconds(), self.rate());
        format!("{verb} {messages} {place} in {seconds:.3} s ({rate:.0}/s)")
    }

    /// Takes progress off the terminal.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.written) && self.on_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// An error of the output is no reason to stop.
    fn tell(&mut self) {
        let of = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
        let line = format!("{} {}{of}, {:.0}/s", self.verb, self.count, self.rate());
        let _ = match self.on_terminal {
            true => write!(std::io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(std::io::stderr(), "{line}"),
        };
        self.written = true;
    }
}
