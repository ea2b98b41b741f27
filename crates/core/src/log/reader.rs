//! Reading fields of records and snapshots, from one piece or from pieces that are asked for as
//! they are needed: of a snapshot only the part that is being read is in memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::log::record::RecordError;

/// Reads a record or a snapshot; never panics, never allocates by a count it has not seen backed by
/// bytes.
pub(crate) struct Reader<'a> {
    /// The present piece, from `at` on.
    piece: Bytes,
    at: usize,
    /// How much was before it.
    before: usize,
    /// The next pieces, as far as they were asked for.
    behind: Bytes,
    more: Option<&'a mut dyn Iterator<Item = Bytes>>,
}

impl<'a> Reader<'a> {
    /// Of data in one piece.
    pub(crate) fn new(bytes: Bytes) -> Reader<'static> {
        Reader { piece: bytes, at: 0, before: 0, behind: Bytes::new(), more: None }
    }

    /// Of these pieces, wherever they were cut.
    pub(crate) fn of_pieces(pieces: &'a mut dyn Iterator<Item = Bytes>) -> Reader<'a> {
        Reader { more: Some(pieces), ..Reader::new(Bytes::new()) }
    }

    /// Bytes before the next field.
    pub(super) fn place(&self) -> usize {
        self.before + self.at
    }

    fn take(&mut self, wanted: usize) -> Result<&[u8], RecordError> {
        if self.piece.len() - self.at < wanted {
            self.join(wanted)?;
        }
        let from = self.at;
        self.at += wanted;
        Ok(&self.piece[from..self.at])
    }

    /// Makes the requested bytes lie in one piece.
    #[cold]
    fn join(&mut self, wanted: usize) -> Result<(), RecordError> {
        let place = self.place();
        let rest = self.piece.split_off(self.at);
        (self.before, self.at) = (place, 0);
        self.piece = if rest.is_empty() { self.next_piece() } else { rest };
        if self.piece.len() < wanted {
            let mut joined = BytesMut::from(&self.piece[..]);
            while joined.len() < wanted {
                let mut next = self.next_piece();
                if next.is_empty() {
                    self.piece = joined.freeze();
                    return Err(RecordError::Truncated { at: place, wanted });
                }
                joined.extend_from_slice(&next.split_to(next.len().min(wanted - joined.len())));
                self.behind = next;
            }
            self.piece = joined.freeze();
        }
        Ok(())
    }

    /// The next piece; nothing at the end.
    fn next_piece(&mut self) -> Bytes {
        let behind = std::mem::take(&mut self.behind);
        if !behind.is_empty() {
            return behind;
        }
        let more = self.more.as_mut().and_then(|more| more.find(|piece| !piece.is_empty()));
        more.unwrap_or_default()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, RecordError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, RecordError> {
        self.array().map(u128::from_le_bytes)
    }

    /// Nothing but 0 and 1.
    pub(crate) fn boolean(&mut self, field: &'static str) -> Result<bool, RecordError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(RecordError::Unknown { field, value }),
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Reader<'a>) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        let count = self.u32()? as usize;
        let mut items = Vec::with_capacity(count.min(self.piece.len() - self.at));
        for _ in 0..count {
            items.push(each(self)?);
        }
        Ok(items)
    }

    /// As [`Reader::list`], without keeping the items.
    pub(crate) fn each<E: From<RecordError>>(
        &mut self,
        mut each: impl FnMut(&mut Reader<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..self.u32()? {
            each(self)?;
        }
        Ok(())
    }

    pub(crate) fn text(&mut self) -> Result<Arc<str>, RecordError> {
        let length = self.u32()? as usize;
        let at = self.place();
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| RecordError::Name { at })?;
        Ok(text.into())
    }

    pub(crate) fn blob(&mut self) -> Result<Arc<[u8]>, RecordError> {
        let length = self.u32()? as usize;
        Ok(self.take(length)?.into())
    }

    /// This many bytes, shared with the piece that they lie in.
    pub(super) fn body(&mut self, length: usize) -> Result<Bytes, RecordError> {
        self.take(length)?;
        Ok(self.piece.slice(self.at - length..self.at))
    }

    /// The rest of a record, which is in one piece.
    pub(super) fn rest(&mut self) -> Bytes {
        let rest = self.piece.split_off(self.at);
        self.before += rest.len();
        rest
    }

    /// Whether something follows.
    pub(crate) fn has_more(&mut self) -> bool {
        if self.piece.len() == self.at {
            (self.before, self.at) = (self.place(), 0);
            self.piece = self.next_piece();
        }
        !self.piece.is_empty()
    }

    /// Nothing may follow.
    pub(crate) fn end(&mut self) -> Result<(), RecordError> {
        let mut extra = self.piece.len() - self.at;
        loop {
            match (self.next_piece().len(), extra) {
                (0, 0) => return Ok(()),
                (0, extra) => return Err(RecordError::TooLong { extra }),
                (bytes, _) => extra += bytes,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = (u64, Arc<str>, Arc<[u8]>, Vec<u16>);

    fn read(pieces: Vec<Bytes>) -> Result<Fields, RecordError> {
        let mut pieces = pieces.into_iter();
        let mut input = Reader::of_pieces(&mut pieces);
        let fields = (input.u64()?, input.text()?, input.blob()?, input.list(Reader::u16)?);
        input.end().map(|()| fields)
    }

    fn whole() -> Bytes {
        let mut bytes = 0x0102_0304_0506_0708_u64.to_le_bytes().to_vec();
        bytes.extend([6, 0, 0, 0]);
        bytes.extend("größ".as_bytes());
        bytes.extend([4, 0, 0, 0, 9, 8, 7, 6]);
        bytes.extend([2, 0, 0, 0, 1, 0, 2, 0]);
        bytes.into()
    }

    #[test]
    fn what_is_read_is_the_same_however_it_was_cut() {
        let whole = whole();
        let want = read(vec![whole.clone()]);
        let fields = want.as_ref().unwrap();
        assert_eq!((fields.0, &*fields.1, &*fields.2), (0x0102_0304_0506_0708, "größ", &[9, 8, 7, 6][..]));
        assert_eq!(fields.3, [1, 2]);
        for step in 1..whole.len() {
            let pieces = whole.chunks(step).map(Bytes::copy_from_slice);
            let with_empty_ones: Vec<Bytes> = pieces.flat_map(|piece| [Bytes::new(), piece]).collect();
            assert_eq!(read(with_empty_ones), want, "pieces of {step}");
        }
    }

    #[test]
    fn errors_name_the_place_in_all_of_it() {
        let whole = whole();
        for step in [1, 3, whole.len()] {
            let cut = |end: usize| whole[..end].chunks(step).map(Bytes::copy_from_slice).collect::<Vec<_>>();
            for (end, want) in [
                (3, RecordError::Truncated { at: 0, wanted: 8 }),
                (14, RecordError::Truncated { at: 12, wanted: 6 }),
                (25, RecordError::Truncated { at: 22, wanted: 4 }),
                (33, RecordError::Truncated { at: 32, wanted: 2 }),
            ] {
                assert_eq!(read(cut(end)), Err(want), "{end} bytes in pieces of {step}");
            }
            let extra =
                [cut(whole.len()), vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")]].concat();
            assert_eq!(read(extra), Err(RecordError::TooLong { extra: 3 }));
            let mut broken = whole.to_vec();
            broken[12] = 0xff;
            let broken = broken.chunks(step).map(Bytes::copy_from_slice).collect();
            assert_eq!(read(broken), Err(RecordError::Name { at: 12 }));
        }
    }
}
