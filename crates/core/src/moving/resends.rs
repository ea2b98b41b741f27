//! Resent messages for a queue that is on its way here: they wait until the duplicate detection of
//! its former partition is here.
//!
//! Senders know the new place of a queue some milliseconds before the target has recorded the
//! windows of the origin. A message that is sent again in this time may be in the origin's log.
//! Later persistent messages of its connection wait behind it; behind one in a transaction all
//! later events of its connection do, its commit among them.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{ConnectionId, Destination, Effect, PartitionId, Publish, Refusal, Sent, Ticket};

use crate::Partition;
use crate::intake::audit::{note_resent, resend_failed};
use crate::leader::Leader;
use crate::protocols::Protocols;
use crate::state::State;
use crate::transaction::{publish_in_transaction, refuse_publish, resume_behind};

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

    fn lacks(&self, sent: &Sent) -> bool {
        !self.lacking.is_empty() && sent.targets().any(|to| self.lacking.contains_key(to))
    }
}

/// Whether a message that may have been sent before has to wait.
pub fn lacks_windows(leader: &Leader, publish: &Publish) -> bool {
    publish.resent && leader.moves.resends.lacks(&publish.sent)
}

/// Puts a message behind the windows that it needs, or behind another message of its connection
/// that waits for them; any other is given back.
pub fn behind_windows(
    state: &mut State,
    leader: &mut Leader,
    protocols: &Protocols,
    publish: Publish,
    effects: &mut Vec<Effect>,
) -> Option<Publish> {
    let waiting = &leader.moves.resends.waiting;
    let is_behind = waiting.iter().any(|other| other.connection == publish.connection);
    if !is_behind && !lacks_windows(leader, &publish) {
        return Some(publish);
    }
    if waiting.len() >= WAITING_MAX {
        let refusal = Refusal::QueueMoving(publish.sent.to.clone());
        resend_failed(state, leader, protocols, &publish, &refusal, effects);
        return None;
    }
    leader.moves.resends.waiting.push(publish);
    None
}

/// As [`behind_windows`], for a message in a transaction: all later events of its connection wait
/// too.
pub fn transacted_behind_windows(
    partition: &mut Partition,
    publish: Publish,
    effects: &mut Vec<Effect>,
) -> Option<Publish> {
    if !lacks_windows(&partition.leader, &publish) {
        return Some(publish);
    }
    let leader = &mut partition.leader;
    if WAITING_MAX <= leader.moves.resends.waiting.len() || leader.transactions.closings.is_full() {
        refuse(partition, publish, effects);
        return None;
    }
    leader.transactions.closings.hold(publish.connection);
    leader.moves.resends.waiting.push(publish);
    None
}

/// Its transaction can only be rolled back.
fn refuse(partition: &mut Partition, publish: Publish, effects: &mut Vec<Effect>) {
    refuse_publish(partition, &publish, Refusal::QueueMoving(publish.sent.to.clone()), effects);
}

/// Too many events wait: messages in transactions are refused, so that the others go on.
pub fn refuse_waiting(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let waiting = std::mem::take(&mut partition.leader.moves.resends.waiting);
    let (transacted, others): (Vec<Publish>, Vec<Publish>) =
        waiting.into_iter().partition(|publish| publish.transaction.is_some());
    partition.leader.moves.resends.waiting = others;
    for publish in transacted {
        partition.leader.transactions.closings.end(&[publish.connection]);
        refuse(partition, publish, effects);
    }
    resume_behind(partition, effects);
}

/// The connection has ended: its messages come no more, nor the transactions that they were in.
pub fn forget_resends(partition: &mut Partition, connection: ConnectionId, effects: &mut Vec<Effect>) {
    let waiting = &mut partition.leader.moves.resends.waiting;
    let gone: Vec<Publish> = waiting.extract_if(.., |publish| publish.connection == connection).collect();
    for publish in gone.into_iter().filter(|publish| publish.transaction.is_some()) {
        partition.leader.transactions.closings.end(&[connection]);
        refuse(partition, publish, effects);
    }
    // What waited behind one comes before the end of the connection.
    resume_behind(partition, effects);
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
            if publish.transaction.is_none() {
                note_resent(partition, publish, effects);
                continue;
            }
            // It may lack others.
            let connection = publish.connection;
            partition.leader.transactions.closings.end(&[connection]);
            publish_in_transaction(partition, publish, effects);
        }
        resume_behind(partition, effects);
    }
}
