//! From table to code: the expansion of a row of `table.rs`.
//!
//! A row is `CODE "symbolic descriptor" Name { field: kind, … }`. It becomes a struct with one
//! public field per column, and reads and writes as a described list (part 1, section 1.4). A list
//! may end early: missing columns are null.
//!
//! | kind | Rust type | null on the wire |
//! |---|---|---|
//! | `required(T)` | `T` | an error |
//! | `optional(T)` | `Option<T>` | `None` |
//! | `default(T = value)` | `T` | `value` |
//! | `symbols` | `Vec<Symbol>` | none |

use bytes::{BufMut, BytesMut};

use super::reader::{Compound, DESCRIBED, Reader};
use super::writer::{put_compound, put_ulong};
use super::{Field, Symbol, WireError};

/// The descriptor of a described value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// Domain and number.
    Code(u64),
    /// Name.
    Name(Symbol),
}

impl Descriptor {
    /// Whether it is this type's.
    pub fn is<T: Composite>(&self) -> bool {
        match self {
            Descriptor::Code(code) => *code == T::CODE,
            Descriptor::Name(name) => *name == T::NAME,
        }
    }
}

impl std::fmt::Display for Descriptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Descriptor::Code(code) => write!(f, "{code:#x}"),
            Descriptor::Name(name) => write!(f, "{name}"),
        }
    }
}

/// A row of the table.
pub trait Composite: Field {
    /// Its descriptor as a number.
    const CODE: u64;

    /// Its descriptor as a symbol.
    const NAME: &'static str;

    /// Reads the list after the descriptor.
    ///
    /// # Errors
    /// It is no list, or a field is missing, malformed or unknown.
    fn read_list(reader: &mut Reader<'_>) -> Result<Self, WireError>;
}

impl Reader<'_> {
    /// Reads the descriptor of a described value.
    ///
    /// # Errors
    /// The next value is not described, or not by ulong or symbol.
    pub fn descriptor(&mut self) -> Result<Descriptor, WireError> {
        let offset = self.offset();
        let code = self.byte()?;
        if code != DESCRIBED {
            return Err(WireError::UnexpectedType { code, wanted: "described value", offset });
        }
        match self.peek()? {
            0x44 | 0x53 | 0x80 => u64::read(self).map(Descriptor::Code),
            0xa3 | 0xb3 => Symbol::read(self).map(Descriptor::Name),
            code => {
                let offset = self.offset();
                Err(WireError::UnexpectedType { code, wanted: "descriptor", offset })
            }
        }
    }

    /// Reads the descriptor of a composite and refuses any other.
    pub(super) fn expect<T: Composite>(&mut self) -> Result<(), WireError> {
        let offset = self.offset();
        let descriptor = self.descriptor()?;
        if descriptor.is::<T>() {
            return Ok(());
        }
        let descriptor = descriptor.to_string();
        Err(WireError::UnexpectedDescriptor { descriptor, wanted: T::TYPE, offset })
    }

    /// Whether the next value is null, which is then passed.
    fn passes_null(&mut self) -> Result<bool, WireError> {
        let null = self.peek()? == 0x40;
        if null {
            self.byte()?;
        }
        Ok(null)
    }
}

/// The fields of one composite, in order.
pub(super) struct Fields<'r, 'a> {
    reader: &'r mut Reader<'a>,
    composite: &'static str,
    left: u32,
    start: usize,
    outer_end: usize,
}

impl<'r, 'a> Fields<'r, 'a> {
    /// Opens the list of a composite that has `max` fields.
    pub fn open(
        reader: &'r mut Reader<'a>,
        composite: &'static str,
        max: u32,
    ) -> Result<Fields<'r, 'a>, WireError> {
        let offset = reader.offset();
        let compound = match reader.byte()? {
            0x45 => Compound { count: 0, start: reader.offset(), end: reader.offset() },
            code @ (0xc0 | 0xd0) => reader.compound(code == 0xd0)?,
            code => return Err(WireError::UnexpectedType { code, wanted: composite, offset }),
        };
        let Compound { count, start, end } = compound;
        if count > max {
            return Err(WireError::TooManyFields { composite, got: count, max, offset });
        }
        let outer_end = reader.enter(end)?;
        Ok(Fields { reader, composite, left: count, start, outer_end })
    }

    pub fn optional<T: Field>(&mut self) -> Result<Option<T>, WireError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if self.reader.passes_null()? { Ok(None) } else { T::read(self.reader).map(Some) }
    }

    pub fn required<T: Field>(&mut self, field: &'static str) -> Result<T, WireError> {
        let missing = WireError::MissingField { composite: self.composite, field };
        self.optional()?.ok_or(missing)
    }

    pub fn close(self) -> Result<(), WireError> {
        self.reader.leave(self.start, self.outer_end)
    }
}

/// Appends a composite whose fields before `count` are written by `write`, each with its index.
pub(super) fn put_composite(
    code: u64,
    count: u32,
    out: &mut BytesMut,
    mut write: impl FnMut(u32, &mut BytesMut),
) {
    out.put_u8(DESCRIBED);
    put_ulong(code, out);
    if count == 0 {
        return out.put_u8(0x45);
    }
    put_compound(0xc0, out, |out| {
        (0..count).for_each(|index| write(index, out));
        count
    });
}

/// Appends a field, or null.
pub(super) fn put_optional<T: Field>(field: Option<&T>, out: &mut BytesMut) {
    match field {
        Some(field) => field.write(out),
        None => out.put_u8(0x40),
    }
}

