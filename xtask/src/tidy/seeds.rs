//! Maps with a random seed may not stand in a pure room.
//!
//! The order in which a `HashMap` with the default hasher is iterated differs from run to run, and
//! with it the order of effects. A pure room takes a `BTreeMap`, a map with a fixed hasher
//! (`FxHashMap`), or, where clients choose the keys, `postroad_model::LookupMap`, which cannot be
//! iterated in the map's own order.

use super::edges::PURE_ROOMS;
use super::{Fault, Repository};

/// The one file that wraps such a map.
const WRAPPER: &str = "crates/model/src/lookup.rs";

const RIGHT: &str = "use a `BTreeMap`, an `FxHashMap`, or a `LookupMap` where clients choose the keys";

/// Names of the types, and how many type arguments they have with a hasher.
const TYPES: &[(&str, usize)] = &[("HashMap", 3), ("HashSet", 2)];

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repository.sources() {
        let room = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        if path == WRAPPER || !room.is_some_and(|room| PURE_ROOMS.contains(&room)) {
            continue;
        }
        let lines: Vec<(usize, &str)> = source.code().collect();
        for (at, (number, line)) in lines.iter().enumerate() {
            let rest = || lines[at + 1..].iter().map(|(_, line)| *line);
            if TYPES.iter().any(|(name, arguments)| has_random_seed(line, rest(), name, *arguments)) {
                faults.push(Fault::new(path, *number, "a map with a random seed is banned here", RIGHT));
            }
        }
    }
    faults
}

/// Does the line name the type with fewer type arguments than it has with a hasher, or make one
/// with the default hasher? `rest` are the lines after it, for a type that is written over several.
fn has_random_seed<'a>(
    line: &'a str,
    rest: impl Iterator<Item = &'a str>,
    name: &str,
    arguments: usize,
) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let whole = line.match_indices(name).filter(|(at, _)| !line[..*at].ends_with(word));
    let after: Vec<&str> = whole.map(|(at, _)| &line[at + name.len()..]).collect();
    let rest: Vec<&str> = rest.take(20).collect();
    after.into_iter().any(|after| match after.strip_prefix("::").unwrap_or(after).strip_prefix('<') {
        Some(inside) => count_arguments(inside, &rest) < arguments,
        None => ["::new", "::with_capacity", "::from("].iter().any(|call| after.starts_with(call)),
    })
}

/// Type arguments up to the closing bracket.
fn count_arguments(inside: &str, rest: &[&str]) -> usize {
    let (mut depth, mut count, mut in_argument) = (0_usize, 0, false);
    let mut before = ' ';
    for c in inside.chars().chain(rest.iter().flat_map(|line| line.chars())) {
        match c {
            '>' if before == '-' => {}
            '>' if depth == 0 => break,
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => in_argument = false,
            _ => {}
        }
        let is_separator = c.is_whitespace() || (c == ',' && depth == 0);
        if !in_argument && !is_separator {
            (in_argument, count) = (true, count + 1);
        }
        before = c;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_with_a_random_seed_stand_in_no_pure_room() {
        for (name, path, text, want) in [
            ("map", "crates/core/src/a.rs", "struct A { b: HashMap<u64, u64> }", 1),
            ("set", "crates/amqp/src/a.rs", "fn a(b: &HashSet<u64>) {}", 1),
            ("nested", "crates/core/src/a.rs", "struct A { b: HashMap<(u64, u64), Vec<(u8, u8)>> }", 1),
            (
                "by its path",
                "crates/core/src/a.rs",
                "fn a() { let b = std::collections::HashMap::new(); }",
                1,
            ),
            ("with room", "crates/core/src/a.rs", "fn a() { let b = HashMap::with_capacity(1); }", 1),
            ("collected", "crates/core/src/a.rs", "fn a() { b.collect::<HashSet<_>>(); }", 1),
            ("over lines", "crates/core/src/a.rs", "struct A { b: HashMap<\n u64,\n u64,\n >, c: u8 }", 1),
            ("with a hasher", "crates/core/src/a.rs", "struct A { b: HashMap<u64, u64, FxBuildHasher> }", 0),
            ("over lines", "crates/core/src/a.rs", "struct A { b: HashMap<\n u64,\n u64,\n Fx,\n > }", 0),
            ("set with one", "crates/core/src/a.rs", "struct A { b: HashSet<fn(u8) -> u8, Fx> }", 0),
            ("fixed", "crates/core/src/a.rs", "struct A { b: FxHashMap<u64, u64> }", 0),
            ("an import", "crates/core/src/a.rs", "use std::collections::{BTreeMap, HashMap};", 0),
            ("elsewhere", "crates/net/src/a.rs", "struct A { b: HashMap<u64, u64> }", 0),
            ("the wrapper", WRAPPER, "struct A { b: HashMap<u64, u64> }", 0),
            ("in a test", "crates/core/src/a.rs", "#[test] fn t() { let b = HashMap::new(); }", 0),
        ] {
            assert_eq!(check(&Repository::of(&[(path, text)])).len(), want, "case: {name}");
        }
    }
}
