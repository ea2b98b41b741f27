//! The members of further stores follow those of the first one, so that each node has the same
//! number in all groups.
//!
//! ```text
//!  join:   store 1 adds the node ─▶ the node asks in each further store, whose leader adds it
//!  leave:  store 1 marks the node ─▶ each further store removes it ─▶ store 1 removes it
//! ```
//! Each leader has a replica of store 1 beside its own, and takes one step after the other from
//! the two lists. So nothing else has to be remembered: the next leader goes on where this one
//! ended, and a node that was away asks again.
//!
//! A mirror of chosen stores joins these alone. If it takes the place of all others, the list of
//! store 1 says nothing about the stores that it does not have: those keep their members.
//!
//! Never here: votes of learners, and how leadership is given up (`steward`).

use std::collections::BTreeMap;

use postroad_cluster::{MemberChange, Members, NodeId, NodeRecord};
use postroad_routing::FIRST_STORE;

use crate::runtime::cluster::newcomer::Asker;
use crate::runtime::cluster::store_part::StorePart;
use crate::runtime::cluster::view::ClusterView;

/// A change of members, with what is known of the node.
pub type FollowingChange = (MemberChange, BTreeMap<NodeId, NodeRecord>);

/// The next change in a further store with these members; `None` if they are those of the first,
/// or the node that comes next does not ask yet.
pub fn next_change(store: u16, first: &Members, own: &Members, askers: &[Asker]) -> Option<FollowingChange> {
    if !is_kept(store, first) {
        return None;
    }
    let retires = |members: &Members, node| members.record(node).is_some_and(|record| record.retires);
    let leaves = |node: &NodeId| first.is_former(*node) || retires(first, *node);
    if let Some(node) = own.all().into_iter().find(|node| leaves(node) && !retires(own, *node)) {
        return Some((MemberChange::Retire(node), BTreeMap::new()));
    }
    let node = missing(store, first, own)?;
    let record = first.record(node)?;
    let asker = askers.iter().find(|it| it.name == record.name && it.address == record.address)?;
    let record = NodeRecord { identity: asker.identity.clone(), zone: String::new(), ..record.clone() };
    Some((MemberChange::Add(node), [(node, record)].into()))
}

/// Whether one of the members of the first store has this one.
fn is_kept(store: u16, first: &Members) -> bool {
    let has = |node: NodeId| first.record(node).is_none_or(|record| record.stores.have(store));
    first.all().into_iter().any(has)
}

/// The first node that a further store has still to add. Numbers rise, so each waits for those
/// before it.
fn missing(store: u16, first: &Members, own: &Members) -> Option<NodeId> {
    let belongs = |record: &NodeRecord| !record.retires && record.stores.have(store);
    let stays = |node: &NodeId| first.record(*node).is_none_or(belongs);
    let mut all = first.all().into_iter().filter(stays);
    all.find(|node| !own.contains(*node) && !own.is_former(*node))
}

/// The members of a further store that those of the first have still to lose.
fn surplus(first: &Members, own: &Members) -> Vec<NodeId> {
    let leaves = |node: &NodeId| first.record(*node).is_some_and(|record| record.retires);
    own.all().into_iter().filter(|node| first.is_former(*node) || leaves(node)).collect()
}

/// The difference between the members of a store and those of the first, in words; `None` if there
/// is none, and each node has its vote.
pub fn difference(
    store: u16,
    first: &Members,
    own: &Members,
    name: impl Fn(NodeId) -> String,
) -> Option<String> {
    if !is_kept(store, first) {
        return Some("a mirror without this store has taken over store 1: they stay".to_owned());
    }
    let learners = own.learners.iter().filter(|node| !own.is_mirror(**node));
    let texts = missing(store, first, own).map(|node| format!("{} has not asked to join it yet", name(node)));
    let leaving = surplus(first, own).into_iter().map(|node| format!("{} has still to leave it", name(node)));
    let learning = learners.map(|node| format!("{} has no vote yet", name(*node)));
    let texts: Vec<String> = leaving.chain(texts).chain(learning).collect();
    Some(texts.join(", ")).filter(|text| !text.is_empty())
}

