//! Jobs seen and ended by those who ask.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use postroad_model::{
    Ask, Command, ConnectionId, Destination, Due, Effect, JobsWanted, MessageKey, Peer, Position, Refusal,
    ScheduleId, Sent, Ticket, Urgency,
};

use super::listing::{begin_listing, fail_listings};
use super::{Firing, Job, Jobs, Shelf, digest, key_of};
use crate::Partition;
use crate::intake::publish::publish_volatile;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::reply;
use crate::schedule::shelving::shelve_some;
use crate::state::State;
use crate::transaction::tell;

/// Jobs that one record ends.
const ENDED_MAX: usize = 10_000;

/// Jobs that one question is answered with: the earliest.
const BROWSED_MAX: usize = 10_000;

/// Who may wait to look for jobs on shelves.
const SEARCHES_MAX: usize = 10_000;

/// While this many shelves are on their way back, requests for jobs wait.
const SOUGHT_MAX: usize = 16;

/// A copy of a job's message, as soon as it is read.
pub struct Browsed {
    due: Due,
    reply_to: Destination,
}

/// Who looks for jobs, wherever they are.
struct Search {
    name: Option<u64>,
    due_ms: RangeInclusive<u64>,
    /// Only this firing.
    only: Option<Due>,
    /// Only those behind this one.
    after: Option<Due>,
    /// Jobs found on shelves that are not processed yet.
    found: Vec<Due>,
    purpose: Purpose,
}

pub(super) enum Purpose {
    /// With `only`, the request fails if there is none.
    End {
        only: Option<ScheduleId>,
        connection: ConnectionId,
        ticket: Ticket,
    },
    Show {
        reply_to: Destination,
    },
    List {
        ask: Arc<Ask>,
        connection: ConnectionId,
        ticket: Ticket,
    },
}

/// Those who look for jobs on shelves, one shelf after the other: all who have come meanwhile look
/// together.
#[derive(Default)]
pub struct Searches {
    waiting: Vec<Search>,
    active: Vec<Search>,
    /// The present search of these.
    shelves: VecDeque<Shelf>,
    reading: Option<Position>,
}

impl Search {
    fn matches(&self, due: &Due, job: &Job) -> bool {
        self.due_ms.contains(&due.at_ms)
            && self.name.is_none_or(|name| name == job.name)
            && self.only.is_none_or(|only| only == *due)
            && self.after.is_none_or(|after| after < *due)
    }

    fn is_ending(&self) -> bool {
        matches!(self.purpose, Purpose::End { .. })
    }

    /// Whether something that it wants may be on the shelf.
    fn reaches(&self, shelf: &Shelf) -> bool {
        let overlaps = *self.due_ms.start() <= shelf.last.at_ms && shelf.first.at_ms <= *self.due_ms.end();
        let has_enough = self.most() <= self.found.len();
        overlaps && !(has_enough && self.found.last() < Some(&shelf.first))
    }

    /// This many, the earliest, are enough.
    fn most(&self) -> usize {
        match self.purpose {
            Purpose::End { .. } => usize::MAX,
            Purpose::Show { .. } => BROWSED_MAX,
            // One more says that there are others.
            Purpose::List { ref ask, .. } => ask.rows_max() + 1,
        }
    }

    /// Notes these; of those that are shown the earliest.
    fn take(&mut self, found: Vec<Due>) {
        self.found.extend(found);
        if !self.is_ending() {
            self.found.sort_unstable();
            self.found.dedup();
            self.found.truncate(self.most());
        }
    }
}

