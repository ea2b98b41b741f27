//! Public keys of an identity provider: a JWKS document (RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

/// Keys of one document, at most.
pub const KEYS_MAX: usize = 100;

/// A document is not larger.
pub const DOCUMENT_BYTES_MAX: usize = 256 << 10;

/// See the head of this file.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl KeySet {
    /// The keys of a document. Those that no token may be signed by are left out: other
    /// algorithms, and keys for encryption.
    ///
    /// # Errors
    /// With the reason: it is not a JWKS document, or has no key to use.
    pub fn parse(text: &str) -> Result<KeySet, String> {
        if DOCUMENT_BYTES_MAX < text.len() {
            return Err(format!("the keys have more than {DOCUMENT_BYTES_MAX} bytes"));
        }
        let document: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let all = document.get("keys").and_then(Value::as_array);
        let all = all.ok_or("not a JWKS document: it has no list `keys`")?;
        if KEYS_MAX < all.len() {
            return Err(format!("{} keys; at most {KEYS_MAX} are read", all.len()));
        }
        let keys: Vec<Key> = all.iter().filter_map(Key::of).collect();
        match keys.is_empty() {
            true => Err(format!("none of its {} keys is for {}", all.len(), super::ALLOWED_NAMES)),
            false => Ok(KeySet(keys)),
        }
    }

    /// Keys that may have signed a token with this header.
    pub fn of<'k>(
        &'k self,
        id: Option<&'k str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &'k DecodingKey> {
        let is_meant = move |key: &&Key| id.is_none_or(|id| key.id.as_deref() == Some(id));
        self.0.iter().filter(is_meant).filter(move |key| key.algorithm == algorithm).map(|key| &key.key)
    }

    /// Whether there is a key of this id.
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// Whether no key was read yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of its keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Key {
    fn of(value: &Value) -> Option<Key> {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        let (algorithm, named) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
            }
            _ => return None,
        };
        let signs = jwk.common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature);
        let fits = jwk.common.key_algorithm.as_ref().is_none_or(|of| *of == named);
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs && fits)?;
        Some(Key { id: jwk.common.key_id, algorithm, key })
    }
}
