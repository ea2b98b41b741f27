//! The room on the disk of a replica: entries are taken in only if their groups fit.
//!
//! ```text
//! follower  an entry without room ── not taken, as if the network had lost it ──▶ the leader repeats it
//! leader    a batch without room ─── waits: leadership goes to a node with space, or space comes back
//! ```
//! So no promise waits for a disk that is full: votes, heartbeats and entries that only free space
//! go on. Never here: which node leads, words for operators.

use postroad_cluster::{
    Body, DiskSpace, Entry, EntryKind, EntryLog, JournalLog, Members, NodeId, decode_batch,
};
use postroad_journal::{Disk, GroupSize, Record, Space, admission};

/// A node without room for so little does not campaign: it could not begin its term.
const CAMPAIGN: GroupSize = GroupSize { bytes: 4096, reserve: true };

/// Ticks for which a leader whose batches find no room counts on another node with space; of 50 ms
/// each.
const HAND_OVER_TICKS: u32 = 40;

/// The record that says which entry a group is, and a list of members at most.
const META_RECORDS: u64 = 1;
const META_BYTES: u64 = 16;

/// Groups of a replica that are to be written, and the space of others.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Taken in, and not written yet.
    promised: Vec<GroupSize>,
    /// The first that found no room, while there is none.
    lacking: Option<GroupSize>,
    /// For how long.
    lacking_ticks: u32,
    /// As the other nodes say; `None` while nothing is known of them.
    others: Option<OthersSpace>,
}

/// The space on the disks of the other nodes that are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OthersSpace {
    /// Those with space.
    pub with_space: Vec<NodeId>,
    /// Whether one of them says that it is full.
    pub is_one_full: bool,
}

impl OthersSpace {
    /// Whether a majority of the voters has space for further data. A node that is not reached may
    /// have some: if none says that it is full, messages wait for a majority, and are not refused.
    fn suffices(others: Option<&OthersSpace>, members: &Members, (own, has_space): (NodeId, bool)) -> bool {
        let is_one_full = !has_space || others.is_some_and(|others| others.is_one_full);
        let counts = |node: &NodeId| match others {
            _ if *node == own => has_space,
            None => true,
            Some(others) => others.with_space.contains(node),
        };
        !is_one_full || members.majority() <= members.voters.iter().filter(|node| counts(node)).count()
    }
}

impl Room {
    /// Whether the group has room, and is promised from now on.
    fn admits<D: Disk>(&mut self, log: &mut JournalLog<D>, group: GroupSize) -> bool {
        // Without a journal the replica ends.
        let Some(journal) = log.journal_mut() else { return true };
        let has_room = admission::secures(journal, &self.promised, group);
        match has_room {
            true => self.promised.push(group),
            // Promised groups may have taken it.
            false if self.promised.is_empty() => drop(self.lacking.get_or_insert(group)),
            false => {}
        }
        has_room
    }

    /// Whether a batch of this leader has room.
    pub fn admits_batch<D: Disk>(
        &mut self,
        log: &mut JournalLog<D>,
        records: &[Record],
        payload_bytes: u64,
    ) -> bool {
        let reserve = records.iter().all(|record| record.reserve);
        let count = META_RECORDS + records.len() as u64;
        self.admits(log, GroupSize::at_most(count, META_BYTES + payload_bytes, reserve))
    }

    /// Leaves out the entries of a message that have no room, and all behind them.
    pub fn shorten<D: Disk>(&mut self, log: &mut JournalLog<D>, body: &mut Body) {
        let Body::Append { entries, .. } = body else { return };
        let is_stored = |log: &JournalLog<D>, entry: &Entry| {
            entry.id.index <= log.last() && log.term(entry.id.index) == Some(entry.id.term)
        };
        let lacks = entries.iter().position(|entry| !is_stored(log, entry) && !self.admits_entry(log, entry));
        if let Some(first) = lacks {
            entries.truncate(first);
        }
    }

