//! The repository as the rules see it: its files, their text, and its Rust sources with comments
//! and strings masked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::commits::Commit;
use super::rust_text::RustText;

/// The last commit before the rule of subjects and bodies.
const BEFORE_COMMIT_RULE: &str = "d5cb76836a4e";

/// Every file that git tracks or would track, by its path from the first folder.
#[derive(Default)]
pub struct Repository {
    /// All of them, those that are no text too.
    paths: BTreeSet<String>,
    texts: BTreeMap<String, String>,
    rust: BTreeMap<String, RustText>,
    /// Those since the rule about them exists.
    commits: Vec<Commit>,
}

impl Repository {
    /// Reads the files under `root` that git does not ignore; a file that is not UTF-8 text is
    /// passed over.
    ///
    /// # Errors
    /// When git cannot list the files, or one of them cannot be read.
    pub fn read(root: &Path) -> anyhow::Result<Repository> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot start git, which tidy needs to list the project's files")?;
        ensure!(
            listing.status.success(),
            "git ls-files: {}",
            String::from_utf8_lossy(&listing.stderr).trim()
        );
        let mut repository = Repository::default();
        for path in String::from_utf8_lossy(&listing.stdout).split_terminator('\0') {
            let file = root.join(path);
            // A file deleted from the work tree but not yet from the index is none to check.
            if !file.is_file() {
                continue;
            }
            let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
            repository.paths.insert(path.to_owned());
            if let Ok(text) = String::from_utf8(bytes) {
                repository.add(path, text);
            }
        }
        repository.mark_test_modules();
        repository.commits = commits(root);
        Ok(repository)
    }

    /// A repository made of the given files, for the tests of the rules.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Repository {
        let mut repository = Repository::default();
        for (path, text) in files {
            repository.add(path, (*text).to_owned());
        }
        repository.mark_test_modules();
        repository
    }

    /// One more commit, for the tests of the rule.
    #[cfg(test)]
    pub fn add_commit(&mut self, id: &str, message: &str) {
        self.commits.push(Commit { id: id.to_owned(), message: message.to_owned() });
    }

    /// Commits that the rule about them holds for; none where that history is missing.
    pub fn commits(&self) -> &[Commit] {
        &self.commits
    }

    fn add(&mut self, path: &str, text: String) {
        if path.ends_with(".rs") {
            self.rust.insert(path.to_owned(), RustText::new(&text));
        }
        self.paths.insert(path.to_owned());
        self.texts.insert(path.to_owned(), text);
    }

    /// `#[cfg(test)] mod tests;` makes tests of a whole file, or folder.
    fn mark_test_modules(&mut self) {
        let mut roots = Vec::new();
        for (path, source) in &self.rust {
            let base = module_folder(path);
            roots.extend(source.outlined_test_modules.iter().map(|name| format!("{base}{name}")));
        }
        for (path, source) in &mut self.rust {
            let tested =
                |root: &String| path == &format!("{root}.rs") || path.starts_with(&format!("{root}/"));
            if roots.iter().any(tested) {
                source.all_tests();
            }
        }
    }

    /// All text files with their paths, sorted by path.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// The sources that are built into something: those of the rooms and of these chores, no
    /// outside tests.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &RustText)> {
        self.rust.iter().map(|(path, source)| (path.as_str(), source)).filter(|(path, _)| is_source(path))
    }

    /// All Rust files, tests and fuzz targets among them.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &RustText)> {
        self.rust.iter().map(|(path, source)| (path.as_str(), source))
    }

    /// Names of the rooms: the folders under `crates/` that have a `Cargo.toml`.
    pub fn rooms(&self) -> Vec<&str> {
        let manifests = self.texts.keys().filter_map(|path| path.strip_prefix("crates/"));
        manifests
            .filter_map(|path| path.strip_suffix("/Cargo.toml"))
            .filter(|name| !name.contains('/'))
            .collect()
    }

    /// Whether `path` is a file of the repository or a folder with such a file in it.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
    }
}

/// None of a copy whose history is cut off.
fn commits(root: &Path) -> Vec<Commit> {
    let range = format!("{BEFORE_COMMIT_RULE}..HEAD");
    let log = Command::new("git")
        .args(["log", "-z", "--no-merges", "--format=%h%n%B", &range])
        .current_dir(root)
        .output();
    let Some(log) = log.ok().filter(|log| log.status.success()) else { return Vec::new() };
    let log = String::from_utf8_lossy(&log.stdout);
    let commits = log.split_terminator('\0').filter_map(|entry| entry.split_once('\n'));
    commits.map(|(id, message)| Commit { id: id.to_owned(), message: message.to_owned() }).collect()
}

fn is_source(path: &str) -> bool {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates") => parts.nth(1) == Some("src"),
        Some("xtask") => parts.next() == Some("src"),
        _ => false,
    }
}

/// The folder in which the modules declared in `path` lie, with its slash.
fn module_folder(path: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let (folder, file) = stem.rsplit_once('/').unwrap_or(("", stem));
    match file {
        "lib" | "main" | "mod" => format!("{folder}/"),
        _ => format!("{stem}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_test_module_is_tests_and_its_neighbour_is_not() {
        let repository = Repository::of(&[
            ("crates/core/src/queue.rs", "#[cfg(test)]\nmod tests;\nmod order;\n"),
            ("crates/core/src/queue/tests.rs", "fn case() {}\n"),
            ("crates/core/src/queue/tests/deep.rs", "fn case() {}\n"),
            ("crates/core/src/queue/order.rs", "fn order() {}\n"),
        ]);
        let tests: Vec<(&str, bool)> =
            repository.rust().map(|(path, source)| (path, source.is_test(1))).collect();
        let want = vec![
            ("crates/core/src/queue.rs", true),
            ("crates/core/src/queue/order.rs", false),
            ("crates/core/src/queue/tests.rs", true),
            ("crates/core/src/queue/tests/deep.rs", true),
        ];
        assert_eq!(tests, want);
    }

    #[test]
    fn a_path_exists_as_file_or_as_folder() {
        let mut repository = Repository::of(&[("crates/core/Cargo.toml", ""), ("docs/locks.md", "")]);
        repository.paths.insert("fixtures/kept/no-text.bin".to_owned());
        for (path, want) in [
            ("docs/locks.md", true),
            ("docs", true),
            ("docs/", true),
            ("doc", false),
            ("docs/l", false),
            ("fixtures/kept", true),
        ] {
            assert_eq!(repository.has(path), want, "case: {path}");
        }
        assert_eq!(repository.rooms(), vec!["core"]);
    }
}
