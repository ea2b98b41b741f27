//! `postroad ctl apply FILE`: what a tenant declares by a file, compared with what there is, and
//! applied.
//!
//! The broker names faults by the number of an entry; here they get the line of the file.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use postroad_routing::FIRST_STORE;
use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::http::{BrokerArguments, Method, encoded, request};

/// Which file, and whether to change anything.
#[derive(Debug, Args)]
pub struct ApplyArguments {
    /// File (TOML) with tenant = "NAME", and tables [[queue]], [[user]], [[route]] and [[alert]].
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// List the changes only.
    #[arg(long)]
    dry_run: bool,
    /// Delete routes and alerts of the tenant that are not in the file. Queues and users stay.
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Declared {
    tenant: Option<String>,
    queue: Vec<Spanned<toml::Table>>,
    user: Vec<Spanned<toml::Table>>,
    route: Vec<Spanned<toml::Table>>,
    alert: Vec<Spanned<toml::Table>>,
}

/// # Errors
/// The file or the broker refuses it: with the lines.
pub fn run(arguments: &ApplyArguments) -> anyhow::Result<()> {
    let file = &*arguments.file;
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let declared = Declared::parse(file, &text)?;
    let tenant = match &declared.tenant {
        Some(tenant) => tenant.clone(),
        None => own_tenant(&arguments.broker, file)?,
    };
    let mut body = declared.body(file, &text)?;
    body["prune"] = json!(arguments.prune);
    body["dry_run"] = json!(true);
    let plan = ask(&arguments.broker, &tenant, &body)?;
    let faults = declared.faults(&text, &plan);
    if !faults.is_empty() {
        let lines = faults.iter().map(|(line, error)| match line {
            Some(line) => format!("{} line {line}: {error}", file.display()),
            None => format!("{}: {error}", file.display()),
        });
        bail!("nothing is changed\n{}", lines.collect::<Vec<_>>().join("\n"));
    }
    let answer = match arguments.dry_run {
        true => plan,
        false => {
            body["dry_run"] = json!(false);
            ask(&arguments.broker, &tenant, &body)?
        }
    };
    let mut out = std::io::stdout().lock();
    let printed = match arguments.json {
        true => writeln!(out, "{answer}"),
        false => print(&mut out, (&tenant, arguments.dry_run), &answer),
    };
    printed.context("cannot write to standard output")
}

/// Plans or applies what is declared: queues in the tenant's own store of a cluster, and the rest
/// in the first one.
fn ask(broker: &BrokerArguments, tenant: &str, body: &Value) -> anyhow::Result<Value> {
    let of_tenant = format!("/api/v1/tenants/{}", encoded(tenant));
    let path = format!("{of_tenant}/apply");
    let row = request(broker, Method::Get, &of_tenant, None).unwrap_or_default();
    let store = row["store"].as_u64().and_then(|store| u16::try_from(store).ok());
    let Some(store) = store.filter(|store| broker.store.is_none() && *store != FIRST_STORE) else {
        return request(broker, Method::Post, &path, Some(body));
    };
    let queues = json!({ "queues": body["queues"], "dry_run": body["dry_run"] });
    let mut rest = body.clone();
    rest["queues"] = json!([]);
    let mut answer = request(&broker.of_store(Some(store)), Method::Post, &path, Some(&queues))?;
    let more = request(broker, Method::Post, &path, Some(&rest))?;
    for list in ["changes", "faults"] {
        if let (Some(all), Some(more)) = (answer[list].as_array_mut(), more[list].as_array()) {
            all.extend(more.iter().cloned());
        }
    }
    Ok(answer)
}

/// The tenant that the caller administers: the only one that it sees.
fn own_tenant(broker: &BrokerArguments, file: &Path) -> anyhow::Result<String> {
    let tenants = request(broker, Method::Get, "/api/v1/tenants", None)?;
    let names: Vec<&str> =
        tenants["items"].as_array().into_iter().flatten().filter_map(|row| row["name"].as_str()).collect();
    match names[..] {
        [only] => Ok(only.to_owned()),
        _ => bail!("{}: tenant is missing; begin the file with tenant = \"NAME\"", file.display()),
    }
}

impl Declared {
    fn parse(file: &Path, text: &str) -> anyhow::Result<Declared> {
        toml::from_str(text)
            .map_err(|error| anyhow::anyhow!("in {}: {}", file.display(), error.to_string().trim_end()))
    }

