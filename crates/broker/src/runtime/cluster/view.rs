//! The state of the cluster as one node knows it, for operators.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use postroad_admin::{ClusterFigures, PeerFigures, StoreFigures};
use postroad_cluster::{Balance, ChosenStores, Members, NodeId, Role};
use postroad_model::{Elsewhere, Endpoint};
use postroad_node::Draining;
use postroad_replication::ReplicaStatus;
use postroad_routing::FIRST_STORE;
use postroad_security::nodes::NodeTls;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::runtime::cluster::ClusterOptions;
use crate::runtime::cluster::commits::CommitLatency;
use crate::runtime::cluster::copies::Copies;
use crate::runtime::cluster::copy::Progress;
use crate::runtime::cluster::entry_login::EntryLogin;
use crate::runtime::cluster::joining::Membership;
use crate::runtime::cluster::newcomer::Asker;
use crate::runtime::cluster::participant::HAND_OVER_EVERY;
use crate::runtime::cluster::peers::{Peer, Peers, Shared};
use crate::runtime::cluster::space;
use crate::runtime::cluster::store_part::{StorePart, named};
use crate::runtime::cluster::waits::Wait;
use crate::runtime::durations::Durations;
use crate::runtime::handover::{Handover, Turn};
use crate::runtime::journal::JournalDoor;

/// A leader that hands over leads on if no other node has taken over within this time. It takes
/// writes again after half of it.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(1);

/// See the head of this file.
#[derive(Clone)]
pub struct ClusterView {
    cluster: Arc<str>,
    pub(super) node: Arc<str>,
    number: NodeId,
    pub(super) listen: Arc<str>,
    pub(super) peers: Peers,
    pub(super) shared: Arc<Shared>,
    membership: Arc<Membership>,
    copies: Arc<Copies>,
    pub(super) door: JournalDoor,
    /// Of this node's clients to another one.
    pub handover: Arc<Handover>,
    pub(super) status: watch::Receiver<Option<NodeStatus>>,
    /// The stores of the process.
    pub(super) part: StorePart,
    /// Of this node, in all of its stores.
    pub draining: Draining,
    /// Of the leaders, as this node saw it last while it led.
    leaders: Arc<Mutex<Balance>>,
}

/// The part that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// The replica.
    pub replica: ReplicaStatus,
    /// Whether clients are served here.
    pub serves: bool,
    /// How often the leader has changed, as far as this process has seen.
    pub elections: u64,
    /// How long writes of this node took until they were committed.
    pub commits: CommitLatency,
    /// The node that is to lead in place of this one, once clients have finished.
    pub successor: Option<Successor>,
    /// The members that wait for a step of this node, which leads, and why.
    pub waits: Vec<(NodeId, Wait)>,
}

/// A node that is to lead in place of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Its number.
    pub node: NodeId,
    /// Why, for the log.
    pub reason: &'static str,
}

impl ClusterView {
    pub(super) fn new(
        (options, number): (&ClusterOptions, NodeId),
        shared: Arc<Shared>,
        (membership, copies): (Arc<Membership>, Arc<Copies>),
        (door, status): (JournalDoor, watch::Receiver<Option<NodeStatus>>),
    ) -> ClusterView {
        ClusterView {
            cluster: options.name.as_str().into(),
            node: options.node.as_str().into(),
            number,
            listen: options.listen.as_str().into(),
            peers: shared.peers().clone(),
            shared,
            membership,
            copies,
            door,
            handover: Arc::default(),
            status,
            part: options.part.clone(),
            draining: options.part.draining(),
            leaders: Arc::new(Mutex::new(Balance::Balanced)),
        }
    }

    /// Notes whether leadership is balanced, for operators.
    pub(super) fn note_balance(&self, balance: Balance) {
        *self.leaders.lock().unwrap_or_else(PoisonError::into_inner) = balance;
    }