    fn admits_entry<D: Disk>(&mut self, log: &mut JournalLog<D>, entry: &Entry) -> bool {
        let count = match (entry.kind, entry.payload.first_chunk()) {
            (EntryKind::Batch, Some(count)) => u64::from(u32::from_le_bytes(*count)),
            _ => 0,
        };
        // One that is malformed is refused when it is written, and must not be taken for large.
        let count = META_RECORDS + count.min(entry.payload.len() as u64);
        let bytes = META_BYTES + entry.payload.len() as u64;
        let size = |reserve| GroupSize::at_most(count, bytes, reserve);
        let with_it = self.promised.iter().copied().chain([size(false)]);
        if log.journal().is_some_and(|journal| admission::holds(journal, with_it)) {
            self.promised.push(size(false));
            return true;
        }
        // Looked at only now, as it is decoded for that.
        self.admits(log, size(only_frees(entry)))
    }

    /// All that was promised is written.
    pub fn written(&mut self) {
        self.promised.clear();
    }

    /// Time passes: looks whether there is room again. Returns whether this node may campaign.
    pub fn tick<D: Disk>(&mut self, log: &mut JournalLog<D>) -> bool {
        let Some(journal) = log.journal_mut() else { return true };
        if self.lacking.is_some_and(|group| admission::secures(journal, &self.promised, group)) {
            self.lacking = None;
        }
        self.lacking_ticks = if self.lacking.is_some() { self.lacking_ticks.saturating_add(1) } else { 0 };
        admission::holds(journal, [CAMPAIGN])
    }

    /// Whether a group found no room, and there is still none.
    pub fn is_lacking(&self) -> bool {
        self.lacking.is_some()
    }

    /// The space of this node's disk.
    pub fn on_disk<D: Disk>(&self, log: &JournalLog<D>) -> DiskSpace {
        match log.journal().map(|journal| journal.space()) {
            _ if self.is_lacking() => DiskSpace::Exhausted,
            Some(Space::Low) => DiskSpace::Low,
            Some(Space::Ample) | None => DiskSpace::Ample,
        }
    }

    /// Takes over the space on the disks of others.
    pub fn others_have(&mut self, others: OthersSpace) {
        self.others = Some(others);
    }

    /// Whether a leader may take in further data: a majority has space for it.
    pub fn of_group<D: Disk>(&self, log: &JournalLog<D>, members: &Members, own: NodeId) -> Space {
        let has_space = self.on_disk(log) == DiskSpace::Ample;
        let suffices = OthersSpace::suffices(self.others.as_ref(), members, (own, has_space));
        if suffices && self.lacking_ticks < HAND_OVER_TICKS { Space::Ample } else { Space::Low }
    }
}

/// Whether an entry adds no data. Lists of members and openings of terms do not.
fn only_frees(entry: &Entry) -> bool {
    match entry.kind {
        EntryKind::Opening | EntryKind::Members => true,
        EntryKind::Batch => decode_batch(entry.payload.clone())
            .is_ok_and(|records| records.iter().all(|record| record.reserve)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_refused_only_if_a_node_is_full() {
        let node = |number| NodeId::new(number).unwrap();
        let members = Members::first([1, 2, 3].map(node));
        let table: [(&str, bool, &[u64], bool, bool); 8] = [
            ("all have space", true, &[2, 3], false, true),
            ("a follower is full", true, &[2], true, true),
            ("both are", true, &[], true, false),
            ("this node is", false, &[2, 3], false, true),
            ("this node and another", false, &[2], true, false),
            ("no other node is reached", true, &[], false, true),
            ("one is reached and full", true, &[], true, false),
            ("this node is full, and one is not reached", false, &[2], false, false),
        ];
        for (title, has_space, with_space, is_one_full, want) in table {
            let others =
                OthersSpace { with_space: with_space.iter().copied().map(node).collect(), is_one_full };
            assert_eq!(OthersSpace::suffices(Some(&others), &members, (node(1), has_space)), want, "{title}");
        }
        assert!(OthersSpace::suffices(None, &members, (node(1), false)), "nothing is known yet");
    }
}
