//! Failed logins for the log and the audit: a flood of them fills neither.
//!
//! Of each minute the first [`ROWS_MAX`] are kept one by one. The others of that minute are one row
//! with their number.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::tokens::now_ms;

/// Failures within this time share their rows.
const WINDOW: Duration = Duration::from_secs(60);

/// Rows of one window, without the one that counts the others.
const ROWS_MAX: u32 = 30;

/// Rows that wait for the audit; beyond that the oldest goes. The log has it.
const WAITING_MAX: usize = 256;

/// A longer text of a client is kept by its beginning.
const TEXT_BYTES_MAX: usize = 256;

/// A login that failed, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedLogin {
    /// The wall clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// The user that the client claimed to be.
    pub user: Option<String>,
    /// The address of the client; `-` for those of several.
    pub peer: String,
    /// `LOGIN`, or the method of an HTTP request.
    pub method: String,
    /// The protocol, or the path of an HTTP request.
    pub path: String,
    /// As HTTP numbers it.
    pub status: u16,
    /// Why.
    pub reason: String,
}

impl FailedLogin {
    /// A failure in this protocol, now.
    pub fn new(protocol: &str, user: Option<&str>, peer: String, reason: &str) -> FailedLogin {
        let (user, reason) = (user.map(str::to_owned), format!("login failed: {reason}"));
        let (method, path) = ("LOGIN".to_owned(), protocol.to_owned());
        FailedLogin { at_ms: now_ms(), user, peer, method, path, status: 401, reason }
    }

    fn shortened(mut self) -> FailedLogin {
        let texts = [&mut self.path, &mut self.reason].into_iter().chain(self.user.as_mut());
        texts.for_each(|text| text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX)));
        self
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct FailedLogins(Mutex<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    /// When the window began.
    begun: Option<Instant>,
    rows: u32,
    left_out: u64,
    waiting: VecDeque<FailedLogin>,
}

impl FailedLogins {
    /// Keeps a failure.
    pub fn add(&self, failed: FailedLogin) {
        self.add_at(failed, Instant::now());
    }

    fn add_at(&self, failed: FailedLogin, now: Instant) {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.close_window(now);
        ledger.begun.get_or_insert(now);
        if ledger.rows < ROWS_MAX {
            ledger.rows += 1;
            ledger.keep(failed.shortened());
        } else {
            ledger.left_out += 1;
        }
    }

    /// The rows since the last call, the oldest first.
    pub fn take(&self) -> Vec<FailedLogin> {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Vec<FailedLogin> {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.close_window(now);
        ledger.waiting.drain(..).collect()
    }
}

impl Ledger {
    /// Ends a window that is over, with the count of the failures that it has no rows of.
    fn close_window(&mut self, now: Instant) {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) < WINDOW) {
            return;
        }
        let left_out = std::mem::take(&mut self.left_out);
        (self.begun, self.rows) = (None, 0);
        if 0 < left_out {
            let seconds = WINDOW.as_secs();
            let reason = format!("{left_out} further logins failed within {seconds} seconds");
            self.keep(FailedLogin { reason, ..FailedLogin::new("-", None, "-".to_owned(), "") });
        }
    }

    fn keep(&mut self, failed: FailedLogin) {
        let FailedLogin { user, peer, method, path, status, reason, .. } = &failed;
        tracing::warn!(user, peer, method, path, status, reason, "login failed");
        if WAITING_MAX <= self.waiting.len() {
            self.waiting.pop_front();
        }
        self.waiting.push_back(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(user: &str) -> FailedLogin {
        FailedLogin::new("AMQP", Some(user), "10.0.0.1".to_owned(), "wrong")
    }

    #[test]
    fn a_flood_is_some_rows_and_one_with_the_count_of_the_others() {
        let (failures, now) = (FailedLogins::default(), Instant::now());
        for number in 0..1_000 {
            failures.add_at(failed(&number.to_string()), now);
        }
        let rows = failures.take_at(now);
        assert_eq!(rows.len(), ROWS_MAX as usize);
        assert_eq!((rows[0].user.as_deref(), &*rows[0].reason), (Some("0"), "login failed: wrong"));
        assert_eq!(failures.take_at(now + WINDOW / 2), []);
        let later = failures.take_at(now + WINDOW);
        assert_eq!(later.len(), 1);
        assert_eq!(later[0].reason, "970 further logins failed within 60 seconds");
        failures.add_at(failed("ann"), now + WINDOW);
        assert_eq!(failures.take_at(now + WINDOW).len(), 1, "another window has rows of its own");
        assert_eq!(failures.take_at(now + 3 * WINDOW), [], "no count where none was left out");
    }

    #[test]
    fn rows_that_nothing_takes_and_long_texts_are_bounded() {
        let (failures, now) = (FailedLogins::default(), Instant::now());
        for minute in 0..20 {
            for _ in 0..=ROWS_MAX {
                failures.add_at(failed(&"ä".repeat(1_000)), now + minute * WINDOW);
            }
        }
        let rows = failures.take_at(now);
        assert_eq!(rows.len(), WAITING_MAX);
        assert!(rows.iter().flat_map(|row| &row.user).all(|user| user.len() <= TEXT_BYTES_MAX));
    }
}
