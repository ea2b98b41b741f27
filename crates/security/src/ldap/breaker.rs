//! Whether a directory is asked: one that has failed some times in a row is left alone for a while.
//! Logins then get their refusal at once. One of them tries again after that time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::LdapError;

/// Failures in a row before it is left alone.
const FAILURES_MAX: u32 = 3;

/// For this time.
const RESTS: Duration = Duration::from_secs(5);

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    rests_until: Option<Instant>,
}

impl Breaker {
    /// Whether the directory may be asked.
    ///
    /// # Errors
    /// It is left alone.
    pub fn permit(&self, now: Instant) -> Result<(), LdapError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.rests_until {
            None => Ok(()),
            Some(until) if now < until => {
                let seconds = until.saturating_duration_since(now).as_secs().max(1);
                Err(LdapError::Resting { seconds })
            }
            Some(_) => {
                // This one tries; others go on without the directory until it has an answer.
                state.rests_until = Some(now + RESTS);
                Ok(())
            }
        }
    }

    /// The result of having asked; whether the directory is left alone from now on, or asked again
    /// from now on, if that has changed.
    pub fn ended(&self, has_failed: bool, now: Instant) -> Option<bool> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = state.rests_until.is_some();
        match has_failed {
            true => {
                state.failures = state.failures.saturating_add(1);
                if FAILURES_MAX <= state.failures {
                    state.rests_until = Some(now + RESTS);
                }
            }
            false => *state = State::default(),
        }
        let rests = state.rests_until.is_some();
        (rests != rested).then_some(rests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_fails_is_left_alone_and_tried_by_one() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 1..FAILURES_MAX {
            assert_eq!((breaker.permit(now), breaker.ended(true, now)), (Ok(()), None));
        }
        assert_eq!(breaker.ended(false, now), None, "a success begins the count anew");
        for _ in 1..FAILURES_MAX {
            assert_eq!(breaker.ended(true, now), None);
        }
        assert_eq!(breaker.ended(true, now), Some(true));
        assert_eq!(breaker.permit(now), Err(LdapError::Resting { seconds: 5 }));
        let later = now + RESTS;
        assert_eq!(breaker.permit(later), Ok(()), "one tries");
        assert!(breaker.permit(later).is_err(), "the others do not");
        assert_eq!(breaker.ended(true, later), None);
        assert!(breaker.permit(later + RESTS / 2).is_err());
        assert_eq!(breaker.permit(later + RESTS), Ok(()));
        assert_eq!(breaker.ended(false, later + RESTS), Some(false));
        assert!((0..10).all(|_| breaker.permit(later + RESTS).is_ok()));
    }
}
