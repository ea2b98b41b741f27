//! The command line: what people type. Each sub-command is a file of its own.

mod serve;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A message broker that ActiveMQ clients use as it stands.
#[derive(Debug, Parser)]
#[command(name = "postroad", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker until SIGTERM or Ctrl-C.
    Serve(ServeArguments),
    /// Print the version.
    Version,
}

/// What `serve` can be told; each one wins over the configuration file.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// The configuration file (TOML). None is needed.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where messages are kept [default: data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1].
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<IpAddr>,
    /// Added to every port.
    #[arg(long, value_name = "N")]
    pub port_offset: Option<u16>,
}

/// Reads the command line and carries it out.
pub fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Version => {
            writeln!(std::io::stdout(), "postroad {}", env!("CARGO_PKG_VERSION"))?;
            Ok(())
        }
    }
}
