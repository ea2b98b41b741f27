//! Resent messages for a queue that is on its way here: they wait until the duplicate detection of
//! its former partition is here.
//!
//! Senders know the new place of a queue some milliseconds before the target has recorded the
//! windows of the origin. A message that is sent again in this time may be in the origin's log.
//! Later persistent messages of its connection wait behind it.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{ConnectionId, Destination, Effect, PartitionId, Publish, Refusal, Sent, Ticket};

use crate::Partition;

/// Messages that wait at once, far more than are sent again while windows are on their way. Further
/// ones are refused.
const WAITING_MAX: usize = 4096;

/// See the head of this file.
#[derive(Default)]
pub struct Resends {
    /// Queues that come here, with the former partitions whose windows are not here.
    lacking: BTreeMap<Destination, BTreeSet<PartitionId>>,
    /// In order.
    waiting: Vec<Publish>,
}

impl Resends {
    /// The queue comes from there.
    pub fn expect(&mut self, queue: Destination, from: PartitionId) {
        self.lacking.entry(queue).or_default().insert(from);
    }

    /// Requests that wait.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        self.waiting.iter().map(|publish| (publish.connection, publish.ticket)).collect()
    }

    /// The connection has ended.
    pub fn forget_those_of(&mut self, connection: ConnectionId) {
        self.waiting.retain(|publish| publish.connection != connection);
    }

    fn lacks(&self, sent: &Sent) -> bool {
        !self.lacking.is_empty() && sent.targets().any(|to| self.lacking.contains_key(to))
    }
}

/// Whether a message that may have been sent before has to wait.
pub fn lacks_windows(partition: &Partition, publish: &Publish) -> bool {
    publish.resent && partition.leader.moves.resends.lacks(&publish.sent)
}

/// Puts a message behind the windows that it needs, or behind another message of its connection
/// that waits for them; any other is given back.
pub fn behind_windows(
    partition: &mut Partition,
    publish: Publish,
    effects: &mut Vec<Effect>,
) -> Option<Publish> {
    let waiting = &partition.leader.moves.resends.waiting;
    let is_behind = waiting.iter().any(|other| other.connection == publish.connection);
    if !is_behind && !lacks_windows(partition, &publish) {
        return Some(publish);
    }
    if waiting.len() >= WAITING_MAX {
        let refusal = Refusal::QueueMoving(publish.sent.to.clone());
        partition.resend_failed(&publish, &refusal, effects);
        return None;
    }
    partition.leader.moves.resends.waiting.push(publish);
    None
}

/// The windows of that partition are here, or the whole queue is.
pub fn windows_came(
    partition: &mut Partition,
    queue: &Destination,
    from: PartitionId,
    effects: &mut Vec<Effect>,
) {
    let resends = &mut partition.leader.moves.resends;
    let Some(lacking) = resends.lacking.get_mut(queue) else { return };
    lacking.remove(&from);
    if lacking.is_empty() {
        resends.lacking.remove(queue);
        for publish in std::mem::take(&mut resends.waiting) {
            partition.resent(publish, effects);
        }
    }
}
