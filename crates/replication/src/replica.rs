//! The replica of a store: its group of nodes, and the commands that they agreed on.
//!
//! [`Replica`] stands where a lone store has its journal. A batch is durable once it is committed:
//! synced here and on a majority. A leader that is deposed follows from then on: batches that it
//! had proposed come back as those of others, if they are committed. A failure ends the replica:
//! its process starts again from the disk. Never here: sockets, clocks, threads, the meaning of
//! records.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use postroad_cluster::{
    ChangeError, Config, CopyRefused, DiskSpace, EntryId, EntryKind, EntryLog, Group, GroupError, Index,
    JournalLog, LogError, META_PARTITION, MemberChange, Members, Message, NodeId, NodeRecord, ProposeError,
    Refused, Role, Status, Term, VoteFile, decode_batch, encode_batch,
};
use postroad_journal::{
    Checkpoint, CheckpointError, CheckpointRequest, Disk, Journal, Record, Space, admission,
};
use postroad_model::{PartitionId, Position};

use crate::room::{Intake, OthersSpace, Room};

/// Payload of one proposal, unless a single record has more: the disk of a follower should not wait
/// long for the next.
const PROPOSAL_BYTES_MAX: u64 = 4 << 20;

/// Bytes of groups at the end of the log that stay for lagging replicas; one that needs older
/// groups needs a copy of the store.
const TRAILING_BYTES: u64 = 1 << 30;

/// This part of them, while the disk is short of space.
const SHORT_SHARE: u64 = 8;

/// From one mark of the stored entries to the next; with ticks of 50 ms a second. A disk that loses
/// later entries alone, in spite of their sync, is not found out.
const MARK_TICKS: u32 = 20;

const JOURNAL_IS_OPEN: &str = "a journal that failed to reopen ends its replica";

/// Where the groups of a store become durable. A lone journal is used for every record, and so has
/// no further pointer to follow.
#[allow(clippy::large_enum_variant, reason = "there is one for each store")]
pub enum Held<D: Disk> {
    /// In the journal of a store that stands alone.
    Alone(Journal<D>),
    /// In the journals of a majority of its replicas.
    Replica(Box<Replica<D>>),
}

impl<D: Disk> Deref for Held<D> {
    type Target = Journal<D>;

    fn deref(&self) -> &Journal<D> {
        match self {
            Held::Alone(journal) => journal,
            Held::Replica(replica) => replica.group.log().journal().expect(JOURNAL_IS_OPEN),
        }
    }
}

impl<D: Disk> DerefMut for Held<D> {
    fn deref_mut(&mut self) -> &mut Journal<D> {
        match self {
            Held::Alone(journal) => journal,
            Held::Replica(replica) => replica.group.log_mut().journal_mut().expect(JOURNAL_IS_OPEN),
        }
    }
}

impl<D: Disk> From<Journal<D>> for Held<D> {
    fn from(journal: Journal<D>) -> Held<D> {
        Held::Alone(journal)
    }
}

impl<D: Disk> From<Replica<D>> for Held<D> {
    fn from(replica: Replica<D>) -> Held<D> {
        Held::Replica(Box::new(replica))
    }
}

/// Takes messages for other replicas on their way; may drop them.
pub type Outlet = Box<dyn FnMut(Message) + Send>;

/// See the head of this file.
pub struct Replica<D: Disk> {
    group: Group<JournalLog<D>>,
    vote: VoteFile<D::File>,
    send: Outlet,
    /// The last committed record of each partition.
    committed: BTreeMap<PartitionId, Position>,
    /// The last entry that was handed out as committed.
    handed_out: Index,
    /// The term in which this node was elected.
    elected: Option<Term>,
    /// The same, once an entry of it is committed: all earlier ones are, too.
    leads: Option<Term>,
    /// The term for which the caller has taken over: see [`Replica::take_over`].
    serves: Option<Term>,
    failure: Option<String>,
    /// See [`Replica::damage`].
    damage: Option<String>,
    /// Ticks since the mark was written.
    unmarked_ticks: u32,
    checkpoints: Checkpoints,
    trailing_bytes: u64,
    /// The last entry of a copy of the store for another node, which needs all later ones.
    copied: Option<Index>,
    room: Room,
}

