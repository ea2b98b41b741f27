//! One node of the simulation: a replica, its disk, and the state that it applies entries to.

use std::collections::{BTreeMap, VecDeque};

use postroad_journal::{Fault, Operation, SimulatedDisk};

use super::network::{MILLISECOND, Time};
use super::random::Random;
use super::simulation::Broken;
use crate::group::synced_alone;
use crate::{
    Config, Entry, EntryId, EntryKind, EntryLog, Group, Index, LogError, Members, Message, NodeId, Role,
    SnapshotOffer, Term, Turn, Vote, VoteError, VoteFile,
};

/// The synced entries. It reads like a disk: only bytes of finished writes.
#[derive(Clone, Default)]
pub struct StoredLog {
    pub floor: EntryId,
    pub entries: Vec<Entry>,
    /// An entry whose bytes have changed.
    pub rotten: Option<Index>,
}

impl StoredLog {
    fn place(&self, index: Index) -> Option<usize> {
        index.0.checked_sub(self.floor.index.0 + 1).map(|place| place as usize)
    }

    pub fn write(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let place = self.place(first.id.index).expect("never below the floor");
        assert!(place <= self.entries.len(), "a gap in the log");
        self.entries.truncate(place);
        self.entries.extend_from_slice(entries);
        self.rotten.take_if(|rotten| first.id.index <= *rotten);
    }

    pub fn has(&self, id: EntryId) -> bool {
        self.term(id.index) == Some(id.term)
    }

    /// The last entry.
    fn end(&self) -> EntryId {
        self.entries.last().map_or(self.floor, |entry| entry.id)
    }

    fn raise_floor(&mut self, index: Index) {
        let Some(place) = self.place(index) else { return };
        self.floor = self.entries[place].id;
        self.entries.drain(..=place);
        self.rotten.take_if(|rotten| *rotten <= index);
    }
}

impl EntryLog for StoredLog {
    fn floor(&self) -> EntryId {
        self.floor
    }

    fn last(&self) -> Index {
        Index(self.floor.index.0 + self.entries.len() as u64)
    }

    fn term(&self, index: Index) -> Option<Term> {
        self.entries.get(self.place(index)?).map(|entry| entry.id.term)
    }

    fn members(&self) -> Vec<Members> {
        changes(&self.entries).collect()
    }

    fn entries(&self, from: Index, through: Index, bytes_max: u64) -> Result<Vec<Entry>, LogError> {
        let place = self.place(from).ok_or(LogError::Compacted(from))?;
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            bytes += entry.payload.len() as u64;
            bytes <= bytes_max || bytes == entry.payload.len() as u64
        };
        let count = (through.0 + 1 - from.0) as usize;
        if let Some(index) = self.rotten.filter(|rotten| (from..=through).contains(rotten)) {
            return Err(LogError::Unreadable { index, reason: "rotten".to_owned() });
        }
        Ok(self.entries.iter().skip(place).take(count).take_while(fits).cloned().collect())
    }
}

/// The members that entries bring.
pub fn changes(entries: &[Entry]) -> impl Iterator<Item = Members> {
    let changes = entries.iter().filter(|entry| entry.kind == EntryKind::Members);
    changes.map(|entry| Members::decode(entry.id.index, &entry.payload).expect("a list of members"))
}

const DISK_TIME_MAX: Time = 1500 * MILLISECOND;
const MARK_EVERY: Time = 300 * MILLISECOND;

struct Write {
    turn: Turn,
    vote: Option<Vote>,
    restarted: Option<EntryId>,
    append: Vec<Entry>,
}

pub struct Replica {
    pub number: usize,
    group: Option<Group<StoredLog>>,
    /// The log while the process is down.
    log: StoredLog,
    disk: SimulatedDisk,
    vote_file: Option<VoteFile<<SimulatedDisk as postroad_journal::Disk>::File>>,
    writes: VecDeque<Write>,
    disk_free: Time,
    /// Factor of the disk's time.
    pub slowness: u64,
    /// Rises with each start: events for an earlier life are void.
    pub life: u64,
    pub paused_until: Time,
    /// Every entry applied, from index 1.
    pub applied: Vec<Entry>,
    /// How many of them a restart finds again.
    checkpoint: usize,
    /// The members in force, and those before.
    pub members: [Members; 2],
    /// Of the snapshot that is being installed.
    files: Vec<Entry>,
    /// Proposed in this life and not seen again.
    pub proposed: BTreeMap<EntryId2, u64>,
    /// It has noticed the rot.
    pub knows_rot: bool,
    /// Its store is damaged: it waits for a copy of a leader's, and takes no part.
    pub awaits_copy: bool,
    /// A copy was asked for.
    pub fills: bool,
    /// Its disk has lost entries, and it has not been filled since.
    pub lost: bool,
    /// The logs that its disk has lost since it was last whole, for the oracle.
    former: Vec<(StoredLog, Vec<Entry>)>,
    marked_at: Time,
    broken: Broken,
}

