//! The broker id: distinguishes this broker from all others in a network, even from those of the
//! same name.
//!
//! Made with the data directory and kept in it, so that peers and message paths know the broker
//! again after a restart.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};

use crate::layout::new_identity;

/// The file in the data directory.
const FILE: &str = "broker-id";

/// The first line of the file: its kind and version.
const HEADER: &str = "postroad broker id 1";

/// Longest id that is read: peers and messages carry it.
const BYTES_MAX: usize = 256;

/// The id of the broker with this data directory; made if there is none.
///
/// # Errors
/// The file cannot be read or written, or is not of this version.
pub fn read_or_make(data: &Path, broker_name: &str) -> anyhow::Result<String> {
    let file = data.join(FILE);
    match std::fs::read_to_string(&file) {
        Ok(text) => parse(&text).with_context(|| format!("cannot read {}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = new_id(broker_name)?;
            write(data, &file, &id).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(id)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Has the next start make a new id. Brokers at the other ends of links know the entries of this
/// one's queues by its id and their numbers: numbers that may be given a second time must not meet
/// the same id.
///
/// # Errors
/// The file cannot be removed.
pub fn forget(data: &Path) -> anyhow::Result<()> {
    let file = data.join(FILE);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

fn new_id(broker_name: &str) -> anyhow::Result<String> {
    let name: String = broker_name.chars().filter(|sign| sign.is_ascii_alphanumeric()).take(64).collect();
    let identity = new_identity().context("the system provides no random bytes")?;
    Ok(format!("ID:{name}-{identity}"))
}

fn parse(text: &str) -> anyhow::Result<String> {
    let mut lines = text.lines();
    match (lines.next(), lines.next()) {
        (Some(HEADER), Some(id)) if !id.is_empty() && id.len() <= BYTES_MAX => Ok(id.to_owned()),
        (Some(HEADER), _) => bail!("it contains no id; remove the file, and a new one is created"),
        _ => bail!("this build does not support its version"),
    }
}

/// The file is there whole or not at all.
fn write(data: &Path, file: &Path, id: &str) -> std::io::Result<()> {
    let new = file.with_extension("new");
    let mut writing = std::fs::File::create(&new)?;
    writeln!(writing, "{HEADER}\n{id}")?;
    writing.sync_all()?;
    std::fs::rename(&new, file)?;
    std::fs::File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stays_whatever_the_broker_is_called_later() {
        let directory = tempfile::tempdir().unwrap();
        let first = read_or_make(directory.path(), "depot 1").unwrap();
        assert!(first.starts_with("ID:depot1-"), "{first}");
        assert_eq!(read_or_make(directory.path(), "other").unwrap(), first);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(read_or_make(other.path(), "depot 1").unwrap(), first);
    }

    #[test]
    fn an_unknown_version_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["postroad broker id 2\nID:a\n", "postroad broker id 1\n", ""] {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            assert!(read_or_make(directory.path(), "a").is_err(), "{text:?}");
        }
    }
}
