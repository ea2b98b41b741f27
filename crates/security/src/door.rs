//! The door: authentication of peers.
//!
//! Neither an answer nor its timing reveals whether a user exists: unknown users are asked for a
//! proof too.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use postroad_model::{Federated, Login, LoginAnswer, Principal};
use ring::rand::{SecureRandom, SystemRandom};

use crate::argon::Argon;
use crate::attempts::{Attempt, Attempts};
use crate::certificate::{CertificateRules, Names};
use crate::failures::FailedLogins;
use crate::keys::{Hash, ITERATIONS, Keys, SALT_BYTES};
use crate::ldap::{DIRECTORY_AWAY, LDAP_PREFIX, Ldap, LdapError};
use crate::oidc::{Oidc, TokenError, is_jwt};
use crate::refusals::Refusals;
use crate::scram::{ClientFirst, Scram};
use crate::tokens::{Scope, TOKEN_PREFIX, Token, TokenBook, counted_token, digest_of, now_ms};
use crate::users::{PASSWORD_BYTES_MAX, UserError, UserFile, Users, check_name};

/// Bytes of the broker's part of a nonce.
const NONCE_BYTES: usize = 24;

/// The error for a wrong password.
const WRONG: &str = "user name or password are wrong";

/// Who is let in.
#[derive(Debug)]
pub struct Door {
    /// `None`: all clients are admitted.
    users: Option<Users>,
    /// The functions under which every user's password can be proved.
    hashes: Vec<Hash>,
    /// Those too who do not say who they are.
    anonymous: bool,
    /// Tokens in place of passwords.
    tokens: Option<Arc<TokenBook>>,
    /// Tokens of an identity provider.
    oidc: Option<Arc<Oidc>>,
    /// Users of a directory.
    ldap: Option<Arc<Ldap>>,
    /// Whether metrics need a login.
    guards_metrics: bool,
    /// Whom certificates of clients stand for.
    certificates: CertificateRules,
    /// Where the users are kept.
    file: Option<Arc<UserFile>>,
    /// Failed logins, kept when the users are read again.
    attempts: Arc<Attempts>,
    /// From which the salts of users are made who do not exist.
    secret: [u8; 32],
}

/// A credential that a peer was let in with, and that may end later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The password of a user, or a proof of it.
    Password {
        /// The user.
        user: Arc<str>,
    },
    /// A token.
    Token {
        /// Its id.
        id: Arc<str>,
        /// Its user.
        user: Arc<str>,
    },
    /// A token of an identity provider.
    Federated(Arc<Federated>),
    /// A certificate.
    Certificate {
        /// Its names.
        names: Arc<Names>,
        /// Whom it stands for.
        principal: Principal,
    },
}

/// The result of a peer's message.
#[derive(Debug)]
pub enum Step {
    /// This.
    Answer(LoginAnswer),
    /// The result of checking its password, which takes a while.
    Check(PasswordCheck),
    /// The result of asking the identity provider.
    Wait(ProviderCheck),
}

/// The answer to a login for which an identity provider is asked. It waits for no thread.
pub struct ProviderCheck(Pin<Box<dyn Future<Output = LoginAnswer> + Send>>);

impl ProviderCheck {
    /// Waits for the answer, within the time-outs of the provider.
    pub async fn answer(self) -> LoginAnswer {
        self.0.await
    }
}

impl fmt::Debug for ProviderCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderCheck").finish_non_exhaustive()
    }
}

/// A password that is still to be looked at.
#[derive(Debug)]
pub struct PasswordCheck {
    user: Arc<str>,
    password: Box<str>,
    verifier: Verifier,
    attempt: Option<Attempt>,
}

/// The verifier of a password.
#[derive(Debug)]
enum Verifier {
    Argon(Argon),
    /// Of a user whose password was set by an earlier version.
    Scram(Keys),
}

impl PasswordCheck {
    /// Looks at it. Takes as long as the verifier says, and waits for a permit: not for a thread
    /// that others wait for.
    pub fn run(self) -> LoginAnswer {
        let is_right = match &self.verifier {
            Verifier::Argon(argon) => argon.is_of(&self.password),
            Verifier::Scram(keys) => keys.are_of(&self.password),
        };
        if let Some(attempt) = self.attempt {
            attempt.ended(is_right);
        }
        match is_right {
            true => welcome(Principal::User(self.user)),
            false => refused(WRONG),
        }
    }
}

impl Door {
    /// Admits all clients without a check.
    pub fn open() -> Door {
        Door {
            users: None,
            hashes: Vec::new(),
            anonymous: true,
            tokens: None,
            oidc: None,
            ldap: None,
            guards_metrics: false,
            certificates: CertificateRules::default(),
            file: None,
            attempts: Arc::default(),
            secret: [0; 32],
        }
    }

