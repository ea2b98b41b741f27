//! Closing: a transaction is checked and closed, or undone. A large one takes several turns, so
//! that it does not stop its core.
//!
//! ```text
//!  commit, prepare ─▶ check ──all can be taken──▶ sort ─▶ its record is proposed
//!                       └─────one is refused─────▶ undo ─▶ refused
//!  rollback, end of its connection ──────────────▶ undo ─▶ answered
//! ```
//! The end of a connection or a consumer that holds much is closed here too: see `leaving`.
//!
//! Meanwhile events of its connection wait, so that nothing of the same producer overtakes it;
//! other connections go on. A check is as good as one in a single step: its record could as well be
//! on its way to the log while queues come and go.
//!
//! A transaction of up to [`SLICE_CHANGES`](crate::SLICE_CHANGES) changes is closed at once, unless
//! an earlier one of its connection is still being closed. Its record is carried out in slices too:
//! see `slices`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::IntoIter;

use postroad_model::{
    Changes, Command, ConnectionId, ConsumerKey, Destination, Effect, EntryTag, Event, LeaseEvent, LinkEvent,
    Outcome, Peer, QueueId, Refusal, Sent, Settle, Settlement, Ticket, TransactionId, TransactionKey,
    Urgency,
};

use super::VolatileChanges;
use super::open::{Asked, OpenTransaction, check_open, sort_sent, sort_settled};
use super::participant::propose_to_prepare;
use super::senders::SentTo;
use super::verdicts::Verdicts;
use crate::Partition;
use crate::addresses::binding::bind_new_queue;
use crate::entries::entry_at;
use crate::intake::publish::{answer_request, dispatch_all, publish_volatile};
use crate::leaving::{Leaving, note_ended};
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::refuse_waiting;
use crate::partition::take_in_turn;
use crate::queue::EntryState;
use crate::settling::release::release_entries;
use crate::settling::settle::{end_entry, give_back_all, settle_verdicts};
use crate::stepping_down::waiter_of;
use crate::transaction::branch::shares_ended;
use crate::transaction::coordinator::tell;
use crate::transaction::open::take_open;

/// One tick closes this many times the changes that it would carry out: they take less time each.
const SLICE_FACTOR: usize = 2;

/// Events that wait after transactions, more than clients send while some are closed; with more of
/// them, all are closed at once.
const BEHIND_MAX: usize = 16_384;

/// Transactions that are being closed, the first one first.
#[derive(Default)]
pub struct Closings {
    under_way: VecDeque<Closing>,
    /// How many of them each connection has.
    busy: BTreeMap<ConnectionId, usize>,
    /// Events of these connections, in order.
    behind: VecDeque<Event>,
    /// Queues that serve no consumer before all has come back, and of how many transactions.
    returning: BTreeMap<QueueId, usize>,
    /// Transactions have ended, for whose connections events may wait.
    has_ended: bool,
}

/// One of them, or the parts of several sessions in a branch.
struct Closing {
    connections: Vec<ConnectionId>,
    /// See [`OpenTransaction`].
    held_bytes: u64,
    stage: Stage,
}

enum Stage {
    Check(Check),
    Sort(Sort),
    /// Nothing of it must be in the log.
    ApplyChanges(ApplyChanges),
    Undo(Undo),
    /// A connection or a consumer ends.
    Leave(Box<Leaving>),
    /// Verdicts on many deliveries.
    Settle(Box<Verdicts>),
}

/// Changes that only memory knows.
struct ApplyChanges {
    ends: IntoIter<Settlement>,
    sends: IntoIter<(ConnectionId, Sent)>,
    /// Where the messages go.
    sent_to: Vec<SentTo>,
    answers: Answers,
}

/// The purpose of closing a transaction.
pub enum Close {
    /// It is carried out by one record.
    Commit(Answers),
    /// It is prepared for a coordinator.
    Prepare(TransactionId),
    /// It is undone.
    Undo(Answers),
}

/// Who hears of its end.
#[derive(Default)]
pub struct Answers {
    /// Sessions' shares of it, if it is a branch.
    pub shares: Vec<TransactionKey>,
    /// Who waits.
    pub answer: Option<(ConnectionId, Ticket)>,
    /// The coordinator's id of it, which hears that it has ended.
    pub done: Option<TransactionId>,
}

