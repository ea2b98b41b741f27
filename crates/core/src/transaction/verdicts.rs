//! Verdicts on many deliveries of one consumer: they are taken in slices, one with each tick.
//!
//! Outside of a transaction they are one record all the same: durable as a whole or not at all,
//! like verdicts on a few. If the log refuses it, all of their messages come again.

use std::vec::IntoIter;

use postroad_model::{
    ConnectionId, Effect, EntryTag, QueueId, Refusal, Settle, Settlement, Ticket, TransactionKey,
};

use super::VolatileChanges;
use super::open::put_back;
use super::slices::next;
use crate::Partition;
use crate::delivery::slow::{has_spoken, note_what_came_again};
use crate::intake::publish::answer_request;
use crate::settling::settle::{
    Verdict, accept_behind, begin_verdict, leaving_max, settle_verdicts, was_force_detached,
};
use crate::traces;

/// Why the transaction can only be rolled back.
fn refusal_of(partition: &Partition, key: TransactionKey) -> Option<Refusal> {
    partition.leader.transactions.open.get(&key)?.refused.clone()
}

/// See the head of this file.
pub struct Verdicts {
    /// Without its tags.
    settle: Settle,
    /// The deliveries that are left.
    tags: IntoIter<EntryTag>,
    /// Entries for the record.
    verdict: Verdict,
    /// An entry of the last record, if there was no room for all in one.
    before: Option<Settlement>,
    /// Why its transaction can only be rolled back, if that is by these verdicts.
    refusal: Option<Refusal>,
}

impl Verdicts {
    /// Nothing of it is settled yet.
    pub fn new(mut settle: Settle) -> Verdicts {
        let tags = std::mem::take(&mut settle.tags).into_iter();
        Verdicts { settle, tags, verdict: Verdict::default(), before: None, refusal: None }
    }

    /// The client that waits for it.
    pub fn answer(&self) -> Option<(ConnectionId, Ticket)> {
        self.settle.ticket.map(|ticket| (self.settle.consumer.connection, ticket))
    }

    /// Goes on as far as the budget allows; returns the rest.
    pub fn step(
        mut self: Box<Self>,
        partition: &mut Partition,
        budget: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> Option<Box<Verdicts>> {
        while self.tags.len() > 0 {
            if *budget == 0 {
                return Some(self);
            }
            let consumer = partition.leader.delivery.consumers.get(&self.settle.consumer);
            let Some(queue) = consumer.map(|consumer| consumer.queue) else {
                self.lose_rest(partition, effects);
                return None;
            };
            let tags: Vec<EntryTag> = next(&mut self.tags, budget).collect();
            if let Some(key) = self.settle.transaction {
                let before = refusal_of(partition, key);
                settle_verdicts(partition, Settle { tags, ticket: None, ..self.settle.clone() }, effects);
                self.refusal =
                    self.refusal.or_else(|| refusal_of(partition, key).filter(|_| before.is_none()));
            } else if !self.take(partition, queue, &tags, effects) {
                self.refuse(partition, effects);
                return None;
            }
        }
        self.end(partition, effects);
        None
    }

    /// These entries leave; `false` if the consumer has lost one of them meanwhile.
    fn take(
        &mut self,
        partition: &mut Partition,
        queue: QueueId,
        tags: &[EntryTag],
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Settle { consumer, outcome, ticket, .. } = self.settle;
        if !has_spoken(partition, consumer, tags, false) {
            return false;
        }
        note_what_came_again(&mut partition.leader, consumer, tags, outcome);
        traces::settled(partition, queue, tags, outcome);
        let verdict = begin_verdict(partition, (queue, consumer), (tags, outcome), ticket.is_some(), effects);
        self.verdict.settlements.extend(verdict.settlements);
        self.verdict.again.extend(verdict.again);
        if leaving_max(&partition.settings) <= self.verdict.settlements.len() {
            let verdict = std::mem::take(&mut self.verdict);
            self.before = verdict.settlements.last().copied();
            accept_behind(partition, consumer, verdict, None, effects);
        }
        true
    }

    /// The consumer is gone, and with it the deliveries that are left.
    fn lose_rest(self: Box<Self>, partition: &mut Partition, effects: &mut Vec<Effect>) {
        let is_refused = was_force_detached(&partition.leader.connections, self.settle.consumer);
        match self.settle.transaction {
            Some(_) => {
                let Verdicts { settle, tags, .. } = *self;
                settle_verdicts(partition, Settle { tags: tags.collect(), ..settle }, effects);
            }
            None if is_refused => self.refuse(partition, effects),
            None => self.end(partition, effects),
        }
    }

    /// The consumer holds again what it has settled.
    fn refuse(self: Box<Self>, partition: &mut Partition, effects: &mut Vec<Effect>) {
        let answer = self.answer();
        let Verdicts { settle, verdict, .. } = *self;
        let holders = verdict.settlements.iter().map(|end| (settle.consumer, *end)).collect();
        let held = VolatileChanges { holders, ..VolatileChanges::default() };
        put_back(partition, verdict.settlements, held, effects);
        answer_request(partition, answer, Err(Refusal::TakenBack), effects);
    }

    /// All of them are settled once the log has it.
    fn end(self: Box<Self>, partition: &mut Partition, effects: &mut Vec<Effect>) {
        let answer = self.answer();
        let Verdicts { settle, verdict: Verdict { settlements, mut again }, before, refusal, .. } = *self;
        if settle.transaction.is_some() {
            return answer_request(partition, answer, refusal.map_or(Ok(()), Err), effects);
        }
        if before.is_some() && !partition.leader.settling.unsaved.is_empty() {
            // The client must not take all for confirmed.
            accept_behind(partition, settle.consumer, Verdict { settlements, again }, None, effects);
            let reason = "the log failed while the deliveries were being settled".to_owned();
            return answer_request(partition, answer, Err(Refusal::StoreFailed { reason }), effects);
        }
        again.extend(before);
        accept_behind(partition, settle.consumer, Verdict { settlements, again }, answer, effects);
    }
}