    /// Lets these users in, and those who do not say who they are if `anonymous`.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn of(users: Users, anonymous: bool) -> Result<Door, UserError> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| UserError::NoChance)?;
        let hashes = Hash::ALL.into_iter().filter(|hash| users.all_have(*hash)).collect();
        Ok(Door {
            users: Some(users),
            hashes,
            anonymous,
            tokens: None,
            oidc: None,
            ldap: None,
            guards_metrics: false,
            certificates: CertificateRules::default(),
            file: None,
            attempts: Arc::default(),
            secret,
        })
    }

    /// Accepts these tokens in place of passwords, too.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<TokenBook>) -> Door {
        Door { tokens: Some(tokens), ..self }
    }

    /// Accepts tokens of this identity provider in place of passwords, too.
    #[must_use]
    pub fn with_oidc(self, oidc: Arc<Oidc>) -> Door {
        Door { oidc: Some(oidc), ..self.without_proofs_of_nobody() }
    }

    /// Lets users of this directory in, too. It checks passwords alone: there is no SCRAM.
    #[must_use]
    pub fn with_ldap(self, ldap: Arc<Ldap>) -> Door {
        Door { ldap: Some(ldap), hashes: Vec::new(), ..self }
    }

    /// Metrics need a login, if this is set.
    #[must_use]
    pub fn with_metrics_login(self, guards_metrics: bool) -> Door {
        Door { guards_metrics, ..self }
    }

    /// Whether metrics need a login.
    pub fn guards_metrics(&self) -> bool {
        self.guards_metrics
    }

    /// The directory that has this user; `None` for users of the file, and without a directory.
    fn directory_of(&self, user: &str) -> Option<&Arc<Ldap>> {
        self.ldap.as_ref().filter(|_| self.known(user).is_none())
    }

    /// Certificates of clients stand for users by these rules.
    #[must_use]
    pub fn with_certificates(self, certificates: CertificateRules) -> Door {
        Door { certificates, ..self.without_proofs_of_nobody() }
    }

    /// Without users none has a password that could be proved.
    fn without_proofs_of_nobody(mut self) -> Door {
        if self.users.as_ref().is_some_and(|users| users.names().next().is_none()) {
            self.hashes.clear();
        }
        self
    }

    /// Whether this is a token for the identity provider.
    pub fn takes_jwt(&self, text: &str) -> bool {
        self.oidc.is_some() && is_jwt(text)
    }

    /// Failed logins, for the audit.
    pub fn failures(&self) -> &FailedLogins {
        &self.attempts.failures
    }

    /// The name that failures of this login are counted by.
    pub fn counted_user(&self, user: &str, password: &str) -> String {
        if user.is_empty() && password.starts_with(TOKEN_PREFIX) {
            return counted_token(password);
        }
        if let Some(oidc) = self.oidc.as_ref().filter(|_| is_jwt(password)) {
            return oidc.claimed_user(password);
        }
        match self.directory_of(user) {
            // Directories do not tell small letters from capitals.
            Some(_) => user.to_lowercase(),
            None => user.to_owned(),
        }
    }

    /// The users are kept in this file.
    #[must_use]
    pub fn with_file(self, file: Arc<UserFile>) -> Door {
        Door { file: Some(file), ..self }
    }

    /// The file of the users; `None` if all clients are admitted without a check.
    pub fn file(&self) -> Option<&Arc<UserFile>> {
        self.file.as_ref()
    }

    /// Counts failed logins here, together with those before.
    #[must_use]
    pub fn with_attempts(self, attempts: Arc<Attempts>) -> Door {
        Door { attempts, ..self }
    }

    /// How long logins of this user from this address are refused, after too many failures.
    pub fn locked_for(&self, user: &str, address: IpAddr) -> Option<Duration> {
        self.attempts.locked_for(user, address)
    }

    /// Changes with the password of the user; `None` if there is no such user.
    pub fn password_mark(&self, user: &str) -> Option<[u8; 32]> {
        Some(digest_of(&self.users.as_ref()?.verifiers(user)?))
    }

    /// The tokens of the users; `None` if everybody is let in.
    pub fn tokens(&self) -> Option<&Arc<TokenBook>> {
        self.tokens.as_ref()
    }

    /// The token of this text, if it is in force and its user is known.
    pub fn token(&self, text: &str) -> Option<Token> {
        self.tokens.as_ref()?.check(text).filter(|token| self.knows(&token.user))
    }

    /// Whether a peer with this credential would still be let in.
    pub fn honours(&self, credential: &Credential) -> bool {
        let has_token = |id: &str| self.tokens.as_ref().is_some_and(|tokens| tokens.has(id));
        match credential {
            Credential::Password { user } => self.knows(user),
            Credential::Token { id, user } => self.is_open() || has_token(id) && self.knows(user),
            Credential::Federated(federated) => {
                let is_known = match &self.ldap {
                    Some(ldap) if federated.user.starts_with(LDAP_PREFIX) => ldap.honours(federated),
                    _ => self.oidc.is_some() && !federated.user.starts_with(LDAP_PREFIX),
                };
                is_known && !has_ended(federated)
            }
            Credential::Certificate { names, principal } => {
                let has_expired = match principal {
                    Principal::Federated(federated) => has_ended(federated),
                    _ => false,
                };
                !has_expired && self.certificates.principal_of(names).as_ref() == Some(principal)
            }
        }
    }

    /// Whether a peer without credentials is refused.
    pub fn asks(&self) -> bool {
        !self.anonymous
    }

    /// Whether this user is admitted: it is known, or all are admitted.
    pub fn knows(&self, user: &str) -> bool {
        self.users.as_ref().is_none_or(|users| users.known(user).is_some())
    }

    /// The user of this name, as it stands in the file of users.
    pub fn known(&self, user: &str) -> Option<&str> {
        self.users.as_ref()?.known(user)
    }

    /// Whether all clients are admitted without a check.
    pub fn is_open(&self) -> bool {
        self.users.is_none()
    }

    /// The verifier of this user's password; if there is no such user, one that takes as long and
    /// that no password has.
    fn verifier(&self, users: &Users, name: &str) -> Verifier {
        if let Some(argon) = users.argon(name) {
            return Verifier::Argon(argon.clone());
        }
        match users.any_argon().filter(|_| users.known(name).is_none()) {
            Some(like) => {
                let named = format!("argon2id:{name}");
                Verifier::Argon(like.of_nobody(Hash::Sha512.hmac(&self.secret, named.as_bytes())))
            }
            None => Verifier::Scram(self.keys(users, name, None)),
        }
    }

    /// The keys of the user's password; those of an unknown password if there is no such user.
    fn keys(&self, users: &Users, name: &str, hash: Option<Hash>) -> Keys {
        if let Some(keys) = users.keys(name, hash) {
            return keys.clone();
        }
        let like = users.names().next().and_then(|name| users.keys(name, hash));
        let hash = hash.or(like.map(|keys| keys.hash)).unwrap_or(Hash::Sha512);
        let (salt_bytes, iterations) = match like {
            Some(keys) => (keys.salt.len(), keys.iterations),
            None => (SALT_BYTES, NonZeroU32::new(ITERATIONS).unwrap_or(NonZeroU32::MIN)),
        };
        let named = format!("{}:{name}", hash.mechanism());
        let mut salt = Hash::Sha512.hmac(&self.secret, named.as_bytes());
        salt.truncate(salt_bytes);
        Keys::of_nobody(hash, salt, iterations)
    }
}

