//! From table to code: the expansion of a row of `commands.rs` or `data.rs`.
//!
//! A row is `id Name base { field: kind(Type) since V until V default E, … }`.
//! It becomes a struct with one public field per column and three walks in
//! wire order: read, write, skip. Loose and tight differ below, in
//! [`super::reader`] and [`super::writer`].
//!
//! | kind | Rust type | wire |
//! |---|---|---|
//! | `bool`, `byte`, `int`, `long` | `bool`, `u8`, `i32`, `i64` | always present |
//! | `string`, `bytes` | `Option<WireString>`, `Option<Bytes>` | length ahead |
//! | `object(T)`, `boxed(T)` | `Option<T>`, `Option<Box<T>>` | type id ahead |
//! | `cached(T)` | `Option<T>` | as `object`, or an index of the marshalling cache |
//! | `array(T)` | `Option<Vec<T>>` | 2-byte count ahead |
//! | `magic` | `Magic` | the eight bytes `ActiveMQ` |
//! | `throwable` | `Option<Box<Throwable>>` | class, message, maybe stack |
//!
//! | base | columns before the row's own |
//! |---|---|
//! | `command` | `command_id: int`, `response_required: bool` |
//! | `response` | those, then `correlation_id: int` |
//! | `partial` | `command_id: int` |
//! | `bare` | none |

use super::{WireError, reader::Reader, scan::Scanner, writer::Writer};

/// First and last protocol version this codec speaks.
pub const VERSION_MIN: u8 = 1;
/// See [`VERSION_MIN`].
pub const VERSION_MAX: u8 = 12;

/// A value with a type id on the wire: one row of a table, or an enum of some.
pub(super) trait Structure: Sized {
    /// Name for errors.
    const NAME: &'static str;

    fn type_id(&self) -> u8;

    /// Reads the fields that follow `type_id`, which stood at `offset`.
    fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError>;

    /// Writes the fields that follow the type id.
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError>;

    /// Skips the bytes that [`Structure::decode`] would read.
    fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError>;
}

impl<T: Structure> Structure for Box<T> {
    const NAME: &'static str = T::NAME;

    fn type_id(&self) -> u8 {
        (**self).type_id()
    }

    fn decode(type_id: u8, offset: usize, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        T::decode(type_id, offset, reader).map(Box::new)
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        (**self).encode(writer)
    }

    fn skip(type_id: u8, offset: usize, scanner: &mut Scanner<'_>) -> Result<(), WireError> {
        T::skip(type_id, offset, scanner)
    }
}

/// Types that Java may marshal ahead of time: one more flag when nested in a
/// tight frame. They are the messages and `WireFormatInfo`.
pub(super) fn is_marshal_aware(type_id: u8) -> bool {
    matches!(type_id, 1 | 23..=29)
}

/// Refuses a type that the connection's version does not have yet.
pub(super) fn check_version(type_id: u8, offset: usize, since: u8, version: u8) -> Result<(), WireError> {
    if version < since {
        return Err(WireError::TypeNotInVersion { type_id, offset, since, version });
    }
    Ok(())
}

macro_rules! field_type {
    (bool) => { bool };
    (byte) => { u8 };
    (int) => { i32 };
    (long) => { i64 };
    (string) => { Option<$crate::codec::WireString> };
    (bytes) => { Option<bytes::Bytes> };
    (magic) => { $crate::codec::Magic };
    (throwable) => { Option<Box<$crate::codec::Throwable>> };
    (object $T:ident) => { Option<$T> };
    (boxed $T:ident) => { Option<Box<$T>> };
    (cached $T:ident) => { Option<$T> };
    (array $T:ident) => { Option<Vec<$T>> };
}

