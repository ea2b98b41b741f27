//! Pace: whether a core writes to the journal itself, or has the journal's thread write beside it.
//!
//! Never here: the writing, threads, the meaning of records.

use std::time::Duration;

/// A write of this duration is no short break for the core: the disk is in trouble, or busy with
/// others.
const LONG: Duration = Duration::from_millis(10);

/// This number of writes is left to the journal's thread before the core tries it itself again.
const ASIDE_WRITES: u32 = 64;

/// Decides for one core, write by write. See docs/decisions/0009-a-lone-core-writes-itself.md.
#[derive(Debug)]
pub struct Pace {
    /// The only core.
    alone: bool,
    /// The number of next writes for the journal's thread.
    aside_writes: u32,
}

impl Pace {
    /// For a core that is the only one, or one of several.
    pub fn new(alone: bool) -> Pace {
        Pace { alone, aside_writes: 0 }
    }

    /// A message has gone on to a consumer at once, as it is kept in memory only: those after it
    /// must not wait for a disk.
    pub fn passed_the_disk_by(&mut self) {
        self.aside_writes = ASIDE_WRITES;
    }

    /// The core has written itself; the duration.
    pub fn wrote(&mut self, took: Duration) {
        if LONG <= took {
            self.aside_writes = ASIDE_WRITES;
        }
    }

    /// Whether the core does the write that is due now itself.
    pub fn writes_itself(&mut self) -> bool {
        let itself = self.alone && self.aside_writes == 0;
        self.aside_writes = self.aside_writes.saturating_sub(1);
        itself
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes_aside(pace: &mut Pace) -> u32 {
        (0..1000).take_while(|_| !pace.writes_itself()).count() as u32
    }

    #[test]
    fn a_core_writes_itself_while_it_is_alone_and_nothing_waits_in_vain() {
        let mut pace = Pace::new(true);
        assert_eq!(writes_aside(&mut pace), 0, "from the start");
        pace.wrote(LONG - Duration::from_nanos(1));
        assert_eq!(writes_aside(&mut pace), 0, "a short write");
        pace.wrote(LONG);
        assert_eq!(writes_aside(&mut pace), ASIDE_WRITES, "a long one");
        pace.passed_the_disk_by();
        assert!(!pace.writes_itself());
        pace.passed_the_disk_by();
        assert_eq!(
            writes_aside(&mut pace),
            ASIDE_WRITES,
            "as long as messages pass the disk by, and then some"
        );
        assert_eq!(writes_aside(&mut Pace::new(false)), 1000, "others have use for the time");
    }
}