/// One peer at the door.
#[derive(Debug)]
pub struct Visit {
    door: Arc<Door>,
    /// The names in the peer's certificate.
    names: Option<Arc<Names>>,
    /// Whom it stands for.
    certificate: Option<Principal>,
    expects: Expects,
    /// The last credential that it has shown, good or not.
    credential: Option<Credential>,
    /// Where it comes from, if its failures are counted.
    address: Option<IpAddr>,
    /// The name of its protocol.
    protocol: &'static str,
    /// The user that it claims to be.
    claims: Option<Box<str>>,
    /// The login that its next response decides.
    attempt: Option<Attempt>,
}

/// The expected answer to a challenge.
#[derive(Debug)]
enum Expects {
    Nothing,
    /// The mechanism's response that could have come at once.
    First(Mechanism),
    /// The end of a conversation.
    Last(Box<Scram>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    External,
    Scram(Hash),
    /// As clients of mail servers send tokens; Qpid JMS has it for AMQP.
    XOauth2,
    Plain,
    Anonymous,
}

impl Mechanism {
    const ALL: [Mechanism; 6] = [
        Mechanism::External,
        Mechanism::Scram(Hash::Sha512),
        Mechanism::Scram(Hash::Sha256),
        Mechanism::XOauth2,
        Mechanism::Plain,
        Mechanism::Anonymous,
    ];

    fn name(self) -> &'static str {
        match self {
            Mechanism::External => "EXTERNAL",
            Mechanism::Scram(hash) => hash.mechanism(),
            Mechanism::XOauth2 => "XOAUTH2",
            Mechanism::Plain => "PLAIN",
            Mechanism::Anonymous => "ANONYMOUS",
        }
    }
}

impl Visit {
    /// A peer comes, with a certificate (DER) if it has shown a good one.
    pub fn new(door: Arc<Door>, certificate: Option<&[u8]>) -> Visit {
        let names = certificate.and_then(Names::of).map(Arc::new);
        let certificate = names.as_ref().and_then(|names| door.certificates.principal_of(names));
        let (expects, credential) = (Expects::Nothing, None);
        let (address, protocol, claims) = (None, "-", None);
        Visit { door, names, certificate, expects, credential, address, protocol, claims, attempt: None }
    }

