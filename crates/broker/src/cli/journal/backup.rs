//! `postroad journal backup`: asks a running broker for a directory with all that is durable now.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::control::ask;
use crate::control::{Answer, Request};

/// What `backup` can be told.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// The data directory of a broker that runs.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where the backup goes: a new directory on the same file system.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

/// Asks, and waits for the answer.
pub fn run(arguments: &BackupArguments) -> anyhow::Result<()> {
    let to = std::path::absolute(&arguments.to)?;
    let answer = ask(&arguments.data, &Request::Backup { to });
    let hint = || {
        let data = arguments.data.display();
        format!("nothing was backed up; if no broker runs in {data}, copy the directory")
    };
    match answer.with_context(hint)? {
        Answer::Backup { files } => {
            eprintln!("{files} files in {}", arguments.to.display());
            Ok(())
        }
        other => bail!("the broker answers something else: {other:?}"),
    }
}