    fn of_kind(&self, kind: &str) -> &[Spanned<toml::Table>] {
        match kind {
            "queue" => &self.queue,
            "user" => &self.user,
            "route" => &self.route,
            "alert" => &self.alert,
            _ => &[],
        }
    }

    /// The request, with the passwords of users in place of where they are.
    fn body(&self, file: &Path, text: &str) -> anyhow::Result<Value> {
        let all = |entries: &[Spanned<toml::Table>]| -> anyhow::Result<Vec<Value>> {
            let entries = entries.iter().map(|entry| Ok(serde_json::to_value(entry.get_ref())?));
            entries.collect()
        };
        let mut users = Vec::with_capacity(self.user.len());
        for user in &self.user {
            let shown = |error| {
                let line = line_of(text, user.span().start);
                anyhow::Error::context(error, format!("{} line {line}", file.display()))
            };
            users.push(serde_json::to_value(with_password(user.get_ref().clone(), file).map_err(shown)?)?);
        }
        let (queues, routes, alerts) = (all(&self.queue)?, all(&self.route)?, all(&self.alert)?);
        Ok(json!({ "queues": queues, "users": users, "routes": routes, "alerts": alerts }))
    }

    /// The faults of a plan, each with the line of the file.
    fn faults(&self, text: &str, plan: &Value) -> Vec<(Option<usize>, String)> {
        let faults = plan["faults"].as_array().into_iter().flatten().map(|fault| {
            let (kind, error) =
                (fault["kind"].as_str().unwrap_or_default(), fault["error"].as_str().unwrap_or_default());
            let number = fault["number"].as_u64().unwrap_or_default() as usize;
            let entries = self.of_kind(kind);
            let Some(entry) = number.checked_sub(1).and_then(|place| entries.get(place)) else {
                return (None, format!("[[{kind}]]: {error}"));
            };
            let end = entries.get(number).map(|next| next.span().start);
            let line = line_of_key(text, entry.span().start, end, entry.get_ref(), error);
            (Some(line), format!("[[{kind}]]: {error}"))
        });
        faults.collect()
    }
}

/// A user with its password, if a file or a variable is named that has it.
fn with_password(mut user: toml::Table, file: &Path) -> anyhow::Result<toml::Table> {
    let text = |user: &toml::Table, key: &str| match user.get(key) {
        None => Ok(None),
        Some(toml::Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => bail!("{key} is {other}; use a text"),
    };
    let (from_file, from_variable) = (text(&user, "password_file")?, text(&user, "password_env")?);
    if user.contains_key("password") {
        bail!(
            "password does not belong into the file; use password_file = \"FILE\" or password_env = \"VARIABLE\""
        );
    }
    let password = match (from_file, from_variable) {
        (None, None) => return Ok(user),
        (Some(_), Some(_)) => bail!("password_file and password_env are both set; use one of them"),
        (Some(name), None) => {
            let path = file.parent().unwrap_or(Path::new("")).join(name);
            let read = std::fs::read_to_string(&path);
            let read = read.with_context(|| format!("password_file: cannot read {}", path.display()))?;
            read.lines().next().unwrap_or_default().to_owned()
        }
        (None, Some(name)) => std::env::var(&name)
            .with_context(|| format!("password_env: the environment variable {name} is not set"))?,
    };
    user.remove("password_file");
    user.remove("password_env");
    user.insert("password".to_owned(), password.into());
    Ok(user)
}

/// The number of the line, from 1 on, of a place in the text.
fn line_of(text: &str, place: usize) -> usize {
    1 + text.bytes().take(place).filter(|byte| *byte == b'\n').count()
}

/// The line of the key that the error names first; that of the entry if it names none.
fn line_of_key(text: &str, begin: usize, end: Option<usize>, entry: &toml::Table, error: &str) -> usize {
    let first = line_of(text, begin);
    let is_word = |place: usize, key: &str| {
        let is_part = |sign: Option<char>| sign.is_some_and(|sign| sign.is_alphanumeric() || sign == '_');
        let after = error[place + key.len()..].chars().next();
        !is_part(error[..place].chars().next_back()) && !is_part(after)
    };
    let places = entry.keys().filter_map(|key| {
        let place =
            error.match_indices(key.as_str()).map(|(place, _)| place).find(|place| is_word(*place, key));
        Some((place?, key))
    });
    let Some((_, key)) = places.min() else { return first };
    let last = end.map_or(usize::MAX, |end| line_of(text, end));
    let lines = (1..).zip(text.lines()).skip(first - 1).take(last.saturating_sub(first).max(1));
    let is_of_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key.as_str());
        rest.is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
    };
    lines.filter(|(_, line)| is_of_key(line)).map(|(number, _)| number).next().unwrap_or(first)
}

