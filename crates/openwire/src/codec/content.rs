//! Where the content stands in a message, for bodies that are not in memory: cut out, left open,
//! and put back.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    ConsumerId, Destination, MessageId, MessageKind, ProducerId, SIZE_BYTES, TransactionId, WireError,
    WireFormat,
    message::TYPE_AND_BASE_BYTES,
    reader::{Layout, Reader},
    scan::Scanner,
};

/// Where the content stands, presence flag first, in a message in its stored form, of which the
/// rest may be missing.
///
/// # Errors
/// The bytes end before that ([`WireError::is_truncated`]), or are no message.
pub fn content_at(stored: &[u8], version: u8) -> Result<usize, WireError> {
    let mut scanner = Scanner::new(stored, version);
    skip_to_content(&mut scanner)?;
    Ok(scanner.offset)
}

/// Where a message in its stored form is sent, of which the rest may be missing.
///
/// # Errors
/// As [`content_at`].
pub fn destination_of(stored: &Bytes, version: u8) -> Result<Option<Destination>, WireError> {
    let mut scanner = Scanner::new(stored, version);
    skip_to_destination(&mut scanner)?;
    Reader::at(stored, scanner.offset, Layout::stored(version)).object()
}

/// The columns before `content` in the table of messages.
fn skip_to_content(scanner: &mut Scanner<'_>) -> Result<(), WireError> {
    skip_to_destination(scanner)?;
    scanner.object::<Destination>()?;
    scanner.object::<TransactionId>()?;
    scanner.object::<Destination>()?;
    scanner.object::<MessageId>()?;
    scanner.object::<TransactionId>()?;
    // Group, its sequence, correlation id.
    scanner.string()?;
    scanner.skip(4)?;
    scanner.string()?;
    // Persistent, expiration, priority.
    scanner.skip(1 + 8 + 1)?;
    scanner.object::<Destination>()?;
    // Timestamp, type.
    scanner.skip(8)?;
    scanner.string()
}

/// The columns before `destination`.
fn skip_to_destination(scanner: &mut Scanner<'_>) -> Result<(), WireError> {
    let (type_id, offset) = (scanner.byte()?, scanner.offset - 1);
    if MessageKind::from_type_id(type_id).is_none() {
        return Err(WireError::UnexpectedType { type_id, wanted: "Message", offset });
    }
    scanner.skip(TYPE_AND_BASE_BYTES - 1)?;
    scanner.object::<ProducerId>()
}

/// Behind the content that stands at `at`.
fn content_end(stored: &[u8], at: usize, version: u8) -> Result<usize, WireError> {
    let mut scanner = Scanner::new(stored, version);
    scanner.skip(at)?;
    scanner.bytes()?;
    Ok(scanner.offset)
}

