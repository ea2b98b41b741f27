//! Routers: where each of a connection's events goes, and how much of it is outstanding.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{
    ConnectionId, ConsumerKey, Event, PartitionId, Refusal, Ticket, ToSession, TransactionKey,
};

use crate::runtime::core::Places;
use rustc_hash::FxHashMap;

/// A connection is not read while so many bytes that it sent wait for their replies: enough to keep
/// a group commit busy, little enough that thousands of connections fit.
const OUTSTANDING_BYTES_MAX: u64 = 4 << 20;

/// As [`OUTSTANDING_BYTES_MAX`], in messages.
const OUTSTANDING_MESSAGES_MAX: usize = 8192;

/// After so many bytes of deliveries a partition is told that the outbox has room again.
const WRITTEN_STEP_BYTES: u64 = 256 << 10;

/// What the runtime remembers of one connection. Its keys are numbers that the broker gives, so no client can choose some that
/// collide.
pub struct Router {
    connection: ConnectionId,
    places: Places,
    consumers: FxHashMap<u32, PartitionId>,
    /// Consumers that leave, by the ticket of their detaching: deliveries on their way are still accounted for.
    detaching: FxHashMap<Ticket, Vec<u32>>,
    touched: BTreeSet<PartitionId>,
    transactions: FxHashMap<u64, BTreeSet<PartitionId>>,
    outstanding: FxHashMap<Ticket, u64>,
    outstanding_bytes: u64,
    written: BTreeMap<PartitionId, u64>,
    /// Questions to all partitions.
    asked: FxHashMap<Ticket, Asked>,
}

struct Asked {
    missing: u16,
    result: Option<Result<(), Refusal>>,
}

impl Router {
    /// A router for a new connection.
    pub fn new(connection: ConnectionId, places: Places) -> Router {
        Router {
            connection,
            places,
            consumers: FxHashMap::default(),
            detaching: FxHashMap::default(),
            touched: BTreeSet::new(),
            transactions: FxHashMap::default(),
            outstanding: FxHashMap::default(),
            outstanding_bytes: 0,
            written: BTreeMap::new(),
            asked: FxHashMap::default(),
        }
    }

    /// Whether more may be read from the connection.
    pub fn may_read(&self) -> bool {
        self.outstanding_bytes < OUTSTANDING_BYTES_MAX && self.outstanding.len() < OUTSTANDING_MESSAGES_MAX
    }

    /// Sends an event to the partitions that it concerns.
    pub fn route(&mut self, mut event: Event, mut to: impl FnMut(PartitionId, Event)) {
        let partition = match event {
            Event::Publish(ref publish) => {
                let bytes = publish.sent.message.bytes.len() as u64;
                self.outstanding.insert(publish.ticket, bytes);
                self.outstanding_bytes += bytes;
                let partition = self.places.partition_of(&publish.sent.to);
                self.enlist(publish.transaction, partition);
                partition
            }
            Event::Attach(ref attach) => {
                let partition = self.places.partition_of(&attach.source);
                self.consumers.insert(attach.consumer.number, partition);
                partition
            }
            Event::Claim { ref name, .. } | Event::Disclaim { ref name, .. } => {
                self.places.placement.partition_of(name)
            }
            Event::Declare { ref destination, .. } | Event::Delete { ref destination, .. } => {
                self.places.partition_of(destination)
            }
            Event::Detach { consumer, ticket, .. } => {
                if let Some(ticket) = ticket {
                    self.detaching.entry(ticket).or_default().push(consumer.number);
                }
                self.partition_of(consumer)
            }
            Event::Credit { consumer, .. } | Event::Drain { consumer } => self.partition_of(consumer),
            Event::Settle(ref settle) => {
                let partition = self.partition_of(settle.consumer);
                self.enlist(settle.transaction, partition);
                partition
            }
            Event::Commit { transaction, ticket, .. } => {
                let event = self.commit(transaction, ticket);
                let Event::Commit { ref participants, .. } = event else { return };
                if participants.len() > 1 {
                    for participant in participants {
                        to(*participant, Event::Seal { transaction });
                    }
                }
                let first = participants.first().copied().unwrap_or(PartitionId(0));
                return to(first, event);
            }
            Event::EndBranch { ref branch, transaction, ref mut participants, .. } => {
                let touched = self.transactions.remove(&transaction.number).unwrap_or_default();
                for participant in &touched {
                    to(*participant, Event::Seal { transaction });
                }
                *participants = touched.into_iter().collect();
                self.places.placement.coordinator_of(branch)
            }
            Event::PrepareBranch { ref branch, .. } | Event::DecideBranch { ref branch, .. } => {
                self.places.placement.coordinator_of(branch)
            }
            Event::EndJobs { ticket, .. }
            | Event::BrowseJobs { ticket, .. }
            | Event::ListBranches { ticket, .. }
            | Event::Unsubscribe { ticket, .. } => {
                return self.ask_all(&event, ticket, to);
            }
            Event::Rollback { transaction, ticket } => return self.rollback(transaction, ticket, to),
            other => return to(PartitionId(0), other),
        };
        self.touched.insert(partition);
        to(partition, event);
    }

