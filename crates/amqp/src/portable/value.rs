//! Values: the conversion of AMQP's types, and of the types of others.

use postroad_model::portable::{self, Id, Map, Value as Portable, uuid_text};

use super::decimal::{DECIMAL_32, DECIMAL_64, DECIMAL_128};
use crate::codec::{Array, Symbol, Value, ValueMap, WireError};

/// Values that the arrays of one message may expand to: an element may take no byte on the wire,
/// and forty in memory.
pub const ARRAY_VALUES_MAX: u32 = 1 << 16;

/// Reads the values of one message, within bounds that hold for all of them.
pub struct ValueReader {
    array_values_left: u32,
    depth: u8,
}

impl ValueReader {
    /// For a message of which nothing was read yet.
    pub fn new() -> ValueReader {
        ValueReader { array_values_left: ARRAY_VALUES_MAX, depth: 0 }
    }

    /// A value off the wire. An array becomes a list; a described value loses its descriptor.
    ///
    /// # Errors
    /// An array's elements are malformed, or too many; or values are too deep inside each other.
    pub fn value(&mut self, value: Value) -> Result<Portable, WireError> {
        Ok(match value {
            Value::Null => Portable::Null,
            Value::Boolean(value) => Portable::Boolean(value),
            Value::Ubyte(value) => Portable::UnsignedByte(value),
            Value::Ushort(value) => Portable::UnsignedShort(value),
            Value::Uint(value) => Portable::UnsignedInt(value),
            Value::Ulong(value) => Portable::UnsignedLong(value),
            Value::Byte(value) => Portable::Byte(value),
            Value::Short(value) => Portable::Short(value),
            Value::Int(value) => Portable::Int(value),
            Value::Long(value) => Portable::Long(value),
            Value::Float(value) => Portable::Float(value),
            Value::Double(value) => Portable::Double(value),
            Value::Decimal32(bits) => DECIMAL_32.read(u32::from_be_bytes(bits).into()),
            Value::Decimal64(bits) => DECIMAL_64.read(u64::from_be_bytes(bits).into()),
            Value::Decimal128(bits) => DECIMAL_128.read(u128::from_be_bytes(bits)),
            Value::Char(value) => Portable::Char(value),
            Value::Timestamp(ms) => Portable::Timestamp(ms),
            Value::Uuid(uuid) => Portable::Uuid(uuid),
            Value::Binary(bytes) => Portable::Binary(bytes),
            Value::String(text) => Portable::String(text),
            Value::Symbol(symbol) => Portable::Symbol(symbol.to_text()),
            Value::List(values) => Portable::List(self.deeper(|reader| reader.list(values))?),
            Value::Array(array) => Portable::List(self.deeper(|reader| reader.array(&array))?),
            Value::Map(map) => Portable::Map(self.deeper(|reader| reader.map(map))?),
            Value::Described(described) => self.deeper(|reader| reader.value(described.value))?,
        })
    }

    /// Values one after the other.
    ///
    /// # Errors
    /// As [`ValueReader::value`].
    pub fn list(&mut self, values: Vec<Value>) -> Result<Vec<Portable>, WireError> {
        values.into_iter().map(|value| self.value(value)).collect()
    }

    /// The pairs of a map, whose keys become text.
    ///
    /// # Errors
    /// As [`ValueReader::value`].
    pub fn map(&mut self, map: ValueMap) -> Result<Map, WireError> {
        map.0.into_iter().map(|(key, value)| Ok((key_text(self.value(key)?), self.value(value)?))).collect()
    }

    fn array(&mut self, array: &Array) -> Result<Vec<Portable>, WireError> {
        let too_many = WireError::TooManyValues { max: ARRAY_VALUES_MAX, offset: 0 };
        self.array_values_left = self.array_values_left.checked_sub(array.count()).ok_or(too_many)?;
        self.list(array.elements()?)
    }

