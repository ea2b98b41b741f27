//! The only place that knows the types of the `raft` crate's messages: ours to theirs, and back.

use bytes::Bytes;
use raft::CAMPAIGN_TRANSFER;
use raft::eraftpb::{self, MessageType, Snapshot, SnapshotMetadata};

use crate::entry::{Entry, EntryId, EntryKind, Index, NodeId, Term};
use crate::message::{Body, Message};
use crate::tail::conf_state;

fn id(index: u64, term: u64) -> EntryId {
    EntryId { index: Index(index), term: Term(term) }
}

pub(crate) fn entry_in(entry: Entry) -> eraftpb::Entry {
    eraftpb::Entry {
        index: entry.id.index.0,
        term: entry.id.term.0,
        data: entry.payload,
        ..eraftpb::Entry::default()
    }
}

pub(crate) fn entry_out(entry: eraftpb::Entry) -> Entry {
    let kind = if entry.data.is_empty() { EntryKind::Opening } else { EntryKind::Batch };
    Entry { id: id(entry.index, entry.term), kind, payload: entry.data }
}

pub(crate) fn snapshot(last: EntryId, members: &[NodeId]) -> Snapshot {
    let metadata = SnapshotMetadata {
        index: last.index.0,
        term: last.term.0,
        conf_state: Some(conf_state(members)).into(),
        ..SnapshotMetadata::default()
    };
    Snapshot { metadata: Some(metadata).into(), ..Snapshot::default() }
}

/// A message for the engine.
pub(crate) fn message_in(message: Message, members: &[NodeId]) -> eraftpb::Message {
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
