//! One process as the broker runs it: the cores, rings, routers and clients of `node`, over a
//! simulated disk.
//!
//! The other simulation joins partitions and log by itself; this one runs the room that the broker
//! runs. Tasks are
//! polled, cores take turns and the journal writes in the order that the seed says; the machine or
//! the process ends
//! now and then, and starts again.
//! Never here: a judgement that is not the ledger's.

mod clients;
mod cores;
mod lease_counts;
mod lease_ledger;
mod leasing;
mod ledger;
mod transacting;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use postroad_core::{Partition, Settings};
use postroad_journal::{Fault, Keys, Operation, Options, SimulatedDisk};
use postroad_model::{Destination, Now, PartitionId, Placement};
use postroad_node::{ClientOptions, LocalClient, equip};

use self::clients::{World, consume, drain, move_some, produce};
use self::cores::Cores;
pub use self::lease_counts::LeaseReport;
use self::leasing::{LeaseWorld, compete, describe, lease, move_queues, read_out};
use self::ledger::Ledger;
use crate::assembly::recover;
use crate::random::Random;
use crate::selectors::properties_of;

/// The time of day at the start of a run.
const BEGINS_MS: u64 = 1_000_000_000;

/// So far the wall clock is set at most, from where it would be.
const SET_BY_MS: u64 = 2 * 60 * 60 * 1000;

/// Queues of a run.
const QUEUES: usize = 5;

/// Rounds without a delivery after which queues are empty.
const QUIET_ROUNDS: u32 = 100;

/// Rounds in which all queues must be empty.
const ROUNDS_MAX: u32 = 100_000;

/// How much a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessReport {
    /// Confirmed sends.
    pub confirmed: u64,
    /// Deliveries checked.
    pub delivered: u64,
    /// Confirmed settlements.
    pub settled: u64,
    /// Confirmed commits.
    pub committed: u64,
    /// Confirmed rollbacks.
    pub rolled_back: u64,
    /// Queues that began to move to another partition.
    pub moves: u64,
    /// Ends of the machine or the process.
    pub crashes: u64,
}

impl ProcessReport {
    /// Adds another run.
    pub fn add(&mut self, other: &ProcessReport) {
        self.confirmed += other.confirmed;
        self.delivered += other.delivered;
        self.settled += other.settled;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.moves += other.moves;
        self.crashes += other.crashes;
    }
}

/// Its clients, and their judge.
enum Load {
    /// Producers and consumers.
    Queues(World),
    /// Clients of leases.
    Leases(LeaseWorld),
}

impl Load {
    fn broken(&self) -> Result<(), String> {
        let broken = match self {
            Load::Queues(world) => world.ledger.borrow().broken.clone(),
            Load::Leases(world) => world.ledger.borrow().broken.clone(),
        };
        broken.map_or(Ok(()), Err)
    }

    /// Messages that were read at the end.
    fn read_out(&self) -> u64 {
        match self {
            Load::Queues(world) => world.ledger.borrow().settled,
            Load::Leases(world) => world.ledger.borrow().counts.times("read out"),
        }
    }
}

/// See the head of this file.
pub struct ProcessRun {
    random: Random,
    disk: SimulatedDisk,
    journal: Options,
    cores: u16,
    settings: Vec<Settings>,
    clock: Rc<Cell<Now>>,
    load: Load,
    producers: u64,
    process: Cores,
    /// Clients and their mailboxes.
    tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    crashes: u64,
}