    /// An array's elements were walked over and not counted as deep: arrays inside each other are
    /// counted here.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        if self.depth == Portable::NESTING_MAX {
            return Err(WireError::TooDeep { max: Portable::NESTING_MAX.into(), offset: 0 });
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }
}

fn key_text(key: Portable) -> portable::Text {
    match key {
        Portable::String(text) | Portable::Symbol(text) => text,
        Portable::Uuid(uuid) => uuid_text(&uuid).into(),
        Portable::Boolean(value) => value.to_string().into(),
        Portable::Byte(value) => value.to_string().into(),
        Portable::Short(value) => value.to_string().into(),
        Portable::Int(value) => value.to_string().into(),
        Portable::Long(value) | Portable::Timestamp(value) => value.to_string().into(),
        Portable::UnsignedByte(value) => value.to_string().into(),
        Portable::UnsignedShort(value) => value.to_string().into(),
        Portable::UnsignedInt(value) => value.to_string().into(),
        Portable::UnsignedLong(value) => value.to_string().into(),
        Portable::Char(value) => value.to_string().into(),
        other => format!("{other:?}").into(),
    }
}

/// A message id or correlation id; `None` if it is of a type that ids may not have (3.2.11 to
/// 3.2.14).
pub fn read_id(id: &Value) -> Option<Id> {
    match id {
        Value::String(text) => Some(Id::Text(text.clone())),
        Value::Ulong(number) => Some(Id::Number(*number)),
        Value::Uuid(uuid) => Some(Id::Uuid(*uuid)),
        Value::Binary(bytes) => Some(Id::Binary(bytes.clone())),
        _ => None,
    }
}

/// The value for the wire.
pub fn write(value: &Portable) -> Value {
    match value {
        Portable::Null => Value::Null,
        Portable::Boolean(value) => Value::Boolean(*value),
        Portable::Byte(value) => Value::Byte(*value),
        Portable::Short(value) => Value::Short(*value),
        Portable::Int(value) => Value::Int(*value),
        Portable::Long(value) => Value::Long(*value),
        Portable::UnsignedByte(value) => Value::Ubyte(*value),
        Portable::UnsignedShort(value) => Value::Ushort(*value),
        Portable::UnsignedInt(value) => Value::Uint(*value),
        Portable::UnsignedLong(value) => Value::Ulong(*value),
        Portable::Float(value) => Value::Float(*value),
        Portable::Double(value) => Value::Double(*value),
        Portable::Decimal(value) => match DECIMAL_128.write(*value) {
            Some(bits) => Value::Decimal128(bits.to_be_bytes()),
            None => Value::Double(value.to_f64()),
        },
        Portable::Char(value) => Value::Char(*value),
        Portable::Timestamp(ms) => Value::Timestamp(*ms),
        Portable::Uuid(uuid) => Value::Uuid(*uuid),
        Portable::Binary(bytes) => Value::Binary(bytes.clone()),
        Portable::String(text) => Value::String(text.clone()),
        Portable::Symbol(name) => match write_symbol(name) {
            Some(symbol) => Value::Symbol(symbol),
            None => Value::String(name.clone()),
        },
        Portable::List(values) => Value::List(values.iter().map(write).collect()),
        Portable::Map(map) => Value::Map(write_map(map)),
    }
}

/// The pairs of a map; their keys are strings.
pub fn write_map(map: &Map) -> ValueMap {
    ValueMap(map.iter().map(|(name, value)| (Value::String(name.clone()), write(value))).collect())
}

/// A name, without copying; `None` if it is not ASCII.
pub fn write_symbol(name: &portable::Text) -> Option<Symbol> {
    Symbol::from_wire(name.as_bytes().clone())
}

/// The id for the wire.
pub fn write_id(id: &Id) -> Value {
    match id {
        Id::Text(text) => Value::String(text.clone()),
        Id::Number(number) => Value::Ulong(*number),
        Id::Uuid(uuid) => Value::Uuid(*uuid),
        Id::Binary(bytes) => Value::Binary(bytes.clone()),
    }
}
