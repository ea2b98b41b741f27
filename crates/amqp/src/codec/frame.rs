//! Frames (2.3) and the headers before them (2.2).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::WireError;

/// Bytes of a protocol header.
pub const PROTOCOL_HEADER_BYTES: usize = 8;

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 8;

/// The layer announced by a protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolId {
    /// AMQP itself.
    Amqp,
    /// A TLS layer (5.2.1).
    Tls,
    /// A SASL layer (5.3.1).
    Sasl,
    /// Something else, of this number.
    Other(u8),
}

/// The first eight bytes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolHeader {
    /// Which layer.
    pub id: ProtocolId,
    /// Major, minor, revision.
    pub version: [u8; 3],
}

impl ProtocolHeader {
    /// AMQP 1.0.0.
    pub const AMQP: ProtocolHeader = ProtocolHeader { id: ProtocolId::Amqp, version: [1, 0, 0] };

    /// SASL 1.0.0.
    pub const SASL: ProtocolHeader = ProtocolHeader { id: ProtocolId::Sasl, version: [1, 0, 0] };

    /// The header that `bytes` are; `None` if they are none of AMQP's.
    pub fn from_bytes(bytes: [u8; PROTOCOL_HEADER_BYTES]) -> Option<ProtocolHeader> {
        let [b'A', b'M', b'Q', b'P', id, version @ ..] = bytes else { return None };
        let id = match id {
            0 => ProtocolId::Amqp,
            2 => ProtocolId::Tls,
            3 => ProtocolId::Sasl,
            other => ProtocolId::Other(other),
        };
        Some(ProtocolHeader { id, version })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; PROTOCOL_HEADER_BYTES] {
        let id = match self.id {
            ProtocolId::Amqp => 0,
            ProtocolId::Tls => 2,
            ProtocolId::Sasl => 3,
            ProtocolId::Other(other) => other,
        };
        let [major, minor, revision] = self.version;
        [b'A', b'M', b'Q', b'P', id, major, minor, revision]
    }
}

/// The layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// AMQP, on a channel.
    Amqp {
        /// Which.
        channel: u16,
    },
    /// SASL.
    Sasl,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its layer.
    pub kind: FrameKind,
    /// The frame without its header; empty for a sign of life.
    pub body: Bytes,
}

/// Bytes of the frame that `input` begins with, size field included; `None` until the size is
/// there.
///
/// # Errors
/// The size is smaller than a header, or larger than `max_bytes`.
pub fn announced_bytes(input: &[u8], max_bytes: u32) -> Result<Option<usize>, WireError> {
    let Some(size) = input.first_chunk::<4>() else { return Ok(None) };
    let got_bytes = u64::from(u32::from_be_bytes(*size));
    let header_bytes = FRAME_HEADER_BYTES as u64;
    if got_bytes < header_bytes {
        return Err(WireError::FrameTooSmall { got_bytes, header_bytes });
    }
    let max_bytes = u64::from(max_bytes);
    if got_bytes > max_bytes {
        return Err(WireError::FrameTooLarge { got_bytes, max_bytes });
    }
    Ok(Some(got_bytes as usize))
}

/// Takes a whole frame from the front of `input`; `None` until it is there.
///
/// # Errors
/// It is too large or too small, or of no known type.
pub fn take_frame(input: &mut BytesMut, max_bytes: u32) -> Result<Option<Frame>, WireError> {
    let Some(bytes) = announced_bytes(input, max_bytes)?.filter(|bytes| *bytes <= input.len()) else {
        return Ok(None);
    };
    let mut frame = input.split_to(bytes).freeze();
    let (data_offset, kind) = (frame[4], frame[5]);
    let channel = u16::from_be_bytes([frame[6], frame[7]]);
    let kind = match kind {
        0 => FrameKind::Amqp { channel },
        1 => FrameKind::Sasl,
        kind => return Err(WireError::UnknownFrameKind { kind }),
    };
    let header_bytes = usize::from(data_offset) * 4;
    if header_bytes < FRAME_HEADER_BYTES || header_bytes > bytes {
        let header_bytes = header_bytes as u64;
        return Err(WireError::FrameTooSmall { got_bytes: bytes as u64, header_bytes });
    }
    frame.advance(header_bytes);
    Ok(Some(Frame { kind, body: frame }))
}

