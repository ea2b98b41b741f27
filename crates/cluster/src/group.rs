//! One replica of a group.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use raft::eraftpb::MessageType;
use raft::{ProgressState, RawNode, SnapshotStatus, StateRole};

use crate::actions::{Actions, Role, Turn};
use crate::engine;
use crate::entry::{EntryId, EntryKind, Index, NodeId, Term};
use crate::guard::{self, Refused, View};
use crate::log::{EntryLog, LogError};
use crate::members::{ChangeRefused, MemberChange, Members, NodeRecord};
use crate::message::{Body, Message};
use crate::tail::Tail;
use crate::vote::Vote;

/// Ticks between two heartbeats of a leader.
const HEARTBEAT_TICKS: usize = 2;
/// Ticks without a leader after which an election begins, at least; at most twice as many.
const ELECTION_TICKS: usize = 10;
/// Messages with entries on their way to one follower that it has not confirmed.
const IN_FLIGHT_MAX: usize = 64;
/// Payload of one message, unless a single entry has more.
const APPEND_BYTES_MAX: u64 = 1 << 20;
/// Payload handed out by one [`Group::actions`], unless a single entry has more.
const COMMITTED_BYTES_MAX: u64 = 8 << 20;
/// Payload of one proposal: with it a message stays far below [`crate::MESSAGE_BYTES_MAX`].
const PAYLOAD_BYTES_MAX: usize = 32 << 20;
/// Turns that may wait for the disk. With more, messages are dropped, as a network may.
const TURNS_MAX: usize = 1024;
/// Ticks that a leader waits for its disk before it hands over: about as long as it takes to
/// replace a dead one.
const DISK_TICKS_MAX: u64 = 20;

/// Settings of a replica, fixed at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// The members that were last synced, or those of a new group.
    pub members: Members,
    /// Chance: election timeouts follow from it. Should differ between nodes.
    pub seed: u64,
    /// Payload of proposals that are not committed yet; further ones are refused.
    pub uncommitted_bytes_max: u64,
    /// Payload of synced entries that are kept in memory for followers.
    pub cache_bytes_max: u64,
}

/// Why a replica cannot start or go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// No node has a vote.
    #[error("the members of the group are not valid")]
    Members,
    /// Vote, log and state do not fit together: a part of the store was lost or is of another time.
    #[error("log from {} to {} does not fit applied entry {} and term {}", .floor.0, .last.0, .applied.0, .term.0)]
    Inconsistent {
        /// The entry before the log.
        floor: Index,
        /// The end of the log.
        last: Index,
        /// The last entry that the state has.
        applied: Index,
        /// The term of the vote.
        term: Term,
    },
    /// The log ends before an entry that this replica may have confirmed: its disk has lost some.
    #[error("entry {} of term {} was stored here and is missing; the log ends at {} of term {}",
        .stored.index.0, .stored.term.0, .last.index.0, .last.term.0)]
    LostEntries {
        /// The last entry that was known to be synced.
        stored: EntryId,
        /// The end of the log.
        last: EntryId,
    },
    /// Entries cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why a proposal was not taken. It will not come back as committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// Another node leads, or none does.
    #[error("not the leader")]
    NotLeader {
        /// The leader, as far as is known.
        leader: Option<NodeId>,
    },
    /// Leadership is being handed over.
    #[error("leadership is being transferred")]
    Transferring,
    /// More than [`Config::uncommitted_bytes_max`] waits, or more turns than the disk has finished.
    #[error("too much is not committed yet")]
    Full,
    /// An empty payload, or one of more than 32 MiB.
    #[error("a payload of {0} bytes is not possible")]
    Size(usize),
}

/// Why a change of members was not proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// It makes no sense.
    #[error(transparent)]
    Refused(#[from] ChangeRefused),
    /// It would end the leader's own part.
    #[error("node {} leads: hand leadership over first", .0.get())]
    Leads(NodeId),
    /// The change before is not committed yet, or nothing of this leader is.
    #[error("another change is under way")]
    Busy,
    /// This node cannot propose anything now.
    #[error(transparent)]
    Propose(#[from] ProposeError),
}

/// The state of a replica, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its part.
    pub role: Role,
    /// Its term.
    pub term: Term,
    /// The end of its log.
    pub last: Index,
    /// The last entry known to be synced here.
    pub durable: Index,
    /// The last entry known to be committed.
    pub committed: Index,
}

