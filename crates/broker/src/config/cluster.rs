//! `[cluster]`: the nodes that keep the same messages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use postroad_cluster::{Level, Levels, STORES_MAX, Weight};
use postroad_model::Destination;
use postroad_routing::{DestinationPattern, FIRST_STORE, StorePlaces};
use serde::Deserialize;

use crate::cli::ServeArguments;
use crate::config::{Bridge, BridgeConfig, Config, MEMORY_BYTES_MIN, RouteConfig, TenantConfig};
use crate::runtime::{ClusterOptions, StorePart};
use postroad_security::nodes::{NodeTls, NodeTlsFiles};

/// A secret of fewer bytes could be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// The cluster's name: nodes of another are refused.
    pub name: String,
    /// The name of this node; empty for a broker that stands alone.
    pub node: String,
    /// Stores, each with a leader; recorded when the cluster is made.
    pub stores: u16,
    /// The store that this configuration is for.
    #[serde(skip)]
    pub store: u16,
    /// Where this node listens for the others.
    pub listen: String,
    /// The address that this node binds, if it is another; empty: that of `listen`.
    pub bind: String,
    /// Where all nodes of a new cluster listen, the same on each; or some nodes of one that
    /// this node joins.
    pub seeds: Vec<String>,
    /// A file with a secret of all nodes.
    pub secret_file: PathBuf,
    /// The host by which clients reach this node; empty: that of `listen`.
    pub advertise: String,
    /// The room or site of this node, which may be lost as a whole.
    pub zone: String,
    /// The highest level that this node speaks; 0: the highest that it can. So an upgrade can be
    /// taken back until the last node has it.
    pub level_max: u8,
    /// The share of the leaders that this node gets, relative to the others; 0: it leads only
    /// while no other node can.
    pub weight: u8,
    /// The certificate of this node, for the host of its address, in PEM form; empty: no TLS.
    pub tls_certificate: PathBuf,
    /// Its private key.
    pub tls_key: PathBuf,
    /// Who signs the certificates of all nodes.
    pub tls_authorities: PathBuf,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        let (node, listen, bind, seeds, secret_file, advertise, zone, level_max) = Default::default();
        let (tls_certificate, tls_key, tls_authorities) = Default::default();
        let name = "postroad".to_owned();
        ClusterConfig {
            name,
            node,
            stores: 1,
            store: FIRST_STORE,
            listen,
            bind,
            seeds,
            secret_file,
            advertise,
            zone,
            level_max,
            weight: Weight::default().get(),
            tls_certificate,
            tls_key,
            tls_authorities,
        }
    }
}

impl ClusterConfig {
    fn tls(&self) -> anyhow::Result<Option<NodeTlsFiles>> {
        let files = [&self.tls_certificate, &self.tls_key, &self.tls_authorities].map(PathBuf::clone);
        let is_named = files.each_ref().map(|file| !file.as_os_str().is_empty());
        let names = ["tls_certificate", "tls_key", "tls_authorities"];
        let missing = names.iter().zip(is_named).find(|(_, is_named)| !is_named);
        match missing {
            _ if !is_named.contains(&true) => Ok(None),
            Some((missing, _)) => {
                bail!("cluster.{missing} is missing: a node with TLS needs {}", names.join(", "))
            }
            None => {
                let [certificate, key, authorities] = files;
                Ok(Some(NodeTlsFiles { certificate, key, authorities }))
            }
        }
    }

    /// The command line wins.
    pub fn follow(&mut self, arguments: &ServeArguments) {
        let ServeArguments { node, cluster_listen, cluster_seeds, store, .. } = arguments;
        self.store = FIRST_STORE.max(*store);
        if let Some(node) = node {
            self.node.clone_from(node);
        }
        if let Some(listen) = cluster_listen {
            self.listen.clone_from(listen);
        }
        if !cluster_seeds.is_empty() {
            self.seeds.clone_from(cluster_seeds);
        }
    }
}

impl ClusterConfig {
    /// Whether this is a node of a cluster with several stores.
    pub fn has_several_stores(&self) -> bool {
        1 < self.stores && !self.node.is_empty()
    }

    /// Whether nodes have TLS.
    pub fn has_tls(&self) -> bool {
        !self.tls_certificate.as_os_str().is_empty()
    }

    /// The name of the group of nodes that keep the store of this configuration.
    fn group(&self) -> String {
        match self.has_several_stores() {
            true => self.group_of(self.store),
            false => self.name.clone(),
        }
    }

