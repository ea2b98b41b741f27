//! A lane: entries in the order of arrival, from which any may leave.
//!
//! ```text
//!            gone     held / returned     never sent yet, packed        the newest
//!  pages:             [ . H . R H H . R  | ▒▒▒▒▒▒▒▒ | ▒▒▒▒▒▒▒▒ | ▒▒▒▒ |  R R R R R ]
//!                       ^cursor                                                   ^next
//! ```
//! Sequences are dense and rise. Each page has the same number of them, and is gone, or *open*:
//! entries in blocks; or *packed*: a [`Page`], a few bytes. Packed entries are ready and wait
//! undisturbed; a user of one of its entries opens the page first. Packed pages in a row become a
//! *wide* one in the place of all. Which pages are packed is known to this run alone: no record
//! depends on it. Gone entries take no room in any place: one entry that is never taken holds up
//! the memory of none after it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};

use postroad_model::{ConsumerKey, MessageKey};

use super::lanes::SEQUENCE_BITS;
use super::page::{PAGE_ENTRIES_MAX, Page};
use crate::memory::shelf::Place;

/// Entries to a block: small enough that a queue of one message stays small, large enough that
/// the block's own cost does not count.
const BLOCK: u64 = 32;

/// Pages to a wide one, and wide ones to a wider one, if it may have that many entries: similar
/// messages take an eighth, and opening a page in it takes the time of packing seven.
const WIDE_BITS: u32 = 3;

/// A queue's claim on one message.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The message.
    pub key: MessageKey,
    /// Where that lay when the entry was made.
    pub place: Place,
    /// Order of arrival over all lanes of the queue in this run; not replicated.
    pub stamp: u64,
    /// How often it was delivered without success, by the log.
    pub failed_deliveries: u32,
    /// How often more, on the way to the log.
    pub uncounted_deliveries: u32,
    /// Who has it.
    pub state: EntryState,
}

/// Who has an entry. Only `Ready` and `Leaving` follow from the log; the rest is known to this run
/// alone.
///
/// ```text
///   Ready ──deliver──▶ Held ──settle──▶ Leaving ──record applied──▶ (removed)
///     ▲                 │ ▲                │
///     ├─────release─────┤ └──not durable───┘
///     └──due── Resting ◀┘ rejected, and to be delivered again
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Waits for a consumer.
    Ready,
    /// A consumer has it.
    Held {
        /// Which.
        by: ConsumerKey,
        /// An open transaction will settle it.
        in_transaction: bool,
    },
    /// It was delivered without success, and waits until it may be delivered again.
    Resting,
    /// A lease holds it, or it waits for its delay: see `leasing`.
    Leased,
    /// Its settlement is on the way to the log, or prepared there.
    Leaving,
}

impl Entry {
    /// How often it was delivered without success.
    pub fn deliveries(&self) -> u32 {
        self.failed_deliveries.saturating_add(self.uncounted_deliveries)
    }
}

impl EntryState {
    /// Whether the entry is in flight. So long its message is pinned once for it: the body stays in
    /// memory.
    pub fn is_in_hand(self) -> bool {
        !matches!(self, EntryState::Ready | EntryState::Resting | EntryState::Leased)
    }
}

/// See the head of this file.
#[derive(Default)]
pub struct Lane {
    /// Pages have `1 << page_bits` entries.
    page_bits: u32,
    /// By their first sequence; a wide one by that of the first of the pages in it.
    pages: BTreeMap<u64, Slot>,
    /// First sequences of the open pages, in the order in which they were opened.
    open: VecDeque<u64>,
    cursor: u64,
    next: u64,
    /// Entries that came back and are ready, with the number of their return.
    returned: BTreeMap<u64, u64>,
    /// The same by that number.
    returns: BTreeMap<u64, u64>,
    next_return: u64,
    live: u64,
}