impl Jobs {
    /// Clients that wait for the end of jobs, or for a list.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        let searches = self.searches.active.iter().chain(&self.searches.waiting);
        let waiter = |search: &Search| match search.purpose {
            Purpose::End { connection, ticket, .. } | Purpose::List { connection, ticket, .. } => {
                Some((connection, ticket))
            }
            Purpose::Show { .. } => None,
        };
        searches.filter_map(waiter).chain(self.listings.waiters()).collect()
    }

    /// Those in memory.
    fn wanted(&self, search: &Search) -> Vec<Due> {
        let (from, until) = search.due_ms.clone().into_inner();
        let jobs = self.waiting.from(from).take_while(|(due, _)| due.at_ms <= until);
        let wanted = jobs.filter(|(due, job)| search.matches(due, job)).map(|(due, _)| due);
        wanted.take(search.most()).collect()
    }

    /// Whether a request ends one of the jobs of this shelf.
    pub(super) fn is_sought(&self, position: Position, jobs: &[(Due, Job)]) -> bool {
        let searches = &self.searches;
        let mut ending = searches.active.iter().filter(|search| search.is_ending());
        searches.reading == Some(position)
            && ending.any(|search| jobs.iter().any(|(due, job)| search.matches(due, job)))
    }

    fn show(&mut self, found: &[Due], reply_to: &Destination, effects: &mut Vec<Effect>) {
        let mut keys = Vec::with_capacity(found.len());
        for due in found {
            let copies = self.browsed.entry(key_of(*due)).or_default();
            copies.push(Browsed { due: *due, reply_to: reply_to.clone() });
            keys.push(key_of(*due));
        }
        if !keys.is_empty() {
            effects.push(Effect::Fetch { keys });
        }
    }

    /// All who wait begin; `false` if there are none, or jobs are on their way between memory and
    /// shelves.
    fn begin_searches(&mut self) -> bool {
        if self.searches.waiting.is_empty() || self.are_leaving() {
            return false;
        }
        let mut active = std::mem::take(&mut self.searches.waiting);
        for search in active.iter_mut().filter(|search| !search.is_ending()) {
            search.take(self.wanted(search));
        }
        let shelves = self.shelves.iter().filter(|shelf| active.iter().any(|search| search.reaches(shelf)));
        self.searches.shelves = shelves.copied().collect();
        self.searches.active = active;
        true
    }
}

impl Searches {
    /// Whether no request looks for jobs: meanwhile no job may leave memory, where it could be
    /// missed.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }
}

fn refuse_search(search: Search, reason: &str, effects: &mut Vec<Effect>) {
    if let Purpose::End { connection, ticket, .. } | Purpose::List { connection, ticket, .. } = search.purpose
    {
        let refusal = Refusal::StoreFailed { reason: reason.to_owned() };
        reply(connection, ticket, Err(refusal), effects);
    }
}

/// The answer comes once none of them can come again.
pub fn end_jobs(
    partition: &mut Partition,
    wanted: &JobsWanted,
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    let only = wanted.only;
    if let Some(id) = only.filter(|id| id.partition != partition.settings.id) {
        return reply(connection, ticket, Err(Refusal::NoSuchSchedule { id }), effects);
    }
    begin_search(partition, wanted, None, Purpose::End { only, connection, ticket }, effects);
}

