//! Which store a node has: a disk that was replaced must not vote under the old name, as it may
//! have confirmed entries that it lost.
//!
//! Each store has a random identity. Every node remembers that of each other one, durably. It
//! accepts another once that store was filled by a copy, and never again the one before.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, bail};
use postroad_cluster::NodeId;
use postroad_security::replace_file;
use postroad_store::new_identity;
use serde::{Deserialize, Serialize};

/// The file in the data directory.
pub const FILE: &str = "replica.json";

/// Files of a replica hold no secrets.
pub const FILE_MODE: u32 = 0o644;

const VERSION: u32 = 2;

/// In place of the number of a node that has none yet, or asks for none in particular.
const NO_NUMBER: u64 = 0;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    /// The cluster's name.
    cluster: String,
    /// The number of this node; 0 while it asks to join.
    node: u64,
    /// Its store.
    identity: String,
    /// The stores of the others, by node.
    peers: BTreeMap<u64, String>,
    /// How they call themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<u64, String>,
    /// Stores that others had before, the latest last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    former: BTreeMap<u64, Vec<String>>,
    /// Whether this node votes: see `joining`.
    joined: bool,
    /// The last damage of this store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    damage: Option<Damage>,
}

/// Damage of a store, and what became of it: see `damage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Damage {
    /// The first damaged place.
    pub place: String,
    /// The vote is damaged, too.
    #[serde(default)]
    pub lost_vote: bool,
    /// The directory for the damaged files, once it is chosen.
    #[serde(default)]
    pub aside: Option<String>,
    /// Whether all of them are there.
    #[serde(default)]
    pub is_aside: bool,
    /// The node whose store has filled this one since.
    #[serde(default)]
    pub refilled_from: Option<String>,
}

/// Former stores of one node that are remembered.
const FORMER_MAX: usize = 64;

/// What a node knows of the store of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerStore {
    /// It is the one that is known, or the first, or was filled in place of it.
    Accepted,
    /// It is another, and was not filled.
    Replaced,
}

/// See the head of this file.
pub struct Identities {
    file: PathBuf,
    text: Mutex<Text>,
}

impl Identities {
    /// Those that a directory knows, or a new one of its own.
    ///
    /// # Errors
    /// The file cannot be read or written, or belongs to another node or cluster.
    pub fn open(data: &Path, cluster: &str, node: NodeId) -> anyhow::Result<Identities> {
        Identities::open_or_make(data, cluster, node.get())
    }

    /// Those of a directory whose node gets its number from the others.
    ///
    /// # Errors
    /// As [`Identities::open`].
    pub fn of_newcomer(data: &Path, cluster: &str) -> anyhow::Result<Identities> {
        Identities::open_or_make(data, cluster, NO_NUMBER)
    }

    fn open_or_make(data: &Path, cluster: &str, node: u64) -> anyhow::Result<Identities> {
        let file = data.join(FILE);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => parse(&text, cluster, node).with_context(|| format!("in {}", file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = new_identity().context("the system provides no random bytes")?;
                let (cluster, peers) = (cluster.to_owned(), BTreeMap::new());
                let (version, names, former) = (VERSION, BTreeMap::new(), BTreeMap::new());
                let (joined, damage) = (false, None);
                let text = Text { version, cluster, node, identity, peers, names, former, joined, damage };
                write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
                text
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        Ok(Identities { file, text: Mutex::new(text) })
    }

    /// That of this node's store.
    pub fn own(&self) -> String {
        self.text.lock().map_or_else(|_| String::new(), |text| text.identity.clone())
    }

    /// The number of this node, if it has one.
    pub fn number(&self) -> Option<NodeId> {
        NodeId::new(self.text.lock().ok()?.node)
    }

    /// The others have given this node a number.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn admit(&self, node: NodeId) -> anyhow::Result<()> {
        self.change(|text| text.node = node.get())
    }

    /// Whether this node votes.
    pub fn joined(&self) -> bool {
        let is_damaged = |text: &Text| text.damage.as_ref().is_some_and(|it| it.refilled_from.is_none());
        self.text.lock().is_ok_and(|text| text.joined && !is_damaged(&text))
    }

    /// The last damage of this store.
    pub fn damage(&self) -> Option<Damage> {
        self.text.lock().ok()?.damage.clone()
    }

    /// The damage of this store, if it was not filled since.
    pub fn open_damage(&self) -> Option<Damage> {
        self.damage().filter(|damage| damage.refilled_from.is_none())
    }

    /// Whether this node has joined and has its vote, though its store may be damaged.
    pub fn has_vote(&self) -> bool {
        self.text.lock().is_ok_and(|text| text.joined)
    }

    /// Writes down damage of this store. One that has lost its vote is another store for the
    /// others.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn note_damage(&self, damage: Damage) -> anyhow::Result<()> {
        let other = match damage.lost_vote {
            true => Some(new_identity().context("the system provides no random bytes")?),
            false => None,
        };
        self.change(|text| {
            if let Some(other) = other {
                (text.identity, text.joined) = (other, false);
            }
            text.damage = Some(damage);
        })
    }

