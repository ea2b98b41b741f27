//! `postroad journal backup`: asks a running broker for a directory with all that is durable now.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use crate::control::{Answer, Request, SOCKET_NAME};

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
    let socket = arguments.data.join(SOCKET_NAME);
    let mut stream = UnixStream::connect(&socket).with_context(|| {
        let data = arguments.data.display();
        format!("no broker answers at {}; if none runs in {data}, copy the directory", socket.display())
    })?;
    let to = std::path::absolute(&arguments.to)?;
    let mut request = serde_json::to_vec(&Request::Backup { to })?;
    request.push(b'\n');
    stream.write_all(&request)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match serde_json::from_str(&line).context("the broker ended before it answered")? {
        Answer::Backup { files } => {
            eprintln!("{files} files in {}", arguments.to.display());
            Ok(())
        }
        Answer::Error(error) => bail!("{error}"),
    }
}
