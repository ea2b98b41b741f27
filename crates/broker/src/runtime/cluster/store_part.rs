//! Several stores of a cluster in one process: each has a replica group, and threads, of its own.
//!
//! Never here: the stores themselves, and where their clients come in (`entry`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use postroad_cluster::ChosenStores;
use postroad_model::DocumentVersion;
use postroad_node::Draining;
use tokio::sync::watch;

use crate::runtime::StatsCollector;
use crate::runtime::cluster::node_port::NodePort;
use crate::runtime::cluster::view::ClusterView;
use postroad_routing::FIRST_STORE;

/// The documents of the first store, which all stores of the process read.
pub type DocumentContents = Vec<(Arc<str>, DocumentVersion, Bytes)>;

/// All of them.
struct NodeStores {
    port: Arc<NodePort>,
    /// By number, each once its replica is open.
    views: Vec<OnceLock<ClusterView>>,
    opened: watch::Sender<()>,
    documents: watch::Sender<DocumentContents>,
    draining: Draining,
    /// Of the stores that this node leads, by number.
    collectors: Mutex<BTreeMap<u16, StatsCollector>>,
}

/// One of them; or, by default, the only store of a node.
#[derive(Clone, Default)]
pub struct StorePart {
    stores: Option<Arc<NodeStores>>,
    number: u16,
}

/// Stores of a cluster with this number of them, in words.
pub fn named(stores: ChosenStores, count: u16) -> String {
    let numbers: Vec<String> = stores.among(count).iter().map(u16::to_string).collect();
    match numbers.as_slice() {
        [only] => format!("store {only} of {count}"),
        _ => format!("stores {} of {count}", numbers.join(", ")),
    }
}

impl fmt::Debug for StorePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorePart").field("number", &self.number()).finish_non_exhaustive()
    }
}

impl PartialEq for StorePart {
    fn eq(&self, other: &StorePart) -> bool {
        let is_same = match (&self.stores, &other.stores) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        is_same && self.number() == other.number()
    }
}

impl Eq for StorePart {}

impl StorePart {
    /// The first of this number of stores, which share a port for nodes.
    pub fn first(port: Arc<NodePort>, count: u16) -> StorePart {
        let views = (0..count).map(|_| OnceLock::new()).collect();
        let (opened, documents) = (watch::Sender::new(()), watch::Sender::default());
        let (draining, collectors) = (Draining::default(), Mutex::default());
        let stores = NodeStores { port, views, opened, documents, draining, collectors };
        StorePart { stores: Some(Arc::new(stores)), number: FIRST_STORE }
    }

    /// The store of this number in the same process.
    #[must_use]
    pub fn of(&self, number: u16) -> StorePart {
        StorePart { stores: self.stores.clone(), number }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number.max(FIRST_STORE)
    }

    /// Whether there are several.
    pub fn is_one_of_several(&self) -> bool {
        self.stores.is_some()
    }

    /// The port for nodes, if it is shared.
    pub fn port(&self) -> Option<Arc<NodePort>> {
        self.stores.as_ref().map(|stores| stores.port.clone())
    }

    /// This node serves clients of the store, and its figures come from here, which is returned.
    pub fn leads(&self, collector: StatsCollector) -> StatsCollector {
        if let Some(stores) = &self.stores {
            let mut collectors = stores.collectors.lock().unwrap_or_else(PoisonError::into_inner);
            collectors.insert(self.number(), collector.clone());
        }
        collector
    }

    /// This node does not serve clients of the store any more.
    pub fn leads_no_more(&self) {
        if let Some(stores) = &self.stores {
            stores.collectors.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number());
        }
    }

    /// The other stores that this node leads, for the first one, which speaks for the node.
    pub fn others_led(&self) -> BTreeMap<u16, StatsCollector> {
        let Some(stores) = self.stores.as_ref().filter(|_| self.number() == FIRST_STORE) else {
            return BTreeMap::new();
        };
        let mut led = stores.collectors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        led.remove(&self.number());
        led
    }

    /// Whether the node is being drained, in all of its stores.
    pub fn draining(&self) -> Draining {
        self.stores.as_ref().map_or_else(Draining::default, |stores| stores.draining.clone())
    }

    /// The replica of this store is open.
    pub fn open(&self, view: ClusterView) {
        let Some(stores) = &self.stores else { return };
        if let Some(place) = stores.views.get(usize::from(self.number() - FIRST_STORE)) {
            let _ = place.set(view);
            stores.opened.send_replace(());
        }
    }

    /// All stores of the process that are open, by number.
    pub fn views(&self) -> impl Iterator<Item = (u16, &ClusterView)> {
        let views = self.stores.iter().flat_map(|stores| &stores.views);
        (FIRST_STORE..).zip(views).filter_map(|(number, view)| Some((number, view.get()?)))
    }

    /// The stores of the cluster, of which this process may have some alone; 1 if there are not
    /// several.
    pub fn count(&self) -> u16 {
        self.stores.as_ref().map_or(1, |stores| stores.views.len() as u16)
    }

    /// The stores that this node has, as the list of members of the first one says.
    pub fn here(&self) -> ChosenStores {
        self.views().next().map_or(ChosenStores::ALL, |(_, first)| first.chosen_stores())
    }

    /// Why a store is not served by this process; `None` if it is.
    pub fn absence(&self, number: u16) -> Option<String> {
        if self.views().any(|(of, _)| of == number) {
            return None;
        }
        let count = self.count();
        let (here, node) = (self.here(), self.views().next().map_or("this node", |(_, first)| &*first.node));
        Some(match (FIRST_STORE..=count).contains(&number) {
            true if here.have(number) => format!("store {number} is not open yet"),
            true => format!(
                "store {number} is not here: {node} has {}, as it was admitted for these alone",
                named(here, count)
            ),
            false => format!("the cluster has no store {number}"),
        })
    }

    /// Waits until this number of stores is open.
    pub async fn are_open(&self, count: usize) {
        let Some(stores) = &self.stores else { return };
        let mut opened = stores.opened.subscribe();
        while self.views().count() < count && opened.changed().await.is_ok() {}
    }

    /// The documents of the first store, as its replica here has them.
    pub fn documents(&self) -> Option<watch::Receiver<DocumentContents>> {
        self.stores.as_ref().map(|stores| stores.documents.subscribe())
    }

    /// The first store has these documents.
    pub fn publish<'d>(&self, all: impl Iterator<Item = (&'d Arc<str>, DocumentVersion, &'d Bytes)>) {
        let Some(stores) = self.stores.as_ref().filter(|_| self.number() == FIRST_STORE) else { return };
        let contents: DocumentContents =
            all.map(|(name, version, content)| (name.clone(), version, content.clone())).collect();
        stores.documents.send_if_modified(|known| {
            let is_new = *known != contents;
            *known = contents;
            is_new
        });
    }
}
