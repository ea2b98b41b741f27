//! Shelving: jobs that are due late leave memory as records of their own, and come back before they
//! are due.
//!
//! When a job is on a shelf is a matter of the log, alike for all who apply it; when it should be,
//! of this run.

use bytes::Bytes;
use postroad_model::{Command, Due, Effect, Position, Urgency};

use super::packed::PackedJobs;
use super::shelf::Handling;
use super::{Job, Jobs, RETRY_MS, Shelf, key_of};
use crate::Partition;
use crate::clock::Clock;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::schedule::manage::{fail_searches, look_on, search_on};
use crate::schedule::pass_time;
use crate::state::State;

/// Of the memory for waiting messages, a job that is due once may have a share of this many bytes:
/// open it takes some 60, packed 14.
const JOB_MEMORY_BYTES: u64 = 1024;

/// The most jobs in memory, however much of that there is: a checkpoint has all of them.
const ONCE_MAX: usize = 1 << 17;

/// The least, in pages of the calendar: see [`Calendar::has_before`](super::Calendar::has_before),
/// which may overlook one.
const ONCE_MIN_PAGES: usize = 4;

/// The minimum: then a shelf has one job, and the jobs that come back at once fit in memory.
const ONCE_MIN: usize = 16;

/// Records with jobs that are on their way out, or back, at once.
const MOVING_MAX: usize = 4;

/// How long before the first of its jobs is due a shelf is read: many may overlap.
const AHEAD_MS: u64 = 60_000;

/// How many jobs that are due once may be in memory.
pub fn once_max(page_jobs: usize, memory_bytes: u64) -> usize {
    let share = usize::try_from(memory_bytes / JOB_MEMORY_BYTES).unwrap_or(usize::MAX);
    share.min(ONCE_MAX).max(page_jobs.saturating_mul(ONCE_MIN_PAGES)).max(ONCE_MIN)
}

/// Jobs that are leaving, from the last one on, until half of the limit is left.
#[derive(Default)]
pub struct Leaving {
    /// Records on their way to the log, and the jobs in them.
    records: usize,
    jobs: usize,
    /// Whether it goes on, and before which job.
    round: Option<Option<Due>>,
}

impl Jobs {
    /// Whether some are on their way out of memory.
    pub(super) fn are_leaving(&self) -> bool {
        self.leaving.records > 0
    }

    /// When a shelf must be read, if nothing happens before, in ms since 1970.
    pub(super) fn next_shelf_ms(&self) -> Option<u64> {
        Some(self.wanted_shelf()?.first.at_ms.saturating_sub(AHEAD_MS))
    }

    /// The shelf whose jobs are to come back next, once its time has come.
    fn wanted_shelf(&self) -> Option<&Shelf> {
        let next = self.shelves.next().filter(|_| self.shelves.moving() < MOVING_MAX)?;
        // As long as many are due before it, it waits for them: so jobs due at once take no more
        // memory than the rest.
        (!self.waiting.has_before(next.first, self.once_max / 4)).then_some(next)
    }

    /// Jobs for one more shelf.
    fn next_to_leave(&mut self) -> Option<Vec<(Due, Job)>> {
        let stay = self.again.len() + self.under_way.len() + self.leaving.jobs;
        let once = self.waiting.len().saturating_sub(stay);
        let before = match self.leaving.round {
            None if once <= self.once_max => return None,
            None => None,
            Some(before) => before,
        };
        let is_free = |due: Due| {
            let key = key_of(due);
            !self.again.contains_key(&(due.position, due.ordinal)) && !self.under_way.contains_key(&key)
        };
        let jobs = match once <= self.once_max / 2 {
            true => Vec::new(),
            false => {
                let count = (self.once_max / ONCE_MIN).min(self.waiting.page_jobs());
                self.waiting.last_before(before, count, is_free)
            }
        };
        self.leaving.round = match jobs.first() {
            Some((first, _)) => Some(Some(*first)),
            // The next round begins at the end, where these are until they have left.
            None if self.leaving.records == 0 => None,
            None => Some(before),
        };
        (!jobs.is_empty()).then_some(jobs)
    }

    /// From now on these jobs are in that record alone; if one of them is not here any more all of
    /// them stay.
    pub fn apply_shelve(&mut self, position: Position, bytes: &Bytes, effects: &mut Vec<Effect>) {
        let Ok(packed) = PackedJobs::read(bytes) else { return };
        let jobs = packed.jobs();
        let (Some((first, _)), Some((last, _))) = (jobs.first(), jobs.last()) else { return };
        let repeats = |(due, _): &(Due, Job)| self.again.contains_key(&(due.position, due.ordinal));
        if jobs.iter().any(repeats) || !self.waiting.extract(&jobs) {
            return;
        }
        for (due, job) in &jobs {
            self.forget_in_run(*due);
            self.shelves.keys.add(due, job);
        }
        let (count, length) = (jobs.len() as u32, bytes.len() as u32);
        let shelf = Shelf { position, first: *first, last: *last, jobs: count, bytes: length };
        let is_new = self.shelves.insert(shelf);
        debug_assert!(is_new, "a record is applied once, and a job is in one place");
        effects.push(Effect::Retain { position, count: 1, bytes: u64::from(length) });
    }

