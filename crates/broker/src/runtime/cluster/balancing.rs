//! A leader hands leadership to a node with a larger share, and says whether the cluster is
//! balanced, and why.
//!
//! Never here: which leadership moves (crates/cluster), how clients are moved (`handover`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postroad_cluster::{
    Balance, Balancer, DiskSpace, LeaderMove, LeadersView, Members, NodeId, Role, StoreNumber, StoreView,
    Wait, Weight,
};
use postroad_replication::ReplicaStatus;
use tokio::time::{MissedTickBehavior, interval};

use crate::runtime::cluster::orders::{LAG_MAX, has_caught_up};
use crate::runtime::cluster::peers::Peer;
use crate::runtime::cluster::space;
use crate::runtime::cluster::view::ClusterView;
use crate::runtime::ticks_ms;

/// How often the leader looks.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps leadership where it belongs, for as long as this node leads.
pub async fn keep_balanced(view: ClusterView) {
    let mut balancer = Balancer::default();
    // The note is of the last time that this node led.
    view.note_balance(Balance::Balanced);
    let mut looks = interval(EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let Some(leaders) = view.leaders_seen() else { continue };
        let balance = balancer.look(ticks_ms(), &leaders);
        view.note_balance(balance);
        if let Balance::Move(LeaderMove { store, to, .. }) = balance
            // Each leader comes to the same result, and moves its own store alone.
            && store == view.store()
            && let Some(turn) = view.handover.take_turn()
        {
            let (to_name, store) = (view.name(to), store.0);
            tracing::info!(to = to_name, store, "leadership moves to a node with a larger share");
            view.hand_over(turn, Some(to)).await;
        }
    }
}

/// Why leadership is not where it belongs; `None` if it is. Nodes are given by name and weight.
fn reason_of(
    balance: Balance,
    is_one_of_several: bool,
    of: impl Fn(NodeId) -> (String, Weight),
) -> Option<String> {
    let (LeaderMove { store, from, to }, when) = match balance {
        Balance::Balanced => return None,
        Balance::Move(wanted) => (wanted, "leadership moves there"),
        Balance::Waits { wanted, reason } => (
            wanted,
            match reason {
                Wait::Settles => "leadership moves there once that has lasted for a while",
                Wait::UnderWay => "leadership moves there",
                Wait::Rests => "leadership moves there later, as it has moved a moment ago",
                Wait::Failed => "which has not taken over, and is asked again later",
            },
        ),
    };
    let ((leader, own), (better, larger)) = (of(from), of(to));
    let (own, larger) = (own.get(), larger.get());
    if is_one_of_several {
        let store = store.0;
        return Some(format!(
            "{leader} leads more stores for its weight than {better}, which is to lead store {store}: {when}"
        ));
    }
    Some(format!("{leader} leads with weight {own}, and {better} has weight {larger}: {when}"))
}

impl ClusterView {
    /// The number of the store.
    fn store(&self) -> StoreNumber {
        StoreNumber(self.part.number())
    }

    /// The other stores of the process, as their replicas here know them.
    fn other_stores(&self, nodes: &BTreeMap<NodeId, Weight>) -> Vec<StoreView> {
        let others = self.part.views().filter(|(number, _)| *number != self.part.number());
        let view = |(number, view): (u16, &ClusterView)| {
            let mut ready = view.peers.reached_to_lead();
            ready.push(view.shared.own());
            ready.retain(|node| nodes.contains_key(node));
            StoreView { store: StoreNumber(number), leader: view.known_leader(), ready }
        };
        others.map(view).collect()
    }

    /// Leaders and nodes that could lead; `None` if this node does not serve clients.
    fn leaders_seen(&self) -> Option<LeadersView> {
        let shown = self.status.borrow().clone().filter(|shown| shown.serves)?;
        let (members, own) = (self.peers.members(), self.shared.own());
        let stays = |node: &NodeId| members.record(*node).is_none_or(|record| !record.retires);
        let nodes: BTreeMap<NodeId, Weight> = members
            .voters
            .iter()
            .filter(|node| stays(node) && self.part.votes_in_all(**node))
            .map(|node| (*node, self.weight(*node)))
            .collect();
        let mut ready = self.peers.reached_to_lead();
        ready.retain(|node| nodes.contains_key(node) && has_caught_up(&shown.replica, *node));
        let mut stores = vec![StoreView { store: self.store(), leader: Some(own), ready }];
        stores.extend(self.other_stores(&nodes));
        stores.sort_by_key(|store| store.store);
        Some(LeadersView { nodes, stores })
    }

