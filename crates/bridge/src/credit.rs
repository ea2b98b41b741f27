//! Credit of consumers at the peer: how many messages of one queue they would take at once, as far
//! as it is known.
//!
//! ```text
//!   a consumer comes ─▶ one message may go ─▶ the peer is asked ─▶ as many may go ─▶ half is gone: it is asked again
//!                                                 └── none: nothing goes, and it is asked again after a pause
//! ```
//! Without credit at the peer the core keeps one more credit for the link: a message that it then
//! delivers shows that there is a backlog, and goes back at once. Without a backlog the peer is not
//! asked.
//!
//! A message that leaves now arrives two round trips after the credit was counted on which it
//! leaves, if the peer is asked once in a round trip. Consumers that keep up have then taken
//! others, so as many more may go: see [`Pace`].

/// Credit that the core holds for a link beyond the messages in flight: all of it may come back if
/// it has become stale. As many deliveries may have one record before they leave.
const CORE_CREDIT_MAX: u32 = 256;

/// After this time without a confirmation, credit may be lost.
const FRESH_MS: u64 = 500;

/// The first pause after the peer had no credit; each further one is twice as long.
const PAUSE_MS: u64 = 10;

/// The longest pause.
const PAUSE_MS_MAX: u64 = 160;

/// After as many questions without success it is looked again whether there still is a backlog.
const TRIES_MAX: u32 = 20;

/// Messages that may go beyond the credit of the peer, because its consumers take them meanwhile.
const AHEAD_MAX: u32 = 16_384;

/// Answers that are further apart say nothing of the rate now.
const PACE_MS_MAX: u64 = 1000;

