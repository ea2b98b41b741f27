//! `postroad completions` and `postroad man`: shell completions and manual pages, from the
//! definition of the command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

/// Which shell.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// Shell whose completions are printed.
    #[arg(value_enum)]
    shell: Shell,
}

/// Where to.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// Directory of the pages; it is made if it is missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints completions.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(arguments: &CompletionsArguments, mut command: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "postroad", &mut script);
    std::io::stdout().lock().write_all(&script).context("cannot write to standard output")
}

/// Writes a page for each command.
///
/// # Errors
/// The directory cannot be written.
pub fn man(ManArguments { directory }: &ManArguments, command: Command) -> anyhow::Result<()> {
    let wrong = || format!("cannot write manual pages to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(wrong)?;
    clap_mangen::generate_to(command, directory).with_context(wrong)
}
