//! Selector room: parses, evaluates and indexes JMS selectors (JMS 3.1, section 3.8).
//!
//! In: the text of a selector, and the headers and properties of a message behind [`Properties`].
//! Out: whether the message matches, or which of many installed selectors do ([`SelectorIndex`]).
//! Never here: messages, codecs, clocks, IO, randomness. Never a panic or an unbounded recursion on
//! any text or value from outside.
//! Start at [`Selector::parse`]; then `expression.rs`, the form that is evaluated and indexed.
//!
//! Grammar and meaning are those of ActiveMQ Classic wherever it departs from JMS on purpose:
//! arithmetic on strings (`name + '!'`), division that is always exact to a double, comments,
//! reserved words, `<>` as the negation of `=`. JMS wins in four places: `NOT` binds looser than a
//! comparison (`NOT a = 1` is `NOT (a = 1)`), a comparison with a missing value is unknown on
//! either side, strings and booleans have no order, and literals may have the suffixes of Java.

mod error;
mod evaluate;
mod explain;
mod expression;
mod fold;
mod index;

mod like;
mod parse;
mod selector;
mod token;
mod value;
mod xpath;

pub use error::{Found, Reason, SelectorError};
pub use explain::Fact;
pub use index::SelectorIndex;

pub use selector::Selector;
pub use value::{AtDelivery, Properties, Value};
