//! Liveness: a silent peer is taken for dead, and the broker is never silent for longer than the peer bears (2.4.5).
//!
//! While the broker does not read it cannot hear: then no silence counts. All times are milliseconds since the connection
//! began.

use postroad_model::Deadline;

/// A peer that has not opened by then, in whatever small steps, will not.
const OPEN_MS: u64 = 30_000;

/// The broker writes for the peer's sake no more often than this, however little silence the peer bears.
const WRITE_EVERY_MS_MIN: u64 = 100;

/// What is known of the peer's and our own last sign of life.
pub struct Liveness {
    heard_ms: u64,
    wrote_ms: u64,
    deaf: bool,
    opened: bool,
    /// Silence of the peer that we bear; 0 for any.
    silence_ms_max: u64,
    /// How often the peer wants to hear from us.
    write_every_ms: Option<u64>,
}

impl Liveness {
    /// Of a connection that begins now.
    pub fn new(silence_ms_max: u64) -> Liveness {
        Liveness {
            heard_ms: 0,
            wrote_ms: 0,
            deaf: false,
            opened: false,
            silence_ms_max,
            write_every_ms: None,
        }
    }

    /// The peer has opened, and bears so much silence.
    pub fn opened(&mut self, idle_time_out_ms: Option<u32>) {
        self.opened = true;
        let every = idle_time_out_ms.filter(|ms| *ms > 0);
        self.write_every_ms = every.map(|ms| u64::from(ms / 2).max(WRITE_EVERY_MS_MIN));
    }

    /// The idle timeout that we announce: half of what we bear, as the standard advises.
    pub fn announced_ms(&self) -> Option<u32> {
        let half = u32::try_from(self.silence_ms_max / 2).unwrap_or(u32::MAX);
        (half > 0).then_some(half)
    }

    /// The peer has sent something.
    pub fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// The peer was sent something.
    pub fn wrote(&mut self, now_ms: u64) {
        self.wrote_ms = now_ms;
    }

    /// The broker reads from now on, or does not.
    pub fn listens(&mut self, listens: bool, now_ms: u64) {
        self.deaf = !listens;
        if listens {
            self.heard_ms = now_ms;
        }
    }

    fn silence_ends_ms(&self) -> Option<u64> {
        match (self.opened, self.silence_ms_max) {
            (false, _) => Some(OPEN_MS),
            (true, 0) => None,
            (true, _) if self.deaf => None,
            (true, max) => Some(self.heard_ms.saturating_add(max)),
        }
    }

    fn write_due_ms(&self) -> Option<u64> {
        self.write_every_ms.map(|every| self.wrote_ms.saturating_add(every))
    }

    /// When to look again.
    pub fn deadline(&self) -> Deadline {
        self.silence_ends_ms().into_iter().chain(self.write_due_ms()).min()
    }

    /// Whether something must be written for the peer's sake.
    pub fn must_write(&self, now_ms: u64) -> bool {
        self.write_due_ms().is_some_and(|due| due <= now_ms)
    }

    /// Whether the peer counts as alive.
    ///
    /// # Errors
    /// Why it does not, in words.
    pub fn check(&self, now_ms: u64) -> Result<(), String> {
        match self.silence_ends_ms() {
            Some(end) if end <= now_ms && !self.opened => {
                Err(format!("the peer has not opened after {now_ms} ms"))
            }
            Some(end) if end <= now_ms => {
                Err(format!("the peer was silent for {} ms", now_ms.saturating_sub(self.heard_ms)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_ends_a_connection_after_twice_what_was_announced() {
        let mut liveness = Liveness::new(60_000);
        assert_eq!(liveness.announced_ms(), Some(30_000));
        liveness.opened(None);
        liveness.heard(1_000);
        assert_eq!((liveness.check(60_999).is_ok(), liveness.check(61_000).is_ok()), (true, false));
        liveness.listens(false, 2_000);
        assert_eq!((liveness.check(90_000), liveness.deadline()), (Ok(()), None));
        liveness.listens(true, 90_000);
        assert_eq!((liveness.check(149_999).is_ok(), liveness.check(150_000).is_ok()), (true, false));
        let mut patient = Liveness::new(0);
        patient.opened(None);
        assert_eq!((patient.announced_ms(), patient.deadline()), (None, None));
    }

    #[test]
    fn a_peer_has_its_time_to_open_whatever_trickles_in() {
        let mut liveness = Liveness::new(60_000);
        liveness.heard(OPEN_MS - 1);
        assert_eq!((liveness.check(OPEN_MS - 1).is_ok(), liveness.check(OPEN_MS).is_ok()), (true, false));
    }

    #[test]
    fn the_broker_writes_twice_within_what_the_peer_bears() {
        for (case, idle_time_out_ms, due_ms) in
            [("half", 30_000, 15_010), ("an impatient peer", 20, 110), ("odd", 301, 160)]
        {
            let mut liveness = Liveness::new(60_000);
            liveness.wrote(10);
            liveness.opened(Some(idle_time_out_ms));
            let due = (liveness.must_write(due_ms - 1), liveness.must_write(due_ms));
            assert_eq!(due, (false, true), "case: {case}");
        }
    }
}
