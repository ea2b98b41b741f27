//! Messages that are in no queue yet, or about to leave one: sent or settled in transactions, or
//! by producers that wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{
    ConnectionId, ConsumerKey, Destination, EntryTag, Message, QueueId, Row, Settlement, TransactionId,
    TransactionKey, Verdict, VerdictRow,
};
use postroad_selector::Value;

use super::{Explainer, about_queue, entry_of};
use crate::intake::blocked::BlockedOn;
use crate::queue::{EntryState, Queue, tag as tag_of};

/// Messages of transactions that one answer looks at: some milliseconds.
const COUNTED_MAX: usize = 20_000;

/// Messages whose id one answer compares: some milliseconds.
const COMPARED_MAX: usize = 2_000;

/// Sends that wait for each other and are followed to the first of them.
const FOLLOWED_MAX: usize = 16;

/// Prepared transactions that one answer names.
const NAMED_MAX: usize = 8;

impl<'p> Explainer<'p> {
    /// Messages on their way to the queue; without those of prepared transactions and of producers
    /// if it is about one message that is there.
    pub(super) fn on_the_way_to(&self, queue: &Destination, of_one: bool) -> Vec<Verdict> {
        if of_one {
            return Vec::new();
        }
        let prepared = self.prepared_sends(queue, |_, count| count);
        let sends = self.open_sends(queue, |_| true);
        prepared.into_iter().chain(sends).chain(self.blocked(queue)).collect()
    }

    /// The verdicts on a message that no browser of the queue sees.
    pub(super) fn explain_id(&self, queue: &Destination, id: &str) -> Vec<VerdictRow> {
        let mut left = COMPARED_MAX;
        let mut is_it = |message: &Message| {
            left = left.saturating_sub(1);
            0 < left && self.has_id(message, id)
        };
        if let Some(sends) = self.open_sends(queue, &mut is_it) {
            return vec![about_queue(Verdict::NoMessage), about_queue(sends)];
        }
        let waits = self.0.leader.intake.parked.at(queue).any(|parked| is_it(&parked.publish.sent.message));
        if let Some(blocked) = self.blocked(queue).filter(|_| waits) {
            return vec![about_queue(Verdict::NoMessage), about_queue(blocked)];
        }
        let prepared = self
            .prepared_sends(queue, |message, count| count + u64::from(message.is_some_and(&mut is_it)) - 1);
        if !prepared.is_empty() {
            return [Verdict::NoMessage].into_iter().chain(prepared).map(about_queue).collect();
        }
        let own = self.0.state.addresses.get(queue).and_then(|address| address.bound.own());
        let own = own.and_then(|own| self.0.state.queues.get(&own));
        let leaving = own.and_then(|own| self.leaving_with(own, &mut is_it));
        leaving.map(about_queue).into_iter().collect()
    }

    fn has_id(&self, message: &Message, id: &str) -> bool {
        let properties = (self.0.protocols.properties_of)(message);
        matches!(properties.property("JMSMessageID"), Some(Value::String(own)) if own == id)
    }

    /// An entry that is about to leave the queue, and is the one.
    fn leaving_with(&self, queue: &Queue, mut is_it: impl FnMut(&Message) -> bool) -> Option<Verdict> {
        let entries = queue.lanes.iter().flat_map(|(number, lane)| {
            lane.iter().map(move |(sequence, entry)| (tag_of(number.0, sequence), entry))
        });
        let mut leaving = entries.take(COUNTED_MAX).filter(|(_, entry)| entry.state == EntryState::Leaving);
        let found = leaving.find(|(_, entry)| self.0.state.bodies.resident(*entry).is_some_and(&mut is_it));
        let tag = found?.0;
        Some(self.state_of((queue.id, tag), &entry_of(queue, tag)?))
    }

    /// Sends of open transactions to the queue, if there are any of these messages.
    fn open_sends(&self, queue: &Destination, mut counts: impl FnMut(&Message) -> bool) -> Option<Verdict> {
        let (mut messages, mut oldest, mut left) = (0, None::<(u64, TransactionKey)>, COUNTED_MAX);
        for (key, open) in &self.0.leader.transactions.open {
            let (sends, begun_ms) = open.sends();
            let to_queue = sends.iter().take(left).filter(|sent| sent.targets().any(|to| to == queue));
            let count = to_queue.filter(|sent| counts(&sent.message)).count() as u64;
            left = left.saturating_sub(sends.len().max(1));
            messages += count;
            if 0 < count && oldest.is_none_or(|oldest| (begun_ms, *key) < oldest) {
                oldest = Some((begun_ms, *key));
            }
            if left == 0 {
                break;
            }
        }
        let (begun_ms, key) = oldest?;
        let for_ms = self.0.now_ms.saturating_sub(begun_ms);
        let (connection, by) = (key.connection, self.connection_name(key.connection));
        Some(Verdict::Uncommitted { connection, by, messages, for_ms })
    }

    /// The open transaction that has settled this entry, whose consumer is gone.
    pub(super) fn settled_in_open(&self, (queue, tag): (QueueId, EntryTag), by: ConsumerKey) -> Verdict {
        let mut left = COUNTED_MAX;
        let mut looked_at = self.0.leader.transactions.open.iter().take(COUNTED_MAX);
        let found = looked_at.find(|(_, open)| {
            let has_it = open.settled().take(left).any(|end| (end.queue, end.tag) == (queue, tag));
            left = left.saturating_sub(open.len());
            has_it
        });
        // It is found, unless there are many transactions: the consumer's connection has it then.
        let connection = found.map_or(by.connection, |(key, _)| key.connection);
        let begun_ms = found.map_or(self.0.now_ms, |(_, open)| open.sends().1);
        let (by, for_ms) = (self.connection_name(connection), self.0.now_ms.saturating_sub(begun_ms));
        Verdict::Settled { connection, by, for_ms }
    }

