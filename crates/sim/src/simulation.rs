//! One run: choices in a row, each by the seed, until the last crash; then everything is drained
//! and counted.

mod crashing;
mod ending;
mod explaining;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use postroad_core::{Counters, Settings};
use postroad_journal::{SimulatedDisk, Ways};
use postroad_model::{
    BranchId, ConnectionId, Destination, DestinationKind, Effect, Event, Now, PartitionId, Peer, Placement,
    Publish, Sent, Ticket, ToSession,
};

use crate::assembly::{Arriving, Assembly, Source, Turn};
use crate::client::{Client, Numbers, Outgoing, World};
use crate::keys::Rotations;
use crate::mistake::Mistake;
use crate::oracle::{Oracle, number_of};
use crate::phase::Phase;
use crate::places::Places;
use crate::policies::{compression_of, policies, rests, settings};
use crate::random::Random;
use crate::scene::{FEEDING, Scene};
use crate::trace::{About, short, short_effect};
use crate::violation::{Report, Violation};
use crate::wall::Wall;

/// The options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Choices before the final draining.
    pub steps: u64,
    /// Print a trace on standard error.
    pub trace: bool,
    /// Only what the trace says about this message.
    pub trace_message: Option<u64>,
    /// Clients ask to commit before their work in the transaction was answered, so that on other
    /// ways it may arrive later than the coordinator's request.
    pub hasty_commits: bool,
    /// Whether messages that wait are explained from time to time, and the explanations checked.
    pub explains: bool,
    /// This mistake is in each explanation.
    pub mistake: Option<Mistake>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            steps: 1500,
            trace: false,
            trace_message: None,
            hasty_commits: false,
            explains: false,
            mistake: None,
        }
    }
}

/// A run that is going on. See the head of this file.
pub struct Simulation {
    options: Options,
    about: RefCell<About>,
    random: Random,
    numbers: Numbers,
    disk: SimulatedDisk,
    journal: postroad_journal::Options,
    rotations: Rotations,
    settings: Vec<Settings>,
    assembly: Assembly,
    clients: Vec<Option<Client>>,
    /// To the clients, from each partition a line of its own.
    lines: BTreeMap<(usize, PartitionId), VecDeque<Mail>>,
    /// The places of queues: without moves; and as is known where each client is.
    usual: Places,
    places: Vec<Places>,
    oracle: Oracle,
    scene: Scene,
    branches: Vec<BranchId>,
    /// Persistent sends to lasting queues that no connection of the slot was answered, in order.
    unanswered: Vec<Vec<(Ticket, Sent)>>,
    /// Entries and counters of each partition when it started.
    started: Vec<(u64, Counters)>,
    /// Messages that queues of earlier runs have dropped by their limits.
    dropped: u64,
    now_ms: u64,
    wall: Wall,
    faulty: bool,
    explaining: explaining::Explaining,
    report: Report,
}

/// The output of a partition for a client's place.
enum Mail {
    Session(ConnectionId, ToSession),
    /// The queue lives there now.
    Place(Destination, PartitionId),
}

type Checked = Result<(), String>;

const SLOTS: usize = 4;

/// Numbers that a client is after at most if it sends a message again.
const OUTSTANDING_MAX: u64 = 150;

impl Simulation {
    /// Does everything that follows from the seed.
    ///
    /// # Errors
    /// [`Violation`]: a promise was broken.
    pub fn run(seed: u64, options: Options) -> Result<Report, Violation> {
        let mut step = 0;
        let mut go = || {
            let mut simulation = Simulation::new(seed, options)?;
            while step < options.steps {
                step += 1;
                simulation.step()?;
                simulation.explain_at(step)?;
            }
            simulation.finish()
        };
        go().map_err(|what| Violation { seed, step, what })
    }

