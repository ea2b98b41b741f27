//! Whether this node votes. A store that was wiped must not: what it had confirmed may be gone.
//!
//! ```text
//!  new, empty store ──── all other nodes accept it: the cluster is formed ────▶ joined
//!        ├── a node knows another store of this one: it was replaced ──▶ filled by a copy ──▶ joined
//!        └── the members were told to add it with this store ──────────▶ filled by a copy ──▶ joined
//! ```
//! A node that is not joined neither votes nor confirms entries. The copy must be of a leader in
//! the latest term that any other node had seen after the disk was replaced: then it has all that
//! the former store confirmed, and in later terms that store did not vote. A node that was added
//! with this very store has promised nothing yet, and may be filled by any leader. A store that was
//! found damaged (`damage`) and kept its vote confirmed entries in its own term or before, and is
//! filled by a leader of that term or a later one.
//!
//! Never here: sockets, and how copies come.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use postroad_cluster::{Body, Hello, Members, Message, NodeId, Term, Verdict};

use crate::runtime::cluster::identity::{Damage, Identities, PeerStore};

/// See the head of this file.
pub struct Membership {
    identities: Identities,
    /// All other nodes.
    others: Mutex<Vec<NodeId>>,
    /// This store is the first of its node, which was added to a group.
    is_newcomer: bool,
    joined: AtomicBool,
    removed: AtomicBool,
    /// The least term of a copy in place of this store, as it is damaged and has kept its vote.
    damaged_in: Option<Term>,
    /// Damage that was found since the start.
    found: Mutex<Option<String>>,
    term: AtomicU64,
    /// The last verdict of each other node about this one.
    verdicts: Mutex<BTreeMap<NodeId, Verdict>>,
}

impl Membership {
    /// Of a node that has seen this term.
    pub fn new(identities: Identities, own: NodeId, members: &Members, term: Term) -> Membership {
        let identity = members.record(own).map_or("", |record| &record.identity);
        let is_newcomer = identity == identities.own();
        let (joined, term) = (AtomicBool::new(identities.joined()), AtomicU64::new(term.0));
        let (others, removed, verdicts) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        let damage = identities.open_damage().filter(|damage| !damage.lost_vote);
        let damaged_in = damage.map(|_| Term(term.load(Ordering::Acquire)));
        let found = Mutex::default();
        let membership = Membership {
            identities,
            others,
            is_newcomer,
            joined,
            removed,
            damaged_in,
            found,
            term,
            verdicts,
        };
        membership.follow(own, members);
        membership
    }

    /// These are the members from now on.
    pub fn follow(&self, own: NodeId, members: &Members) {
        if members.is_former(own) && !self.removed.swap(true, Ordering::AcqRel) {
            tracing::error!("this node was removed from the cluster, and takes no part any more");
        }
        if let Ok(mut others) = self.others.lock() {
            *others = members.all();
            others.retain(|node| *node != own);
        }
        if let Err(error) = self.identities.forget(|node| members.is_former(node)) {
            tracing::warn!(error = format!("{error:#}"), "nodes that were removed are not forgotten");
        }
    }

    /// Whether this node votes and confirms entries.
    pub fn joined(&self) -> bool {
        self.joined.load(Ordering::Acquire) && !self.removed()
    }

    /// Whether this node was removed from the cluster.
    pub fn removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// The identity of this node's store.
    pub fn identity(&self) -> String {
        self.identities.own()
    }

    /// The name of another node, if it has ever come to this one.
    pub fn name(&self, node: NodeId) -> Option<String> {
        self.identities.name(node)
    }

    /// This node is in this term.
    pub fn saw(&self, term: Term) {
        self.term.fetch_max(term.0, Ordering::AcqRel);
    }

    /// This message leaves. A candidate is known to be one before it can get a vote.
    pub fn sends(&self, message: &Message) {
        // A pre-vote asks for a term that no node is in.
        if !matches!(message.body, Body::VoteRequest { pre: true, .. } | Body::VoteReply { pre: true, .. }) {
            self.saw(message.term);
        }
    }

