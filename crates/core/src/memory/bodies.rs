//! The messages of a partition: each once, however many queues hold it.

use std::collections::{BTreeMap, btree_map};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{Chunks, Message, MessageKey, MessageRow};

use crate::memory::ahead::{Mark, ReadAhead};
use crate::memory::packed_counts::{PACKED_COUNT_MAX, PackedCounts, Seen};
use crate::memory::shelf::{Place, Shelf, Stay};
use crate::partition::Memory;
use crate::queue::{Entry, Page};
use crate::settings::Settings;

/// Bytes of a message beside its body while it is here: its headers and its place in the table, the
/// entry that points to it, and the allocator's overhead for each.
const HEADERS_BYTES: u64 = 320;

/// This fraction of the share of durable messages is for packed pages, if others can be spilled.
const PAGES_SHARE: u64 = 8;

/// Bodies of such sizes lie in buffers that are little larger, with the beginnings of others that
/// were copied on.
const PARTS: Range<usize> = 2 << 10..64 << 10;

/// Whether it would keep much more than itself in memory.
pub fn is_part(body: &Bytes) -> bool {
    PARTS.contains(&body.len())
}

/// Bodies that stay in memory for long have bytes of their own.
pub fn apart(body: &mut Bytes) {
    if is_part(body) {
        *body = Bytes::copy_from_slice(body);
    }
}

/// All messages that some queue or prepared transaction refers to, but for those in packed pages.
#[derive(Default)]
pub struct Bodies {
    /// In the order in which they came, mostly, which is that in which they are due.
    shelf: Shelf<Stored>,
    /// Where each lies: with its key on the shelf, the table of a budget that is small fits into a
    /// processor's own cache.
    places: BTreeMap<MessageKey, Place>,
    /// Bytes of durable messages that are in memory.
    pub resident_bytes: u64,
    /// Bytes of messages that are only in memory.
    pub volatile_bytes: u64,
    /// Messages in packed pages that nothing else holds.
    packed: u64,
    /// Packed pages that hold messages of several queues.
    packed_counts: PackedCounts,
    /// Bytes of all packed pages.
    page_bytes: u64,
    /// Bodies that were read back or returned, and are not in flight.
    ahead: ReadAhead,
}

struct Stored {
    key: MessageKey,
    message: Message,
    /// Of all that it is, pieces of a large body included.
    bytes: u64,
    references: u32,
    pins: u32,
    resident: bool,
    /// If it is among those that were read back or given back.
    ahead: Option<Mark>,
}

/// A message that is sought, and where it lies unless that has changed: then the table knows.
#[derive(Clone, Copy, Debug)]
pub struct BodyLocation {
    /// Which.
    pub key: MessageKey,
    /// Where it probably lies.
    pub place: Place,
}

impl From<MessageKey> for BodyLocation {
    fn from(key: MessageKey) -> BodyLocation {
        BodyLocation { key, place: Place::NONE }
    }
}

impl From<&Entry> for BodyLocation {
    fn from(entry: &Entry) -> BodyLocation {
        BodyLocation { key: entry.key, place: entry.place }
    }
}

impl Stored {
    fn new(key: MessageKey, message: Message, bytes: u64, resident: bool) -> Stored {
        Stored { key, message, bytes, references: 0, pins: 0, resident, ahead: None }
    }

    /// Whether it may leave memory at any time.
    fn is_loose(&self) -> bool {
        self.resident && self.pins == 0 && matches!(self.key, MessageKey::Durable { .. })
    }

    /// It is in flight now, or cannot be delivered from here.
    fn leave_ahead(&mut self, ahead: &mut ReadAhead) {
        if self.ahead.take().is_some() {
            ahead.remove(self.own_bytes());
        }
    }

    /// Bytes that are in its own record, and in memory while it is resident.
    fn own_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.message.chunk_bytes())
    }
}

/// Whether the body that lies there is ahead since it got this mark.
fn is_ahead(shelf: &Shelf<Stored>, BodyLocation { key, place }: BodyLocation, mark: Mark) -> bool {
    shelf.get(place).is_some_and(|stored| stored.key == key && stored.ahead == Some(mark))
}

/// The part of a gone message in the log.
pub struct Gone {
    /// Bytes of it in its own record.
    pub bytes: u64,
    /// The pieces of a large body.
    pub chunks: Option<Arc<Chunks>>,
}

