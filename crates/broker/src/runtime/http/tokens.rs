//! Tokens: who may use the queues over HTTP.
//!
//! Where anybody is let in every token is good. Otherwise a token is `USER:PASSWORD`, looked at as those of other protocols, and
//! remembered for a minute.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_model::{Login, LoginAnswer};
use postroad_security::{Door, Step, Visit};
use tokio::sync::Semaphore;

/// Tokens that are remembered; beyond that all are looked at again.
const REMEMBERED_MAX: usize = 1024;

/// For how long.
const REMEMBERED: Duration = Duration::from_secs(60);

/// See the head of this file.
#[derive(Default)]
pub struct Tokens(RefCell<BTreeMap<String, Instant>>);

impl Tokens {
    /// Whether this token opens the door.
    pub async fn are_good(&self, token: Option<&str>, door: &Arc<Door>, logins: &Arc<Semaphore>) -> bool {
        if !door.asks() {
            return true;
        }
        let Some(token) = token else { return false };
        if self.0.borrow().get(token).is_some_and(|until| Instant::now() < *until) {
            return true;
        }
        let (user, password) = token.split_once(':').unwrap_or((token, ""));
        let login = Login::Password { user: Some(user.into()), password: Some(password.into()) };
        let answer = match Visit::new(door.clone(), None).step(login) {
            Step::Answer(answer) => answer,
            Step::Check(check) => {
                let Ok(_permit) = logins.acquire().await else { return false };
                match tokio::task::spawn_blocking(move || check.run()).await {
                    Ok(answer) => answer,
                    Err(_) => return false,
                }
            }
        };
        let is_good = matches!(answer, LoginAnswer::Welcome { .. });
        if is_good {
            let mut remembered = self.0.borrow_mut();
            if REMEMBERED_MAX <= remembered.len() {
                remembered.clear();
            }
            remembered.insert(token.to_owned(), Instant::now() + REMEMBERED);
        }
        is_good
    }
}
