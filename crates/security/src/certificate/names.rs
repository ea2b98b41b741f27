//! Names in a certificate: its subject as RFC 4514 writes it, and its alternative names.

use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use super::NameKind;

/// Alternative names of one kind that are looked at.
const NAMES_MAX: usize = 100;

/// A subject is not longer, as text.
const SUBJECT_BYTES_MAX: usize = 4 << 10;

/// Names of the owner of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The subject.
    pub(super) subject: DistinguishedName,
    /// The same, as RFC 4514 writes it.
    pub(super) subject_text: String,
    common_names: Vec<String>,
    dns: Vec<String>,
    emails: Vec<String>,
    uris: Vec<String>,
    /// When it ends, in milliseconds since 1970.
    pub(super) expires_ms: Option<u64>,
}

impl Names {
    /// Those of a certificate (DER) that TLS has found good; `None` if it cannot be read.
    pub fn of(der: &[u8]) -> Option<Names> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut attributes = Vec::new();
        // The most significant name comes first in a certificate, and last in the text.
        for relative in certificate.subject().iter_rdn() {
            let mut together: Vec<Attribute> =
                relative.iter().map(Attribute::of).collect::<Option<Vec<_>>>()?;
            together.sort();
            attributes.push(together);
        }
        attributes.reverse();
        let subject = DistinguishedName(attributes);
        let subject_text = subject.to_text();
        if SUBJECT_BYTES_MAX < subject_text.len() {
            return None;
        }
        let is_common = |attribute: &&Attribute| attribute.kind == "CN";
        let common_names = subject.0.iter().flatten().filter(is_common);
        let common_names = common_names.map(|attribute| attribute.value.clone()).collect();
        let seconds = certificate.validity().not_after.timestamp();
        let expires_ms = u64::try_from(seconds).ok().map(|seconds| seconds.saturating_mul(1_000));
        let (dns, emails, uris) = (Vec::new(), Vec::new(), Vec::new());
        let mut names = Names { subject, subject_text, common_names, dns, emails, uris, expires_ms };
        let alternative = certificate.subject_alternative_name().ok()?;
        for name in alternative.iter().flat_map(|found| &found.value.general_names) {
            let (known, name) = match name {
                GeneralName::DNSName(name) => (&mut names.dns, name),
                GeneralName::RFC822Name(name) => (&mut names.emails, name),
                GeneralName::URI(name) => (&mut names.uris, name),
                _ => continue,
            };
            if known.len() < NAMES_MAX {
                known.push((*name).to_owned());
            }
        }
        Some(names)
    }

    /// The subject, as RFC 4514 writes it.
    pub fn subject(&self) -> &str {
        &self.subject_text
    }

    /// The names of a kind. Of several common names none counts: which one is meant is not known.
    pub(super) fn all(&self, kind: NameKind) -> impl Iterator<Item = &str> {
        let none: &[String] = &[];
        let names = match kind {
            NameKind::Subject => none,
            NameKind::CommonName if 1 < self.common_names.len() => none,
            NameKind::CommonName => &self.common_names,
            NameKind::Dns => &self.dns,
            NameKind::Email => &self.emails,
            NameKind::Uri => &self.uris,
        };
        names.iter().map(String::as_str)
    }
}

/// A distinguished name (RFC 4514): relative names, the most particular first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinguishedName(Vec<Vec<Attribute>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attribute {
    /// Its short name in capital letters, or its number with dots.
    kind: String,
    value: String,
}

/// Why a text is not a distinguished name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseNameError {
    /// A relative name without `=`.
    #[error("expected ATTRIBUTE=VALUE")]
    NoAttribute,
    /// A quotation mark without its end, or a backslash before nothing.
    #[error("a quotation or escape does not end")]
    Unfinished,
    /// A value after `=` is missing.
    #[error("a value is missing")]
    NoValue,
}

impl Attribute {
    fn of(attribute: &AttributeTypeAndValue<'_>) -> Option<Attribute> {
        let oid = attribute.attr_type();
        let kind = match oid2abbrev(oid, oid_registry()) {
            Ok(short) => short.to_ascii_uppercase(),
            Err(_) => oid.to_id_string(),
        };
        Some(Attribute { kind: known_as(&kind), value: attribute.as_str().ok()?.to_owned() })
    }

    fn to_text(&self) -> String {
        format!("{}={}", self.kind, escaped(&self.value))
    }
}

/// One name for attributes that have several.
fn known_as(kind: &str) -> String {
    let upper = kind.trim().to_ascii_uppercase();
    match &*upper {
        "S" => "ST".to_owned(),
        "E" | "EMAIL" => "EMAILADDRESS".to_owned(),
        "USERID" => "UID".to_owned(),
        _ => upper,
    }
}