    /// Writes down how far the repair of damage is that is known.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn note_damage_step(&self, damage: Damage) -> anyhow::Result<()> {
        self.change(|text| text.damage = Some(damage))
    }

    /// This node votes from now on.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn join(&self) -> anyhow::Result<()> {
        self.change(|text| text.joined = true)
    }

    /// This node votes from now on, as the store of another one has filled its own.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn fill(&self, from: &str) -> anyhow::Result<()> {
        self.change(|text| {
            text.joined = true;
            if let Some(damage) = text.damage.as_mut().filter(|damage| damage.refilled_from.is_none()) {
                damage.refilled_from = Some(from.to_owned());
            }
        })
    }

    /// Takes note of a peer's store, durably. `joined` says that it votes.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn meet(&self, node: NodeId, identity: &str, joined: bool) -> anyhow::Result<PeerStore> {
        let Ok(text) = self.text.lock() else { bail!("the identities are missing") };
        let known = text.peers.get(&node.get()).cloned();
        let is_former =
            text.former.get(&node.get()).is_some_and(|former| former.iter().any(|it| it == identity));
        drop(text);
        match known {
            Some(known) if known == identity => return Ok(PeerStore::Accepted),
            Some(_) if is_former || !joined => return Ok(PeerStore::Replaced),
            _ => {}
        }
        self.change(|text| {
            if let Some(before) = text.peers.insert(node.get(), identity.to_owned()) {
                let former = text.former.entry(node.get()).or_default();
                former.push(before);
                former.drain(..former.len().saturating_sub(FORMER_MAX));
            }
        })?;
        Ok(PeerStore::Accepted)
    }

    /// Takes note of the name of a peer, durably.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn names(&self, node: NodeId, name: &str) -> anyhow::Result<()> {
        match self.name(node) {
            Some(known) if known == name => Ok(()),
            _ => self.change(|text| drop(text.names.insert(node.get(), name.to_owned()))),
        }
    }

    /// The name of a peer, if it has ever come.
    pub fn name(&self, node: NodeId) -> Option<String> {
        self.text.lock().ok()?.names.get(&node.get()).cloned()
    }

    /// Forgets nodes that were removed: their numbers never come back.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn forget(&self, is_former: impl Fn(NodeId) -> bool) -> anyhow::Result<()> {
        let stays = |number: &u64| NodeId::new(*number).is_none_or(|node| !is_former(node));
        let Ok(text) = self.text.lock() else { bail!("the identities are missing") };
        let is_clean = text.peers.keys().chain(text.names.keys()).chain(text.former.keys()).all(stays);
        drop(text);
        match is_clean {
            true => Ok(()),
            false => self.change(|text| {
                text.peers.retain(|number, _| stays(number));
                text.names.retain(|number, _| stays(number));
                text.former.retain(|number, _| stays(number));
            }),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Text)) -> anyhow::Result<()> {
        let Ok(mut text) = self.text.lock() else { bail!("the identities are missing") };
        let mut with = text.clone();
        change(&mut with);
        write(&self.file, &with).with_context(|| format!("cannot write {}", self.file.display()))?;
        *text = with;
        Ok(())
    }
}

