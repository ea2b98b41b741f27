//! Verify and fix: the outside tools, one after the other, each with its time.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

/// One outside tool and how it is called.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
}

/// The steps of `verify`. Advisories are left out: their database is fetched from a host of its
/// own, and a check that needs it would fail wherever that host cannot be reached.
const VERIFY: &[Step] = &[
    Step { name: "fmt", arguments: &["fmt", "--all", "--check"] },
    Step {
        name: "clippy",
        arguments: &["clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    },
    Step {
        name: "deny",
        arguments: &["deny", "--log-level", "error", "--locked", "check", "licenses", "bans", "sources"],
    },
    // The fuzz targets are a workspace of their own, which nothing else compiles before they run.
    Step {
        name: "fuzz check",
        arguments: &["check", "--quiet", "--locked", "--bins", "--manifest-path", "fuzz/Cargo.toml"],
    },
];

const FIX: &[Step] = &[
    Step {
        name: "clippy --fix",
        arguments: &[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--fix",
            "--allow-dirty",
            "--allow-staged",
        ],
    },
    Step { name: "fmt", arguments: &["fmt", "--all"] },
];

/// Every read-only check; stops at the first that fails.
///
/// # Errors
/// Names the tool that failed; its own words are on standard error already.
pub fn verify(root: &Path) -> anyhow::Result<()> {
    run(root, VERIFY)?;
    timed("tidy", || crate::tidy::run(root))
}

/// Lets the tools repair the code.
///
/// # Errors
/// Names the tool that failed.
pub fn fix(root: &Path) -> anyhow::Result<()> {
    run(root, FIX)
}

fn run(root: &Path, steps: &[Step]) -> anyhow::Result<()> {
    for step in steps {
        timed(step.name, || cargo(root, step.arguments))?;
    }
    Ok(())
}

/// Runs cargo in the repository.
///
/// # Errors
/// It cannot be started, or fails: names its arguments.
pub fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(arguments)
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot start cargo {}", arguments.join(" ")))?;
    if !status.success() {
        bail!("failed: cargo {}", arguments.join(" "));
    }
    Ok(())
}

fn timed(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let started = Instant::now();
    work()?;
    eprintln!("verify: {name:<8} {:6.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