impl Bodies {
    /// Stores a message with no reference yet.
    pub fn insert(&mut self, key: MessageKey, message: Message) {
        let bytes = message.size();
        *self.account(key) += message.bytes.len() as u64;
        self.put(Stored::new(key, message, bytes, true), Stay::Open);
    }

    /// Stores a durable message whose body stays on disk until it is asked for.
    pub fn insert_absent(&mut self, key: MessageKey, message: Message, bytes: u64) {
        self.put(Stored::new(key, message, bytes, false), Stay::Open);
    }

    /// Of one that is there already it takes the place.
    fn put(&mut self, stored: Stored, stay: Stay) -> Place {
        match self.places.entry(stored.key) {
            btree_map::Entry::Vacant(entry) => *entry.insert(self.shelf.put(stored, stay)),
            btree_map::Entry::Occupied(entry) => {
                if let Some(before) = self.shelf.get_mut(*entry.get()) {
                    before.leave_ahead(&mut self.ahead);
                    *before = stored;
                }
                *entry.get()
            }
        }
    }

    fn place(&self, message: impl Into<BodyLocation>) -> Option<Place> {
        let BodyLocation { key, place } = message.into();
        let is_there = self.shelf.get(place).is_some_and(|stored| stored.key == key);
        if is_there { Some(place) } else { self.places.get(&key).copied() }
    }

    fn stored(&self, message: impl Into<BodyLocation>) -> Option<&Stored> {
        self.shelf.get(self.place(message)?)
    }

    fn stored_mut(&mut self, message: impl Into<BodyLocation>) -> Option<&mut Stored> {
        self.shelf.get_mut(self.place(message)?)
    }

    fn has(&self, key: MessageKey) -> bool {
        self.place(key).is_some()
    }

    /// The size of all of them.
    pub fn memory(&self) -> Memory {
        let (resident_bytes, volatile_bytes) = (self.resident_bytes, self.volatile_bytes);
        let messages = self.places.len() as u64 + self.packed;
        Memory {
            messages,
            packed_messages: self.packed,
            resident_bytes,
            page_bytes: self.page_bytes,
            volatile_bytes,
        }
    }

    /// The size of all of them, those in packed pages included, but for the bodies of messages that
    /// are only in memory.
    pub fn taken(&self) -> u64 {
        let headers = self.places.len() as u64 * HEADERS_BYTES + self.shelf.free_bytes();
        self.resident_bytes + headers + self.page_bytes
    }

    /// A queue has a packed page more. If all of them take much, it is spilled.
    pub fn keep_page(&mut self, page: Page, settings: &Settings) -> Page {
        let is_over = settings.resident_bytes_max / PAGES_SHARE < self.page_bytes + page.memory_bytes();
        let page = match settings.spill.as_deref().filter(|_| is_over) {
            Some(spill) => page.spilled(spill),
            None => page,
        };
        self.page_bytes += page.memory_bytes();
        page
    }

    /// A queue has a packed page less.
    pub fn remove_page(&mut self, page: &Page) {
        self.page_bytes -= page.memory_bytes();
    }

