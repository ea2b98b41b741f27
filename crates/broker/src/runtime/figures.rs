//! How the broker is, asked of every core and of the journal when somebody wants to know.
//!
//! Never here: counting. Each core and the journal's writer count for themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use postroad_admin::{
    ConnectionFigures, Figures, JournalFigures, PartitionFigures, QUEUES_MAX, QueueFigures, Source,
    TenantFigures,
};
use postroad_core::{Counters, Memory, Partition};
use postroad_model::PartitionId;
use tokio::sync::{mpsc, oneshot};

use crate::runtime::NamedDoor;

/// Questions that wait for a core; whoever asks more waits too.
pub const QUESTIONS_MAX: usize = 4;

/// A journal whose disk hangs is told of as such after this time; it is well within what whoever asks waits.
const JOURNAL_WITHIN: Duration = Duration::from_millis(500);

/// A question to a core.
pub type Question = oneshot::Sender<CoreFigures>;

/// What one core says.
#[derive(Debug, Default)]
pub struct CoreFigures {
    pub connections: Vec<ConnectionFigures>,
    pub partitions: Vec<PartitionFigures>,
    pub queues: Vec<QueueFigures>,
    pub queues_unlisted: u64,
    pub tenants: Vec<TenantFigures>,
}

/// The ways to everybody who has to be asked.
#[derive(Clone)]
pub struct Everybody {
    pub cores: Vec<mpsc::Sender<Question>>,
    pub journals: Vec<NamedDoor>,
}

impl Source for Everybody {
    async fn figures(&self) -> Figures {
        let mut answers = Vec::with_capacity(self.cores.len());
        for core in &self.cores {
            let (question, answer) = oneshot::channel();
            // A core that is gone has nothing to say.
            let _ = core.send(question).await;
            answers.push(answer);
        }
        // Each may have to wait for a sync, and one must not hold up what another says.
        let ask = |door: NamedDoor| tokio::task::spawn_blocking(move || door.figures());
        let journals: Vec<_> = self.journals.iter().cloned().map(ask).collect();
        let mut figures = Figures::default();
        let mut connections: BTreeMap<&'static str, ConnectionFigures> = BTreeMap::new();
        let mut tenants: BTreeMap<String, TenantFigures> = BTreeMap::new();
        for answer in answers {
            let CoreFigures { connections: own, partitions, queues, queues_unlisted, tenants: shares } =
                answer.await.unwrap_or_default();
            for share in shares {
                let all = tenants.entry(share.tenant.clone()).or_default();
                *all = TenantFigures {
                    tenant: share.tenant,
                    messages: all.messages + share.messages,
                    bytes: all.bytes + share.bytes,
                    disk_bytes: all.disk_bytes + share.disk_bytes,
                    waiting: all.waiting + share.waiting,
                };
            }
            for ConnectionFigures { protocol, open, opened } in own {
                let all = connections.entry(protocol).or_default();
                *all = ConnectionFigures { protocol, open: all.open + open, opened: all.opened + opened };
            }
            figures.partitions.extend(partitions);
            figures.queues.extend(queues);
            figures.queues_unlisted += queues_unlisted;
        }
        figures.connections = connections.into_values().collect();
        figures.tenants = tenants.into_values().collect();
        figures.partitions.sort_unstable_by_key(|partition| partition.partition);
        figures.queues.sort_unstable_by(|a, b| name(a).cmp(&name(b)));
        for (journal, NamedDoor { store, .. }) in journals.into_iter().zip(&self.journals) {
            let said = tokio::time::timeout(JOURNAL_WITHIN, journal).await;
            let silent = || JournalFigures {
                store: store.to_string(),
                broken: Some(format!("its journal is busy for more than {} ms", JOURNAL_WITHIN.as_millis())),
                ..JournalFigures::default()
            };
            figures.journals.push(said.ok().and_then(Result::ok).unwrap_or_else(silent));
        }
        figures
    }
}

fn name(queue: &QueueFigures) -> (&str, &str) {
    (&queue.destination, &queue.subscription)
}

impl CoreFigures {
    /// Adds what a partition says.
    pub fn add(&mut self, id: PartitionId, partition: &Partition) {
        self.partitions.push(partition_figures(id, partition));
        let mut lasting: Vec<_> = partition.queue_figures().collect();
        lasting.sort_unstable_by(|a, b| (a.queue, a.subscription).cmp(&(b.queue, b.subscription)));
        self.queues_unlisted += lasting.len().saturating_sub(QUEUES_MAX) as u64;
        let figures = lasting.iter().take(QUEUES_MAX).map(|queue| QueueFigures {
            destination: queue.queue.to_string(),
            subscription: queue.subscription.unwrap_or_default().to_owned(),
            depth: queue.depth,
            consumers: queue.consumers,
            enqueued: queue.counts.enqueued,
            consumed: queue.counts.consumed,
            expired: queue.counts.expired,
            dead_lettered: queue.counts.dead_lettered,
            dropped: queue.counts.dropped,
            replaced: queue.counts.replaced,
        });
        self.queues.extend(figures);
        self.tenants.extend(partition.accounts().map(|(account, waiting)| TenantFigures {
            tenant: account.owner.as_deref().unwrap_or_default().to_owned(),
            messages: account.load.messages,
            bytes: account.load.bytes,
            disk_bytes: account.load.bytes.saturating_sub(account.volatile_bytes),
            waiting,
        }));
    }
}

fn partition_figures(id: PartitionId, partition: &Partition) -> PartitionFigures {
    let Counters { delivered, discarded, duplicates, dropped, redriven, overflowed, replaced, .. } =
        partition.counters();
    let Counters { slow_consumers, timed_out_transactions, missed_notices, unreadable, .. } =
        partition.counters();
    let Memory { messages, folded_messages, resident_bytes, page_bytes, volatile_bytes } = partition.memory();
    PartitionFigures {
        partition: id.0,
        delivered,
        discarded,
        duplicates,
        dropped,
        redriven,
        overflowed,
        replaced,
        slow_consumers,
        timed_out_transactions,
        missed_notices,
        unreadable,
        scheduled: partition.scheduled() as u64,
        messages,
        folded_messages,
        resident_bytes,
        page_bytes,
        volatile_bytes,
    }
}
