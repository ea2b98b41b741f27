//! Reasons why a file of another broker is not translated. All are faults of the file.

/// See the head of this file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The declared encoding is not one of those that are read.
    #[error("the encoding {0} is not supported: save it as UTF-8")]
    UnknownEncoding(String),
    /// Not UTF-8, though no other encoding is declared; the position counts bytes.
    #[error("byte {0} is not valid UTF-8, and the first line names no other encoding")]
    NotUtf8(usize),
    /// Surrogates without a partner, or half a code unit.
    #[error("it starts with a UTF-16 mark and is not valid UTF-16")]
    NotUtf16,
    /// Bytes without a character.
    #[error("it has bytes that are not valid in windows-1252")]
    NotWindows1252,
    /// The parser names the line.
    #[error("no XML")]
    NotXml(#[source] roxmltree::Error),
    /// Nothing that could be translated.
    #[error("no <broker> element (activemq.xml) and no <camelContext> element (camel.xml)")]
    NoBroker,
    /// Parts whose translation would change their meaning, by line.
    #[error("Postroad cannot behave as configured here; change or remove these first:\n{}", .0.join("\n"))]
    Refused(Vec<String>),
}
