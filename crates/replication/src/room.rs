//! The room on the disk of a replica: entries are taken in only if their groups fit.
//!
//! ```text
//! follower  an entry without room ── not taken, as if the network had lost it ──▶ the leader repeats it
//! leader    a batch without room ─── waits: leadership goes to a node with space, or space comes back
//!           a node is full, another has not said ─── sends are held until it says, for a time
//! ```
//! So no promise waits for a disk that is full: votes, heartbeats and entries that only free space
//! go on. Never here: which node leads, words for operators.

use postroad_cluster::{
    Body, DiskSpace, Entry, EntryKind, EntryLog, JournalLog, Members, NodeId, decode_batch,
};
use postroad_journal::{Disk, GroupSize, Record, Space, admission};

/// A node without room for so little does not campaign: it could not begin its term.
const CAMPAIGN: GroupSize = GroupSize { bytes: 4096, reserve: true };

/// Ticks for which a leader whose batches find no room counts on another node with space, and on
/// one that has not said how much it has; of 50 ms each.
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
    /// Sends wait for a node that has not said whether it is full.
    holds: bool,
    /// For how long this leader has known of too few nodes with space, and too few full ones.
    unsure_ticks: u32,
    /// As the other nodes say; `None` while nothing is known of them.
    others: Option<OthersSpace>,
}

/// The space on the disks of the other nodes that are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OthersSpace {
    /// Those with space.
    pub with_space: Vec<NodeId>,
    /// Those that say they are full.
    pub full: Vec<NodeId>,
}

/// Whether a leader takes in data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// A majority has space, or no node says that it is full: then messages wait for a majority.
    Takes,
    /// Depends on nodes that have not said it, as they are not reached.
    Unsure,
    /// There is no majority without the nodes that are full.
    Refuses,
}

impl Intake {
    /// The verdict for a leader `own` of these voters.
    fn of(others: Option<&OthersSpace>, members: &Members, (own, has_space): (NodeId, bool)) -> Intake {
        let nothing = OthersSpace::default();
        let others = others.unwrap_or(&nothing);
        let count = |listed: &[NodeId]| {
            members.voters.iter().filter(|node| **node != own && listed.contains(node)).count()
        };
        let (others_with_space, others_full) = (count(&others.with_space), count(&others.full));
        let with_space = others_with_space + usize::from(has_space);
        let full = others_full + usize::from(!has_space);
        if full == 0 || members.majority() <= with_space {
            return Intake::Takes;
        }
        if members.voters.len() - full < members.majority() {
            return Intake::Refuses;
        }
        // A leader that alone is full takes no more than its own disk holds. A full follower would
        // be left with entries that it cannot store, and with acknowledgements behind them.
        if others_full == 0 { Intake::Takes } else { Intake::Unsure }
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
        intake: Intake,
        (records, payload_bytes): (&[Record], u64),
    ) -> bool {
        let reserve = records.iter().all(|record| record.reserve);
        self.holds = !reserve
            && match intake {
                Intake::Takes => false,
                Intake::Unsure => self.holds || self.unsure_ticks < HAND_OVER_TICKS,
                Intake::Refuses => self.holds,
            };
        if self.holds {
            return false;
        }
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

    /// Time passes: looks whether there is room again. The verdict is that of a leader. Returns
    /// whether this node may campaign.
    pub fn tick<D: Disk>(&mut self, log: &mut JournalLog<D>, intake: Option<Intake>) -> bool {
        self.unsure_ticks =
            if intake == Some(Intake::Unsure) { self.unsure_ticks.saturating_add(1) } else { 0 };
        let Some(journal) = log.journal_mut() else { return true };
        if self.lacking.is_some_and(|group| admission::secures(journal, &self.promised, group)) {
            self.lacking = None;
        }
        self.lacking_ticks = if self.lacking.is_some() { self.lacking_ticks.saturating_add(1) } else { 0 };
        admission::holds(journal, [CAMPAIGN])
    }

    /// Whether a group found no room, and there is still none.
    fn is_lacking(&self) -> bool {
        self.lacking.is_some()
    }

    /// Whether the next batch waits for room, here or on others.
    pub fn delays_batch(&self) -> bool {
        self.is_lacking() || self.holds
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

    /// Whether a leader of these members takes in data.
    pub fn intake<D: Disk>(&self, log: &JournalLog<D>, members: &Members, own: NodeId) -> Intake {
        let has_space = self.on_disk(log) == DiskSpace::Ample;
        Intake::of(self.others.as_ref(), members, (own, has_space))
    }

    /// Whether a leader with this verdict may take in further data: a majority has space for it, or
    /// may say so in time.
    pub fn of_group(&self, intake: Intake) -> Space {
        let is_late = HAND_OVER_TICKS <= self.lacking_ticks.max(self.unsure_ticks);
        if intake == Intake::Refuses || is_late { Space::Low } else { Space::Ample }
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
    fn messages_are_refused_only_if_full_nodes_leave_no_majority() {
        use Intake::{Refuses, Takes, Unsure};
        let node = |number| NodeId::new(number).unwrap();
        let three = Members::first([1, 2, 3].map(node));
        let five = Members::first([1, 2, 3, 4, 5].map(node));
        let table = [
            ("all have space", &three, true, vec![2, 3], vec![], Takes),
            ("a follower is full", &three, true, vec![2], vec![3], Takes),
            ("both are", &three, true, vec![], vec![2, 3], Refuses),
            ("this node is", &three, false, vec![2, 3], vec![], Takes),
            ("this node and another", &three, false, vec![2], vec![3], Refuses),
            ("no other node is reached", &three, true, vec![], vec![], Takes),
            ("one is full, and one has not said", &three, true, vec![], vec![2], Unsure),
            ("this node is full, and one has not said", &three, false, vec![2], vec![], Takes),
            ("this node is full, and none has said", &three, false, vec![], vec![], Takes),
            ("a node without a vote is full", &three, true, vec![2], vec![9], Takes),
            ("it counts for nothing", &three, false, vec![9], vec![2, 3], Refuses),
            ("five: one has not said", &five, true, vec![2], vec![3, 4], Unsure),
            ("five: it has", &five, true, vec![2, 5], vec![3, 4], Takes),
            ("five: three are full", &five, false, vec![2], vec![3, 4], Refuses),
        ];
        for (title, members, has_space, with_space, full, want) in table {
            let nodes = |numbers: Vec<u64>| numbers.into_iter().map(node).collect();
            let others = OthersSpace { with_space: nodes(with_space), full: nodes(full) };
            assert_eq!(Intake::of(Some(&others), members, (node(1), has_space)), want, "{title}");
        }
        assert_eq!(Intake::of(None, &three, (node(1), false)), Takes, "nothing is known yet");
    }
}
