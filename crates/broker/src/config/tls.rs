//! Certificates: which files, and whether they go together.

use std::path::PathBuf;

use anyhow::bail;
use postroad_security::tls::{ClientCertificates, TlsFiles};
use serde::Deserialize;

/// Where certificates are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsFileConfig {
    /// The broker's certificate and those that lead to an authority; empty for no TLS.
    certificate: PathBuf,
    /// Its private key.
    key: PathBuf,
    /// Whether clients show certificates.
    clients: ClientsConfig,
    /// Who signs the certificates of clients.
    client_authorities: PathBuf,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ClientsConfig {
    #[default]
    None,
    Optional,
    Required,
}

impl TlsFileConfig {
    /// Whether clients may show certificates.
    pub fn asks_clients(&self) -> bool {
        self.clients != ClientsConfig::None
    }

    /// The files; `None` if no certificate is named.
    ///
    /// # Errors
    /// One needs another that is not named.
    pub fn files(&self) -> anyhow::Result<Option<TlsFiles>> {
        let is_named = |file: &PathBuf| !file.as_os_str().is_empty();
        match (is_named(&self.certificate), is_named(&self.key)) {
            (false, false) => return Ok(None),
            (false, true) => bail!("configuration: tls.key needs tls.certificate"),
            (true, false) => bail!("configuration: tls.certificate needs tls.key"),
            (true, true) => {}
        }
        let authorities = || self.client_authorities.clone();
        let clients = match self.clients {
            ClientsConfig::None => ClientCertificates::NotAsked,
            ClientsConfig::Optional | ClientsConfig::Required if !is_named(&self.client_authorities) => {
                let word = if self.clients == ClientsConfig::Required { "required" } else { "optional" };
                bail!("configuration: tls.clients is {word:?}: it needs tls.client_authorities")
            }
            ClientsConfig::Optional => ClientCertificates::Optional(authorities()),
            ClientsConfig::Required => ClientCertificates::Required(authorities()),
        };
        Ok(Some(TlsFiles { certificate: self.certificate.clone(), key: self.key.clone(), clients }))
    }
}
