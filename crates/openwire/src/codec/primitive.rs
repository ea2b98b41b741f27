//! Primitive maps and lists: message properties, map bodies, stream bodies,
//! and the options of `WireFormatInfo`.

use bytes::{BufMut, Bytes, BytesMut};

use super::{WireError, WireString, cursor, reader::size_from, writer::length_i32};

/// Maps and lists inside each other that we follow. The reference allows 127
/// in messages; properties in real use nest two deep, and the stack is ours.
pub const PRIMITIVE_NESTING_MAX: u8 = 64;

/// Values that one decoding makes: a value of one byte on the wire takes forty in memory.
pub const PRIMITIVE_VALUES_MAX: u32 = 1 << 20;

/// Room reserved ahead for a map or list, however many entries it announces.
const ENTRIES_RESERVED_MAX: usize = 64;

/// Text this long in UTF-16 units is written with a 4-byte length.
const BIG_STRING_UNITS_MIN: usize = i16::MAX as usize / 4;

/// A value that needs no class to be understood.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant holds the Java type of its name")]
pub enum Primitive {
    Null,
    Boolean(bool),
    Byte(i8),
    /// A UTF-16 unit.
    Char(u16),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    /// Of any length; long text gets type 13, short text type 9.
    String(WireString),
    Bytes(Bytes),
    Map(PrimitiveMap),
    List(Vec<Primitive>),
}

/// Names and values, in the order of the wire. A name that occurs twice has
/// its last value, as in Java.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrimitiveMap(pub Vec<(WireString, Primitive)>);

impl PrimitiveMap {
    /// Reads a whole map; nothing may follow it. A null map is an empty one.
    ///
    /// # Errors
    /// The bytes are no primitive map, or hold more than [`PRIMITIVE_VALUES_MAX`] values; offsets
    /// count from the start of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<PrimitiveMap, WireError> {
        let mut input = Input::new(bytes, 0);
        let map = input.map()?;
        input.finish()?;
        Ok(map)
    }

    /// Appends the map to `out`.
    ///
    /// # Errors
    /// [`WireError::TextTooLong`] for a name, [`WireError::TooMany`].
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), WireError> {
        out.put_i32(length_i32(self.0.len())?);
        for (name, value) in &self.0 {
            let length = u16::try_from(name.as_bytes().len()).map_err(|_| WireError::TextTooLong {
                got_bytes: name.as_bytes().len(),
                max_bytes: u16::MAX.into(),
            })?;
            out.put_u16(length);
            out.put_slice(name.as_bytes());
            value.encode(out)?;
        }
        Ok(())
    }

    /// The value of `name`, if it is in the map.
    pub fn get(&self, name: &str) -> Option<&Primitive> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

impl<'a> FromIterator<(&'a str, Primitive)> for PrimitiveMap {
    fn from_iter<I: IntoIterator<Item = (&'a str, Primitive)>>(entries: I) -> PrimitiveMap {
        PrimitiveMap(entries.into_iter().map(|(name, value)| (WireString::from(name), value)).collect())
    }
}

impl Primitive {
    /// Reads values one after the other to the end: the body of a stream message.
    ///
    /// # Errors
    /// As [`PrimitiveMap::decode`].
    pub fn decode_all(bytes: &Bytes) -> Result<Vec<Primitive>, WireError> {
        let mut input = Input::new(bytes, 0);
        let mut values = Vec::new();
        while input.offset < bytes.len() {
            values.push(input.value()?);
        }
        Ok(values)
    }

    /// Appends the type and the value to `out`.
    ///
    /// # Errors
    /// As [`PrimitiveMap::encode`].
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), WireError> {
        out.put_u8(self.type_id());
        match self {
            Primitive::Null => {}
            Primitive::Boolean(value) => out.put_u8((*value).into()),
            Primitive::Byte(value) => out.put_i8(*value),
            Primitive::Char(value) => out.put_u16(*value),
            Primitive::Short(value) => out.put_i16(*value),
            Primitive::Int(value) => out.put_i32(*value),
            Primitive::Long(value) => out.put_i64(*value),
            Primitive::Float(value) => out.put_f32(*value),
            Primitive::Double(value) => out.put_f64(*value),
            Primitive::String(value) if is_big(value) => put_long_text(value, out)?,
            Primitive::String(value) => {
                out.put_u16(value.as_bytes().len() as u16);
                out.put_slice(value.as_bytes());
            }
            Primitive::Bytes(value) => {
                out.put_i32(length_i32(value.len())?);
                out.put_slice(value);
            }
            Primitive::Map(map) => map.encode(out)?,
            Primitive::List(values) => {
                out.put_i32(length_i32(values.len())?);
                values.iter().try_for_each(|value| value.encode(out))?;
            }
        }
        Ok(())
    }

    fn type_id(&self) -> u8 {
        match self {
            Primitive::Null => 0,
            Primitive::Boolean(_) => 1,
            Primitive::Byte(_) => 2,
            Primitive::Char(_) => 3,
            Primitive::Short(_) => 4,
            Primitive::Int(_) => 5,
            Primitive::Long(_) => 6,
            Primitive::Double(_) => 7,
            Primitive::Float(_) => 8,
            Primitive::String(value) if is_big(value) => 13,
            Primitive::String(_) => 9,
            Primitive::Bytes(_) => 10,
            Primitive::Map(_) => 11,
            Primitive::List(_) => 12,
        }
    }
}

