//! The work of a broker when it ends.

/// See the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Writing and syncing the partitions' proposals.
    Append,
    /// Marking the end of the log, at rest.
    Seal,
    /// Making the next segment ready, or the index of the last one.
    Segment,
    /// Writing a checkpoint.
    Checkpoint,
    /// Writing the live records of some segments into one, or removing those.
    Compaction,
    /// Copying a segment in the order of its addresses.
    Sorting,
    /// Starting.
    Recovery,
    /// A transaction over several partitions is prepared or decided, and not carried out
    /// everywhere.
    TwoPhaseCommit,
    /// Something is on the disk that has another key than it would get now.
    Rotation,
}

impl Phase {
    /// All of them, in the order of [`Ends`].
    pub const ALL: [Phase; 9] = [
        Phase::Append,
        Phase::Seal,
        Phase::Segment,
        Phase::Checkpoint,
        Phase::Compaction,
        Phase::Sorting,
        Phase::Recovery,
        Phase::TwoPhaseCommit,
        Phase::Rotation,
    ];
}

/// How often it ended in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends([u64; Phase::ALL.len()]);

impl Ends {
    /// Once more in this one.
    pub fn note(&mut self, phase: Phase) {
        self.0[phase as usize] += 1;
    }

    /// Both together.
    pub fn add(&mut self, other: &Ends) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }

    /// How often, phase by phase.
    pub fn all(&self) -> impl Iterator<Item = (Phase, u64)> {
        Phase::ALL.into_iter().zip(self.0)
    }
}
