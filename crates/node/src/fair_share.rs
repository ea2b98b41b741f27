//! Fair shares: divides the work that a core takes in one turn among tenants.
//!
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995). Each tenant with connections on the
//! core has a class with a budget. A read or a delivery takes its cost from the budget, which may
//! become negative; each turn adds the class's part of a round. Connections of a class without
//! budget wait in order, and classes take turns. A class with more than its part of a round on the
//! way to the journal waits too, so a group of the journal has no more of a tenant than that.
//!
//! With one class nothing waits. If only one class was active of late, its part is larger: its
//! groups stay large, and a tenant that comes back waits for one of these at most.
//!
//! A class is light while it uses less than half of its part and none of its connections waits.
//! The others share what it leaves, so a round stays as large as while all want more. A light class
//! keeps its part: a burst within it does not wait.
//!
//! Never here: clocks (times come in as numbers), sockets, wakers, events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cost of a round, all classes together, while several are active: about as long as a sync of a
/// fast disk takes. A light tenant waits for no more of others.
pub const ROUND_COST: u64 = 128 << 10;

/// A round has this number of times the cost while only one class is active.
const CALM_FACTOR: u64 = 8;

/// A connection that waited may cost this much before it waits again: as much as a read.
pub const STEP_COST: u64 = 16 << 10;

/// Cost of a message beside its bytes.
pub const MESSAGE_COST: u64 = 512;

/// A class counts as active for this time after its last cost.
const ACTIVE_MS: u64 = 1000;

/// How often inactive classes are looked for.
const LOOK_MS: u64 = 100;

/// The class of a tenant. The same name has the same class, as long as a connection is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId(usize);

/// See the head of this file. `W` is a connection that waits.
#[derive(Debug)]
pub struct FairShares<W> {
    /// By [`ClassId`]; the places of classes that ended are used again.
    classes: Vec<Option<Class<W>>>,
    by_name: BTreeMap<Arc<str>, ClassId>,
    /// Classes in which connections wait, in the order of their turns.
    rotation: VecDeque<ClassId>,
    /// Turns so far.
    round: u64,
    /// Active classes, and the sum of their shares.
    active: u64,
    active_share: u64,
    /// What light classes leave of a round; nothing after a change, until the next look.
    spare: u64,
    /// The sum of the shares of active classes that are not light, at the last look.
    heavy_share: u64,
    looked_ms: u64,
    /// The round of the last look.
    looked_round: u64,
}

#[derive(Debug)]
struct Class<W> {
    name: Arc<str>,
    share: u64,
    connections: u64,
    /// Cost that it may still cause in this round; negative if it went beyond.
    budget: i64,
    /// The round for which the budget is.
    round: u64,
    /// Cost on its way to the journal, on all cores.
    in_flight: Arc<AtomicU64>,
    /// Each with the time since which it waits, in microseconds.
    waiting: VecDeque<(W, u64)>,
    active_ms: Option<u64>,
    /// Cost since the last look.
    used: u64,
    is_light: bool,
}

impl<W> Default for FairShares<W> {
    fn default() -> FairShares<W> {
        FairShares {
            classes: Vec::new(),
            by_name: BTreeMap::new(),
            rotation: VecDeque::new(),
            round: 0,
            active: 0,
            active_share: 0,
            spare: 0,
            heavy_share: 0,
            looked_ms: 0,
            looked_round: 0,
        }
    }
}

impl<W> FairShares<W> {
    /// A connection of this tenant comes. The share of a class that exists is replaced.
    pub fn join(&mut self, tenant: &Arc<str>, share: u64, in_flight: &Arc<AtomicU64>) -> ClassId {
        let id = match self.by_name.get(tenant) {
            Some(id) => *id,
            None => self.open(tenant, in_flight.clone()),
        };
        self.set_share(id, share);
        if let Some(class) = self.class_mut(id) {
            class.connections += 1;
        }
        id
    }

    fn open(&mut self, tenant: &Arc<str>, in_flight: Arc<AtomicU64>) -> ClassId {
        let class = Class {
            name: tenant.clone(),
            share: 0,
            connections: 0,
            // A whole part, however much that is.
            budget: i64::MAX,
            round: 0,
            in_flight,
            waiting: VecDeque::new(),
            active_ms: None,
            used: 0,
            is_light: false,
        };
        let free = self.classes.iter().position(Option::is_none);
        let id = ClassId(free.unwrap_or(self.classes.len()));
        match free {
            Some(place) => self.classes[place] = Some(class),
            None => self.classes.push(Some(class)),
        }
        self.by_name.insert(tenant.clone(), id);
        id
    }

