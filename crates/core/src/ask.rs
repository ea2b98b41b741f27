//! Answers to questions about a running broker: this partition's page of a list.
//!
//! A page has a bound ([`Ask::ROWS_MAX`]). A list of many entries is looked through over several
//! steps, each of which looks at [`STEP_ENTRIES`]: the answer comes after the last. Counters are
//! read, never counted.

mod clients;
mod queues;
mod topics;

use std::collections::VecDeque;
use std::sync::Arc;

use postroad_model::{
    Ask, ConnectionId, ConsumerKey, Effect, EntryTag, Event, Page, PageMaker, Question, Refusal, Row, Ticket,
};

use crate::Partition;
use crate::explain::{Explainer, open_explained};
use crate::leader::Leader;
use crate::leasing::about_lease;
use crate::partition::reply;
use crate::schedule::list_jobs;

/// Entries that one step looks at: some milliseconds.
const STEP_ENTRIES: usize = 2048;

/// Queues that are found at one address in one go.
const FOUND_AT_ONCE: usize = 64;

/// Lists that are looked through at the same time; further requests are refused.
const LISTS_MAX: usize = 64;

/// Where a list goes on, and how.
trait Walk: Send {
    /// Looks at the next entries until the budget is spent; `true` after the last that matters.
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool;
}

/// A step of a walk.
struct Step<'s> {
    ask: &'s Ask,
    page: &'s mut PageMaker,
    /// Entries that it may still look at.
    left: usize,
}

impl Step<'_> {
    fn add(&mut self, row: Row) {
        self.page.add(row, self.ask);
    }

    /// One more entry is looked at; `false` if the next step has to.
    fn look(&mut self) -> bool {
        let may = 0 < self.left;
        self.left = self.left.saturating_sub(1);
        may
    }

    /// Whether rows come in the order of their names.
    fn is_by_name(&self) -> bool {
        self.ask.order.by.is_none()
    }
}

/// A page that is being made.
struct List {
    ask: Arc<Ask>,
    waiter: (ConnectionId, Ticket),
    walk: Box<dyn Walk>,
    page: PageMaker,
}

impl List {
    /// Whether it is complete.
    fn go_on(&mut self, partition: &Partition) -> bool {
        let mut step = Step { ask: &self.ask, page: &mut self.page, left: STEP_ENTRIES };
        self.walk.go_on(partition, &mut step)
    }
}

/// Pages that are being made, in the order of their turns.
#[derive(Default)]
pub struct Lists {
    under_way: VecDeque<List>,
}

impl Lists {
    /// When the next step is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.under_way.is_empty()).then_some(now_ms + 1)
    }

    /// Clients that wait for a page.
    pub fn waiters(&self) -> impl Iterator<Item = (ConnectionId, Ticket)> {
        self.under_way.iter().map(|list| list.waiter)
    }

    /// The connection has ended.
    pub fn forget_those_of(&mut self, connection: ConnectionId) {
        self.under_way.retain(|list| list.waiter.0 != connection);
    }
}

/// One more step of the list whose turn it is.
pub fn go_on(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let Some(mut list) = partition.leader.lists.under_way.pop_front() else { return };
    match list.go_on(partition) {
        true => answer_page(list.page.page(), list.waiter, effects),
        false => partition.leader.lists.under_way.push_back(list),
    }
}

/// The page, and the end of the request.
pub(crate) fn answer_page(
    page: Page,
    (connection, ticket): (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    effects.push(Effect::Answer { connection, ticket, page: Box::new(page) });
    reply(connection, ticket, Ok(()), effects);
}

/// A browser that has not been sent anything begins after these entries, one of each lane that
/// it has seen before.
fn seek(leader: &mut Leader, key: ConsumerKey, after: &[EntryTag]) {
    let Some(browse) = leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.browse.as_mut())
    else {
        return;
    };
    after.iter().for_each(|tag| browse.pass(*tag));
}

/// Takes a question, or where a browser begins.
pub fn about_queues(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    match event {
        Event::Ask { ask, connection, ticket } => begin_list(partition, ask, (connection, ticket), effects),
        Event::Lease(event) => about_lease(partition, *event, effects),
        Event::Seek { consumer, after } => seek(&mut partition.leader, consumer, &after),
        _ => {}
    }
}

fn begin_list(
    partition: &mut Partition,
    ask: Arc<Ask>,
    waiter: (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    let walk: Box<dyn Walk> = match &ask.question {
        Question::Schedules(wanted) => return list_jobs(partition, wanted, ask.clone(), waiter, effects),
        Question::Explain { queue, of } => {
            open_explained(partition, queue, of);
            let page = Explainer(partition).explain(queue, of, &ask);
            return answer_page(page, waiter, effects);
        }
        Question::Queues { only: Some(only), .. } => Box::new(queues::QueuesOf::new(only)),
        Question::Queues { name_part, only: None } => Box::new(queues::Queues::new(name_part, &ask)),
        Question::Subscriptions { prefix } => Box::new(queues::Subscriptions::new(prefix, &ask)),
        Question::Connections => Box::new(clients::Connections::default()),
        Question::Consumers { of: Some(of) } => Box::new(queues::ConsumersOf::new(of)),
        Question::Consumers { of: None } => Box::new(clients::Consumers::default()),
        Question::Sessions { name_part } => Box::new(clients::Sessions::new(name_part, &ask)),
        Question::Producers { name_part, of } => {
            Box::new(clients::Producers::new(name_part, of.as_ref(), &ask))
        }
        Question::Topics { name_part, only } => Box::new(topics::Topics::new(name_part, only.as_ref(), &ask)),
        Question::Bindings { name_part, of } => Box::new(topics::Bindings::new(name_part, of.as_ref(), &ask)),
    };
    let mut list = List { ask, waiter, walk, page: PageMaker::default() };
    if list.go_on(partition) {
        return answer_page(list.page.page(), waiter, effects);
    }
    if partition.leader.lists.under_way.len() == LISTS_MAX {
        let refusal = Refusal::TooManyLists { max: LISTS_MAX };
        return reply(waiter.0, waiter.1, Err(refusal), effects);
    }
    partition.leader.lists.under_way.push_back(list);
}