impl ProcessRun {
    /// Producers and consumers: does everything that follows from the seed, in this number of
    /// steps.
    ///
    /// # Errors
    /// The broken promise.
    pub fn run(seed: u64, steps: u64) -> Result<ProcessReport, String> {
        let run = ProcessRun::new(seed, 2 << 10, |random, _| {
            let queues = (0..QUEUES).map(|number| Destination::queue(&format!("q{number}"))).collect();
            let ledger = Rc::new(RefCell::new(Ledger::default()));
            let (is_alone, transacts, moves) = (random.one_in(2), random.one_in(2), random.one_in(2));
            Load::Queues(World { queues, ledger, is_alone, transacts, moves })
        })?;
        let run = run.go(steps)?;
        let Load::Queues(world) = &run.load else { return Ok(ProcessReport::default()) };
        let mut ledger = world.ledger.borrow_mut();
        ledger.ended();
        let Ledger { confirmed, delivered, settled, committed, rolled_back, moves, .. } = *ledger;
        let crashes = run.crashes;
        let report = ProcessReport { confirmed, delivered, settled, committed, rolled_back, moves, crashes };
        ledger.broken.take().map_or(Ok(report), Err)
    }

    /// The same with clients of leases. Bodies beyond `resident_bytes_max` are read from the disk
    /// when they are reserved.
    ///
    /// # Errors
    /// The broken promise.
    pub fn run_leases(seed: u64, steps: u64, resident_bytes_max: u64) -> Result<LeaseReport, String> {
        let run = ProcessRun::new(seed, resident_bytes_max, |random, clock| {
            Load::Leases(LeaseWorld::new(clock, random.one_in(2), random.one_in(3)))
        })?;
        let mut run = run.go(steps)?;
        let Load::Leases(world) = &run.load else { return Ok(LeaseReport::default()) };
        let world = world.clone();
        for queue in 0..world.queues.len() {
            let client = run.client("describe");
            run.tasks.push(Box::pin(describe(client, world.clone(), queue)));
        }
        (0..QUIET_ROUNDS).for_each(|_| run.round());
        let mut ledger = world.ledger.borrow_mut();
        ledger.ended();
        ledger.broken.take().map_or(Ok(std::mem::take(&mut ledger.counts)), Err)
    }

    fn go(mut self, steps: u64) -> Result<ProcessRun, String> {
        self.begin_clients();
        for _ in 0..steps {
            self.step()?;
            self.load.broken()?;
        }
        self.finish()?;
        self.load.broken()?;
        Ok(self)
    }

    fn new(
        seed: u64,
        resident_bytes_max: u64,
        load: impl FnOnce(&mut Random, &Rc<Cell<Now>>) -> Load,
    ) -> Result<ProcessRun, String> {
        let mut random = Random::new(seed);
        let partitions = 1 + random.below(5) as u16;
        let cores = 1 + random.below(3) as u16;
        let placement = Placement::over(partitions);
        let settings: Vec<Settings> = (0..partitions)
            .map(|id| Settings {
                resident_bytes_max,
                messages_bytes_max: 32 << 10,
                volatile_bytes_max: 1 << 20,
                outbox_bytes_max: 1 << 20,
                open_bytes_max: 1 << 20,
                transaction_bytes_max: 1 << 20,
                page_entries: 8,
                ..Settings::at_rest(PartitionId(id), placement, 1)
            })
            .collect();
        let disk = SimulatedDisk::new(random.number());
        let journal = Options {
            segment_bytes: 16 << 10,
            checkpoint_bytes: *random.pick(&[12 << 10, 40 << 10, 1 << 20]).unwrap_or(&(40 << 10)),
            dead_segments_max: 2,
            checkpoint_share: 0,
        };
        let clock = Rc::new(Cell::new(Now { ticks_ms: 1_000, wall_ms: BEGINS_MS }));
        let load = load(&mut random, &clock);
        let process = start(&disk, journal, cores, &settings, &clock)?;
        let (tasks, producers, crashes) = (Vec::new(), 0, 0);
        Ok(ProcessRun {
            random,
            disk,
            journal,
            cores,
            settings,
            clock,
            load,
            producers,
            process,
            tasks,
            crashes,
        })
    }

