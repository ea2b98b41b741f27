//! Cores, rings and the journal's writer of one process, each moved on by a choice of the caller.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use postroad_core::Partition;
use postroad_journal::{Disk, Journal, SimulatedDisk};
use postroad_model::{Now, PartitionId, PartitionRange, Placement};
use postroad_node::{
    Core, CoreHandle, JournalWriter, Links, LogLink, LogRing, Receiver, Share, ToCore, Wake, WakingSender,
    owner, read_portable, ring,
};
use postroad_openwire::Advisories;
use postroad_replication::{Job, JobDone, LogWriter, ToPartition, ToWriter};
use tokio::sync::Notify;

use crate::places::Places;

type File = <SimulatedDisk as Disk>::File;

/// Payloads are sorted in several chunks for each segment.
const SORTED_BYTES: u64 = 2 << 10;

/// Bytes that connections of a core may have outstanding together.
const SHARE_BYTES: u64 = 1 << 20;

/// The journal's thread of the simulation has turns of its own: cores do not call it.
struct WrittenElsewhere;

impl JournalWriter for WrittenElsewhere {
    fn hand_over(&self) {}

    fn write_here(&self) -> bool {
        false
    }
}

/// See the head of this file.
pub struct Cores {
    /// The cores, as clients join them.
    pub handles: Vec<CoreHandle>,
    rings: Vec<(Receiver<ToWriter>, WakingSender<ToPartition>)>,
    writer: LogWriter<SimulatedDisk>,
    disk: SimulatedDisk,
    jobs: VecDeque<Job<File>>,
    done: VecDeque<JobDone<File>>,
}

impl Cores {
    /// Cores over recovered partitions, started.
    pub fn start(
        cores: u16,
        (mut journal, mut partitions): (Journal<SimulatedDisk>, BTreeMap<PartitionId, Partition>),
        disk: &SimulatedDisk,
        placement: Placement,
        clock: &Rc<Cell<Now>>,
    ) -> Cores {
        let found = Places::over(placement, Arc::default()).found(&mut partitions);
        journal.sort_by(postroad_core::sort_key_of_record, SORTED_BYTES);
        journal.shorten_by(postroad_core::shorten_record);
        let writer = LogWriter::new(journal, partitions.keys().copied());
        let wakes: Vec<Arc<Notify>> = (0..cores).map(|_| Arc::new(Notify::new())).collect();
        let mut meshes = mesh(&wakes);
        let (mut handles, mut rings) = (Vec::new(), Vec::new());
        for (number, wake) in (0..cores).zip(&wakes) {
            let (sender, from_core) = ring(wake.clone());
            let (to_core, receiver) = ring(wake.clone());
            rings.push((from_core, WakingSender { sender: to_core, waker: wake.clone() }));
            let range = PartitionRange { first: PartitionId(0), count: placement.partitions };
            let (to_cores, from_cores) = meshes.remove(0);
            let journal = Box::new(WrittenElsewhere);
            let logs = vec![LogLink { range, ring: LogRing { sender, receiver }, journal }];
            let own = partitions.extract_if(.., |id, _| owner(*id, cores) == number).collect();
            let advisories = Advisories::new(("sim", "ID:sim"), "tcp://sim", number, read_portable);
            let clock = clock.clone();
            let mut core = Core::new(
                number,
                node_places(placement, &found),
                own,
                Links { to_cores, from_cores, logs },
                advisories,
                Rc::new(move || clock.get()),
            );
            core.start();
            let share = Rc::new(Share::new(SHARE_BYTES));
            handles.push(CoreHandle { core: Rc::new(RefCell::new(core)), wake: wake.clone(), share });
        }
        let (jobs, done) = (VecDeque::new(), VecDeque::new());
        Cores { handles, rings, writer, disk: disk.clone(), jobs, done }
    }

    /// A core takes messages of the others and of the journal, and sends its own.
    pub fn turn(&self, core: usize) {
        let mut core = self.handles[core].core.borrow_mut();
        core.turn();
        // Their own time is real, which a run could not repeat.
        core.flush_lazy();
    }

    /// The journal's thread takes in up to `most` messages of a core.
    pub fn push(&mut self, core: usize, most: usize) {
        for _ in 0..most {
            let Some(message) = self.rings[core].0.pop() else { return };
            self.writer.push(message);
        }
    }

    /// The journal's thread writes the gathered records.
    pub fn write(&mut self) {
        if self.writer.has_records() {
            self.writer.write();
        }
    }

    /// The journal's thread sends its events to the cores, and jobs to the threads beside it.
    pub fn send_out(&mut self) {
        self.jobs.extend(std::iter::from_fn(|| self.writer.next_job()));
        let cores = self.rings.len() as u16;
        while let Some(message) = self.writer.next_message() {
            match (message.partition(), message) {
                (Some(id), message) => {
                    self.rings[usize::from(owner(id, cores))].1.sender.send(message);
                }
                (None, ToPartition::Space { ample }) => {
                    for (_, to_core) in &mut self.rings {
                        to_core.sender.send(ToPartition::Space { ample });
                    }
                }
                (None, _) => {}
            }
        }
        self.rings.iter_mut().for_each(|(_, to_core)| to_core.flush());
    }

    /// One of the threads beside the journal does its next job.
    pub fn run_job(&mut self) {
        if let Some(job) = self.jobs.pop_front() {
            self.done.push_back(job.run(&self.disk, &mut ()));
        }
    }

    /// The journal's thread takes in the result of a job, and tries again what failed.
    pub fn finish_job(&mut self) {
        if let Some(done) = self.done.pop_front() {
            self.writer.finish(done);
        }
        if self.writer.wants_retry() {
            self.writer.retry();
        }
    }
}

type Ways = (Vec<Option<WakingSender<ToCore>>>, Vec<Receiver<ToCore>>);

/// A ring from each core to each other one.
fn mesh(wakes: &[Arc<Notify>]) -> Vec<Ways> {
    let mut ways: Vec<Ways> = wakes.iter().map(|_| Ways::default()).collect();
    for from in 0..wakes.len() {
        for to in 0..wakes.len() {
            if from == to {
                ways[from].0.push(None);
                continue;
            }
            let (sender, receiver) = ring(wakes[from].clone() as Arc<dyn Wake>);
            ways[from].0.push(Some(WakingSender { sender, waker: wakes[to].clone() }));
            ways[to].1.push(receiver);
        }
    }
    ways
}

fn node_places(placement: Placement, found: &Places) -> postroad_node::Places {
    postroad_node::Places {
        placement,
        addressing: found.addressing(),
        keys: Arc::default(),
        permissions: Arc::default(),
        draining: Default::default(),
        tenants: Default::default(),
        traces: None,
        offline_ends: Default::default(),
    }
}
