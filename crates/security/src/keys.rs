//! Keys: stored instead of a password, so that it can be checked and not be read (RFC 5802, section
//! 3; RFC 7677).

use std::num::NonZeroU32;

use data_encoding::BASE64;
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

use crate::prepare::prepared;

/// Rounds for new passwords: some 20 ms of one processor for each guess, and for each login.
pub const ITERATIONS: u32 = 65_536;

/// The least that RFC 7677, section 4, allows.
const ITERATIONS_MIN: u32 = 4_096;

/// More would keep a processor busy for seconds with each login.
const ITERATIONS_MAX: u32 = 10_000_000;

/// Bytes of a salt: as many as stand in a half of SHA-256.
pub const SALT_BYTES: usize = 16;

/// Salts of other makers.
const SALT_BYTES_MAX: usize = 64;

/// The hash functions of the two mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SCRAM-SHA-256 (RFC 7677).
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Hash {
    /// All of them, the better first.
    pub const ALL: [Hash; 2] = [Hash::Sha512, Hash::Sha256];

    /// The name of its mechanism.
    pub fn mechanism(self) -> &'static str {
        match self {
            Hash::Sha256 => "SCRAM-SHA-256",
            Hash::Sha512 => "SCRAM-SHA-512",
        }
    }

    fn digest(self, bytes: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes)
    }

    /// The keyed digest, which the RFC calls HMAC.
    pub fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), bytes).as_ref().to_vec()
    }

    fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => digest::SHA256_OUTPUT_LEN,
            Hash::Sha512 => digest::SHA512_OUTPUT_LEN,
        }
    }

    /// The salted password, which the RFC calls Hi. Takes as long as `iterations` say.
    fn stretch(self, password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut salted = vec![0; self.bytes()];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }
}

/// The keys of one password under one hash function.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Which function.
    pub hash: Hash,
    /// How often it is repeated.
    pub iterations: NonZeroU32,
    /// The salt: equal passwords have different keys.
    pub salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl Keys {
    /// Those of a password. Takes as long as `iterations` say.
    pub fn derive(hash: Hash, password: &str, salt: &[u8], iterations: NonZeroU32) -> Keys {
        let salted = hash.stretch(password.as_bytes(), salt, iterations);
        let client_key = hash.hmac(&salted, b"Client Key");
        let stored_key = hash.digest(&client_key).as_ref().to_vec();
        let server_key = hash.hmac(&salted, b"Server Key");
        Keys { hash, iterations, salt: salt.to_vec(), stored_key, server_key }
    }

    /// Keys that no password has.
    pub fn of_nobody(hash: Hash, salt: Vec<u8>, iterations: NonZeroU32) -> Keys {
        Keys { hash, iterations, salt, stored_key: Vec::new(), server_key: Vec::new() }
    }

    /// Whether this is the password, however it is spelt. Takes as long as `iterations` say,
    /// whether it is or not; twice as long if the password is not spelt as it is kept, for other
    /// makers, and earlier files, keep it as it was given.
    pub fn are_of(&self, password: &str) -> bool {
        let is_it = |password: &str| -> bool {
            let tried = Keys::derive(self.hash, password, &self.salt, self.iterations);
            self.stored_key.ct_eq(&tried.stored_key).into()
        };
        let other = prepared(password).filter(|prepared| prepared != password);
        is_it(password) || other.is_some_and(|other| is_it(&other))
    }

    /// Whether the client's messages `said` prove that it knows the password; then the broker's own
    /// proof.
    pub fn prove(&self, said: &str, proof: &[u8]) -> Option<Vec<u8>> {
        let signature = self.hash.hmac(&self.stored_key, said.as_bytes());
        if proof.len() != signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(proof, part)| proof ^ part).collect();
        let stored_key = self.hash.digest(&client_key);
        let good: bool = self.stored_key.ct_eq(stored_key.as_ref()).into();
        good.then(|| self.hash.hmac(&self.server_key, said.as_bytes()))
    }

    /// As RFC 5803 writes them: `SCRAM-SHA-256$iterations:salt$stored key:server key`.
    pub fn to_text(&self) -> String {
        let [salt, stored, server] =
            [&self.salt, &self.stored_key, &self.server_key].map(|part| BASE64.encode(part));
        format!("{}${}:{salt}${stored}:{server}", self.hash.mechanism(), self.iterations)
    }

    /// The output of [`Keys::to_text`].
    ///
    /// # Errors
    /// The fault, in words.
    pub fn parse(text: &str) -> Result<Keys, String> {
        let shape = || "expected SCRAM-SHA-256$iterations:salt$stored key:server key".to_owned();
        let (mechanism, rest) = text.split_once('$').ok_or_else(shape)?;
        let hash = Hash::ALL.into_iter().find(|hash| hash.mechanism() == mechanism);
        let hash = hash.ok_or_else(|| format!("{mechanism} is neither SCRAM-SHA-256 nor SCRAM-SHA-512"))?;
        let (effort, keys) = rest.split_once('$').ok_or_else(shape)?;
        let (iterations, salt) = effort.split_once(':').ok_or_else(shape)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or_else(shape)?;
        let bound = ITERATIONS_MIN..=ITERATIONS_MAX;
        let iterations =
            iterations.parse().ok().filter(|iterations: &NonZeroU32| bound.contains(&iterations.get()));
        let iterations = iterations
            .ok_or_else(|| format!("iterations are a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}"))?;
        let bytes = |text: &str, name: &str, lengths: std::ops::RangeInclusive<usize>| {
            let bytes = BASE64.decode(text.as_bytes()).ok().filter(|bytes| lengths.contains(&bytes.len()));
            bytes.ok_or_else(|| format!("the {name} is not the base64 of {lengths:?} bytes"))
        };
        let whole = hash.bytes()..=hash.bytes();
        Ok(Keys {
            hash,
            iterations,
            salt: bytes(salt, "salt", 1..=SALT_BYTES_MAX)?,
            stored_key: bytes(stored_key, "stored key", whole.clone())?,
            server_key: bytes(server_key, "server key", whole)?,
        })
    }
}

