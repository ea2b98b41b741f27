//! Liveness: a silent peer is taken for dead, and the broker is never silent itself.
//!
//! As ActiveMQ's inactivity monitor: each side writes something at least every third of the agreed time. While the broker
//! does not read, because the peer itself does not or has too much outstanding, it cannot hear: then no silence counts.
//! All times are milliseconds since the connection began.

use postroad_model::{Deadline, Parting};

/// A peer that has not said what it speaks by then, in whatever small steps, will not.
const HANDSHAKE_MS: u64 = 30_000;

/// The broker writes for the peer's sake no more often than this, however little silence the peer bears: a peer that
/// asks for a millisecond must not keep a core busy.
const WRITE_EVERY_MS_MIN: u64 = 100;

/// What is known of the peer's and our own last sign of life.
#[derive(Default)]
pub struct Liveness {
    heard_ms: u64,
    wrote_ms: u64,
    deaf: bool,
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
        let from_ms = now_ms.saturating_add(u64::try_from(initial_delay_ms).unwrap_or(0));
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

    /// The broker reads from now on, or does not.
    pub fn listens(&mut self, listens: bool, now_ms: u64) {
        self.deaf = !listens;
        if listens {
            self.heard_ms = now_ms;
        }
    }

    fn silence_ends_ms(&self) -> Option<u64> {
        match self.agreed {
            Agreed::Not => Some(HANDSHAKE_MS),
            Agreed::Never => None,
            Agreed::Silence { .. } if self.deaf => None,
            Agreed::Silence { max_ms, from_ms } => Some(self.heard_ms.max(from_ms).saturating_add(max_ms)),
        }
    }

    fn write_due_ms(&self) -> Option<u64> {
        match self.agreed {
            Agreed::Silence { max_ms, .. } => Some(self.wrote_ms + (max_ms / 3).max(WRITE_EVERY_MS_MIN)),
            _ => None,
        }
    }

    /// When to look again.
    pub fn deadline(&self) -> Deadline {
        self.silence_ends_ms().into_iter().chain(self.write_due_ms()).min()
    }

    /// Whether something must be written for the peer's sake.
    pub fn must_write(&self, now_ms: u64) -> bool {
        self.write_due_ms().is_some_and(|due| due <= now_ms)
    }

    /// Ends the connection of a peer that was silent for too long, or has not finished its handshake.
    pub fn check(&self, now_ms: u64) -> Result<(), Parting> {
        match self.silence_ends_ms() {
            Some(end) if end <= now_ms && matches!(self.agreed, Agreed::Not) => {
                Err(Parting::Fault(format!("the peer has not finished its handshake after {now_ms} ms")))
            }
            Some(end) if end <= now_ms => {
                let silent_ms = now_ms.saturating_sub(self.heard_ms);
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
    fn a_handshake_has_its_time_from_the_connect_on_whatever_trickles_in() {
        let mut liveness = Liveness::default();
        assert_eq!(liveness.deadline(), Some(HANDSHAKE_MS));
        liveness.heard(HANDSHAKE_MS - 1);
        assert_eq!(liveness.check(HANDSHAKE_MS - 1), Ok(()));
        assert!(liveness.check(HANDSHAKE_MS).is_err());
    }

    #[test]
    fn silence_counts_only_while_the_broker_listens() {
        let mut liveness = Liveness::default();
        liveness.agree(30_000, 0, 1_000);
        liveness.listens(false, 2_000);
        assert_eq!((liveness.check(90_000), liveness.deadline()), (Ok(()), Some(10_000)));
        liveness.listens(true, 90_000);
        assert_eq!((liveness.check(119_999).is_ok(), liveness.check(120_000).is_ok()), (true, false));
    }

    #[test]
    fn the_broker_does_not_write_without_pause_for_an_impatient_peer() {
        for max_ms in [1, 3, 299] {
            let mut liveness = Liveness::default();
            liveness.wrote(10);
            liveness.agree(max_ms, 0, 10);
            assert_eq!((liveness.must_write(109), liveness.must_write(110)), (false, true), "{max_ms} ms");
        }
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