macro_rules! field_read {
    ($reader:ident bool) => {
        $reader.flag()?
    };
    ($reader:ident byte) => {
        $reader.byte()?
    };
    ($reader:ident int) => {
        $reader.int()?
    };
    ($reader:ident long) => {
        $reader.long()?
    };
    ($reader:ident string) => {
        $reader.string()?
    };
    ($reader:ident bytes) => {
        $reader.bytes()?
    };
    ($reader:ident magic) => {
        $reader.magic()?
    };
    ($reader:ident throwable) => {
        $reader.throwable()?
    };
    ($reader:ident object $T:ident) => {
        $reader.object::<$T>()?
    };
    ($reader:ident boxed $T:ident) => {
        $reader.object::<Box<$T>>()?
    };
    ($reader:ident cached $T:ident) => {
        $reader.cached::<$T>()?
    };
    ($reader:ident array $T:ident) => {
        $reader.objects::<$T>()?
    };
}

macro_rules! field_write {
    ($writer:ident $value:expr, bool) => {
        $writer.flag($value)
    };
    ($writer:ident $value:expr, byte) => {
        $writer.byte($value)
    };
    ($writer:ident $value:expr, int) => {
        $writer.int($value)
    };
    ($writer:ident $value:expr, long) => {
        $writer.long($value)
    };
    ($writer:ident $value:expr, string) => {
        $writer.string($value.as_ref())?
    };
    ($writer:ident $value:expr, bytes) => {
        $writer.bytes($value.as_deref())?
    };
    ($writer:ident $value:expr, magic) => {
        $writer.magic($value)
    };
    ($writer:ident $value:expr, throwable) => {
        $writer.throwable($value.as_deref())?
    };
    ($writer:ident $value:expr, object $T:ident) => {
        $writer.object($value.as_ref())?
    };
    ($writer:ident $value:expr, boxed $T:ident) => {
        $writer.object($value.as_deref())?
    };
    ($writer:ident $value:expr, cached $T:ident) => {
        $writer.cached($value.as_ref())?
    };
    ($writer:ident $value:expr, array $T:ident) => {
        $writer.objects($value.as_deref())?
    };
}

macro_rules! field_skip {
    ($scanner:ident bool) => {
        $scanner.skip(1)?
    };
    ($scanner:ident byte) => {
        $scanner.skip(1)?
    };
    ($scanner:ident int) => {
        $scanner.skip(4)?
    };
    ($scanner:ident long) => {
        $scanner.skip(8)?
    };
    ($scanner:ident string) => {
        $scanner.string()?
    };
    ($scanner:ident bytes) => {
        $scanner.bytes()?
    };
    ($scanner:ident magic) => {
        $scanner.skip(8)?
    };
    ($scanner:ident throwable) => {
        $scanner.throwable()?
    };
    ($scanner:ident object $T:ident) => {
        $scanner.object::<$T>()?
    };
    ($scanner:ident boxed $T:ident) => {
        $scanner.object::<$T>()?
    };
    ($scanner:ident cached $T:ident) => {
        $scanner.object::<$T>()?
    };
    ($scanner:ident array $T:ident) => {
        $scanner.objects::<$T>()?
    };
}

/// Whether a field with these bounds is present for this reader, writer or scanner.
macro_rules! in_version {
    ($walk:ident) => {
        true
    };
    ($walk:ident since $since:literal) => {
        $walk.has($since, u8::MAX)
    };
    ($walk:ident until $until:literal) => {
        $walk.has(0, $until)
    };
}

macro_rules! default_or {
    () => {
        Default::default()
    };
    ($value:expr) => {
        $value
    };
}

/// The columns of a base, then the row's own, handed to `$callback`.
macro_rules! with_base {
    ($callback:ident ($($head:tt)*) bare { $($fields:tt)* }) => {
        $callback! { $($head)* { $($fields)* } }
    };
    ($callback:ident ($($head:tt)*) partial { $($fields:tt)* }) => {
        $callback! { $($head)* { command_id: int, $($fields)* } }
    };
    ($callback:ident ($($head:tt)*) command { $($fields:tt)* }) => {
        $callback! { $($head)* { command_id: int, response_required: bool, $($fields)* } }
    };
    ($callback:ident ($($head:tt)*) response { $($fields:tt)* }) => {
        $callback! { $($head)* {
            command_id: int, response_required: bool, correlation_id: int, $($fields)*
        } }
    };
}

