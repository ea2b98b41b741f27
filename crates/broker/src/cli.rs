//! The command line. Each sub-command is a file of its own.

mod admission;
mod alerts;
mod browse;
mod config;
mod control;
mod ctl;
mod generate;
mod key;
mod queue;
mod receive;
mod redrive;
mod reload;
mod send;
mod serve;
mod several;
mod store;
mod transactions;
mod user;
mod version;

mod base64;
mod directory;
mod link;
mod listeners;
mod names;
mod node;
mod oidc_keys;
mod progress;
mod show;
mod store_count;
mod stores;
mod versions;
mod ways;
mod words;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::parse_bytes;

/// Fewer messages came in time than were asked for. Errors exit with 1, misuse of the command line
/// with 2.
const EXIT_TIMEOUT: u8 = 3;

/// Message broker for unmodified ActiveMQ, AMQP 1.0 and IronMQ clients.
#[derive(Debug, Parser)]
#[command(name = "postroad", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker until SIGTERM or Ctrl-C.
    Serve(ServeArguments),
    /// Send messages to a queue or topic.
    Send(Box<send::SendArguments>),
    /// Print messages of a queue or topic, and acknowledge them.
    Receive(receive::ReceiveArguments),
    /// Print messages of a queue, and leave them there.
    Browse(browse::BrowseArguments),
    /// Send dead letters back to their original queues.
    Redrive(redrive::RedriveArguments),
    /// Move queues of a running broker from one store to another.
    #[command(subcommand)]
    Queue(queue::Queue),
    /// Inspect a running broker, and manage its messages.
    #[command(subcommand)]
    Ctl(ctl::Ctl),
    /// Verify, repair, export, import and back up data directories.
    #[command(subcommand)]
    Store(store::Store),
    /// List and resolve prepared XA transactions of a running broker.
    #[command(subcommand)]
    Transactions(transactions::Transactions),
    /// Create and identify encryption keys.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Add, remove and list the users of a broker.
    #[command(subcommand)]
    User(user::User),
    /// Translate configuration files of other brokers.
    #[command(subcommand)]
    Config(config::Config),
    /// Show the rates of a running broker and its queues, again and again.
    Top(ctl::top::TopArguments),
    /// Print completions for a shell.
    Completions(generate::CompletionsArguments),
    /// Write manual pages.
    Man(generate::ManArguments),
    /// Print the version.
    Version(version::VersionArguments),
}

/// Arguments of `serve`; each has precedence over the configuration file.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArguments {
    /// Configuration file (TOML); optional.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data directory [default: data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1].
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<IpAddr>,
    /// Let clients in that send no user name; without users, from the whole network.
    #[arg(long)]
    pub anonymous: bool,
    /// Number added to every port.
    #[arg(long, value_name = "N")]
    pub port_offset: Option<u16>,
    /// Memory for the whole broker, such as 512MiB [default: a quarter of the machine].
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Name of this node; makes the broker a node of a replicated cluster.
    #[arg(long, value_name = "NAME", requires_all = ["cluster_listen", "cluster_seeds"])]
    pub node: Option<String>,
    /// Address on which this node listens for others; one of the seeds, unless it joins later.
    #[arg(long, value_name = "HOST:PORT")]
    pub cluster_listen: Option<String>,
    /// Addresses of all nodes of a new cluster, the same list in the same order on each; or of
    /// nodes of the cluster that this one joins.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub cluster_seeds: Vec<String>,
    /// The store of the cluster that a part of the process serves.
    #[arg(skip)]
    pub store: u16,
}

/// The error and its causes, in one text. A cause that the text ends with already is not said
/// again.
pub fn complaint(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.as_str() {
            "" => cause,
            said if said.ends_with(&cause) => text,
            said => format!("{said}: {cause}"),
        }
    })
}

/// Reads the command line and carries it out.
///
/// # Errors
/// The error of the sub-command: the caller prints it, and exits with code 1.
pub fn run() -> anyhow::Result<ExitCode> {
    match Cli::parse_from(ctl::options_last(std::env::args_os())).command {
        Command::Receive(arguments) => return receive::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments)?,
        Command::Send(arguments) => send::run(&arguments)?,
        Command::Redrive(arguments) => redrive::run(&arguments)?,
        Command::Queue(queue) => queue::run(&queue)?,
        Command::Ctl(ctl) => ctl::run(&ctl)?,
        Command::Browse(arguments) => browse::run(&arguments)?,
        Command::Store(store) => store::run(&store)?,
        Command::Transactions(transactions) => transactions::run(&transactions)?,
        Command::Key(key) => key::run(&key)?,
        Command::User(user) => user::run(&user)?,
        Command::Config(config) => config::run(&config)?,
        Command::Top(arguments) => ctl::top::run(&arguments)?,
        Command::Completions(arguments) => generate::completions(&arguments, Cli::command())?,
        Command::Man(arguments) => generate::man(&arguments, Cli::command())?,
        Command::Version(arguments) => version::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = || anyhow::anyhow!("file exists");
        for (case, error, want) in [
            ("alone", cause(), "file exists"),
            ("quoted already", cause().context("data: file exists"), "data: file exists"),
            ("not quoted", cause().context("data").context("store"), "store: data: file exists"),
        ] {
            assert_eq!(complaint(&error), want, "case: {case}");
        }
    }
}
