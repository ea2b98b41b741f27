//! The writer of a store with several replicas: batches are proposed to the group, and durable once
//! they are committed.

use std::collections::BTreeMap;

use bytes::Bytes;
use postroad_cluster::{
    ChangeError, Index, MemberChange, Members, Message, NodeId, NodeRecord, Refused, Term,
};
use postroad_journal::{Checkpoint, CommitError, DamageKind, Disk, ReadError, Space};
use postroad_model::{MessageRow, PartitionId};

use super::LogWriter;
use crate::job::Job;
use crate::replica::{Committed, Held, Replica, Replicated};
use crate::room::OthersSpace;

impl<D: Disk> LogWriter<D> {
    /// The replica of the store, if it has several.
    pub fn replica(&self) -> Option<&Replica<D>> {
        match &self.journal {
            Held::Alone(_) => None,
            Held::Replica(replica) => Some(replica),
        }
    }

    pub(super) fn replica_mut(&mut self) -> Option<&mut Replica<D>> {
        match &mut self.journal {
            Held::Alone(_) => None,
            Held::Replica(replica) => Some(replica),
        }
    }

    /// Proposes the gathered records to all replicas. Those that find no room stay, until earlier
    /// ones are committed.
    pub(super) fn propose(&mut self) {
        self.filling_syncs = false;
        let group = std::mem::take(&mut self.filling);
        let Some(replica) = self.replica_mut() else { return };
        self.filling = replica.propose(group);
        self.drive();
        refuse_without_room(self);
    }

    /// Time passes for the replica: see [`postroad_cluster::Group::tick`]. To be followed by
    /// [`LogWriter::drive`].
    pub fn tick(&mut self) {
        if let Some(replica) = self.replica_mut() {
            replica.tick();
        }
    }

    /// Takes a message of another replica in. To be followed by [`LogWriter::drive`].
    ///
    /// # Errors
    /// See [`postroad_cluster::Refused`].
    pub fn receive(&mut self, message: Message) -> Result<(), Refused> {
        self.replica_mut().map_or(Ok(()), |replica| replica.receive(message))
    }

    /// Carries out the actions of the replica group, and reports committed records.
    pub fn drive(&mut self) {
        let reason = self.broken.clone();
        let Some(replica) = self.replica_mut() else { return };
        if let Some(reason) = reason {
            replica.fail(reason);
        }
        let committed = replica.drive();
        let checkpoint = replica.ripe_checkpoint();
        for batch in committed {
            match batch {
                Committed::Own(records) => self.durable(&records),
                Committed::Foreign(records) => {
                    self.replicated.extend(records.into_iter().map(|record| Replicated {
                        partition: record.partition,
                        position: record.position,
                        record: record.payload.to_bytes(),
                    }));
                }
            }
        }
        self.jobs.extend(checkpoint.map(Job::Checkpoint));
        if self.replica().is_some_and(|replica| replica.failure().is_none()) {
            // A segment that could not be made is tried again after a pause.
            match self.trouble.segment.is_some() {
                true => self.tell_space(present_space(self)),
                false => self.order_next(),
            }
        }
    }

    /// The next record that another leader proposed, to be applied by its partition. To be taken
    /// before [`LogWriter::next_message`].
    pub fn next_replicated(&mut self) -> Option<Replicated> {
        self.replicated.pop_front()
    }

    /// Replaces the counts of a partition's live messages, as a start does: see
    /// [`postroad_journal::Journal::recount`].
    pub fn recount(&mut self, partition: PartitionId, live: impl IntoIterator<Item = MessageRow>) {
        self.journal.recount(partition, live);
    }

    /// Begins a checkpoint with the states of all partitions. That of a replica waits for its
    /// groups to be committed.
    pub(super) fn begin_checkpoint(&mut self, mut states: Vec<Checkpoint>) {
        // It must not know more than the log; if the disk fails now it is made another time.
        self.sync();
        states.extend(self.replica().map(Replica::meta_state));
        let Ok(request) = self.journal.begin_checkpoint(states) else { return };
        match &mut self.journal {
            Held::Alone(_) => self.jobs.push_back(Job::Checkpoint(request)),
            Held::Replica(replica) => {
                replica.hold_checkpoint(request);
                self.jobs.extend(replica.ripe_checkpoint().map(Job::Checkpoint));
            }
        }
    }
}

/// Whether records that add data are taken.
pub(super) fn present_space<D: Disk>(writer: &LogWriter<D>) -> Space {
    writer.replica().map_or_else(|| writer.journal.space(), Replica::space)
}

/// Proposals that wait for room on a disk are refused once nothing else is under way, unless
/// another node with space is about to lead.
fn refuse_without_room<D: Disk>(writer: &mut LogWriter<D>) {
    let waits = writer.replica().is_some_and(Replica::waits_for_room);
    if !waits || writer.filling.is_empty() || !writer.is_full() {
        return;
    }
    let group = std::mem::take(&mut writer.filling);
    let group_bytes = group.iter().map(|record| record.payload.byte_length()).sum();
    writer.refused(&group, CommitError::NoSpace { group_bytes });
}

