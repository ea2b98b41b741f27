//! Bodies in pieces: bytes or text of one or several sections. Section headers are removed, their
//! contents are passed on.

use bytes::{BufMut, Bytes, BytesMut};
use postroad_model::portable::{LargeReader, LargeWriter, PassThrough, Portable, Step, TranslationError};
use postroad_model::{Message, Protocol};

use crate::codec::{Reader, WireError};
use crate::message::Section;

/// A large message whose body can be read in pieces, the first of which is `front`; `None` for one
/// that has to be there whole: lists, maps, and other values.
///
/// Bytes that are said to be text are read as text. If they turn out to be none they are bytes
/// after all, as in a small message: `as_bytes` reads them so, and is `None` for bodies that can
/// only be text.
pub fn read_large(message: &Message, front: &Bytes, as_bytes: bool) -> Option<LargeReader> {
    let Ok(Begin::Value { section, is_text, header_bytes, length }) = begin(front) else { return None };
    if as_bytes && is_text {
        return None;
    }
    let held = &front[header_bytes..front.len().min(header_bytes + SAMPLE_BYTES_MAX.min(length as usize))];
    let stub = stub(section, (is_text, as_bytes), held);
    let bytes = [&message.bytes[..], &stub].concat().into();
    let total = message.chunk_bytes();
    let is_alone = header_bytes as u64 + length == total;
    Some(LargeReader {
        message: Message { bytes, ..message.clone() }.with_chunks(None),
        bytes: is_alone.then_some(length),
        step: Box::new(FromSections { total, ..FromSections::default() }),
    })
}

/// How AMQP has this message's body in pieces; `None` if it has to be there whole.
pub fn write_large(portable: &Portable) -> Option<LargeWriter> {
    let front = match super::write::section_of(portable)? {
        Section::Data => data_front,
        _ => text_front,
    };
    Some(LargeWriter { front, keeps_length: true, step: Box::new(PassThrough) })
}

/// Bytes with a length of four bytes (1.6.19).
const WIDE_BINARY: u8 = 0xb0;
/// Text with a length of four bytes (1.6.20).
const WIDE_STRING: u8 = 0xb1;

/// Bytes of a body that the message which stands for it contains, so that messages that are
/// otherwise alike can be distinguished.
const SAMPLE_BYTES_MAX: usize = 4096;

/// A section before whose value more than this stands is none that a body has.
const HEADER_BYTES_MAX: usize = 64;

fn data_front(bytes: u64) -> Result<Bytes, TranslationError> {
    front(Section::Data, WIDE_BINARY, bytes)
}

fn text_front(bytes: u64) -> Result<Bytes, TranslationError> {
    front(Section::Value, WIDE_STRING, bytes)
}

fn front(section: Section, constructor: u8, bytes: u64) -> Result<Bytes, TranslationError> {
    let length = u32::try_from(bytes).map_err(|_| TranslationError::Unwritable {
        protocol: Protocol::Amqp,
        reason: format!("a body of {bytes} bytes; a section has room for {}", u32::MAX),
    })?;
    let mut front = BytesMut::with_capacity(8);
    front.put_slice(&[0x00, 0x53, section.code(), constructor]);
    front.put_u32(length);
    Ok(front.freeze())
}

/// A short body, with the first bytes `held`; or one that is not text, if it must not be taken for
/// text.
fn stub(section: Section, (is_text, as_bytes): (bool, bool), held: &[u8]) -> Vec<u8> {
    // A character may be cut where the sample ends.
    let sample = match std::str::from_utf8(held) {
        Err(error) if is_text || error.error_len().is_none() => &held[..error.valid_up_to()],
        _ => held,
    };
    let no_text: &[u8] = if as_bytes { &[0xff] } else { &[] };
    let constructor = if is_text { WIDE_STRING } else { WIDE_BINARY };
    let length = (sample.len() + no_text.len()) as u32;
    [&[0x00, 0x53, section.code(), constructor], &length.to_be_bytes()[..], sample, no_text].concat()
}

