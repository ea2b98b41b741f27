//! The vote of a replica, the members that it knows, and a mark of entries that it has confirmed,
//! in a file of its own.
//!
//! ```text
//! 0..8192      slot 0    each slot, little endian:
//! 8192..16384  slot 1    magic 8 │ version u16 │ 6 zero │ sequence u64 │ term u64 │ node u64
//!                        │ since u64 │ length u16 │ mark: index u64, term u64 │ members │ zero
//!                        │ checksum u32, the last bytes
//! ```
//! Members are as in an entry ([`Members`]); the length is 0 while they are those of a new group.
//! Writes alternate between the slots, so that a crash in a write leaves the state before. A vote
//! and members are written to both, one after the other: no damage of one slot brings an earlier
//! vote back. Each slot has sectors of its own. The checksum is CRC-32C of the bytes before it.

use std::io;

use postroad_journal::{Disk, DiskFile};

use crate::entry::{EntryId, Index, NodeId, Term};
use crate::members::{MEMBERS_BYTES_MAX, Members};

/// The state that a replica must keep over a restart besides its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// The latest term that it has seen.
    pub term: Term,
    /// The candidate that it voted for in that term.
    pub voted_for: Option<NodeId>,
}

/// Why the vote cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VoteError {
    /// The disk failed. After a failed write the file must be opened again before the next one.
    #[error("vote file: {0}")]
    Io(#[from] io::Error),
    /// Both slots are damaged. A replica that forgot its vote must not vote: it is replaced by a
    /// new member.
    #[error("vote file: no slot is intact")]
    Damaged,
    /// It was written by a later version.
    #[error("vote file: version {got} is not supported")]
    Version {
        /// The version in the file.
        got: u16,
    },
    /// A write failed before.
    #[error("vote file: an earlier write failed; open it again")]
    NeedsReopen,
}

/// The first term of an era is above the last one before by at least this number: more elections
/// than the others hold before they hear of it. So an index and a term name one entry in all eras.
pub const ERA_TERMS: u64 = 1 << 20;

const MAGIC: [u8; 8] = *b"PRvote\r\n";
const VERSION: u16 = 4;
/// The longest list of members fits.
const SLOT_BYTES: usize = 8192;
const CHECKED_BYTES: usize = SLOT_BYTES - 4;
const MEMBERS_AT: usize = 66;
const _: () = assert!(MEMBERS_AT + MEMBERS_BYTES_MAX <= CHECKED_BYTES);
const NAME: &str = "vote";

/// The open file.
#[derive(Debug)]
pub struct VoteFile<F> {
    file: F,
    vote: Vote,
    members: Option<Members>,
    mark: EntryId,
    sequence: u64,
    failed: bool,
}

