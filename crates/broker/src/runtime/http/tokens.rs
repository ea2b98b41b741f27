//! Tokens: who may use the queues over HTTP.
//!
//! Where anybody is let in every token is good. Otherwise a token is `USER:PASSWORD`, looked at as those of other protocols, and
//! remembered for a minute.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_model::{Login, LoginAnswer, Principal};
use postroad_security::{Door, Step, Visit};
use tokio::sync::Semaphore;

/// Tokens that are remembered; beyond that all are looked at again.
const REMEMBERED_MAX: usize = 1024;

/// For how long.
const REMEMBERED: Duration = Duration::from_secs(60);

/// See the head of this file.
#[derive(Default)]
pub struct Tokens(RefCell<BTreeMap<String, Remembered>>);

struct Remembered {
    principal: Principal,
    until: Instant,
}

impl Tokens {
    /// The user of this token; `None` if it is not valid.
    pub async fn principal_of(
        &self,
        token: Option<&str>,
        door: &Arc<Door>,
        logins: &Arc<Semaphore>,
    ) -> Option<Principal> {
        let mut visit = Visit::new(door.clone(), None);
        let anonymous = (!door.asks()).then_some(Principal::Anonymous);
        let Some(token) = token.filter(|_| visit.has_users()) else { return anonymous };
        if let Some(known) = self.0.borrow().get(token).filter(|known| Instant::now() < known.until) {
            return Some(known.principal.clone());
        }
        let Some((user, password)) = token.split_once(':') else { return anonymous };
        let login = Login::Password { user: Some(user.into()), password: Some(password.into()) };
        let answer = match visit.step(login) {
            Step::Answer(answer) => answer,
            Step::Check(check) => {
                let _permit = logins.acquire().await.ok()?;
                tokio::task::spawn_blocking(move || check.run()).await.ok()?
            }
        };
        let LoginAnswer::Welcome { user, .. } = answer else { return anonymous };
        let principal = Principal::of(user.as_ref());
        let mut remembered = self.0.borrow_mut();
        if REMEMBERED_MAX <= remembered.len() {
            remembered.clear();
        }
        let known = Remembered { principal: principal.clone(), until: Instant::now() + REMEMBERED };
        remembered.insert(token.to_owned(), known);
        Some(principal)
    }
}
