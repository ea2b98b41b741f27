//! Sessions of the web console: what a browser shows after its user has signed in once.
//!
//! ```text
//!  text of a session: what it says . keyed digest of that and of the mark of the user's password
//! ```
//! A session says itself who has signed in, and when: each node of a cluster that has the key knows
//! it, and nothing is kept for it. Kept are the keys, and sessions that were signed out: of a
//! cluster in a document, of a broker that stands alone in memory.
//!
//! Never here: cookies, HTTP, permissions. Start at [`SessionBook`].

mod record;

use std::sync::Arc;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use postroad_model::{Federated, Principal};
use ring::rand::{SecureRandom, SystemRandom};

use crate::documents::{Documents, Text};
use crate::door::{Credential, Door};
use crate::file::Book;
use crate::users::UserError;
use record::{SealKey, SessionRecord};

/// A session ends after this time without a request that its user caused.
pub const SESSION_IDLE_MS: u64 = 30 * 60 * 1_000;

/// A session ends after this time in any case.
pub const SESSION_LASTS_MS: u64 = 12 * 60 * 60 * 1_000;

/// A session in use says again when that was, at most this often.
const RENEWED_EVERY_MS: u64 = 60 * 1_000;

/// Clocks of nodes differ by less: a session that claims to begin later than that was not sealed by
/// a node.
const CLOCKS_DIFFER_MS: u64 = 60 * 1_000;

/// Browsers keep 4,096 bytes of a cookie, with its name.
const TEXT_BYTES_MAX: usize = 4_000;

/// The format of a session's text: another one is no session of this build.
const FORMAT: u8 = 1;

const ID_BYTES: usize = 10;

/// What a session says: format, key, id, beginning, last use, user; of a user of an identity
/// provider also its end and its groups.
type Said = (u8, String, String, u64, u64, String, Option<(Option<u64>, Vec<String>)>);

/// A session in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleSession {
    /// Who has signed in.
    pub principal: Principal,
    /// The token that its changes must repeat: no page of another site can read it.
    pub csrf: Arc<str>,
    key: String,
    id: String,
    begun_ms: u64,
    used_ms: u64,
}

/// The outcome of a search for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSearch {
    /// It is in force.
    Found(ConsoleSession),
    /// There is none, or it has ended.
    Ended,
    /// It claims a key that another node may have made a moment ago.
    UnknownKey {
        /// The id of the key.
        key: String,
    },
}

impl ConsoleSession {
    /// How long it lasts from now on, if it is used.
    pub fn lasts_ms(&self, now_ms: u64) -> u64 {
        SESSION_LASTS_MS.saturating_sub(now_ms.saturating_sub(self.begun_ms))
    }

    /// The session that a text claims to be of, without its CSRF token.
    fn claimed(text: &str) -> Option<ConsoleSession> {
        let said = text.split_once('.').filter(|_| text.len() <= TEXT_BYTES_MAX)?.0;
        let said: Said = serde_json::from_slice(&BASE64URL_NOPAD.decode(said.as_bytes()).ok()?).ok()?;
        let (FORMAT, key, id, begun_ms, used_ms, user, federated) = said else { return None };
        let principal = match federated {
            None => Principal::User(user.into()),
            Some((expires_ms, groups)) => {
                let groups = groups.into_iter().map(Arc::from).collect();
                Principal::Federated(Arc::new(Federated { user: user.into(), groups, expires_ms }))
            }
        };
        Some(ConsoleSession { principal, csrf: "".into(), key, id, begun_ms, used_ms })
    }

    fn user(&self) -> &str {
        self.principal.user().map(|user| &**user).unwrap_or_default()
    }

    /// Its text.
    ///
    /// # Errors
    /// [`UserError::SessionTooLarge`].
    fn seal(&self, key: &SealKey, door: &Door) -> Result<String, UserError> {
        let federated = match &self.principal {
            Principal::Federated(federated) => {
                let groups = federated.groups.iter().map(|group| group.to_string()).collect();
                Some((federated.expires_ms, groups))
            }
            _ => None,
        };
        let groups = federated.as_ref().map_or(0, |(_, groups): &(_, Vec<String>)| groups.len());
        let (key_id, id, user) = (self.key.clone(), self.id.clone(), self.user().to_owned());
        let said: Said = (FORMAT, key_id, id, self.begun_ms, self.used_ms, user, federated);
        let said = BASE64URL_NOPAD.encode(&serde_json::to_vec(&said).unwrap_or_default());
        let digest = key.sign(&sealed_bytes(&said, self.mark(door)));
        let text = format!("{said}.{}", BASE64URL_NOPAD.encode(digest.as_ref()));
        match text.len() <= TEXT_BYTES_MAX {
            true => Ok(text),
            false => Err(UserError::SessionTooLarge { bytes: text.len(), max: TEXT_BYTES_MAX, groups }),
        }
    }

    /// It ends with the password that began it.
    fn mark(&self, door: &Door) -> Option<[u8; 32]> {
        door.password_mark(self.user()).filter(|_| matches!(self.principal, Principal::User(_)))
    }

    /// Whether it was used and began a short time ago, as it claims.
    fn lasts(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.used_ms) < SESSION_IDLE_MS && 0 < self.lasts_ms(now_ms)
    }

    fn is_in_force(&self, door: &Door, record: &SessionRecord, now_ms: u64) -> bool {
        let credential = match &self.principal {
            Principal::Federated(federated) => Credential::Federated(federated.clone()),
            _ => Credential::Password { user: self.user().into() },
        };
        self.lasts(now_ms)
            && !record.has_ended(self.user(), &self.id, self.begun_ms)
            && door.honours(&credential)
    }
}

