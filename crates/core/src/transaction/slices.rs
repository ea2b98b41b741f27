//! Slices: a large transaction is carried out over several turns, so that it does not stop its
//! core.
//!
//! A commit is one record: it is durable, or it is not. Its effects follow in slices, one with each
//! tick: entries that leave, then messages that come. So do those of a share that is prepared or
//! aborted. Records after it wait for the last slice, so the order of the log is kept. Then its
//! client has the answer. A consumer may have the first of its messages before the last one is in
//! its queue.
//!
//! Only a leader does so. A replica, and a start that reads the log, carry each record out at once.
//! So does the leader before a snapshot, before it stops to lead, and when the log fails: see
//! [`Partition::finish_records`].

use std::collections::{BTreeMap, VecDeque};
use std::iter::Take;
use std::vec::IntoIter;

use postroad_model::{
    Changes, Command, ConnectionId, Destination, Effect, MessageKey, Position, QueueId, Schedule, Sent,
    Settlement,
};

use super::participant::{Aborting, Preparing};
use super::{Prepared, VolatileChanges};
use crate::Partition;
use crate::entries::put_down;
use crate::intake::audit::audit;
use crate::intake::blocked::BlockedOn;
use crate::intake::publish::{bind_entries, dispatch_all, enqueue_left, evict_newest, publish_volatile};
use crate::intake::unparking::{unpark, unpark_held_by};
use crate::intake::waiting::resume_behind_sends;
use crate::log::completion::{Completion, complete_proposal};
use crate::memory::packing::are_deep;
use crate::partition::apply_next;
use crate::schedule::take_job;
use crate::settling::settle::end_entry;

/// See the head of this file.
#[derive(Default)]
pub struct Slices {
    /// The rest of a record.
    under_way: Option<Rest>,
    /// Records that came behind it, in order.
    behind: VecDeque<(Position, Command)>,
}

impl Slices {
    /// Whether records are not carried out to their end.
    pub fn is_busy(&self) -> bool {
        self.under_way.is_some() || !self.behind.is_empty()
    }

    /// When the next slice is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.is_busy().then_some(now_ms + 1)
    }

    /// The record waits for those before it.
    pub fn put_behind(&mut self, position: Position, command: Command) {
        self.behind.push_back((position, command));
    }

    /// The record that has just begun goes on with the next tick: notes whether it may begin a
    /// durable binding.
    pub fn goes_on(&mut self, begins: bool) -> bool {
        self.under_way.as_mut().map(|rest| rest.begins = begins).is_some()
    }
}

/// Work that is left of a record that is durable.
pub struct Rest {
    work: Work,
    /// See [`crate::log::durability::may_begin_binding`].
    begins: bool,
}

enum Work {
    ApplyChanges(ApplyChanges),
    Prepare(Preparing),
    Abort(Aborting),
}

/// Changes that are left of a transaction.
struct ApplyChanges {
    ends: IntoIter<Settlement>,
    jobs: IntoIter<(MessageKey, u64, Schedule)>,
    sends: Sends,
    volatile_ends: IntoIter<Settlement>,
    volatile_sends: IntoIter<(ConnectionId, Sent)>,
}

/// Messages that come into their queues.
enum Sends {
    /// They are in the record at this position, from this ordinal on.
    Recorded(Position, u32, IntoIter<Sent>),
    /// They were prepared.
    Prepared {
        sends: IntoIter<(MessageKey, Destination)>,
        moved: BTreeMap<MessageKey, u32>,
        senders: VolatileChanges,
    },
}

impl Rest {
    /// A transaction within one partition.
    pub fn of_record(position: Position, changes: Changes, effects: &mut Vec<Effect>) -> Rest {
        if !changes.sends.is_empty() {
            effects.push(crate::intake::publish::retained(position, &changes.sends));
        }
        let sends = Sends::Recorded(position, 0, changes.sends.into_iter());
        Rest::new(Work::ApplyChanges(ApplyChanges::new(changes.settlements, Vec::new(), sends)))
    }

