//! The journal's threads: one writes and syncs, the others do longer work.
//!
//! Who writes holds the journal's turn: its thread, or a core that is alone
//! ([`JournalDoor::write_here`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use postroad_admin::JournalFigures;
use postroad_cluster::{ChangeError, EntryId, Index, MemberChange, Members, NodeId, NodeRecord, Role, Term};
use postroad_core::Partition;
use postroad_journal::{Backup, Log2Histogram, Pace, RealDisk};
use postroad_model::PartitionId;
use postroad_replication::{
    FailedWork, Gathered, Job, JobDone, JobKind, LogWriter, ToPartition, ToWriter, Written, WrittenTimes,
};

use crate::runtime::cluster::Participant;
use crate::runtime::durations::{Durations, distribution};
use crate::runtime::ticks_us;
use crate::runtime::written_groups::WrittenGroups;
use postroad_node::{JournalWriter, owner};
use postroad_node::{Receiver, ThreadWaker, Wake, WakingSender};

/// After a failure, how long until the next attempt to go on; and how often a full disk is looked
/// at again.
const RETRY: Duration = Duration::from_millis(250);

/// The thread for one kind of job.
struct WorkerKind {
    jobs: JobKind,
    name: &'static str,
    /// How many times as long as a step took it rests behind it, if a group was written meanwhile:
    /// checkpoints get half of the disk's time, compaction a fifth, however fast the disk is, so
    /// that no reader or writer notices them.
    rest_share: u32,
    /// How far it gives way to others while the processors are busy, as `nice` counts.
    nice: i32,
}

const WORKERS: [WorkerKind; 5] = [
    WorkerKind { jobs: JobKind::Read, name: "journal-reads", rest_share: 0, nice: 0 },
    WorkerKind { jobs: JobKind::Segment, name: "journal-segment", rest_share: 0, nice: 0 },
    WorkerKind { jobs: JobKind::Checkpoint, name: "journal-state", rest_share: 1, nice: 0 },
    // A tenth of the usual share: no client waits for it, and it goes on for as long as a backlog
    // grows.
    WorkerKind { jobs: JobKind::Sort, name: "journal-sort", rest_share: 1, nice: 10 },
    WorkerKind { jobs: JobKind::Background, name: "journal-compact", rest_share: 4, nice: 0 },
];

/// Interval in which a sealed segment is read for damage: with 64 MiB to each, 90 GB a day.
const SCRUB_EVERY: Duration = Duration::from_secs(60);

/// The same while damage is suspected.
const SCRUB_SUSPECTED_EVERY: Duration = Duration::from_millis(20);

/// Messages that are confirmed within this time after the directory was removed are lost with it.
const PLACE_EVERY: Duration = Duration::from_secs(1);

/// A journal that is idle for this time is sealed: from then on damage to its last group is
/// recognised.
const SEAL_AFTER: Duration = Duration::from_secs(1);

/// How long a broker that stops waits for its last checkpoint; without it the next start has more
/// to do.
const LAST_CHECKPOINT: Duration = Duration::from_secs(10);

/// How long a leader that ends waits for another to take over.
const HAND_OVER: Duration = Duration::from_secs(1);

/// The longest rest, should one step hang.
const REST_MAX: Duration = Duration::from_secs(1);

/// How long the next segment's zeros wait for the groups to come nearer: at 500 MB/s these fill 25
/// MB in the longest wait, and that much is ready.
const WAIT_MIN: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_millis(50);

type File = <RealDisk as postroad_journal::Disk>::File;

const THREAD_GONE: &str = "the journal thread has ended";

/// The journal thread's ends of its rings.
pub struct JournalLinks {
    /// From each core.
    pub from_cores: Vec<Receiver<ToWriter>>,
    /// To each core.
    pub to_cores: Vec<WakingSender<ToPartition>>,
    /// Set once every core has stopped.
    pub stop: Arc<AtomicBool>,
}

/// The journal of one of the stores.
#[derive(Clone)]
pub struct NamedDoor {
    /// Name of the store.
    pub store: Arc<str>,
    /// Its directory.
    pub path: PathBuf,
    /// The way to its journal.
    pub door: JournalDoor,
}

