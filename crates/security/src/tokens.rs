//! Tokens: secrets that a client sends in place of a password, with an expiry and a scope.
//!
//! A token is shown once, when it is made. The file keeps the SHA-256 digest of its secret: the
//! secret has 256 random bits, so that a slow hash would add nothing.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use crate::documents::Text;
use crate::file::Book;
use crate::users::{UserError, check_name};

/// Each token begins with this, so that no check of a password is wasted on it, and scanners of
/// secrets find it.
pub const TOKEN_PREFIX: &str = "prt_";

/// The first line of the file, up to the number of its format.
const TITLE: &str = "# Tokens of Postroad, format ";
const FORMAT: &str = "1";

const ID_BYTES: usize = 10;
const SECRET_BYTES: usize = 32;

/// Bytes of a token's id that its failures are counted by.
const COUNTED_ID_BYTES_MAX: usize = 16;

/// Tokens of one broker, at most: the file is written as a whole.
pub const TOKENS_MAX: usize = 10_000;

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Sending and receiving, in every protocol.
    Messages,
    /// Requests of the admin API that change nothing.
    Read,
    /// Every request of the admin API.
    Manage,
}

impl Scope {
    const ALL: [(Scope, &str); 3] =
        [(Scope::Messages, "messages"), (Scope::Read, "read"), (Scope::Manage, "manage")];

    /// Its name.
    pub fn name(self) -> &'static str {
        Scope::ALL.into_iter().find(|(scope, _)| *scope == self).map_or("", |(_, name)| name)
    }
}

/// Scopes of one token, in order and each once. By default all that its user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Default for Scopes {
    fn default() -> Scopes {
        Scopes(vec![Scope::Messages, Scope::Manage])
    }
}

impl Scopes {
    /// Whether the token may be used for this.
    pub fn permit(&self, scope: Scope) -> bool {
        self.0.contains(&scope) || scope == Scope::Read && self.0.contains(&Scope::Manage)
    }
}

impl FromStr for Scopes {
    type Err = UserError;

    /// Names, with commas between them.
    fn from_str(text: &str) -> Result<Scopes, UserError> {
        let known = |name: &str| Scope::ALL.into_iter().find(|(_, known)| *known == name);
        let parse = |name: &str| match known(name.trim()) {
            Some((scope, _)) => Ok(scope),
            None => Err(UserError::Scope { name: name.trim().to_owned() }),
        };
        let mut scopes = text.split(',').map(parse).collect::<Result<Vec<Scope>, UserError>>()?;
        scopes.sort_unstable();
        scopes.dedup();
        Ok(Scopes(scopes))
    }
}

impl std::fmt::Display for Scopes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|scope| scope.name()).collect();
        formatter.write_str(&names.join(","))
    }
}

/// One token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Names the token in lists; part of its text.
    pub id: Arc<str>,
    /// The user that the token acts for.
    pub user: Arc<str>,
    /// What it may be used for.
    pub scopes: Scopes,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// From when on it is refused; `None` for never.
    pub expires_ms: Option<u64>,
    digest: [u8; 32],
}

impl Token {
    /// Whether it is refused by now.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }

    fn parse(words: &[&str]) -> Result<Token, String> {
        let [id, digest, user, scopes, created, expires] = words else {
            return Err("expected ID DIGEST USER SCOPES CREATED EXPIRES".to_owned());
        };
        check_name(user).map_err(|error| error.to_string())?;
        let bytes = HEXLOWER.decode(digest.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a time"));
        Ok(Token {
            id: (*id).into(),
            user: (*user).into(),
            scopes: scopes.parse().map_err(|error: UserError| error.to_string())?,
            created_ms: number(created)?,
            expires_ms: if *expires == "-" { None } else { Some(number(expires)?) },
            digest: bytes.ok_or_else(|| "the digest must have 64 hexadecimal digits".to_owned())?,
        })
    }

    fn line(&self) -> String {
        let Token { id, user, scopes, created_ms, expires_ms, digest } = self;
        let expires = expires_ms.map_or_else(|| "-".to_owned(), |expires_ms| expires_ms.to_string());
        format!("{id} {} {user} {scopes} {created_ms} {expires}\n", HEXLOWER.encode(digest))
    }
}

/// Tokens by id.
type Tokens = BTreeMap<Arc<str>, Token>;

fn parse(text: &str) -> Result<Tokens, (usize, String)> {
    let mut tokens = Tokens::new();
    let title = text.lines().next().unwrap_or_default();
    let format = title.strip_prefix(TITLE).and_then(|rest| rest.split([':', ' ']).next());
    if format != Some(FORMAT) {
        return Err((1, format!("unknown format; the first line must begin with {TITLE:?} and {FORMAT}")));
    }
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let token = Token::parse(&words).map_err(|reason| (number, reason))?;
        if let Some(twice) = tokens.insert(token.id.clone(), token) {
            return Err((number, format!("{} is already in an earlier line", twice.id)));
        }
    }
    Ok(tokens)
}