impl<F: DiskFile> VoteFile<F> {
    /// Makes the file of a new replica, synced.
    ///
    /// # Errors
    /// [`VoteError::Io`]; also if there is one already.
    pub fn create<D: Disk<File = F>>(disk: &D) -> Result<VoteFile<F>, VoteError> {
        if disk.list()?.iter().any(|name| name == NAME) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
        }
        let file = disk.create(NAME)?;
        file.allocate(2 * SLOT_BYTES as u64)?;
        let (vote, mark) = (Vote::default(), EntryId::default());
        let mut created = VoteFile { file, vote, members: None, mark, sequence: 0, failed: false };
        created.write(Vote::default())?;
        disk.sync_directory()?;
        Ok(created)
    }

    /// Opens the file of a replica that was started before.
    ///
    /// # Errors
    /// See [`VoteError`]; [`VoteError::Io`] of kind `NotFound` if there is none.
    pub fn open<D: Disk<File = F>>(disk: &D) -> Result<VoteFile<F>, VoteError> {
        let file = disk.open(NAME)?;
        let mut bytes = [0; 2 * SLOT_BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        let (first, second) = bytes.split_at(SLOT_BYTES);
        let newest = slot(first)?.into_iter().chain(slot(second)?).max_by_key(|slot| slot.sequence);
        let Slot { sequence, vote, members, mark } = newest.ok_or(VoteError::Damaged)?;
        Ok(VoteFile { file, vote, members, mark, sequence, failed: false })
    }

    /// The members that were written last; `None` if they never changed.
    pub fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// Writes and syncs the members that are in force from now on.
    ///
    /// # Errors
    /// As [`VoteFile::write`].
    pub fn write_members(&mut self, members: Members) -> Result<(), VoteError> {
        self.members = Some(members);
        self.write(self.vote)
    }

    /// Writes and syncs the members of a later era, whose terms are far above those of the one
    /// before: see [`ERA_TERMS`].
    ///
    /// # Errors
    /// As [`VoteFile::write`].
    pub fn write_succession(&mut self, members: Members) -> Result<(), VoteError> {
        self.members = Some(members);
        self.write(Vote { term: Term(self.vote.term.0 + ERA_TERMS), voted_for: None })
    }

    /// The last entry that was known to be synced when the mark was written: a log that ends before
    /// has lost entries which this replica may have confirmed.
    pub fn mark(&self) -> EntryId {
        self.mark
    }

    /// Writes and syncs the mark.
    ///
    /// # Errors
    /// As [`VoteFile::write`].
    pub fn write_mark(&mut self, mark: EntryId) -> Result<(), VoteError> {
        self.mark = mark;
        self.write_slot(self.vote)
    }

    /// The last vote written.
    pub fn vote(&self) -> Vote {
        self.vote
    }

    /// Writes and syncs a vote.
    ///
    /// # Errors
    /// [`VoteError::Io`]: it is unknown which vote is on the disk. [`VoteError::NeedsReopen`] from
    /// then on.
    pub fn write(&mut self, vote: Vote) -> Result<(), VoteError> {
        self.write_slot(vote)?;
        self.write_slot(vote)
    }

    fn write_slot(&mut self, vote: Vote) -> Result<(), VoteError> {
        if self.failed {
            return Err(VoteError::NeedsReopen);
        }
        let sequence = self.sequence + 1;
        let offset = (sequence % 2) * SLOT_BYTES as u64;
        self.failed = true;
        let bytes = slot_bytes(sequence, vote, self.members.as_ref(), self.mark);
        let mut written = 0;
        while written < bytes.len() {
            let rest = [io::IoSlice::new(&bytes[written..])];
            match self.file.write_at(&rest, offset + written as u64)? {
                0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                count => written += count,
            }
        }
        self.file.sync()?;
        (self.sequence, self.vote, self.failed) = (sequence, vote, false);
        Ok(())
    }
}

fn slot_bytes(sequence: u64, vote: Vote, members: Option<&Members>, mark: EntryId) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
    bytes[24..32].copy_from_slice(&vote.term.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&vote.voted_for.map_or(0, NodeId::get).to_le_bytes());
    bytes[50..58].copy_from_slice(&mark.index.0.to_le_bytes());
    bytes[58..66].copy_from_slice(&mark.term.0.to_le_bytes());
    if let Some(members) = members {
        let list = members.encode();
        bytes[40..48].copy_from_slice(&members.since.0.to_le_bytes());
        bytes[48..50].copy_from_slice(&(list.len() as u16).to_le_bytes());
        bytes[MEMBERS_AT..MEMBERS_AT + list.len()].copy_from_slice(&list);
    }
    let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
    bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

struct Slot {
    sequence: u64,
    vote: Vote,
    members: Option<Members>,
    mark: EntryId,
}

/// The content of a slot; `None` if it was never written or its write did not finish.
fn slot(bytes: &[u8]) -> Result<Option<Slot>, VoteError> {
    let number = |from: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[from..from + 8]);
        u64::from_le_bytes(number)
    };
    let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]).to_le_bytes();
    if bytes[..8] != MAGIC || bytes[CHECKED_BYTES..CHECKED_BYTES + 4] != checksum {
        return Ok(None);
    }
    let got = u16::from_le_bytes([bytes[8], bytes[9]]);
    if got != VERSION {
        return Err(VoteError::Version { got });
    }
    let vote = Vote { term: Term(number(24)), voted_for: NodeId::new(number(32)) };
    let length = usize::from(u16::from_le_bytes([bytes[48], bytes[49]]));
    let list = bytes.get(MEMBERS_AT..MEMBERS_AT + length).filter(|list| !list.is_empty());
    let members = match list {
        Some(list) => Some(Members::decode(Index(number(40)), list).ok_or(VoteError::Damaged)?),
        None => None,
    };
    let mark = EntryId { index: Index(number(50)), term: Term(number(58)) };
    Ok(Some(Slot { sequence: number(16), vote, members, mark }))
}