    /// It speaks this protocol.
    #[must_use]
    pub fn over(self, protocol: &'static str) -> Visit {
        Visit { protocol, ..self }
    }

    /// Keeps its refusals for the log and the audit.
    pub fn refusals(&self) -> Refusals {
        Refusals::new(self.door.clone(), (self.address, self.protocol), self.claims.clone())
    }

    /// Counts its failures for this address.
    #[must_use]
    pub fn at(self, address: IpAddr) -> Visit {
        Visit { address: Some(address), ..self }
    }

    /// The login of this user, whose result is counted.
    ///
    /// # Errors
    /// There were too many failures.
    fn attempt(&self, user: &str) -> Result<Option<Attempt>, LoginAnswer> {
        let attempt = self.address.map(|address| Attempt::new(self.door.attempts.clone(), user, address));
        match attempt.as_ref().and_then(Attempt::locked_for) {
            Some(left) => Err(refused(&locked(left))),
            None => Ok(attempt),
        }
    }

    /// Whether credentials are checked.
    pub fn has_users(&self) -> bool {
        self.door.users.is_some()
    }

    /// The credential of a peer that was let in; none for anonymous peers.
    pub fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// The credential of a peer that was let in as this principal elsewhere, by its certificate.
    pub fn credential_by_certificate(&self, principal: &Principal) -> Option<Credential> {
        let certificate = self.certificate.clone().filter(|certificate| certificate == principal)?;
        Some(Credential::Certificate { names: self.names.clone()?, principal: certificate })
    }

    /// Whether it is not let in before it has said who it is.
    pub fn must_login(&self) -> bool {
        self.door.asks()
    }

