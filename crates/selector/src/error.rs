use std::fmt;

/// Why a text is not a selector, and where. Always the fault of the selector's author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error at character {position}: {reason}")]
pub struct SelectorError {
    /// 0-based; counts characters, not bytes. The length of the text where something is missing at
    /// its end.
    pub position: usize,
    /// The reason.
    pub reason: Reason,
}

/// The text that was found, and the expected syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A token or an operand that does not fit.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// Quoted from the text.
        found: Found,
        /// The expected syntax.
        expected: &'static str,
    },
    /// A string runs to the end of the text.
    #[error("the string has no closing quote")]
    OpenString,
    /// A comment runs to the end of the text.
    #[error("the comment has no closing */")]
    OpenComment,
    /// An exact number that does not fit (JMS 3.8.1.1).
    #[error("the number is outside the range of a 64-bit integer")]
    NumberOutOfRange,
    /// The escape of LIKE is no single character.
    #[error("ESCAPE takes one character, not {count}")]
    EscapeNotOneCharacter {
        /// Characters in the string after ESCAPE.
        count: usize,
    },
    /// The string after XPATH is no path (XPath 1.0).
    #[error("the XPATH is wrong at its character {position}: {message}")]
    BadXPath {
        /// 0-based, within the string.
        position: usize,
        /// The path parser's message.
        message: String,
    },
    /// The string after XPATH is more than a message should be tested for.
    #[error("the XPATH is longer than {bytes_max} bytes, or has more than {levels_max} of `(`, `[` and `-`")]
    XPathTooLarge {
        /// Bytes allowed.
        bytes_max: usize,
        /// Brackets and signs allowed, together.
        levels_max: usize,
    },
    /// A function of ActiveMQ that this broker does not have.
    #[error("{what} is not supported yet")]
    NotSupported {
        /// The function that was called.
        what: Found,
    },
    /// Parentheses, signs and operators upon one another.
    #[error("nested deeper than {max} levels")]
    TooDeep {
        /// Levels allowed.
        max: usize,
    },
    /// More text than any selector needs.
    #[error("the text has {got_bytes} bytes, the limit is {max_bytes}")]
    TooLong {
        /// Bytes of the text.
        got_bytes: usize,
        /// Bytes allowed.
        max_bytes: usize,
    },
}

/// A piece of the selector as it is quoted back, cut where it is long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found(String);

/// Enough to recognise the place, short enough for a log line.
const FOUND_CHARACTERS_MAX: usize = 40;

impl Found {
    pub(crate) fn new(text: &str) -> Found {
        match text.char_indices().nth(FOUND_CHARACTERS_MAX) {
            Some((end, _)) => Found(format!("{}…", &text[..end])),
            None => Found(text.to_owned()),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { out.write_str("the end") } else { write!(out, "`{}`", self.0) }
    }
}