/// A snapshot that a leader offers, because it has the next entries no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotOffer {
    /// The leader.
    pub from: NodeId,
    /// The leader's term.
    pub term: Term,
    /// The last entry in the snapshot.
    pub last: EntryId,
}

/// Why a copy of another node's store must not take the place of this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyRefused {
    /// Its author may have been deposed.
    #[error("the copy was made in term {}, and this node is in term {}", .copy.0, .own.0)]
    OtherTerm {
        /// The term of its author.
        copy: Term,
        /// The term of this node.
        own: Term,
    },
    /// This replica has later entries, or writes some.
    #[error("the copy ends with entry {}, and the log of this node with {}", .copy.0, .own.0)]
    Behind {
        /// The last entry of the copy.
        copy: Index,
        /// The last entry of this node.
        own: Index,
    },
}

struct Waiting {
    turn: Turn,
    /// The tick in which it began.
    since: u64,
    /// The last entry of the turn.
    last: Option<EntryId>,
    /// Whether the log is replaced.
    restarts: bool,
    /// Promises that depend on entries that are not synced yet.
    messages: Vec<Message>,
}

/// One replica of a group: see the head of this crate.
pub struct Group<L: EntryLog> {
    node: NodeId,
    raft: RawNode<Tail<L>>,
    seed: u64,
    ticks: u64,
    waiting: VecDeque<Waiting>,
    /// Released by the disk, not handed out yet.
    released: Vec<Message>,
    offer: Option<SnapshotOffer>,
    role: (Role, Term),
    /// Committed changes of members that are not in force yet.
    changes: Vec<Members>,
    /// See [`Group::abstain`].
    abstains: bool,
    /// See [`Group::avoid`].
    avoided: Vec<NodeId>,
    /// See [`Group::can_write`].
    lacks_room: bool,
    /// Those that the snapshot has that is being installed.
    installing: Option<Members>,
    /// For the test of the tests: commits entries that only this node has synced.
    #[cfg(test)]
    pub(crate) commits_alone: bool,
}

impl<L: EntryLog> Group<L> {
    /// A replica over its durable log. `applied` is the last entry that the state has which the
    /// caller loaded; later entries are handed out again once they are known to be committed.
    ///
    /// # Errors
    /// [`GroupError::Members`], [`GroupError::Inconsistent`].
    pub fn open(config: &Config, log: L, vote: Vote, applied: Index) -> Result<Group<L>, GroupError> {
        let members = effective(&config.members, &log.members());
        if members.voters.is_empty() {
            return Err(GroupError::Members);
        }
        let (floor, last) = (log.floor().index, log.last());
        let last_term = if last == floor { Some(log.floor().term) } else { log.term(last) };
        let fits = floor <= applied && applied <= last && last_term.is_some_and(|term| term <= vote.term);
        if !fits {
            return Err(GroupError::Inconsistent { floor, last, applied, term: vote.term });
        }
        let tail = Tail::new(log, (vote, applied), members, config.cache_bytes_max);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft =
            RawNode::new(&engine_config(config, applied), tail, &logger).map_err(|_| GroupError::Members)?;
        let mut group = Group {
            node: config.node,
            raft,
            seed: config.seed,
            ticks: 0,
            waiting: VecDeque::new(),
            released: Vec::new(),
            offer: None,
            role: (Role::Follower { leader: None }, vote.term),
            changes: Vec::new(),
            abstains: false,
            avoided: Vec::new(),
            lacks_room: false,
            installing: None,
            #[cfg(test)]
            commits_alone: false,
        };
        group.draw_timeout();
        Ok(group)
    }

    /// Time passes. Calls should come at equal distances; one tenth of the time in which a leader
    /// is to be replaced.
    pub fn tick(&mut self) {
        self.ticks += 1;
        self.raft.tick();
        if self.ticks.is_multiple_of(2 * ELECTION_TICKS as u64) {
            self.offer_again();
        }
        self.leave_a_hung_disk();
        self.draw_timeout();
    }

    /// A leader hands out a committed entry once it is synced here too: with a hung disk it would
    /// hold up the group, and hands leadership over.
    fn leave_a_hung_disk(&mut self) {
        let hangs = self.waiting.front().is_some_and(|waiting| waiting.since + DISK_TICKS_MAX < self.ticks);
        if hangs && self.raft.raft.state == StateRole::Leader && self.raft.raft.lead_transferee.is_none() {
            self.hand_over();
        }
    }

