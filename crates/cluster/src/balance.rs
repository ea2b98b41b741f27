//! Which leadership moves next, so that each node leads its share of the stores.
//!
//! In: nodes, stores and leaders as one node sees them, and the time. Out: whether leadership is
//! balanced, and the next move. A node's share follows from its [`Weight`].
//!
//! ```text
//!   settled for 5 s ──▶ a move ──▶ the target leads: the store rests for 10 s
//!                         └──────▶ it does not within 5 s: that pair pauses for 30 s, then longer
//! ```
//! A store may be led by its replicas alone, so a move can need others before it: of the shortest
//! chain from a node with too many to one with too few, the last move is made first. Moves under
//! way are bounded, and a node takes part in one at a time.
//!
//! Never here: how leadership moves, where replicas are, clocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::entry::NodeId;

/// A node gets leaders once it could have had them for this long, and leaders move once the
/// imbalance has lasted as long: a node that comes and goes is left alone, and elections end first.
const SETTLED_MS: u64 = 5_000;
/// A store that has moved stays at least this long where it is.
const REST_MS: u64 = 10_000;
/// A move that has not ended by then has failed. A handover takes 3 s at most.
const MOVE_MS: u64 = 5_000;
/// A target that has not taken over a store is not asked again for this time.
const PAUSE_MS: u64 = 30_000;
/// The same after it has failed several times.
const PAUSE_MS_MAX: u64 = 600_000;
/// Moves under way at a time: each costs some clients a pause.
pub const MOVES_MAX: usize = 4;

/// Number of a store in its cluster. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreNumber(pub u16);

/// The share of the leaders that a node gets, relative to the other nodes. With 0 it leads only
/// while no other node can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u8);

impl Weight {
    /// The largest.
    pub const MAX: Weight = Weight(100);

    /// The weight of this number; `None` above [`Weight::MAX`].
    pub const fn new(number: u8) -> Option<Weight> {
        if Weight::MAX.0 < number { None } else { Some(Weight(number)) }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Weight {
        Weight(1)
    }
}

/// A store as the balancer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreView {
    /// Its number.
    pub store: StoreNumber,
    /// Its leader, if there is one.
    pub leader: Option<NodeId>,
    /// Nodes that could take over now: reached, whole, with a vote and without much lag.
    pub ready: Vec<NodeId>,
}

/// The cluster as the balancer sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeadersView {
    /// All nodes that may lead.
    pub nodes: BTreeMap<NodeId, Weight>,
    /// All stores.
    pub stores: Vec<StoreView>,
}

/// A leadership that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderMove {
    /// The store.
    pub store: StoreNumber,
    /// The node that leads it.
    pub from: NodeId,
    /// The node that is to lead it.
    pub to: NodeId,
}

/// Whether leadership is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// No move brings the nodes nearer to their shares.
    Balanced,
    /// A move is to be made now.
    Move(LeaderMove),
    /// A move would help, and is not made yet.
    Waits {
        /// The move.
        wanted: LeaderMove,
        /// Why it is not made.
        reason: Wait,
    },
}

/// Why a move is not made yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nodes and leaders have changed a moment ago.
    Settles,
    /// It is under way, or as many as may be are.
    UnderWay,
    /// The store has moved a moment ago.
    Rests,
    /// The target has not taken over before.
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    it: LeaderMove,
    begun_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until_ms: u64,
    length_ms: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Balancer {
    /// Since when each node could lead a store.
    ready_since: BTreeMap<NodeId, u64>,
    unbalanced_since: Option<u64>,
    under_way: Vec<UnderWay>,
    rests_until: BTreeMap<StoreNumber, u64>,
    paused: BTreeMap<(StoreNumber, NodeId), Pause>,
}

/// Rules that moves follow at the moment: none of them counts for whether leaders are balanced.
#[derive(Default)]
struct Limits {
    unsettled: BTreeSet<NodeId>,
    busy: BTreeSet<NodeId>,
    resting: BTreeSet<StoreNumber>,
    paused: BTreeSet<(StoreNumber, NodeId)>,
}

impl Limits {
    /// Why a move is not made yet, if one of the rules forbids it.
    fn forbid(&self, it: LeaderMove) -> Option<Wait> {
        let is_busy = self.busy.contains(&it.from) || self.busy.contains(&it.to);
        [
            (self.unsettled.contains(&it.to), Wait::Settles),
            (is_busy, Wait::UnderWay),
            (self.resting.contains(&it.store), Wait::Rests),
            (self.paused.contains(&(it.store, it.to)), Wait::Failed),
        ]
        .into_iter()
        .find_map(|(forbids, reason)| forbids.then_some(reason))
    }
}

impl Balancer {
    /// Looks at the cluster at a time of a clock that never goes back. A move that it returns is
    /// to be begun at once; its end shows in a later view. Another one may be begun beside it, if
    /// a second call returns one.
    pub fn look(&mut self, now_ms: u64, view: &LeadersView) -> Balance {
        self.note_ends(now_ms, view);
        self.note_ready(now_ms, view);
        let Some(wanted) = view.helpful_move(&Limits::default()) else {
            self.unbalanced_since = None;
            return Balance::Balanced;
        };
        let since = *self.unbalanced_since.get_or_insert(now_ms);
        let limits = self.limits(now_ms);
        let waits = |reason| Balance::Waits { wanted, reason };
        if now_ms < since.saturating_add(SETTLED_MS) {
            return waits(Wait::Settles);
        }
        if MOVES_MAX <= self.under_way.len() {
            return waits(Wait::UnderWay);
        }
        match view.helpful_move(&limits) {
            Some(it) => {
                self.under_way.push(UnderWay { it, begun_ms: now_ms });
                Balance::Move(it)
            }
            None => waits(limits.forbid(wanted).unwrap_or(Wait::UnderWay)),
        }
    }

