//! A login that a client has carried out at one node of a cluster, for the node that serves it.
//!
//! The serving node's session reads the same bytes again and is given the same answers.
//!
//! Never here: sockets, and the proof that the answers are good (crates/cluster).

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use data_encoding::BASE64;
use postroad_cluster::HandedLogin;
use postroad_model::{Federated, LoginAnswer, Principal};
use postroad_security::Credential;
use serde::{Deserialize, Serialize};

/// Challenges of one login.
const CHALLENGES_MAX: usize = 16;

/// See the head of this file.
#[derive(Clone, PartialEq, Eq)]
pub struct EntryLogin {
    /// Challenges, and the welcome at the end; none for a client that need not log in.
    pub answers: Vec<LoginAnswer>,
    /// The credential that the client has shown, if it may end later.
    pub credential: Option<Credential>,
    /// Its certificate (DER), if it has shown a good one.
    pub certificate: Option<Bytes>,
    /// All plain bytes that have come from it.
    pub bytes: Bytes,
}

/// The bytes have passwords.
impl fmt::Debug for EntryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryLogin").field("answers", &self.answers.len()).finish_non_exhaustive()
    }
}

/// Its form between nodes, but for the bytes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    challenges: Vec<String>,
    welcome: Option<Welcome>,
    credential: Option<Shown>,
    certificate: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Welcome {
    /// `None`: anonymous.
    principal: Option<User>,
    last: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum User {
    Own(String),
    Federated { user: String, groups: Vec<String>, expires_ms: Option<u64> },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Shown {
    Password { user: String },
    Token { id: String, user: String },
}

impl EntryLogin {
    /// As it is handed to another node.
    pub fn handed(&self) -> HandedLogin {
        HandedLogin { answers: self.encode(), bytes: self.bytes.clone() }
    }

    /// All of it but the bytes.
    pub fn encode(&self) -> Bytes {
        let (mut challenges, mut welcome) = (Vec::new(), None);
        for answer in &self.answers {
            match answer {
                LoginAnswer::Challenge(challenge) => challenges.push(BASE64.encode(challenge)),
                LoginAnswer::Welcome { principal, last } => {
                    let last = last.as_ref().map(|last| BASE64.encode(last));
                    welcome = Some(Welcome { principal: user_of(principal), last });
                }
                // The client was not let in, and is not handed over.
                LoginAnswer::Refused { .. } | LoginAnswer::Full { .. } | LoginAnswer::Elsewhere { .. } => {}
            }
        }
        let credential = self.credential.as_ref().and_then(|credential| match credential {
            Credential::Password { user } => Some(Shown::Password { user: user.to_string() }),
            Credential::Token { id, user } => {
                Some(Shown::Token { id: id.to_string(), user: user.to_string() })
            }
            // The principal, or the certificate, says it.
            Credential::Federated(_) | Credential::Certificate { .. } => None,
        });
        let certificate = self.certificate.as_ref().map(|der| BASE64.encode(der));
        serde_json::to_vec(&Text { challenges, welcome, credential, certificate }).unwrap_or_default().into()
    }

    /// Reads it, with these bytes.
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(text: &[u8], bytes: Bytes) -> anyhow::Result<EntryLogin> {
        let Text { challenges, welcome, credential, certificate } =
            serde_json::from_slice(text).context("malformed login of a client")?;
        if CHALLENGES_MAX < challenges.len() {
            bail!("a login with {} challenges; the maximum is {CHALLENGES_MAX}", challenges.len());
        }
        let mut answers = Vec::new();
        for challenge in challenges {
            answers.push(LoginAnswer::Challenge(BASE64.decode(challenge.as_bytes())?.into()));
        }
        if let Some(Welcome { principal, last }) = welcome {
            let last = last.map(|last| BASE64.decode(last.as_bytes())).transpose()?.map(Bytes::from);
            answers.push(LoginAnswer::Welcome { principal: principal_of(principal), last });
        }
        let certificate = certificate.map(|der| BASE64.decode(der.as_bytes())).transpose()?.map(Bytes::from);
        let credential = credential.map(|shown| match shown {
            Shown::Password { user } => Credential::Password { user: user.into() },
            Shown::Token { id, user } => Credential::Token { id: id.into(), user: user.into() },
        });
        Ok(EntryLogin { answers, credential, certificate, bytes })
    }
}

fn user_of(principal: &Principal) -> Option<User> {
    match principal {
        Principal::User(user) => Some(User::Own(user.to_string())),
        Principal::Federated(federated) => {
            let groups = federated.groups.iter().map(|group| group.to_string()).collect();
            let (user, expires_ms) = (federated.user.to_string(), federated.expires_ms);
            Some(User::Federated { user, groups, expires_ms })
        }
        Principal::Anonymous | Principal::Operator => None,
    }
}

fn principal_of(user: Option<User>) -> Principal {
    match user {
        None => Principal::Anonymous,
        Some(User::Own(user)) => Principal::User(user.into()),
        Some(User::Federated { user, groups, expires_ms }) => {
            let (user, groups) = (user.into(), groups.into_iter().map(Into::into).collect());
            Principal::Federated(Arc::new(Federated { user, groups, expires_ms }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_comes_back_as_it_was_and_a_malformed_one_is_refused() {
        let federated = Federated { user: "oidc:ann".into(), groups: vec!["a".into()], expires_ms: Some(7) };
        let bytes = Bytes::from_static(b"bytes");
        for (principal, credential) in [
            (Principal::Anonymous, None),
            (Principal::User("ann".into()), Some(Credential::Password { user: "ann".into() })),
            (Principal::User("ann".into()), Some(Credential::Token { id: "1".into(), user: "ann".into() })),
            (Principal::Federated(Arc::new(federated)), None),
        ] {
            let last = Some(Bytes::from_static(b"v=x"));
            let answers = vec![
                LoginAnswer::Challenge(Bytes::from_static(b"r=\xff")),
                LoginAnswer::Welcome { principal, last },
            ];
            let certificate = Some(Bytes::from_static(b"der"));
            let login = EntryLogin { answers, credential, certificate, bytes: bytes.clone() };
            assert_eq!(EntryLogin::decode(&login.encode(), bytes.clone()).unwrap(), login);
        }
        let challenges = vec![LoginAnswer::Challenge(Bytes::new()); CHALLENGES_MAX + 1];
        let many =
            EntryLogin { answers: challenges, credential: None, certificate: None, bytes: bytes.clone() };
        for text in [&many.encode()[..], b"{}", b"", b"{\"challenges\": [\"?\"]}"] {
            assert!(EntryLogin::decode(text, bytes.clone()).is_err(), "{text:?}");
        }
    }
}