    /// Hands leadership to the voter that has most of the log: see [`Group::transfer_leadership`].
    pub fn hand_over(&mut self) {
        let voters = &self.raft.store().members.voters;
        let stored = self.stored_by_others().into_iter().filter(|(node, _)| voters.contains(node));
        let progress = self.raft.raft.prs();
        // One that takes no part may have had the whole log when it was last heard of.
        let answers = |node: NodeId| {
            let is_heard = progress.get(node.get()).is_some_and(|found| found.recent_active);
            is_heard && !self.avoided.contains(&node)
        };
        if let Some((node, _)) = stored.max_by_key(|(node, index)| (answers(*node), *index, node.get())) {
            self.transfer_leadership(node);
        }
    }

    /// These nodes say that their stores are damaged: [`Group::hand_over`] takes others first.
    pub fn avoid(&mut self, nodes: Vec<NodeId>) {
        self.avoided = nodes;
    }

    /// This replica never campaigns from now on, as its store is damaged: it votes and stores
    /// entries, and a leader that it is stays one. One that is alone cannot leave it to others.
    pub fn abstain(&mut self) {
        self.abstains = true;
        self.end_campaign();
    }

    /// Whether the disk has room for the first entry of a term: otherwise this replica does not
    /// campaign.
    pub fn can_write(&mut self, can: bool) {
        self.lacks_room = !can;
        self.end_campaign();
    }

    fn end_campaign(&mut self) {
        let state = self.raft.raft.state;
        if self.never_campaigns() && matches!(state, StateRole::Candidate | StateRole::PreCandidate) {
            let raft = &mut self.raft.raft;
            raft.become_follower(raft.term, raft::INVALID_ID);
            self.draw_timeout();
        }
    }

    fn never_campaigns(&self) -> bool {
        (self.abstains || self.lacks_room) && self.raft.store().members.voters != [self.node]
    }

    /// A follower that does not take a snapshot must not be left alone: its offer may have been
    /// lost.
    fn offer_again(&mut self) {
        let offered = |(id, progress): (&u64, &raft::Progress)| {
            (progress.state == ProgressState::Snapshot).then_some(*id)
        };
        let mut peers: Vec<u64> = self.raft.raft.prs().iter().filter_map(offered).collect();
        peers.sort_unstable();
        for peer in peers {
            self.raft.report_snapshot(peer, SnapshotStatus::Failure);
        }
    }

    /// Takes a message of another replica in, or drops it if too many turns wait for the disk.
    ///
    /// # Errors
    /// See [`Refused`]: nothing has changed.
    pub fn receive(&mut self, message: Message) -> Result<(), Refused> {
        let tail = self.raft.store();
        let end = tail.last().max(Index(self.raft.raft.raft_log.last_index()));
        let view = View {
            node: self.node,
            members: &tail.members,
            term: Term(self.raft.raft.term),
            last: EntryId { index: end, term: Term(0) },
            leads: self.raft.raft.state == StateRole::Leader,
        };
        guard::check(&message, &view)?;
        if self.waiting.len() >= TURNS_MAX || message.body == Body::TimeoutNow && self.never_campaigns() {
            return Ok(());
        }
        if let Body::SnapshotOffer { last } = message.body
            && tail.term_of(last.index) != Some(last.term)
        {
            self.offer = Some(SnapshotOffer { from: message.from, term: message.term, last });
            return Ok(());
        }
        let message = engine::message_in(message, &tail.members);
        // The engine refuses messages from unknown nodes, and the sender was checked.
        let _ = self.raft.step(message);
        self.draw_timeout();
        Ok(())
    }

