//! Writes fields into a frame, in the loose or the tight encoding.
//!
//! The tight encoding puts all booleans of a command before its data. Both
//! come out of one walk, into two buffers that are joined at the end: the two
//! passes of the reference do the same work twice to learn the size.

use bytes::{BufMut, BytesMut};

use super::{
    Magic, WireError, WireString,
    cache::{EncodeCache, NOT_CACHED},
    reader::Layout,
    structure::{Structure, is_marshal_aware},
    throwable::Throwable,
};

/// The longest text whose length the tight encoding's short form can say.
const PLAIN_TEXT_BYTES_MAX: usize = i16::MAX as usize - 1;

pub(super) struct Writer<'a> {
    pub layout: Layout,
    data: &'a mut BytesMut,
    booleans: &'a mut BooleanWriter,
    cache: Option<&'a mut EncodeCache>,
}

/// Boolean stream under construction, eight booleans per byte, low bit first.
#[derive(Debug, Default)]
pub(super) struct BooleanWriter {
    bytes: Vec<u8>,
    bits: usize,
}

impl BooleanWriter {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bits = 0;
    }

    fn push(&mut self, value: bool) {
        if self.bits.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(value) << (self.bits % 8);
        }
        self.bits += 1;
    }

    /// Bytes that [`BooleanWriter::put`] will write.
    pub fn encoded_len(&self) -> usize {
        let head = match self.bytes.len() {
            0..64 => 1,
            64..256 => 2,
            _ => 3,
        };
        head + self.bytes.len()
    }

    pub fn put(&self, out: &mut BytesMut) -> Result<(), WireError> {
        let length = self.bytes.len();
        match length {
            0..64 => out.put_u8(length as u8),
            64..256 => out.put_slice(&[0xC0, length as u8]),
            _ => {
                let length = i16::try_from(length)
                    .map_err(|_| WireError::TooMany { got: length * 8, max: i16::MAX as usize * 8 })?;
                out.put_u8(0x80);
                out.put_i16(length);
            }
        }
        out.put_slice(&self.bytes);
        Ok(())
    }
}

impl<'a> Writer<'a> {
    pub fn new(
        layout: Layout,
        data: &'a mut BytesMut,
        booleans: &'a mut BooleanWriter,
        cache: Option<&'a mut EncodeCache>,
    ) -> Writer<'a> {
        Writer { layout, data, booleans, cache }
    }

    #[inline]
    pub fn has(&self, since: u8, until: u8) -> bool {
        (since..=until).contains(&self.layout.version)
    }

    #[inline]
    pub fn flag(&mut self, value: bool) {
        if self.layout.tight { self.booleans.push(value) } else { self.data.put_u8(u8::from(value)) }
    }

    #[inline]
    pub fn byte(&mut self, value: u8) {
        self.data.put_u8(value);
    }

    #[inline]
    pub fn int(&mut self, value: i32) {
        self.data.put_i32(value);
    }

    #[inline]
    pub fn long(&mut self, value: i64) {
        if !self.layout.tight {
            return self.data.put_i64(value);
        }
        let (four_up, odd) = match value as u64 {
            0 => (false, false),
            1..=0xFFFF => (false, true),
            0x1_0000..=0xFFFF_FFFF => (true, false),
            _ => (true, true),
        };
        self.booleans.push(four_up);
        self.booleans.push(odd);
        match (four_up, odd) {
            (false, false) => {}
            (false, true) => self.data.put_u16(value as u16),
            (true, false) => self.data.put_u32(value as u32),
            (true, true) => self.data.put_i64(value),
        }
    }

    pub fn string(&mut self, value: Option<&WireString>) -> Result<(), WireError> {
        self.flag(value.is_some());
        let Some(value) = value else { return Ok(()) };
        let bytes = value.as_bytes();
        let length = u16::try_from(bytes.len())
            .map_err(|_| WireError::TextTooLong { got_bytes: bytes.len(), max_bytes: u16::MAX.into() })?;
        if self.layout.tight {
            // The short form's length is signed; the long form takes any length.
            self.flag(bytes.len() <= PLAIN_TEXT_BYTES_MAX && value.is_plain());
        }
        self.data.put_u16(length);
        self.data.put_slice(bytes);
        Ok(())
    }

    pub fn bytes(&mut self, value: Option<&[u8]>) -> Result<(), WireError> {
        self.flag(value.is_some());
        let Some(value) = value else { return Ok(()) };
        self.data.put_i32(length_i32(value.len())?);
        self.data.put_slice(value);
        Ok(())
    }

    pub fn magic(&mut self, _: Magic) {
        self.data.put_slice(&Magic::BYTES);
    }

    /// Bytes that are fields already; returned as they stand in the frame.
    pub fn raw(&mut self, value: &[u8]) -> &mut [u8] {
        let start = self.data.len();
        self.data.put_slice(value);
        &mut self.data[start..]
    }

    pub fn object<T: Structure>(&mut self, value: Option<&T>) -> Result<(), WireError> {
        self.flag(value.is_some());
        let Some(value) = value else { return Ok(()) };
        let type_id = value.type_id();
        self.byte(type_id);
        if self.layout.tight && is_marshal_aware(type_id) {
            self.flag(false);
        }
        value.encode(self)
    }

    /// An object in full the first time, an index of the marshalling cache
    /// from then on. Absent objects are cached too.
    pub fn cached<T: Structure>(&mut self, value: Option<&T>) -> Result<(), WireError> {
        let Some(cache) = self.cache.as_deref_mut() else { return self.object(value) };
        let key = cache.key_of(value, self.layout)?;
        if let Some(index) = cache.index_of(&key) {
            cache.give_back(key);
            self.flag(false);
            self.data.put_i16(index);
            return Ok(());
        }
        // The two encodings number nested values differently: loose counts the
        // outer object first, tight the inner one.
        let index = if self.layout.tight { NOT_CACHED } else { cache.add(&key) };
        self.flag(true);
        let place = self.data.len();
        self.data.put_i16(index);
        self.object(value)?;
        let tight = self.layout.tight;
        if let Some(cache) = self.cache.as_deref_mut() {
            if tight {
                let index = cache.add(&key);
                self.data[place..place + 2].copy_from_slice(&index.to_be_bytes());
            }
            cache.give_back(key);
        }
        Ok(())
    }

    pub fn objects<T: Structure>(&mut self, values: Option<&[T]>) -> Result<(), WireError> {
        self.flag(values.is_some());
        let Some(values) = values else { return Ok(()) };
        self.count(values.len())?;
        values.iter().try_for_each(|value| self.object(Some(value)))
    }

    pub fn throwable(&mut self, value: Option<&Throwable>) -> Result<(), WireError> {
        self.flag(value.is_some());
        value.map_or(Ok(()), |value| value.write(self))
    }

    /// The length of an array.
    pub fn count(&mut self, count: usize) -> Result<(), WireError> {
        let max = i16::MAX as usize;
        self.data.put_i16(i16::try_from(count).map_err(|_| WireError::TooMany { got: count, max })?);
        Ok(())
    }
}

/// A byte count for a 4-byte length field.
pub(super) fn length_i32(length: usize) -> Result<i32, WireError> {
    i32::try_from(length).map_err(|_| WireError::TooMany { got: length, max: i32::MAX as usize })
}
