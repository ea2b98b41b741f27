//! `postroad ctl key`: the access keys of a broker. One that runs is asked; of one that does not
//! the file in its data directory is changed.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use postroad_security::{AccessKey, AccessKeyBook, AccessKeys, Text};
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, encoded, is_there, request};
use crate::config::users::ACCESS_KEYS_FILE;

/// A node of a cluster makes it at its first start; the keys are in the cluster's store then.
const REPLICA_FILE: &str = "replica.json";

/// Where a running broker has them.
const PATH: &str = "/api/v1/access-keys";

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
    /// The user whose requests it signs: one of the broker, if it has users.
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
/// The broker says why not; the file cannot be read or written; there is no such key.
pub fn run(command: &AccessKeyCommand) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match command {
        AccessKeyCommand::New(NewArguments { user, keys }) => {
            let made = Keys::of(keys)?.add(user)?;
            let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
            match keys.json {
                true => writeln!(out, "{made}"),
                false => {
                    let (id, secret) = (text("id"), text("secret"));
                    writeln!(out, "aws_access_key_id={id}\naws_secret_access_key={secret}")
                }
            }
        }
        AccessKeyCommand::List(keys) => Keys::of(keys)?.all()?.iter().try_for_each(|row| match keys.json {
            true => writeln!(out, "{row}"),
            false => {
                let text = |name: &str| row[name].as_str().unwrap_or_default();
                writeln!(out, "{}  {}", text("id"), text("user"))
            }
        }),
        AccessKeyCommand::Delete(DeleteArguments { id, keys }) => return Keys::of(keys)?.remove(id),
    }
    .context("cannot write to standard output")
}

/// The access keys of a broker.
enum Keys {
    /// Of one that runs.
    Asked(BrokerArguments),
    /// Of one that does not.
    File(AccessKeyBook),
}

impl Keys {
    fn of(KeysArguments { data, .. }: &KeysArguments) -> anyhow::Result<Keys> {
        let broker = BrokerArguments { data: data.clone(), ..BrokerArguments::default() };
        if is_there(&broker) {
            return Ok(Keys::Asked(broker));
        }
        if !data.is_dir() {
            bail!("{} is not a data directory: set --data to that of the broker", data.display());
        }
        if data.join(REPLICA_FILE).exists() {
            bail!("the access keys of a cluster are in its store: ask the node that leads, with its --data");
        }
        Ok(Keys::File(AccessKeyBook::new(Text::of_file(&data.join(ACCESS_KEYS_FILE)))))
    }

    fn add(&self, user: &str) -> anyhow::Result<Value> {
        match self {
            Keys::Asked(broker) => request(broker, Method::Post, PATH, Some(&json!({ "user": user }))),
            Keys::File(book) => {
                let (id, key) = book.add(user)?;
                Ok(json!({ "id": id, "secret": key.secret, "user": key.user }))
            }
        }
    }

    fn all(&self) -> anyhow::Result<Vec<Value>> {
        match self {
            Keys::Asked(broker) => rows_of(broker),
            Keys::File(book) => {
                let row = |(id, key): (&str, &AccessKey)| json!({ "id": id, "user": key.user });
                Ok(AccessKeys::load(book.text())?.iter().map(row).collect())
            }
        }
    }

    fn remove(&self, id: &str) -> anyhow::Result<()> {
        match self {
            Keys::Asked(broker) => {
                request(broker, Method::Delete, &format!("{PATH}/{}", encoded(id)), None).map(drop)
            }
            Keys::File(book) if book.remove(id)? => Ok(()),
            Keys::File(book) => bail!("{}: there is no access key {id}", book.text().file().display()),
        }
    }
}

/// All keys of a running broker.
fn rows_of(broker: &BrokerArguments) -> anyhow::Result<Vec<Value>> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = request(broker, Method::Get, &format!("{PATH}?limit=500{cursor}"), None)?;
        rows.extend(page["items"].as_array().cloned().unwrap_or_default());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encoded(next)),
            None => return Ok(rows),
        }
    }
}