    /// Moves that have ended, in one way or another, are not under way any more.
    fn note_ends(&mut self, now_ms: u64, view: &LeadersView) {
        let leader = |store| view.stores.iter().find(|it| it.store == store).and_then(|it| it.leader);
        for UnderWay { it, begun_ms } in std::mem::take(&mut self.under_way) {
            let (moved, late) = (leader(it.store) == Some(it.to), begun_ms.saturating_add(MOVE_MS) <= now_ms);
            if moved {
                self.rests_until.insert(it.store, now_ms.saturating_add(REST_MS));
                self.paused.remove(&(it.store, it.to));
            } else if late {
                let before = self.paused.get(&(it.store, it.to)).map_or(0, |pause| pause.length_ms);
                let length_ms = before.saturating_mul(2).clamp(PAUSE_MS, PAUSE_MS_MAX);
                let pause = Pause { until_ms: now_ms.saturating_add(length_ms), length_ms };
                self.paused.insert((it.store, it.to), pause);
            } else {
                self.under_way.push(UnderWay { it, begun_ms });
            }
        }
        let is_known = |store: &StoreNumber| view.stores.iter().any(|it| it.store == *store);
        self.rests_until.retain(|store, until| now_ms < *until && is_known(store));
        self.paused.retain(|(store, node), _| is_known(store) && view.nodes.contains_key(node));
    }

    fn note_ready(&mut self, now_ms: u64, view: &LeadersView) {
        let ready: BTreeSet<NodeId> =
            view.stores.iter().flat_map(|store| store.ready.iter().copied().chain(store.leader)).collect();
        self.ready_since.retain(|node, _| ready.contains(node));
        for node in ready {
            self.ready_since.entry(node).or_insert(now_ms);
        }
    }

    fn limits(&self, now_ms: u64) -> Limits {
        let is_settled = |since: u64| since.saturating_add(SETTLED_MS) <= now_ms;
        let unsettled = self.ready_since.iter().filter(|(_, since)| !is_settled(**since));
        let paused = self.paused.iter().filter(|(_, pause)| now_ms < pause.until_ms);
        Limits {
            unsettled: unsettled.map(|(node, _)| *node).collect(),
            busy: self.under_way.iter().flat_map(|UnderWay { it, .. }| [it.from, it.to]).collect(),
            resting: self.rests_until.keys().copied().collect(),
            paused: paused.map(|(pair, _)| *pair).collect(),
        }
    }
}

impl LeadersView {
    /// The stores that each node leads.
    fn counts(&self) -> BTreeMap<NodeId, u64> {
        let mut counts: BTreeMap<NodeId, u64> = self.nodes.keys().map(|node| (*node, 0)).collect();
        for leader in self.stores.iter().filter_map(|store| store.leader) {
            *counts.entry(leader).or_default() += 1;
        }
        counts
    }

    /// The next move of the shortest chain from a node with too many leaders to the node that has
    /// the fewest for its weight.
    fn helpful_move(&self, limits: &Limits) -> Option<LeaderMove> {
        let counts = self.counts();
        let weight = |node: NodeId| u64::from(self.nodes.get(&node).copied().unwrap_or_default().get());
        let count = |node: NodeId| counts.get(&node).copied().unwrap_or(0);
        // The nodes with the most leaders for their weight first; a weight of 0 is the least.
        let mut sources: Vec<NodeId> = counts.keys().copied().filter(|node| 0 < count(*node)).collect();
        sources.sort_by(|one, other| {
            (count(*other) * weight(*one), *one).cmp(&(count(*one) * weight(*other), *other))
        });
        let mut led: BTreeMap<NodeId, Vec<&StoreView>> = BTreeMap::new();
        for store in &self.stores {
            store.leader.into_iter().for_each(|leader| led.entry(leader).or_default().push(store));
        }
        for source in sources {
            let reached = self.reachable(source, &led, limits);
            let has_too_few =
                |node: &NodeId| (count(*node) + 1) * weight(source) < count(source) * weight(*node);
            let targets = reached.iter().filter(|(node, ..)| has_too_few(node));
            let fewest = targets.min_by(|(one, near, _), (other, far, _)| {
                let of_one = (count(*one) + 1) * weight(*other);
                of_one.cmp(&((count(*other) + 1) * weight(*one))).then(near.cmp(far))
            });
            if let Some((_, _, last)) = fewest {
                return Some(*last);
            }
        }
        None
    }

    /// The nodes that a chain of moves leads to, its length, and the last move of the shortest one.
    fn reachable(
        &self,
        source: NodeId,
        led: &BTreeMap<NodeId, Vec<&StoreView>>,
        limits: &Limits,
    ) -> Vec<(NodeId, usize, LeaderMove)> {
        let (mut reached, mut seen) = (Vec::new(), BTreeSet::from([source]));
        let mut queue = VecDeque::from([(source, 0)]);
        while let Some((from, length)) = queue.pop_front() {
            for StoreView { store, ready, .. } in led.get(&from).into_iter().flatten() {
                for to in ready.iter().copied() {
                    let it = LeaderMove { store: *store, from, to };
                    let may_lead = self.nodes.get(&to).is_some_and(|weight| 0 < weight.get());
                    if may_lead && limits.forbid(it).is_none() && seen.insert(to) {
                        reached.push((to, length + 1, it));
                        queue.push_back((to, length + 1));
                    }
                }
            }
        }
        reached
    }
}
