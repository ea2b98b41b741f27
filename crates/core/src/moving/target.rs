//! The target: takes in messages for a queue that is on its way here, and delivers nothing until
//! all of it is here.

use postroad_model::{Attach, Command, Destination, Effect, PartitionId, Peer, Urgency};

use super::resends::windows_came;
use crate::Partition;
use crate::delivery::consumer::{check_new, take_seat};
use crate::delivery::dispatch::dispatch;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::origin::may_expect;
use crate::moving::{is_moving, set_on_the_move};
use crate::partition::reply;
use crate::transaction::tell;

impl Partition {
    /// The queue is on its way here from another partition. To be said before [`Partition::start`]
    /// for every queue that is leaving another one: see [`Partition::leaving`].
    pub fn expect_queue(&mut self, queue: Destination, from: PartitionId) {
        if from == self.settings.id {
            // It lives here, as a later record says, and has not gone yet.
            return;
        }
        set_on_the_move(&mut self.state, &queue, true);
        self.leader.moves.resends.expect(queue.clone(), from);
        self.leader.moves.expected.entry(queue).or_default().insert(from);
    }
}

/// As [`Partition::expect_queue`], while running: the origin is notified once the queue is in
/// the log here, so that a restart finds the queue here even if it is empty.
pub fn expect_from(
    partition: &mut Partition,
    queue: Destination,
    from: PartitionId,
    effects: &mut Vec<Effect>,
) {
    if !may_expect(&partition.leader, &partition.settings, &queue) {
        // It is asked again.
        return;
    }
    partition.expect_queue(queue.clone(), from);
    if partition.state.addresses.own_queue(&queue).is_some() {
        return tell(from, Peer::Expecting { queue }, effects);
    }
    let completion = Completion::Expecting { queue: queue.clone(), from };
    propose(partition, Command::Declare { queue }, Urgency::Waiting, completion, effects);
}

/// All that was there is here. Of a job that its queue has left behind there may be more
/// elsewhere.
pub fn has_arrived(
    partition: &mut Partition,
    queue: &Destination,
    from: PartitionId,
    effects: &mut Vec<Effect>,
) {
    windows_came(partition, queue, from, effects);
    let Some(expected) = partition.leader.moves.expected.get_mut(queue) else { return };
    expected.remove(&from);
    if !expected.is_empty() {
        return;
    }
    partition.leader.moves.expected.remove(queue);
    let still_moves = is_moving(&partition.state, &partition.leader, queue);
    set_on_the_move(&mut partition.state, queue, still_moves);
    if let Some(id) = partition.state.addresses.own_queue(queue) {
        dispatch(partition, id, effects);
    }
}

/// A consumer comes behind its queue.
pub fn follow_queue(partition: &mut Partition, attach: Attach, effects: &mut Vec<Effect>) {
    let (key, ticket) = (attach.consumer, attach.ticket);
    let found =
        check_new(&partition.leader, key).map(|()| partition.state.addresses.own_queue(&attach.source));
    let Ok(Some(queue)) = found else {
        let refusal = postroad_model::Refusal::QueueMoving(attach.source);
        return reply(key.connection, ticket, Err(refusal), effects);
    };
    partition.leader.connections.get_or_make(key.connection).consumers.insert(key);
    take_seat(partition, queue, key, &attach);
    // A browser has seen its part where the queue was.
    if let Some(browse) =
        partition.leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.browse.as_mut())
    {
        browse.go_to_end();
    }
    reply(key.connection, ticket, Ok(()), effects);
}
