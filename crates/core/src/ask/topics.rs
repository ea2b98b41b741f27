//! Rows about topics, and the queues and subscriptions that they feed.

use std::sync::Arc;

use postroad_model::{Ask, BindingRow, Destination, Page, QueueId, Row, RowKey, TopicRow};

use super::SCANNED_MAX;
use crate::Partition;
use crate::queue::Queue;

/// See the head of this file.
pub struct TopicRows<'p>(pub &'p Partition);

impl TopicRows<'_> {
    pub fn topics(&self, name_part: &str, only: Option<&Destination>, ask: &Ask) -> Page {
        let row = |topic: Destination| {
            let bounds = self.0.state.addresses.bounds(&topic);
            Row::Topic(TopicRow {
                bindings: bounds.iter().map(|bound| bound.len() as u64).sum(),
                selectors: bounds.iter().map(|bound| bound.filters() as u64).sum(),
                destination: topic,
            })
        };
        if let Some(only) = only {
            let there = self.0.state.addresses.get(only).map(|_| row(only.clone()));
            return Page::first(there.into_iter(), ask);
        }
        let rows_of = |topic: Destination| match topic.is_pattern() {
            true => Vec::new(),
            false => vec![row(topic)],
        };
        self.page_by_topic(name_part, ask, rows_of)
    }

    pub fn bindings(&self, name_part: &str, of: Option<&Destination>, ask: &Ask) -> Page {
        match of {
            Some(topic) => Page::first(self.bindings_of(topic, ask).into_iter(), ask),
            None => self.page_by_topic(name_part, ask, |topic| self.bindings_of(&topic, ask)),
        }
    }

    /// The bindings of a topic or pattern behind the cursor: no more than make a page, with one
    /// more.
    fn bindings_of(&self, topic: &Destination, ask: &Ask) -> Vec<Row> {
        let Some(bound) = self.0.state.addresses.bound_to(topic) else { return Vec::new() };
        let row = |id: QueueId| Some(self.row_of_binding(topic, self.0.state.queues.get(&id)?));
        if topic.is_pattern() {
            // In the order of the names of their targets: a pattern feeds few.
            return bound.iter().filter_map(row).collect();
        }
        let after = ask.after.as_ref().filter(|after| after.name == topic.name);
        let after = after.and_then(|after| u64::from_str_radix(&after.detail, 16).ok());
        let first = QueueId(after.map_or(0, |after| after.saturating_add(1)));
        bound.from(first, ask.rows_max() + 1).into_iter().filter_map(row).collect()
    }

    fn row_of_binding(&self, topic: &Destination, queue: &Queue) -> Row {
        let subscription = queue.subscription.as_ref();
        let feed = queue.fed_by.iter().find(|feed| feed.topic == *topic);
        let reader = match (feed, subscription) {
            (None, None) => queue.consumers.first(),
            _ => None,
        };
        let reader = reader.and_then(|key| self.0.leader.delivery.consumers.get(key)?.notice.as_ref());
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

    /// Rows in the order of their topics, whose names have this in them. A page ends early once
    /// [`SCANNED_MAX`] names were looked at, as others must have their turn; it has a cursor then.
    fn page_by_topic(&self, name_part: &str, ask: &Ask, rows_of: impl Fn(Destination) -> Vec<Row>) -> Page {
        let from = ask.after.as_ref().map_or("", |after| &after.name);
        let is_behind = |row: &Row| ask.after.as_ref().is_none_or(|after| *after < row.key());
        let (mut rows, mut end) = (Vec::new(), None);
        for (number, name) in self.0.state.addresses.feeding.from(from).enumerate() {
            if name_part.is_empty() || name.contains(name_part) {
                rows.extend(rows_of(Destination::topic(name)).into_iter().filter(is_behind));
            }
            if ask.rows_max() < rows.len() {
                break;
            }
            if SCANNED_MAX <= number {
                end = Some(RowKey { rank: 0, name: name.clone(), detail: char::MAX.to_string().into() });
                break;
            }
        }
        let page = Page::first(rows.into_iter(), ask);
        let all = if name_part.is_empty() { self.0.state.addresses.feeding.len() as u64 } else { 0 };
        Page { total: page.total.max(all), next: page.next.or(end), rows: page.rows }
    }
}
