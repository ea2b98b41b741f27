//! Endpoints: the limits of requests to one of them.
//!
//! Messages wait in the line of their endpoint, whatever queue they are of. An endpoint that fails
//! again and again is left alone for a while (its circuit is open), and then asked by one request
//! at a time until it answers.

use std::collections::VecDeque;

use super::delivery::Key;

/// Failures in a row that open the circuit.
const FAILURES_MAX: u32 = 10;
/// How long the circuit is open at first: doubled with each further failure.
const OPEN_MS: u64 = 5000;
/// How long it is open at most.
const OPEN_MS_MAX: u64 = 300_000;

/// The limits that the queue of a request sets.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Requests at a time.
    pub concurrency: u32,
    /// Requests in a second; 0 for any number.
    pub rate: u32,
}

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Now.
    Now,
    /// Once another one is answered.
    AfterAnAnswer,
    /// Then.
    At(u64),
}

/// One endpoint.
#[derive(Debug, Default)]
pub struct Endpoint {
    /// Attempts that wait for their turn.
    pub line: VecDeque<Key>,
    in_flight: u32,
    failures: u32,
    /// Nothing is sent before: the circuit is open, or the endpoint has asked for a rest.
    closed_until_ms: u64,
    /// By its rate, nothing is sent before, in microseconds.
    next_us: u64,
}

impl Endpoint {
    /// Whether the circuit is not closed: requests go one at a time, or not at all.
    pub fn is_suspect(&self) -> bool {
        FAILURES_MAX <= self.failures
    }

    /// Whether it may be forgotten.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        self.line.is_empty() && self.in_flight == 0 && self.failures == 0 && self.closed_until_ms <= now_ms
    }

    /// Whether the next request may be sent.
    pub fn may_send(&self, now_ms: u64, allowed: Allowed) -> May {
        if now_ms < self.closed_until_ms {
            return May::At(self.closed_until_ms);
        }
        let concurrency = if self.is_suspect() { 1 } else { allowed.concurrency };
        if concurrency <= self.in_flight {
            return May::AfterAnAnswer;
        }
        match 0 < allowed.rate && now_ms.saturating_mul(1000) < self.next_us {
            true => May::At(self.next_us.div_ceil(1000)),
            false => May::Now,
        }
    }

    /// A request is sent.
    pub fn sent(&mut self, now_ms: u64, allowed: Allowed) {
        self.in_flight += 1;
        if 0 < allowed.rate {
            let now_us = now_ms.saturating_mul(1000);
            // A tenth of a second may be made up for: timers are not exact.
            self.next_us =
                self.next_us.max(now_us.saturating_sub(100_000)) + 1_000_000 / u64::from(allowed.rate);
        }
    }

    /// A request was not made after all: this says nothing about the endpoint.
    pub fn not_asked(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// A request is answered. `failed`: the endpoint could not be reached, or has trouble.
    /// `rest_ms`: it asks for a rest.
    pub fn answered(&mut self, now_ms: u64, failed: bool, rest_ms: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.closed_until_ms = self.closed_until_ms.max(now_ms.saturating_add(rest_ms));
        if !failed {
            self.failures = 0;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if let Some(further) = self.failures.checked_sub(FAILURES_MAX) {
            let open_ms = OPEN_MS.saturating_mul(1 << further.min(16)).min(OPEN_MS_MAX);
            self.closed_until_ms = self.closed_until_ms.max(now_ms.saturating_add(open_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_keep_to_the_limits() {
        let allowed = Allowed { concurrency: 2, rate: 0 };
        let mut endpoint = Endpoint::default();
        endpoint.sent(0, allowed);
        assert_eq!(endpoint.may_send(0, allowed), May::Now);
        endpoint.sent(0, allowed);
        assert_eq!(endpoint.may_send(0, allowed), May::AfterAnAnswer);
        endpoint.answered(5, false, 0);
        assert_eq!(endpoint.may_send(5, allowed), May::Now);

        let allowed = Allowed { concurrency: 100, rate: 10 };
        let mut endpoint = Endpoint::default();
        let mut sent = 0;
        for now_ms in 1000..2000 {
            while endpoint.may_send(now_ms, allowed) == May::Now {
                endpoint.sent(now_ms, allowed);
                endpoint.answered(now_ms, false, 0);
                sent += 1;
            }
        }
        assert_eq!(sent, 11, "10 in a second, and one made up for");
    }

    #[test]
    fn an_endpoint_that_fails_is_left_alone_and_asked_by_one_request() {
        let allowed = Allowed { concurrency: 5, rate: 0 };
        let mut endpoint = Endpoint::default();
        for _ in 0..FAILURES_MAX {
            endpoint.sent(0, allowed);
            endpoint.answered(0, true, 0);
        }
        assert_eq!(endpoint.may_send(1, allowed), May::At(OPEN_MS));
        assert_eq!(endpoint.may_send(OPEN_MS, allowed), May::Now);
        endpoint.sent(OPEN_MS, allowed);
        assert_eq!(endpoint.may_send(OPEN_MS, allowed), May::AfterAnAnswer);
        endpoint.answered(OPEN_MS, true, 0);
        assert_eq!(endpoint.may_send(OPEN_MS, allowed), May::At(3 * OPEN_MS));
        endpoint.sent(3 * OPEN_MS, allowed);
        endpoint.answered(3 * OPEN_MS, false, 0);
        endpoint.sent(3 * OPEN_MS, allowed);
        assert_eq!(endpoint.may_send(3 * OPEN_MS, allowed), May::Now);
        endpoint.answered(3 * OPEN_MS, true, 60_000);
        assert_eq!(
            endpoint.may_send(3 * OPEN_MS, allowed),
            May::At(3 * OPEN_MS + 60_000),
            "it asked for a rest"
        );
    }
}