    /// The name of the group of one of several stores. Nodes with another number of them are
    /// refused by it.
    pub fn group_of(&self, store: u16) -> String {
        format!("{}/{store}/{}", self.name, self.stores)
    }
}

impl Config {
    /// The cluster that this broker is a node of; `None` if it stands alone.
    ///
    /// # Errors
    /// The file of the secret cannot be read, or is too short; or files of TLS are not named.
    pub fn cluster(&self) -> anyhow::Result<Option<ClusterOptions>> {
        let tls = self.cluster.tls()?;
        let cluster = self.cluster.group();
        let ClusterConfig {
            name,
            node,
            listen,
            bind,
            seeds,
            secret_file,
            advertise,
            zone,
            level_max,
            weight,
            ..
        } = self.cluster.clone();
        if node.is_empty() {
            return Ok(None);
        }
        let mut secret = Vec::new();
        if !secret_file.as_os_str().is_empty() {
            let file = secret_file.display();
            secret = std::fs::read(&secret_file).with_context(|| format!("cluster.secret_file {file}"))?;
            while secret.last().is_some_and(u8::is_ascii_whitespace) {
                secret.pop();
            }
            if secret.len() < SECRET_BYTES_MIN {
                bail!(
                    "cluster.secret_file {file} has {} bytes; the least is {SECRET_BYTES_MIN}",
                    secret.len()
                );
            }
        }
        if advertise.contains(['/', ' ', ',']) {
            bail!(
                "cluster.advertise is {advertise:?}; a host name or an IP address is wanted, without a port"
            );
        }
        let levels = match Level::new(level_max) {
            None => Levels::default(),
            Some(level) if level.is_known() => Levels::up_to(level),
            Some(level) => bail!(
                "cluster.level_max is {level}; this version speaks levels {}, and 0 stands for the highest",
                Levels::default()
            ),
        };
        let Some(weight) = Weight::new(weight) else {
            bail!("cluster.weight is {weight}; a number from 0 to {} is wanted", Weight::MAX.get())
        };
        Ok(Some(ClusterOptions {
            name,
            cluster,
            node,
            listen,
            bind,
            seeds,
            secret,
            tls,
            advertise,
            endpoints: Vec::new(),
            zone,
            levels,
            weight,
            part: StorePart::default(),
        }))
    }

    /// Options that a replicated store does not support yet are refused.
    pub(super) fn check_cluster(&self) -> anyhow::Result<()> {
        let Some(cluster) = self.cluster()? else { return Ok(()) };
        cluster.founder().context("configuration")?;
        cluster.listen_address().context("configuration")?;
        cluster.tls.as_ref().map(NodeTls::load).transpose().context("configuration: cluster.tls")?;
        for (key, used) in [
            ("[[store]]", !self.store.further.is_empty()),
            ("[[encryption.tenant_key]]", self.encryption.has_tenant_keys()),
        ] {
            if used {
                bail!(
                    "configuration: {key} does not go with cluster.node: each store of a node is replicated, \
                     under keys of the whole store"
                );
            }
        }
        self.check_stores()
    }

    /// The data directory of the node, which has those of further stores in it.
    pub fn node_data(&self) -> &Path {
        self.data.parent().filter(|_| self.is_further_store()).unwrap_or(&self.data)
    }

    /// Whether it is for a store of a cluster that is not the first one.
    pub fn is_further_store(&self) -> bool {
        self.cluster.has_several_stores() && self.cluster.store != FIRST_STORE
    }

    /// One of several stores of a node has a directory and a part of the memory of its own.
    pub(super) fn follow_store(&mut self) {
        let ClusterConfig { store, stores, .. } = self.cluster;
        if !self.cluster.has_several_stores() {
            return;
        }
        self.memory_bytes = (self.memory_bytes / u64::from(stores)).max(MEMORY_BYTES_MIN);
        if store != FIRST_STORE {
            self.data = self.data.join(format!("store-{store}"));
        }
    }

    /// The stores of the tenants of this configuration.
    ///
    /// # Errors
    /// One is in a store that is not there.
    pub fn tenant_stores(&self) -> anyhow::Result<BTreeMap<String, u16>> {
        let store = |tenant: &TenantConfig| Ok((tenant.name.clone(), tenant.store_of(self.cluster.stores)?));
        self.tenant.iter().map(store).collect()
    }