/// Keys do not belong into logs either.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("hash", &self.hash).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of "pencil" in the example of RFC 7677, section 3.
    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn keys_are_kept_and_not_the_password() {
        let keys = Keys::parse(PENCIL).unwrap();
        assert_eq!(keys.to_text(), PENCIL);
        assert_eq!(Keys::derive(Hash::Sha256, "pencil", &keys.salt, keys.iterations), keys);
        assert!(keys.are_of("pencil") && !keys.are_of("Pencil") && !keys.are_of(""));
        let nobody = Keys::of_nobody(Hash::Sha256, keys.salt.clone(), keys.iterations);
        assert!(!nobody.are_of("pencil") && nobody.prove("", &[0; 32]).is_none());
    }

    #[test]
    fn keys_that_are_none_are_refused_with_the_reason() {
        for (case, text, want) in [
            ("nothing", String::new(), "expected SCRAM"),
            ("another mechanism", PENCIL.replace("256", "1"), "SCRAM-SHA-1 is neither"),
            (
                "too few rounds",
                PENCIL.replace("4096", "4095"),
                "iterations are a number from 4096 to 10000000",
            ),
            ("too many", PENCIL.replace("4096", "10000001"), "iterations are a number"),
            ("no number", PENCIL.replace("4096", "x"), "iterations are a number"),
            (
                "no salt",
                PENCIL.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
                "the salt is not the base64 of 1..=64 bytes",
            ),
            (
                "half a key",
                PENCIL.replace("WG5d8oPm", ""),
                "the stored key is not the base64 of 32..=32 bytes",
            ),
            ("no base64", PENCIL.replace("wfPLwcE6", "wfPLwcE!"), "the server key is not"),
        ] {
            let error = Keys::parse(&text).unwrap_err();
            assert!(error.starts_with(want), "case: {case}: {error}");
        }
    }
}