impl NamedDoor {
    /// Begins backups of all stores as they are at one moment, each in an empty directory on the
    /// same device as the store; to be finished without holding the journals up. None of them
    /// writes until each file has a further name, so that no transaction over several is in one and
    /// not in another.
    ///
    /// # Errors
    /// Why there is none.
    pub fn back_up_all(doors: &[NamedDoor], to: &[RealDisk]) -> anyhow::Result<Vec<Backup>> {
        let mut turns = Vec::with_capacity(doors.len());
        // No other thread holds two turns, so they are taken in any order.
        for NamedDoor { store, door, .. } in doors {
            let Ok(turn) = door.writing.lock() else { bail!("the journal thread of {store} has ended") };
            turns.push(turn);
        }
        let backups = turns.iter_mut().zip(to).map(|(turn, to)| turn.writer.back_up(to));
        let backups = backups.collect::<Result<Vec<_>, _>>()?;
        drop(turns);
        // Time is kept by their threads.
        doors.iter().for_each(|door| door.door.waker.wake());
        Ok(backups)
    }

    /// Why nothing is written, if that is so. Waits for its turn.
    pub fn broken(&self) -> Option<String> {
        match self.door.writing.lock() {
            Ok(writing) => writing.writer.trouble_with_writing().map(str::to_owned),
            Err(_) => Some(THREAD_GONE.to_owned()),
        }
    }

    /// How the journal is. Waits for its turn.
    pub fn figures(&self) -> JournalFigures {
        let gone = || JournalFigures { broken: Some(THREAD_GONE.to_owned()), ..JournalFigures::default() };
        JournalFigures { store: self.store.to_string(), ..self.door.figures().unwrap_or_else(gone) }
    }
}

/// A core's access to the journal. Its proposals lie in its ring.
#[derive(Clone)]
pub struct JournalDoor {
    writing: Arc<Mutex<Writing>>,
    waker: Arc<ThreadWaker>,
}

impl JournalDoor {
    /// How the journal is; `None` if its thread is gone. Waits for the journal's turn.
    fn figures(&self) -> Option<JournalFigures> {
        Some(self.writing.lock().ok()?.figures())
    }

    /// This node leads: takes its partitions, for cores that are reached by these rings from now
    /// on. `None` if it does not lead any more.
    pub fn lead(&self) -> Option<(BTreeMap<PartitionId, Partition>, Term)> {
        let mut writing = self.writing.lock().ok()?;
        let Writing { writer, participant, .. } = &mut *writing;
        participant.as_mut()?.take_partitions(writer)
    }

    /// The cores of a deposed leader are not reached any more: everything that it reported to them
    /// is in their rings, and nothing that they send is taken.
    pub fn detach(&self) {
        if let Ok(mut writing) = self.writing.lock() {
            (writing.links.from_cores, writing.links.to_cores) = (Vec::new(), Vec::new());
        }
    }

    /// The partitions of a deposed leader follow from now on.
    pub fn return_partitions(&self, partitions: BTreeMap<PartitionId, Partition>) {
        if let Ok(mut writing) = self.writing.lock() {
            let Writing { writer, participant, .. } = &mut *writing;
            if let Some(participant) = participant {
                participant.return_partitions(writer, partitions);
            }
        }
        self.waker.wake();
    }

    /// Hands leadership to this node; to the one that has most of the log, if none is named. See
    /// [`postroad_replication::Leadership::hand_over`].
    pub fn transfer(&self, to: Option<NodeId>) {
        if let Ok(mut writing) = self.writing.lock() {
            writing.writer.leadership().hand_over(to);
        }
        self.waker.wake();
    }

    /// Changes the members of the group by one; `None` if the journal's thread is gone. See
    /// [`postroad_cluster::Group::propose_change`].
    pub fn change_members(
        &self,
        change: MemberChange,
        records: &BTreeMap<NodeId, NodeRecord>,
    ) -> Option<Result<(), ChangeError>> {
        let changed = self.writing.lock().ok()?.writer.leadership().change_members(change, records);
        self.waker.wake();
        Some(changed)
    }

