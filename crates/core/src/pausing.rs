//! Paused queues: consumers stay attached and get nothing, HTTP clients reserve nothing, and sends
//! go on.
//!
//! Operators pause and resume a queue; both are records, so a restart or another leader changes
//! nothing. Browsers and consumers of operators ([`ConsumerMode::Operator`]) go on: a queue can be
//! looked at, purged and redriven while it is paused. Messages that consumers hold already stay
//! theirs.
//!
//! Never here: the order of deliveries.

use std::collections::BTreeSet;

use postroad_model::{
    Command, ConnectionId, ConsumerKey, ConsumerMode, Destination, Effect, QueueId, Refusal, Ticket, Urgency,
};

use crate::Partition;
use crate::delivery::dispatch::dispatch;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::log::reader::Reader;
use crate::log::record::{RecordError, Writer};
use crate::moving::is_moving;
use crate::partition::{declare_queue, reply};

/// The queues that operators have paused.
#[derive(Default)]
pub struct Paused {
    queues: BTreeSet<QueueId>,
}

impl Paused {
    /// Whether the queue is paused.
    pub fn contains(&self, queue: QueueId) -> bool {
        self.queues.contains(&queue)
    }

    /// The queue is gone.
    pub fn forget(&mut self, queue: QueueId) {
        self.queues.remove(&queue);
    }

    /// Writes the part of a snapshot, which is left out without any unless `others_follow`.
    pub(crate) fn write(&self, out: &mut Writer, others_follow: bool) {
        if others_follow || !self.queues.is_empty() {
            out.list(&self.queues.iter().collect::<Vec<_>>(), |out, queue| {
                out.u64(queue.0);
            });
        }
    }

    /// Reads that.
    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Paused, RecordError> {
        let queues =
            if input.has_more() { input.list(|input| Ok(QueueId(input.u64()?)))? } else { Vec::new() };
        Ok(Paused { queues: queues.into_iter().collect() })
    }

    /// One that is not among these queues.
    pub fn dangling(&self, is_there: impl Fn(&QueueId) -> bool) -> Option<QueueId> {
        self.queues.iter().copied().find(|queue| !is_there(queue))
    }
}

/// How many queues are paused.
pub fn paused_queues(partition: &Partition) -> u64 {
    partition.state.paused.queues.len() as u64
}

/// Whether a paused queue serves the consumer.
pub fn serves(leader: &Leader, consumer: ConsumerKey) -> bool {
    let consumer = leader.delivery.consumers.get(&consumer);
    consumer.is_some_and(|consumer| consumer.mode == ConsumerMode::Operator)
}

/// Pauses or resumes a queue; answered once that is durable, at once if nothing changes.
pub fn pause(
    partition: &mut Partition,
    queue: Destination,
    paused: bool,
    (connection, ticket): (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    let refusal = match partition.state.addresses.own_queue(&queue) {
        None => Refusal::NoSuchQueue(queue),
        Some(id) if id.is_volatile() => Refusal::NotPausable(queue),
        Some(_) if is_moving(&partition.state, &partition.leader, &queue) => Refusal::QueueMoving(queue),
        Some(id) => {
            let is_settled = partition.leader.log.pending.is_empty();
            if is_settled && partition.state.paused.contains(id) == paused {
                return reply(connection, ticket, Ok(()), effects);
            }
            let (command, completion) =
                (Command::Pause { queue, paused }, Completion::Reply { connection, ticket });
            return propose(partition, command, Urgency::Waiting, completion, effects);
        }
    };
    reply(connection, ticket, Err(refusal), effects);
}

/// Carries that out.
pub fn apply(partition: &mut Partition, queue: &Destination, paused: bool, effects: &mut Vec<Effect>) {
    let id = declare_queue(partition, queue);
    if paused {
        partition.state.paused.queues.insert(id);
    } else if partition.state.paused.queues.remove(&id) {
        dispatch(partition, id, effects);
    }
}
