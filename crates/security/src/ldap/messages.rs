//! Messages of LDAP (RFC 4511): those that a check of a password needs.

use super::LdapError;
use super::ber::{Malformed, Reader, Writer, size, tag};
use super::filter::{Filter, Names};

/// A message of the directory is not longer: an entry with thousands of groups.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The version of the protocol.
const VERSION: u32 = 3;

/// Whole subtree (RFC 4511, section 4.5.1.2).
const SUBTREE: u32 = 2;

/// Aliases are not followed (section 4.5.1.3).
const NEVER: u32 = 0;

/// The request to begin TLS (RFC 4511, section 4.14).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// The result of a request (section 4.1.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// 0 for success.
    pub code: u32,
    /// The directory's words.
    pub message: String,
}

/// An entry that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its distinguished name.
    pub dn: String,
    /// Its attributes with the values that are texts.
    pub attributes: Vec<(String, Vec<String>)>,
}

impl Entry {
    /// The values of an attribute; names of attributes have no case.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let is_meant = move |(known, _): &&(String, Vec<String>)| known.eq_ignore_ascii_case(name);
        self.attributes.iter().filter(is_meant).flat_map(|(_, values)| values).map(String::as_str)
    }
}

/// A message of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The end of a login.
    Bind(Outcome),
    /// One result of a search.
    Entry(Entry),
    /// A part of the answer is elsewhere; it is not looked for.
    Reference,
    /// The end of a search.
    Done(Outcome),
    /// The end of an extended request.
    Extended(Outcome),
}

/// A search.
#[derive(Clone, Copy, Debug)]
pub struct Search<'s> {
    /// Where it begins.
    pub base: &'s str,
    /// The entries to find.
    pub filter: &'s Filter,
    /// The names in it.
    pub names: Names<'s>,
    /// Attributes that are wanted.
    pub attributes: &'s [&'s str],
    /// Entries, at most.
    pub entries_max: u32,
    /// The directory ends it after this time.
    pub seconds_max: u32,
}

fn message(id: u32, content: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.nested(tag::SEQUENCE, |writer| {
        writer.number(tag::INTEGER, id);
        content(writer);
    });
    writer.done()
}

/// A simple login (section 4.2).
pub fn bind(id: u32, dn: &str, password: &str) -> Vec<u8> {
    message(id, |writer| {
        writer.nested(tag::BIND_REQUEST, |writer| {
            writer.number(tag::INTEGER, VERSION);
            writer.bytes(tag::OCTETS, dn.as_bytes());
            writer.bytes(0x80, password.as_bytes());
        });
    })
}

/// A search (section 4.5).
pub fn search(id: u32, search: Search<'_>) -> Vec<u8> {
    message(id, |writer| {
        writer.nested(tag::SEARCH_REQUEST, |writer| {
            writer.bytes(tag::OCTETS, search.base.as_bytes());
            writer.number(tag::ENUMERATED, SUBTREE);
            writer.number(tag::ENUMERATED, NEVER);
            writer.number(tag::INTEGER, search.entries_max);
            writer.number(tag::INTEGER, search.seconds_max);
            writer.bytes(tag::BOOLEAN, &[0]);
            search.filter.write(search.names, writer);
            writer.nested(tag::SEQUENCE, |writer| {
                // "1.1" is no attribute at all (section 4.5.1.8).
                let none = search.attributes.is_empty().then_some("1.1");
                for attribute in search.attributes.iter().copied().chain(none) {
                    writer.bytes(tag::OCTETS, attribute.as_bytes());
                }
            });
        });
    })
}

/// Asks to begin TLS.
pub fn start_tls(id: u32) -> Vec<u8> {
    message(id, |writer| writer.nested(tag::EXTENDED_REQUEST, |writer| writer.bytes(0x80, START_TLS)))
}

/// Says goodbye.
pub fn unbind(id: u32) -> Vec<u8> {
    message(id, |writer| writer.bytes(tag::UNBIND_REQUEST, &[]))
}

/// The bytes of the message that these begin with; `None` if it is not complete.
///
/// # Errors
/// It is malformed, or too long.
pub fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, LdapError> {
    if bytes.first().is_some_and(|first| *first != tag::SEQUENCE) {
        return Err(Malformed.into());
    }
    let Some((head_bytes, content_bytes)) = size(bytes)? else { return Ok(None) };
    let whole = head_bytes.saturating_add(content_bytes);
    if MESSAGE_BYTES_MAX < whole {
        return Err(LdapError::TooLong { bytes: whole });
    }
    Ok((whole <= bytes.len()).then_some(whole))
}

