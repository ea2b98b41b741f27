//! Steps over bytes, never past their end: for readers of frames, of stored messages and of maps.

use super::WireError;

/// Skips this number of bytes; returns their start.
#[inline]
pub(super) fn take(bytes: &[u8], offset: &mut usize, length: usize) -> Result<usize, WireError> {
    let start = *offset;
    if bytes.len() - start < length {
        return Err(truncated(bytes, start, length));
    }
    *offset += length;
    Ok(start)
}

/// The next bytes.
#[inline]
pub(super) fn array<const N: usize>(bytes: &[u8], offset: &mut usize) -> Result<[u8; N], WireError> {
    // No index that might panic: this is twice as fast.
    let array = bytes.get(*offset..).and_then(<[u8]>::first_chunk);
    let Some(array) = array else { return Err(truncated(bytes, *offset, N)) };
    *offset += N;
    Ok(*array)
}

#[cold]
fn truncated(bytes: &[u8], offset: usize, wanted_bytes: usize) -> WireError {
    WireError::Truncated { offset, wanted_bytes, left_bytes: bytes.len() - offset }
}
