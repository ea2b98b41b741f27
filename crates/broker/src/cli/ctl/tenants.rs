//! `postroad ctl tenant`: tenants of a running broker, with connection strings and sample code.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::http::{BrokerArguments, Method, encoded, request};
use super::table::Column;
use super::tenant_samples::{Access, samples};
use super::{ListArguments, print_rows};

/// Commands for tenants. A running broker follows at once.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Add a tenant, and print the password of its administrator, connection strings and sample
    /// code.
    Add(ChangeArguments),
    /// List tenants with their usage.
    List(ListArguments),
    /// Show one tenant: destinations, quotas and usage.
    Show(OneArguments),
    /// Change quotas of a tenant; those that are not named stay.
    Set(ChangeArguments),
    /// Delete a tenant without queues, with its users.
    Delete(OneArguments),
}

/// Which tenant.
#[derive(Debug, Args)]
pub struct OneArguments {
    /// Name of the tenant: letters, digits, - and _.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Which tenant, and its quotas.
#[derive(Debug, Args)]
pub struct ChangeArguments {
    #[command(flatten)]
    one: OneArguments,
    /// Maximum of its connections; 0 for any number.
    #[arg(long, value_name = "N")]
    connections_max: Option<u64>,
    /// Maximum of its queues and durable subscriptions; 0 for any number.
    #[arg(long, value_name = "N")]
    queues_max: Option<u64>,
    /// Maximum of messages in its queues; 0 for any number.
    #[arg(long, value_name = "N")]
    messages_max: Option<u64>,
    /// Maximum of bytes of these messages; 0 for any number.
    #[arg(long, value_name = "BYTES")]
    bytes_max: Option<u64>,
    /// Maximum of bytes of these messages on disk; 0 for any number.
    #[arg(long, value_name = "BYTES")]
    disk_bytes_max: Option<u64>,
    /// Maximum of messages that it sends in a second; 0 for any number.
    #[arg(long, value_name = "N")]
    messages_per_second_max: Option<u64>,
    /// Weight of its fair share of the broker, from 1 to 1000; 0 for 1.
    #[arg(long, value_name = "N")]
    share: Option<u64>,
}

const TENANTS: &[Column] = &[
    Column::text("NAME", "name"),
    Column::number("USERS", "users"),
    Column::number("CONNECTIONS", "connections"),
    Column::number("QUEUES", "queues"),
    Column::number("MESSAGES", "messages"),
    Column::number("BYTES", "bytes"),
    Column::number("DISK BYTES", "disk_bytes"),
    Column::number("STORE", "store"),
    Column::text("QUOTAS", "shown"),
];

/// Carries it out.
///
/// # Errors
/// The broker does not run, or says why not.
pub fn run(command: &TenantCommand) -> anyhow::Result<()> {
    match command {
        TenantCommand::Add(arguments) => add(arguments),
        TenantCommand::List(list) => print_rows(list, TENANTS, "/api/v1/tenants", &[], flat),
        TenantCommand::Show(one) => show(one, &one.row()?),
        TenantCommand::Set(arguments) => {
            let one = &arguments.one;
            let body = Value::Object(arguments.quotas());
            let mut changed = request(&one.broker, Method::Put, &one.path(), Some(&body))?;
            // Another store follows a moment later: it knows the usage alone.
            changed["usage"] = one.row()?["usage"].clone();
            show(one, &changed)
        }
        TenantCommand::Delete(one) => {
            request(&one.broker, Method::Delete, &one.path(), None)?;
            eprintln!("deleted the tenant {}", one.name);
            Ok(())
        }
    }
}

impl OneArguments {
    fn path(&self) -> String {
        format!("/api/v1/tenants/{}", encoded(&self.name))
    }

