//! `postroad transactions`: branches of distributed transactions that wait for a word of their
//! managers.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use postroad_model::BranchId;

use crate::cli::control::ask;
use crate::control::{Answer, Request};

/// Commands for prepared transactions of a running broker.
#[derive(Debug, Subcommand)]
pub enum Transactions {
    /// List prepared branches, and those that an operator has resolved.
    List(DataArguments),
    /// Commit a prepared branch in place of its transaction manager.
    Commit(BranchArguments),
    /// Roll back a prepared branch in place of its transaction manager.
    Rollback(BranchArguments),
    /// Forget the heuristic outcome of a resolved branch.
    Forget(BranchArguments),
}

/// Which broker.
#[derive(Debug, Args)]
pub struct DataArguments {
    /// Data directory of a running broker.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Which branch.
#[derive(Debug, Args)]
pub struct BranchArguments {
    /// Branch as printed by `list`: format, transaction and qualifier.
    #[arg(value_name = "BRANCH")]
    branch: BranchId,
    #[command(flatten)]
    broker: DataArguments,
}

/// Asks the broker.
///
/// # Errors
/// It does not run, or says why not.
pub fn run(transactions: &Transactions) -> anyhow::Result<()> {
    let (broker, request) = match transactions {
        Transactions::List(broker) => (broker, Request::Transactions),
        Transactions::Commit(at) => (&at.broker, overrule(at, true)),
        Transactions::Rollback(at) => (&at.broker, overrule(at, false)),
        Transactions::Forget(at) => (&at.broker, Request::Forget { branch: at.branch.to_string() }),
    };
    match ask(&broker.data, &request)? {
        Answer::Transactions(branches) => {
            let mut out = std::io::stdout().lock();
            for listed in branches {
                writeln!(out, "{}  {}", listed.branch, listed.state)?;
            }
            Ok(())
        }
        Answer::Ended { .. } | Answer::Forgotten { .. } => Ok(()),
        other => bail!("unexpected answer from the broker: {other:?}"),
    }
}

fn overrule(at: &BranchArguments, commit: bool) -> Request {
    Request::Overrule { branch: at.branch.to_string(), commit }
}
