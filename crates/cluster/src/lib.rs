//! Cluster room: keeps the log of a store identical on several nodes by Raft.
//!
//! In: ticks, messages of the other replicas, batches to propose, reports of what the disk has
//! synced. Out: [`Actions`]: messages to send, a vote and entries to make durable, committed
//! entries to apply. The consensus algorithm is the `raft` crate; its types and its wire format
//! stay inside `engine`. Never here: sockets, threads, clocks, the contents of a batch. Start at
//! [`Group`]. Messages between nodes are described in docs/formats/replication.md.

mod actions;
mod balance;
mod batch;
mod chosen_stores;
mod codec;
mod engine;
mod entry;
mod forward;
mod group;
mod guard;
mod handed;
mod hello;
mod journal_log;
mod leave;
mod level;
mod log;
mod members;
mod message;
mod space;
mod tail;
mod vote;

pub use actions::{Actions, Role, Turn};
pub use balance::{
    Balance, Balancer, LeaderMove, LeadersView, MOVES_MAX as LEADER_MOVES_MAX, StoreNumber, StoreView, Wait,
    Weight,
};
pub use batch::{BatchError, decode_batch, encode_batch};
pub use chosen_stores::{ChosenStores, STORES_MAX};
pub use codec::{CodecError, ENTRIES_MAX, FORMAT_VERSION, MESSAGE_BYTES_MAX, decode, encode};
pub use entry::{Entry, EntryId, EntryKind, Index, NodeId, Term};
pub use forward::{
    FORWARD_BYTES_MAX, FORWARD_HEAD_BYTES, FORWARD_KEY_BYTES, FORWARD_MAGIC, ForwardError, Forwarding,
};
pub use group::{ChangeError, Config, CopyRefused, Group, GroupError, ProposeError, SnapshotOffer, Status};
pub use guard::Refused;
pub use handed::{HANDED_BYTES_MAX, HANDED_MAGIC, Handed, HandedLogin};
pub use hello::{
    HELLO_BYTES_MAX, Hello, HelloError, NONCE_BYTES, PROOF_BYTES, Purpose, VERDICT_BYTES, Verdict, prove,
    verify,
};
pub use journal_log::{JournalLog, JournalLogError, META_PARTITION};
pub use leave::{GRANT_MS, LeaveNotice, LeaveTurns, others_are_majority, undamaged_heir};
pub use level::{Level, Levels};
pub use log::{EntryLog, LogError};
pub use members::{
    ChangeRefused, MEMBERS_MAX, MemberChange, Members, NODE_ADDRESS_BYTES_MAX, NODE_NAME_BYTES_MAX,
    NODE_ZONE_BYTES_MAX, NodeRecord,
};
pub use message::{Body, Message};
pub use space::DiskSpace;
pub use vote::{ERA_TERMS, Vote, VoteError, VoteFile};

#[cfg(test)]
mod tests;
