//! Reads fields from a frame, in the loose or the tight encoding.
//!
//! Loose: every field stands in place. Tight: booleans, presence flags and
//! length hints stand in a boolean stream before the rest. The order of
//! fields is the same, so one walk over the table serves both.

use bytes::Bytes;

use super::{
    Magic, WireError, WireString,
    cache::DecodeCache,
    cursor,
    data::DataStructure,
    structure::{Structure, is_marshal_aware},
    throwable::Throwable,
};

/// Objects inside objects that we follow. Real traffic nests five deep (a
/// dispatch with an advisory whose subject names a consumer); the bound keeps
/// hostile frames off the stack.
pub(super) const NESTING_MAX: u8 = 16;

/// Room reserved ahead for an array, however many elements it announces.
const ELEMENTS_RESERVED_MAX: usize = 64;

/// The negotiated format, as far as it affects the layout of fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub version: u8,
    pub tight: bool,
    pub stack_traces: bool,
}

impl Layout {
    /// The layout of stored messages: loose, without stack traces.
    pub fn stored(version: u8) -> Layout {
        Layout { version, tight: false, stack_traces: false }
    }
}

pub(super) struct Reader<'a> {
    frame: &'a Bytes,
    offset: usize,
    pub layout: Layout,
    booleans: Booleans,
    cache: Option<&'a mut DecodeCache>,
    depth: u8,
}

/// Part of the frame that holds the boolean stream, and the next bit in it.
#[derive(Clone, Copy, Default)]
struct Booleans {
    start: usize,
    bits: usize,
    next: usize,
}

