//! The log of a group in the journal of its store: each entry is one group of the journal.
//!
//! Every group begins with a record of [`META_PARTITION`]: its position is the index plus one, its
//! payload the term and the kind. The first group of a new store has index 0 and stands for the
//! place before the log.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postroad_journal::{
    Checkpoint, CommitError, CutError, Disk, Journal, Keys, OpenError, Options, Payload, ReadError, Record,
    Recovered,
};
use postroad_model::{PartitionId, Position};

use crate::batch::{BatchError, decode_batch, encode_batch};
use crate::entry::{Entry, EntryId, EntryKind, Index, Term};
use crate::log::{EntryLog, LogError};
use crate::members::Members;
use crate::vote::ERA_TERMS;

/// The partition whose records say which entry a group is. No partition of the broker has this
/// number.
pub const META_PARTITION: PartitionId = PartitionId(u16::MAX);

const OPENING: u8 = 0;
const BATCH: u8 = 1;
const MEMBERS: u8 = 2;

/// Why the log of a group cannot be opened or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalLogError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A group was not written. [`JournalLog::open`] shows the entries that are there.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Groups were not cut off.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// A record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An entry that is to be replaced was compacted or is before the floor.
    #[error("entry {} is below the end of what may be replaced", .0.0)]
    Below(Index),
    /// An entry's payload is no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The journal has records and no meta partition, or one that cannot be understood.
    #[error("the store is not that of a replica")]
    NotReplicated,
}

/// See the head of this file.
pub struct JournalLog<D: Disk> {
    disk: D,
    options: Options,
    keys: Keys,
    /// `None` after a failed write: to be opened again.
    journal: Option<Journal<D>>,
    floor: EntryId,
    /// The first index of each term above the floor, and that of the floor.
    terms: BTreeMap<Index, Term>,
    last: Index,
    /// The entry whose state the checkpoint has that was recovered.
    checkpointed: Index,
    /// Changes of members behind the checkpoint with which it was opened.
    members: Vec<Members>,
}

impl<D: Disk> JournalLog<D> {
    /// Opens the log in a journal's directory; makes it in an empty one. Other recovered records
    /// are for the partitions: to be applied once they are known to be committed.
    ///
    /// # Errors
    /// See [`JournalLogError`].
    pub fn open(disk: D, options: Options) -> Result<(JournalLog<D>, Recovered<D::File>), JournalLogError> {
        let (journal, recovered) = Journal::open(disk.clone(), options)?;
        let log = JournalLog::over(disk, (options, Keys::default()), journal, &recovered)?;
        Ok((log, recovered))
    }

    /// The log in a journal that was just opened on this disk, with these options and keys.
    ///
    /// # Errors
    /// See [`JournalLogError`].
    pub fn over(
        disk: D,
        (options, keys): (Options, Keys),
        mut journal: Journal<D>,
        recovered: &Recovered<D::File>,
    ) -> Result<JournalLog<D>, JournalLogError> {
        if journal.last_position(META_PARTITION).is_none() {
            if journal.segments().any(|segment| segment.records > 0) {
                return Err(JournalLogError::NotReplicated);
            }
            let (id, kind) = (EntryId::default(), EntryKind::Opening);
            journal.commit(&[meta(&Entry { id, kind, payload: Bytes::new() })])?;
        }
        let first = journal.first_whole(META_PARTITION, u64::MAX);
        let mut log = JournalLog {
            disk,
            options,
            keys,
            journal: Some(journal),
            floor: EntryId::default(),
            terms: BTreeMap::new(),
            last: Index(0),
            checkpointed: Index(0),
            members: Vec::new(),
        };
        log.learn(recovered)?;
        log.set_floor(first.map_or(Index(0), |first| Index(first.get() - 1)).previous());
        Ok(log)
    }

    fn learn(&mut self, recovered: &Recovered<D::File>) -> Result<(), JournalLogError> {
        self.terms.insert(Index(0), Term(0));
        for stored in &recovered.checkpoints {
            if stored.partition == META_PARTITION {
                self.restore(stored.read()?)?;
            }
        }
        for record in recovered.records() {
            let record = record?;
            if record.partition == META_PARTITION {
                let entry =
                    meta_entry(record.position, &record.payload).ok_or(JournalLogError::NotReplicated)?;
                self.note(&entry);
            }
        }
        Ok(())
    }

    fn note(&mut self, entry: &Entry) {
        let id = entry.id;
        let changes = self.terms.last_key_value().is_none_or(|(_, term)| *term != id.term);
        if changes {
            self.terms.insert(id.index, id.term);
        }
        self.last = id.index;
        if entry.kind == EntryKind::Members {
            self.members.extend(Members::decode(id.index, &entry.payload));
        }
    }

