//! States as they lie in a checkpoint's file. All of them together may be more than memory has room for, so they are read step by
//! step: once to know that they are good, and again by who wants them.

use crate::disks::disk::{DiskFile, read_full_at};
use crate::error::OpenError;
use crate::layout::cipher::{SEALED_STEP_BYTES, SealedState, StateName, StateOpener};
use crate::layout::format::SECTOR_BYTES;
use crate::retaining::checkpoint::Checkpoint;
use bytes::Bytes;
use postroad_model::{PartitionId, Position, Snapshot};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// States that are not encrypted are read in steps of this size.
const PLAIN_STEP_BYTES: usize = 256 << 10;

/// The state of one partition after the record at `position`, on the disk.
#[derive(Clone, Debug)]
pub struct StoredCheckpoint {
    /// Whose state.
    pub partition: PartitionId,
    /// The last record that is in it.
    pub position: Position,
    /// Where it is.
    pub state: StoredState,
}

impl StoredCheckpoint {
    /// All of it, in memory.
    ///
    /// # Errors
    /// Those of [`StoredState::read_by`].
    pub fn read(&self) -> Result<Checkpoint, OpenError> {
        let state = self.state.read_by(|pieces| pieces.collect::<Snapshot>())?;
        Ok(Checkpoint { partition: self.partition, position: self.position, state })
    }
}

/// A state in a file that was found good. Cheap to clone.
#[derive(Clone)]
pub struct StoredState {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// Where it begins in the file.
    offset: u64,
    /// How much of the file it takes.
    stored_bytes: usize,
    step_bytes: usize,
    /// Of each step as it lies there.
    checksums: Arc<[u32]>,
    sealed: Option<SealedState>,
}

impl StoredState {
    /// Length of the state.
    pub fn byte_length(&self) -> u64 {
        let plain = self.sealed.as_ref().map_or(self.stored_bytes, SealedState::plain_bytes);
        plain as u64
    }

    /// Hands over its pieces, in order; two at a time are in memory, if `take` lets go of those before.
    ///
    /// # Errors
    /// [`OpenError::Io`]: the system refuses to read it, or it is not what it was a moment ago. The pieces have ended there, so what
    /// was made of them is worth nothing.
    pub fn read_by<T>(
        &self,
        take: impl FnOnce(&mut dyn Iterator<Item = Bytes>) -> T,
    ) -> Result<T, OpenError> {
        let mut failure = None;
        let mut pieces = (0..self.checksums.len()).map_while(|step| match failure {
            Some(_) => None,
            None => self.read_step(step).map_err(|error| failure = Some(error)).ok(),
        });
        let taken = take(&mut pieces);
        match failure {
            Some(source) => Err(OpenError::Io { file: self.path.clone(), source }),
            None => Ok(taken),
        }
    }

    fn read_step(&self, step: usize) -> io::Result<Bytes> {
        let stored = read_stored(&*self.file, self.offset, self.extent(step))?;
        let is_same =
            stored.as_ref().is_some_and(|bytes| Some(&crc32c::crc32c(bytes)) == self.checksums.get(step));
        let plain = stored.filter(|_| is_same).and_then(|stored| open(self.sealed.as_ref(), step, stored));
        plain.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has changed while it was read"))
    }

    /// Where a step lies, counted from where the state begins.
    fn extent(&self, step: usize) -> Range<usize> {
        let from = step * self.step_bytes;
        from..self.stored_bytes.min(from + self.step_bytes)
    }
}

impl fmt::Debug for StoredState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StoredState")
            .field("path", &self.path)
            .field("offset", &self.offset)
            .field("stored_bytes", &self.stored_bytes)
            .finish_non_exhaustive()
    }
}

/// Reads the body of a file once, from its beginning to its end, to find out whether it is good.
pub(crate) struct BodyScan {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// Where what is read next begins.
    offset: u64,
    checksum: u32,
    opener: Option<StateOpener>,
}

impl BodyScan {
    /// Without `opener` states are read as they lie there.
    pub(crate) fn begin<F: DiskFile>(file: F, path: PathBuf, opener: Option<StateOpener>) -> BodyScan {
        BodyScan { file: Arc::new(file), path, offset: SECTOR_BYTES, checksum: 0, opener }
    }

    /// The checksum of what was read.
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum
    }

    /// The next bytes, which are no state; `None` if there are not so many.
    ///
    /// # Errors
    /// The system refuses to read them.
    pub(crate) fn bytes(&mut self, length: usize) -> io::Result<Option<Bytes>> {
        let read = read_stored(&*self.file, self.offset, 0..length)?;
        if let Some(bytes) = &read {
            self.checksum = crc32c::crc32c_append(self.checksum, bytes);
            self.offset += length as u64;
        }
        Ok(read.map(Bytes::from))
    }

    /// The next state, which takes so many bytes of the file; `None` if they are not there, or not what was encrypted.
    ///
    /// # Errors
    /// The system refuses to read it.
    pub(crate) fn state(&mut self, name: StateName, stored_bytes: usize) -> io::Result<Option<StoredState>> {
        let sealed = self.opener.as_mut().map(|opener| opener.next(name, stored_bytes));
        let step_bytes = if sealed.is_some() { SEALED_STEP_BYTES } else { PLAIN_STEP_BYTES };
        let mut checksums = Vec::new();
        for (step, from) in (0..stored_bytes).step_by(step_bytes).enumerate() {
            let extent = from..stored_bytes.min(from + step_bytes);
            let Some(stored) = read_stored(&*self.file, self.offset, extent)? else { return Ok(None) };
            let checksum = crc32c::crc32c(&stored);
            self.checksum = crc32c::crc32c_combine(self.checksum, checksum, stored.len());
            checksums.push(checksum);
            if open(sealed.as_ref(), step, stored).is_none() {
                return Ok(None);
            }
        }
        let (file, path, offset) = (self.file.clone(), self.path.clone(), self.offset);
        self.offset += stored_bytes as u64;
        Ok(Some(StoredState {
            file,
            path,
            offset,
            stored_bytes,
            step_bytes,
            checksums: checksums.into(),
            sealed,
        }))
    }
}

/// This part of what begins at `offset`; `None` if the file ends before.
fn read_stored(file: &dyn DiskFile, offset: u64, part: Range<usize>) -> io::Result<Option<Vec<u8>>> {
    let mut stored = vec![0; part.len()];
    let read = read_full_at(file, &mut stored, offset + part.start as u64)?;
    Ok((read == stored.len()).then_some(stored))
}

/// What a step holds; `None` if it is not what was encrypted there.
fn open(sealed: Option<&SealedState>, step: usize, stored: Vec<u8>) -> Option<Bytes> {
    let plain = match sealed {
        Some(sealed) => sealed.open(step, stored)?,
        None => stored,
    };
    Some(plain.into())
}
