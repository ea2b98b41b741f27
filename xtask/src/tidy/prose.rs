//! Documents and comments read well: lines of at most 100 columns, tables of short cells with as
//! many in each row.
//!
//! Read are all documents, without fences and indented code, and lines of Rust that are comments
//! alone. Older text is in the list of `ratchet`.

use super::plain::room_of;
use super::ratchet::Counts;
use super::{Fault, Repository};

/// A list of links, one to a line.
pub const CONTENTS: &str = "docs/SUMMARY.md";
const COLUMNS_MAX: usize = 100;
const CELL_WORDS_MAX: usize = 15;

pub fn check(repository: &Repository) -> Vec<Fault> {
    counts(repository).into_iter().flat_map(|(rule, counts)| counts.check(rule, repository)).collect()
}

/// Lines too long, cells too long and rows of another length, by document; long comments by room.
pub fn counts(repository: &Repository) -> [(&'static str, Counts); 4] {
    let (mut columns, mut cells, mut rows) = (Counts::default(), Counts::default(), Counts::default());
    let mut comments = Counts::default();
    for (path, source) in repository.rust() {
        for (index, line) in source.original().enumerate() {
            if is_comment(line) && too_wide(line) {
                let wrong = format!("a comment of {} columns", line.chars().count());
                comments.add(
                    &room_of(path),
                    0,
                    Fault::new(path, index + 1, wrong, "wrap comments at 100 columns"),
                );
            }
        }
    }
    for (path, text) in repository.texts().filter(|(path, _)| is_document(path)) {
        let mut width = None;
        for (line, text) in prose(text) {
            if !text.trim_start().starts_with('|') {
                width = None;
                if path != CONTENTS && too_wide(text) {
                    let wrong = format!("{} columns", text.chars().count());
                    columns.add(path, 0, Fault::new(path, line, wrong, "wrap prose at 100 columns"));
                }
                continue;
            }
            let row = split_row(text);
            if let Some(cell) = row.iter().find(|cell| CELL_WORDS_MAX < cell.split_whitespace().count()) {
                let wrong = format!("a cell of {} words", cell.split_whitespace().count());
                cells.add(path, 0, Fault::new(path, line, wrong, "at most 15; move the rest into prose"));
            }
            if *width.get_or_insert(row.len()) != row.len() {
                let wrong = format!("a row of {} cells in a table of {}", row.len(), width.unwrap_or(0));
                rows.add(path, 0, Fault::new(path, line, wrong, "as many as in the first row"));
            }
        }
    }
    [("columns", columns), ("cells", cells), ("rows", rows), ("comments", comments)]
}

/// Documents that people read as prose.
pub fn is_document(path: &str) -> bool {
    path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/"))
}

/// Numbered lines of prose and tables: no fences, no indented code, no comments for machines.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let mut list = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            fenced = !fenced;
            return None;
        }
        // Within a list, indented text belongs to its item.
        if !line.starts_with(' ') && !line.is_empty() {
            list = trimmed.starts_with(['-', '*']) || trimmed.starts_with(|c: char| c.is_ascii_digit());
        }
        let code = line.starts_with("    ") && !list;
        (!fenced && !code && !trimmed.starts_with("<!--")).then_some((index + 1, line))
    })
}

/// A line of Rust that is a comment of words: tables and drawings may be wider.
fn is_comment(line: &str) -> bool {
    let text = line.trim_start();
    let words = text.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']));
    words.is_some_and(|words| !words.contains(" | ") && !words.starts_with("  ") && words.is_ascii())
}

/// A line that could be shorter: one long link or path cannot.
fn too_wide(line: &str) -> bool {
    let longest = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    COLUMNS_MAX < line.chars().count() && longest < COLUMNS_MAX - 20 && !line.starts_with('#')
}

/// Cells of one row; `\|` and a bar in back-ticks separate none.
fn split_row(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for c in line.trim().trim_start_matches('|').chars() {
        match c {
            '|' if !escaped => cells.push(String::new()),
            _ => {
                if let Some(cell) = cells.last_mut() {
                    cell.push(c);
                }
            }
        }
        escaped = c == '\\';
    }
    if cells.last().is_some_and(|cell| cell.trim().is_empty()) {
        cells.pop();
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_and_cells_are_faults() {
        let long = "word ".repeat(21);
        let link = format!("see [{}](x)", "w".repeat(99));
        let cell = format!("| a | {} |", "w ".repeat(16));
        for (name, text, want) in [
            ("short", "a line", None),
            ("long", long.as_str(), Some("105 columns (1 in docs/a.md, at most 0)")),
            ("one long word", link.as_str(), None),
            ("code", &format!("    {long}"), None),
            ("fenced", &format!("```\n{long}\n```"), None),
            ("in a list", &format!("- a\n    {long}"), Some("109 columns (1 in docs/a.md, at most 0)")),
            ("a long cell", cell.as_str(), Some("a cell of 16 words (1 in docs/a.md, at most 0)")),
            ("even rows", "| a | b |\n|---|---|\n| `x\\|y` | |", None),
            (
                "uneven rows",
                "| a | b |\n|---|---|\n| a | b | c |",
                Some("a row of 3 cells in a table of 2 (1 in docs/a.md, at most 0)"),
            ),
            ("two tables", "| a | b |\n\n| a |", None),
        ] {
            let faults = check(&Repository::of(&[("docs/a.md", text)]));
            assert_eq!(faults.first().map(|fault| fault.wrong.as_str()), want, "case: {name}");
        }
    }

    #[test]
    fn long_comments_are_faults_of_their_room() {
        let long = "word ".repeat(21);
        for (name, text, want) in [
            ("a comment", format!("/// {long}\nfn a() {{}}"), 1),
            ("of a module", format!("//! {long}"), 1),
            ("short", "/// A word.".to_owned(), 0),
            ("a table", format!("//! | {long} |"), 0),
            ("a drawing", format!("//!   a ──▶ {long}"), 0),
            ("code", format!("const A: &str = \"{long}\";"), 0),
        ] {
            let faults = check(&Repository::of(&[("crates/core/src/a.rs", &text)]));
            assert_eq!(faults.len(), want, "case: {name}");
        }
    }
}
