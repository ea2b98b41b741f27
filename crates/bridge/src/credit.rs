//! Credit of consumers at the peer: how many messages of one queue they would take at once, as far as it is known.
//!
//! ```text
//!   a consumer comes ─▶ one message may go ─▶ the peer is asked ─▶ as many may go ─▶ half is gone: it is asked again
//!                                                 └── none: nothing goes, and it is asked again after a pause
//! ```
//! Without credit at the peer the core keeps one more credit for the link: a message that it then delivers shows that
//! there is a backlog, and goes back at once. Without a backlog the peer is not asked.

/// Credit that the core holds for a link beyond the messages in flight: all of it may come back if it has become stale.
const CORE_CREDIT_MAX: u32 = 64;

/// Credit that the peer has not confirmed for so long may be gone.
const FRESH_MS: u64 = 500;

/// The first pause after the peer had no credit; each further one is twice as long.
const PAUSE_MS: u64 = 10;

/// The longest pause.
const PAUSE_MS_MAX: u64 = 160;

/// After as many questions without success it is looked again whether there still is a backlog.
const TRIES_MAX: u32 = 20;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct FarCredit {
    /// Messages that may go.
    free: u32,
    /// With so few the peer is asked again: half of its last answer.
    low: u32,
    /// Messages wait that could go.
    has_backlog: bool,
    is_asking: bool,
    /// When the peer said how many may go.
    answered_ms: u64,
    /// When it may be asked again.
    ask_ms: u64,
    pause_ms: u64,
    tries: u32,
}

impl FarCredit {
    /// A consumer has come. How much it really can take the peer has to say.
    pub fn gained(&mut self) {
        self.free = self.free.max(1);
        self.ask_ms = 0;
        self.pause_ms = 0;
    }

    /// Whether a message that the core has delivered may go.
    pub fn take(&mut self, now_ms: u64) -> bool {
        if self.answered_ms.saturating_add(FRESH_MS) < now_ms {
            self.free = self.free.min(1);
        }
        let may_go = 0 < self.free;
        self.free = self.free.saturating_sub(1);
        self.has_backlog |= self.free <= self.low;
        may_go
    }

    /// Credit that the core is to have beyond the messages in flight.
    pub fn for_core(&self) -> u32 {
        match self.free {
            0 if self.has_backlog => 0,
            free => free.clamp(1, CORE_CREDIT_MAX),
        }
    }

    /// When the peer is to be asked; `None` if it need not be.
    pub fn due_ms(&self) -> Option<u64> {
        (self.has_backlog && !self.is_asking && self.free <= self.low).then_some(self.ask_ms)
    }

    /// The peer is being asked.
    pub fn asked(&mut self) {
        self.is_asking = true;
    }

    /// The peer has answered; it may not have counted the messages in flight.
    pub fn answered(&mut self, credit: u32, in_flight: u32, window: u32, now_ms: u64) {
        self.is_asking = false;
        self.answered_ms = now_ms;
        self.free = credit.saturating_sub(in_flight).min(window);
        self.low = self.free / 2;
        if 0 < self.free {
            (self.pause_ms, self.tries) = (0, 0);
            (self.ask_ms, self.has_backlog) = (now_ms, false);
            return;
        }
        self.pause_ms = (2 * self.pause_ms).clamp(PAUSE_MS, PAUSE_MS_MAX);
        self.ask_ms = now_ms.saturating_add(self.pause_ms);
        self.tries += 1;
        if TRIES_MAX <= self.tries {
            (self.tries, self.has_backlog) = (0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_goes_before_the_peer_has_said_how_many_may() {
        let mut credit = FarCredit::default();
        credit.gained();
        assert_eq!((credit.for_core(), credit.due_ms()), (1, None), "nothing waits yet");
        assert!(credit.take(5));
        assert_eq!(credit.for_core(), 0, "until the peer has answered");
        assert_eq!(credit.due_ms(), Some(0));
        credit.asked();
        assert_eq!(credit.due_ms(), None, "it is being asked");
        credit.answered(81, 1, 100, 10);
        assert_eq!((credit.for_core(), credit.due_ms()), (CORE_CREDIT_MAX, None));
        assert!((0..39).all(|_| credit.take(10)) && credit.due_ms().is_none());
        assert!(credit.take(10));
        assert_eq!(credit.due_ms(), Some(10), "half is gone");
    }

    #[test]
    fn without_credit_the_peer_is_asked_at_growing_intervals_as_long_as_there_is_a_backlog() {
        let mut credit = FarCredit::default();
        assert_eq!(credit.for_core(), 1, "to see a backlog");
        assert!(!credit.take(0), "it goes back");
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        while let Some(due_ms) = credit.due_ms() {
            pauses.push(due_ms - now_ms);
            now_ms = due_ms;
            credit.asked();
            credit.answered(0, 0, 10, now_ms);
        }
        assert_eq!((pauses.len() as u32, pauses[1], pauses[19]), (TRIES_MAX, PAUSE_MS, PAUSE_MS_MAX));
        assert_eq!(credit.for_core(), 1, "there may be no backlog any more");
    }

    #[test]
    fn credit_that_was_not_confirmed_lately_counts_as_one_message() {
        let mut credit = FarCredit::default();
        credit.gained();
        credit.answered(50, 0, 100, 10);
        assert!(credit.take(FRESH_MS + 11) && !credit.take(FRESH_MS + 11));
        assert_eq!(credit.due_ms(), Some(10));
    }
}
