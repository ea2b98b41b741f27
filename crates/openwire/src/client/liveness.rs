//! Liveness: neither side is silent for longer than both agreed to bear (ActiveMQ's inactivity monitor).

/// What is known of both sides' last sign of life, in milliseconds of the caller's clock.
#[derive(Debug)]
pub struct Liveness {
    heard_ms: u64,
    wrote_ms: u64,
    /// `None`: nobody watches.
    silence_ms_max: Option<u64>,
}

impl Liveness {
    /// Until something is agreed, nobody watches.
    pub fn new(now_ms: u64) -> Liveness {
        Liveness { heard_ms: now_ms, wrote_ms: now_ms, silence_ms_max: None }
    }

    /// Each side has said how long a silence it bears; zero or less is no limit.
    pub fn agree(&mut self, ours_ms: i64, theirs_ms: i64) {
        self.silence_ms_max = u64::try_from(ours_ms.min(theirs_ms)).ok().filter(|ms| *ms > 0);
    }

    /// The broker has sent something.
    pub fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// The broker was sent something.
    pub fn wrote(&mut self, now_ms: u64) {
        self.wrote_ms = now_ms;
    }

    /// Whether something must be written now: every third of the agreed time.
    pub fn must_write(&self, now_ms: u64) -> bool {
        self.silence_ms_max.is_some_and(|max| self.wrote_ms + max / 3 <= now_ms)
    }

    /// For how long the broker has been silent, if that is too long.
    pub fn silent_ms(&self, now_ms: u64) -> Option<u64> {
        let silent_ms = now_ms.saturating_sub(self.heard_ms);
        self.silence_ms_max.filter(|max| *max <= silent_ms).map(|_| silent_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_only_where_it_was_agreed() {
        for (case, ours, theirs, now, want) in [
            ("in time", 30_000, 30_000, 30_999, (true, None)),
            ("nothing due", 30_000, 30_000, 10_999, (false, None)),
            ("too long", 30_000, 30_000, 31_000, (true, Some(30_000))),
            ("the lower limit counts", 30_000, 900, 1_900, (true, Some(900))),
            ("no limit of theirs", 30_000, 0, 1_000_000, (false, None)),
            ("no limit of ours", -1, 30_000, 1_000_000, (false, None)),
        ] {
            let mut liveness = Liveness::new(1_000);
            liveness.agree(ours, theirs);
            assert_eq!((liveness.must_write(now), liveness.silent_ms(now)), want, "case: {case}");
        }
    }
}