/// A part of a lane.
pub enum Span<'l> {
    /// An entry of an open page.
    Open(&'l Entry),
    /// A packed page.
    Packed(&'l Page),
}

/// The contents of a page that was taken out whole.
pub enum TakenPage {
    /// The entries of an open one, in order.
    Open(Vec<(u64, Entry)>),
    /// A packed one.
    Packed(Box<Page>),
}

enum Slot {
    Open(Box<Blocks>),
    Packed(Box<Page>),
}

#[derive(Default)]
struct Blocks {
    live: u64,
    blocks: Vec<Option<Box<Block>>>,
    /// Its packed form, while none of its entries changes; `None` inside: it cannot be packed.
    written: OnceCell<Option<Box<Page>>>,
}

struct Block {
    live: u32,
    entries: [Option<Entry>; BLOCK as usize],
}

impl Blocks {
    fn get(&self, offset: u64) -> Option<&Entry> {
        self.blocks.get((offset / BLOCK) as usize)?.as_ref()?.entries[(offset % BLOCK) as usize].as_ref()
    }

    /// How many entries are before this place.
    fn before(&self, offset: u64) -> u64 {
        let (whole, rest) = ((offset / BLOCK) as usize, (offset % BLOCK) as usize);
        let blocks = self.blocks.iter().take(whole).flatten().map(|block| u64::from(block.live));
        let part = self.blocks.get(whole).and_then(|block| block.as_ref());
        let part = part.map_or(0, |block| block.entries[..rest].iter().flatten().count() as u64);
        blocks.sum::<u64>() + part
    }

    fn get_mut(&mut self, offset: u64) -> Option<&mut Entry> {
        self.written.take();
        let block = self.blocks.get_mut((offset / BLOCK) as usize)?;
        block.as_mut()?.entries[(offset % BLOCK) as usize].as_mut()
    }

    fn put(&mut self, offset: u64, entry: Entry) {
        self.written.take();
        let index = (offset / BLOCK) as usize;
        if self.blocks.len() <= index {
            self.blocks.resize_with(index + 1, || None);
        }
        let block = self.blocks[index]
            .get_or_insert_with(|| Box::new(Block { live: 0, entries: [const { None }; BLOCK as usize] }));
        block.entries[(offset % BLOCK) as usize] = Some(entry);
        block.live += 1;
        self.live += 1;
    }

    fn take(&mut self, offset: u64) -> Option<Entry> {
        self.written.take();
        let slot = self.blocks.get_mut((offset / BLOCK) as usize)?;
        let block = slot.as_mut()?;
        let entry = block.entries[(offset % BLOCK) as usize].take()?;
        block.live -= 1;
        self.live -= 1;
        if block.live == 0 {
            *slot = None;
        }
        Some(entry)
    }

    /// Every entry with its sequence, in order, of a page that begins with `first`.
    fn take_all(self, first: u64) -> Vec<(u64, Entry)> {
        let blocks = (first..).step_by(BLOCK as usize).zip(self.blocks);
        let entries = blocks.filter_map(|(first, block)| Some((first, block?.entries)));
        let entries = entries.flat_map(|(first, entries)| (first..).zip(entries));
        entries.filter_map(|(sequence, entry)| Some((sequence, entry?))).collect()
    }

    /// The first entry from this offset on that is wanted.
    fn find(&self, mut offset: u64, wanted: impl Fn(&Entry) -> bool) -> Option<(u64, &Entry)> {
        while let Some(block) = self.blocks.get((offset / BLOCK) as usize) {
            let places = block.iter().flat_map(|block| &block.entries[(offset % BLOCK) as usize..]);
            for (found, entry) in (offset..).zip(places) {
                if let Some(entry) = entry.as_ref().filter(|entry| wanted(entry)) {
                    return Some((found, entry));
                }
            }
            offset = (offset / BLOCK + 1) * BLOCK;
        }
        None
    }

    /// Every entry with its offset, in order.
    fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        let blocks = (0..).step_by(BLOCK as usize).zip(&self.blocks);
        let blocks = blocks.filter_map(|(offset, block)| Some((offset, block.as_ref()?)));
        blocks.flat_map(|(offset, block)| {
            let entries = (offset..).zip(&block.entries);
            entries.filter_map(|(offset, entry)| Some((offset, entry.as_ref()?)))
        })
    }
}

impl Lane {
    /// An empty lane with pages of this many entries: a power of two, of at most
    /// [`PAGE_ENTRIES_MAX`].
    pub fn new(page_entries: u64) -> Lane {
        let page_bits = page_entries.clamp(1, PAGE_ENTRIES_MAX).next_power_of_two().ilog2();
        Lane { page_bits, ..Lane::default() }
    }

    /// How many entries it holds.
    pub fn len(&self) -> u64 {
        self.live
    }

    /// The sequence of the next entry to come.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// How many entries are before this one; of a packed page that it is in, as many as there are
    /// at most. Takes a step for each page.
    pub fn before(&self, sequence: u64) -> u64 {
        let count = |(first, slot): (&u64, &Slot)| match slot {
            Slot::Open(blocks) => blocks.before(sequence - first),
            Slot::Packed(page) => page.len().min(sequence - first),
        };
        self.pages.range(..sequence).map(count).sum()
    }

