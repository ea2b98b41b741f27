//! The schedule: messages that are due later.
//!
//! ```text
//!   record Enqueue, Transact or Commit ─▶ job: its body stays on disk
//!        a little ahead of its time ─▶ body read back ─▶ due ─▶ record Fire: a message like any other
//!                                                              └─▶ the job goes on, or is over
//! ```
//! A job is one entry of a calendar, whatever the size of its message, and some more if it repeats.
//! Beyond a bound those that are due last leave memory: they lie on shelves, which are records of
//! their own. A job's send is one record, which also has the job's next due time: so no restart
//! fires it twice or loses it.
//! Never here: clocks; how protocols say that a message is due later.

mod calendar;
mod calendars;
mod cron;
mod held;
mod listing;
mod manage;
mod packed;
mod shelf;
mod shelving;

use std::collections::{BTreeMap, HashMap, HashSet};

use postroad_model::{
    Command, Due, Effect, Message, MessageKey, Position, Recurrence, Refusal, Schedule, Sent, Urgency,
};
use rustc_hash::FxBuildHasher;

use crate::Partition;
use crate::addresses::binding::bind_new_queues;
use crate::clock::{Clock, ERAS, Era};
use crate::entries::note_released;
use crate::intake::chunks::release_scheduled;
use crate::intake::publish::enqueue_durable;
use crate::intake::route_retries::redeliver;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::log::record::RecordError;
use crate::memory::packing::{leaves_ahead_ms, shrinks_ms};
use crate::moving::send_after;
use crate::partition::Counters;
use crate::schedule::manage::send_copies;
use crate::schedule::shelving::{fetch_shelves, shelve_some};
use crate::state::State;
pub use calendar::{Calendar, WrittenPage};
pub use calendars::Calendars;
use cron::Cron;
pub use held::{HeldJob, held_jobs_in_record};
pub(crate) use listing::list_jobs;
use listing::{Listings, list_record};
use manage::{Browsed, Searches};
pub use manage::{browse_jobs, end_jobs, fail_searches, search_on, take_offer};
pub use shelf::{Chunk, Shelf, Shelves, WORDS};
use shelving::Leaving;
pub use shelving::{has_left, not_unshelved, shelf_read};

/// How the assembly writes a message that is due now, whatever its protocol.
pub type WriteDue = fn(&Message, &Firing<'_>) -> Message;

/// Job data kept by a message that is due.
#[derive(Clone, Debug)]
pub struct Firing<'a> {
    /// Id of the job.
    pub job: &'a str,
    /// Now, in ms since 1970.
    pub now_ms: u64,
    /// `None` if the job sends this message alone; otherwise unlike that of any other of its
    /// messages.
    pub number: Option<u64>,
}

/// How long before they are due bodies are read: longer than a disk takes.
const AHEAD_MS: u64 = 250;

/// Jobs whose bodies are read, or whose records are written, at once.
const UNDER_WAY_MAX: usize = 256;

/// Delay of a job after a failure of the log.
const RETRY_MS: u64 = 1000;

/// The jobs of a partition.
pub struct Jobs {
    /// By time.
    pub waiting: Calendars,
    /// Jobs that are due more than once, each with the time when it is due next.
    again: HashMap<(Position, u32), (u64, Recurrence), FxBuildHasher>,
    /// Jobs whose bodies were asked for, or that are being fired; known to this run alone.
    under_way: HashMap<MessageKey, (Due, Era), FxBuildHasher>,
    /// Jobs whose messages are on their way to the log.
    firing: HashSet<Due, FxBuildHasher>,
    /// Bodies that are here, ahead of their time, by the era of their jobs.
    ripe: [BTreeMap<Due, Box<Sent>>; ERAS],
    /// Bodies that cannot be read.
    unreadable: Vec<Due>,
    /// Pages of lists whose records are being read.
    listings: Listings,
    /// Copies that clients asked for.
    browsed: HashMap<MessageKey, Vec<Browsed>, FxBuildHasher>,
    /// Jobs that are in the log alone.
    pub shelves: Shelves,
    leaving: Leaving,
    /// Those who look for jobs on shelves.
    searches: Searches,
    /// Limit of jobs in memory that are due once.
    once_max: usize,
    /// Nothing is tried before this time, in ticks.
    rest_until_ms: u64,
}

/// A job as kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Bytes of its message's body.
    pub bytes: u32,
    /// A digest of its name.
    pub name: u64,
}

