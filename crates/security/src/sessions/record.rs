//! What brokers must remember of sessions: the keys that seal them, and those that were signed out.
//!
//! Bounded: of one user few sessions that were signed out are known one by one, then all older ones
//! of that user have ended; and beyond a number of users all sessions older than theirs.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

use super::{SESSION_LASTS_MS, random_id};
use crate::users::UserError;

/// The first line, up to the number of its format.
const TITLE: &str = "# Sessions of Postroad, format ";
const FORMAT: &str = "1";

/// A key begins sessions for this long. Those that it began last as long again.
const KEY_BEGINS_MS: u64 = SESSION_LASTS_MS;
const KEY_BYTES: usize = 32;
/// A clock that was set back leaves some more keys than two.
const KEYS_MAX: usize = 8;

/// Sessions of one user that are known to be signed out one by one.
const ENDED_OF_USER_MAX: usize = 16;
/// Users with sessions that were signed out: the text is written as a whole.
pub(super) const ENDED_USERS_MAX: usize = 1_024;

/// A key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SealKey {
    pub id: String,
    secret: [u8; KEY_BYTES],
    made_ms: u64,
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SealKey {
    fn make(now_ms: u64) -> Result<SealKey, UserError> {
        let mut secret = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut secret).map_err(|_| UserError::NoChance)?;
        Ok(SealKey { id: random_id()?, secret, made_ms: now_ms })
    }

    /// The keyed digest of some bytes.
    pub fn sign(&self, bytes: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(HMAC_SHA256, &self.secret), bytes)
    }

    /// Whether this is the keyed digest of the bytes. Takes the same time for each wrong one.
    pub fn has_signed(&self, bytes: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&hmac::Key::new(HMAC_SHA256, &self.secret), bytes, tag).is_ok()
    }

    fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.made_ms)
    }

    /// Whether none of its sessions can last any more.
    fn has_expired(&self, now_ms: u64) -> bool {
        KEY_BEGINS_MS + SESSION_LASTS_MS <= self.age_ms(now_ms)
    }
}

/// Sessions of one user that were signed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ended {
    /// All that began until then.
    until_ms: u64,
    /// Further ones, with their beginnings.
    ids: BTreeMap<String, u64>,
}

impl Ended {
    fn add(&mut self, id: &str, begun_ms: u64) {
        self.ids.insert(id.to_owned(), begun_ms);
        if ENDED_OF_USER_MAX < self.ids.len()
            && let Some((first, begun_ms)) = self.ids.iter().min_by_key(|(_, begun_ms)| **begun_ms)
        {
            let (first, begun_ms) = (first.clone(), *begun_ms);
            self.until_ms = self.until_ms.max(begun_ms);
            self.ids.remove(&first);
        }
    }

    fn latest_ms(&self) -> u64 {
        self.ids.values().copied().chain([self.until_ms]).max().unwrap_or_default()
    }
}

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionRecord {
    /// The newest last.
    keys: Vec<SealKey>,
    /// All sessions that began until then have ended.
    until_ms: u64,
    /// By user.
    ended: BTreeMap<String, Ended>,
}

impl SessionRecord {
    /// The key of this id, while its sessions may last.
    pub fn key(&self, id: &str, now_ms: u64) -> Option<&SealKey> {
        self.keys.iter().find(|key| key.id == id && !key.has_expired(now_ms))
    }

    /// Whether a key that is not known here may have begun a session at this time. Each key is made
    /// once the one before begins no more, so a newer one has begun later sessions alone.
    pub fn may_lack(&self, id: &str, begun_ms: u64) -> bool {
        let begins_until_ms = |key: &SealKey| key.made_ms.saturating_add(KEY_BEGINS_MS);
        self.keys.iter().all(|key| key.id != id && begins_until_ms(key) <= begun_ms)
    }

