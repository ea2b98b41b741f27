//! Three replicas over simulated disks and a lossy network: a record that was
//! reported durable is in each of them at the end, once, in order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postroad_cluster::{
    Config, DiskSpace, JournalLog, META_PARTITION, MemberChange, Members, Message, NodeId, Term, VoteError,
    VoteFile,
};
use postroad_journal::{Disk, Journal, Keys, Options, Payload, Record, SimulatedDisk};
use postroad_model::{PartitionId, Position};

use crate::{LogWriter, OthersSpace, Outlet, Replica, ToPartition, ToWriter};

pub(super) const PARTITION: PartitionId = PartitionId(0);

pub(super) const OPTIONS: Options = Options {
    segment_bytes: 16 << 10,
    checkpoint_bytes: 24 << 10,
    checkpoint_share: 0,
    dead_segments_max: 2,
};

/// Little enough for segments to be recycled, and enough for one who was away.
const TRAILING_BYTES: u64 = 256 << 10;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A state machine that remembers every value, by the position of its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State(Vec<u64>);

impl State {
    fn position(&self) -> Option<Position> {
        Position::new(self.0.len() as u64)
    }

    fn apply(&mut self, position: Position, record: &[u8]) {
        // Its snapshot may be of later than that of the log.
        if position.get() <= self.0.len() as u64 {
            return;
        }
        assert_eq!(position.get(), self.0.len() as u64 + 1, "positions come in order and without gaps");
        let mut record = record;
        self.0.push(record.get_u64_le());
    }

    fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        self.0.iter().for_each(|value| bytes.put_u64_le(*value));
        bytes.freeze()
    }

    fn of(mut bytes: &[u8]) -> State {
        let mut state = State::default();
        while bytes.has_remaining() {
            state.0.push(bytes.get_u64_le());
        }
        state
    }
}

type Network = Arc<Mutex<Vec<Message>>>;

struct Node {
    number: u64,
    disk: SimulatedDisk,
    network: Network,
    writer: LogWriter<SimulatedDisk>,
    state: State,
    /// Proposed by this node as the leader, and not known to be durable.
    proposed: Vec<u64>,
    part: Part,
    checkpoints: u64,
    /// How often it was deposed, and went on as a follower.
    steps_down: u64,
    /// How often it began again from its disk.
    failures: u64,
    /// Of the partition's proposals.
    epoch: u64,
    /// Whether the writer takes further data, as it said last.
    ample: bool,
    /// Proposals that were refused as no disk had room.
    refused: usize,
    /// Turns in which entries of the leader found no room.
    exhausted: u64,
    /// Values that became durable while only records that free space were taken.
    durable_while_low: usize,
}

/// Who has the state, as in a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The replica applies what is committed.
    Follows,
    /// The leader of this term: it applies what it proposed.
    Leads(Term),
    /// A leader that was deposed has the state for this number of turns.
    StepsDown(u64),
}

