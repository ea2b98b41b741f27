//! Replicas of one group on a simulated network, clock and disks. Everything follows from the seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;

use super::network::{MILLISECOND, Network, SECOND, Time};
use super::oracle::{Oracle, payload};
use super::random::Random;
use super::replica::{Copy, Done, Replica};
use crate::{EntryId, Level, MemberChange, Members, NodeId, Refused, Role, SnapshotOffer, decode, encode};

const TICK: Time = 50 * MILLISECOND;
const FAULTS_END: Time = 10 * SECOND;
/// After the last fault, everything must be well within this time.
const LIVENESS_MAX: Time = 10 * SECOND;

/// A rule that is broken on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// The leader commits entries that it alone has synced.
    CommitsAlone,
    /// Votes are not written.
    ForgetsVote,
    /// Votes and entries are confirmed before they are synced.
    AnswersUnsynced,
    /// After a start the members are those of the beginning.
    ForgetsMembers,
    /// A log that lost entries which it had confirmed votes.
    TrustsShortLogs,
    /// A damaged store is filled by any node that takes itself for the leader.
    FillsFromFormerLeaders,
    /// A damaged store campaigns.
    DamagedCampaigns,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick(usize),
    Deliver(usize, Bytes),
    DiskDone(usize, u64),
    Fetched(usize, u64),
    Fill(usize),
    Propose,
    Fault,
    Heal,
    Start(usize),
    Checkpoint(usize),
}

/// Statistics of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub trace: u64,
    pub events: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub terms: u64,
    pub crashes: u64,
    pub pauses: u64,
    pub cuts: u64,
    pub transfers: u64,
    pub changes: u64,
    pub snapshots: u64,
    pub damages: u64,
    pub fills: u64,
    /// Longest time from the last fault to a whole group, in milliseconds.
    pub recovery_ms_max: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.terms += other.terms;
        self.crashes += other.crashes;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
        self.transfers += other.transfers;
        self.changes += other.changes;
        self.snapshots += other.snapshots;
        self.damages += other.damages;
        self.fills += other.fills;
        self.recovery_ms_max = self.recovery_ms_max.max(other.recovery_ms_max);
    }
}

pub struct Simulation {
    now: Time,
    sequence: u64,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    random: Random,
    network: Network,
    replicas: Vec<Replica>,
    offers: Vec<Option<SnapshotOffer>>,
    /// Copies on their way to damaged nodes.
    copies: Vec<Option<Copy>>,
    oracle: Oracle,
    payloads: u64,
    /// The members of the beginning.
    first: Members,
    report: Report,
    faults: bool,
    /// Disks are damaged in this run, and members stay; otherwise these change.
    damages: bool,
    broken: Broken,
}

impl Simulation {
    pub fn run(seed: u64, broken: Broken) -> Result<Report, String> {
        let mut random = Random::new(seed);
        let voters = if random.one_in(4) { 5 } else { 3 };
        let nodes = voters + random.below(4) as usize;
        let damages = random.one_in(2);
        let first = Members::first((1..=voters as u64).filter_map(NodeId::new));
        let network = Network::new(nodes, &mut random);
        let replicas = (0..nodes).map(|number| Replica::new(number, random.number(), broken)).collect();
        let mut simulation = Simulation {
            now: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            random,
            network,
            replicas,
            offers: vec![None; nodes],
            copies: vec![None; nodes],
            oracle: Oracle::default(),
            payloads: 0,
            first,
            report: Report::default(),
            faults: true,
            damages,
            broken,
        };
        let found = simulation.play();
        found.map_err(|wrong| format!("seed {seed}, at {} us: {wrong}", simulation.now))?;
        Ok(simulation.report)
    }

