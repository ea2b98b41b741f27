//! Users of a directory (LDAP): it checks their passwords, and knows their groups.
//!
//! Answers of the directory are remembered for a while. A directory that does not answer is left
//! alone for some seconds. Sockets are elsewhere: see [`Ask`].

mod ber;
mod breaker;
mod cache;
mod conversation;
mod filter;
mod messages;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_model::Federated;

pub use breaker::Breaker;
use cache::{Active, Answers};
pub use conversation::{ANSWERS_BYTES_MAX, Conversation, Found, Service, Turn};
pub use filter::{Filter, FilterError, Placeholder};
pub use messages::{MESSAGE_BYTES_MAX, Outcome, Response, frame_bytes, read, start_tls, unbind};

use crate::users::{UserError, check_group, check_name};

/// Before the name of each user, so that none is a user of the broker's own file.
pub const LDAP_PREFIX: &str = "ldap:";

/// The error for a login that the directory could not check.
pub const DIRECTORY_AWAY: &str = "the directory of users does not answer; try again later";

/// Groups of a user, at most.
const GROUPS_MAX: usize = 256;

/// How users are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LdapRules {
    /// Where users are.
    pub user_base: String,
    /// Which entry is the user.
    pub user_filter: Filter,
    /// The attribute with the user's name.
    pub user_attribute: String,
    /// The attribute with the user's groups; empty for none.
    pub groups_attribute: String,
    /// Where groups are; empty for none.
    pub group_base: String,
    /// Which groups a user is in.
    pub group_filter: Filter,
    /// The attribute with the name of a group.
    pub group_attribute: String,
    /// Names of groups here, by those of the directory; others keep theirs.
    pub group_names: BTreeMap<String, String>,
    /// The directory ends a search after this time.
    pub seconds_max: u32,
}

/// Why a user of the directory is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LdapError {
    /// There is no such user, or it has another password.
    #[error("user name or password are wrong")]
    Wrong,
    /// It cannot be reached, or speaks no LDAP.
    #[error("{reason}")]
    Failed {
        /// Why.
        reason: String,
    },
    /// It has failed some times, and is left alone.
    #[error("the directory is not asked for {seconds} s after failures")]
    Resting {
        /// For how long.
        seconds: u64,
    },
    /// More logins wait for it than may.
    #[error("too many logins wait for the directory")]
    Busy,
    /// A message is longer than any that is expected.
    #[error("a message of the directory has {bytes} bytes; at most {MESSAGE_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It sends more than any user needs.
    #[error("the directory sends more than {max} bytes about one user")]
    TooMuch {
        /// The limit.
        max: usize,
    },
    /// It refuses a request.
    #[error("the directory refuses a request with the result {code}: {message}")]
    Refused {
        /// The result (RFC 4511, appendix A).
        code: u32,
        /// Its words.
        message: String,
    },
    /// It refuses the broker.
    #[error("the directory refuses security.ldap.bind_dn with the result {code}: {message}")]
    Service {
        /// The result.
        code: u32,
        /// Its words.
        message: String,
    },
    /// The filter fits several users.
    #[error("security.ldap.user_filter finds more than one entry for {user:?}")]
    Ambiguous {
        /// The name that the client has sent.
        user: String,
    },
    /// The entry has no name.
    #[error("the entry {dn:?} has no attribute {attribute}")]
    Nameless {
        /// The entry.
        dn: String,
        /// The attribute.
        attribute: String,
    },
    /// The name cannot be that of a user here.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// A name of the directory that cannot be one of the broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} of the directory cannot be the name of a user: use 1 to 250 bytes without spaces")]
pub struct NameError {
    /// The name.
    pub name: String,
}

impl From<ber::Malformed> for LdapError {
    fn from(error: ber::Malformed) -> LdapError {
        LdapError::failed(&format!("the directory sends {error}"))
    }
}

impl LdapError {
    /// For this reason.
    pub fn failed(reason: &str) -> LdapError {
        LdapError::Failed { reason: reason.to_owned() }
    }

    /// Whether the password may be right, and the directory cannot tell.
    pub fn is_own(&self) -> bool {
        !matches!(
            self,
            LdapError::Wrong | LdapError::Ambiguous { .. } | LdapError::Nameless { .. } | LdapError::Name(_)
        )
    }