#[cfg(test)]
mod tests {
    use postroad_journal::{Fault, Operation, SimulatedDisk};

    use super::*;
    use crate::members::NodeRecord;

    fn vote(term: u64) -> Vote {
        Vote { term: Term(term), voted_for: NodeId::new(term % 4) }
    }

    #[test]
    fn a_vote_survives_a_power_cut_in_the_next_write() {
        for seed in 0..500 {
            let disk = SimulatedDisk::new(seed);
            let mut file = VoteFile::create(&disk).unwrap();
            let synced = seed % 5;
            (1..=synced).for_each(|term| file.write(vote(term)).unwrap());
            disk.fail(if seed % 2 == 0 { Operation::Sync } else { Operation::Write }, 0, Fault::Broken);
            assert!(file.write(vote(synced + 1)).is_err());
            assert!(matches!(file.write(vote(synced + 2)), Err(VoteError::NeedsReopen)));
            disk.crash();
            let found = VoteFile::open(&disk).unwrap().vote();
            let next = if synced == 0 { Vote::default() } else { vote(synced) };
            assert!(found == next || found == vote(synced + 1), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn members_stay_with_later_votes_and_over_a_start() {
        let disk = SimulatedDisk::new(3);
        let mut file = VoteFile::create(&disk).unwrap();
        assert_eq!(VoteFile::open(&disk).unwrap().members(), None);
        let nodes = |numbers: std::ops::Range<u64>| numbers.filter_map(NodeId::new).collect::<Vec<_>>();
        let mut full = Members { since: Index(9), ..Members::first(nodes(1..17)) };
        let record = NodeRecord { address: "a".repeat(255), ..NodeRecord::default() };
        full.describe(&nodes(1..17).into_iter().map(|node| (node, record.clone())).collect());
        for members in [Members { since: Index(5), ..Members::first(nodes(1..4)) }, full] {
            file.write_members(members.clone()).unwrap();
            file.write(vote(7)).unwrap();
            let found = VoteFile::open(&disk).unwrap();
            assert_eq!((found.members(), found.vote()), (Some(&members), vote(7)));
        }
    }

    #[test]
    fn a_mark_stays_with_later_votes_and_no_damaged_slot_brings_an_earlier_vote_back() {
        let mark = |number| EntryId { index: Index(number), term: Term(7) };
        for damaged in [0, SLOT_BYTES] {
            let disk = SimulatedDisk::new(4);
            let mut file = VoteFile::create(&disk).unwrap();
            for number in 1..6 {
                file.write(vote(number)).unwrap();
                file.write_mark(mark(number)).unwrap();
                let found = VoteFile::open(&disk).unwrap();
                assert_eq!((found.vote(), found.mark()), (vote(number), mark(number)));
                let mut bytes = disk.contents(NAME).unwrap();
                bytes[damaged + 24] ^= 1;
                let other = SimulatedDisk::new(5);
                VoteFile::create(&other).unwrap();
                other.set_contents(NAME, bytes);
                let found = VoteFile::open(&other).unwrap();
                assert_eq!(found.vote(), vote(number), "slot at {damaged}");
                assert!([mark(number - 1), mark(number), EntryId::default()].contains(&found.mark()));
            }
        }
    }

    #[test]
    fn a_damaged_or_later_file_is_refused() {
        let disk = SimulatedDisk::new(1);
        assert!(
            matches!(VoteFile::open(&disk), Err(VoteError::Io(error)) if error.kind() == io::ErrorKind::NotFound)
        );
        VoteFile::create(&disk).unwrap().write(vote(7)).unwrap();
        assert!(VoteFile::create(&disk).is_err());
        let intact = disk.contents(NAME).unwrap();
        let mut later = intact.clone();
        later[8] = 5;
        let checksum = crc32c::crc32c(&later[..CHECKED_BYTES]).to_le_bytes();
        later[CHECKED_BYTES..CHECKED_BYTES + 4].copy_from_slice(&checksum);
        disk.set_contents(NAME, later);
        assert!(matches!(VoteFile::open(&disk), Err(VoteError::Version { got: 5 })));
        let mut damaged = intact;
        (damaged[30], damaged[SLOT_BYTES + 30]) = (damaged[30] ^ 1, damaged[SLOT_BYTES + 30] ^ 1);
        disk.set_contents(NAME, damaged);
        assert!(matches!(VoteFile::open(&disk), Err(VoteError::Damaged)));
    }
}
