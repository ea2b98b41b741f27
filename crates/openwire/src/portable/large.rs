//! Bodies in pieces: those of text messages are rewritten on their way, for Java's modified UTF-8
//! is OpenWire's alone; bytes and objects stay as they are.

use bytes::{BufMut, Bytes, BytesMut};
use postroad_model::portable::{Body, LargeReader, LargeWriter, PassThrough, Step, TranslationError};
use postroad_model::{Message, Protocol};

use crate::codec::{MessageKind, WireString, from_stored, with_content};

/// A large message whose body can be read in pieces; `None` for one that has to be there whole:
/// deflated, a map, a stream.
///
/// # Errors
/// [`TranslationError::Unreadable`]: it is no message.
pub fn read_large(message: &Message) -> Result<Option<LargeReader>, TranslationError> {
    let unreadable = |error: crate::codec::WireError| TranslationError::Unreadable {
        protocol: Protocol::OpenWire,
        reason: error.to_string(),
    };
    let (bytes, version) = (&message.bytes, message.encoding.version);
    let stored = from_stored(bytes, version).map_err(unreadable)?;
    let is_text = match stored.kind {
        MessageKind::Text => true,
        MessageKind::Bytes | MessageKind::Object => false,
        _ => return Ok(None),
    };
    if stored.compressed {
        return Ok(None);
    }
    let stub: &[u8] = if is_text { &[0; LENGTH_BYTES] } else { &[] };
    let bytes = with_content(bytes, version, stub).map_err(unreadable)?;
    let step: Box<dyn Step> = match is_text {
        true => Box::new(FromText { total: message.chunk_bytes(), ..FromText::default() }),
        false => Box::new(PassThrough),
    };
    let known = (!is_text).then_some(message.chunk_bytes());
    let message = Message { bytes, ..message.clone() }.with_chunks(None);
    Ok(Some(LargeReader { message, bytes: known, step }))
}

/// How OpenWire has this body in pieces; `None` if it has to be there whole.
pub fn write_large(body: &Body) -> Option<LargeWriter> {
    Some(match body {
        Body::Text(Some(_)) => {
            LargeWriter { front: text_front, keeps_length: false, step: Box::new(ToText::default()) }
        }
        Body::Bytes(_) | Body::Object(_) => {
            LargeWriter { front: no_front, keeps_length: true, step: Box::new(PassThrough) }
        }
        _ => return None,
    })
}

/// The length of a text stands before it.
const LENGTH_BYTES: usize = 4;

/// The largest content of a frame that can have a few properties besides.
const CONTENT_BYTES_MAX: u64 = i32::MAX as u64 - (1 << 20);

fn no_front(bytes: u64) -> Result<Bytes, TranslationError> {
    checked(bytes).map(|_| Bytes::new())
}

fn text_front(bytes: u64) -> Result<Bytes, TranslationError> {
    Ok(Bytes::copy_from_slice(&checked(bytes)?.to_be_bytes()))
}

fn checked(bytes: u64) -> Result<i32, TranslationError> {
    match i32::try_from(bytes) {
        Ok(length) if bytes <= CONTENT_BYTES_MAX => Ok(length),
        _ => {
            let reason =
                format!("a body of {bytes} bytes; OpenWire's frames have room for {CONTENT_BYTES_MAX}");
            Err(TranslationError::Unwritable { protocol: Protocol::OpenWire, reason })
        }
    }
}

/// From the content of a text message to UTF-8.
#[derive(Debug, Default)]
struct FromText {
    /// Bytes of all pieces.
    total: u64,
    /// How many have come.
    got: u64,
    /// Of the length ahead.
    length: Vec<u8>,
    /// The beginning of a character whose rest is in the next piece.
    cut: Vec<u8>,
}

impl Step for FromText {
    fn take(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), String> {
        self.got += piece.len() as u64;
        let (ahead, piece) = piece.split_at(piece.len().min(LENGTH_BYTES - self.length.len()));
        self.length.extend_from_slice(ahead);
        if let Ok(length) = <[u8; LENGTH_BYTES]>::try_from(&self.length[..]) {
            let (length, there) =
                (i32::from_be_bytes(length), self.total.saturating_sub(LENGTH_BYTES as u64));
            if u64::try_from(length) != Ok(there) {
                return Err(format!("its body is a text of {length} bytes, and has {there}"));
            }
        }
        self.cut.extend_from_slice(piece);
        let whole = whole_characters(&self.cut);
        let rest = self.cut.split_off(whole);
        let whole = std::mem::replace(&mut self.cut, rest);
        self.convert(whole, out)
    }

    fn end(&mut self, out: &mut BytesMut) -> Result<(), String> {
        let rest = std::mem::take(&mut self.cut);
        if self.got != self.total || self.length.len() < LENGTH_BYTES {
            return Err(format!("its body has {} of {} bytes", self.got, self.total));
        }
        self.convert(rest, out)
    }
}

impl FromText {
    fn convert(&self, whole: Vec<u8>, out: &mut BytesMut) -> Result<(), String> {
        let text = WireString::from_wire(whole.into())
            .ok_or_else(|| format!("its body is no modified UTF-8, within {} bytes", self.got))?;
        out.put_slice(text.to_str().as_bytes());
        Ok(())
    }
}

