//! Callers whose password was checked a moment ago: a check takes many rounds on purpose, and a
//! console asks often.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use postroad_model::Principal;
use postroad_security::Door;
use tokio::time::Instant;

/// A password is checked again after this time.
const FOR: Duration = Duration::from_secs(60);

/// Callers that are known at a time.
const CALLERS_MAX: usize = 64;

/// See the head of this file. Credentials are kept as hashes under keys that no one else has.
#[derive(Default)]
pub struct Known {
    keys: [RandomState; 2],
    callers: VecDeque<Caller>,
}

struct Caller {
    credentials: [u64; 2],
    principal: Principal,
    /// The users as they were when the password was checked: others are not known.
    door: Arc<Door>,
    until: Instant,
}

impl Known {
    /// The user of these credentials, if they were good a moment ago.
    pub fn principal(&self, credentials: &str, door: &Arc<Door>) -> Option<Principal> {
        let hash = self.hash(credentials);
        let is_known = |caller: &&Caller| {
            caller.credentials == hash && Arc::ptr_eq(&caller.door, door) && Instant::now() < caller.until
        };
        self.callers.iter().find(is_known).map(|caller| caller.principal.clone())
    }

    /// These credentials are good.
    pub fn add(&mut self, credentials: &str, principal: Principal, door: Arc<Door>) {
        let hash = self.hash(credentials);
        self.callers.retain(|caller| caller.credentials != hash);
        if CALLERS_MAX <= self.callers.len() {
            self.callers.pop_front();
        }
        self.callers.push_back(Caller { credentials: hash, principal, door, until: Instant::now() + FOR });
    }

    fn hash(&self, credentials: &str) -> [u64; 2] {
        [self.keys[0].hash_one(credentials), self.keys[1].hash_one(credentials)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_known_for_a_while_and_only_while_the_users_stay_the_same() {
        let (door, other) = (Arc::new(Door::open()), Arc::new(Door::open()));
        let mut known = Known::default();
        assert_eq!(known.principal("Basic a", &door), None);
        let alice = Principal::User("alice".into());
        known.add("Basic a", alice.clone(), door.clone());
        assert_eq!(known.principal("Basic a", &door), Some(alice.clone()));
        assert_eq!(known.principal("Basic b", &door), None);
        assert_eq!(known.principal("Basic a", &other), None, "users were read again");
        tokio::time::advance(FOR).await;
        assert_eq!(known.principal("Basic a", &door), None);
        for number in 0..=CALLERS_MAX {
            known.add(&format!("Basic {number}"), alice.clone(), door.clone());
        }
        assert_eq!(known.callers.len(), CALLERS_MAX);
    }
}
