//! Users: a file with one line for each, which holds no password.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use postroad_model::Refusal;
use ring::rand::{SecureRandom, SystemRandom};

use crate::argon::{Argon, PREFIX};
use crate::documents::Text;
use crate::file;
use crate::keys::{Hash, ITERATIONS, Keys, SALT_BYTES};
use crate::prepare::prepared;

/// Longer names are refused.
const NAME_BYTES_MAX: usize = 255;

/// A longer password is not safer than its hash.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// The first lines of the file.
const TITLE: &str =
    "# Users of Postroad: a name, and the verifiers of its password: Argon2id, and SCRAM (RFC 5803).
# `postroad user add` writes it; SIGHUP makes a running broker reload it.
";

/// Why there are no users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    /// The file cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line of it is no user.
    #[error("{}: line {line}: {reason}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
    /// The name is not allowed.
    #[error(
        "{name:?} is not a valid user name: use 1 to {NAME_BYTES_MAX} bytes without spaces, not beginning with #"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The password is not allowed.
    #[error("a password must have 1 to {PASSWORD_BYTES_MAX} bytes without characters that SASLprep forbids")]
    Password,
    /// The name of a group is not allowed.
    #[error("{name:?} is not a valid group name: use 1 to {NAME_BYTES_MAX} bytes without spaces and commas")]
    Group {
        /// The name.
        name: String,
    },
    /// A user has a bounded number of groups.
    #[error("a user has at most {max} groups")]
    TooManyGroups {
        /// How many there may be.
        max: usize,
    },
    /// A token cannot be limited to that.
    #[error("{name:?} is not a scope of tokens: use messages, read or manage")]
    Scope {
        /// The name.
        name: String,
    },
    /// A file of tokens is bounded.
    #[error("the maximum of {max} tokens exists: revoke some")]
    TooManyTokens {
        /// How many there may be.
        max: usize,
    },
    /// A file of access keys is bounded.
    #[error("the maximum of {max} access keys exists: delete some")]
    TooManyKeys {
        /// How many there may be.
        max: usize,
    },
    /// The name of a tenant is not allowed.
    #[error("{name:?} is not a valid tenant name: use 1 to 64 letters, digits, - and _")]
    Tenant {
        /// The name.
        name: String,
    },
    /// A file of tenants is bounded.
    #[error("the maximum of {max} tenants exists: delete some")]
    TooManyTenants {
        /// How many there may be.
        max: usize,
    },
    /// A tenant has a bounded number of users.
    #[error("the tenant has the maximum of {max} users: remove some")]
    TooManyUsers {
        /// How many there may be.
        max: usize,
    },
    /// Browsers keep cookies up to a size.
    #[error(
        "the session has {bytes} bytes, with {groups} groups, and a cookie at most {max}: have the provider filter \
         the groups, or use a token"
    )]
    SessionTooLarge {
        /// How long its text is.
        bytes: usize,
        /// How long it may be.
        max: usize,
        /// The groups of its user.
        groups: usize,
    },
    /// The nodes of the cluster have not committed the change.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A password cannot be hashed.
    #[error("there is no memory to hash the password")]
    NoMemory,
    /// The system has no chance to give.
    #[error("the system provides no random numbers")]
    NoChance,
}

/// All users, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, User>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct User {
    /// For SCRAM.
    keys: Vec<Keys>,
    /// For all other logins; in files of earlier versions there is none.
    argon: Option<Argon>,
    groups: BTreeSet<String>,
}

/// The word of a line that names the user's groups begins so.
const GROUPS: &str = "groups=";

/// Groups of one user, at most.
const GROUPS_MAX: usize = 64;