    /// Writes entries and syncs them. Entries from the first one's index on are replaced.
    ///
    /// # Errors
    /// See [`JournalLogError`]. After [`JournalLogError::Commit`] and [`JournalLogError::Cut`] it
    /// is unknown how many of the entries are stored, and the log must be opened again.
    pub fn append(&mut self, entries: &[Entry]) -> Result<(), JournalLogError> {
        let Some(first) = entries.first() else { return Ok(()) };
        if first.id.index <= self.floor.index {
            return Err(JournalLogError::Below(first.id.index));
        }
        if first.id.index <= self.last {
            self.cut_behind(first.id.index.previous())?;
        }
        let mut journal = self.journal.take().ok_or(CommitError::NeedsReopen)?;
        for entry in entries {
            let mut records = vec![meta(entry)];
            if entry.kind == EntryKind::Batch {
                records.extend(decode_batch(entry.payload.clone())?);
            }
            journal.append(&records)?;
            self.note(entry);
        }
        journal.sync()?;
        self.journal = Some(journal);
        Ok(())
    }

    fn cut_behind(&mut self, index: Index) -> Result<(), JournalLogError> {
        let journal = self.journal.take().ok_or(CommitError::NeedsReopen)?;
        journal.cut_behind(META_PARTITION, position(index))?;
        let (disk, keys) = (self.disk.clone(), self.keys.clone());
        let (mut journal, _) = Journal::open_with(disk, self.options, keys, &mut |_, _| ())?;
        journal.keep_from(META_PARTITION, position(self.floor.index.next()));
        self.journal = Some(journal);
        self.terms.split_off(&index.next());
        self.members.retain(|members| members.since <= index);
        self.last = index;
        Ok(())
    }

    /// The first entry of each term, in their order; that of the first may be below the floor.
    pub fn runs(&self) -> Vec<EntryId> {
        self.terms.iter().map(|(index, term)| EntryId { index: *index, term: *term }).collect()
    }

    /// The last entry that a log of an era before has, too: it has these runs, and ends with
    /// `last`. `None` if this log does not have the end of that era any more, or none of its
    /// entries.
    pub fn shared_with(&self, runs: &[EntryId], last: Index) -> Option<EntryId> {
        let own = self.runs();
        // By Raft the logs of one era have all before an entry in common if they have that entry.
        let begins_era = |pair: &&[EntryId]| pair[0].term.0 + ERA_TERMS <= pair[1].term.0;
        let era = own.windows(2).filter(begins_era).map(|pair| pair[1].index.previous()).max()?;
        let run = |runs: &[EntryId], at: Index| runs.iter().rev().find(|run| run.index <= at).copied();
        let mut at = era.min(last);
        while self.floor.index <= at {
            let (ours, theirs) = (run(&own, at)?, run(runs, at)?);
            if ours.term == theirs.term {
                return Some(EntryId { index: at, term: ours.term });
            }
            let first = ours.index.max(theirs.index);
            if first == Index(0) {
                return None;
            }
            at = first.previous();
        }
        None
    }

    /// Cuts all entries after this one off, of a log that takes no part in a group.
    ///
    /// # Errors
    /// See [`JournalLogError`].
    pub fn cut_to(&mut self, index: Index) -> Result<(), JournalLogError> {
        if self.last <= index { Ok(()) } else { self.cut_behind(index) }
    }

    /// The state of the meta partition through this entry, for a checkpoint.
    pub fn checkpoint(&self, through: Index) -> Checkpoint {
        let mut state = BytesMut::new();
        for (first, term) in self.terms.range(..=through) {
            state.put_u64_le(first.0);
            state.put_u64_le(term.0);
        }
        Checkpoint { partition: META_PARTITION, position: position(through), state: state.freeze().into() }
    }

    fn restore(&mut self, checkpoint: Checkpoint) -> Result<(), JournalLogError> {
        let mut state = checkpoint.state.to_bytes();
        while state.has_remaining() {
            let first = state.try_get_u64_le().map_err(|_| JournalLogError::NotReplicated)?;
            let term = state.try_get_u64_le().map_err(|_| JournalLogError::NotReplicated)?;
            self.terms.insert(Index(first), Term(term));
        }
        self.last = Index(checkpoint.position.get() - 1);
        self.checkpointed = self.last;
        Ok(())
    }

    /// The entry whose state the checkpoint has with which the journal was opened.
    pub fn checkpointed(&self) -> Index {
        self.checkpointed
    }

    /// Raises the floor; the journal may recycle and compact segments below. The last `bytes_min`
    /// of groups stay for lagging replicas, and all entries after `limit`.
    pub fn raise_floor(&mut self, limit: Index, bytes_min: u64) {
        let journal = self.journal.as_ref();
        let first = journal.and_then(|journal| journal.first_whole(META_PARTITION, bytes_min));
        let below = first.map_or(Index(0), |first| Index(first.get() - 1)).previous();
        self.set_floor(below.min(limit).max(self.floor.index));
    }

