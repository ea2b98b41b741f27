//! Access keys: with which clients of HTTP APIs sign their requests.
//!
//! A signature is verified with the secret itself, so the file holds secrets: only its owner may
//! read it.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::{BASE32_NOPAD, BASE64};
use ring::rand::{SecureRandom, SystemRandom};

use crate::file;
use crate::users::{UserError, check_name};

/// The first line of the file.
const TITLE: &str = "# Access keys of Postroad: id, secret, user. `postroad ctl key new` writes it.\n";

/// Keys begin so, and have 16 more characters.
const PREFIX: &str = "PRAK";
const ID_BYTES: usize = 10;
const SECRET_BYTES: usize = 30;

/// Keys of one file, at most.
const KEYS_MAX: usize = 10_000;

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessKey {
    /// With which requests are signed.
    pub secret: String,
    /// Whose requests these are.
    pub user: String,
}

/// All keys, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessKeys(BTreeMap<String, AccessKey>);

impl AccessKeys {
    /// Reads a file of keys; one that does not exist has none.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is no key.
    pub fn load(file: &Path) -> Result<AccessKeys, UserError> {
        let Some(text) = file::content(file)? else { return Ok(AccessKeys::default()) };
        let wrong = |(line, reason)| UserError::Line { file: file.to_owned(), line, reason };
        AccessKeys::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<AccessKeys, (usize, String)> {
        let mut keys = AccessKeys::default();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [id, secret, user] = &words[..] else {
                return Err((number, "expected ID SECRET USER".to_owned()));
            };
            check_name(user).map_err(|error| (number, error.to_string()))?;
            let key = AccessKey { secret: (*secret).to_owned(), user: (*user).to_owned() };
            if keys.0.insert((*id).to_owned(), key).is_some() {
                return Err((number, format!("{id} is already in an earlier line")));
            }
        }
        Ok(keys)
    }

    /// Writes the file as a whole or not at all, for its owner alone to read.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, file: &Path) -> Result<(), UserError> {
        let line = |(id, key): (&String, &AccessKey)| format!("{id} {} {}\n", key.secret, key.user);
        let text: String = std::iter::once(TITLE.to_owned()).chain(self.0.iter().map(line)).collect();
        file::replace(file, &text)
    }

    /// Makes a key for a user, and returns its id with it.
    ///
    /// # Errors
    /// The name cannot be, there are too many keys, or the system provides no random numbers.
    pub fn add(&mut self, user: &str) -> Result<(String, AccessKey), UserError> {
        check_name(user)?;
        if KEYS_MAX <= self.0.len() {
            return Err(UserError::TooManyKeys { max: KEYS_MAX });
        }
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        let random = SystemRandom::new();
        random.fill(&mut id).and_then(|()| random.fill(&mut secret)).map_err(|_| UserError::NoChance)?;
        let id = format!("{PREFIX}{}", BASE32_NOPAD.encode(&id));
        let key = AccessKey { secret: BASE64.encode(&secret), user: user.to_owned() };
        self.0.insert(id.clone(), key.clone());
        Ok((id, key))
    }

    /// Takes a key out; whether there was one.
    pub fn remove(&mut self, id: &str) -> bool {
        self.0.remove(id).is_some()
    }

    /// The key with this id.
    pub fn get(&self, id: &str) -> Option<&AccessKey> {
        self.0.get(id)
    }

    /// All keys, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AccessKey)> {
        self.0.iter().map(|(id, key)| (id.as_str(), key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written_by_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access-keys");
        assert_eq!(AccessKeys::load(&file).unwrap(), AccessKeys::default());
        let mut keys = AccessKeys::default();
        let (id, key) = keys.add("alice").unwrap();
        let (other, _) = keys.add("alice").unwrap();
        assert_eq!((id.len(), key.secret.len()), (20, 40));
        assert!(keys.remove(&other) && !keys.remove(&other));
        keys.store(&file).unwrap();
        let read = AccessKeys::load(&file).unwrap();
        assert_eq!((read.get(&id), read.get(&other), read.iter().count()), (Some(&key), None, 1));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn lines_that_are_no_key_are_named() {
        for (text, line) in [("# title\n\na b", 3), ("a b c\na b c", 2), ("a b c d", 1)] {
            assert_eq!(AccessKeys::parse(text).map_err(|(line, _)| line), Err(line), "{text}");
        }
        assert!(AccessKeys::default().add("a b").is_err());
    }
}
