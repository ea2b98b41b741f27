//! Tokens of an identity provider (OpenID Connect): signed JWTs in place of passwords.
//!
//! A token is good if a key of the provider has signed it by an allowed algorithm, it is from the
//! expected issuer and for this broker's audience, and its time has come and is not over. Keys are
//! fetched elsewhere.

mod keys;
mod signatures;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use postroad_model::Federated;
use serde_json::{Map, Value};

pub use keys::{DOCUMENT_BYTES_MAX, KeySet};
use signatures::ALLOWED_NAMES;

use crate::tokens::now_ms;
use crate::users::check_name;

#[cfg(test)]
mod tests;

/// Before the name of each user, so that none is a user of the broker's own file.
pub const OIDC_PREFIX: &str = "oidc:";

/// A longer token is refused. Tokens with the groups of a large directory have some 10 KB.
pub const JWT_BYTES_MAX: usize = 14 << 10;

/// A token names at most this number of groups.
const GROUPS_MAX: usize = 256;

/// Of a claim that must be there.
const MISSING: &str = "is missing, or has another type";

/// Claims of a token.
type Claims = Map<String, Value>;

/// Claims that a token must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcRules {
    /// Its `iss`.
    pub issuer: String,
    /// Its `aud` has one of these.
    pub audiences: Vec<String>,
    /// The claim with the name of the user.
    pub user_claim: String,
    /// The claim with the groups; with dots for members of members. Empty for none.
    pub groups_claim: String,
    /// By how much the clocks of the provider and of the broker may differ.
    pub leeway_seconds: u64,
}

/// Waits until the keys were fetched again, or may not be yet.
pub type Refresh = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// See the head of this file.
pub struct Oidc {
    rules: OidcRules,
    keys: RwLock<Arc<KeySet>>,
    /// `None` if the keys are in a file.
    refresh: Option<Refresh>,
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oidc").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The provider's keys were never read: not the token's fault.
    #[error("the keys of the issuer {issuer} could not be fetched yet")]
    NoKeys {
        /// The provider.
        issuer: String,
    },
    /// A key that the provider does not have.
    #[error("the token's key {kid:?} is not among the keys of the issuer {issuer}")]
    UnknownKey {
        /// Its id in the token's header.
        kid: String,
        /// The provider.
        issuer: String,
    },
    /// An algorithm that is not allowed, `none` among them.
    #[error("the token's algorithm is not allowed; {ALLOWED_NAMES} are")]
    Algorithm,
    /// It was changed, or another key has signed it.
    #[error("the token's signature is wrong")]
    Signature,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet (nbf); compare the clocks")]
    NotYet,
    /// Another issuer.
    #[error("the token is not from the issuer {issuer}")]
    Issuer {
        /// The provider.
        issuer: String,
    },
    /// It is for another service.
    #[error("the token is for another audience; {audiences} is right")]
    Audience {
        /// Those of this broker.
        audiences: String,
    },
    /// A claim is missing, or of another type.
    #[error("the token's claim {claim} {fault}")]
    Claim {
        /// Its name.
        claim: String,
        /// The fault.
        fault: &'static str,
    },
    /// It is not a JWT.
    #[error("the token is malformed")]
    Malformed,
    /// See [`JWT_BYTES_MAX`].
    #[error("the token has {bytes} bytes; at most {JWT_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl TokenError {
    /// Whether the token may be good, and the broker cannot tell.
    pub fn is_own(&self) -> bool {
        matches!(self, TokenError::NoKeys { .. })
    }

    /// Whether other keys may make it good.
    fn needs_keys(&self) -> bool {
        matches!(self, TokenError::NoKeys { .. } | TokenError::UnknownKey { .. })
    }
}