impl Users {
    /// Reads a file of users.
    ///
    /// # Errors
    /// It cannot be read, or a line of it cannot be understood.
    pub fn load(file: &Path) -> Result<Users, UserError> {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|source| UserError::File { file: file.to_owned(), source })?;
        Users::parse(&text).map_err(|(line, reason)| UserError::Line { file: file.to_owned(), line, reason })
    }

    fn parse(text: &str) -> Result<Users, (usize, String)> {
        let mut users = Users::default();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            check_name(name).map_err(|error| (number, error.to_string()))?;
            let mut user = User::default();
            for word in words {
                if let Some(groups) = word.strip_prefix(GROUPS) {
                    user.groups.extend(groups.split(',').map(str::to_owned));
                } else if word.starts_with(PREFIX) {
                    user.argon = Some(Argon::parse(word).map_err(|reason| (number, reason))?);
                } else {
                    user.keys.push(Keys::parse(word).map_err(|reason| (number, reason))?);
                }
            }
            check_groups(&user.groups).map_err(|error| (number, error.to_string()))?;
            if user.keys.is_empty() && user.argon.is_none() {
                return Err((number, format!("{name} has no keys")));
            }
            if users.0.insert(name.to_owned(), user).is_some() {
                return Err((number, format!("{name} is already in an earlier line")));
            }
        }
        Ok(users)
    }

    fn to_text(&self) -> String {
        let line = |(name, user): (&String, &User)| {
            let argon = user.argon.iter().map(Argon::to_text);
            let mut words: Vec<String> = argon.chain(user.keys.iter().map(Keys::to_text)).collect();
            if !user.groups.is_empty() {
                let groups: Vec<&str> = user.groups.iter().map(String::as_str).collect();
                words.push(format!("{GROUPS}{}", groups.join(",")));
            }
            format!("{name} {}\n", words.join(" "))
        };
        std::iter::once(TITLE.to_owned()).chain(self.0.iter().map(line)).collect()
    }

    /// Writes the file as a whole or not at all, readable by its owner only.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, file: &Path) -> Result<(), UserError> {
        file::replace(file, &self.to_text())
    }

    /// Adds a user, or gives it another password. Takes as long as its verifiers take: Argon2id,
    /// and for SCRAM as well unless no user of the file has that.
    ///
    /// # Errors
    /// Name or password cannot be.
    pub fn set(&mut self, name: &str, password: &str) -> Result<(), UserError> {
        let with_scram = self.0.is_empty() || self.0.values().any(|user| !user.keys.is_empty());
        self.set_with(name, password, with_scram)
    }

    /// As [`Users::set`], with the verifiers of SCRAM or without.
    ///
    /// # Errors
    /// Name or password cannot be.
    pub fn set_with(&mut self, name: &str, password: &str, with_scram: bool) -> Result<(), UserError> {
        let name = prepared(name).ok_or_else(|| UserError::Name { name: name.to_owned() })?;
        check_name(&name)?;
        let password =
            prepared(password).filter(|password| (1..=PASSWORD_BYTES_MAX).contains(&password.len()));
        let password = password.ok_or(UserError::Password)?;
        let iterations = NonZeroU32::new(ITERATIONS).unwrap_or(NonZeroU32::MIN);
        let mut all = Vec::new();
        for hash in Hash::ALL.into_iter().filter(|_| with_scram) {
            all.push(Keys::derive(hash, &password, &salt()?, iterations));
        }
        let argon = Argon::derive(&password, &salt()?).map_err(|_| UserError::NoMemory)?;
        let user = self.0.entry(name.into_owned()).or_default();
        (user.keys, user.argon) = (all, Some(argon));
        Ok(())
    }

    /// Makes a user a member of these groups only; whether there is such a user.
    ///
    /// # Errors
    /// The name of a group cannot be, or there are too many.
    pub fn set_groups(&mut self, name: &str, groups: &[String]) -> Result<bool, UserError> {
        let groups: BTreeSet<String> = groups.iter().cloned().collect();
        check_groups(&groups)?;
        let known = self.known(name).map(str::to_owned);
        let Some(user) = known.and_then(|name| self.0.get_mut(&name)) else { return Ok(false) };
        user.groups = groups;
        Ok(true)
    }

    /// The groups of a user, in order.
    pub fn groups(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flat_map(|user| &user.groups).map(String::as_str)
    }

    /// All users, with their groups.
    pub fn groups_of_all(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &str>)> {
        self.0.iter().map(|(name, user)| (name.as_str(), user.groups.iter().map(String::as_str)))
    }

    /// Takes a user out; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        match self.known(name).map(str::to_owned) {
            Some(name) => self.0.remove(&name).is_some(),
            None => false,
        }
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The user of this name, as it stands in the file, whichever way it is spelt.
    pub fn known(&self, name: &str) -> Option<&str> {
        let found = |name: &str| self.0.get_key_value(name).map(|(known, _)| known.as_str());
        found(name).or_else(|| found(&prepared(name)?))
    }

    /// The keys of a user's password; under this function if one is given, or else under the one
    /// that is checked soonest.
    pub fn keys(&self, name: &str, hash: Option<Hash>) -> Option<&Keys> {
        self.0.get(name)?.keys.iter().rev().find(|keys| hash.is_none_or(|hash| keys.hash == hash))
    }

    /// What the user's password is checked with: the verifier by Argon2id, if it has one.
    pub fn argon(&self, name: &str) -> Option<&Argon> {
        self.0.get(name)?.argon.as_ref()
    }

    /// A verifier by Argon2id of any user.
    pub fn any_argon(&self) -> Option<&Argon> {
        self.0.values().find_map(|user| user.argon.as_ref())
    }

    /// All that is kept of the user's password, as text.
    pub fn verifiers(&self, name: &str) -> Option<String> {
        let user = self.0.get(name)?;
        let argon = user.argon.iter().map(Argon::to_text);
        Some(argon.chain(user.keys.iter().map(Keys::to_text)).collect())
    }

    /// Whether this is the password of the user. Takes its time.
    pub fn has_password(&self, name: &str, password: &str) -> bool {
        match (self.argon(name), self.keys(name, None)) {
            (Some(argon), _) => argon.is_of(password),
            (None, keys) => keys.is_some_and(|keys| keys.are_of(password)),
        }
    }

    /// Whether every user has keys for this function.
    pub fn all_have(&self, hash: Hash) -> bool {
        self.0.values().all(|user| user.keys.iter().any(|keys| keys.hash == hash))
    }
}

