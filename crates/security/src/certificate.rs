//! Certificates of clients: whom they name.

use std::sync::Arc;

use x509_parser::prelude::{FromDer, X509Certificate};

/// The subject of a certificate that TLS has found good, such as `CN=alice, O=Orders`; `None` if it
/// cannot be read or is empty.
pub fn subject(der: &[u8]) -> Option<Arc<str>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject().to_string();
    (!subject.is_empty()).then(|| subject.into())
}
