//! Strings and symbols, as slices of the bytes they came in.

use std::fmt;

use bytes::Bytes;

/// A string of the standard (part 1, section 1.6.20). Invariant: UTF-8.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

/// A symbol of the standard (part 1, section 1.6.21): a name from a constrained domain. Invariant: ASCII.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(Bytes);

impl Text {
    /// Takes bytes of a peer; `None` if they are not UTF-8.
    pub fn from_wire(bytes: Bytes) -> Option<Text> {
        std::str::from_utf8(&bytes).is_ok().then_some(Text(bytes))
    }

    /// Text known at compile time, without copying.
    pub const fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }
}

impl Symbol {
    /// Takes bytes of a peer; `None` if they are not ASCII.
    pub fn from_wire(bytes: Bytes) -> Option<Symbol> {
        bytes.is_ascii().then_some(Symbol(bytes))
    }

    /// A symbol known at compile time, without copying. `text` is ASCII; other characters make it empty.
    pub const fn from_static(text: &'static str) -> Symbol {
        if text.is_ascii() { Symbol(Bytes::from_static(text.as_bytes())) } else { Symbol(Bytes::new()) }
    }
}

macro_rules! text_functions {
    ($Name:ident) => {
        impl $Name {
            /// The characters.
            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0).unwrap_or_default()
            }

            /// The bytes on the wire, without their length.
            pub fn as_bytes(&self) -> &Bytes {
                &self.0
            }

            /// Whether there is no character at all.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// The same in memory of its own: a name that is kept must not keep the frame it came in.
            pub fn own(&self) -> $Name {
                $Name(Bytes::copy_from_slice(&self.0))
            }
        }

        impl PartialEq<str> for $Name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other.as_bytes()
            }
        }

        impl PartialEq<&str> for $Name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == other.as_bytes()
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }
    };
}

text_functions!(Text);
text_functions!(Symbol);

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

impl From<&'static str> for Symbol {
    fn from(text: &'static str) -> Symbol {
        Symbol::from_static(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_utf8_and_symbols_ascii() {
        for (case, bytes, text, symbol) in [
            ("nothing", &b""[..], true, true),
            ("ASCII", b"amqp:open", true, true),
            ("UTF-8", "gr\u{fc}n".as_bytes(), true, false),
            ("Latin-1", b"gr\xfcn", false, false),
        ] {
            let bytes = Bytes::copy_from_slice(bytes);
            let got = (Text::from_wire(bytes.clone()).is_some(), Symbol::from_wire(bytes).is_some());
            assert_eq!(got, (text, symbol), "case: {case}");
        }
        assert_eq!(Symbol::from_static("gr\u{fc}n"), Symbol::default());
    }
}