    /// The mechanisms to choose from, the best first. An unknown password cannot be proved: without
    /// users there is no SCRAM.
    pub fn mechanisms(&self) -> Vec<&'static str> {
        self.offered().map(Mechanism::name).collect()
    }

    fn offered(&self) -> impl Iterator<Item = Mechanism> + '_ {
        Mechanism::ALL.into_iter().filter(|mechanism| match mechanism {
            Mechanism::External => self.certificate.is_some(),
            Mechanism::Scram(hash) => self.door.hashes.contains(hash),
            Mechanism::XOauth2 => self.door.oidc.is_some(),
            Mechanism::Plain => true,
            Mechanism::Anonymous => self.door.anonymous,
        })
    }

    /// The result of the peer's message.
    pub fn step(&mut self, login: Login) -> Step {
        match (login, std::mem::replace(&mut self.expects, Expects::Nothing)) {
            (Login::Password { user, password }, _) => self.password(user.as_deref(), password),
            (Login::Begin { mechanism, response }, _) => {
                let Some(chosen) = self.offered().find(|known| known.name() == &*mechanism) else {
                    let offered = self.mechanisms().join(", ");
                    return Step::Answer(refused(&format!("{offered} are offered")));
                };
                match response {
                    Some(response) => self.first(chosen, &response),
                    None if chosen == Mechanism::Anonymous => self.first(chosen, b""),
                    None => {
                        self.expects = Expects::First(chosen);
                        Step::Answer(LoginAnswer::Challenge(Bytes::new()))
                    }
                }
            }
            (Login::Continue { response }, Expects::First(chosen)) => self.first(chosen, &response),
            (Login::Continue { response }, Expects::Last(scram)) => {
                let (finished, attempt) = (scram.finish(&response), self.attempt.take());
                if let Some(attempt) = attempt {
                    attempt.ended(finished.is_ok());
                }
                Step::Answer(match finished {
                    Ok((user, last)) => {
                        self.credential = Some(Credential::Password { user: user.clone() });
                        LoginAnswer::Welcome { principal: Principal::User(user), last: Some(last.into()) }
                    }
                    Err(reason) => refused(reason),
                })
            }
            (Login::Continue { .. }, Expects::Nothing) => {
                Step::Answer(refused("unexpected response without a challenge"))
            }
        }
    }

    fn first(&mut self, mechanism: Mechanism, response: &[u8]) -> Step {
        match mechanism {
            Mechanism::Anonymous => Step::Answer(welcome(Principal::Anonymous)),
            Mechanism::External => Step::Answer(self.external(response)),
            Mechanism::XOauth2 => self.xoauth2(response),
            Mechanism::Plain => self.plain(response),
            Mechanism::Scram(hash) => Step::Answer(self.scram(hash, response)),
        }
    }

    /// RFC 4422, appendix A: only as the user that the certificate names.
    fn external(&mut self, acts_as: &[u8]) -> LoginAnswer {
        match self.certificate.as_ref().and_then(Principal::user) {
            Some(user) if acts_as.is_empty() || acts_as == user.as_bytes() => self.by_certificate(),
            _ => refused("its certificate names another user"),
        }
    }

    /// A peer whose certificate is its login.
    fn by_certificate(&mut self) -> LoginAnswer {
        let (Some(names), Some(principal)) = (&self.names, &self.certificate) else {
            return refused("it has shown no certificate of a user");
        };
        let (names, principal) = (names.clone(), principal.clone());
        let answer = welcome(principal.clone());
        self.credential = Some(Credential::Certificate { names, principal });
        answer
    }

    /// Why a peer without a user name is refused.
    fn nameless(&self) -> LoginAnswer {
        match &self.names {
            Some(names) => {
                let subject = names.subject();
                refused(&format!("no rule of security.certificate fits its certificate {subject}"))
            }
            None => refused("it sends no user name"),
        }
    }

    /// `user=NAME^Aauth=Bearer TOKEN^A^A`, with 0x01 for `^A`. Some clients send each password this
    /// way if they can, so it need not be a token.
    fn xoauth2(&mut self, response: &[u8]) -> Step {
        let text = std::str::from_utf8(response).ok();
        let mut fields = text.into_iter().flat_map(|text| text.split('\u{1}'));
        let user = fields.next().and_then(|field| field.strip_prefix("user="));
        let token = fields.next().and_then(|field| field.strip_prefix("auth=Bearer "));
        match (user, token) {
            (Some(user), Some(token)) => self.password(Some(user), Some(token.into())),
            _ => Step::Answer(refused("its response is malformed")),
        }
    }

    /// RFC 4616: whom to act as, who, and the password.
    fn plain(&mut self, response: &[u8]) -> Step {
        let parts: Option<Vec<&str>> =
            response.split(|byte| *byte == 0).map(|part| std::str::from_utf8(part).ok()).collect();
        match parts.as_deref() {
            Some([acts_as, user, password]) if !user.is_empty() => {
                if self.door.users.is_some() && !acts_as.is_empty() && acts_as != user {
                    return Step::Answer(refused("acting for another user is not supported"));
                }
                self.password(Some(*user), Some((*password).into()))
            }
            _ => Step::Answer(refused("its response is malformed")),
        }
    }

    fn scram(&mut self, hash: Hash, response: &[u8]) -> LoginAnswer {
        let Some(users) = &self.door.users else { return refused("passwords are not configured") };
        let mut first = match ClientFirst::parse(response) {
            Ok(first) => first,
            Err(reason) => return refused(reason),
        };
        self.claims = Some((&*first.user).into());
        match self.attempt(&first.user) {
            Ok(attempt) => self.attempt = attempt,
            Err(locked) => return locked,
        }
        let mut nonce = [0; NONCE_BYTES];
        if SystemRandom::new().fill(&mut nonce).is_err() {
            return refused("the system provides no random numbers");
        }
        if let Some(user) = users.known(&first.user) {
            first.user = user.to_owned();
        }
        let keys = self.door.keys(users, &first.user, Some(hash));
        let (scram, challenge) = Scram::begin(&first, keys, &BASE64.encode(&nonce));
        self.expects = Expects::Last(Box::new(scram));
        LoginAnswer::Challenge(challenge.into())
    }

    /// A name and a password in clear text. A peer without a name may have shown a certificate.
    fn password(&mut self, user: Option<&str>, password: Option<Box<str>>) -> Step {
        self.credential = None;
        let counted =
            self.door.counted_user(user.unwrap_or_default(), password.as_deref().unwrap_or_default());
        self.claims = (!counted.is_empty()).then(|| counted.into());
        let welcome = |user: Option<Arc<str>>| Step::Answer(welcome(Principal::of(user.as_ref())));
        let user = user.filter(|user| !user.is_empty());
        if let Some(text) = password.as_deref().filter(|text| text.starts_with(TOKEN_PREFIX))
            && self.has_users()
        {
            return Step::Answer(self.token(user, text));
        }
        if let (Some(oidc), Some(text)) = (&self.door.oidc, password.as_deref().filter(|text| is_jwt(text))) {
            return self.federated(oidc, text);
        }
        let (users, user) = match (&self.door.users, user) {
            (_, None) if self.certificate.is_some() => return Step::Answer(self.by_certificate()),
            (None, user) => return welcome(user.map(Arc::from)),
            (Some(_), None) if self.door.anonymous => return welcome(None),
            (Some(_), None) => return Step::Answer(self.nameless()),
            (Some(users), Some(user)) => (users, user),
        };
        let password = password.unwrap_or_default();
        if password.len() > PASSWORD_BYTES_MAX {
            return Step::Answer(refused(WRONG));
        }
        if let Some(ldap) = self.door.directory_of(user) {
            return self.in_directory(ldap, user, password);
        }
        let user: Arc<str> = users.known(user).unwrap_or(user).into();
        let verifier = self.door.verifier(users, &user);
        match self.attempt(&user) {
            Err(locked) => Step::Answer(locked),
            Ok(attempt) => {
                self.credential = Some(Credential::Password { user: user.clone() });
                Step::Check(PasswordCheck { user, password, verifier, attempt })
            }
        }
    }

    /// A token in place of a password. Its user need not be named.
    fn token(&mut self, user: Option<&str>, text: &str) -> LoginAnswer {
        match self.token_of(user, text) {
            Ok(token) if !token.scopes.permit(Scope::Messages) => {
                refused("its token has no scope for messages")
            }
            Ok(Token { id, user, .. }) => {
                self.credential = Some(Credential::Token { id, user: user.clone() });
                welcome(Principal::User(user))
            }
            Err(Some(left)) => refused(&locked(left)),
            Err(None) => refused(WRONG),
        }
    }

    /// A token of the identity provider. The name that its client gives does not matter.
    fn federated(&self, oidc: &Arc<Oidc>, text: &str) -> Step {
        let attempt = match self.attempt(&oidc.claimed_user(text)) {
            Ok(attempt) => attempt,
            Err(locked) => return Step::Answer(locked),
        };
        let checked = oidc.check(text);
        if !oidc.needs_refresh(&checked) {
            return Step::Answer(counted(checked, attempt));
        }
        let (oidc, text) = (oidc.clone(), text.to_owned());
        let answer = async move { counted(oidc.check_with_refresh(&text).await, attempt) };
        Step::Wait(ProviderCheck(Box::pin(answer)))
    }

    /// A user who is not in the file: the directory checks its password.
    fn in_directory(&self, ldap: &Arc<Ldap>, user: &str, password: Box<str>) -> Step {
        let attempt = match self.attempt(&self.door.counted_user(user, "")) {
            Ok(attempt) => attempt,
            Err(locked) => return Step::Answer(locked),
        };
        // A directory lets a name without a password in as anonymous (RFC 4513, section 5.1.2).
        let cannot_be = password.is_empty() || check_name(user).is_err();
        let remembered = ldap.remembered(user, &password).filter(|_| !cannot_be);
        if cannot_be || remembered.is_some() {
            if let Some(attempt) = attempt {
                attempt.ended(!cannot_be);
            }
            let federated = remembered.map(|federated| welcome(Principal::Federated(federated)));
            return Step::Answer(federated.unwrap_or_else(|| refused(WRONG)));
        }
        let (ldap, user) = (ldap.clone(), user.to_owned());
        let answer = async move {
            let checked = ldap.check(user, password).await;
            if let Some(attempt) = attempt.filter(|_| !checked.as_ref().is_err_and(LdapError::is_own)) {
                attempt.ended(checked.is_ok());
            }
            match checked {
                Ok(federated) => welcome(Principal::Federated(federated)),
                Err(error) if error.is_own() => refused(DIRECTORY_AWAY),
                Err(error) => {
                    if error != LdapError::Wrong {
                        tracing::warn!(%error, "a user of the directory is refused");
                    }
                    refused(WRONG)
                }
            }
        };
        Step::Wait(ProviderCheck(Box::pin(answer)))
    }

    /// The token of this text, if it is in force and of this user; the result is counted.
    ///
    /// # Errors
    /// It is not, or how long it is not looked at after too many failures.
    pub fn token_of(&self, user: Option<&str>, text: &str) -> Result<Token, Option<Duration>> {
        let counted = user.map_or_else(|| counted_token(text), str::to_owned);
        let attempt = self.address.map(|address| Attempt::new(self.door.attempts.clone(), &counted, address));
        if let Some(left) = attempt.as_ref().and_then(Attempt::locked_for) {
            return Err(Some(left));
        }
        let found = self.door.token(text).filter(|token| user.is_none_or(|user| user == &*token.user));
        if let Some(attempt) = attempt {
            attempt.ended(found.is_some());
        }
        found.ok_or(None)
    }
}