/// A struct and its three walks.
macro_rules! fields {
    ($(#[$meta:meta])* $Name:ident
        $(carries { $( $(#[$carried_meta:meta])* $carried:ident: $Carried:ty, )* })?
    { $(
        $field:ident: $kind:ident $(($T:ident))? $(since $since:literal)? $(until $until:literal)?
            $(default $default:expr)?,
    )* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Name {
            $($( $(#[$carried_meta])* pub $carried: $Carried, )*)?
            $(
                #[doc = concat!(
                    "Wire kind `", stringify!($kind $(($T))?), "`",
                    $(", since version ", stringify!($since),)?
                    $(", until version ", stringify!($until),)? "."
                )]
                pub $field: field_type!($kind $($T)?),
            )*
        }

        impl Default for $Name {
            fn default() -> Self {
                $Name {
                    $($( $carried: Default::default(), )*)?
                    $( $field: default_or!($($default)?), )*
                }
            }
        }

        impl $Name {
            #[allow(unused_variables, reason = "a row without columns")]
            pub(super) fn read_fields(
                &mut self,
                reader: &mut $crate::codec::reader::Reader<'_>,
            ) -> Result<(), $crate::codec::WireError> {
                $( if in_version!(reader $(since $since)? $(until $until)?) {
                    self.$field = field_read!(reader $kind $($T)?);
                } )*
                Ok(())
            }

            #[allow(unused_variables, reason = "a row without columns")]
            pub(super) fn write_fields(
                &self,
                writer: &mut $crate::codec::writer::Writer<'_>,
            ) -> Result<(), $crate::codec::WireError> {
                $( if in_version!(writer $(since $since)? $(until $until)?) {
                    field_write!(writer self.$field, $kind $($T)?);
                } )*
                Ok(())
            }

            #[allow(unused_variables, reason = "a row without columns")]
            pub(super) fn skip_fields(
                scanner: &mut $crate::codec::scan::Scanner<'_>,
            ) -> Result<(), $crate::codec::WireError> {
                $( if in_version!(scanner $(since $since)? $(until $until)?) {
                    field_skip!(scanner $kind $($T)?);
                } )*
                Ok(())
            }
        }
    };
}

/// The type id of a row, and its place among the structures.
macro_rules! structure {
    ($id:literal $Name:ident $(since $since:literal)?) => {
        impl $Name {
            /// Data type id on the wire.
            pub const TYPE_ID: u8 = $id;
        }

        impl $crate::codec::structure::Structure for $Name {
            const NAME: &'static str = stringify!($Name);

            fn type_id(&self) -> u8 {
                $id
            }

            fn decode(
                type_id: u8,
                offset: usize,
                reader: &mut $crate::codec::reader::Reader<'_>,
            ) -> Result<Self, $crate::codec::WireError> {
                $crate::codec::structure::expect::<Self>(type_id, $id, offset)?;
                $( $crate::codec::structure::check_version(
                    type_id, offset, $since, reader.layout.version)?; )?
                let mut value = Self::default();
                value.read_fields(reader)?;
                Ok(value)
            }

            fn encode(
                &self,
                writer: &mut $crate::codec::writer::Writer<'_>,
            ) -> Result<(), $crate::codec::WireError> {
                $( $crate::codec::structure::check_version($id, 0, $since, writer.layout.version)?; )?
                self.write_fields(writer)
            }

            fn skip(
                type_id: u8,
                offset: usize,
                scanner: &mut $crate::codec::scan::Scanner<'_>,
            ) -> Result<(), $crate::codec::WireError> {
                $crate::codec::structure::expect::<Self>(type_id, $id, offset)?;
                $( $crate::codec::structure::check_version(
                    type_id, offset, $since, scanner.version())?; )?
                Self::skip_fields(scanner)
            }
        }
    };
}

/// Refuses any type but `wanted`.
pub(super) fn expect<T: Structure>(type_id: u8, wanted: u8, offset: usize) -> Result<(), WireError> {
    if type_id == wanted {
        return Ok(());
    }
    Err(WireError::UnexpectedType { type_id, wanted: T::NAME, offset })
}

pub(super) use {
    default_or, field_read, field_skip, field_type, field_write, fields, in_version, structure, with_base,
};
