//! Tokens that are accepted, and those that are not.

use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;

const ISSUER: &str = "https://issuer.example/realm";

/// An issuer with an elliptic and an Edwards key.
struct Issuer {
    es256: EcdsaKeyPair,
    eddsa: Ed25519KeyPair,
}

impl Issuer {
    fn new() -> Issuer {
        let random = SystemRandom::new();
        let es256 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let es256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, es256.as_ref(), &random);
        let eddsa = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Issuer { es256: es256.unwrap(), eddsa: Ed25519KeyPair::from_pkcs8(eddsa.as_ref()).unwrap() }
    }

    fn jwks(&self) -> String {
        let (point, edwards) = (self.es256.public_key().as_ref(), self.eddsa.public_key().as_ref());
        let text = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
        let elliptic = json!({"kty": "EC", "crv": "P-256", "kid": "es", "use": "sig",
                              "x": text(&point[1..33]), "y": text(&point[33..])});
        let edwards = json!({"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": text(edwards)});
        let of_another_kind = json!({"kty": "oct", "kid": "secret", "k": text(point)});
        json!({"keys": [of_another_kind, elliptic, edwards, {"kty": "later"}]}).to_string()
    }

    fn sign(&self, header: Value, claims: &Value) -> String {
        let text = |value: &str| BASE64URL_NOPAD.encode(value.as_bytes());
        let message = format!("{}.{}", text(&header.to_string()), text(&claims.to_string()));
        let signed = match header["alg"].as_str() {
            Some("ES256") => {
                self.es256.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec()
            }
            Some("EdDSA") => self.eddsa.sign(message.as_bytes()).as_ref().to_vec(),
            Some("HS256") => {
                // The public key as a secret, which everybody has.
                let secret = hmac::Key::new(hmac::HMAC_SHA256, self.es256.public_key().as_ref());
                hmac::sign(&secret, message.as_bytes()).as_ref().to_vec()
            }
            _ => Vec::new(),
        };
        format!("{message}.{}", BASE64URL_NOPAD.encode(&signed))
    }
}

fn rules() -> OidcRules {
    OidcRules {
        issuer: ISSUER.to_owned(),
        audiences: vec!["postroad".to_owned()],
        user_claim: "sub".to_owned(),
        groups_claim: "realm_access.roles".to_owned(),
        leeway_seconds: 30,
    }
}

