//! The part that the journal's thread takes in the group of replicas: time, messages, and the
//! partitions while it follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use postroad_cluster::{DiskSpace, LeaveNotice, LeaveTurns, Message, NodeId, Role, Term, undamaged_heir};
use postroad_core::{Partition, decode_record, documents};
use postroad_journal::RealDisk;
use postroad_model::{Effect, PartitionId};
use postroad_replication::{LogWriter, OthersSpace, Replica, ToPartition, ToWriter, first_damage};
use tokio::sync::watch;

use crate::runtime::cluster::commits::CommitTimes;
use crate::runtime::cluster::copies::{Arrived, Copies};
use crate::runtime::cluster::copy::Fetched;
use crate::runtime::cluster::damage::others_suffice;
use crate::runtime::cluster::joining::Membership;
use crate::runtime::cluster::orders::has_caught_up;
use crate::runtime::cluster::peers::Shared;
use crate::runtime::cluster::restart::restart;
use crate::runtime::cluster::space;
use crate::runtime::cluster::steward::{Group, Step};
use crate::runtime::cluster::store_members::next_change;
use crate::runtime::cluster::view::{NodeStatus, Successor};
use crate::runtime::cluster::waits::Wait;
use crate::runtime::ticks_ms;

/// A leader is replaced after 10 to 20 of these without a word of it.
const TICK: Duration = Duration::from_millis(50);

/// Committed records that wait for partitions which a deposed leader's cores still have; with more,
/// messages wait, and are dropped, as a network may.
const UNAPPLIED_MAX: usize = 100_000;

/// From one attempt to hand over without an order to the next: writes wait meanwhile.
pub const HAND_OVER_EVERY: Duration = Duration::from_secs(2);

/// Ticks from one notice of the space here to the next, at most: a second.
const TELL_SPACE_TICKS: u32 = 20;

/// A refused message is logged once in this time.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// See the head of this file.
pub struct Participant {
    incoming: Receiver<Message>,
    shared: Arc<Shared>,
    membership: Arc<Membership>,
    copies: Arc<Copies>,
    /// Complete copies of the leader's store.
    arrivals: Receiver<Arrived>,
    tick_at: Instant,
    /// Those that follow; `None` while cores have them, as this node leads, or did a moment ago.
    partitions: Option<BTreeMap<PartitionId, Partition>>,
    status: watch::Sender<Option<NodeStatus>>,
    /// The term in which this node leads, once everything before it is committed.
    leading: watch::Sender<Option<Term>>,
    leader: Option<NodeId>,
    elections: u64,
    commits: CommitTimes,
    told_at: Option<Instant>,
    handed_over_at: Option<Instant>,
    /// Ticks since the last notice of the space here.
    untold_ticks: u32,
    /// The node that is to lead in place of this one, once clients have finished.
    successor: Option<Successor>,
    /// The members that wait for a step of this leader, and why.
    waits: Vec<(NodeId, Wait)>,
    /// The term of this leader that is too early for a node which has to be filled.
    outdated: Option<Term>,
    /// Turns of nodes that leave damaged stores, while this one leads.
    leave_turns: Option<LeaveTurns>,
    /// The process ends: a failure of the replica is no reason to begin again.
    ends: bool,
}

impl Participant {
    pub(super) fn new(
        incoming: Receiver<Message>,
        shared: Arc<Shared>,
        (copies, arrivals): (Arc<Copies>, Receiver<Arrived>),
        partitions: BTreeMap<PartitionId, Partition>,
        (status, leading): (watch::Sender<Option<NodeStatus>>, watch::Sender<Option<Term>>),
    ) -> Participant {
        Participant {
            incoming,
            membership: shared.membership().clone(),
            shared,
            copies,
            arrivals,
            tick_at: Instant::now(),
            partitions: Some(partitions),
            status,
            leading,
            leader: None,
            elections: 0,
            commits: CommitTimes::default(),
            told_at: None,
            handed_over_at: None,
            untold_ticks: 0,
            successor: None,
            waits: Vec::new(),
            outdated: None,
            leave_turns: None,
            ends: false,
        }
    }

