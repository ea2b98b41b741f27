//! The `postroad-bench` binary where it needs no broker: the disk and this machine. `tests/bench`
//! has the rest.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Standard output of a call that succeeds.
fn works(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_postroad-bench")).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_disk_benchmark_says_what_it_measured() {
    let directory = tempfile::tempdir().unwrap();
    let report: Value =
        serde_json::from_str(&works(&["disk", text(directory.path()), "--each-ms", "1", "--json"])).unwrap();
    assert!(20 < report["rows"].as_array().unwrap().len(), "{report}");
    assert!(works(&["disk", text(directory.path()), "--each-ms", "1"]).contains("4 KiB durable in"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_the_machine_asks_of_any_broker_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let few = ["lower-bound", text(directory.path()), "--each-ms", "20", "--producers", "2"];
    let told = works(&[&few[..], &["--json"]].concat());
    let rows: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["synced"].as_bool().unwrap()).collect::<Vec<_>>(), [false, true]);
    assert!(rows.iter().all(|row| row["server_us"].as_f64().unwrap() > 0.0), "{rows:?}");
    assert!(works(&few).contains("with the disk"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn errors_are_on_standard_error_with_their_causes() {
    for (case, arguments, code, want) in [
        (
            "no directory",
            &["disk", "/no/such/directory"][..],
            1,
            "cannot measure the disk under /no/such/directory: ",
        ),
        ("no broker", &["backlog", "--url", "tcp://127.0.0.1:1", "--messages", "1"], 1, "connection refused"),
        ("not a URL", &["backlog", "--url", "localhost"], 2, "begins with tcp://"),
        ("not a process", &["backlog", "--server-pid", "4194305"], 1, "no such process on this machine"),
    ] {
        let done = Command::new(env!("CARGO_BIN_EXE_postroad-bench")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{case}: {said}");
        assert!(said.contains(want), "{case}: {said}");
    }
}
