//! Walking through a segment, group by group: to check it, or to show its contents.

use crate::disks::disk::{Disk, DiskFile};
use crate::error::{Damage, DamageKind, ReadError};
use crate::keys::{KeyId, Keys};
use crate::layout::format::{FIRST_GROUP, GroupNumber, SECTOR_BYTES, SegmentHeader, SegmentNumber};
use crate::reading::scan::{GroupHead, Window};
use crate::retaining::compacted::Run;
use crate::retaining::index_file::{self, Form, Unreadable};
use crate::writing::journal::Journal;
use crate::writing::pace::Pace;
use postroad_model::{PartitionId, Position};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes read at a time, and between rests.
const STEP_BYTES: u64 = 256 << 10;

/// A walk through one segment; may run on another thread than the journal's.
#[derive(Debug)]
pub struct Walk<F> {
    file: Arc<F>,
    path: PathBuf,
    number: SegmentNumber,
    salt: u64,
    end: u64,
    compacted: Option<Run>,
    keys: Keys,
}

/// One record on the way.
#[derive(Debug)]
pub struct Seen<'w> {
    /// Whose log.
    pub partition: PartitionId,
    /// Its place there.
    pub position: Position,
    /// Number of its group.
    pub group: u64,
    /// Where its payload starts in the file.
    pub offset: u64,
    /// Bytes of its payload on the disk.
    pub stored_bytes: u32,
    /// Its encryption.
    pub key: Option<KeyId>,
    /// Its payload, or the fault.
    pub payload: Result<&'w [u8], DamageKind>,
}

impl<D: Disk> Journal<D> {
    /// A walk through a segment up to its present end; `None` if the journal has none of this
    /// number.
    ///
    /// # Errors
    /// [`ReadError::Damaged`]: its file is gone. [`ReadError::Io`]: it cannot be opened.
    pub fn walk(&self, number: SegmentNumber) -> Result<Option<Walk<D::File>>, ReadError> {
        let Some(segment) = self.segments.get(number) else { return Ok(None) };
        let (name, path) = (segment.file_name(), self.disk.path(&segment.file_name()));
        let file = if number == self.current.header.number {
            self.current.file.clone()
        } else {
            self.open_segment(&name, None)?
        };
        let (salt, end, compacted) = (segment.header.salt, segment.end, segment.compacted);
        let keys = self.keys.clone();
        Ok(Some(Walk { file, path, number, salt, end, compacted, keys }))
    }

    /// Whether the segment of a walk is unchanged since the walk was planned: if not, the result
    /// may be of another life of its file.
    pub fn still_has(&self, number: SegmentNumber, salt: u64) -> bool {
        self.segments.get(number).is_some_and(|segment| segment.header.salt == salt)
    }

    /// The sealed segment that comes after `last` in number, or the first one.
    pub fn next_sealed(&self, last: Option<SegmentNumber>) -> Option<SegmentNumber> {
        let current = self.current.header.number;
        let mut sealed = self.segments.iter().map(|segment| segment.header.number);
        let mut sealed = sealed.by_ref().filter(|&number| number != current);
        sealed.find(|&number| last.is_none_or(|last| last < number))
    }
}

impl<F: DiskFile> Walk<F> {
    /// The segment.
    pub fn number(&self) -> SegmentNumber {
        self.number
    }

    /// The identity of this life of the file.
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// The file.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Reads the header and all groups, shows each record to `visit`, and returns all damage.
    /// Behind a group that cannot be read it goes on at the next one that can.
    ///
    /// # Errors
    /// [`ReadError::Io`]: the operating system cannot read the file.
    pub fn run(
        &self,
        pace: &mut dyn Pace,
        visit: &mut dyn FnMut(&Seen<'_>),
    ) -> Result<Vec<Damage>, ReadError> {
        let failed = |source| ReadError::Io { file: self.path.clone(), source };
        // A check needs the data on the disk.
        let mut window = Window::with_keys(&*self.file, STEP_BYTES as usize, self.end, &self.keys).passing();
        let mut damage = Vec::new();
        if !self.has_header().map_err(failed)? {
            damage.push(self.damage(None, 0, DamageKind::SegmentHeader));
        }
        let (mut offset, mut last, mut rested) = (FIRST_GROUP, GroupNumber(0), FIRST_GROUP);
        while offset < self.end {
            let head = window.head(self.salt, offset).map_err(failed)?;
            // A compacted segment counts its groups from 1, others in the journal's order.
            match head.filter(|head| self.compacted.is_some() || last < head.header.number) {
                Some(head) => {
                    self.show(&mut window, &head, visit, &mut damage)?;
                    (offset, last) = (head.end(), head.header.number);
                }
                None => {
                    damage.push(self.damage(None, offset, DamageKind::Group));
                    let next = window.search(Some(self.salt), offset + 1, last).map_err(failed)?;
                    offset = next.unwrap_or(self.end);
                }
            }
            if rested + STEP_BYTES <= offset {
                pace.step();
                rested = offset;
            }
        }
        Ok(damage)
    }

    /// Whether the header is this segment's, and of a compacted one the index that it names is
    /// whole.
    fn has_header(&self) -> io::Result<bool> {
        let get = |file: &F, buffer: &mut [u8], offset: u64| {
            let (mut read, length) = (Vec::new(), buffer.len() as u64);
            let place = file.read_once(offset..offset + length, &mut read)?;
            let got = read.get(place).unwrap_or_default();
            buffer[..got.len()].copy_from_slice(got);
            Ok(got.len())
        };
        let (number, salt) = match self.compacted {
            Some(run) => match index_file::read_in(&*self.file, Form::Compacted(run), get) {
                Ok(Some(segment)) => (segment.header.number, segment.header.salt),
                Ok(None) | Err(Unreadable::Version(_)) => return Ok(false),
                Err(Unreadable::Io(error)) => return Err(error),
            },
            None => {
                let mut sector = [0; SECTOR_BYTES as usize];
                get(&self.file, &mut sector, 0)?;
                let Ok(header) = SegmentHeader::decode(&sector) else { return Ok(false) };
                (header.number, header.salt)
            }
        };
        Ok((number, salt) == (self.number, self.salt))
    }

    fn show(
        &self,
        window: &mut Window<'_, F>,
        head: &GroupHead,
        visit: &mut dyn FnMut(&Seen<'_>),
        damage: &mut Vec<Damage>,
    ) -> Result<(), ReadError> {
        for entry in &head.records {
            let (partition, position) = (entry.header.partition, entry.header.position);
            let payload = window.payload(entry);
            let payload = payload.map_err(|source| ReadError::Io { file: self.path.clone(), source })?;
            // Without the key there is its checksum, which holds.
            if let Some(&kind) = payload.as_ref().err().filter(|kind| !kind.is_locked()) {
                damage.push(self.damage(Some(partition), entry.payload_offset, kind));
            }
            let (group, offset) = (head.header.number.0, entry.payload_offset);
            let (stored_bytes, key) = (entry.header.payload_bytes, entry.header.key);
            visit(&Seen { partition, position, group, offset, stored_bytes, key, payload });
        }
        Ok(())
    }

    fn damage(&self, partition: Option<PartitionId>, offset: u64, kind: DamageKind) -> Damage {
        Damage { partition, file: self.path.clone(), offset, kind }
    }
}
