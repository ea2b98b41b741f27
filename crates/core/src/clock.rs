//! Clock: the two times of a partition, and how deadlines survive a wall clock that is set.
//!
//! Waits (redelivery delays, time-outs, retries) are counted in *ticks*, a monotone clock. Expiry
//! headers and schedules are times of day. Such a deadline is compared with the wall clock *as it
//! ran when the deadline became known*:
//!
//! ```text
//!  wall   12:00 ──────▶ 12:10 │ set back by an hour │ 11:10 ──────▶ 11:20
//!  era 0  12:00 ──────▶ 12:10 ─────────────────────── 12:10 ──────▶ 12:20   earlier times of day
//!  era 1                                              11:10 ──────▶ 11:20   later ones
//! ```
//! An era is a stretch of time without a jump; it keeps its offset from ticks to the wall clock. So
//! a jump in either direction changes no remaining time. A step forward that lasts for
//! [`BELIEVED_MS`] is taken for a correction: older eras follow it then. Eras are known to this run
//! alone: the time of day is durable, and a start compares it with its own wall clock.

use postroad_model::Now;

/// Offsets that are kept apart. Beyond this number a clock jump moves the deadlines of the newest
/// era.
pub const ERAS: usize = 4;

/// A difference of less than this is drift, which the current era follows.
const JUMP_MS: i64 = 1000;

/// After a step forward that lasted this long, earlier eras follow the wall clock too.
const BELIEVED_MS: u64 = 10 * 60 * 1000;

/// A stretch of time in which the wall clock was not set: an index below [`ERAS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Era(usize);

impl Era {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Era> {
        (0..ERAS).map(Era)
    }

    /// Its place in an array with one item for each era.
    pub fn index(self) -> usize {
        self.0
    }
}

/// See the head of this file.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    ticks_ms: u64,
    /// From ticks to the wall clock, by era.
    offsets_ms: [i64; ERAS],
    current: Era,
    /// When the current era began.
    since_ms: u64,
    /// See [`Clock::slowest_wall_ms`].
    slowest_wall_ms: u64,
    has_begun: bool,
}

impl Clock {
    /// Takes the time; returns the era that begins now if the wall clock was set. `is_free` names
    /// eras that no deadline needs.
    pub fn advance(&mut self, now: Now, is_free: impl Fn(Era) -> bool) -> Option<Era> {
        let begun = self.take(now, &is_free);
        let used = Era::all().filter(|era| *era == self.current || !is_free(*era));
        self.slowest_wall_ms = used.map(|era| self.wall_of(era)).min().unwrap_or_default();
        begun
    }

    fn take(&mut self, now: Now, is_free: impl Fn(Era) -> bool) -> Option<Era> {
        self.ticks_ms = self.ticks_ms.max(now.ticks_ms);
        let offset_ms = signed(now.wall_ms).saturating_sub(signed(now.ticks_ms));
        let jump_ms = offset_ms.saturating_sub(self.offsets_ms[self.current.0]).saturating_abs();
        let begins = self.has_begun && JUMP_MS <= jump_ms;
        self.has_begun = true;
        if !begins {
            self.offsets_ms[self.current.0] = offset_ms;
            self.believe();
            return None;
        }
        let known = |era: &Era| (offset_ms - self.offsets_ms[era.0]).abs() < JUMP_MS;
        let next = Era::all().find(known).or_else(|| Era::all().find(|era| is_free(*era)));
        let next = next.unwrap_or(self.current);
        self.offsets_ms[next.0] = offset_ms;
        (self.current, self.since_ms) = (next, self.ticks_ms);
        Some(next)
    }

    /// Older eras follow a step forward that has lasted.
    fn believe(&mut self) {
        if self.ticks_ms.saturating_sub(self.since_ms) < BELIEVED_MS {
            return;
        }
        let offset_ms = self.offsets_ms[self.current.0];
        self.offsets_ms.iter_mut().for_each(|older| *older = offset_ms.max(*older));
    }

    /// The present era.
    pub fn era(&self) -> Era {
        self.current
    }

    /// The wall clock, in ms since 1970.
    pub fn wall_ms(&self) -> u64 {
        self.wall_of(self.current)
    }

