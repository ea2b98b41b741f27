//! Tidy: the rules of the house that a program can hold.
//!
//! Every rule reads the [`Repository`] and adds [`Fault`]s; none writes. A fault gives the place,
//! the error and its correction.

mod fault;
mod repository;
mod rust_text;

mod ratchet;

mod banned;
mod citations;
mod commits;
mod documents;
mod edges;
mod headers;
mod named;
mod plain;
mod prose;
mod registries;
mod seeds;
mod sizes;
mod types;
mod words;

use std::path::Path;

use anyhow::{Context, bail};

pub use fault::Fault;
pub use repository::Repository;

/// One rule: its name, and the function that looks for faults.
type Rule = (&'static str, fn(&Repository) -> Vec<Fault>);

const RULES: &[Rule] = &[
    ("headers", headers::check),
    ("sizes", sizes::check),
    ("types", types::check),
    ("banned calls", banned::check),
    ("random seeds", seeds::check),
    ("crate edges", edges::check),
    ("documents", documents::check),
    ("citations", citations::check),
    ("words", words::check),
    ("plain words", plain::check),
    ("prose", prose::check),
    ("named things", named::check),
    ("commits", commits::check),
    ("registries", registries::check),
];

/// Holds every rule against the repository under `root` and prints each fault on standard error.
///
/// # Errors
/// When a rule is broken, or the repository cannot be read.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let faults = check(&Repository::read(root)?);
    for (rule, fault) in &faults {
        eprintln!("{fault} [{rule}]");
    }
    match faults.len() {
        0 => Ok(()),
        count => bail!("tidy: {count} fault(s)"),
    }
}

/// Writes lower counts into the list of older text that breaks the rules.
///
/// # Errors
/// When the repository cannot be read, the list not be written, or a place is over its limit.
pub fn shrink(root: &Path) -> anyhow::Result<()> {
    let repository = Repository::read(root)?;
    let prose = plain::counts(&repository).into_iter().chain(prose::counts(&repository));
    let rules: Vec<_> = prose.chain(types::counts(&repository)).collect();
    let shrunk = ratchet::shrunk(repository.text(ratchet::LIST).unwrap_or_default(), &rules);
    std::fs::write(root.join(ratchet::LIST), shrunk.list)
        .with_context(|| format!("cannot write {}", ratchet::LIST))?;
    match shrunk.refused.as_slice() {
        [] => Ok(()),
        refused => bail!("the list may only shrink; correct these places instead:\n{}", refused.join("\n")),
    }
}

fn check(repository: &Repository) -> Vec<(&'static str, Fault)> {
    RULES
        .iter()
        .flat_map(|(name, rule)| rule(repository).into_iter().map(move |fault| (*name, fault)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let repository = Repository::read(&crate::repository_root()).unwrap();
        let faults = check(&repository);
        let report: Vec<String> = faults.iter().map(|(rule, fault)| format!("{fault} [{rule}]")).collect();
        assert!(report.is_empty(), "\n{}\n", report.join("\n"));
    }
}
