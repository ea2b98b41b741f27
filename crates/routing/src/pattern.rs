//! Patterns: names in which `*` stands for any one word, and `>` at the end for any words, or none.

use std::cmp::Ordering;
use std::fmt;

/// Between the words of a name.
const SEPARATOR: char = '.';
/// How the broker's own topics begin.
const OWN_TOPICS: &str = "ActiveMQ.Advisory.";
const ANY_WORD: &str = "*";
const ANY_REST: &str = ">";

/// Words of one pattern: far beyond any scheme of names, and few enough for a tree of patterns to
/// be walked and freed by recursion.
const WORDS_MAX: usize = 128;

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It has more words than a pattern may have.
    #[error("the pattern has {words} words; the limit is {max}")]
    TooLong {
        /// How many it has.
        words: usize,
        /// How many it may have.
        max: usize,
    },
}

/// A name with wildcards, or without. It reads as in ActiveMQ (`DestinationFilter`): words stand
/// between dots, `*` is any one word, and `>` as the last word is all that may follow, nothing
/// included: `a.>` matches `a`. Elsewhere `>` is a word like others, and so is a `*` that is a part
/// of a word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: Box<str>,
}

/// One word of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    /// Itself alone.
    Literal(&'a str),
    /// Any one word.
    Any,
    /// Whatever follows.
    Rest,
}

impl Pattern {
    /// Reads a pattern. Several `>` at the end say no more than one.
    ///
    /// # Errors
    /// [`PatternError`]: it is too long.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let words = text.split(SEPARATOR).count();
        if words > WORDS_MAX {
            return Err(PatternError::TooLong { words, max: WORDS_MAX });
        }
        let mut text = text;
        while let Some(shorter) = text.strip_suffix(".>").filter(|shorter| last_word(shorter) == ANY_REST) {
            text = shorter;
        }
        Ok(Pattern { text: text.into() })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands for more than the one name that it spells.
    pub fn is_wildcard(&self) -> bool {
        is_wildcard(&self.text)
    }

    /// Whether it stands for this name.
    pub fn matches(&self, name: &str) -> bool {
        let mut names = name.split(SEPARATOR);
        for word in self.words() {
            match (word, names.next()) {
                (Word::Rest, _) | (Word::Any, Some(_)) => {}
                (Word::Literal(wanted), Some(found)) if wanted == found => {}
                _ => return false,
            }
            if word == Word::Rest {
                return true;
            }
        }
        names.next().is_none()
    }

    /// Whether a subscription to the pattern gets messages of this topic: the broker's own topics
    /// are for patterns that spell its first word, as MQTT has it for names that begin with `$`
    /// (MQTT-4.7.2-1).
    pub fn reaches(&self, topic: &str) -> bool {
        self.matches(topic) && (!is_own_topic(topic) || matches!(self.words().next(), Some(Word::Literal(_))))
    }

    /// Whether it stands for every name that the other stands for.
    pub fn covers(&self, other: &Pattern) -> bool {
        let mut others = other.words();
        for word in self.words() {
            match (word, others.next()) {
                (Word::Rest, _) => return true,
                (Word::Any, Some(Word::Any | Word::Literal(_))) => {}
                (Word::Literal(wanted), Some(Word::Literal(found))) if wanted == found => {}
                _ => return false,
            }
        }
        others.next().is_none()
    }

