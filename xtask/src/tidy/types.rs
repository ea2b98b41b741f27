//! One type, one idea: no type over 25 fields, 60 methods or 6 files with methods of its own. Tests
//! do not count.
//!
//! Methods are those of `impl Type`, not of traits. Larger types are in the list of `ratchet`, by
//! crate and name.

use std::collections::BTreeSet;

use super::ratchet::Counts;
use super::rust_text::RustText;
use super::{Fault, Repository};

const FIELDS_MAX: usize = 25;
const METHODS_MAX: usize = 60;
const FILES_MAX: usize = 6;

pub fn check(repository: &Repository) -> Vec<Fault> {
    counts(repository).into_iter().flat_map(|(rule, counts)| counts.check(rule, repository)).collect()
}

/// Fields, methods and files of each type, by crate and name.
pub fn counts(repository: &Repository) -> [(&'static str, Counts); 3] {
    let (mut fields, mut methods, mut files) = (Counts::default(), Counts::default(), Counts::default());
    for (path, source) in repository.sources() {
        let mut seen = BTreeSet::new();
        for item in items(source) {
            let place = format!("{}::{}", crate_of(path), item.name);
            let fault = |line, what: &str, right| {
                Fault::new(path, line, format!("`{}` has too many {what}", item.name), right)
            };
            match item.kind {
                Kind::Struct => {
                    let right = "at most 25; give each feature a type of its own";
                    item.lines.iter().for_each(|line| {
                        fields.add(&place, FIELDS_MAX, fault(*line, "fields", right));
                    });
                }
                Kind::Impl => {
                    let right = "at most 60; give each feature a type of its own";
                    item.lines.iter().for_each(|line| {
                        methods.add(&place, METHODS_MAX, fault(*line, "methods", right));
                    });
                    if seen.insert(item.name.clone()) {
                        let right = "at most 6; methods belong next to their type";
                        files.add(&place, FILES_MAX, fault(item.line, "files with methods", right));
                    }
                }
            }
        }
    }
    [("fields", fields), ("methods", methods), ("files", files)]
}

/// `crates/core` of `crates/core/src/a.rs`; `xtask` of `xtask/src/a.rs`.
fn crate_of(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(room, _)| room)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Struct,
    Impl,
}

/// A struct or the methods of a type, as one piece of a file.
struct Item {
    kind: Kind,
    name: String,
    line: usize,
    /// One for each field or method.
    lines: Vec<usize>,
}

/// The items that begin at the first column, as rustfmt writes them.
fn items(source: &RustText) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut is_open = false;
    for (line, text) in source.code() {
        if text.starts_with('}') {
            is_open = false;
        } else if let Some((kind, name)) = begun(text) {
            is_open = !text.trim_end().ends_with([';', '}']);
            items.push(Item { kind, name, line, lines: Vec::new() });
        } else if let Some(item) = items.last_mut().filter(|_| is_open) {
            let is_part = match item.kind {
                Kind::Struct => is_field(text),
                Kind::Impl => is_method(text),
            };
            item.lines.extend(is_part.then_some(line));
        }
    }
    items
}

/// The item that this line begins.
fn begun(text: &str) -> Option<(Kind, String)> {
    let text = without_visibility(text);
    if let Some(rest) = text.strip_prefix("struct ") {
        return Some((Kind::Struct, word(rest)));
    }
    let rest = text.strip_prefix("impl")?;
    let rest = if rest.starts_with('<') { behind_generics(rest)? } else { rest };
    let rest = rest.strip_prefix(' ')?;
    (!rest.contains(" for ")).then(|| (Kind::Impl, word(rest)))
}

fn without_visibility(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("pub") else { return text };
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.trim_start()
}

/// Behind the `>` that closes the `<` at the begin.
fn behind_generics(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let end = text.char_indices().find(|(at, character)| {
        match character {
            '<' => depth += 1,
            '>' if !text[..*at].ends_with('-') => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map(|(at, _)| &text[at + 1..])
}

fn word(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

/// A line of an item's own, one step in.
fn own(text: &str) -> Option<&str> {
    text.strip_prefix("    ").filter(|rest| !rest.starts_with([' ', '#', '}', ')'])).map(without_visibility)
}

fn is_field(text: &str) -> bool {
    own(text).is_some_and(|rest| rest[word(rest).len()..].starts_with(':') && !word(rest).is_empty())
}

fn is_method(text: &str) -> bool {
    own(text).is_some_and(|rest| {
        let mut rest = rest;
        while let Some(next) = ["const ", "async ", "unsafe "].iter().find_map(|word| rest.strip_prefix(word))
        {
            rest = next;
        }
        rest.starts_with("fn ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::ratchet::LIST;

    fn type_of(fields: usize, methods: usize) -> String {
        let fields: String = (0..fields).map(|number| format!("    pub(crate) f{number}: u8,\n")).collect();
        let methods: String = (0..methods)
            .map(|number| format!("    pub const fn m{number}(&self) {{\n        let a: u8;\n    }}\n"))
            .collect();
        format!("pub struct Big<'a> {{\n{fields}}}\n\nimpl<'a> Big<'a> {{\n{methods}}}\n")
    }

    #[test]
    fn large_types_are_faults_unless_they_are_listed() {
        let path = "crates/core/src/a.rs";
        for (name, fields, methods, list, want) in [
            ("just fits", 25, 60, "", None),
            ("too many fields", 26, 1, "", Some("(26 in crates/core::Big, at most 25)")),
            ("too many methods", 1, 61, "", Some("(61 in crates/core::Big, at most 60)")),
            ("listed", 30, 1, "fields crates/core::Big 30", None),
            ("grew", 31, 1, "fields crates/core::Big 30", Some("(31 in crates/core::Big, at most 30)")),
        ] {
            let faults = check(&Repository::of(&[(path, &type_of(fields, methods)), (LIST, list)]));
            let got = faults.first().map(|fault| fault.wrong.as_str());
            assert_eq!(got.is_some(), want.is_some(), "case: {name}: {got:?}");
            assert!(got.unwrap_or_default().ends_with(want.unwrap_or_default()), "case: {name}: {got:?}");
        }
    }

    #[test]
    fn methods_in_many_files_are_faults() {
        let paths: Vec<String> = (0..7).map(|number| format!("crates/core/src/f{number}.rs")).collect();
        let text = "impl Big {\n    fn a() {}\n}\n\nimpl Default for Big {\n    fn b() {}\n}\n";
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), text)).collect();
        assert_eq!(check(&Repository::of(&files)).len(), 1);
        assert!(check(&Repository::of(&files[..6])).is_empty());
    }
}