fn salt() -> Result<[u8; SALT_BYTES], UserError> {
    let mut salt = [0; SALT_BYTES];
    SystemRandom::new().fill(&mut salt).map_err(|_| UserError::NoChance)?;
    Ok(salt)
}

pub(crate) fn check_name(name: &str) -> Result<(), UserError> {
    let is_bad = |character: char| character.is_whitespace() || character.is_control();
    let good = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(is_bad) && !name.starts_with('#');
    if good { Ok(()) } else { Err(UserError::Name { name: name.to_owned() }) }
}

/// A file of users that is changed while a broker uses it. One change at a time; each begins with
/// the file as it is.
#[derive(Debug)]
pub struct UserFile {
    text: Text,
    writing: Mutex<()>,
}

impl UserFile {
    /// The users of this text.
    pub fn new(text: Text) -> UserFile {
        UserFile { text, writing: Mutex::default() }
    }

    /// Its text.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// Its users.
    ///
    /// # Errors
    /// As [`Users::load`].
    pub fn users(&self) -> Result<Users, UserError> {
        match self.text.read()? {
            Some(text) => Users::parse(&text).map_err(|wrong| self.text.wrong(wrong)),
            // The first node of a cluster that leads may have them.
            None if self.text.is_replicated() => Ok(Users::default()),
            None => Users::load(self.text.file()),
        }
    }

    /// Changes its users, and writes them if `change` returns true; returns that. Hashes and
    /// writes: not for a thread that others wait for.
    ///
    /// # Errors
    /// As `change`, or the file cannot be read or written.
    pub fn change(
        &self,
        change: impl FnOnce(&mut Users) -> Result<bool, UserError>,
    ) -> Result<bool, UserError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut users = self.users()?;
        let has_changed = change(&mut users)?;
        if has_changed {
            self.text.replace(&users.to_text())?;
        }
        Ok(has_changed)
    }
}

pub(crate) fn check_group(group: &str) -> Result<(), UserError> {
    match group.contains(',') || check_name(group).is_err() {
        true => Err(UserError::Group { name: group.to_owned() }),
        false => Ok(()),
    }
}