/// A replica whose disk is full keeps no entries for lagging ones.
pub(super) fn give_up_trailing<D: Disk>(writer: &mut LogWriter<D>) {
    let is_low = writer.journal.space() == Space::Low;
    if is_low && writer.replica_mut().is_some_and(Replica::give_up_trailing) {
        writer.journal.want_checkpoint();
    }
}

/// Whether a partition is not told the result of a read: the other replicas have the record, which
/// this one has lost. They would set the message aside with it. It waits until another one leads.
pub(super) fn withholds<D: Disk>(writer: &mut LogWriter<D>, record: &Result<Bytes, ReadError>) -> bool {
    if matches!(writer.journal, Held::Alone(_)) {
        return false;
    }
    match record {
        Err(ReadError::Damaged(damage)) => !matches!(damage.kind, DamageKind::KeyUnknown { .. }),
        Err(error @ ReadError::Io { .. }) => {
            writer.scrub.refused(error.to_string());
            true
        }
        _ => false,
    }
}

/// The first damaged place of a store that was found since the start: bytes that were confirmed are
/// gone.
pub fn first_damage<D: Disk>(writer: &LogWriter<D>) -> Option<&str> {
    writer.scrub.first().or_else(|| writer.replica()?.damage())
}

/// The leadership of a store: how it is taken over, and handed over. A store without replicas has
/// none.
pub struct Leadership<'w, D: Disk>(&'w mut LogWriter<D>);

impl<D: Disk> LogWriter<D> {
    /// The leadership of its store.
    pub fn leadership(&mut self) -> Leadership<'_, D> {
        Leadership(self)
    }
}

impl<D: Disk> Leadership<'_, D> {
    /// This node leads, and its partitions have applied all that was handed out: batches are taken
    /// from now on, until it is deposed. `None` if it does not lead.
    pub fn take_over(self) -> Option<Term> {
        let writer = self.0;
        let term = writer.replica_mut()?.take_over()?;
        // Of an earlier term of this leader.
        writer.filling.clear();
        writer.filling_syncs = false;
        // The cores count epochs of a log of their own.
        writer.partitions.values_mut().for_each(|share| share.epoch = 0);
        writer.refused = false;
        writer.say_space();
        Some(term)
    }

    /// Hands leadership to this replica, or to the one that has most of the log, within moments or
    /// not at all: see [`postroad_cluster::Group::transfer_leadership`].
    pub fn hand_over(self, to: Option<NodeId>) {
        if let Some(replica) = self.0.replica_mut() {
            match to {
                Some(to) => replica.transfer(to),
                None => replica.hand_over(),
            }
        }
        self.0.drive();
    }

    /// The store is damaged: see [`postroad_cluster::Group::abstain`].
    pub fn abstain(self) {
        if let Some(replica) = self.0.replica_mut() {
            replica.abstain();
        }
    }

    /// These nodes say that their stores are damaged. To be said now and then.
    pub fn others_are_damaged(self, nodes: Vec<NodeId>) {
        if let Some(replica) = self.0.replica_mut() {
            replica.avoid(nodes);
        }
    }

    /// Takes over the space on the disks of others. To be said now and then: a leader refuses
    /// further data if nodes are full and no majority has space. For a time it waits for those that
    /// are not reached.
    pub fn others_have(self, others: OthersSpace) {
        if let Some(replica) = self.0.replica_mut() {
            replica.others_have(others);
        }
    }

    /// Entries after this one, with which a copy of the store ends, stay for the node that gets it.
    /// Once the disk gets short of space they stay no more. `None` ends it.
    pub fn keep_log_after(self, copied: Option<Index>) {
        if let Some(replica) = self.0.replica_mut() {
            replica.keep_log_after(copied);
        }
    }

    /// Changes the members of the group by one: see [`postroad_cluster::Group::propose_change`].
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn change_members(
        self,
        change: MemberChange,
        records: &BTreeMap<NodeId, NodeRecord>,
    ) -> Result<(), ChangeError> {
        if let Some(replica) = self.0.replica_mut() {
            replica.propose_change(change, records)?;
        }
        self.0.drive();
        Ok(())
    }

    /// This mirror takes the place of all other replicas: it ends, and leads once it has begun
    /// again.
    ///
    /// # Errors
    /// It is no mirror, or the disk refuses.
    pub fn succeed(self) -> Result<(), String> {
        self.0.replica_mut().map_or(Ok(()), Replica::succeed)
    }

    /// A mirror has taken the place of all replicas, as these members of a later era say: this one
    /// ends.
    pub fn give_way(self, members: &Members) {
        if let Some(replica) = self.0.replica_mut() {
            replica.give_way(members);
        }
    }

    /// Whether something is written that other replicas have not confirmed yet, as far as this one
    /// leads.
    pub fn is_committing(&self) -> bool {
        let leading =
            self.0.replica().filter(|replica| replica.leads().is_some() && replica.failure().is_none());
        leading.is_some_and(|replica| {
            let group = replica.status().group;
            group.committed < group.last
        })
    }

    /// Partitions whose states a checkpoint waits for.
    pub fn awaited_states(&self) -> Vec<PartitionId> {
        self.0.gathering.iter().flat_map(|gathering| gathering.missing.clone()).collect()
    }

    /// How many records of other leaders wait to be applied: see [`LogWriter::next_replicated`].
    pub fn unapplied(&self) -> usize {
        self.0.replicated.len()
    }
}
