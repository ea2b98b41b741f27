//! The first bytes of a connection whose client has logged in at another node, and is served here.
//!
//! ```text
//! entry node:  magic 8
//! leader:      nonce 16
//! entry node:  length of the rest u32 │ version u8 │ scheme, client: each length u8 and UTF-8
//!     │ login: length u32, bytes │ bytes of the client: length u32, bytes
//!     │ HMAC-SHA-256 by the leader's key over the nonce and the bytes from the version on, 32
//! ```
//! Little endian. The leader gives its key to proven nodes alone, and the nonce makes the head good
//! for one connection. The broker knows what the login says.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ring::hmac;

use crate::forward::{FORWARD_KEY_BYTES, ForwardError};
use crate::hello::NONCE_BYTES;

/// The beginning of a connection whose client has logged in.
pub const HANDED_MAGIC: [u8; 8] = *b"PRlogn\r\n";
/// The rest is not longer.
pub const HANDED_BYTES_MAX: usize = 1 << 20;

const VERSION: u8 = 1;
const PROOF_BYTES: usize = 32;
const TEXT_BYTES_MAX: usize = 64;

/// A client that has logged in at another node than the one that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The scheme of the URLs of the listener that it connected to.
    pub scheme: String,
    /// Its address.
    pub client: SocketAddr,
    /// The answers to its login.
    pub login: Bytes,
    /// The plain bytes that have come from it.
    pub bytes: Bytes,
}

impl Handed {
    /// The bytes that answer a nonce.
    pub fn encode(&self, key: &[u8; FORWARD_KEY_BYTES], nonce: &[u8; NONCE_BYTES]) -> Bytes {
        let mut rest = BytesMut::new();
        rest.put_u8(VERSION);
        for text in [&self.scheme, &self.client.to_string()] {
            let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
            rest.put_u8(text.len() as u8);
            rest.put_slice(text);
        }
        for bytes in [&self.login, &self.bytes] {
            rest.put_u32_le(bytes.len() as u32);
            rest.put_slice(bytes);
        }
        let proof = proof_context(key, nonce, &rest).sign();
        let mut out = BytesMut::with_capacity(4 + rest.len() + PROOF_BYTES);
        out.put_u32_le((rest.len() + PROOF_BYTES) as u32);
        out.unsplit(rest);
        out.put_slice(proof.as_ref());
        out.freeze()
    }

    /// Reads the bytes after the length.
    ///
    /// # Errors
    /// See [`ForwardError`].
    pub fn decode(
        rest: &[u8],
        key: &[u8; FORWARD_KEY_BYTES],
        nonce: &[u8; NONCE_BYTES],
    ) -> Result<Handed, ForwardError> {
        let version = *rest.first().ok_or(ForwardError::Malformed)?;
        if version != VERSION {
            return Err(ForwardError::Version(version));
        }
        let end = rest.len().checked_sub(PROOF_BYTES).ok_or(ForwardError::Malformed)?;
        let (proved, proof) = rest.split_at(end);
        let whole = [&nonce[..], proved].concat();
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), &whole, proof)
            .map_err(|_| ForwardError::Proof)?;
        let mut fields = proved.get(1..).ok_or(ForwardError::Malformed)?;
        let (scheme, client) = (text(&mut fields)?, text(&mut fields)?);
        let client = client.parse().map_err(|_| ForwardError::Malformed)?;
        let (login, bytes) = (block(&mut fields)?, block(&mut fields)?);
        let handed = Handed { scheme, client, login, bytes };
        if fields.is_empty() { Ok(handed) } else { Err(ForwardError::Malformed) }
    }
}

fn proof_context(key: &[u8], nonce: &[u8], rest: &[u8]) -> hmac::Context {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(nonce);
    context.update(rest);
    context
}

fn text(fields: &mut &[u8]) -> Result<String, ForwardError> {
    let length = usize::from(fields.try_get_u8().map_err(|_| ForwardError::Malformed)?);
    let text = fields.get(..length).ok_or(ForwardError::Malformed)?.to_vec();
    fields.advance(length);
    String::from_utf8(text).map_err(|_| ForwardError::Malformed)
}

fn block(fields: &mut &[u8]) -> Result<Bytes, ForwardError> {
    let length = fields.try_get_u32_le().map_err(|_| ForwardError::Malformed)? as usize;
    let bytes = Bytes::copy_from_slice(fields.get(..length).ok_or(ForwardError::Malformed)?);
    fields.advance(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; FORWARD_KEY_BYTES] = [5; FORWARD_KEY_BYTES];
    const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];

    #[test]
    fn a_head_comes_back_for_its_nonce_alone_and_any_change_is_refused() {
        let want = Handed {
            scheme: "amqp".to_owned(),
            client: "[2001:db8::1]:65535".parse().unwrap(),
            login: Bytes::from_static(b"{}"),
            bytes: Bytes::from_static(b"AMQP\x03\x01\0\0"),
        };
        let bytes = want.encode(&KEY, &NONCE);
        let (mut length, rest) = bytes.split_at(4);
        assert_eq!(length.get_u32_le() as usize, rest.len());
        assert_eq!(Handed::decode(rest, &KEY, &NONCE), Ok(want));
        assert_eq!(Handed::decode(rest, &KEY, &[8; NONCE_BYTES]), Err(ForwardError::Proof));
        assert_eq!(Handed::decode(rest, &[6; FORWARD_KEY_BYTES], &NONCE), Err(ForwardError::Proof));
        for place in 0..rest.len() {
            let mut changed = rest.to_vec();
            changed[place] ^= 1;
            assert!(Handed::decode(&changed, &KEY, &NONCE).is_err(), "byte {place}");
            assert!(Handed::decode(&rest[..place], &KEY, &NONCE).is_err(), "{place} bytes");
        }
    }
}