    /// The jobs of that record are in memory again.
    pub fn apply_unshelve(&mut self, position: Position, bytes: &Bytes, effects: &mut Vec<Effect>) {
        let Ok(packed) = PackedJobs::read(bytes) else { return };
        let Some(shelf) = self.shelves.remove(position) else { return };
        for (due, job) in packed.jobs() {
            self.shelves.keys.remove(&due, &job);
            self.waiting.insert(due, job);
        }
        effects.push(Effect::Release { position, ordinal: 0, bytes: u64::from(shelf.bytes) });
    }

    /// Messages of jobs that are on shelves.
    pub fn shelved_keys(&self) -> impl Iterator<Item = postroad_model::MessageKey> {
        self.shelves.keys.iter()
    }
}

impl Partition {
    /// Whether jobs are in that record, and not in memory.
    pub fn has_shelf(&self, position: Position) -> bool {
        self.state.jobs.shelves.handling(position).is_some()
    }
}

/// Has shelves read whose jobs are due soon.
pub fn fetch_shelves(state: &mut State, clock: &Clock, effects: &mut Vec<Effect>) {
    let until_ms = clock.wall_ms().saturating_add(AHEAD_MS);
    while let Some(shelf) = state.jobs.wanted_shelf().filter(|shelf| shelf.first.at_ms <= until_ms) {
        let position = shelf.position;
        state.jobs.shelves.handle(position, Handling::Read);
        effects.push(Effect::ReadShelf { position });
    }
}

/// The jobs of a shelf did not come back: they are asked for again after a rest.
pub fn not_unshelved(state: &mut State, now_ms: u64, position: Position) {
    state.jobs.shelves.handle(position, Handling::Lies);
    state.jobs.rest_until_ms = now_ms + RETRY_MS;
}

/// Sends jobs that are due last on their way out of memory, if there are too many.
pub fn shelve_some(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let may = partition.leader.is_live
        && partition.leader.log.space_ample
        && partition.state.jobs.rest_until_ms <= partition.now_ms;
    while may
        && partition.state.jobs.leaving.records < MOVING_MAX
        && partition.state.jobs.searches.is_empty()
        && let Some(jobs) = partition.state.jobs.next_to_leave()
    {
        let count = jobs.len();
        partition.state.jobs.leaving.records += 1;
        partition.state.jobs.leaving.jobs += count;
        let command = Command::Shelve { jobs: PackedJobs::of(jobs).bytes().clone() };
        propose(partition, command, Urgency::Lazy, Completion::Shelved { jobs: count }, effects);
    }
}

/// A record with jobs is applied; or it failed, and nothing is tried for a while.
pub fn has_left(partition: &mut Partition, jobs: usize, has_failed: bool, effects: &mut Vec<Effect>) {
    partition.state.jobs.leaving.records -= 1;
    partition.state.jobs.leaving.jobs -= jobs;
    if has_failed {
        partition.state.jobs.rest_until_ms = partition.now_ms + RETRY_MS;
    }
    search_on(partition, effects);
}

/// The record of a shelf was read for one who wanted it, or cannot be.
pub fn shelf_read(
    partition: &mut Partition,
    position: Position,
    jobs: Result<Bytes, String>,
    effects: &mut Vec<Effect>,
) {
    let read = jobs.and_then(|bytes| match PackedJobs::read(&bytes) {
        Ok(packed) => Ok((bytes, packed.jobs())),
        Err(error) => Err(error.to_string()),
    });
    match read {
        Ok((bytes, jobs)) => {
            let is_sought = partition.state.jobs.is_sought(position, &jobs);
            let handling = partition.state.jobs.shelves.handling(position);
            if handling == Some(Handling::Read) || is_sought && handling == Some(Handling::Lies) {
                partition.state.jobs.shelves.handle(position, Handling::Comes);
                let command = Command::Unshelve { shelf: position, jobs: bytes };
                let completion = Completion::Unshelved { shelf: position };
                propose(partition, command, Urgency::Waiting, completion, effects);
            }
            look_on(partition, position, &jobs, effects);
        }
        // One that is gone by now needs not be read.
        Err(reason) if partition.state.jobs.shelves.handling(position).is_some() => {
            partition.counters.unreadable += partition.state.jobs.shelves.set_aside(position);
            fail_searches(&mut partition.state, &reason, effects);
        }
        Err(_) => look_on(partition, position, &[], effects),
    }
    pass_time(partition, effects);
}