    /// The note of the last time.
    pub(super) fn noted_balance(&self) -> Balance {
        *self.leaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this node serves no clients, and which one does.
    pub fn reason(&self) -> String {
        let node = &self.node;
        if self.membership.removed() {
            return format!(
                "{node} was removed from the cluster: stop it. What it alone has stays in its data directory. To join \
                 again it needs an empty one, and cluster.seeds that name other nodes alone"
            );
        }
        if !self.membership.joined() {
            return self.outside();
        }
        let is_mirror = self.peers.members().is_mirror(self.number);
        match self.role() {
            Some(Role::Leader) => format!("{node} takes over, and serves clients in a moment"),
            // The engine of a mirror remembers the last leader: it never asks for votes.
            _ if is_mirror && self.leader().is_none() => format!(
                "{node} is a mirror and reaches no leader. If the other nodes are lost for good, `postroad ctl cluster \
                 promote {node}` makes it take their place{}",
                self.part_here()
            ),
            Some(Role::Follower { leader: Some(leader) }) => {
                let full = space::of_disk(self.shared.space());
                let full = full.map_or_else(String::new, |full| format!("; {full}"));
                format!(
                    "{node} follows {}, which serves clients{full}{}",
                    self.name(leader),
                    self.part_here()
                )
            }
            Some(_) if self.reached() < self.majority() => format!(
                "{node} reaches {} of {} nodes, itself included; without {} of them nothing durable is confirmed",
                self.reached(),
                self.peers.members().voters.len(),
                self.majority()
            ),
            _ => format!("{node} knows no leader yet: an election is under way"),
        }
    }

    /// The stores of a node that does not have all of them, in words.
    fn part_here(&self) -> String {
        let here = Some(self.part.here()).filter(|here| !here.are_all());
        here.map_or_else(String::new, |here| {
            format!("; {} has {}", self.node, named(here, self.part.count()))
        })
    }

    /// The stores that this node has.
    pub(super) fn chosen_stores(&self) -> ChosenStores {
        self.stores_of(self.number)
    }

    /// The stores that a node has, as this list of members says.
    fn stores_of(&self, node: NodeId) -> ChosenStores {
        self.peers.members().record(node).map_or(ChosenStores::ALL, |record| record.stores)
    }

    /// Why this node takes no part.
    fn outside(&self) -> String {
        let (node, missing) = (&self.node, self.membership.missing());
        if self.membership.removed() {
            return "was removed from the cluster".to_owned();
        }
        if self.membership.is_damaged() {
            return format!("{node} takes no part, as its store is damaged: {}", self.filling());
        }
        if self.membership.awaits_first_copy() {
            return format!("{node} joins the cluster: {}", self.filling());
        }
        if missing.is_empty() {
            return format!("{node} has an empty store in place of its former one: {}", self.filling());
        }
        let missing: Vec<String> = missing.into_iter().map(|node| self.name(node)).collect();
        let missing = missing.join(", ");
        format!(
            "{node} has an empty store and takes part once it has met all other nodes; it has not met {missing}"
        )
    }

    /// How far the copy has come that fills this node's store.
    fn filling(&self) -> String {
        let Progress { received, bytes } = &self.copies.progress;
        match (received.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed)) {
            (_, 0) => "needs a copy of the store".to_owned(),
            (received, bytes) => format!("receives a copy of the store: {received} of {bytes} bytes"),
        }
    }

    /// Where clients that come to this node by URLs of a scheme are served. Call it while this node
    /// follows.
    pub fn elsewhere(&self, scheme: &str) -> Elsewhere {
        let leader = match self.role() {
            Some(Role::Follower { leader }) => leader,
            _ => None,
        };
        let leader = leader.and_then(|leader| self.peers.find(leader));
        let served_at = leader.and_then(|leader| leader.endpoint(scheme));
        let at = served_at.as_ref().map_or_else(String::new, |served_at| format!(" at {served_at}"));
        Elsewhere { reason: self.reason() + &at, served_at, serves_others: false }
    }