macro_rules! field_type {
    (required $T:ty) => { $T };
    (optional $T:ty) => { Option<$T> };
    (default $T:ty) => { $T };
    (symbols) => { Vec<Symbol> };
}

macro_rules! field_read {
    ($fields:ident $name:ident required $T:ty) => {
        $fields.required::<$T>(stringify!($name))?
    };
    ($fields:ident $name:ident optional $T:ty) => {
        $fields.optional::<$T>()?
    };
    ($fields:ident $name:ident default $T:ty = $default:expr) => {
        $fields.optional::<$T>()?.unwrap_or($default)
    };
    ($fields:ident $name:ident symbols) => {
        $fields.optional::<Vec<Symbol>>()?.unwrap_or_default()
    };
}

/// The field as it is written: `None` for null.
macro_rules! field_shown {
    ($value:expr, required $T:ty) => {
        Some(&$value)
    };
    ($value:expr, optional $T:ty) => {
        $value.as_ref()
    };
    ($value:expr, default $T:ty = $default:expr) => {
        Some(&$value).filter(|value| **value != $default)
    };
    ($value:expr, symbols) => {
        Some(&$value).filter(|symbols| !symbols.is_empty())
    };
}

macro_rules! field_default {
    (default $T:ty = $default:expr) => {
        $default
    };
    ($($kind:tt)*) => {
        Default::default()
    };
}

macro_rules! composites {
    ($( $(#[$meta:meta])* $code:literal $symbolic:literal $Name:ident {
        $( $field:ident: $kind:ident $(($T:ty $(= $default:expr)?))?, )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each field has the name and meaning that the standard gives it")]
        pub struct $Name { $( pub $field: field_type!($kind $($T)?), )* }

        impl Default for $Name {
            fn default() -> $Name {
                $Name { $( $field: field_default!($kind $($T $(= $default)?)?), )* }
            }
        }

        impl Field for $Name {
            const TYPE: &'static str = stringify!($Name);

            fn read(reader: &mut Reader<'_>) -> Result<$Name, WireError> {
                reader.expect::<$Name>()?;
                $Name::read_list(reader)
            }

            #[allow(unused_variables, unused_mut, unused_assignments, reason = "some rows have no fields")]
            fn write(&self, out: &mut BytesMut) {
                let (mut count, mut columns) = (0, 0);
                $(
                    columns += 1;
                    if field_shown!(self.$field, $kind $($T $(= $default)?)?).is_some() {
                        count = columns;
                    }
                )*
                put_composite($code, count, out, |index, out| {
                    let mut column = 0;
                    $(
                        if index == column {
                            return put_optional(field_shown!(self.$field, $kind $($T $(= $default)?)?), out);
                        }
                        column += 1;
                    )*
                });
            }
        }

        impl Composite for $Name {
            const CODE: u64 = $code;
            const NAME: &'static str = $symbolic;

            #[allow(unused_mut, reason = "some rows have no fields")]
            fn read_list(reader: &mut Reader<'_>) -> Result<$Name, WireError> {
                const FIELDS: &[&str] = &[ $( stringify!($field), )* ];
                let mut fields = Fields::open(reader, stringify!($Name), FIELDS.len() as u32)?;
                let composite = $Name {
                    $( $field: field_read!(fields $field $kind $($T $(= $default)?)?), )*
                };
                fields.close()?;
                Ok(composite)
            }
        }
    )* };
}

/// A place for one of several composites. `.. Other` keeps a value of another type; without it that
/// is an error.
macro_rules! unions {
    ($( $(#[$meta:meta])* $Name:ident { $( $Variant:ident, )* $(.. $Other:ident)? } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant holds the composite of its name")]
        pub enum $Name {
            $( $Variant($Variant), )*
            $(
                /// Anything else.
                $Other(Value),
            )?
        }

        impl Field for $Name {
            const TYPE: &'static str = stringify!($Name);

            fn read(reader: &mut Reader<'_>) -> Result<$Name, WireError> {
                $( if reader.peek()? != DESCRIBED {
                    return reader.value().map($Name::$Other);
                } )?
                #[allow(unused_variables, reason = "only unions with room for others go back")]
                let start = reader.clone();
                #[allow(unused_variables, reason = "only unions without room for others name it")]
                let offset = reader.offset();
                let descriptor = reader.descriptor()?;
                $( if descriptor.is::<$Variant>() {
                    return $Variant::read_list(reader).map($Name::$Variant);
                } )*
                $(
                    *reader = start;
                    return reader.value().map($Name::$Other);
                )?
                #[allow(unreachable_code, reason = "unions with room for others have returned")]
                Err(WireError::UnexpectedDescriptor {
                    descriptor: descriptor.to_string(),
                    wanted: stringify!($Name),
                    offset,
                })
            }

            fn write(&self, out: &mut BytesMut) {
                match self {
                    $( $Name::$Variant(composite) => composite.write(out), )*
                    $( $Name::$Other(value) => value.encode(out), )?
                }
            }
        }

        impl $Name {
            /// Name of the composite, for errors.
            pub fn name(&self) -> &'static str {
                match self {
                    $( $Name::$Variant(_) => stringify!($Variant), )*
                    $( $Name::$Other(_) => "another type", )?
                }
            }
        }

        $( impl From<$Variant> for $Name {
            fn from(composite: $Variant) -> $Name {
                $Name::$Variant(composite)
            }
        } )*
    )* };
}