fn print(out: &mut impl Write, (tenant, is_dry_run): (&str, bool), answer: &Value) -> std::io::Result<()> {
    let changes = answer["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |action: &str| changes.iter().filter(|change| change["action"] == action).count();
    for change in changes {
        let sign = match change["action"].as_str() {
            Some("create") => '+',
            Some("change") => '~',
            Some("delete") => '-',
            _ => continue,
        };
        let (kind, name) = (text(&change["kind"]), text(&change["name"]));
        writeln!(out, "{sign} {kind:<5} {name}")?;
        for (sign, member) in [('-', "from"), ('+', "to")] {
            if let (Some(value), true) = (change[member].as_str(), change["action"] == "change") {
                writeln!(out, "    {sign} {value}")?;
            }
        }
        if let Some(password) = change["password"].as_str() {
            writeln!(out, "    password {password} (shown this once)")?;
        }
    }
    let (create, change, delete, keep) = (of("create"), of("change"), of("delete"), of("keep"));
    match is_dry_run {
        true => writeln!(
            out,
            "tenant {tenant}: {create} to create, {change} to change, {delete} to delete, {keep} unchanged"
        ),
        false => writeln!(
            out,
            "tenant {tenant}: {create} created, {change} changed, {delete} deleted, {keep} unchanged"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "tenant = \"acme\"\n\n[[queue]]\nname = \"acme.a\"\n\n[[queue]]\nname = \"b\"\n\n\
                        [[route]]\nname = \"acme.r\"\nfrom = \"queue://acme.a\"\nto = []\n\
                        [[route]]\nname = \"acme.s\"\nfrm = \"x\"\n";

    #[test]
    fn a_fault_gets_the_line_of_the_key_that_it_names() {
        let declared = Declared::parse(Path::new("file"), FILE).unwrap();
        for (kind, number, error, want) in [
            ("queue", 1, "something", Some(3)),
            ("queue", 2, "name \"b\" is not that of a queue", Some(7)),
            ("route", 1, "to queue://x is outside of the tenant", Some(12)),
            ("route", 1, "from queue://x is outside, unlike to", Some(11)),
            ("route", 2, "unknown field `frm`, expected one of `name`, `from`", Some(15)),
            ("route", 1, "fromage and tofu", Some(9)),
            ("route", 0, "routes form a cycle", None),
            ("route", 3, "there is none", None),
        ] {
            let plan = json!({ "faults": [{ "kind": kind, "number": number, "error": error }] });
            let faults = declared.faults(FILE, &plan);
            assert_eq!(faults, [(want, format!("[[{kind}]]: {error}"))], "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_with_the_line() {
        for (text, want) in [
            ("tenant = \"a\"\n[[queues]]\n", "unknown field `queues`, expected one of `tenant`"),
            ("[[queue]]\nname = x\n", "line 2"),
            ("tenant = 5\n", "line 1"),
        ] {
            let error = Declared::parse(Path::new("file"), text).unwrap_err().to_string();
            assert!(error.starts_with("in file: ") && error.contains(want), "{error}");
        }
        for (user, want) in [
            ("password = \"x\"", "file line 3: password does not belong into the file"),
            ("password_env = 5", "file line 3: password_env is 5; use a text"),
            (
                "password_env = \"POSTROAD_NONE\"",
                "file line 3: password_env: the environment variable POSTROAD_NONE is not set",
            ),
            ("password_file = \"/none\"", "file line 3: password_file: cannot read /none"),
            (
                "password_file = \"/none\"\npassword_env = \"X\"",
                "file line 3: password_file and password_env are both set",
            ),
        ] {
            let text = format!("tenant = \"a\"\n\n[[user]]\nname = \"a.b\"\n{user}\n");
            let declared = Declared::parse(Path::new("file"), &text).unwrap();
            let error = format!("{:#}", declared.body(Path::new("file"), &text).unwrap_err());
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn a_password_comes_from_a_file_beside_and_its_way_stays_here() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "wonder\nmore\n").unwrap();
        let text = "[[user]]\nname = \"a.b\"\npassword_file = \"secret\"\n[[user]]\nname = \"a.c\"\n";
        let file = folder.path().join("file");
        let body = Declared::parse(&file, text).unwrap().body(&file, text).unwrap();
        assert_eq!(body["users"], json!([{ "name": "a.b", "password": "wonder" }, { "name": "a.c" }]));
    }
}
