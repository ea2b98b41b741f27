//! States as they lie in a checkpoint's file: handed over piece by piece to who wants them.

use crate::error::OpenError;
use crate::layout::cipher::{SEALED_STEP_BYTES, SealedState};
use crate::opening::body::{Body, has_changed};
use crate::retaining::checkpoint::Checkpoint;
use bytes::Bytes;
use postroad_model::{PartitionId, Position, Snapshot};
use std::ops::Range;
use std::{io, iter};

/// The state of one partition after the record at `position`, on the disk. It is to be read before
/// the journal writes checkpoints: sooner or later they come in the place of its file.
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

/// A state in a checkpoint that was found good.
#[derive(Clone, Debug)]
pub struct StoredState {
    body: Body,
    /// Where in it.
    part: Range<usize>,
    /// Only if it is encrypted, and the key is known.
    sealed: Option<SealedState>,
}

impl StoredState {
    pub(crate) fn new(body: Body, part: Range<usize>, sealed: Option<SealedState>) -> StoredState {
        StoredState { body, part, sealed }
    }

    /// Length of the state; of an encrypted one without its key, its size on the disk.
    pub fn byte_length(&self) -> u64 {
        let plain = self.sealed.as_ref().map_or(self.part.len(), SealedState::plain_bytes);
        plain as u64
    }

    /// Hands over its pieces, in order, and reads each as it is asked for.
    ///
    /// # Errors
    /// [`OpenError::Io`]: the system refuses to read it, or it has changed since the journal was
    /// opened. The pieces have ended there, so their result is worth nothing.
    pub fn read_by<T>(
        &self,
        take: impl FnOnce(&mut dyn Iterator<Item = Bytes>) -> T,
    ) -> Result<T, OpenError> {
        let (mut pieces, mut failure) = (self.pieces(), None);
        let taken = take(&mut iter::from_fn(|| match failure {
            None => pieces.next()?.map_err(|error| failure = Some(error)).ok(),
            Some(_) => None,
        }));
        match failure {
            None => Ok(taken),
            Some(source) => Err(OpenError::Io { file: self.body.path().to_owned(), source }),
        }
    }

    /// Whether its tag fits, if it was encrypted.
    ///
    /// # Errors
    /// The system refuses to read it.
    pub(crate) fn is_sound(&self) -> io::Result<bool> {
        let Some(sealed) = &self.sealed else { return Ok(true) };
        for (step, part) in self.steps() {
            if sealed.open(step, self.body.read(part)?).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = io::Result<Bytes>> + '_> {
        let Some(sealed) = &self.sealed else { return Box::new(self.body.pieces(self.part.clone())) };
        Box::new(self.steps().map(|(step, part)| {
            let plain = sealed.open(step, self.body.read(part)?);
            plain.map(Bytes::from).ok_or_else(has_changed)
        }))
    }

    /// The steps in which it is encrypted, with their numbers.
    fn steps(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let Range { start, end } = self.part;
        let begins = (start..end).step_by(SEALED_STEP_BYTES);
        begins.map(move |begin| begin..end.min(begin + SEALED_STEP_BYTES)).enumerate()
    }
}
