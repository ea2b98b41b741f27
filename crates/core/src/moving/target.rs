//! The target: takes in messages for a queue that is on its way here, and delivers nothing until
//! all of it is here.

use postroad_model::{Attach, Command, Destination, Effect, PartitionId, Peer, Urgency};

use super::resends::windows_came;
use crate::Partition;
use crate::delivery::consumer::check_new;
use crate::log::completion::Completion;
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

    /// As [`Partition::expect_queue`], while running: the origin is notified once the queue is in
    /// the log here, so that a restart finds the queue here even if it is empty.
    pub(super) fn expect_from(&mut self, queue: Destination, from: PartitionId, effects: &mut Vec<Effect>) {
        if !may_expect(&self.leader, &self.settings, &queue) {
            // It is asked again.
            return;
        }
        self.expect_queue(queue.clone(), from);
        if self.state.addresses.own_queue(&queue).is_some() {
            return tell(from, Peer::Expecting { queue }, effects);
        }
        let completion = Completion::Expecting { queue: queue.clone(), from };
        self.propose(Command::Declare { queue }, Urgency::Waiting, completion, effects);
    }

    /// All that was there is here. Of a job that its queue has left behind there may be more
    /// elsewhere.
    pub(super) fn has_arrived(&mut self, queue: &Destination, from: PartitionId, effects: &mut Vec<Effect>) {
        windows_came(self, queue, from, effects);
        let Some(expected) = self.leader.moves.expected.get_mut(queue) else { return };
        expected.remove(&from);
        if !expected.is_empty() {
            return;
        }
        self.leader.moves.expected.remove(queue);
        let still_moves = is_moving(&self.state, &self.leader, queue);
        set_on_the_move(&mut self.state, queue, still_moves);
        if let Some(id) = self.state.addresses.own_queue(queue) {
            self.dispatch(id, effects);
        }
    }

    /// A consumer comes behind its queue.
    pub(super) fn follow_queue(&mut self, attach: Attach, effects: &mut Vec<Effect>) {
        let (key, ticket) = (attach.consumer, attach.ticket);
        let found = check_new(&self.leader, key).map(|()| self.state.addresses.own_queue(&attach.source));
        let Ok(Some(queue)) = found else {
            let refusal = postroad_model::Refusal::QueueMoving(attach.source);
            return reply(key.connection, ticket, Err(refusal), effects);
        };
        self.leader.connections.get_or_make(key.connection).consumers.insert(key);
        self.seat(queue, key, &attach);
        // A browser has seen its part where the queue was.
        if let Some(browse) =
            self.leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.browse.as_mut())
        {
            browse.go_to_end();
        }
        reply(key.connection, ticket, Ok(()), effects);
    }
}
