//! The messages between the replicas of a group.

use crate::entry::{Entry, EntryId, Index, NodeId, Term};

/// One message from a replica to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The sender's term; of a pre-vote, the term that it would campaign in.
    pub term: Term,
    /// The content.
    pub body: Body,
}

/// The content of a [`Message`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A candidate asks for a vote.
    VoteRequest {
        /// Only asks whether it would be given, which changes nothing at the receiver.
        pre: bool,
        /// The leader asked the candidate to take over: the leader's lease does not protect it.
        transfer: bool,
        /// The end of the candidate's log.
        last: EntryId,
        /// The last entry known to be committed.
        commit: EntryId,
    },
    /// The answer to it.
    VoteReply {
        /// It answers a pre-vote.
        pre: bool,
        /// Whether the vote is given.
        granted: bool,
        /// The last entry that the voter knows to be committed, in a refusal.
        commit: EntryId,
    },
    /// The leader sends entries, or asks where the logs agree.
    Append {
        /// The entry before the first one.
        previous: EntryId,
        /// The last committed entry.
        commit: Index,
        /// Dense, in order.
        entries: Vec<Entry>,
    },
    /// Everything up to `index` is synced and equals the leader's log.
    Accepted {
        /// The last such entry.
        index: Index,
        /// The last entry that the replica knows to be committed.
        commit: Index,
    },
    /// The replica does not have `previous` of the leader's message.
    Rejected {
        /// Index of that entry.
        index: Index,
        /// Where the logs may agree.
        hint: EntryId,
        /// The last entry that the replica knows to be committed.
        commit: Index,
    },
    /// The leader is alive.
    Heartbeat {
        /// The last entry that is committed and stored by the receiver.
        commit: Index,
    },
    /// The answer to it.
    HeartbeatReply {
        /// The last entry that the replica knows to be committed.
        commit: Index,
    },
    /// The leader hands over: campaign at once.
    TimeoutNow,
    /// The leader does not have the entries any more that the replica needs: a snapshot must be
    /// fetched.
    SnapshotOffer {
        /// The last entry in the snapshot.
        last: EntryId,
    },
}