    /// Waits until this node knows a leader, for a time at most.
    pub async fn leader_is_known(&self, within: Duration) {
        let knows_leader = |shown: &Option<NodeStatus>| {
            let role = shown.as_ref().map(|shown| shown.replica.group.role);
            matches!(role, Some(Role::Leader | Role::Follower { leader: Some(_) }))
        };
        let mut status = self.status.clone();
        // If the replica has ended, the client gets that error.
        let _ = tokio::time::timeout(within, status.wait_for(knows_leader)).await;
    }

    /// The other node that leads, if it is known and reached.
    pub fn leader(&self) -> Option<Arc<Peer>> {
        self.leader_in(self.status.borrow().as_ref())
    }

    fn leader_in(&self, shown: Option<&NodeStatus>) -> Option<Arc<Peer>> {
        let Role::Follower { leader } = shown?.replica.group.role else { return None };
        self.peers.find(leader?).filter(|peer| peer.connected.load(Ordering::Acquire))
    }

    /// The other node that leads, once it is known and reached; `None` if that takes longer.
    pub async fn leader_by(&self, until: Instant) -> Option<Arc<Peer>> {
        let mut status = self.status.clone();
        // It is sent at each tick too, so that a connection made since the role changed is seen.
        let is_found = status.wait_for(|shown| self.leader_in(shown.as_ref()).is_some());
        let _ = tokio::time::timeout_at(until, is_found).await;
        self.leader()
    }

    /// Where clients are served now that another node leads; empty if none is known within a time.
    pub async fn onward(&self, within: Duration) -> Vec<Endpoint> {
        let follows = |shown: &Option<NodeStatus>| {
            let role = shown.as_ref().map(|shown| shown.replica.group.role);
            matches!(role, Some(Role::Follower { leader: Some(_) }))
        };
        let mut status = self.status.clone();
        // It may still say that this node leads.
        let _ = tokio::time::timeout(within, status.wait_for(follows)).await;
        self.leader().map_or_else(Vec::new, |leader| leader.endpoints())
    }

    /// Keeps a client that came while this node takes over until it serves.
    pub fn keep(&self, client: (TcpStream, SocketAddr, &str)) {
        self.shared.intake().keep(client);
    }

    /// Gives the leader, which this node is, a client that has logged in at this node.
    pub fn hand(&self, client: (TcpStream, SocketAddr, &str), login: Box<EntryLogin>) {
        self.shared.intake().hand(client, login);
    }

    /// TLS between nodes, if there is any.
    pub fn node_tls(&self) -> Option<&NodeTls> {
        self.shared.tls()
    }

    /// Hands leadership over, to the best node if none is named, once clients have finished what
    /// they have under way. Returns whether another node took over.
    pub async fn hand_over(&self, turn: Turn, to: Option<NodeId>) -> bool {
        turn.prepare().await;
        let door = self.door.clone();
        // It waits for the journal's turn.
        let _ = tokio::task::spawn_blocking(move || door.transfer(to)).await;
        let mut status = self.status.clone();
        let follows = |shown: &Option<NodeStatus>| {
            !shown.as_ref().is_some_and(|shown| shown.replica.group.role == Role::Leader)
        };
        let is_taken_over = tokio::time::timeout(TAKEN_OVER_WITHIN, status.wait_for(follows)).await.is_ok();
        if !is_taken_over {
            tracing::warn!("no other node took over in time: this one leads on");
            turn.serve_on();
        }
        is_taken_over
    }

    /// Hands leadership over whenever the replica names a successor.
    pub async fn hand_over_by_itself(self) {
        let mut status = self.status.clone();
        loop {
            let named =
                status.wait_for(|shown| shown.as_ref().is_some_and(|shown| shown.successor.is_some()));
            let named = named.await.ok().and_then(|shown| shown.as_ref()?.successor);
            let Some(Successor { node, reason }) = named else { return };
            if let Some(turn) = self.handover.take_turn() {
                tracing::warn!(to = self.name(node), "this node hands leadership over, as {reason}");
                self.hand_over(turn, Some(node)).await;
            }
            tokio::time::sleep(HAND_OVER_EVERY).await;
        }
    }