fn open(number: u64, disk: &SimulatedDisk, network: &Network) -> (LogWriter<SimulatedDisk>, State) {
    let vote = match VoteFile::open(disk) {
        Err(VoteError::Io(_)) => VoteFile::create(disk).unwrap(),
        vote => vote.unwrap(),
    };
    let (journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!(recovered.damaged, vec![]);
    let state = recovered.checkpoints.iter().find(|stored| stored.partition == PARTITION);
    let state =
        state.map_or_else(State::default, |stored| State::of(&stored.read().unwrap().state.to_bytes()));
    let log = JournalLog::over(disk.clone(), (OPTIONS, Keys::default()), journal, &recovered).unwrap();
    let config = Config {
        node: NodeId::new(number).unwrap(),
        members: Members::first((1..=3).filter_map(NodeId::new)),
        seed: number,
        uncommitted_bytes_max: 1 << 20,
        cache_bytes_max: 4 << 10,
    };
    let sent = network.clone();
    let send: Outlet = Box::new(move |message| sent.lock().unwrap().push(message));
    let states = state.position().map(|position| (PARTITION, position));
    let replica = Replica::open(&config, log, vote, states, send).unwrap().trailing(TRAILING_BYTES);
    (LogWriter::new(replica, [PARTITION]), state)
}

impl Node {
    fn new(number: u64, seed: u64, network: &Network) -> Node {
        let (disk, network) = (SimulatedDisk::new(seed * 4 + number), network.clone());
        let (writer, state) = open(number, &disk, &network);
        let (proposed, part) = (Vec::new(), Part::Follows);
        let (checkpoints, steps_down, failures) = (0, 0, 0);
        Node {
            number,
            disk,
            network,
            writer,
            state,
            proposed,
            part,
            checkpoints,
            steps_down,
            failures,
            epoch: 0,
            ample: true,
            refused: 0,
            exhausted: 0,
            durable_while_low: 0,
        }
    }

    fn space(&self) -> DiskSpace {
        self.writer.replica().map_or(DiskSpace::Ample, Replica::disk_space)
    }

    /// A copy of the store of another node takes the place of this one's, which keeps its vote.
    fn fill_from(&mut self, author: &mut Node, seed: u64) -> bool {
        let (Some(of), Some(own)) = (author.writer.replica(), self.writer.replica()) else { return false };
        let Some(term) = of.leads_now() else { return false };
        if own.admits_copy(term, of.stored_last()).is_err() {
            return false;
        }
        let disk = SimulatedDisk::new(seed);
        for name in author.disk.list().unwrap().iter().filter(|name| *name != "vote") {
            disk.set_contents(name, author.disk.contents(name).unwrap());
        }
        disk.set_contents("vote", self.disk.contents("vote").unwrap());
        VoteFile::open(&disk).unwrap().write_members(of.members().clone()).unwrap();
        let last = of.stored_last().index;
        author.writer.leadership().keep_log_after(Some(last));
        self.disk = disk;
        self.begin_again(false);
        true
    }

    /// The process ends, with or without the machine, and begins again from the disk.
    fn begin_again(&mut self, crash: bool) {
        if crash {
            self.disk.crash();
        }
        (self.writer, self.state) = open(self.number, &self.disk, &self.network);
        self.proposed.clear();
        self.part = Part::Follows;
        (self.epoch, self.ample) = (0, true);
    }

    fn leads(&self) -> bool {
        matches!(self.part, Part::Leads(_))
    }

    fn shown(&self) -> String {
        let status = self.writer.replica().map(crate::Replica::status);
        format!("{} applied, {} proposed, {status:?}", self.state.0.len(), self.proposed.len())
    }

    fn propose(&mut self, values: impl Iterator<Item = u64>, padding: usize) {
        let mut records = Vec::new();
        for value in values {
            self.proposed.push(value);
            let position = Position::new((self.state.0.len() + self.proposed.len()) as u64).unwrap();
            let mut payload = value.to_le_bytes().to_vec();
            payload.resize(8 + padding, 7);
            let payload = Payload::from(Bytes::from(payload));
            let reserve = !self.ample;
            records.push(Record { partition: PARTITION, position, payload, reserve, key: None });
        }
        let epoch = self.epoch;
        self.writer.push(ToWriter::Batch { partition: PARTITION, epoch, records, sync: true });
    }

    /// Does all that is to be done; returns the values that are durable now. A leader that was
    /// deposed keeps its state for `lingers` turns.
    fn turn(&mut self, lingers: u64) -> Vec<u64> {
        let mut durable = Vec::new();
        if self.writer.has_records() {
            self.writer.write();
        }
        self.writer.drive();
        if self.writer.replica().is_some_and(|replica| replica.failure().is_some()) {
            self.failures += 1;
            self.begin_again(false);
            return durable;
        }
        self.apply();
        while let Some(message) = self.writer.next_message() {
            match message {
                ToPartition::Durable { through, .. } => {
                    assert!(self.leads(), "only a leader's own proposals are reported");
                    let count = through.get() as usize - self.state.0.len();
                    self.durable_while_low += if self.ample { 0 } else { count };
                    for value in self.proposed.drain(..count) {
                        self.state.0.push(value);
                        durable.push(value);
                    }
                }
                ToPartition::SnapshotWanted { .. } => self.write_down(),
                ToPartition::Failed { epoch, last, reason, .. } => {
                    assert!(self.leads() && reason.contains("no space"), "{reason}");
                    assert_eq!(last, self.state.position(), "nothing is under way");
                    self.refused += self.proposed.len();
                    self.proposed.clear();
                    self.epoch = epoch;
                }
                ToPartition::Space { ample } => self.ample = ample,
                ToPartition::Read { .. } => {}
            }
        }
        while let Some(job) = self.writer.next_job() {
            self.writer.finish(job.run(&self.disk, &mut ()));
        }
        self.change_part(lingers);
        self.exhausted += u64::from(self.space() == DiskSpace::Exhausted);
        self.checkpoints = self.checkpoints.max(self.writer.written().checkpoints);
        durable
    }

    fn apply(&mut self) {
        if self.part == Part::Follows {
            while let Some(replicated) = self.writer.next_replicated() {
                self.state.apply(replicated.position, &replicated.record);
            }
        }
    }

    /// While the state is with a leader that steps down, there is no answer.
    fn write_down(&mut self) {
        if let Some(position) = self.state.position()
            && !matches!(self.part, Part::StepsDown(_))
        {
            let (partition, state) = (PARTITION, self.state.to_bytes().into());
            self.writer.push(ToWriter::Snapshot { partition, position, state });
        }
    }

    fn change_part(&mut self, lingers: u64) {
        let leads = self.writer.replica().and_then(Replica::leads);
        self.part = match self.part {
            Part::Follows => {
                self.apply();
                let term = self.writer.leadership().take_over();
                self.epoch = if term.is_some() { 0 } else { self.epoch };
                term.map_or(Part::Follows, Part::Leads)
            }
            Part::Leads(term) if leads == Some(term) => Part::Leads(term),
            Part::Leads(_) => {
                self.steps_down += 1;
                Part::StepsDown(lingers)
            }
            Part::StepsDown(0) => {
                // Their outcome is unknown: some may be committed by the next leader.
                self.proposed.clear();
                self.part = Part::Follows;
                self.apply();
                if !self.writer.leadership().awaited_states().is_empty() {
                    self.write_down();
                }
                Part::Follows
            }
            Part::StepsDown(turns) => {
                // It has not heard yet that they are dropped.
                self.propose_late();
                Part::StepsDown(turns - 1)
            }
        };
    }

    fn propose_late(&mut self) {
        self.propose(std::iter::once(u64::MAX), 0);
    }
}

/// Counts of a run, to know that it tests something.
#[derive(Debug, Default)]
struct Seen {
    durable: usize,
    leaders: usize,
    checkpoints: u64,
    recycled: u64,
    transfers: u64,
    changes: u64,
    steps_down: u64,
    failures: u64,
    refused: usize,
    exhausted: u64,
    durable_while_low: usize,
    copies: u64,
}

struct Cluster {
    /// Whether disks get full.
    fills: bool,
    copies: u64,
    random: Random,
    network: Network,
    nodes: Vec<Node>,
    /// The node that hears nothing and is not heard.
    cut: Option<u64>,
    next_value: u64,
    proposes: bool,
    durable: Vec<u64>,
    leaders: BTreeMap<u64, usize>,
    transfers: u64,
    changes: u64,
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let network = Network::default();
        let nodes = (1..=3).map(|number| Node::new(number, seed, &network)).collect();
        Cluster {
            fills: seed % 2 == 1,
            copies: 0,
            random: Random(seed),
            network,
            nodes,
            cut: None,
            next_value: 1,
            proposes: true,
            durable: Vec::new(),
            leaders: BTreeMap::new(),
            transfers: 0,
            changes: 0,
        }
    }

    fn leader(&self) -> Option<usize> {
        self.nodes
            .iter()
            .position(|node| node.leads() && node.writer.replica().is_some_and(|it| it.leads_now().is_some()))
    }

    /// Steps without faults until this holds; for a time.
    fn until(&mut self, event: &str, holds: impl Fn(&Cluster) -> bool) {
        let mut steps = 0;
        while !holds(self) {
            self.step(false);
            steps += 1;
            assert!(
                steps < 5_000,
                "not: {event}: {:#?}",
                self.nodes.iter().map(Node::shown).collect::<Vec<_>>()
            );
        }
    }

    /// The leader proposes a value of some size.
    fn send(&mut self, leader: usize) {
        self.nodes[leader].propose(std::iter::once(self.next_value), 700);
        self.next_value += 1;
    }

    fn refused(&self) -> usize {
        self.nodes.iter().map(|node| node.refused).sum()
    }

    /// The disk of the leader gets full while another node is away: sends are taken until a third
    /// node leads, which holds them. Returns that node, and the full one.
    fn loses_the_leaders_disk(&mut self) -> (usize, usize) {
        self.proposes = false;
        self.until("a leader", |it| it.leader().is_some());
        let full = self.leader().unwrap();
        let (next, away) = ((full + 1) % 3, (full + 2) % 3);
        self.cut = Some(away as u64 + 1);
        self.nodes[full].disk.set_capacity(Some(0));
        let mut sends_while_low = 0;
        while self.leader() == Some(full) && sends_while_low < 3 {
            if self.nodes[full].proposed.is_empty() {
                assert!(self.nodes[full].ample, "sends are taken");
                self.send(full);
                sends_while_low += u64::from(self.nodes[full].space() != DiskSpace::Ample);
            }
            self.step(false);
        }
        self.until("the third node leads", |it| it.leader() == Some(next));
        assert_eq!(self.refused(), 0);
        self.until("the third node knows of the full disk", |it| {
            it.nodes[full].space() != DiskSpace::Ample && it.nodes[next].proposed.is_empty()
        });
        (next, full)
    }
}

