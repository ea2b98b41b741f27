//! Commands that ask a running broker, at its control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, bail};

use crate::control::{Answer, Request, SOCKET_NAME, SocketPath};

/// Asks the broker that runs in this directory, and waits for the answer.
///
/// # Errors
/// There is no broker, or it refuses with a reason.
pub fn ask(data: &Path, request: &Request) -> anyhow::Result<Answer> {
    let stream = SocketPath::of(data).and_then(|socket| UnixStream::connect(&socket.path));
    let mut stream =
        stream.with_context(|| format!("no broker answers at {}", data.join(SOCKET_NAME).display()))?;
    let mut request = serde_json::to_vec(request)?;
    request.push(b'\n');
    stream.write_all(&request)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if !line.ends_with('\n') {
        bail!("the broker closed the connection before it answered");
    }
    match serde_json::from_str(&line).context("the broker sent an invalid answer")? {
        Answer::Error(error) => bail!("{error}"),
        answer => Ok(answer),
    }
}