/// The store of a leader, as its files are at one moment.
#[derive(Clone)]
pub struct Copy {
    pub term: Term,
    pub log: StoredLog,
    applied: Vec<Entry>,
    members: Members,
}

/// Index and term, ordered.
pub type EntryId2 = (u64, u64);

/// The work of a replica in one round.
#[derive(Default)]
pub struct Done {
    pub messages: Vec<Message>,
    pub applied: Vec<Entry>,
    pub role: Option<(Role, Term)>,
    /// When the disk has finished the writes that were begun.
    pub disk_times: Vec<Time>,
    pub offer: Option<SnapshotOffer>,
}

impl Replica {
    pub fn new(number: usize, seed: u64, broken: Broken) -> Replica {
        let disk = SimulatedDisk::new(seed);
        VoteFile::create(&disk).expect("an empty disk");
        Replica {
            number,
            group: None,
            log: StoredLog::default(),
            disk,
            vote_file: None,
            writes: VecDeque::new(),
            disk_free: 0,
            slowness: 1,
            life: 0,
            paused_until: 0,
            applied: Vec::new(),
            checkpoint: 0,
            members: Default::default(),
            files: Vec::new(),
            proposed: BTreeMap::new(),
            knows_rot: false,
            awaits_copy: false,
            fills: false,
            lost: false,
            former: Vec::new(),
            marked_at: 0,
            broken,
        }
    }

    pub fn is_up(&self) -> bool {
        self.group.is_some()
    }

    pub fn group(&mut self) -> Option<&mut Group<StoredLog>> {
        self.group.as_mut()
    }