    /// A connection has left the class, which ends with its last one.
    pub fn leave(&mut self, id: ClassId) {
        let Some(class) = self.class_mut(id) else { return };
        class.connections = class.connections.saturating_sub(1);
        if 0 < class.connections {
            return;
        }
        let is_active = class.active_ms.is_some();
        let (name, share) = (class.name.clone(), class.share);
        self.by_name.remove(&name);
        self.classes[id.0] = None;
        self.rotation.retain(|waiting| *waiting != id);
        if is_active {
            self.active -= 1;
            self.active_share -= share;
            self.spare = 0;
        }
    }

    /// The shares of tenants have changed.
    pub fn set_shares(&mut self, share_of: impl Fn(&str) -> u64) {
        for (name, id) in self.by_name.clone() {
            self.set_share(id, share_of(&name));
        }
    }

    fn set_share(&mut self, id: ClassId, share: u64) {
        let Some(class) = self.class_mut(id) else { return };
        let before = std::mem::replace(&mut class.share, share.max(1));
        let (is_active, now) = (class.active_ms.is_some(), class.share);
        if is_active {
            self.active_share = self.active_share - before + now;
            self.spare = 0;
        }
    }

    fn class_mut(&mut self, id: ClassId) -> Option<&mut Class<W>> {
        self.classes.get_mut(id.0)?.as_mut()
    }

    /// Whether nothing is divided, as there is one class.
    fn is_alone(&self) -> bool {
        self.by_name.len() < 2
    }

    /// The cost of a round.
    fn round_cost(&self) -> u64 {
        if self.active < 2 { ROUND_COST * CALM_FACTOR } else { ROUND_COST }
    }

    /// The part of a class in a round, by its share alone.
    fn own_part(&self, share: u64, is_active: bool) -> u64 {
        let all = if is_active { self.active_share } else { self.active_share + share };
        (self.round_cost().saturating_mul(share) / all.max(1)).max(1)
    }

    /// The part of a class in a round, with that of what light ones leave.
    fn part(&self, class: &Class<W>) -> i64 {
        let is_active = class.active_ms.is_some();
        let more = match is_active && !class.is_light {
            true => self.spare.saturating_mul(class.share) / self.heavy_share.max(1),
            false => 0,
        };
        i64::try_from(self.own_part(class.share, is_active).saturating_add(more)).unwrap_or(i64::MAX)
    }

    /// Adds the parts of the rounds since the budget was last set.
    fn refill(&mut self, id: ClassId) -> Option<(i64, &mut Class<W>)> {
        let round = self.round;
        let class = self.classes.get(id.0)?.as_ref()?;
        let part = self.part(class);
        let class = self.class_mut(id)?;
        let rounds = i64::try_from(round - class.round).unwrap_or(i64::MAX);
        class.round = round;
        class.budget = class.budget.saturating_add(part.saturating_mul(rounds)).min(part);
        Some((part, class))
    }

    /// Whether a connection of the class may go on now, without waiting. Those that wait go first.
    pub fn admits(&mut self, id: ClassId) -> bool {
        self.is_alone()
            || self.refill(id).is_none_or(|(part, class)| {
                class.waiting.is_empty() && 0 < class.budget && class.in_flight_cost() < part
            })
    }

    /// Work of the class has this cost.
    pub fn charge(&mut self, id: ClassId, cost: u64, now_ms: u64) {
        let Some((_, class)) = self.refill(id) else { return };
        class.budget = class.budget.saturating_sub_unsigned(cost);
        class.used = class.used.saturating_add(cost);
        let (was_active, share) = (class.active_ms.replace(now_ms).is_some(), class.share);
        if !was_active {
            self.active += 1;
            self.active_share += share;
            self.spare = 0;
        }
    }

    /// A connection of the class waits from now on.
    pub fn wait(&mut self, id: ClassId, connection: W, now_us: u64) {
        let Some(class) = self.class_mut(id) else { return };
        let is_first = class.waiting.is_empty();
        class.waiting.push_back((connection, now_us));
        if std::mem::take(&mut class.is_light) {
            // It wants more than it left to the others.
            self.spare = 0;
        }
        if is_first {
            self.rotation.push_back(id);
        }
    }

