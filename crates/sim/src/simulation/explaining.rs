//! Explanations hold: each undelivered message of a run at rest is delivered, or leaves its queue,
//! once the causes that the broker names are removed one after the other, each by the change that
//! it proposes.
//!
//! A change is made as an operator would make it: the names in the explanation must suffice. The
//! number of changes has a bound, by the messages and consumers of the queue.
//! Never here: which cause is right. A wrong one shows by a message that stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{
    Ask, Change, ConnectionId, ConsumerKey, ConsumerMode, Decisive, Delivery, Destination, DestinationKind,
    Effect, EntryTag, Event, Explained, Order, PartitionId, Publish, Question, QueueId, Row, Ticket, Verdict,
    VerdictRow, decisive,
};

use crate::client::{Client, Outgoing, World, name_of};
use crate::oracle::{MessageNumber, number_of};

use super::{Checked, SLOTS, Simulation};

/// The run comes to rest for that once in this number of steps.
const STEPS: u64 = 500;

/// Messages of one rest that are explained.
const MESSAGES: usize = 12;

/// Sends that are asked about by their ids.
const SENDS: usize = 6;

/// Changes to deliver a message that is alone...
const CHANGES: usize = 20;

/// ... and more for each message or consumer of its queue: it is delivered, settled or ended, and
/// returns once more.
const CHANGES_EACH: usize = 4;

/// Waits after which a move needs room in its target.
const MOVE_WAITS: u32 = 8;

/// Credit of a consumer that makes room.
const CREDIT: u32 = 1000;

/// Rounds in which that room is made: a rollback brings messages back.
const ROUNDS: u32 = 4;

/// The time of such a round: a move goes on within it.
const ROUND_MS: u64 = 1000;

/// Time that passes while the broker goes on by itself: twice as long each time, up to this.
const WAIT_MS_MAX: u64 = 1024;

/// Facts for the changes, and of their effects.
#[derive(Default)]
pub struct Explaining {
    /// Messages that consumers got since the last explanation.
    delivered: BTreeSet<((PartitionId, QueueId), EntryTag)>,
    numbers: BTreeSet<MessageNumber>,
    /// They take nothing.
    browsers: BTreeSet<ConsumerKey>,
    /// Sends to queues since the last rest.
    sends: BTreeMap<MessageNumber, Destination>,
    /// The client of this slot does not read.
    pub silent: Option<usize>,
}

impl Explaining {
    /// A client asks for this.
    pub fn asked(&mut self, event: &Event) {
        match event {
            Event::Attach(attach) if attach.mode == ConsumerMode::Browse => {
                self.browsers.insert(attach.consumer);
            }
            Event::Publish(publish) => self.sent(publish),
            _ => {}
        }
    }

    fn sent(&mut self, publish: &Publish) {
        let sent = &publish.sent;
        if sent.to.kind == DestinationKind::Queue && sent.also.is_empty() && sent.schedule.is_none() {
            let number = number_of(&sent.message);
            self.sends.extend(number.map(|number| (number, sent.to.clone())));
        }
    }

    /// A message is delivered.
    pub fn delivered(&mut self, delivery: &Delivery) {
        if !self.browsers.contains(&delivery.consumer) {
            self.delivered.insert((delivery.queue, delivery.tag));
            self.numbers.extend(number_of(&delivery.message));
        }
    }
}

/// A message that waits.
#[derive(Clone)]
struct Waiting {
    queue: Destination,
    at: (PartitionId, QueueId),
    tag: EntryTag,
}

impl Simulation {
    /// Explains the waiting messages, if it is time for that in this run.
    pub(super) fn explain_at(&mut self, step: u64) -> Checked {
        if !self.options.explains || !step.is_multiple_of(STEPS) {
            return Ok(());
        }
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        self.assembly.retry = true;
        self.rest()?;
        self.explaining.silent = self.random.one_in(3).then(|| self.random.below(SLOTS as u64) as usize);
        let paused = self.pause_some()?;
        self.rest()?;
        let mut waiting = waiting_in(self);
        while MESSAGES < waiting.len() {
            waiting.swap_remove(self.random.below(waiting.len() as u64) as usize);
        }
        let sends: Vec<_> =
            std::mem::take(&mut self.explaining.sends).into_iter().rev().take(SENDS).collect();
        for (number, queue) in sends {
            self.send_arrives(number, &queue)?;
        }
        for message in waiting {
            self.is_delivered_by_changes(&message)?;
        }
        self.explaining.silent = None;
        for queue in paused {
            self.by_operator(|client, world| client.pause(world, &queue, false))?;
        }
        self.rest()
    }