    /// When it has to be called again at the latest.
    pub fn due(&self) -> Instant {
        self.tick_at
    }

    /// The process ends.
    pub fn end(&mut self) {
        self.ends = true;
    }

    /// Whether the partitions are followed here.
    pub fn follows(&self) -> bool {
        self.partitions.is_some()
    }

    /// Whether clients are served.
    pub fn serves(&self, writer: &LogWriter<RealDisk>) -> bool {
        !self.follows() && writer.replica().is_some_and(|replica| replica.leads_now().is_some())
    }

    /// Takes messages in, and carries out all that follows. Does not return if the replica has
    /// ended.
    pub fn turn(&mut self, writer: &mut LogWriter<RealDisk>) {
        let joined = self.membership.joined();
        while writer.leadership().unapplied() < UNAPPLIED_MAX
            && let Ok(message) = self.incoming.try_recv()
        {
            if !joined {
                continue;
            }
            let from = message.from.get();
            if let Err(error) = writer.receive(message)
                && self.told_at.is_none_or(|at| TELL_EVERY < at.elapsed())
            {
                self.told_at = Some(Instant::now());
                tracing::error!(from, %error, "a message of another node was refused");
            }
        }
        let now = Instant::now();
        let ticks = self.tick_at <= now;
        if ticks {
            // A process that was stopped has not missed the time of others: one tick, however late.
            self.tick_at = now + TICK;
            if joined {
                writer.tick();
            }
        }
        writer.drive();
        self.leave_if_entries_are_lost(writer);
        self.membership.saw(writer.replica().map_or(Term(0), |replica| replica.group_status().term));
        self.follow_members(writer);
        self.take_copy(writer);
        if let Some(replica) = writer.replica() {
            self.commits.look(&replica.group_status(), Instant::now());
        }
        self.apply(writer);
        if ticks {
            let heir = self.see_to_members(writer);
            writer.leadership().others_are_damaged(self.shared.peers().damaged());
            self.see_to_damage(writer);
            self.answer_leavers(writer);
            self.successor = self.see_to_space(writer).or(heir).or_else(|| self.see_to_outdated(writer));
            self.publish_documents();
        }
        self.look(writer, ticks);
    }

    /// Other stores of the process read the documents of the first one.
    fn publish_documents(&self) {
        let part = self.shared.part();
        let partitions = self.partitions.iter().filter(|_| part.is_one_of_several());
        let first = partitions.flat_map(|partitions| partitions.values().next());
        for partition in first {
            let all = documents(partition);
            part.publish(all.map(|(name, document)| (name, document.version, &document.content)));
        }
    }

    /// A log that ends before entries which it has confirmed must not vote.
    fn leave_if_entries_are_lost(&self, writer: &LogWriter<RealDisk>) {
        let Some(replica) = writer.replica() else { return };
        if let Some(place) = replica.damage().filter(|_| replica.failure().is_none()) {
            self.leave_damaged(place);
        }
    }

    /// A damaged store is left once others go on without it: a leader hands over first.
    fn see_to_damage(&mut self, writer: &mut LogWriter<RealDisk>) {
        if !self.membership.joined() {
            return;
        }
        let Some(place) = first_damage(writer).map(str::to_owned) else { return };
        if self.membership.found_damage(&place) {
            tracing::error!(
                damage = place,
                "the store of this node is damaged: it is filled from another once the others go on without it"
            );
            writer.leadership().abstain();
        }
        let Some(replica) = writer.replica() else { return };
        let (own, members) = (self.shared.own(), replica.members());
        let whole = self.shared.peers().reached_whole();
        let status = replica.status();
        match status.group.role {
            Role::Follower { leader: Some(leader) } => {
                // It asks in any case: by that the leader knows that this node is not to lead.
                let may_leave = self.may_leave(leader);
                if may_leave && whole.contains(&leader) && others_suffice(members, own, &whole) {
                    self.leave_damaged(&place);
                }
            }
            Role::Leader => {
                let damaged = self.shared.peers().damaged();
                let caught_up = |node| has_caught_up(&status, node);
                let next = undamaged_heir((members, own), &whole, &damaged, caught_up);
                let Some(next) = next.filter(|_| self.may_hand_over()) else { return };
                tracing::warn!(to = next.get(), "this node hands leadership over, as its store is damaged");
                writer.leadership().hand_over(Some(next));
            }
            _ => {}
        }
    }