    /// Whether a turn would let a connection go on.
    pub fn wants_turn(&self) -> bool {
        self.rotation.iter().any(|id| {
            let class = self.classes.get(id.0).and_then(Option::as_ref);
            class.is_some_and(|class| self.is_alone() || class.in_flight_cost() < self.part(class))
        })
    }

    /// Whether a connection waits.
    pub fn has_waiting(&self) -> bool {
        !self.rotation.is_empty()
    }

    /// A turn of the core: lets connections go on, each for [`STEP_COST`]. `grant` gets the
    /// connection and how long it waited, in microseconds; `false` if the connection has ended.
    pub fn turn(&mut self, (now_ms, now_us): (u64, u64), mut grant: impl FnMut(W, u64) -> bool) {
        self.round += 1;
        self.look_at_activity(now_ms);
        let mut steps = self.round_cost() / STEP_COST;
        for _ in 0..self.rotation.len() {
            if steps == 0 {
                break;
            }
            let Some(id) = self.rotation.pop_front() else { break };
            let is_alone = self.is_alone();
            let Some((part, class)) = self.refill(id) else { continue };
            let may_go = is_alone || class.in_flight_cost() < part;
            let mut room = if is_alone { i64::MAX } else { class.budget };
            while may_go && 0 < room && 0 < steps {
                let Some((connection, since_us)) = class.waiting.pop_front() else { break };
                if grant(connection, now_us.saturating_sub(since_us)) {
                    room = room.saturating_sub_unsigned(STEP_COST);
                    steps -= u64::from(!is_alone);
                }
            }
            if !class.waiting.is_empty() {
                self.rotation.push_back(id);
            }
        }
    }

    /// Lets all go on, as nothing is divided any more.
    pub fn release(&mut self, mut grant: impl FnMut(W, u64) -> bool) {
        self.rotation.clear();
        for class in self.classes.iter_mut().flatten() {
            for (connection, _) in class.waiting.drain(..) {
                grant(connection, 0);
            }
        }
    }

    fn look_at_activity(&mut self, now_ms: u64) {
        if now_ms < self.looked_ms.saturating_add(LOOK_MS) {
            return;
        }
        self.looked_ms = now_ms;
        (self.active, self.active_share) = (0, 0);
        for class in self.classes.iter_mut().flatten() {
            let until = |since: u64| since.saturating_add(ACTIVE_MS);
            // One that waits wants more.
            class.active_ms =
                class.active_ms.filter(|since| !class.waiting.is_empty() || now_ms < until(*since));
            if class.active_ms.is_some() {
                self.active += 1;
                self.active_share += class.share;
            }
        }
        self.look_for_spare();
    }

    /// Which classes are light, and what they leave. A class may double its use before it waits.
    fn look_for_spare(&mut self) {
        let rounds = (self.round - self.looked_round).max(1);
        self.looked_round = self.round;
        let (round_cost, all) = (self.round_cost(), self.active_share.max(1));
        (self.spare, self.heavy_share) = (0, 0);
        for class in self.classes.iter_mut().flatten() {
            let part = (round_cost.saturating_mul(class.share) / all).max(1);
            let demand = std::mem::take(&mut class.used).saturating_mul(2) / rounds;
            class.is_light = class.active_ms.is_some() && class.waiting.is_empty() && demand < part;
            match class.active_ms {
                Some(_) if class.is_light => self.spare += part - demand,
                Some(_) => self.heavy_share += class.share,
                None => {}
            }
        }
    }
}

