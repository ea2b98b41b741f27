//! The two marshalling caches of a connection: values sent once in full, then
//! by index. The sender alone assigns the slots; the receiver follows.

use bytes::{Bytes, BytesMut};
use postroad_model::LookupMap;

use super::{
    WireError,
    data::DataStructure,
    reader::{Layout, Reader},
    structure::Structure,
    writer::{BooleanWriter, Writer},
};

/// Index that says "in full, and not kept".
pub(super) const NOT_CACHED: i16 = -1;

/// Slots when neither side names a size, as the reference has it.
pub(super) const SLOTS_DEFAULT: i32 = i16::MAX as i32 / 2;

/// Slots kept free, so that one command never finds the cache full.
const SLOTS_FREE: usize = 100;

/// Bytes of ids and destinations kept for one peer. A thousand typical values
/// take about 100 KiB; the bound stops a peer that caches giants.
const HELD_BYTES_MAX: usize = 4 << 20;

/// The values that the peer cached.
#[derive(Debug)]
pub(super) struct DecodeCache {
    slots: Vec<Option<(Box<DataStructure>, usize)>>,
    slot_count: usize,
    held_bytes: usize,
}

impl DecodeCache {
    pub fn new(slot_count: usize) -> DecodeCache {
        DecodeCache { slots: Vec::new(), slot_count, held_bytes: 0 }
    }

    /// Keeps a copy of `value` that does not hold on to the frame it came in.
    pub fn put(
        &mut self,
        index: i16,
        value: Option<DataStructure>,
        version: u8,
        offset: usize,
    ) -> Result<(), WireError> {
        if index == NOT_CACHED {
            return Ok(());
        }
        let slot = self.slot(index, offset)?;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        let entry = match value {
            None => None,
            Some(value) => Some(detached(&value, version)?),
        };
        let before = self.slots[slot].as_ref().map_or(0, |(_, bytes)| *bytes);
        let after = entry.as_ref().map_or(0, |(_, bytes)| *bytes);
        let got_bytes = self.held_bytes - before + after;
        if HELD_BYTES_MAX < got_bytes {
            return Err(WireError::CacheBytes { got_bytes, max_bytes: HELD_BYTES_MAX, offset });
        }
        self.held_bytes = got_bytes;
        self.slots[slot] = entry;
        Ok(())
    }

    /// The value at `index`; `None` also for a slot that was never filled.
    pub fn get(&self, index: i16, offset: usize) -> Result<Option<&DataStructure>, WireError> {
        let slot = self.slot(index, offset)?;
        Ok(self.slots.get(slot).and_then(Option::as_ref).map(|(value, _)| &**value))
    }

    fn slot(&self, index: i16, offset: usize) -> Result<usize, WireError> {
        usize::try_from(index).ok().filter(|slot| *slot < self.slot_count).ok_or(WireError::CacheIndex {
            index,
            slots: self.slot_count,
            offset,
        })
    }
}

/// A copy of `value` with memory of its own, and how much that is.
fn detached(value: &DataStructure, version: u8) -> Result<(Box<DataStructure>, usize), WireError> {
    let mut data = BytesMut::new();
    let layout = Layout::stored(version);
    Writer::new(layout, &mut data, &mut BooleanWriter::default(), None).object(Some(value))?;
    let bytes: Bytes = data.freeze();
    let offset = 0;
    let copy = Reader::new(&bytes, layout, None).object()?.ok_or(WireError::NullElement { offset })?;
    Ok((Box::new(copy), bytes.len()))
}

/// The values cached at the peer: a ring of slots and an index by value.
/// A value is known by its loose encoding.
#[derive(Debug)]
pub(super) struct EncodeCache {
    slots: Vec<Option<Bytes>>,
    indexes: LookupMap<Bytes, i16>,
    slot_count: usize,
    next: usize,
    oldest: usize,
    added: Vec<usize>,
    spare: BytesMut,
}

impl EncodeCache {
    pub fn new(slot_count: usize) -> EncodeCache {
        EncodeCache {
            slots: Vec::new(),
            indexes: LookupMap::default(),
            slot_count,
            next: 0,
            oldest: 0,
            added: Vec::new(),
            spare: BytesMut::new(),
        }
    }

    /// Makes room before a command, oldest values first.
    pub fn begin_command(&mut self) {
        self.added.clear();
        for _ in 0..self.slot_count {
            if self.indexes.len() <= self.slot_count.saturating_sub(SLOTS_FREE) {
                return;
            }
            self.forget(self.oldest);
            self.oldest = (self.oldest + 1) % self.slot_count;
        }
    }

    /// Removes the additions of a command that was not sent.
    pub fn undo_command(&mut self) {
        for slot in std::mem::take(&mut self.added) {
            self.forget(slot);
        }
    }

    /// The bytes by which a value is known. Give them back after use.
    pub fn key_of<T: Structure>(&mut self, value: Option<&T>, layout: Layout) -> Result<BytesMut, WireError> {
        let mut key = std::mem::take(&mut self.spare);
        key.clear();
        let layout = Layout::stored(layout.version);
        Writer::new(layout, &mut key, &mut BooleanWriter::default(), None).object(value)?;
        Ok(key)
    }

    pub fn give_back(&mut self, key: BytesMut) {
        self.spare = key;
    }

    pub fn index_of(&self, key: &[u8]) -> Option<i16> {
        self.indexes.get(key).copied()
    }

    /// Takes the next slot for a new value; [`NOT_CACHED`] if all are taken.
    pub fn add(&mut self, key: &[u8]) -> i16 {
        let slot = self.next;
        self.next = (self.next + 1) % self.slot_count;
        if self.slot_count <= self.indexes.len() {
            return NOT_CACHED;
        }
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        self.forget(slot);
        let key = Bytes::copy_from_slice(key);
        let index = slot as i16;
        self.slots[slot] = Some(key.clone());
        self.indexes.insert(key, index);
        self.added.push(slot);
        index
    }

    fn forget(&mut self, slot: usize) {
        if let Some(key) = self.slots.get_mut(slot).and_then(Option::take) {
            self.indexes.remove(&key);
        }
    }
}
