//! One node of the simulation: a replica, its disk, and the state that it applies entries to.

use std::collections::{BTreeMap, VecDeque};

use postroad_journal::{Fault, Operation, SimulatedDisk};

use super::network::{MILLISECOND, Time};
use super::random::Random;
use super::simulation::Broken;
use crate::group::synced_alone;
use crate::{
    Config, Entry, EntryId, EntryKind, EntryLog, Group, Index, LogError, Members, Message, NodeId, Role,
    SnapshotOffer, Term, Turn, Vote, VoteFile,
};

/// The synced entries. It reads like a disk: only bytes of finished writes.
#[derive(Clone, Default)]
pub struct StoredLog {
    pub floor: EntryId,
    pub entries: Vec<Entry>,
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
    }

    pub fn has(&self, id: EntryId) -> bool {
        self.term(id.index) == Some(id.term)
    }

    fn raise_floor(&mut self, index: Index) {
        let Some(place) = self.place(index) else { return };
        self.floor = self.entries[place].id;
        self.entries.drain(..=place);
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
        Ok(self.entries.iter().skip(place).take(count).take_while(fits).cloned().collect())
    }
}

/// The members that entries bring.
pub fn changes(entries: &[Entry]) -> impl Iterator<Item = Members> {
    let changes = entries.iter().filter(|entry| entry.kind == EntryKind::Members);
    changes.map(|entry| Members::decode(entry.id.index, &entry.payload).expect("a list of members"))
}

const DISK_TIME_MAX: Time = 1500 * MILLISECOND;

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
    broken: Broken,
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
        log.has(id) || place < self.checkpoint && self.applied[place].id == id
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
        let finished = random.below(self.writes.len() as u64 + 1) as usize;
        for write in self.writes.drain(..finished).collect::<Vec<_>>() {
            self.write(&write, write.append.len());
        }
        if let Some(write) = self.writes.pop_front() {
            if random.one_in(2) {
                self.disk.fail(Operation::Sync, 0, Fault::Broken);
                let failed = write
                    .vote
                    .zip(self.vote_file.as_mut())
                    .is_some_and(|(vote, file)| file.write(vote).is_err());
                // Entries follow their turn's vote.
                if !failed {
                    self.write(&write, random.below(write.append.len() as u64 + 1) as usize);
                }
            }
            self.writes.clear();
        }
        self.disk.clear_faults();
        self.disk.crash();
        self.vote_file = None;
    }

    fn write(&mut self, write: &Write, entries: usize) {
        if let Some((vote, file)) = write.vote.zip(self.vote_file.as_mut())
            && self.broken != Broken::ForgetsVote
        {
            file.write(vote).expect("no fault is planned");
        }
        let log = self.group.as_mut().map_or(&mut self.log, Group::log_mut);
        if let Some(last) = write.restarted {
            *log = StoredLog { floor: last, entries: Vec::new() };
            self.checkpoint = last.index.0 as usize;
        }
        log.write(&write.append[..entries]);
    }

    /// The disk has finished its oldest write.
    pub fn disk_done(&mut self) {
        let Some(write) = self.writes.pop_front() else { return };
        self.write(&write, write.append.len());
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
        while let Some(mut actions) = group.actions().expect("a log that can be read") {
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
