//! TLS: certificates and keys from files, ready for the listeners.
//!
//! The cryptography is that of ring: it is small, builds with a C compiler alone and runs wherever
//! the broker does; aws-lc, the other provider of rustls, needs cmake and has post-quantum key
//! exchange before it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::elliptic::completed;

/// Whether clients show certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are not asked for one.
    NotAsked,
    /// Clients may show one that an authority of this file has signed.
    Optional(PathBuf),
    /// A client without a certificate signed by an authority of this file is refused.
    Required(PathBuf),
}

/// Where the broker's certificate and its like are, all in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The broker's certificate, and those that lead from it to an authority.
    pub certificate: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
}

/// Files for TLS to another broker, all in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsClientFiles {
    /// Certificates of the authorities, or of the peer itself, that are trusted.
    pub trust: PathBuf,
    /// The certificate that this side shows, and its private key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// The error for an unusable key.
const UNUSABLE_KEY: &str = "it is not a supported RSA, ECDSA or Ed25519 key; an ECDSA key without its public half must belong to the certificate (`openssl pkey -in FILE` writes both halves)";

/// Why there can be no TLS with these files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is nothing of use in it.
    #[error("{}: it contains no {wanted} in PEM format", file.display())]
    Nothing {
        /// The file.
        file: PathBuf,
        /// The expected contents.
        wanted: &'static str,
    },
    /// Its contents cannot be used.
    #[error("{}: {reason}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// Key and certificate have nothing to do with each other.
    #[error("the key {} does not belong to the certificate {}", key.display(), certificate.display())]
    OtherKey {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
}

/// The configuration of listeners: protocol versions 1.2 and 1.3, and these certificates.
///
/// # Errors
/// [`TlsError`]: a file is missing, has other contents, or does not belong to another one.
pub fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key, &chain, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions();
    let unfit = |error: rustls::Error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::OtherKey { key: files.key.clone(), certificate: files.certificate.clone() }
        }
        error => TlsError::Unusable { file: files.certificate.clone(), reason: error.to_string() },
    };
    let builder = builder.map_err(unfit)?;
    let builder = match verifier(&files.clients, &provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(builder.with_single_cert(chain, key).map_err(unfit)?))
}

/// The configuration of connections to another broker: protocol versions 1.2 and 1.3, these
/// certificates.
///
/// # Errors
/// As [`load`].
pub fn load_client(files: &TlsClientFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let unfit = |file: &Path, error: rustls::Error| TlsError::Unusable {
        file: file.to_owned(),
        reason: error.to_string(),
    };
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unfit(&files.trust, error))?;
    let builder = builder.with_root_certificates(roots(&files.trust)?);
    let Some((certificate, key)) = &files.own else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let chain = certificates(certificate)?;
    let private = private_key(key, &chain, &provider)?;
    let config = builder.with_client_auth_cert(chain, private);
    Ok(Arc::new(config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::OtherKey { key: key.clone(), certificate: certificate.clone() }
        }
        error => unfit(certificate, error),
    })?))
}

pub(crate) fn private_key(
    file: &Path,
    chain: &[CertificateDer<'static>],
    provider: &CryptoProvider,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(&read(file)?);
    let key = key.map_err(|error| unusable(file, "private key", &error))?;
    usable(key, chain, provider)
        .ok_or_else(|| TlsError::Unusable { file: file.to_owned(), reason: UNUSABLE_KEY.to_owned() })
}

/// The certificates of a file as those of authorities.
pub(crate) fn roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let reason = |error: rustls::Error| error.to_string();
        roots
            .add(certificate)
            .map_err(|error| TlsError::Unusable { file: file.to_owned(), reason: reason(error) })?;
    }
    Ok(roots)
}

/// The key as the provider can use it: without its public half as well, if the certificate has it.
fn usable(
    key: PrivateKeyDer<'static>,
    chain: &[CertificateDer<'static>],
    provider: &CryptoProvider,
) -> Option<PrivateKeyDer<'static>> {
    let works =
        |key: &PrivateKeyDer<'static>| provider.key_provider.load_private_key(key.clone_key()).is_ok();
    if works(&key) {
        return Some(key);
    }
    completed(&key, chain.first()?).filter(works)
}

/// Who looks at the certificates of clients.
fn verifier(
    clients: &ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (file, required) = match clients {
        ClientCertificates::NotAsked => return Ok(None),
        ClientCertificates::Optional(file) => (file, false),
        ClientCertificates::Required(file) => (file, true),
    };
    let unusable = |reason: String| TlsError::Unusable { file: file.clone(), reason };
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(file)?), provider.clone());
    let builder = if required { builder } else { builder.allow_unauthenticated() };
    builder.build().map(Some).map_err(|error| unusable(error.to_string()))
}

pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if all.is_empty() => Err(TlsError::Nothing { file: file.to_owned(), wanted: "certificate" }),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(file, "certificate", &error)),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|source| TlsError::Unreadable { file: file.to_owned(), source })
}

fn unusable(file: &Path, wanted: &'static str, error: &pem::Error) -> TlsError {
    let file = file.to_owned();
    match error {
        pem::Error::NoItemsFound => TlsError::Nothing { file, wanted },
        error => TlsError::Unusable { file, reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elliptic::tests::without_public_half;

    /// Its key as keytool writes it.
    fn halved(pair: &rcgen::CertifiedKey<rcgen::KeyPair>) -> String {
        let key = without_public_half(&pair.signing_key.serialize_der());
        let text = data_encoding::BASE64.encode(&key);
        format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
    }

    fn files(folder: &Path) -> TlsFiles {
        let [first, second] =
            [(); 2].map(|()| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
        for (name, text) in [
            ("certificate.pem", first.cert.pem()),
            ("key.pem", first.signing_key.serialize_pem()),
            ("other.pem", second.signing_key.serialize_pem()),
            ("halved.pem", halved(&first)),
            ("other-halved.pem", halved(&second)),
            ("noise.pem", "noise".to_owned()),
            ("empty.pem", "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n".to_owned()),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let at = |name: &str| folder.join(name);
        TlsFiles {
            certificate: at("certificate.pem"),
            key: at("key.pem"),
            clients: ClientCertificates::NotAsked,
        }
    }

    #[test]
    fn files_for_other_brokers_that_do_not_serve_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let TlsFiles { certificate, key, .. } = files(folder.path());
        let at = |name: &str| folder.path().join(name);
        let own = |key: PathBuf| Some((certificate.clone(), key));
        for (case, trust, own, want) in [
            ("trust alone", certificate.clone(), None, ""),
            ("with a certificate of our own", certificate.clone(), own(key.clone()), ""),
            ("no such file", at("none.pem"), None, "cannot read"),
            ("no certificate in it", key.clone(), None, "no certificate in PEM form"),
            (
                "another's key",
                certificate.clone(),
                own(at("other.pem")),
                "does not belong to the certificate",
            ),
            ("no key", certificate.clone(), own(at("noise.pem")), "no private key in PEM form"),
        ] {
            let said = load_client(&TlsClientFiles { trust, own })
                .map_or_else(|error| error.to_string(), |_| String::new());
            assert!(said.contains(want) && want.is_empty() == said.is_empty(), "case: {case}: {said}");
        }
    }

    #[test]
    fn files_that_do_not_serve_are_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let good = files(folder.path());
        let at = |name: &str| folder.path().join(name);
        let shown = |name: &str| at(name).display().to_string();
        let required =
            |name: &str| TlsFiles { clients: ClientCertificates::Required(at(name)), ..good.clone() };
        let optional =
            TlsFiles { clients: ClientCertificates::Optional(at("certificate.pem")), ..good.clone() };
        for (case, files, want) in [
            ("all good", good.clone(), None),
            ("a key without its public half", TlsFiles { key: at("halved.pem"), ..good.clone() }, None),
            (
                "another's key without its public half",
                TlsFiles { key: at("other-halved.pem"), ..good.clone() },
                Some(format!("{}: {UNUSABLE_KEY}", shown("other-halved.pem"))),
            ),
            ("with an authority", required("certificate.pem"), None),
            ("which is not insisted on", optional, None),
            (
                "no certificate file",
                TlsFiles { certificate: at("none.pem"), ..good.clone() },
                Some(format!("cannot read {}: No such file or directory (os error 2)", shown("none.pem"))),
            ),
            (
                "no certificate in it",
                TlsFiles { certificate: at("key.pem"), ..good.clone() },
                Some(format!("{}: it contains no certificate in PEM format", shown("key.pem"))),
            ),
            (
                "no key in it",
                TlsFiles { key: at("noise.pem"), ..good.clone() },
                Some(format!("{}: it contains no private key in PEM format", shown("noise.pem"))),
            ),
            (
                "a key that is none",
                TlsFiles { key: at("empty.pem"), ..good.clone() },
                Some(format!("{}: {UNUSABLE_KEY}", shown("empty.pem"))),
            ),
            (
                "another's key",
                TlsFiles { key: at("other.pem"), ..good.clone() },
                Some(format!(
                    "the key {} does not belong to the certificate {}",
                    shown("other.pem"),
                    shown("certificate.pem")
                )),
            ),
            (
                "no authority",
                required("noise.pem"),
                Some(format!("{}: it contains no certificate in PEM format", shown("noise.pem"))),
            ),
        ] {
            assert_eq!(load(&files).err().map(|error| error.to_string()), want, "case: {case}");
        }
    }
}