impl Cluster {
    /// Adds or removes a learner that never answers: the replicas are to agree about it.
    fn change_members(&mut self) {
        let from = self.random.below(3) as usize;
        let Some(replica) = self.nodes[from].writer.replica() else { return };
        let members = replica.members();
        let change = match members.learners.first() {
            Some(learner) => MemberChange::Remove(*learner),
            None => MemberChange::Add(members.next().unwrap()),
        };
        self.changes +=
            u64::from(self.nodes[from].writer.leadership().change_members(change, &BTreeMap::new()).is_ok());
    }

    /// Disks get full, and have space again, by themselves.
    fn fill_disks(&mut self) {
        for index in 0..3 {
            if self.random.one_in(150) {
                let disk = &self.nodes[index].disk;
                let more = self.random.below(60 << 10);
                disk.set_capacity(match self.random.one_in(2) {
                    true => Some(disk.used_bytes() + more),
                    false => None,
                });
            }
        }
    }

    /// Nodes say how much space they have, and a leader without space hands over.
    fn share_space(&mut self) {
        let number = |index: usize| NodeId::new(index as u64 + 1).unwrap();
        for index in 0..3 {
            let reached = (0..3).filter(|other| {
                let is_cut = [*other, index].iter().any(|node| self.cut == Some(*node as u64 + 1));
                *other != index && !is_cut
            });
            let (others, full): (Vec<usize>, Vec<usize>) =
                reached.partition(|other| self.nodes[*other].space() == DiskSpace::Ample);
            let numbers = |nodes: Vec<usize>| nodes.into_iter().map(number).collect::<Vec<NodeId>>();
            let (others, full) = (numbers(others), numbers(full));
            let node = &mut self.nodes[index];
            if node.leads() && node.space() != DiskSpace::Ample && self.random.one_in(20) {
                others.first().into_iter().for_each(|to| node.writer.leadership().hand_over(Some(*to)));
            }
            node.writer.leadership().others_have(OthersSpace { with_space: others, full });
            if node.writer.wants_retry() && self.random.one_in(5) {
                node.writer.retry();
            }
        }
    }