    /// Whether the leader grants that this node leaves its store; asks for it otherwise. Leaders of
    /// versions before do not answer.
    fn may_leave(&self, leader: NodeId) -> bool {
        let Some(peer) = self.shared.peers().find(leader) else { return false };
        let may = !peer.leaving.takes_notices() || peer.leaving.is_granted();
        if !may {
            peer.tell(&LeaveNotice::Asks.notice());
        }
        may
    }

    /// A leader lets nodes with damaged stores leave these one after the other.
    fn answer_leavers(&mut self, writer: &LogWriter<RealDisk>) {
        let Some(replica) = writer.replica().filter(|replica| replica.leads_now().is_some()) else {
            self.leave_turns = None;
            return;
        };
        let (now_ms, whole) = (ticks_ms(), self.shared.peers().reached_whole());
        let turns = self.leave_turns.get_or_insert_with(|| LeaveTurns::new(now_ms));
        turns.look(&whole, now_ms);
        let group = (replica.members(), self.shared.own());
        for peer in self.shared.peers().all().iter().filter(|peer| peer.leaving.take_question()) {
            if turns.grant(peer.node, group, &whole, now_ms) {
                tracing::warn!(node = peer.node.get(), "a node leaves its damaged store, to be filled");
                peer.tell(&LeaveNotice::Granted.notice());
            }
        }
    }

    /// Tells the others of the space on this disk. A leader without space hands over to a node that
    /// has some: to this one.
    fn see_to_space(&mut self, writer: &mut LogWriter<RealDisk>) -> Option<Successor> {
        let (others, full) = self.shared.peers().reached_by_space();
        writer.leadership().others_have(OthersSpace { with_space: others, full });
        let replica = writer.replica()?;
        let (space, before) = (replica.disk_space(), self.shared.space());
        self.untold_ticks += 1;
        if space != before || TELL_SPACE_TICKS <= self.untold_ticks {
            self.untold_ticks = 0;
            self.shared.tell_space(space);
        }
        match space::of_disk(space) {
            Some(state) if space != before => tracing::error!(state, "the disk of this node is full"),
            None if space != before => tracing::info!("the disk of this node has space again"),
            _ => {}
        }
        let status = replica.status();
        let caught_up = |node| has_caught_up(&status, node);
        let leads = replica.leads_now().is_some();
        let to_lead = self.shared.peers().reached_to_lead();
        let next = space::next_leader(space, &to_lead, &replica.members().voters, caught_up);
        let next = next.filter(|_| leads)?;
        // Its clients wait already.
        if space == DiskSpace::Exhausted && self.may_hand_over() {
            tracing::warn!(to = next.get(), "this node hands leadership over, as its disk is full");
            writer.leadership().hand_over(Some(next));
        }
        Some(Successor { node: next, reason: "its disk is full" })
    }

    /// The node that is to lead in a later term, if a damaged node asks for a copy of that.
    fn see_to_outdated(&mut self, writer: &LogWriter<RealDisk>) -> Option<Successor> {
        let replica = writer.replica()?;
        let leads = replica.leads_now();
        if self.shared.outgoing().take_outdated() {
            self.outdated = leads;
        }
        self.outdated.filter(|term| leads == Some(*term))?;
        let (status, group) = (replica.status(), (replica.members(), self.shared.own()));
        // Those that say they are damaged are not among them.
        let to_lead = self.shared.peers().reached_to_lead();
        let node = undamaged_heir(group, &to_lead, &[], |node| has_caught_up(&status, node))?;
        Some(Successor { node, reason: "a damaged node needs a copy of a later term" })
    }

    /// Whether an attempt to hand over may begin, which writes wait for.
    fn may_hand_over(&mut self) -> bool {
        let may = self.handed_over_at.is_none_or(|at| HAND_OVER_EVERY < at.elapsed());
        if may {
            self.handed_over_at = Some(Instant::now());
        }
        may
    }

