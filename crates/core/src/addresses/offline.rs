//! Durable subscriptions that have had no reader for too long end, if operators want that
//! ([`postroad_routing::Policies::offline_subscription_ms`], `offlineDurableSubscriberTimeout` of
//! ActiveMQ).
//!
//! The time without a reader is known to this run alone: a restart begins it again, as in ActiveMQ.
//! Links of other brokers are readers, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use postroad_model::{Effect, OfflineEnd, QueueId};

use crate::Partition;
use crate::intake::waiting::{end_subscription, unsubscribed};
use crate::log::completion::Completion;
use crate::queue::Queue;

/// Subscriptions that one tick ends: each is a record and an advisory.
const ENDS: usize = 16;

/// Until the next tick that ends some.
const STEP_MS: u64 = 1;

/// Queues that one tick looks at, where those without a reader are to be noted.
const LOOKED_AT_MAX: usize = 2048;

/// Subscriptions without a reader, by the time when the last one left.
#[derive(Default)]
pub struct Offline {
    since: BTreeMap<QueueId, u64>,
    /// The same, the oldest first.
    oldest: BTreeSet<(u64, QueueId)>,
    /// How long one may be without a reader.
    limit_ms: Option<u64>,
    /// The next ticks, which know the time, are to note all that have no reader, after this queue
    /// if there is one.
    begins: Option<Option<QueueId>>,
    /// Not before this, after some have ended.
    next_ms: u64,
}

impl Offline {
    /// When there is something to do.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        if self.begins.is_some() || self.is_emptied() {
            return Some(now_ms + 1);
        }
        let (since_ms, _) = self.oldest.first()?;
        Some(since_ms.saturating_add(self.limit_ms?).max(self.next_ms))
    }

    /// The subscription is gone, or has a reader.
    pub fn forget(&mut self, id: QueueId) {
        if let Some(since_ms) = self.since.remove(&id) {
            self.oldest.remove(&(since_ms, id));
        }
    }

    /// There is no limit any more, and times are left of before.
    fn is_emptied(&self) -> bool {
        self.limit_ms.is_none() && !self.oldest.is_empty()
    }

    fn forget_some(&mut self) {
        for _ in 0..LOOKED_AT_MAX {
            let Some((_, id)) = self.oldest.pop_first() else { return };
            self.since.remove(&id);
        }
    }

    fn note(&mut self, id: QueueId, now_ms: u64) {
        self.forget(id);
        self.since.insert(id, now_ms);
        self.oldest.insert((now_ms, id));
    }

    /// The one that has been without a reader for too long, and for how long.
    fn take_overdue(&mut self, now_ms: u64) -> Option<(QueueId, u64)> {
        let limit_ms = self.limit_ms?;
        let (since_ms, id) = self.oldest.first().copied()?;
        let offline_ms = now_ms.saturating_sub(since_ms);
        if offline_ms < limit_ms {
            return None;
        }
        self.forget(id);
        Some((id, offline_ms))
    }
}

/// The limit may have changed, or this partition begins to lead.
pub fn follow(partition: &mut Partition) {
    let limit_ms = partition.settings.policies.offline_subscription_ms.filter(|_| partition.leader.is_live);
    let before_ms = std::mem::replace(&mut partition.leader.offline.limit_ms, limit_ms);
    match (before_ms, limit_ms) {
        (_, None) => partition.leader.offline.begins = None,
        (None, Some(_)) => partition.leader.offline.begins = Some(None),
        (Some(_), Some(_)) => {}
    }
}

/// A queue was made, or one of its readers has left.
pub fn note(partition: &mut Partition, id: QueueId) {
    let Partition { state, leader, now_ms, .. } = partition;
    if leader.offline.limit_ms.is_some() && state.queues.get(&id).is_some_and(is_offline) {
        leader.offline.note(id, *now_ms);
    }
}

/// Whether it is of a durable subscription without a reader.
fn is_offline(queue: &Queue) -> bool {
    !queue.id.is_volatile() && queue.subscription.is_some() && queue.consumers.is_empty()
}

/// Notes the next that have no reader, if all are to be noted.
fn note_some(partition: &mut Partition) {
    let Partition { state, leader, now_ms, .. } = partition;
    let Some(after) = leader.offline.begins else { return };
    let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let ids: Vec<QueueId> = state.addresses.lasting.range(from).copied().take(LOOKED_AT_MAX).collect();
    for id in &ids {
        if state.queues.get(id).is_some_and(is_offline) {
            leader.offline.note(*id, *now_ms);
        }
    }
    let goes_on = ids.len() == LOOKED_AT_MAX;
    leader.offline.begins = goes_on.then_some(ids.last().copied());
}

/// Ends some that have been without a reader for too long.
pub fn end_overdue(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let now_ms = partition.now_ms;
    note_some(partition);
    if partition.leader.offline.is_emptied() {
        return partition.leader.offline.forget_some();
    }
    if partition.leader.offline.next_ms(now_ms).is_none_or(|due_ms| now_ms < due_ms) {
        return;
    }
    for _ in 0..ENDS {
        let Some((id, offline_ms)) = partition.leader.offline.take_overdue(now_ms) else { break };
        end(partition, id, offline_ms, effects);
    }
    partition.leader.offline.next_ms = now_ms + STEP_MS;
}

fn end(partition: &mut Partition, id: QueueId, offline_ms: u64, effects: &mut Vec<Effect>) {
    let Some(queue) = partition.state.queues.get(&id).filter(|queue| queue.consumers.is_empty()) else {
        return;
    };
    let (messages, Some(subscription)) = (queue.len(), &queue.subscription) else { return };
    let (name, topic) = (subscription.name.clone(), subscription.topic.name.clone());
    // A reader is about to come, or it ends already.
    if partition.leader.intake.waiting.is_for_subscription(&name) {
        return partition.leader.offline.note(id, partition.now_ms);
    }
    let ended = Box::new(OfflineEnd { name: name.clone(), topic, messages, offline_ms });
    end_subscription(partition, name, Completion::OfflineEnded { queue: id, ended }, effects);
}

/// The end of one is durable.
pub fn ended(partition: &mut Partition, ended: Box<OfflineEnd>, effects: &mut Vec<Effect>) {
    let name = ended.name.clone();
    effects.push(Effect::OfflineEnded(ended));
    unsubscribed(partition, &name, None, Ok(()), effects);
}