/// Whether the time of a user is over for whom others vouch.
fn has_ended(federated: &Federated) -> bool {
    federated.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms())
}

/// The error for a login that is not looked at.
pub fn locked(left: Duration) -> String {
    format!("too many failed logins; try again in {} seconds", left.as_secs().max(1))
}

/// The answer to a token of an identity provider, whose result is counted.
fn counted(checked: Result<Arc<Federated>, TokenError>, attempt: Option<Attempt>) -> LoginAnswer {
    let is_own = checked.as_ref().is_err_and(TokenError::is_own);
    if let Some(attempt) = attempt.filter(|_| !is_own) {
        attempt.ended(checked.is_ok());
    }
    match checked {
        Ok(federated) => welcome(Principal::Federated(federated)),
        Err(error) => refused(&error.to_string()),
    }
}

fn welcome(principal: Principal) -> LoginAnswer {
    LoginAnswer::Welcome { principal, last: None }
}

fn refused(reason: &str) -> LoginAnswer {
    LoginAnswer::Refused { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    /// A door for "user" with the password "pencil".
    fn door(anonymous: bool) -> Arc<Door> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, format!("user {KEYS}\n")).unwrap();
        Arc::new(Door::of(Users::load(&file).unwrap(), anonymous).unwrap())
    }

    fn begin(mechanism: &str, response: &'static [u8]) -> Login {
        Login::Begin { mechanism: mechanism.into(), response: Some(Bytes::from_static(response)) }
    }

    fn password(user: &str, password: &str) -> Login {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        Login::Password { user: some(user), password: some(password) }
    }

    fn answer(visit: &mut Visit, login: Login) -> LoginAnswer {
        match visit.step(login) {
            Step::Answer(answer) => answer,
            Step::Check(check) => check.run(),
            Step::Wait(_) => panic!("it waits"),
        }
    }

    fn welcome(user: Option<&str>) -> LoginAnswer {
        super::welcome(user.map_or(Principal::Anonymous, |user| Principal::User(user.into())))
    }

    fn certificate() -> Vec<u8> {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn mechanisms_are_offered_the_best_first() {
        let der = certificate();
        for (case, door, certificate, want) in [
            ("open", Arc::new(Door::open()), None, &["PLAIN", "ANONYMOUS"][..]),
            ("with users", door(false), None, &["SCRAM-SHA-256", "PLAIN"]),
            (
                "and a certificate",
                door(true),
                Some(&der[..]),
                &["EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS"],
            ),
        ] {
            assert_eq!(Visit::new(door, certificate).mechanisms(), want, "case: {case}");
        }
    }

    #[test]
    fn whoever_proves_who_it_is_is_let_in() {
        let (open, shut, lax) = (Arc::new(Door::open()), door(false), door(true));
        let der = certificate();
        let (nobody, known) = (None, Some(&der[..]));
        let no = |reason: &str| refused(reason);
        for (case, door, certificate, login, want) in [
            ("open: a password", &open, nobody, begin("PLAIN", b"\0me\0x"), welcome(Some("me"))),
            ("open: acting as another", &open, nobody, begin("PLAIN", b"you\0me\0x"), welcome(Some("me"))),
            ("open: anonymous", &open, nobody, begin("ANONYMOUS", b"me"), welcome(None)),
            ("open: malformed", &open, nobody, begin("PLAIN", b"me:x"), no("its response is malformed")),
            ("open: without a name", &open, nobody, password("", ""), welcome(None)),
            ("open: by certificate", &open, known, begin("EXTERNAL", b""), welcome(Some("CN=alice"))),
            (
                "open: no SCRAM",
                &open,
                nobody,
                begin("SCRAM-SHA-256", b""),
                no("PLAIN, ANONYMOUS are offered"),
            ),
            ("the password", &shut, nobody, begin("PLAIN", b"\0user\0pencil"), welcome(Some("user"))),
            ("as oneself", &shut, nobody, begin("PLAIN", b"user\0user\0pencil"), welcome(Some("user"))),
            (
                "as another",
                &shut,
                nobody,
                begin("PLAIN", b"you\0user\0pencil"),
                no("acting for another user is not supported"),
            ),
            ("another password", &shut, nobody, begin("PLAIN", b"\0user\0pen"), no(WRONG)),
            ("no such user", &shut, nobody, begin("PLAIN", b"\0me\0pencil"), no(WRONG)),
            ("no UTF-8", &shut, nobody, begin("PLAIN", b"\0\xff\0pencil"), no("its response is malformed")),
            ("without SASL", &shut, nobody, password("user", "pencil"), welcome(Some("user"))),
            ("without SASL, wrong", &shut, nobody, password("user", ""), no(WRONG)),
            ("without a name", &shut, nobody, password("", ""), no("it sends no user name")),
            ("a certificate for a name", &shut, known, password("", ""), welcome(Some("CN=alice"))),
            ("by certificate", &shut, known, begin("EXTERNAL", b"CN=alice"), welcome(Some("CN=alice"))),
            (
                "by certificate, as another",
                &shut,
                known,
                begin("EXTERNAL", b"user"),
                no("its certificate names another user"),
            ),
            ("no certificate", &shut, nobody, begin("EXTERNAL", b""), no("SCRAM-SHA-256, PLAIN are offered")),
            ("anonymous", &shut, nobody, begin("ANONYMOUS", b""), no("SCRAM-SHA-256, PLAIN are offered")),
            ("anonymous, where that is allowed", &lax, nobody, begin("ANONYMOUS", b""), welcome(None)),
            ("without a name, where that is allowed", &lax, nobody, password("", ""), welcome(None)),
            ("a wrong password counts there too", &lax, nobody, password("user", "x"), no(WRONG)),
            ("a long password", &shut, nobody, password("user", &"x".repeat(2_000)), no(WRONG)),
            (
                "an answer to nothing",
                &shut,
                nobody,
                Login::Continue { response: Bytes::new() },
                no("unexpected response without a challenge"),
            ),
        ] {
            let mut visit = Visit::new(door.clone(), certificate);
            assert_eq!(answer(&mut visit, login), want, "case: {case}");
        }
    }

    #[test]
    fn a_token_takes_the_place_of_a_password_until_it_is_revoked_or_its_user_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let book = Arc::new(
            TokenBook::open(crate::documents::Text::of_file(&folder.path().join("tokens"))).unwrap(),
        );
        let (token, text) = book.issue("user", "messages".parse().unwrap(), None).unwrap();
        let (_, of_stranger) = book.issue("stranger", "messages".parse().unwrap(), None).unwrap();
        let (_, for_api) = book.issue("user", "manage".parse().unwrap(), None).unwrap();
        let door = Arc::new(Arc::into_inner(door(false)).unwrap().with_tokens(book.clone()));
        let wrong = || refused(WRONG);
        for (case, login, want) in [
            ("with its user", password("user", &text), welcome(Some("user"))),
            ("without a user", password("", &text), welcome(Some("user"))),
            ("with another user", password("me", &text), wrong()),
            ("a wrong secret", password("user", "prt_a_b"), wrong()),
            ("a user who is not known", password("stranger", &of_stranger), wrong()),
            ("another scope", password("user", &for_api), refused("its token has no scope for messages")),
            ("a password works as well", password("user", "pencil"), welcome(Some("user"))),
        ] {
            assert_eq!(answer(&mut Visit::new(door.clone(), None), login), want, "case: {case}");
        }
        let mut visit = Visit::new(door.clone(), None);
        answer(&mut visit, password("", &text));
        let credential = visit.credential().unwrap().clone();
        assert_eq!(credential, Credential::Token { id: token.id.clone(), user: "user".into() });
        let without = Door::of(Users::default(), false).unwrap().with_tokens(book.clone());
        assert!(door.honours(&credential) && !without.honours(&credential));
        assert!(!without.honours(&Credential::Password { user: "user".into() }));
        assert!(book.revoke(&token.id).unwrap());
        assert!(!door.honours(&credential));
        assert_eq!(answer(&mut visit, password("", &text)), wrong());
    }

    #[test]
    fn after_too_many_failures_a_good_password_is_refused_too_by_every_mechanism() {
        let door = door(false);
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let try_at = |address, login| answer(&mut Visit::new(door.clone(), None).at(address), login);
        for _ in 0..5 {
            assert_eq!(try_at(here, password("user", "pen")), refused(WRONG));
        }
        let LoginAnswer::Refused { reason } = try_at(here, password("user", "pencil")) else { panic!() };
        assert!(reason.starts_with("too many failed logins; try again in 1"), "{reason}");
        let scram = try_at(here, begin("SCRAM-SHA-256", b"n,,n=user,r=x"));
        assert!(matches!(scram, LoginAnswer::Refused { .. }), "{scram:?}");
        assert!(door.locked_for("user", here).is_some() && door.locked_for("user", there).is_none());
        assert_eq!(try_at(there, password("user", "pencil")), welcome(Some("user")));
    }

    #[test]
    fn what_a_mechanism_could_say_at_once_is_asked_for() {
        let mut visit = Visit::new(door(false), None);
        let begun = Login::Begin { mechanism: "PLAIN".into(), response: None };
        assert_eq!(answer(&mut visit, begun), LoginAnswer::Challenge(Bytes::new()));
        let said = Login::Continue { response: Bytes::from_static(b"\0user\0pencil") };
        assert_eq!(answer(&mut visit, said.clone()), welcome(Some("user")));
        assert_eq!(answer(&mut visit, said), refused("unexpected response without a challenge"));
    }

    #[test]
    fn strangers_are_challenged_like_users_and_always_alike() {
        let door = door(false);
        let challenged = |first: &'static [u8]| {
            let mut visit = Visit::new(door.clone(), None);
            let LoginAnswer::Challenge(challenge) = answer(&mut visit, begin("SCRAM-SHA-256", first)) else {
                panic!("no challenge")
            };
            let challenge = String::from_utf8(challenge.to_vec()).unwrap();
            let (nonce, rest) = challenge.split_once(',').unwrap();
            let last = format!("c=biws,{nonce},p={}", BASE64.encode(&[7; 32]));
            let refusal = answer(&mut visit, Login::Continue { response: last.into() });
            (nonce.to_owned(), rest.to_owned(), refusal)
        };
        let (user, stranger, again) =
            (challenged(b"n,,n=user,r=x"), challenged(b"n,,n=me,r=x"), challenged(b"n,,n=me,r=x"));
        assert_eq!(user.1, "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert_eq!((user.1.len(), user.0.len()), (stranger.1.len(), stranger.0.len()));
        assert_eq!((&stranger.1, &stranger.2), (&again.1, &user.2));
        assert!(stranger.1 != user.1 && stranger.0 != again.0);
        assert_eq!(user.2, refused(WRONG));
    }
}