    fn pause_some(&mut self) -> Result<Vec<Destination>, String> {
        let mut paused = Vec::new();
        for queue in self.scene.destinations.clone() {
            if queue.kind == DestinationKind::Queue && self.random.one_in(4) {
                self.by_operator(|client, world| client.pause(world, &queue, true))?;
                paused.push(queue);
            }
        }
        Ok(paused)
    }

    fn explain(
        &mut self,
        at: PartitionId,
        queue: &Destination,
        of: Explained,
    ) -> Result<Vec<VerdictRow>, String> {
        let question = Question::Explain { queue: queue.clone(), of };
        let ask = Arc::new(Ask { question, after: None, rows: Ask::ROWS_MAX, order: Order::default() });
        let (connection, ticket) = (ConnectionId::internal(at), Ticket(0));
        let turn = self.assembly.cores[usize::from(at.0)].soft(Event::Ask { ask, connection, ticket });
        let page = turn.effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { page, .. } => Some(page),
            _ => None,
        });
        let rows = page.ok_or("an explanation has no answer")?.rows.into_iter().filter_map(|row| match row {
            Row::Verdict(row) => Some(row),
            _ => None,
        });
        let mut rows: Vec<VerdictRow> = rows.collect();
        if let Some(mistake) = self.options.mistake {
            mistake.make(&mut rows);
        }
        Ok(rows)
    }

    /// See the head of this file.
    fn is_delivered_by_changes(&mut self, message: &Waiting) -> Checked {
        let Waiting { queue, at, tag } = message;
        self.explaining.delivered.clear();
        let queued = waiting_in(self).iter().filter(|other| other.at == *at).count();
        let (mut trail, mut waits) = (Vec::new(), 0);
        // By the consumers that are there at first: changes attach some more.
        let mut changes_max = None;
        while changes_max.is_none_or(|max| trail.len() < max) {
            let rows = self.explain(at.0, queue, Explained::Entry(*tag))?;
            if rows.is_empty() {
                // The queue has moved to another partition.
                self.report.explained.gone += 1;
                return Ok(());
            }
            let consumers = rows.iter().filter(|row| row.consumer.is_some()).count();
            changes_max.get_or_insert(CHANGES + CHANGES_EACH * (queued + consumers));
            let cause = match decisive(&rows) {
                Decisive::Cause(row) if row.verdict == Verdict::NoMessage => {
                    self.report.explained.gone += 1;
                    return Ok(());
                }
                Decisive::Cause(row) => row.clone(),
                other => return Err(format!("{queue} {tag:?}: {other:?}, but it waits: {rows:?} {trail:?}")),
            };
            let was_held = trail.last().is_some_and(is_held_outside);
            if was_held && matches!(cause.verdict, Verdict::Settled { .. }) {
                return Err(format!("{queue} {tag:?} is settled, but was to come back: {rows:?} {trail:?}"));
            }
            trail.push(cause.verdict.clone());
            let made = self.change(&cause, (queue, at.0), &mut waits);
            made.map_err(|what| format!("{queue} {tag:?}: {what}: {rows:?} {trail:?}"))?;
            if self.explaining.delivered.contains(&(*at, *tag)) {
                self.report.explained.delivered += 1;
                self.report.explained.changes += trail.len() as u64;
                return Ok(());
            }
        }
        match trail.last() {
            // Its target has no room.
            Some(Verdict::Moving { held: 0, transactions: 0 }) => {
                self.report.explained.without_room += 1;
                Ok(())
            }
            _ => Err(format!("{queue} {tag:?} is not delivered by {} changes: {trail:?}", trail.len())),
        }
    }

    /// A message that was sent in a transaction, or waits for room, arrives once that cause is
    /// removed.
    fn send_arrives(&mut self, number: MessageNumber, queue: &Destination) -> Checked {
        let (mut trail, mut waits) = (Vec::new(), 0);
        while trail.len() < CHANGES {
            let at = self.usual.partition_of(&queue.name);
            let rows = self.explain(at, queue, Explained::Id(number.to_string().into()))?;
            let on_its_way = |row: &&VerdictRow| {
                let verdict = &row.verdict;
                matches!(verdict, Verdict::Uncommitted { .. } | Verdict::Blocked { .. })
                    || matches!(verdict, Verdict::Prepared { is_sent: true, .. })
            };
            let Some(cause) = rows.iter().find(on_its_way).cloned() else {
                self.report.explained.sends += u64::from(!trail.is_empty());
                return Ok(());
            };
            trail.push(cause.verdict.clone());
            let made = self.change(&cause, (queue, at), &mut waits);
            made.map_err(|what| format!("{queue}, message {number}: {what}: {rows:?} {trail:?}"))?;
        }
        if self.lacks_memory(trail.last())? {
            self.report.explained.without_room += 1;
            return Ok(());
        }
        Err(format!("message {number} stays on its way to {queue}: {trail:?}"))
    }

    /// Whether sends wait for the memory of messages that are not consumed: those of subscriptions
    /// whose readers select, or that have none.
    fn lacks_memory(&mut self, last: Option<&Verdict>) -> Result<bool, String> {
        let lacks =
            |verdict: &Verdict| matches!(verdict, Verdict::Blocked { reason: "memory" | "queue-memory", .. });
        match last {
            Some(Verdict::Blocked { reason: "own-send", at: Some(at), .. }) => {
                let rows = self.explain(self.usual.partition_of(&at.name), at, Explained::Next)?;
                Ok(rows.iter().any(|row| lacks(&row.verdict)))
            }
            last => Ok(last.is_some_and(lacks)),
        }
    }

    /// Makes the change that removes the cause, and lets the broker come to rest.
    fn change(
        &mut self,
        cause: &VerdictRow,
        (queue, at): (&Destination, PartitionId),
        waits: &mut u32,
    ) -> Checked {
        let change = cause.verdict.change().ok_or("a cause without a change")?;
        self.trace(|| format!("{queue}: {:?}, so {change:?}", cause.verdict));
        match change {
            // A move also waits for room in the target store, which only the target knows.
            Change::Wait if matches!(cause.verdict, Verdict::Moving { .. }) && MOVE_WAITS < *waits => {
                make_room(self, queue)?;
            }
            Change::Wait => {
                self.now_ms += (1 << *waits).min(WAIT_MS_MAX);
                *waits = (*waits + 1).min(WAIT_MS_MAX.ilog2());
            }
            Change::WaitUntilDue => self.now_ms += due_in(&cause.verdict)?,
            Change::Resume => self.by_operator(|client, world| client.pause(world, queue, false))?,
            Change::Attach | Change::AttachMatching => {
                self.attach_to(queue, 1)?;
            }
            Change::Settle => self.have_settled(cause)?,
            Change::GiveCredit => {
                let (slot, number) = consumer_of(self, cause)?;
                self.with_client(slot, |client, _| client.credit_one(number))?;
            }
            Change::Read => self.explaining.silent = None,
            Change::EndTransaction => self.end_transactions(cause)?,
            Change::Decide => self.decide(cause, queue)?,
            Change::EndOwner => {
                let (slot, number) = consumer_of(self, cause)?;
                self.with_client(slot, |client, world| client.detach_one(world, number))?;
            }
            Change::MakeRoom => match &cause.verdict {
                Verdict::Blocked { at: Some(at), .. } => make_room(self, at)?,
                _ => make_room(self, queue)?,
            },
            Change::Release => return Err(format!("no leases are in this run, but {at:?} names one")),
        }
        self.rest()
    }

    /// The client that is at hand makes a change.
    fn by_operator(&mut self, act: impl FnOnce(&mut Client, &mut World<'_>) -> Outgoing) -> Checked {
        let silent = self.explaining.silent;
        let slot = (0..SLOTS).find(|slot| Some(*slot) != silent).unwrap_or(0);
        if self.clients[slot].is_none() {
            self.connect(slot)?;
        }
        self.with_client(slot, act)
    }

    /// Attaches a consumer: to a temporary queue by the connection that made it.
    fn attach_to(&mut self, queue: &Destination, credit: u32) -> Checked {
        let made_it = |client: &Client| client.own().contains(queue);
        let owner = self.clients.iter().position(|client| client.as_ref().is_some_and(made_it));
        let attach =
            |client: &mut Client, world: &mut World<'_>| client.attach_plain(world, queue.clone(), credit);
        match owner.filter(|_| queue.temporary) {
            Some(slot) => self.with_client(slot, attach),
            None => self.by_operator(attach),
        }
    }

    /// The consumer acknowledges, or ends.
    fn have_settled(&mut self, cause: &VerdictRow) -> Checked {
        if let Verdict::Moving { .. } = cause.verdict {
            settle_everywhere(self)?;
            self.rest()?;
            return end_everywhere(self);
        }
        let (slot, number) = consumer_of(self, cause)?;
        let ends = matches!(cause.verdict, Verdict::Held { .. }) && self.random.one_in(2);
        self.with_client(slot, |client, world| match ends {
            true => client.detach_one(world, number),
            false => client.settle_all_of(world, number),
        })
    }

    fn end_transactions(&mut self, cause: &VerdictRow) -> Checked {
        if let Verdict::Moving { .. } = cause.verdict {
            return end_everywhere(self);
        }
        let slot = match &cause.verdict {
            Verdict::Settled { connection, by, .. } | Verdict::Uncommitted { connection, by, .. } => {
                let name = match by.is_empty() {
                    true => self.name_in_first(*connection)?,
                    false => by.clone(),
                };
                slot_of(self, &name)?
            }
            _ => consumer_of(self, cause)?.0,
        };
        let commits = self.random.one_in(2);
        self.with_client(slot, |client, world| client.end_transactions(world, commits))
    }

    /// The name of a connection, from the partition that the client introduced itself to.
    fn name_in_first(&mut self, connection: ConnectionId) -> Result<Arc<str>, String> {
        let rows =
            self.explain(PartitionId(0), &Destination::queue("any"), Explained::Connection(connection))?;
        let name = rows.into_iter().find_map(|row| match row.verdict {
            Verdict::Uncommitted { by, .. } => Some(by),
            _ => None,
        });
        name.ok_or_else(|| format!("{connection:?} has no name"))
    }

    fn decide(&mut self, cause: &VerdictRow, queue: &Destination) -> Checked {
        let Verdict::Prepared { transaction, branch, .. } = &cause.verdict else {
            return Err("nothing is prepared".to_owned());
        };
        let mut name = branch.clone();
        for index in 0..self.assembly.cores.len() {
            let of = Explained::Transaction(*transaction);
            let rows = self.explain(PartitionId(index as u16), queue, of)?;
            name = name.or(rows.into_iter().find_map(|row| match row.verdict {
                Verdict::Prepared { branch, .. } => branch,
                _ => None,
            }));
        }
        let name = name.ok_or("a prepared transaction without a branch")?;
        let mut is_known = false;
        self.by_operator(|client, world| {
            let events = client.decide_one(world, &name);
            is_known = events.is_some();
            events.unwrap_or_default()
        })?;
        is_known.then_some(()).ok_or_else(|| format!("no branch {name}"))
    }
}

