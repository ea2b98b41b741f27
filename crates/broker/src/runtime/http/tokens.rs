//! Tokens: who may use the queues over HTTP.
//!
//! Where anybody is let in every token is good. Otherwise it is a token of a user or of an identity
//! provider, or `USER:PASSWORD`: that is checked as in other protocols, and remembered for a
//! minute.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_model::{Login, LoginAnswer, Principal};
use postroad_security::ldap::DIRECTORY_AWAY;
use postroad_security::{Door, TOKEN_PREFIX, Visit};
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
    let (user, password) = token?.split_once(':').unwrap_or(("", token?));
    door.locked_for(&door.counted_user(user, password), address)
}

impl Tokens {
    /// The user of this token.
    ///
    /// # Errors
    /// It is not valid; with the reason, if it is of an identity provider.
    pub async fn principal_of(
        &self,
        (token, address): (Option<&str>, IpAddr),
        door: &Arc<Door>,
        logins: &Arc<Semaphore>,
    ) -> Result<Principal, Option<String>> {
        let mut visit = Visit::new(door.clone(), None).at(address).over("IronMQ");
        let anonymous = (!door.asks()).then_some(Principal::Anonymous).ok_or(None);
        let Some(token) = token.filter(|_| visit.has_users()) else { return anonymous };
        let is_known = |known: &&Remembered| Arc::ptr_eq(&known.door, door) && Instant::now() < known.until;
        if let Some(known) = self.0.borrow().get(token).filter(is_known) {
            return Ok(known.principal.clone());
        }
        let (user, password) = match token.split_once(':') {
            Some((user, password)) => (Some(user), password),
            None if token.starts_with(TOKEN_PREFIX) || door.takes_jwt(token) => (None, token),
            None => {
                let reason = "the token is neither of a user nor USER:PASSWORD".to_owned();
                visit.refusals().note(&LoginAnswer::Refused { reason });
                return anonymous;
            }
        };
        let is_jwt = door.takes_jwt(password);
        let is_token = password.starts_with(TOKEN_PREFIX);
        let login = Login::Password { user: user.map(Into::into), password: Some(password.into()) };
        let answer = postroad_admin::answer_of(visit.step(login), logins).await;
        visit.refusals().note(&answer);
        let principal = match answer {
            LoginAnswer::Welcome { principal, .. } => principal,
            LoginAnswer::Refused { reason } if is_jwt || reason == DIRECTORY_AWAY => {
                return anonymous.map_err(|_: Option<String>| Some(reason));
            }
            _ => return anonymous,
        };
        // A token is cheap to check, and may be revoked; a directory has a memory of its own.
        if is_token || !matches!(principal, Principal::User(_)) {
            return Ok(principal);
        }
        let mut remembered = self.0.borrow_mut();
        if REMEMBERED_MAX <= remembered.len() {
            remembered.clear();
        }
        let until = Instant::now() + REMEMBERED;
        let known = Remembered { principal: principal.clone(), door: door.clone(), until };
        remembered.insert(token.to_owned(), known);
        Ok(principal)
    }
}
