//! Rows of queues, and of the consumers of an address.

use std::sync::Arc;

use postroad_model::{Ask, ConsumerKey, ConsumerRow, Destination, QueueId, QueueRow, Row};

use super::{FOUND_AT_ONCE, Step, Walk};
use crate::Partition;
use crate::delivery::consumer::Consumer;
use crate::leader::Leader;
use crate::queue::Queue;
use crate::state::State;

/// Queues in the order of their names. Without a part of a name a page costs no more than its rows,
/// however many queues there are.
pub struct Queues {
    name_part: Arc<str>,
    next: (Arc<str>, QueueId),
}

impl Queues {
    pub fn new(name_part: &Arc<str>, ask: &Ask) -> Queues {
        let after = ask.after.as_ref().filter(|_| name_part.is_empty() && ask.order.by.is_none());
        // Several subscriptions may have the name of the cursor.
        Queues {
            name_part: name_part.clone(),
            next: (after.map_or("".into(), |it| it.name.clone()), QueueId(0)),
        }
    }
}

impl Walk for Queues {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        let listed = &partition.state.addresses.listed;
        let is_whole = self.name_part.is_empty() && step.is_by_name();
        for (name, id) in listed.from(&self.next.0, self.next.1) {
            if is_whole && step.page.ends_before(name) {
                break;
            }
            if !step.look() {
                self.next = (name.clone(), id);
                return false;
            }
            if name.contains(&*self.name_part)
                && let Some(queue) = partition.state.queues.get(&id)
            {
                step.add(row_of_queue(&partition.state, queue));
            }
        }
        if self.name_part.is_empty() {
            step.page.total = listed.len() as u64;
        }
        true
    }
}

/// Durable subscriptions in the order of their topics.
pub struct Subscriptions {
    prefix: Arc<str>,
    next: (Arc<str>, QueueId),
}

impl Subscriptions {
    pub fn new(prefix: &Arc<str>, ask: &Ask) -> Subscriptions {
        let after = ask.after.as_ref().filter(|_| ask.order.by.is_none());
        let topic = after.map_or("".into(), |it| it.name.clone());
        Subscriptions { prefix: prefix.clone(), next: (topic, QueueId(0)) }
    }
}

impl Walk for Subscriptions {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        for (name, id) in partition.state.addresses.listed.from(&self.next.0, self.next.1) {
            if step.is_by_name() && step.page.ends_before(name) {
                break;
            }
            if !step.look() {
                self.next = (name.clone(), id);
                return false;
            }
            let queue = partition.state.queues.get(&id).filter(|_| !id.is_volatile());
            let subscription = queue.and_then(|queue| queue.subscription.as_ref());
            if let Some(queue) = queue
                && subscription.is_some_and(|it| it.name.starts_with(&*self.prefix))
            {
                step.add(row_of_queue(&partition.state, queue));
            }
        }
        true
    }
}

/// The queues of an address: that of its name, and its subscriptions.
pub struct QueuesOf {
    of: Destination,
    next: QueueId,
}

impl QueuesOf {
    pub fn new(of: &Destination) -> QueuesOf {
        QueuesOf { of: of.clone(), next: QueueId(0) }
    }
}

impl Walk for QueuesOf {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        let is_listed =
            |queue: &&Queue| (!queue.id.is_volatile() || queue.source.temporary) && queue.source == self.of;
        while let Some(found) = next_bound(&partition.state, &self.of, self.next) {
            for id in found {
                if !step.look() {
                    self.next = id;
                    return false;
                }
                if let Some(queue) = partition.state.queues.get(&id).filter(is_listed) {
                    step.add(row_of_queue(&partition.state, queue));
                }
                self.next = QueueId(id.0.saturating_add(1));
            }
        }
        true
    }
}

/// Some queues that are bound to the address, from this one on; `None` after the last.
fn next_bound(state: &State, of: &Destination, from: QueueId) -> Option<Vec<QueueId>> {
    let found = state.addresses.get(of)?.bound.from(from, FOUND_AT_ONCE);
    (!found.is_empty()).then_some(found)
}

fn row_of_queue(state: &State, queue: &Queue) -> Row {
    let counts = queue.counts.all();
    Row::Queue(QueueRow {
        destination: queue.source.clone(),
        subscription: queue.subscription.as_ref().map(|subscription| subscription.name.clone()),
        messages: queue.len(),
        bytes: queue.load.bytes,
        in_flight: queue.away.messages,
        consumers: queue.consumers.len() as u64,
        enqueued: counts.enqueued,
        consumed: counts.consumed,
        expired: counts.expired,
        dead_lettered: counts.dead_lettered,
        dropped: counts.dropped + counts.replaced,
        moved: counts.moved,
        difference: counts.difference(queue.len()),
        is_moving: queue.on_the_move,
        is_paused: state.paused.contains(queue.id),
    })
}

/// The consumers of the queues of an address.
pub struct ConsumersOf {
    of: Destination,
    queue: QueueId,
    /// The number of the next one in that queue.
    seat: u64,
}

impl ConsumersOf {
    pub fn new(of: &Destination) -> ConsumersOf {
        ConsumersOf { of: of.clone(), queue: QueueId(0), seat: 0 }
    }
}

impl Walk for ConsumersOf {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        while let Some(found) = next_bound(&partition.state, &self.of, self.queue) {
            for id in found {
                if id != self.queue {
                    (self.queue, self.seat) = (id, 0);
                }
                if !step.look() {
                    return false;
                }
                let Some(queue) = partition.state.queues.get(&id) else { continue };
                for (number, key) in queue.consumers.from(self.seat) {
                    if !step.look() {
                        self.seat = number;
                        return false;
                    }
                    let consumer = partition.leader.delivery.consumers.get(&key);
                    let row = consumer.and_then(|consumer| {
                        row_of_consumer(&partition.state, &partition.leader, key, consumer)
                    });
                    row.into_iter().for_each(|row| step.add(row));
                }
                (self.queue, self.seat) = (QueueId(id.0.saturating_add(1)), 0);
            }
        }
        true
    }
}

pub(super) fn row_of_consumer(
    state: &State,
    leader: &Leader,
    key: ConsumerKey,
    consumer: &Consumer,
) -> Option<Row> {
    let queue = state.queues.get(&consumer.queue)?;
    // Members of a pattern consumer are reported as the whole consumer.
    let whole = leader.delivery.consumers.get(&key.whole()).map_or(consumer, AsRef::as_ref);
    let notice = consumer.notice.as_deref().or(whole.notice.as_deref());
    Some(Row::Consumer(ConsumerRow {
        consumer: key,
        name: notice.map(|notice| notice.name.clone()).unwrap_or_default(),
        destination: queue.source.clone(),
        subscription: queue.subscription.as_ref().map(|subscription| subscription.name.clone()),
        mode: consumer.mode,
        selector: notice.map(|notice| notice.selector.clone()).unwrap_or_default(),
        priority: consumer.priority,
        credit: consumer.credit,
        held: consumer.held.len() as u64,
    }))
}
