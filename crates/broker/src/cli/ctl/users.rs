//! `postroad ctl user`: users of a running broker, without an edit of their file.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::{ListArguments, print_rows};
use crate::cli::user::read_password;

/// Commands for users. A running broker follows at once.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user, with a password of one line from standard input.
    Add(AddArguments),
    /// List users with their groups.
    List(ListArguments),
    /// Remove a user: its tokens, sessions and connections end.
    Remove(OneArguments),
    /// Change the password of a user, read as one line from standard input.
    Password(OneArguments),
    /// Set the groups of a user, in place of those before.
    Groups(GroupsArguments),
}

/// Which user, and how.
#[derive(Debug, Args)]
pub struct AddArguments {
    #[command(flatten)]
    one: OneArguments,
    /// Groups of the user.
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',')]
    groups: Vec<String>,
    /// Make up a password and print it, in place of standard input.
    #[arg(long)]
    generate: bool,
}

/// Which user.
#[derive(Debug, Args)]
pub struct OneArguments {
    /// Name of the user.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Which user, and which groups.
#[derive(Debug, Args)]
pub struct GroupsArguments {
    #[command(flatten)]
    one: OneArguments,
    /// Names of the groups, none to leave all of them.
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
}

const USERS: &[Column] =
    &[Column::text("NAME", "name"), Column::text("GROUPS", "shown"), Column::number("TOKENS", "tokens")];

/// Carries it out.
///
/// # Errors
/// The broker does not run, or says why not.
pub fn run(command: &UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Add(arguments) => add(arguments),
        UserCommand::List(list) => print_rows(list, USERS, "/api/v1/users", &[], with_groups),
        UserCommand::Remove(one) => {
            request(&one.broker, Method::Delete, &one.path(""), None)?;
            eprintln!("removed the user {}", one.name);
            Ok(())
        }
        UserCommand::Password(one) => {
            let body = json!({ "password": read_password(&one.name)? });
            request(&one.broker, Method::Put, &one.path("/password"), Some(&body)).map(drop)
        }
        UserCommand::Groups(GroupsArguments { one, groups }) => {
            let body = json!({ "groups": groups });
            request(&one.broker, Method::Put, &one.path("/groups"), Some(&body)).map(drop)
        }
    }
}

fn add(AddArguments { one, groups, generate }: &AddArguments) -> anyhow::Result<()> {
    let password = if *generate { None } else { Some(read_password(&one.name)?) };
    let body = json!({ "name": one.name, "password": password, "groups": groups });
    let made = request(&one.broker, Method::Post, "/api/v1/users", Some(&body))?;
    match made["password"].as_str() {
        Some(password) => {
            writeln!(std::io::stdout(), "{password}").context("cannot write to standard output")
        }
        None => Ok(()),
    }
}

impl OneArguments {
    fn path(&self, of: &str) -> String {
        format!("/api/v1/users/{}{of}", encoded(&self.name))
    }
}

fn with_groups(row: &Value) -> Value {
    let mut row = row.clone();
    let names = row["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    row["shown"] = json!(names.collect::<Vec<_>>().join(","));
    row
}