/// Whether a password is a JWT: its first part is Base64 of an object.
pub fn is_jwt(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl Oidc {
    /// With these keys, which may be none yet.
    pub fn new(rules: OidcRules, keys: KeySet, refresh: Option<Refresh>) -> Oidc {
        signatures::install();
        Oidc { rules, keys: RwLock::new(Arc::new(keys)), refresh }
    }

    /// From now on these keys are those of the provider.
    pub fn set_keys(&self, keys: KeySet) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    fn keys(&self) -> Arc<KeySet> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The user that a token seems to be of, for the count of failures. Nothing of it is checked.
    pub fn claimed_user(&self, token: &str) -> String {
        let claims = || -> Option<Claims> {
            let payload = token.get(..JWT_BYTES_MAX.min(token.len()))?.split('.').nth(1)?;
            serde_json::from_slice(&BASE64URL_NOPAD.decode(payload.as_bytes()).ok()?).ok()
        };
        let claims = claims().unwrap_or_default();
        let user = claims.get(&self.rules.user_claim).and_then(Value::as_str).unwrap_or_default();
        format!("{OIDC_PREFIX}{user}")
    }

    /// The user of a good token; keys that the token needs and that are not known are waited for.
    ///
    /// # Errors
    /// It is not good.
    pub async fn check_with_refresh(&self, token: &str) -> Result<Arc<Federated>, TokenError> {
        match (self.check(token), &self.refresh) {
            (Err(error), Some(refresh)) if error.needs_keys() => {
                refresh().await;
                self.check(token)
            }
            (checked, _) => checked,
        }
    }

    /// Whether the check of this token has to wait for keys.
    pub fn needs_refresh(&self, checked: &Result<Arc<Federated>, TokenError>) -> bool {
        self.refresh.is_some() && checked.as_ref().is_err_and(TokenError::needs_keys)
    }

    /// The user of a token that the known keys show to be good.
    ///
    /// # Errors
    /// It is not good, or signed by a key that is not known.
    pub fn check(&self, token: &str) -> Result<Arc<Federated>, TokenError> {
        if JWT_BYTES_MAX < token.len() {
            return Err(TokenError::TooLong { bytes: token.len() });
        }
        let header = self.header(token)?;
        let keys = self.keys();
        if keys.is_empty() {
            return Err(TokenError::NoKeys { issuer: self.rules.issuer.clone() });
        }
        let mut candidates = keys.of(header.kid.as_deref(), header.alg).peekable();
        if candidates.peek().is_none() {
            // A key that is known, of another algorithm: the header lies.
            return Err(match &header.kid {
                Some(kid) if !keys.has(kid) => {
                    TokenError::UnknownKey { kid: shortened(kid), issuer: self.rules.issuer.clone() }
                }
                _ => TokenError::Algorithm,
            });
        }
        let mut error = TokenError::Signature;
        for key in candidates {
            match self.check_by(token, key, header.alg) {
                Err(TokenError::Signature) => {}
                Err(other) => error = other,
                Ok(claims) => return self.federated(&claims),
            }
        }
        Err(error)
    }

    /// The header of a token by an allowed algorithm.
    fn header(&self, token: &str) -> Result<Header, TokenError> {
        let header = decode_header(token).map_err(|_| {
            let named = token.split('.').next().and_then(|part| BASE64URL_NOPAD.decode(part.as_bytes()).ok());
            let named = named.and_then(|bytes| serde_json::from_slice::<Claims>(&bytes).ok());
            let has_algorithm = named.is_some_and(|header| header.contains_key("alg"));
            if has_algorithm { TokenError::Algorithm } else { TokenError::Malformed }
        })?;
        match signatures::ALLOWED.contains(&header.alg) {
            // Extensions that must be understood (RFC 7515, section 4.1.11), and none is.
            true if header.crit.is_some() => Err(TokenError::Malformed),
            true => Ok(header),
            false => Err(TokenError::Algorithm),
        }
    }

    fn check_by(&self, token: &str, key: &DecodingKey, algorithm: Algorithm) -> Result<Claims, TokenError> {
        let OidcRules { issuer, audiences, leeway_seconds, .. } = &self.rules;
        let mut validation = Validation::new(algorithm);
        validation.leeway = *leeway_seconds;
        validation.validate_nbf = true;
        validation.set_audience(audiences);
        validation.set_issuer(&[issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let decoded = decode::<Claims>(token, key, &validation);
        decoded.map(|data| data.claims).map_err(|error| match error.into_kind() {
            ErrorKind::InvalidSignature => TokenError::Signature,
            ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => TokenError::Algorithm,
            ErrorKind::ExpiredSignature => TokenError::Expired,
            ErrorKind::ImmatureSignature => TokenError::NotYet,
            ErrorKind::InvalidIssuer => TokenError::Issuer { issuer: issuer.clone() },
            ErrorKind::InvalidAudience => TokenError::Audience { audiences: audiences.join(" or ") },
            ErrorKind::MissingRequiredClaim(claim) => TokenError::Claim { claim, fault: MISSING },
            ErrorKind::InvalidClaimFormat(claim) => TokenError::Claim { claim, fault: "has another type" },
            _ => TokenError::Malformed,
        })
    }

    fn federated(&self, claims: &Claims) -> Result<Arc<Federated>, TokenError> {
        let OidcRules { user_claim, groups_claim, leeway_seconds, .. } = &self.rules;
        let fault = |claim: &str, fault| TokenError::Claim { claim: claim.to_owned(), fault };
        let user = find(claims, user_claim).and_then(Value::as_str);
        let user = user.ok_or_else(|| fault(user_claim, MISSING))?;
        let user = format!("{OIDC_PREFIX}{user}");
        if user.len() == OIDC_PREFIX.len() || check_name(&user).is_err() {
            return Err(fault(user_claim, "is not a user name: use 1 to 250 bytes without spaces"));
        }
        let groups: Vec<Arc<str>> = match find(claims, groups_claim) {
            None => Vec::new(),
            Some(Value::String(groups)) => groups.split_whitespace().map(Arc::from).collect(),
            Some(Value::Array(groups)) => {
                let text = |group: &Value| group.as_str().map(Arc::from);
                let groups: Option<Vec<Arc<str>>> = groups.iter().map(text).collect();
                groups.ok_or_else(|| fault(groups_claim, "is not a list of texts"))?
            }
            Some(_) => return Err(fault(groups_claim, "is not a list of texts")),
        };
        if GROUPS_MAX < groups.len() {
            return Err(fault(groups_claim, "has more than 256 groups; have the provider filter them"));
        }
        let seconds = claims.get("exp").and_then(Value::as_f64).ok_or_else(|| fault("exp", MISSING))?;
        let expires_ms = (seconds as u64).saturating_add(*leeway_seconds).saturating_mul(1000);
        // To the millisecond, as connections end.
        if expires_ms <= now_ms() {
            return Err(TokenError::Expired);
        }
        Ok(Arc::new(Federated { user: user.into(), groups, expires_ms: Some(expires_ms) }))
    }
}

/// A claim by its name; or else by a path of names with dots, as `realm_access.roles`.
fn find<'c>(claims: &'c Claims, name: &str) -> Option<&'c Value> {
    let by_path = || {
        let mut names = name.split('.');
        let first = claims.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    };
    claims.get(name).or_else(by_path)
}

/// A text of a token's header, for an error.
fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(64)].to_owned()
}