/// A digest of a job's name (FNV-1a with 64 bits), kept in snapshots.
pub fn digest(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn key_of(due: Due) -> MessageKey {
    MessageKey::Durable { position: due.position, ordinal: due.ordinal }
}

impl Jobs {
    /// No jobs yet; the calendar has pages of at most `page_jobs` jobs and `memory_bytes` for all
    /// that waits.
    pub fn new(page_jobs: usize, memory_bytes: u64) -> Jobs {
        let waiting = Calendars::new(page_jobs);
        Jobs {
            once_max: shelving::once_max(waiting.page_jobs(), memory_bytes),
            waiting,
            shelves: Shelves::default(),
            leaving: Leaving::default(),
            searches: Searches::default(),
            again: HashMap::default(),
            under_way: HashMap::default(),
            firing: HashSet::default(),
            ripe: Default::default(),
            unreadable: Vec::new(),
            listings: Listings::default(),
            browsed: HashMap::default(),
            rest_until_ms: 0,
        }
    }

    /// Takes a job in.
    pub fn insert(&mut self, due: Due, job: Job, again: Option<Recurrence>) {
        self.waiting.insert(due, job);
        self.note_again(due, again);
    }

    fn note_again(&mut self, due: Due, again: Option<Recurrence>) {
        match again {
            Some(again) => self.again.insert((due.position, due.ordinal), (due.at_ms, again)),
            None => self.again.remove(&(due.position, due.ordinal)),
        };
    }

    /// Jobs that are due more than once, each with when it is due next.
    pub fn repeating(&self) -> Vec<(Due, &Recurrence)> {
        let repeating = self.again.iter().map(|((position, ordinal), (at_ms, again))| {
            (Due { at_ms: *at_ms, position: *position, ordinal: *ordinal }, again)
        });
        let mut repeating: Vec<(Due, &Recurrence)> = repeating.collect();
        repeating.sort_unstable_by_key(|(due, _)| *due);
        repeating
    }

    /// As a snapshot has them: the pages of the calendar, and those that are due more than once.
    ///
    /// # Errors
    /// [`RecordError`]: a page is none, or not after those before it.
    pub fn restore(
        &mut self,
        pages: Vec<WrittenPage>,
        repeating: Vec<(Due, Recurrence)>,
    ) -> Result<(), RecordError> {
        self.waiting.restore(pages)?;
        let key = |due: Due| (due.position, due.ordinal);
        self.again = repeating.into_iter().map(|(due, again)| (key(due), (due.at_ms, again))).collect();
        Ok(())
    }

    fn again_of(&self, due: Due) -> Option<&Recurrence> {
        self.again.get(&(due.position, due.ordinal)).map(|(_, again)| again)
    }

    /// The next firing of the job that this one is of, if the job goes on.
    fn next_of(&self, due: Due) -> Due {
        let next = self.again.get(&(due.position, due.ordinal));
        next.map_or(due, |(at_ms, _)| Due { at_ms: *at_ms, ..due })
    }

    fn remove(&mut self, due: Due) -> Option<(Job, Era)> {
        self.again.remove(&(due.position, due.ordinal));
        self.forget_in_run(due);
        self.waiting.remove(due)
    }

    /// Drops the work begun for a job.
    fn forget_in_run(&mut self, due: Due) {
        self.ripe.iter_mut().for_each(|ripe| drop(ripe.remove(&due)));
        self.firing.remove(&due);
        self.under_way.remove(&key_of(due));
    }

    /// The jobs that are in memory, in the order in which they are due.
    pub fn iter(&self) -> impl Iterator<Item = (Due, Job, Option<&Recurrence>)> {
        self.waiting.iter().map(|(due, job)| (due, job, self.again_of(due)))
    }

    /// How many there are, on shelves too.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.shelves.jobs()
    }

    /// Whether the body of this one is on its way for a job, or for who wants to see it.
    pub fn awaits(&self, key: MessageKey) -> bool {
        self.under_way.contains_key(&key)
            || self.browsed.contains_key(&key)
            || self.listings.await_record(key)
    }

    /// How many more bodies may be asked for. Those that cannot be read keep no others away.
    fn room(&self) -> usize {
        (UNDER_WAY_MAX + self.unreadable.len()).saturating_sub(self.under_way.len())
    }

    /// When something is to be done next, in ticks.
    pub fn next_ms(&self, clock: &Clock) -> Option<u64> {
        let eras = Era::all().filter_map(|era| Some(clock.ticks_at(era, self.next_of_era(era)?)));
        let shelf = self.next_shelf_ms().map(|at_ms| clock.ticks_at(clock.era(), at_ms));
        eras.chain(shelf).min().map(|next| next.max(self.rest_until_ms))
    }

    /// When something is to be done next for a job of that era, by its clock.
    fn next_of_era(&self, era: Era) -> Option<u64> {
        let ripe = self.ripe[era.index()].first_key_value().map(|(due, _)| due.at_ms);
        let mut jobs = self.waiting.of(era).iter().map(|(due, _)| due);
        let next = jobs.find(|due| !self.under_way.contains_key(&key_of(*due)));
        let unread = next.filter(|_| self.room() > 0);
        ripe.into_iter().chain(unread.map(|due| due.at_ms.saturating_sub(AHEAD_MS))).min()
    }

    /// Whether no job is of that era.
    pub fn is_free(&self, era: Era) -> bool {
        self.waiting.of(era).len() == 0
    }

    /// The wall clock was set: later messages belong to this era, and so do cron jobs, which name a
    /// time of day.
    pub fn begin_era(&mut self, era: Era) {
        self.waiting.begin(era);
        let by_cron = self.repeating().into_iter().filter(|(_, again)| again.cron.is_some());
        let by_cron: Vec<Due> = by_cron.map(|(due, _)| due).collect();
        for due in by_cron.into_iter().filter(|due| !self.under_way.contains_key(&key_of(*due))) {
            if let Some((job, _)) = self.waiting.remove(due) {
                self.waiting.insert(due, job);
            }
        }
    }
}