    /// Begins again without the store.
    fn leave_damaged(&self, place: &str) -> ! {
        if let Err(error) = self.membership.note_damage(place) {
            tracing::error!(error = format!("{error:#}"), "damage of the store cannot be written down");
        }
        restart(&format!("its store is damaged: {place}"))
    }

    /// Connects to new members, and gives those up that were removed.
    fn follow_members(&self, writer: &mut LogWriter<RealDisk>) {
        let known = self.shared.peers().members();
        if writer.replica().is_some_and(|replica| replica.members().era < known.era) {
            return writer.leadership().give_way(&known);
        }
        let Some(members) = writer.replica().map(Replica::members) else { return };
        if !self.shared.levels().contain(members.level) {
            restart(&format!("the cluster has level {} now", members.level));
        }
        if members.is_later_than(&known)
            && let Err(error) = self.shared.adopt(members)
        {
            restart(&format!("cannot connect to new members: {error}"));
        }
    }

    /// Takes the next step of a change of members, if this node leads and one is under way. Returns
    /// the node that is to lead in place of this one, if this one is to be removed.
    fn see_to_members(&mut self, writer: &mut LogWriter<RealDisk>) -> Option<Successor> {
        self.waits.clear();
        let replica = writer.replica().filter(|replica| replica.leads_now().is_some())?;
        let members = replica.members();
        let part = self.shared.part();
        if let Some(first) = part.members_to_follow()
            && let Some((change, more)) =
                next_change(part.number(), &first, members, &self.shared.askers().all())
        {
            let mut records = self.shared.names();
            records.extend(more);
            // Refused while the one before is under way: the next tick tries again.
            if writer.leadership().change_members(change, &records).is_ok() {
                tracing::info!(?change, store = part.number(), "the members follow those of store 1");
            }
            return None;
        }
        let common_level = self.shared.common_level();
        let rises = common_level.is_some_and(|common| members.level < common);
        if members.learners.is_empty() && !rises && !members.records.values().any(|record| record.retires) {
            return None;
        }
        let (status, reached) = (replica.status(), self.shared.peers().reached());
        let (own, elsewhere) = (self.shared.own(), part.kept_elsewhere());
        let damaged = self.shared.peers().damaged();
        let group = Group {
            own,
            members,
            last: status.group.last,
            stored: &status.stored,
            reached: &reached,
            damaged: &damaged,
            elsewhere: &elsewhere,
            common_level,
        };
        let step = group.next_step();
        self.waits = group.waits();
        // Of several stores none gets more than its share.
        let heir = group.heirs().into_iter().min_by_key(|node| part.led_by(*node));
        // Refused while the one before is under way: the next tick tries again.
        if let Some(Step::Change(change)) = step
            && writer.leadership().change_members(change, &self.shared.names()).is_ok()
        {
            tracing::info!(?change, "the members change");
        }
        let heir = heir.filter(|_| step == Some(Step::HandOver));
        heir.map(|node| Successor { node, reason: "it is to be removed" })
    }

    /// Restarts from a copy of the leader's store, if it may take the place of this one.
    fn take_copy(&self, writer: &LogWriter<RealDisk>) {
        let (Ok(arrived), Some(replica)) = (self.arrivals.try_recv(), writer.replica()) else { return };
        let Fetched { term, last, .. } = arrived.copy;
        // The group of a store that has not joined has promised nothing.
        let admitted = match arrived.fills_empty_store() {
            true if self.membership.joined() => Err("this node has joined meanwhile".to_owned()),
            true => Ok(()),
            false => replica.admits_copy(term, last).map_err(|error| error.to_string()),
        };
        match admitted.and_then(|()| arrived.accept().map_err(|error| format!("{error:#}"))) {
            Ok(()) => restart("a copy of the leader's store is complete"),
            Err(reason) => arrived.refuse(reason),
        }
    }

