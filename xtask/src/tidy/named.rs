//! Documents and the binary agree: every metric, command and option that one has, the other has.
//!
//! Commands and options are read from the declarations of the command lines, metrics from the
//! strings of the admin room. Options of `postroad-bench` are left to its `--help`.

use std::collections::{BTreeMap, BTreeSet};

use super::prose::is_document;
use super::{Fault, Repository};

const METRICS: &str = "crates/admin/src/";
const METRICS_PAGE: &str = "docs/features/metrics.md";
const COMMANDS_PAGE: &str = "docs/features/command-line.md";
/// The binaries.
const PROGRAMS: &[Program] = &[
    Program { name: "postroad", sources: "crates/broker/src/cli", page: COMMANDS_PAGE, lists_options: true },
    Program {
        name: "postroad-bench",
        sources: "crates/bench/src/cli",
        page: "docs/features/postroad-bench.md",
        lists_options: false,
    },
];
/// The enum of the first level.
const FIRST: &str = "Command";
/// A name in a file format that looks like a metric, and a line of output that looks like a call.
const NO_METRICS: &[&str] = &["postroad_export"];
const NO_COMMANDS: &[&str] = &["ready"];
/// Endings that a scrape adds to the name of a histogram.
const SERIES: &[&str] = &["_sum", "_count", "_bucket"];

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = metric_faults(repository);
    faults.extend(PROGRAMS.iter().flat_map(|program| command_faults(repository, program)));
    faults
}

// --- metrics
// ------------------------------------------------------------------------------------------------

fn metric_faults(repository: &Repository) -> Vec<Fault> {
    let mut declared: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for (path, source) in repository.sources().filter(|(path, _)| path.starts_with(METRICS)) {
        for (index, line) in source.original().enumerate().filter(|(index, _)| !source.is_test(index + 1)) {
            for name in line.split('"').skip(1).step_by(2).filter(|name| is_metric(name)) {
                declared.entry(name.to_owned()).or_insert((path, index + 1));
            }
        }
    }
    if declared.is_empty() {
        return Vec::new();
    }
    let known = |name: &str| {
        let base = SERIES.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
        declared.contains_key(name) || declared.contains_key(base) || NO_METRICS.contains(&name)
    };
    let mut faults = Vec::new();
    for (path, text) in repository.texts().filter(|(path, _)| is_document(path)) {
        for (index, line) in text.lines().enumerate() {
            for name in metrics_in(line).filter(|name| !known(name)) {
                let right = "correct the name, or remove it";
                faults.push(Fault::new(path, index + 1, format!("there is no metric `{name}`"), right));
            }
        }
    }
    let page = repository.text(METRICS_PAGE).unwrap_or_default();
    for (name, (path, line)) in &declared {
        if !page.contains(&format!("`{name}`")) {
            let right = format!("add its row to {METRICS_PAGE}");
            faults.push(Fault::new(path, *line, format!("`{name}` is not documented"), right));
        }
    }
    faults
}

