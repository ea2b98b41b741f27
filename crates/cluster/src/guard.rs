//! Messages that must not reach the engine, because it asserts rules that a correct peer never
//! violates.

use crate::entry::{EntryId, Index, NodeId, Term};
use crate::members::Members;
use crate::message::{Body, Message};

/// Why a message was refused. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is for another node, or from one that was removed.
    #[error("not from a member of the group to this one: from node {}", .from.get())]
    Stranger {
        /// The sender.
        from: NodeId,
    },
    /// Terms begin at 1.
    #[error("a message without a term")]
    NoTerm,
    /// An entry without a term, or the place before the first entry with one.
    #[error("no log has an entry {} of term {}", .0.index.0, .0.term.0)]
    NoEntry(EntryId),
    /// The leader knows that this replica stored entries which it does not have: its disk lost
    /// them.
    #[error("entry {} was stored here and is missing; the log ends at {}", .stored.0, .last.0)]
    LostEntries {
        /// The last entry that this replica has stored, by the leader's knowledge.
        stored: Index,
        /// The end of the log.
        last: Index,
    },
    /// A follower claims entries that the leader does not have.
    #[error("entry {} was never sent; the log ends at {}", .claimed.0, .last.0)]
    NeverSent {
        /// The last entry that the follower claims to have.
        claimed: Index,
        /// The end of the log.
        last: Index,
    },
    /// A message that only a leader sends, in a term in which this node leads.
    #[error("a second leader in term {}: node {}", .term.0, .from.get())]
    SecondLeader {
        /// The sender.
        from: NodeId,
        /// The term.
        term: Term,
    },
}

/// The replica's state that decides about a message.
pub(crate) struct View<'a> {
    pub node: NodeId,
    pub members: &'a Members,
    pub term: Term,
    pub last: EntryId,
    pub leads: bool,
}

pub(crate) fn check(message: &Message, view: &View<'_>) -> Result<(), Refused> {
    let from = message.from;
    // A node that lags does not know later members; the leader may be one of them.
    let is_gone = view.members.is_former(from);
    if is_gone || from == view.node || message.to != view.node {
        return Err(Refused::Stranger { from });
    }
    if message.term == Term(0) {
        return Err(Refused::NoTerm);
    }
    if let Some(id) = entries_named(&message.body).into_iter().flatten().find(|id| !exists(*id)) {
        return Err(Refused::NoEntry(id));
    }
    let of_leader = matches!(
        message.body,
        Body::Append { .. } | Body::Heartbeat { .. } | Body::SnapshotOffer { .. } | Body::TimeoutNow
    );
    if of_leader && view.leads && message.term == view.term {
        return Err(Refused::SecondLeader { from, term: message.term });
    }
    let last = view.last.index;
    match message.body {
        Body::Heartbeat { commit } if message.term >= view.term && commit > last => {
            Err(Refused::LostEntries { stored: commit, last })
        }
        Body::Accepted { index, .. } if view.leads && message.term == view.term && index > last => {
            Err(Refused::NeverSent { claimed: index, last })
        }
        _ => Ok(()),
    }
}

/// The entries that a message claims some log has. The engine takes term 0 for that of any entry
/// beyond the end.
fn entries_named(body: &Body) -> [Option<EntryId>; 2] {
    match *body {
        Body::VoteRequest { last, commit, .. } => [Some(last), Some(commit)],
        Body::VoteReply { commit, .. } => [Some(commit), None],
        Body::Append { previous, .. } => [Some(previous), None],
        Body::SnapshotOffer { last } => [Some(last), None],
        _ => [None, None],
    }
}

fn exists(id: EntryId) -> bool {
    (id.index == Index(0)) == (id.term == Term(0))
}
