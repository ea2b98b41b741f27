//! Destinations: the names that clients send to or consume from.

use std::sync::Arc;

use crate::{BranchId, PartitionId};

/// Queue or topic: how an address distributes its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DestinationKind {
    /// One queue of the address's own name.
    Queue,
    /// A copy for every subscription.
    Topic,
}

/// The name of an address and its kind; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// Queue or topic.
    pub kind: DestinationKind,
    /// Whether it ends with the connection that made it.
    pub temporary: bool,
    /// Its name, as clients write it without any prefix.
    pub name: Arc<str>,
}

impl Destination {
    /// A lasting queue.
    pub fn queue(name: &str) -> Destination {
        Destination { kind: DestinationKind::Queue, temporary: false, name: name.into() }
    }

    /// A lasting topic.
    pub fn topic(name: &str) -> Destination {
        Destination { kind: DestinationKind::Topic, temporary: false, name: name.into() }
    }

    /// Whether a reader of it reads whatever matches it: a word of its name is `*` or `>`.
    pub fn is_pattern(&self) -> bool {
        !self.temporary && self.name.split('.').any(|word| word == "*" || word == ">")
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let temporary = if self.temporary { "temp-" } else { "" };
        let kind = match self.kind {
            DestinationKind::Queue => "queue",
            DestinationKind::Topic => "topic",
        };
        write!(f, "{temporary}{kind}://{}", self.name)
    }
}

/// Partitions with numbers in a row: those of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionRange {
    /// The first of them.
    pub first: PartitionId,
    /// How many there are; at least one.
    pub count: u16,
}

impl PartitionRange {
    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = PartitionId> {
        (self.first.0..self.end()).map(PartitionId)
    }

    /// The number after the last one.
    pub fn end(self) -> u16 {
        self.first.0.saturating_add(self.count)
    }

    /// Whether it is one of them.
    pub fn contains(self, id: PartitionId) -> bool {
        (self.first.0..self.end()).contains(&id.0)
    }

    /// The one of them that owns the address of this name: FNV-1a with a finaliser, because the
    /// data directory depends on it for ever.
    pub fn partition_of(self, name: &str) -> PartitionId {
        self.owner_of(name.bytes())
    }

    fn owner_of(self, key: impl Iterator<Item = u8>) -> PartitionId {
        let hash = key.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        PartitionId(self.first.0 + ((mix(hash) >> 32) % u64::from(self.count.max(1))) as u16)
    }
}

/// Which partition owns which address that is not placed by name: a hash of the name, the same on
/// every machine and in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How many partitions this broker has, in all its stores; at least one.
    pub partitions: u16,
    /// How many of them, from the first on, are the main store's. Names are spread over these.
    pub hashed: u16,
}

impl Placement {
    /// This number of partitions, over which all names are spread.
    pub const fn over(partitions: u16) -> Placement {
        Placement { partitions, hashed: partitions }
    }

    /// The owner of the address of this name, unless it is placed elsewhere.
    pub fn partition_of(self, name: &str) -> PartitionId {
        self.main().partition_of(name)
    }

    /// The coordinator of the branch: a later request has only the id to find it by.
    pub fn coordinator_of(self, branch: &BranchId) -> PartitionId {
        self.main().owner_of(branch.transaction.iter().chain(branch.qualifier.iter()).copied())
    }

    /// Whether there are stores beside the main one.
    pub fn has_further(self) -> bool {
        self.hashed < self.partitions
    }

    fn main(self) -> PartitionRange {
        PartitionRange { first: PartitionId(0), count: self.hashed }
    }
}

/// The finaliser of MurmurHash3 (fmix64): names that differ in their last character only differ in
/// all bits afterwards.
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_names_spread_over_the_partitions() {
        for partitions in [2_u16, 3, 8] {
            let placement = Placement::over(partitions);
            let mut counts = vec![0_u32; usize::from(partitions)];
            for number in 0..1000 {
                let PartitionId(owner) = placement.partition_of(&format!("queue.{number}"));
                counts[usize::from(owner)] += 1;
            }
            let fair = 1000 / u32::from(partitions);
            assert!(counts.iter().all(|count| count.abs_diff(fair) < fair / 4), "{partitions}: {counts:?}");
        }
    }

    #[test]
    fn the_placement_never_changes() {
        let owners = ["orders", "ActiveMQ.DLQ", ""].map(|name| Placement::over(7).partition_of(name).0);
        assert_eq!(owners, OWNERS_OF_SEVEN);
    }

    const OWNERS_OF_SEVEN: [u16; 3] = [1, 5, 0];
}
