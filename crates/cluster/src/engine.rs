//! The only place that knows the types of the `raft` crate's messages: ours to theirs, and back.

use bytes::Bytes;
use raft::CAMPAIGN_TRANSFER;
use raft::eraftpb::{
    self, ConfChangeSingle, ConfChangeType, ConfChangeV2, EntryType, MessageType, Snapshot, SnapshotMetadata,
};

use crate::entry::{Entry, EntryId, EntryKind, Index, NodeId, Term};
use crate::members::{MemberChange, Members};
use crate::message::{Body, Message};
use crate::tail::conf_state;

fn id(index: u64, term: u64) -> EntryId {
    EntryId { index: Index(index), term: Term(term) }
}

/// The engine looks at the content of a change of members when it is proposed, and later only at
/// the type.
pub(crate) fn entry_in(entry: Entry) -> eraftpb::Entry {
    let is_change = entry.kind == EntryKind::Members;
    eraftpb::Entry {
        entry_type: if is_change { EntryType::EntryConfChange } else { EntryType::EntryNormal },
        index: entry.id.index.0,
        term: entry.id.term.0,
        data: entry.payload,
        ..eraftpb::Entry::default()
    }
}

pub(crate) fn entry_out(entry: eraftpb::Entry) -> Entry {
    let id = id(entry.index, entry.term);
    match entry.entry_type {
        EntryType::EntryConfChange => Entry { id, kind: EntryKind::Members, payload: entry.data },
        // Proposed here: see `change_in`.
        EntryType::EntryConfChangeV2 => {
            Entry { id, kind: EntryKind::Members, payload: members_in(&entry.data) }
        }
        EntryType::EntryNormal if entry.data.is_empty() => {
            Entry { id, kind: EntryKind::Opening, payload: entry.data }
        }
        EntryType::EntryNormal => Entry { id, kind: EntryKind::Batch, payload: entry.data },
    }
}

/// The engine's part of a change: the kind of its operation, and the node; `None` if nothing
/// changes for it.
fn operation(change: MemberChange) -> Option<(ConfChangeType, NodeId)> {
    match change {
        MemberChange::Add(node) => Some((ConfChangeType::AddLearnerNode, node)),
        MemberChange::Promote(node) => Some((ConfChangeType::AddNode, node)),
        MemberChange::Remove(node) => Some((ConfChangeType::RemoveNode, node)),
        // One that retires keeps its vote.
        MemberChange::Retire(_) | MemberChange::Raise(_) => None,
    }
}

/// A change for the engine, if it is one.
pub(crate) fn change_in(change: MemberChange) -> Option<ConfChangeV2> {
    let (change_type, node) = operation(change)?;
    let single = ConfChangeSingle { change_type, node_id: node.get(), ..ConfChangeSingle::default() };
    Some(ConfChangeV2 { changes: vec![single].into(), ..ConfChangeV2::default() })
}

/// The proposal of a change after which these are the members.
///
/// Its content is the engine's: a `ConfChangeV2` in Protocol Buffers with one change (field 2: kind
/// 1, node 2) and the members as its context (field 3). If nothing changes for the engine, a voter
/// is made one.
pub(crate) fn proposal_in(change: MemberChange, after: &Members) -> eraftpb::Entry {
    let voter = after.voters.first().map_or(0, |voter| voter.get());
    let (kind, node) =
        operation(change).map_or((ConfChangeType::AddNode, voter), |(kind, node)| (kind, node.get()));
    let (mut single, context) = (vec![0x08, kind as u8, 0x10], after.encode());
    put_varint(&mut single, node);
    let mut data = vec![0x12, single.len() as u8];
    data.extend(single);
    data.push(CONTEXT);
    put_varint(&mut data, context.len() as u64);
    data.extend(context);
    let (entry_type, data) = (EntryType::EntryConfChangeV2, data.into());
    eraftpb::Entry { entry_type, data, ..eraftpb::Entry::default() }
}

