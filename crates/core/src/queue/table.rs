//! All queues of a partition by their ids.
//!
//! Each is a box: a table that grows moves all of its entries at once, and a queue takes some
//! hundred bytes.

use std::collections::HashMap;

use postroad_model::QueueId;
use rustc_hash::FxBuildHasher;

use super::Queue;

/// See the head of this file.
#[derive(Default)]
pub struct Queues(HashMap<QueueId, Box<Queue>, FxBuildHasher>);

impl Queues {
    /// The queue of this id.
    pub fn get(&self, id: &QueueId) -> Option<&Queue> {
        self.0.get(id).map(Box::as_ref)
    }

    /// See [`Queues::get`].
    pub fn get_mut(&mut self, id: &QueueId) -> Option<&mut Queue> {
        self.0.get_mut(id).map(Box::as_mut)
    }

    /// Whether there is one of this id.
    pub fn contains_key(&self, id: &QueueId) -> bool {
        self.0.contains_key(id)
    }

    /// One more.
    pub fn insert(&mut self, id: QueueId, queue: Queue) {
        self.0.insert(id, Box::new(queue));
    }

    /// The queue has ended.
    pub fn remove(&mut self, id: &QueueId) -> Option<Box<Queue>> {
        self.0.remove(id)
    }

    /// All of them, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &Queue> + Clone {
        self.0.values().map(Box::as_ref)
    }

    /// See [`Queues::values`].
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.0.values_mut().map(Box::as_mut)
    }
}
