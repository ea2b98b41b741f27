//! The space on the disks of the nodes: notices of the others, and their consequences here.
//!
//! ```text
//!            no segment fits        an entry finds no room
//!   ample ────────────────▶ low ─────────────────────────▶ exhausted
//!     ▲   ◀── a segment fits ┘     ◀── it has room ─────────────┘
//! ```
//! Each node tells all others where it is. A leader that is not at *ample* hands over to a node
//! that is. Never here: how space is found, or refused to clients (crates/replication).

use std::sync::atomic::{AtomicU8, Ordering};

use postroad_cluster::{Body, DiskSpace, NodeId};

/// No notice has come, and none will.
const UNTOLD: u8 = u8::MAX;

/// The space of another node.
#[derive(Debug)]
pub struct PeerSpace(AtomicU8);

impl Default for PeerSpace {
    fn default() -> PeerSpace {
        PeerSpace(AtomicU8::new(UNTOLD))
    }
}

impl PeerSpace {
    /// As the peer said when it connected; nothing if its version does not know of it.
    pub fn introduced(&self, space: Option<DiskSpace>) {
        self.0.store(space.map_or(UNTOLD, DiskSpace::byte), Ordering::Release);
    }

    /// As a notice says.
    pub fn set(&self, space: DiskSpace) {
        self.0.store(space.byte(), Ordering::Release);
    }

    /// The space; ample if the peer does not speak of it.
    pub fn get(&self) -> DiskSpace {
        match self.0.load(Ordering::Acquire) {
            UNTOLD => DiskSpace::Ample,
            byte => DiskSpace::of_byte(byte),
        }
    }

    /// Whether the peer speaks of space, and takes notices.
    pub fn is_told(&self) -> bool {
        self.0.load(Ordering::Acquire) != UNTOLD
    }

    /// Whether a message to this peer is not sent: it takes no entries until it has room again,
    /// which it says.
    pub fn drops(&self, body: &Body) -> bool {
        let adds = matches!(body, Body::Append { entries, .. } if !entries.is_empty());
        adds && self.get() == DiskSpace::Exhausted
    }
}

/// The words for a disk without space; `None` if it has some.
pub fn of_disk(space: DiskSpace) -> Option<&'static str> {
    match space {
        DiskSpace::Ample => None,
        DiskSpace::Low => Some("its disk, or its disk_bytes_max, is full; what frees space is still written"),
        DiskSpace::Exhausted => Some(
            "its disk, or its disk_bytes_max, is full; it lags until there is space, and catches up then",
        ),
    }
}

/// The node to which a leader without space hands over: one with space and the end of the log.
pub fn next_leader(
    own: DiskSpace,
    with_space: &[NodeId],
    voters: &[NodeId],
    caught_up: impl Fn(NodeId) -> bool,
) -> Option<NodeId> {
    let mut next = voters.iter().copied().filter(|node| with_space.contains(node) && caught_up(*node));
    next.next().filter(|_| own != DiskSpace::Ample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_cluster::{Entry, EntryId, EntryKind, Index};

    #[test]
    fn a_peer_gets_no_entries_while_it_says_that_it_has_no_room() {
        let entry = Entry { id: EntryId::default(), kind: EntryKind::Opening, payload: Default::default() };
        let append = |entries| Body::Append { previous: EntryId::default(), commit: Index(0), entries };
        let peer = PeerSpace::default();
        for (told, space, is_told, drops) in [
            (None, DiskSpace::Ample, false, false),
            (Some(DiskSpace::Low), DiskSpace::Low, true, false),
            (Some(DiskSpace::Exhausted), DiskSpace::Exhausted, true, true),
        ] {
            peer.introduced(told);
            assert_eq!((peer.get(), peer.is_told()), (space, is_told));
            assert_eq!(peer.drops(&append(vec![entry.clone()])), drops, "{told:?}");
            assert!(!peer.drops(&append(Vec::new())) && !peer.drops(&Body::TimeoutNow));
        }
        peer.set(DiskSpace::Ample);
        assert!(!peer.drops(&append(vec![entry])));
    }

    #[test]
    fn a_leader_without_space_hands_over_to_a_voter_with_space_and_the_log() {
        let nodes: Vec<NodeId> = (1..=4).filter_map(NodeId::new).collect();
        let [one, two, three, four] = nodes[..] else { panic!("four nodes") };
        let voters = [one, two, three];
        for (case, own, with_space, lags, want) in [
            ("space here", DiskSpace::Ample, vec![two, three], None, None),
            ("the first with space", DiskSpace::Low, vec![three, two], None, Some(two)),
            ("one that lags", DiskSpace::Exhausted, vec![two, three], Some(two), Some(three)),
            ("one without a vote", DiskSpace::Low, vec![four], None, None),
            ("space nowhere", DiskSpace::Exhausted, vec![], None, None),
        ] {
            let next = next_leader(own, &with_space, &voters, |node| lags != Some(node));
            assert_eq!(next, want, "case: {case}");
        }
    }
}
