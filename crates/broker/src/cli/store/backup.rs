//! `postroad store backup`: asks a running broker for a directory with all that is durable now.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::cli::control::ask;
use crate::cli::words::counted;
use crate::control::{Answer, Request};

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Data directory of a running broker.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// New directory for the backup, on the same file system.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// New directory for each further store, on the file system of that store.
    #[arg(long = "store", value_name = "NAME=DIR", value_parser = named_directory)]
    stores: Vec<(String, PathBuf)>,
}

fn named_directory(text: &str) -> Result<(String, PathBuf), String> {
    let parts = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = parts.ok_or("expected NAME=DIR")?;
    Ok((name.to_owned(), std::path::absolute(path).map_err(|error| error.to_string())?))
}

/// Asks, and waits for the answer.
pub fn run(arguments: &BackupArguments) -> anyhow::Result<()> {
    let to = std::path::absolute(&arguments.to)?;
    let stores = arguments.stores.iter().cloned().collect();
    let answer = ask(&arguments.data, &Request::Backup { to, stores });
    let answer = answer.map_err(|error| {
        if error.is::<std::io::Error>() {
            let data = arguments.data.display();
            return error
                .context(format!("nothing was backed up; if no broker runs in {data}, copy the directory"));
        }
        error
    });
    match answer? {
        Answer::Backup { files, missing } => {
            let parts = std::iter::once(&arguments.to).chain(arguments.stores.iter().map(|(_, to)| to));
            let parts: Vec<String> = parts.map(|to| to.display().to_string()).collect();
            eprintln!("{} in {}", counted(files, "file"), parts.join(" and "));
            missing.iter().for_each(|file| eprintln!("{}: the file is missing", file.display()));
            if !missing.is_empty() {
                let missing = counted(missing.len() as u64, "missing file");
                bail!("backup complete, without {missing}, which is missing");
            }
            Ok(())
        }
        other => bail!("unexpected answer from the broker: {other:?}"),
    }
}