    /// A node whose log ends before the leader's begins gets a copy of the store.
    fn copy_stores(&mut self) {
        let needs = |node: &Node| node.writer.replica().is_some_and(|replica| replica.status().needs_copy);
        for index in (0..3).filter(|index| needs(&self.nodes[*index])).collect::<Vec<_>>() {
            let Some(author) = (0..3).find(|author| self.nodes[*author].leads()) else { return };
            if author != index {
                let (seed, [author, node]) =
                    (self.random.below(1 << 40), self.nodes.get_disjoint_mut([author, index]).unwrap());
                self.copies += u64::from(node.fill_from(author, seed));
            }
        }
    }

    fn step(&mut self, faults: bool) {
        if faults && self.fills {
            self.fill_disks();
        }
        // Cuts are short enough for the log that is kept: copies of a store are not made yet.
        if faults && self.random.one_in(if self.cut.is_some() { 30 } else { 150 }) {
            self.cut = if self.cut.is_some() { None } else { Some(1 + self.random.below(3)) };
        }
        if faults && self.random.one_in(200) {
            let (node, crash) = (self.random.below(3) as usize, self.random.one_in(2));
            self.nodes[node].begin_again(crash);
        }
        if faults && self.random.one_in(60) {
            let (to, from) = (NodeId::new(1 + self.random.below(3)).unwrap(), self.random.below(3) as usize);
            self.transfers += u64::from(self.nodes[from].leads());
            self.nodes[from].writer.leadership().hand_over(Some(to));
        }
        if faults && self.random.one_in(60) {
            self.change_members();
        }
        if self.random.one_in(300) {
            self.nodes.iter_mut().for_each(|node| node.writer.leadership().keep_log_after(None));
        }
        if self.random.one_in(4) {
            self.nodes.iter_mut().for_each(|node| node.writer.tick());
            self.share_space();
            self.copy_stores();
        }
        let mut messages = std::mem::take(&mut *self.network.lock().unwrap());
        while !messages.is_empty() {
            // Mostly in order, as over a connection.
            let message = messages.remove(if faults && self.random.one_in(20) {
                self.random.below(messages.len() as u64) as usize
            } else {
                0
            });
            let (from, to) = (message.from.get(), message.to.get());
            let is_cut = self.cut.is_some_and(|cut| cut == from || cut == to);
            let is_lost = faults && self.random.one_in(50);
            if !is_cut && !is_lost && to <= 3 {
                self.nodes[to as usize - 1].writer.receive(message).unwrap();
            }
        }
        for index in 0..3 {
            let leads = self.nodes[index].leads();
            if self.proposes && leads && self.random.one_in(3) && self.nodes[index].proposed.len() < 50 {
                let (count, padding) = (1 + self.random.below(5), self.random.below(700) as usize);
                self.nodes[index].propose(self.next_value..self.next_value + count, padding);
                self.next_value += count;
                *self.leaders.entry(index as u64).or_default() += 1;
            }
            let lingers = self.random.below(60);
            let durable = self.nodes[index].turn(lingers);
            self.durable.extend(durable);
        }
    }
}