impl Partition {
    /// How many messages are scheduled.
    pub fn scheduled(&self) -> usize {
        self.state.jobs.len()
    }

    /// How many of these are in memory; the others are in records of their own.
    pub fn jobs_in_memory(&self) -> usize {
        self.state.jobs.waiting.len()
    }

    /// When the partition wants to hear of the time, if nothing else happens before; in ticks.
    pub fn next_due_ms(&self) -> Option<u64> {
        let job_ms = self.state.jobs.next_ms(&self.clock).filter(|_| self.leader.log.space_ample);
        job_ms
            .into_iter()
            .chain(self.state.expiries.next_ms(&self.clock))
            .chain(self.leader.settling.rests.next_ms())
            .chain(self.leader.settling.doubts.next_ms())
            .chain(self.state.leases.next_ms())
            .chain(self.leader.leasing.reserves.next_ms(self.now_ms))
            .chain(self.leader.intake.parked.next_refusal_ms().map(|at_ms| at_ms.max(self.now_ms + 1)))
            .chain(self.leader.delivery.gatherings.next_ms())
            .chain(self.leader.delivery.slow.next_ms())
            .chain(self.leader.intake.waiting.next_ms(self.now_ms))
            .chain(self.leader.intake.unparking.next_ms(self.now_ms))
            .chain(self.leader.intake.policy_round.next_ms(self.now_ms))
            .chain(self.leader.transactions.next_timeout_ms)
            .chain(self.leader.transactions.slices.next_ms(self.now_ms))
            .chain(self.leader.transactions.closings.next_ms(self.now_ms))
            .chain(self.leader.transactions.senders.next_ms(self.now_ms))
            .chain(self.leader.intake.uploads.next_look_ms())
            .chain(self.state.endings.next_ms(self.now_ms))
            .chain(self.leader.delivery.backlogs.next_ms(self.now_ms))
            .chain(self.leader.delivery.browses.next_ms(self.now_ms))
            .chain(self.leader.lists.next_ms(self.now_ms))
            .chain(self.leader.settling.redrives.next_ms())
            .chain(self.leader.moves.next_ms())
            .chain(self.leader.settling.carrying.next_ms())
            .chain(leaves_ahead_ms(&self.state, &self.leader, &self.settings, self.now_ms))
            .chain(shrinks_ms(&self.state, &self.leader, &self.settings, self.now_ms))
            .chain(self.leader.claims.next_ms())
            .chain(self.leader.offline.next_ms(self.now_ms))
            .min()
    }
}

/// A cron job that sends several messages each time begins a job of its own for them.
fn burst(schedule: &Schedule, due: Due, again: &Recurrence) -> Option<Schedule> {
    if again.cron.is_none() || again.times == Some(0) || again.period_ms == 0 {
        return None;
    }
    let wait_ms = if again.delay_ms > 0 { again.delay_ms } else { again.period_ms };
    let again = Recurrence { cron: None, delay_ms: 0, ..again.clone() };
    Some(Schedule { job: schedule.job.clone(), due_ms: due.at_ms + wait_ms, again: Some(again), retry: None })
}

