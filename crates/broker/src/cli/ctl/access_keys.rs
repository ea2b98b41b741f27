//! `postroad ctl key`: the access keys of a broker, in a file of its data directory.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use postroad_security::AccessKeys;
use serde_json::json;

use crate::runtime::ACCESS_KEYS_FILE;

/// Commands for access keys. A running broker follows within a second.
#[derive(Debug, Subcommand)]
pub enum AccessKeyCommand {
    /// Make a key for a user, and print its id and its secret.
    New(NewArguments),
    /// Print the ids of all keys, and their users.
    List(KeysArguments),
    /// Delete a key.
    Delete(DeleteArguments),
}

/// Which broker, and how to print.
#[derive(Debug, Args)]
pub struct KeysArguments {
    /// The data directory of the broker.
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// Print one JSON object for each key.
    #[arg(long)]
    json: bool,
}

/// For whom.
#[derive(Debug, Args)]
pub struct NewArguments {
    /// The user whose requests it signs: one of the file of users, if the broker has one.
    #[arg(long, value_name = "NAME")]
    user: String,
    #[command(flatten)]
    keys: KeysArguments,
}

/// Which key.
#[derive(Debug, Args)]
pub struct DeleteArguments {
    /// The id of the key.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    keys: KeysArguments,
}

/// Carries it out.
///
/// # Errors
/// The file cannot be read or written; the name cannot be; there is no such key.
pub fn run(command: &AccessKeyCommand) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match command {
        AccessKeyCommand::New(NewArguments { user, keys }) => {
            let (file, mut all) = load(keys)?;
            let (id, key) = all.add(user)?;
            all.store(&file)?;
            match keys.json {
                true => writeln!(out, "{}", json!({ "id": id, "secret": key.secret, "user": key.user })),
                false => writeln!(out, "aws_access_key_id={id}\naws_secret_access_key={}", key.secret),
            }
        }
        AccessKeyCommand::List(keys) => load(keys)?.1.iter().try_for_each(|(id, key)| match keys.json {
            true => writeln!(out, "{}", json!({ "id": id, "user": key.user })),
            false => writeln!(out, "{id}  {}", key.user),
        }),
        AccessKeyCommand::Delete(DeleteArguments { id, keys }) => {
            let (file, mut all) = load(keys)?;
            if !all.remove(id) {
                bail!("{}: there is no access key {id}", file.display());
            }
            return Ok(all.store(&file)?);
        }
    }
    .context("cannot write to standard output")
}

fn load(keys: &KeysArguments) -> anyhow::Result<(PathBuf, AccessKeys)> {
    if !keys.data.is_dir() {
        bail!("{} is not a data directory: set --data to that of the broker", keys.data.display());
    }
    let file = keys.data.join(ACCESS_KEYS_FILE);
    let all = AccessKeys::load(&file)?;
    Ok((file, all))
}