    /// Which store of the cluster has which names; `None` without several stores.
    pub(super) fn store_places(&self) -> anyhow::Result<Option<StorePlaces>> {
        if !self.cluster.has_several_stores() {
            return Ok(None);
        }
        let mut places = StorePlaces::of_store(self.cluster.store, self.cluster.stores);
        for tenant in &self.tenant {
            places.add_tenant(&tenant.name, &tenant.owns()?, tenant.store_of(self.cluster.stores)?);
        }
        places.add_dead_letters(&self.dead_letter_queue);
        let named = self.policy.iter().filter_map(|policy| policy.dead_letter_queue.as_deref());
        let named = named.chain(self.route.iter().filter_map(RouteConfig::dead_letter_queue));
        named.for_each(|name| places.add_dead_letters(name));
        Ok(Some(places))
    }

    /// Options that a cluster of several stores does not support yet are refused.
    fn check_stores(&self) -> anyhow::Result<()> {
        let ClusterConfig { stores, name, .. } = &self.cluster;
        if !(1..=STORES_MAX).contains(stores) {
            bail!("configuration: cluster.stores is {stores}; a number from 1 to {STORES_MAX} is wanted");
        }
        for (number, tenant) in (1..).zip(&self.tenant) {
            tenant.store_of(*stores).with_context(|| format!("configuration: [[tenant]] {number}"))?;
        }
        if *stores == 1 {
            return Ok(());
        }
        if name.contains('/') {
            bail!("configuration: cluster.name is {name:?}; with several stores it has no '/'");
        }
        if !self.asks_login() {
            bail!(
                "configuration: cluster.stores is {stores}: clients have to log in, as their tenants say which \
                 store serves them; set security.users"
            );
        }
        self.check_places()
    }

    /// A route or composite address works in the store that has all of its addresses.
    fn check_places(&self) -> anyhow::Result<()> {
        let Some(places) = self.store_places()? else { return Ok(()) };
        for (number, route) in (1..).zip(&self.route) {
            let addresses = route.addresses().context("with several stores recipients need recipients_allow");
            let checked = addresses.and_then(|addresses| in_one_store(&places, addresses.into_iter()));
            checked.with_context(|| format!("configuration: [[route]] {number}"))?;
        }
        for (number, composite) in (1..).zip(&self.composite) {
            let targets = composite.targets.iter().map(|target| &*target.destination);
            in_one_store(&places, [&*composite.address].into_iter().chain(targets))
                .with_context(|| format!("configuration: [[composite]] {number}"))?;
        }
        for (number, bridge) in (1..).zip(&self.bridge) {
            store_of_bridge(&places, bridge)
                .with_context(|| format!("configuration: [[bridge]] {number}"))?;
        }
        Ok(())
    }

    /// The leader of a store opens the links for its own destinations.
    pub(super) fn bridges_of_store(&self, all: Vec<Bridge>) -> anyhow::Result<Vec<Bridge>> {
        let Some(places) = self.store_places()? else { return Ok(all) };
        let mut own = Vec::new();
        for bridge in all {
            if store_of_bridge(&places, &bridge.config)? == self.cluster.store {
                own.push(bridge);
            }
        }
        Ok(own)
    }
}

/// The store whose destinations a link forwards.
fn store_of_bridge(places: &StorePlaces, bridge: &BridgeConfig) -> anyhow::Result<u16> {
    let addresses = bridge.addresses().context(
        "with several stores include names the destinations that a link may forward, all of one store",
    )?;
    Ok(in_one_store(places, addresses.into_iter())?.unwrap_or(FIRST_STORE))
}