    /// Whether this node was removed from the cluster, so that it learns of no leader any more.
    pub fn is_removed(&self) -> bool {
        self.membership.removed()
    }

    /// The number of this node.
    pub fn number(&self) -> NodeId {
        self.number
    }

    /// The stores of the process.
    pub fn part(&self) -> &StorePart {
        &self.part
    }

    /// Whether this node was elected.
    pub fn is_elected(&self) -> bool {
        self.role() == Some(Role::Leader)
    }

    /// Follows the leader's node. Call it within a `LocalSet`, which ends it.
    pub fn leaders(&self) -> watch::Receiver<Option<NodeId>> {
        let (leaders, changes) = watch::channel(self.leader().map(|leader| leader.node));
        let (view, mut status) = (self.clone(), self.status.clone());
        tokio::task::spawn_local(async move {
            while status.changed().await.is_ok() {
                let leader = view.leader().map(|leader| leader.node);
                leaders.send_if_modified(|known| std::mem::replace(known, leader) != leader);
            }
        });
        changes
    }

    /// The node that leads, as far as this one knows.
    pub(super) fn known_leader(&self) -> Option<NodeId> {
        match self.role()? {
            Role::Leader => Some(self.number),
            Role::Follower { leader } => leader,
            Role::Candidate => None,
        }
    }

    /// The stores of the node, with their leaders; none if there is one.
    fn stores(&self) -> Vec<Value> {
        let row = |(number, view): (u16, &ClusterView)| {
            let shown = view.status.borrow().clone();
            let group = shown.as_ref().map(|shown| shown.replica.group);
            let lag = group.as_ref().map(|group| group.last.0 - group.durable.0.min(group.last.0));
            // A node that was removed hears of later leaders no more.
            let leader = view.known_leader().filter(|_| !view.is_removed());
            json!({
                "store": number, "here": true, "leader": leader.map(|leader| view.name(leader)),
                "serves": shown.is_some_and(|shown| shown.serves), "lag": lag,
                "term": group.as_ref().map(|group| group.term.0),
                "committed": group.as_ref().map(|group| group.committed.0),
                "members": view.members_state(),
            })
        };
        let absent = |number: u16| {
            let is_absent = !self.part.here().have(number);
            is_absent
                .then(|| json!({ "store": number, "here": false, "serves": false, "members": "not here" }))
        };
        let rows = self.part.views().map(row);
        rows.chain((FIRST_STORE..=self.part.count()).filter_map(absent)).collect()
    }

    /// Whether a store has the members of the first one and each has its vote, or the difference.
    fn members_state(&self) -> String {
        if self.is_removed() {
            return format!("{} has left it", self.node);
        }
        let lacks_leader = self.known_leader().is_none().then(|| "no leader".to_owned());
        let texts: Vec<String> = lacks_leader.into_iter().chain(self.difference()).collect();
        if texts.is_empty() { "complete".to_owned() } else { texts.join(", ") }
    }

    fn role(&self) -> Option<Role> {
        self.status.borrow().as_ref().map(|shown| shown.replica.group.role)
    }

    /// Nodes with a vote that this one reaches, itself included.
    fn reached(&self) -> usize {
        let (reached, members) = (self.peers.reached(), self.peers.members());
        members.voters.iter().filter(|node| **node == self.number || reached.contains(node)).count()
    }

    /// Nodes without which nothing is committed.
    fn majority(&self) -> usize {
        self.peers.members().majority()
    }

    pub(super) fn name(&self, node: NodeId) -> String {
        if node == self.number {
            return self.node.to_string();
        }
        let peer = self.peers.find(node);
        let name = peer.and_then(|peer| Some(peer.name.get()?.clone()));
        name.unwrap_or_else(|| format!("node {}", node.get()))
    }