    pub fn leads(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.status().role == Role::Leader)
    }

    /// Whether its disk has the entry, in the log or in a snapshot.
    pub fn has_synced(&self, id: EntryId) -> bool {
        let log = self.group.as_ref().map_or(&self.log, Group::log);
        let place = id.index.0 as usize - 1;
        let has = |applied: &[Entry]| applied.get(place).is_some_and(|entry| entry.id == id);
        // As far as its disk has not lied about it.
        let mut lost = self.former.iter();
        log.has(id)
            || has(&self.applied[..self.checkpoint])
            || lost.any(|(former, had)| former.has(id) || has(had))
    }

    pub fn start(&mut self, first: &Members, random: &mut Random) {
        let vote_file = VoteFile::open(&self.disk).expect("votes survive");
        self.applied.truncate(self.checkpoint);
        let config = Config {
            node: NodeId::new(self.number as u64 + 1).expect("not zero"),
            members: match vote_file.members() {
                Some(members) if self.broken != Broken::ForgetsMembers => members.clone(),
                _ => first.clone(),
            },
            seed: random.number(),
            uncommitted_bytes_max: 1 << 20,
            cache_bytes_max: random.below(2000),
        };
        let log = std::mem::take(&mut self.log);
        let (mark, last) = (vote_file.mark(), log.end());
        if (last.term, last.index) < (mark.term, mark.index) && self.broken != Broken::TrustsShortLogs {
            return self.leave_store(log);
        }
        let applied = Index(self.checkpoint as u64);
        let mut group =
            Group::open(&config, log, vote_file.vote(), applied).expect("a store that fits together");
        group.commits_alone = self.broken == Broken::CommitsAlone;
        self.members = [group.members().clone(), group.members().clone()];
        (self.group, self.vote_file) = (Some(group), Some(vote_file));
        self.life += 1;
    }

    /// The power fails: some of the bytes that are not synced survive.
    pub fn crash(&mut self, random: &mut Random) {
        let Some(mut group) = self.group.take() else { return };
        self.log = std::mem::take(group.log_mut());
        self.proposed.clear();
        // Until it is found again.
        self.knows_rot = false;
        let finished = random.below(self.writes.len() as u64 + 1) as usize;
        for write in self.writes.drain(..finished).collect::<Vec<_>>() {
            self.write(&write, write.append.len()).expect("no fault is planned");
        }
        if let Some(write) = self.writes.pop_front() {
            if random.one_in(2) {
                self.disk.fail(Operation::Sync, 0, Fault::Broken);
                let failed = write
                    .vote
                    .zip(self.vote_file.as_mut())
                    .is_some_and(|(vote, file)| file.write(vote).is_err());
                // Entries follow their turn's vote, and the mark if it is lowered.
                if !failed {
                    let _ = self.write(&write, random.below(write.append.len() as u64 + 1) as usize);
                }
            }
            self.writes.clear();
        }
        self.disk.clear_faults();
        self.disk.crash();
        self.vote_file = None;
    }

    fn write(&mut self, write: &Write, entries: usize) -> Result<(), VoteError> {
        if let Some((vote, file)) = write.vote.zip(self.vote_file.as_mut())
            && self.broken != Broken::ForgetsVote
        {
            file.write(vote)?;
        }
        let log = self.group.as_mut().map_or(&mut self.log, Group::log_mut);
        if let Some(last) = write.restarted {
            *log = StoredLog { floor: last, ..StoredLog::default() };
            self.checkpoint = last.index.0 as usize;
            if let Some(file) = &mut self.vote_file {
                file.write_mark(last)?;
            }
        }
        let entries = &write.append[..entries];
        if let (Some(first), Some(file)) = (entries.first(), self.vote_file.as_mut())
            && first.id.index <= file.mark().index
        {
            let index = first.id.index.previous();
            let term = if index == log.floor.index { log.floor.term } else { log.term(index).unwrap() };
            file.write_mark(EntryId { index, term })?;
        }
        log.write(entries);
        Ok(())
    }

    /// Writes the mark of stored entries once in a while.
    pub fn mark(&mut self, now: Time) {
        let (Some(group), Some(file)) = (&self.group, self.vote_file.as_mut()) else { return };
        if self.marked_at + MARK_EVERY <= now && file.mark() != group.log().end() {
            file.write_mark(group.log().end()).expect("no fault is planned");
            self.marked_at = now;
        }
    }

    /// Damage was found in the store: it waits for a copy, and keeps its vote.
    fn leave_store(&mut self, log: StoredLog) {
        self.former.push((log, std::mem::take(&mut self.applied)));
        (self.log, self.checkpoint, self.knows_rot) = (StoredLog::default(), 0, false);
        self.awaits_copy = true;
    }

    /// The process begins again without its store.
    pub fn leave(&mut self, random: &mut Random) {
        self.crash(random);
        let log = std::mem::take(&mut self.log);
        self.leave_store(log);
    }

    /// An entry rots, if there is one.
    pub fn rot(&mut self, random: &mut Random) -> bool {
        let Some(group) = &mut self.group else { return false };
        let log = group.log_mut();
        if log.entries.is_empty() || log.rotten.is_some() {
            return false;
        }
        log.rotten = Some(Index(random.between(log.floor.index.0 + 1, log.last().0)));
        true
    }

    /// Whether it runs or not. A process that knows of rot leaves its store, also if these entries
    /// are needed no more.
    pub fn is_rotten(&self) -> bool {
        self.knows_rot || self.group.as_ref().map_or(&self.log, Group::log).rotten.is_some()
    }

    /// Whether nothing of its store is damaged, as far as the simulation knows.
    pub fn is_whole(&self) -> bool {
        !self.awaits_copy && !self.is_rotten() && !self.lost
    }

    /// The power fails, and entries are gone whose sync had succeeded, marked ones among them.
    pub fn lose_entries(&mut self, random: &mut Random) -> bool {
        self.crash(random);
        let mark = VoteFile::open(&self.disk).expect("votes survive").mark();
        // No state without its log, so that the loss is not found by that.
        let (least, last) = (self.log.floor.index.0.max(self.checkpoint as u64), self.log.last().0);
        if mark.index.0 <= least || last < mark.index.0 {
            return false;
        }
        self.former.push((self.log.clone(), Vec::new()));
        let kept = random.between(least, mark.index.0 - 1);
        self.log.entries.truncate((kept - self.log.floor.index.0) as usize);
        true
    }

    /// The files of the store, if this node leads for certain, and they are whole.
    pub fn copy(&self) -> Option<Copy> {
        let group = self.group.as_ref().filter(|_| self.leads() && self.writes.is_empty())?;
        let (term, log) = (group.status().term, group.log());
        let leads = self.applied.last().is_some_and(|entry| entry.id.term == term) && log.rotten.is_none();
        let (applied, members) = (self.applied[..self.checkpoint].to_vec(), self.members[1].clone());
        leads.then(|| Copy { term, log: log.clone(), applied, members })
    }

    /// The latest term that the node of a damaged store has seen.
    pub fn least_term(&self) -> Term {
        match self.broken {
            Broken::FillsFromFormerLeaders => Term(0),
            _ => VoteFile::open(&self.disk).expect("votes survive").vote().term,
        }
    }

    /// A copy takes the place of the damaged store.
    pub fn fill(&mut self, copy: Copy) {
        let mut file = VoteFile::open(&self.disk).expect("votes survive");
        let term = copy.term.max(file.vote().term);
        let voted_for = NodeId::new(self.number as u64 + 1);
        file.write(Vote { term, voted_for }).expect("no fault is planned");
        file.write_mark(copy.log.end()).expect("no fault is planned");
        file.write_members(copy.members).expect("no fault is planned");
        (self.checkpoint, self.applied, self.log) = (copy.applied.len(), copy.applied, copy.log);
        self.awaits_copy = false;
        self.former.clear();
    }

    /// The disk has finished its oldest write.
    pub fn disk_done(&mut self) {
        let Some(write) = self.writes.pop_front() else { return };
        self.write(&write, write.append.len()).expect("no fault is planned");
        if let Some(group) = &mut self.group
            && self.broken != Broken::AnswersUnsynced
        {
            group.persisted(write.turn);
        }
    }

    pub fn propose(&mut self, payload: u64, padding: usize) -> Option<EntryId> {
        let mut bytes = payload.to_le_bytes().to_vec();
        bytes.resize(8 + padding, 7);
        let id = self.group.as_mut()?.propose(bytes.into()).ok()?;
        self.proposed.insert((id.index.0, id.term.0), payload);
        Some(id)
    }

    /// Carries out the actions that the replica requests.
    pub fn work(&mut self, now: Time, random: &mut Random) -> Done {
        let mut done = Done::default();
        let Some(mut group) = self.group.take() else { return done };
        loop {
            let mut actions = match group.actions() {
                Ok(Some(actions)) => actions,
                Ok(None) => break,
                Err(_) => {
                    assert!(group.log().rotten.is_some(), "a log that cannot be read");
                    self.group = Some(group);
                    self.leave(random);
                    return done;
                }
            };
            let after = Index(self.applied.len() as u64);
            done.messages.append(&mut actions.messages);
            done.role = actions.role.or(done.role);
            let early = actions.committed.iter().filter(|entry| entry.id.index > after).cloned();
            self.applied.extend(early.clone());
            done.applied.extend(early);
            if let (Some(members), Some(file)) = (actions.members, self.vote_file.as_mut()) {
                file.write_members(members.clone()).expect("no fault is planned");
                group.change_members();
                self.members.swap(0, 1);
                self.members[1] = members;
            }
            if actions.turn == Turn(0) {
                continue;
            }
            if actions.restarted.is_some() {
                self.applied = std::mem::take(&mut self.files);
            }
            let write = Write {
                turn: actions.turn,
                vote: actions.vote,
                restarted: actions.restarted,
                append: actions.append,
            };
            if self.broken == Broken::AnswersUnsynced {
                group.persisted(write.turn);
            }
            let syncs = write.vote.is_some() || write.restarted.is_some() || !write.append.is_empty();
            let time = if syncs { random.between(200, 4 * MILLISECOND) * self.slowness } else { 0 };
            // Writes that wait are synced together, so that a slow disk has no endless queue.
            self.disk_free = (self.disk_free.max(now) + time).min(now + DISK_TIME_MAX);
            done.disk_times.push(self.disk_free);
            self.writes.push_back(write);
        }
        let alone = synced_alone(&group, Index(self.applied.len() as u64));
        self.applied.extend(alone.iter().cloned());
        done.applied.extend(alone);
        done.offer = group.snapshot_offer();
        self.group = Some(group);
        done
    }

    /// Makes the applied entries durable, and forgets a part of the log.
    pub fn take_checkpoint(&mut self, random: &mut Random) {
        let Some(group) = self.group.as_mut().filter(|_| self.writes.is_empty()) else { return };
        let durable = group.status().durable.0 as usize;
        self.checkpoint = self.checkpoint.max(self.applied.len().min(durable));
        let (floor, last) = (group.log().floor.index.0, group.log().last().0);
        let through = random.between(floor, (self.checkpoint as u64).min(last).max(floor));
        group.log_mut().raise_floor(Index(through));
    }

    /// Takes the files of a snapshot in, if they are still wanted.
    pub fn install(&mut self, offer: SnapshotOffer, files: Vec<Entry>, first: &Members) -> bool {
        let members = changes(&files).last().unwrap_or_else(|| first.clone());
        self.files = files;
        self.group.as_mut().is_some_and(|group| group.install_snapshot(offer, members))
    }
}