    /// Puts a batch after all earlier ones. It is committed if it comes back by
    /// [`Actions::committed`] with the same identity; if another entry comes in its place, it is
    /// lost. Until then its outcome is unknown.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub fn propose(&mut self, payload: Bytes) -> Result<EntryId, ProposeError> {
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(ProposeError::Size(payload.len()));
        }
        if self.raft.raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader { leader: NodeId::new(self.raft.raft.leader_id) });
        }
        if self.raft.raft.lead_transferee.is_some() {
            return Err(ProposeError::Transferring);
        }
        if self.waiting.len() >= TURNS_MAX {
            return Err(ProposeError::Full);
        }
        // Not by `RawNode::propose`, which would copy the payload.
        let mut message = raft::eraftpb::Message { from: self.node.get(), ..Default::default() };
        message.set_msg_type(MessageType::MsgPropose);
        let entry = raft::eraftpb::Entry { data: payload, ..Default::default() };
        message.set_entries(vec![entry].into());
        self.raft.raft.step(message).map_err(|_| ProposeError::Full)?;
        let index = Index(self.raft.raft.raft_log.last_index());
        Ok(EntryId { index, term: Term(self.raft.raft.term) })
    }

    /// Proposes a change of one member, with what is known of members now. It is in force once it
    /// comes back by [`Actions::members`].
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn propose_change(
        &mut self,
        change: MemberChange,
        records: &BTreeMap<NodeId, NodeRecord>,
    ) -> Result<EntryId, ChangeError> {
        let raft = &self.raft.raft;
        if raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader { leader: NodeId::new(raft.leader_id) }.into());
        }
        if raft.lead_transferee.is_some() {
            return Err(ProposeError::Transferring.into());
        }
        let tail = self.raft.store();
        let mut after = tail.members.after(change)?;
        after.describe(records);
        if change == MemberChange::Remove(self.node) {
            return Err(ChangeError::Leads(self.node));
        }
        // Two leaders that each change the members by one would not need a common voter, unless
        // the later one has committed something first (Ongaro, raft-dev, July 2015).
        let has_committed = tail.term_of(Index(raft.raft_log.committed)) == Some(Term(raft.term));
        if !has_committed || !self.changes.is_empty() || raft.has_pending_conf() {
            return Err(ChangeError::Busy);
        }
        if self.waiting.len() >= TURNS_MAX {
            return Err(ProposeError::Full.into());
        }
        let mut message = raft::eraftpb::Message { from: self.node.get(), ..Default::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.set_entries(vec![engine::proposal_in(change, &after)].into());
        self.raft.raft.step(message).map_err(|_| ProposeError::Full)?;
        let index = Index(self.raft.raft.raft_log.last_index());
        Ok(EntryId { index, term: Term(self.raft.raft.term) })
    }

    /// The members that [`Actions::members`] named are synced, and in force from now on. To be
    /// called before the next [`Group::actions`].
    pub fn change_members(&mut self) {
        for members in std::mem::take(&mut self.changes) {
            let change = self.raft.store().members.change_to(&members);
            // A leader before it has proposed that. The engine takes a leader for a voter.
            if self.raft.raft.state == StateRole::Leader && !members.voters.contains(&self.node) {
                let term = self.raft.raft.term;
                self.raft.raft.become_follower(term, raft::INVALID_ID);
            }
            self.raft.mut_store().members = members;
            if let Some(change) = change.and_then(engine::change_in) {
                // It refuses changes of several at once alone.
                let _ = self.raft.apply_conf_change(&change);
            }
        }
    }

    /// The number of this replica's node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The members in force.
    pub fn members(&self) -> &Members {
        &self.raft.store().members
    }

    /// Hands leadership to another member, as soon as it has the whole log. Proposals are refused
    /// meanwhile, for an election timeout at most. Nothing happens unless this node leads.
    pub fn transfer_leadership(&mut self, to: NodeId) {
        if self.raft.raft.state == StateRole::Leader && self.raft.store().members.voters.contains(&to) {
            self.raft.transfer_leader(to.get());
        }
    }

    /// Work for now; `None` if there is none.
    ///
    /// # Errors
    /// [`GroupError::Log`]: the replica cannot go on. Its store must be repaired or replaced.
    pub fn actions(&mut self) -> Result<Option<Actions>, GroupError> {
        let blocked = self.waiting.len() >= TURNS_MAX;
        let mut actions = Actions::default();
        if !blocked && self.raft.has_ready() {
            self.take_turn(&mut actions);
        } else if self.released.is_empty() {
            return self.checked(None);
        }
        actions.messages.append(&mut self.released);
        if self.never_campaigns() {
            actions.messages.retain(|message| !matches!(message.body, Body::VoteRequest { .. }));
        }
        let role = self.current_role();
        if role != self.role {
            self.role = role;
            actions.role = Some(role);
        }
        self.checked(Some(actions))
    }

    fn checked(&self, actions: Option<Actions>) -> Result<Option<Actions>, GroupError> {
        match self.raft.store().failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(actions),
        }
    }

    fn take_turn(&mut self, actions: &mut Actions) {
        let mut ready = self.raft.ready();
        actions.turn = Turn(ready.number());
        actions.messages = ready.take_messages().into_iter().filter_map(engine::message_out).collect();
        let held = ready.take_persisted_messages().into_iter().filter_map(engine::message_out).collect();
        if ready.must_sync()
            && let Some(hard_state) = ready.hs()
        {
            let voted_for = NodeId::new(hard_state.vote);
            actions.vote = Some(Vote { term: Term(hard_state.term), voted_for });
        }
        let tail = self.raft.mut_store();
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let last = EntryId { index: Index(metadata.index), term: Term(metadata.term) };
            tail.restart(last);
            actions.restarted = Some(last);
            if let Some(members) = self.installing.take() {
                tail.members = members.clone();
                actions.members = Some(members);
            }
        }
        actions.append = ready.take_entries().into_iter().map(engine::entry_out).collect();
        tail.append(&actions.append);
        actions.committed = ready.take_committed_entries().into_iter().map(engine::entry_out).collect();
        if let Some(last) = actions.committed.last() {
            tail.handed_out = last.id.index;
        }
        let (since, era) = (tail.members.since, tail.members.era);
        let changes = actions.committed.iter().filter(|entry| entry.kind == EntryKind::Members);
        let later = changes.filter(|entry| since < entry.id.index);
        let later = later.filter_map(|entry| Members::decode(entry.id.index, &entry.payload));
        // Those whose place a mirror has taken may have proposed another list.
        self.changes.extend(later.filter(|members| era <= members.era));
        if let Some(members) = self.changes.last() {
            actions.members = Some(members.clone());
        }
        let last = actions.append.last().map(|entry| entry.id).or(actions.restarted);
        let restarts = actions.restarted.is_some();
        let (turn, since) = (actions.turn, self.ticks);
        self.waiting.push_back(Waiting { turn, since, last, restarts, messages: held });
        self.raft.advance_append_async(ready);
        if actions.restarted.is_some() {
            // The engine cannot campaign between the two, and asserts that it need not. The
            // messages of this turn wait for the disk all the same.
            self.raft.on_persist_ready(actions.turn.0);
        }
        self.raft.advance_apply();
        self.raft.mut_store().trim();
    }

    /// The vote and the entries of this turn, and of all before it, are synced.
    pub fn persisted(&mut self, turn: Turn) {
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.turn <= turn) {
            self.released.extend(waiting.messages);
            if let Some(last) = waiting.last {
                self.raft.mut_store().synced(last, waiting.restarts);
            }
        }
        self.raft.on_persist_ready(turn.0);
    }

    /// The snapshot that the leader offers, if this replica still needs it. Its files are fetched
    /// by other means;
    /// [`Group::install_snapshot`] is called when they are complete.
    pub fn snapshot_offer(&self) -> Option<SnapshotOffer> {
        let raft = &self.raft.raft;
        self.offer.filter(|offer| {
            let follows = offer.term.0 >= raft.term && raft.state == StateRole::Follower;
            let has = self.raft.store().term_of(offer.last.index) == Some(offer.last.term);
            follows && !has && offer.last.index.0 > raft.raft_log.committed && self.waiting.is_empty()
        })
    }

    /// The files of this snapshot are here, and the next [`Actions::restarted`] may replace the log
    /// by them, with its members. `false` if the snapshot is not wanted any more: the files are to
    /// be removed.
    pub fn install_snapshot(&mut self, offer: SnapshotOffer, members: Members) -> bool {
        if self.snapshot_offer() != Some(offer) {
            return false;
        }
        self.offer = None;
        let body = Body::SnapshotOffer { last: offer.last };
        let message = Message { from: offer.from, to: self.node, term: offer.term, body };
        let message = engine::message_in(message, &members);
        self.installing = Some(members);
        let _ = self.raft.step(message);
        self.draw_timeout();
        true
    }

    /// Whether a copy of the store of another node may take the place of this one's, and ends with
    /// `last`. It was made while that node led in `term`. The caller restarts the replica from it
    /// before it takes a further message in, and keeps the vote.
    ///
    /// # Errors
    /// The reason why not: this replica has confirmed, or may confirm, an entry that the copy does
    /// not have.
    pub fn admits_copy(&self, term: Term, last: EntryId) -> Result<(), CopyRefused> {
        let raft = &self.raft.raft;
        let (own_term, own_last) = (Term(raft.term), Index(raft.raft_log.last_index()));
        if raft.state != StateRole::Follower || own_term != term {
            return Err(CopyRefused::OtherTerm { copy: term, own: own_term });
        }
        // In one term there is one leader: what it sent in this term is a prefix of its own log,
        // and so of the copy.
        let ends_in_term = self.raft.store().term_of(own_last) == Some(term);
        if !self.waiting.is_empty()
            || raft.raft_log.committed > last.index.0
            || ends_in_term && own_last > last.index
        {
            return Err(CopyRefused::Behind { copy: last.index, own: own_last });
        }
        Ok(())
    }

    /// The log.
    pub fn log(&self) -> &L {
        &self.raft.store().log
    }

    /// The log, to write the entries of [`Actions::append`], or to raise its floor. The floor may
    /// rise to an entry that was handed out, at most.
    pub fn log_mut(&mut self) -> &mut L {
        &mut self.raft.mut_store().log
    }

    /// The state of the replica.
    pub fn status(&self) -> Status {
        let (role, term) = self.current_role();
        let log = &self.raft.raft.raft_log;
        Status {
            role,
            term,
            last: Index(log.last_index()),
            durable: self.raft.store().durable(),
            committed: Index(log.committed),
        }
    }

    /// The last entry that each other member is known to have stored, as far as this node leads; in
    /// the order of nodes.
    pub fn stored_by_others(&self) -> Vec<(NodeId, Index)> {
        if self.raft.raft.state != StateRole::Leader {
            return Vec::new();
        }
        let progress = self.raft.raft.prs();
        let others = self.raft.store().members.all().into_iter().filter(|node| *node != self.node);
        let stored = |node: NodeId| progress.get(node.get()).map(|found| (node, Index(found.matched)));
        others.filter_map(stored).collect()
    }

    fn current_role(&self) -> (Role, Term) {
        let role = match self.raft.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower => Role::Follower { leader: NodeId::new(self.raft.raft.leader_id) },
        };
        (role, Term(self.raft.raft.term))
    }

    /// The engine draws its election timeout from the thread's random numbers whenever it begins to
    /// wait again. The drawn value is overwritten before it is used: everything must follow from
    /// the seed.
    fn draw_timeout(&mut self) {
        let raft = &mut self.raft.raft;
        let mixed = mix(self.seed ^ raft.term.rotate_left(32) ^ raft.state as u64);
        let timeout = ELECTION_TICKS + (mixed % ELECTION_TICKS as u64) as usize;
        raft.set_randomized_election_timeout(timeout);
    }
}