/// The store that has all these addresses; `None` if each has some of their names.
///
/// # Errors
/// They are in several.
fn in_one_store<'a>(
    places: &StorePlaces,
    addresses: impl Iterator<Item = &'a str>,
) -> anyhow::Result<Option<u16>> {
    let mut first: Option<(&str, u16)> = None;
    for address in addresses {
        let DestinationPattern { kind, temporary, name } = DestinationPattern::parse(address)?;
        let destination = Destination { kind, temporary, name: name.text().into() };
        if !places.is_in_one_store(&destination) {
            bail!("{address} stands for names in several stores of the cluster");
        }
        let Some(store) = places.store_of(&destination) else { continue };
        match first {
            Some((other, of_other)) if of_other != store => {
                bail!("{other} is in store {of_other} of the cluster, and {address} in store {store}")
            }
            _ => first = Some((address, store)),
        }
    }
    Ok(first.map(|(_, store)| store))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_needs_three_nodes_and_refuses_what_it_does_not_have() {
        let seeds = r#"seeds = ["127.0.0.1:7101", "127.0.0.1:7102", "127.0.0.1:7103"]"#;
        let node = format!("[cluster]\nnode = \"n1\"\nlisten = \"127.0.0.1:7101\"\n{seeds}\n");
        let stores =
            format!("{node}stores = 3\n[security]\nusers = \"u\"\n[[tenant]]\nname = \"a\"\nstore = 2\n");
        let to = |name: &str| format!("to = [{{ destination = \"queue://{name}\" }}]");
        for (case, text, want) in [
            ("alone", String::new(), Ok(())),
            ("a node", node.clone(), Ok(())),
            ("no seeds", "[cluster]\nnode = \"n1\"".to_owned(), Err("a cluster has 3, 5 or 7")),
            (
                "a further store",
                format!("{node}[[store]]\nname = \"fast\"\npath = \"/tmp/fast\""),
                Err("[[store]] does not go with cluster.node"),
            ),
            ("no number of stores", format!("{node}stores = 0"), Err("a number from 1 to 16 is wanted")),
            ("several stores without logins", format!("{node}stores = 3"), Err("set security.users")),
            (
                "a node that joins several stores",
                stores.replace("listen = \"127.0.0.1:7101\"", "listen = \"127.0.0.1:7104\""),
                Ok(()),
            ),
            ("several stores", stores.clone(), Ok(())),
            (
                "a tenant in a store that is not there",
                format!("{stores}[[tenant]]\nname = \"b\"\nstore = 4"),
                Err("store is 4; the stores of this cluster are 1 to 3"),
            ),
            (
                "a link for all destinations",
                format!("{stores}[[bridge]]\nname = \"east\"\nto = [\"tcp://east:61616\"]"),
                Err("with several stores include names the destinations"),
            ),
            (
                "a link for those of a store",
                format!(
                    "{stores}[[bridge]]\nname = \"east\"\nto = [\"tcp://east:61616\"]\ninclude = [\"queue://a.>\"]"
                ),
                Ok(()),
            ),
            (
                "a route within a store",
                format!("{stores}[[route]]\nname = \"r\"\nfrom = \"queue://a.x\"\n{}", to("a.y")),
                Ok(()),
            ),
            (
                "a route out of a store",
                format!("{stores}[[route]]\nname = \"r\"\nfrom = \"queue://a.x\"\n{}", to("y")),
                Err("queue://a.x is in store 2 of the cluster, and queue://y in store 1"),
            ),
            (
                "a route from names of several stores",
                format!("{stores}[[route]]\nname = \"r\"\nfrom = \"queue://>\"\n{}", to("y")),
                Err("queue://> stands for names in several stores"),
            ),
            (
                "a URL in place of a host",
                format!("{node}advertise = \"tcp://n1\""),
                Err("cluster.advertise is \"tcp://n1\"; a host name"),
            ),
            ("a level", format!("{node}level_max = 1"), Ok(())),
            (
                "a level of a later version",
                format!("{node}level_max = 9"),
                Err("cluster.level_max is 9; this version speaks levels 1 to 3"),
            ),
            ("no share of the leaders", format!("{node}weight = 0"), Ok(())),
            (
                "a large share of the leaders",
                format!("{node}weight = 101"),
                Err("cluster.weight is 101; a number from 0 to 100 is wanted"),
            ),
            (
                "a long zone",
                format!("{node}zone = \"{}\"", "z".repeat(65)),
                Err("a name of at most 64 bytes is wanted"),
            ),
            (
                "TLS without authorities",
                format!("{node}tls_certificate = \"c.pem\"\ntls_key = \"k.pem\""),
                Err("cluster.tls_authorities is missing"),
            ),
            (
                "a certificate that is not there",
                format!(
                    "{node}tls_certificate = \"/nonexistent\"\ntls_key = \"k.pem\"\ntls_authorities = \"a.pem\""
                ),
                Err("cannot read /nonexistent"),
            ),
            (
                "another machine without TLS",
                node.replace("127.0.0.1", "0.0.0.0"),
                Err("set tls_certificate, tls_key and tls_authorities in [cluster]"),
            ),
            (
                "a secret that is not there",
                format!("{node}secret_file = \"/nonexistent\""),
                Err("cluster.secret_file /nonexistent"),
            ),
        ] {
            let got = Config::check_text(&text).map_err(|error| format!("{error:#}"));
            match want {
                Ok(()) => assert_eq!(got, Ok(()), "case: {case}"),
                Err(part) => assert!(got.clone().unwrap_err().contains(part), "case: {case}: {got:?}"),
            }
        }
    }
}
