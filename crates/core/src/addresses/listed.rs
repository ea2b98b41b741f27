//! Queues and topics in the order of their names: a page of names costs its own rows and not the
//! table of all addresses.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::{Destination, DestinationKind, QueueId};

use crate::queue::Queue;

/// See the head of this file.
#[derive(Default)]
pub struct ListedQueues {
    by_name: BTreeSet<(Arc<str>, QueueId)>,
}

impl ListedQueues {
    /// The queue was made. Of volatile queues only temporary ones are listed.
    pub fn insert(&mut self, queue: &Queue) {
        if !queue.id.is_volatile() || queue.source.temporary {
            self.by_name.insert((queue.source.name.clone(), queue.id));
        }
    }

    /// The queue has ended.
    pub fn remove(&mut self, queue: &Queue) {
        self.by_name.remove(&(queue.source.name.clone(), queue.id));
    }

    /// Queues whose names begin with this and come after `after`, in order.
    pub fn with_prefix<'l>(
        &'l self,
        prefix: &'l str,
        after: &'l str,
    ) -> impl Iterator<Item = (&'l str, QueueId)> {
        let from = self.by_name.range((Arc::from(prefix.max(after)), QueueId(0))..);
        let lasting = from.filter(|(_, id)| !id.is_volatile());
        let named = lasting.map(|(name, id)| (&**name, *id));
        // Several subscriptions may have the name of the cursor.
        let behind = named.skip_while(move |(name, _)| !after.is_empty() && *name <= after);
        behind.take_while(move |(name, _)| name.starts_with(prefix))
    }

    /// How many queues are listed, temporary ones too.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Queues from this name and id on, in order, temporary ones too.
    pub fn from(&self, name: &str, id: QueueId) -> impl Iterator<Item = (&Arc<str>, QueueId)> + use<'_> {
        self.by_name.range((Arc::from(name), id)..).map(|(name, id)| (name, *id))
    }
}

/// Topics that messages were sent to or that feed a queue, and patterns of topics that feed one.
#[derive(Default)]
pub struct ListedTopics {
    by_name: BTreeSet<Arc<str>>,
}

impl ListedTopics {
    /// The address was made, or the first queue was bound to the pattern.
    pub fn insert(&mut self, address: &Destination) {
        if address.kind == DestinationKind::Topic && !address.temporary {
            self.by_name.insert(address.name.clone());
        }
    }

    /// The address is gone, or nothing is bound to the pattern.
    pub fn remove(&mut self, address: &Destination) {
        if address.kind == DestinationKind::Topic && !address.temporary {
            self.by_name.remove(&address.name);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// From this name on, in order.
    pub fn from(&self, name: &str) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.by_name.range(Arc::from(name)..)
    }
}

#[cfg(test)]
mod tests {
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