/// Each message in a queue.
fn waiting_in(run: &Simulation) -> Vec<Waiting> {
    let messages = run.assembly.cores.iter().flat_map(|core| {
        let queued = |(queue, id, tag): (&Destination, QueueId, EntryTag)| Waiting {
            queue: queue.clone(),
            at: (core.id, id),
            tag,
        };
        core.partition.messages().map(queued)
    });
    // Consumers of dead letters come at the end of a run.
    let is_read = |queue: &Destination| queue.temporary || run.scene.destinations.contains(queue);
    let is_queue = |queue: &Destination| queue.kind == DestinationKind::Queue && is_read(queue);
    messages.filter(|message| is_queue(&message.queue)).collect()
}

/// A consumer has it, and no transaction will settle it: it comes back if the consumer ends.
fn is_held_outside(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Held { in_transaction: false, .. })
}

fn slot_of(run: &Simulation, name: &str) -> Result<usize, String> {
    let is_it = |client: &Client| name_of(client.connection) == name;
    let slot = run.clients.iter().position(|client| client.as_ref().is_some_and(is_it));
    slot.ok_or_else(|| format!("{name:?} is no client that is there"))
}

/// The slot and number of the consumer that the cause names.
fn consumer_of(run: &Simulation, cause: &VerdictRow) -> Result<(usize, u32), String> {
    let name = match (&cause.verdict, cause.consumer) {
        (Verdict::Held { by, .. }, _) => by,
        (Verdict::NotExclusive { owner }, _) => owner,
        (Verdict::Group { owner: Some(owner), .. }, _) => owner,
        _ => &cause.name,
    };
    let (connection, number) = name.rsplit_once(':').ok_or_else(|| format!("{name:?} names nobody"))?;
    let number = number.parse().map_err(|_| format!("{name:?} names nobody"))?;
    Ok((slot_of(run, connection)?, number))
}