    /// Applies committed records of another leader.
    fn apply(&mut self, writer: &mut LogWriter<RealDisk>) {
        let Some(partitions) = &mut self.partitions else { return };
        let mut effects: Vec<Effect> = Vec::new();
        while let Some(replicated) = writer.next_replicated() {
            let id = replicated.partition;
            let Some(partition) = partitions.get_mut(&id) else {
                restart(&format!(
                    "there is no partition {}: do the nodes have the same configuration?",
                    id.0
                ));
            };
            // Its snapshot may be of later than that of others.
            if partition.applied().is_some_and(|applied| replicated.position <= applied) {
                continue;
            }
            match decode_record(&replicated.record) {
                Ok(command) => partition.apply(replicated.position, command, &mut effects),
                Err(error) => restart(&format!("partition {}: malformed record: {error}", id.0)),
            }
            effects.clear();
        }
    }

    /// Notes the leader, and reports it to operators and to the tasks that wait for it.
    fn look(&mut self, writer: &LogWriter<RealDisk>, ticks: bool) {
        let Some(replica) = writer.replica() else { return };
        if let Some(reason) = replica.failure()
            && !self.ends
        {
            let (members, whole) = (replica.members(), self.shared.peers().reached_whole());
            if let Some(place) = replica.damage()
                && others_suffice(members, self.shared.own(), &whole)
            {
                self.leave_damaged(place);
            }
            restart(reason);
        }
        let leads = replica.leads();
        self.leading.send_if_modified(|known| std::mem::replace(known, leads) != leads);
        let now = (replica.group_status().role, self.serves(writer));
        let is_shown =
            self.status.borrow().as_ref().is_some_and(|it| (it.replica.group.role, it.serves) == now);
        if ticks || !is_shown {
            let replica = replica.status();
            self.copies.lags.store(replica.needs_copy, Ordering::Release);
            let leader = match replica.group.role {
                Role::Follower { leader } => leader,
                Role::Candidate | Role::Leader => None,
            };
            if leader != self.leader && leader.is_some() {
                self.elections += 1;
            }
            self.leader = leader.or(self.leader);
            let (serves, elections, commits) = (now.1, self.elections, self.commits.latency());
            let (successor, waits) = (self.successor, self.waits.clone());
            self.status.send_replace(Some(NodeStatus {
                replica,
                serves,
                elections,
                commits,
                successor,
                waits,
            }));
        }
    }

    /// A group was proposed at one moment, and written and synced here until another.
    pub fn wrote(&mut self, writer: &LogWriter<RealDisk>, proposed_at: Instant, synced_at: Instant) {
        if let Some(replica) = writer.replica() {
            self.commits.synced(&replica.group_status(), proposed_at, synced_at);
        }
    }

    /// Answers the writer for partitions that follow. Gives other messages back.
    pub fn answer(&mut self, writer: &mut LogWriter<RealDisk>, message: ToPartition) -> Option<ToPartition> {
        let Some(partitions) = &self.partitions else { return Some(message) };
        if let ToPartition::SnapshotWanted { partition: id } = message
            && let Some(partition) = partitions.get(&id)
            && let Some(position) = partition.applied()
        {
            writer.recount(id, partition.live_messages());
            writer.push(ToWriter::Snapshot { partition: id, position, state: partition.snapshot_pieces() });
        }
        None
    }

    /// This node leads: its partitions are for its cores from now on. `None` if it does not, or
    /// they are there already.
    pub fn take_partitions(
        &mut self,
        writer: &mut LogWriter<RealDisk>,
    ) -> Option<(BTreeMap<PartitionId, Partition>, Term)> {
        writer.replica()?.leads()?;
        self.apply(writer);
        let mut partitions = self.partitions.take()?;
        for (id, partition) in &mut partitions {
            writer.recount(*id, partition.live_messages());
        }
        let term = writer.leadership().take_over()?;
        partitions.values_mut().for_each(|partition| partition.begin_run(term.0));
        Some((partitions, term))
    }

    /// The cores of a deposed leader give its partitions back: they follow from now on.
    pub fn return_partitions(
        &mut self,
        writer: &mut LogWriter<RealDisk>,
        partitions: BTreeMap<PartitionId, Partition>,
    ) {
        self.partitions = Some(partitions);
        self.apply(writer);
        // Asked for while no one could answer.
        for partition in writer.leadership().awaited_states() {
            self.answer(writer, ToPartition::SnapshotWanted { partition });
        }
    }
}
