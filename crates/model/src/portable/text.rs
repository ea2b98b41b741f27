//! Text of a peer: a slice of the bytes it came in.

use std::fmt;

use bytes::Bytes;

/// Unicode text. Invariant: UTF-8. Cloning shares the bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// Takes bytes without copying; `None` if they are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Option<Text> {
        std::str::from_utf8(&bytes).is_ok().then_some(Text(bytes))
    }

    /// Text known at compile time, without copying.
    pub const fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The characters in UTF-8.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Whether there is no character at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same in memory of its own: a name that is kept must not keep the frame it came in.
    pub fn own(&self) -> Text {
        Text(Bytes::copy_from_slice(&self.0))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text.into())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf8_and_shares_its_bytes() {
        let bytes = Bytes::from_static("gr\u{fc}n".as_bytes());
        let text = Text::from_utf8(bytes.clone()).unwrap();
        assert_eq!((text.as_str(), text.as_bytes().as_ptr()), ("gr\u{fc}n", bytes.as_ptr()));
        assert_eq!(Text::from_utf8(Bytes::from_static(b"gr\xfcn")), None);
    }
}
