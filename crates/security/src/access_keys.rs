//! Access keys: with which clients of HTTP APIs sign their requests.
//!
//! A signature is verified with the secret itself, so the text holds secrets: of a file only its
//! owner may read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use data_encoding::{BASE32_NOPAD, BASE64};
use ring::rand::{SecureRandom, SystemRandom};

use crate::documents::Text;
use crate::prepare::prepared;
use crate::users::{UserError, check_name};

/// The first line of the file.
const TITLE: &str = "# Access keys of Postroad: id, secret, user. `postroad ctl key new` writes it.\n";

/// Keys begin so, and have 16 more characters.
const PREFIX: &str = "PRAK";
const ID_BYTES: usize = 10;
const SECRET_BYTES: usize = 30;

/// Keys of one text, at most.
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
    /// Reads the keys of a text; one that does not exist has none.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is no key.
    pub fn load(text: &Text) -> Result<AccessKeys, UserError> {
        let Some(content) = text.read()? else { return Ok(AccessKeys::default()) };
        AccessKeys::parse(&content).map_err(|wrong| text.wrong(wrong))
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

    /// Replaces the text as a whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    fn store(&self, text: &Text) -> Result<(), UserError> {
        let line = |(id, key): (&String, &AccessKey)| format!("{id} {} {}\n", key.secret, key.user);
        let content: String = std::iter::once(TITLE.to_owned()).chain(self.0.iter().map(line)).collect();
        text.replace(&content)
    }

    /// Makes a key for a user, and returns its id with it.
    ///
    /// # Errors
    /// The name cannot be, there are too many keys, or the system provides no random numbers.
    fn add(&mut self, user: &str) -> Result<(String, AccessKey), UserError> {
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

    /// The key with this id.
    pub fn get(&self, id: &str) -> Option<&AccessKey> {
        self.0.get(id)
    }

    /// All keys, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AccessKey)> {
        self.0.iter().map(|(id, key)| (id.as_str(), key))
    }
}

/// The access keys of a broker, with their text. The text is read for each change: `postroad ctl
/// key` writes the file of a broker that does not run.
#[derive(Debug)]
pub struct AccessKeyBook {
    text: Text,
    /// Held while the text is replaced.
    changing: Mutex<()>,
}

impl AccessKeyBook {
    /// Of this text.
    pub fn new(text: Text) -> AccessKeyBook {
        AccessKeyBook { text, changing: Mutex::default() }
    }

    /// Their text.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// Makes a key for a user, and returns its id with it. Writes the text: not for a thread that
    /// others wait for.
    ///
    /// # Errors
    /// The name cannot be, there are too many keys, the text cannot be read or written, or the
    /// system provides no random numbers.
    pub fn add(&self, user: &str) -> Result<(String, AccessKey), UserError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys = AccessKeys::load(&self.text)?;
        let made = keys.add(user)?;
        keys.store(&self.text)?;
        Ok(made)
    }

    /// Deletes a key; whether there was one. Writes the text, as [`AccessKeyBook::add`].
    ///
    /// # Errors
    /// The text cannot be read or written.
    pub fn remove(&self, id: &str) -> Result<bool, UserError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys = AccessKeys::load(&self.text)?;
        if keys.0.remove(id).is_none() {
            return Ok(false);
        }
        keys.store(&self.text)?;
        Ok(true)
    }

    /// Deletes all keys of these users, in whichever way a key spells its user. Writes the text
    /// once, as [`AccessKeyBook::add`], or not at all if they have none.
    ///
    /// # Errors
    /// The text cannot be read or written: all keys are there as before.
    pub fn remove_all_of(&self, users: &[String]) -> Result<(), UserError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys = AccessKeys::load(&self.text)?;
        let users: BTreeSet<&str> = users.iter().map(String::as_str).collect();
        let is_one =
            |name: &str| users.contains(name) || prepared(name).is_some_and(|name| users.contains(&*name));
        let before = keys.0.len();
        keys.0.retain(|_, key| !is_one(&key.user));
        if keys.0.len() == before { Ok(()) } else { keys.store(&self.text) }
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
        let book = AccessKeyBook::new(Text::of_file(&file));
        assert_eq!(AccessKeys::load(book.text()).unwrap(), AccessKeys::default());
        let (id, key) = book.add("alice").unwrap();
        let before = book.text().stamp();
        let (other, _) = book.add("alice").unwrap();
        assert_ne!(before, book.text().stamp());
        assert_eq!((id.len(), key.secret.len()), (20, 40));
        assert!(book.remove(&other).unwrap() && !book.remove(&other).unwrap());
        let read = AccessKeys::load(book.text()).unwrap();
        assert_eq!((read.get(&id), read.get(&other), read.iter().count()), (Some(&key), None, 1));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_keys_of_removed_users_go_and_all_others_stay() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let book = AccessKeyBook::new(Text::of_file(&folder.path().join("access-keys")));
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
        let left = || {
            let keys = AccessKeys::load(book.text()).unwrap();
            let mut users: Vec<String> = keys.iter().map(|(_, key)| key.user.clone()).collect();
            users.sort();
            users
        };
        let file_number = || std::fs::metadata(book.text().file()).unwrap().ino();
        book.remove_all_of(&names(&["ann"])).unwrap();
        assert!(!book.text().file().exists(), "nothing is written where there is nothing to delete");
        // SASLprep leaves a soft hyphen out.
        for user in ["ann", "bob", "ann", "an\u{AD}na", "anna", "eve"] {
            book.add(user).unwrap();
        }
        for (case, removed, want) in [
            ("none", &[][..], &["ann", "ann", "anna", "an\u{AD}na", "bob", "eve"][..]),
            ("a stranger", &["zoe", "an"], &["ann", "ann", "anna", "an\u{AD}na", "bob", "eve"]),
            ("one with several keys", &["ann"], &["anna", "an\u{AD}na", "bob", "eve"]),
            ("one whose name is spelt in two ways", &["anna"], &["bob", "eve"]),
            ("all of a tenant", &["bob", "zoe", "eve"], &[]),
        ] {
            let (file, had) = (file_number(), left());
            book.remove_all_of(&names(removed)).unwrap();
            assert_eq!(left(), want, "case: {case}");
            assert_eq!(file_number() == file, had == want, "case: {case}: another file if it is written");
        }
    }

    #[test]
    fn lines_that_are_no_key_are_named() {
        for (text, line) in [("# title\n\na b", 3), ("a b c\na b c", 2), ("a b c d", 1)] {
            assert_eq!(AccessKeys::parse(text).map_err(|(line, _)| line), Err(line), "{text}");
        }
        assert!(AccessKeys::default().add("a b").is_err());
    }
}