    fn client(&mut self, name: &str) -> LocalClient {
        let core = self.random.below(u64::from(self.cores)) as usize;
        let (client, mailbox) = LocalClient::join(&self.process.handles[core], ClientOptions::named(name));
        self.tasks.push(Box::pin(mailbox.run()));
        client
    }

    fn begin_clients(&mut self) {
        match &self.load {
            Load::Queues(world) => self.begin_queues(world.clone()),
            Load::Leases(world) => self.begin_leases(world.clone()),
        }
    }

    fn begin_queues(&mut self, world: World) {
        for _ in 0..1 + self.random.below(3) {
            self.producers += 1;
            let (client, random) = (self.client("producer"), Random::new(self.random.number()));
            self.tasks.push(Box::pin(produce(client, world.clone(), self.producers, random)));
        }
        for queue in 0..QUEUES {
            for _ in 0..if world.is_alone { 1 } else { 2 } {
                let (client, random) = (self.client("consumer"), Random::new(self.random.number()));
                self.tasks.push(Box::pin(consume(client, world.clone(), queue, random)));
            }
        }
        if world.moves {
            let (client, random) = (self.client("mover"), Random::new(self.random.number()));
            self.tasks.push(Box::pin(move_some(client, world, self.settings.len() as u64, random)));
        }
    }

