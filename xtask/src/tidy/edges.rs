//! Which room may use which: arrows point down only.
//!
//! `[dependencies]` and `[build-dependencies]` must keep to the table. `[dev-dependencies]` are
//! looser: a room's tests may use any room but the two assemblies, `broker` and `sim`, which would
//! turn the arrows round.

use super::{Fault, Repository};

/// Rooms without input, output, clock or randomness: same commands in, same effects out.
pub const PURE_ROOMS: &[&str] = &[
    "model", "selector", "routing", "core", "bridge", "openwire", "amqp", "stomp", "mqtt", "ironmq", "sqs",
    "rocketmq", "migrate", "trace",
];

/// Outside crates that would make a pure room impure.
const IMPURE_CRATES: &[&str] =
    &["tokio", "rand", "fastrand", "getrandom", "mio", "socket2", "rustix", "libc"];

const ASSEMBLIES: &[&str] = &["broker", "sim"];

const PROTOCOL: &[&str] = &["model", "selector"];

/// Room, and the rooms it may use. A new arrow is an architecture change: its own commit, with the
/// reason.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("selector", &["model"]),
    ("routing", &["model", "selector"]),
    ("core", &["model", "selector", "routing"]),
    ("openwire", PROTOCOL),
    ("amqp", PROTOCOL),
    ("stomp", PROTOCOL),
    ("mqtt", PROTOCOL),
    ("ironmq", PROTOCOL),
    ("sqs", PROTOCOL),
    ("rocketmq", PROTOCOL),
    ("journal", &["model"]),
    ("replication", &["model", "journal", "cluster"]),
    (
        "node",
        &["model", "selector", "routing", "core", "openwire", "amqp", "journal", "replication", "trace"],
    ),
    ("store", &["model", "routing", "core", "journal", "replication", "cluster", "node"]),
    ("trace", &["model"]),
    ("net", &["model"]),
    ("cluster", &["model", "journal"]),
    ("security", &["model"]),
    ("bridge", &["model", "selector", "openwire", "amqp", "stomp", "mqtt", "ironmq", "rocketmq"]),
    ("admin", &["model", "security", "routing", "node", "trace"]),
    ("migrate", &["routing", "bridge"]),
    ("bench", &["openwire"]),
];

/// One line `NAME = …` or `NAME.workspace = true` in a dependency table.
struct Dependency {
    name: String,
    development: bool,
    line: usize,
}

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for room in repository.rooms() {
        let path = format!("crates/{room}/Cargo.toml");
        match dependencies(repository.text(&path).unwrap_or_default()) {
            Ok(dependencies) => {
                faults
                    .extend(dependencies.iter().filter_map(|dependency| edge_fault(&path, room, dependency)));
            }
            Err(error) => faults.push(Fault::new(&path, 1, error.to_string(), "write legal TOML")),
        }
        if !ASSEMBLIES.contains(&room) && !ALLOWED.iter().any(|(name, _)| *name == room) {
            let right = "add it to ALLOWED in xtask/src/tidy/edges.rs, with the reason in the commit";
            faults.push(Fault::new(
                &path,
                1,
                format!("room `{room}` has no row in the table of edges"),
                right,
            ));
        }
    }
    faults
}

fn edge_fault(path: &str, room: &str, dependency: &Dependency) -> Option<Fault> {
    if ASSEMBLIES.contains(&room) {
        return None;
    }
    let Some(used) = dependency.name.strip_prefix("postroad-") else {
        let impure = PURE_ROOMS.contains(&room) && IMPURE_CRATES.contains(&dependency.name.as_str());
        let wrong = format!("pure room `{room}` depends on `{}`", dependency.name);
        let right = "take time and chance from the command, report input and output as effects";
        return (impure && !dependency.development).then(|| Fault::new(path, dependency.line, wrong, right));
    };
    if dependency.development {
        let wrong = format!("the tests of `{room}` use the assembly `{used}`");
        let right = "move the test into the assembly, or to tests/";
        return ASSEMBLIES.contains(&used).then(|| Fault::new(path, dependency.line, wrong, right));
    }
    let allowed = ALLOWED.iter().find(|(name, _)| *name == room).map_or(&[][..], |(_, allowed)| allowed);
    let right = match allowed {
        [] => "it may use no other room".to_owned(),
        _ => format!("it may use {} only", allowed.join(", ")),
    };
    let wrong = format!("room `{room}` uses `{used}`");
    (!allowed.contains(&used)).then(|| Fault::new(path, dependency.line, wrong, right))
}

fn dependencies(manifest: &str) -> Result<Vec<Dependency>, toml::de::Error> {
    let parsed: toml::Table = manifest.parse()?;
    let mut found = Vec::new();
    collect(&parsed, manifest, &mut found);
    let targets = parsed.get("target").and_then(toml::Value::as_table);
    for target in targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table) {
        collect(target, manifest, &mut found);
    }
    Ok(found)
}

fn collect(tables: &toml::Table, manifest: &str, found: &mut Vec<Dependency>) {
    for (table, development) in
        [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        let entries = tables.get(table).and_then(toml::Value::as_table);
        for (key, value) in entries.into_iter().flatten() {
            // `short = { package = "postroad-core" }` names the crate by another key.
            let package = value.get("package").and_then(toml::Value::as_str);
            let name = package.unwrap_or(key).to_owned();
            found.push(Dependency { name, development, line: line_of(manifest, key) });
        }
    }
}

/// Line of the first entry with this key; good enough to find the place.
fn line_of(manifest: &str, key: &str) -> usize {
    let entry = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(entry).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_down() {
        let ok: Option<(usize, &str)> = None;
        for (name, room, manifest, want) in [
            ("core uses routing", "core", "[dependencies]\npostroad-routing.workspace = true\n", ok),
            (
                "core never uses the journal",
                "core",
                "[dependencies]\nbytes = \"1\"\npostroad-journal.workspace = true\n",
                Some((3, "room `core` uses `journal`")),
            ),
            (
                "no protocol knows another",
                "mqtt",
                "[dependencies]\npostroad-openwire = { path = \"x\" }\n",
                Some((2, "room `mqtt` uses `openwire`")),
            ),
            (
                "a renamed crate is found",
                "net",
                "[dependencies]\nshort = { package = \"postroad-core\", path = \"x\" }\n",
                Some((2, "room `net` uses `core`")),
            ),
            (
                "targets count",
                "net",
                "[target.'cfg(unix)'.dependencies]\npostroad-core = \"1\"\n",
                Some((2, "room `net` uses `core`")),
            ),
            (
                "tests may look sideways",
                "openwire",
                "[dev-dependencies]\npostroad-core.workspace = true\n",
                ok,
            ),
            (
                "tests may not use an assembly",
                "core",
                "[dev-dependencies]\npostroad-sim.workspace = true\n",
                Some((2, "the tests of `core` use the assembly `sim`")),
            ),
            ("the assembly uses all", "broker", "[dependencies]\npostroad-core = \"1\"\ntokio = \"1\"\n", ok),
            (
                "pure rooms stay pure",
                "model",
                "[dependencies]\ntokio.workspace = true\n",
                Some((2, "pure room `model` depends on `tokio`")),
            ),
            ("unknown room", "kitchen", "", Some((1, "room `kitchen` has no row in the table of edges"))),
        ] {
            let path = format!("crates/{room}/Cargo.toml");
            let faults = check(&Repository::of(&[(&path, manifest)]));
            let found = faults.first().map(|fault| (fault.line, fault.wrong.as_str()));
            assert_eq!(found, want, "case: {name}");
        }
    }
}
