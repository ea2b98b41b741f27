//! Destinations: what clients name when they send or consume.

use std::sync::Arc;

use crate::PartitionId;

/// Queue or topic: how an address hands out what is sent to it.
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

/// Which partition owns which address: a hash of the name, the same on every machine and in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How many partitions this broker has; at least one.
    pub partitions: u16,
}

impl Placement {
    /// The owner of the address of this name. FNV-1a, because the data directory depends on it for ever.
    pub fn partition_of(self, name: &str) -> PartitionId {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        PartitionId(((hash >> 32) % u64::from(self.partitions.max(1))) as u16)
    }
}
