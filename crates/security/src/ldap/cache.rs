//! Good answers of the directory, and the users who are let in now. Both are bounded, and neither
//! has a password.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postroad_model::Federated;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::users::UserError;

/// Answers that are remembered; beyond that the oldest go.
const ANSWERS_MAX: usize = 4_096;

/// Users who are let in and asked about again; further ones go on until their connections end.
const ACTIVE_MAX: usize = 20_000;

/// A user whose connections were not seen for this time has none.
const RECENT: Duration = Duration::from_secs(10);

/// The state of a user without connections is kept for this time: a session of the console may
/// rest as long.
const KEPT: Duration = Duration::from_secs(12 * 60 * 60);

/// When the directory has answered, and with which user.
type Answer = (Instant, Arc<Federated>);

/// Answers by a digest of user and password, with a secret of this process.
pub struct Answers {
    key: hmac::Key,
    remembered: Duration,
    all: Mutex<BTreeMap<[u8; 32], Answer>>,
}

impl Answers {
    /// None yet.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn new(remembered: Duration) -> Result<Answers, UserError> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| UserError::NoChance)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        Ok(Answers { key, remembered, all: Mutex::default() })
    }

    fn digest(&self, user: &str, password: &str) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(user.len() as u64).to_be_bytes());
        context.update(user.as_bytes());
        context.update(password.as_bytes());
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    /// The answer, if it is not too old.
    pub fn get(&self, user: &str, password: &str, now: Instant) -> Option<Arc<Federated>> {
        let digest = self.digest(user, password);
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, federated) = all.get(&digest)?;
        (now.saturating_duration_since(*at) < self.remembered).then(|| federated.clone())
    }

    /// Remembers an answer.
    pub fn put(&self, user: &str, password: &str, federated: Arc<Federated>, now: Instant) {
        if self.remembered.is_zero() {
            return;
        }
        let digest = self.digest(user, password);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if ANSWERS_MAX <= all.len() {
            all.retain(|_, (at, _)| now.saturating_duration_since(*at) < self.remembered);
            if ANSWERS_MAX <= all.len() {
                let mut times: Vec<Instant> = all.values().map(|(at, _)| *at).collect();
                let (_, until, _) = times.select_nth_unstable(ANSWERS_MAX / 4);
                let until = *until;
                all.retain(|_, (at, _)| until < *at);
            }
        }
        all.insert(digest, (now, federated));
    }

    /// Forgets all answers about a user.
    pub fn forget(&self, user: &str) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, federated)| &*federated.user != user);
    }
}

/// Users who are let in, as the directory was asked about them last.
#[derive(Debug, Default)]
pub struct Active(Mutex<States>);

#[derive(Debug, Default)]
struct State {
    /// When connections of it were seen last; `None` before the first.
    seen: Option<Instant>,
    /// When it logged in last, and by which name; `None` if it did so elsewhere.
    login: Option<(Instant, Arc<str>)>,
    /// Its groups, sorted; `None` before it was asked again.
    checked: Option<Checked>,
}

#[derive(Debug, PartialEq, Eq)]
enum Checked {
    Gone,
    In(Vec<Arc<str>>),
}

impl State {
    fn has_connections(&self, now: Instant) -> bool {
        self.seen.is_some_and(|seen| now.saturating_duration_since(seen) < RECENT)
    }

    /// Whether connections of it, or its login, are as recent.
    fn is_kept(&self, now: Instant, within: Duration) -> bool {
        let latest = self.seen.max(self.login.as_ref().map(|(at, _)| *at));
        latest.is_some_and(|latest| now.saturating_duration_since(latest) < within)
    }
}

type States = BTreeMap<Arc<str>, State>;

/// The state of a user, which is made if there is room.
fn state<'a>(all: &'a mut States, user: &Arc<str>, now: Instant) -> Option<&'a mut State> {
    if !all.contains_key(user) {
        if ACTIVE_MAX <= all.len() {
            all.retain(|_, state| state.is_kept(now, RECENT));
        }
        if ACTIVE_MAX <= all.len() {
            return None;
        }
    }
    Some(all.entry(user.clone()).or_default())
}