fn parse(text: &str, cluster: &str, node: u64) -> anyhow::Result<Text> {
    let text: Text = serde_json::from_str(text)?;
    if text.version != VERSION {
        bail!("version {} is not supported; this build reads version {VERSION}", text.version);
    }
    if text.cluster != cluster || text.node != node && node != NO_NUMBER {
        bail!(
            "the store belongs to node {} of cluster {:?}; it was started as node {node} of cluster {cluster:?}",
            text.node,
            text.cluster,
        );
    }
    Ok(text)
}

/// The file is there whole or not at all.
fn write(file: &Path, text: &Text) -> io::Result<()> {
    replace_file(file, &serde_json::to_string_pretty(text)?, FILE_MODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_replaced_is_refused_until_it_was_filled_and_the_former_one_from_then_on() {
        let home = tempfile::tempdir().unwrap();
        let node = |number| NodeId::new(number).unwrap();
        let identities = Identities::open(home.path(), "c", node(1)).unwrap();
        let own = identities.own();
        for (number, identity, joined, want) in [
            (2, "two", false, PeerStore::Accepted),
            (3, "three", true, PeerStore::Accepted),
            (2, "other", false, PeerStore::Replaced),
            (2, "two", true, PeerStore::Accepted),
            (2, "other", true, PeerStore::Accepted),
            (2, "two", true, PeerStore::Replaced),
            (2, "other", true, PeerStore::Accepted),
        ] {
            for identities in [&identities, &Identities::open(home.path(), "c", node(1)).unwrap()] {
                assert_eq!(identities.meet(node(number), identity, joined).unwrap(), want, "{identity}");
            }
            // As a restart would.
            let again = Identities::open(home.path(), "c", node(1)).unwrap();
            identities.text.lock().unwrap().clone_from(&again.text.lock().unwrap());
            assert_eq!(again.own(), own);
        }
        for (cluster, number) in [("d", 1), ("c", 2)] {
            let error = Identities::open(home.path(), cluster, node(number)).err().unwrap();
            assert!(
                format!("{error:#}").contains("the store belongs to node 1 of cluster \"c\""),
                "{error:#}"
            );
        }
    }

    #[test]
    fn names_of_others_stay_over_a_start_and_those_of_removed_nodes_are_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let node = |number| NodeId::new(number).unwrap();
        let open = || Identities::open(home.path(), "c", node(1)).unwrap();
        let identities = open();
        for (number, name) in [(2, "two"), (3, "former"), (3, "three")] {
            identities.meet(node(number), name, true).unwrap();
            identities.names(node(number), name).unwrap();
        }
        assert_eq!(
            [2, 3, 4].map(|number| open().name(node(number))),
            [Some("two".to_owned()), Some("three".to_owned()), None]
        );
        identities.forget(|former| former == node(3)).unwrap();
        let again = open();
        assert_eq!((again.name(node(2)), again.name(node(3))), (Some("two".to_owned()), None));
        let text = again.text.lock().unwrap().clone();
        assert_eq!((text.peers.len(), text.former.len()), (1, 0));
    }

    #[test]
    fn a_newcomer_keeps_its_store_until_it_has_a_number_and_that_from_then_on() {
        let home = tempfile::tempdir().unwrap();
        let newcomer = Identities::of_newcomer(home.path(), "c").unwrap();
        assert_eq!((newcomer.number(), newcomer.joined()), (None, false));
        newcomer.admit(NodeId::new(4).unwrap()).unwrap();
        let again = Identities::of_newcomer(home.path(), "c").unwrap();
        assert_eq!((again.own(), again.number()), (newcomer.own(), NodeId::new(4)));
        assert!(Identities::of_newcomer(home.path(), "d").is_err(), "another cluster");
        assert!(Identities::open(home.path(), "c", NodeId::new(3).unwrap()).is_err(), "another number");
    }

    #[test]
    fn former_stores_are_remembered_up_to_a_bound() {
        let home = tempfile::tempdir().unwrap();
        let two = NodeId::new(2).unwrap();
        let identities = Identities::open(home.path(), "c", NodeId::new(1).unwrap()).unwrap();
        for number in 0..FORMER_MAX + 2 {
            assert_eq!(identities.meet(two, &number.to_string(), true).unwrap(), PeerStore::Accepted);
        }
        assert_eq!(identities.text.lock().unwrap().former[&2].len(), FORMER_MAX);
        assert_eq!(identities.meet(two, "1", true).unwrap(), PeerStore::Replaced);
    }
}