/// RFC 4514, section 2.4.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (index, character) in value.chars().enumerate() {
        let is_special = matches!(character, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=')
            || index == 0 && matches!(character, ' ' | '#')
            || index == last && character == ' ';
        if character == '\0' {
            text.push_str("\\00");
            continue;
        }
        if is_special {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

impl DistinguishedName {
    fn to_text(&self) -> String {
        let relative = self.0.iter().map(|together| {
            let texts: Vec<String> = together.iter().map(Attribute::to_text).collect();
            texts.join("+")
        });
        relative.collect::<Vec<_>>().join(",")
    }

    /// Reads RFC 4514, and the forms of Java and OpenSSL: spaces after commas, and quoted values.
    ///
    /// # Errors
    /// It is not a distinguished name.
    pub fn parse(text: &str) -> Result<DistinguishedName, ParseNameError> {
        let mut characters = text.chars().peekable();
        let mut all = vec![Vec::new()];
        loop {
            let mut kind = String::new();
            loop {
                match characters.next() {
                    Some('=') => break,
                    Some(character) => kind.push(character),
                    None => return Err(ParseNameError::NoAttribute),
                }
            }
            let (value, ends_with) = value(&mut characters)?;
            let attribute = Attribute { kind: known_as(&kind), value };
            if attribute.kind.is_empty() {
                return Err(ParseNameError::NoAttribute);
            }
            if attribute.value.is_empty() {
                return Err(ParseNameError::NoValue);
            }
            if let Some(together) = all.last_mut() {
                together.push(attribute);
                together.sort();
            }
            match ends_with {
                None => return Ok(DistinguishedName(all)),
                Some('+') => {}
                Some(_) => all.push(Vec::new()),
            }
        }
    }
}

/// A value, and the character that ended it.
fn value(
    characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Result<(String, Option<char>), ParseNameError> {
    let mut bytes: Vec<u8> = Vec::new();
    // Spaces at the end count only if they are escaped or quoted.
    let (mut kept, mut is_quoted) = (0, false);
    while characters.next_if_eq(&' ').is_some() {}
    let ended = loop {
        let mut encoded = [0; 4];
        match characters.next() {
            None if is_quoted => return Err(ParseNameError::Unfinished),
            None => break None,
            Some('"') => is_quoted = !is_quoted,
            Some('\\') => {
                let first = characters.next().ok_or(ParseNameError::Unfinished)?;
                let second = characters.peek().copied().filter(char::is_ascii_hexdigit);
                match (first.to_digit(16), second.and_then(|second| second.to_digit(16))) {
                    (Some(high), Some(low)) => {
                        characters.next();
                        bytes.push((high * 16 + low) as u8);
                    }
                    _ => bytes.extend(first.encode_utf8(&mut encoded).bytes()),
                }
                kept = bytes.len();
            }
            Some(end @ (',' | ';' | '+')) if !is_quoted => break Some(end),
            Some(character) => {
                bytes.extend(character.encode_utf8(&mut encoded).bytes());
                if character != ' ' || is_quoted {
                    kept = bytes.len();
                }
            }
        }
    };
    bytes.truncate(kept);
    let value = String::from_utf8(bytes).map_err(|_| ParseNameError::Unfinished)?;
    Ok((value, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distinguished_name_is_read_as_several_programs_write_it() {
        for (text, want) in [
            ("CN=alice", Ok("CN=alice")),
            ("cn=alice, o = Orders", Ok("CN=alice,O=Orders")),
            ("CN=alice,O=\"Smith, Jones\"", Ok("CN=alice,O=Smith\\, Jones")),
            ("CN=a\\,b\\2Bc", Ok("CN=a\\,b\\+c")),
            ("CN=M\\C3\\BCller", Ok("CN=Müller")),
            ("CN=\\ x\\ ", Ok("CN=\\ x\\ ")),
            ("CN=\\#x,S=Hesse", Ok("CN=\\#x,ST=Hesse")),
            ("OU=b+CN=a", Ok("CN=a+OU=b")),
            ("1.2.840.113549.1.9.1=a", Ok("1.2.840.113549.1.9.1=a")),
            ("alice", Err(ParseNameError::NoAttribute)),
            ("=alice", Err(ParseNameError::NoAttribute)),
            ("CN=alice,", Err(ParseNameError::NoAttribute)),
            ("CN=,O=x", Err(ParseNameError::NoValue)),
            ("CN=\"alice", Err(ParseNameError::Unfinished)),
            ("CN=alice\\", Err(ParseNameError::Unfinished)),
            ("CN=\\FF", Err(ParseNameError::Unfinished)),
        ] {
            let got = DistinguishedName::parse(text);
            let written = got.as_ref().map(DistinguishedName::to_text).map_err(|error| *error);
            assert_eq!(written, want.map(str::to_owned), "{text}");
            if let Ok(name) = got {
                assert_eq!(DistinguishedName::parse(&name.to_text()), Ok(name), "written and read: {text}");
            }
        }
    }
}