    fn new(seed: u64, options: Options) -> Result<Simulation, String> {
        let mut random = Random::new(seed);
        let partitions = 1 + random.below(3) as u16;
        let placement = Placement::over(partitions);
        let scene = Scene::choose(&mut random, placement);
        let rests = rests(seed, &scene);
        let scene = Scene { moves: moves(seed, partitions), repeats: repeats(seed), rests, ..scene };
        let policies = policies(&scene, compression_of(seed))?;
        let settings = settings(&mut random, placement, &scene, policies);
        let oracle = oracle_of(&settings, &scene);
        let settings: Vec<Settings> =
            (0..partitions).map(|id| Settings { id: PartitionId(id), ..settings.clone() }).collect();
        let disk = SimulatedDisk::new(random.number()).written(ways(seed));
        let journal = postroad_journal::Options {
            segment_bytes: 16 << 10,
            checkpoint_bytes: *random.pick(&[12 << 10, 40 << 10, 1 << 20]).unwrap_or(&(40 << 10)),
            dead_segments_max: 2,
            checkpoint_share: 0,
        };
        let faulty = !random.one_in(4);
        let rotations = Rotations::of(seed);
        let usual = Places::over(placement, settings[0].addressing.clone());
        let assembly = Assembly::boot(&disk, journal, rotations.keys(), &settings, &usual)
            .map_err(|error| format!("{error:?}"))?;
        let mut simulation = Simulation {
            options,
            about: RefCell::new(About::new(options.trace_message)),
            random,
            numbers: Numbers::default(),
            disk,
            journal,
            rotations,
            settings,
            places: vec![usual.clone(); SLOTS],
            usual,
            assembly,
            clients: (0..SLOTS).map(|_| None).collect(),
            lines: BTreeMap::new(),
            oracle,
            branches: Vec::new(),
            unanswered: vec![Vec::new(); SLOTS],
            scene,
            started: Vec::new(),
            dropped: 0,
            now_ms: 1_000_000,
            wall: Wall::of(seed),
            faulty,
            explaining: explaining::Explaining::default(),
            report: Report::default(),
        };
        simulation.started()?;
        Ok(simulation)
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        if !self.options.trace {
            return;
        }
        let line = line();
        if self.about.borrow_mut().has(&line) {
            eprintln!("{line}");
        }
    }

    fn started(&mut self) -> Checked {
        for core in &self.assembly.cores {
            let held: Vec<_> = core.partition.queues().collect();
            self.trace(|| format!("  {:?} starts with {held:?}", core.id));
        }
        let entries = |assembly: &Assembly, index: usize| -> u64 {
            assembly.cores[index].partition.queues().map(|(_, entries)| entries).sum()
        };
        let settles = |effect: &Effect| {
            matches!(effect, Effect::Tell { peer: Peer::InDoubt { .. } | Peer::Decided { .. }, .. })
        };
        if self.assembly.first.iter().any(|turn| turn.effects.iter().any(settles)) {
            self.report.ends.note(Phase::TwoPhaseCommit);
        }
        self.started = (0..self.assembly.cores.len())
            .map(|index| (entries(&self.assembly, index), self.assembly.cores[index].partition.counters()))
            .collect();
        for turn in std::mem::take(&mut self.assembly.first) {
            self.handle(turn)?;
        }
        Ok(())
    }

