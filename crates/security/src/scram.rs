//! SCRAM: a password is proved without being sent (RFC 5802, with the hash functions of RFC 7677
//! and SHA-512). No IO, no randomness.
//!
//! ```text
//!   client-first ──▶ begin ──▶ server-first ··· client-final ──▶ finish ──▶ server-final
//! ```
//! Without channel binding: a client that requires it is refused, one that could do it is content
//! (section 6).

use std::sync::Arc;

use data_encoding::BASE64;

use crate::keys::Keys;

/// A client's nonce has some 24 characters.
const NONCE_BYTES_MAX: usize = 256;

/// The client's first message.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    /// Who it is.
    pub user: String,
    gs2_header: &'a str,
    bare: &'a str,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Reads `client-first-message` (section 7).
    ///
    /// # Errors
    /// The fault, in words.
    pub fn parse(message: &'a [u8]) -> Result<ClientFirst<'a>, &'static str> {
        let message = std::str::from_utf8(message).map_err(|_| "its first message is not UTF-8")?;
        let mut parts = message.splitn(3, ',');
        let shape = "its first message is not n,,n=user,r=nonce";
        let (Some(flag), Some(acts_as), Some(bare)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(shape);
        };
        if flag != "n" && flag != "y" {
            return Err("it wants channel binding, which is not offered");
        }
        let mut attributes = bare.split(',');
        let user = attributes.next().and_then(|part| part.strip_prefix("n=")).ok_or(shape)?;
        let user = name(user).ok_or("its user name is not encoded by RFC 5802")?;
        let nonce = attributes.next().and_then(|part| part.strip_prefix("r=")).ok_or(shape)?;
        if !is_nonce(nonce) {
            return Err("malformed nonce");
        }
        match acts_as.strip_prefix("a=") {
            None if acts_as.is_empty() => {}
            Some(other) if name(other).as_ref() == Some(&user) => {}
            _ => return Err("acting for another user is not supported"),
        }
        let gs2_header = &message[..message.len() - bare.len()];
        Ok(ClientFirst { user, gs2_header, bare, nonce })
    }
}

/// A conversation of which the client has still to say the end.
#[derive(Debug)]
pub struct Scram {
    user: Arc<str>,
    keys: Keys,
    gs2_header: String,
    nonce: String,
    said: String,
}

impl Scram {
    /// Answers the client's first message by a challenge. `nonce` is the broker's part of it, new
    /// each time.
    pub fn begin(first: &ClientFirst<'_>, keys: Keys, nonce: &str) -> (Scram, String) {
        let nonce = format!("{}{nonce}", first.nonce);
        let challenge = format!("r={nonce},s={},i={}", BASE64.encode(&keys.salt), keys.iterations);
        let said = format!("{},{challenge}", first.bare);
        let gs2_header = first.gs2_header.to_owned();
        (Scram { user: first.user.as_str().into(), keys, gs2_header, nonce, said }, challenge)
    }

    /// Answers the client's last message: who it is, and the broker's own proof.
    ///
    /// # Errors
    /// The fault, in words.
    pub fn finish(self, message: &[u8]) -> Result<(Arc<str>, String), &'static str> {
        let message = std::str::from_utf8(message).map_err(|_| "its last message is not UTF-8")?;
        let shape = "its last message is not c=binding,r=nonce,p=proof";
        let (rest, proof) = message.rsplit_once(",p=").ok_or(shape)?;
        let mut attributes = rest.split(',');
        let binding = attributes.next().and_then(|part| part.strip_prefix("c=")).ok_or(shape)?;
        let nonce = attributes.next().and_then(|part| part.strip_prefix("r=")).ok_or(shape)?;
        if BASE64.decode(binding.as_bytes()).ok().as_deref() != Some(self.gs2_header.as_bytes()) {
            return Err("its last message has another channel binding");
        }
        if nonce != self.nonce {
            return Err("its last message has another nonce");
        }
        let proof = BASE64.decode(proof.as_bytes()).map_err(|_| "its proof is not base64")?;
        let ours = self.keys.prove(&format!("{},{rest}", self.said), &proof);
        let ours = ours.ok_or("user name or password are wrong")?;
        Ok((self.user, format!("v={}", BASE64.encode(&ours))))
    }
}

