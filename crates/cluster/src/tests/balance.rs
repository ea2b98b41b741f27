//! Leaders on the nodes of a cluster: tables, and 21 nodes over time. Elections, the length of
//! moves and the places of replicas follow from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use super::random::Random;
use super::seeds::asked_for;
use crate::{
    Balance, Balancer, LEADER_MOVES_MAX, LeaderMove, LeadersView, NodeId, StoreNumber, StoreView, Wait,
    Weight,
};

const SECOND: u64 = 1_000;
/// Longer than anything that the balancer remembers for a while.
const LONG: u64 = 700 * SECOND;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Each store has its leader and the nodes that could take over; 0 is no leader.
fn view(weights: &[u8], stores: &[(u64, &[u64])]) -> LeadersView {
    let weight = |weight: &u8| Weight::new(*weight).unwrap();
    let store = |(number, (leader, ready)): (u16, &(u64, &[u64]))| StoreView {
        store: StoreNumber(number),
        leader: NodeId::new(*leader),
        ready: ready.iter().copied().map(node).collect(),
    };
    LeadersView {
        nodes: (1..).map(node).zip(weights.iter().map(weight)).collect(),
        stores: (1..).zip(stores).map(store).collect(),
    }
}

fn moves(store: u16, from: u64, to: u64) -> Balance {
    Balance::Move(LeaderMove { store: StoreNumber(store), from: node(from), to: node(to) })
}

/// The verdict once everything has settled.
fn settled(view: &LeadersView) -> Balance {
    let mut balancer = Balancer::default();
    balancer.look(0, view);
    balancer.look(10 * SECOND, view)
}

#[test]
fn a_move_brings_nodes_nearer_to_their_shares_or_is_not_made() {
    use Balance::Balanced;
    for (case, weights, stores, want) in [
        ("no store", &[1, 1, 1][..], &[][..], Balanced),
        ("one store", &[1, 1, 1], &[(1, &[2, 3][..])], Balanced),
        ("no leader", &[1, 1, 1], &[(0, &[2, 3])], Balanced),
        ("one more", &[1, 1], &[(1, &[2]), (1, &[2]), (2, &[1])], Balanced),
        ("two more", &[1, 1], &[(1, &[2]), (1, &[2])], moves(1, 1, 2)),
        ("the fewest get it", &[1, 1, 1], &[(1, &[2, 3]), (1, &[2]), (1, &[2]), (2, &[1])], moves(1, 1, 3)),
        ("no other replica", &[1, 1], &[(1, &[]), (1, &[])], Balanced),
        ("a chain", &[1, 1, 1], &[(1, &[2]), (1, &[2]), (2, &[3])], moves(3, 2, 3)),
        ("a preferred node", &[1, 3, 1], &[(1, &[2, 3])], moves(1, 1, 2)),
        ("which lags", &[1, 3, 1], &[(1, &[3])], Balanced),
        ("which leads", &[1, 3, 1], &[(2, &[1, 3])], Balanced),
        ("one that should not lead", &[0, 1, 1], &[(1, &[2, 3])], moves(1, 1, 2)),
        ("it alone can", &[0, 1, 1], &[(1, &[])], Balanced),
        ("none should", &[0, 0, 0], &[(1, &[2, 3])], Balanced),
        ("shares of two and one", &[2, 1], &[(1, &[2]), (1, &[2]), (2, &[1])], Balanced),
        ("not by shares", &[2, 1], &[(1, &[2]), (2, &[1]), (2, &[1])], moves(2, 2, 1)),
        ("a node that may not lead", &[1], &[(1, &[2]), (1, &[2])], Balanced),
    ] {
        assert_eq!(settled(&view(weights, stores)), want, "case: {case}");
    }
}

