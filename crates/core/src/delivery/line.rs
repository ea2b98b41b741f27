//! Lines: which consumers of a queue can take a message now, and in which order they get their
//! turns.

use postroad_model::{ConsumerKey, ConsumerMode, QueueId};

use crate::connection::outbox_is_full;
use crate::delivery::consumer::Consumer;
use crate::leader::Leader;
use crate::queue::Turn;
use crate::settings::Settings;
use crate::state::State;

/// Takes a consumer out of its line.
pub fn leave_line(state: &mut State, leader: &mut Leader, key: ConsumerKey) {
    let Some(consumer) = leader.delivery.consumers.get_mut(&key).filter(|consumer| consumer.in_line) else {
        return;
    };
    consumer.in_line = false;
    if let Some(queue) = state.queues.get_mut(&consumer.queue)
        && !queue.leave_idle(key)
    {
        queue.line(consumer.mode).take(consumer.turn);
    }
}

/// The consumer of the queue whose turn is next, after this turn if there is one. With
/// exclusive consumers it is the chosen one or none: the others keep their places.
pub fn next_in_line(
    state: &State,
    leader: &Leader,
    id: QueueId,
    after: Option<Turn>,
) -> Option<(Turn, ConsumerKey)> {
    let queue = state.queues.get(&id)?;
    let Some(chosen) = queue.consumers.chosen() else { return queue.waiting.next(after) };
    let consumer = leader.delivery.consumers.get(&chosen).filter(|consumer| consumer.in_line)?;
    after.is_none_or(|after| after < consumer.turn).then_some((consumer.turn, chosen))
}

/// With exclusive consumers on the queue only the first of the highest priority is served.
pub fn is_chosen(state: &State, key: ConsumerKey, consumer: &Consumer) -> bool {
    if consumer.mode == ConsumerMode::Browse {
        return true;
    }
    let queue = state.queues.get(&consumer.queue);
    queue.is_some_and(|queue| queue.consumers.chosen().is_none_or(|chosen| chosen == key))
}

/// Puts a consumer into the line of its queue, if it can take a message and is not there yet.
pub fn line_up(state: &mut State, leader: &mut Leader, settings: &Settings, key: ConsumerKey) {
    let Some(consumer) = leader.delivery.consumers.get(&key) else { return };
    let browses_no_more = consumer.browse.as_ref().is_some_and(|browse| browse.is_over || browse.is_fetching);
    // A member may wait without credit: it is when its turn comes that there must be some.
    let may = (consumer.credit > 0 || key.member != 0)
        && !browses_no_more
        && !outbox_is_full(leader, settings, key.connection);
    let Some(consumer) = leader.delivery.consumers.get_mut(&key).filter(|consumer| may && !consumer.in_line)
    else {
        return;
    };
    let Some(queue) = state.queues.get_mut(&consumer.queue) else { return };
    consumer.in_line = true;
    consumer.turn = queue.line(consumer.mode).push(consumer.waiting(key));
}