/// Begins a frame; bytes appended until [`end_frame`] are its body. Returns its start.
pub fn begin_frame(kind: FrameKind, out: &mut BytesMut) -> usize {
    let start = out.len();
    let (code, channel) = match kind {
        FrameKind::Amqp { channel } => (0, channel),
        FrameKind::Sasl => (1, 0),
    };
    out.put_u32(0);
    out.put_slice(&[2, code]);
    out.put_u16(channel);
    start
}

/// Ends the frame that began at `start`; returns its size in bytes.
pub fn end_frame(start: usize, out: &mut BytesMut) -> usize {
    let bytes = out.len() - start;
    out[start..start + 4].copy_from_slice(&(bytes as u32).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_at_their_size() {
        let taken = |bytes: &[u8]| {
            let mut input = BytesMut::from(bytes);
            let frame = take_frame(&mut input, 64)?;
            Ok((frame.map(|frame| (frame.kind, frame.body.to_vec())), input.len()))
        };
        let amqp = |channel, body: &[u8]| Some((FrameKind::Amqp { channel }, body.to_vec()));
        for (case, bytes, want) in [
            ("nothing yet", &b"\0\0\0"[..], Ok((None, 3))),
            ("not all of it", b"\0\0\0\x0a\x02\0\0\x07a", Ok((None, 9))),
            ("whole, and more", b"\0\0\0\x0a\x02\0\0\x07abc", Ok((amqp(7, b"ab"), 1))),
            ("a sign of life", b"\0\0\0\x08\x02\0\0\0", Ok((amqp(0, b""), 0))),
            ("extended header is passed", b"\0\0\0\x0d\x03\0\0\0xxxxa", Ok((amqp(0, b"a"), 0))),
            ("SASL", b"\0\0\0\x09\x02\x01\0\0a", Ok((Some((FrameKind::Sasl, b"a".to_vec())), 0))),
            (
                "too small",
                b"\0\0\0\x07\x02\0\0",
                Err(WireError::FrameTooSmall { got_bytes: 7, header_bytes: 8 }),
            ),
            (
                "too large, as soon as the size is there",
                b"\0\0\0\x41",
                Err(WireError::FrameTooLarge { got_bytes: 65, max_bytes: 64 }),
            ),
            (
                "data inside the header",
                b"\0\0\0\x08\x01\0\0\0",
                Err(WireError::FrameTooSmall { got_bytes: 8, header_bytes: 4 }),
            ),
            (
                "data behind the frame",
                b"\0\0\0\x08\x03\0\0\0",
                Err(WireError::FrameTooSmall { got_bytes: 8, header_bytes: 12 }),
            ),
            ("unknown type", b"\0\0\0\x08\x02\x02\0\0", Err(WireError::UnknownFrameKind { kind: 2 })),
        ] {
            assert_eq!(taken(bytes), want, "case: {case}");
        }
    }

    #[test]
    fn headers_name_their_layer() {
        for (case, bytes, want) in [
            ("AMQP", b"AMQP\0\x01\0\0", Some(ProtocolHeader::AMQP)),
            ("SASL", b"AMQP\x03\x01\0\0", Some(ProtocolHeader::SASL)),
            (
                "AMQP 0-9-1",
                b"AMQP\0\0\x09\x01",
                Some(ProtocolHeader { id: ProtocolId::Amqp, version: [0, 9, 1] }),
            ),
            ("HTTP", b"GET / HT", None),
        ] {
            let header = ProtocolHeader::from_bytes(*bytes);
            assert_eq!(header, want, "case: {case}");
            assert_eq!(header.map_or(*bytes, ProtocolHeader::to_bytes), *bytes, "case: {case}");
        }
    }
}