/// Kinds of messages in one transaction that decide about the others.
#[derive(Clone, Copy, Default)]
pub struct Kinds {
    /// One goes through the log for the sake of some of its addresses.
    pub both_ways: bool,
    /// One needs a queue that does not exist, of non-persistent and of persistent messages.
    pub needs_queue: [bool; 2],
}

struct Check {
    open: Vec<(ConnectionId, OpenTransaction)>,
    then: Close,
    kinds: Vec<Kinds>,
    /// The next transaction, and the next check of it.
    next: (usize, usize),
}

#[derive(Default)]
struct Sort {
    open: VecDeque<(ConnectionId, Kinds, OpenTransaction)>,
    sends: IntoIter<Sent>,
    settled: IntoIter<(ConsumerKey, Settlement)>,
    /// Of the transaction whose changes these are.
    of: Option<(ConnectionId, Kinds)>,
    /// Where the messages go of those that are sorted.
    sent_to: Vec<SentTo>,
    changes: Changes,
    volatile: VolatileChanges,
    /// Queues that are to be bound before the record makes them.
    new_queues: BTreeSet<Destination>,
    then: Option<Close>,
}

struct Undo {
    rest: VecDeque<OpenTransaction>,
    sends: Vec<Sent>,
    settled: IntoIter<(ConsumerKey, Settlement)>,
    returning: Returning,
    refusal: Option<Refusal>,
    then: Close,
}

/// Queues to which entries return: they serve no consumer until all are back, or a later message
/// could overtake an earlier one.
#[derive(Default)]
pub struct Returning(BTreeSet<QueueId>);

impl Returning {
    /// Entries of this queue return.
    pub fn hold(&mut self, partition: &mut Partition, queue: QueueId) {
        if self.0.insert(queue) {
            *partition.leader.transactions.closings.returning.entry(queue).or_default() += 1;
        }
    }

    /// All are back: the queues may be dispatched.
    pub fn end(self, partition: &mut Partition) -> Vec<QueueId> {
        let returning = &mut partition.leader.transactions.closings.returning;
        for queue in &self.0 {
            match returning.get_mut(queue) {
                Some(many) if *many > 1 => *many -= 1,
                _ => drop(returning.remove(queue)),
            }
        }
        self.0.into_iter().collect()
    }
}

impl Closings {
    /// Whether something is being closed.
    pub fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// When the next slice is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.is_busy().then_some(now_ms + 1)
    }

    /// Whether entries are on their way back to this queue.
    pub fn holds_up(&self, queue: QueueId) -> bool {
        !self.returning.is_empty() && self.returning.contains_key(&queue)
    }

    /// Bytes that its transactions hold in memory.
    pub fn held_bytes(&self) -> u64 {
        self.under_way.iter().map(|closing| closing.held_bytes).sum()
    }

    /// Where its transactions send, for a check.
    pub fn sent_to(&self) -> impl Iterator<Item = &SentTo> {
        self.under_way.iter().flat_map(|closing| closing.stage.sent_to())
    }

    /// Requests that wait, for a leader that stops.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        let closing = self.under_way.iter().filter_map(|closing| closing.stage.answer());
        closing.chain(self.behind.iter().filter_map(waiter_of)).collect()
    }

    /// Transactions that a coordinator waits for.
    pub fn preparing(&self) -> impl Iterator<Item = TransactionId> {
        self.under_way.iter().filter_map(|closing| match closing.stage.then() {
            Some(Close::Prepare(id)) => Some(*id),
            _ => None,
        })
    }

    /// Whether something of this connection is being closed.
    pub fn is_busy_for(&self, connection: ConnectionId) -> bool {
        self.busy.contains_key(&connection)
    }

    /// Whether the event has to wait for transactions of its connection.
    pub fn holds_back(&self, event: &Event) -> bool {
        !self.busy.is_empty() && connection_of(event).is_some_and(|by| self.busy.contains_key(&by))
    }

    /// Puts an event after the transactions of its connection, if there are any.
    fn put_behind(&mut self, event: Event) -> Option<Event> {
        if !self.holds_back(&event) {
            return Some(event);
        }
        self.behind.push_back(event);
        None
    }

    fn begin(&mut self, closing: Closing) {
        closing.connections.iter().for_each(|connection| self.hold(*connection));
        self.under_way.push_back(closing);
    }

    /// Later events of this connection wait until [`Closings::end`].
    pub fn hold(&mut self, connection: ConnectionId) {
        *self.busy.entry(connection).or_default() += 1;
    }

    /// Whether no event more should wait.
    pub fn is_full(&self) -> bool {
        self.behind.len() >= BEHIND_MAX
    }

    /// One thing less is closed, or waited for, of each of these connections.
    pub fn end(&mut self, connections: &[ConnectionId]) {
        for connection in connections {
            match self.busy.get_mut(connection) {
                Some(many) if *many > 1 => *many -= 1,
                _ => drop(self.busy.remove(connection)),
            }
        }
        self.has_ended = true;
    }
}

