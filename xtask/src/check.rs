//! Check: the inner loop. Format, lints, tidy, and the unit tests of the crates that a change
//! touches.
//!
//! A crate counts as changed if a file of it differs from the commit where the branch left
//! `origin/main` (or from `HEAD` where there is no such branch), committed or not. Crates that use
//! a changed one are compiled, but only the changed crates run their tests: `make test` runs them
//! all.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::verify::cargo;

/// Runs the checks of the changed crates; stops at the first that fails.
///
/// # Errors
/// Names the tool that failed, or says why the changed files are unknown.
pub fn check(root: &Path) -> anyhow::Result<()> {
    cargo(root, &["fmt", "--all", "--check"])?;
    crate::tidy::run(root)?;
    let packages = packages_of(&changed_files(root)?);
    if packages.is_empty() {
        eprintln!("check: no crate has changed");
        return Ok(());
    }
    eprintln!("check: {}", packages.iter().cloned().collect::<Vec<_>>().join(", "));
    let selected: Vec<&str> = packages.iter().flat_map(|name| ["--package", name.as_str()]).collect();
    let quiet = ["--quiet", "--locked"];
    cargo(root, &[&["clippy"], &quiet[..], &selected, &["--all-targets", "--", "-D", "warnings"]].concat())?;
    cargo(root, &[&["test"], &quiet[..], &selected, &["--lib", "--bins"]].concat())
}

/// The packages whose files are among these paths.
fn packages_of(paths: &[String]) -> BTreeSet<String> {
    let package = |path: &String| {
        let mut parts = path.split('/');
        match (parts.next()?, parts.next()?, parts.next()) {
            ("crates", room, Some(_)) => Some(format!("postroad-{room}")),
            ("xtask", ..) => Some("xtask".to_owned()),
            _ => None,
        }
    };
    paths.iter().filter_map(package).collect()
}

/// Paths that differ from the base of the branch, and those that git does not know yet.
fn changed_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let base = git(root, &["merge-base", "HEAD", "origin/main"]).unwrap_or_else(|_| "HEAD".to_owned());
    let changed = git(root, &["diff", "--name-only", "--diff-filter=d", base.trim()])?;
    let unknown = git(root, &["ls-files", "--others", "--exclude-standard"])?;
    Ok(changed.lines().chain(unknown.lines()).map(str::to_owned).collect())
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("failed: git {}", arguments.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_package() {
        for (name, path, want) in [
            ("a source file", "crates/core/src/lib.rs", Some("postroad-core")),
            ("a manifest", "crates/node/Cargo.toml", Some("postroad-node")),
            ("a chore", "xtask/src/main.rs", Some("xtask")),
            ("a document", "docs/GLOSSARY.md", None),
            ("a folder of crates alone", "crates/core", None),
        ] {
            let want: BTreeSet<String> = want.map(str::to_owned).into_iter().collect();
            assert_eq!(packages_of(&[path.to_owned()]), want, "case: {name}");
        }
    }
}
