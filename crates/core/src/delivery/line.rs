//! Lines: which consumers of a queue can take a message now, and in which order they get their
//! turns.

use postroad_model::{ConsumerKey, ConsumerMode, QueueId};

use crate::Partition;
use crate::delivery::consumer::Consumer;
use crate::queue::Turn;

impl Partition {
    /// Puts a consumer into the line of its queue, if it can take a message and is not there yet.
    pub(crate) fn line_up(&mut self, key: ConsumerKey) {
        let Some(consumer) = self.leader.delivery.consumers.get(&key) else { return };
        let browses_no_more =
            consumer.browse.as_ref().is_some_and(|browse| browse.is_over || browse.is_fetching);
        // A member may wait without credit: it is when its turn comes that there must be some.
        let may = (consumer.credit > 0 || key.member != 0)
            && !browses_no_more
            && !self.outbox_is_full(key.connection);
        let Some(consumer) =
            self.leader.delivery.consumers.get_mut(&key).filter(|consumer| may && !consumer.in_line)
        else {
            return;
        };
        let Some(queue) = self.state.queues.get_mut(&consumer.queue) else { return };
        consumer.in_line = true;
        consumer.turn = queue.line(consumer.mode).push(consumer.waiting(key));
    }

    /// Takes a consumer out of its line.
    pub(crate) fn leave_line(&mut self, key: ConsumerKey) {
        let Some(consumer) = self.leader.delivery.consumers.get_mut(&key).filter(|consumer| consumer.in_line)
        else {
            return;
        };
        consumer.in_line = false;
        if let Some(queue) = self.state.queues.get_mut(&consumer.queue)
            && !queue.leave_idle(key)
        {
            queue.line(consumer.mode).take(consumer.turn);
        }
    }

    /// The consumer of the queue whose turn is next, after this turn if there is one. With
    /// exclusive consumers it is the chosen one or none: the others keep their places.
    pub(crate) fn next_in_line(&self, id: QueueId, after: Option<Turn>) -> Option<(Turn, ConsumerKey)> {
        let queue = self.state.queues.get(&id)?;
        let Some(chosen) = queue.consumers.chosen() else { return queue.waiting.next(after) };
        let consumer = self.leader.delivery.consumers.get(&chosen).filter(|consumer| consumer.in_line)?;
        after.is_none_or(|after| after < consumer.turn).then_some((consumer.turn, chosen))
    }

    /// With exclusive consumers on the queue only the first of the highest priority is served.
    pub(crate) fn is_chosen(&self, key: ConsumerKey, consumer: &Consumer) -> bool {
        if consumer.mode == ConsumerMode::Browse {
            return true;
        }
        let queue = self.state.queues.get(&consumer.queue);
        queue.is_some_and(|queue| queue.consumers.chosen().is_none_or(|chosen| chosen == key))
    }
}