impl Close {
    fn answer(&self) -> Option<(ConnectionId, Ticket)> {
        match self {
            Close::Commit(answers) | Close::Undo(answers) => answers.answer,
            Close::Prepare(_) => None,
        }
    }
}

impl Stage {
    fn then(&self) -> Option<&Close> {
        match self {
            Stage::Check(check) => Some(&check.then),
            Stage::Sort(sort) => sort.then.as_ref(),
            Stage::Undo(undo) => Some(&undo.then),
            Stage::ApplyChanges(_) | Stage::Leave(_) | Stage::Settle(_) => None,
        }
    }

    fn answer(&self) -> Option<(ConnectionId, Ticket)> {
        match self {
            Stage::Leave(leaving) => leaving.answer(),
            Stage::Settle(verdicts) => verdicts.answer(),
            stage => stage.then()?.answer(),
        }
    }

    fn sent_to(&self) -> Vec<&SentTo> {
        match self {
            Stage::Check(check) => check.open.iter().map(|(_, open)| &open.sent_to).collect(),
            Stage::Sort(sort) => {
                sort.sent_to.iter().chain(sort.open.iter().map(|(_, _, open)| &open.sent_to)).collect()
            }
            Stage::ApplyChanges(changes) => changes.sent_to.iter().collect(),
            Stage::Undo(_) | Stage::Leave(_) | Stage::Settle(_) => Vec::new(),
        }
    }

    fn carry_out(changes: VolatileChanges, sent_to: Vec<SentTo>, answers: Answers) -> Stage {
        let (ends, sends) = (changes.settlements.into_iter(), changes.sends.into_iter());
        Stage::ApplyChanges(ApplyChanges { ends, sends, sent_to, answers })
    }
}

/// Ends these open transactions together; they are undone if there is a `refusal`, or one of them
/// cannot be taken.
pub fn close(
    partition: &mut Partition,
    keys: &[TransactionKey],
    (mut refusal, then): (Option<Refusal>, Close),
    effects: &mut Vec<Effect>,
) {
    let mut open = Vec::with_capacity(keys.len());
    for key in keys {
        match take_open(&mut partition.leader, *key) {
            Some(found) => open.push((key.connection, found)),
            // There is nothing to undo: clients roll back transactions without any work.
            None if matches!(then, Close::Undo(_)) => {}
            // Its connection may have ended here before the coordinator's word came: then its share
            // is gone.
            None => refusal = refusal.or(Some(Refusal::NoSuchTransaction)),
        }
    }
    let held_bytes = open.iter().map(|(_, open)| open.held_bytes()).sum();
    let changes: usize = open.iter().map(|(_, open)| open.len()).sum();
    let connections = keys.iter().map(|key| key.connection).chain(then.answer().map(|(by, _)| by));
    let is_behind = connections.clone().any(|by| partition.leader.transactions.closings.is_busy_for(by));
    let mut connections: Vec<ConnectionId> = connections.collect();
    connections.sort_unstable();
    connections.dedup();
    let stage = match &then {
        Close::Commit(_) | Close::Prepare(_) if refusal.is_none() => {
            let kinds = vec![Kinds::default(); open.len()];
            Stage::Check(Check { open, then, kinds, next: (0, 0) })
        }
        _ => Stage::Undo(Undo::begin(partition, open, (refusal, then), effects)),
    };
    start(partition, Closing { connections, held_bytes, stage }, (is_behind, changes), effects);
}