    /// This mirror takes the place of all others in these stores, by number: the process begins
    /// again, and leads.
    ///
    /// # Errors
    /// See [`postroad_replication::Leadership::succeed`]; a journal's thread is gone. With several
    /// stores the error names the one that it is about; those before it have succeeded.
    pub fn succeed(stores: &[(u16, JournalDoor)]) -> anyhow::Result<()> {
        // The process begins again once one of them is released.
        let mut all = Vec::new();
        for (store, door) in stores {
            let Ok(writing) = door.writing.lock() else { bail!(THREAD_GONE) };
            all.push((*store, writing));
        }
        let mut succeed = all.iter_mut().map(|(store, writing)| {
            let succeeded = writing.writer.leadership().succeed().map_err(anyhow::Error::msg);
            succeeded.with_context(|| format!("store {store}"))
        });
        let succeeded = succeed.try_for_each(|succeeded| succeeded);
        drop(all);
        stores.iter().for_each(|(_, door)| door.waker.wake());
        succeeded
    }

    /// The term in which this node leads. Waits for the journal's turn.
    pub fn leads(&self) -> Option<Term> {
        self.writing.lock().ok()?.writer.replica()?.leads_now()
    }

    /// Begins a copy of the store for another node, in an empty directory on the same device. The
    /// log after it stays until [`JournalDoor::release_log`]. Returns the term in which this one
    /// leads, the last entry and the members in force; `None` if it does not lead.
    ///
    /// # Errors
    /// The disk refuses, or the journal's thread is gone.
    pub fn copy(&self, to: &RealDisk) -> anyhow::Result<Option<(Backup, Term, EntryId, Members)>> {
        let Ok(mut writing) = self.writing.lock() else { bail!(THREAD_GONE) };
        let Some(replica) = writing.writer.replica() else { return Ok(None) };
        let (Some(term), last) = (replica.leads_now(), replica.stored_last()) else { return Ok(None) };
        let members = replica.members().clone();
        let backup = writing.writer.back_up(to)?;
        writing.writer.leadership().keep_log_after(Some(last.index));
        drop(writing);
        // Time is kept by its thread.
        self.waker.wake();
        Ok(Some((backup, term, last, members)))
    }

    /// The log after the last copy need not stay any more.
    pub fn release_log(&self) {
        if let Ok(mut writing) = self.writing.lock() {
            writing.writer.leadership().keep_log_after(None);
        }
    }

    /// The term, the last entry that a former log has, too, which is the default if there is none,
    /// and the members; `None` if this node does not lead. See [`JournalLog::shared_with`].
    ///
    /// [`JournalLog::shared_with`]: postroad_cluster::JournalLog::shared_with
    pub fn shared_with(&self, runs: &[EntryId], last: Index) -> Option<(Term, EntryId, Members)> {
        let writing = self.writing.lock().ok()?;
        let replica = writing.writer.replica()?;
        let term = replica.leads_now()?;
        Some((term, replica.shared_with(runs, last).unwrap_or_default(), replica.members().clone()))
    }

    /// Reads all sealed segments for damage, from now on and without a pause.
    pub fn suspect_damage(&self) {
        if let Ok(mut writing) = self.writing.lock() {
            writing.scrubs = Scrubs { next_at: Instant::now(), suspected: usize::MAX };
        }
        self.waker.wake();
    }

    /// Has the journal serve these rings.
    pub fn attach(&self, links: JournalLinks) {
        if let Ok(mut writing) = self.writing.lock() {
            writing.links = links;
        }
        self.waker.wake();
    }

    /// The broker ends: see [`LogWriter::expect_last_snapshots`].
    pub fn expect_last_snapshots(&self) {
        if let Ok(mut writing) = self.writing.lock() {
            writing.writer.expect_last_snapshots();
        }
    }
}

impl JournalWriter for JournalDoor {
    fn hand_over(&self) {
        self.waker.wake();
    }

    fn write_here(&self) -> bool {
        let Ok(mut writing) = self.writing.try_lock() else { return false };
        if writing.writer.wants_retry() || writing.writer.awaits_segment() {
            return false;
        }
        writing.pass();
        if writing.writer.wants_retry() || writing.is_due_before_its_thread_looks() {
            // Time is kept by its thread.
            self.waker.wake();
        }
        true
    }
}

