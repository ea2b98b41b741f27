//! `postroad ctl transactions`: prepared branches of XA transactions, and their end by an operator.

use clap::{Args, Subcommand};

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::{ListArguments, print};

const COLUMNS: &[Column] = &[Column::whole("BRANCH", "branch"), Column::text("STATE", "state")];

/// A list, or the end of a branch.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TransactionsArguments {
    #[command(subcommand)]
    command: Option<TransactionsCommand>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, Subcommand)]
enum TransactionsCommand {
    /// Commit a prepared branch in place of its transaction manager.
    Commit(BranchArguments),
    /// Roll back a prepared branch in place of its transaction manager.
    Rollback(BranchArguments),
    /// Forget the outcome of a branch that an operator has ended.
    Forget(BranchArguments),
}

/// Which branch.
#[derive(Debug, Args)]
struct BranchArguments {
    /// Branch as listed: format, transaction and qualifier.
    #[arg(value_name = "BRANCH")]
    branch: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

pub fn run(TransactionsArguments { command, list }: &TransactionsArguments) -> anyhow::Result<()> {
    let (of, method, action, done) = match command {
        None => return print(list, COLUMNS, "/api/v1/transactions", &[], None),
        Some(TransactionsCommand::Commit(of)) => (of, Method::Post, "/commit", "committed"),
        Some(TransactionsCommand::Rollback(of)) => (of, Method::Post, "/rollback", "rolled back"),
        Some(TransactionsCommand::Forget(of)) => (of, Method::Delete, "", "forgot"),
    };
    request(&of.broker, method, &format!("/api/v1/transactions/{}{action}", encoded(&of.branch)), None)?;
    eprintln!("{done} {}", of.branch);
    Ok(())
}
