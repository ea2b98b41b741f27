//! Documents read well: lines of at most 100 columns, tables of short cells with as many in each row.
//!
//! Read are all documents, without fences and indented code. Older pages are in the list of
//! `ratchet`.

use super::ratchet::Counts;
use super::{Fault, Repository};

/// A list of links, one to a line.
pub const CONTENTS: &str = "docs/SUMMARY.md";
const COLUMNS_MAX: usize = 100;
const CELL_WORDS_MAX: usize = 15;

pub fn check(repository: &Repository) -> Vec<Fault> {
    let [columns, cells, rows] = counts(repository);
    let mut faults = columns.1.check(columns.0, repository);
    faults.extend(cells.1.check(cells.0, repository));
    faults.extend(rows.1.check(rows.0, repository));
    faults
}

/// Lines too long, cells too long and rows of another length, by document.
pub fn counts(repository: &Repository) -> [(&'static str, Counts); 3] {
    let (mut columns, mut cells, mut rows) = (Counts::default(), Counts::default(), Counts::default());
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
    [("columns", columns), ("cells", cells), ("rows", rows)]
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
}
