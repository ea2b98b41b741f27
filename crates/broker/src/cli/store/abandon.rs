//! `postroad store abandon`: gives up a further store whose directory is lost.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use postroad_journal::RealDisk;
use postroad_store::{Layout, StoreError, broker_id};

use crate::config::nearest;

/// Arguments of `abandon`.
#[derive(Debug, Args)]
pub struct AbandonArguments {
    /// Data directory of a stopped broker.
    #[arg(value_name = "DIR")]
    data: PathBuf,
    /// Name of the store whose directory is lost.
    #[arg(long, value_name = "NAME")]
    store: String,
    /// Abandon the store; without this, only show the consequences.
    #[arg(long)]
    write: bool,
}

/// Prints the losses; with `--write` the next start creates an empty store.
pub fn run(arguments: &AbandonArguments) -> anyhow::Result<()> {
    let AbandonArguments { data, store: name, write } = arguments;
    let mut out = std::io::stdout().lock();
    let place = || format!("in {}", data.display());
    if !data.is_dir() {
        return Err(StoreError::NoStore).with_context(place);
    }
    let _lock = RealDisk::open(data)?;
    let mut layout = Layout::find(data)?.ok_or(StoreError::NoStore).with_context(place)?;
    let names: Vec<String> = layout.stores.iter().map(|store| store.name.clone()).collect();
    let Some(store) = layout.stores.iter_mut().find(|store| store.name == *name) else {
        match nearest(name, names.iter().map(String::as_str)) {
            Some(nearest) => bail!("there is no further store {name}; did you mean {nearest}?"),
            None if names.is_empty() => bail!("{} has no further stores", data.display()),
            None => bail!("there is no further store {name}; there are {}", names.join(", ")),
        }
    };
    writeln!(
        out,
        "lost with {name}: all messages of its queues and subscriptions, and its part of transactions over several stores, which may be half applied in the other stores"
    )?;
    if !write {
        bail!(
            "nothing was changed; with --write the next start creates an empty {name} in an empty directory"
        );
    }
    store.given_up = true;
    layout.write(data)?;
    broker_id::forget(data)?;
    writeln!(
        out,
        "the next start creates an empty {name} if its directory is empty; if the directory is back and intact, it is used and nothing is lost"
    )?;
    Ok(())
}