/// The answer of the peer is half of the credit of its consumers.
const TOLD_SHARE: u64 = 2;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct FarCredit {
    /// Messages that may go.
    free: u32,
    /// With so few the peer is asked again: half of its last answer.
    low: u32,
    /// Messages wait that could go.
    has_backlog: bool,
    /// When the peer was asked, until it answers.
    asked_ms: Option<u64>,
    pace: Pace,
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
        self.pace.sent += u64::from(may_go);
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
        (self.has_backlog && self.asked_ms.is_none() && self.free <= self.low).then_some(self.ask_ms)
    }

    /// Messages that may be in flight beyond those that consumers at the peer take ahead.
    pub fn ahead(&self) -> u32 {
        self.pace.ahead
    }

    /// The peer is being asked.
    pub fn asked(&mut self, now_ms: u64) {
        self.asked_ms = Some(now_ms);
        self.pace.asked();
    }

    /// The peer has answered; it may not have counted the messages in flight.
    pub fn answered(&mut self, credit: u32, in_flight: u32, window: u32, now_ms: u64) {
        let asked_ms = self.asked_ms.take().unwrap_or(now_ms);
        self.pace.answered(credit, asked_ms, now_ms);
        self.answered_ms = now_ms;
        let ahead = self.pace.ahead;
        self.free = credit.saturating_add(ahead).saturating_sub(in_flight).min(window.saturating_add(ahead));
        // Enough for the round trip of the next question.
        self.low = (self.free / 2).max(ahead / 4 * 3).min(self.free);
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

/// How fast consumers at the peer take messages, as the credit shows that is left although messages
/// went there.
#[derive(Debug, Default)]
struct Pace {
    /// Messages that left since the last question, and between it and the one before.
    sent: u64,
    sent_before: u64,
    /// When the peer was asked before, and its answer.
    last: Option<(u64, u32)>,
    /// Messages that consumers there take during two round trips.
    ahead: u32,
}

impl Pace {
    fn asked(&mut self) {
        self.sent_before = std::mem::take(&mut self.sent);
    }

    /// Messages that left before a question have arrived before it.
    fn answered(&mut self, credit: u32, asked_ms: u64, now_ms: u64) {
        let before = self.last.replace((asked_ms, credit)).filter(|_| 0 < credit);
        self.ahead = before.map_or(0, |(before_ms, before)| {
            let between_ms = asked_ms.saturating_sub(before_ms);
            if between_ms == 0 || PACE_MS_MAX < between_ms {
                return 0;
            }
            let gained = TOLD_SHARE * u64::from(credit);
            let taken = (self.sent_before + gained).saturating_sub(TOLD_SHARE * u64::from(before));
            let ahead = taken.saturating_mul(2 * now_ms.saturating_sub(asked_ms)) / between_ms;
            u32::try_from(ahead).unwrap_or(AHEAD_MAX).min(AHEAD_MAX)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn one_message_goes_before_the_peer_has_said_how_many_may() {
        let mut credit = FarCredit::default();
        credit.gained();
        assert_eq!((credit.for_core(), credit.due_ms()), (1, None), "nothing waits yet");
        assert!(credit.take(5));
        assert_eq!(credit.for_core(), 0, "until the peer has answered");
        assert_eq!(credit.due_ms(), Some(0));
        credit.asked(10);
        assert_eq!(credit.due_ms(), None, "it is being asked");
        credit.answered(81, 1, 100, 10);
        assert_eq!((credit.for_core(), credit.due_ms()), (80, None));
        assert!((0..39).all(|_| credit.take(10)) && credit.due_ms().is_none());
        assert!(credit.take(10));
        assert_eq!(credit.due_ms(), Some(10), "half is gone");
        credit.answered(9999, 1, 9999, 20);
        assert_eq!(credit.for_core(), CORE_CREDIT_MAX);
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
            credit.asked(now_ms);
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

    /// Messages that go in a second over a link of this round trip, and the most that waited at the
    /// peer, where a consumer takes 22 in a millisecond until `stops_ms`.
    fn rate(round_trip_ms: u64, stops_ms: u64) -> (u64, u64) {
        const PREFETCH: u64 = 1000;
        let one_way = round_trip_ms / 2;
        let mut far = FarCredit::default();
        far.gained();
        let (mut there, mut answers, mut asked, mut told) =
            (VecDeque::new(), VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (mut in_flight, mut waits, mut waits_most, mut went) = (0_u32, 0_u64, 0, 0);
        for now_ms in 0..3000 {
            while answers.pop_front_if(|due| *due <= now_ms).is_some() {
                in_flight -= 1;
            }
            while let Some((_, credit)) = told.pop_front_if(|(due, _)| *due <= now_ms) {
                far.answered(credit, in_flight, 1000, now_ms);
            }
            for _ in 0..25 {
                let granted = 1000 + far.ahead();
                if in_flight < granted.min(in_flight + far.for_core()) && far.take(now_ms) {
                    in_flight += 1;
                    there.push_back(now_ms + one_way);
                    went += u64::from(2000 <= now_ms);
                }
                if far.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                    far.asked(now_ms);
                    asked.push_back(now_ms + one_way);
                }
            }
            while there.pop_front_if(|due| *due <= now_ms).is_some() {
                waits += 1;
                answers.push_back(now_ms + one_way);
            }
            if now_ms < stops_ms {
                waits = waits.saturating_sub(22);
            }
            while asked.pop_front_if(|due| *due <= now_ms).is_some() {
                let credit = PREFETCH.saturating_sub(waits).div_ceil(2);
                told.push_back((now_ms + one_way, credit as u32));
            }
            waits_most = waits_most.max(waits);
        }
        (went, waits_most)
    }

    #[test]
    fn a_long_round_trip_keeps_the_rate_of_a_consumer_that_keeps_up() {
        let (near, _) = rate(0, u64::MAX);
        for (round_trip_ms, tenths) in [(10, 9), (40, 9), (100, 7)] {
            let (far, waits) = rate(round_trip_ms, u64::MAX);
            assert!(tenths * near <= 10 * far, "{round_trip_ms} ms: {far} of {near}");
            assert!(waits <= 2 * 1000, "{round_trip_ms} ms: {waits} messages waited there");
        }
    }

    #[test]
    fn a_consumer_that_stops_is_left_with_no_more_than_two_round_trips_of_its_rate() {
        let (went, waits) = rate(40, 1500);
        assert_eq!(went, 0, "nothing goes without credit");
        assert!(waits <= 1000 + 2 * 40 * 25, "{waits} messages wait there");
    }
}
