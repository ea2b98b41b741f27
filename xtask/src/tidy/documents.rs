//! Documents name things that exist: paths, rooms in the map, commands and make targets.
//!
//! Read are README.md, ARCHITECTURE.md and everything under docs/. A path is a text in back-ticks
//! or in a link and begins with a file or folder of the repository's first level. Text in fences is
//! not read for paths. An anchor in a link is a heading of its page, and each page is in the table
//! of contents. A decision fits on a page.

use super::{Fault, Repository};

const MAP: &str = "ARCHITECTURE.md";
const CONTENTS: &str = "docs/SUMMARY.md";
/// A page of paper.
const DECISION_LINES_MAX: usize = 60;
const README: &str = "README.md";
const MAKEFILE: &str = "Makefile";
/// Where the sub-commands of the binary are declared; the first that exists counts.
const COMMAND_LINES: &[&str] = &["crates/broker/src/cli.rs", "crates/broker/src/cli/mod.rs"];
/// Folders of the first level, as they stand or are planned: a path into them must exist.
const FOLDERS: &[&str] =
    &["crates", "docs", "tests", "fixtures", "fuzz", "xtask", "bench", "scripts", "console", ".ci", ".cargo"];

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repository.texts().filter(|(path, _)| is_document(path)) {
        for (line, named) in named_paths(path, text) {
            if !repository.has(&named) {
                let right = "correct the path, or remove it";
                faults.push(Fault::new(path, line, format!("`{named}` does not exist"), right));
            }
        }
    }
    faults.extend(anchor_faults(repository));
    faults.extend(contents_faults(repository));
    faults.extend(book_faults(repository));
    faults.extend(decision_faults(repository));
    faults.extend(map_faults(repository));
    faults.extend(command_faults(repository));
    faults
}

fn is_document(path: &str) -> bool {
    path == README || path == MAP || (path.starts_with("docs/") && path.ends_with(".md"))
}

/// Paths named in one document, from the repository's first folder, with their lines.
fn named_paths(document: &str, text: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let ticked = line.split('`').skip(1).step_by(2).filter_map(repository_path);
        let linked = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let linked = linked.filter_map(|target| linked_path(document, target));
        paths.extend(ticked.chain(linked).map(|path| (index + 1, path)));
    }
    paths
}

/// The text in back-ticks, if it is a path of this repository: no pattern, no words around it.
fn repository_path(ticked: &str) -> Option<String> {
    let pattern = |c: char| c.is_whitespace() || "*{}<>$…\"'(),=|".contains(c);
    let folder = ticked.split_once('/').map(|(folder, _)| folder)?;
    if ticked.contains(pattern) || ticked.contains("NNNN") || !FOLDERS.contains(&folder) {
        return None;
    }
    let path = ticked.split(['#', ':']).next().unwrap_or(ticked);
    Some(path.trim_end_matches('/').to_owned())
}