/// Starts all threads; the handle belongs to the one that writes, and wakes it. Their log lines
/// name the store, if there are several.
pub fn start(
    store: Option<&str>,
    disk: RealDisk,
    (writer, participant): (LogWriter<RealDisk>, Option<Participant>),
    links: JournalLinks,
    sync_within: Duration,
    waker: &Arc<ThreadWaker>,
) -> std::io::Result<(JoinHandle<()>, JournalDoor)> {
    let (done, results) = mpsc::channel::<JobDone<File>>();
    let (jobs, lists): (Vec<_>, Vec<_>) = WORKERS.iter().map(|_| mpsc::channel::<Job<File>>()).unzip();
    let (stop, workers_stop) = (links.stop.clone(), links.stop.clone());
    let reported = FailedWork::default();
    let groups = Arc::new(AtomicU64::new(0));
    // There may be no writes for a long time.
    let seal_at = writer.must_leave().then(|| Instant::now() + SEAL_AFTER);
    let writing = Writing {
        writer,
        participant,
        links,
        jobs,
        results,
        retry_at: None,
        sync_at: None,
        sync_within,
        seal_at,
        thread_looks_at: Instant::now(),
        scrubs: Scrubs { next_at: Instant::now() + SCRUB_EVERY, suspected: 0 },
        place_at: Instant::now(),
        groups: groups.clone(),
        reported,
        tells_broken: false,
        durations: Durations::default(),
        batches: Log2Histogram::default(),
        waited: Duration::ZERO,
        hands_over_until: None,
        written_groups: WrittenGroups::default(),
    };
    let writing = Arc::new(Mutex::new(writing));
    let door = JournalDoor { writing: writing.clone(), waker: waker.clone() };
    let mark = store.map_or_else(tracing::Span::none, |name| tracing::error_span!("store", name));
    let marked = mark.clone();
    let serve = move || marked.in_scope(|| serve(&writing, &stop));
    let journal = thread::Builder::new().name("journal".into()).spawn(serve)?;
    waker.set(journal.thread().clone());
    for (kind, list) in WORKERS.into_iter().zip(lists) {
        let (name, mark) = (kind.name, mark.clone());
        let (disk, done, stop, groups) = (disk.clone(), done.clone(), workers_stop.clone(), groups.clone());
        let worker = Worker { kind, disk, list, done, stop, groups, journal: journal.thread().clone() };
        thread::Builder::new().name(name.into()).spawn(move || mark.in_scope(|| worker.run()))?;
    }
    Ok((journal, door))
}

/// A thread that does jobs of one kind.
struct Worker {
    kind: WorkerKind,
    disk: RealDisk,
    list: mpsc::Receiver<Job<File>>,
    done: mpsc::Sender<JobDone<File>>,
    stop: Arc<AtomicBool>,
    /// See [`Writing::groups`].
    groups: Arc<AtomicU64>,
    journal: thread::Thread,
}

impl Worker {
    fn run(self) {
        if self.kind.nice != 0
            && let Err(error) = rustix::process::setpriority_process(None, self.kind.nice)
        {
            tracing::warn!(%error, "cannot lower the priority of a journal housekeeping thread");
        }
        while let Ok(job) = self.list.recv() {
            let rest_share = if job.is_late() { 0 } else { self.kind.rest_share };
            let mut pace = Paced::new(&self, rest_share);
            let done = job.run(&self.disk, &mut pace);
            if self.done.send(done).is_err() {
                return;
            }
            self.journal.unpark();
        }
    }
}

/// The clock of one job.
struct Paced<'w> {
    worker: &'w Worker,
    /// See [`WorkerKind::rest_share`].
    rest_share: u32,
    /// When this step did.
    began: Instant,
    /// How many groups had been written then.
    groups: u64,
    /// How long the next wait is.
    wait: Duration,
}

