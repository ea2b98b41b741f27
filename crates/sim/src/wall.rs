//! The wall clock of a run: in some runs it is set while the broker works, in both directions.
//!
//! The meaning of a message's time of day then depends on when its partition learned of it: the
//! oracle knows the earliest and the latest that it could be, and holds the core to what is true
//! for both.

use crate::random::Random;

/// One run of this many has its clock set.
const SET_SHARE: u64 = 6;

/// It is set to at most this far from where it began.
const SET_MS_MAX: u64 = 100_000;

/// See the head of this file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wall {
    is_set: bool,
    /// How far it is ahead of the monotone clock, and the most that it was.
    ahead_ms: u64,
    ahead_ms_max: u64,
}

impl Wall {
    /// At the beginning of this seed's run.
    pub fn of(seed: u64) -> Wall {
        let is_set = seed % SET_SHARE == 4;
        let ahead_ms = if is_set { SET_MS_MAX / 2 } else { 0 };
        Wall { is_set, ahead_ms, ahead_ms_max: ahead_ms }
    }

    /// Perhaps it is set.
    pub fn step(&mut self, random: &mut Random) {
        if self.is_set && random.one_in(4) {
            self.ahead_ms = random.below(SET_MS_MAX);
            self.ahead_ms_max = self.ahead_ms_max.max(self.ahead_ms);
        }
    }

    /// Its time when the monotone clock says this.
    pub fn at(&self, ticks_ms: u64) -> u64 {
        ticks_ms + self.ahead_ms
    }

    /// The most that it would show then, had it not been set since.
    pub fn latest(&self, ticks_ms: u64) -> u64 {
        ticks_ms + self.ahead_ms_max
    }

    /// After this time all that was due in some time of day is due.
    pub fn spread_ms(&self) -> u64 {
        self.ahead_ms_max
    }
}
