//! The end of the log in memory, before the stored entries: all that is not synced yet, and a cache
//! for followers.

use std::cell::RefCell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::engine;
use crate::entry::{Entry, EntryId, Index, NodeId, Term};
use crate::log::{EntryLog, LogError};
use crate::members::Members;
use crate::vote::Vote;

/// Entries that one read from storage returns at most: more than one message takes.
const READ_BYTES_MAX: u64 = 1 << 20;

/// The engine's view of the log: the tail, and the stored entries below it.
pub(crate) struct Tail<L> {
    pub log: L,
    /// Dense. The last one is the end of the log; if it is empty, the log's own end is.
    entries: VecDeque<Entry>,
    bytes: u64,
    /// Bytes of synced entries that are kept to be sent to followers.
    cache_bytes_max: u64,
    /// The last entry known to be synced.
    durable: Index,
    pub handed_out: Index,
    start: (Vote, Index),
    pub members: Members,
    /// The first entry that could not be read.
    failure: RefCell<Option<LogError>>,
    /// The end of a snapshot that is replacing the log: until that is done, the log must not be
    /// looked at.
    restarting: Option<EntryId>,
}

impl<L: EntryLog> Tail<L> {
    pub fn new(log: L, start: (Vote, Index), members: Members, cache_bytes_max: u64) -> Tail<L> {
        Tail {
            durable: log.last(),
            handed_out: start.1,
            log,
            entries: VecDeque::new(),
            bytes: 0,
            cache_bytes_max,
            start,
            members,
            failure: RefCell::new(None),
            restarting: None,
        }
    }

    pub fn durable(&self) -> Index {
        self.durable
    }

    /// Why the log could not be read, if so.
    pub fn failure(&self) -> Option<LogError> {
        self.failure.borrow().clone()
    }

    pub fn last(&self) -> Index {
        let stored = || self.restarting.map_or_else(|| self.log.last(), |last| last.index);
        self.entries.back().map_or_else(stored, |entry| entry.id.index)
    }

    pub fn floor(&self) -> EntryId {
        self.restarting.unwrap_or_else(|| self.log.floor())
    }

    pub fn term_of(&self, index: Index) -> Option<Term> {
        match self.place(index) {
            Some(place) => self.entries.get(place).map(|entry| entry.id.term),
            None if index == self.floor().index => Some(self.floor().term),
            None if index > self.last() || self.restarting.is_some() => None,
            None => self.log.term(index),
        }
    }

    /// Where in the tail an entry is; `None` if it is below.
    fn place(&self, index: Index) -> Option<usize> {
        let first = self.entries.front()?.id.index;
        index.0.checked_sub(first.0).map(|place| place as usize)
    }

    /// Takes entries in that are to be written. Those from the first one's index on are replaced.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        match self.place(first.id.index) {
            Some(place) => {
                let replaced = self.entries.drain(place.min(self.entries.len())..);
                self.bytes -= replaced.map(|entry| entry.payload.len() as u64).sum::<u64>();
            }
            None => {
                self.entries.clear();
                self.bytes = 0;
            }
        }
        self.durable = self.durable.min(first.id.index.previous());
        self.bytes += entries.iter().map(|entry| entry.payload.len() as u64).sum::<u64>();
        self.entries.extend(entries.iter().cloned());
    }

    /// The log is being replaced by a snapshot.
    pub fn restart(&mut self, last: EntryId) {
        self.restarting = Some(last);
        self.entries.clear();
        self.bytes = 0;
        (self.durable, self.handed_out) = (last.index, last.index);
    }

    /// Notes that an entry and all before it are synced, unless it was replaced meanwhile.
    pub fn synced(&mut self, last: EntryId, restarts: bool) {
        if restarts {
            self.restarting = None;
        }
        if self.term_of(last.index) == Some(last.term) {
            self.durable = self.durable.max(last.index);
        }
        self.trim();
    }

    /// Drops entries that are synced and were handed out, except those that fit the cache.
    pub fn trim(&mut self) {
        let through = self.durable.min(self.handed_out);
        while self.bytes > self.cache_bytes_max && self.restarting.is_none() {
            match self.entries.front() {
                Some(front) if front.id.index <= through => self.bytes -= front.payload.len() as u64,
                _ => return,
            }
            self.entries.pop_front();
        }
    }

    fn read(&self, from: Index, through: Index, bytes_max: u64) -> Result<Vec<Entry>, LogError> {
        let first_here = self.entries.front().map(|entry| entry.id.index);
        if let Some(place) = self.place(from) {
            let mut bytes = 0;
            let count = (through.0 + 1 - from.0) as usize;
            let fits = |entry: &&Entry| {
                bytes += entry.payload.len() as u64;
                bytes <= bytes_max || bytes == entry.payload.len() as u64
            };
            return Ok(self.entries.iter().skip(place).take(count).take_while(fits).cloned().collect());
        }
        let below = first_here.map_or(through, |first| through.min(first.previous()));
        self.log.entries(from, below, bytes_max)
    }
}

impl<L: EntryLog> Storage for Tail<L> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let (vote, applied) = self.start;
        let hard_state = HardState {
            term: vote.term.0,
            vote: vote.voted_for.map_or(0, NodeId::get),
            commit: applied.max(self.log.floor().index).0,
            ..HardState::default()
        };
        Ok(RaftState { hard_state, conf_state: conf_state(&self.members) })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<raft::eraftpb::Entry>> {
        if low <= self.floor().index.0 {
            return Err(StorageError::Compacted.into());
        }
        if low >= high {
            return Ok(Vec::new());
        }
        let bytes_max = max_size.into().unwrap_or(READ_BYTES_MAX).min(READ_BYTES_MAX);
        match self.read(Index(low), Index(high - 1), bytes_max) {
            Ok(entries) => Ok(entries.into_iter().map(engine::entry_in).collect()),
            Err(error) => {
                // The engine panics if it cannot read the entries that it must hand out: none are,
                // and the group fails.
                self.failure.borrow_mut().get_or_insert(error);
                match context.can_async() {
                    true => Err(StorageError::LogTemporarilyUnavailable.into()),
                    false => Ok(Vec::new()),
                }
            }
        }
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.floor().index.0 {
            return Err(StorageError::Compacted.into());
        }
        self.term_of(Index(index)).map(|term| term.0).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.floor().index.next().0)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().0)
    }

    /// The name of a snapshot, without its content: files go another way.
    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let index = self.handed_out;
        match self.term_of(index) {
            Some(term) if index > Index(0) => Ok(engine::snapshot(EntryId { index, term }, &self.members)),
            _ => Err(StorageError::SnapshotTemporarilyUnavailable.into()),
        }
    }
}

pub(crate) fn conf_state(members: &Members) -> ConfState {
    let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect();
    let (voters, learners) = (numbers(&members.voters), numbers(&members.learners));
    ConfState { voters, learners, ..ConfState::default() }
}