#[test]
fn a_move_waits_until_nodes_have_settled_and_stores_have_rested() {
    let two = |leader| view(&[1, 1], &[(1, &[2]), (leader, &[3 - leader])]);
    let none = LeadersView { stores: vec![two(1).stores[0].clone()], ..two(1) };
    let away = view(&[1, 1], &[(1, &[]), (1, &[])]);
    let waits = |reason| {
        let Balance::Move(wanted) = moves(1, 1, 2) else { unreachable!() };
        Balance::Waits { wanted, reason }
    };
    for (case, steps) in [
        (
            "an imbalance that ends by itself",
            vec![
                (0, two(1), waits(Wait::Settles)),
                (4, two(2), Balance::Balanced),
                (5, two(1), waits(Wait::Settles)),
            ],
        ),
        (
            "a node that comes and goes",
            vec![
                (0, two(1), waits(Wait::Settles)),
                (4, away.clone(), Balance::Balanced),
                (5, two(1), waits(Wait::Settles)),
                (9, two(1), waits(Wait::Settles)),
                (10, two(1), moves(1, 1, 2)),
            ],
        ),
        (
            "a target that does not take over",
            vec![
                (0, none.clone(), Balance::Balanced),
                (10, two(1), waits(Wait::Settles)),
                (15, two(1), moves(1, 1, 2)),
                (19, two(1), waits(Wait::UnderWay)),
                // The other store can move as well.
                (20, two(1), moves(2, 1, 2)),
                (25, two(1), waits(Wait::Failed)),
                (49, two(1), waits(Wait::Failed)),
                (50, two(1), moves(1, 1, 2)),
                (55, two(1), moves(2, 1, 2)),
                (60, two(1), waits(Wait::Failed)),
                (114, two(1), waits(Wait::Failed)),
                (115, two(1), moves(1, 1, 2)),
            ],
        ),
    ] {
        let mut balancer = Balancer::default();
        for (second, view, want) in steps {
            assert_eq!(balancer.look(second * SECOND, &view), want, "case: {case}, second {second}");
        }
    }
}

#[test]
fn a_store_that_has_moved_rests_for_a_while() {
    let mut balancer = Balancer::default();
    let before = view(&[1, 9], &[(1, &[2])]);
    balancer.look(0, &before);
    assert_eq!(balancer.look(5 * SECOND, &before), moves(1, 1, 2));
    // The operator changes the weights.
    let after = view(&[9, 1], &[(2, &[1])]);
    for (second, want) in [(6, Wait::Rests), (15, Wait::Rests)] {
        let Balance::Waits { reason, .. } = balancer.look(second * SECOND, &after) else {
            panic!("{second}")
        };
        assert_eq!(reason, want, "second {second}");
    }
    assert_eq!(balancer.look(16 * SECOND, &after), moves(1, 2, 1));
}

const STORES: u16 = 63;
const NODES: u64 = 21;
const REPLICAS: usize = 3;
/// Leaders are balanced within this time of the last event.
const BALANCED_WITHIN: u64 = 30 * SECOND;

struct Handover {
    it: LeaderMove,
    ends_ms: u64,
}

