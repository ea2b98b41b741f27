//! `postroad transactions`: branches of distributed transactions that wait for a word of their managers.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use postroad_model::BranchId;

use crate::cli::control::ask;
use crate::control::{Answer, Request};

/// What can be done about them. The broker must run.
#[derive(Debug, Subcommand)]
pub enum Transactions {
    /// Print the branches that are prepared, and those that an operator has ended: one in a line.
    List(DataArguments),
    /// Carry out a prepared branch in place of its manager, which is told when it comes.
    Commit(BranchArguments),
    /// Undo a prepared branch in place of its manager, which is told when it comes.
    Rollback(BranchArguments),
    /// Forget how an operator has ended a branch, as its manager does once it knows.
    Forget(BranchArguments),
}

/// Which broker.
#[derive(Debug, Args)]
pub struct DataArguments {
    /// The data directory of a broker that runs.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Which branch.
#[derive(Debug, Args)]
pub struct BranchArguments {
    /// The branch, as `list` prints it: format, transaction and qualifier.
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
        other => bail!("the broker answers something else: {other:?}"),
    }
}

fn overrule(at: &BranchArguments, commit: bool) -> Request {
    Request::Overrule { branch: at.branch.to_string(), commit }
}