impl StorePart {
    /// The members of the first store, for a further one.
    pub fn members_to_follow(&self) -> Option<std::sync::Arc<Members>> {
        let (_, first) = self.views().next().filter(|_| self.number() != FIRST_STORE)?;
        Some(first.peers.members())
    }

    /// Members of other stores, with these: the first store keeps a node until all others have
    /// removed it.
    pub fn kept_elsewhere(&self) -> Vec<(u16, NodeId)> {
        let others = self.views().filter(|_| self.number() == FIRST_STORE).skip(1);
        let members = |(store, view): (u16, &ClusterView)| {
            view.peers.members().all().into_iter().map(move |node| (store, node))
        };
        others.flat_map(members).collect()
    }

    /// The stores that a node leads, as far as is known here.
    pub fn led_by(&self, node: NodeId) -> usize {
        self.views().filter(|(_, view)| view.known_leader() == Some(node)).count()
    }

    /// Whether a node has a vote in all stores; of one store alone that is not said here.
    pub fn votes_in_all(&self, node: NodeId) -> bool {
        self.views().all(|(_, view)| view.peers.members().voters.contains(&node))
    }

    /// Where the members of all stores listen.
    pub fn addresses(&self) -> Vec<String> {
        let of = |view: &ClusterView| {
            let members = view.peers.members();
            members.records.values().map(|record| record.address.clone()).collect::<Vec<_>>()
        };
        self.views().flat_map(|(_, view)| of(view)).collect()
    }
}

impl ClusterView {
    /// What this store lacks to have the members of the first one; `None` if it has them.
    pub(super) fn difference(&self) -> Option<String> {
        let (_, first) = self.part.views().next()?;
        let members = self.peers.members();
        difference(self.part.number(), &first.peers.members(), &members, |node| first.name(node))
    }
}

#[cfg(test)]
mod tests {
    use postroad_cluster::ChosenStores;

    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn asker(name: &str, address: &str) -> Asker {
        Asker::new(name, address, "store 2 of it")
    }

    fn founders() -> Members {
        Members::founders(["a:1", "b:1", "c:1"])
    }

    /// With a fourth and a fifth node, by name.
    fn joined(mut members: Members, numbers: &[u64]) -> Members {
        for number in numbers {
            members = members.after(MemberChange::Add(node(*number))).unwrap();
            let record = NodeRecord {
                name: format!("n{number}"),
                address: format!("{number}:1"),
                identity: "store 1 of it".to_owned(),
                replaces: Some(node(2)),
                ..NodeRecord::default()
            };
            members.describe(&[(node(*number), record)].into());
        }
        members
    }

    fn after(members: Members, change: MemberChange) -> Members {
        members.after(change).unwrap()
    }

    #[test]
    fn a_further_store_takes_one_step_after_the_other() {
        use MemberChange::{Add, Promote, Remove, Retire};
        let asks = [asker("n5", "5:1"), asker("n4", "4:1")];
        let retired = after(founders(), Retire(node(3)));
        for (case, first, own, askers, want) in [
            ("the same", founders(), founders(), &asks[..], None),
            ("one asks", joined(founders(), &[4]), founders(), &asks, Some(Add(node(4)))),
            ("it does not ask", joined(founders(), &[4]), founders(), &asks[..1], None),
            ("the first one first", joined(founders(), &[4, 5]), founders(), &asks, Some(Add(node(4)))),
            ("they wait for it", joined(founders(), &[4, 5]), founders(), &asks[..1], None),
            ("it was added", joined(founders(), &[4]), joined(founders(), &[4]), &asks, None),
            (
                "a later vote",
                after(joined(founders(), &[4]), Promote(node(4))),
                joined(founders(), &[4]),
                &asks,
                None,
            ),
            ("it leaves", retired.clone(), founders(), &asks, Some(Retire(node(3)))),
            ("that is known", retired.clone(), retired.clone(), &asks, None),
            ("it has left", after(founders(), Remove(node(3))), founders(), &asks, Some(Retire(node(3)))),
            ("it left here first", retired, after(founders(), Remove(node(3))), &asks, None),
            ("a replica of store 1 that lags", founders(), joined(founders(), &[4]), &asks, None),
        ] {
            let got = next_change(2, &first, &own, askers);
            assert_eq!(got.as_ref().map(|(change, _)| *change), want, "case: {case}");
        }
    }