    /// A share of a transaction that was prepared, and is committed.
    pub fn of_prepared(prepared: Prepared, mut volatile: VolatileChanges) -> Rest {
        let Prepared { sends, settlements, moved, scheduled } = prepared;
        let volatile_ends = std::mem::take(&mut volatile.settlements);
        let volatile_sends = std::mem::take(&mut volatile.sends);
        let sends = Sends::Prepared { sends: sends.into_iter(), moved, senders: volatile };
        Rest::new(Work::ApplyChanges(ApplyChanges {
            volatile_ends: volatile_ends.into_iter(),
            volatile_sends: volatile_sends.into_iter(),
            ..ApplyChanges::new(settlements, scheduled, sends)
        }))
    }

    /// A share of a transaction that is being prepared.
    pub fn of_prepare(preparing: Preparing) -> Rest {
        Rest::new(Work::Prepare(preparing))
    }

    /// A share of a transaction that was prepared, and is aborted.
    pub fn of_abort(aborting: Aborting) -> Rest {
        Rest::new(Work::Abort(aborting))
    }

    fn new(work: Work) -> Rest {
        Rest { work, begins: false }
    }

    fn len(&self) -> usize {
        match &self.work {
            Work::ApplyChanges(work) => work.len(),
            Work::Prepare(work) => work.len(),
            Work::Abort(work) => work.len(),
        }
    }

    /// Carries out changes as far as the budget allows.
    fn step(&mut self, partition: &mut Partition, budget: &mut usize, effects: &mut Vec<Effect>) {
        match &mut self.work {
            Work::ApplyChanges(work) => work.step(partition, budget, effects),
            Work::Prepare(work) => work.step(partition, budget, effects),
            Work::Abort(work) => work.step(partition, budget, effects),
        }
    }
}

impl ApplyChanges {
    fn new(ends: Vec<Settlement>, jobs: Vec<(MessageKey, u64, Schedule)>, sends: Sends) -> ApplyChanges {
        ApplyChanges {
            ends: ends.into_iter(),
            jobs: jobs.into_iter(),
            sends,
            volatile_ends: Vec::new().into_iter(),
            volatile_sends: Vec::new().into_iter(),
        }
    }

    /// The part of the transaction that only memory knows is done in slices too.
    fn take_volatile(&mut self, completion: &mut Completion) {
        if let Completion::Transacted { volatile, .. } = completion {
            self.volatile_ends = std::mem::take(&mut volatile.settlements).into_iter();
            self.volatile_sends = std::mem::take(&mut volatile.sends).into_iter();
        }
    }

    /// Changes that are left.
    fn len(&self) -> usize {
        let volatile = self.volatile_ends.len() + self.volatile_sends.len();
        self.ends.len() + self.jobs.len() + self.sends.len() + volatile
    }

    /// Carries out changes as far as the budget allows.
    fn step(&mut self, partition: &mut Partition, budget: &mut usize, effects: &mut Vec<Effect>) {
        for end in next(&mut self.ends, budget) {
            end_entry(partition, end.queue, end.tag, end.cause, effects);
        }
        for (key, bytes, schedule) in next(&mut self.jobs, budget) {
            take_job(partition, key, bytes, &schedule, effects);
        }
        self.sends.step(partition, budget, effects);
        for end in next(&mut self.volatile_ends, budget) {
            end_entry(partition, end.queue, end.tag, end.cause, effects);
        }
        for (connection, sent) in next(&mut self.volatile_sends, budget) {
            publish_volatile(partition, sent, Some(connection), effects);
        }
    }
}

impl Sends {
    fn len(&self) -> usize {
        match self {
            Sends::Recorded(_, _, sends) => sends.len(),
            Sends::Prepared { sends, .. } => sends.len(),
        }
    }

    fn step(&mut self, partition: &mut Partition, budget: &mut usize, effects: &mut Vec<Effect>) {
        match self {
            Sends::Recorded(position, ordinal, sends) => {
                let sends: Vec<Sent> = match sends.len() <= *budget {
                    // Without a copy.
                    true => {
                        *budget -= sends.len();
                        std::mem::take(sends).collect()
                    }
                    false => next(sends, budget).collect(),
                };
                let first = *ordinal;
                *ordinal += sends.len() as u32;
                enqueue_left(partition, *position, first..*ordinal, sends, effects);
            }
            Sends::Prepared { sends, moved, senders } => {
                let sends: Vec<(MessageKey, Destination)> = next(sends, budget).collect();
                enqueue_prepared(partition, &sends, (moved, senders), effects);
            }
        }
    }
}