    /// Which of two patterns for one name says more about it: `Less` is the narrower one. Where
    /// neither covers the other it is the text that decides, as for ActiveMQ
    /// (`DestinationMap.chooseValue`).
    pub(crate) fn by_narrowness(&self, other: &Pattern) -> Ordering {
        match (self.covers(other), other.covers(self)) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.text.cmp(&other.text),
        }
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = Word<'_>> {
        let mut rest = Some(&*self.text);
        std::iter::from_fn(move || {
            let (word, others) = match rest?.split_once(SEPARATOR) {
                Some((word, others)) => (word, Some(others)),
                None => (rest?, None),
            };
            rest = others;
            Some(match word {
                ANY_WORD => Word::Any,
                ANY_REST if others.is_none() => Word::Rest,
                literal => Word::Literal(literal),
            })
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Whether the broker itself publishes to this topic.
pub fn is_own_topic(name: &str) -> bool {
    name.starts_with(OWN_TOPICS)
}

/// Whether a name, used as a pattern, stands for more than itself.
pub fn is_wildcard(name: &str) -> bool {
    last_word(name) == ANY_REST || name.split(SEPARATOR).any(|word| word == ANY_WORD)
}

/// The words of a name that no pattern is.
pub(crate) fn words_of_name(name: &str) -> impl Iterator<Item = &str> {
    name.split(SEPARATOR)
}

fn last_word(name: &str) -> &str {
    name.rsplit(SEPARATOR).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_activemq() {
        for (pattern, matches, others) in [
            ("a.b", &["a.b"][..], &["a", "a.b.c", "a.B", ""][..]),
            ("a.*", &["a.b", "a."], &["a", "a.b.c", "b.b"]),
            ("*.b", &["a.b", ".b"], &["b", "a.b.c"]),
            ("*", &["a", ""], &["a.b"]),
            ("a.>", &["a", "a.b", "a.b.c"], &["b", "ab", "b.a"]),
            (">", &["a", "a.b", ""], &[]),
            ("a.*.>", &["a.b", "a.b.c"], &["a", "b.b"]),
            ("a.>.>", &["a", "a.b"], &["b"]),
            ("a.>.b", &["a.>.b"], &["a.x.b", "a.b"]),
            ("a*", &["a*"], &["ab"]),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            let wrong = matches.iter().filter(|name| !parsed.matches(name));
            let wrong: Vec<_> = wrong.chain(others.iter().filter(|name| parsed.matches(name))).collect();
            assert!(wrong.is_empty(), "{pattern} is wrong about {wrong:?}");
        }
    }

    #[test]
    fn topics_of_the_broker_are_reached_by_their_first_word() {
        for (pattern, topic, want) in [
            (">", "ActiveMQ.Advisory.Connection", false),
            ("*.Advisory.Connection", "ActiveMQ.Advisory.Connection", false),
            ("ActiveMQ.>", "ActiveMQ.Advisory.Connection", true),
            ("ActiveMQ.Advisory.*", "ActiveMQ.Advisory.Connection", true),
            ("ActiveMQ.Advisory.Queue", "ActiveMQ.Advisory.Connection", false),
            (">", "ActiveMQ.other", true),
            (">", "a", true),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().reaches(topic), want, "{pattern} {topic}");
        }
    }

    #[test]
    fn a_name_without_wildcards_stands_for_itself() {
        for (name, want) in
            [("a.b", false), ("a.*", true), ("a.>", true), (">", true), ("a.>.b", false), ("a*", false)]
        {
            assert_eq!(is_wildcard(name), want, "{name}");
        }
    }

    #[test]
    fn the_narrower_pattern_comes_first() {
        for (case, narrow, wide) in [
            ("name", "a.b", "a.*"),
            ("one word", "a.*", "a.>"),
            ("longer", "a.b.>", "a.>"),
            ("word below", "a.b.>", "a.*.>"),
            ("neither covers the other: the text", "*.b", "a.*"),
            ("nothing more", "a", "a.>"),
        ] {
            let [narrow, wide] = [narrow, wide].map(|text| Pattern::parse(text).unwrap());
            assert_eq!(narrow.by_narrowness(&wide), Ordering::Less, "case: {case}");
            assert_eq!(wide.by_narrowness(&narrow), Ordering::Greater, "case: {case}");
        }
    }

    #[test]
    fn a_pattern_has_a_longest() {
        let longest = vec!["*"; WORDS_MAX].join(".");
        assert_eq!(Pattern::parse(&longest).map(|pattern| pattern.text().len()), Ok(2 * WORDS_MAX - 1));
        let too_long = Pattern::parse(&format!("{longest}.*"));
        assert_eq!(too_long, Err(PatternError::TooLong { words: WORDS_MAX + 1, max: WORDS_MAX }));
    }
}
