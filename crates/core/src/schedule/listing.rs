//! Jobs as rows of a list. What a row says beyond the calendar lies in the log: the page is
//! answered once each of its records was read, or cannot be.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use postroad_model::{
    Ask, ConnectionId, Due, Effect, JobsWanted, MessageKey, Page, PartitionId, Position, Question, Refusal,
    Row, ScheduleId, ScheduleRecord, ScheduleRow, Sent, Ticket,
};
use rustc_hash::FxBuildHasher;

use super::manage::Purpose;
use super::{Jobs, key_of};
use crate::Partition;
use crate::ask::answer_page;
use crate::partition::reply;
use crate::schedule::manage::begin_search;
use crate::state::State;

/// Pages that are made at the same time; further requests are refused.
const LISTINGS_MAX: usize = 64;

/// Who waits for a page.
type Waiter = (ConnectionId, Ticket);

/// Pages that are being made.
#[derive(Default)]
pub struct Listings {
    by_number: BTreeMap<u64, Listing>,
    /// The pages that wait for a record.
    awaited: HashMap<MessageKey, Vec<u64>, FxBuildHasher>,
    /// How many were begun.
    begun: u64,
}

struct Listing {
    waiter: Waiter,
    rows: Vec<ScheduleRow>,
    /// Records that have not come.
    missing: usize,
    /// Jobs come behind the page.
    has_more: bool,
    /// Jobs of the list, on all pages.
    total: u64,
    /// Each row has the whole message.
    is_whole: bool,
}

impl Listings {
    /// Whether a page waits for this record.
    pub fn await_record(&self, key: MessageKey) -> bool {
        self.awaited.contains_key(&key)
    }

    /// Clients that wait for a page.
    pub fn waiters(&self) -> impl Iterator<Item = Waiter> {
        self.by_number.values().map(|listing| listing.waiter)
    }
}

impl Listing {
    fn take(&mut self, key: MessageKey, record: Option<&Sent>) {
        for row in self.rows.iter_mut().filter(|row| key_of(row.id.due) == key) {
            self.missing -= 1;
            row.record = record.map(|sent| {
                let schedule = sent.schedule.as_deref();
                ScheduleRecord {
                    job: schedule.map_or_else(|| "".into(), |schedule| schedule.job.clone()),
                    to: sent.targets().cloned().collect(),
                    route: schedule.and_then(|schedule| Some(schedule.retry.as_ref()?.route.clone())),
                    message: self.is_whole.then(|| sent.message.clone()),
                }
            });
            row.bytes = record.map_or(row.bytes, |sent| sent.message.size());
        }
    }

    fn page(self) -> Page {
        let last = self.rows.last().map(|row| row.id.key());
        Page {
            next: last.filter(|_| self.has_more),
            rows: self.rows.into_iter().map(|row| Row::Schedule(Box::new(row))).collect(),
            total: self.total,
        }
    }
}

impl Jobs {
    fn row_of(&self, id: ScheduleId) -> ScheduleRow {
        ScheduleRow { id, again: self.again_of(id.due).cloned(), bytes: 0, record: None }
    }
}

/// A page of them; it comes once the records of its jobs are read.
pub(crate) fn list_jobs(
    partition: &mut Partition,
    wanted: &JobsWanted,
    ask: Arc<Ask>,
    (connection, ticket): Waiter,
    effects: &mut Vec<Effect>,
) {
    let own = partition.settings.id;
    if wanted.only.is_some_and(|id| id.partition != own) {
        return answer_page(Page::default(), (connection, ticket), effects);
    }
    let after = ask.after.as_ref().and_then(ScheduleId::of_key).map(|id| last_up_to(own, id));
    begin_search(partition, wanted, after, Purpose::List { ask, connection, ticket }, effects);
}

/// The last firing of this partition that comes no later than that of another one in a list of
/// both.
fn last_up_to(own: PartitionId, id: ScheduleId) -> Due {
    let Due { at_ms, position, ordinal } = id.due;
    match own.cmp(&id.partition) {
        Ordering::Less => Due { at_ms, position: Position::MAX, ordinal: u32::MAX },
        Ordering::Equal => Due { at_ms, position, ordinal },
        Ordering::Greater => {
            Due { at_ms: at_ms.saturating_sub(1), position: Position::MAX, ordinal: u32::MAX }
        }
    }
}

/// These were found: one more than a page has if others follow.
pub(super) fn begin_listing(
    partition: &mut Partition,
    mut found: Vec<Due>,
    ask: &Ask,
    waiter: Waiter,
    effects: &mut Vec<Effect>,
) {
    let Question::Schedules(wanted) = &ask.question else { return };
    let (all, count) = (wanted.job.is_none() && wanted.only.is_none(), found.len());
    let is_whole = wanted.only.is_some();
    let jobs = &mut partition.state.jobs;
    if LISTINGS_MAX <= jobs.listings.by_number.len() {
        let refusal = Refusal::TooManyLists { max: LISTINGS_MAX };
        return reply(waiter.0, waiter.1, Err(refusal), effects);
    }
    let total = if all { jobs.len() } else { count } as u64;
    let has_more = ask.rows_max() < count;
    found.truncate(ask.rows_max());
    let own = partition.settings.id;
    let rows: Vec<ScheduleRow> =
        found.into_iter().map(|due| jobs.row_of(ScheduleId { partition: own, due })).collect();
    let missing = rows.len();
    let listing = Listing { waiter, rows, missing, has_more, total, is_whole };
    if missing == 0 {
        return answer_page(listing.page(), waiter, effects);
    }
    let number = jobs.listings.begun;
    jobs.listings.begun += 1;
    let mut keys: Vec<MessageKey> = listing.rows.iter().map(|row| key_of(row.id.due)).collect();
    for key in &keys {
        jobs.listings.awaited.entry(*key).or_default().push(number);
    }
    jobs.listings.by_number.insert(number, listing);
    keys.sort_unstable();
    effects.push(Effect::Fetch { keys });
}

/// A record was read, or cannot be; whether a page waited for it.
pub(super) fn list_record(
    state: &mut State,
    key: MessageKey,
    record: Option<&Sent>,
    effects: &mut Vec<Effect>,
) -> bool {
    let Some(numbers) = state.jobs.listings.awaited.remove(&key) else { return false };
    for number in numbers {
        let listings = &mut state.jobs.listings.by_number;
        let Some(listing) = listings.get_mut(&number) else { continue };
        listing.take(key, record);
        if listing.missing == 0
            && let Some(listing) = listings.remove(&number)
        {
            let waiter = listing.waiter;
            answer_page(listing.page(), waiter, effects);
        }
    }
    true
}

/// The log has failed: no record may come.
pub(super) fn fail_listings(state: &mut State, reason: &str, effects: &mut Vec<Effect>) {
    let listings = std::mem::take(&mut state.jobs.listings);
    for (connection, ticket) in listings.waiters() {
        let refusal = Refusal::StoreFailed { reason: reason.to_owned() };
        reply(connection, ticket, Err(refusal), effects);
    }
}
