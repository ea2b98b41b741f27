//! Tokens: who may use the queues over HTTP.
//!
//! Where anybody is let in every token is good. Otherwise it is a token of a user, or
//! `USER:PASSWORD`: that is checked as in other protocols, and remembered for a minute.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_model::{Login, LoginAnswer, Principal};
use postroad_security::{Door, Step, TOKEN_PREFIX, Visit};
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
    /// The users as they were when the password was checked.
    door: Arc<Door>,
    until: Instant,
}

/// How long the user of a token is refused for failures before, if it is.
pub fn locked_for(token: Option<&str>, address: IpAddr, door: &Door) -> Option<Duration> {
    let user = token?.split_once(':').map_or("", |(user, _)| user);
    door.locked_for(user, address)
}

impl Tokens {
    /// The user of this token; `None` if it is not valid.
    pub async fn principal_of(
        &self,
        (token, address): (Option<&str>, IpAddr),
        door: &Arc<Door>,
        logins: &Arc<Semaphore>,
    ) -> Option<Principal> {
        let mut visit = Visit::new(door.clone(), None).at(address);
        let anonymous = (!door.asks()).then_some(Principal::Anonymous);
        let Some(token) = token.filter(|_| visit.has_users()) else { return anonymous };
        let is_known = |known: &&Remembered| Arc::ptr_eq(&known.door, door) && Instant::now() < known.until;
        if let Some(known) = self.0.borrow().get(token).filter(is_known) {
            return Some(known.principal.clone());
        }
        let (user, password) = match token.split_once(':') {
            Some((user, password)) => (Some(user), password),
            None if token.starts_with(TOKEN_PREFIX) => (None, token),
            None => return anonymous,
        };
        let is_token = password.starts_with(TOKEN_PREFIX);
        let login = Login::Password { user: user.map(Into::into), password: Some(password.into()) };
        let answer = match visit.step(login) {
            Step::Answer(answer) => answer,
            Step::Check(check) => {
                let _permit = logins.acquire().await.ok()?;
                tokio::task::spawn_blocking(move || check.run()).await.ok()?
            }
        };
        let LoginAnswer::Welcome { user, .. } = answer else { return anonymous };
        let principal = Principal::of(user.as_ref());
        // It is cheap to check, and may be revoked.
        if is_token {
            return Some(principal);
        }
        let mut remembered = self.0.borrow_mut();
        if REMEMBERED_MAX <= remembered.len() {
            remembered.clear();
        }
        let until = Instant::now() + REMEMBERED;
        let known = Remembered { principal: principal.clone(), door: door.clone(), until };
        remembered.insert(token.to_owned(), known);
        Some(principal)
    }
}
