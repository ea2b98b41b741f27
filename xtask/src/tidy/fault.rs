//! A broken rule, at a place.

use std::fmt;

/// The place where a rule is broken, the error and its correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path from the repository's first folder.
    pub path: String,
    /// 1-based.
    pub line: usize,
    pub wrong: String,
    pub right: String,
}

impl Fault {
    pub fn new(path: &str, line: usize, wrong: impl Into<String>, right: impl Into<String>) -> Fault {
        Fault { path: path.to_owned(), line, wrong: wrong.into(), right: right.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.wrong, self.right)
    }
}