    /// The tenant, from its own store, which knows its usage.
    fn row(&self) -> anyhow::Result<Value> {
        let row = request(&self.broker, Method::Get, &self.path(), None)?;
        let elsewhere = row["store"].as_u64().filter(|_| row["usage"].as_object().is_some_and(Map::is_empty));
        match elsewhere.and_then(|store| u16::try_from(store).ok()) {
            Some(store) if self.broker.store.is_none() => {
                request(&self.broker.of_store(Some(store)), Method::Get, &self.path(), None)
            }
            _ => Ok(row),
        }
    }
}

impl ChangeArguments {
    fn quotas(&self) -> Map<String, Value> {
        let all = [
            ("connections_max", self.connections_max),
            ("queues_max", self.queues_max),
            ("messages_max", self.messages_max),
            ("bytes_max", self.bytes_max),
            ("disk_bytes_max", self.disk_bytes_max),
            ("messages_per_second_max", self.messages_per_second_max),
            ("share", self.share),
        ];
        all.into_iter().filter_map(|(name, max)| Some((name.to_owned(), json!(max?)))).collect()
    }
}

fn add(arguments: &ChangeArguments) -> anyhow::Result<()> {
    let one = &arguments.one;
    let mut body = arguments.quotas();
    body.insert("name".to_owned(), json!(one.name));
    if let Some(store) = one.broker.store {
        body.insert("store".to_owned(), json!(store));
    }
    // Tenants are made in the first store, whichever is theirs.
    let first = one.broker.of_store(None);
    let mut made = request(&first, Method::Post, "/api/v1/tenants", Some(&Value::Object(body)))?;
    let about = request(&first, Method::Get, "/api/v1/broker", None)?;
    if let Some(store) = made["store"].as_u64() {
        eprintln!("the tenant {} is in store {store}", one.name);
    }
    let text = |name: &str| made[name].as_str().map(str::to_owned);
    let access = Access {
        tenant: one.name.clone(),
        user: text("administrator").unwrap_or_default(),
        password: text("password").unwrap_or_default(),
        endpoints: endpoints(&about, one.broker.url.as_ref().and_then(|url| url.host())),
    };
    let samples = samples(&access);
    if one.json {
        made["endpoints"] = access.endpoints.iter().map(|(name, url)| (name.clone(), json!(url))).collect();
        made["samples"] = samples.iter().map(|(name, code)| ((*name).to_owned(), json!(code))).collect();
        return writeln!(std::io::stdout(), "{made}").context("cannot write to standard output");
    }
    print(&access, &samples).context("cannot write to standard output")
}

fn print(access: &Access, samples: &[(&str, String)]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let Access { tenant, user, password, endpoints } = access;
    writeln!(out, "tenant        {tenant}")?;
    writeln!(out, "destinations  queue://{tenant}.>, topic://{tenant}.>")?;
    if user.is_empty() {
        writeln!(out, "users         none: this broker lets every client of its machine in")?;
    } else {
        writeln!(out, "user          {user}, who administers it")?;
        writeln!(out, "password      {password}")?;
        writeln!(out, "more users    postroad ctl user add {tenant}.app --generate --url … --user {user}")?;
    }
    for (name, url) in endpoints {
        writeln!(out, "{name:<13} {url}")?;
    }
    for (name, code) in samples {
        writeln!(out, "\n--- {name} ---\n{}", code.trim_end())?;
    }
    Ok(())
}

/// Where clients reach the broker. `host` is where this command has reached it: in place of an
/// address that stands for all of the machine's.
fn endpoints(about: &Value, host: Option<&str>) -> Vec<(String, String)> {
    let named = |of: &Value| Some((of["protocol"].as_str()?.to_owned(), of["url"].as_str()?.to_owned()));
    let all = about["endpoints"].as_array().into_iter().flatten().filter_map(named);
    let host = host.unwrap_or("localhost");
    let reachable = |url: String| url.replacen("0.0.0.0", host, 1).replacen("[::]", host, 1);
    all.map(|(name, url)| (name, reachable(url))).collect()
}

fn show(one: &OneArguments, tenant: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if one.json {
        return writeln!(out, "{tenant}").context("cannot write to standard output");
    }
    let list = |value: &Value| {
        let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    };
    let number = |value: &Value| value.as_u64().map_or_else(|| "any".to_owned(), |number| number.to_string());
    let mut print = || {
        writeln!(out, "tenant                   {}", one.name)?;
        writeln!(out, "destinations             {}", list(&tenant["destinations"]))?;
        writeln!(out, "users                    {}", tenant["users"])?;
        if let Some(store) = tenant["store"].as_u64() {
            writeln!(out, "store                    {store}")?;
        }
        for (name, max) in tenant["quotas"].as_object().into_iter().flatten() {
            let used = &tenant["usage"][name.trim_end_matches("_max")];
            let used = used.as_u64().map(|used| format!("{used} of ")).unwrap_or_default();
            writeln!(out, "{name:<24} {used}{}", number(max))?;
        }
        Ok::<_, std::io::Error>(())
    };
    print().context("cannot write to standard output")
}

/// A tenant with its usage beside its name.
fn flat(row: &Value) -> Value {
    let mut flat = row.clone();
    for (name, value) in row["usage"].as_object().into_iter().flatten() {
        flat[name] = value.clone();
    }
    let set = row["quotas"].as_object().into_iter().flatten().filter(|(_, max)| !max.is_null());
    let set = set.map(|(name, max)| format!("{name}={max}"));
    flat["shown"] = json!(set.collect::<Vec<_>>().join(" "));
    flat
}
