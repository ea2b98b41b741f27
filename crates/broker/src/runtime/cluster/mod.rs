//! One node of a cluster: its connections to the others, and its replica of the store.
//!
//! `peers` moves messages between nodes, `participant` lets the journal's thread take part in the
//! group, `opening` opens a replica's directory and keeps its part, `identity` distinguishes
//! stores, `orders` are those of operators, `client_redirect` sends clients of a follower to the
//! leader, and `restart` begins again from the disk once a replica has ended. A node whose disk was
//! replaced or is damaged (`damage`) does not vote (`joining`) before it was filled by a copy of
//! the leader's store (`copy`, `copies`). A further node asks to join (`newcomer`); the leader sees
//! to its vote (`steward`), and leads on only where leaders are balanced (`balancing`).
//!
//! A node has one store, or several (`store_part`) behind one port for nodes (`node_port`): then
//! its clients log in (`entry`) before the leader of their store serves them, and all stores have
//! the same members (`store_members`), but for mirrors of chosen stores (`mirrored_stores`).
//!
//! Never here: how nodes agree (crates/cluster), clients of the broker.

mod balancing;
mod both_ways;
mod client_redirect;
mod commits;
mod copies;
mod copy;
mod damage;
mod documents;
mod entry;
mod entry_login;
mod forward;
mod identity;
mod joining;
mod leaving;
mod mirrored_stores;
mod newcomer;
mod node_port;
mod opening;
mod orders;
mod participant;
mod peer_table;
mod peers;
mod restart;
mod sealed;
mod space;
mod steward;
mod store_members;
mod store_part;
mod view;
mod waits;
mod wire;

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail};
use postroad_cluster::{Levels, MEMBERS_MAX, Members, NODE_ZONE_BYTES_MAX, NodeId, Weight};
use postroad_model::Endpoint;
use postroad_security::nodes::NodeTlsFiles;

pub use balancing::keep_balanced;
pub use client_redirect::{ClientRedirect, admin_elsewhere};
pub use documents::{DocumentWriter, publish_documents, read_documents};
pub use entry::ClientEntry;
pub use entry_login::EntryLogin;
pub use forward::{Forwarded, ForwardedClients, is_own, reach};
pub use newcomer::{Admitted, admitted};
pub use node_port::NodePort;
pub use opening::{Following, LeaderStore, NodeReplica, follow};
pub use orders::cluster_orders;
pub use participant::Participant;
pub use restart::restart;
pub use sealed::{Far, connected_pair, sealed_clients_max};
pub use steward::CAUGHT_UP;
pub use store_part::{DocumentContents, StorePart};
pub use view::{ClusterView, cluster_api};

/// Nodes that a newcomer asks.
const SEEDS_MAX: usize = MEMBERS_MAX;

/// The options of one node of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The cluster's name.
    pub name: String,
    /// The name of the group of nodes that keep the store: that of the cluster, if it has one.
    pub cluster: String,
    /// The name of this node.
    pub node: String,
    /// Where this node listens for the others.
    pub listen: String,
    /// The address that it binds, if it is another than others reach it by; empty: that of
    /// `listen`.
    pub bind: String,
    /// The addresses of all nodes of a new cluster, the first is node 1; or, of a node that joins
    /// one later, of some of its nodes.
    pub seeds: Vec<String>,
    /// Known to all nodes and to no one else.
    pub secret: Vec<u8>,
    /// TLS between the nodes.
    pub tls: Option<NodeTlsFiles>,
    /// The host by which clients reach this node; empty: that of `listen`.
    pub advertise: String,
    /// Where clients of this node connect.
    pub endpoints: Vec<Endpoint>,
    /// The room or site of this node, which may be lost as a whole; empty if it has none.
    pub zone: String,
    /// The levels that this node speaks.
    pub levels: Levels,
    /// Its share of the leaders.
    pub weight: Weight,
    /// Which of the stores of its process it is.
    pub part: StorePart,
}