    fn play(&mut self) -> Result<(), String> {
        for node in 0..self.replicas.len() {
            self.start(node);
            let first = self.random.below(TICK);
            self.at(first, Event::Tick(node));
            self.at(SECOND, Event::Checkpoint(node));
        }
        self.at(0, Event::Propose);
        self.at(SECOND, Event::Fault);
        while self.now < FAULTS_END {
            self.step()?;
        }
        self.end_faults();
        let (began, mark) = (self.now, self.payloads);
        while !self.is_whole(mark) {
            if self.now > began + LIVENESS_MAX {
                return Err(format!("no progress after the last fault: {}", self.picture()));
            }
            self.step()?;
        }
        self.report.recovery_ms_max = (self.now - began) / MILLISECOND;
        (self.report.acknowledged, self.report.terms) = (self.oracle.acknowledgements(), self.oracle.terms());
        let mut members = self.replicas.iter().filter(|replica| self.is_member(replica.number));
        members.try_for_each(|replica| self.oracle.end(replica.number, &replica.applied))
    }

    fn end_faults(&mut self) {
        self.faults = false;
        self.network.calm();
        for node in 0..self.replicas.len() {
            (self.replicas[node].slowness, self.replicas[node].paused_until) = (1, 0);
            if !self.replicas[node].is_up() {
                self.start(node);
            }
        }
    }

    /// Whether all have applied the same, something proposed after the faults among it. A node that
    /// was just removed may have applied more: the members follow.
    fn is_whole(&self, mark: u64) -> bool {
        let Some(leader) = self.replicas.iter().find(|replica| replica.leads()) else { return false };
        let applied = &leader.applied;
        let fresh = applied.last().and_then(payload).is_some_and(|payload| payload > mark);
        let members = self.replicas.iter().filter(|replica| self.is_member(replica.number));
        fresh && members.into_iter().all(|replica| replica.applied.len() == self.oracle.applied_count())
    }

    /// Whether a node gets the log, by the last leader that knows.
    fn is_member(&self, node: usize) -> bool {
        let lists = self.replicas.iter().map(|replica| &replica.members[1]);
        let last = lists.max_by_key(|members| members.since);
        last.is_some_and(|members| members.contains(number(node)))
    }

    fn picture(&mut self) -> String {
        let statuses = self.replicas.iter_mut().map(|replica| replica.group().map(|group| group.status()));
        format!("{:?}", statuses.collect::<Vec<_>>())
    }