/// Checkpoints know of groups that were written when they began; they may be finished only when
/// these are committed.
#[derive(Default)]
struct Checkpoints {
    /// The entry whose state the meta partition has in the next one.
    through: Index,
    /// The same for the one that is being written.
    writing: Index,
    /// The end of the log that a checkpoint knows, and its request, while that is not committed.
    waiting: Option<(Index, CheckpointRequest)>,
    /// The entries of the last two that were written.
    written: VecDeque<Index>,
}

/// A committed batch.
pub(crate) enum Committed {
    /// A batch that was proposed here.
    Own(Vec<Record>),
    /// A batch that another leader proposed, or this node before it was started.
    Foreign(Vec<Record>),
}

/// The state of a replica, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The state of its group, as it is known here.
    pub group: Status,
    /// The entry before the first that it can send to others.
    pub floor: Index,
    /// The last entry that others are known to have stored; only a leader knows.
    pub stored: Vec<(NodeId, Index)>,
    /// The log begins after the entries that this replica needs: it needs a copy of the store.
    pub needs_copy: bool,
}

impl ReplicaStatus {
    /// By how many entries another replica is behind; only a leader knows.
    pub fn lag_of(&self, node: NodeId) -> Option<u64> {
        let stored = self.stored.iter().find(|(of, _)| *of == node);
        stored.map(|(_, index)| self.group.last.0.saturating_sub(index.0))
    }
}