    /// Whether it is the directory that does not work.
    pub fn is_failure(&self) -> bool {
        matches!(
            self,
            LdapError::Failed { .. }
                | LdapError::TooLong { .. }
                | LdapError::TooMuch { .. }
                | LdapError::Service { .. }
                | LdapError::Refused { code: 1 | 2 | 51 | 52 | 80, .. }
        )
    }
}

/// A login for the directory; without a password its groups alone are asked for.
pub struct Question {
    /// The name that the client has sent.
    pub user: String,
    /// Its password.
    pub password: Option<Box<str>>,
}

/// Asks the directory, within its time-out. Waits for no thread.
pub type Ask =
    Box<dyn Fn(Question) -> Pin<Box<dyn Future<Output = Result<Found, LdapError>> + Send>> + Send + Sync>;

/// Users, by the names that were asked for, each with the answer about it.
pub type Round = Vec<(String, Result<Found, LdapError>)>;

/// Asks the directory for the groups of these users, one after the other over one connection. The
/// answers end with the first that the directory cannot give. Waits for no thread.
pub type AskAll = Box<dyn Fn(Vec<String>) -> Pin<Box<dyn Future<Output = Round> + Send>> + Send + Sync>;

/// See the head of this file.
pub struct Ldap {
    rules: Arc<LdapRules>,
    ask: Ask,
    ask_all: AskAll,
    answers: Answers,
    active: Active,
}

impl fmt::Debug for Ldap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ldap").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Ldap {
    /// With good answers remembered for `remembered`.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn new(
        rules: Arc<LdapRules>,
        remembered: Duration,
        (ask, ask_all): (Ask, AskAll),
    ) -> Result<Ldap, UserError> {
        let (answers, active) = (Answers::new(remembered)?, Active::default());
        Ok(Ldap { rules, ask, ask_all, answers, active })
    }

    /// The user with this password, if the directory was asked a short while ago.
    pub fn remembered(&self, user: &str, password: &str) -> Option<Arc<Federated>> {
        let now = Instant::now();
        let federated = self.answers.get(user, password, now)?;
        self.active.logged_in(&federated.user, user, now);
        Some(federated)
    }

    /// Asks the directory.
    ///
    /// # Errors
    /// The user or password are wrong, or the directory cannot tell.
    pub async fn check(&self, user: String, password: Box<str>) -> Result<Arc<Federated>, LdapError> {
        let (name, secret) = (user.clone(), password.clone());
        let found = (self.ask)(Question { user, password: Some(password) }).await?;
        let federated = Arc::new(federated(&self.rules, found)?);
        if self.active.checked(&federated.user, Some(federated.groups.clone())) {
            self.answers.forget(&federated.user);
        }
        let now = Instant::now();
        self.active.logged_in(&federated.user, &name, now);
        self.answers.put(&name, &secret, federated.clone(), now);
        Ok(federated)
    }

    /// Whether a user who is let in may go on: as the directory was asked last.
    pub fn honours(&self, federated: &Federated) -> bool {
        self.active.honours(federated, Instant::now())
    }

    /// Asks again about each user that is connected, by the name of its last login: the filter need
    /// not find a user by the name that the directory has for it. That one is asked for if the
    /// login is not known. Users whom the directory does not have any more, or in other groups, may
    /// not go on. `false` if the directory cannot tell.
    pub async fn recheck(&self) -> bool {
        // A name may have come to another user since: it is then that of two logins.
        let mut asked: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for (user, login) in self.active.recent(Instant::now()) {
            let name = login.as_deref().or_else(|| user.strip_prefix(LDAP_PREFIX)).map(str::to_owned);
            if let Some(name) = name {
                asked.entry(name).or_default().push(user);
            }
        }
        if asked.is_empty() {
            return true;
        }
        for (name, found) in (self.ask_all)(asked.keys().cloned().collect()).await {
            let known = match found.and_then(|found| Ok(federated(&self.rules, found)?)) {
                Ok(known) => Some(known),
                Err(LdapError::Wrong | LdapError::Name(_) | LdapError::Nameless { .. }) => None,
                Err(error) if error.is_own() => return false,
                Err(_) => continue,
            };
            for user in asked.remove(&name).unwrap_or_default() {
                let groups = known.as_ref().filter(|known| known.user == user);
                let groups = groups.map(|known| known.groups.clone());
                if groups.is_none() {
                    tracing::info!(%user, "the directory has the user no more");
                }
                if self.active.checked(&user, groups) {
                    self.answers.forget(&user);
                }
            }
        }
        true
    }
}