impl<'w> Paced<'w> {
    fn new(worker: &'w Worker, rest_share: u32) -> Paced<'w> {
        let groups = worker.groups.load(Ordering::Relaxed);
        Paced { worker, rest_share, began: Instant::now(), groups, wait: WAIT_MIN }
    }
}

impl Pace for Paced<'_> {
    fn step(&mut self) {
        // Work gives way to writes only; without writes, or at the end, it goes on at full speed.
        let gives_way = self.groups != self.worker.groups.load(Ordering::Relaxed);
        if gives_way && !self.worker.stop.load(Ordering::Acquire) {
            thread::sleep((self.began.elapsed() * self.rest_share).min(REST_MAX));
        }
        *self = Paced::new(self.worker, self.rest_share);
    }

    fn ahead(&mut self) -> bool {
        if self.worker.stop.load(Ordering::Acquire) {
            return false;
        }
        thread::sleep(self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
        true
    }
}

/// The journal's thread, until it is to stop and everything is written.
fn serve(writing: &Mutex<Writing>, stop: &AtomicBool) {
    let mut ends_at = None;
    loop {
        let stopping = stop.load(Ordering::Acquire);
        if stopping {
            ends_at.get_or_insert_with(|| Instant::now() + LAST_CHECKPOINT);
        }
        // A thread that panicked in the middle of a write leaves a journal that must not be used
        // any more.
        let Ok(mut turn) = writing.lock() else { return };
        turn.pass();
        let in_time = ends_at.is_some_and(|at| Instant::now() < at);
        let has_work = !stopping || turn.has_work(in_time);
        if !has_work && turn.hands_over() {
            let until = Instant::now() + WAIT_MAX;
            turn.thread_looks_at = until;
            drop(turn);
            rest(until);
            continue;
        }
        if !has_work {
            turn.tell_figures();
            if let Some(reason) = turn.writer.seal() {
                tracing::warn!(reason, "no clean shutdown mark was written; nothing is lost");
            }
            return;
        }
        let participant_at = turn.participant.as_ref().map(Participant::due);
        let until = [turn.retry_at, turn.sync_at, turn.seal_at, ends_at.filter(|_| in_time), participant_at]
            .into_iter()
            .flatten()
            .fold(turn.scrubs.next_at.min(turn.place_at), Instant::min);
        turn.thread_looks_at = until;
        drop(turn);
        rest(until);
    }
}

/// Sleeps until there is something to do. A wake-up that comes earlier is kept, so none is missed.
fn rest(until: Instant) {
    thread::park_timeout(until.saturating_duration_since(Instant::now()));
}

/// When sealed segments are read for damage.
struct Scrubs {
    next_at: Instant,
    /// Segments that are to be read without a pause, as damage is suspected.
    suspected: usize,
}

struct Writing {
    writer: LogWriter<RealDisk>,
    /// In the group of replicas, if the store has several.
    participant: Option<Participant>,
    links: JournalLinks,
    /// To the thread of each of [`WORKERS`].
    jobs: Vec<mpsc::Sender<Job<File>>>,
    results: mpsc::Receiver<JobDone<File>>,
    retry_at: Option<Instant>,
    /// Deadline for the sync of written groups.
    sync_at: Option<Instant>,
    sync_within: Duration,
    /// When the journal is sealed, unless something is written before.
    seal_at: Option<Instant>,
    /// When its thread, which rests, looks at these times by itself.
    thread_looks_at: Instant,
    scrubs: Scrubs,
    /// When it is looked whether the directory is where it was.
    place_at: Instant,
    /// How many groups were written, for those who give way to them.
    groups: Arc<AtomicU64>,
    /// The writer's failures that were logged already.
    reported: FailedWork,
    /// Whether the failure of all writes was logged.
    tells_broken: bool,
    /// How long each group took, from its first byte until it was durable.
    durations: Durations,
    /// How many records it had.
    batches: Log2Histogram,
    /// How long all records together waited for their groups.
    waited: Duration,
    /// Until when a leader that ends waits for another.
    hands_over_until: Option<Instant>,
    /// When the last groups were written.
    written_groups: WrittenGroups,
}

impl Writing {
    /// Whether a sync or the seal is due before the journal's thread looks at the time by itself: a
    /// core that writes wakes it once in a while then, and not with each write.
    fn is_due_before_its_thread_looks(&self) -> bool {
        [self.sync_at, self.seal_at].into_iter().flatten().any(|at| at < self.thread_looks_at)
    }