/// A transaction that the log need not know is carried out.
pub fn carry_out_volatile(
    partition: &mut Partition,
    (volatile, sent_to): (VolatileChanges, Vec<SentTo>),
    answers: Answers,
    effects: &mut Vec<Effect>,
) {
    let changes = volatile.sends.len() + volatile.settlements.len();
    let stage = Stage::carry_out(volatile, sent_to, answers);
    start(partition, Closing { connections: Vec::new(), held_bytes: 0, stage }, (false, changes), effects);
}

/// The connection of these transactions has ended: they are undone, all at once only if they are
/// small together.
pub fn undo_all(partition: &mut Partition, keys: &[TransactionKey], effects: &mut Vec<Effect>) {
    if !keys.is_empty() {
        close(partition, keys, (None, Close::Undo(Answers::default())), effects);
    }
}

/// A connection or a consumer of it ends, after all of the connection that is being closed.
pub fn close_leaving(
    partition: &mut Partition,
    (connection, leaving): (ConnectionId, Box<Leaving>),
    changes: usize,
    effects: &mut Vec<Effect>,
) {
    let is_behind = partition.leader.transactions.closings.is_busy_for(connection);
    let stage = Stage::Leave(leaving);
    let closing = Closing { connections: vec![connection], held_bytes: 0, stage };
    start(partition, closing, (is_behind, changes), effects);
}

fn start(
    partition: &mut Partition,
    closing: Closing,
    (is_behind, changes): (bool, usize),
    effects: &mut Vec<Effect>,
) {
    if is_behind || changes > partition.settings.slice_changes {
        partition.leader.transactions.open_bytes += closing.held_bytes;
        return partition.leader.transactions.closings.begin(closing);
    }
    let (mut stage, mut everything) = (Some(closing.stage), usize::MAX);
    while let Some(unfinished) = stage.take() {
        stage = unfinished.step(partition, &mut everything, effects);
    }
}

/// Closes the next slice; then events that waited go on.
pub fn go_on_closing(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut budget = partition.settings.slice_changes.saturating_mul(SLICE_FACTOR).max(1);
    while budget > 0
        && let Some(closing) = partition.leader.transactions.closings.under_way.pop_front()
    {
        let Closing { connections, held_bytes, stage } = closing;
        match stage.step(partition, &mut budget, effects) {
            Some(stage) => {
                let closing = Closing { connections, held_bytes, stage };
                partition.leader.transactions.closings.under_way.push_front(closing);
            }
            None => {
                partition.leader.transactions.open_bytes -= held_bytes;
                partition.leader.transactions.closings.end(&connections);
            }
        }
    }
    resume_behind(partition, effects);
}

/// The leader stops: transactions whose end is decided come to it.
pub fn finish_decided(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let (decided, others) = std::mem::take(&mut partition.leader.transactions.closings.under_way)
        .into_iter()
        .partition(|closing| matches!(closing.stage, Stage::ApplyChanges(_)));
    partition.leader.transactions.closings.under_way = others;
    let decided: VecDeque<Closing> = decided;
    for closing in decided {
        closing.stage.step(partition, &mut { usize::MAX }, effects);
        partition.leader.transactions.open_bytes -= closing.held_bytes;
        partition.leader.transactions.closings.end(&closing.connections);
    }
}

/// Events whose connections have nothing under way any more go on.
pub fn resume_behind(partition: &mut Partition, effects: &mut Vec<Effect>) {
    if !std::mem::take(&mut partition.leader.transactions.closings.has_ended) {
        return;
    }
    for event in std::mem::take(&mut partition.leader.transactions.closings.behind) {
        if let Some(event) = behind_its_transactions(partition, event, effects) {
            take_in_turn(partition, event, effects);
        }
    }
}

