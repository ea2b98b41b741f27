//! Text as OpenWire carries it: Java's modified UTF-8, kept as received.

use std::{borrow::Cow, fmt};

use bytes::Bytes;

/// Text in Java's modified UTF-8 (`java.io.DataInput`), a slice of the frame
/// it came in.
///
/// Invariant: sequences of one to three bytes only, so every Java client can
/// read it back. Characters beyond U+FFFF are two three-byte surrogates, NUL
/// is usually `C0 80`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireString(Bytes);

impl WireString {
    /// Takes bytes that a peer sent as modified UTF-8; `None` if they are not.
    pub fn from_wire(bytes: Bytes) -> Option<WireString> {
        (bytes.is_ascii() || is_modified_utf8(&bytes)).then_some(WireString(bytes))
    }

    /// Takes bytes of which each is one character up to U+00FF, as the tight
    /// encoding's "ASCII" strings are read by Java. Copies only if one of them
    /// is not ASCII.
    pub(super) fn from_latin1(bytes: Bytes) -> WireString {
        if bytes.iter().all(|byte| (1..0x80).contains(byte)) {
            return WireString(bytes);
        }
        WireString::from(bytes.iter().map(|&byte| char::from(byte)).collect::<String>().as_str())
    }

    /// Text known at compile time, without copying. Only ASCII keeps the
    /// invariant for certain, so other text is converted.
    pub fn from_static(text: &'static str) -> WireString {
        if is_plain(text.as_bytes()) {
            WireString(Bytes::from_static(text.as_bytes()))
        } else {
            WireString::from(text)
        }
    }

    /// The bytes of a text on the wire; the text's own, unless it has characters that modified
    /// UTF-8 writes differently.
    pub(super) fn in_place(text: &str) -> Cow<'_, [u8]> {
        match is_plain(text.as_bytes()) {
            true => Cow::Borrowed(text.as_bytes()),
            false => Cow::Owned(WireString::from(text).0.to_vec()),
        }
    }

    /// The text; borrowed unless it has characters that modified UTF-8 writes
    /// differently. A lone surrogate, which no `str` can hold, becomes U+FFFD.
    pub fn to_str(&self) -> Cow<'_, str> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(String::from_utf16_lossy(&utf16_units(&self.0))),
        }
    }

    /// The bytes on the wire, without their length.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Whether there is no character at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every character is U+0001 to U+007F, the tight encoding's short form.
    pub(super) fn is_plain(&self) -> bool {
        is_plain(&self.0)
    }

    /// Length as Java's `String.length()` counts it: UTF-16 units.
    pub(super) fn utf16_len(&self) -> usize {
        self.0.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
    }
}

impl From<&str> for WireString {
    fn from(text: &str) -> WireString {
        if is_plain(text.as_bytes()) {
            return WireString(Bytes::copy_from_slice(text.as_bytes()));
        }
        let mut bytes = Vec::with_capacity(text.len() + text.len() / 2);
        for unit in text.encode_utf16() {
            push_unit(&mut bytes, unit);
        }
        WireString(bytes.into())
    }
}

impl From<String> for WireString {
    fn from(text: String) -> WireString {
        if is_plain(text.as_bytes()) { WireString(text.into()) } else { WireString::from(text.as_str()) }
    }
}

impl PartialEq<str> for WireString {
    fn eq(&self, other: &str) -> bool {
        self.to_str() == other
    }
}

impl PartialEq<&str> for WireString {
    fn eq(&self, other: &&str) -> bool {
        self.to_str() == *other
    }
}

impl fmt::Debug for WireString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str(), f)
    }
}

impl fmt::Display for WireString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_str(), f)
    }
}

fn is_plain(bytes: &[u8]) -> bool {
    bytes.is_ascii() && !bytes.contains(&0)
}

