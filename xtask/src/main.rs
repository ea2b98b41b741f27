//! The project's own chores, called as `cargo xtask CHORE`.
//!
//! `tidy` holds the rules of the house, `verify` runs every read-only check, `check` those of the
//! changed crates with their unit tests, `fix` may write.
//! Never here: anything the broker needs at run time; anything slow enough to keep people from
//! calling it.
//! Start at [`main`]; the rules themselves are one file each in `tidy/`.

mod check;
mod tidy;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy|verify|check|shrink|fix
  tidy    hold the rules of the house: headers, sizes, banned calls, crate edges, documents, words, commits
  verify  fmt --check, clippy, cargo deny and tidy; writes nothing
  check   the inner loop: fmt --check, tidy, clippy and unit tests of the crates that have changed
  shrink  lower the counts in xtask/src/prose.txt to those that are left; writes
  fix     fmt and clippy --fix; writes";

fn main() -> ExitCode {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let root = repository_root();
    let outcome = match chore.as_str() {
        "tidy" => tidy::run(&root),
        "verify" => verify::verify(&root),
        "check" => check::check(&root),
        "shrink" => tidy::shrink(&root),
        "fix" => verify::fix(&root),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above this package, which is the repository's first folder.
///
/// Asked at run time first: two clones that share a build folder share this binary too.
fn repository_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = Path::new(&here);
    here.parent().unwrap_or(here).to_path_buf()
}
