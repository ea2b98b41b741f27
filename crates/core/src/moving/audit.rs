//! Duplicate detection goes along with a queue: the origin's windows are in the target's log before
//! the queue is gone here.
//!
//! ```text
//!   origin                                       target
//!   all who send know the new place
//!   the log has all messages sent here
//!     ──Remember──────────────────────────────▶  records Remember: its windows know these messages too
//!     ◀──────────────────────────────Remembers──
//! ```
//! A message that is sent again between the new place and the record waits for the record: see
//! `resends`.

use bytes::Bytes;
use postroad_model::{Changes, Command, Destination, Effect, PartitionId, Peer, Urgency};

use super::origin::RETRY_MS;
use super::resends::windows_came;
use crate::Partition;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::known;
use crate::log::propose::propose;
use crate::transaction::tell;

/// How far the windows of the duplicate detection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handover {
    /// To be sent from this time on, in ms: again if the target did not say that it has them.
    Due(u64),
    /// The target has them, durably.
    Done,
}

/// All who send know the queue's new place: the windows go there behind all that is on its way to
/// the log.
pub(super) fn hand_over(partition: &mut Partition, queue: &Destination, effects: &mut Vec<Effect>) {
    let now_ms = partition.now_ms;
    let Some(leaving) = partition.leader.moves.leaving.get_mut(queue) else { return };
    let Handover::Due(at_ms) = leaving.audit else { return };
    if now_ms < at_ms {
        return;
    }
    leaving.audit = Handover::Due(now_ms + RETRY_MS);
    let nothing = Command::Transact(Changes::default());
    let completion = Completion::AuditGoes { queue: queue.clone() };
    propose(partition, nothing, Urgency::Waiting, completion, effects);
}

/// The log has all that was sent to the queue here.
pub fn send(partition: &mut Partition, queue: Destination, effects: &mut Vec<Effect>) {
    let Some(leaving) = partition.leader.moves.leaving.get(&queue) else { return };
    let (to, parts) = (leaving.to, known::parts(&partition.state.audit));
    tell(to, Peer::Remember { queue, parts }, effects);
}

/// The target takes the windows.
pub(super) fn take(
    partition: &mut Partition,
    (queue, from): (Destination, PartitionId),
    parts: Vec<Bytes>,
    effects: &mut Vec<Effect>,
) {
    if parts.is_empty() {
        return recorded(partition, queue, from, effects);
    }
    let last = parts.len() - 1;
    for (number, known) in parts.into_iter().enumerate() {
        let completion = match number == last {
            true => Completion::Remembers { queue: queue.clone(), from },
            false => Completion::Nothing,
        };
        propose(partition, Command::Remember { known }, Urgency::Waiting, completion, effects);
    }
}

/// The windows are in the log.
pub fn recorded(partition: &mut Partition, queue: Destination, from: PartitionId, effects: &mut Vec<Effect>) {
    windows_came(partition, &queue, from, effects);
    tell(from, Peer::Remembers { queue }, effects);
}

/// The target has them.
pub(super) fn taken(partition: &mut Partition, queue: &Destination) {
    if let Some(leaving) = partition.leader.moves.leaving.get_mut(queue) {
        leaving.audit = Handover::Done;
    }
}

/// Whether the windows of this queue are not at its target.
pub(super) fn is_due(leader: &Leader, queue: &Destination) -> bool {
    let leaving = leader.moves.leaving.get(queue);
    leaving.is_some_and(|leaving| leaving.audit != Handover::Done)
}