fn push_unit(bytes: &mut Vec<u8>, unit: u16) {
    let low = |shift: u32| 0x80 | (unit >> shift & 0x3F) as u8;
    match unit {
        0x01..0x80 => bytes.push(unit as u8),
        0 | 0x80..0x800 => bytes.extend([0xC0 | (unit >> 6) as u8, low(0)]),
        0x800.. => bytes.extend([0xE0 | (unit >> 12) as u8, low(6), low(0)]),
    }
}

/// Same acceptance as Java's `DataInputStream.readUTF`.
fn is_modified_utf8(mut bytes: &[u8]) -> bool {
    while let [first, rest @ ..] = bytes {
        let more = match first {
            0..0x80 => 0,
            0xC0..0xE0 => 1,
            0xE0..0xF0 => 2,
            _ => return false,
        };
        match rest.split_at_checked(more) {
            Some((tail, next)) if tail.iter().all(|byte| byte & 0xC0 == 0x80) => bytes = next,
            _ => return false,
        }
    }
    true
}

/// Units of text that keeps the invariant of [`WireString`].
fn utf16_units(mut bytes: &[u8]) -> Vec<u16> {
    let mut units = Vec::with_capacity(bytes.len());
    loop {
        let (unit, rest) = match bytes {
            [] => return units,
            [a @ 0xE0..=0xFF, b, c, rest @ ..] => {
                (u16::from(a & 0x0F) << 12 | u16::from(b & 0x3F) << 6 | u16::from(c & 0x3F), rest)
            }
            [a @ 0xC0..=0xFF, b, rest @ ..] => (u16::from(a & 0x1F) << 6 | u16::from(b & 0x3F), rest),
            [a, rest @ ..] => (u16::from(*a), rest),
        };
        units.push(unit);
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_way_through_modified_utf8() {
        for (name, text, wire) in [
            ("empty", "", &b""[..]),
            ("ASCII is itself", "ID:host-1", b"ID:host-1"),
            ("NUL takes two bytes", "a\0b", b"a\xC0\x80b"),
            ("two-byte characters are plain UTF-8", "é", b"\xC3\xA9"),
            ("three-byte characters are plain UTF-8", "€", b"\xE2\x82\xAC"),
            ("beyond U+FFFF: two surrogates", "😀", b"\xED\xA0\xBD\xED\xB8\x80"),
        ] {
            let got = WireString::from(text);
            assert_eq!(&got.as_bytes()[..], wire, "to wire: {name}");
            assert_eq!(WireString::from_wire(Bytes::from_static(wire)), Some(got.clone()), "{name}");
            assert_eq!(got.to_str(), text, "from wire: {name}");
            assert_eq!(got.utf16_len(), text.encode_utf16().count(), "Java length: {name}");
        }
    }

    #[test]
    fn bytes_that_java_could_not_read_are_refused() {
        for (name, wire) in [
            ("four-byte UTF-8", &b"\xF0\x9F\x98\x80"[..]),
            ("continuation first", b"\x80"),
            ("cut two-byte sequence", b"a\xC3"),
            ("cut three-byte sequence", b"\xE2\x82"),
            ("wrong continuation", b"\xC3a"),
        ] {
            assert_eq!(WireString::from_wire(Bytes::from_static(wire)), None, "case: {name}");
        }
    }

    #[test]
    fn lone_surrogates_are_kept_on_the_wire_and_replaced_in_str() {
        let wire = Bytes::from_static(b"a\xED\xA0\xBDb");
        let text = WireString::from_wire(wire.clone()).unwrap();
        assert_eq!((text.as_bytes(), &*text.to_str()), (&wire, "a\u{FFFD}b"));
    }

    #[test]
    fn latin1_bytes_become_their_characters() {
        for (bytes, text) in [(&b"abc"[..], "abc"), (b"\xE9", "é"), (b"\0", "\0")] {
            assert_eq!(WireString::from_latin1(Bytes::from_static(bytes)), WireString::from(text));
        }
    }
}
