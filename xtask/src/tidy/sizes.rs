//! No file over 800 lines, no function over 70, tests not counted; the excused ones may only
//! shrink.

use std::collections::BTreeMap;

use super::{Fault, Repository};

/// Above this, a file holds more than one idea (house style, "Size").
const FILE_LINES_MAX: usize = 800;
/// Above this, a function does not fit a screen (house style, "Size").
const FUNCTION_LINES_MAX: usize = 70;
const EXCUSED: &str = "xtask/src/excused.txt";

/// `file PATH` or `function PATH NAME`.
type Name = String;

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    let excuses = excuses(repository.text(EXCUSED).unwrap_or_default(), &mut faults);
    let mut needed: BTreeMap<Name, usize> = BTreeMap::new();
    for (path, source) in repository.sources() {
        let name = format!("file {path}");
        let lines = source.code_lines();
        if FILE_LINES_MAX < lines {
            hold(
                &excuses,
                &mut faults,
                &name,
                lines,
                Fault::new(path, 1, too_long("file", lines), split(FILE_LINES_MAX)),
            );
            needed.insert(name, lines);
        }
        for function in source.functions().filter(|function| FUNCTION_LINES_MAX < function.lines) {
            let name = format!("function {path} {}", function.name);
            let wrong = too_long(&format!("function `{}`", function.name), function.lines);
            let fault = Fault::new(path, function.line, wrong, split(FUNCTION_LINES_MAX));
            hold(&excuses, &mut faults, &name, function.lines, fault);
            let longest = needed.entry(name).or_default();
            *longest = function.lines.max(*longest);
        }
    }
    faults.extend(
        excuses.iter().filter_map(|(name, excuse)| not_needed(name, excuse, needed.get(name).copied())),
    );
    faults
}

/// The number of lines that one entry allows, and its place in the list.
struct Excuse {
    lines_max: usize,
    at: usize,
}

fn excuses(text: &str, faults: &mut Vec<Fault>) -> BTreeMap<Name, Excuse> {
    let mut excuses = BTreeMap::new();
    for (index, line) in
        text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty())
    {
        match line.rsplit_once(' ').map(|(name, lines)| (name, lines.parse())) {
            Some((name, Ok(lines_max))) => {
                excuses.insert(name.to_owned(), Excuse { lines_max, at: index + 1 });
            }
            _ => {
                let right = "write `file PATH LINES` or `function PATH NAME LINES`";
                faults.push(Fault::new(EXCUSED, index + 1, "this is no excuse", right));
            }
        }
    }
    excuses
}

fn hold(excuses: &BTreeMap<Name, Excuse>, faults: &mut Vec<Fault>, name: &str, lines: usize, fault: Fault) {
    if excuses.get(name).is_none_or(|excuse| excuse.lines_max < lines) {
        faults.push(fault);
    }
}

fn not_needed(name: &str, excuse: &Excuse, needed: Option<usize>) -> Option<Fault> {
    match needed {
        None => Some(Fault::new(EXCUSED, excuse.at, format!("`{name}` needs no excuse"), "delete this line")),
        Some(lines) if lines < excuse.lines_max => {
            let wrong = format!("`{name}` is excused for {} lines and has {lines}", excuse.lines_max);
            Some(Fault::new(EXCUSED, excuse.at, wrong, format!("write {lines}")))
        }
        Some(_) => None,
    }
}

fn too_long(what: &str, lines: usize) -> String {
    format!("{what} has {lines} lines")
}

fn split(max: usize) -> String {
    format!("split it by idea; at most {max} are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn long_functions_need_an_excuse_that_fits() {
        const PATH: &str = "crates/core/src/a.rs";
        let want_none: &[&str] = &[];
        for (name, lines, excused, want) in [
            ("just fits", 70, "", want_none),
            ("too long", 71, "", &["function `long` has 71 lines"]),
            ("excused", 71, "function crates/core/src/a.rs long 71\n", want_none),
            (
                "grew past its excuse",
                72,
                "function crates/core/src/a.rs long 71\n",
                &["function `long` has 72 lines"],
            ),
            (
                "shrank below its excuse",
                71,
                "# why\nfunction crates/core/src/a.rs long 90\n",
                &["`function crates/core/src/a.rs long` is excused for 90 lines and has 71"],
            ),
            (
                "needs none any more",
                9,
                "function crates/core/src/a.rs long 90\n",
                &["`function crates/core/src/a.rs long` needs no excuse"],
            ),
            ("no excuse at all", 9, "because\n", &["this is no excuse"]),
        ] {
            let repository = Repository::of(&[(PATH, &function_of(lines)), (EXCUSED, excused)]);
            let found: Vec<String> = check(&repository).into_iter().map(|fault| fault.wrong).collect();
            assert_eq!(found, want, "case: {name}");
        }
    }

    #[test]
    fn long_files_are_faults_but_tests_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(900));
        for (name, text, want) in [
            ("just fits", "// x\n".repeat(800), 0),
            ("too long", "// x\n".repeat(801), 1),
            ("tests do not count", tests, 0),
        ] {
            assert_eq!(
                check(&Repository::of(&[("crates/core/src/a.rs", &text)])).len(),
                want,
                "case: {name}"
            );
        }
    }
}
