//! Symbols, as slices of the bytes they came in. Strings (part 1, section 1.6.20) are [`Text`], as
//! in all protocols.

use std::fmt;

use bytes::Bytes;
use postroad_model::portable::Text;

/// A symbol of the standard (part 1, section 1.6.21): a name from a constrained domain. Invariant:
/// ASCII.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(Bytes);

impl Symbol {
    /// Takes bytes of a peer; `None` if they are not ASCII.
    pub fn from_wire(bytes: Bytes) -> Option<Symbol> {
        bytes.is_ascii().then_some(Symbol(bytes))
    }

    /// A symbol known at compile time, without copying. `text` is ASCII; other characters make it
    /// empty.
    pub const fn from_static(text: &'static str) -> Symbol {
        if text.is_ascii() { Symbol(Bytes::from_static(text.as_bytes())) } else { Symbol(Bytes::new()) }
    }
}

impl Symbol {
    /// The characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The bytes on the wire, without their length.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The same as text. Cloning shares the bytes.
    pub fn to_text(&self) -> Text {
        Text::from_utf8(self.0.clone()).unwrap_or_default()
    }

    /// Whether there is no character at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same in memory of its own: a name that is kept must not keep the frame it came in.
    pub fn own(&self) -> Symbol {
        Symbol(Bytes::copy_from_slice(&self.0))
    }
}

impl PartialEq<str> for Symbol {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Symbol {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<&'static str> for Symbol {
    fn from(text: &'static str) -> Symbol {
        Symbol::from_static(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_ascii() {
        for (case, bytes, want) in [
            ("nothing", &b""[..], true),
            ("ASCII", b"amqp:open", true),
            ("UTF-8", "gr\u{fc}n".as_bytes(), false),
            ("Latin-1", b"gr\xfcn", false),
        ] {
            let symbol = Symbol::from_wire(Bytes::copy_from_slice(bytes));
            assert_eq!(symbol.is_some(), want, "case: {case}");
        }
        assert_eq!(Symbol::from_static("gr\u{fc}n"), Symbol::default());
    }
}
