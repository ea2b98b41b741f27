//! Calls that may not appear in source, per room.
//!
//! Text is searched with comments, strings and tests out of the way. Randomness and the clock reach
//! a pure room only inside a command, so that every run can be replayed.

use super::edges::PURE_ROOMS;
use super::{Fault, Repository};

/// Where a ban holds.
#[derive(Clone, Copy)]
enum Scope {
    AllRooms,
    PureRooms,
    /// Everywhere but the files that speak to a person at a terminal.
    BehindTheCommandLine,
}

struct Ban {
    text: &'static str,
    scope: Scope,
    right: &'static str,
}

const fn ban(text: &'static str, scope: Scope, right: &'static str) -> Ban {
    Ban { text, scope, right }
}

const ERROR: &str = "return an error, or assert an invariant of our own with `expect(\"why it holds\")`";
const TIME: &str = "take the time from the command";
const SEED: &str = "take the random number, or a seed, from the command";
const IO: &str = "report an effect, and let the runtime do the input and output";
const LOG: &str = "log with `tracing`, or print from the binary's command line";

const BANS: &[Ban] = &[
    ban(".unwrap()", Scope::AllRooms, ERROR),
    ban("panic!", Scope::AllRooms, ERROR),
    ban("todo!", Scope::AllRooms, "finish it, or leave it out"),
    ban("unimplemented!", Scope::AllRooms, "finish it, or leave it out"),
    ban("SystemTime::now", Scope::PureRooms, TIME),
    ban("Instant::now", Scope::PureRooms, TIME),
    ban("std::fs", Scope::PureRooms, IO),
    ban("std::net", Scope::PureRooms, IO),
    ban("tokio::", Scope::PureRooms, IO),
    ban("rand::", Scope::PureRooms, SEED),
    ban("fastrand::", Scope::PureRooms, SEED),
    ban("getrandom::", Scope::PureRooms, SEED),
    ban("RandomState", Scope::PureRooms, SEED),
    ban("println!", Scope::BehindTheCommandLine, LOG),
    ban("print!", Scope::BehindTheCommandLine, LOG),
];

/// The files that speak to a person at a terminal.
const COMMAND_LINE: &[&str] = &[
    "crates/broker/src/main.rs",
    "crates/broker/src/cli.rs",
    "crates/broker/src/cli/",
    "crates/bench/src/main.rs",
];

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repository.sources() {
        let Some(room) = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) else {
            continue;
        };
        let bans: Vec<&Ban> = BANS.iter().filter(|ban| applies(ban.scope, room, path)).collect();
        for (number, line) in source.code() {
            let broken = bans.iter().filter(|ban| calls(line, ban.text));
            faults
                .extend(broken.map(|ban| {
                    Fault::new(path, number, format!("`{}` is banned here", ban.text), ban.right)
                }));
            if PURE_ROOMS.contains(&room) && imports_io_in_a_group(line) {
                faults.push(Fault::new(path, number, "`std::{fs, net}` is banned here", IO));
            }
        }
    }
    faults
}

fn applies(scope: Scope, room: &str, path: &str) -> bool {
    match scope {
        Scope::AllRooms => true,
        Scope::PureRooms => PURE_ROOMS.contains(&room),
        Scope::BehindTheCommandLine => !COMMAND_LINE.iter().any(|allowed| path.starts_with(allowed)),
    }
}

/// Does `text` stand in `line` as a whole word, not as the end of another?
fn calls(line: &str, text: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(text).any(|(at, _)| {
        let begins = text.starts_with('.') || !line[..at].ends_with(word);
        let ends = !text.ends_with(word) || !line[at + text.len()..].starts_with(word);
        begins && ends
    })
}

/// `use std::{fmt, net::IpAddr};`
fn imports_io_in_a_group(line: &str) -> bool {
    let group = line.split_once("std::{").map(|(_, group)| group).unwrap_or_default();
    group.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == "fs" || word == "net")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bans_hold_in_their_rooms_only() {
        for (name, path, line, want) in [
            ("unwrap", "crates/net/src/a.rs", "x.unwrap();", Some("`.unwrap()` is banned here")),
            ("unwrap_or is another call", "crates/net/src/a.rs", "x.unwrap_or(1);", None),
            ("panic", "crates/net/src/a.rs", "panic!(\"no\");", Some("`panic!` is banned here")),
            ("a path is no panic", "crates/net/src/a.rs", "std::panic::catch_unwind(f);", None),
            ("unwrap in a test", "crates/net/src/a.rs", "#[test] fn t() { x.unwrap(); }", None),
            ("unwrap in a comment", "crates/net/src/a.rs", "// x.unwrap()", None),
            ("unwrap in these chores", "xtask/src/a.rs", "x.unwrap();", None),
            (
                "clock in a pure room",
                "crates/core/src/a.rs",
                "Instant::now()",
                Some("`Instant::now` is banned here"),
            ),
            ("clock in the runtime", "crates/broker/src/a.rs", "Instant::now()", None),
            (
                "file in a pure room",
                "crates/mqtt/src/a.rs",
                "use std::fs::File;",
                Some("`std::fs` is banned here"),
            ),
            (
                "group",
                "crates/core/src/a.rs",
                "use std::{fmt, net::IpAddr};",
                Some("`std::{fs, net}` is banned here"),
            ),
            ("innocent group", "crates/core/src/a.rs", "use std::{fmt, mem};", None),
            (
                "random in a pure room",
                "crates/routing/src/a.rs",
                "rand::random()",
                Some("`rand::` is banned here"),
            ),
            ("a word that ends alike", "crates/routing/src/a.rs", "operand::left()", None),
            ("print", "crates/net/src/a.rs", "println!();", Some("`println!` is banned here")),
            ("print at the command line", "crates/broker/src/cli.rs", "println!();", None),
            ("eprintln is another call", "crates/net/src/a.rs", "eprintln!();", None),
        ] {
            let found: Vec<String> =
                check(&Repository::of(&[(path, line)])).into_iter().map(|fault| fault.wrong).collect();
            assert_eq!(found.first().map(String::as_str), want, "case: {name}");
        }
    }
}