/// Puts an event after the transactions of its connection that are being closed; any other is given
/// back.
pub fn behind_its_transactions(
    partition: &mut Partition,
    event: Event,
    effects: &mut Vec<Effect>,
) -> Option<Event> {
    if let Event::Closed { connection } = event {
        note_ended(partition, connection, effects);
    }
    if partition.leader.transactions.closings.busy.is_empty() {
        return Some(event);
    }
    if partition.leader.transactions.closings.is_full() {
        refuse_waiting(partition, effects);
        while partition.leader.transactions.closings.is_busy() {
            go_on_closing(partition, effects);
        }
    }
    partition.leader.transactions.closings.put_behind(event)
}

impl Stage {
    /// Goes on as far as the budget allows; returns the rest.
    fn step(self, partition: &mut Partition, budget: &mut usize, effects: &mut Vec<Effect>) -> Option<Stage> {
        match self {
            Stage::Check(check) => check.step(partition, budget, effects),
            Stage::Sort(sort) => sort.step(partition, budget, effects),
            Stage::Undo(undo) => undo.step(partition, budget, effects),
            Stage::Leave(leaving) => leaving.step(partition, budget, effects).map(Stage::Leave),
            Stage::Settle(verdicts) => verdicts.step(partition, budget, effects).map(Stage::Settle),
            Stage::ApplyChanges(changes) => changes.step(partition, budget, effects),
        }
    }
}