fn run(seed: u64) -> Seen {
    let mut cluster = Cluster::new(seed);
    for _ in 0..1500 {
        cluster.step(true);
    }
    cluster.cut = None;
    cluster.nodes.iter().for_each(|node| node.disk.set_capacity(None));
    let mut steps = 0;
    let is_still = |cluster: &Cluster| {
        let [one, two, three] = &cluster.nodes[..] else { return false };
        let idle = cluster.nodes.iter().all(|node| node.proposed.is_empty());
        idle && cluster.nodes.iter().any(Node::leads) && one.state == two.state && two.state == three.state
    };
    // Without faults the group comes together, whatever happened.
    while steps < 200 || !is_still(&cluster) {
        cluster.step(false);
        steps += 1;
        if steps == 200 {
            cluster.proposes = false;
        }
        let statuses = || cluster.nodes.iter().map(Node::shown).collect::<Vec<_>>();
        assert!(steps < 20_000, "seed {seed}: the group does not come together: {:#?}", statuses());
    }
    let members = |node: &Node| node.writer.replica().map(|replica| replica.members().clone());
    for node in &cluster.nodes {
        assert_eq!(members(node), members(&cluster.nodes[0]), "seed {seed}: members");
    }
    let state = &cluster.nodes[0].state.0;
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    for (place, value) in state.iter().enumerate() {
        assert_eq!(places.insert(*value, place), None, "seed {seed}: {value} is there twice");
        assert!(*value < cluster.next_value, "seed {seed}: a deposed leader's late record was taken");
    }
    for value in &cluster.durable {
        assert!(places.contains_key(value), "seed {seed}: {value} was durable and is lost");
    }
    let meta = |node: &Node| node.writer.replica().map_or(0, |replica| replica.status().floor.0);
    Seen {
        durable: cluster.durable.len(),
        leaders: cluster.leaders.len(),
        checkpoints: cluster.nodes.iter().map(|node| node.checkpoints).sum(),
        recycled: cluster.nodes.iter().map(meta).max().unwrap_or(0),
        transfers: cluster.transfers,
        changes: cluster.changes,
        steps_down: cluster.nodes.iter().map(|node| node.steps_down).sum(),
        failures: cluster.nodes.iter().map(|node| node.failures).sum(),
        refused: cluster.nodes.iter().map(|node| node.refused).sum(),
        exhausted: cluster.nodes.iter().map(|node| node.exhausted).sum(),
        durable_while_low: cluster.nodes.iter().map(|node| node.durable_while_low).sum(),
        copies: cluster.copies,
    }
}