    /// Whether something is left that is to be durable before the broker ends.
    fn has_work(&mut self, in_time: bool) -> bool {
        match &mut self.participant {
            None => self.writer.has_records() || in_time && self.writer.is_checkpointing(),
            Some(participant) => {
                participant.end();
                let waits = self.writer.has_records() || self.writer.leadership().is_committing();
                in_time && (waits || self.writer.is_checkpointing())
            }
        }
    }

    /// The broker ends: whether another replica is being made the leader in place of this one.
    fn hands_over(&mut self) -> bool {
        let leads = self.writer.replica().is_some_and(|replica| replica.group_status().role == Role::Leader);
        if !leads || self.writer.replica().is_none_or(|replica| replica.failure().is_some()) {
            return false;
        }
        let until = *self.hands_over_until.get_or_insert_with(|| Instant::now() + HAND_OVER);
        self.writer.leadership().hand_over(None);
        Instant::now() < until
    }

    /// Starts a read of a sealed segment now and then, and logs damage that was found.
    fn scrub(&mut self) {
        while let Some(place) = self.writer.next_damage() {
            let places = self.writer.damaged_places();
            tracing::error!(
                place,
                places,
                "the journal is damaged; affected messages are set aside when they are due"
            );
        }
        let now = Instant::now();
        if self.scrubs.next_at <= now {
            if let Some(all) = self.writer.scrub() {
                self.scrubs.suspected = self.scrubs.suspected.min(all).saturating_sub(1);
            }
            let pause = if self.scrubs.suspected == 0 { SCRUB_EVERY } else { SCRUB_SUSPECTED_EVERY };
            self.scrubs.next_at = now + pause;
        }
    }

    fn figures(&self) -> JournalFigures {
        let Written { syncs, bytes, checkpoints, compactions, failed_jobs, .. } = self.writer.written();
        let serves = self.participant.as_ref().is_none_or(|participant| participant.serves(&self.writer));
        let mut figures = JournalFigures {
            group_records: distribution(&self.batches),
            group_micros: self.durations.distribution(),
            sync_micros: distribution(self.writer.sync_micros()),
            syncs,
            bytes,
            record_wait_micros: u64::try_from(self.waited.as_micros()).unwrap_or(u64::MAX),
            checkpoints,
            compactions,
            failed_jobs,
            index_bytes: self.writer.index_bytes(),
            damaged_places: self.writer.damaged_places() as u64,
            stopped: self.writer.stopped().map(ToString::to_string).collect(),
            full: serves && self.writer.is_full(),
            follows: (!serves).then(String::new),
            broken: self.writer.trouble_with_writing().map(str::to_owned),
            ..JournalFigures::default()
        };
        for segment in self.writer.segments() {
            figures.segments += 1;
            figures.file_bytes += segment.file_bytes;
            figures.live_bytes += segment.live_bytes;
        }
        let by_key = self.writer.bytes_by_key().into_iter();
        let named = by_key.map(|(key, bytes)| (key.map_or("none".to_owned(), |key| key.to_string()), bytes));
        figures.bytes_by_key = named.collect();
        figures
    }

    /// Logs one line of statistics: how well records share syncs, and the duration of a sync.
    fn tell_figures(&self) {
        let Written { groups, syncs, records, bytes, records_max, .. } = self.writer.written();
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let (median, p99) = (self.durations.within(500), self.durations.within(990));
        tracing::info!(
            groups,
            syncs,
            records,
            bytes,
            records_per_sync = records / groups.max(1),
            records_per_sync_max = records_max,
            bytes_per_sync = bytes / groups.max(1),
            sync_median_us = micros(median),
            sync_p99_us = micros(p99),
            sync_max_us = micros(self.durations.max),
            disk_ms = micros(self.durations.total) / 1000,
            "journal statistics"
        );
    }