/// The length of modified UTF-8 that can be rewritten without later bytes: no sequence or surrogate
/// pair is cut.
fn whole_characters(bytes: &[u8]) -> usize {
    let starts = |byte: &&u8| **byte & 0xC0 != 0x80;
    let behind = bytes.iter().rev().take(2).take_while(|byte| !starts(byte)).count();
    let lead = bytes.len().checked_sub(behind + 1).and_then(|at| Some((at, *bytes.get(at)?)));
    let whole = match lead {
        Some((at, 0xE0..0xF0)) if behind < 2 => at,
        Some((at, 0xC0..0xE0)) if behind < 1 => at,
        _ => bytes.len(),
    };
    match bytes[..whole] {
        [.., 0xED, 0xA0..0xB0, _] => whole - 3,
        _ => whole,
    }
}

/// From UTF-8 to the content of a text message, after the length.
#[derive(Debug, Default)]
struct ToText {
    got: u64,
    /// The beginning of a character whose rest is in the next piece.
    cut: Vec<u8>,
}

impl Step for ToText {
    fn take(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), String> {
        self.got += piece.len() as u64;
        self.cut.extend_from_slice(piece);
        let whole = match std::str::from_utf8(&self.cut) {
            Ok(_) => self.cut.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(format!("its body is no UTF-8, within {} bytes", self.got)),
        };
        let rest = self.cut.split_off(whole);
        let whole = String::from_utf8(std::mem::replace(&mut self.cut, rest)).unwrap_or_default();
        out.put_slice(WireString::from(whole).as_bytes());
        Ok(())
    }

    fn end(&mut self, _: &mut BytesMut) -> Result<(), String> {
        match self.cut.is_empty() {
            true => Ok(()),
            false => Err("its body ends in the midst of a character".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a step for a body cut into pieces of this size.
    fn all(mut step: impl Step, body: &[u8], piece_bytes: usize) -> Result<BytesMut, String> {
        let mut out = BytesMut::new();
        body.chunks(piece_bytes).try_for_each(|piece| step.take(piece, &mut out))?;
        step.end(&mut out).map(|()| out)
    }

    fn content(text: &[u8]) -> Vec<u8> {
        [&(text.len() as i32).to_be_bytes()[..], text].concat()
    }

    fn from_text(content: &[u8], piece_bytes: usize) -> Result<BytesMut, String> {
        let step = FromText { total: content.len() as u64, ..FromText::default() };
        all(step, content, piece_bytes)
    }

    #[test]
    fn text_is_rewritten_wherever_it_is_cut() {
        for text in ["", "plain", "a\0b", "é€", "😀", "x😀😀y€\0😀é"] {
            let java = WireString::from(text);
            for piece_bytes in 1..=java.as_bytes().len() + 4 {
                let case = format!("{text:?} in pieces of {piece_bytes}");
                assert_eq!(from_text(&content(java.as_bytes()), piece_bytes).unwrap(), *text, "{case}");
                let there = all(ToText::default(), text.as_bytes(), piece_bytes);
                assert_eq!(there.unwrap()[..], java.as_bytes()[..], "{case}");
            }
        }
    }

    #[test]
    fn a_lone_surrogate_is_replaced_wherever_it_is_cut() {
        for (java, want) in [(&b"\xED\xA0\xBD"[..], "\u{FFFD}"), (b"a\xED\xA0\xBDb", "a\u{FFFD}b")] {
            for piece_bytes in 1..8 {
                assert_eq!(from_text(&content(java), piece_bytes).unwrap(), *want, "{java:?}, {piece_bytes}");
            }
        }
    }

    #[test]
    fn what_is_no_text_says_so() {
        for (case, content, want) in [
            ("no sequence begins so", content(b"a\x80"), "its body is no modified UTF-8, within 6 bytes"),
            ("the last one is cut", content(b"ab\xE2\x82"), "its body is no modified UTF-8, within 8 bytes"),
            (
                "null, with a body",
                b"\xff\xff\xff\xffab".to_vec(),
                "its body is a text of -1 bytes, and has 2",
            ),
            ("less than it says", b"\0\0\0\x03ab".to_vec(), "its body is a text of 3 bytes, and has 2"),
            ("more than it says", b"\0\0\0\x01ab".to_vec(), "its body is a text of 1 bytes, and has 2"),
        ] {
            assert_eq!(from_text(&content, 16).unwrap_err(), want, "{case}");
            assert!(from_text(&content, 1).is_err(), "{case}, in pieces of one byte");
        }
        let short = FromText { total: 10, ..FromText::default() };
        assert_eq!(all(short, b"\0\0\0\x06ab", 16).unwrap_err(), "its body has 6 of 10 bytes");
        for (case, utf8, want) in [
            ("no sequence begins so", &b"a\x80"[..], "its body is no UTF-8, within 2 bytes"),
            ("the last one is cut", b"ab\xE2\x82", "its body ends in the midst of a character"),
        ] {
            assert_eq!(all(ToText::default(), utf8, 16).unwrap_err(), want, "{case}");
        }
    }
}
