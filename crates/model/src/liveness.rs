//! Liveness: a silent peer counts as dead, and we are never silent longer than the peer accepts.
//!
//! While we do not read, because the peer does not or has too much outstanding, data waiting in the
//! socket is the sign of life: the reader of the socket reports it. All times are milliseconds of
//! one clock of the caller's.

use crate::Deadline;

/// A peer that has not finished its handshake by then, in whatever small steps, will not.
const HANDSHAKE_MS: u64 = 30_000;

/// Nothing is written for the peer's sake more often than this, however little silence it bears: a
/// peer that asks for a millisecond must not keep a core busy.
const WRITE_EVERY_MS_MIN: u64 = 100;

/// The peer's and our own last sign of life.
#[derive(Debug)]
pub struct Liveness {
    began_ms: u64,
    heard_ms: u64,
    wrote_ms: u64,
    agreed: Option<Silences>,
}

/// How long a silence each side bears, as both agreed in their handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silences {
    /// The peer's silence that means death; `None` for any.
    pub peer_ms_max: Option<u64>,
    /// The peer need not write before that moment.
    pub peer_from_ms: u64,
    /// Silence of our own after which we write; `None` for any.
    pub write_every_ms: Option<u64>,
}

/// Why a peer counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// Its handshake has taken too long.
    #[error("the peer has not finished its handshake after {ms} ms")]
    Handshake {
        /// Since the conversation began.
        ms: u64,
    },
    /// It has sent nothing for longer than was agreed.
    #[error("the peer was silent for {ms} ms")]
    Peer {
        /// Since its last sign of life.
        ms: u64,
    },
}

impl Liveness {
    /// Of a conversation that begins now.
    pub fn since(now_ms: u64) -> Liveness {
        Liveness { began_ms: now_ms, heard_ms: now_ms, wrote_ms: now_ms, agreed: None }
    }

    /// The handshake is over.
    pub fn agree(&mut self, silences: Silences) {
        let write_every_ms = silences.write_every_ms.map(|every| every.max(WRITE_EVERY_MS_MIN));
        self.agreed = Some(Silences { write_every_ms, ..silences });
    }

    /// The peer has sent something, or it is unknown.
    pub fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// The peer was sent something.
    pub fn wrote(&mut self, now_ms: u64) {
        self.wrote_ms = now_ms;
    }

    fn silence_ends_ms(&self) -> Option<u64> {
        let Some(agreed) = self.agreed else { return Some(self.began_ms.saturating_add(HANDSHAKE_MS)) };
        Some(self.heard_ms.max(agreed.peer_from_ms).saturating_add(agreed.peer_ms_max?))
    }

    fn write_due_ms(&self) -> Option<u64> {
        Some(self.wrote_ms.saturating_add(self.agreed?.write_every_ms?))
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
    /// [`Silence`]: it does not; end the conversation.
    pub fn check(&self, now_ms: u64) -> Result<(), Silence> {
        if self.silence_ends_ms().is_none_or(|end| now_ms < end) {
            return Ok(());
        }
        Err(match self.agreed {
            None => Silence::Handshake { ms: now_ms.saturating_sub(self.began_ms) },
            Some(_) => Silence::Peer { ms: now_ms.saturating_sub(self.heard_ms) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(peer_ms_max: u64, peer_from_ms: u64) -> Liveness {
        let mut liveness = Liveness::since(1_000);
        let peer_ms_max = Some(peer_ms_max).filter(|max| *max > 0);
        liveness.agree(Silences {
            peer_ms_max,
            peer_from_ms,
            write_every_ms: peer_ms_max.map(|max| max / 3),
        });
        liveness
    }

    #[test]
    fn silence_ends_a_conversation_only_where_it_was_agreed() {
        for (case, max_ms, from_ms, now, want) in [
            ("in time", 30_000, 0, 30_999, Ok(())),
            ("too long", 30_000, 0, 31_000, Err(Silence::Peer { ms: 30_000 })),
            ("the peer need not write yet", 2_000, 11_000, 12_999, Ok(())),
            ("the peer should have written", 2_000, 11_000, 13_000, Err(Silence::Peer { ms: 12_000 })),
            ("any silence", 0, 0, 1_000_000, Ok(())),
        ] {
            assert_eq!(agreed(max_ms, from_ms).check(now), want, "case: {case}");
        }
    }

    #[test]
    fn a_handshake_has_its_time_from_the_connect_on_whatever_trickles_in() {
        let mut liveness = Liveness::since(7);
        let end = 7 + HANDSHAKE_MS;
        assert_eq!(liveness.deadline(), Some(end));
        liveness.heard(end - 1);
        assert_eq!(liveness.check(end - 1), Ok(()));
        assert_eq!(liveness.check(end), Err(Silence::Handshake { ms: HANDSHAKE_MS }));
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life_on() {
        let mut liveness = agreed(30_000, 0);
        liveness.heard(90_000);
        assert_eq!((liveness.check(119_999).is_ok(), liveness.check(120_000).is_ok()), (true, false));
    }

    #[test]
    fn we_write_as_often_as_was_agreed_but_never_without_pause() {
        for (case, write_every_ms, due_ms) in [
            ("as agreed", Some(10_000), Some(10_010)),
            ("an impatient peer", Some(0), Some(110)),
            ("a peer that bears all", None, None),
        ] {
            let mut liveness = Liveness::since(1);
            liveness.wrote(10);
            liveness.agree(Silences { write_every_ms, ..Silences::default() });
            assert_eq!(liveness.deadline(), due_ms, "case: {case}");
            let due_ms = due_ms.unwrap_or(u64::MAX);
            let writes = [due_ms - 1, due_ms].map(|now| liveness.must_write(now));
            assert_eq!(writes, [false, due_ms < u64::MAX], "case: {case}");
        }
    }
}
