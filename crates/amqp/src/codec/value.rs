//! Values: every type of the standard's part 1 that a peer may send where any type is allowed.

use bytes::{BufMut, Bytes, BytesMut};

use super::reader::Reader;
use super::{Symbol, Text, WireError};

/// Any value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Boolean(bool),
    /// 8 bits, unsigned.
    Ubyte(u8),
    /// 16 bits, unsigned.
    Ushort(u16),
    /// 32 bits, unsigned.
    Uint(u32),
    /// 64 bits, unsigned.
    Ulong(u64),
    /// 8 bits, signed.
    Byte(i8),
    /// 16 bits, signed.
    Short(i16),
    /// 32 bits, signed.
    Int(i32),
    /// 64 bits, signed.
    Long(i64),
    /// IEEE 754 binary32.
    Float(f32),
    /// IEEE 754 binary64.
    Double(f64),
    /// IEEE 754 decimal32, its bytes as they came.
    Decimal32([u8; 4]),
    /// IEEE 754 decimal64, its bytes as they came.
    Decimal64([u8; 8]),
    /// IEEE 754 decimal128, its bytes as they came.
    Decimal128([u8; 16]),
    /// One Unicode character.
    Char(char),
    /// Milliseconds since 1970.
    Timestamp(i64),
    /// A UUID.
    Uuid([u8; 16]),
    /// Any bytes.
    Binary(Bytes),
    /// Unicode text.
    String(Text),
    /// A name.
    Symbol(Symbol),
    /// Values of any types.
    List(Vec<Value>),
    /// Pairs, in the order in which they came.
    Map(ValueMap),
    /// Values of one type.
    Array(Array),
    /// A value with a descriptor.
    Described(Box<Described>),
}

/// A value with its descriptor.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The descriptor: a symbol or a ulong as a rule.
    pub descriptor: Value,
    /// The value.
    pub value: Value,
}

/// The pairs of a map, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueMap(pub Vec<(Value, Value)>);

impl ValueMap {
    /// The value of a key that is a symbol or a string.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let is_it = |key: &Value| match key {
            Value::Symbol(key) => *key == name,
            Value::String(key) => *key == name,
            _ => false,
        };
        self.0.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
    }

    /// Adds a pair whose key is a symbol.
    pub fn push(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push((Value::Symbol(Symbol::from_static(key)), value.into()));
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Values of one type, decoded on demand: a peer's array of a thousand million nothings costs
/// nothing.
///
/// Invariant: `body` is a constructor and `count` well-formed elements of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    count: u32,
    body: Bytes,
}

impl Array {
    /// An array off the wire, whose elements were walked over.
    pub(super) fn walked(count: u32, body: Bytes) -> Array {
        Array { count, body }
    }

    /// An array of symbols.
    pub fn of_symbols(symbols: &[Symbol]) -> Array {
        let short = symbols.iter().all(|symbol| symbol.as_bytes().len() <= usize::from(u8::MAX));
        let mut body = BytesMut::new();
        body.put_u8(if short { 0xa3 } else { 0xb3 });
        for symbol in symbols {
            let bytes = symbol.as_bytes();
            match short {
                true => body.put_u8(bytes.len() as u8),
                false => body.put_u32(bytes.len() as u32),
            }
            body.put_slice(bytes);
        }
        Array { count: symbols.len() as u32, body: body.freeze() }
    }

    /// How many elements.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Constructor and elements, as on the wire.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The elements, decoded.
    ///
    /// # Errors
    /// An element is invalid for its type, or there are more than one decoding may make.
    pub fn elements(&self) -> Result<Vec<Value>, WireError> {
        let mut reader = Reader::new(&self.body);
        let elements = reader.elements(self.count)?;
        reader.finish()?;
        Ok(elements)
    }
}

macro_rules! value_from {
    ($($Type:ty => $Variant:ident,)*) => {
        $(impl From<$Type> for Value {
            fn from(value: $Type) -> Value {
                Value::$Variant(value)
            }
        })*
    };
}

value_from! {
    bool => Boolean,
    u32 => Uint,
    u64 => Ulong,
    i32 => Int,
    i64 => Long,
    Text => String,
    Symbol => Symbol,
    Bytes => Binary,
    Vec<Value> => List,
    ValueMap => Map,
    Array => Array,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}