/// Target of a link, seen from the folder of its document; `None` for the web and for anchors.
fn linked_path(document: &str, target: &str) -> Option<String> {
    let path = target.split(['#', ' ']).next().unwrap_or(target);
    if path.is_empty() || path.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// `FILE.md#HEADING` and `#HEADING` name a heading that is there.
fn anchor_faults(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repository.texts().filter(|(path, _)| is_document(path)) {
        for (line, text) in super::prose::prose(text) {
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for (file, anchor) in targets.filter_map(|target| target.split_once('#')) {
                let named = if file.is_empty() { Some(path.to_owned()) } else { linked_path(path, file) };
                let Some(target) = named.as_deref().and_then(|named| repository.text(named)) else {
                    continue;
                };
                if !super::prose::prose(target).any(|(_, line)| slug(line).as_deref() == Some(anchor)) {
                    let right = "name a heading of that page, in small letters with hyphens";
                    faults.push(Fault::new(
                        path,
                        line,
                        format!("there is no heading `{file}#{anchor}`"),
                        right,
                    ));
                }
            }
        }
    }
    faults
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn slug(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
}

/// Each page under docs/ is in the table of contents; that listed pages exist is held as links.
fn contents_faults(repository: &Repository) -> Vec<Fault> {
    let Some(contents) = repository.text(CONTENTS) else { return Vec::new() };
    let pages = repository.texts().filter_map(|(path, _)| path.strip_prefix("docs/"));
    let pages = pages.filter(|page| page.ends_with(".md") && *page != "SUMMARY.md" && !page.contains("0000"));
    let missing = pages.filter(|page| !contents.contains(&format!("]({page})")));
    missing
        .map(|page| Fault::new(CONTENTS, 1, format!("`{page}` is not listed"), "add a line for it"))
        .collect()
}

/// A link from a page to a page stays within the built pages, which are those of the contents.
fn book_faults(repository: &Repository) -> Vec<Fault> {
    let Some(contents) = repository.text(CONTENTS) else { return Vec::new() };
    let is_built = |target: &str| {
        let page = target.strip_prefix("docs/");
        page.is_some_and(|page| contents.contains(&format!("]({page})")))
    };
    let pages = repository.texts().filter(|(path, _)| path.starts_with("docs/") && is_document(path));
    let mut faults = Vec::new();
    for (path, text) in pages.filter(|(path, _)| *path != CONTENTS) {
        for (line, text) in super::prose::prose(text) {
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let targets = targets.filter_map(|target| linked_path(path, target));
            for target in targets.filter(|target| target.ends_with(".md") && !is_built(target)) {
                let right = "name the file in back-ticks, or list it in docs/SUMMARY.md";
                faults.push(Fault::new(path, line, format!("`{target}` is not a built page"), right));
            }
        }
    }
    faults
}

/// A decision is read to the end: one page, with its measurements elsewhere.
fn decision_faults(repository: &Repository) -> Vec<Fault> {
    let is_decision = |path: &str| {
        let number = path.strip_prefix("docs/decisions/").and_then(|name| name.split('-').next());
        number.is_some_and(|number| number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let pages = repository.texts().filter(|(path, _)| is_decision(path));
    let long = pages.filter(|(_, text)| DECISION_LINES_MAX < text.lines().count());
    let fault = |(path, text): (&str, &str)| {
        let what = format!("{} lines, at most {DECISION_LINES_MAX}", text.lines().count());
        Fault::new(path, 1, what, "shorten it, or move measurements to docs/decisions/measurements.md")
    };
    long.map(fault).collect()
}

/// The map has one row `` | `crates/NAME` | … | `` for every room; that each row exists is held as
/// a path.
fn map_faults(repository: &Repository) -> Vec<Fault> {
    let Some(map) = repository.text(MAP) else {
        return vec![Fault::new(
            MAP,
            1,
            "the map is missing",
            "write one page: map of rooms, way of a message, never list",
        )];
    };
    let missing =
        |room: &&str| !map.lines().any(|line| line.trim().starts_with(&format!("| `crates/{room}` |")));
    let rooms = repository.rooms();
    let missing = rooms.iter().filter(|room| missing(room));
    missing
        .map(|room| Fault::new(MAP, 1, format!("no row for `crates/{room}`"), "add it to the map"))
        .collect()
}

/// `postroad NAME` and `make NAME` in the README, fences included, must be there to be called.
fn command_faults(repository: &Repository) -> Vec<Fault> {
    let readme = repository.text(README).unwrap_or_default();
    let makefile = repository.text(MAKEFILE).unwrap_or_default();
    let command_line = COMMAND_LINES.iter().find_map(|path| repository.text(path));
    let mut faults = Vec::new();
    let mut fenced = false;
    for (index, line) in readme.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        let calls: Vec<&str> =
            if fenced { vec![line.trim()] } else { line.split('`').skip(1).step_by(2).collect() };
        for call in calls {
            if let (Some(name), Some(source)) = (named_after(call, "postroad"), command_line)
                && !declares_command(source, name)
            {
                faults.push(Fault::new(
                    README,
                    index + 1,
                    format!("`postroad {name}` is no command"),
                    "name one that is",
                ));
            }
            if let Some(name) = named_after(call, "make")
                && !makefile.lines().any(|line| line.starts_with(&format!("{name}:")))
            {
                faults.push(Fault::new(
                    README,
                    index + 1,
                    format!("`make {name}` is no target"),
                    "name one that is",
                ));
            }
        }
    }
    faults
}

/// The word that follows `program` at the start of a call, whatever folder the program is called
/// from.
fn named_after<'a>(call: &'a str, program: &str) -> Option<&'a str> {
    let mut words = call.trim_start_matches("$ ").split_whitespace();
    let called = words.next()?.rsplit('/').next()?;
    let name = words.next()?;
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !name.starts_with('-');
    (called == program && plain).then_some(name)
}

/// Simple text: a variant `DryRun`, or the literal `"dry-run"`.
fn declares_command(source: &str, name: &str) -> bool {
    let capital = |part: &str| part[..1].to_uppercase() + &part[1..];
    let variant: String = name.split('-').filter(|part| !part.is_empty()).map(capital).collect();
    let variant = |line: &str| {
        line.trim()
            .strip_prefix(&variant)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '{', '(', ',']))
    };
    source.contains(&format!("\"{name}\"")) || source.lines().any(variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrongs(files: &[(&str, &str)]) -> Vec<String> {
        check(&Repository::of(files)).into_iter().map(|fault| fault.wrong).collect()
    }

    #[test]
    fn named_paths_exist() {
        for (name, text, want) in [
            ("file", "see `docs/locks.md`", None),
            ("folder", "see `docs/`", None),
            ("with a line", "see `docs/locks.md:7`", None),
            ("missing", "see `docs/lock.md`", Some("`docs/lock.md` does not exist")),
            ("missing in a planned folder", "see `console/src`", Some("`console/src` does not exist")),
            ("a pattern", "see `crates/*/src` and `docs/decisions/NNNN-title.md`", None),
            ("something else with a slash", "`text/plain`", None),
            ("link beside the document", "[locks](locks.md#order)", None),
            ("link upwards", "[locks](../docs/locks.md)", None),
            ("missing link", "[locks](docs/locks.md)", Some("`docs/docs/locks.md` does not exist")),
            ("the web", "[a](https://example.org/docs/x) \n## Here\n[b](#here)", None),
            ("fenced", "```\n`docs/lock.md`\n```", None),
        ] {
            let found = wrongs(&[("docs/a.md", text), ("docs/locks.md", "## Order"), (MAP, "")]);
            assert_eq!(found.first().map(String::as_str), want, "case: {name}");
        }
    }

    #[test]
    fn anchors_are_headings_and_pages_are_listed() {
        let page = ("docs/b.md", "# B\n\n## Who may use it?\n\n```\n# no heading\n```\n");
        for (name, text, want) in [
            ("elsewhere", "[b](b.md#who-may-use-it)", None),
            ("here", "## A-b `c`\n[here](#a-b-c)", None),
            ("missing", "[b](b.md#who)", Some("there is no heading `b.md#who`")),
            ("in a fence", "[b](b.md#no-heading)", Some("there is no heading `b.md#no-heading`")),
        ] {
            let found = wrongs(&[("docs/a.md", text), page, (MAP, "")]);
            assert_eq!(found.first().map(String::as_str), want, "case: {name}");
        }
        let listed = wrongs(&[page, ("docs/SUMMARY.md", "[a](a.md)"), ("docs/a.md", ""), (MAP, "")]);
        assert_eq!(listed, ["`b.md` is not listed"]);
        let outside = ("docs/a.md", "[map](../ARCHITECTURE.md) and [a](a.md)");
        let built = wrongs(&[("docs/SUMMARY.md", "[a](a.md)"), outside, (MAP, "")]);
        assert_eq!(built, ["`ARCHITECTURE.md` is not a built page"]);
    }

    #[test]
    fn a_decision_fits_on_a_page() {
        let lines = |count: usize| "line\n".repeat(count);
        for (path, count, want) in [
            ("docs/decisions/0001-a.md", DECISION_LINES_MAX, 0),
            ("docs/decisions/0001-a.md", DECISION_LINES_MAX + 1, 1),
            ("docs/decisions/measurements.md", DECISION_LINES_MAX + 1, 0),
        ] {
            let found = wrongs(&[(path, &lines(count)), (MAP, "")]);
            assert_eq!(found.len(), want, "{path}: {found:?}");
        }
    }

    #[test]
    fn the_map_and_the_rooms_agree() {
        let rooms = ("crates/core/Cargo.toml", "");
        assert_eq!(wrongs(&[rooms]), ["the map is missing"]);
        assert_eq!(wrongs(&[rooms, (MAP, "")]), ["no row for `crates/core`"]);
        assert_eq!(wrongs(&[rooms, (MAP, "| `crates/core` | the state machine |")]), [""; 0]);
        let both = "| `crates/core` | a |\n| `crates/attic` | b |";
        assert_eq!(wrongs(&[rooms, (MAP, both)]), ["`crates/attic` does not exist"]);
    }

    #[test]
    fn the_readme_names_commands_that_exist() {
        let cli = ("crates/broker/src/cli.rs", "enum Command {\n    Serve(Serve),\n    DryRun,\n}\n");
        let make = (MAKEFILE, "run: build\n\tx\n");
        for (name, text, want) in [
            ("command", "`postroad serve --data d` and `target/release/postroad dry-run`", None),
            ("option is no command", "`postroad --help`", None),
            ("missing command", "`postroad dance`", Some("`postroad dance` is no command")),
            ("missing in a fence", "```\n$ postroad dance\n```", Some("`postroad dance` is no command")),
            ("target", "`make run`", None),
            ("missing target", "```\nmake tea\n```", Some("`make tea` is no target")),
            ("plain words", "make tea", None),
        ] {
            let found = wrongs(&[(README, text), (MAP, ""), cli, make]);
            assert_eq!(found.first().map(String::as_str), want, "case: {name}");
        }
        assert_eq!(wrongs(&[(README, "`postroad dance`"), (MAP, "")]), [""; 0], "no command line yet");
    }
}
