//! The replicated half of a partition: the data that a snapshot writes, and indexes that follow
//! from it.
//!
//! [`Partition::apply`](crate::Partition::apply) changes it, in log order, and nothing else that
//! lasts. All else that a partition knows is in its [`Leader`](crate::leader::Leader).
//!
//! Never here: connections, consumers, and who waits for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{
    Chunks, Destination, LookupMap, MessageKey, PartitionId, Position, QueueId, TransactionId,
};

use crate::addresses::address::Addresses;
use crate::addresses::ending::Endings;
use crate::documents::Documents;
use crate::intake::audit::Audit;
use crate::leasing::Leases;
use crate::memory::bodies::Bodies;
use crate::pausing::Paused;
use crate::queue::Queues;
use crate::schedule::Jobs;
use crate::settings::Settings;
use crate::settling::expiry::Expiries;
use crate::settling::lending::Lent;
use crate::transaction::{Branches, Prepared};

/// See the head of this file.
pub struct State {
    /// The position of the last command that was applied.
    pub applied: Option<Position>,
    /// Addresses, with the queues that each one feeds.
    pub addresses: Addresses,
    /// Queues by id.
    pub queues: Queues,
    /// How many durable queues were made: counts the next one.
    pub next_queue: u64,
    /// Headers and bodies of messages, by key.
    pub bodies: Bodies,
    /// Entries of deleted queues that are not released yet.
    pub endings: Endings,
    /// When entries expire.
    pub expiries: Expiries,
    /// Entries that are delivered to a deadline.
    pub leases: Leases,
    /// Entries that links may have sent to their peers.
    pub lent: Lent,
    /// Durable subscriptions by name.
    pub subscriptions: LookupMap<Arc<str>, QueueId>,
    /// How many subscriptions take nothing that their own client sends.
    pub skipping_subscriptions: u64,
    /// Duplicate detection: the last messages of each producer.
    pub audit: Audit,
    /// Scheduled messages.
    pub jobs: Jobs,
    /// Large bodies of scheduled messages, whose headers are in the log alone.
    pub scheduled_bodies: BTreeMap<MessageKey, Arc<Chunks>>,
    /// Shares of transactions that are prepared here.
    pub prepared: BTreeMap<TransactionId, Prepared>,
    /// Committed transactions that not all participants have carried out.
    pub decided: BTreeMap<TransactionId, Vec<PartitionId>>,
    /// Branches of distributed transactions that are in doubt.
    pub branches: Branches,
    /// Queues that are leaving this partition, and where to.
    pub leaving: BTreeMap<Destination, PartitionId>,
    /// Queues that operators have paused.
    pub paused: Paused,
    /// Texts that operators change.
    pub documents: Documents,
}

impl State {
    /// Nothing was applied yet.
    pub fn new(settings: &Settings) -> State {
        State {
            applied: None,
            addresses: Addresses::default(),
            queues: Queues::default(),
            next_queue: 0,
            bodies: Bodies::default(),
            endings: Endings::default(),
            expiries: Expiries::default(),
            leases: Leases::default(),
            lent: Lent::default(),
            subscriptions: LookupMap::default(),
            skipping_subscriptions: 0,
            audit: Audit::default(),
            jobs: Jobs::new(jobs_per_page(settings), settings.resident_bytes_max),
            scheduled_bodies: BTreeMap::new(),
            prepared: BTreeMap::new(),
            decided: BTreeMap::new(),
            branches: Branches::default(),
            leaving: BTreeMap::new(),
            paused: Paused::default(),
            documents: Documents::default(),
        }
    }

    /// The command of this position is applied now.
    pub fn apply_at(&mut self, position: Position) {
        let is_next = self.applied.is_none_or(|applied| applied.next() == position);
        debug_assert!(is_next, "gap before {position:?}");
        self.applied = Some(position);
    }

    /// The id of a new durable queue of this partition.
    pub fn take_queue_id(&mut self, partition: PartitionId) -> QueueId {
        let id = QueueId::durable(partition, self.next_queue);
        self.next_queue += 1;
        id
    }
}

/// Jobs to a page: they are small next to entries.
fn jobs_per_page(settings: &Settings) -> usize {
    usize::try_from(settings.page_entries).unwrap_or(usize::MAX).saturating_mul(4)
}
