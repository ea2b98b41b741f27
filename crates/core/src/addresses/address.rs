//! Addresses: names that messages are sent to, and the queues bound to each.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{ConnectionId, Destination, DestinationKind, LookupMap, QueueId};
use postroad_routing::{Pattern, PatternMap};
use postroad_selector::{Properties, Selector, SelectorIndex};

use super::listed::{ListedQueues, ListedTopics};

/// One address.
#[derive(Default)]
pub struct Address {
    /// The connection whose end deletes it, if it is temporary.
    pub owner: Option<ConnectionId>,
    /// Every queue that it feeds: one for a queue, one for each subscription of a topic.
    pub bound: Bound,
}

/// The queues that an address feeds, each with the selector that a message has to match.
///
/// A message costs as much as the queues that take it, and little for the others: their selectors
/// are found by an index.
#[derive(Default)]
pub struct Bound {
    /// Those that take everything. Durable ones have the lower numbers.
    open: BTreeSet<QueueId>,
    /// Those that choose, by each of their selectors.
    choosing: SelectorIndex<(QueueId, usize)>,
    /// How many selectors each of them has.
    choosers: BTreeMap<QueueId, usize>,
}

impl Bound {
    /// Binds a queue, or replaces its binding, to take messages that match one of the selectors;
    /// `None` takes everything.
    pub fn insert(&mut self, queue: QueueId, selectors: Option<Vec<Selector>>) {
        self.remove(queue);
        let Some(selectors) = selectors else {
            self.open.insert(queue);
            return;
        };
        self.choosers.insert(queue, selectors.len());
        for (number, selector) in selectors.into_iter().enumerate() {
            self.choosing.insert((queue, number), selector);
        }
    }

    /// The queue is bound no more.
    pub fn remove(&mut self, queue: QueueId) {
        self.open.remove(&queue);
        for number in 0..self.choosers.remove(&queue).unwrap_or(0) {
            self.choosing.remove(&(queue, number));
        }
    }

    /// The queue of a queue's own address.
    pub fn own(&self) -> Option<QueueId> {
        self.open.first().copied()
    }

    /// This many of them at most, from that one on, in order.
    pub fn from(&self, first: QueueId, count: usize) -> Vec<QueueId> {
        let open = self.open.range(first..).copied().take(count);
        let choosing = self.choosers.range(first..).map(|(queue, _)| *queue).take(count);
        let mut queues: Vec<QueueId> = open.chain(choosing).collect();
        queues.sort_unstable();
        queues.truncate(count);
        queues
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len() + self.choosers.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = QueueId> {
        self.open.iter().chain(self.choosers.keys()).copied()
    }

    /// How many selectors are installed.
    pub fn filters(&self) -> usize {
        self.choosing.len()
    }

    /// Whether it feeds none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.choosers.is_empty()
    }

    /// Whether one of them outlives this run.
    pub fn has_durable(&self) -> bool {
        self.open.first().into_iter().chain(self.choosers.keys().next()).any(|queue| !queue.is_volatile())
    }

    /// Those that take a message with these properties, in an order that follows from the bindings
    /// alone.
    pub fn taking<'a>(&self, properties: impl FnOnce() -> Box<dyn Properties + 'a>) -> Vec<QueueId> {
        let mut taking: Vec<QueueId> = self.open.iter().copied().collect();
        if !self.choosers.is_empty() {
            let open = taking.len();
            self.choosing.matching(&*properties(), |(queue, _)| taking.push(*queue));
            taking[open..].sort_unstable();
            taking.dedup();
        }
        taking
    }
}

/// The addresses of a partition.
#[derive(Default)]
pub struct Addresses {
    /// Each is a box, as a table that grows moves all of its entries at once.
    by_destination: LookupMap<Destination, Box<Address>>,
    /// Queues that are not volatile, oldest first: for figures, which must not look at all of them.
    pub lasting: BTreeSet<QueueId>,
    /// Volatile ones, oldest first.
    pub passing: BTreeSet<QueueId>,
    /// Queues in the order of lists.
    pub listed: ListedQueues,
    /// Topics and patterns of topics in the order of lists.
    pub feeding: ListedTopics,
    /// The queues fed by topics of a pattern.
    by_pattern: PatternMap<Bound>,
    /// Addresses that came (`true`) or went since they were asked for.
    changes: Vec<(Destination, bool)>,
}

