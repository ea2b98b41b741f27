//! A tree of patterns: the values of those that match a name, without evaluating each.

use std::collections::BTreeMap;

use crate::pattern::{Pattern, Word, words_of_name};

/// Values by pattern.
///
/// A look-up visits only nodes that match the name so far: one node for each word where no
/// wildcards are, and never one twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternMap<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node<T> {
    literal: BTreeMap<Box<str>, Node<T>>,
    any: Option<Box<Node<T>>>,
    /// The pattern that ends here.
    here: Option<(Pattern, T)>,
    /// The pattern that ends here with `>`.
    rest: Option<(Pattern, T)>,
}

impl<T> Default for Node<T> {
    fn default() -> Node<T> {
        Node { literal: BTreeMap::new(), any: None, here: None, rest: None }
    }
}

impl<T> Default for PatternMap<T> {
    fn default() -> PatternMap<T> {
        PatternMap { root: Node::default(), len: 0 }
    }
}

impl<T> PatternMap<T> {
    /// How many patterns it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of exactly this pattern.
    pub fn get(&self, pattern: &Pattern) -> Option<&T> {
        let mut node = &self.root;
        for word in pattern.words() {
            node = match word {
                Word::Literal(word) => node.literal.get(word)?,
                Word::Any => node.any.as_deref()?,
                Word::Rest => return node.rest.as_ref().map(|(_, value)| value),
            };
        }
        node.here.as_ref().map(|(_, value)| value)
    }

    /// The value of exactly this pattern, to change it; a new one is made if there is none.
    pub fn get_or_insert_with(&mut self, pattern: &Pattern, make: impl FnOnce() -> T) -> &mut T {
        let mut node = &mut self.root;
        let mut ends_with_rest = false;
        for word in pattern.words() {
            node = match word {
                Word::Literal(word) => node.literal.entry(word.into()).or_default(),
                Word::Any => node.any.get_or_insert_default(),
                Word::Rest => {
                    ends_with_rest = true;
                    break;
                }
            };
        }
        let place = if ends_with_rest { &mut node.rest } else { &mut node.here };
        self.len += usize::from(place.is_none());
        &mut place.get_or_insert_with(|| (pattern.clone(), make())).1
    }

    /// Takes the pattern and its value out.
    pub fn remove(&mut self, pattern: &Pattern) -> Option<T> {
        let words: Vec<Word<'_>> = pattern.words().collect();
        let removed = self.root.remove(&words)?;
        self.len -= 1;
        Some(removed)
    }

    /// Calls `visit` with each pattern that matches the name, in no particular order but always the
    /// same.
    pub fn each_match<'a>(&'a self, name: &str, visit: &mut impl FnMut(&'a Pattern, &'a T)) {
        if self.is_empty() {
            return;
        }
        let words: Vec<&str> = words_of_name(name).collect();
        self.root.each_match(&words, visit);
    }

    /// The narrowest pattern that matches the name: an exact name, otherwise one that no other
    /// covers.
    pub fn narrowest(&self, name: &str) -> Option<(&Pattern, &T)> {
        let mut found: Vec<(&Pattern, &T)> = Vec::new();
        self.each_match(name, &mut |pattern, value| found.push((pattern, value)));
        let covers_another = |pattern: &Pattern| {
            found
                .iter()
                .any(|(other, _)| *other != pattern && pattern.covers(other) && !other.covers(pattern))
        };
        let narrowest = found.iter().filter(|(pattern, _)| !covers_another(pattern));
        narrowest.min_by(|one, other| one.0.by_narrowness(other.0)).copied()
    }
}

impl<T> Node<T> {
    fn is_empty(&self) -> bool {
        self.literal.is_empty() && self.any.is_none() && self.here.is_none() && self.rest.is_none()
    }

    fn remove(&mut self, words: &[Word<'_>]) -> Option<T> {
        match words {
            [] => self.here.take().map(|(_, value)| value),
            [Word::Rest, ..] => self.rest.take().map(|(_, value)| value),
            [Word::Any, others @ ..] => {
                let node = self.any.as_mut()?;
                let removed = node.remove(others);
                if node.is_empty() {
                    self.any = None;
                }
                removed
            }
            [Word::Literal(word), others @ ..] => {
                let node = self.literal.get_mut(*word)?;
                let removed = node.remove(others);
                if node.is_empty() {
                    self.literal.remove(*word);
                }
                removed
            }
        }
    }

    fn each_match<'a>(&'a self, words: &[&str], visit: &mut impl FnMut(&'a Pattern, &'a T)) {
        if let Some((pattern, value)) = &self.rest {
            visit(pattern, value);
        }
        let Some((word, others)) = words.split_first() else {
            if let Some((pattern, value)) = &self.here {
                visit(pattern, value);
            }
            return;
        };
        if let Some(node) = self.literal.get(*word) {
            node.each_match(others, visit);
        }
        if let Some(node) = &self.any {
            node.each_match(others, visit);
        }
    }
}