    /// Takes the messages that are there, writes them, and reports.
    fn pass(&mut self) {
        self.take_in();
        if let Some(participant) = &mut self.participant {
            participant.turn(&mut self.writer);
        }
        if self.writer.has_records() && !self.writer.awaits_segment() {
            let (began, began_us) = (Instant::now(), ticks_us());
            let Gathered { records, last } = self.writer.gathered();
            self.writer.write();
            if let Some(last) = last {
                self.written_groups.add(last, WrittenTimes { began_us, ended_us: ticks_us() });
            }
            self.groups.fetch_add(1, Ordering::Relaxed);
            let ended = Instant::now();
            let took = ended.duration_since(began);
            self.durations.add(took);
            self.batches.add(records);
            self.waited += took.saturating_mul(u32::try_from(records).unwrap_or(u32::MAX));
            self.seal_at = Some(ended + SEAL_AFTER);
            if let Some(participant) = &mut self.participant {
                participant.wrote(&self.writer, began, ended);
            }
        }
        self.sync();
        self.seal();
        self.retry();
        self.check_place();
        self.tell_broken();
        self.scrub();
        self.send_out();
    }

    fn check_place(&mut self) {
        let now = Instant::now();
        if self.place_at <= now {
            self.place_at = now + PLACE_EVERY;
            self.writer.check_place();
        }
    }

    /// Logs when the journal stops, and when it goes on.
    fn tell_broken(&mut self) {
        let broken = self.writer.trouble_with_writing();
        match (self.tells_broken, broken) {
            (false, Some(reason)) => tracing::error!(reason, "journal write failed, retrying"),
            (true, None) => tracing::info!("journal writes resumed"),
            _ => {}
        }
        self.tells_broken = broken.is_some();
    }

    /// Keeps the time within which everything is synced.
    fn sync(&mut self) {
        // While the journal is broken it is written again, and synced, by whatever mends it.
        if self.writer.is_broken() || !self.writer.has_unsynced() {
            self.sync_at = None;
            return;
        }
        let now = Instant::now();
        let at = *self.sync_at.get_or_insert(now + self.sync_within);
        if at <= now {
            self.sync_at = None;
            self.writer.sync();
        }
    }

    /// Seals the journal when it has come to rest.
    fn seal(&mut self) {
        if self.seal_at.is_some_and(|at| at <= Instant::now()) {
            self.seal_at = None;
            if self.writer.wants_seal()
                && let Some(reason) = self.writer.seal()
            {
                tracing::warn!(reason, "cannot write the mark of an idle journal");
            }
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

    /// Logs each failure and each recovery, once.
    fn report(&mut self) {
        let FailedWork { segment, checkpoint, compaction } = self.writer.trouble();
        let jobs = [
            ("next segment", &self.reported.segment, segment),
            ("checkpoint", &self.reported.checkpoint, checkpoint),
            ("compaction", &self.reported.compaction, compaction),
        ];
        for (job, before, now) in jobs {
            match (before, now) {
                (None, Some(reason)) => {
                    tracing::warn!(job, reason, "a journal background job failed, retrying")
                }
                (Some(_), None) => tracing::info!(job, "a journal background job succeeded after retries"),
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
            self.writer.retry();
            // Failed work is tried again even if no message comes in the meantime.
            self.retry_at = self.writer.wants_retry().then(|| Instant::now() + RETRY);
        }
    }

    fn send_out(&mut self) {
        while let Some(job) = self.writer.next_job() {
            let worker = WORKERS.iter().position(|worker| worker.jobs == job.kind());
            let sent =
                worker.and_then(|worker| self.jobs.get(worker)).is_some_and(|jobs| jobs.send(job).is_ok());
            if !sent {
                tracing::error!("the journal housekeeping thread has ended");
            }
        }
        let cores = self.links.to_cores.len() as u16;
        let follows = self.participant.as_ref().is_some_and(Participant::follows);
        while (follows || 0 < cores)
            && let Some(message) = self.writer.next_message()
        {
            let message = match &mut self.participant {
                Some(participant) => participant.answer(&mut self.writer, message),
                None => Some(message),
            };
            let Some(mut message) = message else { continue };
            match &mut message {
                ToPartition::Durable { partition, through, written, .. } => {
                    *written = self.written_groups.of(*partition, *through);
                }
                ToPartition::Failed { .. } => self.written_groups.clear(),
                _ => {}
            }
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