struct World {
    random: Random,
    now_ms: u64,
    up: BTreeSet<NodeId>,
    replicas: BTreeMap<StoreNumber, Vec<NodeId>>,
    leaders: BTreeMap<StoreNumber, NodeId>,
    /// When stores without a leader elect one.
    elections: BTreeMap<StoreNumber, u64>,
    handovers: Vec<Handover>,
    /// Nodes that take nothing over.
    stubborn: BTreeSet<NodeId>,
    /// Of the node that leads store 1, without what another one remembers.
    balancer: (Option<NodeId>, Balancer),
    moves: Vec<LeaderMove>,
    last: Balance,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let nodes: Vec<NodeId> = (1..=NODES).map(node).collect();
        let replicas =
            (1..=STORES).map(|store| (StoreNumber(store), some(&mut random, &nodes, REPLICAS))).collect();
        let mut world = World {
            random,
            now_ms: 0,
            up: nodes.into_iter().collect(),
            replicas,
            leaders: BTreeMap::new(),
            elections: BTreeMap::new(),
            handovers: Vec::new(),
            stubborn: BTreeSet::new(),
            balancer: Default::default(),
            moves: Vec::new(),
            last: Balance::Balanced,
        };
        world.restart();
        world
    }

    /// All nodes at once.
    fn restart(&mut self) {
        self.leaders.clear();
        self.handovers.clear();
        self.elections = (1..=STORES).map(|store| (StoreNumber(store), self.now_ms)).collect();
        self.balancer = Default::default();
    }

    fn lose(&mut self, lost: NodeId) {
        self.up.remove(&lost);
        for (store, _) in self.leaders.extract_if(.., |_, leader| *leader == lost).collect::<Vec<_>>() {
            self.elections.insert(store, self.now_ms + self.random.between(SECOND, 2 * SECOND));
        }
    }

    fn view(&self) -> LeadersView {
        let store = |(store, replicas): (&StoreNumber, &Vec<NodeId>)| {
            let leader = self.leaders.get(store).copied();
            let is_ready = |node: &&NodeId| self.up.contains(node) && Some(**node) != leader;
            StoreView { store: *store, leader, ready: replicas.iter().filter(is_ready).copied().collect() }
        };
        let nodes = self.replicas.values().flatten().map(|node| (*node, Weight::default())).collect();
        LeadersView { nodes, stores: self.replicas.iter().map(store).collect() }
    }

    fn step(&mut self) {
        self.now_ms += SECOND;
        let due: Vec<StoreNumber> =
            self.elections.extract_if(.., |_, at| *at <= self.now_ms).map(|(store, _)| store).collect();
        for store in due {
            let up: Vec<NodeId> =
                self.replicas[&store].iter().filter(|it| self.up.contains(it)).copied().collect();
            match up.is_empty() {
                true => drop(self.elections.insert(store, self.now_ms + SECOND)),
                false => drop(self.leaders.insert(store, up[self.random.below(up.len() as u64) as usize])),
            }
        }
        for Handover { it, .. } in self.handovers.extract_if(.., |handover| handover.ends_ms <= self.now_ms) {
            let takes_over = self.up.contains(&it.to) && !self.stubborn.contains(&it.to);
            if takes_over && self.leaders.get(&it.store) == Some(&it.from) {
                self.leaders.insert(it.store, it.to);
            }
        }
        self.decide();
    }

    fn decide(&mut self) {
        let first = self.leaders.get(&StoreNumber(1)).copied();
        if self.balancer.0 != first {
            self.balancer = (first, Balancer::default());
        }
        if first.is_none() {
            return;
        }
        let view = self.view();
        loop {
            self.last = self.balancer.1.look(self.now_ms, &view);
            let Balance::Move(it) = self.last else { return };
            self.begin(it);
        }
    }

    fn begin(&mut self, it: LeaderMove) {
        assert_eq!(self.leaders[&it.store], it.from);
        assert!(self.replicas[&it.store].contains(&it.to) && self.up.contains(&it.to));
        let is_busy = |node: &NodeId| [it.from, it.to].contains(node);
        let mut busy = self.handovers.iter().flat_map(|other| [other.it.from, other.it.to]);
        assert!(!busy.any(|node| is_busy(&node)), "a node takes part in two moves");
        let ends_ms = self.now_ms + self.random.below(3 * SECOND);
        self.handovers.push(Handover { it, ends_ms });
        assert!(self.handovers.len() <= LEADER_MOVES_MAX);
        self.moves.push(it);
    }

    fn run(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.step();
        }
    }

    /// The leaders of the node with the most.
    fn most(&self) -> usize {
        let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        self.leaders.values().for_each(|leader| *counts.entry(*leader).or_default() += 1);
        counts.values().copied().max().unwrap_or(0)
    }

    /// The least that any assignment of leaders gives to the node with the most.
    fn least_most(&self) -> usize {
        (1..).find(|capacity| self.fits(*capacity)).unwrap()
    }

    /// Whether each store can have a leader, with this number at most on a node: by augmenting
    /// paths from store to store.
    fn fits(&self, capacity: usize) -> bool {
        let mut led: BTreeMap<NodeId, Vec<StoreNumber>> = BTreeMap::new();
        self.replicas.keys().all(|store| self.place(*store, capacity, &mut led, &mut BTreeSet::new()))
    }

    fn place(
        &self,
        store: StoreNumber,
        capacity: usize,
        led: &mut BTreeMap<NodeId, Vec<StoreNumber>>,
        seen: &mut BTreeSet<NodeId>,
    ) -> bool {
        for node in self.replicas[&store].iter().filter(|node| self.up.contains(node)) {
            if !seen.insert(*node) {
                continue;
            }
            let here = led.entry(*node).or_default().clone();
            if here.len() < capacity {
                led.entry(*node).or_default().push(store);
                return true;
            }
            for other in here {
                if self.place(other, capacity, led, seen) {
                    let stores = led.entry(*node).or_default();
                    stores.retain(|it| *it != other);
                    stores.push(store);
                    return true;
                }
            }
        }
        false
    }

    /// After an event: balanced in time, by few moves, and at rest from then on.
    fn assert_balances(&mut self, event: &str, moves: RangeInclusive<usize>) {
        self.moves.clear();
        self.run(BALANCED_WITHIN);
        assert_eq!(self.last, Balance::Balanced, "{event}");
        assert_eq!(self.most(), self.least_most(), "{event}");
        let made = self.moves.len();
        assert!(moves.contains(&made), "{event}: {made} moves");
        self.run(2 * BALANCED_WITHIN);
        assert_eq!(self.moves.len(), made, "{event}: leaders move although they are balanced");
    }
}

