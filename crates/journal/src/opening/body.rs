//! The body of a checkpoint's file. It may be more than memory has room for, so it is read once,
//! block by block, to know that it is good, and again as its parts are asked for.

use crate::disks::disk::{DiskFile, read_full_at};
use crate::layout::checkpoint_bytes::BodyExtent;
use crate::layout::format::SECTOR_BYTES;
use bytes::Bytes;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const BLOCK_BYTES: usize = 256 << 10;

/// A body whose checksum was right: later reads return the same bytes, or an error. Its file must
/// not be overwritten before.
#[derive(Clone)]
pub(crate) struct Body {
    file: Arc<dyn DiskFile>,
    path: Arc<Path>,
    byte_length: usize,
    /// Of each block.
    checksums: Arc<[u32]>,
}

impl Body {
    /// Reads all of it; `None` if it does not fit its header.
    ///
    /// # Errors
    /// The system refuses to read it.
    pub(crate) fn check<F: DiskFile>(file: F, path: &Path, extent: &BodyExtent) -> io::Result<Option<Body>> {
        let Ok(byte_length) = usize::try_from(extent.bytes) else { return Ok(None) };
        let mut buffer = vec![0; BLOCK_BYTES.min(byte_length)];
        let (mut checksum, mut checksums) = (0, Vec::new());
        for from in (0..byte_length).step_by(BLOCK_BYTES) {
            let block = &mut buffer[..BLOCK_BYTES.min(byte_length - from)];
            if read_full_at(&file, block, SECTOR_BYTES + from as u64)? < block.len() {
                return Ok(None);
            }
            let of_block = crc32c::crc32c(block);
            checksum = crc32c::crc32c_combine(checksum, of_block, block.len());
            checksums.push(of_block);
        }
        let body = Body { file: Arc::new(file), path: path.into(), byte_length, checksums: checksums.into() };
        Ok((checksum == extent.checksum).then_some(body))
    }

    /// How long it is.
    pub(crate) fn byte_length(&self) -> usize {
        self.byte_length
    }

    /// The file that it is in.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A part of it, in pieces of a block at most; as much of it as is there.
    pub(crate) fn pieces(&self, part: Range<usize>) -> impl Iterator<Item = io::Result<Bytes>> {
        let part = part.start..part.end.min(self.byte_length);
        let end_block = if part.is_empty() { 0 } else { part.end.div_ceil(BLOCK_BYTES) };
        (part.start / BLOCK_BYTES..end_block).map(move |block| {
            let begin = block * BLOCK_BYTES;
            let bytes = self.block(block)?;
            let end = bytes.len().min(part.end - begin);
            Ok(bytes.slice(part.start.saturating_sub(begin)..end))
        })
    }

    /// As [`Body::pieces`], in one.
    pub(crate) fn read(&self, part: Range<usize>) -> io::Result<Vec<u8>> {
        let mut read = Vec::with_capacity(part.len().min(self.byte_length));
        for piece in self.pieces(part) {
            read.extend_from_slice(&piece?);
        }
        Ok(read)
    }

    fn block(&self, number: usize) -> io::Result<Bytes> {
        let from = number * BLOCK_BYTES;
        let mut block = vec![0; BLOCK_BYTES.min(self.byte_length.saturating_sub(from))];
        let read = read_full_at(&*self.file, &mut block, SECTOR_BYTES + from as u64)?;
        let is_same = read == block.len() && self.checksums.get(number) == Some(&crc32c::crc32c(&block));
        if is_same { Ok(block.into()) } else { Err(has_changed()) }
    }
}

/// The second read differs from the first.
pub(crate) fn has_changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it has changed while it was read")
}

impl fmt::Debug for Body {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Body")
            .field("path", &self.path)
            .field("byte_length", &self.byte_length)
            .finish_non_exhaustive()
    }
}
