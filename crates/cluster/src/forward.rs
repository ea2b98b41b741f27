//! The first bytes of a client's connection that a follower carries to a leader of a version
//! before: others get those of [`crate::Handed`].
//!
//! ```text
//! magic 8 │ length of the rest u16 │ version u8 │ nonce 16 │ scheme, client: each length u8 and UTF-8
//!     │ HMAC-SHA-256 by the leader's key over the bytes from the version on, 32
//! ```
//! Little endian. The bytes of the client follow, and are answered, as if it had connected to the
//! leader by a URL of this scheme. The leader gives its key to proven nodes alone.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ring::hmac;

use crate::hello::NONCE_BYTES;

/// Bytes of the key.
pub const FORWARD_KEY_BYTES: usize = 32;
/// What a connection begins with that a follower carries.
pub const FORWARD_MAGIC: [u8; 8] = *b"PRfwrd\r\n";
/// Bytes before the length is known.
pub const FORWARD_HEAD_BYTES: usize = FORWARD_MAGIC.len() + 2;
/// The rest is not longer.
pub const FORWARD_BYTES_MAX: usize = 256;

const VERSION: u8 = 1;
const PROOF_BYTES: usize = 32;

/// A client that is served by another node than the one that it connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// The scheme of the URLs of the listener that it connected to.
    pub scheme: String,
    /// Its address.
    pub client: SocketAddr,
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// Its first bytes break the form.
    #[error("malformed head of a forwarded connection")]
    Malformed,
    /// Another version.
    #[error("forwarded connections of version {0} are not supported")]
    Version(u8),
    /// The sender does not have the key of this node, or that of an earlier run.
    #[error("a forwarded connection without the key of this node")]
    Proof,
}

impl Forwarding {
    /// The first bytes. `nonce` is random.
    pub fn encode(&self, key: &[u8; FORWARD_KEY_BYTES], nonce: [u8; NONCE_BYTES]) -> Bytes {
        let mut rest = BytesMut::new();
        rest.put_u8(VERSION);
        rest.put_slice(&nonce);
        for text in [&self.scheme, &self.client.to_string()] {
            let text = &text.as_bytes()[..text.len().min(64)];
            rest.put_u8(text.len() as u8);
            rest.put_slice(text);
        }
        let proof = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &rest);
        rest.put_slice(proof.as_ref());
        let mut out = BytesMut::from(&FORWARD_MAGIC[..]);
        out.put_u16_le(rest.len() as u16);
        out.unsplit(rest);
        out.freeze()
    }

    /// How many bytes follow the first [`FORWARD_HEAD_BYTES`].
    ///
    /// # Errors
    /// [`ForwardError::Malformed`].
    pub fn rest_bytes(head: &[u8; FORWARD_HEAD_BYTES]) -> Result<usize, ForwardError> {
        let (magic, mut length) = head.split_at(FORWARD_MAGIC.len());
        let length = usize::from(length.get_u16_le());
        let fits = magic == FORWARD_MAGIC && length <= FORWARD_BYTES_MAX;
        fits.then_some(length).ok_or(ForwardError::Malformed)
    }

    /// Reads these.
    ///
    /// # Errors
    /// See [`ForwardError`].
    pub fn decode(rest: &[u8], key: &[u8; FORWARD_KEY_BYTES]) -> Result<Forwarding, ForwardError> {
        let version = *rest.first().ok_or(ForwardError::Malformed)?;
        if version != VERSION {
            return Err(ForwardError::Version(version));
        }
        let end = rest.len().checked_sub(PROOF_BYTES).ok_or(ForwardError::Malformed)?;
        let (proved, proof) = rest.split_at(end);
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), proved, proof)
            .map_err(|_| ForwardError::Proof)?;
        let mut fields = proved.get(1 + NONCE_BYTES..).ok_or(ForwardError::Malformed)?;
        let mut text = || {
            let length = usize::from(fields.try_get_u8().map_err(|_| ForwardError::Malformed)?);
            let text = fields.get(..length).ok_or(ForwardError::Malformed)?.to_vec();
            fields.advance(length);
            String::from_utf8(text).map_err(|_| ForwardError::Malformed)
        };
        let (scheme, client) = (text()?, text()?);
        let client = client.parse().map_err(|_| ForwardError::Malformed)?;
        if fields.is_empty() { Ok(Forwarding { scheme, client }) } else { Err(ForwardError::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; FORWARD_KEY_BYTES] = [5; FORWARD_KEY_BYTES];

    #[test]
    fn a_head_comes_back_as_it_was_and_any_change_is_refused() {
        for client in ["10.1.2.3:4567", "[2001:db8::1]:65535"] {
            let want = Forwarding { scheme: "amqpwss".to_owned(), client: client.parse().unwrap() };
            let bytes = want.encode(&KEY, [9; NONCE_BYTES]);
            let head = bytes[..FORWARD_HEAD_BYTES].try_into().unwrap();
            let rest = &bytes[FORWARD_HEAD_BYTES..];
            assert_eq!(Forwarding::rest_bytes(&head), Ok(rest.len()));
            assert_eq!(Forwarding::decode(rest, &KEY), Ok(want));
            assert_eq!(Forwarding::decode(rest, &[6; FORWARD_KEY_BYTES]), Err(ForwardError::Proof));
            for place in 0..rest.len() {
                let mut changed = rest.to_vec();
                changed[place] ^= 1;
                assert!(Forwarding::decode(&changed, &KEY).is_err(), "byte {place}");
                assert!(Forwarding::decode(&rest[..place], &KEY).is_err(), "{place} bytes");
            }
        }
    }

    #[test]
    fn a_head_that_is_too_long_or_another_protocol_is_refused() {
        let mut head = [0; FORWARD_HEAD_BYTES];
        assert_eq!(Forwarding::rest_bytes(&head), Err(ForwardError::Malformed));
        head[..8].copy_from_slice(&FORWARD_MAGIC);
        head[8..].copy_from_slice(&(FORWARD_BYTES_MAX as u16).to_le_bytes());
        assert_eq!(Forwarding::rest_bytes(&head), Ok(FORWARD_BYTES_MAX));
        head[8..].copy_from_slice(&(FORWARD_BYTES_MAX as u16 + 1).to_le_bytes());
        assert_eq!(Forwarding::rest_bytes(&head), Err(ForwardError::Malformed));
    }
}