    fn step(&mut self) -> Checked {
        self.report.steps += 1;
        match self.random.below(1000) {
            0..250 => self.client_step(),
            250..450 => self.partition_step(),
            450..560 => self.poll_step(),
            560..640 => self.flush_step(),
            640..740 => self.push_step(),
            740..810 => {
                match self.random.below(8) {
                    0..4 => {
                        self.assembly.write();
                    }
                    4 => self.assembly.writer.sync(),
                    _ => {}
                }
                if !self.assembly.writer.has_unsynced() {
                    self.oracle.synced();
                }
                Ok(())
            }
            810..860 => {
                self.assembly.send_out();
                Ok(())
            }
            860..890 => {
                let choice = self.random.below(8);
                self.job_step(choice)
            }
            890..920 => {
                self.assembly.finish_job();
                Ok(())
            }
            920..970 => self.mail_step(),
            970..980 => {
                self.now_ms += self.random.below(self.scene.step_ms_max());
                self.wall.step(&mut self.random);
                Ok(())
            }
            980..984 => {
                self.assembly.try_again();
                Ok(())
            }
            984..994 if self.faulty => {
                self.plan_fault();
                Ok(())
            }
            994..996 if self.random.one_in(2) => {
                self.assembly.writer.ask_for_snapshots();
                Ok(())
            }
            996..998 if self.random.one_in(2) => self.crash(),
            998 => {
                self.seal();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    // --- clients
    // -------------------------------------------------------------------------------------------

    fn with_client(
        &mut self,
        slot: usize,
        act: impl FnOnce(&mut Client, &mut World<'_>) -> Outgoing,
    ) -> Checked {
        let temporary: Vec<Destination> =
            self.clients.iter().flatten().flat_map(|client| client.own().iter().cloned()).collect();
        let mut world = World {
            random: &mut self.random,
            numbers: &mut self.numbers,
            places: &self.places[slot],
            wall_ms: self.wall.at(self.now_ms),
            scene: &self.scene,
            temporary: &temporary,
            branches: &mut self.branches,
        };
        let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut) else { return Ok(()) };
        let events = act(client, &mut world);
        for (partition, event) in events {
            self.submit(slot, partition, event);
        }
        Ok(())
    }

    fn submit(&mut self, slot: usize, partition: PartitionId, event: Event) {
        self.trace(|| format!("client {slot} -> {partition:?}: {}", short(&event)));
        match &event {
            Event::Publish(publish) => {
                self.report.sent += u64::from(!publish.resent);
                self.report.resent += u64::from(publish.resent);
                self.report.scheduled += u64::from(publish.sent.schedule.is_some());
                self.note_unanswered(slot, publish);
            }
            Event::Commit { .. } => self.report.commits += 1,
            Event::PrepareBranch { .. } => self.report.prepared += 1,
            _ => {}
        }
        self.oracle.asked(&event);
        if self.options.explains {
            self.explaining.asked(&event);
        }
        self.assembly.cores[usize::from(partition.0)].send(Source::Client(slot), event);
    }

    fn note_unanswered(&mut self, slot: usize, publish: &Publish) {
        let Sent { to, message, also, .. } = &publish.sent;
        // The sender of a message in memory alone is not remembered.
        let forgotten = to.temporary || self.scene.forgetful.as_ref() == Some(to);
        let lasting = to.kind == DestinationKind::Queue && !forgotten && message.persistent;
        // Where a queue lives now, messages consumed before it came there are unknown.
        let stays = !self.scene.moves;
        if lasting && stays && also.is_empty() && publish.transaction.is_none() {
            self.unanswered[slot].push((publish.ticket, publish.sent.clone()));
        }
    }

    fn client_step(&mut self) -> Checked {
        let slot = self.random.below(SLOTS as u64) as usize;
        if self.clients[slot].is_none() {
            self.connect(slot)?;
            let unanswered = std::mem::take(&mut self.unanswered[slot]);
            let again = unanswered.into_iter().map(|(_, sent)| sent);
            // Of a producer the broker knows the last messages alone: a client that waits for
            // answers is never so far behind.
            let oldest = self.numbers.last().saturating_sub(OUTSTANDING_MAX);
            let again = again.filter(|sent| number_of(&sent.message) > Some(oldest)).collect();
            return self.with_client(slot, |client, world| client.send_again(world, again));
        }
        if self.random.one_in(60) {
            return self.close(slot);
        }
        self.with_client(slot, Client::act)
    }

    fn connect(&mut self, slot: usize) -> Checked {
        let connection = ConnectionId::new(slot as u16, self.numbers.next());
        self.clients[slot] = Some(Client::new(connection, self.options.hasty_commits));
        match self.options.explains {
            true => self.with_client(slot, |client, _| client.introduce()),
            false => Ok(()),
        }
    }

    fn close(&mut self, slot: usize) -> Checked {
        self.with_client(slot, |client, _| client.close())?;
        self.clients[slot] = None;
        Ok(())
    }

    fn mail_step(&mut self) -> Checked {
        let full: Vec<(usize, PartitionId)> =
            self.lines.iter().filter(|(_, line)| !line.is_empty()).map(|(key, _)| *key).collect();
        if let Some(key) = self.random.pick(&full).copied() {
            for _ in 0..1 + self.random.below(12) {
                self.take_mail(key)?;
            }
        }
        Ok(())
    }

    fn take_mail(&mut self, (slot, partition): (usize, PartitionId)) -> Result<bool, String> {
        let line = self.lines.get_mut(&(slot, partition));
        let (connection, message) = match line.and_then(VecDeque::pop_front) {
            Some(Mail::Session(connection, message)) => (connection, message),
            Some(Mail::Place(queue, to)) => {
                self.places[slot].settle(&queue, to);
                self.submit(slot, partition, Event::Placed { queue, of: self.everywhere() });
                return Ok(true);
            }
            None => return Ok(false),
        };
        if let Some(client) = self.clients[slot].as_mut().filter(|client| client.connection == connection) {
            if let ToSession::Reply { ticket, .. } = &message {
                self.unanswered[slot].retain(|(waiting, _)| waiting != ticket);
            }
            client.receive(partition, &message);
            if let ToSession::Moved { .. } | ToSession::Left { .. } = &message {
                self.with_client(slot, |client, world| client.follow(world, &message))?;
            }
        }
        Ok(true)
    }

    /// Where it has to be known where a queue lives: where clients are, and where partitions are.
    fn everywhere(&self) -> u16 {
        (SLOTS + self.assembly.cores.len()) as u16
    }

    /// A queue lives elsewhere now, says the partition that it leaves, which knows at once.
    fn place_everywhere(&mut self, queue: &Destination, to: PartitionId, from: PartitionId) {
        for slot in 0..SLOTS {
            let line = self.lines.entry((slot, from)).or_default();
            line.push_back(Mail::Place(queue.clone(), to));
        }
        for core in self.assembly.cores.iter_mut().filter(|core| core.id != from) {
            core.tell_place((queue.clone(), to, from));
        }
        self.placed((queue.clone(), to, from), from);
    }

    /// A partition gets the place of a queue, and confirms it to the former one after its earlier
    /// output.
    fn placed(&mut self, (queue, to, from): (Destination, PartitionId, PartitionId), by: PartitionId) {
        self.assembly.cores[usize::from(by.0)].settle(&queue, to);
        let event = Event::Placed { queue, of: self.everywhere() };
        self.assembly.cores[usize::from(from.0)].send(Source::Partition(by), event);
    }

    // --- partitions
    // ----------------------------------------------------------------------------------------

    fn any_core(&mut self) -> usize {
        self.random.below(self.assembly.cores.len() as u64) as usize
    }

    fn partition_step(&mut self) -> Checked {
        let index = self.any_core();
        if self.random.one_in(4) {
            self.pass_time(index)?;
        }
        let sources = self.assembly.cores[index].sources();
        let Some(source) = self.random.pick(&sources).copied() else { return Ok(()) };
        for _ in 0..1 + self.random.below(5) {
            if !self.work(index, source)? {
                break;
            }
        }
        if self.random.one_in(2) {
            let lazy_due = self.random.one_in(3);
            self.assembly.cores[index].flush(lazy_due);
        }
        Ok(())
    }

    fn now(&self) -> Now {
        Now { ticks_ms: self.now_ms, wall_ms: self.wall.at(self.now_ms) }
    }

    /// A partition hears of the time if something is due; `false` if nothing is.
    fn pass_time(&mut self, index: usize) -> Result<bool, String> {
        let due = self.assembly.cores[index].partition.next_due_ms();
        if due.is_none_or(|due| self.now_ms < due) {
            return Ok(false);
        }
        let now = self.now();
        let core = &mut self.assembly.cores[index];
        let turn = core.tick(now).unwrap_or_else(|| core.soft(Event::Tick { now }));
        self.handle(turn)?;
        match self.assembly.cores[index].partition.overstayed() {
            Some(what) => Err(format!("{:?}: {what}", self.assembly.cores[index].id)),
            None => Ok(true),
        }
    }

    fn work(&mut self, index: usize, source: Source) -> Result<bool, String> {
        let now = self.now();
        if let Some(turn) = self.assembly.cores[index].tick_before_event(source, now) {
            self.handle(turn)?;
        }
        // The oracle takes it for given that an event has its effects at once. The tick may have
        // begun to end something of its connection.
        if self.assembly.cores[index].holds_back(source) {
            return Ok(false);
        }
        let event = match self.assembly.cores[index].take(source) {
            Some(Arriving::Event(event)) => event,
            Some(Arriving::Place { queue, to, from }) => {
                self.placed((queue, to, from), self.assembly.cores[index].id);
                return Ok(true);
            }
            None => return Ok(false),
        };
        if let Event::Fetched { bodies } = &event {
            self.report.fetched += bodies.len() as u64;
            let unread = bodies.iter().find_map(|(key, message)| Some((key, message.as_ref().err()?)));
            if let Some((key, reason)) = unread {
                return Err(format!("{key:?} cannot be read back: {reason}"));
            }
        }
        self.report.shelves_read += u64::from(matches!(event, Event::ShelfRead { .. }));
        if let Event::ShelfRead { jobs: Err(reason), position } = &event
            && self.assembly.cores[index].partition.has_shelf(*position)
        {
            return Err(format!("the jobs of {position:?} cannot be read back: {reason}"));
        }
        let turn = self.assembly.cores[index].soft(event);
        self.handle(turn)?;
        Ok(true)
    }

    fn poll_step(&mut self) -> Checked {
        let index = self.any_core();
        for _ in 0..1 + self.random.below(6) {
            self.poll(index)?;
        }
        Ok(())
    }

    fn poll(&mut self, index: usize) -> Checked {
        let turn = self.assembly.cores[index].poll();
        if let Some(broken) = self.assembly.cores[index].broken.take() {
            return Err(broken);
        }
        turn.map_or(Ok(()), |turn| self.handle(turn))
    }

    fn flush_step(&mut self) -> Checked {
        let index = self.any_core();
        let lazy_due = self.random.one_in(3);
        self.assembly.cores[index].flush(lazy_due);
        Ok(())
    }

    fn push_step(&mut self) -> Checked {
        let index = self.any_core();
        let most = 1 + self.random.below(8) as usize;
        self.assembly.push(index, most);
        Ok(())
    }

    /// A partition's input goes to the oracle first, then its output; then all of it is carried
    /// out.
    fn handle(&mut self, turn: Turn) -> Checked {
        let Turn { partition, event, effects } = turn;
        let index = usize::from(partition.0);
        let now_ms = self.assembly.cores[index].now_ms();
        self.oracle.wall = self.wall;
        if let Some(event) = &event {
            self.trace(|| format!("  {partition:?} < {}", short(event)));
            self.oracle.told(now_ms, partition, event);
        }
        for effect in &effects {
            self.trace(|| format!("  {partition:?} > {}", short_effect(effect)));
            self.oracle.observe((now_ms, partition), effect)?;
            if let Effect::Deliver(delivery) = effect
                && self.options.explains
            {
                self.explaining.delivered(delivery);
            }
            self.post(partition, effect);
        }
        self.oracle.turned();
        for (to, event) in self.assembly.cores[index].carry_out(&effects) {
            self.assembly.cores[usize::from(to.0)].send(Source::Partition(partition), event);
        }
        Ok(())
    }

    fn post(&mut self, from: PartitionId, effect: &Effect) {
        let (connection, message) = match effect {
            Effect::Reply { connection, ticket, result } => {
                (*connection, ToSession::Reply { ticket: *ticket, result: result.clone() })
            }
            Effect::Announce(announcement) => {
                let Some((connection, ticket)) = announcement.answer else { return };
                (connection, ToSession::Reply { ticket, result: Ok(()) })
            }
            Effect::Ended { transaction, committed } => {
                let (transaction, connection) = (transaction.number, transaction.connection);
                (connection, ToSession::Ended { transaction, committed: *committed })
            }
            Effect::Branches { connection, ticket, branches } => {
                (*connection, ToSession::Branches { ticket: *ticket, branches: branches.clone() })
            }
            Effect::Unsettled { connection, ticket, deliveries } => {
                (*connection, ToSession::Unsettled { ticket: *ticket, deliveries: deliveries.clone() })
            }
            Effect::Redriven { connection, ticket, counts } => {
                (*connection, ToSession::Redriven { ticket: *ticket, counts: counts.clone() })
            }
            Effect::Deliver(delivery) => (delivery.consumer.connection, ToSession::Deliver(delivery.clone())),
            Effect::Place { queue, to } => return self.place_everywhere(queue, *to, from),
            Effect::Moved { consumer } => (consumer.connection, ToSession::Moved { consumer: *consumer }),
            Effect::Left { consumer, credit } => {
                (consumer.connection, ToSession::Left { consumer: *consumer, credit: *credit })
            }
            Effect::Drained { consumer } => (consumer.connection, ToSession::Drained { consumer: *consumer }),
            Effect::Prefetch { consumer, messages } => {
                (consumer.connection, ToSession::Prefetch { consumer: *consumer, messages: *messages })
            }
            Effect::Detached { consumer, cause } => {
                (consumer.connection, ToSession::Detached { consumer: *consumer, cause: *cause })
            }
            _ => return,
        };
        let slot = usize::from(connection.core());
        if slot < SLOTS {
            let line = self.lines.entry((slot, from)).or_default();
            line.push_back(Mail::Session(connection, message));
        }
    }
}

/// Whether queues move in the run of this seed.
fn moves(seed: u64, partitions: u16) -> bool {
    seed % 4 == 1 && 1 < partitions
}

/// Whether some jobs go on in the run of this seed.
fn repeats(seed: u64) -> bool {
    seed % 7 == 3
}

/// How the disk is written in the run of this seed.
fn ways(seed: u64) -> Ways {
    Ways { one_call: seed % 5 < 2, ..Ways::default() }
}

/// An oracle that knows the possible events of this scene.
fn oracle_of(settings: &Settings, scene: &Scene) -> Oracle {
    let mut oracle = Oracle::new(settings.placement, scene.dead_letters.clone());
    if scene.selects {
        oracle.expect_selectors();
    }
    oracle.expect_subscriptions(&scene.names);
    oracle.expect_feeds(Destination::topic(FEEDING), &scene.fed);
    if let Some(queue) = &scene.lagging {
        oracle.expect_lag(queue.clone());
    }
    if let Some(queue) = &scene.forgetful {
        oracle.expect_memory(queue.clone());
    }
    if let Some(at) = &scene.last_values {
        oracle.expect_last_values(at.clone());
    }
    oracle.expect_reviving(scene.revived.clone());
    oracle.expect_rests(&scene.rests);
    oracle.expect_taking(scene.slow.clone(), scene.transaction_ms_max, settings.slice_changes);
    if let Some((at, limit)) = &scene.limited {
        oracle.expect_limit(at.clone(), limit.drops());
    }
    oracle
}
