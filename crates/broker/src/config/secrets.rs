//! Secrets that the configuration names by a file or an environment variable. No error shows any of
//! one.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};

/// Others than owner and group may read, write or run a file.
const OTHERS: u32 = 0o007;

/// Longest text of a key or password; a longer file is a mistake.
const TEXT_BYTES_MAX: u64 = 1024;

/// The text of a file that only its owner, or its group, may read. `kind` is the noun for errors:
/// "key".
///
/// # Errors
/// There is none, it is too long, or others may read it.
pub fn text_in_file(file: &Path, kind: &str) -> anyhow::Result<String> {
    let metadata = std::fs::metadata(file).context("it cannot be read")?;
    let mode = metadata.permissions().mode();
    if mode & OTHERS != 0 {
        bail!("other users can access it (mode {:03o}); run chmod 600", mode & 0o777);
    }
    if TEXT_BYTES_MAX < metadata.len() {
        bail!("{} bytes are not a {kind}", metadata.len());
    }
    std::fs::read_to_string(file).context("it cannot be read")
}

/// The text of an environment variable.
///
/// # Errors
/// It is not set, or not text.
pub fn text_in_variable(name: &str) -> anyhow::Result<String> {
    match std::env::var(name) {
        Ok(text) => Ok(text),
        Err(std::env::VarError::NotPresent) => bail!("it is not set"),
        Err(std::env::VarError::NotUnicode(_)) => bail!("it is not valid UTF-8"),
    }
}