    /// The name of the connection, if its client introduced itself to this partition.
    pub(super) fn client_of(&self, connection: ConnectionId) -> Option<Row> {
        let by = self.connection_name(connection);
        let verdict = Verdict::Uncommitted { connection, by: by.clone(), messages: 0, for_ms: 0 };
        (!by.is_empty()).then(|| Row::Verdict(about_queue(verdict)))
    }

    fn connection_name(&self, id: ConnectionId) -> Arc<str> {
        let connection = self.0.leader.connections.get(&id);
        let client = connection.and_then(|connection| connection.client.as_ref());
        client.map(|client| client.name.clone()).unwrap_or_default()
    }

    /// Prepared transactions that send to the queue. `count` gets each message, with its body if
    /// that is in memory, and the count with it, and returns the count.
    fn prepared_sends(
        &self,
        queue: &Destination,
        mut count: impl FnMut(Option<&Message>, u64) -> u64,
    ) -> Vec<Verdict> {
        let (mut found, mut left) = (Vec::new(), COUNTED_MAX);
        for (id, prepared) in &self.0.state.prepared {
            let to_queue = prepared.sends.iter().take(left).filter(|(_, to)| to == queue);
            let messages =
                to_queue.fold(0, |all, (key, _)| count(self.0.state.bodies.resident(*key), all + 1));
            left = left.saturating_sub(prepared.sends.len().max(1));
            if 0 < messages {
                found.push(self.prepared(*id, true, messages));
            }
            if left == 0 || found.len() == NAMED_MAX {
                break;
            }
        }
        found
    }

    /// The prepared transaction with which this entry leaves.
    pub(super) fn settled_by_prepared(&self, queue: QueueId, tag: EntryTag) -> Option<Verdict> {
        let mut left = COUNTED_MAX;
        self.settled_in_prepared().find_map(|(id, settlements)| {
            let has_it = settlements.iter().take(left).any(|end| (end.queue, end.tag) == (queue, tag));
            left = left.saturating_sub(settlements.len());
            has_it.then(|| self.prepared(id, false, 1))
        })
    }

    /// Prepared transactions with which messages of the queue leave, with the number of these.
    pub(super) fn prepared_ends(&self, queue: QueueId) -> Vec<Verdict> {
        let (mut found, mut left) = (BTreeMap::new(), COUNTED_MAX);
        for (id, settlements) in self.settled_in_prepared() {
            let ends = settlements.iter().take(left).filter(|end| end.queue == queue).count() as u64;
            left = left.saturating_sub(settlements.len().max(1));
            if 0 < ends && (found.len() < NAMED_MAX || found.contains_key(&id)) {
                *found.entry(id).or_insert(0) += ends;
            }
            if left == 0 {
                break;
            }
        }
        found.into_iter().map(|(id, messages)| self.prepared(id, false, messages)).collect()
    }

    /// The settlements of prepared transactions. One may come twice: with those of durable
    /// messages, and with the others.
    fn settled_in_prepared(&self) -> impl Iterator<Item = (TransactionId, &'p [Settlement])> {
        let durable = self.0.state.prepared.iter().map(|(id, prepared)| (*id, &prepared.settlements[..]));
        // Where nothing durable is in it, it is known here alone.
        let volatile = self.0.leader.transactions.prepared_volatile.iter();
        let volatile = volatile.map(|(id, changes)| (*id, &changes.settlements[..]));
        durable.chain(volatile).take(COUNTED_MAX)
    }

    fn prepared(&self, transaction: TransactionId, is_sent: bool, messages: u64) -> Verdict {
        let branch = self.0.state.branches.branch_of(transaction).map(|branch| branch.to_string().into());
        Verdict::Prepared { transaction, branch, is_sent, messages }
    }

    /// The branch that this transaction is, if it is coordinated here.
    pub(super) fn branch_of(&self, id: TransactionId) -> Option<Row> {
        self.0.state.branches.branch_of(id)?;
        Some(Row::Verdict(about_queue(self.prepared(id, false, 0))))
    }

    fn blocked(&self, queue: &Destination) -> Option<Verdict> {
        let (reason, sends) = self.0.blocked_sends(queue)?;
        let at = self.origin_of(queue, reason).filter(|at| at != queue);
        Some(Verdict::Blocked { reason: reason.name(), sends: sends as u64, at })
    }

    /// The queue whose limit blocks the sends to this address, by earlier sends of their producers
    /// at other addresses, too: the first address at which those wait for something else.
    fn origin_of(&self, to: &Destination, reason: BlockedOn) -> Option<Destination> {
        let (mut at, mut reason) = (to.clone(), reason);
        for _ in 0..FOLLOWED_MAX {
            match reason {
                BlockedOn::Queue(id) | BlockedOn::Share(id) => {
                    return self.0.state.queues.get(&id).map(|queue| queue.source.clone());
                }
                BlockedOn::Own(_) => {
                    at = self.0.leader.intake.parked.own_before_first(&at)?.publish.sent.to.clone();
                    reason = self.0.blocked_sends(&at)?.0;
                }
                _ => break,
            }
        }
        Some(at)
    }
}