/// The next ones, as far as the budget allows.
pub fn next<'i, T>(items: &'i mut IntoIter<T>, budget: &mut usize) -> Take<&'i mut IntoIter<T>> {
    let number = items.len().min(*budget);
    *budget -= number;
    items.by_ref().take(number)
}

/// Messages that were prepared come into their queues.
fn enqueue_prepared(
    partition: &mut Partition,
    sends: &[(MessageKey, Destination)],
    (moved, senders): (&BTreeMap<MessageKey, u32>, &VolatileChanges),
    effects: &mut Vec<Effect>,
) {
    let mut touched: Vec<QueueId> = Vec::new();
    for (key, to) in sends {
        let moved = moved.get(key).copied();
        if moved.is_none()
            && let Some(message) = partition.state.bodies.resident(*key).cloned()
        {
            audit(&mut partition.state, &partition.settings, &partition.protocols, &message);
        }
        bind_entries(partition, (*key, moved), to, senders.sender_of(*key), &mut touched, effects);
        put_down(partition, *key, effects);
    }
    let are_deep = are_deep(&partition.state, &touched);
    dispatch_all(partition, touched, effects);
    evict_newest(
        &mut partition.state,
        &mut partition.leader,
        &partition.settings,
        sends.iter().map(|(key, _)| *key),
        are_deep,
    );
}

/// The transaction's record is durable: all of it is carried out at once, or its first slice.
pub fn carry_out(partition: &mut Partition, mut rest: Rest, effects: &mut Vec<Effect>) {
    let slice = partition.settings.slice_changes;
    let completion = partition.leader.log.pending.front_mut().filter(|_| partition.leader.is_live);
    let volatile = completion.as_deref().and_then(Completion::volatile);
    let volatile = volatile.map_or(0, |changes| changes.settlements.len() + changes.sends.len());
    if !partition.leader.is_live || rest.len() + volatile <= slice {
        let mut everything = usize::MAX;
        return rest.step(partition, &mut everything, effects);
    }
    if let (Work::ApplyChanges(work), Some(completion)) = (&mut rest.work, completion) {
        work.take_volatile(completion);
    }
    rest.step(partition, &mut slice.max(1), effects);
    partition.leader.transactions.slices.under_way = Some(rest);
}

/// Carries out the next slice, and the records after it as far as that leaves time for them.
pub fn go_on(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut budget = partition.settings.slice_changes.max(1);
    while budget > 0 {
        if let Some(mut rest) = partition.leader.transactions.slices.under_way.take() {
            rest.step(partition, &mut budget, effects);
            match rest.len() {
                0 => record_ended(partition, rest.begins, effects),
                _ => partition.leader.transactions.slices.under_way = Some(rest),
            }
        } else if let Some((position, command)) = partition.leader.transactions.slices.behind.pop_front() {
            budget = budget.saturating_sub(weight(&command));
            apply_next(partition, position, command, effects);
        } else {
            return;
        }
    }
}

/// A record is carried out to its end: its client has the answer, and sends that waited for it go
/// on.
pub fn record_ended(partition: &mut Partition, begins: bool, effects: &mut Vec<Effect>) {
    if let Some(completion) = partition.leader.log.pending.pop_front() {
        complete_proposal(partition, completion, effects);
        if begins {
            // Sends that waited for memory may go through the log now.
            unpark(partition, effects);
        }
        unpark_held_by(partition, BlockedOn::Log, effects);
        resume_behind_sends(partition, effects);
    }
}

/// Changes that a record makes, about.
fn weight(command: &Command) -> usize {
    match command {
        Command::Settle(settlements) => settlements.len().max(1),
        Command::Transact(changes) | Command::Prepare { changes, .. } => {
            changes.sends.len() + changes.settlements.len() + 1
        }
        _ => 1,
    }
}