/// Claims that are good, changed by `change`.
fn claims(change: Value) -> Value {
    let now = now_ms() / 1000;
    let mut claims = json!({"iss": ISSUER, "aud": ["other", "postroad"], "sub": "ann", "exp": now + 600,
                            "nbf": now - 1, "realm_access": {"roles": ["billing", "tenant:acme"]}});
    for (name, value) in change.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn es256() -> Value {
    json!({"alg": "ES256", "kid": "es", "typ": "JWT"})
}

#[test]
fn a_token_is_good_by_its_signature_issuer_audience_and_time_alone() {
    let (issuer, stranger, now) = (Issuer::new(), Issuer::new(), now_ms() / 1000);
    let oidc = Oidc::new(rules(), KeySet::parse(&issuer.jwks()).unwrap(), None);
    let good = || claims(json!({}));
    let claim = |claim: &str, fault| Err(TokenError::Claim { claim: claim.to_owned(), fault });
    let unknown = TokenError::UnknownKey { kid: "new".to_owned(), issuer: ISSUER.to_owned() };
    let name = "is not a user name: use 1 to 250 bytes without spaces";
    let by = |header: Value, claims: Value| issuer.sign(header, &claims);
    for (case, token, want) in [
        ("ES256", by(es256(), good()), Ok("oidc:ann")),
        ("EdDSA", by(json!({"alg": "EdDSA", "kid": "ed"}), good()), Ok("oidc:ann")),
        ("without a key's id", by(json!({"alg": "ES256"}), good()), Ok("oidc:ann")),
        ("one audience", by(es256(), claims(json!({"aud": "postroad"}))), Ok("oidc:ann")),
        ("within the leeway", by(es256(), claims(json!({"exp": now - 5}))), Ok("oidc:ann")),
        ("expired", by(es256(), claims(json!({"exp": now - 60}))), Err(TokenError::Expired)),
        ("no expiry", by(es256(), claims(json!({"exp": null}))), claim("exp", MISSING)),
        (
            "an expiry that is a text",
            by(es256(), claims(json!({"exp": "9999999999"}))),
            claim("exp", MISSING),
        ),
        ("not yet", by(es256(), claims(json!({"nbf": now + 90}))), Err(TokenError::NotYet)),
        ("a time that is a text", by(es256(), claims(json!({"nbf": "0"}))), claim("nbf", "has another type")),
        (
            "another issuer",
            by(es256(), claims(json!({"iss": "https://issuer.example"}))),
            Err(TokenError::Issuer { issuer: ISSUER.to_owned() }),
        ),
        (
            "another audience",
            by(es256(), claims(json!({"aud": "postroad2"}))),
            Err(TokenError::Audience { audiences: "postroad".to_owned() }),
        ),
        ("no audience", by(es256(), claims(json!({"aud": null}))), claim("aud", MISSING)),
        ("another key", stranger.sign(es256(), &good()), Err(TokenError::Signature)),
        ("no signature", by(json!({"alg": "none"}), good()), Err(TokenError::Algorithm)),
        (
            "no signature, with a key",
            by(json!({"alg": "none", "kid": "es"}), good()),
            Err(TokenError::Algorithm),
        ),
        (
            "the public key as a secret",
            by(json!({"alg": "HS256", "kid": "es"}), good()),
            Err(TokenError::Algorithm),
        ),
        ("a secret's id", by(json!({"alg": "HS256", "kid": "secret"}), good()), Err(TokenError::Algorithm)),
        (
            "another algorithm than the key's",
            by(json!({"alg": "EdDSA", "kid": "es"}), good()),
            Err(TokenError::Algorithm),
        ),
        ("an unknown key", by(json!({"alg": "ES256", "kid": "new"}), good()), Err(unknown)),
        (
            "an extension",
            by(json!({"alg": "ES256", "kid": "es", "crit": ["b64"]}), good()),
            Err(TokenError::Malformed),
        ),
        ("no user", by(es256(), claims(json!({"sub": null}))), claim("sub", MISSING)),
        ("an empty user", by(es256(), claims(json!({"sub": ""}))), claim("sub", name)),
        ("two words", by(es256(), claims(json!({"sub": "a b"}))), claim("sub", name)),
        (
            "groups that are numbers",
            by(es256(), claims(json!({"realm_access": {"roles": [1]}}))),
            claim("realm_access.roles", "is not a list of texts"),
        ),
        ("not a token", "eyJ.eyJ.x".to_owned(), Err(TokenError::Malformed)),
        ("too long", "e".repeat(JWT_BYTES_MAX + 1), Err(TokenError::TooLong { bytes: JWT_BYTES_MAX + 1 })),
    ] {
        let got = oidc.check(&token);
        assert_eq!(got.as_ref().map(|of| &*of.user), want.as_ref().map(|user| *user), "case: {case}");
    }
    let federated = oidc.check(&by(es256(), claims(json!({"exp": now + 100})))).unwrap();
    assert_eq!(federated.groups, [Arc::from("billing"), Arc::from("tenant:acme")]);
    assert_eq!(federated.expires_ms, Some((now + 130) * 1000));
    let just = claims(json!({"exp": now - 30}));
    assert_eq!(oidc.check(&by(es256(), just)), Err(TokenError::Expired), "as connections end");
    let many: Vec<String> = (0..=GROUPS_MAX).map(|number| number.to_string()).collect();
    let listed =
        |groups: &[String]| oidc.check(&by(es256(), claims(json!({"realm_access": {"roles": groups}}))));
    assert!(listed(&many).is_err() && listed(&many[1..]).is_ok_and(|of| of.groups.len() == GROUPS_MAX));
}

#[test]
fn failures_are_counted_by_the_name_that_a_token_claims() {
    let (issuer, oidc) = (Issuer::new(), Oidc::new(rules(), KeySet::default(), None));
    let token = issuer.sign(json!({"alg": "none"}), &claims(json!({})));
    assert_eq!(oidc.claimed_user(&token), "oidc:ann");
    assert_eq!(oidc.claimed_user("eyJ..x"), "oidc:");
    assert_eq!(oidc.claimed_user(&"e".repeat(1 << 20)), "oidc:");
    let no_keys = oidc.check(&issuer.sign(es256(), &claims(json!({})))).unwrap_err();
    assert!(no_keys.is_own(), "{no_keys}");
}

#[test]
fn documents_of_keys_are_bounded_and_need_a_key_to_use() {
    let issuer = Issuer::new();
    assert_eq!(KeySet::parse(&issuer.jwks()).unwrap().len(), 2);
    let many = json!({"keys": vec![json!({}); keys::KEYS_MAX + 1]}).to_string();
    let most = json!({"keys": vec![json!({}); keys::KEYS_MAX]}).to_string();
    for (case, text, want) in [
        ("not JSON", "<html>", "not JSON"),
        ("another document", "{\"issuer\": \"x\"}", "no list `keys`"),
        ("too many", &*many, "at most 100 are read"),
        ("none to use", &*most, "none of its 100 keys is for RS256, ES256 or EdDSA"),
        ("too long", &*" ".repeat(DOCUMENT_BYTES_MAX + 1), "more than 262144 bytes"),
    ] {
        let error = KeySet::parse(text).unwrap_err();
        assert!(error.contains(want), "case: {case}: {error}");
    }
}
