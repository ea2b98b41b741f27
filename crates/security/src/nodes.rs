//! TLS between the nodes of a cluster: both sides show a certificate of the same authority. A
//! certificate that is refused is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::certificate::Names;
use crate::tls::{TlsError, certificates, private_key, roots};

/// Where the files of a node are, all in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTlsFiles {
    /// The certificate of the node, and those that lead from it to the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that sign those of all nodes.
    pub authorities: PathBuf,
}

/// Both sides of the connections of a node.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// For connections that it accepts.
    pub server: Arc<ServerConfig>,
    /// For connections that it opens.
    pub client: Arc<ClientConfig>,
}

impl NodeTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`]: a file is missing, has other contents, or does not belong to another one.
    pub fn load(files: &NodeTlsFiles) -> Result<NodeTls, TlsError> {
        let NodeTlsFiles { certificate, key, authorities } = files;
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(certificate)?;
        let private = private_key(key, &chain, &provider)?;
        let roots: Arc<RootCertStore> = Arc::new(roots(authorities)?);
        let unusable = |file: &Path, reason: String| TlsError::Unusable { file: file.to_owned(), reason };
        let of_own = |error: Error| match error {
            Error::InconsistentKeys(_) => {
                TlsError::OtherKey { key: key.clone(), certificate: certificate.clone() }
            }
            error => unusable(certificate, error.to_string()),
        };
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let clients = Named(clients.map_err(|error| unusable(authorities, error.to_string()))?);
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let servers: Arc<dyn ServerCertVerifier> =
            servers.map_err(|error| unusable(authorities, error.to_string()))?;
        let servers = Named(servers);
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(of_own)?
            .with_client_cert_verifier(Arc::new(clients))
            .with_single_cert(chain.clone(), private.clone_key())
            .map_err(of_own)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(of_own)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(servers))
            .with_client_auth_cert(chain, private)
            .map_err(of_own)?;
        Ok(NodeTls { server: Arc::new(server), client: Arc::new(client) })
    }
}

/// A verifier whose refusals name the certificate.
#[derive(Debug)]
struct Named<V: ?Sized>(Arc<V>);

fn named(certificate: &CertificateDer<'_>, error: &Error) -> Error {
    let names = Names::of(certificate);
    let subject = names.as_ref().map_or("without a subject", Names::subject);
    Error::General(format!("the certificate {subject} is refused: {error}"))
}

impl ClientCertVerifier for Named<dyn ClientCertVerifier> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(certificate, chain, now);
        verified.map_err(|error| named(certificate, &error))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Named<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(certificate, chain, name, ocsp, now);
        verified.map_err(|error| named(certificate, &error))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
