//! The other nodes of the cluster, and which of them are in a state to be counted on.
//!
//! Never here: connections (`peers`), decisions that follow from the states.

use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};

use postroad_cluster::{DiskSpace, Members, NodeId};

use crate::runtime::cluster::peers::Peer;

/// The other nodes, by number, and the list of members that has them.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) members: Arc<Members>,
    pub(super) peers: Arc<Vec<Arc<Peer>>>,
}

/// The other nodes, as far as this one knows.
#[derive(Default)]
pub struct PeerTable(pub(super) RwLock<Known>);

impl PeerTable {
    pub(super) fn known(&self) -> Known {
        self.0.read().map_or_else(|_| Known::default(), |known| known.clone())
    }

    /// All other nodes, by number.
    pub fn all(&self) -> Arc<Vec<Arc<Peer>>> {
        self.known().peers
    }

    /// One of them.
    pub fn find(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.known().peers.iter().find(|peer| peer.node == node).cloned()
    }

    /// The latest list of members.
    pub fn members(&self) -> Arc<Members> {
        self.known().members
    }

    /// Those with a connection whose stores are whole, as far as is known.
    pub fn reached_whole(&self) -> Vec<NodeId> {
        let mut reached = self.reached();
        let is_damaged = |node| self.find(node).is_some_and(|peer| peer.damaged.load(Ordering::Acquire));
        reached.retain(|node| !is_damaged(*node));
        reached
    }

    /// Those of them whose disks have space, as far as is known, and those that say they are full.
    pub fn reached_by_space(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        let has_space = |node| self.find(node).is_some_and(|peer| peer.space.get() == DiskSpace::Ample);
        self.reached_whole().into_iter().partition(|node| has_space(*node))
    }

    /// Those of the others that say that their stores are damaged, and have not left them yet.
    pub fn damaged(&self) -> Vec<NodeId> {
        let peers = self.all();
        peers.iter().filter(|peer| peer.leaving.says_damaged()).map(|peer| peer.node).collect()
    }

    /// Those that could lead as far as their stores and disks are concerned.
    pub fn reached_to_lead(&self) -> Vec<NodeId> {
        let (mut nodes, damaged) = (self.reached_by_space().0, self.damaged());
        nodes.retain(|node| !damaged.contains(node));
        nodes
    }

    /// Those with a connection.
    pub fn reached(&self) -> Vec<NodeId> {
        let peers = self.all();
        let reached = peers.iter().filter(|peer| peer.connected.load(Ordering::Acquire));
        reached.map(|peer| peer.node).collect()
    }
}