fn is_metric(name: &str) -> bool {
    name.strip_prefix("postroad_")
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

/// Words of the form `postroad_NAME`, but for names of crates (`postroad_core::…`) and patterns
/// (`postroad_…`).
fn metrics_in(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("postroad_").filter_map(|(at, _)| {
        let rest = &line[at..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        (is_metric(name) && !name.ends_with('_') && !after.starts_with(['*', ':', '…', '.', '/', '-']))
            .then_some(name)
    })
}

// --- commands
// -----------------------------------------------------------------------------------------------

/// A binary with sub-commands.
struct Program {
    name: &'static str,
    /// Where its command line is declared.
    sources: &'static str,
    /// The document that has a table of its commands.
    page: &'static str,
    /// Whether documents describe all of its options.
    lists_options: bool,
}

/// The declarations of the command line.
#[derive(Default)]
struct CommandLine {
    /// Names of commands, with the enum of those below each.
    levels: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Long options, with where the first of that name is declared.
    options: BTreeMap<String, (String, usize)>,
}

impl CommandLine {
    fn read(repository: &Repository, program: &Program) -> CommandLine {
        let mut all = CommandLine::default();
        for (path, text) in repository.texts().filter(|(path, _)| path.starts_with(program.sources)) {
            let lines: Vec<&str> = text.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                if line.contains("derive(") && line.contains("Subcommand") {
                    all.read_enum(&lines[index + 1..]);
                } else if line.trim_start().starts_with("#[arg(") && line.contains("long") {
                    let name = long_name(&lines[index..]);
                    all.options.extend(name.map(|name| (name, (path.to_owned(), index + 1))));
                }
            }
        }
        all.options.extend(["help", "version"].map(|name| (name.to_owned(), (program.page.to_owned(), 1))));
        all
    }

    /// The variants of one enum, which begins within a few lines.
    fn read_enum(&mut self, lines: &[&str]) {
        let Some(start) = lines.iter().take(6).position(|line| line.contains("enum ")) else { return };
        let name = lines[start].split("enum ").nth(1).unwrap_or_default();
        let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
        let mut variants = BTreeMap::new();
        let mut nested = false;
        for line in lines[start + 1..].iter().take_while(|line| !line.starts_with('}')) {
            let line = line.trim();
            nested |= line == "#[command(subcommand)]";
            if line.starts_with(|c: char| c.is_ascii_uppercase()) {
                let variant: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
                let below = line.split(['(', ')']).nth(1).unwrap_or_default();
                let below = below.rsplit("::").next().unwrap_or(below).to_owned();
                variants.insert(kebab(&variant), nested.then_some(below));
                nested = false;
            }
        }
        self.levels.insert(name, variants);
    }

    /// All commands, as they are typed.
    fn commands(&self) -> BTreeSet<String> {
        let mut commands = BTreeSet::new();
        for (name, below) in self.levels.get(FIRST).into_iter().flatten() {
            match below.as_ref().and_then(|below| self.levels.get(below)) {
                Some(level) => commands.extend(level.keys().map(|second| format!("{name} {second}"))),
                None => {
                    commands.insert(name.clone());
                }
            }
        }
        commands
    }
}

fn command_faults(repository: &Repository, program: &Program) -> Vec<Fault> {
    let declared = CommandLine::read(repository, program);
    let commands = declared.commands();
    if commands.is_empty() {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let mut named = BTreeSet::new();
    for (path, text) in repository.texts().filter(|(path, _)| is_document(path)) {
        named.extend(options_in(text).map(str::to_owned));
        let mut fenced = false;
        for (index, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            for call in calls_in(program.name, line, fenced) {
                if let Some(wrong) = wrong_call(program, call, &commands, &declared.options) {
                    faults.push(Fault::new(path, index + 1, wrong, "correct the call"));
                }
            }
        }
    }
    let page = repository.text(program.page).unwrap_or_default();
    for command in commands.iter().filter(|command| !is_on_page(page, command)) {
        let right = "add it to the table of commands";
        faults.push(Fault::new(program.page, 1, format!("`{command}` is not documented"), right));
    }
    if !program.lists_options {
        return faults;
    }
    for (option, (path, line)) in declared.options.iter().filter(|(option, _)| !named.contains(*option)) {
        let right = format!("describe it in {}, or on the page of its feature", program.page);
        faults.push(Fault::new(path, *line, format!("`--{option}` is not documented"), right));
    }
    faults
}

/// A row may name several commands of one noun: `` `user add`, `remove` ``.
fn is_on_page(page: &str, command: &str) -> bool {
    let (noun, verb) = command.split_once(' ').unwrap_or((command, ""));
    page.contains(&format!("`{command}"))
        || page
            .lines()
            .any(|line| line.starts_with(&format!("| `{noun} ")) && line.contains(&format!("`{verb}`")))
}

/// Calls of a program in one line: all of a code line, or the text in back-ticks.
fn calls_in<'l>(program: &str, line: &'l str, fenced: bool) -> impl Iterator<Item = &'l str> {
    let whole = line.trim_start().trim_start_matches("$ ");
    let whole = (fenced || line.starts_with("    ")).then_some(whole);
    let ticked = line.split('`').skip(1).step_by(2);
    ticked.chain(whole).filter_map(|call| {
        let (path, rest) = call.split_once(' ')?;
        (path.rsplit('/').next() == Some(program)).then_some(rest)
    })
}

fn wrong_call(
    program: &Program,
    call: &str,
    commands: &BTreeSet<String>,
    options: &BTreeMap<String, (String, usize)>,
) -> Option<String> {
    let name = program.name;
    let call = call.split([';', '|', '>', '#', '&']).next().unwrap_or(call);
    let words: Vec<&str> = call.split_whitespace().collect();
    let first = *words.first()?;
    if NO_COMMANDS.contains(&first)
        || first.starts_with('-')
        || !first.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    {
        return None;
    }
    let plain =
        |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
    let nouns = format!("{first} ");
    if commands.iter().any(|command| command.starts_with(&nouns)) {
        let second = words.get(1).filter(|word| plain(word))?;
        if !commands.contains(&format!("{first} {second}")) {
            return Some(format!("there is no command `{name} {first} {second}`"));
        }
    } else if !commands.contains(first) {
        return Some(format!("there is no command `{name} {first}`"));
    }
    if !program.lists_options {
        return None;
    }
    let option = words.iter().filter_map(|word| word.strip_prefix("--"));
    let option = option.map(|word| word.split(['=', ']', ',', ')', '.']).next().unwrap_or(word));
    let unknown = option.into_iter().find(|option| !option.is_empty() && !options.contains_key(*option))?;
    Some(format!("`{name} {first}` has no option `--{unknown}`"))
}