    /// Whether these are the packed pages that were counted.
    pub fn has_counted<'p>(&self, pages: impl Iterator<Item = &'p Page>) -> bool {
        pages.map(Page::memory_bytes).sum::<u64>() == self.page_bytes
    }

    fn account(&mut self, key: MessageKey) -> &mut u64 {
        match key {
            MessageKey::Durable { .. } => &mut self.resident_bytes,
            MessageKey::Volatile(_) => &mut self.volatile_bytes,
        }
    }

    /// One more queue or transaction holds it.
    pub fn refer(&mut self, key: MessageKey) {
        self.claim(key);
    }

    /// One more queue holds it: where it lies, its headers, and the size of its body, if it is
    /// there.
    pub fn claim(&mut self, key: MessageKey) -> Option<(Place, &Message, u64)> {
        let place = self.place(key)?;
        let stored = self.shelf.get_mut(place)?;
        stored.references += 1;
        Some((place, &stored.message, stored.bytes))
    }

    /// One queue fewer holds it; its part in the log if that was the last one, and the message is
    /// gone.
    pub fn unrefer(&mut self, message: impl Into<BodyLocation>) -> Option<Gone> {
        self.let_go(message.into(), 0)
    }

    /// As [`Bodies::unrefer`], by one who has pinned it.
    pub fn put_down(&mut self, message: impl Into<BodyLocation>) -> Option<Gone> {
        self.let_go(message.into(), 1)
    }

    fn let_go(&mut self, message: BodyLocation, pins: u32) -> Option<Gone> {
        let key = message.key;
        let stored = self.stored_mut(message)?;
        stored.pins = stored.pins.saturating_sub(pins);
        stored.references = stored.references.saturating_sub(1);
        if stored.references > 0 {
            return None;
        }
        let gone = Gone { bytes: stored.own_bytes(), chunks: stored.message.chunks().cloned() };
        self.forget(key);
        if self.packed_counts.of(key) > 0 {
            self.packed += 1;
            return None;
        }
        Some(gone)
    }

    /// Whether a queue may pack the message: no consumer has it by that queue, and there is room to
    /// note that it is packed.
    pub fn is_packable(&self, message: impl Into<BodyLocation>) -> bool {
        let message = message.into();
        let is_idle = |stored: &Stored| stored.pins == 0 || stored.references > 1;
        self.stored(message).is_some_and(is_idle) && self.packed_counts.of(message.key) < PACKED_COUNT_MAX
    }

    /// How many hold the message: queues, by open pages or packed ones, and transactions. If that
    /// is one it will never be more, and beyond [`PACKED_COUNT_MAX`] it would not be known any more
    /// how many if all pages were packed.
    pub fn holders(&self, message: impl Into<BodyLocation>) -> u32 {
        let message = message.into();
        let open = self.stored(message).map_or(0, |stored| stored.references);
        open.saturating_add(self.packed_counts.of(message.key).into())
    }

    /// A queue that holds the message has packed its page.
    pub fn pack(&mut self, key: MessageKey) {
        let Some(stored) = self.stored_mut(key) else { return };
        stored.references = stored.references.saturating_sub(1);
        let (is_last, has_packed_counts) = (stored.references == 0, self.packed_counts.of(key) > 0);
        if !is_last || has_packed_counts {
            self.packed_counts.add(key);
        }
        if is_last {
            self.forget(key);
            self.packed += 1;
        }
    }

    /// A queue that holds the message has opened its page: the opposite of [`Bodies::pack`]. Where
    /// it lies now.
    pub fn unpack(&mut self, key: MessageKey, headers: Message, bytes: u64) -> Place {
        // One that nothing else holds has no count.
        if self.packed_counts.remove(key)
            && let Some((place, ..)) = self.claim(key)
        {
            return place;
        }
        self.packed -= 1;
        let stored = Stored { references: 1, ..Stored::new(key, headers, bytes, false) };
        // A reader has come to its page, and will be through with that.
        self.put(stored, Stay::Brief)
    }

    /// A queue that held the message has ended with its page; whether that was the last one, and
    /// the message is gone.
    pub fn end_packed(&mut self, key: MessageKey) -> bool {
        self.packed_counts.remove(key);
        let is_last = self.packed_counts.of(key) == 0 && !self.has(key);
        self.packed -= u64::from(is_last);
        is_last
    }

    /// After a start: all packed pages; others are counted already.
    pub fn restore_packed<'p>(&mut self, pages: impl Iterator<Item = &'p Page>) {
        let mut seen = Seen::default();
        for page in pages {
            match page.is_shared() {
                true => page.messages().iter().for_each(|row| {
                    self.packed += seen.add(row, |chunk, bits| self.packed_counts.add_further(chunk, bits));
                }),
                false => self.packed += page.len(),
            }
        }
        for stored in self.shelf.iter().filter(|stored| seen.contains(stored.key)) {
            self.packed -= 1;
            self.packed_counts.add_only(stored.key);
        }
    }

    /// Whether a message of this packed page may be held by others, too.
    pub fn has_packed_counts(&self, page: &Page) -> bool {
        !self.packed_counts.is_empty() && page.messages().iter().any(|row| self.packed_counts.has_any(row))
    }

    /// Of the messages in all packed pages: those that nothing else holds, each once.
    pub fn only_packed<'p>(&self, pages: impl Iterator<Item = &'p Page>) -> impl Iterator<Item = MessageRow> {
        let mut left = self.packed_counts.clone();
        pages.flat_map(move |page| {
            let rows = page.messages();
            match page.is_shared() && rows.iter().any(|row| self.packed_counts.has_any(row)) {
                true => rows.into_iter().flat_map(|row| self.told(row, &mut left)).collect(),
                false => rows,
            }
        })
    }

    /// The messages of the row for which this is the page that stands for all.
    fn told(&self, row: MessageRow, left: &mut PackedCounts) -> Vec<MessageRow> {
        if !self.packed_counts.has_any(&row) {
            return vec![row];
        }
        let keys = row.keys().filter(|key| self.is_told(*key, left));
        let singles = keys.filter_map(|key| match key {
            MessageKey::Durable { position, ordinal } => {
                Some(MessageRow::of_one(position, ordinal, row.body_bytes))
            }
            MessageKey::Volatile(_) => None,
        });
        singles.collect()
    }

    /// Of a packed message that may be in several pages: whether this is the one that stands for
    /// all. `left` counts those that are still to come.
    fn is_told(&self, key: MessageKey, left: &mut PackedCounts) -> bool {
        let packed_counts = self.packed_counts.of(key);
        packed_counts == 0 || {
            let is_first = left.of(key) == packed_counts;
            left.remove(key);
            is_first && !self.has(key)
        }
    }

    /// After a start: snapshots of earlier builds have messages too that only subscriptions of
    /// their run had, which are gone.
    pub fn forget_unreferred(&mut self) {
        let unreferred = self.shelf.iter().filter(|stored| stored.references == 0);
        unreferred.map(|stored| stored.key).collect::<Vec<_>>().into_iter().for_each(|key| self.forget(key));
    }

    fn forget(&mut self, key: MessageKey) {
        if let Some(place) = self.places.remove(&key)
            && let Some(mut stored) = self.shelf.take(place)
            && stored.resident
        {
            *self.account(key) -= stored.own_bytes();
            stored.leave_ahead(&mut self.ahead);
        }
    }

    /// The message, if its body is in memory.
    pub fn resident(&self, message: impl Into<BodyLocation>) -> Option<&Message> {
        self.stored(message).filter(|stored| stored.resident).map(|stored| &stored.message)
    }

    /// Bytes of the message's own record that are in memory with its body, if that is not there.
    pub fn absent(&self, message: impl Into<BodyLocation>) -> Option<u64> {
        self.stored(message).filter(|stored| !stored.resident).map(Stored::own_bytes)
    }

    /// The message's headers, whether or not the body is here, and the size of the body.
    pub fn headers(&self, message: impl Into<BodyLocation>) -> Option<(&Message, u64)> {
        self.stored(message).map(|stored| (&stored.message, stored.bytes))
    }

    /// A consumer holds it: the body stays in memory.
    pub fn pin(&mut self, message: impl Into<BodyLocation>) {
        let place = self.place(message);
        if let Some(stored) = place.and_then(|place| self.shelf.get_mut(place)) {
            stored.pins += 1;
            stored.leave_ahead(&mut self.ahead);
        }
    }

    /// One consumer fewer holds it.
    pub fn unpin(&mut self, message: impl Into<BodyLocation>) {
        let Some(place) = self.place(message) else { return };
        if let Some(stored) = self.shelf.get_mut(place) {
            stored.pins = stored.pins.saturating_sub(1);
        }
        self.put_ahead(place);
    }

    /// The body at this place is here again, or is not held any more.
    fn put_ahead(&mut self, place: Place) {
        let stored = self.shelf.get(place).filter(|stored| stored.is_loose() && stored.ahead.is_none());
        let Some(stored) = stored else { return };
        let (body, bytes) = (BodyLocation { key: stored.key, place }, stored.own_bytes());
        let Bodies { shelf, ahead, .. } = self;
        let mark = ahead.add(body, bytes, |body, mark| is_ahead(shelf, body, mark));
        if let Some(stored) = shelf.get_mut(place) {
            stored.ahead = Some(mark);
        }
    }

    /// The size of bodies that were read back or returned, and are not in flight.
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead.bytes()
    }

    /// Of bodies that were read back or returned and are not in flight, leaves the oldest to the
    /// log until the others take no more than this, or all durable messages no more than they may.
    pub fn leave_ahead(&mut self, bytes_max: u64, taken_max: u64) {
        while bytes_max < self.ahead.bytes() && taken_max < self.taken() {
            let Some((body, mark)) = self.ahead.oldest() else { return };
            if is_ahead(&self.shelf, body, mark) {
                self.evict(body.key);
            }
        }
    }

    /// If the body stays, and is not in flight: see [`apart`].
    pub fn keep_apart(&mut self, key: MessageKey) {
        if let Some(stored) = self.stored_mut(key).filter(|stored| stored.resident && stored.pins == 0) {
            apart(&mut stored.message.bytes);
        }
    }

    /// Bodies that are not in flight go to the log, those that came last first, until all messages
    /// take no more than this.
    pub fn leave(&mut self, taken_max: u64) {
        for place in self.shelf.places_from_last() {
            if self.taken() <= taken_max {
                return;
            }
            self.evict_from(place);
        }
    }

    /// Bytes of all bodies that may leave memory at any time, and whether those that were read back
    /// are among them as they were counted.
    pub fn loose_bytes(&self) -> (u64, bool) {
        let loose = || self.shelf.iter().filter(|stored| stored.is_loose());
        let ahead = |stored: &&Stored| stored.ahead.is_some();
        let ahead_bytes = loose().filter(ahead).map(Stored::own_bytes).sum::<u64>();
        let all_ahead = self.shelf.iter().filter(ahead).count();
        let are_counted = ahead_bytes == self.ahead.bytes() && all_ahead == loose().filter(ahead).count();
        (loose().map(Stored::own_bytes).sum(), are_counted)
    }

    /// As [`Bodies::evict`], if the body was read back and was not in flight since.
    pub fn evict_read_back(&mut self, key: MessageKey) {
        if self.stored(key).is_some_and(|stored| stored.ahead.is_some()) {
            self.evict(key);
        }
    }

    /// Takes the body of a durable message out of memory; it can be read back from the log.
    pub fn evict(&mut self, key: MessageKey) {
        if let MessageKey::Durable { .. } = key
            && let Some(place) = self.place(key)
        {
            self.evict_from(place);
        }
    }

    fn evict_from(&mut self, place: Place) {
        if let Some(stored) = self.shelf.get_mut(place)
            && stored.is_loose()
        {
            stored.resident = false;
            stored.message.bytes = Bytes::new();
            self.resident_bytes -= stored.own_bytes();
            stored.leave_ahead(&mut self.ahead);
        }
    }

    /// Puts a body back that was read from the log.
    pub fn restore(&mut self, which: impl Into<BodyLocation>, message: Message) {
        let Some(place) = self.place(which) else { return };
        if let Some(stored) = self.shelf.get_mut(place)
            && !stored.resident
        {
            stored.resident = true;
            stored.message = message;
            self.resident_bytes += stored.own_bytes();
            self.put_ahead(place);
        }
    }

    /// Every volatile message, in the order in which they came.
    pub fn volatile(&self) -> impl Iterator<Item = (MessageKey, &Message)> {
        let stored = self.shelf.iter().filter(|stored| matches!(stored.key, MessageKey::Volatile(_)));
        stored.map(|stored| (stored.key, &stored.message))
    }

    /// Every durable message, in no particular order.
    pub fn durable(&self) -> impl Iterator<Item = (MessageKey, &Message, u64)> {
        self.shelf
            .iter()
            .filter(|stored| matches!(stored.key, MessageKey::Durable { .. }))
            .map(|stored| (stored.key, &stored.message, stored.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{Encoding, NORMAL_PRIORITY, Protocol};

    #[test]
    fn a_body_that_stays_keeps_no_more_than_itself_unless_somebody_has_it() {
        for (case, bytes, is_in_hand, want) in [
            ("small ones are many to a buffer", 1000, false, false),
            ("a part of a buffer", 3000, false, true),
            ("somebody has it, and it need not stay", 3000, true, false),
            ("a large one has its own buffer", 100_000, false, false),
        ] {
            let buffer = Bytes::from(vec![7; 200_000]);
            let (mut bodies, key) = (Bodies::default(), MessageKey::Volatile(1));
            let message = Message {
                encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
                persistent: false,
                priority: NORMAL_PRIORITY,
                expires_at_ms: 0,
                rare: None,
                bytes: buffer.slice(..bytes),
            };
            bodies.insert(key, message);
            if is_in_hand {
                bodies.pin(key);
            }
            bodies.keep_apart(key);
            assert_eq!(buffer.is_unique(), want, "case: {case}");
            assert_eq!(
                bodies.resident(key).map(|body| &body.bytes[..]),
                Some(&vec![7; bytes][..]),
                "case: {case}"
            );
        }
    }
}