    /// The wall clock as if it had not been set since this era, in ms since 1970.
    pub fn wall_of(&self, era: Era) -> u64 {
        unsigned(signed(self.ticks_ms).saturating_add(self.offsets_ms[era.0]))
    }

    /// At how many ticks it is this time by the clock of that era.
    pub fn ticks_at(&self, era: Era, wall_ms: u64) -> u64 {
        unsigned(signed(wall_ms).saturating_sub(self.offsets_ms[era.0]))
    }

    /// The slowest clock among the eras that are in use: by it a deadline has passed whatever era
    /// it is of.
    pub fn slowest_wall_ms(&self) -> u64 {
        self.slowest_wall_ms
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn unsigned(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const START_MS: u64 = 1_000 * HOUR_MS;

    fn at(ticks_ms: u64, wall_ms: u64) -> Now {
        Now { ticks_ms, wall_ms }
    }

    #[test]
    fn what_was_known_before_a_jump_keeps_its_remaining_time() {
        for (case, set_to_ms) in
            [("back", START_MS - HOUR_MS), ("forward", START_MS + HOUR_MS), ("to 1970", 0)]
        {
            let mut clock = Clock::default();
            assert_eq!(clock.advance(at(50, START_MS), |_| true), None, "the first time is no jump: {case}");
            let (before, deadline_ms) = (clock.era(), START_MS + 5000);
            let after = clock.advance(at(60, set_to_ms + 10), |era| era != before).expect(case);
            assert_ne!(after, before, "case: {case}");
            assert_eq!(clock.ticks_at(before, deadline_ms), 5050, "case: {case}");
            assert_eq!(clock.ticks_at(after, set_to_ms + 5010), 5060, "case: {case}");
            assert_eq!(clock.wall_ms(), set_to_ms + 10, "case: {case}");
            // Back again: the old era goes on.
            assert_eq!(clock.advance(at(70, START_MS + 20), |_| false), Some(before), "case: {case}");
            assert_eq!(clock.ticks_at(before, deadline_ms), 5050, "case: {case}");
        }
    }

    #[test]
    fn drift_is_followed_without_a_new_era() {
        let mut clock = Clock::default();
        clock.advance(at(0, START_MS), |_| false);
        for step in 1..100 {
            assert_eq!(clock.advance(at(step * 1000, START_MS + step * 1900), |_| false), None);
        }
        assert_eq!(clock.wall_ms(), START_MS + 99 * 1900);
    }

    #[test]
    fn beyond_so_many_eras_the_newest_follows() {
        let mut clock = Clock::default();
        clock.advance(at(0, START_MS), |_| false);
        let is_free = |used: usize| move |era: Era| used <= era.index();
        for jump in 1..ERAS {
            let era = clock.advance(at(jump as u64, START_MS + jump as u64 * HOUR_MS), is_free(jump));
            assert_eq!(era.map(Era::index), Some(jump));
        }
        let era = clock.advance(at(9, START_MS - HOUR_MS), |_| false);
        assert_eq!(era.map(Era::index), Some(ERAS - 1));
        assert_eq!(clock.wall_ms(), START_MS - HOUR_MS);
        assert_eq!(clock.slowest_wall_ms(), START_MS - HOUR_MS);
    }

    #[test]
    fn a_step_forward_that_lasts_is_believed_and_one_back_is_not() {
        for (step_ms, want) in [(HOUR_MS as i64, 0), (-(HOUR_MS as i64), BELIEVED_MS + 1)] {
            let mut clock = Clock::default();
            clock.advance(at(0, START_MS), |_| true);
            let (old, deadline_ms) = (clock.era(), START_MS + BELIEVED_MS + 1);
            let wall_ms = |ticks_ms: u64| START_MS.saturating_add_signed(step_ms) + ticks_ms;
            clock.advance(at(1, wall_ms(1)), |era| era != old);
            assert_eq!(clock.ticks_at(old, deadline_ms), BELIEVED_MS + 1, "not at once");
            clock.advance(at(BELIEVED_MS + 1, wall_ms(BELIEVED_MS + 1)), |_| false);
            assert_eq!(clock.ticks_at(old, deadline_ms), want);
        }
    }
}