/// Reads a whole message: the number of the request that it answers, and the answer.
///
/// # Errors
/// It is malformed, or one that no request asks for.
pub fn read(bytes: &[u8]) -> Result<(u32, Response), LdapError> {
    let mut message = Reader(Reader(bytes).expect(tag::SEQUENCE)?);
    let id = message.number(tag::INTEGER)?;
    let (kind, content) = message.element()?;
    let mut content = Reader(content);
    let response = match kind {
        tag::BIND_RESPONSE => Response::Bind(outcome(&mut content)?),
        tag::SEARCH_ENTRY => Response::Entry(entry(&mut content)?),
        tag::SEARCH_REFERENCE => Response::Reference,
        tag::SEARCH_DONE => Response::Done(outcome(&mut content)?),
        tag::EXTENDED_RESPONSE => Response::Extended(outcome(&mut content)?),
        _ => return Err(Malformed.into()),
    };
    Ok((id, response))
}

fn outcome(content: &mut Reader<'_>) -> Result<Outcome, LdapError> {
    let code = content.number(tag::ENUMERATED)?;
    let _matched = content.expect(tag::OCTETS)?;
    let message = String::from_utf8_lossy(content.expect(tag::OCTETS)?).chars().take(200).collect();
    Ok(Outcome { code, message })
}

fn entry(content: &mut Reader<'_>) -> Result<Entry, LdapError> {
    let dn = content.text()?.to_owned();
    let mut attributes = Vec::new();
    let mut all = Reader(content.expect(tag::SEQUENCE)?);
    while !all.is_empty() {
        let mut attribute = Reader(all.expect(tag::SEQUENCE)?);
        let name = attribute.text()?.to_owned();
        let (mut values, mut texts) = (Reader(attribute.expect(tag::SET)?), Vec::new());
        while !values.is_empty() {
            // Photographs and keys are not texts.
            if let Ok(text) = std::str::from_utf8(values.expect(tag::OCTETS)?) {
                texts.push(text.to_owned());
            }
        }
        attributes.push((name, texts));
    }
    Ok(Entry { dn, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_rfc_4511_says() {
        assert_eq!(bind(1, "cn=a", "pw"), b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw");
        assert_eq!(unbind(2), b"\x30\x05\x02\x01\x02\x42\x00");
        assert_eq!(
            start_tls(1),
            b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037",
            "as of RFC 4511, 4.14.1"
        );
    }

    #[test]
    fn responses_are_read_and_malformed_ones_refused() {
        let bound = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x31\x04\x00\x04\x00";
        let wrong = Outcome { code: 49, message: String::new() };
        assert_eq!(read(bound), Ok((1, Response::Bind(wrong))));
        let lie = b"\x30\x1a\x02\x01\x02\x64\x15\x04\x04cn=a\x30\x0d\x30\x0b\x04\x02cn\x31\x45\x04\x03Ann";
        assert!(read(lie).is_err(), "a length that lies");
        let found = b"\x30\x1a\x02\x01\x02\x64\x15\x04\x04cn=a\x30\x0d\x30\x0b\x04\x02cn\x31\x05\x04\x03Ann";
        let Ok((2, Response::Entry(entry))) = read(found) else { panic!("{:?}", read(found)) };
        assert_eq!((&*entry.dn, entry.values("CN").collect::<Vec<_>>()), ("cn=a", vec!["Ann"]));
        for end in 0..found.len() {
            assert!(read(&found[..end]).is_err(), "cut at {end}");
            assert_eq!(frame_bytes(&found[..end]), Ok(None), "cut at {end}");
        }
        assert_eq!(frame_bytes(found), Ok(Some(found.len())));
        assert_eq!(frame_bytes(&[0x30, 0x83, 0x10, 0, 0]), Err(LdapError::TooLong { bytes: 0x100005 }));
        assert!(frame_bytes(b"HTTP/1.1").is_err());
        for at in 0..found.len() {
            let mut broken = found.to_vec();
            broken[at] = 0xFF;
            let _ = read(&broken);
        }
    }
}
