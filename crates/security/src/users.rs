//! Users: a file with one line for each, which holds no password.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};

use crate::file;
use crate::keys::{Hash, ITERATIONS, Keys, SALT_BYTES};
use crate::prepare::prepared;

/// Longer names are refused.
const NAME_BYTES_MAX: usize = 255;

/// A longer password is not safer than its hash.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// The first lines of the file.
const TITLE: &str =
    "# Users of Postroad: a name, and what is kept of its password under each mechanism (RFC 5803).
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
    /// The system has no chance to give.
    #[error("the system provides no random numbers")]
    NoChance,
}

/// All users, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, Vec<Keys>>);

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
            let keys: Result<Vec<Keys>, String> = words.map(Keys::parse).collect();
            let keys = keys.map_err(|reason| (number, reason))?;
            if keys.is_empty() {
                return Err((number, format!("{name} has no keys")));
            }
            if users.0.insert(name.to_owned(), keys).is_some() {
                return Err((number, format!("{name} is already in an earlier line")));
            }
        }
        Ok(users)
    }

    fn to_text(&self) -> String {
        let line = |(name, keys): (&String, &Vec<Keys>)| {
            let keys: Vec<String> = keys.iter().map(Keys::to_text).collect();
            format!("{name} {}\n", keys.join(" "))
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

    /// Adds a user, or gives it another password. Takes as long as [`ITERATIONS`] say.
    ///
    /// # Errors
    /// Name or password cannot be.
    pub fn set(&mut self, name: &str, password: &str) -> Result<(), UserError> {
        let name = prepared(name).ok_or_else(|| UserError::Name { name: name.to_owned() })?;
        check_name(&name)?;
        let password =
            prepared(password).filter(|password| (1..=PASSWORD_BYTES_MAX).contains(&password.len()));
        let password = password.ok_or(UserError::Password)?;
        let iterations = NonZeroU32::new(ITERATIONS).unwrap_or(NonZeroU32::MIN);
        let mut all = Vec::new();
        for hash in Hash::ALL {
            let mut salt = [0; SALT_BYTES];
            SystemRandom::new().fill(&mut salt).map_err(|_| UserError::NoChance)?;
            all.push(Keys::derive(hash, &password, &salt, iterations));
        }
        self.0.insert(name.into_owned(), all);
        Ok(())
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

    /// The keys of a user's password; under this function if one is given, or else under the one that is checked
    /// soonest.
    pub fn keys(&self, name: &str, hash: Option<Hash>) -> Option<&Keys> {
        self.0.get(name)?.iter().rev().find(|keys| hash.is_none_or(|hash| keys.hash == hash))
    }

    /// Whether every user has keys for this function.
    pub fn all_have(&self, hash: Hash) -> bool {
        self.0.values().all(|keys| keys.iter().any(|keys| keys.hash == hash))
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), UserError> {
    let is_bad = |character: char| character.is_whitespace() || character.is_control();
    let good = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(is_bad) && !name.starts_with('#');
    if good { Ok(()) } else { Err(UserError::Name { name: name.to_owned() }) }
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
