//! `postroad store`: verify, show, export, import and repair a stopped broker's directory; back up
//! a running one.

mod abandon;
mod backup;
mod dump;
mod export;
mod export_file;
mod import;
mod line;
mod repair;
mod stats;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use postroad_core::Settings;
use postroad_journal::Keys;
use postroad_model::{PartitionId, Placement};
use postroad_store::{Stopped, StoreError};

use crate::config::Config;

/// Commands for data directories.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Check every record and checkpoint, and list all damage by file and offset.
    Verify(verify::VerifyArguments),
    /// Show the losses by damage, and repair the directory with `--write`.
    Repair(repair::RepairArguments),
    /// Abandon a further store whose directory is lost.
    Abandon(abandon::AbandonArguments),
    /// Show the size and the live share of each segment, and the contents of queues.
    Stats(stats::StatsArguments),
    /// Print all records, one per line.
    Dump(dump::DumpArguments),
    /// Write all messages to a file for `import`, except those of prepared transactions.
    Export(export::ExportArguments),
    /// Read messages of an export into queues.
    Import(import::ImportArguments),
    /// Make a consistent copy of a running broker's directory.
    Backup(backup::BackupArguments),
}

/// Carries it out.
pub fn run(store: &Store) -> anyhow::Result<()> {
    match store {
        Store::Verify(arguments) => verify::run(arguments),
        Store::Repair(arguments) => repair::run(arguments),
        Store::Abandon(arguments) => abandon::run(arguments),
        Store::Stats(arguments) => stats::run(arguments),
        Store::Dump(arguments) => dump::run(arguments),
        Store::Export(arguments) => export::run(arguments),
        Store::Import(arguments) => import::run(arguments),
        Store::Backup(arguments) => backup::run(arguments),
    }
}

/// Settings for partitions without connections.
fn settings(config: &Config) -> anyhow::Result<impl Fn(PartitionId, Placement, u64) -> Settings> {
    let policies = Arc::new(config.policies()?);
    let audited_producers_max = config.limits.audited_producers;
    Ok(move |id, placement, incarnation| Settings {
        audited_producers_max,
        policies: policies.clone(),
        ..Settings::at_rest(id, placement, incarnation)
    })
}

fn is_locked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(StoreError::KeyUnknown(_)))
}

/// Which directory, and who reads the answer.
#[derive(Debug, Args)]
struct Place {
    /// Data directory of a stopped broker.
    #[arg(value_name = "DIR")]
    data: PathBuf,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    /// Configuration file with the keys of an encrypted store.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Place {
    /// The keys that the configuration names.
    fn keys(&self) -> anyhow::Result<Keys> {
        Ok(Config::of(self.config.as_deref())?.keys()?.journal)
    }

    /// Reads it, and changes nothing.
    fn open(&self) -> anyhow::Result<Stopped> {
        self.look().with_context(|| format!("cannot read {}", self.data.display()))
    }

    /// As [`Place::open`], without partitions if the configuration names none of the needed keys.
    fn open_with_or_without_keys(&self) -> anyhow::Result<Stopped> {
        let looked = match self.look() {
            Err(error) if self.config.is_none() && is_locked(&error) => {
                Ok(Stopped::look_without_keys(&self.data)?)
            }
            looked => looked,
        };
        looked.with_context(|| format!("cannot read {}", self.data.display()))
    }

    fn look(&self) -> anyhow::Result<Stopped> {
        let config = Config::default();
        Ok(Stopped::look(&self.data, self.keys()?, config.addressing()?, settings(&config)?)?)
    }
}