impl<W> Class<W> {
    fn in_flight_cost(&self) -> i64 {
        i64::try_from(self.in_flight.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a message, and messages that one read brings.
    const MESSAGE: u64 = 1024;
    const READ: u64 = 14;

    /// A core with connections: each has a number of messages in its socket, which one that floods
    /// fills at once.
    struct Model {
        shares: FairShares<usize>,
        connections: Vec<Connection>,
        in_flight: BTreeMap<Arc<str>, Arc<AtomicU64>>,
        now_ms: u64,
    }

    struct Connection {
        class: ClassId,
        tenant: Arc<str>,
        floods: bool,
        ready: u64,
        allowance: u64,
        is_queued: bool,
        /// Messages that were taken.
        taken: u64,
    }

    impl Model {
        /// Tenants with their shares, and whether each of their connections floods.
        fn new(tenants: &[(&str, u64, usize, bool)]) -> Model {
            let (shares, in_flight) = (FairShares::default(), BTreeMap::new());
            let mut model = Model { shares, connections: Vec::new(), in_flight, now_ms: 1 };
            for (name, share, connections, floods) in tenants {
                let tenant: Arc<str> = Arc::from(*name);
                let meter = model.in_flight.entry(tenant.clone()).or_default().clone();
                for _ in 0..*connections {
                    let class = model.shares.join(&tenant, *share, &meter);
                    let (tenant, floods) = (tenant.clone(), *floods);
                    let connection = Connection {
                        class,
                        tenant,
                        floods,
                        ready: 0,
                        allowance: 0,
                        is_queued: false,
                        taken: 0,
                    };
                    model.connections.push(connection);
                }
            }
            model
        }

        /// Each connection with input reads once, if it may, and then the core has its turn, which
        /// makes all records durable. Returns the cost of the reads.
        fn turn(&mut self) -> u64 {
            let mut round = 0;
            for (number, connection) in self.connections.iter_mut().enumerate() {
                connection.ready = if connection.floods { READ } else { connection.ready };
                if connection.ready == 0 || connection.is_queued {
                    continue;
                }
                if connection.allowance == 0 && !self.shares.admits(connection.class) {
                    connection.is_queued = true;
                    self.shares.wait(connection.class, number, self.now_ms * 1000);
                    continue;
                }
                let messages = std::mem::take(&mut connection.ready);
                let cost = messages * (MESSAGE + MESSAGE_COST);
                connection.taken += messages;
                connection.allowance = connection.allowance.saturating_sub(cost);
                self.shares.charge(connection.class, cost, self.now_ms);
                round += cost;
            }
            let connections = &mut self.connections;
            self.shares.turn((self.now_ms, self.now_ms * 1000), |number, _| {
                (connections[number].is_queued, connections[number].allowance) = (false, STEP_COST);
                true
            });
            self.now_ms += 1;
            round
        }

        /// A number of turns.
        fn turns(&mut self, count: usize) {
            for _ in 0..count {
                self.turn();
            }
        }

        fn taken(&self, tenant: &str) -> u64 {
            self.connections.iter().filter(|one| &*one.tenant == tenant).map(|one| one.taken).sum()
        }
    }

    #[test]
    fn tenants_that_want_more_get_their_shares() {
        for (case, a, b) in [
            ("equal", (1, 4), (1, 4)),
            ("equal, and one has more connections", (1, 40), (1, 6)),
            ("one to three", (1, 4), (3, 8)),
            ("one to three, and the lesser has more connections", (1, 40), (3, 9)),
            ("large weights", (300, 10), (900, 10)),
        ] {
            let mut model = Model::new(&[("a", a.0, a.1, true), ("b", b.0, b.1, true)]);
            model.turns(2000);
            let got = model.taken("b") as f64 / model.taken("a") as f64;
            let want = b.0 as f64 / a.0 as f64;
            assert!((got / want - 1.0).abs() < 0.1, "case: {case}: {got} instead of {want}");
        }
    }

    #[test]
    fn connections_of_a_tenant_take_turns() {
        let mut model = Model::new(&[("a", 1, 40, true), ("b", 1, 4, true)]);
        model.turns(4000);
        let taken: Vec<u64> =
            model.connections.iter().filter(|one| &*one.tenant == "a").map(|one| one.taken).collect();
        let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
        assert!(most - least <= most / 20, "{taken:?}");
    }

    #[test]
    fn a_light_tenant_never_waits_and_a_round_is_bounded() {
        for classes in [1, 2, 10, 100] {
            let names: Vec<String> = (0..classes).map(|number| format!("loud{number}")).collect();
            let loud = names.iter().map(|name| (&**name, 1, 8, true));
            let mut model = Model::new(&loud.chain([("light", 1, 1, false)]).collect::<Vec<_>>());
            let light = model.connections.len() - 1;
            let mut rounds = Vec::new();
            for turn in 0..1000 {
                let sends = turn % 7 == 0;
                if sends {
                    model.connections[light].ready = 1;
                }
                rounds.push(model.turn());
                let waits = model.connections[light].ready;
                // Beside many active tenants one message may be more than its part of a round.
                assert!(!sends || waits == 0 || 50 < classes, "{classes} loud tenants, turn {turn}");
            }
            // Once it is known that several are active.
            let most = rounds.iter().skip(300).max().unwrap();
            let bound = ROUND_COST + 2 * STEP_COST + READ * (MESSAGE + MESSAGE_COST);
            assert!(*most <= 2 * bound, "{classes} loud tenants: a round of {most}");
        }
    }

    #[test]
    fn nothing_waits_for_a_tenant_that_is_alone_or_for_others_that_are_idle() {
        let mut model = Model::new(&[("a", 1, 100, true)]);
        (0..100).for_each(|_| assert_eq!(model.turn(), 100 * READ * (MESSAGE + MESSAGE_COST)));
        // Another one is there, and does nothing: its turns are as large as several rounds.
        let mut model = Model::new(&[("a", 1, 100, true), ("b", 1, 1, false)]);
        model.turns(10);
        let all: u64 = (0..100).map(|_| model.turn()).sum();
        assert!(ROUND_COST * CALM_FACTOR * 90 <= all, "{all}");
    }

    #[test]
    fn a_light_tenant_leaves_its_part_to_the_others_until_it_wants_it() {
        let mut model = Model::new(&[("a", 1, 40, true), ("b", 1, 40, true), ("light", 1, 1, false)]);
        let light = model.connections.len() - 1;
        let per_turn = |model: &mut Model, sends: u64| {
            let before = model.taken("a") + model.taken("b");
            for _ in 0..1000 {
                model.connections[light].ready = model.connections[light].ready.max(sends);
                model.turn();
            }
            (model.taken("a") + model.taken("b") - before) * (MESSAGE + MESSAGE_COST) / 1000
        };
        model.connections[light].ready = 1;
        model.turn();
        // It is active, and nearly all of the round is used by the others.
        let beside_light = per_turn(&mut model, 1);
        assert!((ROUND_COST * 9 / 10..=ROUND_COST * 11 / 10).contains(&beside_light), "{beside_light}");
        // It floods as they do: the round is divided by three.
        model.connections[light].floods = true;
        model.turns(200);
        let all = per_turn(&mut model, 0);
        assert!(all <= ROUND_COST * 9 / 10, "{all}");
        model.connections[light].floods = false;
        model.turns(200);
        let again = per_turn(&mut model, 1);
        assert!(ROUND_COST * 9 / 10 <= again, "{again}");
        let (a, b) = (model.taken("a") as f64, model.taken("b") as f64);
        assert!((a / b - 1.0).abs() < 0.05, "{a} and {b}");
    }

    #[test]
    fn a_class_waits_while_its_part_is_on_the_way_to_the_journal() {
        let mut model = Model::new(&[("a", 1, 1, true), ("b", 1, 1, true)]);
        model.turn();
        model.in_flight["a"].store(u64::MAX, Ordering::Relaxed);
        let before = (model.taken("a"), model.taken("b"));
        model.turns(100);
        assert!(model.taken("a") <= before.0 + 2 * READ, "it waits");
        assert!(before.1 + 50 * READ <= model.taken("b"), "the other does not");
        model.in_flight["a"].store(0, Ordering::Relaxed);
        assert!(model.shares.wants_turn());
        model.turns(100);
        assert!(before.0 + 40 * READ <= model.taken("a"), "it goes on");
    }

    #[test]
    fn a_class_ends_with_its_last_connection_and_its_place_is_used_again() {
        let mut shares = FairShares::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let meter = Arc::default();
        let first = shares.join(&a, 1, &meter);
        let other = shares.join(&b, 1, &meter);
        shares.charge(first, ROUND_COST * CALM_FACTOR, 1);
        assert!(!shares.admits(first) && shares.admits(other));
        shares.wait(first, 1, 0);
        shares.leave(other);
        assert!(shares.admits(first), "it is alone");
        assert!(shares.wants_turn());
        let mut granted = Vec::new();
        shares.turn((2, 2000), |connection, waited_us| {
            granted.push((connection, waited_us));
            true
        });
        assert_eq!((granted, shares.has_waiting()), (vec![(1, 2000)], false));
        shares.leave(first);
        assert_eq!((shares.join(&b, 1, &meter), shares.active), (first, 0));
    }
}