/// The user, with the groups under their names here.
fn federated(rules: &LdapRules, found: Found) -> Result<Federated, NameError> {
    let user = format!("{LDAP_PREFIX}{}", found.name);
    if found.name.is_empty() || check_name(&user).is_err() {
        return Err(NameError { name: found.name });
    }
    let mut groups: Vec<Arc<str>> = Vec::new();
    for named in found.groups {
        let short = first_value(&named);
        let here = rules.group_names.get(&named).or_else(|| rules.group_names.get(short));
        let group = here.map_or(short, String::as_str);
        if check_group(group).is_err() {
            tracing::debug!(group = named, "a group of the directory cannot be one here");
        } else if groups.len() < GROUPS_MAX && !groups.iter().any(|known| **known == *group) {
            groups.push(group.into());
        }
    }
    groups.sort();
    Ok(Federated { user: user.into(), groups, expires_ms: None })
}

/// `orders` of `CN=orders,OU=groups`, as the attribute `memberOf` has it; other texts as they are.
fn first_value(name: &str) -> &str {
    let is_dn = name.contains('=') && !name.contains('\\');
    let first = name.split(',').next().filter(|_| is_dn).and_then(|first| first.split_once('='));
    first.map_or(name, |(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    pub(super) fn rules() -> LdapRules {
        LdapRules {
            user_base: "dc=x".to_owned(),
            user_filter: Filter::parse("(uid={user})").unwrap(),
            user_attribute: "uid".to_owned(),
            groups_attribute: String::new(),
            group_base: "dc=x".to_owned(),
            group_filter: Filter::parse("(member={dn})").unwrap(),
            group_attribute: "cn".to_owned(),
            group_names: BTreeMap::from([("Message Admins".to_owned(), "admins".to_owned())]),
            seconds_max: 3,
        }
    }

    fn found(name: &str, groups: &[&str]) -> Found {
        Found { name: name.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
    }

    #[test]
    fn groups_have_their_names_here() {
        let many = ["orders", "CN=bills,OU=groups,DC=x", "Message Admins", "two words", "orders"];
        let user = federated(&rules(), found("ann", &many)).unwrap();
        let groups: Vec<&str> = user.groups.iter().map(|group| &**group).collect();
        assert_eq!((&*user.user, groups), ("ldap:ann", vec!["admins", "bills", "orders"]));
        for name in ["", "a b", "a\n", &"x".repeat(251)] {
            assert!(federated(&rules(), found(name, &[])).is_err(), "{name:?}");
        }
    }

    fn ldap(answer: Result<Found, LdapError>) -> Ldap {
        directory(move |_| answer.clone())
    }

    /// A directory that answers so about each name, for logins and rounds alike.
    fn directory(answer: impl Fn(&str) -> Result<Found, LdapError> + Send + Sync + 'static) -> Ldap {
        let answer = Arc::new(answer);
        let again = answer.clone();
        let ask: Ask = Box::new(move |question| {
            let answer = answer(&question.user);
            Box::pin(async move { answer })
        });
        let ask_all: AskAll = Box::new(move |users| {
            let of = |user: String| {
                let answer = again(&user);
                (user, answer)
            };
            let round: Round = users.into_iter().map(of).collect();
            Box::pin(async move { round })
        });
        Ldap::new(Arc::new(rules()), Duration::from_secs(60), (ask, ask_all)).unwrap()
    }

    /// The result of a future that does not wait.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(result) => result,
            std::task::Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_good_answer_is_remembered_and_a_bad_one_is_not() {
        let good = ldap(Ok(found("ann", &["orders"])));
        assert!(good.remembered("ANN", "pw").is_none());
        let user = now(good.check("ANN".to_owned(), "pw".into())).unwrap();
        assert_eq!(good.remembered("ANN", "pw"), Some(user.clone()));
        assert!(good.remembered("ANN", "other").is_none() && good.remembered("bob", "pw").is_none());
        let bad = ldap(Err(LdapError::Wrong));
        assert_eq!(now(bad.check("ann".to_owned(), "pw".into())), Err(LdapError::Wrong));
        assert!(bad.remembered("ann", "pw").is_none());
    }

    #[test]
    fn a_user_who_is_removed_or_changes_groups_may_not_go_on() {
        let user = |groups: &[&str]| federated(&rules(), found("ann", groups)).unwrap();
        for (case, answer, want, answers) in [
            ("as before", Ok(found("ann", &["orders"])), true, true),
            ("removed", Err(LdapError::Wrong), false, true),
            ("another group", Ok(found("ann", &["orders", "bills"])), false, true),
            ("no group", Ok(found("ann", &[])), false, true),
            ("the directory is away", Err(LdapError::failed("x")), true, false),
        ] {
            let ldap = ldap(answer);
            assert!(ldap.honours(&user(&["orders"])), "case: {case}");
            assert_eq!(now(ldap.recheck()), answers, "case: {case}");
            assert_eq!(ldap.honours(&user(&["orders"])), want, "case: {case}");
        }
    }

    /// A directory that finds users by their addresses, as `(mail={user})` does, and not by names.
    fn by_address() -> (Ldap, Arc<Mutex<BTreeMap<&'static str, Found>>>) {
        let entries = Arc::new(Mutex::new(BTreeMap::from([
            ("ann@x", found("ann", &["orders"])),
            ("bob@x", found("bob", &[])),
        ])));
        let known = entries.clone();
        let answer = move |name: &str| known.lock().unwrap().get(name).cloned().ok_or(LdapError::Wrong);
        (directory(answer), entries)
    }

    #[test]
    fn a_user_is_asked_about_again_by_the_name_of_its_last_login() {
        for (case, is_honoured_before, is_remembered) in [
            ("its connection is seen after the login", false, false),
            ("it had a connection before", true, false),
            ("the login is a remembered one", false, true),
        ] {
            let (ldap, entries) = by_address();
            let ann = Arc::new(federated(&rules(), found("ann", &["orders"])).unwrap());
            if is_honoured_before {
                assert!(ldap.honours(&ann), "case: {case}");
            }
            assert_eq!(now(ldap.check("ann@x".to_owned(), "pw".into())).as_ref(), Ok(&ann), "case: {case}");
            if is_remembered {
                ldap.active.logged_in(&ann.user, "ann@y", Instant::now());
                assert_eq!(ldap.remembered("ann@x", "pw").as_ref(), Some(&ann), "case: {case}");
            }
            for _ in 0..2 {
                assert!(ldap.honours(&ann) && now(ldap.recheck()), "case: {case}");
            }
            assert!(ldap.honours(&ann), "case: {case}");
            entries.lock().unwrap().remove("ann@x");
            assert!(now(ldap.recheck()) && !ldap.honours(&ann), "case: {case}: it is gone");
        }
    }

    #[test]
    fn a_name_that_has_come_to_another_user_is_not_that_of_the_former() {
        let (ldap, entries) = by_address();
        let ann = now(ldap.check("ann@x".to_owned(), "pw".into())).unwrap();
        entries.lock().unwrap().insert("ann@x", found("new", &["orders"]));
        let new = now(ldap.check("ann@x".to_owned(), "other".into())).unwrap();
        assert_eq!((&*ann.user, &*new.user), ("ldap:ann", "ldap:new"));
        assert!(ldap.honours(&ann) && ldap.honours(&new) && now(ldap.recheck()));
        assert!(!ldap.honours(&ann) && ldap.honours(&new));
    }

    #[test]
    fn a_user_whose_login_is_not_known_is_asked_about_by_the_name_of_the_directory() {
        let ldap = directory(|name| match name {
            "ann" | "ann@x" => Ok(found("ann", &["orders"])),
            _ => Err(LdapError::Wrong),
        });
        let user = |name| federated(&rules(), found(name, &["orders"])).unwrap();
        let (ann, bob) = (user("ann"), user("bob"));
        assert!(ldap.honours(&ann) && ldap.honours(&bob) && now(ldap.recheck()));
        assert!(ldap.honours(&ann) && !ldap.honours(&bob));
    }

    #[test]
    fn failures_of_the_directory_are_not_those_of_a_user() {
        let refused = |code| LdapError::Refused { code, message: String::new() };
        for (error, is_own, is_failure) in [
            (LdapError::Wrong, false, false),
            (LdapError::Ambiguous { user: String::new() }, false, false),
            (LdapError::failed("x"), true, true),
            (LdapError::Busy, true, false),
            (LdapError::Resting { seconds: 1 }, true, false),
            (refused(52), true, true),
            (refused(50), true, false),
            (LdapError::Service { code: 49, message: String::new() }, true, true),
        ] {
            assert_eq!((error.is_own(), error.is_failure()), (is_own, is_failure), "{error}");
        }
    }
}
