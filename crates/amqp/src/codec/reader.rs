//! Reading values: every encoding of part 1, section 1.6, and walking over values without decoding
//! them.

use bytes::Bytes;

use super::{Array, Described, Symbol, Text, Value, ValueMap, WireError};

/// Values inside each other: messages have three or four levels, filters and types of types a few
/// more.
pub const DEPTH_MAX: u32 = 32;

/// Values that one decoding makes: an element of one byte on the wire takes forty in memory.
pub const VALUES_MAX: u32 = 1 << 16;

/// The constructor before a descriptor.
pub(super) const DESCRIBED: u8 = 0x00;

/// Reads values one after the other.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a Bytes,
    offset: usize,
    end: usize,
    depth: u32,
    values_left: u32,
}

/// How the elements of a list, map or array are announced.
pub(super) struct Compound {
    pub count: u32,
    /// Where the elements start.
    pub start: usize,
    pub end: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a Bytes) -> Reader<'a> {
        Reader::at(bytes, 0)
    }

    /// A reader at `offset`; at the end if that lies beyond it.
    pub fn at(bytes: &'a Bytes, offset: usize) -> Reader<'a> {
        let end = bytes.len();
        Reader { bytes, offset: offset.min(end), end, depth: 0, values_left: VALUES_MAX }
    }

    /// Where the next value starts.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.offset >= self.end
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// [`WireError::TrailingBytes`].
    pub fn finish(&self) -> Result<(), WireError> {
        match self.end - self.offset {
            0 => Ok(()),
            left_bytes => Err(WireError::TrailingBytes { offset: self.offset, left_bytes }),
        }
    }

    /// The constructor of the next value.
    ///
    /// # Errors
    /// [`WireError::Truncated`]: there is none.
    pub fn peek(&self) -> Result<u8, WireError> {
        match self.is_empty() {
            false => Ok(self.bytes[self.offset]),
            true => Err(WireError::Truncated { offset: self.offset, wanted_bytes: 1, left_bytes: 0 }),
        }
    }

    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        let byte = self.peek()?;
        self.offset += 1;
        Ok(byte)
    }

    fn check(&self, wanted_bytes: usize) -> Result<(), WireError> {
        let left_bytes = self.end - self.offset;
        if left_bytes < wanted_bytes {
            return Err(WireError::Truncated { offset: self.offset, wanted_bytes, left_bytes });
        }
        Ok(())
    }

    pub(super) fn fixed<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], WireError> {
        self.check(BYTES)?;
        let mut fixed = [0; BYTES];
        fixed.copy_from_slice(&self.bytes[self.offset..self.offset + BYTES]);
        self.offset += BYTES;
        Ok(fixed)
    }

    /// A slice of the bytes, which shares their buffer.
    pub(super) fn slice(&mut self, bytes: usize) -> Result<Bytes, WireError> {
        self.check(bytes)?;
        let slice = self.bytes.slice(self.offset..self.offset + bytes);
        self.offset += bytes;
        Ok(slice)
    }

    /// The length of binary data or text with this constructor.
    pub(super) fn length(&mut self, wide: bool) -> Result<usize, WireError> {
        match wide {
            false => self.byte().map(usize::from),
            true => Ok(u32::from_be_bytes(self.fixed()?) as usize),
        }
    }

    /// Goes to the contents of binary data or text, which may be incomplete: whether it is text,
    /// and its length. `None` for any other value, before which it stays.
    ///
    /// # Errors
    /// [`WireError::Truncated`]: not even the length is there.
    pub fn enter_flat(&mut self) -> Result<Option<(bool, usize)>, WireError> {
        let (is_text, wide) = match self.peek()? {
            0xa0 => (false, false),
            0xb0 => (false, true),
            0xa1 => (true, false),
            0xb1 => (true, true),
            _ => return Ok(None),
        };
        self.byte()?;
        Ok(Some((is_text, self.length(wide)?)))
    }

    pub(super) fn text(&mut self, wide: bool) -> Result<Text, WireError> {
        let length = self.length(wide)?;
        let offset = self.offset;
        Text::from_utf8(self.slice(length)?).ok_or(WireError::NotUtf8 { offset })
    }

    pub(super) fn symbol(&mut self, wide: bool) -> Result<Symbol, WireError> {
        let length = self.length(wide)?;
        let offset = self.offset;
        Symbol::from_wire(self.slice(length)?).ok_or(WireError::NotAscii { offset })
    }

    /// Reads size and count of a compound value or array; the elements lie within it.
    pub(super) fn compound(&mut self, wide: bool) -> Result<Compound, WireError> {
        let size = self.length(wide)?;
        self.check(size)?;
        let (sized, end) = (self.offset, self.offset + size);
        let count_bytes = if wide { 4 } else { 1 };
        if size < count_bytes {
            return Err(WireError::SizeMismatch {
                offset: sized,
                announced_bytes: size,
                used_bytes: count_bytes,
            });
        }
        let count = self.length(wide)? as u32;
        Ok(Compound { count, start: self.offset, end })
    }

    /// Goes one level down, where nothing may lie beyond `end`; returns the end of the level above,
    /// for `leave`.
    pub(super) fn enter(&mut self, end: usize) -> Result<usize, WireError> {
        if self.depth == DEPTH_MAX {
            return Err(WireError::TooDeep { max: DEPTH_MAX, offset: self.offset });
        }
        self.depth += 1;
        Ok(std::mem::replace(&mut self.end, end))
    }

    /// The level that began at `start` must be used up.
    pub(super) fn leave(&mut self, start: usize, outer_end: usize) -> Result<(), WireError> {
        self.depth -= 1;
        let inner_end = std::mem::replace(&mut self.end, outer_end);
        if self.offset != inner_end {
            let (announced_bytes, used_bytes) = (inner_end - start, self.offset - start);
            return Err(WireError::SizeMismatch { offset: start, announced_bytes, used_bytes });
        }
        Ok(())
    }

    /// Reads any value.
    ///
    /// # Errors
    /// It is malformed, too deep or too large.
    pub fn value(&mut self) -> Result<Value, WireError> {
        let code = self.byte()?;
        self.value_of(code)
    }

    fn count_value(&mut self) -> Result<(), WireError> {
        let too_many = WireError::TooManyValues { max: VALUES_MAX, offset: self.offset };
        self.values_left = self.values_left.checked_sub(1).ok_or(too_many)?;
        Ok(())
    }

    /// Reads the value after the constructor `code`.
    fn value_of(&mut self, code: u8) -> Result<Value, WireError> {
        self.count_value()?;
        Ok(match code {
            DESCRIBED => return self.described(),
            0x40 => Value::Null,
            0x41 => Value::Boolean(true),
            0x42 => Value::Boolean(false),
            0x43 => Value::Uint(0),
            0x44 => Value::Ulong(0),
            0x50 => Value::Ubyte(self.byte()?),
            0x51 => Value::Byte(self.byte()? as i8),
            0x52 => Value::Uint(self.byte()?.into()),
            0x53 => Value::Ulong(self.byte()?.into()),
            0x54 => Value::Int((self.byte()? as i8).into()),
            0x55 => Value::Long((self.byte()? as i8).into()),
            0x56 => Value::Boolean(self.boolean()?),
            0x60 => Value::Ushort(u16::from_be_bytes(self.fixed()?)),
            0x61 => Value::Short(i16::from_be_bytes(self.fixed()?)),
            0x70 => Value::Uint(u32::from_be_bytes(self.fixed()?)),
            0x71 => Value::Int(i32::from_be_bytes(self.fixed()?)),
            0x72 => Value::Float(f32::from_be_bytes(self.fixed()?)),
            0x73 => Value::Char(self.character()?),
            0x74 => Value::Decimal32(self.fixed()?),
            0x80 => Value::Ulong(u64::from_be_bytes(self.fixed()?)),
            0x81 => Value::Long(i64::from_be_bytes(self.fixed()?)),
            0x82 => Value::Double(f64::from_be_bytes(self.fixed()?)),
            0x83 => Value::Timestamp(i64::from_be_bytes(self.fixed()?)),
            0x84 => Value::Decimal64(self.fixed()?),
            0x94 => Value::Decimal128(self.fixed()?),
            0x98 => Value::Uuid(self.fixed()?),
            _ => return self.variable(code),
        })
    }

    /// As `value_of`, for types with a length.
    fn variable(&mut self, code: u8) -> Result<Value, WireError> {
        let wide = code & 0x10 != 0;
        Ok(match code {
            0xa0 | 0xb0 => {
                let length = self.length(wide)?;
                Value::Binary(self.slice(length)?)
            }
            0xa1 | 0xb1 => Value::String(self.text(wide)?),
            0xa3 | 0xb3 => Value::Symbol(self.symbol(wide)?),
            0x45 => Value::List(Vec::new()),
            0xc0 | 0xd0 => Value::List(self.list(wide)?),
            0xc1 | 0xd1 => Value::Map(self.pairs(wide)?),
            0xe0 | 0xf0 => Value::Array(self.array(wide)?),
            _ => return Err(WireError::UnknownConstructor { code, offset: self.offset - 1 }),
        })
    }

    pub(super) fn boolean(&mut self) -> Result<bool, WireError> {
        let offset = self.offset;
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(WireError::BadValue { got: format!("{got:#04x}"), wanted: "boolean", offset }),
        }
    }

    fn character(&mut self) -> Result<char, WireError> {
        let offset = self.offset;
        let code = u32::from_be_bytes(self.fixed()?);
        let bad = || WireError::BadValue { got: format!("{code:#x}"), wanted: "Unicode character", offset };
        char::from_u32(code).ok_or_else(bad)
    }

    fn described(&mut self) -> Result<Value, WireError> {
        let end = self.enter(self.end)?;
        let descriptor = self.value()?;
        let value = self.value()?;
        self.depth -= 1;
        self.end = end;
        Ok(Value::Described(Box::new(Described { descriptor, value })))
    }

    fn list(&mut self, wide: bool) -> Result<Vec<Value>, WireError> {
        let Compound { count, start, end } = self.compound(wide)?;
        let outer = self.enter(end)?;
        let mut values = Vec::with_capacity((count as usize).min(end - start));
        for _ in 0..count {
            values.push(self.value()?);
        }
        self.leave(start, outer)?;
        Ok(values)
    }

    pub(super) fn pairs(&mut self, wide: bool) -> Result<ValueMap, WireError> {
        let Compound { count, start, end } = self.compound(wide)?;
        if count % 2 != 0 {
            return Err(WireError::OddMap { count, offset: start });
        }
        let outer = self.enter(end)?;
        let mut pairs = Vec::with_capacity((count as usize).min(end - start) / 2);
        for _ in 0..count / 2 {
            let key = self.value()?;
            pairs.push((key, self.value()?));
        }
        self.leave(start, outer)?;
        Ok(ValueMap(pairs))
    }

    pub(super) fn array(&mut self, wide: bool) -> Result<Array, WireError> {
        let Compound { count, start, end } = self.compound(wide)?;
        self.offset = start;
        let outer = self.enter(end)?;
        self.skip_elements(count)?;
        self.leave(start, outer)?;
        Ok(Array::walked(count, self.bytes.slice(start..end)))
    }

    /// Decodes `count` elements of an array, at its constructor.
    pub(super) fn elements(&mut self, count: u32) -> Result<Vec<Value>, WireError> {
        let (descriptors, code) = self.element_constructor()?;
        let mut elements = Vec::with_capacity((count as usize).min(self.end - self.offset));
        for _ in 0..count {
            let mut element = self.value_of(code)?;
            for descriptor in descriptors.iter().rev() {
                self.count_value()?;
                let described = Described { descriptor: descriptor.clone(), value: element };
                element = Value::Described(Box::new(described));
            }
            elements.push(element);
        }
        Ok(elements)
    }

    /// The constructor that an array's elements share, with its descriptors from the outside in.
    fn element_constructor(&mut self) -> Result<(Vec<Value>, u8), WireError> {
        let mut descriptors = Vec::new();
        loop {
            let code = self.byte()?;
            if code != DESCRIBED {
                return Ok((descriptors, code));
            }
            if descriptors.len() == DEPTH_MAX as usize {
                return Err(WireError::TooDeep { max: DEPTH_MAX, offset: self.offset });
            }
            let offset = self.offset;
            let descriptor = self.value()?;
            // Each element gets a copy: other descriptors than these two are reserved, and may be
            // large.
            if !matches!(descriptor, Value::Symbol(_) | Value::Ulong(_)) {
                let got = "a descriptor that is neither symbol nor ulong".to_owned();
                return Err(WireError::BadValue { got, wanted: "descriptor of an array", offset });
            }
            descriptors.push(descriptor);
        }
    }

    /// Skips a value: the contents of sized types are not read.
    ///
    /// # Errors
    /// It does not fit, or has no known constructor.
    pub fn skip(&mut self) -> Result<(), WireError> {
        let mut descriptors = 0;
        loop {
            let code = self.byte()?;
            if code != DESCRIBED {
                return self.skip_of(code);
            }
            descriptors += 1;
            if descriptors > DEPTH_MAX {
                return Err(WireError::TooDeep { max: DEPTH_MAX, offset: self.offset });
            }
            self.skip_descriptor()?;
        }
    }

    /// A descriptor may be of any type, even a described one; that is walked over as deep as values
    /// may be nested.
    fn skip_descriptor(&mut self) -> Result<(), WireError> {
        let outer = self.enter(self.end)?;
        self.skip()?;
        self.depth -= 1;
        self.end = outer;
        Ok(())
    }

    fn skip_of(&mut self, code: u8) -> Result<(), WireError> {
        let bytes = self.body_bytes(code)?;
        self.check(bytes)?;
        self.offset += bytes;
        Ok(())
    }

    /// Bytes after the constructor `code`, and after the length if there is one.
    fn body_bytes(&mut self, code: u8) -> Result<usize, WireError> {
        match code {
            0x40..=0x45 => Ok(0),
            0x50..=0x56 => Ok(1),
            0x60 | 0x61 => Ok(2),
            0x70..=0x74 => Ok(4),
            0x80..=0x84 => Ok(8),
            0x94 | 0x98 => Ok(16),
            0xa0 | 0xa1 | 0xa3 | 0xc0 | 0xc1 | 0xe0 => self.length(false),
            0xb0 | 0xb1 | 0xb3 | 0xd0 | 0xd1 | 0xf0 => self.length(true),
            _ => Err(WireError::UnknownConstructor { code, offset: self.offset - 1 }),
        }
    }

    /// Walks over `count` elements of an array, at its constructor. Elements without bytes cost no
    /// time.
    fn skip_elements(&mut self, count: u32) -> Result<(), WireError> {
        let code = loop {
            let code = self.byte()?;
            if code != DESCRIBED {
                break code;
            }
            self.skip_descriptor()?;
        };
        if (0x40..=0x45).contains(&code) {
            return Ok(());
        }
        for _ in 0..count {
            self.skip_of(code)?;
        }
        Ok(())
    }
}