/// The members with which a replica begins: those that were synced, or later ones in its log that
/// are known to be committed. A leader proposes the next change after it has committed the one
/// before, and says so with it.
fn effective(synced: &Members, stored: &[Members]) -> Members {
    let committed = stored.split_last().and_then(|(_, before)| before.last());
    committed.filter(|members| members.is_later_than(synced)).unwrap_or(synced).clone()
}

fn engine_config(config: &Config, applied: Index) -> raft::Config {
    raft::Config {
        id: config.node.get(),
        election_tick: ELECTION_TICKS,
        heartbeat_tick: HEARTBEAT_TICKS,
        min_election_tick: ELECTION_TICKS,
        max_election_tick: 2 * ELECTION_TICKS,
        applied: applied.0,
        max_size_per_msg: APPEND_BYTES_MAX,
        max_inflight_msgs: IN_FLIGHT_MAX,
        check_quorum: true,
        pre_vote: true,
        max_uncommitted_size: config.uncommitted_bytes_max.max(APPEND_BYTES_MAX),
        max_committed_size_per_ready: COMMITTED_BYTES_MAX,
        ..raft::Config::default()
    }
}

/// The output function of SplitMix64: neighbouring numbers become unlike ones.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The entries that the broken quorum rule of the test of the tests hands out.
#[cfg(test)]
pub(crate) fn synced_alone(group: &Group<impl EntryLog>, after: Index) -> Vec<crate::Entry> {
    let log = &group.raft.raft.raft_log;
    if !group.commits_alone || group.raft.raft.state != StateRole::Leader || log.persisted <= after.0 {
        return Vec::new();
    }
    let context = raft::GetEntriesContext::empty(false);
    let entries = log.slice(after.0 + 1, log.persisted + 1, None, context).unwrap_or_default();
    entries.into_iter().map(engine::entry_out).collect()
}