/// When a job is due after this firing. Firings missed while the broker was down are skipped: a
/// period that is over already begins again now (as ActiveMQ's
/// `JobSchedulerImpl.calculateNextExecutionTime`, which counts from now).
fn next_firing(due: Due, again: &Recurrence, now_ms: u64) -> Option<(u64, Recurrence)> {
    if let Some(cron) = &again.cron {
        let cron = Cron::parse(cron).ok()?;
        return Some((cron.next_after(now_ms.max(due.at_ms))?, again.clone()));
    }
    let times = match again.times {
        Some(0) => return None,
        Some(times) => Some(times - 1),
        None => None,
    };
    let next_ms = due.at_ms.saturating_add(again.period_ms);
    let next_ms = if now_ms < next_ms { next_ms } else { now_ms.saturating_add(again.period_ms) };
    Some((next_ms, Recurrence { times, ..again.clone() }))
}

/// Refuses a schedule that makes no sense.
pub fn check_schedule(clock: &Clock, sent: &Sent, schedule: &Schedule) -> Result<(), Refusal> {
    let bad = |reason: String| Err(Refusal::BadSchedule { to: sent.to.clone(), reason });
    if sent.targets().any(|to| to.temporary) {
        return bad("a temporary destination may be gone by then".to_owned());
    }
    let Some(again) = &schedule.again else { return Ok(()) };
    let first = match again.cron.as_deref().map(Cron::parse) {
        Some(Err(reason)) => return bad(reason),
        Some(Ok(cron)) => cron.next_after(clock.wall_ms()),
        None if again.period_ms == 0 => return bad("it repeats without a period".to_owned()),
        None => Some(schedule.due_ms),
    };
    if first.is_none() { bad("its cron expression matches no day".to_owned()) } else { Ok(()) }
}

/// Asks for the bodies of jobs of that era that are due soon.
fn ask_for_bodies(state: &mut State, clock: &Clock, era: Era, effects: &mut Vec<Effect>) {
    let until_ms = clock.wall_of(era).saturating_add(AHEAD_MS);
    let room = state.jobs.room();
    let jobs = state.jobs.waiting.of(era).iter().map(|(due, _)| due);
    let near = jobs.take_while(|due| due.at_ms <= until_ms);
    let unread = near.filter(|due| !state.jobs.under_way.contains_key(&key_of(*due)));
    let asked: Vec<Due> = unread.take(room).collect();
    if asked.is_empty() {
        return;
    }
    state.jobs.under_way.extend(asked.iter().map(|due| (key_of(*due), (*due, era))));
    effects.push(Effect::Fetch { keys: asked.into_iter().map(key_of).collect() });
}

/// The log could not take the message: it is tried again after a rest.
pub fn not_fired(state: &mut State, now_ms: u64, due: Due) {
    state.jobs.under_way.remove(&key_of(due));
    state.jobs.firing.remove(&due);
    state.jobs.rest_until_ms = now_ms + RETRY_MS;
}

/// The record with the message is applied: from now on it waits.
pub fn take_job(
    partition: &mut Partition,
    key: MessageKey,
    bytes: u64,
    schedule: &Schedule,
    effects: &mut Vec<Effect>,
) {
    let MessageKey::Durable { position, ordinal } = key else { return };
    let cron = schedule.again.as_ref().and_then(|again| Cron::parse(again.cron.as_deref()?).ok());
    let at_ms = cron.and_then(|cron| cron.next_after(schedule.due_ms)).unwrap_or(schedule.due_ms);
    let job = Job { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), name: digest(&schedule.job) };
    partition.state.jobs.insert(Due { at_ms, position, ordinal }, job, schedule.again.clone());
    shelve_some(partition, effects);
}

/// Time has passed: bodies are requested ahead, and due jobs are fired.
pub fn pass_time(partition: &mut Partition, effects: &mut Vec<Effect>) {
    if partition.now_ms < partition.state.jobs.rest_until_ms || !partition.leader.log.space_ample {
        return;
    }
    fetch_shelves(&mut partition.state, &partition.clock, effects);
    shelve_some(partition, effects);
    for era in Era::all() {
        let now_ms = partition.clock.wall_of(era);
        while let Some(first) = partition.state.jobs.ripe[era.index()].first_entry()
            && first.key().at_ms <= now_ms
        {
            let (due, sent) = first.remove_entry();
            fire_job(partition, (due, era), &sent, effects);
        }
    }
    Era::all().for_each(|era| ask_for_bodies(&mut partition.state, &partition.clock, era, effects));
}