    fn at(&mut self, delay: Time, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + delay, self.sequence, event)));
    }

    fn step(&mut self) -> Result<(), String> {
        let Reverse((time, sequence, event)) = self.queue.pop().expect("ticks never end");
        self.now = time;
        if let Some(node) = node_of(&event) {
            let resumes = self.replicas[node].paused_until;
            if resumes > self.now {
                self.queue.push(Reverse((resumes, sequence, event)));
                return Ok(());
            }
        }
        self.report.events += 1;
        self.trace(&event);
        match event {
            Event::Tick(node) => {
                self.replicas[node].group().into_iter().for_each(|group| group.tick());
                self.at(TICK, Event::Tick(node));
                self.replicas[node].mark(self.now);
                self.see_to_rot(node);
                self.work(node)
            }
            Event::Deliver(node, bytes) => self.deliver(node, bytes),
            Event::DiskDone(node, life) => {
                if self.replicas[node].life == life && self.replicas[node].is_up() {
                    self.replicas[node].disk_done();
                }
                self.work(node)
            }
            Event::Fetched(node, life) => self.fetched(node, life),
            Event::Fill(node) => {
                self.fill(node);
                self.work(node)
            }
            Event::Propose => self.propose(),
            Event::Fault => {
                self.fault();
                Ok(())
            }
            Event::Heal => {
                self.network.heal();
                self.replicas.iter_mut().for_each(|replica| replica.slowness = 1);
                Ok(())
            }
            Event::Start(node) => {
                self.start(node);
                Ok(())
            }
            Event::Checkpoint(node) => {
                if self.random.one_in(2) {
                    self.replicas[node].take_checkpoint(&mut self.random);
                }
                self.at(SECOND, Event::Checkpoint(node));
                Ok(())
            }
        }
    }

    fn trace(&mut self, event: &Event) {
        let (kind, bytes) = match event {
            Event::Deliver(node, bytes) => (*node as u64, crc32c::crc32c(bytes)),
            Event::Tick(node) => (10 + *node as u64, 0),
            Event::DiskDone(node, _) => (20 + *node as u64, 0),
            _ => (30, 0),
        };
        let mixed = (self.report.trace ^ self.now ^ kind << 56 ^ u64::from(bytes) << 20).rotate_left(17);
        self.report.trace = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn deliver(&mut self, node: usize, bytes: Bytes) -> Result<(), String> {
        let message = decode(bytes).map_err(|error| format!("a message that was sent: {error}"))?;
        if let Some(group) = self.replicas[node].group() {
            match group.receive(message) {
                Err(Refused::Stranger { .. }) => {}
                Err(refused) if self.broken == Broken::Nothing => {
                    return Err(format!("node {node}: {refused}"));
                }
                _ => {}
            }
        }
        self.work(node)
    }

    fn propose(&mut self) -> Result<(), String> {
        let node = match self.replicas.iter().position(Replica::leads) {
            Some(leader) if !self.random.one_in(4) => leader,
            _ => self.random.below(self.replicas.len() as u64) as usize,
        };
        let pause = if self.random.one_in(20) { 300 } else { 60 };
        let pause = self.random.below(pause) * MILLISECOND;
        self.at(pause, Event::Propose);
        if self.replicas[node].paused_until > self.now {
            return Ok(());
        }
        for _ in 0..self.random.between(1, 3) {
            self.payloads += 1;
            let padding = self.random.below(300) as usize;
            match self.replicas[node].propose(self.payloads, padding) {
                Some(id) => self.oracle.proposed(id, self.payloads)?,
                None => self.report.refused += 1,
            }
        }
        self.work(node)
    }

    fn work(&mut self, node: usize) -> Result<(), String> {
        let Done { messages, applied, role, disk_times, offer } =
            self.replicas[node].work(self.now, &mut self.random);
        if let Some((Role::Leader, term)) = role {
            self.oracle.leads(node, term)?;
            if self.replicas[node].knows_rot {
                return Err(format!("node {node} was elected in term {} with a damaged store", term.0));
            }
        }
        self.fill_if_damaged(node);
        let life = self.replicas[node].life;
        for time in disk_times {
            self.at(time - self.now, Event::DiskDone(node, life));
        }
        for message in messages {
            let to = message.to.get() as usize - 1;
            let bytes = encode(&message).map_err(|error| error.to_string())?;
            for delay in self.network.send(node, to, &mut self.random) {
                self.at(delay, Event::Deliver(to, bytes.clone()));
            }
        }
        for entry in applied {
            self.oracle.applied(node, &entry)?;
            let id = entry.id;
            if let Some(payload) = self.replicas[node].proposed.remove(&(id.index.0, id.term.0)) {
                // It was committed by the members in force, or by those before.
                let lists = &self.replicas[node].members;
                if self.broken == Broken::Nothing && !lists.iter().any(|list| self.has_majority(list, id)) {
                    return Err(format!("{id:?} was acknowledged without a majority of {lists:?}"));
                }
                self.oracle.acknowledged(payload, id);
            }
        }
        if offer.is_some() && self.offers[node].is_none() {
            self.offers[node] = offer;
            let time = self.random.between(1, 400) * MILLISECOND;
            self.at(time, Event::Fetched(node, life));
        }
        Ok(())
    }

    fn has_majority(&self, members: &Members, id: EntryId) -> bool {
        let synced = members.voters.iter().filter(|node| self.replicas[place(**node)].has_synced(id));
        members.voters.len() < 2 * synced.count()
    }

    fn fetched(&mut self, node: usize, life: u64) -> Result<(), String> {
        let Some(offer) = self.offers[node].take() else { return Ok(()) };
        let source = offer.from.get() as usize - 1;
        let reachable = self.replicas[source].is_up() && !self.network.is_cut(source, node);
        let count = offer.last.index.0 as usize;
        let files = self.replicas[source].applied.get(..count).map(<[_]>::to_vec);
        if let Some(files) = files
            && reachable
            && self.replicas[node].life == life
            && self.replicas[node].install(offer, files, &self.first)
        {
            self.report.snapshots += 1;
        }
        self.work(node)
    }

    fn start(&mut self, node: usize) {
        let replica = &mut self.replicas[node];
        if !replica.is_up() && !replica.awaits_copy {
            self.offers[node] = None;
            replica.start(&self.first, &mut self.random);
            self.fill_if_damaged(node);
        }
    }

    fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let leader = self.replicas.iter().position(Replica::leads);
        let any = self.random.below(self.replicas.len() as u64) as usize;
        let node = leader.filter(|_| self.random.one_in(2)).unwrap_or(any);
        match self.random.below(10) {
            0..2 => self.kill(node),
            2 => {
                self.report.pauses += 1;
                self.replicas[node].paused_until = self.now + self.random.between(1, 2000) * MILLISECOND;
            }
            3..5 => {
                self.report.cuts += 1;
                self.network.cut(&mut self.random);
                let time = self.random.between(20, 3000) * MILLISECOND;
                self.at(time, Event::Heal);
            }
            5 => self.replicas[node].slowness = self.random.between(5, 200),
            6 => {
                self.report.transfers += 1;
                let to = NodeId::new(any as u64 + 1).expect("not zero");
                self.replicas
                    .iter_mut()
                    .filter_map(Replica::group)
                    .for_each(|group| group.transfer_leadership(to));
            }
            7 | 8 if self.damages => self.damage(node),
            7 | 8 => self.change_members(),
            _ => (0..self.replicas.len()).for_each(|node| {
                if self.random.one_in(2) {
                    self.kill(node);
                }
            }),
        }
        let pause = self.random.between(10, 1500) * MILLISECOND;
        self.at(pause, Event::Fault);
    }

    /// Each leader is asked for a change that makes sense to it.
    fn change_members(&mut self) {
        let node = number(self.random.below(self.replicas.len() as u64) as usize);
        let (removes, raises) = (self.random.one_in(2), self.random.one_in(4));
        for replica in &mut self.replicas {
            let number = replica.number;
            let Some(group) = replica.group() else { continue };
            let members = group.members();
            let change = match (members.contains(node), members.learners.contains(&node)) {
                _ if raises && members.level < Level::NEWEST => MemberChange::Raise(members.level.next()),
                (false, _) => MemberChange::Add(node),
                (true, true) if !removes => MemberChange::Promote(node),
                (true, _) if members.voters.len() < 3 => continue,
                (true, _) if place(node) == number => MemberChange::Retire(node),
                (true, _) => MemberChange::Remove(node),
            };
            self.report.changes += u64::from(group.propose_change(change, &BTreeMap::new()).is_ok());
        }
    }

    /// Whether all but this node are a majority of voters with whole stores.
    fn others_suffice(&self, node: usize) -> bool {
        let voters = &self.first.voters;
        let is_whole = |other: &&NodeId| place(**other) != node && self.replicas[place(**other)].is_whole();
        voters.len() < 2 * voters.iter().filter(is_whole).count()
    }

    /// The disk of a voter rots, or loses what it had synced as the power fails.
    fn damage(&mut self, node: usize) {
        if !self.first.voters.contains(&number(node)) || !self.others_suffice(node) {
            return;
        }
        let replica = &mut self.replicas[node];
        if replica.awaits_copy || replica.is_rotten() || replica.lost || !replica.is_up() {
            return;
        }
        if self.random.one_in(2) {
            self.report.damages += u64::from(replica.rot(&mut self.random));
            return;
        }
        self.report.crashes += 1;
        replica.lost = replica.lose_entries(&mut self.random);
        self.report.damages += u64::from(replica.lost);
        replica.paused_until = 0;
        let time = self.random.between(10, 2000) * MILLISECOND;
        self.at(time, Event::Start(node));
    }

    /// A node finds the rot of its store after a while, and leaves it once the others go on.
    fn see_to_rot(&mut self, node: usize) {
        if !self.replicas[node].is_rotten() || !self.random.one_in(10) {
            return;
        }
        let suffices = self.others_suffice(node);
        let next = self.random.below(self.first.voters.len() as u64) as usize;
        let replica = &mut self.replicas[node];
        let broken = self.broken;
        let Some(group) = replica.group() else { return };
        let role = group.status().role;
        if broken != Broken::DamagedCampaigns {
            group.abstain();
        }
        match role {
            Role::Leader => group.transfer_leadership(number(next)),
            Role::Follower { leader: Some(_) } if suffices && broken != Broken::DamagedCampaigns => {
                replica.leave(&mut self.random);
                return self.fill_if_damaged(node);
            }
            _ => {}
        }
        replica.knows_rot = true;
    }

    fn fill_if_damaged(&mut self, node: usize) {
        let replica = &mut self.replicas[node];
        if replica.awaits_copy && !std::mem::replace(&mut replica.fills, true) {
            self.at(100 * MILLISECOND, Event::Fill(node));
        }
    }

    /// Takes a copy of a leader's store, or begins one.
    fn fill(&mut self, node: usize) {
        if let Some(copy) = self.copies[node].take() {
            self.report.fills += 1;
            let replica = &mut self.replicas[node];
            (replica.fills, replica.lost) = (false, false);
            replica.fill(copy);
            return self.start(node);
        }
        let least = self.replicas[node].least_term();
        let sources = (0..self.replicas.len()).filter(|source| !self.network.is_cut(*source, node));
        let copies: Vec<_> = sources.filter_map(|of| Some((of, self.replicas[of].copy()?))).collect();
        let leads = |voter: usize| copies.iter().any(|(of, _)| *of == voter);
        let is_heir = |voter: usize| voter != node && !leads(voter) && self.replicas[voter].is_whole();
        let heir = self.first.voters.iter().copied().find(|voter| is_heir(place(*voter)));
        for (of, copy) in &copies {
            // It never heard of the campaign of the damaged node: a later leader is needed.
            if let (true, Some(heir), Some(group)) = (copy.term < least, heir, self.replicas[*of].group()) {
                group.transfer_leadership(heir);
            }
        }
        self.copies[node] = copies.into_iter().map(|(_, copy)| copy).find(|copy| least <= copy.term);
        let time = self.random.between(1, 400) * MILLISECOND;
        self.at(time, Event::Fill(node));
    }

    fn kill(&mut self, node: usize) {
        if !self.replicas[node].is_up() {
            return;
        }
        self.report.crashes += 1;
        self.replicas[node].crash(&mut self.random);
        self.replicas[node].paused_until = 0;
        let time = self.random.between(10, 2000) * MILLISECOND;
        self.at(time, Event::Start(node));
    }
}

fn node_of(event: &Event) -> Option<usize> {
    match event {
        Event::Tick(node) | Event::Deliver(node, _) | Event::DiskDone(node, _) | Event::Fetched(node, _) => {
            Some(*node)
        }
        Event::Propose
        | Event::Fault
        | Event::Heal
        | Event::Start(_)
        | Event::Fill(_)
        | Event::Checkpoint(_) => None,
    }
}

fn number(node: usize) -> NodeId {
    NodeId::new(node as u64 + 1).expect("not zero")
}

fn place(node: NodeId) -> usize {
    node.get() as usize - 1
}