    /// The metrics of this node; `None` before the first tick of its replica.
    pub fn figures(&self) -> Option<ClusterFigures> {
        let NodeStatus { replica, elections, commits, .. } = self.status.borrow().clone()?;
        let group = &replica.group;
        let role = match group.role {
            Role::Leader => "leader",
            Role::Candidate => "candidate",
            Role::Follower { .. } => "follower",
        };
        let peer = |peer: &Arc<Peer>| PeerFigures {
            node: self.name(peer.node),
            connected: peer.connected.load(Ordering::Acquire),
            lag: replica.lag_of(peer.node),
            sent_bytes: peer.sent_bytes.load(Ordering::Relaxed),
            copied_bytes: peer.copied_bytes.load(Ordering::Relaxed),
            damage: Some(peer.damage()).filter(|_| peer.damaged.load(Ordering::Acquire)),
            full: space::of_disk(peer.space.get()),
        };
        let Progress { received, bytes } = &self.copies.progress;
        Some(ClusterFigures {
            node: self.node.to_string(),
            role,
            term: group.term.0,
            elections,
            committed: group.committed.0,
            commit_micros: commits.total.distribution(),
            majority_micros: commits.majority.distribution(),
            copy_bytes: (bytes.load(Ordering::Relaxed), received.load(Ordering::Relaxed)),
            peers: self.peers.all().iter().map(peer).collect(),
            damage: Some(self.membership.damage()).filter(|_| self.membership.is_damaged()),
            full: space::of_disk(self.shared.space()),
            stores: self.part.views().map(|(number, view)| view.store_figures(number)).collect(),
        })
    }

    fn store_figures(&self, store: u16) -> StoreFigures {
        let shown = self.status.borrow().clone();
        StoreFigures {
            store,
            is_led: self.known_leader().is_some(),
            serves: shown.as_ref().is_some_and(|shown| shown.serves),
            lags: shown.as_ref().map_or_else(Vec::new, |shown| self.lags(&shown.replica)),
            committed: shown.map_or(0, |shown| shown.replica.group.committed.0),
        }
    }

    /// How far the other nodes lag, by name, as far as a leader knows.
    fn lags(&self, replica: &ReplicaStatus) -> Vec<(String, u64)> {
        let peers = self.peers.all();
        let lag = |peer: &Arc<Peer>| Some((self.name(peer.node), replica.lag_of(peer.node)?));
        peers.iter().filter_map(lag).collect()
    }

    /// Where a member is, as far as it has said so.
    pub(super) fn zone(&self, node: NodeId) -> String {
        match self.peers.find(node) {
            Some(peer) => peer.zone(),
            None if node == self.number => self.shared.zone().to_owned(),
            None => String::new(),
        }
    }

    /// One row for each node that asks to join.
    fn newcomers(&self, members: &Members) -> Vec<Value> {
        let still_asks =
            |asker: &Asker| members.records.values().all(|record| record.address != asker.address);
        let row = |Asker { name, address, .. }: Asker| {
            json!({
                "node": name, "address": address, "role": "newcomer", "votes": false,
                "state": format!("asks to join: postroad ctl cluster join {name}"),
            })
        };
        self.shared.askers().all().into_iter().filter(still_asks).map(row).collect()
    }

    /// The numbers of the stores of a node; none if the cluster has one.
    fn shown_stores(&self, node: NodeId) -> Option<Vec<u16>> {
        self.part.is_one_of_several().then(|| self.stores_of(node).among(self.part.count()))
    }

    /// Why a member that is to go is still there, or a learner has no vote yet, in each store that
    /// this node leads; empty if nothing waits.
    fn waits(&self, node: NodeId) -> String {
        let of = |view: &ClusterView| {
            let shown = view.status.borrow();
            let (_, wait) = shown.as_ref()?.waits.iter().find(|(member, _)| *member == node)?;
            Some(wait.text(|node| self.name(node)))
        };
        if !self.part.is_one_of_several() {
            return of(self).unwrap_or_default();
        }
        let texts =
            self.part.views().filter_map(|(store, view)| Some(format!("store {store}: {}", of(view)?)));
        texts.collect::<Vec<_>>().join("; ")
    }

