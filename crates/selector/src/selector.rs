use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::error::SelectorError;
use crate::expression::Program;
use crate::parse;
use crate::value::Properties;

/// A condition over the headers and properties of a message (JMS 3.1, section 3.8), parsed once.
///
/// Cheap to clone. Two are equal when they mean the same as written: blanks, case of keywords,
/// comments and constants that were worked out make no difference.
#[derive(Clone)]
pub struct Selector {
    text: Arc<str>,
    program: Arc<Program>,
}

impl Selector {
    /// Reads a selector. The prefix `convert_string_expressions:` of ActiveMQ makes strings equal
    /// to the numbers and booleans that they spell, for protocols whose headers are all strings;
    /// `no_convert_string_expressions:` says that they are not, as without a prefix.
    ///
    /// An empty text is refused: that it stands for no selector at all (JMS 3.8.1) is the caller's
    /// to know.
    ///
    /// # Errors
    /// [`SelectorError`]: the text is no selector, or one that is not supported; nothing else went
    /// wrong.
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        let program = parse::parse(text)?;
        Ok(Selector { text: text.into(), program: Arc::new(program) })
    }

    /// The text it was parsed from, unchanged.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the message is selected; unknown is no match (JMS 3.8.1.2).
    pub fn matches<P: Properties + ?Sized>(&self, properties: &P) -> bool {
        self.program.matches(properties)
    }

    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.program
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Selector) -> bool {
        self.program == other.program
    }
}

impl Eq for Selector {}

impl Hash for Selector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.program.hash(state);
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Selector({:?})", self.text)
    }
}
