//! `postroad key`: keys with which a store is encrypted.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use data_encoding::HEXLOWER;
use postroad_journal::KEY_BYTES;

use crate::config::key_in_file;

/// Commands for keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a random key in a new file that only its owner can read.
    New(KeyArguments),
    /// Print the id of a key, as files and errors show it.
    Id(KeyArguments),
}

/// Which file.
#[derive(Debug, Args)]
pub struct KeyArguments {
    /// Key file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Carries it out. The key itself is never printed.
pub fn run(command: &KeyCommand) -> anyhow::Result<()> {
    let file = match command {
        KeyCommand::New(KeyArguments { file }) => {
            let mut bytes = [0; KEY_BYTES];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            let failed = || format!("cannot make {}", file.display());
            let mut made = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(file)
                .with_context(failed)?;
            let text = format!("{}\n", HEXLOWER.encode(&bytes));
            made.write_all(text.as_bytes()).and_then(|()| made.sync_all()).with_context(failed)?;
            file
        }
        KeyCommand::Id(KeyArguments { file }) => file,
    };
    writeln!(std::io::stdout(), "{}", key_in_file(file)?.id())?;
    Ok(())
}
