//! Queues in the order of their names: a page of names costs its own rows and not the table of all queues.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::QueueId;

use crate::queue::Queue;

/// See the head of this file.
#[derive(Default)]
pub struct ListedQueues {
    by_name: BTreeSet<(Arc<str>, QueueId)>,
}

impl ListedQueues {
    /// The queue was made. Volatile queues are in no list.
    pub fn insert(&mut self, queue: &Queue) {
        if !queue.id.is_volatile() {
            self.by_name.insert((queue.source.name.clone(), queue.id));
        }
    }

    /// The queue has ended.
    pub fn remove(&mut self, queue: &Queue) {
        self.by_name.remove(&(queue.source.name.clone(), queue.id));
    }

    /// Queues whose names begin with this and come behind `after`, in order.
    pub fn with_prefix<'l>(
        &'l self,
        prefix: &'l str,
        after: &'l str,
    ) -> impl Iterator<Item = (&'l str, QueueId)> {
        let from = self.by_name.range((Arc::from(prefix.max(after)), QueueId(0))..);
        let named = from.map(|(name, id)| (&**name, *id));
        // Several subscriptions may have the name of the cursor.
        let behind = named.skip_while(move |(name, _)| !after.is_empty() && *name <= after);
        behind.take_while(move |(name, _)| name.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Destination;

    use super::*;

    fn listed(names: &[&str]) -> ListedQueues {
        let mut listed = ListedQueues::default();
        for (id, name) in (0..).map(QueueId).zip(names) {
            listed.insert(&Queue::new(id, Destination::queue(name), 4));
        }
        listed
    }

    #[test]
    fn a_prefix_and_a_cursor_bound_the_list() {
        let listed = listed(&["b", "a.2", "a.1", "a", "c"]);
        for (prefix, after, want) in [
            ("", "", vec!["a", "a.1", "a.2", "b", "c"]),
            ("a", "", vec!["a", "a.1", "a.2"]),
            ("a", "a", vec!["a.1", "a.2"]),
            ("a.", "a.1", vec!["a.2"]),
            ("a.", "a.15", vec!["a.2"]),
            ("", "a.2", vec!["b", "c"]),
            ("d", "", vec![]),
        ] {
            let names: Vec<&str> = listed.with_prefix(prefix, after).map(|(name, _)| name).collect();
            assert_eq!(names, want, "{prefix} behind {after}");
        }
    }

    #[test]
    fn queues_that_have_ended_and_volatile_ones_are_not_listed() {
        let mut listed = listed(&["a", "b"]);
        listed.remove(&Queue::new(QueueId(0), Destination::queue("a"), 4));
        listed.insert(&Queue::new(QueueId::volatile(1), Destination::topic("t"), 4));
        assert_eq!(listed.with_prefix("", "").map(|(_, id)| id).collect::<Vec<_>>(), [QueueId(1)]);
    }
}