impl ApplyChanges {
    fn step(
        mut self,
        partition: &mut Partition,
        budget: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> Option<Stage> {
        for end in super::slices::next(&mut self.ends, budget) {
            end_entry(partition, end.queue, end.tag, end.cause, effects);
        }
        for (connection, sent) in super::slices::next(&mut self.sends, budget) {
            publish_volatile(partition, sent, Some(connection), effects);
        }
        if self.ends.len() + self.sends.len() > 0 {
            return Some(Stage::ApplyChanges(self));
        }
        partition.leader.transactions.senders.end_all(self.sent_to);
        self.answers.give(partition, &Ok(()), effects);
        None
    }
}

/// Verdicts on deliveries: many that are accepted go in slices. Others do not, as messages that one
/// of them returns could overtake those of the next; nor while some may have been taken back from a
/// slow consumer, as these are settled whole or not at all.
pub fn settle(partition: &mut Partition, settle: Settle, effects: &mut Vec<Effect>) {
    let is_whole = settle.outcome != Outcome::Accepted
        || partition.settings.policies.any_slow()
        || partition.leader.delivery.has_taken_back;
    let is_there = partition.leader.delivery.consumers.contains_key(&settle.consumer);
    if is_whole || !is_there || settle.tags.len() <= partition.settings.slice_changes {
        return settle_verdicts(partition, settle, effects);
    }
    let (connections, changes) = (vec![settle.consumer.connection], settle.tags.len());
    let stage = Stage::Settle(Box::new(Verdicts::new(settle)));
    start(partition, Closing { connections, held_bytes: 0, stage }, (false, changes), effects);
}

impl Answers {
    fn give(self, partition: &mut Partition, result: &Result<(), Refusal>, effects: &mut Vec<Effect>) {
        shares_ended(self.shares, result.is_ok(), effects);
        answer_request(partition, self.answer, result.clone(), effects);
        if let Some(id) = self.done {
            tell(id.coordinator, Peer::Done { id }, effects);
        }
    }
}

impl Check {
    fn step(
        mut self,
        partition: &mut Partition,
        budget: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> Option<Stage> {
        let (at, next) = &mut self.next;
        while let (Some((_, open)), Some(kinds)) = (self.open.get(*at), self.kinds.get_mut(*at)) {
            if *next == open.checks() {
                (*at, *next) = (*at + 1, 0);
                continue;
            }
            if *budget == 0 {
                return Some(Stage::Check(self));
            }
            *budget -= 1;
            if let Some(refusal) = check_open(partition, open, *next, kinds) {
                let why = (Some(refusal), self.then);
                return Some(Stage::Undo(Undo::begin(partition, self.open, why, effects)));
            }
            *next += 1;
        }
        let open = self.open.into_iter().zip(self.kinds).map(|((by, open), kinds)| (by, kinds, open));
        Some(Stage::Sort(Sort { open: open.collect(), then: Some(self.then), ..Sort::default() }))
    }
}

impl Sort {
    fn step(
        mut self,
        partition: &mut Partition,
        budget: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> Option<Stage> {
        loop {
            if let Some((connection, kinds)) = self.of {
                for sent in super::slices::next(&mut self.sends, budget) {
                    self.new_queues.extend(partition.state.addresses.new_queues(&sent).cloned());
                    sort_sent(partition, (connection, kinds), sent, (&mut self.changes, &mut self.volatile));
                }
            }
            for (consumer, settlement) in super::slices::next(&mut self.settled, budget) {
                sort_settled(partition, (consumer, settlement), (&mut self.changes, &mut self.volatile));
            }
            if self.sends.len() + self.settled.len() > 0 {
                return Some(Stage::Sort(self));
            }
            let Some((connection, kinds, open)) = self.open.pop_front() else { break };
            let OpenTransaction { sends, settled, settled_again, sent_to, .. } = open;
            self.sent_to.push(sent_to);
            self.of = Some((connection, kinds));
            (self.sends, self.settled) = (sends.into_iter(), settled.into_iter());
            self.volatile.settled_again.extend(settled_again);
        }
        if self.changes != Changes::default() {
            self.new_queues.iter().for_each(|queue| bind_new_queue(partition, queue, effects));
        }
        match self.then {
            Some(Close::Commit(answers)) => {
                commit(partition, (self.changes, self.sent_to), (self.volatile, answers), effects)
            }
            Some(Close::Prepare(id)) => {
                partition.leader.transactions.keep_sent_to(id, self.sent_to);
                propose_to_prepare(partition, id, (self.changes, self.volatile), effects);
                None
            }
            Some(Close::Undo(_)) | None => None,
        }
    }
}

/// The record of a transaction is proposed; where it needs none, its changes in memory follow.
fn commit(
    partition: &mut Partition,
    (changes, sent_to): (Changes, Vec<SentTo>),
    (volatile, answers): (VolatileChanges, Answers),
    effects: &mut Vec<Effect>,
) -> Option<Stage> {
    let settled_again = volatile.settled_again.clone();
    let needs_record = changes != Changes::default();
    if !needs_record && settled_again.is_empty() {
        return Some(Stage::carry_out(volatile, sent_to, answers));
    }
    partition.leader.transactions.senders.end_all(sent_to);
    let Answers { shares, answer, .. } = answers;
    let settlements = changes.settlements.clone();
    let completion = Completion::Transacted { settlements, volatile, shares, answer };
    let command = match needs_record {
        true => Command::Transact(changes),
        false => Command::Settle(settled_again),
    };
    propose(partition, command, Urgency::Waiting, completion, effects);
    None
}

/// Holds the queues of entries whose consumers are gone, from the beginning: no later message
/// overtakes those that are about to return.
fn hold_orphaned(partition: &mut Partition, rest: &VecDeque<OpenTransaction>) -> Returning {
    let (mut returning, mut last) = (Returning::default(), None);
    for (consumer, end) in rest.iter().flat_map(|open| &open.settled) {
        let is_new = last.replace((*consumer, end.queue)) != Some((*consumer, end.queue));
        if is_new && !partition.leader.delivery.consumers.contains_key(consumer) {
            returning.hold(partition, end.queue);
        }
    }
    returning
}

impl Undo {
    fn begin(
        partition: &mut Partition,
        open: Vec<(ConnectionId, OpenTransaction)>,
        (refusal, then): (Option<Refusal>, Close),
        effects: &mut Vec<Effect>,
    ) -> Undo {
        let mut rest: VecDeque<OpenTransaction> = open.into_iter().map(|(_, open)| open).collect();
        let mut at = 0;
        while let Some(open) = rest.get_mut(at) {
            if let Some(Asked::Prepare(transactions, id)) = open.asked.take() {
                let result = Err(open.refused.clone().unwrap_or(Refusal::NoSuchTransaction));
                tell(id.coordinator, Peer::Prepared { id, result }, effects);
                rest.extend(transactions.into_iter().filter_map(|key| take_open(&mut partition.leader, key)));
            }
            at += 1;
        }
        for open in &mut rest {
            partition.leader.transactions.senders.end(std::mem::take(&mut open.sent_to));
        }
        let returning = hold_orphaned(partition, &rest);
        let (sends, settled) = (Vec::new(), Vec::new().into_iter());
        Undo { rest, sends, settled, returning, refusal, then }
    }

