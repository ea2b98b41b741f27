//! The encoding of LDAP (RFC 4511, section 5.1): BER with definite lengths.

/// Tags of the messages that are used.
pub mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const INTEGER: u8 = 0x02;
    pub const OCTETS: u8 = 0x04;
    pub const ENUMERATED: u8 = 0x0A;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;

    pub const BIND_REQUEST: u8 = 0x60;
    pub const BIND_RESPONSE: u8 = 0x61;
    pub const UNBIND_REQUEST: u8 = 0x42;
    pub const SEARCH_REQUEST: u8 = 0x63;
    pub const SEARCH_ENTRY: u8 = 0x64;
    pub const SEARCH_DONE: u8 = 0x65;
    pub const SEARCH_REFERENCE: u8 = 0x73;
    pub const EXTENDED_REQUEST: u8 = 0x77;
    pub const EXTENDED_RESPONSE: u8 = 0x78;

    pub const AND: u8 = 0xA0;
    pub const OR: u8 = 0xA1;
    pub const NOT: u8 = 0xA2;
    pub const EQUAL: u8 = 0xA3;
    pub const SUBSTRINGS: u8 = 0xA4;
    pub const GREATER: u8 = 0xA5;
    pub const LESS: u8 = 0xA6;
    pub const PRESENT: u8 = 0x87;
    pub const APPROXIMATE: u8 = 0xA8;
    pub const EXTENSIBLE: u8 = 0xA9;
}

/// Writes one message.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// An element with these bytes.
    pub fn bytes(&mut self, tag: u8, content: &[u8]) {
        self.0.push(tag);
        self.length(content.len());
        self.0.extend_from_slice(content);
    }

    /// A number that is not negative.
    pub fn number(&mut self, tag: u8, number: u32) {
        let bytes = number.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(bytes.len() - 1);
        let significant = &bytes[zeros..];
        match significant.first() {
            // The first bit is the sign.
            Some(first) if 0x80 <= *first => self.bytes(tag, &[&[0], significant].concat()),
            _ => self.bytes(tag, significant),
        }
    }

    /// An element with elements in it.
    pub fn nested(&mut self, tag: u8, content: impl FnOnce(&mut Writer)) {
        let mut inner = Writer::default();
        content(&mut inner);
        self.bytes(tag, &inner.0);
    }

    fn length(&mut self, length: usize) {
        if length < 0x80 {
            self.0.push(length as u8);
            return;
        }
        let bytes = length.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        self.0.push(0x80 | (bytes.len() - zeros) as u8);
        self.0.extend_from_slice(&bytes[zeros..]);
    }

    /// All that was written.
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// The bytes are not BER as LDAP uses it, or end too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed BER")]
pub struct Malformed;

/// Reads elements, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b>(pub &'b [u8]);

impl<'b> Reader<'b> {
    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element: its tag and content.
    ///
    /// # Errors
    /// There is none.
    pub fn element(&mut self) -> Result<(u8, &'b [u8]), Malformed> {
        let (head_bytes, content_bytes) = size(self.0)?.ok_or(Malformed)?;
        let end = head_bytes.checked_add(content_bytes).ok_or(Malformed)?;
        let (tag, content) = (self.0[0], self.0.get(head_bytes..end).ok_or(Malformed)?);
        self.0 = &self.0[end..];
        Ok((tag, content))
    }

    /// The content of the next element, which has this tag.
    ///
    /// # Errors
    /// It has another one.
    pub fn expect(&mut self, tag: u8) -> Result<&'b [u8], Malformed> {
        match self.element()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(Malformed),
        }
    }

    /// The number in the next element, which has this tag.
    ///
    /// # Errors
    /// It is not a number from 0 to 2^32 - 1.
    pub fn number(&mut self, tag: u8) -> Result<u32, Malformed> {
        let content = self.expect(tag)?;
        match content {
            [] => Err(Malformed),
            [first, ..] if 0x80 <= *first => Err(Malformed),
            [0, rest @ ..] if 4 < rest.len() => Err(Malformed),
            [first, ..] if 4 < content.len() && *first != 0 => Err(Malformed),
            content => Ok(content.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))),
        }
    }

    /// The text in the next element.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text(&mut self) -> Result<&'b str, Malformed> {
        std::str::from_utf8(self.expect(tag::OCTETS)?).map_err(|_| Malformed)
    }
}

/// The bytes of the head and of the content of the element that these bytes begin with; `None` if
/// more of its head is needed.
///
/// # Errors
/// It has an indefinite length, or one of more than four bytes.
pub fn size(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let Some(first) = bytes.get(1) else { return Ok(None) };
    match *first {
        short @ 0..0x80 => Ok(Some((2, usize::from(short)))),
        0x80 | 0x85.. => Err(Malformed),
        long => {
            let count = usize::from(long & 0x7F);
            let Some(length) = bytes.get(2..2 + count) else { return Ok(None) };
            let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            Ok(Some((2 + count, length)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for number in [0, 1, 127, 128, 255, 256, 65_535, 1 << 24, u32::MAX] {
            let mut writer = Writer::default();
            writer.number(tag::INTEGER, number);
            assert_eq!(Reader(&writer.done()).number(tag::INTEGER), Ok(number));
        }
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let mut writer = Writer::default();
            writer.nested(tag::SEQUENCE, |writer| writer.bytes(tag::OCTETS, &vec![7; length]));
            let written = writer.done();
            let mut inner = Reader(Reader(&written).expect(tag::SEQUENCE).unwrap());
            assert_eq!(inner.expect(tag::OCTETS).map(<[u8]>::len), Ok(length));
            assert!(inner.is_empty());
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x85, 0, 0, 0, 0, 1, 0],
            &[0x30, 2, 1],
            &[0x30, 0x82, 1],
            &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF],
        ] {
            assert_eq!(Reader(bytes).element(), Err(Malformed), "{bytes:?}");
        }
        for bytes in
            [&[2, 0][..], &[2, 1, 0x80], &[2, 5, 1, 0, 0, 0, 0], &[2, 6, 0, 1, 0, 0, 0, 0], &[4, 1, 0]]
        {
            assert_eq!(Reader(bytes).number(tag::INTEGER), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(Reader(&[4, 1, 0xFF]).text(), Err(Malformed));
    }
}