    #[test]
    fn a_node_joins_with_its_own_store_and_with_what_the_first_says_of_it() {
        let (_, records) =
            next_change(2, &joined(founders(), &[4]), &founders(), &[asker("n4", "4:1")]).unwrap();
        let record = &records[&node(4)];
        assert_eq!(record.identity, "store 2 of it");
        assert_eq!((record.name.as_str(), record.replaces), ("n4", Some(node(2))));
        let elsewhere = asker("n4", "x:1");
        assert_eq!(next_change(2, &joined(founders(), &[4]), &founders(), &[elsewhere]), None);
    }

    /// With a mirror of stores 1 and 2 as the fourth node.
    fn mirrored(chosen: [u16; 1]) -> Members {
        let mut members = after(founders(), MemberChange::Add(node(4)));
        let stores = ChosenStores::of(chosen).unwrap();
        let (name, address) = ("far".to_owned(), "4:1".to_owned());
        let record = NodeRecord { name, address, mirrors: true, stores, ..NodeRecord::default() };
        members.describe(&[(node(4), record)].into());
        members
    }

    #[test]
    fn a_mirror_joins_the_stores_that_were_chosen_alone() {
        let asks = [asker("far", "4:1"), asker("n5", "5:1")];
        let add = |store, first: &Members, own: &Members| {
            next_change(store, first, own, &asks).map(|(change, _)| change)
        };
        let name = |node: NodeId| format!("n{}", node.get());
        let first = mirrored([2]);
        assert_eq!(add(2, &first, &founders()), Some(MemberChange::Add(node(4))));
        assert_eq!(add(3, &first, &founders()), None);
        assert_eq!(difference(3, &first, &founders(), name), None, "nothing is missing");
        let next = joined(first, &[5]);
        assert_eq!(add(3, &next, &founders()), Some(MemberChange::Add(node(5))), "the next one joins all");
        assert_eq!(add(3, &next, &joined(founders(), &[5])), None, "and the mirror is not awaited");
    }

    #[test]
    fn a_store_that_the_mirror_did_not_have_keeps_its_members_when_it_takes_over() {
        let alone = mirrored([2]).taken_over(node(4), postroad_cluster::Index(7)).unwrap();
        let mut back = after(alone.clone(), MemberChange::Add(node(5)));
        let record = NodeRecord { stores: ChosenStores::of([2]).unwrap(), ..NodeRecord::default() };
        back.describe(&[(node(5), record)].into());
        for first in [alone, back] {
            assert_eq!(next_change(3, &first, &founders(), &[]), None);
            let difference = difference(3, &first, &founders(), |_| String::new()).unwrap();
            assert!(difference.contains("they stay"), "{difference}");
            let change = next_change(2, &first, &founders(), &[]).map(|(change, _)| change);
            assert_eq!(change, Some(MemberChange::Retire(node(1))), "the mirror has that one");
        }
    }

    #[test]
    fn the_difference_names_the_nodes() {
        let name = |node: NodeId| format!("n{}", node.get());
        let retired = after(founders(), MemberChange::Retire(node(3)));
        for (case, first, own, want) in [
            ("none", founders(), founders(), None),
            ("joins", joined(founders(), &[4]), founders(), Some("n4 has not asked to join it yet")),
            ("learns", joined(founders(), &[4]), joined(founders(), &[4]), Some("n4 has no vote yet")),
            ("leaves", retired.clone(), founders(), Some("n3 has still to leave it")),
            ("has left", retired, after(founders(), MemberChange::Remove(node(3))), None),
        ] {
            assert_eq!(difference(2, &first, &own, name).as_deref(), want, "case: {case}");
        }
    }
}
