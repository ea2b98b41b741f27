//! `postroad user`: the file of users.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use postroad_security::Users;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Commands for users. A running broker reads the file again on SIGHUP.
#[derive(Debug, Subcommand)]
pub enum User {
    /// Add a user or change a password, read as one line from standard input.
    Add(AddArguments),
    /// Remove a user.
    Remove(NameArguments),
    /// List the names of all users.
    List(FileArguments),
}

/// Which file.
#[derive(Debug, Args)]
pub struct FileArguments {
    /// File of users, as in `security.users` of the configuration.
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
}

/// Which user.
#[derive(Debug, Args)]
pub struct NameArguments {
    /// Name of the user.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    file: FileArguments,
}

/// Which user, and with which verifiers.
#[derive(Debug, Args)]
pub struct AddArguments {
    #[command(flatten)]
    user: NameArguments,
    /// Keep the password for Argon2id only: AMQP clients cannot use SCRAM then, and a stolen file
    /// is harder to guess from. Users that are added later follow the others of the file.
    #[arg(long)]
    no_scram: bool,
}

/// Carries it out.
///
/// # Errors
/// The file cannot be read or written; or name or password cannot be.
pub fn run(user: &User) -> anyhow::Result<()> {
    match user {
        User::Add(AddArguments { user: NameArguments { name, file }, no_scram }) => {
            let mut users = if file.users.exists() { Users::load(&file.users)? } else { Users::default() };
            let password = read_password(name)?;
            match no_scram {
                true => users.set_with(name, &password, false)?,
                false => users.set(name, &password)?,
            }
            users.store(&file.users)?;
        }
        User::Remove(NameArguments { name, file }) => {
            let mut users = Users::load(&file.users)?;
            if !users.remove(name) {
                bail!("{}: there is no user {name}", file.users.display());
            }
            users.store(&file.users)?;
        }
        User::List(file) => {
            let users = Users::load(&file.users)?;
            let mut out = std::io::stdout().lock();
            for name in users.names() {
                writeln!(out, "{name}")?;
            }
        }
    }
    Ok(())
}

/// One line of standard input; a terminal does not show it.
pub fn read_password(name: &str) -> anyhow::Result<String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return read_line();
    }
    let shown = tcgetattr(&input).context("the terminal")?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    eprint!("Password of {name}: ");
    tcsetattr(&input, OptionalActions::Flush, &hidden).context("the terminal")?;
    let line = read_line();
    tcsetattr(&input, OptionalActions::Flush, &shown).context("the terminal")?;
    eprintln!();
    line
}

fn read_line() -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("the password")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