    /// Entries to a page.
    pub fn page_entries(&self) -> u64 {
        1 << self.page_bits
    }

    /// The first sequence of the page of this one.
    pub fn page_of(&self, sequence: u64) -> u64 {
        sequence >> self.page_bits << self.page_bits
    }

    /// Appends; returns the entry's sequence.
    pub fn push(&mut self, entry: Entry) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.put(sequence, entry);
        sequence
    }

    /// Makes the lane begin with this sequence; it is empty.
    pub fn begin_at(&mut self, sequence: u64) {
        *self = Lane { page_bits: self.page_bits, cursor: sequence, next: sequence, ..Lane::default() };
    }

    /// Has pages of this many entries from now on; it is empty. `false`: there are no such pages.
    pub fn restore_page_entries(&mut self, page_entries: u64) -> bool {
        let is_possible = page_entries.is_power_of_two() && page_entries <= PAGE_ENTRIES_MAX;
        if is_possible {
            *self = Lane::new(page_entries);
        }
        is_possible
    }

    /// Restores an entry at its old sequence, after that at which the lane begins.
    pub fn restore(&mut self, sequence: u64, entry: Entry) {
        self.next = self.next.max(sequence + 1);
        self.put(sequence, entry);
    }

    /// Leaves out sequences up to `next`, which were used and are gone.
    pub fn skip_to(&mut self, next: u64) {
        if self.live == 0 {
            self.begin_at(next);
        }
        self.next = self.next.max(next);
    }

    fn put(&mut self, sequence: u64, entry: Entry) {
        let page = self.page_of(sequence);
        if self.pages.is_empty() {
            self.cursor = self.cursor.max(page);
        }
        let slot = self.pages.entry(page).or_insert_with(|| {
            self.open.push_back(page);
            Slot::Open(Box::default())
        });
        if let Slot::Open(blocks) = slot {
            blocks.put(sequence - page, entry);
            self.live += 1;
        }
    }

    /// The entry, if its page is open and has it.
    pub fn get(&self, sequence: u64) -> Option<&Entry> {
        self.blocks_of(sequence)?.get(sequence - self.page_of(sequence))
    }

    /// The page of this sequence, if it is open.
    fn blocks_of(&self, sequence: u64) -> Option<&Blocks> {
        match self.pages.get(&self.page_of(sequence))? {
            Slot::Open(blocks) => Some(blocks),
            Slot::Packed(_) => None,
        }
    }

    /// The entry, if its page is open and has it, to change it.
    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut Entry> {
        let page = self.page_of(sequence);
        match self.pages.get_mut(&page)? {
            Slot::Open(blocks) => blocks.get_mut(sequence - page),
            Slot::Packed(_) => None,
        }
    }

    /// Takes the entry out of its page, which is open.
    pub fn remove(&mut self, sequence: u64) -> Option<Entry> {
        let page = self.page_of(sequence);
        let Some(Slot::Open(blocks)) = self.pages.get_mut(&page) else { return None };
        let entry = blocks.take(sequence - page)?;
        self.live -= 1;
        if blocks.live == 0 {
            self.pages.remove(&page);
            self.forget_open(page);
        }
        self.forget_return(sequence);
        Some(entry)
    }

    /// A page is open no more.
    fn forget_open(&mut self, page: u64) {
        // Nearly always the first.
        if let Some(at) = self.open.iter().position(|open| *open == page) {
            self.open.remove(at);
        }
    }

    /// The packed page that has this sequence in its range, if it is packed.
    pub fn packed(&self, sequence: u64) -> Option<&Page> {
        // Nearly always it is asked of an open one.
        if self.blocks_of(sequence).is_some() {
            return None;
        }
        match self.pages.range(..=sequence).next_back()? {
            (_, Slot::Packed(page)) => (sequence < self.end_of(page)).then_some(page),
            (_, Slot::Open(_)) => None,
        }
    }

    /// The first sequence after a packed page's range.
    fn end_of(&self, page: &Page) -> u64 {
        self.page_of(page.ends().1) + self.page_entries()
    }

    /// The pages that become a wider one with the packed page of this sequence; none unless all of
    /// them are packed and as wide as it.
    pub fn row_of_packed(&self, sequence: u64) -> Vec<&Page> {
        let Some(bits) = self.packed(sequence).map(|page| self.width_bits(page)) else { return Vec::new() };
        let wide_bits = WIDE_BITS.min(PAGE_ENTRIES_MAX.ilog2().saturating_sub(bits));
        let first = sequence >> (bits + wide_bits);
        let row = ((first << wide_bits)..(first + 1) << wide_bits).map_while(|block| {
            let page = self.packed(block << bits)?;
            (self.width_bits(page) == bits && page.ends().0 >> bits == block).then_some(page)
        });
        let row: Vec<&Page> = row.collect();
        if wide_bits > 0 && row.len() == 1 << wide_bits { row } else { Vec::new() }
    }

    /// A page has this many sequences, as a power of two: those of a page, or of a row of rows of
    /// pages.
    fn width_bits(&self, page: &Page) -> u32 {
        let (first, last) = page.ends();
        self.widths().find(|bits| first >> bits == last >> bits).unwrap_or(self.page_bits)
    }

    /// The widths that pages may have.
    fn widths(&self) -> impl Iterator<Item = u32> {
        (self.page_bits..=SEQUENCE_BITS).step_by(WIDE_BITS as usize)
    }

    /// Where the widest block of pages ends that has this sequence and not the other, which is in
    /// another page.
    pub fn end_of_block_beside(&self, sequence: u64, other: u64) -> u64 {
        let apart = |bits: &u32| sequence >> bits != other >> bits;
        let bits = self.widths().take_while(apart).last().unwrap_or(self.page_bits);
        ((sequence >> bits) + 1) << bits
    }

    /// Puts a wide page in the place of the pages that are in it.
    pub fn widen(&mut self, page: Page) {
        let (first, last) = page.ends();
        let within = self.pages.range(self.page_of(first)..=last).map(|(first, _)| *first);
        for first in within.collect::<Vec<_>>() {
            self.pages.remove(&first);
        }
        self.pages.insert(self.page_of(first), Slot::Packed(Box::new(page)));
    }

    /// All packed pages, in order.
    pub fn packed_pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.values().filter_map(|slot| match slot {
            Slot::Packed(page) => Some(&**page),
            Slot::Open(_) => None,
        })
    }

    /// As [`Lane::packed_pages`], to change fields that are not written in them.
    pub fn packed_pages_mut(&mut self) -> impl Iterator<Item = &mut Page> {
        self.pages.values_mut().filter_map(|slot| match slot {
            Slot::Packed(page) => Some(&mut **page),
            Slot::Open(_) => None,
        })
    }

    /// The first sequences of all open pages, those that were opened last first.
    pub fn open_pages(&self) -> impl Iterator<Item = u64> {
        self.open.iter().rev().copied()
    }

    /// Whether no entry will come into this page any more.
    pub fn is_full(&self, page: u64) -> bool {
        page < self.page_of(self.next)
    }

    /// Whether it has packed pages.
    pub fn is_deep(&self) -> bool {
        self.open.len() < self.pages.len()
    }

    /// Open pages that are full.
    pub fn full_pages(&self) -> impl Iterator<Item = u64> {
        self.open_pages().filter(|page| self.is_full(*page))
    }

    /// The entries of an open page, in order.
    pub fn page(&self, page: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let blocks = self.blocks_of(page).into_iter();
        blocks.flat_map(move |blocks| blocks.iter().map(move |(offset, entry)| (page + offset, entry)))
    }

    /// The packed form of an open page, as `make` has it; made once, until one of its entries
    /// changes.
    pub fn written(&self, page: u64, make: impl FnOnce() -> Option<Page>) -> Option<&Page> {
        self.blocks_of(page)?.written.get_or_init(|| make().map(Box::new)).as_deref()
    }

    /// Whether [`Lane::written`] has nothing to make for this page.
    pub fn is_written(&self, page: u64) -> bool {
        self.blocks_of(page).is_none_or(|blocks| blocks.written.get().is_some())
    }

    /// Whether an entry of the page came back and waits to be delivered again: such a page stays
    /// open.
    pub fn has_returned(&self, page: u64) -> bool {
        self.returned.range(page..page + self.page_entries()).next().is_some()
    }

    /// Puts a page in the place of its entries.
    pub fn pack(&mut self, page: Page) {
        let first = self.page_of(page.ends().0);
        self.pages.insert(first, Slot::Packed(Box::new(page)));
        self.forget_open(first);
    }

    /// Takes the page of this sequence out, if it is packed: its entries are to be restored, in
    /// pages or for themselves.
    pub fn take_packed(&mut self, sequence: u64) -> Option<Page> {
        let first = self.page_of(self.packed(sequence)?.ends().0);
        let Some(Slot::Packed(page)) = self.pages.remove(&first) else { return None };
        self.live -= page.len();
        Some(*page)
    }

    /// Restores a packed page; `false` if it is none of this lane's pages, or its place is taken.
    pub fn restore_packed(&mut self, page: Page) -> bool {
        let (first, last) = page.ends();
        let begin = self.page_of(first);
        let is_too_wide = self.end_of(&page) - begin > PAGE_ENTRIES_MAX;
        if is_too_wide || self.packed(first).is_some() || self.pages.range(begin..=last).next().is_some() {
            return false;
        }
        self.live += page.len();
        self.next = self.next.max(last + 1);
        self.pages.insert(begin, Slot::Packed(Box::new(page)));
        true
    }

    /// The start of the next look for a ready entry.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Marks the entry ready, in its old place.
    pub fn give_back(&mut self, sequence: u64) {
        if let Some(entry) = self.get_mut(sequence) {
            entry.state = EntryState::Ready;
            // Behind the cursor it would be missed; before it a consumer with a selector has been
            // already.
            self.forget_return(sequence);
            self.returned.insert(sequence, self.next_return);
            self.returns.insert(self.next_return, sequence);
            self.next_return += 1;
        }
    }

    fn forget_return(&mut self, sequence: u64) {
        if !self.returned.is_empty()
            && let Some(number) = self.returned.remove(&sequence)
        {
            self.returns.remove(&number);
        }
    }

    /// Stamp and sequence of the oldest ready entry.
    pub fn next_ready(&mut self) -> Option<(u64, u64)> {
        let fresh = self.scan(self.cursor, |entry| entry.state == EntryState::Ready);
        if let Some((sequence, _)) = fresh {
            self.cursor = sequence;
        }
        let returned = self.first_returned();
        let first = fresh.into_iter().chain(returned).min()?;
        Some((first.1, first.0))
    }

    fn first_returned(&mut self) -> Option<(u64, u64)> {
        while let Some((sequence, _)) = self.returned.first_key_value() {
            let sequence = *sequence;
            match self.get(sequence) {
                Some(entry) if entry.state == EntryState::Ready => return Some((sequence, entry.stamp)),
                _ => self.forget_return(sequence),
            };
        }
        None
    }

    /// The returns from this number on, each with its sequence and entry, whatever became of it
    /// since.
    pub fn returned_since(&self, number: u64) -> impl Iterator<Item = (u64, u64, &Entry)> {
        let entry = |(number, sequence): (&u64, &u64)| Some((*number, *sequence, self.get(*sequence)?));
        self.returns.range(number..).filter_map(entry)
    }

    /// The number of the return of this entry, if it has come back and waits.
    pub fn returned_at(&self, sequence: u64) -> Option<u64> {
        self.returned.get(&sequence).copied()
    }

    /// The number of the return of this entry, or of the next one if it has not come back.
    pub fn return_of(&self, sequence: u64) -> u64 {
        self.returned_at(sequence).unwrap_or(self.next_return)
    }

    /// The first entry from `from` on that is ready; without the entry itself if its page is
    /// packed.
    pub fn ready_from(&self, from: u64) -> Option<(u64, Option<&Entry>)> {
        let (sequence, _) = self.scan(from, |entry| entry.state == EntryState::Ready)?;
        Some((sequence, self.get(sequence)))
    }

    /// Stamp and sequence of the first entry from `from` on that is not leaving.
    pub fn next_visible(&self, from: u64) -> Option<(u64, u64)> {
        self.scan(from, |entry| entry.state != EntryState::Leaving).map(|(sequence, stamp)| (stamp, sequence))
    }

    /// Stamp and sequence of the first entry from `from` on, in whatever state.
    pub fn next_entry(&self, from: u64) -> Option<(u64, u64)> {
        self.scan(from, |_| true).map(|(sequence, stamp)| (stamp, sequence))
    }

    /// The first entry from `from` on that is wanted, as everything is that is ready.
    fn scan(&self, from: u64, wanted: impl Fn(&Entry) -> bool) -> Option<(u64, u64)> {
        // A wide page begins where the one of `from` may be far behind.
        let begin = self.packed(from).map_or(self.page_of(from), |page| self.page_of(page.ends().0));
        self.pages.range(begin..).find_map(|(page, slot)| match slot {
            Slot::Open(blocks) => {
                let (offset, entry) = blocks.find(from.saturating_sub(*page), &wanted)?;
                Some((page + offset, entry.stamp))
            }
            Slot::Packed(page) => page.first_from(from).map(|(stamp, sequence)| (sequence, stamp)),
        })
    }

    /// Everything in it, in order.
    pub fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        self.pages.values().flat_map(|slot| {
            let (open, packed) = match slot {
                Slot::Open(blocks) => (Some(blocks), None),
                Slot::Packed(page) => (None, Some(Span::Packed(page))),
            };
            open.into_iter()
                .flat_map(|blocks| blocks.iter().map(|(_, entry)| Span::Open(entry)))
                .chain(packed)
        })
    }

    /// Takes out the first page with entries. For a lane that ends: its counts of pages and returns
    /// are not kept up.
    pub fn take_page(&mut self) -> Option<TakenPage> {
        let (first, slot) = self.pages.pop_first()?;
        Some(match slot {
            Slot::Packed(page) => TakenPage::Packed(page),
            Slot::Open(blocks) => TakenPage::Open(blocks.take_all(first)),
        })
    }

    /// Every entry of an open page with its sequence, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        let open = self.pages.iter().filter_map(|(page, slot)| match slot {
            Slot::Open(blocks) => Some((page, blocks)),
            Slot::Packed(_) => None,
        });
        open.flat_map(|(page, blocks)| blocks.iter().map(move |(offset, entry)| (page + offset, entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry {
            key: MessageKey::Volatile(number),
            place: Place::NONE,
            stamp: number,
            failed_deliveries: 0,
            uncounted_deliveries: 0,
            state: EntryState::Ready,
        }
    }

    fn hold(lane: &mut Lane, sequence: u64) {
        let by = ConsumerKey::new(postroad_model::ConnectionId::new(0, 1), 1);
        lane.get_mut(sequence).expect("entry").state = EntryState::Held { by, in_transaction: false };
    }

    fn take(lane: &mut Lane) -> Option<u64> {
        let (_, sequence) = lane.next_ready()?;
        hold(lane, sequence);
        Some(sequence)
    }

    #[test]
    fn entries_come_in_order_of_arrival_and_returned_ones_first() {
        let mut lane = Lane::new(64);
        for number in 0..100 {
            lane.push(entry(number));
        }
        let first: Vec<_> = (0..50).filter_map(|_| take(&mut lane)).collect();
        assert_eq!(first, (0..50).collect::<Vec<_>>());
        for sequence in [30, 10, 20] {
            lane.give_back(sequence);
        }
        let rest: Vec<_> = (0..5).filter_map(|_| take(&mut lane)).collect();
        assert_eq!(rest, [10, 20, 30, 50, 51]);
    }

    #[test]
    fn the_block_beside_a_page_is_as_wide_as_it_can_be_without_it() {
        let lane = Lane::new(2);
        for (sequence, other, want) in [
            (5, 4, 6),
            (2, 1, 4),
            (15, 1, 16),
            (16, 1, 32),
            (127, 16, 128),
            (3, 127, 16),
            (128, 0, 256),
            (4095, 0, 4096),
        ] {
            assert_eq!(lane.end_of_block_beside(sequence, other), want, "{sequence} beside {other}");
        }
    }

    #[test]
    fn removed_entries_leave_no_blocks_behind() {
        let mut lane = Lane::new(64);
        for number in 0..10_000 {
            lane.push(entry(number));
        }
        for sequence in 1..10_000 {
            assert!(lane.remove(sequence).is_some(), "entry {sequence}");
        }
        assert_eq!((lane.len(), lane.open.len(), lane.page(0).count()), (1, 1, 1));
        assert_eq!(lane.pages.len(), 1, "what is gone behind the first takes no room");
        assert_eq!(lane.remove(0).map(|entry| entry.stamp), Some(0));
        assert_eq!((lane.len(), lane.remove(0).is_none()), (0, true));
        let sequence = lane.push(entry(7));
        assert_eq!((sequence, take(&mut lane)), (10_000, Some(10_000)));
    }

    #[test]
    fn restored_entries_keep_their_sequences() {
        let mut lane = Lane::new(8);
        lane.begin_at(70);
        for sequence in [70, 75, 200] {
            lane.restore(sequence, entry(sequence));
        }
        lane.skip_to(300);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut lane)).collect();
        assert_eq!((taken, lane.push(entry(1))), (vec![70, 75, 200], 300));
    }
}