impl<D: Disk> Replica<D> {
    /// The replica of an open store, whose partitions have the states of its checkpoint, at these
    /// positions. The members of the configuration are those of a new group; later ones are in the
    /// file of the vote.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn open(
        config: &Config,
        log: JournalLog<D>,
        vote: VoteFile<D::File>,
        states: impl IntoIterator<Item = (PartitionId, Position)>,
        send: Outlet,
    ) -> Result<Replica<D>, GroupError> {
        let applied = log.checkpointed();
        let (members, mark) = (vote.members().unwrap_or(&config.members).clone(), vote.mark());
        let group = Group::open(&Config { members, ..config.clone() }, log, vote.vote(), applied)?;
        let last = end_of(group.log());
        // A later leader may have replaced entries, and then the log ends in its term.
        if (last.term, last.index) < (mark.term, mark.index) {
            return Err(GroupError::LostEntries { stored: mark, last });
        }
        let checkpoints = Checkpoints { written: [applied].into(), ..Checkpoints::default() };
        let committed = states.into_iter().collect();
        let (elected, leads, serves, failure, damage) = (None, None, None, None, None);
        let handed_out = applied;
        let trailing_bytes = TRAILING_BYTES;
        Ok(Replica {
            group,
            vote,
            send,
            committed,
            handed_out,
            elected,
            leads,
            serves,
            failure,
            damage,
            unmarked_ticks: 0,
            checkpoints,
            trailing_bytes,
            copied: None,
            room: Room::default(),
        })
    }

    /// Keeps this many bytes of groups for lagging replicas.
    #[must_use]
    pub fn trailing(self, bytes: u64) -> Replica<D> {
        Replica { trailing_bytes: bytes, ..self }
    }

    /// The term in which this node leads, once everything before it is committed and was handed
    /// out.
    pub fn leads(&self) -> Option<Term> {
        self.leads
    }

    /// The term in which this node was elected, if it was the last.
    pub fn elected(&self) -> Option<Term> {
        self.elected
    }

    /// This node leads, and the caller has applied all that was handed out: proposals are taken
    /// until it is deposed. Those of an earlier term come too late from then on.
    pub(crate) fn take_over(&mut self) -> Option<Term> {
        self.serves = self.leads;
        self.serves
    }

    /// Why the replica ended.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Entries that were stored here and cannot be read, or are missing.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// See [`Group::abstain`].
    pub(crate) fn abstain(&mut self) {
        self.group.abstain();
    }

    /// The state of its group, as it is known here.
    pub fn group_status(&self) -> Status {
        self.group.status()
    }

    /// Its state.
    pub fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            group: self.group_status(),
            floor: self.group.log().floor().index,
            stored: self.group.stored_by_others(),
            needs_copy: self.group.snapshot_offer().is_some(),
        }
    }

    /// The last committed record of a partition.
    pub(crate) fn last_committed(&self, partition: PartitionId) -> Option<Position> {
        self.committed.get(&partition).copied()
    }

    /// The term in which this node leads for certain: it was not deposed as far as is known, and
    /// has not failed.
    pub fn leads_now(&self) -> Option<Term> {
        let status = self.group.status();
        let leads = self.failure.is_none() && status.role == Role::Leader;
        self.leads.filter(|term| leads && *term == status.term)
    }

    /// The last entry that is stored here.
    pub fn stored_last(&self) -> EntryId {
        end_of(self.group.log())
    }

    /// See [`JournalLog::shared_with`].
    pub fn shared_with(&self, runs: &[EntryId], last: Index) -> Option<EntryId> {
        self.group.log().shared_with(runs, last)
    }

    /// See [`Group::admits_copy`].
    ///
    /// # Errors
    /// See [`CopyRefused`].
    pub fn admits_copy(&self, term: Term, last: EntryId) -> Result<(), CopyRefused> {
        self.group.admits_copy(term, last)
    }

    /// See [`Group::tick`].
    pub(crate) fn tick(&mut self) {
        self.group.tick();
        let intake = self.leads.map(|_| self.intake());
        let can_write = self.room.tick(self.group.log_mut(), intake);
        self.group.can_write(can_write);
        if self.copied.is_some() && self.is_short_of_space() {
            self.copied = None;
            self.raise_floor();
        }
        self.unmarked_ticks += 1;
        if MARK_TICKS <= self.unmarked_ticks && self.failure.is_none() {
            self.unmarked_ticks = 0;
            let last = self.stored_last();
            if last != self.vote.mark()
                && let Err(error) = self.vote.write_mark(last)
            {
                self.fail(error);
            }
        }
    }

    /// See [`Group::receive`]. Entries without room on the disk are left out: the leader repeats
    /// them.
    pub(crate) fn receive(&mut self, mut message: Message) -> Result<(), Refused> {
        self.room.shorten(self.group.log_mut(), &mut message.body);
        let received = self.group.receive(message);
        if let Err(lost @ Refused::LostEntries { .. }) = &received {
            self.damage.get_or_insert_with(|| lost.to_string());
        }
        received
    }

    /// See [`Group::hand_over`].
    pub(crate) fn hand_over(&mut self) {
        self.group.hand_over();
    }

    /// See [`Group::avoid`].
    pub(crate) fn avoid(&mut self, nodes: Vec<NodeId>) {
        self.group.avoid(nodes);
    }

    /// See [`Group::propose_change`].
    pub(crate) fn propose_change(
        &mut self,
        change: MemberChange,
        records: &BTreeMap<NodeId, NodeRecord>,
    ) -> Result<EntryId, ChangeError> {
        self.group.propose_change(change, records)
    }

    /// The members of the group, as far as is known here.
    pub fn members(&self) -> &Members {
        self.group.members()
    }

    /// This mirror takes the place of all others, with the entries that are synced here: see
    /// [`Members::taken_over`]. It has to begin again from its disk, and leads then.
    ///
    /// # Errors
    /// It is no mirror, or the disk refuses.
    pub(crate) fn succeed(&mut self) -> Result<(), String> {
        let (own, last) = (self.group.node(), self.group.status().durable);
        let members = self.members().taken_over(own, last).map_err(|error| error.to_string())?;
        self.vote.write_succession(members).map_err(|error| error.to_string())?;
        self.fail(format!("this mirror takes the place of all others, from entry {} on", last.0));
        Ok(())
    }

    /// These members are of a later era: a mirror has taken the place of this replica and all
    /// others. It has to begin again from its disk, and takes no part then.
    pub(crate) fn give_way(&mut self, members: &Members) {
        let written = self.vote.write_members(members.clone());
        self.fail(match written {
            Ok(()) => "a mirror has taken the place of this cluster".to_owned(),
            Err(error) => error.to_string(),
        });
    }

    /// See [`Group::transfer_leadership`].
    pub(crate) fn transfer(&mut self, to: NodeId) {
        self.group.transfer_leadership(to);
    }

    pub(crate) fn fail(&mut self, reason: impl ToString) {
        self.failure.get_or_insert_with(|| reason.to_string());
    }

    /// Proposes the records in batches, in order. Returns those that must be proposed again later.
    /// Those of a leader that was deposed are dropped: its partitions say so to their clients.
    pub(crate) fn propose(&mut self, mut records: Vec<Record>) -> Vec<Record> {
        if self.serves.is_none() {
            return Vec::new();
        }
        let intake = self.intake();
        while !records.is_empty() && self.failure.is_none() {
            let mut bytes = 0;
            let fits = |record: &&Record| {
                bytes += record.payload.byte_length();
                bytes <= PROPOSAL_BYTES_MAX
            };
            let count = records.iter().take_while(fits).count().max(1);
            let batch = encode_batch(&records[..count]);
            let sized = (&records[..count], batch.len() as u64);
            if !self.room.admits_batch(self.group.log_mut(), intake, sized) {
                return records;
            }
            match self.group.propose(batch) {
                Ok(_) => drop(records.drain(..count)),
                Err(ProposeError::Full | ProposeError::Transferring) => return records,
                // Deposed a moment ago: the next turn says so.
                Err(ProposeError::NotLeader { .. }) => return Vec::new(),
                Err(error) => self.fail(error),
            }
        }
        Vec::new()
    }

    /// Carries out all that the group wants: sends, votes, writes and syncs. Returns the batches
    /// committed now, in order.
    pub(crate) fn drive(&mut self) -> Vec<Committed> {
        let mut committed = Vec::new();
        while self.failure.is_none() {
            match self.group.actions() {
                Ok(None) => {
                    self.room.written();
                    break;
                }
                Ok(Some(actions)) => {
                    if let Err(reason) = self.carry_out(actions, &mut committed) {
                        self.fail(reason);
                    }
                }
                Err(error) => {
                    if let GroupError::Log(LogError::Unreadable { .. }) = error {
                        self.damage.get_or_insert_with(|| error.to_string());
                    }
                    self.fail(error);
                }
            }
        }
        committed
    }

    fn carry_out(
        &mut self,
        actions: postroad_cluster::Actions,
        committed: &mut Vec<Committed>,
    ) -> Result<(), String> {
        // Ahead of the disk: others sync at the same time.
        actions.messages.into_iter().for_each(&mut self.send);
        if let Some((role, term)) = actions.role {
            self.take_role(role, term);
        }
        if let Some(vote) = actions.vote {
            self.vote.write(vote).map_err(|error| error.to_string())?;
        }
        if let Some(members) = actions.members {
            self.vote.write_members(members).map_err(|error| error.to_string())?;
            self.group.change_members();
        }
        if actions.restarted.is_some() {
            return Err("the log was replaced by a snapshot, which this version cannot load".to_owned());
        }
        if let Some(first) = actions.append.first() {
            let first = first.id.index;
            let replaces = first <= self.group.log().last();
            if replaces {
                self.drop_checkpoint()?;
                self.lower_mark(first.previous())?;
            }
            self.group.log_mut().append(&actions.append).map_err(|error| error.to_string())?;
            if replaces {
                return Err("entries of a former leader, which were never confirmed, were cut off".to_owned());
            }
        }
        self.group.persisted(actions.turn);
        for entry in actions.committed {
            self.handed_out = entry.id.index;
            let is_own = self.elected == Some(entry.id.term);
            if is_own {
                self.leads = self.elected;
            }
            if entry.kind != EntryKind::Batch {
                continue;
            }
            let records = decode_batch(entry.payload).map_err(|error| error.to_string())?;
            for record in &records {
                self.committed.insert(record.partition, record.position);
            }
            committed.push(if is_own { Committed::Own(records) } else { Committed::Foreign(records) });
        }
        Ok(())
    }

    /// Entries after this one are about to go, which a leader of a later term has never had.
    fn lower_mark(&mut self, index: Index) -> Result<(), String> {
        if self.vote.mark().index <= index {
            return Ok(());
        }
        let log = self.group.log();
        let term = if index == log.floor().index { Some(log.floor().term) } else { log.term(index) };
        let mark = EntryId { index, term: term.unwrap_or_default() };
        self.vote.write_mark(mark).map_err(|error| error.to_string())
    }

    /// Whatever the new role, a former leadership has ended.
    fn take_role(&mut self, role: Role, term: Term) {
        self.elected = (role == Role::Leader).then_some(term);
        (self.leads, self.serves) = (None, None);
    }

    /// A checkpoint that waits knows of entries that go. One that is being written does not, but
    /// must be finished first.
    fn drop_checkpoint(&mut self) -> Result<(), String> {
        let waits = mem::take(&mut self.checkpoints.waiting).is_some();
        let Some(journal) = self.group.log_mut().journal_mut() else { return Ok(()) };
        if waits {
            // It is none that failed, and no other begins in this process.
            let _ = journal.finish_checkpoint(Err(CheckpointError::Busy));
        }
        match journal.is_checkpointing() {
            true => Err("entries of a former leader are replaced after a checkpoint".to_owned()),
            false => Ok(()),
        }
    }

    /// The space of its disk.
    pub fn disk_space(&self) -> DiskSpace {
        self.room.on_disk(self.group.log())
    }

    /// Takes over the space on the disks of others.
    pub(crate) fn others_have(&mut self, others: OthersSpace) {
        self.room.others_have(others);
    }

    /// Whether a leader may take in further data.
    pub(crate) fn space(&self) -> Space {
        self.room.of_group(self.intake())
    }

    fn intake(&self) -> Intake {
        self.room.intake(self.group.log(), self.members(), self.group.node())
    }

    /// Whether proposals wait for room on disks, and nothing else is under way.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.room.delays_batch() && self.handed_out == self.group.status().last
    }

    /// The disk is full: entries that lagging replicas alone may need are given up. Returns whether
    /// a checkpoint would free more of them.
    pub(crate) fn give_up_trailing(&mut self) -> bool {
        let oldest = self.raise_floor();
        let keeps = self.group.log().journal().is_some_and(admission::keeps_for_others);
        keeps && oldest < self.handed_out
    }

    /// Partitions are asked for their states now: these have all that was handed out.
    pub(crate) fn expect_states(&mut self) {
        self.checkpoints.through = self.handed_out;
    }

    /// The state of the meta partition that goes with those.
    pub(crate) fn meta_state(&self) -> Checkpoint {
        let checkpoint = self.group.log().checkpoint(self.checkpoints.through);
        debug_assert_eq!(checkpoint.partition, META_PARTITION);
        checkpoint
    }

    /// Takes a checkpoint that began until it may be written.
    pub(crate) fn hold_checkpoint(&mut self, request: CheckpointRequest) {
        self.checkpoints.writing = self.checkpoints.through;
        self.checkpoints.waiting = Some((self.group.log().last(), request));
    }

    /// A checkpoint all of whose groups are committed: it may be written.
    pub(crate) fn ripe_checkpoint(&mut self) -> Option<CheckpointRequest> {
        let waiting = self.checkpoints.waiting.take_if(|(end, _)| *end <= self.handed_out);
        waiting.map(|(_, request)| request)
    }

    /// A checkpoint was written. Entries that the states of two checkpoints include are not needed
    /// here any more.
    pub(crate) fn checkpoint_written(&mut self) {
        let Checkpoints { writing, written, .. } = &mut self.checkpoints;
        written.push_back(*writing);
        while 2 < written.len() {
            written.pop_front();
        }
        self.raise_floor();
    }

    /// See [`crate::Leadership::keep_log_after`].
    pub(crate) fn keep_log_after(&mut self, copied: Option<Index>) {
        self.copied = copied;
    }

    fn is_short_of_space(&self) -> bool {
        let journal = self.group.log().journal();
        journal.is_some_and(|journal| journal.space() == Space::Low || admission::is_short_of_space(journal))
    }

    /// Entries that the states of two checkpoints include go, but for the last ones, and those
    /// after a copy of the store. Returns the older checkpoint's entry.
    fn raise_floor(&mut self) -> Index {
        let Checkpoints { written, .. } = &self.checkpoints;
        let (Some(older), 2) = (written.front().copied(), written.len()) else { return Index(0) };
        let log = self.group.log_mut();
        let trailing = match log.journal() {
            Some(journal) if journal.space() == Space::Low => 1,
            Some(journal) if admission::is_short_of_space(journal) => self.trailing_bytes / SHORT_SHARE,
            _ => self.trailing_bytes,
        };
        log.raise_floor(self.copied.map_or(older, |copied| copied.min(older)), trailing);
        older
    }
}

/// The last entry of a log.
fn end_of(log: &impl EntryLog) -> EntryId {
    let index = log.last();
    if index == log.floor().index {
        return log.floor();
    }
    EntryId { index, term: log.term(index).unwrap_or_default() }
}

/// A record that another leader proposed, for the partition that applies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// Whose.
    pub partition: PartitionId,
    /// Its place in the partition's log.
    pub position: Position,
    /// The record.
    pub record: Bytes,
}