/// The tokens of a broker, with their file: what it says is in force at once, for every thread.
#[derive(Debug)]
pub struct TokenBook(Book<Tokens>);

impl TokenBook {
    /// The tokens of this text; one that does not exist has none.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is no token.
    pub fn open(text: Text) -> Result<TokenBook, UserError> {
        let book = TokenBook(Book::new(text));
        book.reload()?;
        Ok(book)
    }

    /// Their text.
    pub fn text(&self) -> &Text {
        self.0.text()
    }

    /// Reads the text again.
    ///
    /// # Errors
    /// As [`TokenBook::open`]; the old tokens stay in force.
    pub fn reload(&self) -> Result<(), UserError> {
        self.0.reload(parse)
    }

    /// Makes a token, and returns it with its text. Writes the file: not for a thread that others
    /// wait for.
    ///
    /// # Errors
    /// The name cannot be, there are too many tokens, the file cannot be written, or the system
    /// provides no random numbers.
    pub fn issue(
        &self,
        user: &str,
        scopes: Scopes,
        lasts: Option<Duration>,
    ) -> Result<(Token, String), UserError> {
        check_name(user)?;
        let (secret, mut id) = (secret()?, [0; ID_BYTES]);
        SystemRandom::new().fill(&mut id).map_err(|_| UserError::NoChance)?;
        let id = BASE32_NOPAD.encode(&id).to_ascii_lowercase();
        let created_ms = now_ms();
        let expires_ms = lasts
            .map(|lasts| created_ms.saturating_add(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX)));
        let (user, digest) = (user.into(), digest_of(&secret));
        let token = Token { id: id.as_str().into(), user, scopes, created_ms, expires_ms, digest };
        let made = token.clone();
        self.change(|tokens| {
            tokens.retain(|_, token| !token.has_expired(created_ms));
            if TOKENS_MAX <= tokens.len() {
                return Err(UserError::TooManyTokens { max: TOKENS_MAX });
            }
            tokens.insert(made.id.clone(), made);
            Ok(())
        })?;
        Ok((token, format!("{TOKEN_PREFIX}{id}_{secret}")))
    }

    /// Ends a token; whether there was one. Writes the file, as [`TokenBook::issue`].
    ///
    /// # Errors
    /// The file cannot be written; the token stays in force.
    pub fn revoke(&self, id: &str) -> Result<bool, UserError> {
        if !self.all().contains_key(id) {
            return Ok(false);
        }
        self.change(|tokens| Ok(tokens.remove(id).is_some()))
    }

    /// Ends all tokens of a user. Writes the file, as [`TokenBook::issue`].
    ///
    /// # Errors
    /// The file cannot be written; the tokens stay in force.
    pub fn revoke_all_of(&self, user: &str) -> Result<(), UserError> {
        if self.all().values().all(|token| &*token.user != user) {
            return Ok(());
        }
        self.change(|tokens| {
            tokens.retain(|_, token| &*token.user != user);
            Ok(())
        })
    }

    /// All tokens, by id.
    pub fn all(&self) -> Arc<Tokens> {
        self.0.all()
    }

    /// The token of this text, if it is in force.
    pub fn check(&self, text: &str) -> Option<Token> {
        let (id, secret) = text.strip_prefix(TOKEN_PREFIX)?.split_once('_')?;
        let tokens = self.all();
        let token = tokens.get(id)?;
        let is_right = bool::from(token.digest.ct_eq(&digest_of(secret)));
        (is_right && !token.has_expired(now_ms())).then(|| token.clone())
    }

    /// Whether the token is in force.
    pub fn has(&self, id: &str) -> bool {
        self.all().get(id).is_some_and(|token| !token.has_expired(now_ms()))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Tokens) -> Result<T, UserError>) -> Result<T, UserError> {
        self.0.change(change, |tokens| {
            let title = format!(
                "{TITLE}{FORMAT}: id, SHA-256 of the secret, user, scopes, and when it was made and expires, \
                 in milliseconds since 1970. `postroad ctl token` changes it.\n"
            );
            std::iter::once(title).chain(tokens.values().map(Token::line)).collect()
        })
    }
}

/// The name that failures of a token without a user are counted by: the token's id, so that one bad
/// token does not lock the others that come from the same address.
pub(crate) fn counted_token(text: &str) -> String {
    let id = text.strip_prefix(TOKEN_PREFIX).unwrap_or(text).split('_').next().unwrap_or_default();
    format!("{TOKEN_PREFIX}{}", &id[..id.floor_char_boundary(COUNTED_ID_BYTES_MAX)])
}

/// A secret of 256 random bits, as text.
///
/// # Errors
/// The system provides no random numbers.
pub fn secret() -> Result<String, UserError> {
    let mut secret = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut secret).map_err(|_| UserError::NoChance)?;
    Ok(BASE32_NOPAD.encode(&secret).to_ascii_lowercase())
}

