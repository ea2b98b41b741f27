//! `postroad ctl token`: tokens of users, which clients send in place of a password.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use postroad_model::Date;
use serde_json::{Value, json};

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::{ListArguments, print_rows};

/// Commands for tokens. A running broker makes and ends them at once.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token for a user, and print it. It is not shown again.
    New(NewArguments),
    /// List tokens, without their secrets.
    List(TokensArguments),
    /// Revoke a token: requests and logins with it fail at once, and its connections end.
    Revoke(RevokeArguments),
}

/// For whom.
#[derive(Debug, Args)]
pub struct NewArguments {
    /// The user that the token acts for.
    #[arg(value_name = "USER")]
    owner: String,
    /// How long it lasts, as in 90s, 30m, 12h or 30d [default: until it is revoked].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    expires: Option<u64>,
    /// Its scope: messages, read (of the admin API), manage [default: messages,manage].
    #[arg(long, value_name = "SCOPE,…")]
    scope: Option<String>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Whose.
#[derive(Debug, Args)]
pub struct TokensArguments {
    /// Only tokens of users whose name contains this text.
    #[arg(value_name = "USER")]
    owner: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

/// Which token.
#[derive(Debug, Args)]
pub struct RevokeArguments {
    /// The id of the token: its second part.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    broker: BrokerArguments,
}

const TOKENS: &[Column] = &[
    Column::text("ID", "id"),
    Column::text("USER", "user"),
    Column::text("SCOPE", "scope"),
    Column::text("CREATED", "created"),
    Column::text("EXPIRES", "expires"),
];

/// Carries it out.
///
/// # Errors
/// The broker does not run, or says why not.
pub fn run(command: &TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::New(NewArguments { owner, expires, scope, broker, json }) => {
            let body = json!({ "user": owner, "scope": scope, "expires_seconds": expires });
            let made = request(broker, Method::Post, "/api/v1/tokens", Some(&body))?;
            let mut out = std::io::stdout().lock();
            match json {
                true => writeln!(out, "{made}"),
                false => writeln!(out, "{}", made["token"].as_str().unwrap_or_default()),
            }
            .context("cannot write to standard output")
        }
        TokenCommand::List(TokensArguments { owner, list }) => {
            print_rows(list, TOKENS, "/api/v1/tokens", &[("filter", owner.as_deref())], with_dates)
        }
        TokenCommand::Revoke(RevokeArguments { id, broker }) => {
            request(broker, Method::Delete, &format!("/api/v1/tokens/{}", encoded(id)), None)?;
            eprintln!("revoked the token {id}");
            Ok(())
        }
    }
}

/// The row with its times as people read them.
fn with_dates(row: &Value) -> Value {
    let mut row = row.clone();
    for (of, to) in [("created_ms", "created"), ("expires_ms", "expires")] {
        row[to] = row[of].as_u64().map_or(json!("never"), |ms| json!(date(ms)));
    }
    row
}

/// A time in UTC, to the minute.
fn date(ms: u64) -> String {
    let (minutes, Date { year, month, day }) = (ms / 60_000 % 1440, Date::of_days(ms / 86_400_000));
    format!("{year}-{month:02}-{day:02} {:02}:{:02}Z", minutes / 60, minutes % 60)
}

/// Seconds of a time with its unit.
fn seconds(text: &str) -> Result<u64, String> {
    let right = || format!("{text:?} is not a time: 90s, 30m, 12h or 30d is right");
    let at = text.len().checked_sub(1).filter(|at| text.is_char_boundary(*at)).ok_or_else(right)?;
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(right()),
    };
    let number: u64 = number.parse().map_err(|_| right())?;
    number.checked_mul(unit).filter(|seconds| 0 < *seconds).ok_or_else(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_dates_are_read_by_people() {
        for (text, want) in [
            ("90s", Some(90)),
            ("30m", Some(1_800)),
            ("12h", Some(43_200)),
            ("30d", Some(2_592_000)),
            ("0s", None),
            ("30", None),
            ("", None),
            ("d", None),
            ("3ä", None),
            ("-1d", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(seconds(text).ok(), want, "{text:?}");
        }
        for (ms, want) in [
            (0, "1970-01-01 00:00Z"),
            (951_782_400_000, "2000-02-29 00:00Z"),
            (1_795_804_740_000, "2026-11-27 18:39Z"),
        ] {
            assert_eq!(date(ms), want);
        }
    }
}