#[test]
fn durable_records_are_in_all_replicas_at_the_end() {
    assert_eq!(META_PARTITION, PartitionId(u16::MAX));
    let seeds = std::env::var("REPLICA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    let mut all = Seen::default();
    for seed in 0..seeds {
        let seen = run(seed);
        all.durable += seen.durable;
        all.leaders = all.leaders.max(seen.leaders);
        all.checkpoints += seen.checkpoints;
        all.recycled += seen.recycled;
        all.transfers += seen.transfers;
        all.changes += seen.changes;
        all.steps_down += seen.steps_down;
        all.failures += seen.failures;
        all.refused += seen.refused;
        all.exhausted += seen.exhausted;
        all.durable_while_low += seen.durable_while_low;
        all.copies += seen.copies;
    }
    eprintln!("{seeds} seeds: {all:?}");
    assert!(all.durable > 10_000 && all.leaders == 3, "{all:?}");
    assert!(all.checkpoints > 100 && all.recycled > 100, "{all:?}");
    assert!(all.refused > 100 && all.exhausted > 100 && all.durable_while_low > 100, "{all:?}");
    assert!(all.transfers > 100 && all.changes > 100 && all.steps_down > 100, "{all:?}");
}

#[test]
fn sends_wait_for_a_node_that_comes_back_while_another_disk_is_full() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        let (next, _) = cluster.loses_the_leaders_disk();
        let durable = cluster.durable.len();
        for _ in 0..20 {
            cluster.send(next);
            cluster.step(false);
        }
        assert!(cluster.nodes[next].ample, "seed {seed}: sends are held, not refused");
        cluster.cut = None;
        cluster.until("all are durable", |it| it.nodes[next].proposed.is_empty());
        assert_eq!((cluster.refused(), cluster.durable.len()), (0, durable + 20), "seed {seed}");
    }
}

#[test]
fn sends_do_not_wait_long_for_a_node_that_stays_away() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        let (next, full) = cluster.loses_the_leaders_disk();
        let before = cluster.durable.len();
        cluster.send(next);
        cluster.until("it is refused", |it| it.refused() == 1);
        assert!(!cluster.nodes[next].ample, "seed {seed}: further ones are refused at once");
        // Those that free space are taken; the full disk has room for some.
        cluster.nodes[next].propose(std::iter::once(cluster.next_value), 0);
        cluster.until("it is durable", |it| it.nodes[next].proposed.is_empty());
        assert_eq!((cluster.refused(), cluster.durable.len()), (1, before + 1), "seed {seed}");
        cluster.nodes[full].disk.set_capacity(None);
        cluster.until("there is space", |it| it.nodes[next].ample);
    }
}
