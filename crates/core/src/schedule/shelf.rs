//! Shelves: records of the log with jobs that are due late, and their data in memory.
//!
//! ```text
//!   calendar ── Shelve: the last jobs of it, as one record ──▶ shelf: first, last, how many; a bit for each job's message
//!            ◀── Unshelve: the jobs read from that record ───
//! ```
//! A shelf is never changed: all of its jobs come back together, before the first of them is due,
//! or before one of them ends. Shelves may overlap, as jobs come in any order.
//! Never here: when that happens.

use std::collections::{BTreeMap, HashMap};

use postroad_model::{Due, MessageKey, MessageRow, Position};
use rustc_hash::FxBuildHasher;

use super::Job;

/// Positions to a chunk of [`ShelvedKeys`].
const CHUNK: u64 = 512;
const WORD: u64 = u64::BITS as u64;

/// Words of a chunk.
pub const WORDS: usize = (CHUNK / WORD) as usize;

/// One record with jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shelf {
    /// The record.
    pub position: Position,
    /// When the first of its jobs is due,
    pub first: Due,
    /// and the last one.
    pub last: Due,
    /// How many there are.
    pub jobs: u32,
    /// Bytes of them in the record.
    pub bytes: u32,
}

/// The state of a shelf; known to this run alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handling {
    /// Nothing.
    #[default]
    Lies,
    /// Its record is being read, to bring its jobs back.
    Read,
    /// Its jobs are on their way back through the log.
    Comes,
    /// Its record cannot be read: it stays where it is until the next start.
    Unreadable,
}

/// The shelves of a partition.
#[derive(Default)]
pub struct Shelves {
    /// By the first of their jobs, which no other has.
    by_first: BTreeMap<Due, (Shelf, Handling)>,
    /// The first job of each record.
    firsts: HashMap<Position, Due, FxBuildHasher>,
    /// The messages of all of their jobs.
    pub keys: ShelvedKeys,
    jobs: usize,
    /// How many are on their way back.
    moving: usize,
}

impl Handling {
    fn is_moving(self) -> bool {
        matches!(self, Handling::Read | Handling::Comes)
    }
}

impl Shelves {
    /// Takes a shelf in whose keys are in [`Shelves::keys`]. `false`, and nothing happens, if there
    /// is one with its record or its first job.
    pub fn insert(&mut self, shelf: Shelf) -> bool {
        if self.firsts.contains_key(&shelf.position) || self.by_first.contains_key(&shelf.first) {
            return false;
        }
        self.jobs += shelf.jobs as usize;
        self.firsts.insert(shelf.position, shelf.first);
        self.by_first.insert(shelf.first, (shelf, Handling::Lies));
        true
    }

    /// Takes a shelf out, and leaves [`Shelves::keys`] as it is.
    pub fn remove(&mut self, position: Position) -> Option<Shelf> {
        let first = self.firsts.remove(&position)?;
        let (shelf, handling) = self.by_first.remove(&first)?;
        self.jobs -= shelf.jobs as usize;
        self.moving -= usize::from(handling.is_moving());
        Some(shelf)
    }

    /// Jobs on all of them.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// All of them, the soonest first.
    pub fn iter(&self) -> impl Iterator<Item = &Shelf> {
        self.by_first.values().map(|(shelf, _)| shelf)
    }

    /// The first one that just lies there.
    pub fn next(&self) -> Option<&Shelf> {
        let mut lying = self.by_first.values().filter(|(_, handling)| *handling == Handling::Lies);
        lying.next().map(|(shelf, _)| shelf)
    }

    /// How many are on their way back.
    pub fn moving(&self) -> usize {
        self.moving
    }

    /// The state of the shelf of this record; `None` if there is none.
    pub fn handling(&self, position: Position) -> Option<Handling> {
        Some(self.by_first.get(self.firsts.get(&position)?)?.1)
    }

    /// Its record cannot be read; how many jobs that concerns, if it was not known before.
    pub fn set_aside(&mut self, position: Position) -> u64 {
        let shelf = self.firsts.get(&position).and_then(|first| self.by_first.get(first));
        let jobs =
            shelf.filter(|(_, handling)| *handling != Handling::Unreadable).map(|(shelf, _)| shelf.jobs);
        self.handle(position, Handling::Unreadable);
        jobs.map_or(0, u64::from)
    }

    /// Something else happens to it from now on.
    pub fn handle(&mut self, position: Position, handling: Handling) {
        if let Some(first) = self.firsts.get(&position)
            && let Some(shelf) = self.by_first.get_mut(first)
        {
            self.moving += usize::from(handling.is_moving());
            self.moving -= usize::from(shelf.1.is_moving());
            shelf.1 = handling;
        }
    }
}

/// Messages of jobs that are on shelves: a bit for each, and the total size of the bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShelvedKeys {
    /// By the message's place in its record, and by the record. None is empty.
    chunks: BTreeMap<(u32, u64), Chunk>,
}

/// Messages whose records follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Which of them are here.
    pub bits: [u64; WORDS],
    /// The total size of their bodies.
    pub body_bytes: u64,
}

fn place(due: &Due) -> ((u32, u64), usize, u64) {
    let position = due.position.get();
    ((due.ordinal, position / CHUNK), (position % CHUNK / WORD) as usize, 1 << (position % WORD))
}

