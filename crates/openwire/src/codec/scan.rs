//! Passes over stored (loose, uncached) bytes without building values.

use super::{
    WireError, cursor,
    reader::{NESTING_MAX, size_from},
    structure::Structure,
    throwable::Throwable,
};

/// Bytes of one field, from the start of the stored form: `start..end`,
/// presence flag included. Empty if the version does not have the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// Whether the field is absent, by its flag or by its version.
    pub fn is_null(self, stored: &[u8]) -> bool {
        self.start == self.end || stored.get(self.start) == Some(&0)
    }

    /// Overwrites the field in `copy`, if there is a value and the version has the field.
    pub fn put<const N: usize>(self, copy: &mut [u8], value: Option<[u8; N]>) {
        if let (Some(value), Some(field)) = (value, copy.get_mut(self.start..self.end))
            && field.len() == N
        {
            field.copy_from_slice(&value);
        }
    }
}

pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    pub offset: usize,
    version: u8,
    depth: u8,
}

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8], version: u8) -> Scanner<'a> {
        Scanner { bytes, offset: 0, version, depth: 0 }
    }

    #[inline]
    pub fn has(&self, since: u8, until: u8) -> bool {
        (since..=until).contains(&self.version)
    }

    pub fn version(&self) -> u8 {
        self.version
    }

    #[inline]
    pub fn skip(&mut self, length: usize) -> Result<(), WireError> {
        cursor::take(self.bytes, &mut self.offset, length).map(drop)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        cursor::array(self.bytes, &mut self.offset)
    }

    #[inline]
    pub fn string(&mut self) -> Result<(), WireError> {
        if self.byte()? == 0 {
            return Ok(());
        }
        let length = u16::from_be_bytes(self.array()?);
        self.skip(length.into())
    }

    #[inline]
    pub fn bytes(&mut self) -> Result<(), WireError> {
        if self.byte()? == 0 {
            return Ok(());
        }
        let offset = self.offset;
        let length = i32::from_be_bytes(self.array()?);
        self.skip(size_from(i64::from(length), offset)?)
    }

    pub fn object<T: Structure>(&mut self) -> Result<(), WireError> {
        if self.byte()? == 0 {
            return Ok(());
        }
        if NESTING_MAX <= self.depth {
            return Err(WireError::TooDeep { offset: self.offset, max: NESTING_MAX });
        }
        self.depth += 1;
        let offset = self.offset;
        let type_id = self.byte()?;
        T::skip(type_id, offset, self)?;
        self.depth -= 1;
        Ok(())
    }

    pub fn objects<T: Structure>(&mut self) -> Result<(), WireError> {
        if self.byte()? == 0 {
            return Ok(());
        }
        let offset = self.offset;
        let count = i16::from_be_bytes(self.array()?);
        for _ in 0..size_from(i64::from(count), offset)? {
            self.object::<T>()?;
        }
        Ok(())
    }

    pub fn throwable(&mut self) -> Result<(), WireError> {
        if self.byte()? == 0 {
            return Ok(());
        }
        Throwable::skip(self)
    }
}
