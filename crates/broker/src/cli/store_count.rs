//! The stores of a node's cluster, as they were: how many there are, and which `[[tenant]]` is in
//! which. Another number would leave stores behind, or their clients, and another place messages.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use postroad_security::replace_file;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The file in the data directory. A node with one store has none.
const FILE: &str = "stores.json";
/// The replica of a node that was started before.
const REPLICA: &str = "replica.json";
const VERSION: u32 = 1;
const FILE_MODE: u32 = 0o644;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    stores: u16,
    /// The tenants of the configuration file.
    #[serde(default)]
    tenants: BTreeMap<String, u16>,
}

/// Tenants with their stores.
type TenantStores = BTreeMap<String, u16>;

/// Refuses a number of stores that is not that of the cluster, and records the one of a new node,
/// with the places of tenants.
///
/// # Errors
/// It is another, a tenant is in another store, or the file cannot be read or written.
pub fn check(config: &Config) -> anyhow::Result<()> {
    if config.cluster.node.is_empty() {
        return Ok(());
    }
    check_in(&config.data, config.cluster.stores)?;
    record_tenants(config)
}

/// Refuses a configuration in which a tenant is in another store than it was.
///
/// # Errors
/// With the tenant, its store and the remedy; the file cannot be read.
pub fn check_tenants(config: &Config) -> anyhow::Result<()> {
    if !config.cluster.has_several_stores() {
        return Ok(());
    }
    let data = config.node_data();
    let recorded = read(data)?.map(|text| text.tenants).unwrap_or_default();
    stay(&recorded, &config.tenant_stores()?).with_context(|| data.join(FILE).display().to_string())
}

/// As [`check_tenants`]; a good one is recorded. Tenants that it lacks are forgotten.
///
/// # Errors
/// As [`check_tenants`], or the file cannot be written.
pub fn record_tenants(config: &Config) -> anyhow::Result<()> {
    check_tenants(config)?;
    if !config.cluster.has_several_stores() {
        return Ok(());
    }
    let (data, tenants) = (config.node_data(), config.tenant_stores()?);
    match read(data)? {
        Some(text) if text.tenants != tenants => write(data, &Text { tenants, ..text }),
        _ => Ok(()),
    }
}

fn stay(recorded: &TenantStores, wanted: &TenantStores) -> anyhow::Result<()> {
    let moved = wanted.iter().find_map(|(tenant, store)| {
        let before = recorded.get(tenant).filter(|before| *before != store)?;
        Some((tenant, before, store))
    });
    let Some((tenant, before, store)) = moved else { return Ok(()) };
    bail!(
        "[[tenant]] {tenant} has store = {store}, and it is in store {before} with its messages, which do not \
         move: set store = {before} again; or, once its queues are empty, take its [[tenant]] table out, reload or \
         restart each node, and add it with the other store"
    )
}

fn check_in(data: &Path, stores: u16) -> anyhow::Result<()> {
    let recorded = match read(data)? {
        Some(text) => Some(text.stores),
        None => data.join(REPLICA).exists().then_some(1),
    };
    match recorded {
        Some(recorded) if recorded != stores => bail!(
            "cluster.stores is {stores}, and {} is that of a node with {recorded}: the number is recorded when \
             a cluster is made, and cannot change",
            data.display()
        ),
        None if 1 < stores => {
            std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
            write(data, &Text { version: VERSION, stores, tenants: BTreeMap::new() })
        }
        _ => Ok(()),
    }
}

/// The record, if there is one.
fn read(data: &Path) -> anyhow::Result<Option<Text>> {
    let file = data.join(FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let text: Text = serde_json::from_str(&text).with_context(|| format!("in {}", file.display()))?;
    if text.version != VERSION {
        bail!("{}: version {} is not supported", file.display(), text.version);
    }
    Ok(Some(text))
}

fn write(data: &Path, text: &Text) -> anyhow::Result<()> {
    let file = data.join(FILE);
    replace_file(&file, &serde_json::to_string_pretty(text)?, FILE_MODE)
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_stays_in_its_store_until_it_was_taken_out() {
        let home = tempfile::tempdir().unwrap();
        let config = |tenants: &[(&str, u16)]| {
            let tenants = tenants
                .iter()
                .map(|(name, store)| format!("[[tenant]]\nname = \"{name}\"\nstore = {store}\n"));
            let text = format!("[cluster]\nnode = \"n\"\nstores = 3\n{}", tenants.collect::<String>());
            Config { data: home.path().to_owned(), ..Config::parse(&text).unwrap() }
        };
        check(&config(&[("a", 2)])).unwrap();
        check(&config(&[("a", 2), ("b", 3)])).unwrap();
        for refused in [&[("a", 3), ("b", 3)][..], &[("a", 2), ("b", 1)]] {
            for checked in [check, check_tenants] {
                let error = format!("{:#}", checked(&config(refused)).unwrap_err());
                assert!(error.contains("which do not move: set store = "), "{error}");
            }
        }
        check(&config(&[("b", 3)])).unwrap();
        check(&config(&[("a", 3), ("b", 3)])).unwrap();
        assert_eq!(read(home.path()).unwrap().unwrap().tenants["a"], 3);
    }

    #[test]
    fn the_number_of_stores_is_that_of_the_first_start() {
        let home = tempfile::tempdir().unwrap();
        let (one, three) = (home.path().join("one"), home.path().join("three"));
        check_in(&one, 1).unwrap();
        assert!(!one.exists(), "a node with one store has no further file");
        std::fs::create_dir(&one).unwrap();
        std::fs::write(one.join(REPLICA), "").unwrap();
        check_in(&one, 1).unwrap();
        check_in(&three, 3).unwrap();
        check_in(&three, 3).unwrap();
        for (data, stores, want) in
            [(&one, 3, "a node with 1:"), (&three, 2, "a node with 3:"), (&three, 1, "a node with 3:")]
        {
            let error = check_in(data, stores).unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("cannot change"), "{error}");
        }
        std::fs::write(three.join(FILE), "{\"version\": 2, \"stores\": 3}").unwrap();
        assert!(check_in(&three, 3).unwrap_err().to_string().contains("version 2"));
    }
}
