//! Each room begins with words: its purpose, and the things that must never be in it.

use super::{Fault, Repository};

/// Shorter than this, a first line says nothing.
const PURPOSE_CHARACTERS_MIN: usize = 20;

pub fn check(repository: &Repository) -> Vec<Fault> {
    let roots = repository.sources().filter(|(path, _)| is_crate_root(path));
    roots.flat_map(|(path, source)| header_faults(path, source.original())).collect()
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

fn header_faults<'a>(path: &str, lines: impl Iterator<Item = &'a str>) -> Option<Fault> {
    let header: Vec<&str> = lines.map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let purpose = header.first().copied().unwrap_or_default();
    if purpose.chars().count() < PURPOSE_CHARACTERS_MIN || purpose.starts_with("Placeholder") {
        let right = "begin the file with `//! NAME room: what it is for.`";
        return Some(Fault::new(path, 1, "no header that says what this crate is for", right));
    }
    if !header.iter().any(|line| line.contains("Never here")) {
        let right = "add `//! Never here: …` to the header";
        return Some(Fault::new(path, 1, "the header does not say what never belongs here", right));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_for_and_what_never() {
        let no_purpose = Some("no header that says what this crate is for");
        let no_never = Some("the header does not say what never belongs here");
        for (name, text, want) in [
            ("both", "//! Queue room: decides who gets what.\n//!\n//! Never here: clocks.\n", None),
            ("nothing", "mod a;\n", no_purpose),
            ("placeholder", "//! Placeholder header, replaced later on.\n//! Never here: x.\n", no_purpose),
            ("purpose alone", "//! Queue room: decides who gets what.\n", no_never),
            (
                "never comes too late",
                "//! Queue room: decides who gets what.\nmod a;\n//! Never here: x\n",
                no_never,
            ),
        ] {
            let repository =
                Repository::of(&[("crates/core/src/lib.rs", text), ("crates/core/src/a.rs", "")]);
            let found: Vec<String> = check(&repository).into_iter().map(|fault| fault.wrong).collect();
            assert_eq!(found.first().map(String::as_str), want, "case: {name}");
        }
    }
}