    fn begin_leases(&mut self, world: LeaseWorld) {
        for _ in 0..2 + self.random.below(3) {
            let (client, random) = (self.client("lease"), Random::new(self.random.number()));
            self.tasks.push(Box::pin(lease(client, world.clone(), random)));
        }
        let (client, random) = (self.client("consumer"), Random::new(self.random.number()));
        self.tasks.push(Box::pin(compete(client, world.clone(), random)));
        world.ledger.borrow_mut().partitions = self.settings.len() as u16;
        if world.moves {
            let (client, random) = (self.client("mover"), Random::new(self.random.number()));
            self.tasks.push(Box::pin(move_queues(client, world, self.settings.len() as u64, random)));
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let core = self.random.below(u64::from(self.cores)) as usize;
        match self.random.below(1000) {
            0..450 => {
                let task = self.random.below(self.tasks.len() as u64) as usize;
                self.poll(task);
            }
            450..650 => self.process.turn(core),
            650..750 => {
                let most = 1 + self.random.below(8) as usize;
                self.process.push(core, most);
            }
            750..830 => self.process.write(),
            830..930 => self.process.send_out(),
            930..960 => self.process.run_job(),
            960..990 => self.process.finish_job(),
            990..997 => self.pass_time(),
            997 => self.disk.fail(Operation::Sync, self.random.below(4), Fault::Broken),
            998 => self.disk.fail(Operation::Write, self.random.below(4), Fault::Broken),
            _ if self.random.one_in(2) => self.crash()?,
            _ => {}
        }
        // Leases wait for time more than for anything else.
        if matches!(self.load, Load::Leases(_)) && self.random.one_in(80) {
            match self.random.one_in(12) {
                true => self.set_clock(),
                false => self.pass(10),
            }
        }
        Ok(())
    }

    fn poll(&mut self, task: usize) {
        let mut context = Context::from_waker(Waker::noop());
        if self.tasks[task].as_mut().poll(&mut context).is_ready() {
            self.tasks[task] = Box::pin(std::future::pending());
        }
    }

    fn pass_time(&mut self) {
        self.pass(50);
    }

    fn pass(&mut self, most_ms: u64) {
        let (now, passed) = (self.clock.get(), 1 + self.random.below(most_ms));
        self.clock.set(Now { ticks_ms: now.ticks_ms + passed, wall_ms: now.wall_ms + passed });
    }

    /// The wall clock is set, by up to two hours from where it began.
    fn set_clock(&mut self) {
        let ticks_ms = self.clock.get().ticks_ms + 1;
        let least_ms = BEGINS_MS + ticks_ms - SET_BY_MS;
        let wall_ms = match self.random.one_in(2) {
            true => least_ms + self.random.below(2 * SET_BY_MS),
            // A little.
            false => self.clock.get().wall_ms + 1 + self.random.below(3000),
        };
        self.clock.set(Now { ticks_ms, wall_ms: wall_ms.min(least_ms + 2 * SET_BY_MS) });
        if let Load::Leases(world) = &self.load {
            world.ledger.borrow_mut().clock_set();
        }
    }

    /// The machine or the process ends, perhaps in a write, and starts again.
    fn crash(&mut self) -> Result<(), String> {
        self.crashes += 1;
        if self.random.one_in(2) {
            self.disk.fail(Operation::Any, self.random.below(4), Fault::Dead);
            self.process.write();
        }
        self.tasks.clear();
        let of_machine = self.random.one_in(2);
        match of_machine {
            true => self.disk.crash(),
            false => self.disk.restart(),
        }
        self.disk.clear_faults();
        self.settings.iter_mut().for_each(|own| own.incarnation += 1);
        let ended_ms = self.clock.get().ticks_ms;
        if matches!(self.load, Load::Leases(_)) {
            // It was down for a while.
            self.pass_time();
            if self.random.one_in(4) {
                self.set_clock();
            }
        }
        self.process = start(&self.disk, self.journal, self.cores, &self.settings, &self.clock)?;
        match &self.load {
            Load::Queues(world) => world.ledger.borrow_mut().crashed(),
            Load::Leases(world) => {
                // They learn the time, from which on their leases last.
                (0..usize::from(self.cores)).for_each(|core| self.process.turn(core));
                world.ledger.borrow_mut().crashed(ended_ms, of_machine);
            }
        }
        self.begin_clients();
        Ok(())
    }

    /// After a last crash every queue is read to its end.
    fn finish(&mut self) -> Result<(), String> {
        self.crash()?;
        self.tasks.clear();
        match &self.load {
            Load::Queues(world) => {
                let world = world.clone();
                for queue in 0..QUEUES {
                    let client = self.client("drain");
                    self.tasks.push(Box::pin(drain(client, world.clone(), queue)));
                }
            }
            Load::Leases(world) => {
                let world = world.clone();
                // All leases and delays are over.
                let now = self.clock.get();
                let (ticks_ms, wall_ms) = (now.ticks_ms + 4 * SET_BY_MS, now.wall_ms + 4 * SET_BY_MS);
                self.clock.set(Now { ticks_ms, wall_ms });
                for queue in 0..world.queues.len() {
                    let client = self.client("read out");
                    self.tasks.push(Box::pin(read_out(client, world.clone(), queue)));
                }
            }
        }
        let (mut quiet, mut last) = (0, 0);
        for _ in 0..ROUNDS_MAX {
            self.round();
            let read_out = self.load.read_out();
            quiet = if read_out == last { quiet + 1 } else { 0 };
            last = read_out;
            if quiet == QUIET_ROUNDS {
                break;
            }
        }
        Ok(())
    }

    /// All have a turn.
    fn round(&mut self) {
        self.pass_time();
        (0..self.tasks.len()).for_each(|task| self.poll(task));
        for core in 0..usize::from(self.cores) {
            self.process.turn(core);
            self.process.push(core, usize::MAX);
        }
        self.process.write();
        self.process.send_out();
        self.process.run_job();
        self.process.finish_job();
    }
}

fn start(
    disk: &SimulatedDisk,
    journal: Options,
    cores: u16,
    settings: &[Settings],
    clock: &Rc<Cell<Now>>,
) -> Result<Cores, String> {
    let equip = |partition: &mut Partition| {
        equip(partition);
        partition.read_properties_by(properties_of);
    };
    let recovered = recover(disk, journal, Keys::default(), settings, equip);
    let recovered = recovered.map_err(|error| format!("{error:?}"))?;
    Ok(Cores::start(cores, recovered, disk, settings[0].placement, clock))
}