/// The bytes whose digest is in the text of a session.
fn sealed_bytes(said: &str, mark: Option<[u8; 32]>) -> Vec<u8> {
    let mark = mark.map_or_else(|| vec![0], |mark| [&[1][..], &mark].concat());
    [b"session\0", &mark[..], said.as_bytes()].concat()
}

/// The token that a session's changes must repeat.
fn csrf_of(key: &SealKey, id: &str) -> Arc<str> {
    let digest = key.sign(&[b"csrf\0", id.as_bytes()].concat());
    BASE32_NOPAD.encode(digest.as_ref()).to_ascii_lowercase().into()
}

fn random_id() -> Result<String, UserError> {
    let mut id = [0; ID_BYTES];
    SystemRandom::new().fill(&mut id).map_err(|_| UserError::NoChance)?;
    Ok(BASE32_NOPAD.encode(&id).to_ascii_lowercase())
}

/// The principal that the text of a session claims to be of: not checked, to choose who checks it.
pub fn claimed_principal(text: &str) -> Option<Principal> {
    ConsoleSession::claimed(text).map(|session| session.principal)
}

/// The sessions of a broker. See the head of this file.
#[derive(Debug)]
pub struct SessionBook {
    record: Book<SessionRecord>,
    is_replicated: bool,
}

impl SessionBook {
    /// Those with this text, which nodes of a cluster replicate; without one, in memory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(text: Option<Text>) -> Result<SessionBook, UserError> {
        let is_replicated = text.is_some();
        let in_memory = || {
            // As documents of a cluster whose changes are durable at once.
            let documents = Arc::new(Documents::replicated());
            documents.lead(Arc::new(|_| Ok(())));
            Text::new("sessions", std::path::Path::new(""), &documents)
        };
        let book = SessionBook { record: Book::new(text.unwrap_or_else(in_memory)), is_replicated };
        book.reload()?;
        Ok(book)
    }

    /// Reads the text again.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is malformed; the former lines stay in force.
    pub fn reload(&self) -> Result<(), UserError> {
        self.record.reload(SessionRecord::parse)
    }

    /// Whether other nodes begin sessions, too.
    pub fn is_replicated(&self) -> bool {
        self.is_replicated
    }

    /// Begins a session, and returns it with its text. Now and then writes a key: not for a thread
    /// that others wait for.
    ///
    /// # Errors
    /// The key cannot be written, the session is too large for a cookie, or the system provides no
    /// random numbers.
    pub fn begin(
        &self,
        principal: Principal,
        door: &Door,
        now_ms: u64,
    ) -> Result<(ConsoleSession, String), UserError> {
        let known = self.record.all().newest(now_ms).cloned();
        let key = match known {
            Some(key) => key,
            None => self.record.change(|record| record.beginning(now_ms), SessionRecord::text)?,
        };
        let id = random_id()?;
        let (csrf, used_ms) = (csrf_of(&key, &id), now_ms);
        let session = ConsoleSession { principal, csrf, key: key.id.clone(), id, begun_ms: now_ms, used_ms };
        session.seal(&key, door).map(|text| (session, text))
    }

    /// The session of a text. Another password of its user, or the user's removal, ends it.
    pub fn find(&self, text: &str, door: &Door, now_ms: u64) -> SessionSearch {
        let Some(session) = ConsoleSession::claimed(text) else { return SessionSearch::Ended };
        let record = self.record.all();
        let Some(key) = record.key(&session.key, now_ms) else {
            let is_of_later = session.begun_ms > now_ms.saturating_add(CLOCKS_DIFFER_MS);
            let may_come =
                !is_of_later && session.lasts(now_ms) && record.may_lack(&session.key, session.begun_ms);
            return match may_come {
                true => SessionSearch::UnknownKey { key: session.key },
                false => SessionSearch::Ended,
            };
        };
        let Some((said, digest)) = text.split_once('.') else { return SessionSearch::Ended };
        let is_sealed = BASE64URL_NOPAD
            .decode(digest.as_bytes())
            .is_ok_and(|digest| key.has_signed(&sealed_bytes(said, session.mark(door)), &digest));
        match is_sealed && session.is_in_force(door, &record, now_ms) {
            true => SessionSearch::Found(ConsoleSession { csrf: csrf_of(key, &session.id), ..session }),
            false => SessionSearch::Ended,
        }
    }

    /// Whether a key is known here now.
    pub fn knows_key(&self, key: &str, now_ms: u64) -> bool {
        self.record.all().key(key, now_ms).is_some()
    }

    /// The text of a session that its user has used now; `None` if the one that it has is recent.
    pub fn renewed(&self, session: &ConsoleSession, door: &Door, now_ms: u64) -> Option<String> {
        if now_ms.saturating_sub(session.used_ms) < RENEWED_EVERY_MS {
            return None;
        }
        let record = self.record.all();
        let key = record.key(&session.key, now_ms)?;
        ConsoleSession { used_ms: now_ms, ..session.clone() }.seal(key, door).ok()
    }

    /// Signs a session out, for all nodes. Writes the text, as [`SessionBook::begin`].
    ///
    /// # Errors
    /// The text cannot be written: the session goes on.
    pub fn end(&self, session: &ConsoleSession, now_ms: u64) -> Result<(), UserError> {
        let end = |record: &mut SessionRecord| {
            record.end((session.user(), &session.id), session.begun_ms, now_ms);
            Ok(())
        };
        self.record.change(end, SessionRecord::text)
    }
}

#[cfg(test)]
mod tests;