/// A body has come back from the log.
pub fn recalled(partition: &mut Partition, key: MessageKey, sent: Box<Sent>, effects: &mut Vec<Effect>) {
    send_copies(partition, key, &sent, effects);
    list_record(&mut partition.state, key, Some(&sent), effects);
    // A body that a client asked for may be read twice, and must not arrive after the job was
    // fired.
    let asked = partition.state.jobs.under_way.get(&key).copied();
    if let Some((due, era)) = asked.filter(|(due, _)| !partition.state.jobs.firing.contains(due)) {
        partition.state.jobs.ripe[era.index()].insert(due, sent);
        pass_time(partition, effects);
    }
}

/// A body cannot be read: its job stays on disk, and is counted. `false` if no job asked for
/// it.
pub fn set_job_aside(
    state: &mut State,
    counters: &mut Counters,
    key: MessageKey,
    effects: &mut Vec<Effect>,
) -> bool {
    let listed = list_record(state, key, None, effects);
    let browsed = state.jobs.browsed.remove(&key).is_some() || listed;
    let Some((due, _)) = state.jobs.under_way.get(&key).copied() else { return browsed };
    state.jobs.unreadable.push(due);
    counters.unreadable += 1;
    true
}

fn fire_job(partition: &mut Partition, (due, era): (Due, Era), stored: &Sent, effects: &mut Vec<Effect>) {
    let again = partition.state.jobs.again_of(due);
    let next = again.and_then(|again| next_firing(due, again, partition.clock.wall_of(era)));
    let burst = again.and_then(|again| burst(stored.schedule.as_deref()?, due, again));
    let message = match burst {
        Some(_) => stored.message.clone(),
        None => {
            let job = stored.schedule.as_ref().map_or("", |schedule| &schedule.job);
            let number = again.map(|_| digest(&format!("{due:?}")));
            (partition.protocols.write_due)(
                &stored.message,
                &Firing { job, now_ms: partition.clock.wall_ms(), number },
            )
        }
    };
    let schedule = burst.map(Box::new);
    let retry = stored.schedule.as_ref().and_then(|schedule| schedule.retry.as_ref());
    let sent = match retry {
        Some(retry) => redeliver(partition, stored, retry),
        None => Sent { message, schedule, to: stored.to.clone(), also: stored.also.clone(), moved: None },
    };
    partition.state.jobs.firing.insert(due);
    if sent.schedule.is_none() {
        send_after(partition, &sent, effects);
    }
    bind_new_queues(partition, std::slice::from_ref(&sent), effects);
    let command = Command::Fire { due, next, sent };
    propose(partition, command, Urgency::Waiting, Completion::Fired { due }, effects);
}

pub fn apply_fire(
    partition: &mut Partition,
    position: Position,
    due: Due,
    next: Option<(u64, Recurrence)>,
    sent: Sent,
    effects: &mut Vec<Effect>,
) {
    // It may have been ended meanwhile.
    let Some((job, era)) = partition.state.jobs.remove(due) else { return };
    let is_over = next.is_none();
    if let Some((at_ms, again)) = next {
        let due = Due { at_ms, ..due };
        let era = if again.cron.is_some() { partition.clock.era() } else { era };
        partition.state.jobs.waiting.insert_in(era, due, job);
        partition.state.jobs.note_again(due, Some(again));
    }
    enqueue_durable(partition, position, vec![sent], effects);
    if is_over {
        job_is_over(partition, due, u64::from(job.bytes), effects);
    }
}

pub fn apply_unschedule(partition: &mut Partition, jobs: &[Due], effects: &mut Vec<Effect>) {
    for due in jobs {
        // It may have been fired meanwhile, and go on.
        let next = partition.state.jobs.next_of(*due);
        if let Some((job, _)) = partition.state.jobs.remove(next) {
            job_is_over(partition, *due, u64::from(job.bytes), effects);
        }
    }
}

fn job_is_over(partition: &mut Partition, due: Due, bytes: u64, effects: &mut Vec<Effect>) {
    note_released(partition, key_of(due), bytes, effects);
    release_scheduled(&mut partition.state, key_of(due), effects);
}