    fn partition_of(&self, consumer: ConsumerKey) -> PartitionId {
        self.consumers.get(&consumer.number).copied().unwrap_or(PartitionId(0))
    }

    fn enlist(&mut self, transaction: Option<TransactionKey>, partition: PartitionId) {
        if let Some(transaction) = transaction {
            self.transactions.entry(transaction.number).or_default().insert(partition);
        }
    }

    fn commit(&mut self, transaction: TransactionKey, ticket: Ticket) -> Event {
        let participants = self.transactions.remove(&transaction.number).unwrap_or_default();
        Event::Commit { transaction, participants: participants.into_iter().collect(), ticket }
    }

    /// Every partition that the transaction touched drops its share; the last one answers.
    fn rollback(
        &mut self,
        transaction: TransactionKey,
        ticket: Option<Ticket>,
        mut to: impl FnMut(PartitionId, Event),
    ) {
        let touched = self.transactions.remove(&transaction.number).unwrap_or_default();
        let last = touched.last().copied().unwrap_or(PartitionId(0));
        for partition in touched.iter().filter(|partition| **partition != last) {
            to(*partition, Event::Rollback { transaction, ticket: None });
        }
        to(last, Event::Rollback { transaction, ticket });
    }

    /// The end of the connection, for every partition that knows it.
    pub fn close(&mut self, mut to: impl FnMut(PartitionId, Event)) {
        for partition in std::mem::take(&mut self.touched) {
            to(partition, Event::Closed { connection: self.connection });
        }
    }

    /// Every partition is asked, for only one knows; see [`Router::merge`].
    fn ask_all(&mut self, event: &Event, ticket: Ticket, mut to: impl FnMut(PartitionId, Event)) {
        let partitions = self.places.placement.partitions;
        self.asked.insert(ticket, Asked { missing: partitions, result: None });
        for partition in (0..partitions).map(PartitionId) {
            to(partition, event.clone());
        }
    }

    /// Makes one answer of those of all partitions: yes if one says so, otherwise the no that says most. `None` while
    /// answers are missing.
    pub fn merge(&mut self, message: ToSession) -> Option<ToSession> {
        let ToSession::Reply { ticket, result } = message else { return Some(message) };
        let Some(asked) = self.asked.get_mut(&ticket) else {
            return Some(ToSession::Reply { ticket, result });
        };
        asked.missing = asked.missing.saturating_sub(1);
        let unknown = matches!(result, Err(Refusal::NoSuchSubscription { .. }));
        if asked.result.is_none() || !unknown {
            asked.result = Some(result);
        }
        if asked.missing > 0 {
            return None;
        }
        let result = self.asked.remove(&ticket)?.result?;
        Some(ToSession::Reply { ticket, result })
    }

    /// Keeps account of what the core sent. A delivery that leaves the mailbox makes room for another.
    pub fn note(&mut self, message: &ToSession, mut to: impl FnMut(PartitionId, Event)) {
        match message {
            ToSession::Reply { ticket, .. } => {
                if let Some(bytes) = self.outstanding.remove(ticket) {
                    self.outstanding_bytes -= bytes;
                }
                for number in self.detaching.remove(ticket).unwrap_or_default() {
                    self.consumers.remove(&number);
                }
            }
            ToSession::Deliver(delivery) => {
                let Some(partition) = self.consumers.get(&delivery.consumer.number).copied() else { return };
                let written = self.written.entry(partition).or_default();
                *written += delivery.message.bytes.len() as u64;
                if *written >= WRITTEN_STEP_BYTES {
                    let bytes = std::mem::take(written);
                    to(partition, Event::Written { connection: self.connection, bytes });
                }
            }
            _ => {}
        }
    }
}
