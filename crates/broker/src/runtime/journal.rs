//! The journal's threads: one writes and syncs, one does what takes longer, one what may take as long as it likes.
//!
//! Who writes holds the journal's turn: its thread, or a core that is alone ([`JournalDoor::write_here`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postroad_journal::RealDisk;
use postroad_replication::{Job, JobDone, LogWriter, ToPartition, ToWriter, Trouble};

use crate::runtime::core::owner;
use crate::runtime::ring::{Receiver, ThreadWaker, Wake, WakingSender};

/// After a failure, how long until the next attempt to go on; and how often a full disk is looked at again.
const RETRY: Duration = Duration::from_millis(250);

/// Compaction rests so many times as long as its last step took: it gets this part of the disk's time and no more,
/// however fast the disk is, so that no reader or writer notices it.
const REST_SHARE: u32 = 4;

/// ... but no longer than this, should one step hang.
const REST_MAX: Duration = Duration::from_secs(1);

type File = <RealDisk as postroad_journal::Disk>::File;

/// The journal thread's ends of its rings.
pub struct JournalLinks {
    /// From each core.
    pub from_cores: Vec<Receiver<ToWriter>>,
    /// To each core.
    pub to_cores: Vec<WakingSender<ToPartition>>,
    /// Set once every core has stopped.
    pub stop: Arc<AtomicBool>,
}

/// The way of a core to the journal. What it has for it lies in its ring.
#[derive(Clone)]
pub struct JournalDoor {
    writing: Arc<Mutex<Writing>>,
    waker: Arc<ThreadWaker>,
}

impl JournalDoor {
    /// Has the journal's thread write what is in the rings, beside the caller.
    pub fn hand_over(&self) {
        self.waker.wake();
    }

    /// Writes what is in the rings here and now: two switches of threads less, and the caller waits for the disk. `false`,
    /// at once, if the journal's thread is at work or the journal is in trouble.
    pub fn write_here(&self) -> bool {
        let Ok(mut writing) = self.writing.try_lock() else { return false };
        if writing.writer.wants_retry() {
            return false;
        }
        writing.pass();
        if writing.writer.wants_retry() {
            // Time is kept by its thread.
            self.waker.wake();
        }
        true
    }
}

/// Starts all three; the first one's handle wakes it.
pub fn start(
    disk: RealDisk,
    writer: LogWriter<RealDisk>,
    links: JournalLinks,
    waker: &Arc<ThreadWaker>,
) -> std::io::Result<(JoinHandle<()>, JournalDoor)> {
    let (jobs, job_list) = mpsc::channel::<Job<File>>();
    let (background, background_list) = mpsc::channel::<Job<File>>();
    let (done, results) = mpsc::channel::<JobDone<File>>();
    let stop = links.stop.clone();
    let reported = Trouble::default();
    let writing = Writing { writer, links, jobs, background, results, retry_at: None, reported };
    let writing = Arc::new(Mutex::new(writing));
    let door = JournalDoor { writing: writing.clone(), waker: waker.clone() };
    let journal = thread::Builder::new().name("journal".into()).spawn(move || serve(&writing, &stop))?;
    waker.set(journal.thread().clone());
    let workers = [("journal-jobs", job_list, 0), ("journal-background", background_list, REST_SHARE)];
    for (name, list, rest_share) in workers {
        let worker =
            Worker { disk: disk.clone(), list, done: done.clone(), journal: journal.thread().clone() };
        thread::Builder::new().name(name.into()).spawn(move || worker.run(rest_share))?;
    }
    Ok((journal, door))
}

/// A thread that does jobs.
struct Worker {
    disk: RealDisk,
    list: mpsc::Receiver<Job<File>>,
    done: mpsc::Sender<JobDone<File>>,
    journal: thread::Thread,
}

impl Worker {
    fn run(self, rest_share: u32) {
        while let Ok(job) = self.list.recv() {
            let mut began = Instant::now();
            let mut rest = || {
                thread::sleep((began.elapsed() * rest_share).min(REST_MAX));
                began = Instant::now();
            };
            let done = job.run(&self.disk, &mut rest);
            if self.done.send(done).is_err() {
                return;
            }
            self.journal.unpark();
        }
    }
}

/// The journal's thread, until it is to stop and everything is written.
fn serve(writing: &Mutex<Writing>, stop: &AtomicBool) {
    loop {
        let stopping = stop.load(Ordering::Acquire);
        // A thread that panicked in the middle of a write leaves a journal that nobody may go on with.
        let Ok(mut turn) = writing.lock() else { return };
        turn.pass();
        let (done, retry_at) = (!turn.writer.has_records(), turn.retry_at);
        drop(turn);
        if stopping && done {
            return;
        }
        rest(retry_at);
    }
}

/// Sleeps until there is something to do. A wake-up that comes earlier is kept, so none is missed.
fn rest(retry_at: Option<Instant>) {
    match retry_at {
        Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
        None => thread::park(),
    }
}

struct Writing {
    writer: LogWriter<RealDisk>,
    links: JournalLinks,
    jobs: mpsc::Sender<Job<File>>,
    background: mpsc::Sender<Job<File>>,
    results: mpsc::Receiver<JobDone<File>>,
    retry_at: Option<Instant>,
    /// What of the writer's trouble the log tells already.
    reported: Trouble,
}

impl Writing {
    /// Takes in what is there, writes it, and reports.
    fn pass(&mut self) {
        self.take_in();
        self.writer.write();
        self.retry();
        self.send_out();
    }

    fn take_in(&mut self) {
        for ring in &mut self.links.from_cores {
            while let Some(message) = ring.pop() {
                self.writer.push(message);
            }
        }
        while let Ok(done) = self.results.try_recv() {
            self.writer.finish(done);
            self.report();
        }
    }

    /// Logs what has begun to fail and what works again, each once.
    fn report(&mut self) {
        let Trouble { segment, checkpoint, compaction } = self.writer.trouble();
        let jobs = [
            ("next segment", &self.reported.segment, segment),
            ("checkpoint", &self.reported.checkpoint, checkpoint),
            ("compaction", &self.reported.compaction, compaction),
        ];
        for (job, before, now) in jobs {
            match (before, now) {
                (None, Some(reason)) => tracing::warn!(job, reason, "the journal does without; trying again"),
                (Some(_), None) => tracing::info!(job, "the journal has what it lacked"),
                _ => {}
            }
        }
        self.reported = self.writer.trouble().clone();
    }

    fn retry(&mut self) {
        if self.writer.wants_retry() && self.retry_at.is_none() {
            self.retry_at = Some(Instant::now() + RETRY);
        }
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            self.writer.retry();
        }
    }

    fn send_out(&mut self) {
        while let Some(job) = self.writer.next_job() {
            let thread = if job.is_background() { &self.background } else { &self.jobs };
            if thread.send(job).is_err() {
                tracing::error!("the thread for journal housekeeping is gone");
            }
        }
        let cores = self.links.to_cores.len() as u16;
        while let Some(message) = self.writer.next_message() {
            match (message.partition(), message) {
                (Some(partition), message) => {
                    self.links.to_cores[usize::from(owner(partition, cores))].sender.send(message);
                }
                (None, ToPartition::Space { ample }) => {
                    for core in &mut self.links.to_cores {
                        core.sender.send(ToPartition::Space { ample });
                    }
                }
                (None, _) => {}
            }
        }
        for core in &mut self.links.to_cores {
            core.flush();
        }
    }
}