/// How a section begins.
#[derive(Debug, PartialEq, Eq)]
enum Begin {
    /// One of bytes or text.
    Value { section: Section, is_text: bool, header_bytes: usize, length: u64 },
    /// The footer, which says nothing about the body.
    Footer,
    /// One of the body whose value is something else.
    Other,
}

/// How the section begins that `bytes` begin with.
fn begin(bytes: &Bytes) -> Result<Begin, WireError> {
    let mut reader = Reader::new(bytes);
    let section = Section::of(&reader.descriptor()?);
    if section == Some(Section::Footer) {
        return Ok(Begin::Footer);
    }
    let Some((is_text, length)) = reader.enter_flat()? else { return Ok(Begin::Other) };
    let section = match section {
        Some(Section::Data) if !is_text => Section::Data,
        Some(Section::Value) => Section::Value,
        _ => return Ok(Begin::Other),
    };
    Ok(Begin::Value { section, is_text, header_bytes: reader.offset(), length: length as u64 })
}

/// From the sections of a body to their contents.
#[derive(Debug, Default)]
struct FromSections {
    /// Bytes of all pieces.
    total: u64,
    /// How many have come.
    got: u64,
    /// The missing rest of the section.
    left: u64,
    /// The beginning of a section, of whose header the rest is in the next piece.
    header: BytesMut,
    /// The kind of the first section: those that follow are of it too.
    first: Option<Section>,
    /// The footer has begun.
    is_over: bool,
}

impl Step for FromSections {
    fn take(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), String> {
        let mut rest = piece;
        while !rest.is_empty() && !self.is_over {
            if self.left == 0 {
                rest = self.header(rest)?;
                continue;
            }
            let (held, behind) =
                rest.split_at(rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)));
            out.put_slice(held);
            self.left -= held.len() as u64;
            self.got += held.len() as u64;
            rest = behind;
        }
        self.got += rest.len() as u64;
        Ok(())
    }

    fn end(&mut self, _: &mut BytesMut) -> Result<(), String> {
        if 0 < self.left {
            return Err(format!("its body ends {} bytes ahead of the end of its section", self.left));
        }
        match self.got == self.total && self.header.is_empty() {
            true => Ok(()),
            false => Err(format!("its body breaks off after {} of {} bytes", self.got, self.total)),
        }
    }
}

