//! Whether this node votes. A store that was wiped must not: what it had confirmed may be gone.
//!
//! ```text
//!  new, empty store ──── all other nodes accept it: the cluster is formed ────▶ joined
//!        └── a node knows another store of this one: it was replaced ──▶ filled by a copy ──▶ joined
//! ```
//! A node that is not joined neither votes nor confirms entries. The copy must be of a leader in
//! the latest term that any other node had seen after the disk was replaced: then it has all that
//! the former store confirmed, and in later terms that store did not vote.
//!
//! Never here: sockets, and how copies come.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use postroad_cluster::{Body, Hello, Message, NodeId, Term, Verdict};

use crate::runtime::cluster::identity::{Identities, PeerStore};

/// See the head of this file.
pub struct Membership {
    identities: Identities,
    /// All other nodes.
    others: Vec<NodeId>,
    joined: AtomicBool,
    term: AtomicU64,
    /// The last verdict of each other node about this one.
    verdicts: Mutex<BTreeMap<NodeId, Verdict>>,
}

impl Membership {
    /// Of a node that has seen this term.
    pub fn new(identities: Identities, others: Vec<NodeId>, term: Term) -> Membership {
        let (joined, term) = (AtomicBool::new(identities.joined()), AtomicU64::new(term.0));
        Membership { identities, others, joined, term, verdicts: Mutex::default() }
    }

    /// Whether this node votes and confirms entries.
    pub fn joined(&self) -> bool {
        self.joined.load(Ordering::Acquire)
    }

    /// The identity of this node's store.
    pub fn identity(&self) -> String {
        self.identities.own()
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
        let all = self.others.iter().all(|node| verdicts.get(node).is_some_and(|verdict| !verdict.replaced));
        if all && !self.joined() {
            self.identities.join()?;
            self.joined.store(true, Ordering::Release);
            tracing::info!("all nodes have met: this one takes part from now on");
        }
        Ok(())
    }

    /// The least term of a copy that may fill this store, once that is known; `None` if it needs
    /// none, or not all nodes were asked.
    pub fn fills_from(&self) -> Option<Term> {
        let verdicts = self.verdicts.lock().ok().filter(|_| !self.joined())?;
        let is_replaced = verdicts.values().any(|verdict| verdict.replaced);
        let asked_all = self.others.iter().all(|node| verdicts.contains_key(node));
        verdicts.values().map(|verdict| verdict.term).max().filter(|_| is_replaced && asked_all)
    }

    /// Nodes that have not answered this one since it was started.
    pub fn missing(&self) -> Vec<NodeId> {
        let Ok(verdicts) = self.verdicts.lock() else { return Vec::new() };
        self.others.iter().filter(|node| !verdicts.contains_key(node)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_cluster::{NONCE_BYTES, Purpose};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn member(home: &tempfile::TempDir) -> Membership {
        let identities = Identities::open(home.path(), "c", node(1)).unwrap();
        Membership::new(identities, vec![node(2), node(3)], Term(0))
    }

    fn verdict(replaced: bool, term: u64) -> Verdict {
        Verdict { replaced, term: Term(term) }
    }

    fn hello(identity: &str, joined: bool) -> Hello {
        let text = String::new;
        let (nonce, purpose) = ([0; NONCE_BYTES], Purpose::Messages);
        let (cluster, members, name, endpoints) = (text(), text(), text(), text());
        let identity = identity.to_owned();
        Hello { cluster, members, node: node(2), name, identity, endpoints, nonce, purpose, joined }
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