impl ShelvedKeys {
    /// The message of one more job.
    pub fn add(&mut self, due: &Due, job: &Job) {
        let (number, word, bit) = place(due);
        let chunk = self.chunks.entry(number).or_default();
        chunk.bits[word] |= bit;
        chunk.body_bytes += u64::from(job.bytes);
    }

    /// The message of a job that is on no shelf any more.
    pub fn remove(&mut self, due: &Due, job: &Job) {
        let (number, word, bit) = place(due);
        let Some(chunk) = self.chunks.get_mut(&number) else { return };
        chunk.bits[word] &= !bit;
        chunk.body_bytes = chunk.body_bytes.saturating_sub(u64::from(job.bytes));
        if chunk.bits == [0; WORDS] {
            self.chunks.remove(&number);
        }
    }

    /// All of them, in rows; bodies count by their average size.
    pub fn rows(&self) -> impl Iterator<Item = MessageRow> {
        self.chunks.iter().flat_map(|((ordinal, number), chunk)| {
            let count: u32 = chunk.bits.iter().map(|word| word.count_ones()).sum();
            let body_bytes = chunk.body_bytes / u64::from(count.max(1));
            let is_here = |place: &u64| chunk.bits[(place / WORD) as usize] >> (place % WORD) & 1 == 1;
            let here: Vec<u64> = (0..CHUNK).filter(is_here).collect();
            let rows = here.chunk_by(|one, next| one + 1 == *next).filter_map(|run| {
                let first = Position::new(number * CHUNK + run.first()?)?;
                let records = run.len() as u64;
                Some(MessageRow { records, ..MessageRow::of_one(first, *ordinal, body_bytes) })
            });
            rows.collect::<Vec<_>>()
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = MessageKey> {
        self.rows().flat_map(|row| row.keys())
    }

    /// As a snapshot has them: by the place in the record and the number of the chunk.
    pub fn chunks(&self) -> impl Iterator<Item = ((u32, u64), &Chunk)> {
        self.chunks.iter().map(|(number, chunk)| (*number, chunk))
    }

    /// One of these.
    pub fn restore(&mut self, number: (u32, u64), chunk: Chunk) {
        if chunk.bits != [0; WORDS] {
            self.chunks.insert(number, chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at_ms: u64, position: u64, ordinal: u32) -> Due {
        Due { at_ms, position: Position::new(position).expect("from 1"), ordinal }
    }

    #[test]
    fn messages_on_shelves_come_in_rows() {
        let job = |bytes| Job { bytes, name: 0 };
        let mut keys = ShelvedKeys::default();
        for (at, ordinal, bytes) in
            [(1, 0, 10), (2, 0, 20), (3, 0, 30), (7, 0, 41), (511, 0, 0), (512, 0, 5), (3, 1, 9)]
        {
            keys.add(&due(99, at, ordinal), &job(bytes));
        }
        let row = |first: u64, records, ordinal, body_bytes| MessageRow {
            records,
            ..MessageRow::of_one(Position::new(first).expect("from 1"), ordinal, body_bytes)
        };
        let want =
            [row(1, 3, 0, 20), row(7, 1, 0, 20), row(511, 1, 0, 20), row(512, 1, 0, 5), row(3, 1, 1, 9)];
        assert_eq!(keys.rows().collect::<Vec<_>>(), want);
        let mut restored = ShelvedKeys::default();
        keys.chunks().for_each(|(number, chunk)| restored.restore(number, *chunk));
        assert_eq!(restored, keys);
        for (at, ordinal, bytes) in [(2, 0, 20), (512, 0, 5), (3, 1, 9), (4, 0, 7), (4000, 0, 7)] {
            keys.remove(&due(99, at, ordinal), &job(bytes));
        }
        let want = [row(1, 1, 0, 18), row(3, 1, 0, 18), row(7, 1, 0, 18), row(511, 1, 0, 18)];
        assert_eq!(keys.rows().collect::<Vec<_>>(), want, "one that is not there takes no bit");
    }

    #[test]
    fn a_shelf_has_its_record_and_its_first_job_to_itself() {
        let shelf = |position: u64, first| Shelf {
            position: Position::new(position).expect("from 1"),
            first,
            last: due(900, 1, 0),
            jobs: 3,
            bytes: 40,
        };
        let mut shelves = Shelves::default();
        let inserted =
            [shelf(9, due(5, 1, 0)), shelf(8, due(5, 1, 0)), shelf(9, due(6, 1, 0)), shelf(7, due(4, 1, 0))]
                .map(|shelf| shelves.insert(shelf));
        assert_eq!((inserted, shelves.jobs()), ([true, false, false, true], 6));
        let seven = Position::new(7).expect("from 1");
        assert_eq!(shelves.next().map(|shelf| shelf.position), Some(seven));
        shelves.handle(seven, Handling::Comes);
        assert_eq!((shelves.next().map(|shelf| shelf.position.get()), shelves.moving()), (Some(9), 1));
        assert_eq!(shelves.remove(seven), Some(shelf(7, due(4, 1, 0))));
        assert_eq!((shelves.handling(seven), shelves.jobs(), shelves.moving()), (None, 3, 0));
    }
}
