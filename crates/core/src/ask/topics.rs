//! Rows about topics, and the queues and subscriptions that they feed, in the order of the topics'
//! names.

use std::sync::Arc;

use postroad_model::{Ask, BindingRow, Destination, QueueId, Row, TopicRow};

use super::{FOUND_AT_ONCE, Step, Walk};
use crate::Partition;
use crate::leader::Leader;
use crate::queue::Queue;

/// Topics by name: all of them from the cursor on, or one.
struct Names {
    name_part: Arc<str>,
    only: Option<Destination>,
    next: Arc<str>,
}

impl Names {
    fn new(name_part: &Arc<str>, only: Option<&Destination>, ask: &Ask) -> Names {
        let next = ask.after.as_ref().map_or("".into(), |after| after.name.clone());
        Names { name_part: name_part.clone(), only: only.cloned(), next }
    }

    /// Goes through the topics; each row counts as looked at, and so does each name.
    fn go_on(
        &mut self,
        partition: &Partition,
        step: &mut Step<'_>,
        mut rows_of: impl FnMut(Destination, &mut Step<'_>) -> bool,
    ) -> bool {
        if let Some(only) = &self.only {
            return rows_of(only.clone(), step);
        }
        for name in partition.state.addresses.feeding.from(&self.next) {
            if step.page.ends_before(name) {
                break;
            }
            if !step.look() || name.contains(&*self.name_part) && !rows_of(Destination::topic(name), step) {
                self.next = name.clone();
                return false;
            }
        }
        if self.name_part.is_empty() {
            step.page.total = step.page.total.max(partition.state.addresses.feeding.len() as u64);
        }
        true
    }
}

/// Topics that were sent to, or that feed a queue.
pub struct Topics(Names);

impl Topics {
    pub fn new(name_part: &Arc<str>, only: Option<&Destination>, ask: &Ask) -> Topics {
        Topics(Names::new(name_part, only, ask))
    }
}

impl Walk for Topics {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        let is_one = self.0.only.is_some();
        self.0.go_on(partition, step, |topic, step| {
            let is_listed = match is_one {
                true => partition.state.addresses.get(&topic).is_some(),
                false => !topic.is_pattern(),
            };
            if is_listed {
                let bounds = partition.state.addresses.bounds(&topic);
                // A topic that many patterns match has its row whatever is left.
                step.left = step.left.saturating_sub(bounds.len());
                step.add(Row::Topic(TopicRow {
                    bindings: bounds.iter().map(|bound| bound.len() as u64).sum(),
                    selectors: bounds.iter().map(|bound| bound.filters() as u64).sum(),
                    destination: topic,
                }));
            }
            true
        })
    }
}

/// The bindings of topics, and of patterns of topics.
pub struct Bindings {
    names: Names,
    /// The topic whose bindings come next, and the first of them.
    at: (Arc<str>, QueueId),
}

impl Bindings {
    pub fn new(name_part: &Arc<str>, of: Option<&Destination>, ask: &Ask) -> Bindings {
        let names = Names::new(name_part, of, ask);
        // The bindings of a topic come in the order of their ids, those of a pattern in that of
        // the names of their targets.
        let is_topic = !Destination::topic(&names.next).is_pattern();
        let after = ask.after.as_ref().filter(|_| is_topic);
        let after = after.and_then(|after| u64::from_str_radix(&after.detail, 16).ok());
        let first = QueueId(after.map_or(0, |after| after.saturating_add(1)));
        Bindings { at: (names.next.clone(), first), names }
    }
}

impl Walk for Bindings {
    fn go_on(&mut self, partition: &Partition, step: &mut Step<'_>) -> bool {
        let at = &mut self.at;
        self.names.go_on(partition, step, |topic, step| {
            if at.0 != topic.name {
                *at = (topic.name.clone(), QueueId(0));
            }
            let Some(bound) = partition.state.addresses.bound_to(&topic) else { return true };
            loop {
                let found = bound.from(at.1, FOUND_AT_ONCE);
                if found.is_empty() {
                    return true;
                }
                for id in found {
                    if step.page.has_more() && !topic.is_pattern() {
                        return true;
                    }
                    if !step.look() {
                        return false;
                    }
                    if let Some(queue) = partition.state.queues.get(&id) {
                        step.add(row_of_binding(&partition.leader, &topic, queue));
                    }
                    at.1 = QueueId(id.0.saturating_add(1));
                }
            }
        })
    }
}

fn row_of_binding(leader: &Leader, topic: &Destination, queue: &Queue) -> Row {
    let subscription = queue.subscription.as_ref();
    let feed = queue.fed_by.iter().find(|feed| feed.topic == *topic);
    let reader = match (feed, subscription) {
        (None, None) => queue.consumers.first(),
        _ => None,
    };
    let reader = reader.and_then(|key| leader.delivery.consumers.get(key)?.notice.as_ref());
    let selectors: Vec<Arc<str>> = match (feed, subscription) {
        (Some(feed), _) => feed.selectors.clone(),
        (None, Some(subscription)) => vec![subscription.selector.clone()],
        (None, None) => reader.map(|notice| notice.selector.clone()).into_iter().collect(),
    };
    Row::Binding(BindingRow {
        topic: topic.clone(),
        id: queue.id,
        queue: feed.map(|_| queue.source.clone()),
        subscription: subscription.map(|subscription| subscription.name.clone()),
        consumer: reader.map(|notice| notice.name.clone()),
        selectors: selectors.into_iter().filter(|selector| !selector.is_empty()).collect(),
        messages: queue.len(),
    })
}
