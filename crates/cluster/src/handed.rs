//! The first bytes of a connection whose client has connected to another node, and is served here.
//!
//! ```text
//! entry node:  magic 8
//! leader:      nonce 16
//! entry node:  length of the rest u32 │ version u8 │ scheme, client: each length u8 and UTF-8
//!     │ in version 1: login: length u32, bytes │ bytes of the client: length u32, bytes
//!     │ HMAC-SHA-256 by the leader's key over the nonce and the bytes from the version on, 32
//! ```
//! Little endian. Version 1 is for a client that has logged in. Version 2 is for one that has not:
//! its own bytes follow, and it logs in at the leader. The leader gives its key to proven nodes
//! alone, and the nonce makes the head good for one connection. The broker knows the content of the
//! login.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ring::hmac;

use crate::forward::{FORWARD_KEY_BYTES, ForwardError};
use crate::hello::NONCE_BYTES;

/// The beginning of such a connection.
pub const HANDED_MAGIC: [u8; 8] = *b"PRlogn\r\n";
/// The rest is not longer.
pub const HANDED_BYTES_MAX: usize = 1 << 20;

const WITH_LOGIN: u8 = 1;
/// Nodes whose hello has a version before 10 refuse it.
const WITHOUT_LOGIN: u8 = 2;
const PROOF_BYTES: usize = 32;
const TEXT_BYTES_MAX: usize = 64;

/// A client that has connected to another node than the one that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The scheme of the URLs of the listener that it connected to.
    pub scheme: String,
    /// Its address.
    pub client: SocketAddr,
    /// Its login at the other node; `None` if it has yet to log in.
    pub login: Option<HandedLogin>,
}

/// A login at another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedLogin {
    /// The answers to it.
    pub answers: Bytes,
    /// The plain bytes that have come from the client.
    pub bytes: Bytes,
}

impl Handed {
    /// The bytes that answer a nonce.
    pub fn encode(&self, key: &[u8; FORWARD_KEY_BYTES], nonce: &[u8; NONCE_BYTES]) -> Bytes {
        let mut rest = BytesMut::new();
        rest.put_u8(if self.login.is_some() { WITH_LOGIN } else { WITHOUT_LOGIN });
        for text in [&self.scheme, &self.client.to_string()] {
            let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
            rest.put_u8(text.len() as u8);
            rest.put_slice(text);
        }
        let blocks = self.login.iter().flat_map(|login| [&login.answers, &login.bytes]);
        for bytes in blocks {
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
        if ![WITH_LOGIN, WITHOUT_LOGIN].contains(&version) {
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
        let login = match version {
            WITH_LOGIN => Some(HandedLogin { answers: block(&mut fields)?, bytes: block(&mut fields)? }),
            _ => None,
        };
        let handed = Handed { scheme, client, login };
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

    fn handed(login: Option<HandedLogin>) -> Handed {
        let client = "[2001:db8::1]:65535".parse().unwrap();
        Handed { scheme: "amqp".to_owned(), client, login }
    }

    fn login() -> HandedLogin {
        let (answers, bytes) = (Bytes::from_static(b"{}"), Bytes::from_static(b"AMQP\x03\x01\0\0"));
        HandedLogin { answers, bytes }
    }

    #[test]
    fn a_head_comes_back_for_its_nonce_alone_and_any_change_is_refused() {
        for want in [handed(Some(login())), handed(None)] {
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

    #[test]
    fn a_client_without_a_login_never_becomes_one_with_a_login() {
        // An empty login over HTTP is an operator's.
        let empty = HandedLogin { answers: Bytes::new(), bytes: Bytes::new() };
        for (from, to) in [(None, WITH_LOGIN), (Some(empty), WITHOUT_LOGIN)] {
            let bytes = handed(from).encode(&KEY, &NONCE);
            let mut rest = bytes[4..].to_vec();
            rest[0] = to;
            assert_eq!(Handed::decode(&rest, &KEY, &NONCE), Err(ForwardError::Proof), "as version {to}");
            rest[0] = WITHOUT_LOGIN + 1;
            assert_eq!(Handed::decode(&rest, &KEY, &NONCE), Err(ForwardError::Version(3)));
        }
    }
}
