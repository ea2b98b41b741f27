//! Which store a node has: a disk that was replaced must not vote under the old name, as it may have
//! confirmed entries that it lost.
//!
//! Each store has a random identity. Every node remembers that of each other one, durably, and refuses another.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, bail};
use postroad_cluster::NodeId;
use serde::{Deserialize, Serialize};

use postroad_store::new_identity;

/// The file in the data directory.
pub const FILE: &str = "replica.json";

const VERSION: u32 = 1;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    /// The cluster's name.
    cluster: String,
    /// The number of this node.
    node: u64,
    /// Its store.
    identity: String,
    /// The stores of the others, by node.
    peers: BTreeMap<u64, String>,
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
        let file = data.join(FILE);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => parse(&text, cluster, node).with_context(|| format!("in {}", file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = new_identity().context("the system provides no random bytes")?;
                let (cluster, peers) = (cluster.to_owned(), BTreeMap::new());
                let text = Text { version: VERSION, cluster, node: node.get(), identity, peers };
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

    /// Takes note of a peer's store, durably; refuses another than before.
    ///
    /// # Errors
    /// It is another, or cannot be written down.
    pub fn meet(&self, node: NodeId, identity: &str) -> anyhow::Result<()> {
        let Ok(mut text) = self.text.lock() else { bail!("the identities are missing") };
        match text.peers.get(&node.get()) {
            Some(known) if known == identity => return Ok(()),
            Some(known) => bail!(
                "node {} comes with the store {identity}, and had {known} before: its disk was replaced, and entries \
                 that it confirmed may be lost. It takes no part; docs/features/cluster.md says how to let it in",
                node.get()
            ),
            None => {}
        }
        let mut with = text.clone();
        with.peers.insert(node.get(), identity.to_owned());
        write(&self.file, &with).with_context(|| format!("cannot write {}", self.file.display()))?;
        *text = with;
        Ok(())
    }
}

fn parse(text: &str, cluster: &str, node: NodeId) -> anyhow::Result<Text> {
    let text: Text = serde_json::from_str(text)?;
    if text.version != VERSION {
        bail!("version {} is not supported; this build reads version {VERSION}", text.version);
    }
    if text.cluster != cluster || text.node != node.get() {
        bail!(
            "the store belongs to node {} of cluster {:?}; it was started as node {} of cluster {cluster:?}",
            text.node,
            text.cluster,
            node.get()
        );
    }
    Ok(text)
}

/// The file is there whole or not at all.
fn write(file: &Path, text: &Text) -> io::Result<()> {
    use std::io::Write;
    let new = file.with_extension("new");
    let mut writing = std::fs::File::create(&new)?;
    writing.write_all(&serde_json::to_vec_pretty(text)?)?;
    writing.sync_all()?;
    std::fs::rename(&new, file)?;
    let directory = file.parent().unwrap_or(Path::new("."));
    std::fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_replaced_is_refused_and_an_unknown_one_is_remembered() {
        let home = tempfile::tempdir().unwrap();
        let node = |number| NodeId::new(number).unwrap();
        let identities = Identities::open(home.path(), "c", node(1)).unwrap();
        let own = identities.own();
        identities.meet(node(2), "two").unwrap();
        identities.meet(node(3), "three").unwrap();
        for again in [identities, Identities::open(home.path(), "c", node(1)).unwrap()] {
            again.meet(node(2), "two").unwrap();
            let error = again.meet(node(2), "other").unwrap_err().to_string();
            assert!(error.contains("its disk was replaced"), "{error}");
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
}
