//! A tree of names, by word: values of names, and those that a pattern matches, in order and from
//! any place on.

use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};

use crate::pattern::{Pattern, Word};

/// Limit of the words by which names are distinguished; the last one holds the rest of a longer
/// name. The tree is walked and freed by recursion, so this bounds the stack.
const WORDS_MAX: usize = 128;

/// Values by name. A pattern visits only the branches that it may match.
#[derive(Clone, Debug)]
pub struct NameMap<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Node<T> {
    here: Option<T>,
    children: BTreeMap<Box<str>, Node<T>>,
}

impl<T> Default for Node<T> {
    fn default() -> Node<T> {
        Node { here: None, children: BTreeMap::new() }
    }
}

impl<T> Default for NameMap<T> {
    fn default() -> NameMap<T> {
        NameMap { root: Node::default(), len: 0 }
    }
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.splitn(WORDS_MAX, '.')
}

impl<T> NameMap<T> {
    /// How many names have a value.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of the name.
    pub fn get(&self, name: &str) -> Option<&T> {
        words(name).try_fold(&self.root, |node, word| node.children.get(word))?.here.as_ref()
    }

    /// The value of the name, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        words(name).try_fold(&mut self.root, |node, word| node.children.get_mut(word))?.here.as_mut()
    }

    /// The value of the name, made by `new` on first use.
    pub fn get_or_insert_with(&mut self, name: &str, new: impl FnOnce() -> T) -> &mut T {
        let node =
            words(name).fold(&mut self.root, |node, word| node.children.entry(word.into()).or_default());
        self.len += usize::from(node.here.is_none());
        node.here.get_or_insert_with(new)
    }

    /// Removes the name, and the branches of the tree that only it needs.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        let words: Vec<&str> = words(name).collect();
        let removed = self.root.remove(&words)?;
        self.len -= 1;
        Some(removed)
    }

    /// The first value after the name `after` whose name the pattern matches, in the order of the
    /// words.
    pub fn next(&self, pattern: &Pattern, after: Option<&str>) -> Option<&T> {
        let wanted: Vec<Word<'_>> = pattern.words().collect();
        let after: Option<Vec<&str>> = after.map(|after| words(after).collect());
        self.root.next(&wanted, after.as_deref(), 0, &mut Vec::new(), pattern)
    }
}

impl<T> Node<T> {
    fn remove(&mut self, words: &[&str]) -> Option<T> {
        let Some((word, rest)) = words.split_first() else { return self.here.take() };
        let child = self.children.get_mut(*word)?;
        let removed = child.remove(rest);
        if child.here.is_none() && child.children.is_empty() {
            self.children.remove(*word);
        }
        removed
    }

    /// As [`NameMap::next`], within this branch. `after` are the words of the last name seen, if
    /// that is in the branch: this node then has been seen.
    fn next<'a>(
        &'a self,
        wanted: &[Word<'_>],
        after: Option<&[&str]>,
        depth: usize,
        path: &mut Vec<&'a str>,
        pattern: &Pattern,
    ) -> Option<&'a T> {
        let ends_here = matches!(wanted, [] | [Word::Rest]) || depth == WORDS_MAX;
        if let Some(here) = self.here.as_ref().filter(|_| after.is_none() && ends_here && depth > 0)
            && (depth < WORDS_MAX || pattern.matches(&path.join(".")))
        {
            return Some(here);
        }
        let seen = after.and_then(<[&str]>::first).copied();
        let (from, rest) = match wanted {
            [] => return None,
            [Word::Rest] => (seen.map_or(Unbounded, Included), wanted),
            // The last word of a long name may hold several.
            [Word::Literal(word), rest @ ..] if depth + 1 < WORDS_MAX => {
                return match seen.is_none_or(|seen| seen <= *word) {
                    true => {
                        self.child(word, rest, after.filter(|_| seen == Some(*word)), depth, path, pattern)
                    }
                    false => None,
                };
            }
            [_, rest @ ..] => (seen.map_or(Unbounded, Included), rest),
        };
        let children = self.children.range::<str, _>((from, Unbounded));
        for (word, _) in children {
            let after = after.filter(|_| seen == Some(word));
            if let Some(found) = self.child(word, rest, after, depth, path, pattern) {
                return Some(found);
            }
        }
        None
    }

    fn child<'a>(
        &'a self,
        word: &str,
        rest: &[Word<'_>],
        after: Option<&[&str]>,
        depth: usize,
        path: &mut Vec<&'a str>,
        pattern: &Pattern,
    ) -> Option<&'a T> {
        let (word, child) = self.children.get_key_value(word)?;
        path.push(word);
        let found = child.next(rest, after.map(|after| &after[1..]), depth + 1, path, pattern);
        path.pop();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(names: &[&str]) -> NameMap<String> {
        let mut map = NameMap::default();
        for name in names {
            map.get_or_insert_with(name, || (*name).to_owned());
        }
        map
    }

    fn all<'a>(map: &'a NameMap<String>, pattern: &str) -> Vec<&'a str> {
        let pattern = Pattern::parse(pattern).unwrap();
        let mut found: Vec<&str> = Vec::new();
        while let Some(next) = map.next(&pattern, found.last().copied()) {
            found.push(next);
        }
        found
    }

    #[test]
    fn a_pattern_finds_what_it_matches_one_after_the_other() {
        let deep = vec!["d"; 200].join(".");
        let names = ["a", "a.b", "a.b.c", "a.c", "a-b", "b", "b.b", "b.c.c", "", "a.", "a..b", &deep];
        let map = map(&names);
        for pattern in
            [">", "*", "a.>", "a.*", "*.b", "*.*", "a.*.c", "b", "a.b.>", "x", "x.>", "a..b", "d.>", "*.*.>"]
        {
            let parsed = Pattern::parse(pattern).unwrap();
            let mut want: Vec<&str> = names.into_iter().filter(|name| parsed.matches(name)).collect();
            let mut found = all(&map, pattern);
            want.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, want, "{pattern}");
        }
    }

    #[test]
    fn what_is_removed_leaves_nothing() {
        let mut map = map(&["a.b.c", "a.b", "x"]);
        assert_eq!(
            (map.len(), map.remove("a.b.c"), map.remove("a.b.c")),
            (3, Some("a.b.c".to_owned()), None)
        );
        assert_eq!((map.get("a.b").map(String::as_str), map.get("a")), (Some("a.b"), None));
        assert_eq!(all(&map, ">"), ["a.b", "x"]);
        map.remove("a.b");
        map.remove("x");
        assert!(map.is_empty() && map.root.children.is_empty());
    }
}