/// All consumers acknowledge all their messages.
fn settle_everywhere(run: &mut Simulation) -> Checked {
    for slot in 0..SLOTS {
        run.with_client(slot, |client, _| client.credit_all(CREDIT))?;
        run.with_client(slot, Client::accept_all)?;
    }
    Ok(())
}

/// All transactions end.
fn end_everywhere(run: &mut Simulation) -> Checked {
    for slot in 0..SLOTS {
        run.with_client(slot, |client, world| client.end_transactions(world, false))?;
    }
    for name in run.branches.iter().map(ToString::to_string).collect::<Vec<_>>() {
        run.by_operator(|client, world| client.decide_one(world, &name).unwrap_or_default())?;
    }
    Ok(())
}

/// All that is in the queue leaves. Its consumers end then: no run has more of them with each call.
fn make_room(run: &mut Simulation, queue: &Destination) -> Checked {
    run.explaining.silent = None;
    let firsts: Vec<Option<(ConnectionId, u32)>> =
        run.clients.iter().map(|client| client.as_ref().map(Client::next_consumer)).collect();
    run.by_operator(|client, world| client.pause(world, queue, false))?;
    // Others may take no more of it: by their selectors, or as messages were taken back from them.
    for slot in 0..SLOTS {
        run.with_client(slot, |client, world| client.detach_all_of(world, queue))?;
    }
    run.attach_to(queue, CREDIT)?;
    run.rest()?;
    settle_everywhere(run)?;
    // Memory is short for all of them together, and a dead letter takes as much as any message.
    let held: BTreeSet<Destination> = waiting_in(run).into_iter().map(|message| message.queue).collect();
    let dead_letters = run.scene.dead_letters.clone();
    for other in held.iter().filter(|other| *other != queue).chain([&dead_letters]) {
        run.attach_to(other, CREDIT)?;
    }
    for name in run.scene.names.clone() {
        run.by_operator(|client, world| client.read(world, name, CREDIT))?;
    }
    for _ in 0..ROUNDS {
        // A queue on the move delivers once it has arrived.
        run.now_ms += ROUND_MS;
        run.rest()?;
        settle_everywhere(run)?;
        end_everywhere(run)?;
    }
    for (slot, first) in firsts.into_iter().enumerate() {
        run.with_client(slot, |client, world| client.detach_from(world, first))?;
    }
    run.rest()
}

/// When a message is due that waits for its time.
fn due_in(verdict: &Verdict) -> Result<u64, String> {
    match verdict {
        Verdict::Resting { for_ms } | Verdict::Delayed { for_ms } | Verdict::InDoubt { for_ms } => {
            Ok(*for_ms)
        }
        other => Err(format!("{other:?} has no time")),
    }
}
