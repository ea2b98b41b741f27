//! Values: the conversion of Java's types, and of types that Java's clients do not know.

use postroad_model::LookupMap;
use postroad_model::portable::{Map, Text, Value, uuid_text};

use crate::codec::{Primitive, PrimitiveMap, WireString};

/// A stored value. Text that is not UTF-8 is copied; a lone surrogate becomes U+FFFD.
pub fn read(primitive: Primitive) -> Value {
    match primitive {
        Primitive::Null => Value::Null,
        Primitive::Boolean(value) => Value::Boolean(value),
        Primitive::Byte(value) => Value::Byte(value),
        Primitive::Char(unit) => {
            Value::Char(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER))
        }
        Primitive::Short(value) => Value::Short(value),
        Primitive::Int(value) => Value::Int(value),
        Primitive::Long(value) => Value::Long(value),
        Primitive::Float(value) => Value::Float(value),
        Primitive::Double(value) => Value::Double(value),
        Primitive::String(value) => Value::String(read_text(&value)),
        Primitive::Bytes(value) => Value::Binary(value),
        Primitive::Map(map) => Value::Map(read_map(map)),
        Primitive::List(values) => Value::List(values.into_iter().map(read).collect()),
    }
}

/// The pairs of a map, each name once, with its last value, as in Java.
pub fn read_map(map: PrimitiveMap) -> Map {
    let mut pairs: Map = Vec::with_capacity(map.0.len());
    let mut places = LookupMap::default();
    for (name, value) in map.0 {
        let (name, value) = (read_text(&name), read(value));
        match places.get(&name) {
            Some(&place) => pairs[place] = (name, value),
            None => {
                places.insert(name.clone(), pairs.len());
                pairs.push((name, value));
            }
        }
    }
    pairs
}

/// The characters, without copying if they are UTF-8 as they are.
pub fn read_text(text: &WireString) -> Text {
    Text::from_utf8(text.as_bytes().clone()).unwrap_or_else(|| text.to_str().into_owned().into())
}

/// The value for a Java client.
pub fn write(value: &Value) -> Primitive {
    match value {
        Value::Null => Primitive::Null,
        Value::Boolean(value) => Primitive::Boolean(*value),
        Value::Byte(value) => Primitive::Byte(*value),
        Value::Short(value) => Primitive::Short(*value),
        Value::Int(value) => Primitive::Int(*value),
        Value::Long(value) | Value::Timestamp(value) => Primitive::Long(*value),
        Value::UnsignedByte(value) => {
            i8::try_from(*value).map_or(Primitive::Short((*value).into()), Primitive::Byte)
        }
        Value::UnsignedShort(value) => {
            i16::try_from(*value).map_or(Primitive::Int((*value).into()), Primitive::Short)
        }
        Value::UnsignedInt(value) => {
            i32::try_from(*value).map_or(Primitive::Long((*value).into()), Primitive::Int)
        }
        Value::UnsignedLong(value) => i64::try_from(*value).map_or_else(|_| digits(*value), Primitive::Long),
        Value::Float(value) => Primitive::Float(*value),
        Value::Double(value) => Primitive::Double(*value),
        Value::Decimal(value) => Primitive::Double(value.to_f64()),
        Value::Char(value) => one_unit(*value),
        Value::Uuid(uuid) => Primitive::String(uuid_text(uuid).into()),
        Value::Binary(value) => Primitive::Bytes(value.clone()),
        Value::String(text) | Value::Symbol(text) => Primitive::String(write_text(text)),
        Value::List(values) => Primitive::List(values.iter().map(write).collect()),
        Value::Map(map) => Primitive::Map(write_map(map)),
    }
}

/// The pairs of a map.
pub fn write_map(map: &Map) -> PrimitiveMap {
    PrimitiveMap(map.iter().map(|(name, value)| (write_text(name), write(value))).collect())
}

/// The characters, without copying if Java writes them as UTF-8 does.
pub fn write_text(text: &Text) -> WireString {
    let same = text.as_bytes().iter().all(|&byte| (1..0xF0).contains(&byte));
    let shared = if same { WireString::from_wire(text.as_bytes().clone()) } else { None };
    shared.unwrap_or_else(|| text.as_str().into())
}

/// No Java integer holds it.
fn digits(value: u64) -> Primitive {
    Primitive::String(value.to_string().into())
}

/// A Java char is one UTF-16 unit; other characters are text.
fn one_unit(value: char) -> Primitive {
    u16::try_from(u32::from(value))
        .map_or_else(|_| Primitive::String(value.to_string().into()), Primitive::Char)
}
