//! The journal's two threads: one writes and syncs, the other does what may take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postroad_journal::RealDisk;
use postroad_replication::{Job, JobDone, LogWriter, ToPartition, ToWriter, Trouble};

use crate::runtime::core::owner;
use crate::runtime::ring::{Receiver, ThreadWaker, WakingSender};

/// After a failure, how long until the next attempt to go on; and how often a full disk is looked at again.
const RETRY: Duration = Duration::from_millis(250);

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

/// Starts both threads; the first one's handle wakes it.
pub fn start(
    disk: RealDisk,
    writer: LogWriter<RealDisk>,
    links: JournalLinks,
    waker: &ThreadWaker,
) -> std::io::Result<JoinHandle<()>> {
    let (jobs, job_list) = mpsc::channel::<Job<File>>();
    let (done, results) = mpsc::channel::<JobDone<File>>();
    let journal = thread::Builder::new().name("journal".into()).spawn(move || {
        Writing { writer, links, jobs, results, retry_at: None, reported: Trouble::default() }.run()
    })?;
    waker.set(journal.thread().clone());
    let waker = journal.thread().clone();
    thread::Builder::new().name("journal-jobs".into()).spawn(move || {
        while let Ok(job) = job_list.recv() {
            if done.send(job.run(&disk)).is_err() {
                return;
            }
            waker.unpark();
        }
    })?;
    Ok(journal)
}

struct Writing {
    writer: LogWriter<RealDisk>,
    links: JournalLinks,
    jobs: mpsc::Sender<Job<File>>,
    results: mpsc::Receiver<JobDone<File>>,
    retry_at: Option<Instant>,
    /// What of the writer's trouble the log tells already.
    reported: Trouble,
}

impl Writing {
    fn run(mut self) {
        loop {
            let stopping = self.links.stop.load(Ordering::Acquire);
            self.take_in();
            self.writer.write();
            self.retry();
            self.send_out();
            if stopping && !self.writer.has_records() {
                return;
            }
            self.rest();
        }
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
        let Trouble { segment, checkpoint } = self.writer.trouble();
        let jobs = [
            ("next segment", &self.reported.segment, segment),
            ("checkpoint", &self.reported.checkpoint, checkpoint),
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
            if self.jobs.send(job).is_err() {
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

    /// Sleeps until there is something to do. A wake-up that comes earlier is kept, so none is missed.
    fn rest(&self) {
        match self.retry_at {
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}
