//! The places of queues, as a sender knows them: by their names, or by their moves.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_core::{Partition, places_of_leaving};
use postroad_model::{BranchId, Destination, DestinationKind, PartitionId, Placement};
use postroad_routing::Addressing;

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Places {
    placement: Placement,
    /// The other rules of names.
    addressing: Arc<Addressing>,
    moved: BTreeMap<Arc<str>, PartitionId>,
}

impl Places {
    /// Every queue is where its name says.
    pub fn over(placement: Placement, addressing: Arc<Addressing>) -> Places {
        Places { placement, addressing, moved: BTreeMap::new() }
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        self.placement.partitions
    }

    /// Where the address of this name lives: of no two are the names alike.
    pub fn partition_of(&self, name: &str) -> PartitionId {
        self.moved.get(name).copied().unwrap_or_else(|| self.placement.partition_of(name))
    }

    /// Who coordinates the branch.
    pub fn coordinator_of(&self, branch: &BranchId) -> PartitionId {
        self.placement.coordinator_of(branch)
    }

    /// The queue lives there from now on.
    pub fn settle(&mut self, queue: &Destination, at: PartitionId) {
        self.moved.insert(queue.name.clone(), at);
    }

    /// The partitions' knowledge of that.
    pub fn addressing(&self) -> Arc<Addressing> {
        Arc::new(Addressing { settled: self.moved.clone(), ..Addressing::clone(&self.addressing) })
    }

    /// At a start: queues are where they are found, or where they were going. The partitions get
    /// their places.
    pub fn found(&self, partitions: &mut BTreeMap<PartitionId, Partition>) -> Places {
        let mut places = Places { moved: BTreeMap::new(), ..self.clone() };
        let leaving = places_of_leaving(partitions.iter().map(|(id, partition)| (*id, partition)));
        for (id, partition) in partitions.iter() {
            let is_leaving =
                |queue: &Destination| leaving.iter().any(|(left, from, _)| left == queue && from == id);
            let queues = partition.held_addresses().filter(|held| held.kind == DestinationKind::Queue);
            let elsewhere =
                |queue: &&Destination| self.placement.partition_of(&queue.name) != *id && !is_leaving(queue);
            queues.filter(elsewhere).for_each(|queue| places.settle(queue, *id));
        }
        for (queue, from, place) in leaving {
            places.settle(&queue, place);
            if let Some(target) = partitions.get_mut(&place) {
                target.expect_queue(queue, from);
            }
        }
        let addressing = places.addressing();
        partitions.values_mut().for_each(|partition| partition.address_by(addressing.clone()));
        places
    }
}