    /// One row for each node, as this one knows it.
    fn rows(&self) -> Value {
        let shown = self.status.borrow().clone();
        let Some(NodeStatus { replica, serves, elections, commits, .. }) = shown else {
            return json!({ "items": [] });
        };
        let group = replica.group;
        let (role, leader) = match group.role {
            Role::Leader => ("leader", Some(self.number)),
            Role::Candidate => ("candidate", None),
            Role::Follower { leader } => ("follower", leader),
        };
        let members = self.peers.members();
        let role_of = |node: NodeId, leader: Option<NodeId>| match leader {
            Some(leader) if leader == node => "leader",
            _ if members.is_mirror(node) => "mirror",
            _ if members.learners.contains(&node) => "learner",
            Some(_) => "follower",
            None => "unknown",
        };
        let role = match members.learners.contains(&self.number) {
            true => role_of(self.number, None),
            false => role,
        };
        let mut rows = vec![json!({
            "node": &*self.node, "number": self.number.get(), "address": &*self.listen, "role": role,
            "votes": members.voters.contains(&self.number), "zone": self.shared.zone(),
            "weight": self.shared.weight().get(), "levels": self.shared.levels().to_string(),
            "damage": self.membership.damage(), "full": space::of_disk(self.shared.space()),
            "state": match (serves, replica.needs_copy, self.membership.joined()) {
                (true, ..) => "serves clients".to_owned(),
                (_, _, false) => self.outside(),
                (_, true, _) => self.filling(),
                _ => "takes part".to_owned(),
            },
            "stores": self.shown_stores(self.number), "waits": self.waits(self.number),
            "term": group.term.0, "stored": group.durable.0, "lag": group.last.0 - group.durable.0.min(group.last.0),
        })];
        for peer in self.peers.all().iter() {
            let stored = replica.stored.iter().find(|(node, _)| *node == peer.node);
            let connected = peer.connected.load(Ordering::Acquire);
            rows.push(json!({
                "node": self.name(peer.node), "number": peer.node.get(), "address": peer.address,
                "role": role_of(peer.node, leader), "votes": members.voters.contains(&peer.node),
                "zone": peer.zone(), "weight": peer.weight().get(), "levels": peer.levels().map(|levels| levels.to_string()),
                "state": if connected { "connected" } else { "not reached" },
                "stored": stored.map(|(_, index)| index.0),
                "lag": replica.lag_of(peer.node), "stores": self.shown_stores(peer.node),
                "damage": peer.damage(), "full": space::of_disk(peer.space.get()),
                "waits": self.waits(peer.node),
                "sent_bytes": peer.sent_bytes.load(Ordering::Relaxed),
                "copied_bytes": peer.copied_bytes.load(Ordering::Relaxed),
                "connections": peer.sockets.load(Ordering::Acquire),
            }));
        }
        rows.extend(self.newcomers(&members));
        json!({
            "stores": self.stores(), "cluster": &*self.cluster, "node": &*self.node, "role": role, "serves": serves,
            "leader": leader.map(|leader| self.name(leader)), "balanced": self.balance(&replica),
            "removed": self.membership.removed(), "level": members.level.get(),
            "term": group.term.0, "elections": elections, "last": group.last.0, "durable": group.durable.0,
            "committed": group.committed.0, "floor": replica.floor.0, "items": rows,
            "commit_micros": micros(&commits.total), "majority_micros": micros(&commits.majority),
        })
    }
}

/// Percentiles of durations, in microseconds.
fn micros(durations: &Durations) -> Value {
    let within = |thousandths| u64::try_from(durations.within(thousandths).as_micros()).unwrap_or(u64::MAX);
    json!({ "p50": within(500), "p99": within(990), "max": within(1000) })
}

/// The state of the cluster for operators.
pub fn cluster_api(view: ClusterView) -> Router {
    Router::new().route("/api/v1/cluster", get(move || async move { Json(view.rows()) }))
}
