//! Addresses: names that messages are sent to, and the queues bound to each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postroad_model::{ConnectionId, Destination, Message, QueueId};
use postroad_selector::{Properties, Selector, SelectorIndex};

/// One address.
#[derive(Default)]
pub struct Address {
    /// The connection whose end deletes it, if it is temporary.
    pub owner: Option<ConnectionId>,
    /// Every queue that it feeds: one for a queue, one for each subscription of a topic.
    pub bound: Bound,
    /// What later subscribers are shown first, by key.
    pub retained: BTreeMap<Box<str>, Message>,
}

/// The queues that an address feeds, each with the selector that a message has to match.
///
/// A message costs what the queues that take it cost, and little for the others: their selectors are found by an index.
#[derive(Default)]
pub struct Bound {
    /// Those that take everything. Durable ones have the lower numbers.
    open: BTreeSet<QueueId>,
    /// Those that choose.
    choosing: SelectorIndex<QueueId>,
    choosers: BTreeSet<QueueId>,
}

impl Bound {
    /// Binds a queue, or binds it anew with another selector; `None` takes everything.
    pub fn insert(&mut self, queue: QueueId, selector: Option<Selector>) {
        self.remove(queue);
        match selector {
            None => {
                self.open.insert(queue);
            }
            Some(selector) => {
                self.choosers.insert(queue);
                self.choosing.insert(queue, selector);
            }
        }
    }

    /// The queue is bound no more.
    pub fn remove(&mut self, queue: QueueId) {
        self.open.remove(&queue);
        if self.choosers.remove(&queue) {
            self.choosing.remove(&queue);
        }
    }

    /// The queue of a queue's own address.
    pub fn own(&self) -> Option<QueueId> {
        self.open.first().copied()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = QueueId> {
        self.open.iter().chain(&self.choosers).copied()
    }

    /// Whether one of them outlives this run.
    pub fn has_durable(&self) -> bool {
        let firsts = [self.open.first(), self.choosers.first()];
        firsts.into_iter().flatten().any(|queue| !queue.is_volatile())
    }

    /// Those that take a message with these properties, in an order that follows from the bindings alone.
    pub fn taking<'a>(&self, properties: impl FnOnce() -> Box<dyn Properties + 'a>) -> Vec<QueueId> {
        let mut taking: Vec<QueueId> = self.open.iter().copied().collect();
        if !self.choosers.is_empty() {
            let open = taking.len();
            self.choosing.matching(&*properties(), |queue| taking.push(*queue));
            taking[open..].sort_unstable();
        }
        taking
    }
}

/// The addresses of a partition.
#[derive(Default)]
pub struct Addresses {
    by_destination: HashMap<Destination, Address>,
}

impl Addresses {
    /// The address, if it exists.
    pub fn get(&self, destination: &Destination) -> Option<&Address> {
        self.by_destination.get(destination)
    }

    /// The address, if it exists, to change it.
    pub fn get_mut(&mut self, destination: &Destination) -> Option<&mut Address> {
        self.by_destination.get_mut(destination)
    }

    /// The address, made on first use.
    pub fn get_or_make(&mut self, destination: &Destination) -> &mut Address {
        self.by_destination.entry(destination.clone()).or_default()
    }

    /// Removes the address.
    pub fn remove(&mut self, destination: &Destination) -> Option<Address> {
        self.by_destination.remove(destination)
    }
}