    /// The key for new sessions, which is made if there is none.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn beginning(&mut self, now_ms: u64) -> Result<SealKey, UserError> {
        if let Some(newest) = self.newest(now_ms) {
            return Ok(newest.clone());
        }
        self.forget(now_ms);
        let key = SealKey::make(now_ms)?;
        self.keys.drain(..(self.keys.len() + 1).saturating_sub(KEYS_MAX));
        self.keys.push(key.clone());
        Ok(key)
    }

    /// The key for new sessions, if there is one.
    pub fn newest(&self, now_ms: u64) -> Option<&SealKey> {
        self.keys.last().filter(|key| key.age_ms(now_ms) < KEY_BEGINS_MS)
    }

    /// Whether this session was signed out.
    pub fn has_ended(&self, user: &str, id: &str, begun_ms: u64) -> bool {
        let of_user = self.ended.get(user);
        begun_ms <= self.until_ms
            || of_user.is_some_and(|ended| begun_ms <= ended.until_ms || ended.ids.contains_key(id))
    }

    /// A session was signed out.
    pub fn end(&mut self, (user, id): (&str, &str), begun_ms: u64, now_ms: u64) {
        self.forget(now_ms);
        self.ended.entry(user.to_owned()).or_default().add(id, begun_ms);
        if ENDED_USERS_MAX < self.ended.len()
            && let Some((first, ended)) = self.ended.iter().min_by_key(|(_, ended)| ended.latest_ms())
        {
            let (first, latest_ms) = (first.clone(), ended.latest_ms());
            self.until_ms = self.until_ms.max(latest_ms);
            self.ended.remove(&first);
        }
    }

    /// Leaves out keys and sign-outs that no session has any more.
    fn forget(&mut self, now_ms: u64) {
        self.keys.retain(|key| !key.has_expired(now_ms));
        let is_old = |begun_ms: u64| begun_ms.saturating_add(SESSION_LASTS_MS) <= now_ms;
        for ended in self.ended.values_mut() {
            ended.ids.retain(|_, begun_ms| !is_old(*begun_ms));
        }
        self.ended.retain(|_, ended| !is_old(ended.latest_ms()));
        if is_old(self.until_ms) {
            self.until_ms = 0;
        }
    }

    /// Its text.
    pub fn text(&self) -> String {
        let mut text = format!("{TITLE}{FORMAT}: keys that seal them, and those that were signed out.\n");
        for SealKey { id, secret, made_ms } in &self.keys {
            text += &format!("key {id} {} {made_ms}\n", BASE64.encode(secret));
        }
        text += &format!("until {}\n", self.until_ms);
        for (user, Ended { until_ms, ids }) in &self.ended {
            let ids: Vec<String> = ids.iter().map(|(id, begun_ms)| format!("{id}:{begun_ms}")).collect();
            let ids = if ids.is_empty() { "-".to_owned() } else { ids.join(",") };
            // Names of an identity provider may have spaces, and even ends of lines.
            text += &format!("ended {until_ms} {ids} {}\n", serde_json::Value::from(user.as_str()));
        }
        text
    }

    /// Reads its text.
    ///
    /// # Errors
    /// The first line that is malformed, and why.
    pub fn parse(text: &str) -> Result<SessionRecord, (usize, String)> {
        let title = text.lines().next().unwrap_or_default();
        let format = title.strip_prefix(TITLE).and_then(|rest| rest.split([':', ' ']).next());
        if format != Some(FORMAT) {
            return Err((
                1,
                format!("unknown format; the first line must begin with {TITLE:?} and {FORMAT}"),
            ));
        }
        let mut record = SessionRecord::default();
        for (index, line) in text.lines().enumerate().skip(1) {
            record.read(line.trim()).map_err(|reason| (index + 1, reason))?;
        }
        Ok(record)
    }

    fn read(&mut self, line: &str) -> Result<(), String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a time"));
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["key", id, secret, made] => {
                let secret = BASE64.decode(secret.as_bytes()).ok().and_then(|secret| secret.try_into().ok());
                let secret = secret.ok_or_else(|| format!("a key has {KEY_BYTES} bytes in base 64"))?;
                self.keys.push(SealKey { id: id.to_owned(), secret, made_ms: number(made)? });
            }
            ["until", until] => self.until_ms = number(until)?,
            ["ended", until, ids, user] => {
                let mut ended = Ended { until_ms: number(until)?, ids: BTreeMap::new() };
                for pair in ids.split(',').filter(|_| ids != "-") {
                    let (id, begun) =
                        pair.split_once(':').ok_or_else(|| format!("{pair:?}: expected ID:TIME"))?;
                    ended.ids.insert(id.to_owned(), number(begun)?);
                }
                let user = serde_json::from_str(user).map_err(|error| format!("the user's name: {error}"))?;
                self.ended.insert(user, ended);
            }
            _ => {
                return Err("expected key ID SECRET TIME, until TIME, or ended TIME IDS USER".to_owned());
            }
        }
        match (self.keys.len() <= KEYS_MAX, self.ended.len() <= ENDED_USERS_MAX) {
            (false, _) => Err(format!("there are more than {KEYS_MAX} keys")),
            (_, false) => Err(format!("there are more than {ENDED_USERS_MAX} users")),
            (true, true) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 60 * 60 * 1_000;

    #[test]
    fn a_key_begins_sessions_for_twelve_hours_and_is_good_for_as_long_again() {
        let mut record = SessionRecord::default();
        let first = record.beginning(HOUR_MS).unwrap();
        assert_eq!(record.beginning(13 * HOUR_MS - 1).unwrap(), first);
        assert_eq!(record.beginning(0).unwrap(), first, "a clock that was set back");
        let second = record.beginning(13 * HOUR_MS).unwrap();
        assert_ne!(second.id, first.id);
        assert!(record.key(&first.id, 25 * HOUR_MS - 1).is_some());
        assert!(record.key(&first.id, 25 * HOUR_MS).is_none(), "though nothing has removed it");
        record.beginning(25 * HOUR_MS).unwrap();
        assert_eq!(record.keys.len(), 2);
        for time in 3..40 {
            record.beginning(time * 13 * HOUR_MS).unwrap();
            assert!(record.keys.len() <= 2, "{}", record.keys.len());
        }
    }

    #[test]
    fn a_key_that_is_lacking_has_begun_its_sessions_after_those_of_all_known_keys() {
        let mut record = SessionRecord::default();
        assert!(record.may_lack("new", 0), "no key is known");
        let first = record.beginning(HOUR_MS).unwrap();
        let begins_no_more = 13 * HOUR_MS;
        assert!(!record.may_lack("old", 0) && !record.may_lack("old", begins_no_more - 1));
        assert!(record.may_lack("new", begins_no_more));
        assert!(!record.may_lack(&first.id, begins_no_more), "it is known, and expired perhaps");
        let known = record.clone();
        let second = record.beginning(begins_no_more).unwrap();
        assert!(known.may_lack(&second.id, begins_no_more), "the first session of the next key");
        assert!(!record.may_lack("new", 25 * HOUR_MS - 1) && record.may_lack("new", 25 * HOUR_MS));
    }

    #[test]
    fn beyond_its_bounds_older_sessions_of_a_user_have_ended_and_then_those_of_all() {
        let mut record = SessionRecord::default();
        for begun_ms in 1..=ENDED_OF_USER_MAX as u64 {
            record.end(("ann", &format!("s{begun_ms}")), begun_ms, 100);
        }
        assert!(record.has_ended("ann", "s1", 1) && !record.has_ended("ann", "other", 1));
        record.end(("ann", "s17"), 17, 100);
        assert!(record.has_ended("ann", "other", 1) && !record.has_ended("ann", "other", 2));
        assert!(!record.has_ended("bob", "other", 1), "another user's go on");
        for number in 1..ENDED_USERS_MAX as u64 {
            record.end((&format!("u{number}"), "one"), 100 + number, 2_000);
        }
        assert!(!record.has_ended("bob", "other", 1));
        record.end(("last", "one"), 1_999, 2_000);
        assert_eq!((record.ended.len(), record.until_ms), (ENDED_USERS_MAX, 17), "without ann");
        assert!(record.has_ended("bob", "other", 17) && !record.has_ended("bob", "other", 18));
        assert!(record.text().len() < 4 << 20);
        record.end(("bob", "one"), 13 * HOUR_MS, 13 * HOUR_MS);
        assert_eq!((record.ended.len(), record.until_ms), (1, 0), "those of old sessions are forgotten");
    }

    #[test]
    fn the_text_is_read_as_it_was_written_and_malformed_lines_are_named() {
        let mut record = SessionRecord::default();
        record.beginning(5).unwrap();
        for number in 0..20 {
            record.end(("oidc:a b\n", &format!("s{number}")), number, 5);
        }
        record.ended.insert("-".to_owned(), Ended { until_ms: 7, ids: BTreeMap::new() });
        record.until_ms = 3;
        assert_eq!(SessionRecord::parse(&record.text()), Ok(record));
        let title = "# Sessions of Postroad, format 1:\n";
        for (line, want) in [
            ("key a AAAA 1", "a key has 32 bytes"),
            ("until x", "\"x\" is not a time"),
            ("ended 1 a \"u\"", "expected ID:TIME"),
            ("ended 1 - u", "the user's name"),
            ("what", "expected key ID SECRET TIME"),
        ] {
            let (number, reason) = SessionRecord::parse(&format!("{title}{line}\n")).unwrap_err();
            assert!(number == 2 && reason.contains(want), "{line}: {number} {reason}");
        }
        let of_later = title.replace('1', "2");
        assert!(SessionRecord::parse(&of_later).unwrap_err().1.contains("unknown format"));
        let key = format!("key a {} 1\n", BASE64.encode(&[0; KEY_BYTES]));
        assert!(SessionRecord::parse(&(title.to_owned() + &key.repeat(KEYS_MAX))).is_ok());
        assert!(SessionRecord::parse(&(title.to_owned() + &key.repeat(KEYS_MAX + 1))).is_err());
    }
}
