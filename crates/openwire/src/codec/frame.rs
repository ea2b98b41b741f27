//! Cuts a byte stream into frames.

use bytes::{Buf, Bytes, BytesMut};

use super::WireError;

/// Bytes of the size before each frame.
pub const SIZE_BYTES: usize = 4;

/// Memory asked for ahead of the bytes that fill it, however large the
/// announced frame: one socket read's worth.
const RESERVED_BYTES: usize = 64 << 10;

/// Collects bytes and gives whole frames, without their size, as slices of
/// the buffer they were read into.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    max_frame_bytes: u64,
}

impl FrameReader {
    /// Refuses frames above `max_frame_bytes`, as soon as their size is known.
    pub fn new(max_frame_bytes: u64) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), max_frame_bytes }
    }

    /// Changes the limit, after negotiation.
    pub fn set_max_frame_bytes(&mut self, max_frame_bytes: u64) {
        self.max_frame_bytes = max_frame_bytes;
    }

    /// Adds bytes as they came from the peer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer to read a socket into, with room for one read. Only append.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        self.buffer.reserve(RESERVED_BYTES);
        &mut self.buffer
    }

    /// Bytes that wait for the rest of their frame.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The next whole frame; `None` until more bytes arrive.
    ///
    /// # Errors
    /// As [`take_frame`].
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, WireError> {
        take_frame(&mut self.buffer, self.max_frame_bytes)
    }
}

/// The size of the frame that `input` begins with, judged before its bytes are there; `None` until
/// the size itself is.
///
/// # Errors
/// As [`take_frame`].
pub fn announced_bytes(input: &[u8], max_frame_bytes: u64) -> Result<Option<usize>, WireError> {
    let Some(size) = input.first_chunk::<SIZE_BYTES>() else { return Ok(None) };
    let got = i64::from(i32::from_be_bytes(*size));
    let Ok(got_bytes) = u64::try_from(got) else {
        return Err(WireError::NegativeSize { got, offset: 0 });
    };
    if max_frame_bytes < got_bytes {
        return Err(WireError::FrameTooLarge { got_bytes, max_bytes: max_frame_bytes });
    }
    Ok(Some(got_bytes as usize))
}

/// Takes the frame at the front of `input`, without its size and without copying; `None` until all
/// of it is there.
///
/// # Errors
/// The size is negative or above the limit: close the connection, for
/// where the next frame starts cannot be known.
pub fn take_frame(input: &mut BytesMut, max_frame_bytes: u64) -> Result<Option<Bytes>, WireError> {
    Ok(cut_frame(input, max_frame_bytes)?.map(BytesMut::freeze))
}

/// As [`take_frame`], to change it before it is read.
///
/// # Errors
/// As [`take_frame`].
pub fn cut_frame(input: &mut BytesMut, max_frame_bytes: u64) -> Result<Option<BytesMut>, WireError> {
    let Some(frame_bytes) = announced_bytes(input, max_frame_bytes)? else { return Ok(None) };
    if input.len() - SIZE_BYTES < frame_bytes {
        return Ok(None);
    }
    input.advance(SIZE_BYTES);
    Ok(Some(input.split_to(frame_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let stream = [&[0, 0, 0, 2, 10, 11][..], &[0, 0, 0, 0], &[0, 0, 0, 1, 12]].concat();
        let want = [Bytes::from_static(&[10, 11]), Bytes::new(), Bytes::from_static(&[12])];
        for step in 1..=stream.len() {
            let mut reader = FrameReader::new(2);
            let mut got = Vec::new();
            for part in stream.chunks(step) {
                reader.push(part);
                while let Some(frame) = reader.next_frame().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!((&got[..], reader.buffered_bytes()), (&want[..], 0), "{step} bytes at a time");
        }
    }

    #[test]
    fn sizes_are_judged_before_the_bytes_arrive() {
        for (name, size, want) in [
            ("at the limit: wait", [0, 0, 0, 9], Ok(None)),
            ("above the limit", [0, 0, 0, 10], Err(WireError::FrameTooLarge { got_bytes: 10, max_bytes: 9 })),
            (
                "two GiB",
                [0x7F, 0xFF, 0xFF, 0xFF],
                Err(WireError::FrameTooLarge { got_bytes: i32::MAX as u64, max_bytes: 9 }),
            ),
            ("negative", [0xFF; 4], Err(WireError::NegativeSize { got: -1, offset: 0 })),
        ] {
            let mut reader = FrameReader::new(9);
            reader.push(&size);
            assert_eq!(reader.next_frame(), want, "case: {name}");
        }
    }
}
