//! Values of a portable message: JMS's types, and further types of other protocols.

use bytes::Bytes;

use super::{Decimal, Text};

/// Names and values, in the order in which they came.
pub type Map = Vec<(Text, Value)>;

/// One value. Readers nest lists and maps [`Value::NESTING_MAX`] deep at most, so that writers may
/// recurse.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Boolean(bool),
    /// 8 bits, signed.
    Byte(i8),
    /// 16 bits, signed.
    Short(i16),
    /// 32 bits, signed.
    Int(i32),
    /// 64 bits, signed.
    Long(i64),
    /// 8 bits, unsigned.
    UnsignedByte(u8),
    /// 16 bits, unsigned.
    UnsignedShort(u16),
    /// 32 bits, unsigned.
    UnsignedInt(u32),
    /// 64 bits, unsigned.
    UnsignedLong(u64),
    /// IEEE 754 binary32.
    Float(f32),
    /// IEEE 754 binary64.
    Double(f64),
    /// A decimal number of up to 34 digits.
    Decimal(Decimal),
    /// One character.
    Char(char),
    /// Milliseconds since 1970.
    Timestamp(i64),
    /// A UUID, in the order in which it is written (RFC 9562, section 4).
    Uuid([u8; 16]),
    /// Raw bytes.
    Binary(Bytes),
    /// Text.
    String(Text),
    /// A name from a known set; ASCII.
    Symbol(Text),
    /// Values, one after the other.
    List(Vec<Value>),
    /// Names and values.
    Map(Map),
}

impl Value {
    /// Lists and maps inside each other.
    pub const NESTING_MAX: u8 = 64;

    /// Whether it is one value alone, not many.
    pub fn is_simple(&self) -> bool {
        !matches!(self, Value::List(_) | Value::Map(_))
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
    i8 => Byte,
    i16 => Short,
    i32 => Int,
    i64 => Long,
    u8 => UnsignedByte,
    u16 => UnsignedShort,
    u32 => UnsignedInt,
    u64 => UnsignedLong,
    f32 => Float,
    f64 => Double,
    char => Char,
    Decimal => Decimal,
    Bytes => Binary,
    Text => String,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}