fn check_groups(groups: &BTreeSet<String>) -> Result<(), UserError> {
    match groups.iter().find_map(|group| check_group(group).err()) {
        Some(error) => Err(error),
        None if GROUPS_MAX < groups.len() => Err(UserError::TooManyGroups { max: GROUPS_MAX }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn what_was_written_is_read_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let mut users = Users::default();
        users.set("alice", "wonder").unwrap();
        users.set("bob", "builder").unwrap();
        users.set("bob", "other").unwrap();
        assert!(users.remove("alice") && !users.remove("alice"));
        users.set("eve", "apple").unwrap();
        users.store(&file).unwrap();
        let read = Users::load(&file).unwrap();
        assert_eq!(read, users);
        assert_eq!(read.names().collect::<Vec<_>>(), ["bob", "eve"]);
        assert!(Hash::ALL.into_iter().all(|hash| read.all_have(hash)));
        assert!(read.keys("bob", None).is_some_and(|keys| keys.are_of("other") && !keys.are_of("builder")));
        assert_eq!(read.keys("alice", None), None);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!std::fs::read_to_string(&file).unwrap().contains("other"));
    }

    #[test]
    fn lines_that_are_no_user_are_named() {
        let name = "\"#x\" is not a valid user name: use 1 to 255 bytes without spaces, not beginning with #";
        for (case, text, want) in [
            ("no keys", "# title\n\nalice".to_owned(), Some((3, "alice has no keys"))),
            ("twice", format!("a {KEYS}\na {KEYS}"), Some((2, "a is already in an earlier line"))),
            (
                "bad keys",
                "a b".to_owned(),
                Some((1, "expected SCRAM-SHA-256$iterations:salt$stored key:server key")),
            ),
            ("good", format!("a {KEYS}\n"), None),
        ] {
            let want = want.map(|(line, reason)| (line, reason.to_owned()));
            assert_eq!(Users::parse(&text).err(), want, "case: {case}");
        }
        let mut users = Users::default();
        assert_eq!(users.set("#x", "y").unwrap_err().to_string(), name);
        assert!(users.set("a b", "y").is_err() && users.set("", "y").is_err());
        assert!(matches!(users.set("a", ""), Err(UserError::Password)));
        assert!(matches!(users.set("a", &"x".repeat(PASSWORD_BYTES_MAX + 1)), Err(UserError::Password)));
        assert!(matches!(users.set("a", "bell\u{7}"), Err(UserError::Password)));
        assert_eq!(users, Users::default());
    }

    #[test]
    fn a_user_has_a_verifier_by_argon2id_and_for_scram_as_the_others_have() {
        let mut users = Users::default();
        users.set("ann", "one").unwrap();
        assert!(users.has_password("ann", "one") && !users.has_password("ann", "two"));
        assert!(users.argon("ann").unwrap().is_of("one") && users.all_have(Hash::Sha256));
        let text = users.to_text();
        assert_eq!(Users::parse(&text), Ok(users.clone()));
        assert!(text.lines().last().unwrap().starts_with("ann $argon2id$v=19$m=7168,t=5,p=1$"), "{text}");
        let mut users = Users::parse(&format!("old {KEYS}")).unwrap();
        assert!(users.argon("old").is_none(), "of an earlier version");
        users.set("new", "two").unwrap();
        assert!(users.all_have(Hash::Sha256) && users.any_argon() == users.argon("new"));
        let mut users = Users::default();
        users.set_with("ann", "one", false).unwrap();
        users.set("bob", "two").unwrap();
        assert!(users.keys("bob", None).is_none() && users.argon("bob").is_some());
        assert_eq!(Users::parse(&users.to_text()), Ok(users));
    }

    #[test]
    fn groups_are_kept_with_their_user_and_changed_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = UserFile::new(Text::of_file(&folder.path().join("users")));
        assert!(file.users().is_err(), "the first user comes from the command line");
        Users::default().store(&folder.path().join("users")).unwrap();
        let groups = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let add = |users: &mut Users| {
            users.set("ann", "x").and_then(|()| users.set_groups("ann", &groups(&["b", "a", "b"])))
        };
        assert!(file.change(add).unwrap());
        assert!(file.change(|users| users.set("ann", "y").map(|()| true)).unwrap());
        let users = file.users().unwrap();
        assert_eq!(users.groups("ann").collect::<Vec<_>>(), ["a", "b"], "another password keeps them");
        assert!(users.keys("ann", None).unwrap().are_of("y"));
        assert!(!file.change(|users| users.set_groups("bob", &[])).unwrap());
        let many: Vec<String> = (0..=GROUPS_MAX).map(|number| number.to_string()).collect();
        for wrong in [groups(&["a,b"]), groups(&[""]), groups(&["a b"]), many] {
            assert!(file.change(|users| users.set_groups("ann", &wrong)).is_err(), "{wrong:?}");
        }
        assert_eq!(file.users().unwrap(), users);
    }

    #[test]
    fn a_name_and_a_password_are_the_same_however_they_are_spelt() {
        let mut users = Users::default();
        users.set("u\u{308}ber", "I\u{AD}X").unwrap();
        for name in ["\u{fc}ber", "u\u{308}ber"] {
            assert_eq!(users.known(name), Some("\u{fc}ber"), "{name:?}");
        }
        assert_eq!(users.known("uber"), None);
        let keys = users.keys("\u{fc}ber", None).unwrap();
        for (password, good) in
            [("IX", true), ("I\u{AD}X", true), ("\u{2168}", true), ("ix", false), ("IX\u{7}", false)]
        {
            assert_eq!(keys.are_of(password), good, "{password:?}");
        }
        assert!(users.remove("u\u{308}ber") && users.names().next().is_none());
    }
}