    fn set_floor(&mut self, index: Index) {
        let run = self.terms.range(..=index).next_back().map(|(first, term)| (*first, *term));
        if let Some((first, term)) = run {
            self.terms = self.terms.split_off(&first);
            self.floor = EntryId { index, term };
        }
        let first = position(self.floor.index.next());
        if let Some(journal) = &mut self.journal {
            journal.keep_from(META_PARTITION, first);
        }
    }

    /// The journal; `None` after a failed write.
    pub fn journal(&self) -> Option<&Journal<D>> {
        self.journal.as_ref()
    }

    /// As [`JournalLog::journal`]. Groups committed by it directly are no entries.
    pub fn journal_mut(&mut self) -> Option<&mut Journal<D>> {
        self.journal.as_mut()
    }
}

impl<D: Disk> EntryLog for JournalLog<D> {
    fn floor(&self) -> EntryId {
        self.floor
    }

    fn last(&self) -> Index {
        self.last
    }

    fn term(&self, index: Index) -> Option<Term> {
        let known = self.floor.index <= index && index <= self.last;
        self.terms.range(..=index).next_back().filter(|_| known).map(|(_, term)| *term)
    }

    fn members(&self) -> Vec<Members> {
        self.members.clone()
    }

    fn entries(&self, from: Index, through: Index, bytes_max: u64) -> Result<Vec<Entry>, LogError> {
        let mut entries: Vec<Entry> = Vec::new();
        let (mut next, mut bytes) = (from, 0);
        while next <= through && (bytes < bytes_max || entries.is_empty()) {
            for entry in self.read(next, bytes_max - bytes.min(bytes_max))? {
                bytes += entry.payload.len() as u64;
                if through < entry.id.index || bytes_max < bytes && !entries.is_empty() {
                    return Ok(entries);
                }
                next = entry.id.index.next();
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}

impl<D: Disk> JournalLog<D> {
    /// Entries from one on, at least that one, to the end of its segment at most.
    fn read(&self, from: Index, bytes_max: u64) -> Result<Vec<Entry>, LogError> {
        let unreadable = |index: Index, reason: String| LogError::Unreadable { index, reason };
        if from <= self.floor.index {
            return Err(LogError::Compacted(from));
        }
        let journal = self.journal.as_ref();
        let journal = journal.ok_or_else(|| unreadable(from, "the journal is closed".to_owned()))?;
        let groups = journal.read_groups(META_PARTITION, position(from), bytes_max);
        let groups = groups.map_err(|error| unreadable(from, error.to_string()))?;
        let mut entries = Vec::with_capacity(groups.len());
        for (group, index) in groups.into_iter().zip(from.0..).map(|(group, index)| (group, Index(index))) {
            let (first, records) = group.split_first().ok_or(LogError::Compacted(index))?;
            let found = meta_entry(first.position, &first.payload.to_bytes());
            let found = found.filter(|it| it.id.index == index && Some(it.id.term) == self.term(index));
            let entry = found.ok_or_else(|| unreadable(index, "the group is another entry".to_owned()))?;
            let payload = if records.is_empty() { entry.payload } else { encode_batch(records) };
            entries.push(Entry { payload, ..entry });
        }
        Ok(entries)
    }
}

fn position(index: Index) -> Position {
    Position::new(index.0.saturating_add(1)).unwrap_or(Position::FIRST)
}

fn meta(entry: &Entry) -> Record {
    let mut payload = BytesMut::with_capacity(9);
    payload.put_u64_le(entry.id.term.0);
    payload.put_u8(match entry.kind {
        EntryKind::Opening => OPENING,
        EntryKind::Batch => BATCH,
        EntryKind::Members => MEMBERS,
    });
    if entry.kind == EntryKind::Members {
        payload.put_slice(&entry.payload);
    }
    let (position, payload) = (position(entry.id.index), Payload::from(payload.freeze()));
    Record { partition: META_PARTITION, position, payload, reserve: true, key: None }
}

/// The entry of a group by its first record; the payload of a batch is in the others.
fn meta_entry(position: Position, mut payload: &[u8]) -> Option<Entry> {
    let term = Term(payload.try_get_u64_le().ok()?);
    let kind = match payload.try_get_u8().ok()? {
        OPENING => EntryKind::Opening,
        BATCH => EntryKind::Batch,
        MEMBERS => EntryKind::Members,
        _ => return None,
    };
    let id = EntryId { index: Index(position.get() - 1), term };
    let fits = match kind {
        EntryKind::Members => Members::decode(id.index, payload).is_some(),
        _ => payload.is_empty(),
    };
    fits.then(|| Entry { id, kind, payload: Bytes::copy_from_slice(payload) })
}
