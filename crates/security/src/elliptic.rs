//! ECDSA keys without their public half, as Java's keytool writes them: ring wants to see both, and
//! the certificate has the other.
//!
//! ```text
//!   PrivateKeyInfo (RFC 5208)  = { 0, algorithm, ECPrivateKey in an octet string }
//!   ECPrivateKey (RFC 5915)    = { 1, private key, [0] parameters?, [1] public key? }
//! ```

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
/// The public key's tag in an `ECPrivateKey`.
const PUBLIC_KEY: u8 = 0xa1;

/// The key with the public half that its certificate has; `None` if it is no ECDSA key, or not
/// written as PKCS #8. Whether the halves belong together is for others to check.
pub fn completed(
    key: &PrivateKeyDer<'_>,
    certificate: &CertificateDer<'_>,
) -> Option<PrivateKeyDer<'static>> {
    let PrivateKeyDer::Pkcs8(key) = key else { return None };
    let mut info = take(&mut key.secret_pkcs8_der(), SEQUENCE)?;
    take(&mut info, INTEGER)?;
    let algorithm = take(&mut info, SEQUENCE)?;
    let mut inside = take(&mut info, OCTET_STRING)?;
    let mut private = take(&mut inside, SEQUENCE)?;
    take(&mut private, INTEGER)?;
    let secret = take(&mut private, OCTET_STRING)?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    // No bit of it is unused.
    let public = [&[0], &*certificate.public_key().subject_public_key.data].concat();
    let public = element(PUBLIC_KEY, &[element(BIT_STRING, &[public])]);
    let private =
        element(SEQUENCE, &[element(INTEGER, &[vec![1]]), element(OCTET_STRING, &[secret.to_vec()]), public]);
    let algorithm = element(SEQUENCE, &[algorithm.to_vec()]);
    let info =
        element(SEQUENCE, &[element(INTEGER, &[vec![0]]), algorithm, element(OCTET_STRING, &[private])]);
    Some(PrivatePkcs8KeyDer::from(info).into())
}

/// The contents of the first element, if it has this tag; it is removed. Lengths have two bytes at
/// most, as keys do.
fn take<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let rest = bytes.strip_prefix(&[tag])?;
    let (length, rest) = match rest {
        [0x82, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [0x81, length, rest @ ..] => (usize::from(*length), rest),
        [length @ 0..=0x7f, rest @ ..] => (usize::from(*length), rest),
        _ => return None,
    };
    let (held, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(held)
}

/// An element that holds these, one after the other.
fn element(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let held = parts.concat();
    let mut bytes = vec![tag];
    match u8::try_from(held.len()) {
        Ok(length @ 0..=0x7f) => bytes.push(length),
        Ok(length) => bytes.extend([0x81, length]),
        // A key or a certificate that is larger is none.
        Err(_) => bytes.extend([0x82, (held.len() >> 8) as u8, held.len() as u8]),
    }
    bytes.extend(held);
    bytes
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A key as keytool writes it: without its public half.
    pub fn without_public_half(pkcs8: &[u8]) -> Vec<u8> {
        let mut outer = pkcs8;
        let mut info = take(&mut outer, SEQUENCE).unwrap();
        take(&mut info, INTEGER).unwrap();
        let algorithm = take(&mut info, SEQUENCE).unwrap().to_vec();
        let mut inside = take(&mut info, OCTET_STRING).unwrap();
        let mut private = take(&mut inside, SEQUENCE).unwrap();
        take(&mut private, INTEGER).unwrap();
        let secret = take(&mut private, OCTET_STRING).unwrap().to_vec();
        assert!(private.starts_with(&[PUBLIC_KEY]), "it has one");
        let private = element(SEQUENCE, &[element(INTEGER, &[vec![1]]), element(OCTET_STRING, &[secret])]);
        let algorithm = element(SEQUENCE, &[algorithm]);
        element(SEQUENCE, &[element(INTEGER, &[vec![0]]), algorithm, element(OCTET_STRING, &[private])])
    }

    #[test]
    fn what_is_no_such_key_is_left_alone() {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let whole = pair.signing_key.serialize_der();
        let halved = without_public_half(&whole);
        let of = |bytes: Vec<u8>| completed(&PrivatePkcs8KeyDer::from(bytes).into(), pair.cert.der());
        assert_eq!(of(halved.clone()), of(whole.clone()), "with or without, the certificate's half is in it");
        for cut in 0..halved.len() {
            assert_eq!(of(halved[..cut].to_vec()), None, "cut at {cut}");
        }
        assert_eq!(of(vec![SEQUENCE, 0x84, 0, 0, 0, 1]), None);
    }
}