impl Active {
    /// Whether this user, who is let in with these groups, may go on.
    pub fn honours(&self, federated: &Federated, now: Instant) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = state(&mut all, &federated.user, now) else { return true };
        state.seen = Some(now);
        match &state.checked {
            None => true,
            Some(Checked::Gone) => false,
            Some(Checked::In(groups)) => *groups == federated.groups,
        }
    }

    /// A user has logged in by this name, which need not be the one that the directory has for it.
    pub fn logged_in(&self, user: &Arc<str>, name: &str, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = state(&mut all, user, now) else { return };
        let known = state.login.take().map(|(_, known)| known).filter(|known| **known == *name);
        state.login = Some((now, known.unwrap_or_else(|| name.into())));
    }

    /// Users with connections, each with the name by which it logged in last, if that is known.
    pub fn recent(&self, now: Instant) -> Vec<(Arc<str>, Option<Arc<str>>)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, state| state.is_kept(now, KEPT));
        let recent = all.iter().filter(|(_, state)| state.has_connections(now));
        let row = |(user, state): (&Arc<str>, &State)| {
            (user.clone(), state.login.as_ref().map(|(_, name)| name.clone()))
        };
        recent.map(row).collect()
    }

    /// The directory was asked about a user: its groups, or that it is gone. Whether that is news.
    pub fn checked(&self, user: &str, groups: Option<Vec<Arc<str>>>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = all.get_mut(user) else { return false };
        let now = Some(groups.map_or(Checked::Gone, Checked::In));
        let is_news = state.checked != now;
        state.checked = now;
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Arc<Federated> {
        Arc::new(Federated { user: name.into(), groups: Vec::new(), expires_ms: None })
    }

    #[test]
    fn answers_are_forgotten_in_time_and_bounded() {
        let (answers, now) = (Answers::new(Duration::from_secs(60)).unwrap(), Instant::now());
        answers.put("ann", "pw", user("ldap:ann"), now);
        assert!(answers.get("ann", "pw", now + Duration::from_secs(59)).is_some());
        assert!(answers.get("ann", "pw", now + Duration::from_secs(60)).is_none());
        assert!(answers.get("an", "npw", now).is_none(), "another split of the same text");
        answers.forget("ldap:ann");
        assert!(answers.get("ann", "pw", now).is_none());
        for number in 0..2 * ANSWERS_MAX {
            let at = now + Duration::from_micros(number as u64);
            answers.put(&number.to_string(), "pw", user("x"), at);
            assert!(answers.all.lock().unwrap().len() <= ANSWERS_MAX);
        }
        assert!(answers.get(&(2 * ANSWERS_MAX - 1).to_string(), "pw", now).is_some());
        let never = Answers::new(Duration::ZERO).unwrap();
        never.put("ann", "pw", user("x"), now);
        assert!(never.get("ann", "pw", now).is_none());
    }

    #[test]
    fn users_without_connections_are_forgotten_and_the_table_is_bounded() {
        let (active, now) = (Active::default(), Instant::now());
        for number in 0..ACTIVE_MAX + 10 {
            assert!(active.honours(&user(&number.to_string()), now));
        }
        assert_eq!(active.recent(now).len(), ACTIVE_MAX);
        assert!(active.checked("7", None) && !active.checked("7", None));
        assert!(!active.honours(&user("7"), now));
        assert!(active.checked("7", Some(Vec::new())));
        assert!(active.honours(&user("7"), now), "it has logged in again");
        active.checked("7", None);
        assert_eq!(active.recent(now + RECENT).len(), 0);
        assert!(!active.honours(&user("7"), now + KEPT / 2), "a session that has rested");
        let later = now + KEPT;
        assert!(active.honours(&user("new"), later), "those not seen make room");
        assert_eq!((active.recent(later).len(), active.0.lock().unwrap().len()), (1, 1));
    }

    #[test]
    fn the_name_of_the_last_login_is_kept_within_the_same_bounds() {
        let (active, now, ann) = (Active::default(), Instant::now(), user("ldap:ann"));
        let asked = |at| active.recent(at).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        active.logged_in(&ann.user, "ann@x", now);
        assert_eq!(asked(now), [], "it has no connection yet");
        assert!(active.honours(&ann, now));
        assert_eq!(asked(now), [Some("ann@x".into())]);
        active.logged_in(&ann.user, "ann@y", now);
        assert_eq!(asked(now), [Some("ann@y".into())], "the last one counts");
        let again = now + KEPT - RECENT;
        assert!(active.honours(&ann, again));
        assert_eq!(asked(again + RECENT), [], "its connections have ended");
        assert!(active.honours(&ann, again + KEPT / 2));
        assert_eq!(asked(again + KEPT / 2), [Some("ann@y".into())]);
        active.logged_in(&ann.user, "ann@x", again + KEPT / 2 + RECENT);
        assert_eq!(asked(again + KEPT / 2 + RECENT), [], "a login is no connection");
        let later = again + 2 * KEPT;
        for number in 0..ACTIVE_MAX + 10 {
            active.logged_in(&number.to_string().into(), "x", later);
        }
        assert_eq!(active.0.lock().unwrap().len(), ACTIVE_MAX);
        assert!(active.honours(&user("another"), later), "it goes on, and is not asked about");
        assert_eq!(asked(later), []);
        let logins_are_old = later + RECENT;
        assert!(active.honours(&user("another"), logins_are_old), "those not seen make room");
        assert_eq!((asked(logins_are_old), active.0.lock().unwrap().len()), (vec![None], 1));
    }
}