impl ClusterOptions {
    /// The place of this node in a new cluster, by that of its address among the seeds; `None` if
    /// it is not there: it joins later.
    ///
    /// # Errors
    /// Something is wrong with the options.
    pub fn founder(&self) -> anyhow::Result<Option<Admitted>> {
        let place = self.seeds.iter().position(|seed| *seed == self.listen);
        let count = self.seeds.len();
        let is_odd = matches!(count, 3 | 5 | 7);
        if count == 0 || place.is_some() && !is_odd {
            bail!("cluster.seeds names {count} nodes; a cluster has 3, 5 or 7");
        }
        if SEEDS_MAX < count {
            bail!("cluster.seeds names {count} nodes; {SEEDS_MAX} at most are asked");
        }
        let mut sorted = self.seeds.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != count {
            bail!("cluster.seeds names a node twice: {}", self.seeds.join(","));
        }
        for seed in &self.seeds {
            if !seed.contains(':') {
                bail!("cluster.seeds has {seed:?}; expected HOST:PORT");
            }
            newcomer::check(&self.node, seed)?;
        }
        newcomer::check(&self.node, &self.listen)?;
        let zone = &self.zone;
        if NODE_ZONE_BYTES_MAX < zone.len() || zone.contains(char::is_control) {
            bail!("cluster.zone is {zone:?}; a name of at most {NODE_ZONE_BYTES_MAX} bytes is wanted");
        }
        let Some(place) = place else { return Ok(None) };
        let number = NodeId::new(place as u64 + 1).context("no node number")?;
        Ok(Some(Admitted { number, members: Members::founders(self.seeds.iter().map(String::as_str)) }))
    }

    /// The address to listen on. Off the loopback interface TLS is required.
    ///
    /// # Errors
    /// It cannot be resolved, or there is no secret.
    pub fn listen_address(&self) -> anyhow::Result<SocketAddr> {
        let (key, address) =
            if self.bind.is_empty() { ("listen", &self.listen) } else { ("bind", &self.bind) };
        let mut addresses = address.to_socket_addrs().with_context(|| format!("cluster.{key} {address}"))?;
        let resolved = addresses.next().with_context(|| format!("cluster.{key} {address} has no address"))?;
        if !resolved.ip().is_loopback() && self.tls.is_none() {
            bail!(
                "cluster.{key} {address} can be reached from other machines: connections of nodes need TLS; \
                 set tls_certificate, tls_key and tls_authorities in [cluster], or use a loopback address"
            );
        }
        Ok(resolved)
    }

    /// The host by which clients reach this node.
    pub fn advertised_host(&self) -> &str {
        let own = self.listen.rsplit_once(':').map_or(&*self.listen, |(host, _)| host);
        let host = if self.advertise.is_empty() { own } else { &self.advertise };
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(listen: &str, seeds: &[&str], secret: &str) -> ClusterOptions {
        ClusterOptions {
            cluster: "c".to_owned(),
            node: "n".to_owned(),
            listen: listen.to_owned(),
            seeds: seeds.iter().map(|seed| (*seed).to_owned()).collect(),
            secret: secret.as_bytes().to_vec(),
            ..ClusterOptions::default()
        }
    }

    #[test]
    fn a_node_is_the_place_of_its_address_among_three_five_or_seven() {
        let three = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        for (case, options, want) in [
            ("the second", options("127.0.0.1:2", &three, ""), Ok(Some(2))),
            ("none of them: it joins", options("127.0.0.1:4", &three[..1], ""), Ok(None)),
            ("no port of its own", options("a", &three, ""), Err("cluster.listen is \"a\"; HOST:PORT")),
            ("two", options("127.0.0.1:2", &three[..2], ""), Err("a cluster has 3, 5 or 7")),
            ("twice", options("a:1", &["a:1", "a:1", "b:1"], ""), Err("names a node twice")),
            ("no port", options("a:1", &["a:1", "b", "c:1"], ""), Err("expected HOST:PORT")),
        ] {
            let got = options.founder().map(|place| place.map(|place| place.number.get()));
            let got = got.map_err(|error| error.to_string());
            match want {
                Ok(number) => assert_eq!(got, Ok(number), "case: {case}"),
                Err(part) => assert!(got.clone().unwrap_err().contains(part), "case: {case}: {got:?}"),
            }
        }
    }

    #[test]
    fn off_the_loopback_interface_tls_is_required() {
        for (listen, secret, tls, want) in [
            ("127.0.0.1:1", "", None, true),
            ("0.0.0.0:1", "secret", None, false),
            ("0.0.0.0:1", "", Some(NodeTlsFiles::default()), true),
        ] {
            let options = |listen: &str| ClusterOptions { tls: tls.clone(), ..options(listen, &[], secret) };
            assert_eq!(options(listen).listen_address().is_ok(), want, "{listen} {secret:?}");
            let bound = ClusterOptions { bind: listen.to_owned(), ..options("127.0.0.1:2") };
            let want = want.then(|| listen.parse().unwrap());
            assert_eq!(bound.listen_address().ok(), want, "bind {listen} {secret:?}");
        }
    }
}