/// Where the value of a property is, in a map that was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundProperty<'m> {
    marshalled: &'m Bytes,
    offset: usize,
}

impl<'m> FoundProperty<'m> {
    /// The value.
    ///
    /// # Errors
    /// As [`PrimitiveMap::decode`].
    pub fn value(self) -> Result<Primitive, WireError> {
        Input::new(self.marshalled, self.offset).value()
    }

    /// The text, in place; `None` if it is not a text, or not plain: then decode the value.
    pub fn plain_text(self) -> Option<&'m str> {
        let mut input = Input::new(self.marshalled, self.offset);
        let length = match input.array::<1>().ok()?[0] {
            9 => usize::from(u16::from_be_bytes(input.array().ok()?)),
            13 => input.length().ok()?,
            _ => return None,
        };
        let start = input.take(length).ok()?;
        let text = &self.marshalled[start..start + length];
        text.is_ascii().then(|| str::from_utf8(text).ok())?
    }
}

/// One property, found without decoding the others; their names are compared as bytes.
///
/// # Errors
/// As [`PrimitiveMap::decode`], for the entries that are skipped or read on the way to the end of
/// the map.
pub fn find_property<'m>(marshalled: &'m Bytes, name: &str) -> Result<Option<FoundProperty<'m>>, WireError> {
    let name = WireString::in_place(name);
    let mut input = Input::new(marshalled, 0);
    let mut found = None;
    for _ in 0..input.count()?.unwrap_or(0) {
        let length = u16::from_be_bytes(input.array()?);
        let start = input.take(length.into())?;
        let offset = input.offset;
        let is_meant = marshalled[start..offset] == *name;
        input.skip_value()?;
        if is_meant {
            found = Some(offset);
        }
    }
    Ok(found.map(|offset| FoundProperty { marshalled, offset }))
}

/// Reads the body of a text message that is not compressed; `None` for null text.
///
/// # Errors
/// The bytes are no text with a 4-byte length ahead.
pub fn decode_text_body(content: &Bytes) -> Result<Option<WireString>, WireError> {
    let mut input = Input::new(content, 0);
    let length = input.int()?;
    if length < 0 {
        return Ok(None);
    }
    let text = input.text(length as usize)?;
    input.finish()?;
    Ok(Some(text))
}

/// The body of a text message.
///
/// # Errors
/// [`WireError::TooMany`] above 2 GiB.
pub fn encode_text_body(text: &WireString) -> Result<Bytes, WireError> {
    let mut out = BytesMut::with_capacity(4 + text.as_bytes().len());
    put_long_text(text, &mut out)?;
    Ok(out.freeze())
}

fn is_big(text: &WireString) -> bool {
    // A unit takes a byte at least, so short bytes are short text.
    BIG_STRING_UNITS_MIN <= text.as_bytes().len() && BIG_STRING_UNITS_MIN <= text.utf16_len()
}

fn put_long_text(text: &WireString, out: &mut BytesMut) -> Result<(), WireError> {
    out.put_i32(length_i32(text.as_bytes().len())?);
    out.put_slice(text.as_bytes());
    Ok(())
}

struct Input<'a> {
    bytes: &'a Bytes,
    offset: usize,
    depth: u8,
    values_left: u32,
}