    fn step(
        mut self,
        partition: &mut Partition,
        budget: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> Option<Stage> {
        if !self.go_on(partition, budget, effects) {
            return Some(Stage::Undo(self));
        }
        let touched = self.returning.end(partition);
        dispatch_all(partition, touched, effects);
        let result = self.refusal.map_or(Ok(()), Err);
        match self.then {
            Close::Commit(answers) | Close::Undo(answers) => answers.give(partition, &result, effects),
            Close::Prepare(id) => {
                partition.leader.transactions.end_prepared(id);
                tell(id.coordinator, Peer::Prepared { id, result }, effects);
            }
        }
        None
    }

    /// Whether all has come back.
    fn go_on(&mut self, partition: &mut Partition, budget: &mut usize, effects: &mut Vec<Effect>) -> bool {
        let mut orphans: BTreeMap<(QueueId, ConsumerKey), Vec<EntryTag>> = BTreeMap::new();
        let is_done = loop {
            let dropped = self.sends.len().min(*budget);
            *budget -= dropped;
            self.sends.truncate(self.sends.len() - dropped);
            let mut own = Vec::new();
            for (consumer, settlement) in super::slices::next(&mut self.settled, budget) {
                let Settlement { queue, tag, .. } = settlement;
                let has_reader = partition.leader.delivery.consumers.contains_key(&consumer);
                let Some(entry) = entry_at(partition, queue, tag) else { continue };
                if entry.state != (EntryState::Held { by: consumer, in_transaction: true }) {
                    continue;
                }
                if consumer.connection.is_internal() {
                    // The broker itself was about to move it, which is no delivery.
                    entry.state = EntryState::Leaving;
                    self.returning.hold(partition, queue);
                    own.push(settlement);
                    continue;
                }
                entry.state = EntryState::Held { by: consumer, in_transaction: false };
                if !has_reader {
                    self.returning.hold(partition, queue);
                    orphans.entry((queue, consumer)).or_default().push(tag);
                }
            }
            give_back_all(partition, &own);
            if self.sends.len() + self.settled.len() > 0 {
                break false;
            }
            let Some(open) = self.rest.pop_front() else { break true };
            (self.sends, self.settled) = (open.sends, open.settled.into_iter());
        };
        for ((queue, consumer), tags) in orphans {
            // One record counts the failed deliveries of a slice.
            for tags in tags.chunks(partition.settings.slice_changes.clamp(1, crate::SLICE_CHANGES)) {
                release_entries(partition, queue, consumer, tags, true, effects);
            }
        }
        is_done
    }
}

/// The client whose transactions the event must not overtake; `None` if it may.
fn connection_of(event: &Event) -> Option<ConnectionId> {
    match event {
        Event::Closed { connection }
        | Event::Abandon { connection, .. }
        | Event::Introduce { connection, .. }
        | Event::AddProducer { connection, .. }
        | Event::RemoveProducer { connection, .. } => Some(*connection),
        Event::Seal { transaction } | Event::Rollback { transaction, .. } => Some(transaction.connection),
        Event::Settle(settle) => Some(settle.consumer.connection),
        Event::Detach { consumer, .. } | Event::Credit { consumer, .. } | Event::Drain { consumer } => {
            Some(consumer.connection)
        }
        Event::Lease(event) => match &**event {
            LeaseEvent::Cancel { connection, .. } => Some(*connection),
            _ => waiter_of(&Event::Lease(event.clone())).map(|(connection, _)| connection),
        },
        Event::Link(LinkEvent::Forget { connection, .. } | LinkEvent::Leave { connection, .. }) => {
            Some(*connection)
        }
        event => waiter_of(event).map(|(connection, _)| connection),
    }
}
