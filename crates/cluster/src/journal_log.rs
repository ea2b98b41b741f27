//! The log of a group in the journal of its store: each entry is one group of the journal.
//!
//! Every group begins with a record of [`META_PARTITION`]: its position is the index plus one, its payload the term and the
//! kind. The first group of a new store has index 0 and stands for the place before the log.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postroad_journal::{
    Checkpoint, CommitError, CutError, Disk, Journal, OpenError, Options, Payload, ReadError, Record,
    Recovered,
};
use postroad_model::{PartitionId, Position};

use crate::batch::{BatchError, decode_batch, encode_batch};
use crate::entry::{Entry, EntryId, EntryKind, Index, Term};
use crate::log::{EntryLog, LogError};

/// The partition whose records say which entry a group is. No partition of the broker has this number.
pub const META_PARTITION: PartitionId = PartitionId(u16::MAX);

const OPENING: u8 = 0;
const BATCH: u8 = 1;

/// Why the log of a group cannot be opened or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalLogError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A group was not written. [`JournalLog::open`] tells what is there.
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
    /// `None` after a failed write: to be opened again.
    journal: Option<Journal<D>>,
    floor: EntryId,
    /// The first index of each term above the floor, and that of the floor.
    terms: BTreeMap<Index, Term>,
    last: Index,
}

impl<D: Disk> JournalLog<D> {
    /// Opens the log in a journal's directory; makes it in an empty one. What else was recovered is for the partitions: to
    /// be applied once it is known to be committed.
    ///
    /// # Errors
    /// See [`JournalLogError`].
    pub fn open(disk: D, options: Options) -> Result<(JournalLog<D>, Recovered<D::File>), JournalLogError> {
        let (mut journal, recovered) = Journal::open(disk.clone(), options)?;
        if journal.last_position(META_PARTITION).is_none() {
            if journal.segments().any(|segment| segment.records > 0) {
                return Err(JournalLogError::NotReplicated);
            }
            journal.commit(&[meta(EntryId::default(), EntryKind::Opening)])?;
        }
        let (floor, last) = (EntryId::default(), Index(0));
        let mut log =
            JournalLog { disk, options, journal: Some(journal), floor, terms: BTreeMap::new(), last };
        log.learn(&recovered)?;
        Ok((log, recovered))
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
                let (id, _) =
                    meta_id(record.position, &record.payload).ok_or(JournalLogError::NotReplicated)?;
                self.note(id);
            }
        }
        Ok(())
    }

    fn note(&mut self, id: EntryId) {
        let changes = self.terms.last_key_value().is_none_or(|(_, term)| *term != id.term);
        if changes {
            self.terms.insert(id.index, id.term);
        }
        self.last = id.index;
    }

    /// Writes entries and syncs them. Entries from the first one's index on are replaced.
    ///
    /// # Errors
    /// See [`JournalLogError`]. After [`JournalLogError::Commit`] and [`JournalLogError::Cut`] it is unknown how many of the
    /// entries are stored, and the log must be opened again.
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
            let mut records = vec![meta(entry.id, entry.kind)];
            if entry.kind == EntryKind::Batch {
                records.extend(decode_batch(entry.payload.clone())?);
            }
            journal.append(&records)?;
            self.note(entry.id);
        }
        journal.sync()?;
        self.journal = Some(journal);
        Ok(())
    }

    fn cut_behind(&mut self, index: Index) -> Result<(), JournalLogError> {
        let journal = self.journal.take().ok_or(CommitError::NeedsReopen)?;
        journal.cut_behind(META_PARTITION, position(index))?;
        let (journal, _) = Journal::open(self.disk.clone(), self.options)?;
        self.journal = Some(journal);
        self.terms.split_off(&index.next());
        self.last = index;
        Ok(())
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
        Ok(())
    }

    /// The journal; `None` after a failed write.
    pub fn journal(&mut self) -> Option<&mut Journal<D>> {
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

    fn entries(&self, from: Index, through: Index, bytes_max: u64) -> Result<Vec<Entry>, LogError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for index in from.0..=through.0 {
            let entry = self.entry(Index(index))?;
            bytes += entry.payload.len() as u64;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

impl<D: Disk> JournalLog<D> {
    fn entry(&self, index: Index) -> Result<Entry, LogError> {
        let unreadable = |reason: String| LogError::Unreadable { index, reason };
        if index <= self.floor.index {
            return Err(LogError::Compacted(index));
        }
        let journal = self.journal.as_ref().ok_or_else(|| unreadable("the journal is closed".to_owned()))?;
        let group = journal.read_group(META_PARTITION, position(index));
        let group = group.map_err(|error| unreadable(error.to_string()))?;
        let (first, records) = group.split_first().ok_or(LogError::Compacted(index))?;
        let found = meta_id(first.position, &first.payload.to_bytes());
        let found = found.filter(|(id, _)| id.index == index && Some(id.term) == self.term(index));
        let (id, kind) = found.ok_or_else(|| unreadable("the group is another entry".to_owned()))?;
        let payload = if records.is_empty() { Bytes::new() } else { encode_batch(records) };
        Ok(Entry { id, kind, payload })
    }
}

fn position(index: Index) -> Position {
    Position::new(index.0.saturating_add(1)).unwrap_or(Position::FIRST)
}

fn meta(id: EntryId, kind: EntryKind) -> Record {
    let mut payload = BytesMut::with_capacity(9);
    payload.put_u64_le(id.term.0);
    payload.put_u8(match kind {
        EntryKind::Opening => OPENING,
        EntryKind::Batch => BATCH,
    });
    let payload = Payload::from(payload.freeze());
    Record { partition: META_PARTITION, position: position(id.index), payload, reserve: true, key: None }
}

fn meta_id(position: Position, mut payload: &[u8]) -> Option<(EntryId, EntryKind)> {
    let term = Term(payload.try_get_u64_le().ok()?);
    let kind = match payload.try_get_u8().ok()? {
        OPENING => EntryKind::Opening,
        BATCH => EntryKind::Batch,
        _ => return None,
    };
    payload.is_empty().then_some((EntryId { index: Index(position.get() - 1), term }, kind))
}