impl<'a> Input<'a> {
    fn new(bytes: &'a Bytes, offset: usize) -> Input<'a> {
        Input { bytes, offset, depth: 0, values_left: PRIMITIVE_VALUES_MAX }
    }
}

impl Input<'_> {
    fn value(&mut self) -> Result<Primitive, WireError> {
        let offset = self.offset;
        let too_many = WireError::TooManyValues { max: PRIMITIVE_VALUES_MAX, offset };
        self.values_left = self.values_left.checked_sub(1).ok_or(too_many)?;
        Ok(match self.array::<1>()?[0] {
            0 => Primitive::Null,
            1 => Primitive::Boolean(self.array::<1>()?[0] != 0),
            2 => Primitive::Byte(i8::from_be_bytes(self.array()?)),
            3 => Primitive::Char(u16::from_be_bytes(self.array()?)),
            4 => Primitive::Short(i16::from_be_bytes(self.array()?)),
            5 => Primitive::Int(self.int()?),
            6 => Primitive::Long(i64::from_be_bytes(self.array()?)),
            7 => Primitive::Double(f64::from_be_bytes(self.array()?)),
            8 => Primitive::Float(f32::from_be_bytes(self.array()?)),
            9 => Primitive::String(self.short_text()?),
            10 => {
                let length = self.length()?;
                Primitive::Bytes(self.slice(length)?)
            }
            11 => Primitive::Map(self.deeper(Input::map)?),
            12 => Primitive::List(self.deeper(Input::list)?),
            13 => {
                let length = self.length()?;
                Primitive::String(self.text(length)?)
            }
            type_id => return Err(WireError::UnknownPrimitive { type_id, offset }),
        })
    }

    fn map(&mut self) -> Result<PrimitiveMap, WireError> {
        let count = self.count()?.unwrap_or(0);
        let mut entries = Vec::with_capacity(count.min(ENTRIES_RESERVED_MAX));
        for _ in 0..count {
            entries.push((self.short_text()?, self.value()?));
        }
        Ok(PrimitiveMap(entries))
    }

    fn list(&mut self) -> Result<Vec<Primitive>, WireError> {
        let count = self.length()?;
        let mut values = Vec::with_capacity(count.min(ENTRIES_RESERVED_MAX));
        for _ in 0..count {
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn skip_value(&mut self) -> Result<(), WireError> {
        let offset = self.offset;
        let length = match self.array::<1>()?[0] {
            0 => 0,
            1 | 2 => 1,
            3 | 4 => 2,
            5 | 8 => 4,
            6 | 7 => 8,
            9 => usize::from(u16::from_be_bytes(self.array()?)),
            10 | 13 => self.length()?,
            11 => return self.deeper(Input::skip_map),
            12 => return self.deeper(Input::skip_list),
            type_id => return Err(WireError::UnknownPrimitive { type_id, offset }),
        };
        self.take(length).map(drop)
    }

    fn skip_map(&mut self) -> Result<(), WireError> {
        for _ in 0..self.count()?.unwrap_or(0) {
            let length = u16::from_be_bytes(self.array()?);
            self.take(length.into())?;
            self.skip_value()?;
        }
        Ok(())
    }

    fn skip_list(&mut self) -> Result<(), WireError> {
        for _ in 0..self.length()? {
            self.skip_value()?;
        }
        Ok(())
    }

    /// Entries of a map; `None` for a null map.
    fn count(&mut self) -> Result<Option<usize>, WireError> {
        Ok(usize::try_from(self.int()?).ok())
    }

    fn length(&mut self) -> Result<usize, WireError> {
        let offset = self.offset;
        size_from(i64::from(self.int()?), offset)
    }

    fn short_text(&mut self) -> Result<WireString, WireError> {
        let length = u16::from_be_bytes(self.array()?);
        self.text(length.into())
    }

    fn text(&mut self, length: usize) -> Result<WireString, WireError> {
        let offset = self.offset;
        WireString::from_wire(self.slice(length)?).ok_or(WireError::MalformedText { offset })
    }

    fn int(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        if PRIMITIVE_NESTING_MAX <= self.depth {
            return Err(WireError::TooDeep { offset: self.offset, max: PRIMITIVE_NESTING_MAX });
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn slice(&mut self, length: usize) -> Result<Bytes, WireError> {
        let start = self.take(length)?;
        Ok(self.bytes.slice(start..start + length))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        cursor::array(self.bytes, &mut self.offset)
    }

    fn take(&mut self, wanted_bytes: usize) -> Result<usize, WireError> {
        cursor::take(self.bytes, &mut self.offset, wanted_bytes)
    }

    fn finish(&self) -> Result<(), WireError> {
        match self.bytes.len() - self.offset {
            0 => Ok(()),
            left_bytes => Err(WireError::TrailingBytes { offset: self.offset, left_bytes }),
        }
    }
}