impl<'a> Reader<'a> {
    pub fn new(frame: &'a Bytes, layout: Layout, cache: Option<&'a mut DecodeCache>) -> Reader<'a> {
        Reader { frame, offset: 0, layout, booleans: Booleans::default(), cache, depth: 0 }
    }

    /// Reads a loose field in the middle of a frame.
    pub fn at(frame: &'a Bytes, offset: usize, layout: Layout) -> Reader<'a> {
        Reader { offset: offset.min(frame.len()), ..Reader::new(frame, layout, None) }
    }

    pub fn offset(&self) -> usize {
        self.offset
    }

    pub fn left(&self) -> usize {
        self.frame.len() - self.offset
    }

    /// Whether fields that exist in versions `since` to `until` are present.
    #[inline]
    pub fn has(&self, since: u8, until: u8) -> bool {
        (since..=until).contains(&self.layout.version)
    }

    /// Reads the head of a tight-encoded object: its boolean stream.
    pub fn open_booleans(&mut self) -> Result<(), WireError> {
        let offset = self.offset;
        let bytes = match self.byte()? {
            0xC0 => usize::from(self.byte()?),
            0x80 => size_from(i64::from(self.short()?), offset)?,
            bytes => usize::from(bytes),
        };
        let start = self.take(bytes)?;
        self.booleans = Booleans { start, bits: bytes * 8, next: 0 };
        Ok(())
    }

    /// A boolean field, or the flag before a field that may be absent.
    #[inline]
    pub fn flag(&mut self) -> Result<bool, WireError> {
        if !self.layout.tight {
            return Ok(self.byte()? != 0);
        }
        let Booleans { start, bits, next } = self.booleans;
        if bits <= next {
            return Err(WireError::BooleansUsedUp { bits, offset: self.offset });
        }
        self.booleans.next += 1;
        Ok(self.frame[start + next / 8] >> (next % 8) & 1 != 0)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    pub fn short(&mut self) -> Result<i16, WireError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn int(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// 8 bytes when loose; 0, 2, 4 or 8 by two flags when tight.
    #[inline]
    pub fn long(&mut self) -> Result<i64, WireError> {
        if !self.layout.tight {
            return Ok(i64::from_be_bytes(self.array()?));
        }
        Ok(match (self.flag()?, self.flag()?) {
            (false, false) => 0,
            (false, true) => i64::from(u16::from_be_bytes(self.array()?)),
            (true, false) => i64::from(u32::from_be_bytes(self.array()?)),
            (true, true) => i64::from_be_bytes(self.array()?),
        })
    }

    #[inline]
    pub fn string(&mut self) -> Result<Option<WireString>, WireError> {
        if !self.flag()? {
            return Ok(None);
        }
        let latin1 = self.layout.tight && self.flag()?;
        let offset = self.offset;
        let length = self.short()?;
        if latin1 {
            let length = size_from(i64::from(length), offset)?;
            return Ok(Some(WireString::from_latin1(self.slice(length)?)));
        }
        let bytes = self.slice(usize::from(length as u16))?;
        Ok(Some(WireString::from_wire(bytes).ok_or(WireError::MalformedText { offset })?))
    }

    #[inline]
    pub fn bytes(&mut self) -> Result<Option<Bytes>, WireError> {
        if !self.flag()? {
            return Ok(None);
        }
        let offset = self.offset;
        let length = size_from(i64::from(self.int()?), offset)?;
        self.slice(length).map(Some)
    }

    /// Eight bytes of fixed value, before everything else on a connection.
    pub fn magic(&mut self) -> Result<Magic, WireError> {
        let offset = self.offset;
        let got = self.array()?;
        if got == Magic::BYTES { Ok(Magic) } else { Err(WireError::BadMagic { got, offset }) }
    }

    /// An object that may be absent.
    pub fn object<T: Structure>(&mut self) -> Result<Option<T>, WireError> {
        if !self.flag()? {
            return Ok(None);
        }
        self.descend(|reader| {
            let offset = reader.offset;
            let type_id = reader.byte()?;
            if reader.layout.tight && is_marshal_aware(type_id) && reader.flag()? {
                return reader.own_booleans(|reader| T::decode(type_id, offset, reader));
            }
            T::decode(type_id, offset, reader)
        })
        .map(Some)
    }

    /// An object that may stand in full or as an index into the marshalling cache.
    pub fn cached<T>(&mut self) -> Result<Option<T>, WireError>
    where
        T: Structure + Clone + Into<DataStructure> + TryFrom<DataStructure, Error = DataStructure>,
    {
        if self.cache.is_none() {
            return self.object();
        }
        let in_full = self.flag()?;
        let offset = self.offset;
        let index = self.short()?;
        let value: Option<T> = if in_full { self.object()? } else { None };
        let version = self.layout.version;
        let Some(cache) = self.cache.as_deref_mut() else { return Ok(value) };
        if in_full {
            cache.put(index, value.clone().map(Into::into), version, offset)?;
            return Ok(value);
        }
        let Some(known) = cache.get(index, offset)? else { return Ok(None) };
        T::try_from(known.clone()).map(Some).map_err(|other| WireError::UnexpectedType {
            type_id: other.type_id(),
            wanted: T::NAME,
            offset,
        })
    }

    /// An array that may be absent; its elements may not.
    pub fn objects<T: Structure>(&mut self) -> Result<Option<Vec<T>>, WireError> {
        if !self.flag()? {
            return Ok(None);
        }
        let offset = self.offset;
        let count = size_from(i64::from(self.short()?), offset)?;
        let mut values = Vec::with_capacity(count.min(self.left()).min(ELEMENTS_RESERVED_MAX));
        for _ in 0..count {
            let offset = self.offset;
            values.push(self.object()?.ok_or(WireError::NullElement { offset })?);
        }
        Ok(Some(values))
    }

    pub fn throwable(&mut self) -> Result<Option<Box<Throwable>>, WireError> {
        if !self.flag()? {
            return Ok(None);
        }
        self.descend(Throwable::read).map(|throwable| Some(Box::new(throwable)))
    }

    /// Fails if the frame goes on.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.left() {
            0 => Ok(()),
            left_bytes => Err(WireError::TrailingBytes { offset: self.offset, left_bytes }),
        }
    }

    fn descend<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        if NESTING_MAX <= self.depth {
            return Err(WireError::TooDeep { offset: self.offset, max: NESTING_MAX });
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// A nested object that was marshalled before its parent: it brings its
    /// own size, type and boolean stream. No current peer writes this form.
    fn own_booleans<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        self.int()?;
        self.byte()?;
        let outer = self.booleans;
        self.open_booleans()?;
        let value = read(self)?;
        self.booleans = outer;
        Ok(value)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        cursor::array(self.frame, &mut self.offset)
    }

    #[inline]
    fn slice(&mut self, length: usize) -> Result<Bytes, WireError> {
        let start = self.take(length)?;
        Ok(self.frame.slice(start..start + length))
    }

    /// Passes over `length` bytes and says where they start.
    #[inline]
    fn take(&mut self, length: usize) -> Result<usize, WireError> {
        cursor::take(self.frame, &mut self.offset, length)
    }
}

/// A size field as a count of bytes.
#[inline]
pub(super) fn size_from(got: i64, offset: usize) -> Result<usize, WireError> {
    usize::try_from(got).map_err(|_| WireError::NegativeSize { got, offset })
}
