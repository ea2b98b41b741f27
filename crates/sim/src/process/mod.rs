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
mod ledger;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use postroad_core::Settings;
use postroad_journal::{Fault, Keys, Operation, Options, SimulatedDisk};
use postroad_model::{Destination, Now, PartitionId, Placement};
use postroad_node::{ClientOptions, LocalClient, equip};

use self::clients::{World, consume, drain, produce};
use self::cores::Cores;
use self::ledger::Ledger;
use crate::assembly::recover;
use crate::random::Random;

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
    /// Ends of the machine or the process.
    pub crashes: u64,
}

impl ProcessReport {
    /// Adds another run.
    pub fn add(&mut self, other: &ProcessReport) {
        self.confirmed += other.confirmed;
        self.delivered += other.delivered;
        self.settled += other.settled;
        self.crashes += other.crashes;
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
    world: World,
    producers: u64,
    process: Cores,
    /// Clients and their mailboxes.
    tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    crashes: u64,
}

impl ProcessRun {
    /// Does everything that follows from the seed, in this number of steps.
    ///
    /// # Errors
    /// The broken promise.
    pub fn run(seed: u64, steps: u64) -> Result<ProcessReport, String> {
        let mut run = ProcessRun::new(seed)?;
        run.begin_clients();
        for _ in 0..steps {
            run.step()?;
            let broken = run.world.ledger.borrow().broken.clone();
            broken.map_or(Ok(()), Err)?;
        }
        run.finish()
    }

    fn new(seed: u64) -> Result<ProcessRun, String> {
        let mut random = Random::new(seed);
        let partitions = 1 + random.below(5) as u16;
        let cores = 1 + random.below(3) as u16;
        let placement = Placement::over(partitions);
        let settings: Vec<Settings> = (0..partitions)
            .map(|id| Settings {
                resident_bytes_max: 2 << 10,
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
        let queues = (0..QUEUES).map(|number| Destination::queue(&format!("q{number}"))).collect();
        let ledger = Rc::new(RefCell::new(Ledger::default()));
        let world = World { queues, ledger, is_alone: random.one_in(2) };
        let clock = Rc::new(Cell::new(Now { ticks_ms: 1_000, wall_ms: 1_000_000 }));
        let process = start(&disk, journal, cores, &settings, &clock)?;
        let (tasks, producers, crashes) = (Vec::new(), 0, 0);
        Ok(ProcessRun {
            random,
            disk,
            journal,
            cores,
            settings,
            clock,
            world,
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
        for _ in 0..1 + self.random.below(3) {
            self.producers += 1;
            let (client, random) = (self.client("producer"), Random::new(self.random.number()));
            self.tasks.push(Box::pin(produce(client, self.world.clone(), self.producers, random)));
        }
        for queue in 0..QUEUES {
            for _ in 0..if self.world.is_alone { 1 } else { 2 } {
                let (client, random) = (self.client("consumer"), Random::new(self.random.number()));
                self.tasks.push(Box::pin(consume(client, self.world.clone(), queue, random)));
            }
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
        Ok(())
    }

    fn poll(&mut self, task: usize) {
        let mut context = Context::from_waker(Waker::noop());
        if self.tasks[task].as_mut().poll(&mut context).is_ready() {
            self.tasks[task] = Box::pin(std::future::pending());
        }
    }

    fn pass_time(&mut self) {
        let (now, passed) = (self.clock.get(), 1 + self.random.below(50));
        self.clock.set(Now { ticks_ms: now.ticks_ms + passed, wall_ms: now.wall_ms + passed });
    }

    /// The machine or the process ends, perhaps in a write, and starts again.
    fn crash(&mut self) -> Result<(), String> {
        self.crashes += 1;
        if self.random.one_in(2) {
            self.disk.fail(Operation::Any, self.random.below(4), Fault::Dead);
            self.process.write();
        }
        self.tasks.clear();
        match self.random.one_in(2) {
            true => self.disk.crash(),
            false => self.disk.restart(),
        }
        self.disk.clear_faults();
        self.world.ledger.borrow_mut().crashed();
        self.settings.iter_mut().for_each(|own| own.incarnation += 1);
        self.process = start(&self.disk, self.journal, self.cores, &self.settings, &self.clock)?;
        self.begin_clients();
        Ok(())
    }

    /// After a last crash every queue is read to its end.
    fn finish(mut self) -> Result<ProcessReport, String> {
        self.crash()?;
        self.tasks.clear();
        for queue in 0..QUEUES {
            let client = self.client("drain");
            self.tasks.push(Box::pin(drain(client, self.world.clone(), queue)));
        }
        let (mut quiet, mut last) = (0, 0);
        for _ in 0..ROUNDS_MAX {
            self.round();
            let settled = self.world.ledger.borrow().settled;
            quiet = if settled == last { quiet + 1 } else { 0 };
            last = settled;
            if quiet == QUIET_ROUNDS {
                break;
            }
        }
        let mut ledger = self.world.ledger.borrow_mut();
        ledger.ended();
        let (confirmed, delivered, settled) = (ledger.confirmed, ledger.delivered, ledger.settled);
        let report = ProcessReport { confirmed, delivered, settled, crashes: self.crashes };
        ledger.broken.take().map_or(Ok(report), Err)
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
    let recovered = recover(disk, journal, Keys::default(), settings, equip);
    let recovered = recovered.map_err(|error| format!("{error:?}"))?;
    Ok(Cores::start(cores, recovered, disk, settings[0].placement, clock))
}
