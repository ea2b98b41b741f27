//! Liveness: a silent peer is taken for dead, and the broker is never silent itself.
//!
//! As ActiveMQ's inactivity monitor: each side writes something at least every third of the agreed time.

use postroad_model::{Deadline, Parting};

/// A peer that has not said what it speaks by then will not.
const HANDSHAKE_MS: u64 = 30_000;

/// What is known of the peer's and our own last sign of life.
#[derive(Default)]
pub struct Liveness {
    heard_ms: u64,
    wrote_ms: u64,
    agreed: Agreed,
}

#[derive(Clone, Copy, Default)]
enum Agreed {
    /// Nothing was agreed yet.
    #[default]
    Not,
    /// Nobody watches.
    Never,
    /// Silence for so long means death, counted from this moment at the earliest.
    Silence { max_ms: u64, from_ms: u64 },
}

impl Liveness {
    /// Both sides have agreed on how long a silence they bear (zero or less: any), and how long after now they begin
    /// to write for the other's sake.
    pub fn agree(&mut self, max_ms: i64, initial_delay_ms: i64, now_ms: u64) {
        let max_ms = u64::try_from(max_ms).unwrap_or(0);
        let from_ms = now_ms + u64::try_from(initial_delay_ms).unwrap_or(0);
        self.agreed = if max_ms == 0 { Agreed::Never } else { Agreed::Silence { max_ms, from_ms } };
    }

    /// The peer has sent something.
    pub fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// The peer was sent something.
    pub fn wrote(&mut self, now_ms: u64) {
        self.wrote_ms = now_ms;
    }

    fn silence_ends_ms(&self) -> Option<u64> {
        match self.agreed {
            Agreed::Not => Some(self.heard_ms + HANDSHAKE_MS),
            Agreed::Never => None,
            Agreed::Silence { max_ms, from_ms } => Some(self.heard_ms.max(from_ms) + max_ms),
        }
    }

    fn write_due_ms(&self) -> Option<u64> {
        match self.agreed {
            Agreed::Silence { max_ms, .. } => Some(self.wrote_ms + max_ms / 3),
            _ => None,
        }
    }

    /// When to look again.
    pub fn deadline(&self) -> Deadline {
        if self.heard_ms == 0 && matches!(self.agreed, Agreed::Not) {
            // The clock starts with the first look.
            return Some(0);
        }
        self.silence_ends_ms().into_iter().chain(self.write_due_ms()).min()
    }

    /// Whether something must be written for the peer's sake.
    pub fn must_write(&self, now_ms: u64) -> bool {
        self.write_due_ms().is_some_and(|due| due <= now_ms)
    }

    /// Starts the clock, or ends the connection of a peer that was silent for too long.
    pub fn check(&mut self, now_ms: u64) -> Result<(), Parting> {
        if self.heard_ms == 0 {
            self.heard_ms = now_ms;
        }
        match self.silence_ends_ms() {
            Some(end) if end <= now_ms => {
                let silent_ms = now_ms - self.heard_ms;
                Err(Parting::Fault(format!("the peer was silent for {silent_ms} ms")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_ends_a_connection_only_where_it_was_agreed() {
        for (case, max_ms, delay_ms, now, want) in [
            ("in time", 30_000, 0, 30_999, true),
            ("too long", 30_000, 0, 31_000, false),
            ("the peer does not write yet", 2_000, 10_000, 12_999, true),
            ("the peer should have written", 2_000, 10_000, 13_000, false),
            ("any silence", 0, 0, 1_000_000, true),
        ] {
            let mut liveness = Liveness::default();
            liveness.heard(1_000);
            liveness.agree(max_ms, delay_ms, 1_000);
            assert_eq!(liveness.check(now).is_ok(), want, "case: {case}");
        }
    }

    #[test]
    fn a_peer_that_never_speaks_is_dropped_after_the_handshake_time() {
        let mut liveness = Liveness::default();
        assert_eq!((liveness.deadline(), liveness.check(5)), (Some(0), Ok(())));
        assert_eq!(liveness.deadline(), Some(5 + HANDSHAKE_MS));
        assert!(liveness.check(5 + HANDSHAKE_MS).is_err());
    }

    #[test]
    fn the_broker_writes_every_third_of_the_agreed_time() {
        let mut liveness = Liveness::default();
        liveness.heard(1);
        liveness.wrote(10_000);
        liveness.agree(30_000, 0, 1);
        assert_eq!((liveness.must_write(19_999), liveness.must_write(20_000)), (false, true));
    }
}