    /// The verdict about the store of a peer, which is remembered.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn judge(&self, peer: &Hello) -> anyhow::Result<Verdict> {
        let met = self.identities.meet(peer.node, &peer.identity, peer.joined)?;
        self.identities.names(peer.node, &peer.name)?;
        let term = Term(self.term.load(Ordering::Acquire));
        Ok(Verdict { replaced: met == PeerStore::Replaced, term })
    }

    /// Takes the verdict of a peer about this node's store.
    ///
    /// # Errors
    /// It cannot be written down that this node has joined.
    pub fn judged(&self, by: NodeId, verdict: Verdict) -> anyhow::Result<()> {
        let Ok(mut verdicts) = self.verdicts.lock() else { return Ok(()) };
        verdicts.insert(by, verdict);
        let others = self.others();
        let all = others.iter().all(|node| verdicts.get(node).is_some_and(|verdict| !verdict.replaced));
        let may_join = !self.is_newcomer && !self.is_damaged() && !self.removed();
        if all && may_join && !self.joined() {
            self.identities.join()?;
            self.joined.store(true, Ordering::Release);
            tracing::info!("all nodes have met: this one takes part from now on");
        }
        Ok(())
    }

    /// The least term of a copy that may fill this store, once that is known; `None` if it needs
    /// none, or not all nodes were asked.
    pub fn fills_from(&self) -> Option<Term> {
        let verdicts = self.verdicts.lock().ok().filter(|_| !self.joined() && !self.removed())?;
        if self.damaged_in.is_some() {
            return self.damaged_in;
        }
        if self.is_newcomer {
            return Some(Term(0));
        }
        let is_replaced = verdicts.values().any(|verdict| verdict.replaced);
        let asked_all = self.others().iter().all(|node| verdicts.contains_key(node));
        verdicts.values().map(|verdict| verdict.term).max().filter(|_| is_replaced && asked_all)
    }

    /// Nodes that have not answered this one since it was started.
    pub fn missing(&self) -> Vec<NodeId> {
        let Ok(verdicts) = self.verdicts.lock() else { return Vec::new() };
        self.others().into_iter().filter(|node| !verdicts.contains_key(node)).collect()
    }

    /// Damage was found in the store that runs. Returns whether it is the first.
    pub fn found_damage(&self, place: &str) -> bool {
        self.found.lock().is_ok_and(|mut found| found.replace(place.to_owned()).is_none())
    }

    /// Writes down that this store is damaged: the next start sets it aside.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn note_damage(&self, place: &str) -> anyhow::Result<()> {
        self.identities.note_damage(Damage { place: place.to_owned(), ..Damage::default() })
    }

    /// Whether this store is damaged, and not filled since.
    pub fn is_damaged(&self) -> bool {
        self.found.lock().is_ok_and(|found| found.is_some()) || self.identities.open_damage().is_some()
    }

    /// The last damage of this store, and its outcome; empty if there was none.
    pub fn damage(&self) -> String {
        if let Some(place) = self.found.lock().ok().and_then(|found| found.clone()) {
            return format!("damaged: {place}");
        }
        match self.identities.damage() {
            None => String::new(),
            Some(Damage { place, refilled_from: Some(from), .. }) => {
                format!("was damaged: {place}; refilled from {from}")
            }
            Some(Damage { place, .. }) => format!("damaged: {place}; to be refilled"),
        }
    }

    /// Whether this store is that of a node that was added, and not filled yet.
    pub fn awaits_first_copy(&self) -> bool {
        self.is_newcomer && !self.joined()
    }

    fn others(&self) -> Vec<NodeId> {
        self.others.lock().map_or_else(|_| Vec::new(), |others| others.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_cluster::{Levels, MemberChange, NONCE_BYTES, NodeRecord, Purpose};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn founders() -> Members {
        Members::founders(["a:1", "b:1", "c:1"])
    }

    fn member(home: &tempfile::TempDir) -> Membership {
        let identities = Identities::open(home.path(), "c", node(1)).unwrap();
        Membership::new(identities, node(1), &founders(), Term(0))
    }

    fn verdict(replaced: bool, term: u64) -> Verdict {
        Verdict { replaced, term: Term(term) }
    }

    fn hello(identity: &str, joined: bool) -> Hello {
        let text = String::new;
        let (nonce, purpose, damage) = ([0; NONCE_BYTES], Purpose::Messages, text());
        let (cluster, members, name, endpoints) = (text(), founders(), text(), text());
        let identity = identity.to_owned();
        Hello {
            cluster,
            members,
            node: node(2),
            name,
            identity,
            endpoints,
            zone: String::new(),
            levels: Levels::default(),
            nonce,
            purpose,
            joined,
            damage,
            space: None,
            weight: Default::default(),
            asks_to_leave: true,
            takes_clients: true,
        }
    }

    #[test]
    fn an_empty_store_joins_once_all_others_accept_it() {
        let home = tempfile::tempdir().unwrap();
        let new = member(&home);
        new.judged(node(2), verdict(false, 0)).unwrap();
        assert!(!new.joined(), "one has not been asked");
        assert_eq!(new.missing(), [node(3)]);
        new.judged(node(3), verdict(false, 0)).unwrap();
        assert!(new.joined() && member(&home).joined(), "also after a restart");
        assert_eq!(new.fills_from(), None);
    }

    #[test]
    fn a_replaced_store_joins_by_a_copy_of_the_latest_term_alone() {
        let home = tempfile::tempdir().unwrap();
        let wiped = member(&home);
        wiped.judged(node(2), verdict(true, 7)).unwrap();
        assert_eq!(wiped.fills_from(), None, "the other may have seen a later term");
        // It never met the former store.
        wiped.judged(node(3), verdict(false, 9)).unwrap();
        assert_eq!((wiped.fills_from(), wiped.joined()), (Some(Term(9)), false));
        wiped.identities.join().unwrap();
        assert!(member(&home).joined());
    }

    #[test]
    fn a_store_with_which_a_node_was_added_is_filled_by_any_leader_and_another_as_a_replaced_one() {
        for (case, is_same, want) in [("the same", true, Some(Term(0))), ("wiped since", false, None)] {
            let home = tempfile::tempdir().unwrap();
            let identities = Identities::of_newcomer(home.path(), "c").unwrap();
            identities.admit(node(4)).unwrap();
            let identity = if is_same { identities.own() } else { "former".to_owned() };
            let record = NodeRecord { identity, ..NodeRecord::default() };
            let mut members = founders().after(MemberChange::Add(node(4))).unwrap();
            members.describe(&[(node(4), record)].into());
            let new = Membership::new(identities, node(4), &members, Term(0));
            assert_eq!(new.fills_from(), want, "case: {case}");
            for other in 1..=3 {
                new.judged(node(other), verdict(false, 5)).unwrap();
            }
            assert_eq!(new.joined(), !is_same, "case: {case}: it has a copy first");
        }
    }

    #[test]
    fn a_node_that_was_removed_takes_no_part_and_asks_for_nothing() {
        let home = tempfile::tempdir().unwrap();
        let removed = member(&home);
        removed.identities.join().unwrap();
        let again = member(&home);
        assert!(again.joined());
        again.follow(node(1), &founders().after(MemberChange::Remove(node(1))).unwrap());
        assert!(again.removed() && !again.joined());
        again.judged(node(2), verdict(true, 7)).unwrap();
        again.judged(node(3), verdict(true, 7)).unwrap();
        assert_eq!(again.fills_from(), None);
    }

    #[test]
    fn a_peer_with_another_store_is_replaced_until_it_was_filled() {
        let home = tempfile::tempdir().unwrap();
        let member = member(&home);
        member.saw(Term(5));
        for (case, identity, joined, replaced) in [
            ("first met", "a", true, false),
            ("again", "a", true, false),
            ("another, empty", "b", false, true),
            ("another, filled", "b", true, false),
            ("the first one is back", "a", true, true),
        ] {
            let want = verdict(replaced, 5);
            assert_eq!(member.judge(&hello(identity, joined)).unwrap(), want, "case: {case}");
        }
    }

    #[test]
    fn a_term_is_seen_when_a_candidate_asks_and_not_when_it_sounds_out() {
        let home = tempfile::tempdir().unwrap();
        let member = member(&home);
        let nothing = Default::default();
        for (pre, seen) in [(true, 0), (false, 4)] {
            let body = Body::VoteRequest { pre, transfer: false, last: nothing, commit: nothing };
            member.sends(&Message { from: node(1), to: node(2), term: Term(4), body });
            assert_eq!(member.judge(&hello("a", true)).unwrap().term, Term(seen));
        }
    }
}
