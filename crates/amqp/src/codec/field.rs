//! Fields: the types that composites are made of, each with all its encodings.

use bytes::{Bytes, BytesMut};

use super::reader::{DESCRIBED, Reader};
use super::writer::{put_array, put_map, put_uint, put_ulong, put_variable};
use super::{Array, Symbol, Text, Value, ValueMap, WireError};

/// A type that a field of a composite may have.
pub trait Field: Sized {
    /// Name for errors.
    const TYPE: &'static str;

    /// Reads a value that is not null.
    ///
    /// # Errors
    /// It is of another type, or malformed.
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError>;

    /// Appends the value.
    fn write(&self, out: &mut BytesMut);
}

/// The error about a constructor that was read just now.
fn unexpected<T: Field>(code: u8, reader: &Reader<'_>) -> WireError {
    WireError::UnexpectedType { code, wanted: T::TYPE, offset: reader.offset() - 1 }
}

impl Field for bool {
    const TYPE: &'static str = "boolean";

    fn read(reader: &mut Reader<'_>) -> Result<bool, WireError> {
        match reader.byte()? {
            0x41 => Ok(true),
            0x42 => Ok(false),
            0x56 => reader.boolean(),
            code => Err(unexpected::<bool>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        Value::Boolean(*self).encode(out);
    }
}

impl Field for u8 {
    const TYPE: &'static str = "ubyte";

    fn read(reader: &mut Reader<'_>) -> Result<u8, WireError> {
        match reader.byte()? {
            0x50 => reader.byte(),
            code => Err(unexpected::<u8>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        Value::Ubyte(*self).encode(out);
    }
}

impl Field for u16 {
    const TYPE: &'static str = "ushort";

    fn read(reader: &mut Reader<'_>) -> Result<u16, WireError> {
        match reader.byte()? {
            0x60 => Ok(u16::from_be_bytes(reader.fixed()?)),
            code => Err(unexpected::<u16>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        Value::Ushort(*self).encode(out);
    }
}

impl Field for u32 {
    const TYPE: &'static str = "uint";

    fn read(reader: &mut Reader<'_>) -> Result<u32, WireError> {
        match reader.byte()? {
            0x43 => Ok(0),
            0x52 => reader.byte().map(u32::from),
            0x70 => Ok(u32::from_be_bytes(reader.fixed()?)),
            code => Err(unexpected::<u32>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        put_uint(*self, out);
    }
}

impl Field for u64 {
    const TYPE: &'static str = "ulong";

    fn read(reader: &mut Reader<'_>) -> Result<u64, WireError> {
        match reader.byte()? {
            0x44 => Ok(0),
            0x53 => reader.byte().map(u64::from),
            0x80 => Ok(u64::from_be_bytes(reader.fixed()?)),
            code => Err(unexpected::<u64>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        put_ulong(*self, out);
    }
}

impl Field for Text {
    const TYPE: &'static str = "string";

    fn read(reader: &mut Reader<'_>) -> Result<Text, WireError> {
        match reader.byte()? {
            code @ (0xa1 | 0xb1) => reader.text(code == 0xb1),
            code => Err(unexpected::<Text>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        put_variable(0xa1, self.as_bytes(), out);
    }
}

impl Field for Symbol {
    const TYPE: &'static str = "symbol";

    fn read(reader: &mut Reader<'_>) -> Result<Symbol, WireError> {
        match reader.byte()? {
            code @ (0xa3 | 0xb3) => reader.symbol(code == 0xb3),
            code => Err(unexpected::<Symbol>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        put_variable(0xa3, self.as_bytes(), out);
    }
}

impl Field for Bytes {
    const TYPE: &'static str = "binary";

    fn read(reader: &mut Reader<'_>) -> Result<Bytes, WireError> {
        match reader.byte()? {
            code @ (0xa0 | 0xb0) => {
                let length = reader.length(code == 0xb0)?;
                reader.slice(length)
            }
            code => Err(unexpected::<Bytes>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        put_variable(0xa0, self, out);
    }
}

impl Field for ValueMap {
    const TYPE: &'static str = "map";

    fn read(reader: &mut Reader<'_>) -> Result<ValueMap, WireError> {
        match reader.byte()? {
            code @ (0xc1 | 0xd1) => reader.pairs(code == 0xd1),
            code => Err(unexpected::<ValueMap>(code, reader)),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        put_map(self, out);
    }
}

impl Field for Value {
    const TYPE: &'static str = "value";

    fn read(reader: &mut Reader<'_>) -> Result<Value, WireError> {
        reader.value()
    }

    fn write(&self, out: &mut BytesMut) {
        self.encode(out);
    }
}

/// Several symbols: one alone may come without an array around it (part 1, section 1.4).
impl Field for Vec<Symbol> {
    const TYPE: &'static str = "symbol or array of symbols";

    fn read(reader: &mut Reader<'_>) -> Result<Vec<Symbol>, WireError> {
        let offset = reader.offset();
        let code = reader.peek()?;
        if !matches!(code, 0xe0 | 0xf0) {
            return match code {
                0xa3 | 0xb3 => Ok(vec![Symbol::read(reader)?]),
                _ => Err(WireError::UnexpectedType { code, wanted: Self::TYPE, offset }),
            };
        }
        reader.byte()?;
        let array = reader.array(code == 0xf0)?;
        let symbol = |element| match element {
            Value::Symbol(symbol) => Ok(symbol),
            _ => {
                let code = array.body().first().copied().unwrap_or(DESCRIBED);
                Err(WireError::UnexpectedType { code, wanted: Self::TYPE, offset })
            }
        };
        array.elements()?.into_iter().map(symbol).collect()
    }

    fn write(&self, out: &mut BytesMut) {
        put_array(&Array::of_symbols(self), out);
    }
}

/// A field that is null unless it says something.
impl<T: Field> Field for Box<T> {
    const TYPE: &'static str = T::TYPE;

    fn read(reader: &mut Reader<'_>) -> Result<Box<T>, WireError> {
        T::read(reader).map(Box::new)
    }

    fn write(&self, out: &mut BytesMut) {
        (**self).write(out);
    }
}
