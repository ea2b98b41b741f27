//! Actions that a replica requests.

use crate::entry::{Entry, EntryId, NodeId, Term};
use crate::members::Members;
use crate::message::Message;
use crate::vote::Vote;

/// Number of one [`Actions`], by which its persistence is reported. They rise by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(pub u64);

/// The part of a replica in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes entries from the leader, if it knows one.
    Follower {
        /// The leader.
        leader: Option<NodeId>,
    },
    /// Asks for votes.
    Candidate,
    /// Takes proposals.
    Leader,
}

/// Work for now. Turns are carried out in order: the vote and the entries of a turn reach the disk
/// after those of the turn before. The caller need not wait for the disk before it takes the next
/// turn.
#[derive(Debug, Default)]
#[must_use]
pub struct Actions {
    /// To be reported by [`crate::Group::persisted`] when the vote and the entries of this turn are
    /// synced. To be reported at once if there are none and no earlier turn is outstanding.
    pub turn: Turn,
    /// To be sent now.
    pub messages: Vec<Message>,
    /// To be synced before the entries of this turn.
    pub vote: Option<Vote>,
    /// The snapshot that ends with this entry replaces log and state, durably: the log starts
    /// behind it, empty.
    pub restarted: Option<EntryId>,
    /// To be written. Entries of the log from the first one's index on are replaced.
    pub append: Vec<Entry>,
    /// To be applied: synced here and on a majority.
    pub committed: Vec<Entry>,
    /// The members from the last committed entry on, if that changes them: to be synced, before
    /// [`crate::Group::change_members`].
    pub members: Option<Members>,
    /// The new role and its term, if they changed.
    pub role: Option<(Role, Term)>,
}

impl Actions {
    /// Whether something must be synced.
    pub fn persists(&self) -> bool {
        self.vote.is_some() || self.restarted.is_some() || !self.append.is_empty()
    }
}