impl Addresses {
    /// The address, if it exists.
    pub fn get(&self, destination: &Destination) -> Option<&Address> {
        self.by_destination.get(destination).map(Box::as_ref)
    }

    /// The address, made on first use.
    pub fn get_or_make(&mut self, destination: &Destination) -> &mut Address {
        if !self.by_destination.contains_key(destination) {
            self.changes.push((destination.clone(), true));
            self.feeding.insert(destination);
        }
        self.by_destination.get_or_insert_with(destination.clone(), Box::default)
    }

    /// The addresses that came (`true`) or went since the last time.
    pub fn take_changes(&mut self) -> Vec<(Destination, bool)> {
        std::mem::take(&mut self.changes)
    }

    /// The creation of the address is reported elsewhere.
    pub fn forget_change(&mut self, destination: &Destination) {
        self.changes.retain(|(changed, _)| changed != destination);
    }

    /// All addresses by name.
    pub fn names(&self) -> Vec<Destination> {
        self.by_destination.sorted_where(|_| true).into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// Every lasting queue that the pattern matches, by name.
    pub fn queues_matching(&self, pattern: &Pattern) -> Vec<Destination> {
        let lasting = |queue: &Destination| queue.kind == DestinationKind::Queue && !queue.temporary;
        let matches = |queue: &Destination| lasting(queue) && pattern.matches(&queue.name);
        self.by_destination.sorted_where(matches).into_iter().map(|(queue, _)| queue.clone()).collect()
    }

    /// The queues fed by the address: those bound to it, and those bound to a pattern of topics
    /// that matches it.
    pub fn bounds(&self, destination: &Destination) -> Vec<&Bound> {
        let mut bounds: Vec<&Bound> =
            self.get(destination).map(|address| &address.bound).into_iter().collect();
        if destination.kind == DestinationKind::Topic && !destination.temporary {
            let mut visit = |pattern: &Pattern, bound| {
                if pattern.reaches(&destination.name) {
                    bounds.push(bound);
                }
            };
            self.by_pattern.each_match(&destination.name, &mut visit);
        }
        bounds
    }

    /// The queues bound to this topic itself, or to this pattern.
    pub fn bound_to(&self, topic: &Destination) -> Option<&Bound> {
        match pattern_of(topic) {
            Some(pattern) => self.by_pattern.get(&pattern),
            None => self.get(topic).map(|address| &address.bound),
        }
    }

    /// How many selectors are installed at the topic. Without wildcards this is one lookup.
    pub fn filters_of(&self, topic: &Destination) -> u64 {
        let mut filters = self.get(topic).map_or(0, |address| address.bound.filters());
        self.by_pattern.each_match(&topic.name, &mut |_, bound| filters += bound.filters());
        filters as u64
    }

    /// The queues fed by the address, or by the topics of the pattern, to change them.
    pub fn bound_mut(&mut self, destination: &Destination) -> &mut Bound {
        match pattern_of(destination) {
            Some(pattern) => {
                self.feeding.insert(destination);
                self.by_pattern.get_or_insert_with(&pattern, Bound::default)
            }
            None => &mut self.get_or_make(destination).bound,
        }
    }

    /// The address, or the topics of the pattern, feeds the queue no more.
    pub fn unbind(&mut self, destination: &Destination, queue: QueueId) {
        let Some(pattern) = pattern_of(destination) else {
            if let Some(address) = self.by_destination.get_mut(destination) {
                address.bound.remove(queue);
            }
            return;
        };
        if self.by_pattern.get(&pattern).is_some() {
            let bound = self.by_pattern.get_or_insert_with(&pattern, Bound::default);
            bound.remove(queue);
            if bound.is_empty() {
                self.by_pattern.remove(&pattern);
                self.feeding.remove(destination);
            }
        }
    }

    /// Removes the address.
    pub fn remove(&mut self, destination: &Destination) -> Option<Address> {
        let removed = self.by_destination.remove(destination)?;
        self.feeding.remove(destination);
        self.changes.push((destination.clone(), false));
        Some(*removed)
    }
}

/// The pattern that the name of topics is, if it is one.
pub fn pattern_of(destination: &Destination) -> Option<Pattern> {
    if destination.kind != DestinationKind::Topic || destination.temporary {
        return None;
    }
    Pattern::parse(&destination.name).ok().filter(Pattern::is_wildcard)
}
