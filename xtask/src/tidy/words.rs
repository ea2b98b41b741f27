//! The project speaks of itself alone: words about how or where it was written stay out of it.

use super::{Fault, Repository};

/// Forbidden words in two halves, so that this file does not contain them. Case does not matter.
const FORBIDDEN: &[(&str, &str)] = &[
    ("ai ", "agent"),
    ("ai-", "generated"),
    ("ai ", "assistant"),
    ("sub", "agent"),
    ("this ", "session's"),
    ("language ", "model"),
    ("co-authored", "-by:"),
    ("/work", "/main"),
    ("/work", "/shared"),
    ("/work", "/.mirror"),
    ("/tmp/", "target-"),
];

pub fn check(repository: &Repository) -> Vec<Fault> {
    let words: Vec<String> = FORBIDDEN.iter().map(|(head, tail)| format!("{head}{tail}")).collect();
    let mut faults = Vec::new();
    for (path, text) in repository.texts() {
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            let found = words.iter().find(|word| line.contains(word.as_str()));
            faults.extend(found.map(|word| {
                Fault::new(
                    path,
                    index + 1,
                    format!("`{word}` does not belong here"),
                    "speak of the project alone",
                )
            }));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_about_elsewhere_are_faults() {
        let elsewhere = ["See /work", "/shared for more."].concat();
        let written_by = ["An AI ", "Agent wrote this."].concat();
        for (name, text, want) in [
            ("a path of one machine", elsewhere.as_str(), 1),
            ("an author", written_by.as_str(), 1),
            ("our own words", "A session is one client's conversation; its agent is a user agent.", 0),
        ] {
            assert_eq!(check(&Repository::of(&[("docs/a.md", text)])).len(), want, "case: {name}");
        }
    }
}