/// Names after `--`, anywhere in a document.
fn options_in(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("--").filter_map(|(at, _)| {
        let rest = &text[at + 2..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
        (0 < end).then_some(&rest[..end])
    })
}

/// `long = "NAME"`, or the name of the field below.
fn long_name(lines: &[&str]) -> Option<String> {
    if let Some(given) = lines[0].split("long = \"").nth(1) {
        return given.split('"').next().map(str::to_owned);
    }
    let field = lines[1..]
        .iter()
        .map(|line| line.trim())
        .find(|line| !line.starts_with('#') && line.contains(':'))?;
    let name = field.trim_start_matches("pub ").split(':').next()?;
    Some(name.replace('_', "-"))
}

fn kebab(variant: &str) -> String {
    let mut out = String::new();
    for c in variant.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLI: (&str, &str) = (
        "crates/broker/src/cli.rs",
        "#[derive(Debug, Subcommand)]\nenum Command {\n    /// Run.\n    Serve(Serve),\n    #[command(subcommand)]\n    Store(store::Store),\n}\n#[derive(Subcommand)]\npub enum Store {\n    Abandon(A),\n}\nstruct Serve {\n    #[arg(long, value_name = \"N\")]\n    pub port_offset: u16,\n}\n",
    );

    const BENCH: (&str, &str) = (
        "crates/bench/src/cli/mod.rs",
        "#[derive(Debug, Subcommand)]\nenum Command {\n    /// Measure.\n    Disk(Disk),\n}\nstruct Disk {\n    #[arg(long)]\n    json: bool,\n}\n",
    );

    fn wrongs(text: &str) -> Vec<String> {
        let page = format!("`serve` `store abandon` `--port-offset` --help --version\n\n{text}");
        let repository = Repository::of(&[CLI, BENCH, (COMMANDS_PAGE, &page), (PROGRAMS[1].page, "`disk`")]);
        check(&repository).into_iter().map(|fault| fault.wrong).collect()
    }

    #[test]
    fn documents_name_commands_and_options_that_exist() {
        for (name, text, want) in [
            ("good", "`postroad serve --port-offset 1` and `postroad store abandon DIR`", None),
            ("command", "`postroad dance`", Some("there is no command `postroad dance`")),
            ("second word", "    postroad store dance", Some("there is no command `postroad store dance`")),
            ("option", "`postroad serve --port 1`", Some("`postroad serve` has no option `--port`")),
            ("after a pipe", "    postroad serve | sort --reverse", None),
            ("prose", "postroad dances", None),
            ("the second program", "`postroad-bench disk --what` and `bin/postroad-bench disk`", None),
            ("its commands", "    postroad-bench serve", Some("there is no command `postroad-bench serve`")),
        ] {
            assert_eq!(wrongs(text).first().map(String::as_str), want, "case: {name}");
        }
    }

    #[test]
    fn commands_and_options_are_documented() {
        let repository = Repository::of(&[CLI, (COMMANDS_PAGE, "`serve` --help --version")]);
        let wrongs: Vec<String> = check(&repository).into_iter().map(|fault| fault.wrong).collect();
        assert_eq!(wrongs, ["`store abandon` is not documented", "`--port-offset` is not documented"]);
        let wrongs: Vec<String> =
            check(&Repository::of(&[BENCH])).into_iter().map(|fault| fault.wrong).collect();
        assert_eq!(wrongs, ["`disk` is not documented"], "options are left to --help");
    }

    #[test]
    fn metrics_and_their_page_agree() {
        let code = ("crates/admin/src/metrics.rs", "fn all() { gauge(\"postroad_depth\", \"messages\"); }\n");
        for (name, page, want) in [
            ("good", "`postroad_depth` and `postroad_depth_sum`, postroad_core::a, `postroad_*`", None),
            ("unknown", "`postroad_depth` `postroad_dept`", Some("there is no metric `postroad_dept`")),
            ("not documented", "", Some("`postroad_depth` is not documented")),
        ] {
            let faults = check(&Repository::of(&[code, (METRICS_PAGE, page)]));
            assert_eq!(faults.first().map(|fault| fault.wrong.as_str()), want, "case: {name}");
        }
    }
}