/// The copies come later than the answer.
pub fn browse_jobs(
    partition: &mut Partition,
    wanted: &JobsWanted,
    reply_to: &Destination,
    (connection, ticket): (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    begin_search(partition, wanted, None, Purpose::Show { reply_to: reply_to.clone() }, effects);
    reply(connection, ticket, Ok(()), effects);
}

pub fn begin_search(
    partition: &mut Partition,
    wanted: &JobsWanted,
    after: Option<Due>,
    purpose: Purpose,
    effects: &mut Vec<Effect>,
) {
    let only = wanted.only.map(|id| partition.state.jobs.next_of(id.due));
    let due_ms = match (only, after) {
        (Some(only), _) => only.at_ms..=only.at_ms,
        (None, Some(after)) => after.at_ms.max(*wanted.due_ms.start())..=*wanted.due_ms.end(),
        (None, None) => wanted.due_ms.clone(),
    };
    let name = wanted.job.as_deref().map(digest);
    let search = Search { name, due_ms, only, after, found: Vec::new(), purpose };
    match partition.state.jobs.searches.waiting.len() < SEARCHES_MAX {
        true => partition.state.jobs.searches.waiting.push(search),
        false => refuse_search(search, "too many requests for scheduled messages are running", effects),
    }
    search_on(partition, effects);
}

/// Has the next shelf read that a request needs; after the last one memory is searched, so that
/// no job is missed that has come from a shelf meanwhile.
pub fn search_on(partition: &mut Partition, effects: &mut Vec<Effect>) {
    while partition.state.jobs.searches.reading.is_none()
        && partition.state.jobs.shelves.moving() < SOUGHT_MAX
    {
        if partition.state.jobs.searches.active.is_empty() && !partition.state.jobs.begin_searches() {
            return shelve_some(partition, effects);
        }
        let searches = &mut partition.state.jobs.searches;
        let Some(shelf) = searches.shelves.pop_front() else {
            for search in std::mem::take(&mut searches.active) {
                end_search(partition, search, effects);
            }
            continue;
        };
        let is_wanted = searches.active.iter().any(|search| search.reaches(&shelf));
        if is_wanted && partition.state.jobs.shelves.handling(shelf.position).is_some() {
            searches.reading = Some(shelf.position);
            effects.push(Effect::ReadShelf { position: shelf.position });
        }
    }
}

/// A shelf was read. Jobs to be ended are on their way back by now: the log has that first.
pub fn look_on(
    partition: &mut Partition,
    position: Position,
    jobs: &[(Due, Job)],
    effects: &mut Vec<Effect>,
) {
    if partition.state.jobs.searches.reading != Some(position) {
        return;
    }
    partition.state.jobs.searches.reading = None;
    let mut many = Vec::new();
    for search in &mut partition.state.jobs.searches.active {
        let found = jobs.iter().filter(|(due, job)| search.matches(due, job)).map(|(due, _)| *due);
        search.take(found.collect());
        if search.is_ending() && ENDED_MAX <= search.found.len() {
            many.push(std::mem::take(&mut search.found));
        }
    }
    for jobs in many {
        propose(partition, Command::Unschedule { jobs }, Urgency::Waiting, Completion::Nothing, effects);
    }
    search_on(partition, effects);
}

fn end_search(partition: &mut Partition, mut search: Search, effects: &mut Vec<Effect>) {
    search.take(partition.state.jobs.wanted(&search));
    match search.purpose {
        Purpose::End { only: Some(id), connection, ticket } if search.found.is_empty() => {
            reply(connection, ticket, Err(Refusal::NoSuchSchedule { id }), effects);
        }
        Purpose::End { connection, ticket, .. } => {
            end_found(partition, &search.found, connection, ticket, effects);
        }
        Purpose::Show { reply_to } => partition.state.jobs.show(&search.found, &reply_to, effects),
        Purpose::List { ask, connection, ticket } => {
            begin_listing(partition, search.found, &ask, (connection, ticket), effects);
        }
    }
}

fn end_found(
    partition: &mut Partition,
    jobs: &[Due],
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    let mut records = jobs.chunks(ENDED_MAX).peekable();
    if records.peek().is_none() {
        return reply(connection, ticket, Ok(()), effects);
    }
    while let Some(jobs) = records.next() {
        let last = records.peek().is_none();
        let completion = if last { Completion::Reply { connection, ticket } } else { Completion::Nothing };
        let command = Command::Unschedule { jobs: jobs.to_vec() };
        propose(partition, command, Urgency::Waiting, completion, effects);
    }
}

/// A shelf cannot be read, or the log has failed: no request can be answered as complete.
pub fn fail_searches(state: &mut State, reason: &str, effects: &mut Vec<Effect>) {
    let Searches { waiting, active, .. } = std::mem::take(&mut state.jobs.searches);
    for search in active.into_iter().chain(waiting) {
        refuse_search(search, reason, effects);
    }
    fail_listings(state, reason, effects);
}

/// A request wanted the message.
pub fn send_copies(partition: &mut Partition, key: MessageKey, stored: &Sent, effects: &mut Vec<Effect>) {
    for Browsed { due, reply_to } in partition.state.jobs.browsed.remove(&key).unwrap_or_default() {
        let job: Arc<str> =
            stored.schedule.as_ref().map_or_else(|| "".into(), |schedule| schedule.job.clone());
        let number = Some(digest(&format!("{due:?} {reply_to}")));
        let mut message = (partition.protocols.write_due)(
            &stored.message,
            &Firing { job: &job, now_ms: partition.clock.wall_ms(), number },
        );
        message.persistent = false;
        let to = partition.settings.partition_of(&reply_to);
        if message.chunks().is_some() && to != partition.settings.id {
            // A copy is no move, and not worth one: the body lies here.
            continue;
        }
        let sent = Box::new(Sent::new(reply_to, message));
        tell(to, Peer::Offer { sent }, effects);
    }
}

/// No request waits for it: it goes to the present consumers.
pub fn take_offer(partition: &mut Partition, sent: Sent, effects: &mut Vec<Effect>) {
    if partition.state.addresses.get(&sent.to).is_some() {
        publish_volatile(partition, sent, None, effects);
    }
}
