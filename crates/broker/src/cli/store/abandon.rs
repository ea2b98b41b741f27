//! `postroad journal give-up`: a data directory goes on without what one of its further stores held.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use postroad_journal::RealDisk;

use crate::config::nearest;
use crate::runtime::{Layout, StoreError, broker_id};

/// Arguments of `give-up`.
#[derive(Debug, Args)]
pub struct GiveUpArguments {
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

/// Tells what is lost, and with `--write` has the next start begin the store anew.
pub fn run(arguments: &GiveUpArguments) -> anyhow::Result<()> {
    let GiveUpArguments { data, store: name, write } = arguments;
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
        "lost is what {name} holds: all messages of its queues and subscriptions, and its part of transactions over several stores, which may be half done elsewhere"
    )?;
    if !write {
        bail!("nothing was changed; with --write the next start begins {name} anew, in an empty directory");
    }
    store.given_up = true;
    layout.write(data)?;
    broker_id::forget(data)?;
    writeln!(
        out,
        "the next start begins {name} anew, if its directory is empty by then; if it has turned up and is whole, nothing is lost"
    )?;
    Ok(())
}
