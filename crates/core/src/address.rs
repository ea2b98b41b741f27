//! Addresses: names that messages are sent to, and the queues bound to each.

use std::collections::{BTreeMap, HashMap};

use postroad_model::{ConnectionId, Destination, Message, QueueId};

/// One address.
pub struct Address {
    /// The connection whose end deletes it, if it is temporary.
    pub owner: Option<ConnectionId>,
    /// Every queue that gets a copy: one for a queue, one for each subscription of a topic.
    pub bound: Vec<QueueId>,
    /// What later subscribers are shown first, by key.
    pub retained: BTreeMap<Box<str>, Message>,
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
        self.by_destination.entry(destination.clone()).or_insert_with(|| Address {
            owner: None,
            bound: Vec::new(),
            retained: BTreeMap::new(),
        })
    }

    /// Removes the address.
    pub fn remove(&mut self, destination: &Destination) -> Option<Address> {
        self.by_destination.remove(destination)
    }
}
