//! LIKE patterns (JMS 3.8.1.2): `_` is one character, `%` any number of them.

/// A pattern, compiled: the literal prefix, and the rest from the first wildcard on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    prefix: Box<str>,
    rest: Box<[Element]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Element {
    Character(char),
    One,
    Any,
}

impl Pattern {
    /// `escape` takes the meaning from a wildcard or another escape after it; elsewhere it is a
    /// character like any other, as it is for ActiveMQ.
    pub(crate) fn new(text: &str, escape: Option<char>) -> Pattern {
        let mut elements = Vec::new();
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let escapes = |next: &char| matches!(next, '_' | '%') || Some(*next) == escape;
            let escaped =
                if Some(character) == escape { characters.next_if(|next| escapes(next)) } else { None };
            let element = match (escaped, character) {
                (Some(literal), _) => Element::Character(literal),
                (None, '%') => Element::Any,
                (None, '_') => Element::One,
                (None, literal) => Element::Character(literal),
            };
            if element != Element::Any || elements.last() != Some(&Element::Any) {
                elements.push(element);
            }
        }
        let literal = |element: &Element| match element {
            Element::Character(character) => Some(*character),
            Element::One | Element::Any => None,
        };
        let prefix: String = elements.iter().map_while(literal).collect();
        let rest = elements.split_off(prefix.chars().count());
        Pattern { prefix: prefix.into(), rest: rest.into() }
    }

    /// The prefix of every matching text.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// No wildcard: the text must equal the prefix.
    pub(crate) fn is_text(&self) -> bool {
        self.rest.is_empty()
    }

    /// One `%` at the end: every text with the prefix matches.
    pub(crate) fn is_prefix(&self) -> bool {
        *self.rest == [Element::Any]
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        match text.strip_prefix(&*self.prefix) {
            Some(behind) => self.is_prefix() || self.rest_matches(behind),
            None => false,
        }
    }

    /// Goes back to the last `%` alone, so that time is at most pattern times text.
    fn rest_matches(&self, text: &str) -> bool {
        let (mut at, mut left) = (0, text);
        let mut back: Option<(usize, &str)> = None;
        loop {
            match (self.rest.get(at), left.chars().next()) {
                (Some(Element::Any), _) => {
                    back = Some((at, left));
                    at += 1;
                }
                (Some(Element::One), Some(next)) => {
                    at += 1;
                    left = &left[next.len_utf8()..];
                }
                (Some(Element::Character(wanted)), Some(next)) if *wanted == next => {
                    at += 1;
                    left = &left[next.len_utf8()..];
                }
                (None, None) => return true,
                _ => {
                    let Some((any, from)) = back else { return false };
                    let Some(skipped) = from.chars().next() else { return false };
                    left = &from[skipped.len_utf8()..];
                    back = Some((any, left));
                    at = any + 1;
                }
            }
        }
    }
}
