//! Requests with a session whose key this node may get in a moment: another node of the cluster has
//! made it.
//!
//! Never here: which keys may still come ([`postroad_security::SessionBook`]).

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::problem::Problem;

/// A key that another node of the cluster has made is known within this time.
const KEY_WITHIN: Duration = Duration::from_secs(2);
/// From one look for it to the next.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Requests that wait at a time. A page of the console makes a few; without a login any number can
/// claim such a key.
const WAITING_MAX: usize = 64;
/// When to try again beyond that.
const RETRY_SECONDS: u64 = 1;

/// See the head of this file.
pub struct KeyWaits(Semaphore);

impl Default for KeyWaits {
    fn default() -> KeyWaits {
        KeyWaits(Semaphore::new(WAITING_MAX))
    }
}

impl KeyWaits {
    /// Waits until the key is known, for a time at most. Returns whether it is.
    ///
    /// # Errors
    /// Too many requests wait.
    pub async fn wait(&self, is_known: impl Fn() -> bool) -> Result<bool, Problem> {
        let Ok(_place) = self.0.try_acquire() else {
            let reason = format!(
                "{WAITING_MAX} requests wait for the key of their session, which this node has not got yet"
            );
            return Err(Problem { retry_after_seconds: Some(RETRY_SECONDS), ..Problem::new(503, reason) });
        };
        let until = Instant::now() + KEY_WITHIN;
        while !is_known() {
            if until <= Instant::now() {
                return Ok(false);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_awaited_for_a_while_and_by_a_few_requests_at_a_time() {
        let (waits, is_known) = (Arc::new(KeyWaits::default()), Arc::new(AtomicBool::new(false)));
        let wait = || {
            let (waits, is_known) = (waits.clone(), is_known.clone());
            async move { waits.wait(|| is_known.load(Ordering::Relaxed)).await }
        };
        let begun = Instant::now();
        assert_eq!(wait().await, Ok(false));
        assert_eq!(begun.elapsed(), KEY_WITHIN);
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| tokio::spawn(wait())).collect();
        tokio::time::sleep(LOOK_EVERY / 2).await;
        let begun = Instant::now();
        let refused = wait().await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after_seconds), (503, Some(1)), "{}", refused.message);
        assert_eq!(begun.elapsed(), Duration::ZERO, "it does not wait");
        is_known.store(true, Ordering::Relaxed);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Ok(true));
        }
        assert!(begun.elapsed() <= LOOK_EVERY, "as soon as the key is known");
        is_known.store(false, Ordering::Relaxed);
        assert_eq!(wait().await, Ok(false), "there is a place again");
    }
}