/// The tag of field 3.
const CONTEXT: u8 = 0x1a;

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while 0x80 <= number {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The members in such a content.
fn members_in(content: &Bytes) -> Bytes {
    let single = content.get(1).map_or(0, |length| usize::from(*length));
    let length_at = 2 + single + 1;
    let length = content.get(length_at..).unwrap_or_default();
    let bytes = length.iter().position(|byte| *byte < 0x80).map_or(0, |last| last + 1);
    content.slice((length_at + bytes).min(content.len())..)
}

pub(crate) fn snapshot(last: EntryId, members: &Members) -> Snapshot {
    let metadata = SnapshotMetadata {
        index: last.index.0,
        term: last.term.0,
        conf_state: Some(conf_state(members)).into(),
        ..SnapshotMetadata::default()
    };
    Snapshot { metadata: Some(metadata).into(), ..Snapshot::default() }
}

/// A message for the engine.
pub(crate) fn message_in(message: Message, members: &Members) -> eraftpb::Message {
    let mut out = eraftpb::Message {
        from: message.from.get(),
        to: message.to.get(),
        term: message.term.0,
        ..eraftpb::Message::default()
    };
    out.set_msg_type(kind_in(&message.body));
    match message.body {
        Body::VoteRequest { transfer, last, commit, .. } => {
            (out.index, out.log_term) = (last.index.0, last.term.0);
            (out.commit, out.commit_term) = (commit.index.0, commit.term.0);
            if transfer {
                out.context = Bytes::from_static(CAMPAIGN_TRANSFER);
            }
        }
        Body::VoteReply { granted, commit, .. } => {
            out.reject = !granted;
            (out.commit, out.commit_term) = (commit.index.0, commit.term.0);
        }
        Body::Append { previous, commit, entries } => {
            (out.index, out.log_term) = (previous.index.0, previous.term.0);
            out.commit = commit.0;
            out.set_entries(entries.into_iter().map(entry_in).collect());
        }
        Body::Accepted { index, commit } => (out.index, out.commit) = (index.0, commit.0),
        Body::Rejected { index, hint, commit } => {
            (out.reject, out.index, out.commit) = (true, index.0, commit.0);
            (out.reject_hint, out.log_term) = (hint.index.0, hint.term.0);
        }
        Body::Heartbeat { commit } | Body::HeartbeatReply { commit } => out.commit = commit.0,
        Body::TimeoutNow => {}
        Body::SnapshotOffer { last } => out.set_snapshot(snapshot(last, members)),
    }
    out
}

fn kind_in(body: &Body) -> MessageType {
    match body {
        Body::VoteRequest { pre: true, .. } => MessageType::MsgRequestPreVote,
        Body::VoteRequest { pre: false, .. } => MessageType::MsgRequestVote,
        Body::VoteReply { pre: true, .. } => MessageType::MsgRequestPreVoteResponse,
        Body::VoteReply { pre: false, .. } => MessageType::MsgRequestVoteResponse,
        Body::Append { .. } => MessageType::MsgAppend,
        Body::Accepted { .. } | Body::Rejected { .. } => MessageType::MsgAppendResponse,
        Body::Heartbeat { .. } => MessageType::MsgHeartbeat,
        Body::HeartbeatReply { .. } => MessageType::MsgHeartbeatResponse,
        Body::TimeoutNow => MessageType::MsgTimeoutNow,
        Body::SnapshotOffer { .. } => MessageType::MsgSnapshot,
    }
}

/// A message of the engine; `None` for kinds that it sends only on requests that this room never
/// makes.
pub(crate) fn message_out(mut message: eraftpb::Message) -> Option<Message> {
    let commit = Index(message.commit);
    let commit_id = id(message.commit, message.commit_term);
    let body = match message.get_msg_type() {
        kind @ (MessageType::MsgRequestPreVote | MessageType::MsgRequestVote) => Body::VoteRequest {
            pre: kind == MessageType::MsgRequestPreVote,
            transfer: message.context == CAMPAIGN_TRANSFER,
            last: id(message.index, message.log_term),
            commit: commit_id,
        },
        kind @ (MessageType::MsgRequestPreVoteResponse | MessageType::MsgRequestVoteResponse) => {
            let pre = kind == MessageType::MsgRequestPreVoteResponse;
            Body::VoteReply { pre, granted: !message.reject, commit: commit_id }
        }
        MessageType::MsgAppend => {
            let entries = std::mem::take(&mut message.entries).into_iter().map(entry_out).collect();
            Body::Append { previous: id(message.index, message.log_term), commit, entries }
        }
        MessageType::MsgAppendResponse if message.reject => {
            let hint = id(message.reject_hint, message.log_term);
            Body::Rejected { index: Index(message.index), hint, commit }
        }
        MessageType::MsgAppendResponse => Body::Accepted { index: Index(message.index), commit },
        MessageType::MsgHeartbeat => Body::Heartbeat { commit },
        MessageType::MsgHeartbeatResponse => Body::HeartbeatReply { commit },
        MessageType::MsgTimeoutNow => Body::TimeoutNow,
        MessageType::MsgSnapshot => {
            let metadata = message.get_snapshot().get_metadata();
            Body::SnapshotOffer { last: id(metadata.index, metadata.term) }
        }
        _ => return None,
    };
    let (from, to) = (NodeId::new(message.from)?, NodeId::new(message.to)?);
    Some(Message { from, to, term: Term(message.term), body })
}