impl FromSections {
    /// Takes a section's header from the front of `rest`; returns the bytes after it.
    fn header<'r>(&mut self, rest: &'r [u8]) -> Result<&'r [u8], String> {
        let before = self.header.len();
        let taken = rest.len().min(HEADER_BYTES_MAX - before);
        self.header.extend_from_slice(&rest[..taken]);
        match begin(&self.header.clone().freeze()) {
            Ok(Begin::Value { section, header_bytes, length, .. }) if self.may_have(section) => {
                self.header.clear();
                self.got += header_bytes as u64;
                (self.first, self.left) = (Some(section), length);
                Ok(&rest[header_bytes - before..])
            }
            Ok(Begin::Footer) => {
                self.header.clear();
                self.got += before as u64;
                self.is_over = true;
                Ok(rest)
            }
            Err(WireError::Truncated { .. }) if before + taken < HEADER_BYTES_MAX => Ok(&rest[taken..]),
            Err(error) => Err(format!("its body, {} bytes on: {error}", self.got)),
            Ok(_) => Err(format!("its body, {} bytes on: this section cannot follow", self.got)),
        }
    }

    /// Only data may come in several sections (3.2).
    fn may_have(&self, section: Section) -> bool {
        self.first.is_none_or(|first| first == Section::Data && section == Section::Data)
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Encoding;
    use postroad_model::portable::Body;

    use super::*;
    use crate::portable::read_portable;

    fn message(chunk_bytes: usize) -> Message {
        let chunks = postroad_model::Chunks {
            bytes: chunk_bytes as u64,
            piece_bytes: 1 << 18,
            positions: Box::default(),
        };
        Message {
            encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"\0\x53\x70\x45"),
        }
        .with_chunks(Some(chunks.into()))
    }

    /// The output for a body cut into pieces of this size.
    fn all(body: &[u8], piece_bytes: usize) -> Result<BytesMut, String> {
        let mut step = FromSections { total: body.len() as u64, ..FromSections::default() };
        let mut out = BytesMut::new();
        body.chunks(piece_bytes).try_for_each(|piece| step.take(piece, &mut out))?;
        step.end(&mut out).map(|()| out)
    }

    const FOOTER: &[u8] = b"\0\x53\x78\xc1\x01\0";
    const NAMED: &[u8] = b"\0\xa3\x10amqp:data:binary\xa0\x02cd";

    #[test]
    fn sections_are_read_wherever_they_are_cut() {
        for (case, body, want) in [
            ("short", b"\0\x53\x75\xa0\x02ab".to_vec(), "ab"),
            ("long", b"\0\x53\x75\xb0\0\0\0\x02ab".to_vec(), "ab"),
            ("a long descriptor", b"\0\x80\0\0\0\0\0\0\0\x75\xa0\x02ab".to_vec(), "ab"),
            ("text", b"\0\x53\x77\xa1\x02ab".to_vec(), "ab"),
            ("long text", b"\0\x53\x77\xb1\0\0\0\x02ab".to_vec(), "ab"),
            ("several sections", [b"\0\x53\x75\xa0\x02ab", NAMED].concat(), "abcd"),
            ("one of them empty", [b"\0\x53\x75\xa0\x00", NAMED].concat(), "cd"),
            ("a footer", [NAMED, FOOTER].concat(), "cd"),
        ] {
            for piece_bytes in 1..=body.len() {
                assert_eq!(all(&body, piece_bytes).unwrap(), *want, "{case}, in pieces of {piece_bytes}");
            }
        }
    }

    #[test]
    fn what_is_no_body_says_where() {
        for (case, body, want) in [
            (
                "half of it",
                b"\0\x53\x75\xa0\x09ab".to_vec(),
                "its body ends 7 bytes ahead of the end of its section",
            ),
            ("half a header", b"\0\x53\x75".to_vec(), "its body breaks off after 0 of 3 bytes"),
            ("text and more", b"\0\x53\x77\xa1\x01a\0\x53\x77\xa1\x01a".to_vec(), "6 bytes on"),
            ("another section", b"\0\x53\x75\xa0\x01a\0\x53\x73\x45".to_vec(), "6 bytes on"),
            ("no section", b"\0\x53\x75\xa0\x01ab".to_vec(), "6 bytes on"),
        ] {
            for piece_bytes in 1..=body.len() {
                let error = all(&body, piece_bytes).unwrap_err();
                assert!(error.contains(want), "{case}, in pieces of {piece_bytes}: {error}");
            }
        }
    }

    #[test]
    fn a_body_is_read_in_pieces_if_it_is_bytes_or_text() {
        for (case, front, total, bytes, body) in [
            (
                "bytes",
                &b"\0\x53\x75\xb0\0\x10\0\0"[..],
                8 + (1 << 20),
                Some(1 << 20),
                Body::Bytes(Bytes::new()),
            ),
            ("more behind them", b"\0\x53\x75\xb0\0\x10\0\0", 9 + (1 << 20), None, Body::Bytes(Bytes::new())),
            ("a value of bytes", b"\0\x53\x77\xb0\0\x10\0\0", 9 + (1 << 20), None, Body::Bytes(Bytes::new())),
            ("text", b"\0\x53\x77\xb1\0\x10\0\0", 8 + (1 << 20), Some(1 << 20), Body::Text(Some("".into()))),
        ] {
            let front = Bytes::from_static(front);
            let read = read_large(&message(total), &front, false).unwrap();
            assert_eq!((read.bytes, read.message.chunks()), (bytes, None), "{case}");
            assert_eq!(read_portable(&read.message).unwrap().body, body, "{case}");
        }
        for (case, front) in [
            ("a list", &b"\0\x53\x76\xd0\0\x10\0\0\0\0\0\0"[..]),
            ("a map", b"\0\x53\x77\xd1\0\x10\0\0\0\0\0\0"),
            ("a symbol", b"\0\x53\x77\xb3\0\x10\0\0"),
            ("data that is text", b"\0\x53\x75\xb1\0\x10\0\0"),
            ("nothing", b""),
        ] {
            assert!(read_large(&message(1 << 20), &Bytes::from_static(front), false).is_none(), "{case}");
        }
    }

    #[test]
    fn what_is_said_to_be_text_can_be_read_as_bytes() {
        let data = Bytes::from_static(b"\0\x53\x75\xb0\0\x10\0\0");
        let text = Bytes::from_static(b"\0\x53\x77\xb1\0\x10\0\0");
        // Its content type is text/plain.
        let head = b"\0\x53\x73\xc0\x13\x07\x40\x40\x40\x40\x40\x40\xa3\x0atext/plain";
        let message = Message { bytes: Bytes::from_static(head), ..message(8 + (1 << 20)) };
        let body = |as_bytes| {
            let read = read_large(&message, &data, as_bytes).unwrap();
            read_portable(&read.message).unwrap().body
        };
        assert_eq!(body(false), Body::Text(Some("".into())));
        assert!(matches!(body(true), Body::Bytes(_)));
        assert!(read_large(&message, &text, true).is_none());
    }

    #[test]
    fn the_message_that_stands_for_it_begins_as_the_body_does() {
        for (case, front, want) in [
            ("bytes", &b"\0\x53\x75\xb0\0\x10\0\0ab\xffc"[..], Body::Bytes(Bytes::from_static(b"ab\xffc"))),
            ("text that is cut", b"\0\x53\x77\xb1\0\x10\0\0ab\xf0\x9f", Body::Text(Some("ab".into()))),
            ("a short section", b"\0\x53\x75\xa0\x02abcd", Body::Bytes(Bytes::from_static(b"ab"))),
        ] {
            let read = read_large(&message(1 << 20), &Bytes::from_static(front), false);
            let body = read.map_or(Body::None, |read| read_portable(&read.message).unwrap().body);
            assert_eq!(body, want, "{case}");
        }
        let front = [&b"\0\x53\x75\xb0\0\x10\0\0"[..], &[7; 1 << 16]].concat().into();
        let read = read_large(&message(1 << 20), &front, false).unwrap();
        assert!(read.message.bytes.len() < SAMPLE_BYTES_MAX + 64, "{} bytes", read.message.bytes.len());
    }

    #[test]
    fn what_stands_ahead_of_a_body_is_its_section() {
        let portable = |body| Portable { body, ..Portable::default() };
        for (case, body, want) in [
            ("bytes", Body::Bytes(Bytes::new()), Some(&b"\0\x53\x75\xb0\0\0\x01\0"[..])),
            ("an object", Body::Object(Some(Bytes::new())), Some(b"\0\x53\x75\xb0\0\0\x01\0")),
            ("text", Body::Text(Some("".into())), Some(b"\0\x53\x77\xb1\0\0\x01\0")),
            ("a map", Body::Map(Vec::new()), None),
            ("nothing", Body::None, None),
        ] {
            let front = write_large(&portable(body)).map(|writer| (writer.front)(256).unwrap());
            assert_eq!(front.as_deref(), want, "{case}");
        }
        let mut text = portable(Body::Text(Some("".into())));
        text.headers.content_type = Some("text/plain".into());
        let front = write_large(&text).map(|writer| (writer.front)(256).unwrap());
        assert_eq!(
            front.as_deref(),
            Some(&b"\0\x53\x75\xb0\0\0\x01\0"[..]),
            "text that has a type is in data"
        );
        let too_long = data_front(1 << 32).unwrap_err();
        assert!(matches!(too_long, TranslationError::Unwritable { .. }), "{too_long}");
    }
}