/// Each takes a second or so on a slow machine.
const SEEDS: Range<u64> = 0..5;
const SEEDS_MAX: usize = 1_000;

fn seeds() -> impl Iterator<Item = u64> {
    asked_for().unwrap_or(SEEDS).take(SEEDS_MAX)
}

/// Some of these, in random order.
fn some(random: &mut Random, of: &[NodeId], count: usize) -> Vec<NodeId> {
    let mut of = of.to_vec();
    (0..count).map(|_| of.swap_remove(random.below(of.len() as u64) as usize)).collect()
}

#[test]
fn leaders_of_21_nodes_are_balanced_within_30_seconds_of_a_restart_a_lost_and_a_new_node() {
    for seed in seeds() {
        let mut world = World::new(seed);
        world.assert_balances(&format!("seed {seed}: all nodes start"), 5..=31);
        let lost = node(world.random.between(1, NODES));
        world.lose(lost);
        world.assert_balances(&format!("seed {seed}: node {} is lost", lost.get()), 0..=6);
        world.up.insert(lost);
        world.assert_balances(&format!("seed {seed}: it is back"), 2..=9);
        let new = node(NODES + 1);
        let stores: Vec<StoreNumber> = world.replicas.keys().copied().filter(|it| it.0 % 7 == 0).collect();
        for store in stores {
            let leader = world.leaders[&store];
            let replicas = world.replicas.get_mut(&store).unwrap();
            let place = replicas.iter().position(|replica| *replica != leader).unwrap();
            replicas[place] = new;
        }
        world.up.insert(new);
        world.assert_balances(&format!("seed {seed}: a new node has replicas"), 2..=9);
    }
}

#[test]
fn a_node_that_comes_and_goes_or_takes_nothing_over_costs_few_moves() {
    for seed in seeds() {
        let mut world = World::new(seed);
        let (flaps, stubborn) = (node(1 + seed % NODES), node(1 + (seed + 7) % NODES));
        world.run(2 * BALANCED_WITHIN);
        world.lose(flaps);
        world.run(BALANCED_WITHIN);
        world.moves.clear();
        for _ in 0..20 {
            world.up.insert(flaps);
            world.run(4 * SECOND);
            world.lose(flaps);
            world.run(SECOND);
        }
        assert!(world.moves.iter().all(|it| it.to != flaps), "seed {seed}: {:?}", world.moves);
        world.stubborn.insert(stubborn);
        world.lose(stubborn);
        world.run(BALANCED_WITHIN);
        world.up.extend([flaps, stubborn]);
        world.moves.clear();
        world.run(LONG);
        let tries = world.moves.iter().filter(|it| it.to == stubborn).count();
        let replicas = world.replicas.values().filter(|replicas| replicas.contains(&stubborn)).count();
        assert!(tries <= 6 * replicas, "seed {seed}: {tries} tries for {replicas} stores");
        world.stubborn.clear();
        world.run(LONG);
        assert_eq!((&world.last, world.most()), (&Balance::Balanced, world.least_most()), "seed {seed}");
    }
}