/// A name in which comma and equals sign are written `=2C` and `=3D`.
fn name(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = part.split_at_checked(2)?;
        name.push(match escaped {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        name.push_str(rest);
    }
    (!name.is_empty()).then_some(name)
}

fn is_nonce(text: &str) -> bool {
    (1..=NONCE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::keys::Hash;

    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

    fn begun(hash: Hash) -> (Scram, String) {
        let salt = BASE64.decode(b"W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let keys = Keys::derive(hash, "pencil", &salt, NonZeroU32::new(4096).unwrap());
        Scram::begin(&ClientFirst::parse(CLIENT_FIRST.as_bytes()).unwrap(), keys, SERVER_NONCE)
    }

    /// The example of RFC 7677, section 3; for SHA-512 the same, computed by another library.
    const EXAMPLES: [(Hash, &str, &str); 2] = [
        (
            Hash::Sha256,
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
        (
            Hash::Sha512,
            "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==",
            "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==",
        ),
    ];

    #[test]
    fn the_example_of_rfc_7677_is_carried_out_to_the_letter() {
        for (hash, proof, ours) in EXAMPLES {
            let (scram, challenge) = begun(hash);
            assert_eq!(challenge, format!("r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
            let last = format!("c=biws,r={NONCE},p={proof}");
            assert_eq!(scram.finish(last.as_bytes()), Ok(("user".into(), format!("v={ours}"))), "{hash:?}");
        }
    }

    #[test]
    fn a_first_message_is_read_or_refused() {
        let long = format!("n,,n=user,r={}", "x".repeat(NONCE_BYTES_MAX + 1));
        let shape = Err("its first message is not n,,n=user,r=nonce");
        let unwritten = Err("its user name is not encoded by RFC 5802");
        for (case, message, want) in [
            ("plain", CLIENT_FIRST, Ok("user")),
            ("would bind", "y,,n=user,r=x", Ok("user")),
            ("as itself", "n,a=user,n=user,r=x", Ok("user")),
            ("escaped", "n,,n=a=2Cb=3Dc,r=x", Ok("a,b=c")),
            ("with an extension", "n,,n=user,r=x,e=1", Ok("user")),
            (
                "wants binding",
                "p=tls-unique,,n=user,r=x",
                Err("it wants channel binding, which is not offered"),
            ),
            ("as another", "n,a=root,n=user,r=x", Err("acting for another user is not supported")),
            ("unknown escape", "n,,n=a=2D,r=x", unwritten),
            ("half an escape", "n,,n=a=2,r=x", unwritten),
            ("escape across a character", "n,,n==2\u{e9},r=x", unwritten),
            ("nobody", "n,,n=,r=x", unwritten),
            ("an extension that must be known", "n,,m=x,n=user,r=x", shape),
            ("no nonce", "n,,n=user", shape),
            ("empty nonce", "n,,n=user,r=", Err("malformed nonce")),
            ("long nonce", &long, Err("malformed nonce")),
            ("nothing", "", shape),
        ] {
            let got = ClientFirst::parse(message.as_bytes());
            assert_eq!(got.as_ref().map(|first| first.user.as_str()), want.as_ref().copied(), "case: {case}");
        }
        assert!(ClientFirst::parse(b"n,,n=\xff,r=x").is_err());
    }

    #[test]
    fn a_last_message_that_proves_nothing_is_refused() {
        let [(_, proof, _), _] = EXAMPLES;
        let with = |binding: &str, nonce: &str, proof: &str| format!("c={binding},r={nonce},p={proof}");
        let shape = "its last message is not c=binding,r=nonce,p=proof";
        for (case, last, want) in [
            ("another's proof", with("biws", NONCE, EXAMPLES[1].1), "user name or password are wrong"),
            ("a proof too short", with("biws", NONCE, "AAAA"), "user name or password are wrong"),
            ("no proof", with("biws", NONCE, "!"), "its proof is not base64"),
            (
                "the client's nonce alone",
                with("biws", &NONCE[..20], proof),
                "its last message has another nonce",
            ),
            ("another binding", with("eSws", NONCE, proof), "its last message has another channel binding"),
            ("no attributes", "p=AAAA".to_owned(), shape),
            ("nothing", String::new(), shape),
            (
                "more was said",
                with("biws", NONCE, proof).replace(",p=", ",x=1,p="),
                "user name or password are wrong",
            ),
        ] {
            assert_eq!(begun(Hash::Sha256).0.finish(last.as_bytes()), Err(want), "case: {case}");
        }
    }
}