    /// The share of the leaders that a node gets, as far as it has said so.
    pub(super) fn weight(&self, node: NodeId) -> Weight {
        match self.peers.find(node) {
            Some(peer) => peer.weight(),
            None if node == self.shared.own() => self.shared.weight(),
            None => Weight::default(),
        }
    }

    /// Whether the work is spread as it should be, and why. Only a leader knows.
    pub(super) fn balance(&self, replica: &ReplicaStatus) -> Option<String> {
        if replica.group.role != Role::Leader {
            return None;
        }
        let last = replica.group.last.0;
        let reason = |peer: &Arc<Peer>| {
            let name = self.name(peer.node);
            let lag = replica.lag_of(peer.node).unwrap_or(last);
            match peer.connected.load(Ordering::Acquire) {
                _ if peer.damaged.load(Ordering::Acquire) || peer.leaving.says_damaged() => {
                    Some(format!("the store of {name} is damaged"))
                }
                false => Some(format!("{name} is not reached, and its replica falls behind")),
                true if peer.space.get() != DiskSpace::Ample => Some(format!("the disk of {name} is full")),
                true if LAG_MAX < lag => Some(format!("the replica of {name} lags by {lag} entries")),
                true => None,
            }
        };
        let (peers, members) = (self.peers.all(), self.peers.members());
        let replicas = peers.iter().filter(|peer| !members.is_mirror(peer.node));
        let learners = members.learners.iter().filter(|node| !members.is_mirror(**node));
        let learns = learners.map(|node| format!("{} has no vote yet", self.name(*node)));
        let zone = self.zone_of_a_majority(&members);
        let own = space::of_disk(self.shared.space()).map(|_| format!("the disk of {} is full", self.node));
        let leader = reason_of(self.noted_balance(), self.part.is_one_of_several(), |node| {
            (self.name(node), self.weight(node))
        });
        let reasons: Vec<String> = own
            .into_iter()
            .chain(replicas.filter_map(reason))
            .chain(learns)
            .chain(zone)
            .chain(leader)
            .collect();
        Some(match reasons.is_empty() {
            true if self.part.is_one_of_several() => {
                let (store, node) = (self.part.number(), &self.node);
                format!("yes, because {node} leads store {store} as its weight says, and no replica lags")
            }
            true => format!("yes, because one store has one leader, {}, and no replica lags", self.node),
            false => format!("no, because {}", reasons.join(", and ")),
        })
    }

    /// A zone without which nothing is committed, if the nodes are in several: a further one would
    /// be of use.
    fn zone_of_a_majority(&self, members: &Members) -> Option<String> {
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        for node in &members.voters {
            *votes.entry(self.zone(*node)).or_default() += 1;
        }
        let all = members.voters.len();
        let (zone, count) =
            votes.iter().find(|(zone, count)| !zone.is_empty() && all - **count < members.majority())?;
        (1 < votes.len())
            .then(|| format!("zone {zone} has {count} of {all} votes: without it nothing is confirmed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_both_nodes_their_weights_and_the_next_step() {
        let node = |number| NodeId::new(number).unwrap();
        let wanted = LeaderMove { store: StoreNumber(1), from: node(1), to: node(2) };
        let waits = |reason| Balance::Waits { wanted, reason };
        let of =
            |node: NodeId| (format!("n{}", node.get()), Weight::new(3 * (node.get() as u8 - 1)).unwrap());
        for (balance, when) in [
            (Balance::Balanced, None),
            (Balance::Move(wanted), Some("leadership moves there")),
            (waits(Wait::UnderWay), Some("leadership moves there")),
            (waits(Wait::Settles), Some("leadership moves there once that has lasted for a while")),
            (waits(Wait::Rests), Some("leadership moves there later, as it has moved a moment ago")),
            (waits(Wait::Failed), Some("which has not taken over, and is asked again later")),
        ] {
            let want = when.map(|when| format!("n1 leads with weight 0, and n2 has weight 3: {when}"));
            assert_eq!(reason_of(balance, false, of), want, "{balance:?}");
            let several = when.map(|when| {
                format!("n1 leads more stores for its weight than n2, which is to lead store 1: {when}")
            });
            assert_eq!(reason_of(balance, true, of), several, "{balance:?}");
        }
    }
}