/// The SHA-256 digest of a secret with enough random bits.
pub fn digest_of(secret: &str) -> [u8; 32] {
    let digest = digest(&SHA256, secret.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> (tempfile::TempDir, TokenBook) {
        let folder = tempfile::tempdir().unwrap();
        let book = TokenBook::open(Text::of_file(&folder.path().join("tokens"))).unwrap();
        (folder, book)
    }

    #[test]
    fn a_token_is_durable_without_its_secret_and_read_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, book) = book();
        let (token, text) = book.issue("ann", "read,messages".parse().unwrap(), None).unwrap();
        let (other, gone) = book.issue("bob", Scopes::default(), None).unwrap();
        assert_eq!(book.check(&text), Some(token.clone()));
        assert!(book.revoke(&other.id).unwrap() && !book.revoke(&other.id).unwrap());
        assert_eq!((book.check(&gone), book.has(&other.id)), (None, false));
        let file = folder.path().join("tokens");
        let kept = std::fs::read_to_string(&file).unwrap();
        assert!(!kept.contains(text.rsplit('_').next().unwrap()), "{kept}");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = TokenBook::open(Text::of_file(&file)).unwrap();
        assert_eq!((again.check(&text), again.all().len()), (Some(token), 1));
    }

    #[test]
    fn tokens_that_are_not_in_force_are_refused() {
        let (_folder, book) = book();
        let (_, text) = book.issue("ann", Scopes::default(), None).unwrap();
        let (past, expired) = book.issue("ann", Scopes::default(), Some(Duration::ZERO)).unwrap();
        let (_, later) = book.issue("ann", Scopes::default(), Some(Duration::from_secs(60))).unwrap();
        for (case, text, want) in [
            ("good", text.clone(), true),
            ("good for a minute", later, true),
            ("expired", expired, false),
            ("another secret", format!("{text}a"), false),
            ("no secret", text[..text.len() - 53].to_owned(), false),
            ("another prefix", text.replace("prt_", "pat_"), false),
            ("empty", String::new(), false),
        ] {
            assert_eq!(book.check(&text).is_some(), want, "case: {case}");
        }
        assert!(!book.all().contains_key(&past.id), "expired tokens go when a token is made");
    }

    #[test]
    fn there_are_no_more_tokens_than_the_bound() {
        let (_folder, book) = book();
        let digest = [0; 32];
        let (user, scopes): (Arc<str>, _) = ("ann".into(), Scopes::default());
        let token = |number: usize| {
            let (id, user, scopes): (Arc<str>, _, _) =
                (number.to_string().into(), user.clone(), scopes.clone());
            (id.clone(), Token { id, user, scopes, created_ms: 0, expires_ms: None, digest })
        };
        book.0.put((0..TOKENS_MAX).map(token).collect());
        let refused = book.issue("ann", Scopes::default(), None).map(drop).unwrap_err();
        assert!(matches!(refused, UserError::TooManyTokens { max: TOKENS_MAX }), "{refused}");
        assert!(book.revoke("7").unwrap() && book.issue("ann", Scopes::default(), None).is_ok());
    }

    #[test]
    fn files_that_are_not_tokens_are_refused_by_their_line() {
        let title = format!("{TITLE}1: x\n");
        let digest = "0".repeat(64);
        for (case, text, line) in [
            ("another format", format!("{TITLE}2: x\n"), 1),
            ("no title", format!("a {digest} ann read 1 -\n"), 1),
            ("too few words", format!("{title}a b c\n"), 2),
            ("a digest of another length", format!("{title}a 00 ann read 1 -\n"), 2),
            ("an unknown scope", format!("{title}a {digest} ann all 1 -\n"), 2),
            ("twice", format!("{title}a {digest} ann read 1 -\na {digest} ann read 1 -\n"), 3),
            ("no time", format!("{title}a {digest} ann read x -\n"), 2),
        ] {
            assert_eq!(parse(&text).map_err(|(line, _)| line), Err(line), "case: {case}");
        }
    }

    #[test]
    fn managing_includes_reading_and_nothing_includes_messages() {
        for (scopes, want) in [
            ("messages", [true, false, false]),
            ("read", [false, true, false]),
            ("manage", [false, true, true]),
            ("read,messages", [true, true, false]),
        ] {
            let parsed: Scopes = scopes.parse().unwrap();
            let got = [Scope::Messages, Scope::Read, Scope::Manage].map(|scope| parsed.permit(scope));
            assert_eq!(got, want, "{scopes}");
        }
        assert_eq!(Scopes::default().to_string(), "messages,manage");
        let wrong = "messages,all".parse::<Scopes>().unwrap_err();
        assert_eq!(wrong.to_string(), "\"all\" is not a scope of tokens: use messages, read or manage");
    }
}
