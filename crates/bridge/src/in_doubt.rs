//! Queues with deliveries in doubt: a link was cut before the peer had confirmed what was sent.
//!
//! The core keeps these deliveries for the next consumer of the link
//! (`postroad_model::Delivered::InDoubt`). This list is how the next connection to that peer knows
//! where to attach one. Shared by all links of the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use postroad_model::Destination;

/// Queues that are listed; the deliveries of others are ready again when their time is over.
const QUEUES_MAX: usize = 16_384;

/// See the head of this file. The keys are the ids of peers.
#[derive(Clone, Debug, Default)]
pub struct InDoubt(Arc<Mutex<BTreeMap<Arc<str>, BTreeSet<Destination>>>>);

impl InDoubt {
    /// The link to this peer was cut with deliveries of the queue.
    pub fn add(&self, peer: &Arc<str>, queue: Destination) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.values().map(BTreeSet::len).sum::<usize>() < QUEUES_MAX {
            all.entry(peer.clone()).or_default().insert(queue);
        }
    }

    /// The queues for this peer, which is linked again.
    pub fn take(&self, peer: &Arc<str>) -> BTreeSet<Destination> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(peer).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_in_doubt_are_bounded_and_taken_once() {
        let (in_doubt, peer) = (InDoubt::default(), Arc::from("ID:there"));
        for queue in 0..QUEUES_MAX + 1 {
            in_doubt.add(&peer, Destination::queue(&format!("q{queue}")));
        }
        assert!(in_doubt.take(&Arc::from("ID:other")).is_empty());
        assert_eq!((in_doubt.take(&peer).len(), in_doubt.take(&peer).len()), (QUEUES_MAX, 0));
    }
}