/// Makes room for content of `content_bytes` in the dispatch that `out` ends with, from `start` on:
/// `out` ends where the content begins then, and the bytes after it are returned. The format is
/// loose, uncached, and has sizes before frames.
///
/// # Errors
/// [`WireError::FrameTooLarge`]: with its content it is larger than the peer takes. `out` ends at
/// `start` then.
pub fn open_content(
    format: &WireFormat,
    out: &mut BytesMut,
    start: usize,
    content_bytes: u64,
) -> Result<Bytes, WireError> {
    let opened = find_in_dispatch(&out[start + SIZE_BYTES..], format.version).and_then(|(at, end)| {
        let frame_bytes = (out.len() - start - SIZE_BYTES - (end - at) + 5) as u64 + content_bytes;
        let max_bytes = format.max_frame_bytes.min(i32::MAX as u64);
        match frame_bytes <= max_bytes {
            true => Ok((at, end, frame_bytes)),
            false => Err(WireError::FrameTooLarge { got_bytes: frame_bytes, max_bytes }),
        }
    });
    match opened {
        Ok((at, end, frame_bytes)) => {
            let tail = out.split_off(start + SIZE_BYTES + end).freeze();
            out.truncate(start + SIZE_BYTES + at);
            out[start..start + SIZE_BYTES].copy_from_slice(&(frame_bytes as u32).to_be_bytes());
            out.put_u8(1);
            out.put_u32(content_bytes as u32);
            Ok(tail)
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Where the content of the message in a dispatch begins and ends.
fn find_in_dispatch(frame: &[u8], version: u8) -> Result<(usize, usize), WireError> {
    let mut scanner = Scanner::new(frame, version);
    scanner.skip(TYPE_AND_BASE_BYTES)?;
    scanner.object::<ConsumerId>()?;
    scanner.object::<Destination>()?;
    // That there is a message.
    scanner.skip(1)?;
    skip_to_content(&mut scanner)?;
    Ok((scanner.offset, content_end(frame, scanner.offset, version)?))
}

/// The stored message with other content.
///
/// # Errors
/// It is no stored message of that version, or the content is too long for one.
pub fn with_content(stored: &Bytes, version: u8, content: &[u8]) -> Result<Bytes, WireError> {
    let at = content_at(stored, version)?;
    let end = content_end(stored, at, version)?;
    let length = i32::try_from(content.len()).map_err(|_| WireError::FrameTooLarge {
        got_bytes: content.len() as u64,
        max_bytes: i32::MAX as u64,
    })?;
    let mut whole = BytesMut::with_capacity(stored.len() + content.len() + 5);
    whole.put_slice(&stored[..at]);
    whole.put_u8(1);
    whole.put_i32(length);
    whole.put_slice(content);
    whole.put_slice(&stored[end..]);
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{DispatchHeader, Message, Patch, encode_dispatch, from_stored, to_stored};

    fn message(content: Option<&'static [u8]>) -> Message {
        Message {
            kind: MessageKind::Bytes,
            destination: Some(Destination::Queue("q".into())),
            group_id: Some("g".into()),
            message_type: Some("t".into()),
            content: content.map(Bytes::from_static),
            marshalled_properties: Some(Bytes::from_static(b"props")),
            ..Message::default()
        }
    }

    #[test]
    fn content_is_put_into_its_place_whatever_was_there() {
        for version in [1, 5, 12] {
            for (name, before) in [("none", None), ("empty", Some(&b""[..])), ("other", Some(b"other"))] {
                let stored = to_stored(&message(before), version).unwrap();
                let whole = with_content(&stored, version, b"body").unwrap();
                let want = message(Some(b"body"));
                assert_eq!(from_stored(&whole, version), Ok(want), "{name}, version {version}");
            }
        }
    }

    #[test]
    fn a_message_that_is_not_there_up_to_its_content_is_truncated() {
        let stored = to_stored(&message(Some(b"body")), 12).unwrap();
        let at = content_at(&stored, 12).unwrap();
        assert_eq!(stored[at..at + 9], *b"\x01\0\0\0\x04body");
        for length in 0..at {
            let cut = content_at(&stored[..length], 12);
            assert!(cut.is_err_and(|error| error.is_truncated()), "{length} bytes");
        }
        assert_eq!(content_at(&stored[..at], 12), Ok(at));
        assert!(content_at(&[1, 2, 3], 12).is_err_and(|error| !error.is_truncated()));
    }

    #[test]
    fn an_opened_dispatch_with_its_content_is_that_of_the_whole_message() {
        let consumer_id = ConsumerId::default();
        let header = DispatchHeader {
            command_id: 7,
            consumer_id: &consumer_id,
            destination: None,
            redelivery_counter: 0,
        };
        let dispatch = |stored: &Bytes, out: &mut BytesMut| {
            let mut format = WireFormat::loose(12);
            encode_dispatch(&mut format, &header, stored, 12, &Patch::default(), out).unwrap();
            format
        };
        let mut want = BytesMut::from(&b"before"[..]);
        dispatch(&to_stored(&message(Some(b"body")), 12).unwrap(), &mut want);
        for before in [None, Some(&b""[..])] {
            let mut out = BytesMut::from(&b"before"[..]);
            let mut format = dispatch(&to_stored(&message(before), 12).unwrap(), &mut out);
            let whole = out.clone();
            let tail = open_content(&format, &mut out, 6, 4).unwrap();
            out.put_slice(b"body");
            out.put_slice(&tail);
            assert_eq!(out, want);
            format.max_frame_bytes = whole.len() as u64;
            let mut out = whole;
            let error = open_content(&format, &mut out, 6, 1000);
            assert!(matches!(error, Err(WireError::FrameTooLarge { .. })));
            assert_eq!(out, b"before"[..]);
        }
    }
}
