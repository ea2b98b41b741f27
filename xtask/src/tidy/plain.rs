//! Plain words: comments and documents use the noun and the term of the field (docs/STYLE.md,
//! "Text").
//!
//! Counted by room. "what" may stand 15 times in 10,000 words, the words of [`TOLD`] three times,
//! the other words nowhere; rooms with older text are in the list of `ratchet`.

use std::collections::BTreeMap;

use super::prose::{CONTENTS, is_document, prose};
use super::ratchet::Counts;
use super::{Fault, Repository};

/// Words that say no more than the noun in their place.
const NEVER: &[&str] = &["nobody", "somebody", "whoever", "anew"];
/// As often as in the code bases that docs/STYLE.md follows.
const WHAT_PER_10_000: usize = 15;
const TOLD: &[&str] = &["told", "tells"];
const TOLD_PER_10_000: usize = 3;

pub fn check(repository: &Repository) -> Vec<Fault> {
    counts(repository).into_iter().flat_map(|(rule, counts)| counts.check(rule, repository)).collect()
}

/// The words of each limit, by room.
pub fn counts(repository: &Repository) -> [(&'static str, Counts); 3] {
    let mut rooms: BTreeMap<String, Room> = BTreeMap::new();
    for (path, source) in repository.rust() {
        let room = rooms.entry(room_of(path)).or_default();
        source.comments().for_each(|(line, text)| room.read(path, line, text));
    }
    for (path, text) in repository.texts().filter(|(path, _)| is_document(path) && *path != CONTENTS) {
        let room = rooms.entry(room_of(path)).or_default();
        prose(text).for_each(|(line, text)| room.read(path, line, text));
    }
    if let Some(text) = repository.text(CONFIGURATION) {
        let room = rooms.entry(room_of(CONFIGURATION)).or_default();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('#')) {
            room.read(CONFIGURATION, index + 1, line);
        }
    }
    let (mut what, mut told, mut never) = (Counts::default(), Counts::default(), Counts::default());
    for (name, room) in rooms {
        let thousands = room.words.div_ceil(1000);
        room.what.into_iter().for_each(|fault| what.add(&name, thousands * WHAT_PER_10_000 / 10, fault));
        room.told.into_iter().for_each(|fault| told.add(&name, thousands * TOLD_PER_10_000 / 10, fault));
        room.never.into_iter().for_each(|fault| never.add(&name, 0, fault));
    }
    [("what", what), ("told", told), ("never", never)]
}

const CONFIGURATION: &str = "docs/postroad.toml";

#[derive(Default)]
struct Room {
    words: usize,
    what: Vec<Fault>,
    told: Vec<Fault>,
    never: Vec<Fault>,
}

impl Room {
    fn read(&mut self, path: &str, line: usize, text: &str) {
        let mut last = String::new();
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_' && c != '`') {
            if word.is_empty() {
                continue;
            }
            let word = word.to_lowercase();
            self.words += 1;
            if word == "what" {
                self.what.push(Fault::new(path, line, "\"what\"", "write the noun"));
            } else if TOLD.contains(&word.as_str()) {
                self.told.push(Fault::new(
                    path,
                    line,
                    format!("\"{word}\""),
                    "write the verb: reports, sends, shows",
                ));
            } else if NEVER.contains(&word.as_str()) {
                self.never.push(Fault::new(path, line, format!("\"{word}\""), "write the noun or the term"));
            } else if last == "so" && word == "many" {
                self.never.push(Fault::new(path, line, "\"so many\"", "write the number or the noun"));
            }
            last = word;
        }
    }
}

/// `crates/NAME`, `docs/FOLDER`, or the first folder; `docs` for the documents of the first level.
pub fn room_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [folder @ ("crates" | "docs"), name, _, ..] => format!("{folder}/{name}"),
        [folder, _, ..] => (*folder).to_owned(),
        _ => "docs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_by_room() {
        for (name, path, text, want) in [
            ("a comment", "crates/core/src/a.rs", "/// Nobody waits.\nfn a() {}", Some("\"nobody\"")),
            ("a string", "crates/core/src/a.rs", "fn a() -> &'static str { \"nobody\" }", None),
            ("a document", "docs/a.md", "begun anew", Some("\"anew\"")),
            ("fenced", "docs/a.md", "```\nbegun anew\n```", None),
            ("two words", "README.md", "so many words", Some("\"so many\"")),
            ("once in a short room", "docs/a.md", "what it is", None),
            ("twice in a short room", "docs/a.md", "what it is, and what not", Some("\"what\"")),
            ("told in a short room", "docs/a.md", "it is told", Some("\"told\"")),
            ("the configuration", CONFIGURATION, "# whoever it is\nkey = 1", Some("\"whoever\"")),
            ("its values", CONFIGURATION, "key = \"whoever\"", None),
        ] {
            let faults = check(&Repository::of(&[(path, text)]));
            let found = faults.first().and_then(|fault| fault.wrong.split(" (").next());
            assert_eq!(found, want, "case: {name}");
        }
    }

    #[test]
    fn a_room_is_a_crate_or_a_folder_of_documents() {
        for (path, want) in [
            ("crates/core/src/a/b.rs", "crates/core"),
            ("xtask/src/main.rs", "xtask"),
            ("docs/features/a.md", "docs/features"),
            ("docs/a.md", "docs"),
            ("README.md", "docs"),
        ] {
            assert_eq!(room_of(path), want);
        }
    }
}
